"""A disk that fills up at any write: a sentence, no half of a file, and a command that ends well once there is room.

The disk is a small file system of its own, which is filled in the middle of the command; where the test may not mount
one, a limit on the size of files stands in for it.
"""

import os
import random
import shutil
import subprocess
from collections import Counter

import pytest
from forks import Plan, kind_of_operation
from outcomes import differences, faults_for_readers

APPENDED = "open metrics.jsonl"
FULL = "could not be written: the disk is full; make room and try again"
SIZE = 16 << 20
PAGE_END = b"</html>\n"
"""A report says when it was made, so no two are the same."""


@pytest.fixture(scope="module")
def disk(workshop):
    """A file system of 16 MB."""
    place = workshop.folder / "disk"
    place.mkdir(exist_ok=True)  # a worker that steals comes back to this module
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)]
    if (
        os.geteuid() != 0
        or subprocess.run(mount, capture_output=True, check=False).returncode
    ):
        pytest.skip("this system does not let us mount a tmpfs")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def chosen(operations, kinds, draw):
    """An operation of every kind, or of these, as its number among its kind; of all that append, for few need room."""
    counts = Counter(map(kind_of_operation, operations))
    picked = [(kind, draw.randint(1, counts[kind])) for kind in kinds or sorted(counts)]
    appended = (
        [] if kinds else [(APPENDED, number + 1) for number in range(counts[APPENDED])]
    )
    return picked + appended


def what_is_wrong(ended, status):
    """With what a command says that met a full disk."""
    lines = [
        line
        for line in ended.err.splitlines()
        if not line.startswith(("Note:", "Warning:"))
    ]
    if (
        status != 2
        or not lines
        or not (lines[-1].startswith("Error: ") and FULL in lines[-1])
    ):
        return [f"status {status}, and it says {ended.err[-600:]}"]
    return []


def remains(folder):
    return [f"{file} was left behind" for file in folder.rglob("*.tmp")]


SHORT = ["open checkpoints/.step-#.tmp/optimizer.pt"]
"""Before which the disk fills up in the short version."""


@pytest.mark.parametrize("command", ["train", "evaluate", "rollouts"])
def test_a_run_that_met_a_full_disk_goes_on_with_room(command, workshop, disk, is_long):
    if command != "train" and not is_long:
        pytest.skip("training has the short version")
    draw, count, faults, struck = random.Random(5), Counter(), [], Counter()
    whole, operations = workshop.whole(command), workshop.operations(command)
    out, ballast = disk / command, disk / "ballast"
    picked = chosen(operations, None if is_long else SHORT, draw)
    plans = [(kind, number, 0) for kind, number in picked]
    needed = sum(file.stat().st_size for file in whole.rglob("*"))
    plans += [("", 1, draw.randrange(needed)) for _ in range(20 * is_long)]
    for kind, number, room in plans:
        plan = Plan(out, number, f"fill{room}", ballast, kind)
        ended = workshop.start(command, out, plan)
        status = ended.wait()
        count["points"] += 1
        found = remains(disk)
        if status:  # what it did last may have needed no room
            found += what_is_wrong(ended, status) + faults_for_readers(command, out)
            count["full"] += 1
            struck[_struck(ended.err, out)] += 1
        ballast.unlink()
        again = workshop.start(command, out)
        found += [again.err] if again.wait() else differences(command, out, whole)
        count["equal"] += not found
        faults += [
            f"before {kind or 'the first'}, {number}, {room} bytes: {fault}"
            for fault in found
        ]
        subprocess.run(["rm", "-rf", str(out)], check=True)
    print(f"\n{command}: {dict(count)}; struck {dict(struck)}")
    assert not faults, "\n".join(faults)
    assert count["full"] > len(plans) // 2


def _struck(told, out):
    """The kind of file that could not be written."""
    name = told.rpartition("Error: ")[2].partition(" could not")[0]
    return kind_of_operation(os.path.relpath(name, out))


def outputs(workshop, disk):
    """Commands that write files of their own, by what they write; each on the disk."""
    run, data = workshop.whole("train"), workshop.folder / "train.jsonl"
    noise = ["inject-noise", "--dataset", data, "--type", "inactive", "--ratio", "0.5"]
    return {
        "figures": ["analyze", run, "--figure", "dynamics", "--out", disk / "out"],
        "report": ["analyze", run, "--report", "--out", disk / "out"],
        "audit": [
            "audit",
            run,
            "--out",
            disk / "out.parquet",
            "--export",
            disk / "repaired.parquet",
        ],
        "audit as JSON lines": [
            "audit",
            run,
            "--out",
            disk / "a" / "b",
            "--export",
            disk / "repaired.jsonl",
        ],
        "replay": ["replay", run, "--out", disk / "out.parquet"],
        "noise": [*noise, "--out", disk / "noisy.parquet"],
        "noise as JSON lines": [*noise, "--out", disk / "noisy.jsonl"],
        "recipe": ["recipes", "cp", "laptop/quickstart", disk / "mine.yaml"],
        "regrade": ["regrade", disk / "evaluation"],
    }


def test_figures_tables_and_data_sets_are_written_whole_or_not_at_all(
    workshop, disk, is_long
):
    draw, faults, count = random.Random(3), [], Counter()
    ballast, log = disk / "ballast", workshop.folder / "operations"
    for name, words in list(outputs(workshop, disk).items())[: None if is_long else 1]:
        # The first of all that draw a figure
        undisturbed, operations = (
            {},
            ["os.mkdir out"],
        )
        if is_long:
            log.unlink(missing_ok=True)
            _clear(workshop, disk)
            status, ended = workshop.olr(*words, plan=Plan(disk, 0, "", log))
            assert status == 0, ended.err
            undisturbed, operations = _contents(disk), log.read_text().splitlines()
        for kind, number in chosen(operations, None, draw):
            _clear(workshop, disk)
            before = _contents(disk)
            status, ended = workshop.olr(
                *words, plan=Plan(disk, number, "fill0", ballast, kind)
            )
            ballast.unlink()
            found = remains(disk) + (what_is_wrong(ended, status) if status else [])
            found += [
                f"{file} is half written"
                for file, content in _contents(disk).items()
                if content not in (undisturbed.get(file), before.get(file))
                and not content.endswith(PAGE_END)
            ]
            count["points"] += 1
            count["full"] += status == 2
            if is_long:
                _clear(workshop, disk)
                status, ended = workshop.olr(*words)
                found += [] if status == 0 else [ended.err]
            faults += [f"{name}, before {kind}: {fault}" for fault in found]
    print(f"\nfiles of other commands: {dict(count)}")
    assert not faults, "\n".join(faults)
    assert count["full"]


def _clear(workshop, disk):
    for place in disk.iterdir():
        subprocess.run(["rm", "-rf", str(place)], check=True)
    shutil.copytree(workshop.whole("evaluate"), disk / "evaluation")


def _contents(disk):
    files = [file for file in disk.rglob("*") if file.is_file() and file.name != ".lock"]
    return {str(file.relative_to(disk)): file.read_bytes() for file in files}


def test_a_limit_on_the_size_of_files_is_a_sentence_and_what_was_there_stays(workshop):
    out = workshop.place("limited")
    ended = workshop.start("train", out, Plan(out, 1, "limit300000", out))
    assert ended.wait() == 2, ended.err
    assert (
        "step-000002 could not be written: files may not get that large here" in ended.err
    )
    assert not remains(out) + faults_for_readers("train", out)
    workshop.finish("train", out)
    assert not differences("train", out, workshop.whole("train"))
