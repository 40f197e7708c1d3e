"""One kind of table for all output: blocks of rows under columns, plus notes for the reader.

    any computation ──► Table ──► terminal, Markdown, LaTeX, CSV, JSON, HTML

A command returns an `Answer`: tables, lines, notes, files and next commands, printed once by `olr_cli.cli.printing`.
The computation decides the contents of the cells. This package decides their layout, once for each medium.
"""

from olr_cli.tables.answer import (
    Answer as Answer,
    File as File,
    Line as Line,
    as_json as as_json,
    one_line as one_line,
)
from olr_cli.tables.render import (
    comma_separated as comma_separated,
    latex as latex,
    markdown as markdown,
    print_table as print_table,
    terminal as terminal,
)
from olr_cli.tables.table import (
    NOTHING as NOTHING,
    UNKNOWN as UNKNOWN,
    Block as Block,
    Cell as Cell,
    Column as Column,
    Row as Row,
    Table as Table,
    percent as percent,
)
