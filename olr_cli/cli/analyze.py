"""`olr analyze`: the paper's figures and tables, from run directories alone."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from typer import Argument, Option

from olr_cli.cli import options


class Figures(NamedTuple):
    """Figures: options of `olr analyze` that choose the figures and how they are drawn."""

    figure: list[str] = Option(
        [],
        metavar="NAME",
        autocompletion=options.figures,
        help="Figure to draw; may be repeated. learning (the default): reward, held-out accuracy, entropy, length,"
        " KL and more by step; coherence, dynamics, composition: by epoch; arms: the result of each run by arm;"
        " all: every figure that these runs allow.",
    )
    over: list[str] = Option(
        [],
        metavar="KEY",
        help="Recipe key to draw the score at the end of training over, of runs that differ in nothing else but the"
        " seed: noise.ratio, method.criteria (the ablation), method.slope_threshold, method.warmup_epochs,"
        " train.learning_rate, …; may be repeated.",
    )
    no_caption: bool = Option(
        False,
        "--no-caption",
        help="Write nothing below the figures: LaTeX has captions of its own.",
    )
    pdf: bool = Option(
        False,
        "--pdf",
        help="Also write PDF (a single named figure always gets one).",
    )


class Tables(NamedTuple):
    """Tables: options of `olr analyze` that choose the tables and what the runs are compared with."""

    table: str | None = Option(
        None,
        metavar="NAME",
        autocompletion=options.tables,
        help="Table to print: arms (compares arms, paired by seed; the default with several arms) or one of the"
        " paper's (noise_ratios, baselines, scale_4k, qwen3_8b, llama_8b, slope_sensitivity, warmup_sensitivity,"
        " ablation, cost).",
    )
    paper: bool = Option(
        False, "--paper", help="Add the published numbers to the paper's tables."
    )
    baseline: str | None = Option(
        None,
        metavar="ARM",
        help="For --table arms: compare the other arms with this one; by default the first.",
    )
    reference: str | None = Option(
        None,
        metavar="ARM",
        help="For --table arms: compare an arm X+METHOD with the arm X, and say which share of the gap between X and"
        " this arm, such as clean, METHOD recovers.",
    )


class Runs(NamedTuple):
    """Runs: options of `olr analyze` that say how logs are read, and how runs are named and chosen."""

    columns: list[str] = options.LOG_COLUMNS
    label: list[str] = Option(
        [],
        metavar="ARM=LABEL",
        help="Name of an arm in figures, tables and the report, e.g. 'active+olr=Active, OLR'; may be repeated.",
    )
    newest: bool = Option(
        False,
        "--newest",
        help="If several runs have the same arm and seed, take the newest, and say which.",
    )


class Output(NamedTuple):
    """Output: options of `olr analyze` that choose what is written, where, and in which form."""

    report: bool = Option(
        False,
        "--report",
        help="Write one HTML file, report.html: summary, figures, tables, and prompts with their history.",
    )
    verified: Path | None = Option(
        None,
        metavar="FILE",
        help="For --report: verified labels for its audit, as in `olr audit`; a report's export is one.",
    )
    out: Path | None = Option(
        None,
        metavar="DIR|FILE",
        help="Folder for the figures; by default figures/ in the run, or next to the runs if there are several. A"
        " new file whose name ends in .csv gets the table (by default arms) instead.",
    )
    format_: str = Option(
        "terminal",
        "--format",
        metavar="NAME",
        help="Format of the tables: terminal, markdown, latex or csv. With the last three, figures are drawn only"
        " if --figure names them.",
    )
    json: bool = options.JSON_OBJECT


@options.grouped
def analyze(
    runs: list[Path] | None = Argument(
        None,
        metavar="RUN",
        help="Run directories, or folders that contain runs; the rollouts that another trainer logged; for the"
        " paper's tables also evaluations of untrained models.",
    ),
    *,
    figures: Figures,
    tables: Tables,
    runs_: Runs,
    output: Output,
) -> None:
    """Draw figures of one run, or of several runs averaged over seeds, and compare arms."""
    from olr_cli.analysis.request import Request, carry_out
    from olr_cli.cli.printing import show

    shape = options.shape_of(output.format_, as_json=output.json)
    asked = options.given(figures, tables, runs_)
    asked |= {name: options.read_list(asked[name]) for name in ("figure", "over")}
    asked["columns"] = options.read_log_columns(runs_.columns)
    # `--out x.csv` is a table and `--out DIR` a folder of figures: one option for both, told apart by the suffix.
    if output.out is not None and output.out.suffix == ".csv":
        asked |= {"csv": output.out, "table": tables.table or "arms"}
    else:
        asked["out"] = output.out
    request = Request(
        runs or [], **asked, report=output.report, verified=output.verified, shape=shape
    )
    answer = carry_out(request)
    # The next command repeats the words that the user typed. If a program calls this function, there are none.
    if sys.argv[1:2] == ["analyze"]:
        again = shlex.join(["olr", *sys.argv[1:]])
        following = {
            it.replace("the same command with", again): why
            for it, why in answer.next.items()
        }
        answer = replace(answer, next=following)
    show(answer, shape)
