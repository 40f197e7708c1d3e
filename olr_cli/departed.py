"""Names that olr had once and has no more, and what to do instead: the only place that remembers them."""

from __future__ import annotations

from collections.abc import Mapping

DEPARTED: Mapping[str, str] = {
    "olr doctor": "olr train RECIPE --dry-run says what is missing on this machine",
}
"""A name as its user writes it (`key: value` in a recipe, else words of the command line), and the remedy."""


def departed(name: str) -> str | None:
    """What to do without this name, as the end of an error; None if olr never had it."""
    remedy = DEPARTED.get(name)
    return None if remedy is None else f"{name} left olr; {remedy}"
