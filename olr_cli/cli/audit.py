"""`olr audit`: a queue of doubtful labels for people; what is left of the data set."""

from __future__ import annotations

import re
from pathlib import Path

from typer import Argument, Option

from olr_cli.cli import options
from olr_cli.cli.printing import Waiting, show


def audit(
    history: list[Path] = Argument(
        metavar="HISTORY",
        help="A run directory (of `olr train` or `olr rollouts`), or answers that anybody logged: a folder, or"
        " Parquet/JSON/CSV files. A column `model` or `policy` tells several models apart.",
    ),
    export: Path | None = Option(
        None,
        metavar="FILE",
        help="Write the data set with what was found to this new .parquet or .jsonl file; the options below choose"
        " its rows.",
    ),
    drop: str | None = Option(
        None, metavar="STATUS,...", help="Leave these rows out, as in doubted,questionable."
    ),
    only: str | None = Option(
        None,
        metavar="STATUS,...",
        help="Keep only these rows, to be checked.",
    ),
    first: int | None = Option(
        None, metavar="N", min=1, help="Keep only the first N rows of the queue, to be checked."
    ),
    random: int | None = Option(
        None, metavar="N", min=1, help="Keep only N rows drawn at random, to be checked."
    ),
    seed: int = Option(0, metavar="N", help="Random seed of that draw."),
    pass_rate: str | None = Option(
        None,
        metavar="LOW:HIGH",
        help="Keep rows whose label this share of the rollouts gives, as in 0.1:0.9.",
    ),
    repair: bool = Option(
        False,
        "--repair",
        help="Replace labels where verified labels show that more of them are right then; fill in missing ones.",
    ),
    verified: list[Path] | None = Option(
        None,
        metavar="FILE",
        help="Verified labels: a table with prompt_id and true_answer, or an export with corrected labels. Rows"
        " with true in a column drawn (as of --random 25) also estimate the noise ratio. May be repeated.",
    ),
    data: str | None = Option(
        None,
        metavar="SOURCE",
        help="The data set whose questions a log answers: supplies labels that the log lacks, and the rows to"
        " export. A run directory needs none.",
    ),
    rewards: bool = Option(
        False,
        "--rewards",
        help="Audit the rewards in place of the labels: how often they contradict the grader, and by what answers;"
        " --out writes the queue with a column verdict (right, wrong, cannot be scored), which --verified reads.",
    ),
    columns: str | None = options.LOG_COLUMNS,
    top: int | None = Option(
        None, metavar="N", min=0, help="Number of rows to show; by default 15, with --json all."
    ),
    set_: list[str] | None = Option(
        None,
        "--set",
        metavar="KEY=VALUE",
        help="How to read answers, data.extractor=NAME; or the columns of --data and --verified,"
        " data.columns={question: COLUMN, answer: COLUMN}.",
    ),
    out: Path | None = Option(
        None, metavar="FILE", help="New file for the table of all prompts: Parquet, or CSV (x.csv)."
    ),
    report: Path | None = Option(
        None,
        metavar="FILE.html",
        help="Write the queue as a page in which labels are checked with a few keys; --verified reads what it"
        " exports.",
    ),
    json: bool = options.JSON_OBJECT,
) -> None:
    """Rank prompts by how doubtful their label is, given stored answers; write what is left of the data set."""
    from contextlib import suppress
    from dataclasses import replace
    from functools import partial

    from olr_cli.analysis.audit import answer as answers
    from olr_cli.analysis.audit import export as exports
    from olr_cli.analysis.audit.audit import audit as examine
    from olr_cli.analysis.audit.audit import audit_history, data_reading, with_labels_of
    from olr_cli.analysis.audit.rewards import audit_rewards, rewards_answer, write_queue_table
    from olr_cli.analysis.report.texts import Sampled
    from olr_cli.answers import Judge
    from olr_cli.data.check import repeat_notes
    from olr_cli.data.prompt_files import read_prompts
    from olr_cli.errors import UserError
    from olr_cli.files import require_new
    from olr_cli.tables import File

    options.require_no_file(out, "the table of prompts", as_json=json)
    require_new({"export": export, "report": report, "out": out}, repeatable=["export"])
    if report is not None and report.suffix != ".html":
        raise UserError(f"--report {report}: the queue is written as a page; give it the ending .html")
    if only is not None and (count := re.fullmatch("(first|random):([0-9]+)", only)):
        raise UserError(f"--only {only} is now --{count[1]} {count[2]}")
    choice = exports.Choice.of(drop, only, pass_rate, first=first, random=random, seed=seed, repair=repair)
    if export is not None:
        exports.require_exportable(export)
    elif choice != exports.Choice(seed=seed):
        raise UserError(
            "--drop, --only, --first, --random, --pass-rate and --repair choose the rows of --export FILE; add it"
        )
    settings = set_ or []
    waiting = Waiting()
    log_columns = options.read_log_columns(columns)
    if rewards and (choice != exports.Choice(seed=seed) or export is not None or report is not None):
        raise UserError(
            "--rewards takes --columns, --data, --set, --out, --verified and --top; leave the others out"
        )
    source = audit_history(
        history, settings, log_columns, waiting.say, keeps_responses=rewards or report is not None
    )
    named = None if data is None else read_prompts(data, reading=data_reading(source))
    if named is not None:
        source = with_labels_of(source, named)
    if rewards:
        with Judge(ledger=source.given_up, keep=False, tolerance=source.recipe.data.tolerance) as judge:
            of_rewards = audit_rewards(source, judge, verified or ())
        waiting.done()
        answer = rewards_answer(of_rewards, top)
        if out is not None:
            write_queue_table(of_rewards, out)
            answer = replace(answer, files=[File(out, " (fill in the column verdict; --verified reads it)")])
        show(answer, "json" if json else "terminal")
        return
    sampled = Sampled(source.steps)
    source = replace(source, steps=sampled)
    rows = exports.data_of(source) if export is not None and named is None else named
    given = [("--data", data), ("--columns", columns)]
    given += [("--verified", str(file)) for file in verified or ()]
    given += [("--set", setting) for setting in settings]
    repeated = [word for name, value in given if value is not None for word in (name, value)]
    again = partial(answers.audit_command, history, repeated)
    files: list[File] = []
    is_new, kept = False, 0
    tolerance = source.recipe.data.tolerance
    with Judge(ledger=source.given_up, keep=False, tolerance=tolerance, report=waiting.verified) as judge:
        result = examine(source, judge, verified=verified or ())
        answer = answers.audit_answer(result, top)
        notes = [*answer.notes]
        if export is not None and rows is not None:
            why = exports.require_repairable(result) if repair else None
            notes += [] if why is None else [f"Unverified labels stay as they are: {why}."]
            is_new, kept = exports.export(result, rows, export, judge, choice)
        if rows is not None:
            notes += filter(None, [exports.unjudged_note(result, rows, choice)])
        if report is not None:
            from olr_cli.analysis.report.page import write_queue

            answer = replace(answer, notes=notes)
            notes += write_queue(source, result, answer, judge, report, again(), sampled.responses)
            files.append(File(report, " (the queue, for any browser)"))
    waiting.done()
    with suppress(UserError):
        data_set = rows or exports.data_of(source, is_local=True)
        notes += [f"{note}." for note in (*(named.notes if named else ()), *repeat_notes(data_set))]
    answer = replace(answer, notes=notes)
    if json:
        show(answer, "json")
        return
    if out is not None:
        try:
            answers.write_prompts(result, out)
        except UserError:
            show(answer)  # which must not be lost
            raise
        files.append(File(out, " (a row for each prompt)"))
    following: dict[str, str] = {}
    if export is None or rows is None:
        if report is None:
            following[again("--report", "queue.html")] = "check labels in a browser"
        elif not verified:
            following[again("--verified", "selection.json")] = "once labels are checked there and exported"
        following[again("--drop", "doubted,questionable", "--export", "rest.jsonl")] = "what is left"
    else:
        changes = result.changes if repair else {}
        made = "".join(
            f", {n:,} label{'s' * (n != 1)} {name}" for name, n in changes.items() if n and name != "kept"
        )
        files.append(File(export, f" ({kept:,} of {len(rows):,} rows{made})", is_new))
        if choice.is_to_check:
            following[again("--verified", str(export))] = "once its labels are corrected"
        elif (command := answers.training_command(result, export, settings)) is not None:
            following[command] = ""
    show(replace(answer, files=files, next=following))
