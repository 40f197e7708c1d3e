"""The table of docs/data.md from the findings that `olr check` knows, in the place of the one that is there.

python tools/findings_table.py
"""

from __future__ import annotations

import re
from pathlib import Path

from olr_cli.data.findings import kinds_table
from olr_cli.tables import markdown

PAGE = Path(__file__).parents[1] / "docs" / "data.md"
TABLE = re.compile(r"^\| finding \|.*\n(?:\|.*\n)+", re.MULTILINE)


def page() -> str:
    """Return docs/data.md with the table of today."""
    table = f"{markdown(kinds_table())}\n"
    return TABLE.sub(lambda _: table, PAGE.read_text("utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
