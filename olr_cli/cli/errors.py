"""The end of commands: their exit status and the sentence of an error.

The exit status is 0 for success, 1 for a bug (with its traceback), and 2 for an error that the user can fix. It is 130
after Ctrl-C, 143 after SIGTERM, and 129 after a closed terminal. It is 141 if the reader of the output is gone, as in
`olr replay … | head`.
"""

from __future__ import annotations

import errno
import functools
import inspect
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import typer

from olr_cli.cli.printing import say, show_error
from olr_cli.errors import UserError, causes, first_line, printable, shortened
from olr_cli.files import is_out_of_memory, system_problem
from olr_cli.packages import missing_package, not_installed, unfit_torchvision
from olr_cli.runs.interrupts import Interrupted, drop_output, exit_status, heed_signals

if TYPE_CHECKING:
    from olr_cli.runs.progress import Progress

P = ParamSpec("P")
R = TypeVar("R")

_PATH_ERRORS = {
    errno.EACCES,
    errno.EPERM,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
}
"""Errors of the system that a user can fix by another path or other permissions."""


def ends_well(command: Callable[P, R]) -> Callable[P, R]:
    """Wrap a command: an error that the user can fix is printed as one sentence, and the exit status is 2.

    With ``--json``, the error is also printed to standard output, as one object on one line. Bugs keep their traceback.
    """

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            # First, since a name that is not UTF-8 would fail only when a finished run is written.
            _require_text(kwargs.values())
            return command(*args, **kwargs)
        except BaseException as bare_error:
            error = _user_error(bare_error, command, kwargs.values())
            if error is None:
                raise
            error = _with_options(error, command)
            if kwargs.get("json"):
                show_error(error)
            say(f"Error: {error}")
            raise typer.Exit(2) from None

    return wrapped


def _user_error(
    error: BaseException, command: Callable[P, R], values: Iterable[object]
) -> UserError | None:
    """Turn what a command raised into an error that the user can fix; return None for a bug or a signal.

    A `UserError` is returned as it is.

    Args:
        error: what the command raised.
        command: the command. The result names it if an optional package is missing.
        values: the command's arguments. Folders among them are searched for damaged runs, which may explain the error.
    """
    # A missing optional package is for the user to install; any other failed import is a bug.
    if isinstance(error, ModuleNotFoundError):
        package = missing_package(error)
        if package is not None:
            return not_installed(package, f"olr {command.__name__.replace('_', '-')}")
        if unfit := unfit_torchvision(error):
            return UserError.of(unfit, remedy="install versions that fit")
    if isinstance(error, UserError):
        return error
    sentence = _system_problem(error) or _shard_problem(error, values)
    if sentence is None:
        return None
    return UserError.of(sentence, remedy="check its name and permissions")


def _with_options(error: UserError, command: Callable[P, R]) -> UserError:
    """Return a copy of an error that names the command's options in place of Python arguments and recipe keys.

    The argument ``run_dir`` becomes ``--run-dir``. The recipe key `data.columns` becomes `--columns`, but stays if the
    command has `--set`. An example such as "as in data.columns=…" becomes words that can be typed: "as in --columns …",
    or "as in --set data.columns=…" if the command has `--set`.
    """
    # Parameters such as `set_` and `format_` end in an underscore, since Python has these names itself.
    arguments = {name.removesuffix("_") for name in inspect.signature(command).parameters}
    key, space, rest = error.place.partition(" ")
    name, giving = key, f"--set {key}="
    if "set" not in arguments:
        name, giving = key.rpartition(".")[2].replace("system_prompt", "system"), f"{key}="
    place = error.place
    if name in arguments:
        option = f"--{name.replace('_', '-')}"
        place, giving = f"{option}{space}{rest}", f"{option} "
    example, as_typed = f" as in {key}=", f" as in {giving}"
    return UserError(
        error.problem.replace(example, as_typed),
        error.remedy.replace(example, as_typed),
        place,
    )


def _require_text(values: Iterable[object]) -> None:
    """Raise `UserError` if one of a command's arguments is not UTF-8, because Parquet and JSON cannot store it."""
    for word in _words(values):
        # Python keeps bytes that are not UTF-8 as lone surrogates, which `errors="replace"` turns into `?`.
        if word != word.encode(errors="replace").decode():
            raise UserError(f"the name {word} is not UTF-8", "rename it")


def _words(values: Iterable[object]) -> list[str]:
    """Return the texts and paths among a command's arguments as strings, also those inside lists."""
    words = [
        word for value in values for word in (value if isinstance(value, list) else [value])
    ]
    return [str(word) for word in words if isinstance(word, str | Path)]


def _shard_problem(error: BaseException, values: Iterable[object]) -> str | None:
    """Return a sentence that explains an error caused by a removed or damaged shard; None for any other error.

    A shard is a Parquet file of a run.

    Args:
        error: any error.
        values: the command's arguments. Folders among them are searched for damaged shards.
    """
    # Do not import the module for this: if nothing has imported it, no shard was read.
    if "olr_cli.runs.shards" not in sys.modules:
        return None
    from olr_cli.runs.shards import explain_damage, explain_removed_shard

    if isinstance(error, FileNotFoundError):
        return explain_removed_shard(error)
    places = map(Path, _words(values))
    return explain_damage(error, [place for place in places if os.path.isdir(place)])


def _system_problem(error: BaseException) -> str | None:
    """Return a sentence that explains an error of memory, a path or the operating system; None for any other error.

    Examples are a GPU out of memory, a folder where a file is needed, and a full disk.
    """
    if isinstance(error, OSError) and error.filename and error.errno in _PATH_ERRORS:
        return f"{shortened(str(error.filename))}: {error.strerror}"
    if isinstance(error, OSError) and (problem := system_problem(error)):
        return f"{error.filename or first_line(error)}: {problem}"
    if is_out_of_memory(error):
        return (
            f"there is not enough memory ({first_line(error)}); take smaller batches (of a training run:"
            " engine.micro_batch_tokens, engine.max_batch_tokens) or a smaller model"
        )
    return None


@contextmanager
def shown_until_stopped(
    progress: Progress,
    path: Path,
    words: Sequence[str],
    *,
    kept_at_once: str = "checkpoint",
) -> Iterator[None]:
    """Run the block, a training or sampling run, and then end its progress display.

    If the run is stopped, print how much of it is stored and the command that continues it, and exit. A first Ctrl-C
    stops it after the present step is stored. A second Ctrl-C stops it at once.

    Args:
        progress: the display.
        path: the run directory.
        words: the words of the command that continues the run.
        kept_at_once: what is stored after a second Ctrl-C: everything up to the last ``checkpoint`` or ``complete
            step``. The printed sentence contains this text.

    Raises:
        Exit: the run was stopped (see `olr_cli.runs.interrupts.exit_status`), or the engine's own process failed.
    """
    from olr_cli.engines.run import EngineFailed

    try:
        yield
    except (Interrupted, KeyboardInterrupt, BrokenPipeError) as stop:
        # First, or the bar would overwrite the sentence.
        progress.stop()
        # The first Ctrl-C waits for the end of the step (`Interrupted`); the second one does not.
        kept = "complete step" if isinstance(stop, Interrupted) else kept_at_once
        stored = f"Everything up to the last {kept} is in {path}; continue with {shlex.join(words)}"
        if not (path / "manifest.json").exists():
            stored = "Nothing is written yet; the same command starts anew."
        say(f"Stopped. {printable(stored)}")
        raise typer.Exit(exit_status(stop)) from None
    except EngineFailed as failure:
        say(f"Error: {failure}")
        raise typer.Exit(1) from None
    finally:
        progress.stop()


@contextmanager
def program() -> Iterator[None]:
    """Run the whole program in the block; set the exit status after a signal or a failed write to standard output.

    A signal or a full disk is reported in a sentence. If the reader of the output has gone, as in ``olr … | head``,
    nothing is reported. The status is 2 for a full disk; for the others see `olr_cli.runs.interrupts.exit_status`.
    """
    heed_signals()
    try:
        try:
            yield
        finally:
            # Flush here: at the interpreter's own end, an error would become "Exception ignored" and status 120.
            print(end="", flush=True)
    except (SystemExit, KeyboardInterrupt, OSError) as end:
        # rich and typer turn an interrupt or a broken pipe into exits of their own, so look for the first cause.
        stops = (
            cause
            for cause in causes(end)
            if isinstance(cause, KeyboardInterrupt | BrokenPipeError)
        )
        stop = next(stops, None)
        if isinstance(stop, KeyboardInterrupt):
            print("Stopped.", file=sys.stderr)
        elif stop is not None:
            drop_output(1, 2)
        elif isinstance(end, OSError) and (problem := system_problem(end)):
            drop_output(1)
            # A command that failed for this reason has already printed its error.
            if not getattr(end.__context__, "code", 0):
                print(
                    f"Error: standard output could not be written: {problem}",
                    file=sys.stderr,
                )
            sys.exit(2)
        else:
            raise
        sys.exit(exit_status(stop))
