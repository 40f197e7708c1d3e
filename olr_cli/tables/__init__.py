"""One table for everything that is printed: blocks of rows under columns, and what a reader should know.

    whoever counts ──► Table ──► terminal, Markdown, LaTeX, CSV, JSON, HTML

Whoever counts decides what the cells say; how they are laid out is decided here, once for each medium.
"""

from olr_cli.tables.numbers import NOTHING, interval, percent, points
from olr_cli.tables.render import comma_separated, latex, markdown, print_table, terminal
from olr_cli.tables.table import Block, Cell, Column, Row, Table

__all__ = [
    "NOTHING",
    "Block",
    "Cell",
    "Column",
    "Row",
    "Table",
    "comma_separated",
    "interval",
    "latex",
    "markdown",
    "percent",
    "points",
    "print_table",
    "terminal",
]
