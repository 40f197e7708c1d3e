"""The only module that prints: the output of a command, and its progress on standard error."""

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
"""Largest width of wrapped lines, also in a wider terminal."""
_FIRST_AFTER = {True: 2.0, False: 30.0}
"""Whether standard error is a terminal -> seconds before the first line of progress."""
_EVERY = {True: 0.5, False: 30.0}
"""Whether standard error is a terminal -> seconds between two lines. In a terminal, each replaces the last."""


def say(sentence: str, *, err: bool = True) -> None:
    """Print a sentence to standard error, or to standard output if `err` is False.

    In a terminal, the sentence is wrapped at words, and a first word such as "Error:" is coloured. A pipe or file gets
    the sentence on one line.
    """
    stream = sys.stderr if err else sys.stdout
    # Logs and pipes get the sentence on one line. The stream is None in a program without a console (pythonw).
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
    """Print the output of a command.

    Args:
        answer: the output.
        shape: how it is printed.
            ``terminal``: everything as text.
            ``markdown``, ``latex`` and ``csv``: only the tables, to standard output.
            ``json``: everything as one JSON object.
            ``event``: everything as the event ``finished``, a JSON object on one line. It is for commands that have
            printed such a line for each event of a run.
    """
    if shape == "json":
        typer.echo(_json(answer))
        return
    # `event` first in the object, like in the other lines of a run (`olr_cli.runs.progress`).
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
    """Print an error to standard output, as one JSON object on one line, for the program that reads this output."""
    fields = {"problem": error.problem, "remedy": error.remedy, "place": error.place}
    typer.echo(json.dumps({"schema": SCHEMA, "error": fields}))


def _json(answer: Answer) -> str:
    """Return the output as one JSON object; characters that standard output cannot encode are escaped."""
    text = json.dumps(answer.plain(), indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    # The terminal may lack a character, and the name of a file may have bytes that are no text: escape both.
    except UnicodeEncodeError:
        return json.dumps(answer.plain(), indent=2)
    return text


def _print_part(part: Table | Line | str, shape: str, indent: int) -> None:
    """Print one part of an answer: a table, a line with a heading, or plain text.

    Args:
        part: what to print.
        shape: how a table is printed: ``terminal``, ``markdown``, ``latex`` or ``csv``.
        indent: the width of a line's heading, in characters.
    """
    if isinstance(part, Table):
        print_table(part, shape)
    elif isinstance(part, Line):
        _print_line(part, indent)
    # The line that ends a run is wrapped and coloured; other texts, such as recipes, must stay as they are.
    elif part.startswith("Finished "):
        say(printable(part), err=False)
    else:
        typer.echo(printable(part))


def _is_footnote(note: str, answer: Answer) -> bool:
    """Return whether a table of the answer has this note among its footnotes.

    Such a note is printed with the table, and must not be printed a second time.
    """
    return any(note in table.footnotes for table in answer.tables)


def _print_next(answer: Answer) -> None:
    """Print the commands that an answer proposes to run next, with their purposes."""
    for place, (command, purpose) in enumerate(answer.next.items()):
        head = ("  or" if place else "Next") + ("" if answer.indent else ":")
        text = f"{command}   ({purpose})" if purpose else command
        _print_line(Line(head, text), answer.indent)


def show_dry_run(answer: Answer, *, as_json: bool) -> None:
    """Print what a run would do (`olr_cli.engines.rehearse`) and the command that starts it.

    If something that the run needs is missing, this prints an error instead of the command, and exits with status 2.
    """
    missing = answer.result["missing"]
    words = [word for word in sys.argv[1:] if word not in ("--dry-run", "--json")]
    # A run that cannot start has no command that starts it.
    following = {} if missing else {shlex.join(["olr", *words]): "starts the run"}
    show(replace(answer, next=following), "json" if as_json else "terminal")
    if missing:
        things = "one thing is" if len(missing) == 1 else f"{len(missing)} things are"
        # Do not raise a `UserError`: it would print a second object to standard output.
        say(
            f"Error: this run cannot start here: {things} missing; provide what is listed above"
        )
        raise typer.Exit(2)


def _print_line(line: Line, indent: int, *, err: bool = False) -> None:
    """Print a line with its heading in bold, to standard error if `err` is set, else to standard output.

    The heading is padded to `indent` columns. Text is never read as rich's markup, because prompts and labels are data:
    `[1, 2]` has to stay `[1, 2]`.
    """
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
    """Shows the user on standard error how far a slow operation is, by printing a sentence now and then.

    In a terminal, each sentence replaces the sentence before it.
    """

    def __init__(self) -> None:
        self._is_live = sys.stderr is not None and sys.stderr.isatty()
        self._next_line = time.monotonic() + _FIRST_AFTER[self._is_live]
        self._is_shown = False

    def done(self) -> None:
        """Clear the last sentence from the terminal; call this when the operation is done.

        If standard error is not a terminal, nothing is cleared.
        """
        if self._is_shown and self._is_live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._is_shown = False

    def say(self, sentence: str) -> None:
        """Print a sentence about the progress, followed by ``…``; `sentence` must not end in a full stop.

        If the last sentence was printed only a short while ago, nothing is printed.
        """
        now = time.monotonic()
        if now < self._next_line or sys.stderr is None:
            return
        self._next_line, self._is_shown = now + _EVERY[self._is_live], True
        # `\r\x1b[K` clears the line in a terminal, so the new sentence replaces the last one.
        sys.stderr.write(f"\r\x1b[K{sentence} …" if self._is_live else f"{sentence} …\n")
        sys.stderr.flush()
