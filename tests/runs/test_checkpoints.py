"""Checkpoints: which stay, and which are whole."""

import pytest

from olr_cli.runs.checkpoints import (
    best_step,
    checkpoint_path,
    checkpoint_steps,
    damage_of,
    set_aside,
    write_checkpoint,
)
from olr_cli.runs.metrics import append_metrics


def test_the_best_checkpoint_on_the_validation_set_stays(tmp_path):
    for step, accuracy in enumerate((0.9, 0.2, 0.6, 0.6, 0.3)):  # step 0 is no checkpoint
        append_metrics(tmp_path, step, 1, {"validation/avg": accuracy, "eval/avg": 1 - accuracy})
        if step:
            write_checkpoint(tmp_path, step, lambda folder: (folder / "file").touch(), keep=1)
    assert best_step(tmp_path) == 2
    assert checkpoint_steps(tmp_path) == [2, 4]


def test_without_a_validation_set_nothing_is_best(tmp_path):
    for step in (1, 2):
        append_metrics(tmp_path, step, 1, {"eval/avg": 0.5})
        write_checkpoint(tmp_path, step, lambda folder: (folder / "file").touch(), keep=1)
    assert best_step(tmp_path) is None
    assert checkpoint_steps(tmp_path) == [2]


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda folder: (folder / "weights").write_bytes(b"123"), "weights has 3 of its 1,000 bytes"),
        (lambda folder: (folder / "state" / "of-0").unlink(), "state/of-0 has gone"),
        (lambda folder: (folder / "files.json").write_text("{"), "files.json is cut off"),
        (lambda folder: (folder / "files.json").unlink(), None),  # of an earlier olr
        (lambda folder: (folder / "notes.txt").write_text("mine"), None),
    ],
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


def test_a_damaged_checkpoint_is_kept_beside_the_one_that_is_written_anew(tmp_path):
    for turn in "ab":
        write_checkpoint(tmp_path, 3, lambda folder: (folder / "weights").write_text(turn), keep=1)  # noqa: B023
        aside = set_aside(checkpoint_path(tmp_path, 3))
        assert (aside / "weights").read_text() == turn
        assert checkpoint_steps(tmp_path) == []
