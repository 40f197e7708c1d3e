"""A full disk becomes a sentence; what is no matter of the disk stays what it is."""

import errno

import pytest

from olr_cli.errors import UserError
from olr_cli.files import writing


def fail(number):
    raise OSError(number, "told by the system")


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "make room"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EIO, "the disk reports an error"),
        (errno.EISDIR, "there is a folder of that name"),
        (errno.ENAMETOOLONG, "choose a shorter one"),
        (errno.EXDEV, "two file systems"),
        (errno.ESTALE, "file server"),
        (errno.EAGAIN, "try again"),
        (errno.EMFILE, "ulimit -n"),
    ],
)
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
