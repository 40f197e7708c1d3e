"""Any table as text, whichever kind it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeAlias

from rich.console import Console, RenderableType

from olr_cli.analysis.tables import arms_text, cost_text, paper_text
from olr_cli.analysis.tables.arms_table import Table
from olr_cli.analysis.tables.cost_table import CostTable
from olr_cli.analysis.tables.paper_table import PaperTable
from olr_cli.analysis.theory import text as theory_text
from olr_cli.analysis.theory.table import TheoryTable

AnyTable: TypeAlias = Table | PaperTable | CostTable | TheoryTable


class _Printer(Protocol):
    """A module that prints tables of one kind."""

    def terminal(self, table: Any) -> RenderableType: ...

    def markdown(self, table: Any) -> str: ...

    def latex(self, table: Any) -> str: ...

    def comma_separated(self, table: Any) -> str: ...

    def footnotes(self, table: Any) -> Iterator[str]: ...


_PRINTERS: Mapping[type[AnyTable], _Printer] = {
    Table: arms_text,
    PaperTable: paper_text,
    CostTable: cost_text,
    TheoryTable: theory_text,
}


def text(table: AnyTable, shape: str) -> str:
    """A table as ``markdown``, ``latex`` or ``csv``."""
    printer = _PRINTERS[type(table)]
    shapes = {"markdown": printer.markdown, "latex": printer.latex, "csv": printer.comma_separated}
    return shapes[shape](table)


def terminal(table: AnyTable) -> RenderableType:
    """A table for a terminal."""
    return _PRINTERS[type(table)].terminal(table)


def width(shown: RenderableType) -> int:
    """How many columns of a terminal something takes."""
    return Console(width=1000).measure(shown).maximum


def footnotes(table: AnyTable) -> Iterator[str]:
    """What the reader of a table should know."""
    return _PRINTERS[type(table)].footnotes(table)
