"""One table for everything that is printed: blocks of rows under columns, and what a reader should know.

    whoever counts ──► Table ──► terminal, Markdown, LaTeX, CSV, JSON, HTML

A command returns an `Answer`: tables, lines, notes, files and next commands, printed once by `olr_cli.cli.printing`.
Whoever counts decides what the cells say; how they are laid out is decided here, once for each medium.
"""

from olr_cli.tables.answer import Answer, File, Line, as_json, one_line
from olr_cli.tables.render import comma_separated, latex, markdown, print_table, terminal
from olr_cli.tables.table import NOTHING, UNKNOWN, Block, Cell, Column, Row, Table, percent

__all__ = [
    "NOTHING",
    "UNKNOWN",
    "Answer",
    "Block",
    "Cell",
    "Column",
    "File",
    "Line",
    "Row",
    "Table",
    "as_json",
    "comma_separated",
    "latex",
    "markdown",
    "one_line",
    "percent",
    "print_table",
    "terminal",
]
