"""One process at a time works on a folder: the system's lock on its `.lock` file, or where there is none, a heartbeat.

    with held(run, make=True):
        …

`flock` is released by the system however a process ends. Some network file systems have none. There `.lock-holder`
names host and process, and a thread of the holder touches it every few seconds; a holder counts as dead when its
process has gone from this host, or when its file has not been touched for a minute and a half.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import signal
import socket
import stat
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from olr_cli.errors import UserError
from olr_cli.files import departures, require_regular, writing

LOCK, HOLDER = ".lock", ".lock-holder"
HEARTBEAT_SECONDS, DEAD_AFTER_SECONDS = 5.0, 90.0

_ATTEMPTS, _PAUSE = 5, 0.02
_NO_FLOCK = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
_OURS = re.compile(rb"(\d+\n)?")
"""What a lock file of ours may hold: nothing, or a process id."""


@contextmanager
def held(path: Path, *, make: bool = False, option: str = "--run-dir") -> Iterator[None]:
    """Hold a run directory, or another folder, for this process, until the block or the process ends.

    With `make`, a missing folder is made, and removed again if it stays empty. `option` is what names the folder.

    Raises:
        UserError: another live process holds it, it can't be made, or its lock file is something else; or the folder
            was moved or removed meanwhile, and the block failed.
    """
    lock, heartbeat = _lock(path, make=make, option=option)
    try:
        with writing(path):
            os.ftruncate(lock, 0)
            os.write(lock, f"{os.getpid()}\n".encode())
        yield
    except Exception as error:
        if not is_at(path / LOCK, lock):
            raise has_gone(path) from error
        raise
    finally:
        # Still locked, so nothing of another process is removed; a folder that is gone or filled meanwhile may stay so.
        if heartbeat is not None:
            heartbeat.stop()
        with suppress(OSError):
            if make and all(file.name == LOCK for file in path.iterdir()):
                (path / LOCK).unlink()
                path.rmdir()
        os.close(lock)


def is_at(path: Path, descriptor: int) -> bool:
    """Whether a file or folder that was opened is at a path still."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False


def has_gone(path: Path) -> UserError:
    """The error for a folder that is not where it was when the work on it began."""
    return UserError(
        f"{path} was moved or removed while it was written; to go on, name the place where it is now"
    )


def is_held(path: Path) -> bool:
    """Whether a live process works on a folder."""
    try:
        lock = os.open(path / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        return error.errno in _NO_FLOCK and _live_holder(path / HOLDER) is not None
    finally:
        os.close(lock)
    return False


def _lock(path: Path, *, make: bool, option: str) -> tuple[int, Heartbeat | None]:
    """An open descriptor of the folder's lock file, which is locked, and what stands for the lock where there is none.

    It is tried for a moment: `is_held` of another process takes the lock for an instant, and a holder that ends may
    remove the very file that was opened here.
    """
    holder = None
    for attempt in range(_ATTEMPTS):
        time.sleep(_PAUSE if attempt else 0)
        try:
            with writing(path):
                if make:
                    path.mkdir(parents=True, exist_ok=True)
                lock = _open(path / LOCK)
        except FileNotFoundError:
            if make:
                continue
            raise
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_ino == (path / LOCK).stat().st_ino:
                return lock, None
        except (BlockingIOError, FileNotFoundError):
            pass
        except OSError as error:
            if error.errno not in _NO_FLOCK:
                os.close(lock)
                raise UserError(
                    f"{path} cannot be locked: {error.strerror}; choose another {option}"
                ) from None
            departures.add(
                f"{path} has no file locks ({error.strerror}); a file with a heartbeat takes their place"
            )
            require_regular(path / HOLDER)
            heartbeat = Heartbeat.begin(path / HOLDER)
            if isinstance(heartbeat, Heartbeat):
                return lock, heartbeat
            holder = heartbeat
            os.close(lock)
            continue
        holder = os.read(lock, 64).decode(errors="replace").strip() or "unknown"
        os.close(lock)
    if holder is None:
        raise UserError(f"{path} cannot be made; choose another {option}")
    raise UserError(f"{path} is in use by process {holder}; wait for it, or choose another {option}")


def _open(file: Path) -> int:
    """Open a lock file, or make it; never through a link, and never a file of somebody else, which would be cut off."""
    foreign = UserError(f"{file} is not a lock file of olr; move it out of the folder")
    try:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise foreign from None
        raise
    status = os.fstat(lock)
    is_file = stat.S_ISREG(status.st_mode) and status.st_nlink <= 1  # 0: its holder has just removed it
    if not is_file or not _OURS.fullmatch(os.pread(lock, 64, 0)):
        os.close(lock)
        raise foreign
    return lock


class Heartbeat:
    """The holder file of this process, and the thread that touches it."""

    def __init__(self, file: Path, record: str) -> None:
        self._file, self._record, self._over = file, record, threading.Event()
        self._thread = threading.Thread(target=self._beat, name="olr-heartbeat", daemon=True)
        self._thread.start()

    @classmethod
    def begin(cls, file: Path) -> Heartbeat | str:
        """Become the holder; else the one that is, as messages name it."""
        guard = file.with_name(f"{HOLDER}.taking")  # a dead holder is replaced by one process
        if not _make(guard, ""):
            with suppress(FileNotFoundError):
                if _now_there(file) - guard.stat().st_mtime > DEAD_AFTER_SECONDS:
                    guard.unlink()
            return _live_holder(file) or "unknown"
        try:
            live = _live_holder(file)
            if live is not None:
                return live
            file.unlink(missing_ok=True)
            mine = {"host": socket.gethostname(), "pid": os.getpid(), "started": _start_of(os.getpid())}
            record = json.dumps(mine | {"token": uuid.uuid4().hex})
            return cls(file, record) if _make(file, record) else "unknown"
        finally:
            guard.unlink(missing_ok=True)

    def stop(self) -> None:
        """Give the folder back."""
        self._over.set()
        self._thread.join()
        with suppress(OSError):
            if self._file.read_text(encoding="utf-8") == self._record:
                self._file.unlink()

    def _beat(self) -> None:
        while not self._over.wait(HEARTBEAT_SECONDS):
            with suppress(OSError):
                if self._file.read_text(encoding="utf-8") != self._record:
                    # This process was stopped for so long that another one took its place.
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
                os.utime(self._file)


def _live_holder(file: Path) -> str | None:
    """The process that holds a folder by a heartbeat, as messages name it; None if there is none that lives."""
    if os.path.exists(file) and not os.path.isfile(file):
        return "unknown"  # reading a pipe would never end
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
        age = _now_there(file) - file.stat().st_mtime
    except FileNotFoundError:
        return None
    if age > DEAD_AFTER_SECONDS:
        return None
    try:
        holder = json.loads(text)
        is_here = holder["host"] == socket.gethostname()
        name = f"{holder['pid']} on {holder['host']}"
        return None if is_here and _start_of(holder["pid"]) != holder["started"] else name
    except (ValueError, KeyError, TypeError):  # it is being written
        return "unknown"


def _make(file: Path, text: str) -> bool:
    """Make a file that is not there; whether this process did."""
    try:
        with writing(file), file.open("x", encoding="utf-8") as target:
            target.write(text)
    except UserError as error:
        if isinstance(error.__cause__, FileExistsError):
            return False
        raise
    return True


def _now_there(file: Path) -> float:
    """The time by the clock of the file system, which may be another machine's."""
    probe = file.with_name(f"{HOLDER}.{uuid.uuid4().hex}")
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:
        return time.time()
    finally:
        with suppress(OSError):
            probe.unlink()


def _start_of(pid: int) -> str | None:
    """When a process of this host started, in ticks since the host did; None if there is no such process."""
    try:
        return (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()[19]
        )
    except OSError:
        return None
