"""Runs, logs and evaluations in a notebook, as polars frames and matplotlib figures; one call each.

    from olr_cli.notebook import audit, figure, replay, table

Every function takes the arguments of the command with its name, and raises `UserError` for the command's error
messages. A run's own tables need no function: ``pl.read_parquet("runs/mine/labels/*.parquet")``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import polars as pl

from olr_cli.analysis.audit.audit import audit as audit_labels, audit_history
from olr_cli.analysis.histories import read_history
from olr_cli.analysis.replay import label_tables
from olr_cli.errors import UserError, unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from olr_cli.analysis.arms import Arm

__all__ = ["audit", "figure", "replay", "table"]

PathName: TypeAlias = str | os.PathLike[str]


def audit(*places: PathName, verified: Sequence[PathName] = ()) -> pl.DataFrame:
    """Return a table of the prompts of stored rollouts, sorted by how doubtful their labels are (`olr audit`).

    Args:
        places: one or more paths. They may be one run; several runs of `olr rollouts`; the files of one log; or several
            evaluations.
        verified: files of verified labels.

    Returns:
        One row per prompt, the most doubtful label first. The columns are those of ``olr audit --out``, such as rank,
        prompt_id, given_label, answers (with counts) and status, and a column question, which is null if the question
        is unknown.
    """
    history = audit_history([Path(place) for place in places], [])
    with history.judge() as judge:
        found = audit_labels(history, judge, verified=[Path(file) for file in verified])
    questions = [found.questions.get(name) for name in found.prompts["prompt_id"]]
    return found.prompts.with_columns(question=pl.Series(questions, dtype=pl.String))


def replay(history: PathName, *settings: str) -> pl.DataFrame:
    """Return the labels that stored rollouts would have led to under other settings of the method (`olr replay`).

    Args:
        history: the directory of a run, or the file or folder of a log.
        settings: settings ``key=value``, such as ``"method.slope_threshold=0.1"`` or ``"method.name=rules.py:mine"``.

    Returns:
        One row per visit (a prompt in one epoch), with the columns of a run's labels (docs/run-directory.md).
    """
    read = read_history(Path(history), settings)
    with read.judge() as judge:
        return pl.concat(label_tables(read, judge))


def figure(name: str, *runs: PathName) -> Figure:
    """Return a figure of runs for a notebook to show (`olr analyze --figure`).

    Runs that differ only in their seed are one arm. Some figures, such as dynamics, show one arm; for these, raise
    UserError if the runs belong to several arms.

    Args:
        name: learning, coherence, dynamics, composition, arms, or ``over-KEY``. The last shows scores over the values
            of KEY, a key of the recipe, as in ``over-noise.ratio``.
        runs: run directories, or folders that contain runs.
    """
    # Imported here: matplotlib is slow to import, and only this function needs it.
    from olr_cli.analysis import figures

    charts = figures.draw([name], _arms(runs))[name]
    # A notebook shows one figure per cell, so do not choose one of several silently.
    if len(charts) > 1:
        names = ", ".join(chart.name for chart in charts)
        raise UserError(f"{name} is a chart an arm ({names})", "name runs of one arm")
    return charts[0].figure


def table(name: str, *runs: PathName) -> pl.DataFrame:
    """Return a table about runs, with the same rows as `olr analyze --table` writes to a CSV file.

    Raise UserError if there is no such table, or if the runs lack something that the table needs.

    Args:
        name: arms, cost, or one of the paper's tables (noise_ratios, baselines, ablation, …).
        runs: run directories, or folders that contain runs.
    """
    # Imported when needed, like the figures, to keep the import of this module quick.
    from olr_cli.analysis import tables
    from olr_cli.analysis.frame import Lack

    if name not in tables.TABLES:
        raise unknown("table", name, tables.TABLES)
    try:
        rows = tables.count(name, _arms(runs)).rows
    except Lack as lack:
        raise UserError(f"this needs {lack}", "name other runs", f"table {name}") from None
    return pl.DataFrame(list(rows))


def _arms(runs: Sequence[PathName]) -> list[Arm]:
    from olr_cli.analysis.arms import find_runs, group

    return group(find_runs([Path(run) for run in runs]))
