"""One process at a time works on a folder, by the locks of its file system; where there are none, no process does."""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from olr_cli.errors import UserError
from olr_cli.runs import locks
from olr_cli.runs.locks import held, is_held

HOLDS = """
import sys
from pathlib import Path
from olr_cli.runs import locks
with locks.held(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()
"""


def test_another_process_is_named_until_it_ends_however(tmp_path):
    words = [sys.executable, "-c", HOLDS, str(tmp_path)]
    ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, text=True, **ends) as other:
        assert other.stdout.readline() == "held\n"
        assert is_held(tmp_path)
        with (
            pytest.raises(UserError, match=rf"in use by process {other.pid};"),
            held(tmp_path),
        ):
            pass
        other.kill()
    assert not is_held(tmp_path)
    with held(tmp_path):
        assert is_held(tmp_path)


@pytest.mark.parametrize(
    "number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO]
)
def test_where_the_file_system_has_no_locks_nothing_is_written_and_a_sentence_says_what_to_do(
    tmp_path, monkeypatch, number
):
    def flock(*_arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    told = r"cannot be locked \(.*on a local disk, and copy|reports an error"
    with pytest.raises(UserError, match=told), held(tmp_path):
        pytest.fail("it is held")
    assert not is_held(tmp_path)


@pytest.mark.parametrize("kind", ["link", "notes", "folder", "pipe"])
def test_a_lock_file_that_is_something_else_is_left_alone(tmp_path, kind):
    precious, folder = tmp_path / "precious", tmp_path / "run"
    precious.write_text("precious")
    folder.mkdir()
    lock = folder / ".lock"
    if kind == "link":
        lock.symlink_to(precious)
    elif kind == "pipe":
        os.mkfifo(lock)
    else:
        lock.write_text("my notes\n") if kind == "notes" else lock.mkdir()
    with (
        pytest.raises(
            UserError, match=r"not a lock file|cannot be locked|there is a folder|is a pipe"
        ),
        held(folder),
    ):
        pass
    assert precious.read_text() == "precious"
    assert kind != "notes" or lock.read_text() == "my notes\n"


def test_a_lock_file_that_goes_before_it_is_locked_holds_nothing(tmp_path, monkeypatch):
    path = tmp_path / "new"
    real, calls = fcntl.flock, []

    def after_the_last_holder_cleaned_up(*arguments):
        if not calls:
            shutil.rmtree(path)
        calls.append(arguments)
        real(*arguments)

    monkeypatch.setattr(fcntl, "flock", after_the_last_holder_cleaned_up)
    # As on a machine so busy that it passes at once
    monkeypatch.setattr(locks, "_PATIENCE", 0.0)
    with held(path, make=True):
        assert is_held(path)


@pytest.mark.parametrize("patience", [0.1, 0.0], ids=["patient", "busy"])
def test_a_look_at_the_lock_does_not_make_a_starter_fail(tmp_path, monkeypatch, patience):
    monkeypatch.setattr(locks, "_PATIENCE", patience)
    with held(tmp_path):
        pass
    looks = [os.open(tmp_path / ".lock", os.O_RDONLY)]
    fcntl.flock(looks[0], fcntl.LOCK_SH)
    real = fcntl.flock

    def while_the_other_looks(*arguments):
        try:
            real(*arguments)
        finally:
            if looks:
                os.close(looks.pop())

    monkeypatch.setattr(fcntl, "flock", while_the_other_looks)
    with held(tmp_path):
        assert is_held(tmp_path)


def test_a_disk_too_full_for_the_lock_is_said_and_nothing_stays(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with (
        pytest.raises(UserError, match="the disk is full"),
        held(tmp_path / "new", make=True),
    ):
        pass
    assert not (tmp_path / "new").exists()


def test_a_place_where_no_folder_can_be_made_is_not_called_in_use():
    with (
        pytest.raises(UserError, match="cannot be made"),
        held(Path("/proc/olr-run"), make=True),
    ):
        pass


def test_a_folder_is_let_go_even_while_an_error_is_looked_at(tmp_path):
    with pytest.raises(ZeroDivisionError) as kept, held(tmp_path):
        raise ZeroDivisionError
    assert kept.traceback and not is_held(tmp_path)
