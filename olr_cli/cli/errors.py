"""How commands end.

0 done, 1 a bug (with its traceback), 2 the user's to mend, 130 Ctrl-C, 143 SIGTERM, 129 a closed terminal, 141 where
nobody reads the output any more (`olr replay … | head`).
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

_OF_A_PATH = {
    errno.EACCES,
    errno.EPERM,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
}


def ends_well(command: Callable[P, R]) -> Callable[P, R]:
    """Turn a `UserError` into its sentence and status 2; bugs keep their traceback.

    With ``--json``, standard output has the error too: one object, on one line.
    """

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            _require_text(kwargs.values())
            return command(*args, **kwargs)
        except BaseException as bare_error:
            error = _user_error(bare_error, command, kwargs.values())
            if error is None:
                raise
            error = _spelled(error, command)
            if kwargs.get("json"):
                show_error(error)
            say(f"Error: {error}")
            raise typer.Exit(2) from None

    return wrapped


def _user_error(
    error: BaseException, command: Callable[P, R], values: Iterable[object]
) -> UserError | None:
    """Return the error as one that the user can fix; None for a bug, or a signal."""
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


def _spelled(error: UserError, command: Callable[P, R]) -> UserError:
    """Return an error whose place, if it is an argument of the command, is spelled as its option.

    So is a recipe's key, as `data.columns`, where the command has an option for it and none for keys. An example of
    its value ("as in data.columns=…") begins with what gives it to the command, so that it can be pasted.
    """
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
    """Refuse arguments that are not UTF-8: Parquet and JSON cannot hold them."""
    for word in _words(values):
        if word != word.encode(errors="replace").decode():
            raise UserError(f"the name {word} is not UTF-8", "rename it")


def _words(values: Iterable[object]) -> list[str]:
    """The texts and paths among a command's arguments."""
    words = [
        word for value in values for word in (value if isinstance(value, list) else [value])
    ]
    return [str(word) for word in words if isinstance(word, str | Path)]


def _shard_problem(error: BaseException, values: Iterable[object]) -> str | None:
    """A sentence if the error is a shard that was removed or is damaged; the arguments of the command name the runs."""
    if "olr_cli.runs.shards" not in sys.modules:
        return None
    from olr_cli.runs.shards import explain_damage, explain_removed_shard

    if isinstance(error, FileNotFoundError):
        return explain_removed_shard(error)
    places = map(Path, _words(values))
    return explain_damage(error, [place for place in places if os.path.isdir(place)])


def _system_problem(error: BaseException) -> str | None:
    """A sentence if memory ran out, a path may not be read or is of another kind, or the system itself failed."""
    if isinstance(error, OSError) and error.filename and error.errno in _OF_A_PATH:
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
    """End the display with the block; if the run is stopped, say where everything is and how it is continued.

    `words` is the command that continues the run. A run that had to stop in the middle of a step keeps everything up to
    the last `kept_at_once`.

    Raises:
        Exit: the run was stopped (see `olr_cli.runs.interrupts.exit_status`), or the engine's own process failed.
    """
    from olr_cli.engines.run import EngineFailed

    try:
        yield
    except (Interrupted, KeyboardInterrupt, BrokenPipeError) as stop:
        progress.stop()  # before the sentence, which would end up in the progress bar
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
    """Around the whole program: what no command handles, which is signals, and output that cannot be written."""
    heed_signals()
    try:
        try:
            yield
        finally:
            # Not at the interpreter's end, which can only complain
            print(end="", flush=True)
    except (SystemExit, KeyboardInterrupt, OSError) as end:
        # rich and typer turn what stopped the program into exits with other statuses
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
            if not getattr(end.__context__, "code", 0):  # no command has said it
                print(
                    f"Error: standard output could not be written: {problem}",
                    file=sys.stderr,
                )
            sys.exit(2)
        else:
            raise
        sys.exit(exit_status(stop))
