"""The one place that prints: what a command answers, and on standard error how far it is meanwhile."""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
import time
from dataclasses import replace

import typer

from olr_cli.errors import UserError, printable, style_of
from olr_cli.tables import Answer, Line, Table, print_table
from olr_cli.tables.answer import SCHEMA

_WIDEST = 120
"""Columns at which lines are wrapped in a wider terminal."""
_FIRST = {True: 2.0, False: 30.0}
"""Seconds of waiting that need no explanation: in a terminal, and elsewhere, where a line stays."""
_EVERY = {True: 0.5, False: 30.0}
"""Seconds between two lines: in a terminal, where one replaces the other, and elsewhere."""


def say(sentence: str, *, err: bool = True) -> None:
    """Print a sentence: in a terminal wrapped at words, its first word in colour if it says what kind it is of."""
    stream = sys.stderr if err else sys.stdout
    if stream is None or not stream.isatty():
        print(sentence, file=stream, flush=True)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=err)
    text = Text(
        textwrap.fill(
            sentence, console.width, break_long_words=False, break_on_hyphens=False
        )
    )
    length, style = style_of(sentence)
    text.stylize(style, 0, length)
    console.print(text, soft_wrap=True)


def show(answer: Answer, shape: str = "terminal") -> None:
    """Print an answer in a shape.

    ``terminal``; ``markdown``, ``latex`` or ``csv``: standard output has the tables and nothing else; ``json``: it has
    one object with everything; ``event``: the object is the last of a run's JSON lines.
    """
    if shape == "json":
        typer.echo(_json(answer))
        return
    if shape == "event":
        typer.echo(json.dumps({"event": "finished", **answer.plain()}))
        return
    is_terminal = shape == "terminal"
    for part in answer.parts if is_terminal else answer.tables:
        _print_part(part, shape, answer.indent)
    for note in answer.notes:
        if not (is_terminal and _is_footnote(note, answer)):
            say(f"Note: {printable(note)}")
    for file in answer.files:
        line = Line("Wrote" if file.is_new else "Unchanged", f"{file.path}{file.text}")
        _print_line(line, answer.indent, err=not is_terminal)
    if is_terminal:
        _print_next(answer)


def show_error(error: UserError) -> None:
    """Print the fields of an error for a program that reads standard output: one object, on one line."""
    fields = {"problem": error.problem, "remedy": error.remedy, "place": error.place}
    typer.echo(json.dumps({"schema": SCHEMA, "error": fields}))


def _json(answer: Answer) -> str:
    """Return one object with everything, in characters that standard output can take."""
    text = json.dumps(answer.plain(), indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # of the terminal; and the name of a file need not be text
        return json.dumps(answer.plain(), indent=2)
    return text


def _print_part(part: Table | Line | str, shape: str, indent: int) -> None:
    if isinstance(part, Table):
        print_table(part, shape)
    elif isinstance(part, Line):
        _print_line(part, indent)
    elif part.startswith("Finished "):
        say(printable(part), err=False)
    else:
        typer.echo(printable(part))


def _is_footnote(note: str, answer: Answer) -> bool:
    """Whether a note stands below a table already."""
    return any(note in table.footnotes for table in answer.tables)


def _print_next(answer: Answer) -> None:
    """Print the commands that may come next."""
    for place, (command, purpose) in enumerate(answer.next.items()):
        head = ("  or" if place else "Next") + ("" if answer.indent else ":")
        text = f"{command}   ({purpose})" if purpose else command
        _print_line(Line(head, text), answer.indent)


def show_dry_run(answer: Answer, *, as_json: bool) -> None:
    """Print a dry run (`olr_cli.engines.rehearse`) and the command that starts the run."""
    missing = answer.result["missing"]
    words = [word for word in sys.argv[1:] if word not in ("--dry-run", "--json")]
    following = {} if missing else {shlex.join(["olr", *words]): "starts the run"}
    show(replace(answer, next=following), "json" if as_json else "terminal")
    if missing:
        things = "one thing is" if len(missing) == 1 else f"{len(missing)} things are"
        # Not raised: standard output has its one object already.
        say(
            f"Error: this run cannot start here: {things} missing; provide what is listed above"
        )
        raise typer.Exit(2)


def _print_line(line: Line, indent: int, *, err: bool = False) -> None:
    """Text, not markup: prompts and labels are data."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=err)
    head = (
        ""
        if line.head is None
        else line.head.ljust(max(indent, len(line.head) + bool(line.head)))
    )
    text = printable(line.text)
    if line.is_wrapped:
        width = max(min(console.width, _WIDEST) - len(head), 40)
        text = textwrap.fill(text, width, break_on_hyphens=False).replace(
            "\n", "\n" + " " * len(head)
        )
    console.print(Text.assemble((head, "bold"), (text, line.style)), soft_wrap=True)


class Waiting:
    """Says how far something is, once that takes long."""

    def __init__(self) -> None:
        self._is_live = sys.stderr is not None and sys.stderr.isatty()
        self._due = time.monotonic() + _FIRST[self._is_live]
        self._is_shown = False

    def done(self) -> None:
        """Clear the line in a terminal."""
        if self._is_shown and self._is_live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._is_shown = False

    def say(self, sentence: str) -> None:
        """How far it is, without a full stop."""
        now = time.monotonic()
        if now < self._due or sys.stderr is None:
            return
        self._due, self._is_shown = now + _EVERY[self._is_live], True
        sys.stderr.write(f"\r\x1b[K{sentence} …" if self._is_live else f"{sentence} …\n")
        sys.stderr.flush()
