"""Tables as HTML."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from xml.etree.ElementTree import Element

from olr_cli.analysis.arms import Run
from olr_cli.analysis.report.markup import element, isolated
from olr_cli.runs.metrics import Metrics, read_metrics
from olr_cli.runs.progress import of_epoch

_LONG = 40
"""Lines of a table beyond which it takes no more room in the page."""


def grid(
    heads: Sequence[str],
    lines: Sequence[Sequence[str]],
    *,
    numbers: Collection[int],
    caption: str,
) -> Element:
    """A table that scrolls in itself if it is wide, or longer than `_LONG`.

    The first column names the lines, and a line of one cell those below it.

    Args:
        heads: of the columns.
        lines: cells as text.
        numbers: places of the columns that are aligned to the right.
        caption: above the table.
    """

    def row(cells: Sequence[str], head: str) -> Element:
        if len(cells) == 1 < len(heads):
            title = element("th", isolated(cells[0]), colspan=str(len(heads)), scope="rowgroup")
            return element("tr", title, class_="block")
        made = []
        for place, cell in enumerate(cells):
            kind = {"class_": "number"} if place in numbers else {}
            tag = "th" if head == "col" or place == 0 else "td"
            scope = {"scope": head if place else head or "row"} if tag == "th" else {}
            made.append(element(tag, isolated(cell), **kind, **scope))
        return element("tr", *made)

    body = element("tbody", *(row(line, "") for line in lines))
    table = element("table", element("caption", caption), element("thead", row(heads, "col")), body)
    kind = "scroll long" if len(lines) > _LONG else "scroll"
    return element("div", table, class_=kind, tabindex="0", role="region", aria_label=caption)


def from_markdown(markdown: str, caption: str) -> Iterator[Element]:
    """Tables as they are printed for a README, each with its title above it if it has one, and sentences below them."""
    title = ""
    for is_table, own in groupby(markdown.splitlines(), lambda line: line.startswith("|")):
        if is_table:
            heads, _, *rows = own
            names, cells = _cells(heads), [_merged(_cells(row)) for row in rows]
            called = f"{caption}: {title}" if title else caption
            yield grid(names, cells, numbers=range(1, len(names)), caption=called)
            continue
        for line in filter(str.strip, own):
            is_title = re.fullmatch(r"\*\*(.+)\*\*", line)
            if is_title:
                title = is_title[1]
            else:
                yield element("p", isolated(line.removeprefix("- ")), class_="note")


def _cells(line: str) -> list[str]:
    cells = re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))
    return [_plain(cell.strip()) for cell in cells]


def _plain(cell: str) -> str:
    """A cell without the marks of bold and italics."""
    marked = re.fullmatch(r"(\*{1,2})(.+)\1", cell)
    return (marked[2] if marked else cell).replace("\\|", "|")


def _merged(cells: list[str]) -> list[str]:
    """The title alone of a line that has nothing else."""
    return cells if any(cells[1:]) else cells[:1]


@dataclass(frozen=True)
class _Column:
    """A column of the epochs' table; ``decimals`` of a plain number, None for a share."""

    title: str
    metric: str
    decimals: int | None = None

    def cell(self, value: float | None) -> str:
        if value is None:
            return ""
        return f"{100 * value:.1f}" if self.decimals is None else f"{value:,.{self.decimals}f}"


_COLUMNS = (
    _Column("reward", "rollout/reward", 2),
    _Column("majority right, %", "majority/accuracy"),
    _Column("on clean prompts", "majority/accuracy_clean"),
    _Column("on noisy prompts", "majority/accuracy_noisy"),
    _Column("labels replaced, %", "label/selection_ratio"),
    _Column("of these right", "label/selected_accuracy"),
    _Column("labels wrong, %", "label/effective_noise"),
    _Column("held-out accuracy, %", "eval/avg"),
    _Column("entropy, nats", "policy/entropy", 3),
    _Column("length, tokens", "rollout/length", 1),
    _Column("groups of equal rewards, %", "rollout/zero_variance_groups"),
)


def epochs(run: Run) -> Element | None:
    """A line an epoch from metrics.jsonl, epoch 0 before training; None if the file has nothing to show."""
    by_epoch: dict[int, list[Metrics]] = {}
    for line in read_metrics(run.path):
        by_epoch.setdefault(int(line["epoch"]), []).append(line)
    shown = [
        column
        for column in _COLUMNS
        if any(of_epoch(column.metric, steps) is not None for steps in by_epoch.values())
    ]
    if not shown:
        return None
    lines = [
        [
            _name(run, epoch),
            *(column.cell(of_epoch(column.metric, steps)) for column in shown),
        ]
        for epoch, steps in sorted(by_epoch.items())
    ]
    heads = ["epoch", *(column.title for column in shown)]
    return grid(heads, lines, numbers=range(len(heads)), caption="Epochs")


def _name(run: Run, epoch: int) -> str:
    return f"{epoch}" if epoch <= run.epochs else f"{epoch} (under way)"
