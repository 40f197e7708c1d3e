"""What a command answers, as a terminal and as JSON show it."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pytest

from olr_cli.cli.printing import say, show
from olr_cli.tables import Answer, Block, Cell, Column, File, Line, Row, Table

TABLE = Table(
    [Block([Column("name"), Column("n")], [Row(["[red]a", "1"])])],
    [{"name": "[red]a", "n": 1}],
    footnotes=["known below the table"],
)
ANSWER = Answer(
    ["", Line("Read", "[bold]text[/bold] " + "word " * 30, is_wrapped=True), TABLE],
    {"rows": 1, "next": "kept"},
    notes=["[note]", "known below the table"],
    files=[File(Path("out.csv"), " (a row)"), File(Path("old.csv"), is_new=False)],
    next={"olr audit x": "why", "olr replay x": ""},
    indent=10,
)


def test_a_terminal_gets_everything_in_order_and_nothing_is_markup(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    show(ANSWER)
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[:2] == ["", f"Read      [bold]text[/bold] {'word ' * 10}".rstrip()]
    assert lines[2].startswith(" " * 10 + "word")
    assert "[red]a 1 " in lines
    assert lines[-5:] == [
        "known below the table",
        "Wrote     out.csv (a row)",
        "Unchanged old.csv",
        "Next      olr audit x   (why)",
        "  or      olr replay x",
    ]
    assert printed.err == "Note: [note]\n"


def test_without_an_indent_the_next_command_has_a_colon(capsys):
    show(Answer(files=[File(Path("a"))], next={"olr x": "", "olr y": "later"}))
    assert capsys.readouterr().out == "Wrote a\nNext: olr x\n  or: olr y   (later)\n"


def test_a_table_stands_alone_in_a_document(capsys):
    show(ANSWER, "csv")
    printed = capsys.readouterr()
    assert printed.out == "name,n\n[red]a,1\n"
    assert printed.err.splitlines()[-2:] == [
        "Wrote     out.csv (a row)",
        "Unchanged old.csv",
    ]


def test_json_has_what_a_terminal_shows_and_the_keys_of_the_result_win(capsys):
    show(ANSWER, "json")
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {
        "schema": 1,
        "rows": 1,
        "next": "kept",
        "notes": ["[note]", "known below the table"],
        "written": ["out.csv", "old.csv"],
    }
    assert printed.err == ""


@dataclass(frozen=True)
class Counted:
    file: Path
    rates: tuple
    known: float | None
    labels: pl.DataFrame
    source: object = field(repr=False)


def test_json_is_the_result_itself(capsys):
    rates = (Cell(0.5, ends=(0.4, 0.6)), Cell())
    result = Counted(
        Path("a.csv"),
        rates,
        None,
        pl.DataFrame({"x": [1.0, float("nan")]}),
        source=object(),
    )
    show(Answer(result=result), "json")
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "file": "a.csv",
        "rates": [
            {"mean": 0.5, "low": 0.4, "high": 0.6},
            {"mean": None, "low": None, "high": None},
        ],
        "known": None,
        "labels": [{"x": 1.0}, {"x": None}],
    }


@pytest.mark.parametrize("name", ["Größe", "half \udcff"])
def test_json_takes_any_name(name, capsys):
    show(Answer(files=[File(Path(name))]), "json")
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "written": [name]}


def test_the_last_json_line_of_a_run_is_an_event(capsys):
    show(Answer(result={"run": "runs/a"}, next={"olr analyze runs/a": ""}), "event")
    (line,) = capsys.readouterr().out.splitlines()
    ended = {
        "event": "finished",
        "schema": 1,
        "run": "runs/a",
        "next": ["olr analyze runs/a"],
    }
    assert json.loads(line) == ended


@pytest.mark.parametrize("colour", [True, False])
def test_a_terminal_wraps_a_sentence_at_words_and_shows_its_kind_in_colour(
    colour, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "" if colour else "1")
    path = "a/path/that/stays/in/one/piece/however-long.csv"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    say(f"Error: {path} is not there; name a file that can be read by everybody")
    first, *rest = capsys.readouterr().err.splitlines()
    assert first == ("\x1b[1;31mError\x1b[0m:" if colour else "Error:") or not colour
    assert rest == [path, "is not there; name a file that can be", "read by everybody"]
