"""Many starts of `olr` for the price of one: a server imports torch and the rest once and forks for every command.

A command is a process of its own, as good as one from the shell: `kill -9` is the system's, files and locks are
real. What it is spared is the import. In the process a deed can be planned: just before file operation number N below
a folder it kills itself, or fills the disk.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE = 300.0
"""Seconds after which a command counts as hanging."""

_PRELOADED = (
    "torch",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.models.auto.modeling_auto",
    "transformers.integrations.accelerate",
    "rich.progress",
    "olr_cli.engines.local.loop",
    "olr_cli.engines.sweep",
    "olr_cli.evaluation.backends.transformers_backend",
    "olr_cli.evaluation.rollouts",
    "olr_cli.evaluation.targets",
    "olr_cli.evaluation.tables",
    "olr_cli.tables",
    "olr_cli.runs.summary",
    "olr_cli.cli",
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}


@dataclass(frozen=True)
class Plan:
    """What happens at a file operation of a command.

    Attributes:
        folder: operations below it count.
        number: of the operation, from 1; 0: none, and all operations are written to `log`.
        deed: ``kill``, ``fill`` with the bytes that stay free, or ``limit`` with the most that a file may have.
        log: takes a line an operation; of ``fill`` the file that fills the disk.
    """

    folder: Path
    number: int
    deed: str
    log: Path


class Command:
    """A command that was started.

    Attributes:
        pid: of its process.
    """

    def __init__(self, forks: Forks, pid: int, out: Path, err: Path) -> None:
        self.pid, self._forks, self._out, self._err = pid, forks, out, err

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Its exit status; the negative number of the signal that killed it."""
        return int(self._forks.ask({"wait": self.pid})["status"])

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()


class Forks:
    """The server; a context manager.

    Args:
        folder: takes what commands print, and is where they are typed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._count = folder, 0

    def __enter__(self) -> Forks:
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        )
        return self

    def __exit__(self, *_exception: object) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()

    def start(self, *words: object, plan: Plan | None = None, is_read: bool = True) -> Command:
        """Start `olr` with these words; its output may go into a pipe that nobody reads."""
        self._count += 1
        out, err = (self.folder / f"{self._count}.{kind}" for kind in ("out", "err"))
        request: dict[str, Any] = {"words": [*map(str, words)], "out": str(out), "err": str(err)}
        request["is_read"] = is_read
        if plan is not None:
            request["plan"] = [str(plan.folder), plan.number, plan.deed, str(plan.log)]
        return Command(self, self.ask(request)["pid"], out, err)

    def olr(self, *words: object, plan: Plan | None = None, is_read: bool = True) -> tuple[int, Command]:
        """Run `olr` with these words to its end; its exit status, and what it said."""
        command = self.start(*words, plan=plan, is_read=is_read)
        return command.wait(), command

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(request).encode() + b"\n")
        self._server.stdin.flush()
        return dict(json.loads(self._server.stdout.readline()))


def kind_of_operation(line: str) -> str:
    """An operation of a log without its numbers: what all writes of one kind have in common."""
    return re.sub(r"\d+", "#", line)


def _serve() -> None:
    import importlib

    for name in _PRELOADED:
        importlib.import_module(name)
    # So that a run of a few steps has blocks of old steps too.
    importlib.import_module("olr_cli.runs.store").STEPS_TOGETHER = 3  # type: ignore[attr-defined]
    replies = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            reply = {"status": _status(request["wait"])}
        else:
            pid = os.fork()
            if pid == 0:
                replies.close()
                _become(request)
            reply = {"pid": pid}
        print(json.dumps(reply), file=replies, flush=True)


def _status(pid: int) -> int:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    raise TimeoutError(f"process {pid} hangs")


def _become(request: dict[str, Any]) -> None:
    """Be the command, in the process that was forked for it; does not return."""
    for number, path in ((0, os.devnull), (1, request["out"]), (2, request["err"])):
        opened = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    if not request["is_read"]:
        reader, writer = os.pipe()
        os.dup2(writer, 1)
        os.close(reader)
        os.close(writer)
    sys.stdin = os.fdopen(os.dup(0))
    if "plan" in request:
        _plan(*request["plan"])
    sys.argv = ["olr", *request["words"]]
    status = 1
    try:
        from olr_cli.cli import main

        main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def _plan(folder: str, number: int, deed: str, log: str) -> None:
    count, is_busy = 0, False

    def watch(event: str, arguments: Sequence[Any]) -> None:
        nonlocal count, is_busy
        if event not in _EVENTS or is_busy or not _writes(event, arguments):
            return
        is_busy = True
        place = _place(event, arguments)
        if place.startswith(folder):
            count += 1
            if number == 0:
                with open(log, "a") as lines:
                    lines.write(f"{event} {os.path.relpath(place, folder)}\n")
            elif count == number:
                _do(deed, log)
        is_busy = False

    sys.addaudithook(watch)


def _do(deed: str, log: str) -> None:
    if deed == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if deed.startswith("limit"):
        size = int(deed.removeprefix("limit"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    else:
        fill_disk(Path(log), int(deed.removeprefix("fill")))


def fill_disk(ballast: Path, room: int = 0) -> None:
    """Leave so many bytes of a file system free."""
    with ballast.open("ab", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
        file.truncate(max(0, file.tell() - room))


def _writes(event: str, arguments: Sequence[Any]) -> bool:
    return event != "open" or bool(isinstance(arguments[2], int) and arguments[2] & _WRITES)


def _place(event: str, arguments: Sequence[Any]) -> str:
    """The path that an operation changes, as far as the event tells."""
    place = arguments[1] if event == "os.rename" else arguments[0]
    if isinstance(place, int):
        return os.readlink(f"/proc/self/fd/{place}")
    place = os.fspath(place)
    if isinstance(place, bytes):
        place = os.fsdecode(place)
    # shutil.rmtree names files by their folder's descriptor.
    descriptor = {"os.remove": 1, "os.rmdir": 1, "os.mkdir": 2}.get(event)
    if descriptor is not None and not os.path.isabs(place) and arguments[descriptor] not in (-1, None):
        place = os.path.join(os.readlink(f"/proc/self/fd/{arguments[descriptor]}"), place)
    return os.path.abspath(place)


if __name__ == "__main__":
    _serve()
