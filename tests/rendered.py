"""Tables as a terminal shows them."""

import io

from rich.console import Console

from olr_cli import tables


def rendered(table, width=80):
    """The text of a table, which cuts nothing and is no wider than the terminal."""
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(tables.terminal(table))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width and "…" not in text
    return text
