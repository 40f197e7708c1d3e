"""A stored run of any method, replayed under its own recipe, gives the stored decisions; under another, a sentence."""

import json

import polars as pl
import pytest

from olr_cli import seeding
from olr_cli.analysis.histories import read_history
from olr_cli.analysis.replay.replay import replay, replay_answer, replay_file
from olr_cli.data.prompts import SENTINEL, Message, Prompt
from olr_cli.errors import UserError
from olr_cli.recipe.checks import validate
from olr_cli.recipe.schema import METHODS
from olr_cli.runs.directory import create_run
from olr_cli.runs.store import RunStore, arrow_table, scan_labels
from olr_cli.supervision import Rollout, RolloutGroup, Supervisor, compose
from olr_cli.supervision.selection import keep_fraction

NAMES = [section.model_fields["name"].default for section in METHODS]
MIXES = [
    {"name": "sequence_entropy", "score_reduction": "sum"},
    {
        "name": "olr",
        "warmup_epochs": 1,
        "slope_threshold": 0,
        "penalty_weight": 0.01,
        "prompts": "small_loss",
    },
    {"name": "ttrl", "prompts": "random", "keep_fraction": 0.25},
    {"name": "co_reward", "prompts": "small_loss", "smoothing": 0.1},
]
RESPONSES = ("\\boxed{1/2}", "so \\boxed{0.5}", "\\boxed{7}", "or \\boxed{7}", "I give up")
PROMPTS = [
    Prompt(f"{kind}-{i}", (), label, "0.5", kind, rephrased=(Message("user", "again"),))
    for kind, label in {"clean": "1/2", "inactive": SENTINEL, "active": SENTINEL}.items()
    for i in range(6)
]


def write_run(path, judge, method, *, without=()):
    """A run of three visits, two steps each, as a supervisor decided it; statistics named in `without` are unknown."""
    recipe = validate({"seed": 3, "method": method, "noise": {"type": "mixed"}}, "test")
    path.mkdir()
    create_run(path, recipe)
    chosen = compose(recipe.method)
    supervisor = Supervisor(
        chosen, judge, seed=3, extractor="boxed", keep_fraction=keep_fraction(recipe.method, PROMPTS)
    )
    step = 0
    for visit in (1, 2, 3):
        for prompts in (PROMPTS[::2], PROMPTS[1::2]):
            step += 1
            groups = [group(prompt, visit, step, chosen.views, without) for prompt in prompts]
            decided = supervisor.supervise(groups)
            rollouts = [record for supervised in decided for record in supervised.rollouts]
            RunStore(path).append(step, [supervised.label for supervised in decided], rollouts)
    return path


def group(prompt, visit, step, views, without):
    """Five rollouts a view; of the first prompt of a kind all give one answer, of the second in the same words too."""
    rollouts = []
    for view in views:
        for sample in range(5):
            u, v = (seeding.uniform("test", prompt.prompt_id, visit, view, sample, name) for name in "uv")
            # Statistics of equal responses differ by rounding.
            number = {"0": sample % 2, "1": 0}.get(prompt.prompt_id[-1], int(len(RESPONSES) * u))
            response = RESPONSES[number]
            known = {
                "tokens": 4 + len(response) // 6,
                "mean_logprob": -len(response) / 10 + 1e-9 * v,
                "entropy": len(response) / 7 + 1e-9 * v,
                "self_certainty": len(response) / 3 + 1e-9 * v,
            }
            rollouts.append(Rollout(response, view=view, **known | dict.fromkeys(without)))
    return RolloutGroup(prompt, visit, step, tuple(rollouts))


def decide(judge, source, *settings):
    return [label for step in replay(read_history(source, settings), judge) for label in step]


def stored(run):
    return scan_labels(run).collect()


@pytest.mark.parametrize("method", [*({"name": name} for name in NAMES), *MIXES], ids=str)
def test_a_run_of_any_method_under_its_own_recipe_decides_as_it_did(tmp_path, judge, method):
    run = write_run(tmp_path / "run", judge, method)
    again = pl.from_arrow(arrow_table("labels", decide(judge, run, f"method.name={method['name']}")))
    assert again.equals(stored(run))
    assert again["has_zero_variance"].n_unique() == 2


@pytest.mark.parametrize("name", ["small_loss_selection", "random_selection"])
def test_prompts_that_did_not_train_do_not_train_in_the_replay(tmp_path, judge, name):
    run = write_run(tmp_path / "run", judge, {"name": name})
    assert stored(run)["trains"].sum() == 18, "two thirds of the labels are wrong"
    history = read_history(run, [f"method.name={name}"])
    lines = replay_answer(history, judge, replay_file(history)).parts
    assert "The prompt trains or not as in the run in 54 of 54 visits." in lines
    other = read_history(run, ["method.name=grpo"])
    lines = replay_answer(other, judge, replay_file(other)).parts
    assert "The prompt trains or not as in the run in 18 of 54 visits." in lines


def test_only_responses_in_the_same_words_share_an_intrinsic_reward(tmp_path, judge):
    run = write_run(tmp_path / "run", judge, {"name": "token_entropy"})
    equal = {"grpo": {"0": True, "1": True}, "token_entropy": {"0": False, "1": True}}
    for name, expected in equal.items():
        found = {(x.prompt_id[-1], x.has_zero_variance) for x in decide(judge, run, f"method.name={name}")}
        assert {pair for pair in found if pair[0] in expected} == set(expected.items())


def test_another_method_comes_with_its_own_defaults(tmp_path, judge):
    run = write_run(tmp_path / "run", judge, {"name": "random_selection", "keep_fraction": 0.5})
    assert all(label.trains for label in decide(judge, run)), "a replay under OLR keeps no choice of prompts"
    recipe = read_history(run, ["method.name=small_loss_selection"]).recipe
    assert compose(recipe.method).name == "small_loss_selection"
    assert recipe.method.keep_fraction is None


def test_of_a_co_reward_run_other_methods_see_the_original_prompts_responses(tmp_path, judge):
    run = write_run(tmp_path / "run", judge, {"name": "co_reward"})
    assert set(stored(run)["rollouts"]) == {5}
    votes = [(label.majority_answer, label.rollouts) for label in decide(judge, run, "method.name=grpo")]
    assert votes == list(stored(run).select("majority_answer", "rollouts").iter_rows())


def refused(judge, source, *settings):
    with pytest.raises(UserError) as error:
        decide(judge, source, *settings)
    return str(error.value)


def test_what_the_rollouts_lack_is_one_sentence(tmp_path, judge):
    run = write_run(tmp_path / "run", judge, {"name": "grpo"}, without=("self_certainty", "tokens"))
    assert "no responses of the view rephrased at visit 1, which method co_reward needs" in refused(
        judge, run, "method.name=co_reward"
    )
    assert "method self_certainty needs self_certainty of every rollout" in refused(
        judge, run, "method.name=self_certainty"
    )
    assert "method small_loss_selection needs tokens" in refused(
        judge, run, "method.name=small_loss_selection"
    )
    assert len(decide(judge, run, "method.name=token_entropy")) == 54


def test_a_setting_that_only_the_runs_own_method_has_replays_that_method(tmp_path, judge):
    run = write_run(tmp_path / "chosen", judge, {"name": "random_selection", "keep_fraction": 0.5})
    assert read_history(run, ["method.keep_fraction=0.25"]).recipe.method.name == "random_selection"
    assert read_history(run, ["method.slope_threshold=0.1"]).recipe.method.name == "olr"
    run = write_run(tmp_path / "scored", judge, {"name": "sequence_entropy"})
    assert read_history(run, ["method.score_reduction=sum"]).recipe.method.score_reduction == "sum"


def test_settings_of_the_loss_decide_nothing_in_a_replay(tmp_path, judge):
    run = write_run(tmp_path / "run", judge, {"name": "grpo"})
    for key in ("penalty_weight", "smoothing"):
        assert f"--set method.{key}: that is a weight in the loss" in refused(judge, run, f"method.{key}=0.1")


def table(tmp_path, rows):
    file = tmp_path / "log.jsonl"
    file.write_text("".join(json.dumps({"prompt_id": "a", "visit": 1, **row}) + "\n" for row in rows))
    return file


def test_a_table_of_any_trainers_may_have_views_and_statistics(tmp_path, judge):
    rows = [
        {"response": "\\boxed{1}", "entropy": 0.25, "view": "rephrased"},
        {"response": "\\boxed{2}", "entropy": 0.5, "view": "original"},
        {"response": "\\boxed{2}", "entropy": 0.5},
        {"response": "well, \\boxed{2}", "entropy": 1},
    ]
    file = table(tmp_path, rows)
    (certain,) = decide(judge, file, "method.name=token_entropy")
    assert (certain.reward_mean, certain.rollouts) == (pytest.approx(-2 / 3), 3)
    (crossed,) = decide(judge, file, "method.name=co_reward")
    assert (crossed.effective_label, crossed.majority_answer, crossed.reward_mean) == ("1", "2", 0)
    assert "needs self_certainty" in refused(judge, file, "method.name=self_certainty")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"response": "1", "view": "upside down"}, "view 'upside down' is not one of original, rephrased"),
        ({"response": "1", "entropy": "low"}, "'entropy' of row 0 (the first is 0) is no number"),
    ],
)
def test_views_and_statistics_that_are_none_are_refused(tmp_path, judge, row, message):
    assert message in refused(judge, table(tmp_path, [row]))
