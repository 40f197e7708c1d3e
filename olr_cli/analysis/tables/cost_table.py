"""The paper's table of training time, measured: the parts of a step, and the sums over a run (Table `olr_time`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from olr_cli.analysis.arms import Arm, grpo_beside
from olr_cli.analysis.frame import difference
from olr_cli.analysis.step_times import PARTS, STEP, StepTimes, flat, step_times, unit_of
from olr_cli.evaluation.published import published_cost
from olr_cli.runs.throughput import QUANTITIES
from olr_cli.tables import UNKNOWN, Block, Cell, Column, Row, Table

RELATIVE = "relative"
"""The difference to GRPO's step as a share of it."""

REST = {"weights": "weights to vLLM", "store": "storing the records", "other": "metrics and all else"}
"""Parts that the table shows as one."""

_HEADS = {
    "verification": "verifi-\ncation",
    "labels": "label\nupdate",
    "update": "policy\nupdate",
}
"""Part -> its head in a terminal, where its name is too long."""

PHASES = ("RLVR training", "OLR update", "Total")
"""The rows of the paper's table; the OLR update is our label update."""

_Rows: TypeAlias = Sequence[tuple[StepTimes, Mapping[str, Cell]]]
"""Arms, each with its differences to GRPO by part."""


def cost_table(arms: Sequence[Arm], *, with_published: bool = False) -> Table:
    """Where the time of the arms' steps goes: medians with quartiles, differences to GRPO, and the sums over a run.

    Raises:
        Lack: no arm has times.
        UserError: a run has no labels yet, or its files are damaged.
    """
    timed = step_times(arms)
    rows = [(times, compared_with_grpo(times, timed)) for times in timed]
    published = published_cost() if with_published else {}
    notes = [*_notes(rows, with_published=with_published)]
    return Table(
        blocks=[_step_block(rows), *_throughput_block(timed), _run_block(timed, published)],
        data={"rows": [*_lines(rows, published)], "notes": notes},
        notes=["In brackets after a median: its quartiles.", *notes],
        footnotes=[*notes, "For quartiles and intervals: --format markdown, latex or csv."],
    )


def _lines(rows: _Rows, published: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """One line an arm and part, in seconds; then the published ones, as printed."""
    line: dict[str, Any] = {}
    for times, changes in rows:
        for line in flat(times):
            change = changes.get(line["part"], UNKNOWN)
            relative = changes.get(RELATIVE, UNKNOWN) if line["part"] == STEP else UNKNOWN
            line |= {"run": times.total(line["part"])}
            line |= change.flat("difference", "difference_low", "difference_high")
            line |= relative.flat(RELATIVE, "relative_low", "relative_high")
            line |= {"published": None} if published else {}
            yield line
    for phase, time in published.items():
        yield dict.fromkeys(line) | {"arm": "paper", "part": phase, "published": time}


def _step_block(rows: _Rows) -> Block:
    unit = unit_of(times for times, _ in rows)
    parts = [part for part in PARTS if part not in REST and any(part in times.parts for times, _ in rows)]
    columns = [
        *(Column(""), Column("steps", only="document")),
        *(Column(_HEADS.get(part, PARTS[part]), PARTS[part]) for part in parts),
        *(Column("rest"), Column(STEP), Column("label\nshare", "label update, %")),
    ]
    if any(changes for _, changes in rows):
        to_grpo = f"to GRPO, {unit} [95 %]"
        columns += [
            Column(f"label update {to_grpo}", only="document"),
            Column(f"step {to_grpo}", only="document"),
            Column("to\nGRPO", "step to GRPO, % [95 %]"),
        ]
    shown = []
    for times, changes in rows:
        in_unit = {
            part: replace(change, kind="more ms" if unit == "ms" else "more s")
            for part, change in changes.items()
        }
        share = Cell(times.share("labels")) if "labels" in times.parts else None
        cells: list[str | Cell] = [
            times.arm.name,
            str(len(times.all_steps)),
            *(times.time(part, kind=unit) if part in times.parts else "" for part in parts),
            *(times.time(*REST, kind=unit), times.time(STEP, kind=unit)),
            *(_in_percent(share), in_unit.get("labels", ""), in_unit.get(STEP, "")),
            _in_percent(changes.get(RELATIVE)),
        ]
        shown.append(Row(cells[: len(columns)]))
    return Block(columns, shown, f"A step, {unit}")


def _in_percent(cell: Cell | None) -> str | Cell:
    """In a terminal, where no head has room for the unit, with the sign of percent."""
    return replace(cell, short=f"{cell.brief}%") if cell else ""


def _throughput_block(arms: Sequence[StepTimes]) -> Iterator[Block]:
    cells = {name: [times.quantity(name) for times in arms] for name in QUANTITIES}
    measured = {QUANTITIES[name]: of_arms for name, of_arms in cells.items() if any(of_arms)}
    if measured:
        heads = [Column(it.head, f"{it.label}, {it.unit}") for it in measured]
        rows = [
            Row([times.arm.name, *(of_arms[place] or "" for of_arms in measured.values())])
            for place, times in enumerate(arms)
        ]
        yield Block([Column(""), *heads], rows, "Throughput of a step")


def _run_block(arms: Sequence[StepTimes], published: Mapping[str, str]) -> Block:
    rows = []
    for times in arms:
        total, labels = times.total(STEP), times.total("labels")
        training = None if total is None or labels is None else total - labels
        sums = ["" if it is None else Cell(it, "seconds") for it in (training, labels, total)]
        rows.append(Row([times.arm.name, str(len(times.finished) or ""), *sums]))
    if published:
        rows.append(Row(["paper", "", *(published[phase] for phase in PHASES)], "published"))
    return Block([Column(""), Column("n"), *map(Column, PHASES)], rows, "All steps of a run")


def _notes(rows: _Rows, *, with_published: bool) -> Iterator[str]:
    arms = [times for times, _ in rows]
    parts = {part for times in arms for part in times.parts}
    yield (
        "Medians over the steps of all runs of an arm. Held-out evaluation and checkpoints are no part of a step's own"
        " work, and left out."
    )
    machines: dict[str, list[str]] = {}
    for times in arms:
        machines.setdefault(times.machine or "an unknown machine", []).append(times.arm.name)
    if len(machines) == 1:
        yield f"Measured on: {next(iter(machines))}."
    else:
        named = "; ".join(f"{', '.join(names)} on {machine}" for machine, names in machines.items())
        yield f"Times of different machines do not compare: {named}."
    yield (
        "The label update (over a run: OLR update) is vote, history, criteria, labels, rewards and records. Every"
        " method keeps vote and history, GRPO too, so what OLR adds to a step is at most the label update."
    )
    relative = [changes[RELATIVE] for _, changes in rows if RELATIVE in changes]
    if relative:
        yield (
            "To GRPO: differences paired by seed, with Student's 95 % interval. That of whole steps also has in it the"
            " lengths of responses, and what else the machine did."
        )
    if any(change.n == 1 for change in relative):
        yield "One seed gives no interval: train more seeds."
    yield f"Rest: {', '.join(title for part, title in REST.items() if part in parts)}."
    for times in arms:
        if not times.finished:
            yield f"No run of {times.arm.name} is finished: no sums."
    if with_published:
        yield (
            "Published: 800 prompts, on 8 A100 of 80 GB, as printed. Levels do not compare with those of another policy"
            " on another machine."
        )


def compared_with_grpo(times: StepTimes, others: Sequence[StepTimes]) -> dict[str, Cell]:
    """Part -> the difference of its median to GRPO's on the same machine, in seconds, paired by seed; and `RELATIVE`.

    Empty if there is no such arm, or no seed that both have.
    """
    beside = {
        other.arm.name: other
        for other in others
        if other.machine == times.machine and other.arm.runs[0].kind == times.arm.runs[0].kind
    }
    reference = grpo_beside(times.arm, [other.arm for other in beside.values()])
    if reference is None or times.arm.method == "grpo":
        return {}
    grpo = beside[reference.name]
    medians, references = times.medians(STEP), grpo.medians(STEP)
    shares = {seed: medians[seed] / references[seed] for seed in medians.keys() & references.keys()}
    changes = {
        part: difference(times.medians(part), grpo.medians(part), "more s")
        for part in times.parts
        if part in grpo.parts
    }
    changes[RELATIVE] = difference(shares, dict.fromkeys(shares, 1.0))
    return {part: change for part, change in changes.items() if change}
