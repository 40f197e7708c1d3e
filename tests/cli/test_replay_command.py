"""`olr replay` never overwrites what it did not make."""

import json
from functools import partial

import commands
import polars as pl
import pyarrow.parquet as pq
import pytest
from cases import each
from histories import write_history

from olr_cli import answers
from olr_cli.analysis import histories

replay = partial(commands.done, "replay")


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "log.jsonl"
    file.write_text(json.dumps({"prompt_id": "a", "visit": 1, "response": "\\boxed{1}"}))
    return file


@pytest.fixture
def run(tmp_path):
    return write_history(tmp_path / "run", prompts=12, epochs=4)


def test_a_new_file_is_written_where_out_says(tmp_path, table):
    out = tmp_path / "deep" / "labels.parquet"
    assert f"Wrote {out}" in replay(table, "--out", out).output
    assert out.read_bytes()[:4] == b"PAR1"


def test_a_folder_in_the_way_of_the_labels_is_said(tmp_path, table):
    name = replay(table).output.split("Wrote ")[1].splitlines()[0]
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    assert "could not be written" in commands.refused("replay", table)


@each(
    "words, message",
    (("TABLE", "--out", "TABLE"), "exists already; choose another name"),
    (("TABLE", "--out", "FOLDER"), "exists already; choose another name"),
    (("TABLE", "--out", "FOLDER/new.jsonl"), "the table is written as Parquet or CSV"),
    (("TABLE", "--json", "--out", "FOLDER/labels.parquet"), "choose one of them"),
    (("FOLDER/nowhere",), "does not exist"),
    (("RUN", "--set", "train.epochs=3"), "the stored rollouts are as they are"),
)
def test_a_refusal_is_one_sentence_and_overwrites_nothing(
    tmp_path, table, run, words, message
):
    before = table.read_bytes()
    places = {"TABLE": str(table), "FOLDER": str(tmp_path), "RUN": str(run)}
    for name, place in places.items():
        words = [word.replace(name, place) for word in words]
    assert message in commands.refused("replay", *words)
    assert (table.read_bytes(), (run / "replay").exists()) == (before, False)
    assert {file.name for file in tmp_path.iterdir()} == {"run", table.name}


def test_a_csv_file_holds_what_the_parquet_file_does(tmp_path, run):
    for name in ("labels.parquet", "labels.csv"):
        output = replay(
            run, "--set", "method.warmup_epochs=1", "--out", tmp_path / name
        ).output
    labels = pl.read_parquet(tmp_path / "labels.parquet")
    assert pl.read_csv(tmp_path / "labels.csv", schema=labels.schema).equals(labels)
    assert labels["is_selected"].any()
    assert "Selected: 0" not in output


def test_negative_labels_agree_with_the_run_in_a_csv_file_too(tmp_path, run):
    for file in [*run.glob("labels/*.parquet"), *run.glob("rollouts/*.parquet")]:
        table = pq.read_table(file)
        answers = {answer: f"-{answer}" for answer in ("10", "11", "12", "13", "14")}
        negative = (
            pl.DataFrame(table).with_columns(pl.col(pl.String).replace(answers)).to_arrow()
        )
        pq.write_table(negative.cast(table.schema), file)
    said = []
    for name in ("labels.parquet", "labels.csv"):
        output = replay(
            run, "--set", "method.warmup_epochs=1", "--out", tmp_path / name
        ).output
        said.append(
            next(
                line
                for line in output.splitlines()
                if line.startswith("The effective label")
            )
        )
    assert "'-1" in (tmp_path / "labels.csv").read_text()  # no formula in a spreadsheet
    assert said[0] == said[1]


def test_a_replay_of_a_log_says_how_many_labels_would_change_and_what_comes_next(tmp_path):
    """Two prompts, of which one is answered by 5 where the label is 7, and one as its label says in other words."""
    rows = []
    for visit in (1, 2):
        for question, label, answer in (("2+3=", "7", "5"), ("1/2=", "0.5", "1/2")):
            row = {"question": question, "given_label": label, "visit": visit}
            rows += [row | {"response": f"The answer is \\boxed{{{answer}}}."}] * 4
    log = tmp_path / "log.parquet"
    pl.DataFrame(rows).write_parquet(log)
    settings = [
        w
        for s in ("warmup_epochs=0", "criteria=[consistency]")
        for w in ("--set", f"method.{s}")
    ]
    output = " ".join(replay(log, *settings).output.split())
    assert "1 of 2 labels would be replaced by another answer." in output
    assert (
        f"Next: olr audit {log}" in output
        and f"olr replay {log} --set method.slope_threshold=0.1" in output
    )


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_replay_reads_what_a_run_gave_up_and_adds_nothing_to_it(run, words, monkeypatch):
    made = []

    class Seen(answers.Judge):
        def __init__(self, **settings):
            made.append((settings["ledger"], settings["keep"]))
            super().__init__(**settings)

    monkeypatch.setattr(histories, "Judge", Seen)
    replay(run, *words)
    [(ledger, keeps)] = made
    assert not keeps and str(ledger).startswith(str(run))
