"""Two processes on one run: one of them works, the others say so, and the run ends as if it had been alone."""

import shutil
import signal
from pathlib import Path

import pytest
from forks import Command
from outcomes import differences, faults_for_readers

from olr_cli.errors import UserError
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.shards import explain_removed_shard, stored_steps

SIGNS_OF_WORK = {"train": "labels/step-*", "evaluate": "generations/*.parts/part-*"}


def started(workshop, command, out: Path) -> Command:
    """A command that has begun to store, and is held there."""
    for _ in range(5):  # on a busy machine one may be done before anybody has looked
        begun = workshop.start(command, out)
        while (Path("/proc") / str(begun.pid)).exists():
            if list(out.glob(SIGNS_OF_WORK[command])):
                begun.signal(signal.SIGSTOP)
                return begun
        assert begun.wait() == 0, begun.err
        shutil.rmtree(out)
    raise AssertionError(f"{command} was never seen at work")


def test_a_second_training_leaves_the_first_alone_and_readers_read_it(workshop, is_long):
    whole, out = workshop.whole("train"), workshop.place("shared")
    first = started(workshop, "train", out)
    for options, told in (
        (
            ["--resume"],
            f"is in use by process {first.pid}; wait for it, or choose another folder",
        ),
        ([], "holds a run already (in use by a live process)"),
    ):
        status, second = workshop.olr(*workshop.words("train", out), *options)
        assert (status, told in second.err) == (2, True), second.err
    assert not faults_for_readers("train", out)
    if is_long:
        status, reader = workshop.olr("analyze", out, "--table", "arms")
        assert (status, "arm" in reader.out) == (0, True), reader.err
    first.signal(signal.SIGCONT)
    assert first.wait() == 0, first.err
    assert not differences("train", out, whole)
    assert len(read_manifest(out)["attempts"]) == 1


def test_a_second_evaluation_leaves_the_first_alone(workshop):
    out = workshop.place("shared-evaluation")
    first = started(workshop, "evaluate", out)
    status, second = workshop.olr(*workshop.words("evaluate", out))
    told = f"{out} is in use by process {first.pid}; wait for it, or choose another folder"
    assert (status, told in second.err) == (2, True), second.err
    first.signal(signal.SIGCONT)
    assert first.wait() == 0, first.err
    assert not differences("evaluate", out, workshop.whole("evaluate"))


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_of_several_that_start_at_the_same_moment_one_works(command, workshop, is_long):
    if not is_long:
        pytest.skip("many starts; the tests above are the short version")
    for turn in range(5):
        out = workshop.place(f"race-{command}-{turn}")
        if command == "train" and turn % 2:  # all of them resume a run that was killed
            begun = started(workshop, command, out)
            begun.signal(signal.SIGKILL)
            begun.wait()
        racing = [workshop.start(command, out) for _ in range(4)]
        statuses = [each.wait() for each in racing]
        errors = [each.err for each, status in zip(racing, statuses, strict=True) if status]
        assert set(statuses) <= {0, 2}, errors
        assert all("Error: " in error and "Traceback" not in error for error in errors)
        # One that came late may find the work done: a finished run is not resumed, an evaluation only read.
        assert statuses.count(0) >= 1
        assert not differences(command, out, workshop.whole(command))


def test_a_run_can_be_read_at_any_moment_while_it_trains_and_is_killed_and_resumed(
    workshop, is_long
):
    """Read again and again while it trains; killed at step 2, then at step 4 of what is left, …"""
    out, looks = workshop.place("watched"), 0
    for stop_at in (2, 4, 5, 7, 8, 10) if is_long else (5,):
        trainer = workshop.start("train", out)
        while (Path("/proc") / str(trainer.pid) / "fd").exists() and newest_step(
            out
        ) < stop_at:
            try:
                assert not faults_for_readers("train", out, is_idle=False)
            except FileNotFoundError as error:
                assert explain_removed_shard(error), (
                    "a reader is told why, and to look again"
                )
            except UserError as error:  # killed before its first checkpoint, it starts anew
                assert "holds no complete step yet" in str(error)
            looks += 1
        trainer.signal(signal.SIGKILL)
        trainer.wait()
    print(f"\nread {looks} times")
    workshop.finish("train", out)
    assert not differences("train", out, workshop.whole("train"))


def newest_step(run: Path) -> int:
    return max(stored_steps(run), default=0) if (run / "manifest.json").exists() else 0
