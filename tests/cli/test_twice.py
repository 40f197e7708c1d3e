"""A command that is given twice says that its file is there; what it writes for spreadsheets is read back as it was."""

import csv
import json

import commands
import polars as pl
import pytest
from audit_tables import many, rollouts, write
from cases import each

from olr_cli.data.prompt_files import Reading, read_prompts

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def log(here):
    rows = [
        {**row, "question": f"What is {row['prompt_id']}?", "reward": 1}
        for row in many(12, wrong={4, 8})
    ]
    return write(here / "log.jsonl", rows)


@pytest.fixture
def data(here):
    (here / "data.csv").write_text("question,answer\nWhat is 1+1?,2\nWhat is 2+2?,\n")
    return here / "data.csv"


@each(
    "words, name",
    (("check", "data.csv", "--export"), "clean.csv"),
    (("check", "data.csv", "--export"), "clean.jsonl"),
    (("check", "data.csv", "--export"), "clean.parquet"),
    (("replay", "log.jsonl", "--out"), "labels.parquet"),
    (("replay", "log.jsonl", "--out"), "labels.csv"),
    (("audit", "log.jsonl", "--out"), "prompts.parquet"),
    (("audit", "log.jsonl", "--out"), "prompts.csv"),
    (("audit", "log.jsonl", "--rewards", "--out"), "queue.csv"),
    (("audit", "log.jsonl", "--report"), "queue.html"),
    (("audit", "log.jsonl", "--export"), "rest.jsonl"),
    (
        (
            "inject-noise",
            "--dataset",
            "data.csv",
            "--type",
            "inactive",
            "--ratio",
            "0",
            "--out",
        ),
        "noisy.jsonl",
    ),
)
def test_the_same_command_twice_finds_its_file_and_another_files_content_stays(
    log, data, here, words, name
):
    if words[0] == "inject-noise":
        data.write_text("question,answer\nWhat is 1+1?,2\n")
    assert (
        "Wrote" in (first := commands.done(*words, name).stdout)
        and "already there" not in first
    )
    stat = (here / name).stat()
    before = (stat.st_ino, stat.st_mtime_ns)
    assert f"{name} is already there with these bytes" in commands.done(*words, name).stdout
    after = (here / name).stat()
    assert (after.st_ino, after.st_mtime_ns) == before
    (here / name).write_text("mine")
    said = commands.olr(*words, name)
    assert (
        said.exit_code == 2
        and f"--{words[-1][2:]}: {name} exists already, with other content" in said.stderr
    )
    assert (here / name).read_text() == "mine"
    assert not list(here.glob(".*.tmp"))


def test_a_replay_at_its_own_place_is_written_again_when_the_log_has_gone_on(log, here):
    [name] = [
        line
        for line in commands.done("replay", log).stdout.splitlines()
        if line.startswith("Wrote ")
    ]
    place = name.removeprefix("Wrote ")
    assert f"{place} is already there" in commands.done("replay", log).stdout
    write(log, [{**row, "question": row["prompt_id"]} for row in many(14)])
    assert f"Wrote {place}" in commands.done("replay", log).stdout
    assert pl.read_parquet(place)["prompt_id"].n_unique() == 14


FORMULAS = ("-5", "+3", "=1+1", "@x", "-x^2", "'-5", "''=A1")
"""Labels that a spreadsheet would take for formulas, or that look as if they had been kept from that."""


@pytest.fixture
def formulas(here):
    rows = [
        {**row, "question": f"What gives {label}?"}
        for number, label in enumerate(FORMULAS)
        for row in rollouts(f"={number}", [[label, label, "-9"]] * 2, given_label=label)
    ]
    return write(here / "formulas.jsonl", [{**row, "reward": 1} for row in rows])


def cells(file, column):
    with open(file, newline="", encoding="utf-8") as lines:
        return [row[column] for row in csv.DictReader(lines)]


@each(
    "words, columns",
    (("audit", "formulas.jsonl", "--out"), ("prompt_id", "given_label", "question")),
    (
        ("audit", "formulas.jsonl", "--rewards", "--out"),
        ("prompt_id", "label", "answer", "response"),
    ),
    (
        ("replay", "formulas.jsonl", "--out"),
        ("prompt_id", "given_label", "majority_answer", "effective_label"),
    ),
)
def test_no_text_of_a_csv_file_is_a_formula_and_numbers_stay_numbers(
    formulas, words, columns
):
    commands.done(*words, "table.csv")
    for column in columns:
        assert not [
            cell for cell in cells("table.csv", column) if cell[:1] in ("=", "+", "-", "@")
        ]
    assert any(
        cell[:2] in ("'-", "'+", "'=")
        for column in columns
        for cell in cells("table.csv", column)
    )
    table = pl.read_csv("table.csv", schema_overrides={"prompt_id": pl.String})
    numbers = {"log_odds", "rank", "rollouts", "slope", "visits", "given_count"} & {
        *table.columns
    }
    assert numbers and not any(table[name].dtype == pl.String for name in numbers)


def test_labels_of_an_export_are_read_back_as_they_were(formulas, here):
    commands.done("audit", formulas, "--out", "table.csv")
    assert sorted(cells("table.csv", "given_label")) == sorted(
        f"'{label}" for label in FORMULAS
    )
    columns = {"question": "question", "answer": "given_label", "id": "prompt_id"}
    prompts = read_prompts("table.csv", reading=Reading(columns)).prompts
    labels = {prompt.prompt_id: prompt.given_label for prompt in prompts}
    assert labels == {f"={number}": label for number, label in enumerate(FORMULAS)}
    words = ["--columns", ",".join(f"{role}={column}" for role, column in columns.items())]
    checked, _ = commands.answered("check", "table.csv", *words)
    assert "'-x^2" not in json.dumps(checked)
    table = pl.read_csv("table.csv", schema_overrides={"prompt_id": pl.String})
    # As a spreadsheet saves it
    table.with_columns(true_answer="given_label").write_csv("verified.csv")
    found, _ = commands.answered("audit", formulas, "--verified", "verified.csv")
    assert found["verified_labels"] == len(FORMULAS) and found["labels"]["doubted"] == 0


def test_verdicts_on_answers_that_look_like_formulas_are_found_again(here):
    rows = rollouts("-1", [["-5", "-5", "7"]] * 3, given_label="-5", question="What?")
    log = write(
        here / "log.jsonl",
        [{**row, "reward": number % 2} for number, row in enumerate(rows)],
    )
    commands.done("audit", log, "--rewards", "--out", "queue.csv")
    queue = pl.read_csv("queue.csv", schema_overrides={"prompt_id": pl.String})
    queue.with_columns(verdict=pl.lit("right")).write_csv("judged.csv")
    found, _ = commands.answered("audit", log, "--rewards", "--verified", "judged.csv")
    assert (
        f"{len(queue)} of {len(queue)} verdicts are about answers here, 0 about none."
        in found["notes"]
    )


def test_a_csv_file_of_others_keeps_its_apostrophes(here):
    (here / "mine.csv").write_text(
        "question,answer\n'-' is which sign?,minus\nWhat is '+'?,'+'\n"
    )
    [first, second] = read_prompts("mine.csv").prompts
    assert (
        first.messages[-1].content == "'-' is which sign?" and second.given_label == "'+'"
    )
