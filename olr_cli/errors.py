"""Errors that users can fix, and their wording."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

_LONGEST = 3000
"""Most characters of a message. Some messages list all choices, but none may quote a whole file."""

_LONGEST_VALUE = 60
"""Most characters of a value or key in a message."""


class UserError(Exception):
    """A mistake that the user can fix: the problem, its remedy, and where to apply it.

    The command line prints ``place: problem; remedy`` without a traceback and exits with status 2. Line breaks and
    other control characters are escaped, so that the message stays on one line.

    Attributes:
        problem: what is wrong, and with which thing.
        remedy: an instruction to the user ("choose another name").
        place: where to apply the remedy: a recipe's key, a file, or a Python argument. The command line prints the
            argument ``run_dir`` as its option, ``--run-dir``. Empty if the problem already names the place.
    """

    def __init__(self, problem: str, remedy: str, place: str = "") -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy
        self.place = place

    @classmethod
    def of(cls, sentence: str, *, remedy: str, place: str = "") -> Self:
        """Make an error from a sentence ``problem; remedy``, which is split at its last semicolon.

        If the sentence has no semicolon, all of it is the problem, and the argument `remedy` is the remedy. Otherwise
        this argument is ignored.
        """
        problem, semicolon, own_remedy = sentence.rpartition("; ")
        return (
            cls(problem, own_remedy, place) if semicolon else cls(sentence, remedy, place)
        )

    def __str__(self) -> str:
        sentence = f"{self.problem}; {self.remedy}"
        # Control characters in file names or data could otherwise write to other lines of the terminal.
        line = printable(f"{self.place}: {sentence}" if self.place else sentence, keep="")
        # The middle of a long message is its least useful part: it begins with the problem and ends with the remedy.
        return (
            line
            if len(line) <= _LONGEST
            else f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 2 :]}"
        )


@contextmanager
def at(place: str) -> Iterator[None]:
    """Set the place of a UserError that the block raises, unless the error has a place already.

    The place is where to apply the error's remedy, such as a recipe's key or an argument.
    """
    try:
        yield
    except UserError as error:
        error.place = error.place or place
        raise


def printable(text: str, keep: str = "\n\t\N{NO-BREAK SPACE}") -> str:
    """Return a text in which control characters, except those in `keep`, are escaped as in a Python string.

    This protects the terminal. Names of files and data may contain any characters, even some that would move its
    cursor.
    """
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode()
        for c in text
    )


_STYLES = {
    "Error": "bold red", "Warning": "yellow", "Note": "cyan", "Stopped": "yellow", "Finished": "bold green",
    "Next": "bold",
}  # fmt: skip
"""First word of a printed sentence -> its style in a terminal, in rich's notation."""


def style_of(sentence: str) -> tuple[int, str]:
    """Return how many characters to style at the start of a printed sentence, and their style in rich's notation.

    Only a first word such as `Error` or `Warning` is styled. For any other sentence, the result is ``(0, "")``.
    """
    word = next((word for word in _STYLES if sentence.startswith(word)), "")
    return len(word), _STYLES.get(word, "")


class NotHere(UserError):
    """Error for something missing on this machine that another machine may have, such as a file, a package or GPUs."""


class NoRows(UserError):
    """Error for a table without rows, where at least one is needed."""


@contextmanager
def noting(missing: list[str] | None) -> Iterator[None]:
    """Catch a `NotHere` that the block raises, and append its message to the list `missing`.

    So a dry run goes on, and can say at its end what this machine lacks. If `missing` is None, the error is not caught.
    """
    try:
        yield
    except NotHere as error:
        if missing is None:
            raise
        missing.append(str(error))


def _kind(path: Path | str) -> str:
    """Say in words what is at a path: a folder, a file, something else, or a link that leads nowhere."""
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
    """Build the error for a path that does not exist, or that is of the wrong kind, such as a folder instead of a file.

    For a path that does not exist, the error suggests a similar name if there is one: a name in `known`, else a name in
    the path's folder.
    """
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
    """Build the error for an output path that already exists.

    Args:
        path: the path.
        detail: text to append to "<path> exists already", such as ", with other content".
        place: where the user named the path, such as an argument.
    """
    return UserError(f"{path} exists already{detail}", "choose another name", place)


def no_rows(path: Path | str, item: str) -> NoRows:
    """Build the error for a table without rows; `item` is the word for what a row holds, such as ``prompt``."""
    return NoRows(f"{path} has no rows", f"name a file with at least one {item}")


def unknown(place: str, value: str, known: Iterable[str]) -> UserError:
    """Build the error for a `value` that is not among the known names.

    The error lists the known names and suggests the closest. `place` is where the user gave the value, such as an
    argument.
    """
    names = list(known)
    return UserError(
        f"there is no '{value}'{did_you_mean(value, names)}",
        f"known: {', '.join(names)}",
        place,
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` with the known name closest to `name`; empty if none is close."""
    close = closest(name, known)
    return f" (did you mean '{close}'?)" if close else ""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name closest to `name`, or None if none is close.

    A nearly equal name comes first, then the shortest name that begins with `name`, then a name that is only similar.
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.85)
    # `warmup` is an abbreviation of `warmup_epochs`, although the two differ too much for difflib's first cutoff.
    close += sorted(
        (longer for longer in names if name and longer.startswith(name)), key=len
    )
    close += difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return close[0] if close else None


def shown(value: object) -> str:
    """Return a value as short text for a message; None, True and False are written as in YAML."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return shortened(repr(value))


def shortened(text: str) -> str:
    """Cut a text longer than `_LONGEST_VALUE` characters to that length, with ``...`` at its end."""
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, then the error that caused it, then the cause of that error, and so on.

    The chain ends where a traceback would end it: before a cause hidden by ``raise … from None``.
    """
    while error is not None:
        yield error
        # `raise … from None` hides the context in tracebacks, so skip it here too.
        error = error.__cause__ or (
            None if error.__suppress_context__ else error.__context__
        )


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error for use inside a sentence: shortened, without its full stop.

    If the error has no message, the result is the name of its type.
    """
    return str(error).partition("\n")[0].rstrip(".")[:160] or type(error).__name__
