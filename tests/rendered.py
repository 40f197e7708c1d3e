"""Tables as a terminal shows them."""

import io
import re

from rich.console import Console

from olr_cli import tables


def rendered(table, width=80):
    """Return a table as a terminal of this width shows it; assert that nothing is cut and no line is too long."""
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(tables.terminal(table))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width and "…" not in text
    return text


def in_full(table, width=200):
    """Return a table as a wide terminal shows it with its footnotes, then as Markdown, LaTeX and CSV, in one text."""
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(tables.terminal(table))
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    formats = (tables.markdown, tables.latex, tables.comma_separated)
    parts = ["\n".join([*lines, *table.footnotes]), *(each(table) for each in formats)]
    return few_digits("\n\n----\n\n".join(parts)) + "\n"


def few_digits(text):
    """Round numbers with seven or more decimals to six digits, because the rest depends on versions of libraries."""
    return re.sub(r"\b\d+\.\d{7,}(e-\d+)?", lambda number: f"{float(number[0]):.6g}", text)
