"""`olr runs`: a table of the runs below folders."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option

from olr_cli.cli import options
from olr_cli.cli.printing import show


def runs(
    folders: list[Path] | None = Argument(
        None, metavar="FOLDER", help="Folders with runs; by default runs/."
    ),
    *,
    status: str | None = Option(
        None,
        metavar="STATUS",
        help="Only runs that are finished, running, stopped, failed, diverged, crashed or damaged.",
    ),
    arm: str | None = Option(
        None, metavar="TEXT", help="Only arms whose name contains TEXT."
    ),
    sort: str = Option(
        "created",
        metavar="KEY",
        help="Order: created, name, arm, status, accuracy, wrong (labels) or size.",
    ),
    format_: str = options.FORMAT,
    json: bool = options.JSON_OBJECT,
) -> None:
    """List runs: arm, seed, status, epoch, held-out accuracy, wrong labels, when they were made, and their size."""
    from olr_cli.runs.listing import list_runs, runs_answer

    places = folders or [Path("runs")]
    entries = list_runs(places, status=status, arm=arm, sort=sort)
    show(runs_answer(places, entries), options.shape_of(format_, as_json=json))
