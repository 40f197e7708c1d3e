"""One process at a time works on a folder: it holds the system's lock on the folder's `.lock` file (library filelock).

    with held(run, make=True):
        …

The system releases the lock however a process ends. On a file system without locks nothing is written. A heartbeat file
in place of a lock was tried: it let a second writer in while the first was paused.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from olr_cli.errors import UserError
from olr_cli.files import not_made, regular, sweep, writing

LOCK = ".lock"
"""Name of the lock file in a folder."""

_ATTEMPTS = 3
"""Attempts to lock a folder before giving up."""

_OURS = re.compile(r"(\d+\n)?")
"""The contents of an olr lock file: nothing, or a process id."""
_PATIENCE = 0.1
"""Seconds to wait for a lock, because `is_held` in another process takes it for an instant."""


@contextmanager
def held(path: Path, *, make: bool = False) -> Iterator[None]:
    """Within the block, hold the lock of a run directory or another folder, so that no other process works on it.

    If the process is killed, the system releases the lock. On entry, the temporary files that interrupted writes have
    left directly in the folder are removed.

    Args:
        path: the folder.
        make: create the folder if it is missing, and remove it at the end if it is still empty.

    Raises:
        UserError: another process holds the lock, or the folder cannot be locked or made. If the block fails after the
            folder was moved or removed, UserError is raised instead of the block's error.
        FileNotFoundError: the folder is missing, and `make` is false.
    """
    lock, file = _locked(path, make=make), path / LOCK
    # Keep the folder open, so that `is_at` notices if it was moved or replaced.
    opened = os.open(path, os.O_RDONLY)
    try:
        if not _OURS.fullmatch(regular(file).read_text(errors="replace")):
            raise UserError(
                f"{file} is not a lock file of olr", "move it out of the folder"
            )
        with writing(path):
            file.write_text(f"{os.getpid()}\n")
        sweep(path, is_held=True)
        yield
    except Exception as error:
        if not is_at(path, opened):
            raise UserError(
                f"{path} was moved or removed while it was written",
                "to go on, name the place where it is now",
            ) from error
        raise
    finally:
        # Before the release, so that nothing of another process is removed; a folder with files in it stays.
        with suppress(OSError):
            if (
                make
                and is_at(path, opened)
                and all(it.name == LOCK for it in path.iterdir())
            ):
                file.unlink()
                path.rmdir()
        lock.release()
        os.close(opened)


def _locked(path: Path, *, make: bool) -> FileLock:
    """Lock a folder and return the lock. If `make` is true, a missing folder is created.

    Raises:
        UserError: another process holds the lock, or the folder cannot be locked or made.
        FileNotFoundError: the folder is missing, and `make` is false.
    """
    # `thread_local=False`: another thread may release the lock. `fallback_to_soft=False`: no heartbeat file, see above.
    lock = FileLock(
        path / LOCK, timeout=_PATIENCE, thread_local=False, fallback_to_soft=False
    )
    for _ in range(_ATTEMPTS):
        try:
            with writing(path):
                if make:
                    path.mkdir(parents=True, exist_ok=True)
                lock.acquire(poll_interval=_PATIENCE / 5)
            return lock
        except Timeout:
            # The holder has gone, or a busy machine took longer than the patience.
            if not is_held(path):
                continue
            holder = "unknown"
            with suppress(OSError):
                holder = (path / LOCK).read_text(errors="replace").strip() or holder
            raise UserError(
                f"{path} is in use by process {holder}",
                "wait for it, or choose another folder",
            ) from None
        except FileNotFoundError:
            if not make:
                raise
            # The last holder has just removed the folder, as it was empty.
        except OSError as error:
            raise UserError(
                f"{path} cannot be locked ({error.strerror}), so that two commands could write there at once",
                "choose"
                " another folder, on a local disk, and copy the folder when the command has ended",
            ) from None
    raise not_made(path)


def is_held(path: Path) -> bool:
    """Return whether a live process of any user holds the lock of a folder."""
    try:
        # The flags make sure that a pipe or a link in that place is neither waited for nor followed.
        lock = os.open(path / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        # A shared lock, so that two processes that ask at once do not take each other for the holder.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(lock)
    return False


def is_at(path: Path, descriptor: int) -> bool:
    """Return whether `path` still leads to the file or folder that was opened as `descriptor`."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False
