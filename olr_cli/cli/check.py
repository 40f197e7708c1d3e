"""`olr check`: what is wrong with a data set, before any model sees it, and the rows without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer
from typer import Argument, Option

from olr_cli.cli import options
from olr_cli.cli.printing import Waiting, show


def check(
    source: str = Argument(
        metavar="SOURCE",
        help="The data set: a Parquet, JSON or CSV file, a folder of them, a hub id (org/name), or a built-in set.",
    ),
    columns: list[str] = options.DATA_COLUMNS,
    export: Path | None = Option(
        None,
        metavar="FILE",
        help="Write the rows without defects to this new file: .parquet, .jsonl, or CSV of CSV.",
    ),
    drop: list[str] = Option(
        [],
        metavar="FINDING,...",
        help="With --export: findings, by their names in the list, whose rows are left out besides those with which"
        " nothing can be graded.",
    ),
    strict: bool = Option(
        False, "--strict", help="End with exit status 1 if anything is found, for scripts."
    ),
    json: bool = options.JSON_OBJECT,
) -> None:
    """Find labels that cannot be graded, contradictions and other defects of a data set, without a model."""
    from olr_cli.answers import Judge
    from olr_cli.data.check import check as check_data
    from olr_cli.data.writers import require_writable
    from olr_cli.errors import UserError
    from olr_cli.files import require_new

    require_new({"export": export})
    if export is not None:
        require_writable(export, source)
    elif drop:
        raise UserError("--drop chooses the rows of --export FILE; add it")
    waiting = Waiting()
    with Judge(report=waiting.say) as judge:
        checked = check_data(source, options.read_columns(columns), judge)
    waiting.done()
    answer = checked.answer(source, ",".join(columns), export)
    if export is not None:
        answer = replace(answer, files=[checked.export(export, options.read_list(drop))])
    show(answer, "json" if json else "terminal")
    if strict and checked.findings:
        raise typer.Exit(1)
