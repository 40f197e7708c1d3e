"""Numbers as tables print them: ± stands before an sd, an interval is [low, high]."""

from __future__ import annotations

from collections.abc import Callable

NOTHING = "\N{EN DASH}"


def percent(share: float | None, nothing: str = NOTHING) -> str:
    """A share from 0 to 1 in percent, with one decimal."""
    return nothing if share is None else f"{100 * share:.1f}"


def points(share: float | None, nothing: str = NOTHING) -> str:
    """A difference of shares in percentage points, with its sign."""
    return nothing if share is None else f"{100 * share:+.1f}"


def three_digits(value: float) -> str:
    """Three significant digits, or a whole number from 100 on."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def interval(ends: tuple[float | None, float | None] | None, text: Callable[[float], str] = points) -> str:
    """The ends of an interval in brackets; nothing if either is unknown."""
    if ends is None or ends[0] is None or ends[1] is None:
        return ""
    return f"[{text(ends[0])}, {text(ends[1])}]"


def joined(*parts: str) -> str:
    """Parts with a space between them; empty ones are left out."""
    return " ".join(filter(None, parts))
