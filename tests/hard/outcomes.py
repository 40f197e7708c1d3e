"""The output of a command, compared with its output when undisturbed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from decisions import untimed

from olr_cli.errors import UserError
from olr_cli.runs.directory import read_manifest, write_manifest
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.shards import stored_steps
from olr_cli.runs.store import scan_labels, scan_rollouts


def reopen(run: Path, **changes: Any) -> None:
    """Change a finished run's manifest so that it seems interrupted; `changes` are other entries."""
    write_manifest(run, read_manifest(run) | {"status": "interrupted"} | changes)


def differences(command: str, out: Path, whole: Path) -> list[str]:
    """Return how a command's output `out` differs from that of an undisturbed command, `whole`, apart from times.

    `command` is train, evaluate or rollouts. Each difference is a few words; an empty list means none. Temporary files
    left in `out` count.
    """
    found = (
        _of_evaluations(out, whole)
        if command == "evaluate"
        else _of_runs(command, out, whole)
    )
    # olr writes files and folders under such names first.
    leftovers = [
        file
        for file in out.rglob("*")
        if file.name.endswith((".tmp", ".removed", ".parts"))
    ]
    return [*found, *(f"{file} was left behind" for file in leftovers)]


def _of_runs(command: str, run: Path, whole: Path) -> Iterator[str]:
    """Yield how a run directory differs from `whole`, and what its manifest says amiss."""
    for name, scan, order in (
        ("labels", scan_labels, ["step", "prompt_id"]),
        ("rollouts", scan_rollouts, ["step", "prompt_id", "sample"]),
    ):
        ours, theirs = (scan(each).sort(order).collect() for each in (run, whole))
        if not ours.equals(theirs):
            yield f"other {name}"
    if untimed(read_metrics(run)) != untimed(read_metrics(whole)):
        yield "other metrics"
    if command == "train":
        yield from _of_folders(run / "checkpoints", whole / "checkpoints")
    manifest = read_manifest(run)
    last = manifest["attempts"][-1]
    if (manifest["status"], last.get("outcome")) != (
        "finished",
        "finished",
    ) or "ended" not in last:
        yield f"its manifest says {manifest['status']}, and of the last attempt {last.get('outcome')}"
    begun = [attempt["from_step"] for attempt in manifest["attempts"]]
    if begun != sorted(begun):
        yield f"attempts began at {begun}"


def _of_evaluations(folder: Path, whole: Path) -> Iterator[str]:
    """Yield how an evaluation's folder differs from `whole`, and whether it has no scores."""
    yield from _of_folders(folder, whole)
    if "scores.json" not in {file.name for file in folder.iterdir()}:
        yield "no scores"


def _of_folders(ours: Path, theirs: Path) -> Iterator[str]:
    """Yield ``other NAME`` for each file that only one folder has or whose contents differ."""
    here, there = (
        {
            str(file.relative_to(each)): _content(file)
            for file in each.rglob("*")
            if file.is_file()
        }
        for each in (ours, theirs)
    )
    for name in sorted(here.keys() | there.keys()):
        if name != ".lock" and here.get(name) != there.get(name):
            yield f"other {name}"


def _content(file: Path) -> Any:
    """Return what two equal runs have in common of a file: its bytes, or less.

    Left out are the random state and run id in trainer.json and the values in files.json.
    """
    if file.name == "trainer.json":
        return {
            key: value
            for key, value in json.loads(file.read_text()).items()
            if key not in ("rng", "run")
        }
    return (
        sorted(json.loads(file.read_text()))
        if file.name == "files.json"
        else file.read_bytes()
    )


def faults_for_readers(command: str, out: Path, *, is_idle: bool = True) -> list[str]:
    """Return faults in a command's output, perhaps unfinished, that would mislead its readers; empty if there are none.

    `is_idle`: no process is writing to it, so the tables must have the same steps.
    """
    if command == "evaluate":
        return _faults_of_evaluation(out)
    if not (out / "manifest.json").exists():
        return []
    read_manifest(out)
    steps_by_table = [stored_steps(out)]
    if steps_by_table[0]:
        steps_by_table += [
            sorted(set(scan(out).collect()["step"]))
            for scan in (scan_labels, scan_rollouts)
        ]
    found = [
        f"steps {steps}"
        for steps in steps_by_table
        if steps != list(range(1, len(steps) + 1))
    ]
    if is_idle and any(steps != steps_by_table[0] for steps in steps_by_table):
        found.append("tables of other steps")
    measured = [line["step"] for line in read_metrics(out)]
    first = 0 if command == "train" else 1
    if measured != list(range(first, first + len(measured))):
        found.append(f"metrics of steps {measured}")
    return found


def _faults_of_evaluation(folder: Path) -> list[str]:
    """Return a fault if an evaluation cannot be scored, or if its stored scores are not those of its generations."""
    from olr_cli.evaluation.store import EvaluationStore
    from olr_cli.tables import as_json

    if not (folder / "evaluation.json").exists():
        return []
    store = EvaluationStore(folder)
    store.record()
    try:
        scores = store.scores()
    except UserError as error:
        return [str(error)]
    scored = folder / "scores.json"
    now = json.loads(json.dumps(as_json(scores)))
    if scored.exists() and json.loads(scored.read_text())["scores"] != now:
        return ["scores.json is not of these generations"]
    return []
