"""How commands end.

0 done, 1 a bug (with its traceback), 2 the user's to mend, 130 Ctrl-C, 143 SIGTERM, 141 where nobody reads the output
any more (`olr replay … | head`).
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

import typer

from olr_cli.errors import UserError
from olr_cli.files import told_of_output
from olr_cli.runs.interrupts import exit_status, heed_signals

P = ParamSpec("P")
R = TypeVar("R")


def ends_well(command: Callable[P, R]) -> Callable[P, R]:
    """Turn a `UserError` into its sentence and status 2; bugs keep their traceback."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except UserError as error:
            print(f"Error: {error}", file=sys.stderr)
            raise typer.Exit(2) from None
        except BaseException as error:
            sentence = _told_of_shard(error, kwargs.values())
            if sentence is None:
                raise
            print(f"Error: {sentence}", file=sys.stderr)
            raise typer.Exit(2) from None

    return wrapped


def _told_of_shard(error: BaseException, values: Iterable[object]) -> str | None:
    """A sentence on a shard that went, or is damaged; `values` are the command's, and name the runs."""
    if "olr_cli.runs.store" not in sys.modules:
        return None
    from olr_cli.runs.damage import told_of_damage
    from olr_cli.runs.store import told_of_removed_shard

    if isinstance(error, FileNotFoundError):
        return told_of_removed_shard(error)
    words = [word for value in values for word in (value if isinstance(value, list) else [value])]
    places = [Path(word) for word in words if isinstance(word, str | Path)]
    return told_of_damage(error, [place for place in places if place.is_dir()])


@contextmanager
def program() -> Iterator[None]:
    """Around the whole program: signals, and a reader that has gone, where no command sees to them."""
    heed_signals()
    try:
        try:
            yield
        finally:
            print(end="", flush=True)  # not at the interpreter's end, which can only complain
    except (SystemExit, KeyboardInterrupt, OSError) as end:
        cause = _not_told(end)
        if cause is None:
            raise
        if isinstance(cause, BrokenPipeError):
            _drop_output(1, 2)
        elif isinstance(cause, KeyboardInterrupt):
            print("Stopped.", file=sys.stderr)
        else:
            _drop_output(1)
            print(f"Error: {told_of_output(cause)}", file=sys.stderr)
            sys.exit(2)
        sys.exit(exit_status(cause))


def _not_told(end: BaseException) -> KeyboardInterrupt | OSError | None:
    """What ended the program before anybody told the user; rich and typer make exits with other statuses of it."""
    link: BaseException | None = end
    while link is not None:
        if isinstance(link, KeyboardInterrupt | BrokenPipeError):
            return link
        if isinstance(link, OSError) and told_of_output(link) is not None:
            return link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return None


def _drop_output(*streams: int) -> None:
    """Drop what these streams could not take, or Python complains of it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream)
