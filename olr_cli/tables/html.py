"""HTML elements from Python values, and tables as HTML; everything put into an element becomes text, never markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from olr_cli.tables.table import Block, Row, Table

_LONGEST = 40
"""Rows beyond which a table scrolls within the page."""

_NOT_HTML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Characters that no HTML file may contain."""


def element(tag: str, *children: Element | str | None, **attributes: str) -> Element:
    """Build an HTML element with a tag, children and attributes.

    A child is an element or a text. A child that is None is left out. The argument ``class_`` sets the attribute
    ``class``. Other underscores in names of attributes become hyphens.
    """
    parent = Element(
        tag,
        {
            key.rstrip("_").replace("_", "-"): text(value)
            for key, value in attributes.items()
        },
    )
    for child in children:
        if isinstance(child, Element):
            parent.append(child)
        elif child is not None and len(parent):
            # In ElementTree, text after a child element is that child's tail.
            parent[-1].tail = (parent[-1].tail or "") + text(child)
        elif child is not None:
            parent.text = (parent.text or "") + text(child)
    return parent


def isolated(value: str) -> Element:
    """Wrap a text in ``<bdi>``, so that a text written from right to left does not reorder its surroundings."""
    return element("bdi", value)


def text(value: str) -> str:
    """Return a text with U+FFFD in place of every character that HTML forbids, such as control characters."""
    return _NOT_HTML.sub("\N{REPLACEMENT CHARACTER}", value)


def html(elements: Iterable[Element]) -> str:
    """Return elements as HTML text, each on a new line."""
    # `method="html"`: XML's `<td />` would be read as an opening tag, and the next cells would land inside it.
    return "\n".join(
        ElementTree.tostring(element, encoding="unicode", method="html")
        for element in elements
    )


def table_elements(table: Table, caption: str) -> Iterator[Element]:
    """Yield a table as HTML elements: each block with its notes below, then the notes of the whole table.

    A block is a part of the table with its own columns. Above each block stand `caption` and the block's title, if it
    has one. If there are no blocks, the last element is `Table.nothing`, the table's sentence for this case.
    """
    for block in table.shown("document"):
        yield _grid(block, f"{caption}: {block.title}" if block.title else caption)
        yield from map(_note, block.notes)
    yield from map(_note, table.notes)
    if not table.blocks:
        yield _note(table.nothing)


def _note(sentence: str) -> Element:
    """Build a paragraph for a note, ``<p class="note">``."""
    return element("p", isolated(sentence), class_="note")


def _grid(block: Block, caption: str) -> Element:
    """Build the HTML table of a block (a part of a table), inside a region that scrolls if it is too wide or long.

    The first cell of each row is a header, which names the row. `caption` becomes the caption of the HTML table.
    """
    columns, rows = block.grid("document")
    attributes = [
        {} if not place or column.is_text else {"class_": "number"}
        for place, column in enumerate(columns)
    ]

    def row_element(row: Row, texts: Sequence[str]) -> Element:
        if row.is_spanning:
            title = element(
                "th", isolated(texts[0]), colspan=str(len(columns)), scope="rowgroup"
            )
            # A focusable region, so that keyboards can scroll it too.
            return element("tr", title, class_="block")
        cells = [
            element("td", isolated(value), **kind)
            for value, kind in zip(texts[1:], attributes[1:], strict=True)
        ]
        return element("tr", element("th", isolated(texts[0]), scope="row"), *cells)

    heads = [
        element("th", isolated(column.text("document")), **kind, scope="col")
        for column, kind in zip(columns, attributes, strict=True)
    ]
    table = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *heads)),
        element("tbody", *(row_element(row, texts) for row, texts in rows)),
    )
    scroll = "scroll long" if len(rows) > _LONGEST else "scroll"
    return element(
        "div", table, class_=scroll, tabindex="0", role="region", aria_label=caption
    )
