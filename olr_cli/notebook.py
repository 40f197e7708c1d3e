"""What a notebook wants of runs, logs and evaluations, in one call each: polars frames and matplotlib figures.

    from olr_cli.notebook import audit, figure, replay, table

Every function takes what the command of its name takes, and raises `UserError` where that ends in a sentence. A run's
own tables need no function: ``pl.read_parquet("runs/mine/labels/*.parquet")``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl

from olr_cli.analysis.audit.audit import audit as audit_labels, audit_history
from olr_cli.analysis.histories import read_history
from olr_cli.analysis.replay import label_tables
from olr_cli.answers import Judge
from olr_cli.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from olr_cli.analysis.arms import Arm

__all__ = ["audit", "figure", "replay", "table"]

PathName: TypeAlias = str | os.PathLike[str]


def audit(*places: PathName, verified: Sequence[PathName] = ()) -> pl.DataFrame:
    """Return the prompts of a history, the most doubtful label first (`olr audit`).

    Args:
        places: a run, several of `olr rollouts`, the files of a log, or evaluations.
        verified: files of verified labels.

    Returns:
        A row a prompt: the columns of ``olr audit --out``, such as rank, prompt_id, given_label, answers (with counts)
        and status, and question where it is known.
    """
    history = audit_history([Path(place) for place in places], [])
    with _judge(history.given_up, history.recipe.data.tolerance) as judge:
        found = audit_labels(history, judge, verified=[Path(file) for file in verified])
    questions = [found.questions.get(name) for name in found.prompts["prompt_id"]]
    return found.prompts.with_columns(question=pl.Series(questions, dtype=pl.String))


def replay(history: PathName, *settings: str) -> pl.DataFrame:
    """Return the labels table of stored rollouts under other criteria or another rule (`olr replay`).

    Args:
        history: a run, or a log.
        settings: as after ``--set``, such as ``"method.slope_threshold=0.1"`` or ``"method.name=rules.py:mine"``.

    Returns:
        A row a visit, with the columns of a run's labels (docs/run-directory.md).
    """
    read = read_history(Path(history), settings)
    with _judge(read.given_up, read.recipe.data.tolerance) as judge:
        return pl.concat(label_tables(read, judge))


def figure(name: str, *runs: PathName) -> Figure:
    """Return a figure of runs (`olr analyze --figure`), which a notebook shows.

    Args:
        name: learning, coherence, dynamics, composition, arms, or ``over-`` and a key of the recipe.
        runs: run directories, or folders with runs below them. A figure that has a chart for each arm, as dynamics has,
            takes runs of one.
    """
    from olr_cli.analysis import figures

    charts = figures.draw([name], _arms(runs))[name]
    if len(charts) > 1:
        names = ", ".join(chart.name for chart in charts)
        raise UserError(f"{name} is a chart an arm ({names})", "name runs of one arm")
    return charts[0].figure


def table(name: str, *runs: PathName) -> pl.DataFrame:
    """Return the rows of a table of runs, as its CSV has them (`olr analyze --table`).

    Args:
        name: arms, cost, or one of the paper's (noise_ratios, baselines, ablation, …).
        runs: run directories, or folders with runs below them.
    """
    from olr_cli.analysis import tables
    from olr_cli.analysis.frame import Lack

    try:
        rows = tables.count(name, _arms(runs)).rows
    except Lack as lack:
        raise UserError(f"this needs {lack}", "name other runs", f"table {name}") from None
    return pl.DataFrame(list(rows))


def _arms(runs: Sequence[PathName]) -> list[Arm]:
    from olr_cli.analysis.arms import find_runs, group

    return group(find_runs([Path(run) for run in runs]))


def _judge(ledger: Path | None, tolerance: Any) -> Judge:
    return Judge(ledger=ledger, keep=False, tolerance=tolerance)
