"""Checkpoints: which stay, and which are whole."""

import errno
import os
from functools import partial
from pathlib import Path

import pytest
from cases import each

from olr_cli.runs.checkpoints import (
    best_step,
    checkpoint_path,
    checkpoint_steps,
    damage_of,
    drop_unfinished,
    set_aside,
    write_checkpoint,
)
from olr_cli.runs.metrics import append_metrics


def _write_weights(folder, text):
    (folder / "weights").write_text(text)


def test_the_best_checkpoint_on_the_validation_set_stays(tmp_path):
    for step, accuracy in enumerate((0.9, 0.2, 0.6, 0.6, 0.3)):  # step 0 is no checkpoint
        append_metrics(
            tmp_path, step, 1, {"validation/avg": accuracy, "eval/avg": 1 - accuracy}
        )
        if step:
            write_checkpoint(
                tmp_path, step, lambda folder: (folder / "file").touch(), keep=1
            )
    assert best_step(tmp_path) == 2
    assert checkpoint_steps(tmp_path) == [2, 4]


def test_without_a_validation_set_nothing_is_best(tmp_path):
    for step in (1, 2):
        append_metrics(tmp_path, step, 1, {"eval/avg": 0.5})
        write_checkpoint(tmp_path, step, lambda folder: (folder / "file").touch(), keep=1)
    assert best_step(tmp_path) is None
    assert checkpoint_steps(tmp_path) == [2]


OTHER, NO_LIST = (
    "has other bytes than were written",
    "files.json has gone, is cut off, or is no list of files",
)
OF_WEIGHTS = '{{"weights": {}}}'.format


def listing(text):
    """A deed: another list of a checkpoint's files."""
    return lambda folder: (folder / "files.json").write_text(text)


@each(
    "damage, told",
    (
        lambda folder: (folder / "weights").write_bytes(b"123"),
        "weights has 3 of its 1000 bytes",
    ),
    (lambda folder: (folder / "state" / "of-0").unlink(), "state/of-0 has gone"),
    (
        lambda folder: (folder / "weights").write_bytes(bytes(999) + b"1"),
        f"weights {OTHER}",
    ),
    (lambda folder: (folder / "state" / "of-0").write_bytes(b"1"), f"state/of-0 {OTHER}"),
    *(
        (listing(text), NO_LIST)
        for text in ("{", "[" * 99_999, "[]", *map(OF_WEIGHTS, ('"9"', "{}", "null")))
    ),
    (
        listing(OF_WEIGHTS('{"bytes": 999, "sha256": ""}')),
        "weights has 1,000 of its 999 bytes",
    ),
    (
        lambda folder: ((folder / "weights").unlink(), os.mkfifo(folder / "weights")),
        "weights has gone",
    ),
    (lambda folder: (folder / "files.json").unlink(), NO_LIST),
    (lambda folder: (folder / "notes.txt").write_text("mine"), None),
)
def test_a_checkpoint_that_was_cut_off_later_is_found_out(tmp_path, damage, told):
    def fill(folder):
        (folder / "state").mkdir()
        (folder / "state" / "of-0").write_bytes(b"0")
        (folder / "weights").write_bytes(bytes(1000))

    write_checkpoint(tmp_path, 3, fill, keep=1)
    assert damage_of(checkpoint_path(tmp_path, 3)) is None
    damage(checkpoint_path(tmp_path, 3))
    assert damage_of(checkpoint_path(tmp_path, 3)) == told


@pytest.mark.parametrize("reason", [errno.EXDEV, errno.EBUSY])
def test_links_and_a_file_system_that_cannot_rename_folders_lose_nothing(
    tmp_path, monkeypatch, reason
):
    """A folder in the lower layer of overlayfs cannot be renamed; what a link leads to is not olr's."""

    def fill(folder):
        (folder / "weights").write_text("w")

    def replace(source, target, real=os.replace):
        if (
            "step-000001" in str(source)
            and Path(source).is_dir()
            and ".tmp" not in str(source)
        ):
            raise OSError(reason, os.strerror(reason))
        real(source, target)

    precious = tmp_path / "precious"
    precious.mkdir()
    for name in ("thesis.tex", ".thesis.tex.1.tmp"):
        (precious / name).write_text("all of it")
    write_checkpoint(tmp_path, 1, fill, keep=1)
    (tmp_path / "checkpoints" / "step-000000").symlink_to(precious)
    drop_unfinished(tmp_path)
    for name in (".step-000002.tmp", ".step-000009.removed"):
        (tmp_path / "checkpoints" / name).symlink_to(precious)
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "rename", replace)
    write_checkpoint(tmp_path, 2, fill, keep=1)
    assert checkpoint_steps(tmp_path) == [2]
    drop_unfinished(tmp_path)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "step-000002"
    ]
    assert sorted(file.name for file in precious.iterdir()) == [
        ".thesis.tex.1.tmp",
        "thesis.tex",
    ]


def test_a_damaged_checkpoint_is_kept_beside_the_one_that_is_written_anew(tmp_path):
    for turn in "ab":
        write = partial(_write_weights, text=turn)
        write_checkpoint(tmp_path, 3, write, keep=1)
        aside = set_aside(checkpoint_path(tmp_path, 3))
        assert (aside / "weights").read_text() == turn
        assert checkpoint_steps(tmp_path) == []


def test_checkpoints_are_whole_and_the_newest_are_kept(tmp_path):
    def fill(folder):
        (folder / "weights").write_text("w")

    for step in (10, 20, 30):
        write_checkpoint(tmp_path, step, fill, keep=2)
    assert checkpoint_steps(tmp_path) == [20, 30]

    def fail(folder):
        (folder / "weights").write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_checkpoint(tmp_path, 40, fail, keep=2)
    assert checkpoint_steps(tmp_path) == [20, 30]
    drop_unfinished(tmp_path)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == [
        "step-000020",
        "step-000030",
    ]
