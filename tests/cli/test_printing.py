"""What a command answers, as a terminal and as JSON show it."""

import io
import json
import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl
import pytest
import typer

from olr_cli.cli.printing import Waiting, say, show, show_dry_run, show_error
from olr_cli.errors import UserError
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
    assert printed.err.splitlines() == [
        "Note: [note]",
        "Note: known below the table",
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


def test_the_line_that_ends_a_run_is_wrapped_and_other_lines_of_an_answer_are_not(
    capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    words = "a run of many prompts, visits and rollouts of one model"
    show(Answer([f"Finished {words}", f"train: {words}"]))
    lines = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()
    assert lines == [
        "Finished a run of many prompts, visits",
        "and rollouts of one model",
        f"train: {words}",
    ]


class Stream(io.StringIO):
    """Standard error, in a terminal or not."""

    def __init__(self, *, is_terminal):
        super().__init__()
        self.isatty = lambda: is_terminal


@pytest.mark.parametrize(
    ("is_terminal", "shown"),
    [
        (True, ["\r\x1b[K2.0 …", "\r\x1b[K2.5 …", "\r\x1b[K32.0 …", "\r\x1b[K62.0 …", "\r\x1b[K"]),
        (False, ["32.0 …\n", "62.0 …\n"]),
    ],
)  # fmt: skip
def test_how_far_it_is_is_said_after_a_while_then_now_and_then_and_cleared_at_the_end(
    is_terminal, shown, monkeypatch
):
    now, stream = [0.0], Stream(is_terminal=is_terminal)
    monkeypatch.setattr("olr_cli.cli.printing.time.monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", stream)
    waiting = Waiting()
    for now[0] in (0.0, 1.9, 2.0, 2.4, 2.5, 32.0, 32.4, 62.0):
        waiting.say(str(now[0]))
    waiting.done()
    waiting.done()
    assert stream.getvalue() == "".join(shown)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_is_done_at_once_says_nothing_even_where_there_is_no_standard_error(
    is_terminal, monkeypatch
):
    for stream in (Stream(is_terminal=is_terminal), None):
        monkeypatch.setattr(sys, "stderr", stream)
        waiting = Waiting()
        waiting.say("a")
        waiting.done()
        assert stream is None or stream.getvalue() == ""


def rehearsed(missing):
    return Answer(["Would run."], {"missing": missing}, next={"lost": ""})


@pytest.mark.parametrize(
    ("missing", "said"),
    [(["torch"], "one thing is missing"), (["torch", "ray"], "2 things are missing")],
)
def test_a_dry_run_that_lacks_something_says_so_and_starts_nothing(
    missing, said, capsys, monkeypatch
):
    monkeypatch.setattr(sys, "argv", ["olr", "train", "x", "--dry-run"])
    with pytest.raises(typer.Exit) as ended:
        show_dry_run(rehearsed(missing), as_json=False)
    printed = capsys.readouterr()
    assert (ended.value.exit_code, printed.out) == (2, "Would run.\n")
    assert printed.err.startswith(f"Error: this run cannot start here: {said}; provide")


def test_a_dry_run_ends_with_the_same_command_without_the_flags_of_a_rehearsal(
    capsys, monkeypatch
):
    monkeypatch.setattr(sys, "argv", ["olr", "train", "a b", "--json", "--dry-run"])
    show_dry_run(rehearsed([]), as_json=False)
    assert (
        capsys.readouterr().out == "Would run.\nNext: olr train 'a b'   (starts the run)\n"
    )
    show_dry_run(rehearsed([]), as_json=True)
    assert json.loads(capsys.readouterr().out)["next"] == ["olr train 'a b'"]


def test_heads_are_bold_words_have_their_styles_and_numbers_stay_as_they_are(
    capsys, monkeypatch
):
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("NO_COLOR", "")):
        monkeypatch.setenv(name, value)
    lines = [Line("Read", "12 'rows' of a.csv", "dim"), Line(None, "3"), Line("", "4")]
    show(Answer([*lines, "[b] 5"], files=[File(Path("a"))], indent=6))
    assert capsys.readouterr().out.splitlines() == [
        "\x1b[1mRead  \x1b[0m\x1b[2m12 'rows' of a.csv\x1b[0m",
        "3",
        "\x1b[1m      \x1b[0m4",
        "[b] 5",
        "\x1b[1mWrote \x1b[0ma",
    ]


@pytest.mark.parametrize(("columns", "longest"), [("200", 120), ("100", 100), ("20", 50)])
def test_sentences_are_wrapped_at_the_width_of_the_terminal_from_40_signs_to_120(
    columns, longest, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", columns)
    words = Line("Read", "w " * 99 + "end", is_wrapped=True)
    show(Answer([words, replace(words, is_wrapped=False)], indent=10))
    *wrapped, whole = capsys.readouterr().out.splitlines()
    assert max(map(len, wrapped)) in (longest, longest - 1)
    assert {line[:10] for line in wrapped} == {"Read      ", " " * 10}
    assert whole == f"Read      {'w ' * 99}end"


def test_an_error_for_a_program_is_one_line_with_its_parts(capsys):
    show_error(UserError("no", "say yes", "a.yaml"))
    (line,) = capsys.readouterr().out.splitlines()
    error = {"problem": "no", "remedy": "say yes", "place": "a.yaml"}
    assert json.loads(line) == {"schema": 1, "error": error}


def test_json_is_indented_and_escaped_only_for_a_terminal_that_lacks_a_character(
    capsys, monkeypatch
):
    answer = Answer(result={"name": "Größe"})
    show(answer, "json")
    assert capsys.readouterr().out == '{\n  "schema": 1,\n  "name": "Größe"\n}\n'
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    show(answer, "json")
    sys.stdout.flush()
    said = sys.stdout.buffer.getvalue().decode()
    assert said == '{\n  "schema": 1,\n  "name": "Gr\\u00f6\\u00dfe"\n}\n'
