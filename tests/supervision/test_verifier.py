"""A verifier that errs changes rewards alone, repeatably, and where its rules and rates say (R25)."""

from dataclasses import replace

import pytest
from cases import each
from decisions import by_group

from olr_cli.answers.graded import SENTINEL
from olr_cli.data.prompts import Prompt
from olr_cli.errors import UserError
from olr_cli.recipe.layers import load_recipe, validate
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.verifier import VerifierSection
from olr_cli.supervision import Rollout, RolloutGroup, Step
from olr_cli.supervision.supervisor import make_supervisor
from olr_cli.supervision.verifier import Verifier

ANSWERS = ["12", "12.0", "22", "13", "7", None, "x", "112"]
OLR = {"name": "olr", "criteria": [], "warmup_epochs": 0}


def decide(
    judge,
    verifier,
    answers=ANSWERS,
    *,
    visits=1,
    method=None,
    given="12",
    seed=0,
    prompt_id="p",
):
    """What a verifier that errs so makes of the same rollouts, visit after visit."""
    recipe = Recipe(seed=seed, verifier=verifier, method=method or {"name": "grpo"})
    supervisor = make_supervisor(recipe, 1, judge, None)
    prompt = Prompt(prompt_id, (), given, "12", "clean")
    rollouts = tuple(
        Rollout("no box" if a is None else f"Certainly: \\boxed{{{a}}}") for a in answers
    )
    groups = [
        RolloutGroup(prompt, visit, visit, rollouts) for visit in range(1, visits + 1)
    ]
    return [by_group(supervisor.supervise(Step.of([group])))[0] for group in groups]


@each(
    "verifier, rewards",
    ({}, [1, 1, 0, 0, 0, 0, 0, 0]),
    ({"false_negative_rate": 1}, [0, 0, 0, 0, 0, 0, 0, 0]),
    # A missing answer is never accepted
    (
        {"false_positive_rate": 1},
        [1, 1, 1, 1, 1, 0, 1, 1],
    ),
    ({"where": [{"error": [10, 100], "false_positive_rate": 1}]}, [1, 1, 1, 0, 0, 0, 0, 1]),
    (
        {"where": [{"relative_error": 0.1, "false_positive_rate": 1}]},
        [1, 1, 0, 1, 0, 0, 0, 0],
    ),
    ({"where": [{"answer": "2$", "false_negative_rate": 1}]}, [0, 1, 0, 0, 0, 0, 0, 0]),
    (
        {"where": [{"response": "(?i)certainly", "false_positive_rate": 1}]},
        [1, 1, 1, 1, 1, 0, 1, 1],
    ),
    (  # the first rule that holds and has a rate for such an answer; then the section's
        {
            "where": [
                {"answer": "^1", "false_negative_rate": 1},
                {"error": [10], "false_positive_rate": 0},
            ],
            "false_positive_rate": 1,
        },
        [0, 0, 0, 1, 1, 0, 1, 1],
    ),
    ids=str,
)
def test_rewards_are_wrong_where_rules_and_rates_say(judge, verifier, rewards):
    (decided,) = decide(judge, verifier)
    assert list(decided.rewards) == rewards
    assert [rollout.oracle_reward for rollout in decided.rollouts] == [
        1,
        1,
        0,
        0,
        0,
        0,
        0,
        0,
    ]


def test_a_function_of_ones_own_says_where(judge, tmp_path, monkeypatch):
    file = tmp_path / "mine.py"
    file.write_text(
        "def errs(prompt, response, answer, label):\n"
        "    return prompt.prompt_id == 'p' and 'boxed' in response and answer == '7' and label == '12'\n"
        "def fails(prompt, response, answer, label):\n    return 1 / 0\n"
    )
    rule = {"function": f"{file}:errs", "false_positive_rate": 1}
    (decided,) = decide(judge, {"where": [rule]})
    assert list(decided.rewards) == [1, 1, 0, 0, 1, 0, 0, 0]
    with pytest.raises(
        UserError, match=r"prompt p: the function raised ZeroDivisionError.*mine.py line 4"
    ):
        decide(judge, {"where": [{**rule, "function": f"{file}:fails"}]})


@pytest.mark.parametrize("draw", ["rollout", "answer"])
def test_draws_repeat_and_hit_as_often_as_the_rate_says(judge, draw):
    verifier = {"false_negative_rate": 0.3, "false_positive_rate": 0.1, "draw": draw}
    answers = [str(number) for number in range(12, 1012)]
    for given in ("12", "none of them"):
        first, second = decide(judge, verifier, answers, visits=2, given=given)
        again, _ = decide(judge, verifier, answers, visits=2, given=given)
        assert first.rewards == again.rewards
        assert (first.rewards == second.rewards) == (draw == "answer")
        assert 70 < sum(first.rewards) < 130
        assert (
            decide(judge, verifier, answers, given=given, seed=1)[0].rewards
            != first.rewards
        )
    (rejected,) = decide(judge, {"false_negative_rate": 0.3}, ["12"] * 1000)
    assert 630 < sum(rejected.rewards) < 770


def test_the_same_answer_always_errs_where_errors_are_drawn_by_answer(judge):
    verifier = {"false_negative_rate": 0.5, "draw": "answer"}
    seen = set()
    for prompt_id in map(str, range(20)):
        visits = decide(
            judge, verifier, ["12", "12.0", "12"], visits=3, prompt_id=prompt_id
        )
        assert len({reward for decided in visits for reward in decided.rewards}) == 1
        seen.add(visits[0].rewards[0])
    assert seen == {0.0, 1.0}


def test_labels_votes_and_history_see_nothing_of_it(judge):
    rollouts = ["12"] * 3 + ["7"] * 2
    plain, erring = (
        decide(judge, verifier, rollouts, visits=3, method=OLR, given="7")
        for verifier in (None, {"false_positive_rate": 0.5, "false_negative_rate": 0.5})
    )
    for one, other in zip(plain, erring, strict=True):
        assert replace(other.label, reward_mean=0, has_zero_variance=0) == replace(
            one.label, reward_mean=0, has_zero_variance=0
        )


def test_rates_of_zero_change_nothing(judge):
    (plain,), (erring,) = (
        decide(judge, verifier) for verifier in (None, VerifierSection())
    )
    assert plain.label == erring.label
    assert [replace(rollout, oracle_reward=None) for rollout in erring.rollouts] == list(
        plain.rollouts
    )


@pytest.mark.parametrize(
    ("graded_by", "rewards"), [("class", [1, 1, 0]), ("verifier", [0, 0, 0])]
)
def test_a_majority_label_rewards_its_class_and_asks_no_verifier_unless_it_shall(
    judge, graded_by, rewards
):
    method = {**OLR, "majority_graded_by": graded_by}
    (decided,) = decide(
        judge, {"false_negative_rate": 1}, ["12", "12", "7"], method=method, given="7"
    )
    assert decided.label.label_source == "majority"
    assert list(decided.rewards) == rewards


def test_the_sentinel_matches_nothing_and_can_be_accepted_by_error(judge):
    (decided,) = decide(judge, {"false_positive_rate": 1}, ["12", None], given=SENTINEL)
    assert list(decided.rewards) == [1, 0]


@each(
    "verifier, said",
    ({"where": [{"error": [1]}]}, "verifier.where.0: a rule needs false_negative_rate"),
    (
        {"where": [{"false_positive_rate": 1}]},
        "a rule has one of error, .*, and here are 0",
    ),
    (
        {"where": [{"error": [-10], "false_positive_rate": 1}]},
        "error is a list of distances",
    ),
    ({"where": [{"error": [], "false_positive_rate": 1}]}, "error is a list of distances"),
    ({"false_positive_rate": 1.1}, r"verifier.false_positive_rate"),
    (
        {"where": [{"answer": "(", "false_positive_rate": 1}]},
        "verifier.where: the regular expression '\\('",
    ),
)
def test_a_section_that_says_nothing_or_too_much_is_refused(judge, verifier, said):
    with pytest.raises(UserError, match=said):
        make_supervisor(validate({"verifier": verifier}, "mine.yaml"), 1, judge, None)


@pytest.mark.parametrize("method", ["ttrl", "co_reward", "self_certainty"])
def test_a_method_that_asks_no_verifier_is_refused(method):
    with pytest.raises(
        UserError, match=f"verifier is set, but {method} never asks a verifier"
    ):
        validate(
            {"verifier": {"false_positive_rate": 0.1}, "method": {"name": method}},
            "mine.yaml",
        )


def test_without_the_section_a_recipe_keeps_its_digest():
    assert (
        load_recipe("laptop/quickstart", ["verifier=null"]).digest()
        == load_recipe("laptop/quickstart").digest()
    )


def test_rules_about_distances_need_labels_that_are_numbers(judge):
    verifier = Verifier(
        Recipe(verifier={"where": [{"error": [1], "false_positive_rate": 1}]})
    )
    words, number = (Prompt("p", (), text, None, "clean") for text in ("red", "3"))
    verifier.require_numbers([words, number])
    with pytest.raises(UserError, match=r"verifier.where.*no label here is one"):
        verifier.require_numbers([words])


@pytest.mark.parametrize("draw", ["rollout", "answer"])
def test_errors_do_not_depend_on_the_other_prompts_of_a_step(judge, draw):
    rates = {"false_negative_rate": 0.5, "false_positive_rate": 0.5, "draw": draw}
    recipe = Recipe(verifier=rates, method={"name": "grpo"})
    answers = [*ANSWERS, *map(str, range(100, 130))]
    rollouts = tuple(Rollout(f"\\boxed{{{answer or ''}}}") for answer in answers)
    groups = [
        RolloutGroup(Prompt(name, (), "12", "12", "clean"), 1, 1, rollouts)
        for name in ("p", "q", "r")
    ]
    rewards = {}
    for order in (groups, groups[::-1]):
        decided = by_group(
            make_supervisor(recipe, 1, judge, None).supervise(Step.of(order))
        )
        for group, of_one in zip(order, decided, strict=True):
            assert (
                rewards.setdefault(group.prompt.prompt_id, of_one.rewards) == of_one.rewards
            )
    assert len(set(rewards.values())) == 3


@each("truth, undecided", (None, 0), ("十二", 1))
def test_without_a_true_answer_no_verdict_is_undecided(judge, truth, undecided):
    prompt = Prompt("p", (), "x+1", truth, None, is_verified=True)
    rollouts = tuple(Rollout(f"\\boxed{{{answer}}}") for answer in ("x", "十二", "\\foo{"))
    supervisor = make_supervisor(Recipe(), 1, judge, None)
    decided = supervisor.supervise(Step.of([RolloutGroup(prompt, 1, 1, rollouts)]))
    assert decided.undecided == undecided
