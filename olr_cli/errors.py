"""Errors that users can fix, and their wording."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

_LONGEST = 3000
"""Characters of a message: some list what there is to choose from, but none quotes a whole file."""

_LONGEST_VALUE = 60
"""Characters of a value or key that a message quotes."""


class UserError(Exception):
    """A mistake of the user: what is wrong, what to do about it, and where.

    The command line prints ``place: problem; remedy`` without a traceback and exits with status 2. Text from files
    stays on one line, and control characters in it are escaped.

    Attributes:
        problem: what is wrong, with the thing it is about.
        remedy: what the user can do, as an instruction ("choose another name").
        place: where it is done: a recipe's key, a file, or an argument under its name in Python, which the command
            line spells as its option (``run_dir``; ``template KEY``). Empty where the problem names it.
    """

    def __init__(self, problem: str, remedy: str, place: str = "") -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy
        self.place = place

    @classmethod
    def of(cls, sentence: str, *, remedy: str, place: str = "") -> Self:
        """Make an error of a sentence that may end in its remedy, after the last semicolon; if not, with `remedy`."""
        problem, semicolon, own_remedy = sentence.rpartition("; ")
        return (
            cls(problem, own_remedy, place) if semicolon else cls(sentence, remedy, place)
        )

    def __str__(self) -> str:
        sentence = f"{self.problem}; {self.remedy}"
        line = printable(f"{self.place}: {sentence}" if self.place else sentence, keep="")
        return (
            line
            if len(line) <= _LONGEST
            else f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 2 :]}"
        )


@contextmanager
def at(place: str) -> Iterator[None]:
    """Give the errors of the block that have no place yet this one."""
    try:
        yield
    except UserError as error:
        error.place = error.place or place
        raise


def printable(text: str, keep: str = "\n\t\N{NO-BREAK SPACE}") -> str:
    """Text in which control characters are escaped, but for those of `keep`: file names and data may hold any."""
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode()
        for c in text
    )


_STYLES = {
    "Error": "bold red", "Warning": "yellow", "Note": "cyan", "Stopped": "yellow", "Finished": "bold green",
    "Next": "bold",
}  # fmt: skip


def style_of(sentence: str) -> tuple[int, str]:
    """How many letters of a printed sentence a terminal shows in which style, as rich names it."""
    word = next((word for word in _STYLES if sentence.startswith(word)), "")
    return len(word), _STYLES.get(word, "")


class NotHere(UserError):
    """Something that this machine lacks and another one may have: a data file, a package, GPUs, a network."""


class NoRows(UserError):
    """A table without rows."""


@contextmanager
def noting(missing: list[str] | None) -> Iterator[None]:
    """Append what the block finds missing on this machine to a list, as a dry run does; with None it is raised."""
    try:
        yield
    except NotHere as error:
        if missing is None:
            raise
        missing.append(str(error))


def _kind(path: Path | str) -> str:
    """Name the kind of a path that is there."""
    if os.path.isdir(path):
        return "a folder"
    if os.path.isfile(path):
        return "a file"
    return (
        "neither a file nor a folder"
        if os.path.exists(path)
        else "a link that leads nowhere"
    )


def no_path(
    path: Path | str, remedy: str = "check the name", known: Iterable[str] = ()
) -> NotHere:
    """The error for a path where there is nothing; it suggests a name of `known`, or of a neighbour in its folder."""
    if os.path.lexists(path):
        return NotHere(f"{path} is {_kind(path)}, which cannot be used here", remedy)
    folder, name = Path(path).parent, Path(path).name
    neighbours: list[str] = []
    with suppress(OSError):
        neighbours = os.listdir(folder)
    close = closest(str(path), known) or closest(name, neighbours)
    hint = (
        f" (did you mean '{close if close in known else folder / close}'?)" if close else ""
    )
    if not hint and not os.path.isdir(folder):
        hint = f", nor does the folder {folder}"
    return NotHere(f"{path} does not exist{hint}", remedy)


def taken(path: Path, detail: str = "", place: str = "") -> UserError:
    """The error for an output path where something is already."""
    return UserError(f"{path} exists already{detail}", "choose another name", place)


def no_rows(path: Path | str, item: str) -> NoRows:
    """The error for a table without rows, where at least one `item` is needed."""
    return NoRows(f"{path} has no rows", f"name a file with at least one {item}")


def unknown(place: str, value: str, known: Iterable[str]) -> UserError:
    """The error for a name that is none of the known ones."""
    names = list(known)
    return UserError(
        f"there is no '{value}'{did_you_mean(value, names)}",
        f"known: {', '.join(names)}",
        place,
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A trailing `` (did you mean 'x'?)`` for the known name closest to `name`, or an empty string."""
    close = closest(name, known)
    return f" (did you mean '{close}'?)" if close else ""


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is nearly `name`, else one that `name` is the beginning of, else one that is alike."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.85)
    close += sorted(
        (longer for longer in names if name and longer.startswith(name)), key=len
    )
    close += difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return close[0] if close else None


def shown(value: object) -> str:
    """A value for a message, as YAML writes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return shortened(repr(value))


def shortened(text: str) -> str:
    """At most `_LONGEST_VALUE` characters of a text."""
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and the errors behind it that its traceback shows."""
    while error is not None:
        yield error
        error = error.__cause__ or (
            None if error.__suppress_context__ else error.__context__
        )


def first_line(error: BaseException) -> str:
    """The first line of another library's error, without the full stop, as part of a sentence."""
    return str(error).partition("\n")[0].rstrip(".")[:160] or type(error).__name__
