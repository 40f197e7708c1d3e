"""`olr audit`: which labels look wrong, why, and how sure; the repaired data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from olr_cli.cli.options import JsonObject, LogColumns, read_log_columns, require_new
from olr_cli.cli.printing import Waiting, show


def audit(
    history: Annotated[
        list[Path],
        Argument(
            metavar="HISTORY...",
            help="A run directory (of `olr train` or `olr rollouts`), or the rollouts that another trainer logged: a"
            " folder, or Parquet/JSON files.",
        ),
    ],
    export: Annotated[
        Path | None,
        Option(metavar="FILE", help="Write the repaired data set to this new .parquet or .jsonl file."),
    ] = None,
    data: Annotated[
        str | None,
        Option(
            metavar="SOURCE",
            help="Data set that the rollouts of a log were sampled on: it supplies missing labels and the rows to"
            " export. A run directory names its own.",
        ),
    ] = None,
    columns: LogColumns = None,
    trusted: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Verified labels of some prompts that were drawn at random: a table with prompt_id and true_answer, or"
            " a data set. They recalibrate the confidence and measure how good it is.",
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        Option(
            metavar="P",
            min=0.0,
            max=1.0,
            help="Change only labels that are wrong with at least this confidence; by default all labels whose proposed"
            " replacement is more likely right.",
        ),
    ] = None,
    top: Annotated[
        int | None,
        Option(metavar="N", min=0, help="Number of prompts to show; by default 15, with --json all."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="KEY=VALUE",
            help="How to read answers, data.extractor=NAME; or the columns of --data and --trusted,"
            " data.columns={question: COLUMN, answer: COLUMN}.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option(metavar="FILE", help="New file for the table of all prompts: Parquet, or CSV (x.csv)."),
    ] = None,
    json: JsonObject = False,
) -> None:
    """Rank prompts by the confidence that their label is wrong, given stored rollouts, and repair the data set."""
    from contextlib import suppress
    from dataclasses import replace

    from olr_cli.analysis.audit import answer as answers
    from olr_cli.analysis.audit import export as repair
    from olr_cli.analysis.audit.audit import audit as examine
    from olr_cli.analysis.audit.audit import audit_history, data_reading
    from olr_cli.answers import Judge
    from olr_cli.data.prompt_files import read_prompts
    from olr_cli.data.prompts import repeat_notes
    from olr_cli.errors import UserError
    from olr_cli.tables import File

    require_new(out, "the table of prompts", as_json=json)
    if export is not None:
        repair.require_exportable(export)
    settings = set_ or []
    waiting = Waiting()
    source = audit_history(history, settings, read_log_columns(columns), waiting.say)
    named = None if data is None else read_prompts(data, reading=data_reading(source))
    rows = repair.data_of(source) if export is not None and named is None else named
    with Judge(ledger=source.given_up, keep=False, report=waiting.verified) as judge:
        result = examine(source, judge, data=named, trusted=trusted, threshold=threshold)
        is_new = export is not None and rows is not None and repair.export(result, rows, export, judge)
    waiting.done()
    notes = [*result.notes]
    with suppress(UserError):
        notes += [f"{note}." for note in repeat_notes(rows or repair.data_of(source, is_local=True))]
    answer = answers.audit_answer(result, top, notes, is_exported=export is not None)
    if json:
        show(answer, "json")
        return
    try:
        table = answers.write_prompts(result, out, data, settings)
    except UserError:
        show(answer)  # which must not be lost
        raise
    files = [File(table, " (a row for each prompt)")]
    if export is None:
        given = {"--data": data, "--trusted": trusted, "--threshold": threshold, "--columns": columns}
        options = [word for name, value in given.items() if value is not None for word in (name, str(value))]
        command: str | None = answers.export_command(history, options, settings)
    else:
        counts = {name: n for name, n in result.changes.items() if n or name != "added"}
        made = ", ".join(f"{n:,} {name}" for name, n in counts.items())
        files.append(File(export, f" ({made}{'' if is_new else '; already there with these bytes'})", is_new))
        command = answers.training_command(result, export, settings)
    show(replace(answer, files=files, next={} if command is None else {command: ""}))
