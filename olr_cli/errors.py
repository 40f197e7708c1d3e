"""What a user can mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_LONGEST = 3000
"""Characters of a message: some list what there is to choose from, but none quotes a whole file."""

_LONGEST_VALUE = 60
"""Characters of a value or key that a message quotes."""


class UserError(Exception):
    """A mistake in what the user asked for, told in one sentence with place and remedy.

    The command line prints the message without a traceback and exits with status 2. What is in it of files and their
    content stays on one line, and steers no terminal.
    """

    def __init__(self, message: str = "") -> None:
        line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
        super().__init__(
            line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 2 :]}"
        )


class NotHere(UserError):
    """Something that this machine lacks and another one may have: a data file, a package, GPUs, a network."""


@contextmanager
def noting(lacking: list[str] | None) -> Iterator[None]:
    """Note what the block finds missing on this machine instead of raising it; with None it is raised.

    A dry run notes it and shows the rest.
    """
    try:
        yield
    except NotHere as error:
        if lacking is None:
            raise
        lacking.append(str(error))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A trailing `` (did you mean 'x'?)`` for the known name closest to `name`, or an empty string.

    First comes one that is nearly the same, then one that `name` is the beginning of, then one that is alike.
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.85)
    close += sorted((longer for longer in names if name and longer.startswith(name)), key=len)
    close += difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f" (did you mean '{close[0]}'?)" if close else ""


def shown(value: object) -> str:
    """A value for a message, as YAML writes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return shortened(repr(value))


def shortened(text: str) -> str:
    """At most `_LONGEST_VALUE` characters of a text."""
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def first_line(error: BaseException) -> str:
    """What another library says went wrong, as part of a sentence: its first line, without the stop."""
    return str(error).partition("\n")[0].rstrip(".")[:160] or type(error).__name__
