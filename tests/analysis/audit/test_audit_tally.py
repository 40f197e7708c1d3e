"""What an audit counts, and which label it judges."""

import polars as pl
import pytest
from audit_tables import rollouts, write
from cases import refusal
from histories import write_history

from olr_cli.analysis.audit.tally import MISSING, UNSEEN, tally
from olr_cli.analysis.histories import read_history
from olr_cli.answers.graded import SENTINEL


def counted(file, judge):
    return tally(read_history(file), judge)


def test_answers_that_mean_the_same_are_one(tmp_path, judge):
    rows = rollouts(
        "a",
        [["1/2", "0.5", "0.5", "3"], ["\\frac{1}{2}", None, "0.5", "0.5"]],
        given_label="50\\%",
    )
    found = counted(write(tmp_path / "log.jsonl", rows), judge)
    assert found.answers.to_dicts() == [
        {"prompt": 0, "spelling": "0.5"},
        {"prompt": 0, "spelling": "3"},
    ]
    assert found.counts.rows() == [(0, 0, 0, 6), (0, 0, 1, 1)]
    assert found.prompts.rows() == [(0, 2, 8, 7)]
    assert found.labels == ("50\\%",)
    assert found.label_answers.tolist() == [0]


def test_a_percent_sign_is_the_labels_answer_where_the_question_asks_for_a_percentage(
    tmp_path, judge
):
    said = [["20\\%", "20", "2\\%"]]
    rows = [
        *rollouts("asked", said, given_label="20", prompt="What percentage is it?"),
        *rollouts("not", said, given_label="20", prompt="What is 20% of 100?"),
    ]
    found = counted(write(tmp_path / "log.jsonl", rows), judge)
    assert found.counts.select("prompt", "count").rows() == [
        (0, 2),
        (0, 1),
        (1, 1),
        (1, 1),
        (1, 1),
    ]


def test_a_label_is_one_of_the_answers_or_nobodys_or_missing(tmp_path, judge):
    rows = [
        *rollouts("seen", [["1", "2"]], given_label="2"),
        *rollouts("unseen", [["1", "2"]], given_label="3"),
        *rollouts("sentinel", [["1", "2"]], given_label=SENTINEL),
        *rollouts("none", [["1", "2"]], given_label=None),
        *rollouts("silent", [[None, None]], given_label="2"),
    ]
    found = counted(write(tmp_path / "log.jsonl", rows), judge)
    assert found.prompt_ids == ("seen", "unseen", "sentinel", "none", "silent")
    assert found.label_answers.tolist() == [1, UNSEEN, MISSING, MISSING, UNSEEN]
    assert found.labels == ("2", "3", None, None, "2")


def test_the_answers_of_one_prompt_lie_together(tmp_path, judge):
    rows = [*rollouts("b", [["5", "6"]]), *rollouts("a", [["7"], ["5"]])]
    found = counted(write(tmp_path / "log.jsonl", rows), judge)
    assert found.answers["prompt"].is_sorted()
    assert found.answers["spelling"].to_list() == ["5", "6", "5", "7"]


def test_only_the_original_wording_counts(tmp_path, judge):
    rows = rollouts("a", [["1", "1"]], view="original") + rollouts(
        "a", [["2", "2", "2"]], view="rephrased"
    )
    assert counted(write(tmp_path / "log.jsonl", rows), judge).counts.rows() == [
        (0, 0, 0, 2)
    ]
    assert "original wording" in refusal(
        counted, write(tmp_path / "rephrased.jsonl", rows[2:]), judge
    )


def test_of_a_run_with_active_noise_the_label_of_the_last_visit_is_judged(tmp_path, judge):
    run = write_history(tmp_path / "run", noise="active", prompts=20, epochs=5)
    labels = pl.read_parquet(run / "labels" / "*.parquet")
    counts = counted(run, judge)
    last = dict(
        labels.filter(pl.col("visit") == 5).select("prompt_id", "noisy_label").iter_rows()
    )
    for prompt_id, label in zip(counts.prompt_ids, counts.labels, strict=True):
        expected = last[prompt_id] or "10"
        assert label == (None if expected == SENTINEL else expected)


def test_a_runs_counts_are_those_of_its_labels_table(tmp_path, judge):
    run = write_history(tmp_path / "run", prompts=20, epochs=3)
    found = counted(run, judge)
    stored = pl.read_parquet(run / "labels" / "*.parquet").group_by("prompt_id")
    sums = stored.agg(pl.len().alias("visits"), pl.col("rollouts", "answered").sum())
    joined = found.prompts.with_columns(prompt_id=pl.Series(found.prompt_ids)).join(
        sums, on="prompt_id"
    )
    assert len(joined) == len(found) == 20
    for name in ("visits", "rollouts", "answered"):
        assert (joined[name] == joined[f"{name}_right"]).all()
    assert found.counts["count"].sum() == sums["answered"].sum()


@pytest.mark.parametrize("column", ["model", "policy"])
def test_models_are_told_apart_by_their_column(tmp_path, judge, column):
    rows = [
        row
        for name, answers in (("strong", ["1", "1"]), ("weak", ["2", "1"]))
        for row in rollouts("a", [answers], given_label="2", **{column: name})
    ]
    found = counted(write(tmp_path / "log.jsonl", rows), judge)
    assert found.models == ("strong", "weak")
    assert found.counts.rows() == [(0, 0, 0, 2), (0, 1, 0, 1), (0, 1, 1, 1)]
    assert found.prompts.rows() == [(0, 1, 4, 4)]
