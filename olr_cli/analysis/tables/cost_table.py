"""The paper's table of training time (Table `olr_time`), measured: the duration of a run's steps, phase by phase."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from olr_cli.analysis.arms import Arm
from olr_cli.analysis.frame import Lack
from olr_cli.evaluation.published import published_cost
from olr_cli.grouping import gathered
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.metrics import read_metrics
from olr_cli.tables import Block, Cell, Column, Row, Table

PHASES = ("RLVR training", "OLR update", "Total")
"""The columns of the table, which are the rows of the paper's; the OLR update is our label update."""


class TrainingTime(NamedTuple):
    """The training time of an arm, as medians over its finished runs.

    `runs` is the number of finished runs. `seconds` maps each phase of `PHASES` to its median in seconds; it is empty
    if no run is finished.
    """

    arm: Arm
    runs: int
    seconds: Mapping[str, float]


def cost_table(arms: Sequence[Arm], *, with_published: bool = False) -> Table:
    """Return a table of the arms' training time in seconds, by phase.

    The phases are RLVR training, OLR update and their total. Held-out evaluation and checkpoints do not count.
    `with_published` adds a row with the paper's times.

    Raises:
        Lack: no run has logged the time of a step.
    """
    times = [time for arm in arms if (time := _training_time(arm))]
    if not times:
        raise Lack("runs whose metrics.jsonl has the time of a step (time/step)")
    rows, lines = [], []
    for arm, runs, seconds in times:
        cells = [Cell(seconds[phase], "seconds") if seconds else "" for phase in PHASES]
        rows.append(Row([arm.name, str(runs or ""), *cells]))
        lines += [_line(arm.name, phase, seconds.get(phase), runs) for phase in PHASES]
    if with_published:
        published = published_cost()
        rows.append(
            Row(["paper", "", *(published[phase] for phase in PHASES)], "published")
        )
        lines = [line | {"published": None} for line in lines]
        lines += [
            _line("paper", phase) | {"published": published[phase]} for phase in PHASES
        ]
    block = Block(
        [Column(""), Column("n"), *map(Column, PHASES)], rows, "All steps of a run"
    )
    notes = [*_notes(times, with_published=with_published)]
    return Table([block], lines, notes=notes, footnotes=notes)


def _training_time(arm: Arm) -> TrainingTime | None:
    """Return an arm's training time, or None if no run of the arm has a step that counts.

    A step counts if metrics.jsonl has the time in which its labels were computed. Only finished runs are timed,
    because an unfinished one would look faster. If no run is finished, `TrainingTime.seconds` is empty.
    """
    steps_by_run = {}
    for run in arm.runs:
        if steps := [
            # Only a step that decided labels has `time/labels`, and only such steps are compared.
            step
            for step in read_metrics(run.path, "time/step")
            if "time/labels" in step
        ]:
            steps_by_run[run.path] = steps
    if not steps_by_run:
        return None
    # An unfinished run has fewer steps, so its sum would look like a faster method.
    finished = [steps for path, steps in steps_by_run.items() if path not in arm.unfinished]
    if not finished:
        return TrainingTime(arm, 0, {})
    total = median(
        sum(step["time/step"] - step.get("time/evaluation", 0.0) for step in steps)
        for steps in finished
    )
    update = median(sum(step["time/labels"] for step in steps) for steps in finished)
    return TrainingTime(
        arm, len(finished), dict(zip(PHASES, (total - update, update, total), strict=True))
    )


def _line(
    arm: str, phase: str, seconds: float | None = None, runs: int | None = None
) -> dict[str, Any]:
    return {"arm": arm, "phase": phase, "n": runs, "seconds": seconds}


def _notes(times: Sequence[TrainingTime], *, with_published: bool) -> Iterator[str]:
    yield "Medians over the finished runs of an arm, without held-out evaluation and checkpoints."
    machines = gathered((_machine(time.arm), time.arm.name) for time in times)
    if len(machines) == 1:
        yield f"Measured on: {next(iter(machines))}."
    else:
        named = "; ".join(
            f"{', '.join(names)} on {machine}" for machine, names in machines.items()
        )
        yield f"Times of different machines do not compare: {named}."
    yield (
        "The OLR update is vote, history, criteria, labels, rewards and records. Every method keeps vote and history,"
        " GRPO too, so OLR adds at most the OLR update."
    )
    for time in times:
        if not time.runs:
            yield f"No run of {time.arm.name} is finished: no sums."
    if with_published:
        yield (
            "Published: 800 prompts, on 8 A100 of 80 GB, as printed. Levels do not compare with those of another policy"
            " on another machine."
        )


def _machine(arm: Arm) -> str:
    """Return a text with the engine, device, threads and host of the arm's runs.

    Different machines are joined by a slash. If nothing is known, the text is ``an unknown machine``.
    """
    machines = []
    for run in arm.runs:
        for attempt in read_manifest(run.path)["attempts"]:
            threads, host = attempt.get("threads"), attempt.get("host")
            facts = [attempt.get("engine"), attempt.get("device")]
            facts.append(
                None if threads is None else f"{threads} thread{'s' * (threads != 1)}"
            )
            facts.append(None if host is None else f"host {host}")
            machines.append(", ".join(fact for fact in facts if fact is not None))
    return " / ".join(dict.fromkeys(machines)) or "an unknown machine"
