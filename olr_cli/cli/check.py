"""`olr check`: the defects of a data set, found without a model, and an export of the rows without them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer import Argument, Option

from olr_cli.cli import options
from olr_cli.cli.printing import Waiting, show
from olr_cli.tables import Answer, Line, one_line

if TYPE_CHECKING:
    from olr_cli.data.check import Checked, Limit

_WIDTH = 60
"""Characters of an example that are shown."""

_KEEPS_COMMAS = "The export has the labels as they stand in the file: train on it with data.decimal_comma=true."


def check(
    source: str | None = Argument(
        None,
        metavar="SOURCE",
        help="The data set: a Parquet, JSON or CSV file, a folder of them, a hub id (org/name), or a built-in set.",
    ),
    *,
    columns: list[str] = options.DATA_COLUMNS,
    decimal_comma: bool = options.DECIMAL_COMMA,
    encoding: str = options.ENCODING,
    model: str | None = Option(
        None,
        metavar="MODEL",
        help="Find questions longer than 2048 tokens as this model reads them (a folder, hub id or built-in policy);"
        " without it, than 8192 characters.",
    ),
    trust_remote_code: bool = options.TRUST_REMOTE_CODE,
    export: Path | None = Option(
        None,
        metavar="FILE",
        help="Write the rows without defects to this new file: .parquet, .jsonl, or CSV of CSV.",
    ),
    drop: list[str] = Option(
        [],
        metavar="FINDING,...",
        help="With --export: also leave out the rows of these findings (names as printed), or of all.",
    ),
    strict: bool = Option(
        False, "--strict", help="End with exit status 1 if anything is found, for scripts."
    ),
    allow: list[str] = Option(
        [],
        metavar="FINDING,...",
        help="With --strict: findings that may be there (names as printed).",
    ),
    explain: str | None = Option(
        None,
        metavar="FINDING",
        help="Print what a finding means, why it matters, an example and what to do; no data set is needed.",
    ),
    json: bool = options.JSON_OBJECT,
) -> None:
    """Find labels that cannot be graded, contradictions and other defects of a data set, without a model."""
    from olr_cli.answers import Judge
    from olr_cli.data.check import check as check_data
    from olr_cli.data.prompt_files import Reading
    from olr_cli.data.writers import require_writable
    from olr_cli.errors import UserError
    from olr_cli.files import require_new

    shape = "json" if json else "terminal"
    if explain is not None:
        if any((source, columns, export, drop, strict, model, decimal_comma)):
            raise UserError(
                "this explains a finding, and checks no data set",
                "leave the rest out",
                "explain",
            )
        show(_explanation(explain), shape)
        return
    # typer cannot require SOURCE, because --explain needs none.
    if source is None:
        raise UserError(
            "missing argument 'SOURCE'", "`olr check --help` lists what it takes"
        )
    if drop and export is None:
        raise UserError("--drop chooses the rows of --export FILE", "add it")
    allowed = _allowed(allow, strict=strict)
    require_new({"export": export}, repeatable=["export"])
    require_writable(export, source)
    reading = Reading(
        options.read_columns(columns), decimal_comma=decimal_comma, encoding=encoding
    )
    waiting = Waiting()
    with Judge(report=waiting.say) as judge:
        checked = check_data(
            source, reading, judge, _limit(model, trust_remote_code=trust_remote_code)
        )
    waiting.done()
    files, notes = [], [f"{note}." for note in checked.notes]
    if export is not None:
        files = [checked.export(export, options.read_list(drop))]
        notes += [_KEEPS_COMMAS] * decimal_comma
        # The export is UTF-8, so the next command needs no --encoding for it.
        reading = replace(reading, encoding=None)
    words = [str(export or source), *reading.options]
    following = _next(checked, source, words, export)
    show(Answer([*_lines(checked)], checked, notes, files, following, indent=16), shape)
    # Last, so that --strict still prints the findings and writes the export.
    if strict and not allowed.issuperset(map(attrgetter("kind"), checked.findings)):
        raise typer.Exit(1)


def _allowed(allow: Sequence[str], *, strict: bool) -> set[str]:
    """Return the kinds of findings that `--allow` names; empty if it is not given.

    Raises:
        UserError: there is no such kind, or `--allow` is given without `--strict`.
    """
    from olr_cli.data.findings import kind_named
    from olr_cli.errors import UserError

    if allow and not strict:
        raise UserError("--allow says what --strict lets pass", "add --strict")
    return {kind_named(kind, "allow").kind for kind in options.read_list(allow)}


def _limit(model: str | None, *, trust_remote_code: bool) -> Limit:
    """Return the length above which a prompt is too long, together with its unit and how to measure it.

    Without a model, lengths are counted in characters. With one, they are counted in its tokens, and the limit is the
    default of `train.max_prompt_tokens`.

    Args:
        model: a folder, hub id or built-in policy; None for no model.
        trust_remote_code: whether the model's own code may be run to load its tokenizer.
    """
    from olr_cli.data.check import CHARACTERS, Limit

    if model is None:
        return CHARACTERS
    from olr_cli.engines.models import load_tokenizer, model_location
    from olr_cli.engines.prompt_text import token_ids_of
    from olr_cli.recipe.sections import TrainSection

    tokenizer = load_tokenizer(model_location(model), trust_remote_code=trust_remote_code)
    most = TrainSection().max_prompt_tokens
    return Limit(most, "tokens", lambda prompts: map(len, token_ids_of(tokenizer, prompts)))


def _explanation(kind: str) -> Answer:
    """Return the output of `--explain` for a kind of finding: its meaning, an example and what to do."""
    from olr_cli.data.findings import kind_named

    finding = kind_named(kind, "explain")
    option = "--export FILE" if finding.is_unusable else f"--export FILE --drop {kind}"
    examples = finding.example.split("\n")
    lines = [
        Line(kind, finding.fault, is_wrapped=True),
        Line("Why", finding.why, is_wrapped=True),
        *(Line("" if place else "Example", row) for place, row in enumerate(examples)),
        Line("What to do", finding.remedy, is_wrapped=True),
        Line("", f"`olr check SOURCE {option}` leaves such rows out.", "dim"),
    ]
    return Answer(lines, finding._asdict(), indent=15)


def _lines(checked: Checked) -> Iterator[Line]:
    """Yield the lines of output: the columns that were read, then the findings with their rows and examples."""
    size, name = checked.rows, partial(checked.table.origins.name, is_short=True)
    read = ", ".join(f"{role} in {path}" for role, path in checked.columns.items())
    # Rows of a Parquet file are numbered; those of other files are named by their line.
    counted = " (counted from 1)" * any(
        name(it.rows[0]).startswith("row") for it in checked.findings
    )
    unread = f"; not read: {', '.join(checked.not_read)}" if checked.not_read else ""
    yield Line(
        "Checked",
        f"{checked.source}: {size:,} row{'s' * (size != 1)}{counted}; {read}{unread}",
    )
    for finding in checked.findings:
        more = ", …" if len(finding.rows) > len(finding.examples) else ""
        rows = ", ".join(map(name, finding.rows[: len(finding.examples)]))
        yield Line(finding.kind, f"{finding.says} ({rows}{more})")
        for text in filter(None, dict.fromkeys(finding.examples)):
            yield Line("", f"  {one_line(text, _WIDTH)}", "dim")
    if not checked.findings:
        yield Line("", "Nothing was found that looks wrong.")


def _next(
    checked: Checked, source: str, words: Sequence[str], export: Path | None
) -> dict[str, str]:
    """Return the command that `olr check` proposes at its end, as a dictionary with one item: command -> its purpose.

    If the source is a log of rollouts, the command is `olr audit`. If some rows cannot be graded and `--export` was not
    given, it is `olr check --export`. Else it is `olr rollouts`.

    Args:
        checked: the findings.
        source: the data set as the user wrote it; its ending decides the format of the proposed export.
        words: arguments of the proposed command: the data set (or its export), and options on how to read it.
        export: the file that `--export` has written; None if there is none.
    """
    from olr_cli.data.findings import UNUSABLE
    from olr_cli.data.writers import csv_suffix

    data_set = shlex.join(words)
    if checked.is_log:
        return {f"olr audit {data_set}": "which labels its answers contradict"}
    if export is None and any(finding.kind in UNUSABLE for finding in checked.findings):
        suffix = csv_suffix(source) or (
            ".parquet" if source.endswith(".parquet") else ".jsonl"
        )
        return {
            f"olr check {data_set} --export clean{suffix}": "without what cannot be graded"
        }
    sampling = f"olr rollouts MODEL {data_set} --visits 4"
    return {sampling: "then olr audit: which labels the answers contradict"}
