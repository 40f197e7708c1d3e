"""A stored run of any method, replayed under its own recipe, gives the stored decisions; under another, a sentence."""

import json
from dataclasses import asdict
from io import StringIO

import polars as pl
import pytest
from cases import each, refusal
from decisions import table_of
from histories import replayed
from samples import json_lines

from olr_cli import seeding
from olr_cli.analysis.histories import read_history
from olr_cli.analysis.replay import (
    label_tables,
    replay_answer,
    replay_file,
    write_json_lines,
)
from olr_cli.answers.graded import SENTINEL
from olr_cli.api import OnlineLabelRefinement
from olr_cli.data.chat import Message
from olr_cli.data.prompts import Prompt
from olr_cli.recipe.layers import validate
from olr_cli.recipe.methods import METHODS
from olr_cli.runs.directory import create_run
from olr_cli.runs.store import RunStore, scan_labels
from olr_cli.supervision import Rollout, RolloutGroup, Step, Supervisor, compose
from olr_cli.supervision.selection import keep_fraction

NAMES = [*METHODS]
OLR = {"name": "olr", "slope_threshold": 0, "warmup_epochs": 1}
MIXES = [
    OLR,
    {"name": "sequence_entropy", "score_reduction": "sum"},
    {**OLR, "penalty_weight": 0.01, "prompts": "small_loss"},
    {"name": "ttrl", "prompts": "random", "keep_fraction": 0.25},
    {"name": "co_reward", "prompts": "small_loss", "smoothing": 0.1},
]
NOW = ["method.warmup_epochs=0", "method.slope_threshold=-1", "method.criteria=[]"]
RESPONSES = (
    "\\boxed{1/2}", "so \\boxed{0.5}", "\\boxed{7}", "or \\boxed{7}", "\\boxed{8}", "\\boxed{0.5\\%}", "I give up",
    f"\\boxed{{{SENTINEL}}}",
)  # fmt: skip
PROMPTS = [
    Prompt(
        f"{kind}-{i}", question, label, "0.5", kind, rephrased=(Message("user", "again"),)
    )
    for kind, label in {"clean": "1/2", "inactive": SENTINEL, "active": SENTINEL}.items()
    for i, question in enumerate([(), (Message("user", "What percentage is it?"),)] * 3)
]


def write_run(path, judge, method=OLR, *, without=(), **sections):
    """A run of three visits, two steps each, as a supervisor decided it; statistics named in `without` are unknown."""
    tree = {
        "seed": 5,
        "method": method,
        "noise": {"type": "mixed", "draw": "frequency"},
        **sections,
    }
    recipe = validate(tree, "test")
    path.mkdir()
    create_run(path, recipe)
    composed, draw = compose(recipe.method), getattr(recipe.noise, "draw", "uniform")
    share = keep_fraction(recipe.method, PROMPTS)
    supervisor = Supervisor(
        composed, judge, seed=5, draw=draw, extractor="boxed", keep_fraction=share
    )
    for step in range(1, 7):
        visit, half = (step + 1) // 2, PROMPTS[step % 2 :: 2]
        decided = supervisor.supervise(
            Step.of([group(p, visit, step, composed.views, without) for p in half])
        )
        RunStore(path).append(step, decided.labels, decided.rollouts)
    return path


def group(prompt, visit, step, views, without):
    """K rollouts a view, one more each visit, mostly of the first responses.

    Of the first prompt of a kind all give one answer, of the second in the same words too.
    """
    rollouts = []
    for view in views:
        for sample in range(4 + visit):
            u, v = (
                seeding.uniform("test", prompt.prompt_id, visit, view, sample, name)
                for name in "uv"
            )
            # Statistics of equal responses differ by rounding.
            drawn = int(len(RESPONSES) * u**1.5)
            response = RESPONSES[{"0": sample % 2, "1": 0}.get(prompt.prompt_id[-1], drawn)]
            known = {
                "tokens": 4 + len(response) // 6,
                "mean_logprob": -len(response) / 10 + 1e-9 * v,
                "entropy": len(response) / 7 + 1e-9 * v,
                "self_certainty": len(response) / 3 + 1e-9 * v,
            }
            rollouts.append(Rollout(response, view=view, **known | dict.fromkeys(without)))
    return RolloutGroup(prompt, visit, step, tuple(rollouts))


def decide(judge, source, *settings):
    return replayed(read_history(source, settings), judge)


def stored(run):
    return scan_labels(run).collect()


@pytest.mark.parametrize("method", [*({"name": name} for name in NAMES), *MIXES], ids=str)
def test_a_run_of_any_method_under_its_own_recipe_decides_as_it_did(
    tmp_path, judge, method
):
    run = write_run(tmp_path / "run", judge, method)
    again = pl.from_arrow(table_of("labels", decide(judge, run)))
    assert again.equals(stored(run))
    assert again["has_zero_variance"].n_unique() == 2
    assert set(again["rollouts"]) == {5, 6, 7}
    if method is OLR:
        assert 0 < again["is_selected"].sum() < len(again)
        assert again["noisy_label"].n_unique() > 2


def test_settings_of_olr_or_its_name_replay_a_run_of_another_method_under_it(
    tmp_path, judge
):
    run = write_run(tmp_path / "run", judge, {"name": "grpo"})
    for settings in (NOW, ["method.name=olr", *NOW]):
        assert sum(label.is_selected for label in decide(judge, run, *settings)) > 10
    assert not any(label.is_selected for label in decide(judge, run))


def test_a_setting_that_only_the_runs_own_method_has_replays_that_method(tmp_path, judge):
    run = write_run(
        tmp_path / "chosen", judge, {"name": "random_selection", "keep_fraction": 0.5}
    )
    assert (
        read_history(run, ["method.keep_fraction=0.25"]).recipe.method.name
        == "random_selection"
    )
    assert read_history(run, ["method.slope_threshold=0.1"]).recipe.method.name == "olr"
    run = write_run(tmp_path / "scored", judge, {"name": "sequence_entropy"})
    assert (
        read_history(run, ["method.score_reduction=sum"]).recipe.method.score_reduction
        == "sum"
    )


def test_another_method_comes_with_its_own_defaults(tmp_path, judge):
    run = write_run(
        tmp_path / "run", judge, {"name": "random_selection", "keep_fraction": 0.5}
    )
    assert all(label.trains for label in decide(judge, run, "method.name=olr")), (
        "keeps no choice of prompts"
    )
    recipe = read_history(run, ["method.name=small_loss_selection"]).recipe
    assert compose(recipe.method).name == "small_loss_selection"
    assert recipe.method.keep_fraction is None


def test_the_draw_of_noisy_labels_can_be_another(tmp_path, judge):
    run, marked_file = (
        write_run(tmp_path / "run", judge),
        write_run(tmp_path / "other", judge, noise=None),
    )
    settings = ["noise.draw=most_frequent", "method.warmup_epochs=9"]
    drawn = decide(judge, run, *settings)
    assert [x.noisy_label for x in drawn] != [x.noisy_label for x in decide(judge, run)]
    assert decide(judge, marked_file, *settings) == drawn


def test_steps_that_a_live_run_adds_meanwhile_are_left_out(tmp_path, judge):
    run = write_run(tmp_path / "run", judge)
    shards = [
        run / table / f"step-00000{step}.parquet"
        for table in ("labels", "rollouts")
        for step in (5, 6)
    ]
    for shard in shards:
        shard.rename(shard.with_suffix(".later"))
    history = read_history(run)
    for shard in shards:
        shard.with_suffix(".later").rename(shard)
    assert [label.visit for label in replayed(history, judge)] == [1] * 18 + [2] * 18
    assert len(decide(judge, run)) == 54


def test_a_runs_answers_are_read_anew_under_another_extractor(tmp_path, judge):
    run = write_run(tmp_path / "run", judge, data={"extractor": "text"})
    # As they were stored, whatever that extractor would find.
    assert sum(label.answered for label in decide(judge, run)) < sum(
        stored(run)["rollouts"]
    )
    whole = decide(judge, run, "data.extractor=reversed_digits")
    assert {label.answered for label in whole} == {0}


def test_the_default_extractor_is_that_of_the_prompts_data_source(tmp_path, judge):
    def write_data(data_source):
        rows = [
            {"question": "?", "answer": "975", "extra_info": {"index": f"clean-{i}"}}
            for i in range(6)
        ]
        data = tmp_path / "data.jsonl"
        json_lines(data, *({**row, "data_source": data_source} for row in rows))
        return {"train": str(data), "extractor": "reversed_digits"}

    run = write_run(tmp_path / "run", judge, data=write_data("other"), noise=None)
    assert any(label.majority_answer for label in decide(judge, run, "data.extractor=null"))
    write_data("arithmetic-addition")
    of_clean = [
        x
        for x in decide(judge, run, "data.extractor=null")
        if x.prompt_id.startswith("clean")
    ]
    assert {label.answered for label in of_clean} == {0}


def test_only_responses_in_the_same_words_share_an_intrinsic_reward(tmp_path, judge):
    run = write_run(tmp_path / "run", judge, {"name": "token_entropy"})
    expected = {"grpo": {"0": True, "1": True}, "token_entropy": {"0": False, "1": True}}
    for name, shared in expected.items():
        seen = {
            (x.prompt_id[-1], x.has_zero_variance)
            for x in decide(judge, run, f"method.name={name}")
        }
        assert {pair for pair in seen if pair[0] in shared} == set(shared.items())


def test_of_a_co_reward_run_other_methods_see_the_original_prompts_responses(
    tmp_path, judge
):
    run = write_run(tmp_path / "run", judge, {"name": "co_reward"})
    votes = [
        (label.majority_answer, label.rollouts)
        for label in decide(judge, run, "method.name=grpo")
    ]
    assert votes == list(stored(run).select("majority_answer", "rollouts").iter_rows())


@each(
    "setting, message",
    (
        "name=co_reward",
        "no responses of the view rephrased at visit 1, which method co_reward needs",
    ),
    ("name=self_certainty", "method self_certainty needs self_certainty of every rollout"),
    ("name=small_loss_selection", "method small_loss_selection needs tokens"),
    (
        "penalty_weight=0.1",
        "set method.penalty_weight: the stored rollouts are as they are, and no loss",
    ),
    (
        "smoothing=0.1",
        "set method.smoothing: the stored rollouts are as they are, and no loss",
    ),
)
def test_what_the_rollouts_lack_and_what_decides_nothing_is_one_sentence(
    tmp_path, judge, setting, message
):
    run = write_run(
        tmp_path / "run", judge, {"name": "grpo"}, without=("self_certainty", "tokens")
    )
    assert message in refusal(decide, judge, run, f"method.{setting}")


def test_a_function_of_the_verifier_is_named_again_or_the_verifier_left_out(
    tmp_path, judge
):
    (tmp_path / "mine.py").write_text(
        "def errs(prompt, response, answer, label):\n    return answer == '3'\n"
    )
    rules = [{"function": f"{tmp_path}/mine.py:errs", "false_positive_rate": 1.0}]
    with OnlineLabelRefinement(tmp_path / "run", {"verifier": {"where": rules}}) as olr:
        olr.supervise(
            [
                (
                    Prompt("p", (), "1", "1", "clean"),
                    [r"\boxed{1}", r"\boxed{3}", r"\boxed{3}"],
                )
            ]
        )
    remedy = f"verifier.where={json.dumps(rules)}"
    assert f"set {remedy} again" in refusal(decide, judge, tmp_path / "run")
    (again,) = decide(judge, tmp_path / "run", remedy)
    assert again.reward_mean == 1 and pl.from_arrow(table_of("labels", [again])).equals(
        stored(tmp_path / "run")
    )
    assert "ttrl never asks a verifier" in refusal(
        decide, judge, tmp_path / "run", "method.name=ttrl"
    )
    (other,) = decide(judge, tmp_path / "run", "method.name=ttrl", "verifier=null")
    assert (other.effective_label, other.reward_mean) == ("3", 2 / 3)


def test_json_lines_are_the_labels_tables_columns(tmp_path, judge):
    run = write_run(tmp_path / "run", judge)
    stream = StringIO()
    write_json_lines(label_tables(read_history(run), judge), stream)
    rows = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert rows == [asdict(label) for label in decide(judge, run)]
    assert list(rows[0]) == stored(run).columns


def test_the_answer_says_what_was_decided_and_where_the_table_is(tmp_path, judge):
    run = write_run(tmp_path / "run", judge)
    history = read_history(run)
    answer = replay_answer(history, judge, replay_file(history))
    assert answer.parts[0].startswith("Replayed 54 visits of 18 prompts under olr (")
    assert "The effective label is the run's own in 54 of 54 visits." in answer.parts
    (file,) = answer.files
    assert file.path.parent == run / "replay"
    assert pl.read_parquet(file.path).equals(stored(run))
    assert replay_file(read_history(run, ["seed=1"])) != file.path


@pytest.mark.parametrize("name", ["small_loss_selection", "random_selection"])
def test_prompts_that_did_not_train_do_not_train_in_the_replay(tmp_path, judge, name):
    run = write_run(tmp_path / "run", judge, {"name": name})
    assert stored(run)["trains"].sum() == 18, "two thirds of the labels are wrong"
    for method, same in ((name, 54), ("grpo", 18)):
        history = read_history(run, [f"method.name={method}"])
        lines = replay_answer(history, judge, replay_file(history)).parts
        assert f"The prompt trains or not as in the run in {same} of 54 visits." in lines
