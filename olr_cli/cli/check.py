"""`olr check`: what is wrong with a data set, before any model sees it, and the rows without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer import Argument, Option

from olr_cli.cli import options
from olr_cli.cli.printing import Waiting, show

if TYPE_CHECKING:
    from olr_cli.data.check import Checked
    from olr_cli.tables import Answer

_WIDTH = 60


def check(
    source: str = Argument(
        metavar="SOURCE",
        help="The data set: a Parquet, JSON or CSV file, a folder of them, a hub id (org/name), or a built-in set.",
    ),
    columns: str | None = options.DATA_COLUMNS,
    export: Path | None = Option(
        None,
        metavar="FILE",
        help="Write the rows without defects to this new file: .parquet, .jsonl, or CSV of CSV.",
    ),
    drop: str | None = Option(
        None,
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
    from olr_cli.data.check import UNUSABLE
    from olr_cli.data.check import check as check_data
    from olr_cli.data.writers import require_writable, write_rows
    from olr_cli.errors import UserError
    from olr_cli.files import require_new
    from olr_cli.tables import File

    require_new({"export": export})
    if export is not None:
        require_writable(export, source)
    elif drop is not None:
        raise UserError("--drop chooses the rows of --export FILE; add it")
    waiting = Waiting()
    with Judge(report=waiting.verified) as judge:
        checked = check_data(source, options.read_columns(columns), judge)
    waiting.done()
    answer = _answer(checked, source, columns, export)
    if export is not None:
        if checked.columns["answer"] == "given_label":
            raise UserError(f"{source} is a log of answers; olr audit exports what is left of it", "export")
        dropped = [] if drop is None else [kind.strip() for kind in drop.split(",")]
        kept = checked.without([*UNUSABLE, *dropped])
        write_rows(checked.rows, kept, export)
        files = [File(export, f" ({len(kept):,} of {len(checked.rows):,} rows)")]
        answer = replace(answer, files=files)
    show(answer, "json" if json else "terminal")
    if strict and checked.findings:
        raise typer.Exit(1)


def _answer(checked: Checked, source: str, columns: str | None, export: Path | None) -> Answer:
    from functools import partial
    from shlex import join

    from olr_cli.data.check import UNUSABLE
    from olr_cli.tables import Answer, Line, one_line

    read = ", ".join(f"{role} in {path}" for role, path in checked.columns.items())
    name = partial(checked.rows.origins.name, is_short=True)
    counted = (
        " (counted from 1)" if any(name(it.rows[0]).startswith("row") for it in checked.findings) else ""
    )
    size = len(checked.rows)
    lines = [Line("Checked", f"{checked.source}: {size:,} row{'s' * (size != 1)}{counted}; {read}")]
    for finding in checked.findings:
        more = ", …" if len(finding.rows) > len(finding.examples) else ""
        rows = ", ".join(map(name, finding.rows[: len(finding.examples)]))
        lines.append(Line(finding.kind, f"{finding.says} ({rows}{more})"))
        texts = filter(None, dict.fromkeys(finding.examples))
        lines += [Line("", f"  {one_line(text, _WIDTH)}", "dim") for text in texts]
    if not checked.findings:
        lines.append(Line("", "Nothing was found that looks wrong."))
    data = {
        "source": checked.source,
        "rows": len(checked.rows),
        "columns": dict(checked.columns),
        "findings": [
            {"kind": it.kind, "count": len(it.rows), "rows": list(it.rows), "says": it.says}
            for it in checked.findings
        ],
    }
    data_set = join([str(export or source), *(() if columns is None else ("--columns", columns))])
    if checked.columns["answer"] == "given_label":
        following = {f"olr audit {data_set}": "which labels its answers contradict"}
    else:
        sampling = f"olr rollouts MODEL {data_set} --visits 4"
        following = {sampling: "then olr audit: which labels the answers contradict"}
        if export is None and any(finding.kind in UNUSABLE for finding in checked.findings):
            suffix = Path(source).suffix if Path(source).suffix in (".csv", ".tsv", ".parquet") else ".jsonl"
            following = {f"olr check {data_set} --export clean{suffix}": "without what cannot be graded"}
    return Answer(lines, data, next=following, indent=14)
