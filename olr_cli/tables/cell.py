"""A number or a text of a table, and how it is written: ± stands before an sd, an interval is [low, high]."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

NOTHING = "\N{EN DASH}"
"""Stands for a value that is unknown."""

Ends: TypeAlias = tuple[float, float]
"""The ends of an interval."""


def percent(share: float | None) -> str:
    """A share from 0 to 1 in percent, with one decimal."""
    return NOTHING if share is None else f"{100 * share:.1f}"


def three_digits(value: float) -> str:
    """Three significant digits, or a whole number from 100 on."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def joined(*parts: str) -> str:
    """Parts with a space between them; empty ones are left out."""
    return " ".join(filter(None, parts))


def _duration(seconds: float) -> str:
    """Three digits, in the unit in which they are easiest to read."""
    units = {"h": 3600.0, "min": 60.0, "s": 1.0}
    name, size = next(((name, size) for name, size in units.items() if seconds >= size), ("ms", 0.001))
    return f"{three_digits(seconds / size)} {name}"


Kind: TypeAlias = Literal[
    "share", "points", "percent", "seconds", "ms", "more ms", "s", "more s", "count", "number", "text"
]
"""What a value is: ``share`` and its differences, ``points``, are printed without a sign of percent, ``percent`` with
it; ``seconds`` in the unit that suits them, ``ms`` and ``s`` (and differences, ``more …``) in one unit, unnamed.
"""

_TEXTS: Mapping[Kind, Callable[[Any], str]] = {
    "share": percent,
    "points": lambda share: f"{100 * share:+.1f}",
    "percent": "{:.1%}".format,
    "seconds": _duration,
    "ms": lambda seconds: three_digits(1000 * seconds),
    "more ms": lambda seconds: f"{1000 * seconds:+.1f}",
    "s": three_digits,
    "more s": "{:+.2f}".format,
    "count": "{:,}".format,
    "number": three_digits,
    "text": str,
}


@dataclass(frozen=True)
class Cell:
    """A value, and how sure it is. Terminal, documents, CSV and JSON derive from it.

    Attributes:
        value: a text where `kind` is ``text``; None if it is unknown.
        sd: of the numbers whose mean the value is.
        ends: of an interval around the value.
        n: how many numbers the value was made of (seeds, problems, steps; of a change: pairs).
        change: the difference to a baseline, paired.
        short: a text for a terminal, where the head of a column has no room for a unit, or the column none for `full`.
    """

    value: float | str | None = None
    kind: Kind = "share"
    sd: float | None = None
    ends: Ends | None = None
    n: int = 0
    change: Cell | None = None
    short: str = ""

    @property
    def number(self) -> float:
        """The value of a cell that has a number."""
        assert isinstance(self.value, int | float)
        return self.value

    def text(self, value: float | str | None) -> str:
        """A value of the same kind as it is printed."""
        return NOTHING if value is None else _TEXTS[self.kind](value)

    @property
    def brief(self) -> str:
        """The value alone, for a terminal."""
        return self.short or self.text(self.value)

    @property
    def interval(self) -> str:
        """``[low, high]``; empty if there is none."""
        return f"[{self.text(self.ends[0])}, {self.text(self.ends[1])}]" if self.ends else ""

    @property
    def full(self) -> str:
        """The value with its sd and interval, where there is room."""
        sd = "" if self.sd is None else f"± {self.text(self.sd)}"
        return joined(self.text(self.value), sd, self.interval)

    def flat(self, *names: str) -> dict[str, Any]:
        """The value, and the ends of its interval, under these names: for CSV and JSON."""
        return dict(zip(names, (self.value, *(self.ends or (None, None))), strict=True))


UNKNOWN = Cell()
"""A share that nobody measured."""
