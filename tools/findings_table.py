"""Write the table in docs/data.md from the findings of `olr check`.

python tools/findings_table.py
"""

from __future__ import annotations

import re
from pathlib import Path

from olr_cli.data.findings import KINDS
from olr_cli.tables import Block, Column, Row, Table, markdown

PAGE = Path(__file__).parents[1] / "docs" / "data.md"
TABLE = re.compile(r"^\| finding \|.*\n(?:\|.*\n)+", re.MULTILINE)


def page() -> str:
    """Return the text of docs/data.md, in which the table of findings is made again from the code."""
    # A function, because `sub` would read backslashes in a text as references to groups.
    return TABLE.sub(lambda _: f"{table()}\n", PAGE.read_text("utf-8"))


def table() -> str:
    """Return the Markdown table of all kinds of findings that `olr check` reports.

    A kind's name is in bold if `olr check --export` leaves out rows with such a finding.
    """
    columns = [
        Column(head) for head in ("finding", "in a row", "why", "example", "what to do")
    ]
    rows = []
    for kind, fault, why, example, remedy, is_unusable in KINDS.values():
        name = f"**`{kind}`**" if is_unusable else f"`{kind}`"
        examples = "<br>".join(f"`{line}`" for line in example.split("\n"))
        rows.append(Row([name, fault, why, examples, remedy]))
    return markdown(Table([Block(columns, rows, is_markdown=True)]))


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
