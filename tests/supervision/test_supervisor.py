"""Labels and rewards of one visit after the other (R2 to R4, R9 to R16, R18)."""

import itertools
import random
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction

import polars as pl
import pytest
from cases import each
from decisions import by_group, make_method

from olr_cli.answers.graded import SENTINEL
from olr_cli.data.chat import Message
from olr_cli.data.prompts import Prompt
from olr_cli.recipe.layers import validate
from olr_cli.recipe.methods import METHODS, OlrMethod
from olr_cli.supervision import Rollout, RolloutGroup, Step, Supervisor, compose


def prompt(noise_type="clean", given="12", true="12", prompt_id="p", **fields):
    return Prompt(prompt_id, (), given, true, noise_type, **fields)


def group(prompt, visit, answers, step=None):
    rollouts = tuple(
        Rollout("no box" if a is None else f"so \\boxed{{{a}}}") for a in answers
    )
    return RolloutGroup(prompt, visit, step or visit, rollouts)


def supervise(judge, method, prompt, visits, **kwargs):
    supervisor = Supervisor(compose(method), judge, seed=0, **kwargs)
    return [
        by_group(supervisor.supervise(Step.of([group(prompt, t, answers)])))[0]
        for t, answers in enumerate(visits, 1)
    ]


def test_grpo_rewards_the_given_label_whatever_the_majority_says(judge):
    wrong = prompt(given="7", true="12")
    (decided,) = supervise(judge, make_method("grpo"), wrong, [["12", "12", "7", None]])
    assert decided.rewards == (0.0, 0.0, 1.0, 0.0)
    assert decided.label.majority_answer == "12"
    assert decided.label.label_source == "given"
    assert not decided.label.is_selected


def test_all_prompts_train_unless_a_share_is_given(judge):
    method = validate({"method": {"name": "random_selection"}}, "x").method
    groups = [group(prompt(prompt_id=str(n)), 1, ["12", "7"]) for n in range(4)]
    for share, kept in ({}, 4), ({"keep_fraction": Fraction(1, 2)}, 2):
        supervisor = Supervisor(compose(method), judge, seed=0, **share)
        assert sum(supervisor.supervise(Step.of(groups)).trains) == kept


@pytest.mark.parametrize("label", ["None", "#REF!", "notfound", "proof"])
def test_a_label_that_stands_for_a_missing_one_rewards_nobody_and_is_no_truth(judge, label):
    given = prompt(None, label, None)
    assert given.file_label == label
    (decided,) = supervise(judge, make_method("grpo"), given, [[label, "7", None]])
    assert decided.rewards == (0.0, 0.0, 0.0) and decided.label.given_label_count == 0
    (drawn,) = supervise(
        judge, make_method("grpo"), prompt("active", SENTINEL, label), [[label, "7", "8"]]
    )
    assert drawn.label.noisy_label == SENTINEL, (
        "nothing is proved wrong by what is no truth (R3)"
    )


def test_answers_that_are_proved_neither_right_nor_wrong_are_counted_and_never_drawn(judge):
    answers = ["12", "12 = 13", "7", None]
    given = Supervisor(compose(make_method("grpo")), judge, seed=0)
    decided = given.supervise(Step.of([group(prompt(given="12", true="12"), 1, answers)]))
    assert (decided.undecided, list(decided.rewards)) == (1, [1.0, 0.0, 0.0, 0.0])
    (drawn,) = supervise(
        judge,
        make_method("grpo"),
        prompt("active", SENTINEL, "12"),
        [["12", "12 = 13", "12 = 14"]],
    )
    assert drawn.label.noisy_label == SENTINEL


def test_answers_that_are_known_already_count_whatever_the_responses_say(judge):
    known = RolloutGroup(
        prompt(), 1, 1, (Rollout("\\boxed{7}"),) * 3, answers=("12", None, SENTINEL)
    )
    (decided,) = by_group(
        Supervisor(compose(make_method("grpo")), judge, seed=0).supervise(Step.of([known]))
    )
    assert [rollout.answer for rollout in decided.rollouts] == ["12", None, None]
    assert decided.rewards == (1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("question", "reward"), [("What percentage is it?", 1.0), ("What is it?", 0.0)]
)
def test_a_percent_sign_is_right_where_the_question_asks_for_a_percentage(
    judge, question, reward
):
    of_percent = replace(prompt(), messages=(Message("user", question),))
    (decided,) = supervise(
        judge, make_method("grpo"), of_percent, [[r"12\%", "12", "13", None]]
    )
    assert decided.rewards == (reward, 1.0, 0.0, 0.0)
    assert decided.label.given_label_count == decided.label.true_answer_count == 1 + reward
    assert decided.label.in_percent is (True if reward else None)


def test_missing_answers_do_not_vote_but_count_in_the_pass_rate(judge):
    (decided,) = supervise(judge, make_method("grpo"), prompt(), [["12", None, None, None]])
    assert (decided.label.majority_answer, decided.label.majority_count) == ("12", 1)
    assert (decided.label.rollouts, decided.label.answered) == (4, 1)
    assert decided.label.pass_rate == 0.25


@pytest.mark.parametrize("answers", [["1", "1", "2", "2"], [None] * 4])
def test_a_tie_or_no_answer_is_no_majority(judge, answers):
    (decided,) = supervise(
        judge, OlrMethod(criteria=(), warmup_epochs=0), prompt(), [answers]
    )
    assert decided.label.majority_answer is None
    assert decided.label.pass_rate == 0
    assert not decided.label.is_selected
    assert decided.label.majority_is_correct is False


def test_olr_keeps_the_label_during_warm_up_then_follows_a_rising_steady_majority(judge):
    rising = [["12"] * n + ["7"] * (8 - n) for n in (5, 6, 7, 8)]
    wrong = prompt("inactive", SENTINEL, "12")
    decided = supervise(
        judge, OlrMethod(warmup_epochs=2, slope_threshold="0.1"), wrong, rising
    )
    assert [d.label.is_selected for d in decided] == [False, False, True, True]
    assert [d.label.effective_label for d in decided] == [SENTINEL, SENTINEL, "12", "12"]
    assert [d.label.label_source for d in decided] == [
        "sentinel",
        "sentinel",
        "majority",
        "majority",
    ]
    assert [sum(d.rewards) for d in decided] == [0, 0, 7, 8]
    assert decided[-1].label.slope == 0.125


RISING, FALLING = (
    [["12"] * n + ["7"] * (8 - n) for n in rights] for rights in ((5, 6, 7), (8, 7, 6))
)
CHANGING = [["7"] * 5 + ["12"] * 3] * 2 + [["12"] * 8]


@each(
    "criteria, threshold, visits, is_selected",
    (("slope", "consistency"), "0.125", RISING, False),  # which is its slope
    (("slope", "consistency"), "0.124", RISING, True),
    (("slope", "consistency"), "-1", RISING, True),
    (("slope", "consistency"), "0", FALLING, False),
    (("consistency",), "0", FALLING, True),
    (("slope", "consistency"), "0", CHANGING, False),
    (("slope",), "0", CHANGING, True),
)
def test_a_majority_is_selected_where_it_meets_every_criterion(
    judge, criteria, threshold, visits, is_selected
):
    method = OlrMethod(criteria=criteria, warmup_epochs=0, slope_threshold=threshold)
    label = supervise(judge, method, prompt(), visits)[-1].label
    assert label.is_selected == is_selected
    assert label.historical_majority == ("7" if visits is CHANGING else "12")


def test_spellings_of_one_answer_are_one_class_in_vote_history_and_reward(judge):
    half = prompt(given="\\frac{1}{2}", true="0.5")
    visits = [["0.5", "1/2", "3", "3"], ["\\frac12", "0.50", "50\\%", "3"]]
    decided = supervise(
        judge, OlrMethod(criteria=("consistency",), warmup_epochs=0), half, visits
    )
    # Two rollouts say a half, two say three
    assert decided[0].label.majority_answer is None
    assert decided[1].label.majority_count == 3
    assert decided[1].rewards == (1.0, 1.0, 1.0, 0.0)
    assert decided[1].label.true_answer_count == 3


def test_an_active_noisy_label_is_a_wrong_answer_of_this_visit(judge):
    marked = prompt("active", SENTINEL, "12")
    (decided,) = supervise(judge, make_method("grpo"), marked, [["12", "7", "8", "12"]])
    assert decided.label.noisy_label in ("7", "8")
    assert decided.label.effective_label == decided.label.noisy_label
    assert decided.label.label_source == "noisy"
    assert sum(decided.rewards) == 1 == decided.label.noisy_label_count


def test_without_a_wrong_answer_an_active_prompt_gets_the_sentinel(judge):
    marked = prompt("active", SENTINEL, "12")
    (decided,) = supervise(judge, make_method("grpo"), marked, [["12", "12.0", None]])
    assert decided.label.noisy_label == SENTINEL
    assert decided.label.label_source == "sentinel"
    assert decided.rewards == (0.0, 0.0, 0.0)


def test_noisy_labels_are_drawn_evenly_over_classes_or_by_frequency_or_the_most_frequent(
    judge,
):
    answers = ["7"] * 5 + ["8"] + ["12"] * 2
    prompts = [prompt("active", SENTINEL, "12", prompt_id=f"p{i}") for i in range(400)]

    def share_of_7(draw):
        supervisor = Supervisor(compose(make_method("grpo")), judge, seed=3, draw=draw)
        decided = by_group(
            supervisor.supervise(Step.of([group(p, 1, answers) for p in prompts]))
        )
        return sum(d.label.noisy_label == "7" for d in decided) / len(decided)

    assert share_of_7("uniform") == pytest.approx(1 / 2, abs=0.08)
    assert share_of_7("frequency") == pytest.approx(5 / 6, abs=0.08)
    assert share_of_7("most_frequent") == 1


def test_a_frozen_noisy_label_stays_what_the_file_says(judge):
    frozen = prompt("active_frozen", "7", "12")
    decided = supervise(judge, make_method("grpo"), frozen, [["8", "7"], ["12", "12"]])
    assert [d.label.noisy_label for d in decided] == ["7", "7"]
    assert [sum(d.rewards) for d in decided] == [1, 0]


@pytest.mark.parametrize("true", ["12", None])
def test_the_sentinel_is_a_wrong_label_and_never_rewarded_even_when_a_policy_writes_it(
    judge, true
):
    marked, every_majority = (
        prompt("inactive", SENTINEL, true),
        OlrMethod(criteria=(), warmup_epochs=1),
    )
    kept, refined = supervise(
        judge, every_majority, marked, [[SENTINEL, SENTINEL, "12"]] * 2
    )
    assert (kept.label.majority_answer, kept.rewards, refined.rewards) == (
        "12",
        (0, 0, 0),
        (0, 0, 1),
    )
    assert (kept.label.effective_label, kept.label.effective_label_is_correct) == (
        SENTINEL,
        False,
    )
    assert refined.label.effective_label_is_correct == (None if true is None else True)


def test_unknown_truth_stays_unknown(judge):
    unknown = prompt(noise_type=None, given="12", true=None)
    (decided,) = supervise(judge, make_method("grpo"), unknown, [["12", "7", "12"]])
    label = decided.label
    assert label.majority_is_correct is None
    assert label.true_answer_count is None
    assert label.effective_label_is_correct is None
    assert label.majority_is_noisy_label is None
    assert {r.is_correct for r in decided.rollouts} == {None}
    assert decided.rewards == (1.0, 0.0, 1.0)


def test_no_label_at_all_rewards_nothing_until_a_majority_is_selected(judge):
    unlabelled = prompt(noise_type=None, given=None, true=None)
    (kept,) = supervise(judge, make_method("grpo"), unlabelled, [["12", "12"]])
    assert (kept.label.label_source, kept.label.effective_label, kept.rewards) == (
        "none",
        None,
        (0.0, 0.0),
    )
    (majority,) = supervise(
        judge, OlrMethod(criteria=(), warmup_epochs=0), unlabelled, [["12", "12"]]
    )
    assert (majority.label.label_source, majority.rewards) == ("majority", (1.0, 1.0))


def test_decisions_depend_neither_on_group_order_nor_on_rollout_order(judge):
    rng = random.Random(0)
    prompts = [prompt("active", SENTINEL, "12", prompt_id=f"p{i}") for i in range(12)]
    visits = [
        {
            p.prompt_id: [rng.choice(["12", "7", "8", "x+1", None]) for _ in range(8)]
            for p in prompts
        }
        for _ in range(4)
    ]

    def labels(shuffled):
        supervisor = Supervisor(
            compose(OlrMethod(warmup_epochs=1, slope_threshold="0")), judge, seed=5
        )
        found = {}
        for t, answers in enumerate(visits, 1):
            order = list(prompts)
            if shuffled:
                rng.shuffle(order)
            own = {p: list(answers[p.prompt_id]) for p in order}
            if shuffled:
                for said in own.values():
                    rng.shuffle(said)
            groups = [group(p, t, said) for p, said in own.items()]
            decided = by_group(supervisor.supervise(Step.of(groups)))
            found |= {(d.label.prompt_id, t): d.label for d in decided}
        return found

    assert labels(shuffled=True) == labels(shuffled=False)


def test_a_group_out_of_turn_is_refused_and_nothing_is_recorded(judge):
    supervisor = Supervisor(compose(make_method("grpo")), judge, seed=0)
    p, q = prompt(prompt_id="p"), prompt(prompt_id="q")
    with pytest.raises(ValueError, match="visit 2 where visit 1 is due"):
        supervisor.supervise(Step.of([group(p, 1, ["1"]), group(q, 2, ["1"], step=1)]))
    with pytest.raises(ValueError, match="twice"):
        supervisor.supervise(Step.of([group(p, 1, ["1"]), group(p, 1, ["1"])]))
    assert supervisor.history.of("p").visits == 0


def test_text_that_utf8_cannot_hold_is_decided_and_stored_alike(judge):
    (decided,) = supervise(judge, make_method("grpo"), prompt(), [["\ud800", "12"]])
    decided.rollouts[0].response.encode("utf-8")
    assert decided.rollouts[0].answer == "?"


def test_verification_and_label_update_are_measured_apart_and_change_nothing(judge):
    measured = []

    @contextmanager
    def measure(part):
        measured.append(part)
        yield

    answers = ["12", "12.0", "7", None]
    (plain,) = supervise(judge, make_method("grpo"), prompt(), [answers])
    supervisor = Supervisor(compose(make_method("grpo")), judge, seed=0)
    assert by_group(
        supervisor.supervise(Step.of([group(prompt(), 1, answers)]), measure)
    ) == [plain]
    assert measured == ["verification", "labels"] * 2


SIBLINGS = [  # label, answers, and what each of them gets, whatever its siblings say
    ("4", ["8", "8", "x=8", r"\frac{x}{2}=4"], (0, 0, 0, 0)),
    ("MR=SRMC", ["MR", "MR", "MR", "SRMC=MR"], (0, 0, 0, 1)),
    (r"\text{east}", ["seat", "seat", "east", "tase"], (0, 0, 1, 0)),
    ("1,2", ["x=1,y=2", "x=2,y=1", "1,2", "2,1"], (1, 1, 1, 1)),
    ("5", [r"5\text{ cm}", r"5\text{ m}", "5", "5x"], (1, 1, 1, 0)),
]


@pytest.mark.parametrize(("label", "answers", "rewards"), SIBLINGS, ids=str)
def test_a_reward_depends_on_label_and_answer_alone_at_every_visit(
    judge, label, answers, rewards
):
    others = ["8", "5", r"\frac{x}{2}=4", "1,2"]
    visits = [answers, others, answers, others, answers]
    decided = supervise(judge, make_method("grpo"), prompt(given=label, true=label), visits)
    assert [d.rewards for d in decided[::2]] == [rewards] * 3
    for answer, reward in zip(answers, rewards, strict=True):
        (alone,) = supervise(
            judge, make_method("grpo"), prompt(given=label, true=label), [[answer, None]]
        )
        assert alone.rewards == (reward, 0)


def test_history_puts_no_two_numbers_into_one_class(judge):
    visits = [
        ["8", "8", "x=8", r"\frac{x}{2}=4"],
        ["8", "8", "4", "7"],
        ["8", "8", "8", "7"],
    ]
    decided = supervise(judge, OlrMethod(), prompt(given="4", true="4"), visits)
    assert [d.label.majority_answer for d in decided] == ["8", "8", "8"]
    assert [d.label.majority_is_correct for d in decided] == [False] * 3
    assert [d.label.historical_majority for d in decided] == ["8"] * 3


def test_a_majority_label_rewards_its_class_and_a_label_whatever_matches_it(judge):
    answers = [r"5\text{ cm}", r"5\text{ cm}", "5", "7"]
    methods = (make_method("grpo"), OlrMethod(criteria=(), warmup_epochs=0))
    ((given,), (voted,)) = (
        supervise(judge, m, prompt(given="5", true="5"), [answers]) for m in methods
    )
    assert given.rewards == (1, 1, 1, 0)
    assert voted.label.label_source == "majority" and voted.rewards == (1, 1, 0, 0)
    assert voted.label.given_label_count == 3 and voted.label.effective_label_is_correct


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_a_verified_prompt_on_its_true_answer(judge, name):
    section = make_method(name)
    views = compose(section).views
    verified = prompt("active", SENTINEL, "12", is_verified=True)
    rollouts = tuple(
        Rollout(
            f"\\boxed{{{answer}}}",
            5,
            view=view,
            mean_logprob=-1.0,
            entropy=1.0,
            self_certainty=float(k),
        )
        for view in views
        for k, answer in enumerate(["7", "7", "7", "12"])
    )
    supervisor = Supervisor(compose(section), judge, seed=0)
    for visit in range(1, 7):
        (decided,) = by_group(
            supervisor.supervise(Step.of([RolloutGroup(verified, visit, visit, rollouts)]))
        )
        label = decided.label
        assert (label.effective_label, label.label_source, label.is_selected) == (
            "12",
            "verified",
            False,
        )
        assert label.effective_label_is_correct
        assert decided.rewards == (0.0, 0.0, 0.0, 1.0) * len(views)
        assert label.noisy_label == "7"  # what it would have been


@pytest.mark.parametrize("answer", ["12.0", "8"])
def test_a_verified_label_is_right_also_where_no_rollout_spells_it_like_that(judge, answer):
    verified = prompt("clean", "9", "12", is_verified=True)
    group = RolloutGroup(verified, 1, 1, (Rollout(f"\\boxed{{{answer}}}"),) * 2)
    supervisor = Supervisor(compose(make_method("olr")), judge, seed=0)
    (decided,) = by_group(supervisor.supervise(Step.of([group])))
    assert decided.label.effective_label_is_correct
    assert decided.label.reward_mean == (answer == "12.0")


def test_verified_prompts_alone_train_if_the_method_says_so(judge):
    tree = {"method": {"name": "grpo", "prompts": "verified"}, "data": {"verified": 1}}
    method = compose(validate(tree, "test").method)
    prompts = [prompt(prompt_id=name, is_verified=name == "b") for name in "abc"]
    step = Step.of([group(p, 1, ["12", "7"]) for p in prompts])
    assert Supervisor(method, judge, seed=0).supervise(step).trains == [False, True, False]
    assert method.name == "verified_only"


def test_a_step_that_fails_leaves_no_group_of_it_in_the_history(judge):
    """Whichever group lacks a statistic: the same step, complete, is then the first visit of every prompt."""
    prompts = [prompt(prompt_id=name, is_verified=name == "b") for name in "abc"]

    def step(entropies):
        rollouts = [
            tuple(Rollout("\\boxed{12}", entropy=e) for e in (0.5, e)) for e in entropies
        ]
        return Step.of(
            [RolloutGroup(p, 1, 1, r) for p, r in zip(prompts, rollouts, strict=True)]
        )

    for section in (
        make_method("token_entropy"),
        make_method("small_loss_selection", keep_fraction="0.5"),
    ):
        supervisor = Supervisor(compose(section), judge, seed=0)
        with pytest.raises(ValueError, match="which the method needs"):
            supervisor.supervise(step([0.5, 0.5, None]))
        assert [supervisor.history.of(name).visits for name in "abc"] == [0, 0, 0]
    supervisor = Supervisor(compose(make_method("token_entropy")), judge, seed=0)
    supervisor.supervise(step([0.5, 0.5, 0.25]))
    assert [supervisor.history.of(name).visits for name in "abc"] == [1, 1, 1]


def test_a_stored_step_keeps_its_prompts_apart_however_its_rows_lie(judge):
    """Rows of prompts and views in turn are read as the groups that they are."""
    prompts = {name: prompt(prompt_id=name) for name in "ab"}
    names = "prompt_id", "visit", "step", "view", "sample", "answer"
    groups = [
        ("a", 2, 7, "original", ["12", None]),
        ("a", 2, 7, "rephrased", ["7", "7"]),
        ("b", 1, 7, "original", ["12", "12", "7"]),
        ("b", 1, 7, "rephrased", ["3"]),
    ]
    rows = [
        (*place, number, answer)
        for *place, answers in groups
        for number, answer in enumerate(answers)
    ]
    for turn in range(20):
        shuffled = random.Random(turn).sample(rows, len(rows))
        step = Step.read(pl.DataFrame(shuffled, schema=names, orient="row"), prompts)
        places = zip(
            step.prompts, step.visits, itertools.pairwise(step.starts), strict=True
        )
        found = [
            (
                one.prompt_id,
                visit,
                list(step.answers[start:end]),
                list(step.views[start:end]),
            )
            for one, visit, (start, end) in places
        ]
        assert step.number == 7
        assert sorted(found, key=lambda one: one[0]) == [
            ("a", 2, ["12", None, "7", "7"], ["original"] * 2 + ["rephrased"] * 2),
            ("b", 1, ["12", "12", "7", "3"], ["original"] * 3 + ["rephrased"]),
        ]
