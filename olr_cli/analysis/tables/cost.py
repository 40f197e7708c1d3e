"""The paper's table of training time, measured: the parts of a step, and the sums over a run (Table `olr_time`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from olr_cli.analysis.arms import Arm, grpo_beside
from olr_cli.analysis.frame import Difference, Lack, difference
from olr_cli.analysis.step_times import PARTS, STEP, TOGETHER, Cost, Spread, Unit, costs, spreads, unit_of
from olr_cli.analysis.tables.arms import difference_cell
from olr_cli.errors import UserError
from olr_cli.evaluation.published import published_cost
from olr_cli.runs.throughput import QUANTITIES
from olr_cli.tables import Block, Cell, Column, Row, Table, interval, percent
from olr_cli.tables.numbers import joined, three_digits

RELATIVE = "relative"
"""The difference to GRPO's step as a share of it."""

REST = {"weights": "weights to vLLM", "store": "storing the records", "other": "metrics and all else"}
"""Parts that the table shows as one."""

_HEADS = {
    "verification": "verifi-\ncation",
    "labels": "label\nupdate",
    TOGETHER: "verif. +\nlabels",
    "update": "policy\nupdate",
}
"""Part -> its head in a terminal, where its name is too long."""

PHASES = ("RLVR training", "OLR update", "Total")
"""The rows of the paper's table; the OLR update is our label update."""

_Rows: TypeAlias = Sequence[tuple[Cost, Mapping[str, Difference]]]
"""Arms, each with its differences to GRPO by part."""


def cost_table(arms: Sequence[Arm], *, with_published: bool = False) -> Table:
    """Where the time of the arms' steps goes: medians with quartiles, differences to GRPO, and the sums over a run.

    Raises:
        UserError: no arm has times, a run has no labels yet, or its files are damaged.
    """
    try:
        timed = costs(arms)
    except Lack as lack:
        raise UserError(f"--table cost needs {lack}") from None
    rows = [(cost, compared_with_grpo(cost, timed)) for cost in timed]
    published = published_cost() if with_published else {}
    untimed = [arm.name for arm in arms if arm.name not in {cost.arm.name for cost in timed}]
    notes = [*_notes(rows, untimed, with_published=with_published)]
    return Table(
        blocks=[_step_block(rows), *_throughput_block(timed), _run_block(timed, published)],
        data={"rows": [*_lines(rows, published)], "notes": notes},
        notes=["In brackets after a median: its quartiles.", *notes],
        footnotes=[*notes, "For quartiles and intervals: --format markdown, latex or csv."],
    )


def _lines(rows: _Rows, published: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """One line an arm and part, in seconds; then the published ones, as printed."""
    papers = {"published": None} if published else {}
    flat: dict[str, Any] = {}
    for cost, changes in rows:
        for line in spreads(cost):
            flat = line | {"run": cost.total(line["part"])}
            relative = changes.get(RELATIVE) if line["part"] == STEP else None
            for name, change in (("difference", changes.get(line["part"])), (RELATIVE, relative)):
                flat[name] = change.mean if change else None
                flat[f"{name}_low"], flat[f"{name}_high"] = change.ends if change else (None, None)
            flat |= papers
            yield flat
    for phase, time in published.items():
        yield dict.fromkeys(flat) | {"arm": "paper", "part": phase, "published": time}


def _step_block(rows: _Rows) -> Block:
    unit = unit_of(cost for cost, _ in rows)
    parts = [part for part in PARTS if part not in REST and any(part in cost.parts for cost, _ in rows)]
    columns = [
        *(Column(""), Column("steps", only="document")),
        *(Column(_HEADS.get(part, PARTS[part]), PARTS[part]) for part in parts),
        *(Column("rest"), Column(STEP), Column("label\nshare", "label update, %")),
    ]
    if any(changes for _, changes in rows):
        to_grpo = f"to GRPO, {unit.name} [95 %]"
        columns += [
            Column(f"label update {to_grpo}", only="document"),
            Column(f"step {to_grpo}", only="document"),
            Column("to\nGRPO", "step to GRPO, % [95 %]"),
        ]
    shown = []
    for cost, changes in rows:
        share = percent(cost.share("labels")) if "labels" in cost.parts else ""
        relative = difference_cell(changes.get(RELATIVE))
        cells: list[str | Cell] = [
            cost.arm.name,
            str(len(cost.all_steps)),
            *(cost.spread(part).cell(unit.text) if part in cost.parts else "" for part in parts),
            cost.spread(*REST).cell(unit.text),
            cost.spread(STEP).cell(unit.text),
            Cell(share and f"{share}%", share),
            *(_change(changes.get(part), unit) for part in ("labels", STEP)),
            Cell(relative.brief and f"{relative.brief}%", relative.full),
        ]
        shown.append(Row(cells[: len(columns)]))
    return Block(columns, shown, f"A step, {unit.name}")


def _throughput_block(costs: Sequence[Cost]) -> Iterator[Block]:
    """What was measured of `QUANTITIES`, if anything."""
    measured = {
        name: quantity for name, quantity in QUANTITIES.items() if any(name in cost.names for cost in costs)
    }
    if not measured:
        return
    columns = [
        Column(quantity.head, ", ".join(filter(None, (quantity.label, quantity.unit))))
        for quantity in measured.values()
    ]
    rows = []
    for cost in costs:
        values = {name: cost.values(name) for name in measured}
        cells = [
            Spread.of(values[name]).cell(measured[name].text) if values[name] else "" for name in measured
        ]
        rows.append(Row([cost.arm.name, *cells]))
    yield Block([Column(""), *columns], rows, "Throughput of a step")


def _run_block(costs: Sequence[Cost], published: Mapping[str, str]) -> Block:
    rows = []
    for cost in costs:
        total, labels = cost.total(STEP), cost.total("labels")
        training = None if total is None or labels is None else total - labels
        times = [_duration(seconds) for seconds in (training, labels, total)]
        rows.append(Row([cost.arm.name, str(len(cost.finished) or ""), *times]))
    if published:
        rows.append(Row(["paper", "", *(published[phase] for phase in PHASES)], "published"))
    return Block([Column(""), Column("n"), *map(Column, PHASES)], rows, "All steps of a run")


def _duration(seconds: float | None) -> str:
    """Three digits, in the unit in which they are easiest to read."""
    if seconds is None:
        return ""
    units = {"h": 3600.0, "min": 60.0, "s": 1.0}
    name, size = next(((name, size) for name, size in units.items() if seconds >= size), ("ms", 0.001))
    return f"{three_digits(seconds / size)} {name}"


def _notes(rows: _Rows, untimed: Sequence[str], *, with_published: bool) -> Iterator[str]:
    costs = [cost for cost, _ in rows]
    parts = {part for cost in costs for part in cost.parts}
    yield (
        "Medians over the steps of all runs of an arm. Held-out evaluation and checkpoints are no part of a step's own"
        " work, and left out."
    )
    machines: dict[str, list[str]] = {}
    for cost in costs:
        machines.setdefault(cost.machine or "an unknown machine", []).append(cost.arm.name)
    if len(machines) == 1:
        yield f"Measured on: {next(iter(machines))}."
    else:
        named = "; ".join(f"{', '.join(arms)} on {machine}" for machine, arms in machines.items())
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
    if any(change.pairs == 1 for change in relative):
        yield "One seed gives no interval: train more seeds."
    if any(name in cost.names for cost in costs for name in QUANTITIES):
        yield (
            "Throughput: generated are response tokens over the time of sampling; trained are prompt and response"
            " tokens over the time of the policy update; samples are rollouts over the time of the step. Model FLOP"
            " utilisation is unknown on a CPU, and on a GPU whose peak olr does not know."
        )
    yield f"Rest: {', '.join(title for part, title in REST.items() if part in parts)}."
    if any("openrlhf" in cost.machine for cost in costs):
        yield "On OpenRLHF the policy update has the forward passes before it."
    together = [cost.arm.name for cost in costs if TOGETHER in cost.parts]
    if together:
        yield (
            f"Runs of {', '.join(together)} are from before verification and label update were measured apart."
        )
    for cost in costs:
        if not cost.finished:
            yield f"No run of {cost.arm.name} is finished: no sums."
    if untimed:
        yield f"No times of {', '.join(untimed)}."
    if with_published:
        yield (
            "Published: 800 prompts, on 8 A100 of 80 GB, as printed. Levels do not compare with those of another policy"
            " on another machine."
        )


def compared_with_grpo(cost: Cost, others: Sequence[Cost]) -> dict[str, Difference]:
    """Part -> the difference of its median to GRPO's on the same machine, in seconds, paired by seed; and `RELATIVE`.

    Empty if there is no such arm, or no seed that both have.
    """
    kind = cost.arm.runs[0].kind
    beside = {
        other.arm.name: other
        for other in others
        if other.machine == cost.machine and other.arm.runs[0].kind == kind
    }
    reference = grpo_beside(cost.arm, [other.arm for other in beside.values()])
    if reference is None or cost.arm.method == "grpo":
        return {}
    grpo = beside[reference.name]
    medians, references = cost.medians(STEP), grpo.medians(STEP)
    shares = {seed: medians[seed] / references[seed] for seed in medians.keys() & references.keys()}
    differences = {
        part: difference(cost.medians(part), grpo.medians(part)) for part in cost.parts if part in grpo.parts
    } | {RELATIVE: difference(shares, dict.fromkeys(shares, 1.0))}
    return {part: change for part, change in differences.items() if change}


def _change(change: Difference | None, unit: Unit) -> str:
    def text(seconds: float) -> str:
        return f"{1 / unit.seconds * seconds:+.{unit.digits}f}"

    return "" if change is None else joined(text(change.mean), interval(change.ends, text))
