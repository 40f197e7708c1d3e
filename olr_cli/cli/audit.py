"""`olr audit`: which labels look wrong, why, and how sure; the repaired data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from olr_cli.cli.options import require_new

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from olr_cli.analysis.audit.audit import Audit


def audit(
    history: Annotated[
        Path,
        typer.Argument(
            help="A run directory (of `olr train` or `olr rollouts`), or a Parquet/JSON table with prompt_id, visit,"
            " response and, if known, given_label."
        ),
    ],
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="FILE",
            help="Write the repaired data set to this new .parquet or .jsonl file.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="SOURCE",
            help="The data set that the rollouts of a table were sampled on. It supplies missing labels and the rows to"
            " export. Not needed for a run directory, which names its data set.",
        ),
    ] = None,
    trusted: Annotated[
        Path | None,
        typer.Option(
            "--trusted",
            metavar="FILE",
            help="Verified labels of some prompts that were drawn at random: a table with prompt_id and true_answer, or"
            " a data set. They recalibrate the confidence and measure how good it is.",
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            metavar="P",
            min=0.0,
            max=1.0,
            help="Change a label if the confidence that it is wrong is at least P and the proposal is more likely"
            " right. By default 0.5, or 0.9 if the confidence itself is doubtful.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            "--top", metavar="N", min=0, help="Number of prompts to show; by default 15, with --json all."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="How to read answers: data.extractor=NAME."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="New Parquet file for the table of all prompts."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")] = False,
) -> None:
    """Rank prompts by the confidence that their label is wrong, given stored rollouts, and repair the data set."""
    from olr_cli.analysis.audit import export as repair
    from olr_cli.analysis.audit import report
    from olr_cli.analysis.audit.audit import audit as examine
    from olr_cli.analysis.audit.files import audit_history, write_table
    from olr_cli.answers import Judge
    from olr_cli.data.readers import read_prompts

    require_new(out, "the table of prompts", as_json=json)
    if export is not None:
        repair.require_exportable(export)
    source = audit_history(history, set_ or [])
    named = None if data is None else read_prompts(data)
    rows = repair.data_of(source) if export is not None and named is None else named
    for note in source.notes:
        typer.echo(note, err=True)
    with Judge(ledger=source.given_up, keep=False) as judge:
        found = examine(source, judge, data=named, trusted=trusted, threshold=threshold)
        is_new = export is not None and rows is not None and repair.export(found, rows, export, judge)
    if json:
        import json as json_module

        typer.echo(json_module.dumps(report.plain(found, top), ensure_ascii=False))
        return
    # What was found is shown even where the table cannot be written.
    _show(found, 15 if top is None else top, is_exported=export is not None)
    table = write_table(found, out, data, set_ or [])
    given = (("--data", data), ("--trusted", trusted), ("--threshold", threshold))
    options = [word for name, value in given if value is not None for word in (name, str(value))]
    for line in report.ending(found, table, export, options, set_ or [], is_new=is_new):
        # Not wrapped: a path must stay in one piece.
        _console().print(_styled(*line), soft_wrap=True)


def _show(found: Audit, top: int, *, is_exported: bool) -> None:
    from rich.text import Text

    from olr_cli.analysis.audit import report

    console = _console()
    width = min(console.width, 120)
    for head, text in report.told(found):
        console.print(_styled(head, report.hanging(text, width)))
    if top and not report.ranked(found, top).is_empty():
        console.print()
        console.print(report.table(found, top, console.width))
        console.print(Text(report.hanging(report.legend(found), width, indent=0), "dim"))
    for note in report.notes(found):
        console.print(Text(report.hanging(note, width, indent=0)))
    console.print()
    for head, text in report.truth_lines(found, is_exported=is_exported):
        console.print(_styled(head, report.hanging(text, width)))


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def _styled(head: str, text: str) -> Text:
    """Text, not markup: prompts and labels are data."""
    from rich.text import Text

    from olr_cli.analysis.audit.report import HEAD

    return Text.assemble((head.ljust(HEAD), "bold"), (text, "yellow" if head == "Warning" else ""))
