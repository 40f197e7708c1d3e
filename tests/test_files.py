"""A full disk becomes a sentence, and so does what is no file; what is no matter of the disk stays what it is."""

import errno
import os
import resource
import signal
import socket
from pathlib import Path

import pytest
import torch
from cases import each, refusal

from olr_cli.answers import Judge
from olr_cli.data.table_files import matching_files, read_table
from olr_cli.engines.digests import model_digest
from olr_cli.errors import UserError
from olr_cli.files import (
    disk_problem,
    naming_the_disks_error,
    read_json,
    read_lines,
    read_text,
    write_new,
    write_whole,
    writing,
)
from olr_cli.runs.metrics import read_metrics


def fail(number):
    raise OSError(number, "told by the system")


@each(
    "number, remedy",
    (errno.ENOSPC, "make room"), (errno.EFBIG, "ulimit -f"), (errno.EIO, "the disk reports an error"),
    (errno.EISDIR, "there is a folder of that name"), (errno.ENAMETOOLONG, "choose a shorter one"),
    (errno.EXDEV, "two file systems"), (errno.ESTALE, "file server"), (errno.EAGAIN, "try again"),
    (errno.EMFILE, "ulimit -n"),
)  # fmt: skip
def test_what_the_user_can_mend_is_a_sentence(tmp_path, number, remedy):
    with pytest.raises(UserError, match=remedy), writing(tmp_path):
        fail(number)


@each(
    "error, told",
    (PermissionError("Permission denied (os error 13): q.csv"), "could not be written: you may not write there"),
    (FileNotFoundError("No such file or directory (os error 2): q.csv"), "cannot be made; choose another folder"),
)  # fmt: skip
def test_an_error_of_polars_that_only_quotes_its_number_is_a_sentence(
    tmp_path, error, told
):
    def fails(_):
        raise error

    assert f"q.csv {told}" in refusal(write_whole, tmp_path / "q.csv", fails)
    assert not list(tmp_path.iterdir())


def test_an_error_raised_while_the_disks_is_handled_is_the_disks(tmp_path):
    with pytest.raises(UserError, match="the disk is full"), writing(tmp_path):
        try:
            fail(errno.ENOSPC)
        except OSError:
            raise RuntimeError("file in an unexpected state")  # noqa: B904


def test_an_error_cut_off_from_the_disks_is_its_own(tmp_path):
    with pytest.raises(KeyError), writing(tmp_path):
        try:
            fail(errno.ENOSPC)
        except OSError:
            raise KeyError from None


def test_where_torch_cannot_write_the_systems_error_is_told(tmp_path):
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, unlimited[1]))
        with pytest.raises(OSError) as caught, naming_the_disks_error(tmp_path):
            torch.save(torch.zeros(100_000), str(tmp_path / "weights.pt"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert "ulimit -f" in disk_problem(caught.value)
    assert [file.name for file in tmp_path.iterdir()] == ["weights.pt"]


def test_where_the_disk_has_room_an_error_is_its_own(tmp_path):
    with (
        pytest.raises(RuntimeError, match="of another kind"),
        naming_the_disks_error(tmp_path),
    ):
        raise RuntimeError("of another kind")


@each(
    "number", errno.EBADF, errno.ECONNREFUSED, errno.ENOENT, errno.EADDRINUSE, errno.EMFILE
)
def test_what_is_not_of_a_disk_is_no_problem_of_one(number):
    assert disk_problem(OSError(number, "told by the system")) is None


@pytest.fixture
def alarm():
    """Ends a test that waits for a pipe."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for a pipe"))
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("a.txt", read_text),
        ("a.txt", lambda file: [*read_lines(file)]),
        ("a.json", read_json),
        *(
            (f"a.{suffix}", lambda file: read_table([file]))
            for suffix in ("csv", "jsonl", "json", "parquet")
        ),
        ("a.jsonl", lambda file: matching_files(str(file))),
        ("metrics.jsonl", lambda file: read_metrics(file.parent)),
        ("given_up.jsonl", lambda file: Judge(ledger=file)),
        ("config.json", lambda file: model_digest(str(file.parent))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_what_may_never_end_is_not_read(tmp_path, monkeypatch, alarm, name, read, kind):
    monkeypatch.chdir(tmp_path)
    if kind == "pipe":
        os.mkfifo(name)
    elif kind == "device":
        os.symlink("/dev/zero", name)
    else:
        socket.socket(socket.AF_UNIX).bind(name)
    said = refusal(read, Path(name))
    assert f"{name} is a pipe, a device or a socket; olr reads files alone" in said


def test_an_encoding_is_checked_also_where_it_does_not_count(tmp_path):
    (file := tmp_path / "a.csv").write_text("question,answer\n1+1?,2\n")
    assert "there is no encoding 'cp125'" in refusal(read_text, file, encoding="cp125")
    assert read_text(file, encoding="cp1252") == "question,answer\n1+1?,2\n"


def test_where_no_folder_can_be_made_nothing_is_written():
    target = Path("/proc/olr/x.json")
    assert "/proc/olr cannot be made; choose another folder" in refusal(
        lambda: write_new(target, lambda path: path.write_text("x"))
    )
