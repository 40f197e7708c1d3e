"""Stored rollouts, a run's or anybody's, give the decisions that the same rollouts gave or would give in training."""

import json
from dataclasses import asdict
from io import StringIO

import polars as pl
import pytest
from histories import write_history

from olr_cli import seeding
from olr_cli.analysis.histories import read_history
from olr_cli.analysis.replay.replay import replay, replay_answer, replay_file, write_json_lines
from olr_cli.data.prompts import SENTINEL, Prompt
from olr_cli.errors import UserError
from olr_cli.recipe.checks import validate
from olr_cli.runs.directory import create_run
from olr_cli.runs.store import RunStore, arrow_table, scan_labels
from olr_cli.supervision import Rollout, RolloutGroup, Supervisor, compose

RESPONSES = (
    "\\boxed{1/2}",
    "\\boxed{0.5}",
    "\\boxed{7}",
    "\\boxed{8}",
    "I give up",
    f"\\boxed{{{SENTINEL}}}",
)
NOW = ["method.warmup_epochs=0", "method.slope_threshold=-1", "method.criteria=[]"]


def write_run(path, judge, *, visits=4, **settings):
    """A run whose rollouts a supervisor decided: three types of prompts, two spellings of a half."""
    tree = {
        "seed": 5,
        "method": {"name": "olr", "slope_threshold": 0, "warmup_epochs": 1},
        "noise": {"type": "mixed", "draw": "frequency"},
        **settings,
    }
    recipe = validate(tree, "test")
    path.mkdir()
    create_run(path, recipe)
    labels = {"clean": "1/2", "inactive": SENTINEL, "active": SENTINEL}
    prompts = [
        Prompt(f"{kind}-{i}", (), label, "0.5", kind) for kind, label in labels.items() for i in range(6)
    ]
    draw = getattr(recipe.noise, "draw", "uniform")
    supervisor = Supervisor(compose(recipe.method), judge, seed=recipe.seed, draw=draw)
    for visit in range(1, visits + 1):
        decided = supervisor.supervise([group(prompt, visit) for prompt in prompts])
        records = [record for supervised in decided for record in supervised.rollouts]
        RunStore(path).append(visit, [supervised.label for supervised in decided], records)
    return path


def group(prompt, visit):
    """K rollouts, one more each visit; which of the responses is drawn, the first ones a little likelier."""
    draws = [seeding.uniform("test", prompt.prompt_id, visit, sample) for sample in range(4 + visit)]
    return RolloutGroup(
        prompt, visit, visit, tuple(Rollout(RESPONSES[int(len(RESPONSES) * u**1.5)]) for u in draws)
    )


def write_table(file, rows, **everywhere):
    file.write_text("".join(json.dumps({**everywhere, **row}) + "\n" for row in rows))
    return file


def decide(judge, source, *settings):
    return [label for step in replay(read_history(source, settings), judge) for label in step]


def test_a_run_under_its_own_recipe_decides_as_it_did(tmp_path, judge):
    run = write_run(tmp_path / "run", judge)
    decided = pl.from_arrow(arrow_table("labels", decide(judge, run)))
    assert decided.equals(scan_labels(run).collect())
    assert 0 < decided["is_selected"].sum() < len(decided)
    assert decided["noisy_label"].n_unique() > 2
    assert set(decided["rollouts"]) == {5, 6, 7, 8}


def test_a_run_that_refines_nothing_is_replayed_under_olr_or_the_method_that_is_set(tmp_path, judge):
    run = write_run(tmp_path / "run", judge, method={"name": "grpo"})
    assert sum(label.is_selected for label in decide(judge, run, *NOW)) > 10
    assert not any(label.is_selected for label in decide(judge, run, "method.name=grpo"))
    assert not any(label.is_selected for label in decide(judge, run, "method={name: grpo}"))


def test_the_draw_of_noisy_labels_can_be_another(tmp_path, judge):
    run = write_run(tmp_path / "run", judge)
    drawn = [label.noisy_label for label in decide(judge, run, "noise.draw=most_frequent")]
    assert drawn != [label.noisy_label for label in decide(judge, run)]
    marked_file = write_run(tmp_path / "other", judge, noise=None)
    assert decide(judge, marked_file, "noise.draw=most_frequent", "method.warmup_epochs=9") == decide(
        judge, run, "noise.draw=most_frequent", "method.warmup_epochs=9"
    )


def test_steps_that_a_live_run_adds_meanwhile_are_left_out(tmp_path, judge):
    run = write_run(tmp_path / "run", judge, visits=2)
    shards = [run / table / "step-000002.parquet" for table in ("labels", "rollouts")]
    for shard in shards:
        shard.rename(shard.with_suffix(".later"))
    history = read_history(run)
    for shard in shards:
        shard.with_suffix(".later").rename(shard)
    assert [label.visit for step in replay(history, judge) for label in step] == [1] * 18
    assert len(decide(judge, run)) == 36


@pytest.mark.parametrize("tables", [["labels"], ["rollouts"], ["labels", "rollouts"]])
def test_a_step_that_is_missing_before_others_is_named(tmp_path, judge, tables):
    run = write_run(tmp_path / "run", judge)
    for table in tables:
        (run / table / "step-000002.parquet").unlink()
    with pytest.raises(UserError, match=f"has no {' and no '.join(tables)} of step 2, though it has step 4"):
        read_history(run)


def test_a_runs_answers_are_read_anew_under_another_extractor(tmp_path, judge):
    run = write_run(tmp_path / "run", judge, data={"extractor": "text"})
    stored = decide(judge, run)
    assert (
        sum(label.answered for label in stored) > 100
    )  # as they were stored, whatever that extractor would find
    whole = decide(judge, run, "data.extractor=reversed_digits")
    assert {label.answered for label in whole} == {0}


def test_the_default_extractor_is_that_of_the_prompts_data_source(tmp_path, judge):
    rows = [{"question": f"{i}?", "answer": "975", "extra_info": {"index": f"clean-{i}"}} for i in range(6)]
    data = write_table(tmp_path / "data.jsonl", rows, data_source="other")
    run = write_run(
        tmp_path / "run", judge, data={"train": str(data), "extractor": "reversed_digits"}, noise=None
    )
    assert any(label.majority_answer for label in decide(judge, run, "data.extractor=null"))
    sums = write_table(tmp_path / "data.jsonl", rows, data_source="arithmetic-addition")
    assert sums == data
    of_clean = [x for x in decide(judge, run, "data.extractor=null") if x.prompt_id.startswith("clean")]
    assert {label.answered for label in of_clean} == {0}


def test_visits_of_a_table_are_renumbered_within_each_prompt(tmp_path, judge):
    rows = [
        {"prompt_id": prompt, "visit": visit, "response": f"\\boxed{{{visit}}}"}
        for prompt, visits in (("a", (30, 10, 20)), ("b", (20, 7)))
        for visit in visits
    ]
    decided = decide(judge, write_table(tmp_path / "log.jsonl", rows))
    seen = [(x.prompt_id, x.visit, x.step, x.majority_answer) for x in decided]
    assert seen == [
        ("a", 1, 1, "10"), ("b", 1, 1, "7"), ("a", 2, 2, "20"), ("b", 2, 2, "20"), ("a", 3, 3, "30"),
    ]  # fmt: skip


def test_a_table_may_have_answers_alone_and_rollouts_without_one(tmp_path, judge):
    rows = [
        {"answer": " 7 ", "entropy": 1},
        {"answer": "7", "entropy": 1.000001},
        {"answer": " ", "entropy": 2},
    ]
    table = write_table(tmp_path / "log.jsonl", rows, prompt_id="a", visit=1)
    (label,) = decide(judge, table)
    assert (label.majority_answer, label.majority_count, label.answered, label.rollouts) == ("7", 2, 2, 3)
    (label,) = decide(judge, table, "method.name=token_entropy")
    assert label.reward_mean == pytest.approx(-4.000001 / 3), "responses that are unknown share no reward"
    rows = [{"response": None, "entropy": 1}, {"response": "\\boxed{7}", "entropy": 1}]
    table = write_table(tmp_path / "log.jsonl", rows, prompt_id="a", visit=1)
    (label,) = decide(judge, table, "method.name=token_entropy")
    assert (label.answered, label.has_zero_variance) == (1, True)


def test_k_may_vary_between_visits(tmp_path, judge):
    rows = [
        {"prompt_id": "a", "visit": visit, "answer": answer}
        for visit, answers in ((1, "1122"), (2, "112"), (3, "1"))
        for answer in answers
    ]
    decided = decide(judge, write_table(tmp_path / "log.jsonl", rows), "method.slope_threshold=0.4", *NOW[:1])
    assert [(x.rollouts, x.pass_rate, x.majority_answer) for x in decided] == [
        (4, 0.0, None),
        (3, 2 / 3, "1"),
        (1, 1.0, "1"),
    ]
    assert [x.is_selected for x in decided] == [False, True, True]
    assert decided[-1].slope == 0.5


def test_a_negative_threshold_selects_falling_majorities(tmp_path, judge):
    rows = [
        {"prompt_id": "a", "visit": visit, "answer": answer}
        for visit, answers in ((1, "1111"), (2, "1112"))
        for answer in answers
    ]
    table = write_table(tmp_path / "log.jsonl", rows)
    for threshold, selected in (("0", False), ("-0.25", False), ("-0.26", True)):
        last = decide(judge, table, f"method.slope_threshold={threshold}", *NOW[:1])[-1]
        assert (last.slope, last.is_selected) == (-0.25, selected)


def test_a_table_is_parquet_or_json_and_reads_alike(tmp_path, judge):
    rows = [
        {"prompt_id": 3, "visit": visit, "response": f"\\boxed{{{n}}}", "given_label": 12, "other": [n]}
        for visit in (1.0, 2.0)
        for n in (12, 12, 7)
    ]
    lines = write_table(tmp_path / "log.jsonl", rows)
    array = tmp_path / "log.json"
    array.write_text("\ufeff" + json.dumps(rows))
    parquet = tmp_path / "log.parquet"
    pl.DataFrame(rows).write_parquet(parquet)
    decided = decide(judge, lines)
    assert [(x.prompt_id, x.visit, x.given_label_count) for x in decided] == [("3", 1, 2), ("3", 2, 2)]
    assert decide(judge, array) == decide(judge, parquet) == decided


def test_sentinels_of_a_table_take_their_type_from_the_settings(tmp_path, judge):
    rows = [{"response": f"\\boxed{{{n}}}"} for n in (12, 7, 7)]
    table = write_table(
        tmp_path / "log.jsonl", rows, prompt_id="a", visit=1, given_label=SENTINEL, true_answer="12"
    )
    assert [x.noise_type for x in decide(judge, table)] == ["inactive"]
    (active,) = decide(judge, table, "noise.type=active")
    assert (active.noise_type, active.noisy_label) == ("active", "7")


def test_json_lines_are_the_labels_tables_columns(tmp_path, judge):
    run = write_run(tmp_path / "run", judge, visits=1)
    stream = StringIO()
    write_json_lines(replay(read_history(run), judge), stream)
    rows = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert rows == [asdict(label) for label in decide(judge, run)]
    assert list(rows[0]) == scan_labels(run).collect_schema().names()


def test_the_summary_writes_the_table_and_says_what_was_decided(tmp_path, judge):
    run = write_run(tmp_path / "run", judge)
    history = read_history(run)
    target = replay_file(history)
    assert target.parent == run / "replay"
    lines = replay_answer(history, judge, target).parts
    assert lines[0].startswith("Replayed 72 visits of 18 prompts under olr (")
    assert "The effective label is the run's own in 72 of 72 visits." in lines
    assert pl.read_parquet(target).equals(scan_labels(run).collect())
    assert replay_file(read_history(run, ["seed=1"])) != target


def test_a_synthetic_run_is_replayed_as_written_whatever_its_k(tmp_path, judge):
    run = write_history(tmp_path / "run", noise="inactive", rollouts=5, prompts=10, prompts_per_step=10)
    again = pl.from_arrow(arrow_table("labels", decide(judge, run)))
    assert again.sort("visit", "prompt_id").equals(scan_labels(run).collect().sort("visit", "prompt_id"))


ROW = {"prompt_id": "a", "visit": 1, "response": "\\boxed{1}"}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"prompt_id": "a", "visit": 1}], "has no column response"),
        ([{"id": "a"}], "has no column prompt_id and no column visit and no column response"),
        ([], "has no rows"),
        ([ROW, ROW | {"visit": None}], "rows without prompt_id or visit"),
        ([ROW | {"visit": 1.5}, ROW | {"visit": 1.2}], "visit must hold whole numbers"),
        ([ROW | {"visit": "first"}], "visit must hold whole numbers"),
        ([ROW | {"visit": True}], "'visit' of row 0 (the first is 0) is a bool"),
        ([ROW | {"visit": [1]}], "'visit' of row 0 (the first is 0) is a list of 1 value,"),
        (
            [ROW | {"prompt_id": ["a"]}],
            "'prompt_id' of row 0 (the first is 0) is a list of 1 value, and it should be text",
        ),
        ([ROW | {"response": {"text": "1"}}], "'response' of row 0 (the first is 0) is a dict"),
        (
            [ROW | {"given_label": "1"}, ROW | {"given_label": "2"}],
            "prompt a has several values of given_label",
        ),
        ([ROW | {"true_answer": "1"}, ROW | {"visit": 2}], "prompt a has several values of true_answer"),
        ([ROW | {"noise_type": "loud"}], "noise_type 'loud' of prompt a is not one of clean"),
        ([ROW | {"response": "\ud800"}], "half of a surrogate pair"),
        ([[ROW]], "a row must be a JSON object"),
    ],
)
def test_a_table_that_is_no_history_is_refused(tmp_path, rows, message):
    file = tmp_path / "log.json"
    file.write_text(json.dumps(rows))
    with pytest.raises(UserError) as error:
        read_history(file)
    assert message in str(error.value)
    assert str(file) in str(error.value)


def test_what_is_no_table_is_refused(tmp_path):
    torn, deep, nowhere = (tmp_path / name for name in ("torn.parquet", "deep.jsonl", "nowhere.parquet"))
    torn.write_bytes(b"PAR1")
    deep.write_text("[" * 100_000)
    for file, message in (
        (torn, "is not a whole Parquet file"),
        (deep, "nested too deeply"),
        (nowhere, "does not exist"),
        (tmp_path, "is not a run directory"),
    ):
        with pytest.raises(UserError, match=message):
            read_history(file)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "train.epochs=3",
            "train.epochs: the stored rollouts are as they are; a replay can set method.*, seed,",
        ),
        ("noise.ratio=0.5", "noise.ratio: the stored"),
        ("noise=null", "noise: the stored"),
        ("data.limit=3", "data.limit: the stored"),
        ("name=other", "name: the stored"),
        ("methd.name=olr", "methd.name: the stored"),
        ("seed", "expected key=value, as in --set method.slope_threshold=0.1"),
        ("method.slope_treshold=0", "did you mean 'method.slope_threshold'"),
        ("noise.draw=often", "noise.draw is 'often'"),
    ],
)
def test_a_setting_without_effect_is_refused(tmp_path, setting, message):
    table = write_table(tmp_path / "log.jsonl", [ROW])
    for source in (table, write_history(tmp_path / "run", prompts=2, epochs=1)):
        with pytest.raises(UserError) as error:
            read_history(source, [setting])
        assert message in str(error.value)


def test_settings_that_one_kind_of_history_ignores_are_refused_for_it(tmp_path):
    run = write_history(tmp_path / "run", prompts=2, epochs=1)
    with pytest.raises(UserError, match=r"noise\.type: the stored rollouts"):
        read_history(run, ["noise.type=inactive"])
    answers = write_table(tmp_path / "log.jsonl", [{"prompt_id": "a", "visit": 1, "answer": "1"}])
    with pytest.raises(UserError, match=r"data\.extractor has nothing to read"):
        read_history(answers, ["data.extractor=boxed"])
