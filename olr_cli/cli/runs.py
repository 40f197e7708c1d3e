"""`olr runs [ls|rm]`: the runs below a folder, and the removal of some."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from olr_cli.cli.errors import ends_well
from olr_cli.cli.options import Format, JsonObject, shape_of
from olr_cli.cli.printing import show


class _ListsByDefault(TyperGroup):
    """`olr runs FOLDER` is `olr runs ls FOLDER`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As click does, with `ls` where no subcommand is named."""
        if not args or args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["ls", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ListsByDefault,
    help="List the runs below a folder, by default runs/ (`olr runs FOLDER` is `olr runs ls FOLDER`), or remove some.",
)


@app.command("ls")
@ends_well
def ls(
    folders: Annotated[
        list[Path] | None, Argument(metavar="FOLDER", help="Folders with runs; by default runs/.")
    ] = None,
    status: Annotated[
        str | None,
        Option(
            metavar="STATUS",
            help="Only runs that are finished, running, stopped, failed, diverged, crashed or damaged.",
        ),
    ] = None,
    arm: Annotated[str | None, Option(metavar="TEXT", help="Only arms whose name contains TEXT.")] = None,
    sort: Annotated[
        str,
        Option(metavar="KEY", help="Order: created, name, arm, status, accuracy, wrong (labels) or size."),
    ] = "created",
    format_: Format = "terminal",
    json: JsonObject = False,
) -> None:
    """List runs: arm, seed, status, epoch, held-out accuracy, wrong labels, when they were made, and their size."""
    from olr_cli.analysis.listing import list_runs, runs_answer

    places = folders or [Path("runs")]
    entries = list_runs(places, status=status, arm=arm, sort=sort)
    show(runs_answer(places, entries), shape_of(format_, as_json=json))


@app.command("rm")
@ends_well
def rm(
    runs: Annotated[
        list[str],
        Argument(
            metavar="RUN",
            help="Runs, or folders of runs such as a sweep's; paths, or names below --below.",
        ),
    ],
    below: Annotated[Path, Option(metavar="FOLDER", help="Remove nothing outside this folder.")] = Path(
        "runs"
    ),
    yes: Annotated[bool, Option("--yes", "-y", help="Remove without asking.")] = False,
    json: JsonObject = False,
) -> None:
    """Remove runs, after asking; refuse what is no run, what is being written, and what is outside --below."""
    from olr_cli.analysis.listing import removable_runs, remove_run, size_text
    from olr_cli.errors import UserError, printable
    from olr_cli.tables import Answer

    entries = removable_runs(runs, below)
    if not yes:
        if json or not sys.stdin.isatty():
            raise UserError("nobody can be asked here whether to remove the runs; add --yes")
        for run in entries:
            epochs = "" if run.epochs is None else f", {run.epoch or 0} of {run.epochs} epochs"
            typer.echo(printable(f"{run.path}: {run.status}{epochs}, {size_text(run.size)}"))
        signal.siginterrupt(signal.SIGINT, True)  # polars lets a read go on after Ctrl-C
        try:
            is_sure = typer.confirm(f"Remove {len(entries)} run{'s' * (len(entries) != 1)}?")
        except typer.Abort:
            raise KeyboardInterrupt from None
        if not is_sure:
            typer.echo("Nothing was removed.")
            return
    for run in entries:
        remove_run(Path(run.path), below)
    freed = sum(run.size for run in entries)
    data = {"removed": [run.path for run in entries], "freed": freed}
    lines = [*(f"Removed {run.path}" for run in entries), f"{size_text(freed)} are free again."]
    show(Answer(lines, data), "json" if json else "terminal")
