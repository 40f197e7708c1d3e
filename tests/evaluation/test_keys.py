"""Verified keys of a benchmark: which problems they are for, what is stored under them, and what is refused."""

from dataclasses import replace

import polars as pl
import pytest
from cases import refusal
from commands import contents, done, refused
from samples import json_lines
from sums import PROBLEMS, SAMPLES, Backend, run, sums

from olr_cli.data.chat import Message
from olr_cli.data.prompts import Prompt
from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import Benchmark, ProblemSource
from olr_cli.evaluation.keys import stored_task, with_verified_keys
from olr_cli.evaluation.record import Task
from olr_cli.evaluation.store import EvaluationStore


@pytest.fixture
def ids(folder):
    """The ids of the problems 0 + 7, 1 + 7, …"""
    rows = pl.read_parquet(folder / "generations" / "sums.parquet")
    return rows["problem_id"].unique(maintain_order=True).to_list()


def task_of(*golds, name="exam", choices=None, grader="math"):
    """A task whose problems are called 0, 1, …"""
    benchmark = Benchmark(name=name, grader=grader, source=ProblemSource(file="exam.jsonl"))
    problems = [
        Prompt(
            str(at), (Message("user", f"{name} {at}?"),), gold, gold, None, choices=choices
        )
        for at, gold in enumerate(golds)
    ]
    return Task(benchmark, problems, 1)


def golds_under(file, task):
    [corrected] = with_verified_keys([task], file)
    return {problem.prompt_id: problem.gold for problem in corrected.problems}


def test_a_verdict_corrects_keeps_or_rejects_a_key_and_unsure_says_nothing(tmp_path):
    file = json_lines(
        tmp_path / "keys.jsonl",
        *[
            {"prompt_id": "0", "verdict": "wrong", "given_label": "7", "true_answer": "8"},
            {"prompt_id": "1", "verdict": "kept", "given_label": "7", "true_answer": None},
            {"prompt_id": "2", "verdict": "wrong", "given_label": "7", "true_answer": None},
            {"prompt_id": "3", "verdict": "flawed", "given_label": "7", "true_answer": "9"},
            {"prompt_id": "4", "verdict": "unsure", "given_label": "7", "true_answer": "9"},
            {"prompt_id": "5", "verdict": None, "given_label": None, "true_answer": "7.0"},
        ],
    )
    [task] = with_verified_keys([task_of(*["7"] * 7)], file)
    golds = {problem.prompt_id: problem.gold for problem in task.problems}
    assert golds == {"0": "8", "1": "7", "4": "7", "5": "7", "6": "7"}
    assert task.verified is not None
    facts = task.verified.model_dump(exclude={"digest"})
    assert facts == {
        "file": "keys.jsonl", "labels": 5, "verified": 5, "corrected": 1, "rejected": 2, "skipped": "",
    }  # fmt: skip


def test_a_verdict_that_contradicts_itself_leaves_its_key_and_is_said(tmp_path):
    rows = [
        {"prompt_id": "0", "verdict": "wrong", "given_label": "7", "true_answer": "7.0"},
        {"prompt_id": "1", "verdict": "wrong", "given_label": "7", "true_answer": "8"},
    ]
    [task] = with_verified_keys(
        [task_of("7", "7")], json_lines(tmp_path / "keys.jsonl", rows)
    )
    assert [problem.gold for problem in task.problems] == ["7", "8"]
    assert str(task.verified).endswith(
        "; skipped 1 row whose verdict contradicts its true answer: prompt 0 is 'wrong', with the label 7 and the true"
        " answer 7.0"
    )


def test_another_spelling_is_no_correction_and_another_answer_is(tmp_path):
    keys = [("0", "0.5"), ("1", "75"), ("2", "10")]
    file = json_lines(
        tmp_path / "keys.jsonl",
        *[{"prompt_id": name, "true_answer": answer} for name, answer in keys],
    )
    task = task_of(r"\frac{1}{2}", r"75\%", '["10", "12"]')
    assert golds_under(file, task) == {"0": r"\frac{1}{2}", "1": "75", "2": "10"}


@pytest.mark.parametrize(
    ("gold", "answer", "key"),
    [("B", "C", "C"), ("B", "(c)", "C"), ("2", "C", "3"), ("2", "3", "3")],
)
def test_of_multiple_choice_a_key_has_the_form_of_the_one_before(
    tmp_path, gold, answer, key
):
    file = json_lines(tmp_path / "keys.jsonl", *[{"prompt_id": "0", "true_answer": answer}])
    task = task_of(gold, choices=4, grader="choice")
    assert golds_under(file, task) == {"0": key}


def test_a_key_of_several_options_stays_beside_one_that_is_verified(tmp_path):
    several = '["A", "B"]'
    file = json_lines(tmp_path / "keys.jsonl", *[{"prompt_id": "0", "true_answer": "C"}])
    task = task_of("B", several, choices=4, grader="choice")
    assert golds_under(file, task) == {"0": "C", "1": several}


@pytest.mark.parametrize("answer", ["Venus", "E", "9", "3"])
def test_an_answer_that_names_no_option_is_refused(tmp_path, answer):
    file = json_lines(tmp_path / "keys.jsonl", *[{"prompt_id": "0", "true_answer": answer}])
    said = refusal(with_verified_keys, [task_of("B", choices=4, grader="choice")], file)
    assert f"verified: the verified answer '{answer}' to problem 0 of exam" in said
    assert said.endswith("names none of its 4 options; give the letter of one")


def test_a_file_without_ids_names_problems_by_their_questions(tmp_path):
    file = json_lines(tmp_path / "data.jsonl", *[{"question": "Exam 1 ?", "answer": "8"}])
    assert golds_under(file, task_of("7", "7")) == {"0": "7", "1": "8"}


def test_what_a_file_cannot_mean_is_refused(tmp_path):
    table = tmp_path / "keys.jsonl"
    json_lines(table, *[{"prompt_id": "9", "true_answer": "8"}])
    assert "keys.jsonl: none of its prompts is among" in refusal(
        with_verified_keys, [task_of("7")], table
    )
    json_lines(table, *[{"prompt_id": "0", "true_answer": "8"}])
    both = [task_of("7"), task_of("6", name="quiz")]
    assert "by ids that several benchmarks have (exam, quiz); name the one" in refusal(
        with_verified_keys, both, table
    )
    json_lines(table, *[{"prompt_id": "0", "verdict": "wrong", "given_label": "5"}])
    assert "a verdict on the label 5 of prompt 0, whose label here is 7" in refusal(
        with_verified_keys, [task_of("7")], table
    )
    json_lines(table, *[{"prompt_id": "0", "verdict": "flawed", "given_label": "7"}])
    assert "keys.jsonl leaves no problem of exam" in refusal(
        with_verified_keys, [task_of("7")], table
    )


def test_scores_under_verified_keys_stand_beside_the_old_ones_in_a_folder_of_their_own(
    tmp_path, folder, ids
):
    keys = json_lines(
        tmp_path / "keys.jsonl",
        *[
            {"prompt_id": ids[0], "true_answer": "8"},  # what one of three samples says
            {"prompt_id": ids[1], "verdict": "flawed", "given_label": "8"},
            {"prompt_id": ids[2], "verdict": "kept", "given_label": "9"},
        ],
    )
    before = contents(folder), (folder / "evaluation.json").read_bytes()
    result = done("regrade", folder, "--verified", keys)
    assert (contents(folder), (folder / "evaluation.json").read_bytes()) == before
    [copy] = folder.glob("verified-*")
    rows = pl.read_parquet(copy / "generations" / "sums.parquet")
    old = pl.read_parquet(folder / "generations" / "sums.parquet")
    assert len(rows) == (PROBLEMS - 1) * SAMPLES and ids[1] not in rows["problem_id"]
    of_first = rows.filter(problem_id=ids[0])
    assert of_first["is_correct"].to_list() == (of_first["answer"] == "8").to_list()
    rest = rows.filter(pl.col("problem_id") != ids[0])
    assert rest.equals(old.filter(~pl.col("problem_id").is_in(ids[:2])))
    assert (
        "keys verified by keys.jsonl (3 labels): 3, 1 of them corrected and 1 rejected (problems"
        in " ".join(result.stdout.split())
    )
    line = done("regrade", folder, "--verified", keys, "--format", "csv").stdout
    [values] = pl.read_csv(line.encode()).to_dicts()
    shares = [
        frame.group_by("problem_id").agg(pl.col("is_correct").mean())
        for frame in (rows, old)
    ]
    paired = shares[0].join(shares[1], on="problem_id")
    assert values["pairs"] == PROBLEMS - 1
    assert values["difference"] == pytest.approx(
        (paired["is_correct"] - paired["is_correct_right"]).mean()
    )
    assert values["reference_avg"] == pytest.approx(old["is_correct"].mean())


def test_scored_at_once_or_afterwards_an_evaluation_under_verified_keys_is_the_same(
    tmp_path, folder, ids, benchmark
):
    keys = json_lines(
        tmp_path / "keys.jsonl",
        *[
            {"prompt_id": ids[0], "true_answer": "8"},
            {"prompt_id": ids[1], "verdict": "flawed", "given_label": "8"},
        ],
    )
    done("regrade", folder, "--verified", keys)
    [copy] = folder.glob("verified-*")
    at_once = tmp_path / "at-once"

    def stop(number):
        if number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(at_once, [benchmark], Backend(stop), verified=keys)
    run(at_once, [benchmark], Backend(), verified=keys)
    assert contents(at_once) == contents(copy)
    run(at_once, [benchmark], verified=keys)  # needs no model any more
    run(copy, [benchmark], verified=keys)
    done("regrade", at_once)
    assert contents(at_once) == contents(copy)


def test_an_evaluation_goes_on_under_the_keys_with_which_it_began(
    tmp_path, folder, ids, benchmark
):
    keys = json_lines(tmp_path / "keys.jsonl", *[{"prompt_id": ids[0], "true_answer": "8"}])
    with pytest.raises(
        UserError, match=r"asked otherwise \(verified keys of sums: none -> \w+\)"
    ):
        run(folder, [benchmark], verified=keys)
    other = tmp_path / "other"
    run(other, [benchmark], Backend(), verified=keys)
    with pytest.raises(UserError, match=r"verified keys of sums: \w+ -> none"):
        run(other, [benchmark])
    json_lines(keys, *[{"prompt_id": ids[0], "true_answer": "9"}])
    with pytest.raises(UserError, match=r"verified keys of sums: \w+ -> \w+"):
        run(other, [benchmark], verified=keys)
    assert "is under verified keys already" in refused("regrade", other, "--verified", keys)


def test_of_several_evaluations_those_without_a_verified_key_are_left_out(
    tmp_path, folder, ids
):
    other = folder.with_name("another")
    run(other, [sums(tmp_path, "others", first=50)], Backend())
    keys = json_lines(tmp_path / "keys.jsonl", *[{"prompt_id": ids[0], "true_answer": "8"}])
    result = done("regrade", folder.parent, "--verified", keys)
    assert f"{other}: {keys} verifies no key of it" in result.stderr
    assert not [*other.glob("verified-*")] and [*folder.glob("verified-*")]
    json_lines(keys, *[{"prompt_id": "nobody's", "true_answer": "8"}])
    assert "none of its prompts is among" in refused(
        "regrade", folder.parent, "--verified", keys
    )


@pytest.mark.parametrize(
    ("option", "value"), [("compare", "."), ("extractor", "boxed"), ("tolerance", "0.1")]
)
def test_nothing_but_the_keys_differs(tmp_path, folder, ids, option, value):
    keys = json_lines(tmp_path / "keys.jsonl", *[{"prompt_id": ids[0], "true_answer": "8"}])
    said = refused("regrade", folder, "--verified", keys, f"--{option}", value)
    assert said.startswith(f"Error: --{option}: scores under verified keys stand beside")
    assert not [*folder.glob("verified-*")]


def test_no_function_runs_that_only_a_stored_file_names_and_grading_stays_as_it_was(
    tmp_path, folder, ids
):
    keys = json_lines(tmp_path / "keys.jsonl", *[{"prompt_id": ids[0], "true_answer": "8"}])
    store = EvaluationStore(folder)
    record = store.record()
    own = record.benchmarks["sums"].definition.model_copy(
        update={"extractor": "mine.py:read"}
    )
    store.write_record(record.graded_by({"sums": own}))
    said = refused("regrade", folder, "--verified", keys)
    assert "only a stored file names this function, for sums" in said
    named = tmp_path / "sums.yaml"
    said = refused("regrade", folder, "--verified", keys, "--benchmarks", named)
    assert f"sums is graded otherwise now than in {folder}; regrade it before" in said


def test_questions_are_those_of_the_source_unless_it_has_others_now(tmp_path, folder):
    store = EvaluationStore(folder)
    stored = store.record().benchmarks["sums"]
    task, why = stored_task(store, stored)
    assert (why, task.problems[0].messages[0].role) == ("", "system")
    source = tmp_path / "sums.jsonl"
    source.write_text(source.read_text().replace("3 + 7", "3 + 8"))
    changed, why = stored_task(store, stored)
    assert why.endswith("has other problems now")
    assert [it.messages for it in changed.problems] == [
        it.messages[-1:] for it in task.problems
    ]
    assert [replace(it, messages=()).gold for it in changed.problems] == [
        it.gold for it in task.problems
    ]
