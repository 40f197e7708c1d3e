"""Grading stored generations again."""

import json

import polars as pl
import pyarrow.parquet as pq
import pytest
from cases import each, refusal
from commands import done
from sums import PROBLEMS, SAMPLES, Backend, run, sums

from olr_cli.errors import UserError
from olr_cli.evaluation.grading import regrade


def test_grading_again_with_the_same_grader_changes_nothing(folder):
    files = [
        folder / "scores.json",
        folder / "evaluation.json",
        folder / "generations" / "sums.parquet",
    ]
    before = [file.read_bytes() for file in files]
    regrade(folder, say=(said := []).append)
    assert said == [
        f"{folder}: {PROBLEMS * SAMPLES} samples graded again, 0 grades changed"
    ]
    assert [file.read_bytes() for file in files] == before


def test_grades_follow_the_responses(folder):
    file = folder / "generations" / "sums.parquet"
    table = pq.read_table(file)
    rows = table.to_pylist()
    right = sum(row["is_correct"] for row in rows)
    for row in rows:
        row["response"] = row["response"].replace(
            "boxed", "fbox" if row["is_correct"] else "boxed"
        )
    pq.write_table(type(table).from_pylist(rows, table.schema), file)
    [score] = regrade(folder, say=(said := []).append)
    assert (
        f", {right} grades changed" in said[0]
        and sum("now wrong: None for" in line for line in said) == 10
    )
    assert said[-1] == f"  … and {right - 10} more that are now wrong"
    assert score.avg == 0
    assert json.loads((folder / "scores.json").read_text())["scores"][0]["avg"] == 0
    assert pl.read_parquet(file)["answer"].null_count() == right


def test_grading_again_counts_what_could_not_be_scored_and_proposes_an_extractor(folder):
    file = folder / "generations" / "sums.parquet"
    table = pq.read_table(file)
    rows = table.to_pylist()
    for row in rows[1:]:
        row["response"] = "#### 7"
    rows[0] |= {"response": r"\boxed{7}", "gold": r"\frac{7}{"}
    pq.write_table(type(table).from_pylist(rows, table.schema), file)
    regrade(folder, say=(said := []).append)
    _, reasons, proposal, *_ = said
    rest = len(rows) - 1
    assert (
        reasons
        == f"  not scored, and counted as wrong: 1 (the gold cannot be read), {rest} (no answer)"
    )
    assert proposal == f"  The extractor after:#### reads {rest} of {rest} responses."


def test_a_benchmark_is_graded_as_it_is_defined_now_if_it_is_named(folder, benchmark):
    [score] = regrade(
        folder, [benchmark.model_copy(update={"extractor": "reversed_digits"})]
    )
    assert score.missing_answers == 1
    regrade(folder, say=(said := []).append)
    assert "0 grades changed" in said[0], (
        "the definition it was graded by is the evaluation's now"
    )
    assert regrade(folder, [benchmark])[0].missing_answers == 0


def test_what_is_not_done_is_left_out(folder, benchmark, tmp_path):
    def stop(number):
        if number == 2:
            raise KeyboardInterrupt

    other = sums(tmp_path, "others", first=50)
    with pytest.raises(KeyboardInterrupt):
        run(folder, [other], Backend(stop))
    regrade(folder, say=(said := []).append)
    assert said[0].endswith("; not done yet: others")
    assert "no benchmark is done yet" in refusal(regrade, folder, [other])
    with pytest.raises(UserError, match="has no generations of more; it has sums, others"):
        regrade(folder, [sums(tmp_path, "more")])


def test_what_changed_is_said(folder):
    file = folder / "generations" / "sums.parquet"
    table = pq.read_table(file)
    rows = table.to_pylist()
    right = [row for row in rows if row["is_correct"]]
    right[0]["is_correct"] = False
    pq.write_table(type(table).from_pylist(rows, table.schema), file)
    said = done("regrade", folder).stderr
    answer, gold = right[0]["answer"], right[0]["gold"]
    assert (
        "1 grades changed" in said
        and f"now right: {answer} for {gold} (sums, problem" in said
    )


@each("changed, lines", (10, 10), (11, 11))
def test_ten_changes_are_shown_and_more_are_counted(folder, changed, lines):
    file = folder / "generations" / "sums.parquet"
    table = pq.read_table(file)
    rows = table.to_pylist()
    wrong = [row for row in rows if not row["is_correct"]]
    right = [row for row in rows if row["is_correct"]]
    for row in wrong[:changed] + right[: max(0, changed - len(wrong))]:
        row["response"], row["is_correct"] = rf"\boxed{{{row['gold']}}}", False
    pq.write_table(type(table).from_pylist(rows, table.schema), file)
    regrade(folder, say=(said := []).append)
    assert len([line for line in said if "now right" in line]) == lines, said


def test_an_evaluation_of_0_1_0_is_read(folder):
    record = json.loads((folder / "evaluation.json").read_text())
    record["benchmarks"]["sums"]["answer_rules"] = 1
    (folder / "evaluation.json").write_text(json.dumps(record))
    assert [score.benchmark for score in regrade(folder)] == ["sums"]


@pytest.mark.parametrize("tolerance", [1.0, -0.1, float("nan")])
def test_a_tolerance_that_no_benchmark_may_have_is_refused_and_nothing_is_written(
    folder, tolerance
):
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    with pytest.raises(
        UserError, match=r"tolerance: .* is no tolerance; give a number from 0 to below 1"
    ):
        regrade(folder, tolerance=tolerance)
    assert {
        file: file.read_bytes() for file in folder.rglob("*") if file.is_file()
    } == before
    assert regrade(folder, tolerance=0.99)


def test_what_was_given_up_stays_so(folder):
    costly = r"\sqrt{x}+1"  # needs computer algebra, as nothing else here
    file = folder / "generations" / "sums.parquet"
    table = pq.read_table(file)
    rows = table.to_pylist()
    for row in rows[:2]:
        row["response"] = rf"\boxed{{{costly}}}"
    pq.write_table(type(table).from_pylist(rows, table.schema), file)
    (folder / "given_up.jsonl").write_text(json.dumps(["key", costly]) + "\n")
    waits = []
    regrade(folder, report=waits.append)
    assert not waits, "nothing is left for computer algebra"
    (folder / "given_up.jsonl").unlink()
    regrade(folder, report=waits.append)
    assert waits


def test_a_missing_sample_is_an_error_and_nothing_is_renumbered(folder):
    file = folder / "generations" / "sums.parquet"
    table = pq.read_table(file)
    pq.write_table(table.slice(1), file)
    with pytest.raises(UserError, match="has 15 stored samples, not the 16"):
        regrade(folder)
    assert pl.read_parquet(file)["sample"].to_list() == table["sample"].to_pylist()[1:]
