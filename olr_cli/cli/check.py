"""`olr check`: what is wrong with a data set, before any model sees it."""

from __future__ import annotations

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
        help="The data set: a Parquet, JSON or CSV file, a folder of such files, or a hub id (org/name).",
    ),
    columns: str | None = options.DATA_COLUMNS,
    strict: bool = Option(
        False, "--strict", help="End with exit status 1 if anything is found, for scripts."
    ),
    json: bool = options.JSON_OBJECT,
) -> None:
    """Find labels that cannot be graded, contradictions and other defects of a data set, without a model."""
    from olr_cli.answers import Judge
    from olr_cli.data.check import check as check_data

    waiting = Waiting()
    with Judge(report=waiting.verified) as judge:
        checked = check_data(source, options.read_columns(columns), judge)
    waiting.done()
    show(_answer(checked, source, columns), "json" if json else "terminal")
    if strict and checked.findings:
        raise typer.Exit(1)


def _answer(checked: Checked, source: str, columns: str | None) -> Answer:
    from functools import partial
    from shlex import join

    from olr_cli.tables import Answer, Line, one_line

    read = ", ".join(f"{role} in {path}" for role, path in checked.columns.items())
    name = partial(checked.origins.name, is_short=True)
    counted = (
        " (counted from 1)" if any(name(it.rows[0]).startswith("row") for it in checked.findings) else ""
    )
    lines = [Line("Checked", f"{checked.source}: {checked.rows:,} rows{counted}; {read}")]
    for finding in checked.findings:
        more = ", …" if len(finding.rows) > len(finding.examples) else ""
        rows = ", ".join(map(name, finding.rows[: len(finding.examples)]))
        lines.append(Line("", f"{finding.says} ({rows}{more})"))
        texts = filter(None, dict.fromkeys(finding.examples))
        lines += [Line("", f"  {one_line(text, _WIDTH)}", "dim") for text in texts]
    if not checked.findings:
        lines.append(Line("", "Nothing was found that looks wrong."))
    data = {
        "source": checked.source,
        "rows": checked.rows,
        "columns": dict(checked.columns),
        "findings": [
            {"kind": it.kind, "count": len(it.rows), "rows": list(it.rows), "says": it.says}
            for it in checked.findings
        ],
    }
    data_set = join([source, *(() if columns is None else ("--columns", columns))])
    if checked.columns["answer"] == "given_label":
        following = {f"olr audit {data_set}": "which labels its answers contradict"}
    else:
        sampling = f"olr rollouts MODEL {data_set} --visits 4"
        following = {sampling: "then olr audit: which labels the answers contradict"}
    return Answer(lines, data, next=following, indent=9)
