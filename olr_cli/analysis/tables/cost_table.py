"""The paper's table of training time, measured: the parts of a step, and the sums over a run (Table `olr_time`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from olr_cli.analysis.arms import Arm, Run, grpo_beside
from olr_cli.analysis.cost import STEP, TOGETHER, Cost, costs, spreads
from olr_cli.analysis.frame import Difference, difference
from olr_cli.analysis.tables.cost_text import REST, to_table
from olr_cli.errors import UserError
from olr_cli.evaluation.published import published_cost
from olr_cli.supervision import compose
from olr_cli.tables import Table


@dataclass(frozen=True)
class CostRow:
    """An arm.

    Attributes:
        cost: the times of its steps.
        differences: part, or `STEP` -> of its median to GRPO's on the same machine, in seconds, paired by seed; empty
            if there is no such arm, or no seed that both have.
        relative: the step's difference as a share of GRPO's step.
        run: part, or `STEP` -> seconds of all steps of a run, the median over finished runs; empty without any.
        finished: how many runs are finished.
    """

    cost: Cost
    differences: Mapping[str, Difference]
    relative: Difference | None
    run: Mapping[str, float]
    finished: int

    @property
    def phases(self) -> tuple[float, ...]:
        """Seconds of a run, as `PHASES` has them; empty if no run is finished or its label update is not told apart."""
        if not self.run or "labels" not in self.run:
            return ()
        return self.run[STEP] - self.run["labels"], self.run["labels"], self.run[STEP]


@dataclass(frozen=True)
class CostTable:
    """All arms.

    Attributes:
        rows: one an arm.
        published: the paper's phases and times, as printed; empty unless they were asked for.
        notes: what a reader should know.
    """

    rows: Sequence[CostRow]
    published: Mapping[str, str]
    notes: Sequence[str]

    def lines(self) -> Iterator[dict[str, Any]]:
        """Flat values in seconds, one line an arm and part; then the published ones, as printed."""
        papers = {"published": None} if self.published else {}
        flat: dict[str, Any] = {}
        for row in self.rows:
            for line in spreads(row.cost):
                part = line["part"]
                flat = {
                    **line,
                    "run": row.run.get(part),
                    **_flat("difference", row.differences.get(part)),
                    **_flat("relative", row.relative if part == STEP else None),
                    **papers,
                }
                yield flat
        empty = dict.fromkeys(flat)
        for phase, time in self.published.items():
            yield empty | {"arm": "paper", "part": phase, "published": time}

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {"rows": list(self.lines()), "notes": list(self.notes)}

    def table(self) -> Table:
        """As it is printed."""
        return to_table(self)


def _flat(name: str, change: Difference | None) -> dict[str, Any]:
    return {
        name: change.mean if change else None,
        f"{name}_low": change.low if change else None,
        f"{name}_high": change.high if change else None,
    }


def cost_table(arms: Sequence[Arm], *, with_published: bool = False) -> CostTable:
    """Where the time of the arms' steps goes.

    Args:
        arms: any.
        with_published: show the paper's times too.

    Raises:
        UserError: no arm has times, a run has no labels yet, or its files are damaged.
    """
    found = costs(arms)
    if not found:
        raise UserError("--table cost needs runs whose metrics.jsonl has the time of a step (time/step)")
    rows = [_row(cost, found) for cost in found]
    published = published_cost() if with_published else {}
    untimed = [arm.name for arm in arms if arm.name not in {cost.arm.name for cost in found}]
    return CostTable(rows, published, tuple(_notes(rows, untimed, with_published=with_published)))


def _row(cost: Cost, found: Sequence[Cost]) -> CostRow:
    kind = cost.arm.runs[0].kind
    same_machine = {
        each.arm.name: each
        for each in found
        if each.machine == cost.machine and each.arm.runs[0].kind == kind
    }
    reference = grpo_beside(cost.arm, [each.arm for each in same_machine.values()])
    differences: dict[str, Difference] = {}
    relative = None
    if reference is not None and compose(cost.arm.recipe.method).name != "grpo":
        grpo = same_machine[reference.name]
        for part in (*(part for part in cost.parts if part in grpo.parts), STEP):
            change = difference(cost.by_seed(part), grpo.by_seed(part))
            differences |= {part: change} if change else {}
        own, others = cost.by_seed(STEP), grpo.by_seed(STEP)
        both = own.keys() & others.keys()
        relative = difference({seed: own[seed] / others[seed] for seed in both}, dict.fromkeys(both, 1.0))
    whole = [_sums(cost, run) for run in cost.arm.runs if run.note() is None and run.seed in cost.steps]
    parts = {part: median(sums[part] for sums in whole) for part in (*cost.parts, STEP)} if whole else {}
    return CostRow(cost, differences, relative, parts, len(whole))


def _sums(cost: Cost, run: Run) -> dict[str, float]:
    return {part: sum(step.get(part, 0.0) for step in cost.steps[run.seed]) for part in (*cost.parts, STEP)}


def _notes(rows: Sequence[CostRow], untimed: Sequence[str], *, with_published: bool) -> Iterator[str]:
    yield (
        "Medians over the steps of all runs of an arm. Held-out evaluation and checkpoints are no part of a step's own"
        " work, and left out."
    )
    machines: dict[str, list[str]] = {}
    for row in rows:
        machines.setdefault(row.cost.machine or "an unknown machine", []).append(row.cost.arm.name)
    if len(machines) == 1:
        yield f"Measured on: {next(iter(machines))}."
    else:
        named = "; ".join(f"{', '.join(arms)} on {machine}" for machine, arms in machines.items())
        yield f"Times of different machines do not compare: {named}."
    yield (
        "The label update (over a run: OLR update) is vote, history, criteria, labels, rewards and records. Every"
        " method keeps vote and history, GRPO too, so what OLR adds to a step is at most the label update."
    )
    if any(row.relative for row in rows):
        yield (
            "To GRPO: differences paired by seed, with Student's 95 % interval. That of whole steps also has in it the"
            " lengths of responses, and what else the machine did."
        )
    if any(row.relative and row.relative.pairs == 1 for row in rows):
        yield "One seed gives no interval: train more seeds."
    if any(row.cost.throughput for row in rows):
        yield (
            "Throughput: generated are response tokens over the time of sampling; trained are prompt and response"
            " tokens over the time of the policy update; samples are rollouts over the time of the step. Model FLOP"
            " utilisation is unknown on a CPU, and on a GPU whose peak olr does not know."
        )
    rest = {part for row in rows for part in row.cost.parts} & set(REST)
    names = {"weights": "weights to vLLM", "store": "storing the records", "other": "metrics and all else"}
    yield f"Rest: {', '.join(names[part] for part in REST if part in rest)}."
    if any("openrlhf" in row.cost.machine for row in rows):
        yield "On OpenRLHF the policy update has the forward passes before it."
    together = [row.cost.arm.name for row in rows if TOGETHER in row.cost.parts]
    if together:
        yield (
            f"Runs of {', '.join(together)} are from before verification and label update were measured apart."
        )
    for row in rows:
        if not row.run:
            yield f"No run of {row.cost.arm.name} is finished: no sums."
    if untimed:
        yield f"No times of {', '.join(untimed)}."
    if with_published:
        yield (
            "Published: 800 prompts, on 8 A100 of 80 GB, as printed. Levels do not compare with those of another policy"
            " on another machine."
        )
