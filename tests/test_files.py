"""A full disk becomes a sentence; what is no matter of the disk stays what it is."""

import errno
import resource

import pytest
import torch
from cases import each

from olr_cli.errors import UserError
from olr_cli.files import disk_problem, naming_the_disks_error, writing


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
    with pytest.raises(RuntimeError, match="of another kind"), naming_the_disks_error(tmp_path):
        raise RuntimeError("of another kind")


@each("number", errno.EBADF, errno.ECONNREFUSED, errno.ENOENT, errno.EADDRINUSE, errno.EMFILE)
def test_what_is_not_of_a_disk_is_no_problem_of_one(number):
    assert disk_problem(OSError(number, "told by the system")) is None
