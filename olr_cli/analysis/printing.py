"""Any table as text, whichever kind it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rich.console import Console, RenderableType

from olr_cli.analysis import paper_text, table_text
from olr_cli.analysis.arms_table import Table
from olr_cli.analysis.paper_table import PaperTable

_OF_ARMS: Mapping[str, Callable[[Table], str]] = {
    "markdown": table_text.markdown,
    "latex": table_text.latex,
    "csv": table_text.comma_separated,
}
_OF_THE_PAPER: Mapping[str, Callable[[PaperTable], str]] = {
    "markdown": paper_text.markdown,
    "latex": paper_text.latex,
    "csv": paper_text.comma_separated,
}


def text(table: Table | PaperTable, shape: str) -> str:
    """A table as ``markdown``, ``latex`` or ``csv``."""
    return _OF_THE_PAPER[shape](table) if isinstance(table, PaperTable) else _OF_ARMS[shape](table)


def terminal(table: Table | PaperTable) -> RenderableType:
    """A table for a terminal."""
    return paper_text.terminal(table) if isinstance(table, PaperTable) else table_text.terminal(table)


def width(shown: RenderableType) -> int:
    """How many columns of a terminal something takes."""
    return Console(width=1000).measure(shown).maximum


def footnotes(table: Table | PaperTable) -> Iterator[str]:
    """What the reader of a table should know."""
    return paper_text.footnotes(table) if isinstance(table, PaperTable) else table_text.footnotes(table)
