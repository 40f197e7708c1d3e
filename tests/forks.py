"""Processes for the price of a fork: a server imports torch and the rest once and forks for every process.

Each process is as good as one from the shell: `kill -9` is the system's, files and locks are real. Only the import is
saved. A test can plan a fault for a process of `olr`: just before file operation number N below a folder, it kills
itself or fills the disk.
"""

import contextlib
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PATIENCE = 300.0
"""Seconds after which a process counts as hanging."""

_SERVER = multiprocessing.get_context("forkserver")
_PRELOADED = [
    "pytest", "torch", "polars", "transformers.models.qwen3.modeling_qwen3", "transformers.models.auto.modeling_auto",
    "transformers.integrations.accelerate", "rich.progress", "olr_cli.engines.local.engine", "olr_cli.engines.sweep",
    "olr_cli.engines.backends.transformers_backend", "olr_cli.engines.rollouts", "olr_cli.evaluation.evaluate",
    "olr_cli.evaluation.results", "olr_cli.tables", "olr_cli.runs.summary", "olr_cli.cli",
]  # fmt: skip
_SERVER.set_forkserver_preload(_PRELOADED)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}


@dataclass(frozen=True)
class Plan:
    """A fault to cause just before a certain file operation of an `olr` command; or a request to log its operations."""

    folder: Path
    """Operations below it count."""

    number: int
    """Number of the operation, from 1, among those that count. 0: no fault, and all operations are written to `log`."""

    deed: str
    """The fault.

    ``kill``; ``fill`` with the bytes that stay free; ``limit`` with the largest size of a file; or ``move`` or
    ``remove`` of the folder.
    """

    log: Path
    """Receives a line per operation; for ``fill``, it is the file that fills the disk."""

    kind: str = ""
    """Kind of the operations that count, by default all.

    Threads may change the order of operations of different kinds.
    """


def preload(*modules: str) -> None:
    """Make the server from which processes are forked import further modules; call it before the first process."""
    _SERVER.set_forkserver_preload([*_PRELOADED, *modules])


def is_alive(process: int | str) -> bool:
    """Return whether the process with this id exists and is not a zombie."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    return False


def fork(function: Callable[..., object], *arguments: object) -> BaseProcess:
    """Start a process that calls a function, forked from a server that has imported torch and olr.

    The function must be one that a module defines at its top level.
    """
    process = _SERVER.Process(target=function, args=arguments, daemon=True)
    process.start()
    return process


def status(process: BaseProcess) -> int:
    """Wait for a process; return its exit status, or the negative number of the signal that killed it.

    Raises:
        TimeoutError: it has not ended within `PATIENCE` seconds, and was killed.
    """
    process.join(PATIENCE)
    if process.exitcode is None:
        process.kill()
        raise TimeoutError(f"process {process.pid} hangs")
    return process.exitcode


class Command:
    """An `olr` command in a process of its own, which starts at once.

    Args:
        folder: the working folder, which also receives the output: N.out and N.err for the Nth command.
        words: the command line after ``olr``.
        plan: a fault to cause, or a request to log file operations.
        is_read: whether its standard output is read. If not, it is a pipe whose reader is gone.
    """

    _count = 0

    def __init__(
        self, folder: Path, *words: object, plan: Plan | None = None, is_read: bool = True
    ) -> None:
        Command._count += 1
        self._out, self._err = (
            folder / f"{Command._count}.{kind}" for kind in ("out", "err")
        )
        self._process = fork(
            _be_olr, folder, [*map(str, words)], self._out, self._err, plan, is_read
        )
        self.pid = self._process.pid or 0

    def signal(self, number: int) -> None:
        """Send a signal, unless the command has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait for the command; return its exit status, or the negative number of the signal that killed it."""
        return status(self._process)

    @property
    def out(self) -> str:
        """Its standard output so far; empty if `is_read` was False."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """Its standard error so far."""
        return self._err.read_text()


def olr(
    folder: Path, *words: object, plan: Plan | None = None, is_read: bool = True
) -> tuple[int, Command]:
    """Run an `olr` command to its end; return its exit status, as of `Command.wait`, and the `Command`.

    The arguments are those of `Command`.
    """
    command = Command(folder, *words, plan=plan, is_read=is_read)
    return command.wait(), command


def kind_of_operation(line: str) -> str:
    """Return an operation, a line of a plan's log, with its numbers replaced by ``#``.

    All operations of one kind, such as writes of a step's table, have this text in common (`Plan.kind`).
    """
    return re.sub(r"\d+", "#", line)


def _be_olr(
    folder: Path, words: list[str], out: Path, err: Path, plan: Plan | None, is_read: bool
) -> None:
    """Run an `olr` command in this process, which was forked for it, and exit with its status; never return.

    Its output goes to the files `out` and `err`. The other arguments are those of `Command`.
    """
    os.chdir(folder)
    # Wide enough that no line of the output wraps.
    os.environ["COLUMNS"] = "200"
    for number, path in ((1, out), (2, err)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    if not is_read:
        # A pipe without a reader is what `olr ... | head` leaves: the next write fails.
        reader, writer = os.pipe()
        os.dup2(writer, 1)
        os.close(reader)
        os.close(writer)
    # Python's streams are the server's, so open new ones on the redirected descriptors.
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
    if plan is not None:
        _watch(plan)
    sys.argv = ["olr", *words]
    code = 1
    try:
        from olr_cli.cli import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _watch(plan: Plan) -> None:
    """Watch the file operations of this process from now on, and log them or cause the fault, as planned."""
    count, is_busy = 0, False

    def watch(event: str, arguments: Sequence[Any]) -> None:
        nonlocal count, is_busy
        # Writing the log is a file operation too: `is_busy` keeps it from being counted.
        if event not in _EVENTS or is_busy or not _writes(event, arguments):
            return
        is_busy = True
        path = _path(event, arguments)
        line = f"{event} {os.path.relpath(path, plan.folder)}"
        if path.startswith(str(plan.folder)) and plan.kind in (
            "",
            kind_of_operation(line),
        ):
            count += 1
            if plan.number == 0:
                with open(plan.log, "a") as lines:
                    lines.write(line + "\n")
            elif count == plan.number:
                _do(plan.deed, plan.log, plan.folder)
        is_busy = False

    sys.addaudithook(watch)


def _do(deed: str, log: Path, folder: Path) -> None:
    """Cause the fault that a `Plan.deed` names: kill this process, fill the disk, limit files, move or remove `folder`.

    To fill the disk, the file `log` grows.
    """
    if deed == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if deed == "move":
        os.rename(folder, folder.with_name(f"{folder.name}-moved"))
    elif deed == "remove":
        shutil.rmtree(folder)
    elif deed.startswith("limit"):
        size = int(deed.removeprefix("limit"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    else:
        fill_disk(log, int(deed.removeprefix("fill")))


def fill_disk(ballast: Path, room: int = 0) -> None:
    """Fill the file system that holds the file `ballast` by writing to it, until only `room` bytes are free."""
    with ballast.open("ab", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                # The last piece did not fit, so try half of it.
                size //= 2
        file.truncate(max(0, file.tell() - room))


def _writes(event: str, arguments: Sequence[Any]) -> bool:
    """Return whether an audit event of Python is about changing a file or folder; an ``open`` may only read."""
    return event != "open" or bool(isinstance(arguments[2], int) and arguments[2] & _WRITES)


def _path(event: str, arguments: Sequence[Any]) -> str:
    """Return the absolute path that an audit event changes; for a rename, the new one."""
    place = arguments[1] if event == "os.rename" else arguments[0]
    if isinstance(place, int):
        return os.readlink(f"/proc/self/fd/{place}")
    place = os.fspath(place)
    if isinstance(place, bytes):
        place = os.fsdecode(place)
    # shutil.rmtree passes names relative to an open folder, and the folder's descriptor.
    descriptor = {"os.remove": 1, "os.rmdir": 1, "os.mkdir": 2}.get(event)
    if (
        descriptor is not None
        and not os.path.isabs(place)
        and arguments[descriptor] not in (-1, None)
    ):
        place = os.path.join(os.readlink(f"/proc/self/fd/{arguments[descriptor]}"), place)
    return os.path.abspath(place)
