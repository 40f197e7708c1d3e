"""One process at a time works on a folder, where the system has locks and where it has none."""

import errno
import fcntl
import json
import os
import subprocess
import sys
import time

import pytest

from olr_cli import files
from olr_cli.errors import UserError
from olr_cli.runs import locks
from olr_cli.runs.locks import HOLDER, held, is_held

WITHOUT_FLOCK = """
import errno, fcntl, os, sys, time
from pathlib import Path
def flock(*_): raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
fcntl.flock = flock
from olr_cli.runs import locks
locks.HEARTBEAT_SECONDS = 0.05
"""
TAKES = "with locks.held(Path(sys.argv[1])): print('held', flush=True); time.sleep(float(sys.argv[2]))"


@pytest.fixture(params=[errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def without_flock(request, monkeypatch):
    def flock(*_arguments):
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(files, "departures", set())
    monkeypatch.setattr(locks, "departures", files.departures)


def other_process(folder, seconds):
    words = [sys.executable, "-c", WITHOUT_FLOCK + TAKES, str(folder), str(seconds)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_without_locks_a_heartbeat_holds_the_folder_against_another_process(tmp_path, without_flock):
    other = other_process(tmp_path, 60)
    assert other.stdout.readline() == "held\n"
    assert is_held(tmp_path)
    with pytest.raises(UserError, match=rf"in use by process {other.pid} on "), held(tmp_path):
        pass
    other.kill()
    other.wait()
    assert not is_held(tmp_path)  # its process has gone from this host
    with held(tmp_path):
        assert is_held(tmp_path)
        late = other_process(tmp_path, 0)
        assert f"in use by process {os.getpid()} on " in late.communicate()[1]
    assert [file.name for file in tmp_path.iterdir()] == [".lock"]
    assert any("no file locks" in sentence for sentence in files.departures)


def test_of_many_that_start_at_once_one_holds_it(tmp_path):
    (tmp_path / HOLDER).write_text(json.dumps({"host": "elsewhere", "pid": 1, "started": "1", "token": ""}))
    long_ago = time.time() - 2 * locks.DEAD_AFTER_SECONDS
    os.utime(tmp_path / HOLDER, (long_ago, long_ago))  # a holder on another host that died
    others = [other_process(tmp_path, 1.5) for _ in range(4)]
    ended = [other.communicate() for other in others]
    assert sorted(out for out, _ in ended) == ["", "", "", "held\n"], ended
    assert sum("is in use by process" in err for _, err in ended) == 3


def test_a_holder_of_another_host_lives_as_long_as_its_heart_beats(tmp_path, without_flock):
    holder = tmp_path / HOLDER
    holder.write_text(json.dumps({"host": "elsewhere", "pid": 7, "started": "1", "token": ""}))
    with pytest.raises(UserError, match="in use by process 7 on elsewhere"), held(tmp_path):
        pass
    long_ago = time.time() - 2 * locks.DEAD_AFTER_SECONDS
    os.utime(holder, (long_ago, long_ago))
    with held(tmp_path):
        assert json.loads(holder.read_text())["pid"] == os.getpid()


def test_a_process_that_was_stopped_and_replaced_ends(tmp_path):
    other = other_process(tmp_path, 60)
    assert other.stdout.readline() == "held\n"
    (tmp_path / HOLDER).write_text("another's")
    assert other.wait(30) != 0


@pytest.mark.parametrize("kind", ["link", "hard link", "notes", "folder", "pipe"])
def test_a_lock_file_that_is_something_else_is_left_alone(tmp_path, kind):
    precious, folder = tmp_path / "precious", tmp_path / "run"
    precious.write_text("precious")
    folder.mkdir()
    lock = folder / ".lock"
    {
        "link": lambda: lock.symlink_to(precious),
        "hard link": lambda: lock.hardlink_to(precious),
        "notes": lambda: lock.write_text("my notes\n"),
        "folder": lock.mkdir,
        "pipe": lambda: os.mkfifo(lock),
    }[kind]()
    with pytest.raises(UserError, match=r"\.lock is not a lock file of olr; move it"), held(folder):
        pass
    assert precious.read_text() == "precious"
    assert kind != "notes" or lock.read_text() == "my notes\n"


def test_a_lock_that_fails_for_another_reason_is_a_sentence(tmp_path, monkeypatch):
    def flock(*_arguments):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(UserError, match="cannot be locked: Input/output error"), held(tmp_path):
        pass


@pytest.mark.parametrize("kind", ["folder", "pipe", "bytes"])
def test_a_holder_file_that_is_something_else_is_left_alone(tmp_path, kind, without_flock):
    holder = tmp_path / HOLDER
    {"folder": holder.mkdir, "pipe": lambda: os.mkfifo(holder), "bytes": lambda: holder.write_bytes(b"\xff")}[
        kind
    ]()
    with (
        pytest.raises(UserError, match=r"lock-holder is a (folder|pipe)|in use by process unknown"),
        held(tmp_path),
    ):
        pass
    assert holder.exists()
