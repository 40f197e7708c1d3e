"""`olr show`: what it lists, what it shows of a prompt, and what it refuses."""

import io
import re

import polars as pl
import pytest
from commands import answered, done, refused
from histories import write_history
from samples import json_lines

from olr_cli.cli import app
from olr_cli.runs.store import scan_labels, scan_rollouts


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_history(tmp_path_factory.mktemp("runs") / "mine", prompts=20, epochs=4)


def log_of(tmp_path, rows):
    return json_lines(tmp_path / "log.jsonl", rows)


def answers(prompt_id, label, texts, **more):
    """Rows of a log: a prompt's answers at one visit."""
    return [
        {
            "prompt_id": prompt_id,
            "visit": 1,
            "sample": place,
            "question": f"question of {prompt_id}?",
            "given_label": label,
            "response": rf"\boxed{{{text}}}" if text else "I do not know.",
            **more,
        }
        for place, text in enumerate(texts)
    ]


def test_every_prompt_of_a_run_has_a_line_with_its_last_label(run):
    found, _ = answered("show", run)
    last = scan_labels(run).filter(pl.col("visit") == 4).collect()
    assert len(found["prompts"]) == len(last) == 20
    by_id = {row["prompt_id"]: row for row in last.to_dicts()}
    for row in found["prompts"]:
        assert {key: by_id[row["prompt_id"]][key] for key in row} == row
    at_first, _ = answered("show", run, "--visit", 1)
    assert {row["visit"] for row in at_first["prompts"]} == {1}


def test_wrong_labels_of_a_run_are_those_that_the_truth_contradicts(run):
    found, _ = answered("show", run, "--wrong")
    last = scan_labels(run).filter(pl.col("visit") == 4).collect()
    wrong = last.filter(~pl.col("effective_label_is_correct"))["prompt_id"]
    assert {row["prompt_id"] for row in found["prompts"]} == {*wrong}
    assert 0 < len(wrong) < 20
    output = done("show", run, "--wrong", "--top", 1).stdout
    assert (
        f"{len(wrong)} of 20 prompts have a wrong label; the first 1 are shown." in output
    )


def test_a_prompt_shows_its_votes_and_the_responses_of_its_last_visit(run):
    stored = scan_rollouts(run).filter(pl.col("visit") == 4).collect()
    prompt_id = stored["prompt_id"][0]
    own = stored.filter(pl.col("prompt_id") == prompt_id)
    found, _ = answered("show", run, prompt_id)
    assert [row["visit"] for row in found["visits"]] == [1, 2, 3, 4]
    assert found["visit"] == 4
    assert [row["response"] for row in found["responses"]] == own["response"].to_list()
    by_truth = {True: "right", False: "wrong"}
    expected = [by_truth[is_right] for is_right in own["is_correct"]]
    assert [row["verdict"] for row in found["responses"]] == expected
    output = done("show", run, prompt_id, "--visit", 2).stdout
    assert f"right or wrong by the true answer {found['true_answer']}" in output
    assert "Visit 2       8 of 8 responses" in output


def test_of_one_prompt_wrong_leaves_out_responses_that_are_right(tmp_path):
    log = log_of(tmp_path, answers("a", "7", ["7", "8", None]))
    found, _ = answered("show", log, "a", "--wrong")
    verdicts = [(row["answer"], row["verdict"]) for row in found["responses"]]
    assert verdicts == [("8", "wrong"), (None, "no answer")]
    output = done("show", log, "a", "--wrong").stdout
    assert "2 of 3 responses; right or wrong by the label 7" in output
    assert "I do not know." in output and r"\boxed{7}" not in output


def test_without_a_truth_a_label_is_wrong_that_the_majority_contradicts(tmp_path):
    rows = [
        *answers("a", "7", ["7", "7", "8"]),
        *answers("b", "7", ["8", "8", "7"]),
        *answers("tied", "7", ["8", "9"]),
        *answers("silent", "7", [None]),
    ]
    found, _ = answered("show", log_of(tmp_path, rows), "--wrong")
    assert [row["prompt_id"] for row in found["prompts"]] == ["b"]
    output = done("show", tmp_path / "log.jsonl", "--wrong").stdout
    assert "1 of 4 prompts have a label that the majority contradicts." in output
    assert "question of b?" in output
    assert "label is" not in output  # nobody knows


def test_several_models_vote_together(tmp_path):
    rows = [
        row
        for number, text in enumerate("778")
        for row in answers("a", "8", [text], model=f"model {number}")
    ]
    found, _ = answered("show", log_of(tmp_path, rows), "a")
    [visit] = found["visits"]
    assert (visit["majority_answer"], visit["majority_count"], visit["rollouts"]) == (
        "7",
        2,
        3,
    )
    assert [row["model"] for row in found["responses"]] == ["model 0", "model 1", "model 2"]


def test_a_problem_that_nobody_answers_is_not_solved(here):
    done("evaluate", "builtin:addition-easier", "--samples", 2, "--limit", 8)
    found, _ = answered("show", "evaluations/builtin-addition-easier", "--wrong")
    rows = pl.read_parquet("evaluations/*/generations/*.parquet")
    right = rows.group_by("problem_id").agg(pl.col("is_correct").all())
    wrong = right.filter(~pl.col("is_correct"))["problem_id"]
    assert {row["prompt_id"] for row in found["prompts"]} == {*wrong}
    assert 0 < len(wrong) < 8
    told = refused("show", "evaluations/builtin-addition-easier", "--columns", "prompt=x")
    assert "--columns: only logs have columns to name" in told


def test_a_prompt_is_found_by_a_part_of_its_id_or_question(tmp_path):
    rows = [*answers("gsm-1", "7", ["7"]), *answers("gsm-2", "7", ["7"])]
    log = log_of(tmp_path, rows)
    assert answered("show", log, "m-2")[0]["prompt_id"] == "gsm-2"
    assert answered("show", log, "Question of gsm-1")[0]["prompt_id"] == "gsm-1"
    several = refused("show", log, "gsm")
    assert "2 prompts have 'gsm' in their id or question: gsm-1, gsm-2; name one" in several
    assert "no prompt has 'x'" in refused("show", log, "x")


def test_a_visit_that_is_not_there_is_refused(run, tmp_path):
    assert "has visits 1 to 4; name one of them" in refused("show", run, "--visit", 9)
    log = log_of(tmp_path, answers("a", "7", ["7"]))
    assert "prompt a has one visit here" in refused("show", log, "a", "--visit", 2)


def test_benchmarks_are_of_evaluations(run):
    told = refused("show", run, "--benchmark", "aime24")
    assert "--benchmark: only evaluations have benchmarks; leave it out" in told


def test_a_tie_is_no_lack_of_answers(tmp_path):
    rows = [*answers("tied", "7", ["8", "9", "8", "9"]), *answers("silent", "7", [None])]
    output = done("show", log_of(tmp_path, rows)).stdout
    assert re.search(r"tied +7 +a tie +– of 4", output)
    assert re.search(r"silent +7 +– +0 of 1", output)


def test_what_is_no_history_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    assert "is not a run directory" in refused("show", tmp_path / "empty")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_in_a_terminal_what_is_longer_goes_through_a_pager(run, monkeypatch):
    paged, terminal = [], Terminal()
    monkeypatch.setattr("pydoc.pager", paged.append)
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    prompt = scan_labels(run).collect()["prompt_id"][0]
    for lines, is_paged in (("500", False), ("10", True)):
        monkeypatch.setenv("LINES", lines)
        app(["show", str(run), prompt], standalone_mode=False)
        assert bool(paged) == is_paged
    assert paged == [terminal.getvalue()]
    assert "\x1b[1mPrompt" in paged[0]
