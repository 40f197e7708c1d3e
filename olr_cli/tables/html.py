"""Tables as HTML."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from xml.etree.ElementTree import Element

from olr_cli.tables.markup import element, isolated
from olr_cli.tables.table import Table

_LONG = 40
"""Lines of a table beyond which it takes no more room in the page."""


def blocks(table: Table, caption: str) -> Iterator[Element]:
    """The blocks of a table, each with its title in its caption, and the notes below."""
    for block in table.shown("document"):
        columns, rows = block.grid("document")
        heads = [column.text("document") for column in columns]
        lines = [texts if any(texts[1:]) else texts[:1] for _, texts in rows]
        title = f"{caption}: {block.title}" if block.title else caption
        yield grid(heads, lines, numbers=range(1, len(heads)), caption=title)
        yield from (_note(note) for note in block.notes)
    yield from (_note(note) for note in table.notes)
    if not table.blocks:
        yield _note(table.nothing)


def _note(text: str) -> Element:
    return element("p", isolated(text), class_="note")


def grid(
    heads: Sequence[str], lines: Sequence[Sequence[str]], *, numbers: Collection[int], caption: str
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
