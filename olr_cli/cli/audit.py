"""`olr audit`: a queue of doubtful labels to check, and an export of the data set without them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from typer import Argument, Option

from olr_cli.cli import options
from olr_cli.cli.printing import Waiting, show


class Known(NamedTuple):
    """More input: options of `olr audit` that give the data set and verified labels, and say how they are read."""

    data: str | None = Option(
        None,
        metavar="SOURCE",
        help="The data set whose questions a log answers: supplies labels that the log lacks, and the rows to"
        " export. A run directory needs none.",
    )
    columns: list[str] = options.LOG_COLUMNS
    benchmark: str | None = Option(
        None,
        metavar="NAME",
        help="Of evaluations with several benchmarks: the one whose keys are audited.",
    )
    set_: list[str] = Option(
        [],
        "--set",
        metavar="KEY=VALUE",
        help="How to read answers, data.extractor=NAME; or --data and --verified: data.columns={question: COLUMN,"
        " answer: COLUMN}, data.decimal_comma=true, data.encoding=NAME.",
    )
    verified: list[Path] = Option(
        [],
        metavar="FILE",
        help="Verified labels: a table with prompt_id and true_answer, or an export with corrected labels. Rows"
        " with true in a column drawn (as of --random 25) also estimate the noise ratio. May be repeated.",
    )


class Rows(NamedTuple):
    """Export: options of `olr audit` that choose the rows of the data set to export."""

    export: Path | None = Option(
        None,
        metavar="FILE",
        help="Write the data set with what was found to this new .parquet or .jsonl file, that of a CSV file also as"
        " CSV; these options choose its rows.",
    )
    drop: list[str] = Option(
        [],
        metavar="STATUS,...",
        help="Leave these rows out, as in doubted,questionable (the labels of many may be right).",
    )
    only: list[str] = Option(
        [], metavar="STATUS,...", help="Keep only these rows, to be checked."
    )
    first: int | None = Option(
        None,
        metavar="N",
        min=1,
        help="Keep only the first N rows of the queue, to be checked.",
    )
    random: int | None = Option(
        None, metavar="N", min=1, help="Keep only N rows drawn at random, to be checked."
    )
    seed: int = Option(0, metavar="N", help="Random seed of that draw.")
    pass_rate: str | None = Option(
        None,
        metavar="LOW:HIGH",
        help="Keep rows whose label this share of the rollouts gives, as in 0.1:0.9.",
    )
    repair: bool = Option(
        False,
        "--repair",
        help="Replace labels if verified labels show that this makes more labels right; fill in missing ones.",
    )


class Output(NamedTuple):
    """Output: options of `olr audit` that choose what is written besides the export, and where."""

    rewards: bool = Option(
        False,
        "--rewards",
        help="Audit the rewards in place of the labels: how often they contradict the grader, and by what answers;"
        " --out writes the queue with a column verdict (right, wrong, cannot be scored), which --verified reads.",
    )
    as_recipe: Path | None = Option(
        None,
        metavar="[FILE.yaml]",
        help="With --rewards: print the measured verifier as a section of a recipe; or write a recipe that trains with"
        " its errors and without.",
    )
    top: int | None = Option(
        None,
        metavar="N",
        min=0,
        help="Number of rows to show; by default 15, none beside an export or page, with --json all. With --rewards"
        " also of those that were paid most.",
    )
    out: Path | None = Option(
        None,
        metavar="FILE",
        help="New file for the table of all prompts: Parquet, or CSV (x.csv).",
    )
    report: Path | None = Option(
        None,
        metavar="FILE.html",
        help="Write the queue as a page in which labels are checked with a few keys; --verified reads what it"
        " exports.",
    )
    json: bool = options.JSON_OBJECT


@options.grouped
def audit(
    history: list[Path] = Argument(
        metavar="HISTORY",
        help="A run directory (of `olr train` or `olr rollouts`; several of `olr rollouts` on one data set are as many"
        " models), answers that anybody logged (a folder, or Parquet/JSON/CSV files; a column `model` or `policy` tells"
        " several models apart), or evaluations (of `olr evaluate`) of several models, each or their folder.",
    ),
    *,
    known: Known,
    rows: Rows,
    output: Output,
) -> None:
    """Rank prompts by how doubtful their label is, given stored answers; write what is left of the data set."""
    from olr_cli.analysis.audit.export import Choice
    from olr_cli.analysis.audit.request import Request, carry_out
    from olr_cli.errors import UserError

    options.require_no_file(output.out, "the table of prompts", as_json=output.json)
    # Early versions wrote `--only first:25`.
    if count := re.fullmatch("(first|random):([0-9]+)", ",".join(rows.only)):
        raise UserError(
            f"--only takes statuses, and {count[0]} is none",
            f"write --{count[1]} {count[2]}",
        )
    asked = options.given(known, output)
    asked["columns"], as_json = options.read_log_columns(known.columns), asked.pop("json")
    choice = rows._asdict() | {
        name: options.read_list(getattr(rows, name)) for name in ("drop", "only")
    }
    export = choice.pop("export")
    # `carry_out` also gets `show`: if the table of --out cannot be written, the audit is still printed.
    waiting = Waiting()
    request = Request(history, **asked, choice=Choice(**choice), export=export)
    answer = carry_out(request, waiting.say, show)
    waiting.done()
    show(answer, "json" if as_json else "terminal")
