"""One table for everything that is printed: blocks of rows under columns, and what a reader should know.

    whoever counts ──► Table ──► terminal, Markdown, LaTeX, CSV, JSON, HTML

A command returns an `Answer`: tables, lines, notes, files and next commands, printed once by `olr_cli.cli.printing`.
Whoever counts decides what the cells say; how they are laid out is decided here, once for each medium.
"""

from olr_cli.tables.answer import Answer as Answer
from olr_cli.tables.answer import File as File
from olr_cli.tables.answer import Line as Line
from olr_cli.tables.answer import as_json as as_json
from olr_cli.tables.answer import one_line as one_line
from olr_cli.tables.render import comma_separated as comma_separated
from olr_cli.tables.render import latex as latex
from olr_cli.tables.render import markdown as markdown
from olr_cli.tables.render import print_table as print_table
from olr_cli.tables.render import terminal as terminal
from olr_cli.tables.table import NOTHING as NOTHING
from olr_cli.tables.table import UNKNOWN as UNKNOWN
from olr_cli.tables.table import Block as Block
from olr_cli.tables.table import Cell as Cell
from olr_cli.tables.table import Column as Column
from olr_cli.tables.table import Row as Row
from olr_cli.tables.table import Table as Table
from olr_cli.tables.table import percent as percent
