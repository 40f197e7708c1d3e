"""`kill -9` at any moment: what was stored can be read, and the command that goes on ends as if nothing had been.

A point is a moment drawn over the whole duration of a command, from its first line to its last, or the instant before
one of its file operations. Every third command is killed again while it goes on.
"""

import random
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from forks import Plan, kind_of_operation
from outcomes import differences, faults_for_readers

MOMENTS = {"train": (1, 30), "evaluate": (1, 20), "rollouts": (0, 10)}
"""Random moments at which a command is killed, in the short version and in the long one."""
OPERATIONS = {"train": (1, None), "evaluate": (0, None), "rollouts": (1, None)}
"""Kinds of file operations before which it is killed; in the long version before one of each kind."""


@dataclass(frozen=True)
class Point:
    """Where a command is killed.

    Attributes:
        share: of the undisturbed command's duration that passes before.
        operation: before which it is killed, from 1; 0: none.
        again: share after which the command that goes on is killed too; None: it isn't.
    """

    share: float
    operation: int
    again: float | None

    @property
    def name(self) -> str:
        place = f"operation {self.operation}" if self.operation else f"{self.share:.1%}"
        return place + (f", then {self.again:.1%}" if self.again is not None else "")


def points(operations, moments, kinds, seed):
    """Moments, and operations of different kinds."""
    draw = random.Random(seed)
    found = [Point(draw.random(), 0, _again(draw)) for _ in range(moments)]
    of_kind: dict[str, list[int]] = {}
    for number, line in enumerate(operations, start=1):
        of_kind.setdefault(kind_of_operation(line), []).append(number)
    chosen = sorted(of_kind) if kinds is None else draw.sample(sorted(of_kind), kinds)
    return found + [Point(1, draw.choice(of_kind[kind]), _again(draw)) for kind in chosen]


def _again(draw):
    return draw.random() if draw.random() < 1 / 3 else None


def kill(workshop, command, out: Path, point: Point, seconds: float) -> bool:
    """Start a command and kill it at a point; whether it was still at work then."""
    if point.operation:
        plan = Plan(out, point.operation, "kill", out)
        return workshop.start(command, out, plan).wait() == -signal.SIGKILL
    return _kill_after(workshop, command, out, point.share * seconds)


def _kill_after(workshop, command, out, seconds) -> bool:
    started = workshop.start(command, out)
    time.sleep(seconds)
    started.signal(signal.SIGKILL)
    return started.wait() == -signal.SIGKILL


@pytest.mark.parametrize("command", ["train", "evaluate", "rollouts"])
def test_killed_anywhere_and_started_again_it_ends_as_uninterrupted(
    command, workshop, is_long
):
    whole = workshop.whole(command)
    seconds, began = workshop.seconds(command, is_long=is_long), time.monotonic()
    chosen = points(
        workshop.operations(command),
        MOMENTS[command][is_long],
        OPERATIONS[command][is_long],
        7,
    )
    count: Counter[str] = Counter()
    faults = []
    for number, point in enumerate(chosen):
        out = workshop.place(f"{command}-{number}")
        hit = kill(workshop, command, out, point, seconds)
        count["points"] += 1
        count["killed"] += hit
        assert hit or not point.operation, (
            f"{point.name} was not reached: the test tests nothing"
        )
        found = faults_for_readers(command, out)
        if point.again is not None:
            count["killed again"] += _kill_after(
                workshop, command, out, point.again * seconds
            )
            found += faults_for_readers(command, out)
        workshop.finish(command, out)
        found += differences(command, out, whole)
        count["equal"] += not found
        faults += [f"{point.name}: {fault}" for fault in found]
    took = (time.monotonic() - began) / 60
    print(
        f"\n{command}: {dict(count)} in {took:.1f} minutes, one takes {seconds:.1f} s undisturbed"
    )
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("name", [".files.json.", ".step-000006.removed"])
def test_what_is_done_after_the_last_checkpoint_is_done_by_the_resume(name, workshop):
    """Its digests, and the removal of older ones: there is no step to come that would."""
    operations, out = workshop.operations("train"), workshop.place(f"last{name}")
    last = max(number for number, line in enumerate(operations, start=1) if name in line)
    assert kill(workshop, "train", out, Point(1, last, None), 0)
    workshop.finish("train", out)
    assert differences("train", out, workshop.whole("train")) == []
