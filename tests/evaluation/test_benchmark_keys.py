"""A benchmark's keys, from evaluations to corrected scores: audit, verify, regrade, export."""

import json
import shutil
from functools import partial
from pathlib import Path

import commands
import polars as pl
import pytest
from commands import answered, contents, done
from histories import write_history
from sums import Backend, run, sums

from olr_cli.data.prompt_files import read_prompts
from olr_cli.evaluation.store import EvaluationStore

POLICIES = ("builtin:addition-easier", "builtin:addition-harder")
WRONG = (7, 23, 41)
"""Problems whose key is made wrong."""

pytestmark = pytest.mark.usefixtures("here")

refused = partial(commands.refused, "audit")


def told(*words):
    return " ".join(done(*words).stdout.split())


def exam(folder):
    """Write 60 sums, three of which have a wrong key."""
    with (folder / "exam.jsonl").open("w") as file:
        for n in range(60):
            one, other = 100 + n * 139 % 900, 100 + n * 277 % 900
            answer = one + other + 10 * (n in WRONG)
            row = {"question": f"{one}+{other}=", "answer": str(answer)}
            file.write(json.dumps(row) + "\n")
    return folder / "exam.jsonl"


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """Evaluations of both toy policies on the exam, and the file itself."""
    folder = tmp_path_factory.mktemp("exam")
    words = ("--data", exam(folder), "--samples", 8, "--temperature", 1)
    how = ("--extractor", "reversed_digits", "--out", folder / "evaluations")
    done("evaluate", *POLICIES, *words, *how)
    return folder


@pytest.fixture
def place(evaluated, here):
    shutil.copytree(evaluated / "evaluations", here / "evaluations")
    return Path("evaluations")


def test_three_wrong_keys_are_found_verified_and_scored_without(place, evaluated, here):
    before = {folder: contents(folder) for folder in place.iterdir()}
    found, _ = answered("audit", place)
    assert {*found["models"]} == {*POLICIES} and found["truth"] is None
    ids = {int(row["prompt_id"].partition("-")[0]): row for row in found["prompts"]}
    assert all(ids[n]["rank"] <= 10 for n in WRONG), "the queue has all of them early"
    # What a person says of the first ten rows, who adds.
    verdicts = []
    for row in found["prompts"][:10]:
        one, other = map(int, row["question"].rstrip("=").split("+"))
        is_wrong = str(one + other) != row["given_label"]
        verdicts.append(
            {
                "prompt_id": row["prompt_id"],
                "verdict": "wrong" if is_wrong else "kept",
                "given_label": row["given_label"],
                "true_answer": str(one + other) if is_wrong else None,
            }
        )
    (here / "selection.json").write_text(json.dumps(verdicts))
    said = told("audit", place, "--verified", "selection.json")
    assert "Verified 10 labels, 3 of them wrong" in said
    assert said.endswith(
        "Next olr regrade evaluations --verified selection.json (the scores under these keys)"
    )
    scores, _ = answered("regrade", place, "--verified", "selection.json")
    for row, evaluation in zip(scores["rows"], scores["evaluations"], strict=True):
        assert row["reference"] == "old keys" and row["pairs"] == 60
        assert row["avg"] - row["reference_avg"] == pytest.approx(row["difference"])
        assert (
            0 < row["difference_low"] <= row["difference"] <= row["difference_high"] < 0.2
        )
        samples = pl.read_parquet(
            Path(evaluation["folder"]) / "generations" / "exam.parquet"
        )
        assert row["avg"] == pytest.approx(samples["is_correct"].mean())
    assert {folder: contents(folder) for folder in place.iterdir()} == before
    assert answered("audit", place)[0]["models"] == found["models"], "copies do not vote"


def test_of_evaluations_those_under_verified_keys_are_left_out_and_named(
    place, evaluated, here
):
    name = next(iter(place.glob("*/generations/exam.parquet")))
    first = pl.read_parquet(name)["problem_id"][0]
    (here / "keys.json").write_text(json.dumps([{"prompt_id": first, "true_answer": "5"}]))
    words = ("--data", evaluated / "exam.jsonl", "--samples", 8, "--temperature", 1)
    how = ("--extractor", "reversed_digits", "--verified", "keys.json")
    done("evaluate", "builtin:subtraction", "--out", place / "third", *words, *how)
    found, _ = answered("audit", place)
    assert {*found["models"]} == {*POLICIES}
    assert any("is left out: its keys are verified ones" in it for it in found["notes"])
    assert answered("audit", place / "third")[0]["labels"], (
        "alone it is audited under its own keys"
    )


def test_a_second_file_of_keys_is_refused(place, here):
    keys = ("--verified", "a.json", "--verified", "b.json")
    said = commands.refused("regrade", place, *keys)
    assert "--verified is one file here, and 2 are named; join them" in said


def test_evaluations_vote_alike_as_a_folder_one_by_one_and_without_the_source(
    place, evaluated
):
    found, _ = answered("audit", place)
    folders = sorted(place.iterdir())
    one_by_one, _ = answered("audit", folders[0].absolute(), folders[1])
    assert one_by_one["prompts"] == found["prompts"]
    assert found["prompts"][0]["question"] == "597+171="
    source = evaluated / "exam.jsonl"
    source.rename(source.with_name("moved.jsonl"))
    try:
        moved, _ = answered("audit", place)
    finally:
        source.with_name("moved.jsonl").rename(source)
    [note] = moved["notes"]
    assert note.startswith("Questions are shown as a model read them: ")
    assert "exam.jsonl does not exist" in note
    assert moved["prompts"] == found["prompts"]


def test_an_audited_benchmark_is_exported_as_it_was_asked_and_can_be_asked_again(place):
    said = told("audit", place, "--drop", "doubted,questionable", "--export", "rest.jsonl")
    assert said.endswith("Next olr evaluate MODEL --data rest.jsonl (on what is left)")
    rest = read_prompts("rest.jsonl")
    assert [turn.role for turn in rest.prompts[0].messages] == ["system", "user"]
    assert {prompt.data_source for prompt in rest.prompts} == {"exam"}
    card = Path("rest.jsonl.md").read_text()
    assert f"{len(rest)} of 60 rows of exam" in card


def test_evaluations_of_one_model_are_visits_of_one_policy(tmp_path):
    for seed in (1, 2):
        run(tmp_path / f"evaluations/{seed}", [sums(tmp_path)], Backend(), seed=seed)
    other = tmp_path / "evaluations" / "other"
    run(other, [sums(tmp_path)], Backend(), model="else/model", seed=3)
    found, _ = answered("audit", tmp_path / "evaluations")
    assert {*found["models"]} == {"someone/model", "else/model"}, "both are called the same"
    assert {row["visits"] for row in found["prompts"]} == {2}
    assert {row["rollouts"] for row in found["prompts"]} == {48}


def test_of_several_benchmarks_one_is_named(tmp_path):
    folder = tmp_path / "evaluations" / "one"
    both = [sums(tmp_path), sums(tmp_path, "others", first=50)]
    run(folder, both, Backend())
    run(folder.with_name("two"), both[1:], Backend(), model="else/model")
    said = refused(folder.parent)
    assert said.startswith("Error: --benchmark: the finished benchmarks in ")
    assert said.endswith("are sums, others; name one of them")
    assert "are sums, others" in refused(folder.parent, "--benchmark", "more")
    result = done("audit", folder.parent, "--benchmark", "sums")
    assert (
        f"{folder.with_name('two')} has no finished sums, and is left out." in result.stderr
    )
    assert "--benchmark sums --report queue.html" in result.stdout


def test_other_keys_in_another_evaluation_are_refused(tmp_path):
    folder = tmp_path / "evaluations" / "one"
    run(folder, [sums(tmp_path)], Backend())
    file = tmp_path / "sums.jsonl"
    file.write_text(file.read_text().replace('"9"', '"10"'))
    from olr_cli.evaluation.benchmark import read_benchmark

    run(folder.with_name("two"), [read_benchmark(tmp_path / "sums.yaml")], Backend())
    assert "has several values of given_label" in refused(folder.parent)


def test_multiple_choice_votes_by_letters_or_by_numbers_where_the_keys_are(tmp_path):
    folder = tmp_path / "evaluations" / "one"
    run(folder, [sums(tmp_path)], Backend())
    store = EvaluationStore(folder)
    record = store.record()
    definition = record.benchmarks["sums"].definition.model_copy(
        update={"grader": "choice"}
    )
    store.write_record(record.graded_by({"sums": definition}))
    for gold, answer in (("B", "B"), ("2", "2")):
        rows = store.read("sums").with_columns(
            gold=pl.lit(gold), answer=pl.lit("B) Planets"), answer_class=pl.lit("B")
        )
        store._write(folder / "generations" / "sums.parquet", rows.to_arrow())
        found, _ = answered("audit", folder)
        assert {row["given_count"] for row in found["prompts"]} == {16}
        assert {row["given_label"] for row in found["prompts"]} == {answer}


def test_problems_with_several_keys_are_left_out_and_counted(tmp_path):
    folder = tmp_path / "evaluations" / "one"
    run(folder, [sums(tmp_path)], Backend())
    store = EvaluationStore(folder)
    gold = pl.when(pl.col("gold") == "7").then(pl.lit('["7", "8"]')).otherwise("gold")
    rows = store.read("sums").with_columns(gold=gold)
    store._write(folder / "generations" / "sums.parquet", rows.to_arrow())
    found, _ = answered("audit", folder)
    assert len(found["prompts"]) == 11
    said = "Problems that are left out, for they have several keys: 1."
    assert found["notes"][-1] == said


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--columns", "prompt=query"], "--columns: only logs have columns"),
        (
            ["--set", "data.extractor=boxed"],
            "are stored, so data.extractor has nothing to read",
        ),
        (["--rewards"], "has no rewards of 0 and 1"),
        (["exam.jsonl"], "evaluations holds evaluations, and exam.jsonl is something else"),
    ],
)
def test_what_evaluations_do_not_have_is_refused(place, words, problem):
    assert problem in refused(place, *words)


def test_a_run_with_evaluations_inside_is_audited_as_before(here, place):
    write_history(here / "mine", steps=4)
    before, _ = answered("audit", "mine")
    shutil.copytree(place, here / "mine" / "evaluation")
    assert answered("audit", "mine")[0] == before
    assert "--benchmark: only evaluations have benchmarks" in refused(
        "mine", "--benchmark", "exam"
    )
    found, _ = answered("audit", "mine/evaluation")
    assert {*found["models"]} == {*POLICIES}


def test_a_log_has_no_keys_to_verify(here):
    row = {"prompt_id": "p", "visit": 1, "response": "\\boxed{7}", "given_label": "7"}
    (here / "log.jsonl").write_text(json.dumps(row) + "\n")
    assert "--verified is for an evaluation, and log.jsonl is a log" in commands.refused(
        "regrade", "log.jsonl", "--verified", "log.jsonl"
    )
