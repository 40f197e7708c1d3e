"""What every table has in common when it is printed as Markdown or as comma-separated values."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table; a ``|`` within a cell does not end it."""
    head, *rows = (
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in (heads, *lines)
    )
    return [head, "|---" * len(heads) + "|", *rows]


def comma_separated(columns: Iterable[str], lines: Iterable[Mapping[str, Any]]) -> str:
    """Lines of values under their columns, without a final line break; None is an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue().rstrip()
