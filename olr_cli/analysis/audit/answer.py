"""An audit as an answer: a few sentences and the queue, everything for JSON, and the table of all prompts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl
from rich.cells import cell_len, set_cell_size

from olr_cli.analysis.audit.audit import Audit
from olr_cli.data.prompts import NEVER_REWARDED
from olr_cli.data.writers import write_csv
from olr_cli.files import write_new
from olr_cli.tables import Answer, Block, Cell, Column, Line, Row, Table, one_line

_INDENT, _WIDTH = 12, 80
_WIDEST = 30
_QUESTION = 76
"""Characters of a question below its prompt, so that it stays on one line."""

_ROWS = 15
_TIES = 3
"""Number of groups of equally doubtful rows that the sentence about them names."""

_line = partial(Line, is_wrapped=True)
_TEXTS = ("prompt", "label", "answered instead", "status")
"""Columns that are cut so that the numbers fit."""

NOT_VERIFIED = (
    "Not verified. Check the first 25 rows, or 25 of a random draw for a noise ratio: --report queue.html, then"
    " --verified selection.json."
)


def audit_answer(audit: Audit, top: int | None, *, is_brief: bool = False) -> Answer:
    """Return the output of `olr audit`, with a summary and a queue of the labels, the most doubtful first.

    Args:
        audit: the result of the audit.
        top: number of rows of the queue. If None, JSON has all rows, and a terminal the first 15.
        is_brief: whether a terminal shows no rows at all.
    """
    parts: list[Line | Table | str] = [*_summary(audit)]
    size = 0 if is_brief else _ROWS if top is None else top
    table = queue(audit, size)
    if table.blocks[0].rows:
        parts += ["", table, "", *_tie_note(audit.ties, size)]
    shown = replace(audit, prompts=stored(audit))
    if top is not None:
        ties = [tie for tie in audit.ties if tie[0] <= top]
        shown = replace(shown, prompts=shown.prompts.head(top), ties=ties)
    return Answer(parts, shown, audit.notes, indent=_INDENT)


# The summary ------------------------------------------------------------------------------------------------------


def _summary(audit: Audit) -> Iterator[Line]:
    size = len(audit.prompts)
    models, voters = len(audit.tally.models), int(audit.model.is_voter.sum())
    several = f" by {models} models" if models > 1 else ""
    several += f" (the best {voters} vote)" if voters < models else ""
    yield _line(
        "Audited",
        f"{size:,} prompt{'s' * (size != 1)}, {_count_range(audit.prompts['rollouts'], 'rollout')} of each{several}"
        f" in {_count_range(audit.prompts['visits'], 'visit')}",
    )
    meanings = {
        "questionable": "questionable (no answer has a majority)",
        "missing": "without a label",
    }
    counts = {name: count for name, count in audit.labels.items() if count}
    texts = [f"{count:,} {meanings.get(name, name)}" for name, count in counts.items()]
    if audit.not_in_data:
        texts.append(f"{audit.not_in_data:,} not in the data set, so without one")
    yield _line("Labels", ", ".join(texts))
    yield from _measured(audit)
    for warning in audit.warnings:
        yield Line("Warning", warning, "yellow", is_wrapped=True)
    if (truth := audit.truth) is not None:
        area = "" if truth["auroc"] is None else f", AUROC {truth['auroc']:.3f}"
        firsts = " / ".join(str(truth[f"first_{rows}"]) for rows in (10, 20, 50))
        yield _line(
            "Known truth",
            f"{truth['wrong']:,} of {truth['labels']:,} labels are wrong; of the first 10 / 20 / 50 rows {firsts}{area}"
            " (stored, and not used above)",
        )


def _measured(audit: Audit) -> Iterator[Line]:
    verified, ratio, gain = audit.verified, audit.noise_ratio, audit.gain
    if verified is None:
        if audit.prompts["rank"].count():
            yield _line(None, NOT_VERIFIED)
        return
    if ratio is not None:
        yield _line(
            "Noise ratio",
            f"{ratio.number:.2f} of the labels are wrong or their questions flawed (95 % interval {ratio.low:.2f} to"
            f" {ratio.high:.2f}, from {audit.drawn_labels} drawn at random)",
        )
    wrong = int((verified.is_wrong == 1).sum())
    text = f"{verified.labels} label{'s' * (verified.labels != 1)}, {wrong} of them wrong"
    if gain is None:
        text += "; for none of the other labels is its proposal known to be better"
    elif gain.low > 0:
        changed = audit.prompts.filter(
            pl.col("change") == "changed", ~pl.col("is_verified")
        ).height
        text += f"; replacing {changed} others by proposals makes {_gain_text(gain)} more of them right"
    else:
        text += f"; replacing others by proposals is not surely a gain ({_gain_text(gain)} more right ones), so none is"
    yield _line("Verified", text)


def _count_range(values: pl.Series, name: str) -> str:
    """Return the smallest and the largest of some counts as text, such as ``2 to 5 visits``.

    If the two are equal, the number appears once. `name` is the noun in the singular, such as ``visit``.
    """
    least, most = values.to_numpy().min(), values.to_numpy().max()
    return f"{least}{'' if least == most else f' to {most}'} {name}{'s' * bool(most != 1)}"


def _gain_text(gain: Cell) -> str:
    """Return a gain and its interval as text, rounded to whole numbers, such as ``+12 (+3 to +20)``."""
    mean, low, high = (
        f"{round(value) + 0:+}" for value in (gain.number, gain.low, gain.high)
    )
    return f"{mean} ({low} to {high})"


# The queue --------------------------------------------------------------------------------------------------------


def queue(audit: Audit, size: int) -> Table:
    """Return a table of the `size` most doubtful labels with their votes.

    If the questions are known, each row has its question below it.
    """
    prompts = audit.prompts.filter(pl.col("rank").is_not_null()).head(size)
    texts = _queue_texts(prompts, has_chances=audit.verified is not None)
    numbers = {head: column for head, column in texts.items() if head not in _TEXTS}
    number_widths = [
        max(map(cell_len, [head, *column])) for head, column in numbers.items()
    ]
    # One space between any two columns.
    text_room = _WIDTH - len(texts) - sum(number_widths)
    widths = _text_widths({head: texts[head] for head in _TEXTS}, text_room)
    cells: dict[str, Sequence[str | Cell]] = {**texts}
    for head, width in widths.items():
        # Ids of prompts often begin alike and differ at the end.
        is_end = head == "prompt"
        cells[head] = [
            Cell(text, "text", short=_cut(text, width, is_end=is_end))
            for text in texts[head]
        ]
    rows = []
    for prompt_id, *row in zip(prompts["prompt_id"], *cells.values(), strict=True):
        rows.append(Row(row))
        if prompt_id in audit.questions:
            rows.append(Row([one_line(audit.questions[prompt_id], _QUESTION)], "note"))
    columns = [Column(head, is_text=head in _TEXTS) for head in cells]
    return Table([Block(columns, rows)])


def _tie_note(ties: Sequence[tuple[int, int]], size: int) -> Iterator[Line | str]:
    """Yield a sentence on groups of equally doubtful rows, and then an empty line; nothing if there are no such groups.

    The order within a group is random. The sentence names only groups that begin among the shown rows, and at most
    `_TIES` of them.

    Args:
        ties: first and last rank of each group.
        size: number of shown rows, which have the ranks 1 to `size`.
    """
    groups = [f"{first:,} to {last:,}" for first, last in ties if first <= size]
    if groups:
        rows = ", ".join(groups[:_TIES]) + ", …" * (len(groups) > _TIES)
        are = "are each" if len(groups) > 1 else "are"
        yield _line(None, f"Rows {rows} {are} equally doubtful: their order is drawn.")
        yield ""


def _queue_texts(prompts: pl.DataFrame, *, has_chances: bool) -> dict[str, list[str]]:
    """Return the texts of a table of doubtful labels: head of the column -> one text per row.

    Args:
        prompts: the verdicts to show, one row per prompt.
        has_chances: whether there is a column for the chance that the label is wrong.
    """
    counts = prompts.select("given_count", "rollouts").rows()
    columns: dict[str, Iterable[str | None]] = {
        "#": map(str, prompts["rank"]),
        "prompt": prompts["prompt_id"],
        "label": prompts["given_label"].replace(NEVER_REWARDED, "unknown"),
        "answered instead": prompts["answers"],
        "label given": (f"{count} of {of}" for count, of in counts),
        **({"wrong": map(_chance_text, prompts["confidence"])} if has_chances else {}),
        "status": prompts["status"],
    }
    return {head: list(map(one_line, column)) for head, column in columns.items()}


def _text_widths(texts: Mapping[str, Sequence[str]], room: int) -> dict[str, int]:
    """Choose the width of each text column so that the columns together take at most `room` terminal cells.

    A column is as wide as its longest text, but at most `_WIDEST`. The widest column is narrowed until all fit. `texts`
    maps the head of each column to its texts. The result maps the head to the width.
    """
    widths = {
        head: min(_WIDEST, max(cell_len(text) for text in (head, *column)))
        for head, column in texts.items()
    }
    while sum(widths.values()) > room:
        widths[max(widths, key=lambda head: widths[head])] -= 1
    return widths


def _cut(text: str, width: int, *, is_end: bool) -> str:
    """Return a text of at most `width` terminal cells; if it is cut, an ellipsis marks the place.

    With `is_end` the end of the text is kept instead of its beginning: ids of prompts usually differ at the end.
    """
    if cell_len(text) <= width:
        return text
    dots = "\N{HORIZONTAL ELLIPSIS}"
    return (
        dots + set_cell_size(text[::-1], width - 1)[::-1]
        if is_end
        else set_cell_size(text, width - 1) + dots
    )


def _chance_text(chance: float | None) -> str:
    """Return a chance as text with two decimals: ``>.99`` above 0.995, ``<.01`` below 0.005, and empty for None."""
    if chance is None:
        return ""
    return ">.99" if chance > 0.995 else "<.01" if chance < 0.005 else f"{chance:.2f}"


def stored(audit: Audit) -> pl.DataFrame:
    """Return the audit's verdicts as a table for a file, one row per prompt.

    The column ``log_odds`` is left out. If any questions are known, a column ``question`` is added, null where unknown.
    """
    # Uncalibrated log odds look like chances, and are far too bold for that.
    table = audit.prompts.drop("log_odds")
    if not audit.questions:
        return table
    questions = [audit.questions.get(prompt_id) for prompt_id in table["prompt_id"]]
    return table.with_columns(pl.Series("question", questions, dtype=pl.String))


def write_table(table: pl.DataFrame, target: Path) -> bool:
    """Write a table to the file `target`: as CSV if its name ends in ``.csv``, else as Parquet.

    Returns:
        False if the file was there already with the same bytes, else True.
    """
    write = partial(write_csv, table) if target.suffix == ".csv" else table.write_parquet
    return write_new(target, write, "out")
