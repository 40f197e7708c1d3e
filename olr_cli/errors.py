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

    The command line prints ``place: problem; remedy`` without a traceback and exits with status 2. Text from files
    stays on one line, and control characters in it are escaped.

    Attributes:
        problem: what is wrong, and with which thing.
        remedy: an instruction to the user ("choose another name").
        place: where to apply the remedy: a recipe's key, a file, or a Python argument. The command line prints an
            argument as its option (``run_dir``; ``template KEY``). Empty if the problem already names the place.
    """

    def __init__(self, problem: str, remedy: str, place: str = "") -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy
        self.place = place

    @classmethod
    def of(cls, sentence: str, *, remedy: str, place: str = "") -> Self:
        """Make an error from a sentence; the text after its last semicolon is the remedy, else `remedy` is."""
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
    """Set the place of errors raised in the block, unless they have one already."""
    try:
        yield
    except UserError as error:
        error.place = error.place or place
        raise


def printable(text: str, keep: str = "\n\t\N{NO-BREAK SPACE}") -> str:
    """Return a text with control characters escaped, except those in `keep`: file names and data may contain any."""
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
    """Return how many letters at the beginning of a printed sentence are styled, and their style in rich's notation."""
    word = next((word for word in _STYLES if sentence.startswith(word)), "")
    return len(word), _STYLES.get(word, "")


class NotHere(UserError):
    """Something missing on this machine that another machine may have: a data file, a package, GPUs, a network."""


class NoRows(UserError):
    """A table without rows."""


@contextmanager
def noting(missing: list[str] | None) -> Iterator[None]:
    """Append what the block finds missing on this machine to a list, for a dry run; raise if the list is None."""
    try:
        yield
    except NotHere as error:
        if missing is None:
            raise
        missing.append(str(error))


def _kind(path: Path | str) -> str:
    """Say what an existing path is: a folder, a file, or something else."""
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
    """Build the error for a missing path; it suggests a similar name from `known` or from the path's folder."""
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
    """Build the error for an output path that already exists."""
    return UserError(f"{path} exists already{detail}", "choose another name", place)


def no_rows(path: Path | str, item: str) -> NoRows:
    """Build the error for a table without rows where at least one `item` is needed."""
    return NoRows(f"{path} has no rows", f"name a file with at least one {item}")


def unknown(place: str, value: str, known: Iterable[str]) -> UserError:
    """Build the error for a name that is not among the known ones."""
    names = list(known)
    return UserError(
        f"there is no '{value}'{did_you_mean(value, names)}",
        f"known: {', '.join(names)}",
        place,
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the known name closest to `name`, or an empty string."""
    close = closest(name, known)
    return f" (did you mean '{close}'?)" if close else ""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the closest known name: nearly equal to `name`, else beginning with it, else similar; None if none is."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.85)
    # `warmup` is an abbreviation of `warmup_epochs`, although the two differ too much for difflib's first cutoff.
    close += sorted(
        (longer for longer in names if name and longer.startswith(name)), key=len
    )
    close += difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return close[0] if close else None


def shown(value: object) -> str:
    """Return a value as YAML writes it, for a message."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return shortened(repr(value))


def shortened(text: str) -> str:
    """Cut a text to at most `_LONGEST_VALUE` characters."""
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and the errors that led to it, as its traceback shows them."""
    while error is not None:
        yield error
        # `raise … from None` hides the context in tracebacks, so skip it here too.
        error = error.__cause__ or (
            None if error.__suppress_context__ else error.__context__
        )


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error without its full stop, to be used inside a sentence."""
    return str(error).partition("\n")[0].rstrip(".")[:160] or type(error).__name__
