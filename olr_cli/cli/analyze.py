"""`olr analyze`: the paper's figures and tables, from run directories alone."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option

from olr_cli.cli import options


def analyze(
    runs: list[Path] | None = Argument(
        None,
        metavar="RUN",
        help="Run directories, or folders that contain runs; the rollouts that another trainer logged; for the"
        " paper's tables also evaluations of untrained models.",
    ),
    figure: list[str] | None = Option(
        None,
        metavar="NAME",
        autocompletion=options.figures,
        help="Figure to draw; may be repeated. learning (the default): reward, held-out accuracy, entropy, length,"
        " KL and more by step; coherence, dynamics, composition: by epoch; arms: the result of each run by arm;"
        " all: every figure that these runs allow.",
    ),
    over: list[str] | None = Option(
        None,
        metavar="KEY",
        help="Recipe key to draw the score at the end of training over, of runs that differ in nothing else but the"
        " seed: noise.ratio, method.criteria (the ablation), method.slope_threshold, method.warmup_epochs,"
        " train.learning_rate, …; may be repeated.",
    ),
    table: str | None = Option(
        None,
        metavar="NAME",
        autocompletion=options.tables,
        help="Table to print: arms (compares arms, paired by seed; the default with several arms) or one of the"
        " paper's (noise_ratios, baselines, scale_4k, qwen3_8b, llama_8b, slope_sensitivity, warmup_sensitivity,"
        " ablation, cost).",
    ),
    paper: bool = Option(False, "--paper", help="Add the published numbers to the paper's tables."),
    baseline: str | None = Option(
        None,
        metavar="ARM",
        help="For --table arms: compare the other arms with this one; by default the first.",
    ),
    reference: str | None = Option(
        None,
        metavar="ARM",
        help="For --table arms: compare an arm X+METHOD with the arm X, and say which share of the gap between X and"
        " this arm, such as clean, METHOD recovers.",
    ),
    label: list[str] | None = Option(
        None,
        metavar="ARM=LABEL",
        help="Name of an arm in figures, tables and the report, e.g. 'active+olr=Active, OLR'; may be repeated.",
    ),
    columns: str | None = options.LOG_COLUMNS,
    out: Path | None = Option(
        None,
        metavar="DIR|FILE",
        help="Folder for the figures; by default figures/ in the run, or next to the runs if there are several. A"
        " new file whose name ends in .csv gets the table (by default arms) instead.",
    ),
    no_caption: bool = Option(
        False, "--no-caption", help="Write nothing below the figures: LaTeX has captions of its own."
    ),
    newest: bool = Option(
        False, "--newest", help="If several runs have the same arm and seed, take the newest, and say which."
    ),
    report: bool = Option(
        False,
        "--report",
        help="Write one HTML file, report.html: summary, figures, tables, and prompts with their history.",
    ),
    verified: Path | None = Option(
        None,
        metavar="FILE",
        help="For --report: verified labels for its audit, as in `olr audit`; a report's export is one.",
    ),
    format_: str = Option(
        "terminal",
        "--format",
        metavar="NAME",
        help="Format of the tables: terminal, markdown, latex or csv. With the last three, figures are drawn only"
        " if --figure names them.",
    ),
    json: bool = options.JSON_OBJECT,
) -> None:
    """Draw figures of one run, or of several runs averaged over seeds, and compare arms."""
    from dataclasses import replace

    from olr_cli.analysis.request import Request, carry_out
    from olr_cli.cli.printing import show
    from olr_cli.files import make_folder_of, require_new, write_text
    from olr_cli.tables import File, comma_separated

    csv_file = out if out is not None and out.suffix == ".csv" else None
    require_new({"out": csv_file})
    request = Request(
        places=runs or [],
        figure=figure or [],
        over=over or [],
        table=table or ("arms" if csv_file else None),
        paper=paper,
        baseline=baseline,
        reference=reference,
        out=None if csv_file else out,
        report=report,
        shape=options.shape_of(format_, as_json=json),
        newest=newest,
        columns=options.read_log_columns(columns),
        labels=label or [],
        verified=verified,
        captions=not no_caption,
    )
    answer = carry_out(request)
    if csv_file is not None:
        (counted,) = answer.tables
        make_folder_of(csv_file)
        write_text(csv_file, comma_separated(counted) + "\n")
        answer = replace(answer, files=[*answer.files, File(csv_file)])
    show(answer, request.shape)
