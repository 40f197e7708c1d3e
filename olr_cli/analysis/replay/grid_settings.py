"""Which settings a grid of replays goes through: what `--grid` says, and what a history suggests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import takewhile
from typing import TYPE_CHECKING, Any, get_args

from pydantic import ValidationError

from olr_cli.errors import UserError, did_you_mean
from olr_cli.recipe.files import override
from olr_cli.recipe.schema import Criterion, OlrMethod

if TYPE_CHECKING:
    import polars as pl

THRESHOLD, WARMUP, CRITERIA = "method.slope_threshold", "method.warmup_epochs", "method.criteria"
KEYS = (THRESHOLD, WARMUP, CRITERIA)
"""What can vary in a grid."""

DEFAULT = "default"
"""Stands for all three keys, each with the values that the history suggests."""

MOST_CELLS = 3_000
_MOST_THRESHOLDS, _MOST_WARMUPS = 8, 6
_REACHED = 0.95
_CRITERIA_SETS: tuple[tuple[Criterion, ...], ...] = (("slope", "consistency"), ("consistency",), ("slope",))


@dataclass(frozen=True, slots=True)
class Grid:
    """Settings, each combined with each of the others.

    Attributes:
        slope_thresholds: values of delta, ascending.
        warmups: values of T, ascending.
        criteria: sets of criteria, in the order asked for.
    """

    slope_thresholds: Sequence[Decimal]
    warmups: Sequence[int]
    criteria: Sequence[tuple[Criterion, ...]]


Axes = Mapping[str, tuple[Any, ...] | None]
"""Key -> its values; None: those that the history suggests."""


def parse(settings: Iterable[str], overrides: Iterable[str] = ()) -> Axes:
    """What `--grid` options ask for: ``KEY=VALUE,VALUE``, ``KEY`` or ``default``.

    Args:
        settings: of the `--grid` options.
        overrides: of the `--set` options, which must leave the grid's keys alone.

    Raises:
        UserError: a key is unknown or comes twice, or a value is none of its key.
    """
    axes: dict[str, tuple[Any, ...] | None] = {}
    for setting in settings:
        key, equals, text = (part.strip() for part in setting.partition("="))
        if key == DEFAULT and not equals:
            axes = dict.fromkeys(KEYS) | axes
            continue
        if key not in KEYS:
            known = f"a grid has {', '.join(KEYS)}, or all of them: --grid {DEFAULT}"
            raise UserError(
                f"--grid {setting}: '{key}' is no key of a grid{did_you_mean(key, KEYS)}; {known}"
            )
        if axes.get(key) is not None:
            raise UserError(f"--grid {key} comes twice; give all its values at once, with commas between")
        axes[key] = _values(key, text) if equals else None
    changed = override({}, overrides).get("method")
    fixed = [key for key in axes if isinstance(changed, Mapping) and key.removeprefix("method.") in changed]
    if fixed:
        raise UserError(f"--set {fixed[0]}: the grid goes through values of that; leave one of them out")
    return axes


def _values(key: str, text: str) -> tuple[Any, ...]:
    """The values of one key, each once; numbers ascending."""
    read: Callable[[str], Any] = {THRESHOLD: _threshold, WARMUP: _warmup, CRITERIA: _criteria}[key]
    values = dict.fromkeys(read(part.strip()) for part in text.split(","))
    return tuple(values) if key == CRITERIA else tuple(sorted(values))


def _threshold(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("nan")
    if not value.is_finite():
        raise UserError(
            f"--grid {THRESHOLD}: '{text}' is not a number; write for example {THRESHOLD}=0,0.05,0.1"
        )
    try:
        return OlrMethod(slope_threshold=value).slope_threshold
    except ValidationError as error:
        raise UserError(
            f"--grid {THRESHOLD}: '{text}' cannot be: {error.errors()[0]['msg'].lower()}"
        ) from None


def _warmup(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UserError(
            f"--grid {WARMUP}: '{text}' is not a whole number from 0 on; write for example {WARMUP}=1,3,5"
        )
    return int(text)


def _criteria(text: str) -> tuple[Criterion, ...]:
    names: dict[str, Criterion] = {name: name for name in get_args(Criterion)}
    parts = [] if text == "none" else text.split("+")
    if not set(parts) <= names.keys() or len(set(parts)) < len(parts):
        raise UserError(
            f"--grid {CRITERIA}: '{text}' is no set of criteria; there are slope+consistency, consistency, slope and"
            " none (every majority)"
        )
    return tuple(name for name in names.values() if name in parts)


def resolve(axes: Axes, rows: pl.DataFrame, base: OlrMethod, own: OlrMethod | None) -> Grid:
    """The grid over a history.

    Args:
        axes: from `parse`.
        rows: the history's visits, with visit and slope.
        base: where keys that are not in the grid stay.
        own: the setting the run was trained under, which a suggested axis includes.

    Raises:
        UserError: a warm-up leaves no visit, or there are too many cells.
    """
    last = int(rows["visit"].max())  # type: ignore[arg-type]  # a number, as the column is
    given: dict[str, tuple[Any, ...]] = {
        THRESHOLD: (base.slope_threshold,),
        WARMUP: (base.warmup_epochs,),
        CRITERIA: (base.criteria,),
    }
    suggested: dict[str, Callable[[], tuple[Any, ...]]] = {
        THRESHOLD: lambda: _thresholds(rows, own),
        WARMUP: lambda: _warmups(last, own),
        CRITERIA: lambda: tuple(dict.fromkeys((*_CRITERIA_SETS, base.criteria))),
    }
    for key, values in axes.items():
        given[key] = suggested[key]() if values is None else values
    grid = Grid(given[THRESHOLD], given[WARMUP], given[CRITERIA])
    if grid.warmups[-1] >= last:
        raise UserError(
            f"{WARMUP} {grid.warmups[-1]} leaves none of the history's {last} visits in which a label can be refined;"
            f" lower it with --grid {WARMUP}=…"
        )
    cells = len(grid.slope_thresholds) * len(grid.warmups) * len(grid.criteria)
    if cells > MOST_CELLS:
        raise UserError(
            f"the grid has {cells:,} cells, and at most {MOST_CELLS:,} are counted; name fewer values"
        )
    return grid


def _thresholds(rows: pl.DataFrame, own: OlrMethod | None) -> tuple[Decimal, ...]:
    """0 and round steps up to the slope that one in twenty visits exceeds; the run's own value too."""
    import polars as pl

    slopes = rows.filter(pl.col("visit") > 1)["slope"]
    top = slopes.quantile(_REACHED, "lower") if len(slopes) else None
    values = {Decimal(0)} | ({own.slope_threshold} if own else set())
    if top is not None and top > 0:
        step = _round_up(top / (_MOST_THRESHOLDS - 1))
        multiples = (step * number for number in range(1, _MOST_THRESHOLDS))
        values |= {step, *takewhile(lambda value: float(value) <= top, multiples)}
    return tuple(sorted(_plain(value) for value in values))


def _plain(value: Decimal) -> Decimal:
    """Without zeros at the end: 0.01, not 0.010."""
    return Decimal(f"{value.normalize():f}")


def _round_up(value: float) -> Decimal:
    """The next of 1, 2, 5, 10, 20, … times a power of ten."""
    power = Decimal(10) ** math.floor(math.log10(value))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= Decimal(value))


def _warmups(last: int, own: OlrMethod | None) -> tuple[int, ...]:
    """From 0 to the last visit but one, six values at most; the run's own value too."""
    places = min(last, _MOST_WARMUPS)
    spread = {round(place * (last - 1) / max(places - 1, 1)) for place in range(places)}
    return tuple(sorted(spread | ({own.warmup_epochs} if own and own.warmup_epochs < last else set())))
