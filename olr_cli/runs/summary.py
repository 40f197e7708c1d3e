"""The summary of a finished run in a few lines."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

import polars as pl

from olr_cli.data.arithmetic import mixture_note
from olr_cli.runs.directory import read_manifest, read_recipe
from olr_cli.runs.metrics import Metrics, accuracy_fall, read_metrics
from olr_cli.runs.store import scan_labels
from olr_cli.runs.stored import complete_epochs
from olr_cli.runs.throughput import QUANTITIES, medians
from olr_cli.supervision.metrics import LABEL_METRICS, by_visit, label_metrics
from olr_cli.tables import Answer
from olr_cli.tables.table import three_digits

_COLUMNS_PAGE = "docs/concepts.md#columns-of-the-terminal-and-the-figures"


def run_summary(run: Path) -> Answer:
    """Return what is printed when a run has finished: outcomes, speed, any fall of accuracy, and a command to try."""
    name, fall = read_manifest(run)["name"], accuracy_fall(read_metrics(run, "eval/avg"))
    facts = outcomes(run)
    for metric, value in medians(read_metrics(run)).items():
        label, unit = QUANTITIES[metric]
        facts.append((label, f"{three_digits(value)} {unit}"))
    lines = [
        "",
        f"Finished {run} ({name})",
        *(f"  {fact:<34}{value}" for fact, value in facts),
    ]
    lines += [f"  sign of collapse after step {fall[0]}: {fall[1]}"] if fall else []
    lines.append(f"  {'what the columns above mean':<34}{_COLUMNS_PAGE}")
    note = mixture_note(read_recipe(run).model.path)
    data = {
        "run": str(run),
        "name": name,
        # The last known value of every metric, with the step and epoch of the last line.
        "metrics": {
            metric: value for line in read_metrics(run) for metric, value in line.items()
        },
        "summary": dict(facts),
        "collapse": [{"step": fall[0], "sign": fall[1]}] if fall else [],
    }
    knows_truth = (
        scan_labels(run).select(pl.col("true_answer").is_not_null().any()).collect().item()
    )
    command = f"olr analyze {quote(str(run))}{' --figure dynamics' if knows_truth else ''}"
    return Answer(lines, data, notes=[] if note is None else [note], next={command: ""})


def outcomes(run: Path) -> list[tuple[str, str]]:
    """Return the outcomes of a run as pairs of a name and a text; unknown outcomes are left out.

    They are the held-out accuracy at its first and last measurement, how often labels were replaced, how often the
    replacement was right, and the share of wrong labels in the last whole epoch.
    """
    # Read without the texts, which would be most of a large run's memory.
    counted = {
        name for metric in LABEL_METRICS.values() for name in metric.meta.root_names()
    }
    labels = scan_labels(run).select("visit", *sorted(counted | {"is_selected"})).collect()
    facts = _held_out(read_metrics(run))
    selected = labels["is_selected"].sum()
    if selected:
        right = label_metrics(labels).get("label/selected_accuracy")
        shown = "" if right is None else f", right in {right:.1%}"
        facts.append(("labels replaced by the majority", f"{selected:,} times{shown}"))
    # The last whole epoch, because half an epoch has another share of marked prompts.
    epoch = complete_epochs(by_visit(labels.lazy(), {}))
    last = label_metrics(labels.filter(pl.col("visit") == epoch))
    if "label/effective_noise" in last:
        marked = last.get("label/initial_noise")
        initially = "" if marked is None else f" (initially marked: {marked:.1%})"
        facts.append(
            ("wrong labels, last epoch", f"{last['label/effective_noise']:.1%}{initially}")
        )
    return facts


def _held_out(lines: list[Metrics]) -> list[tuple[str, str]]:
    """Return how held-out accuracy changed from the first to the last measurement, as pairs of a name and a text.

    There are two pairs: the share of right responses, and the share of prompts whose most frequent answer is right.
    Without a second measurement, the list is empty.
    """
    measured = [line for line in lines if "eval/avg" in line]
    if len(measured) < 2:
        return []
    first, last = measured[0], measured[-1]
    accuracy, majority = (
        f"{first['eval/avg']:.1%} -> {last['eval/avg']:.1%}",
        "not in metrics.jsonl",
    )
    if "eval/avg_stderr" in last:
        # Half of a normal distribution's 95 % interval, cut below where accuracy would leave 0 to 1.
        reach = 1.96 * last["eval/avg_stderr"]
        low, high = max(last["eval/avg"] - reach, 0.0), min(last["eval/avg"] + reach, 1.0)
        accuracy += f" (95 % over prompts: [{low:.1%}, {high:.1%}])"
    if "eval/majority" in first and "eval/majority" in last:
        majority = f"{first['eval/majority']:.1%} -> {last['eval/majority']:.1%}"
    return [
        ("held-out accuracy (avg)", accuracy),
        ("held-out accuracy (majority)", majority),
    ]
