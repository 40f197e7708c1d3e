"""`olr analyze`: the paper's figures and tables, from run directories alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from olr_cli.cli.options import LogColumns, figures, require_new, shape_of, tables


def analyze(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN...",
            help="Run directories, or folders that contain runs; the rollouts that another trainer logged; for the"
            " paper's tables also evaluations of untrained models.",
            show_default=False,
        ),
    ] = None,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            "--figure",
            autocompletion=figures,
            help="Figure to draw: learning (reward, held-out accuracy, entropy, length, KL and more by step; the"
            " default), coherence, dynamics, composition, arms (what the arms come to, a dot a run), ablation (needs"
            " runs with several method.criteria),"
            " sensitivity (needs runs with several slope thresholds or warm-ups), noise (methods over the noise ratio),"
            " cost (time of each part of a step) or all (every figure that these runs allow); may be repeated.",
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            autocompletion=tables,
            help="Table to print: arms (compares arms, paired by seed; the default with several arms) or one of the"
            " paper's (noise_ratios, baselines, scale_4k, qwen3_8b, llama_8b, slope_sensitivity, warmup_sensitivity,"
            " ablation, cost).",
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option("--compare", metavar="paper", help="Add the published numbers to the paper's tables."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="ARM",
            help="For --table arms: the arm to compare the others with; by default the first.",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            metavar="ARM=LABEL",
            help="What to call an arm in figures, tables and the report, e.g. 'active+olr=Active, OLR'; may be"
            " repeated.",
        ),
    ] = None,
    columns: LogColumns = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR|FILE",
            help="Folder for the figures; by default figures/ in the run, or next to the runs if there are several. A"
            " name that ends in .csv is a new file for the table (by default arms) instead.",
        ),
    ] = None,
    newest: Annotated[
        bool,
        typer.Option("--newest", help="Of several runs of one arm and seed, take the newest; say which."),
    ] = False,
    report: Annotated[
        bool,
        typer.Option(
            "--report",
            help="Write everything into one HTML file, report.html: summary, figures, tables, and a list of prompts"
            " with their history.",
        ),
    ] = False,
    trusted: Annotated[
        Path | None,
        typer.Option(
            "--trusted",
            metavar="FILE",
            help="For --report: a file of verified labels for its audit, as of `olr audit`; what the report exports is"
            " one.",
        ),
    ] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="Format of the tables: terminal, markdown, latex, csv or json. With markdown, latex and csv, figures"
            " are drawn only if --figure names them.",
        ),
    ] = "terminal",
    json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
) -> None:
    """Draw figures of one run, or of several runs averaged over seeds, and compare arms."""
    from dataclasses import replace

    from olr_cli.analysis.request import Request, carry_out
    from olr_cli.cli.printing import show
    from olr_cli.files import write_text
    from olr_cli.tables import File, comma_separated

    csv_file = out if out is not None and out.suffix == ".csv" else None
    require_new(csv_file, "a table", as_json=False)
    request = Request(
        places=runs or [],
        figure=figure or [],
        table=table or ("arms" if csv_file else None),
        compare=compare,
        baseline=baseline,
        out=None if csv_file else out,
        report=report,
        shape=shape_of(format_, as_json=json),
        newest=newest,
        columns=columns or [],
        labels=label or [],
        trusted=trusted,
    )
    answer = carry_out(request)
    if csv_file is not None:
        (counted,) = answer.tables
        write_text(csv_file, comma_separated(counted) + "\n")
        answer = replace(answer, files=[*answer.files, File(csv_file)])
    show(answer, request.shape)
