"""A grid of replays for a terminal of 80 columns, and what can be said of it in sentences."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from olr_cli.analysis.replay.grid import Cell, GridResult, criteria_name

_WIDTH = 80
_MOST_NAMED = 6
_NOTHING = "\N{EN DASH}"
FRONT = "*"


def lines(result: GridResult, *, width: int = _WIDTH) -> Iterator[str]:
    """A block for each set of criteria, a line a threshold, a column a warm-up."""
    yield textwrap.fill(_legend(result), width)
    for criteria in result.criteria:
        cells = result.of(criteria)
        yield ""
        yield (
            f"{criteria_name(criteria)} (rows: delta, columns: T)"
            if criteria
            else "every majority (columns: T)"
        )
        yield from _block(cells, result, width)


def _legend(result: GridResult) -> str:
    parts = ["share of all visits selected"]
    if result.knows_truth:
        parts.insert(0, "accuracy of the selected labels")
    elif result.knows_labels:
        parts.insert(0, "agreement of the selected labels with the given ones")
    if result.knows_marks:
        parts.append("share of the visits of mislabelled prompts that get a right label")
    text = f"{' / '.join(parts)}, in %."
    return text[0].upper() + text[1:]


def _block(cells: Sequence[Cell], result: GridResult, width: int) -> Iterator[str]:
    """The lines of one block; columns that do not fit follow below."""
    warmups = list(dict.fromkeys(cell.warmup_epochs for cell in cells))
    heads = [_threshold(cell) for cell in cells[:: len(warmups)]]
    texts = [_cell(cell, result) for cell in cells]
    left = max(len(head) for head in heads)
    size = max(map(len, texts)) + 1
    fit = max((width - left) // size, 1)
    for start in range(0, len(warmups), fit):
        part = slice(start, start + fit)
        yield (" " * left + "".join(f"{warmup} ".rjust(size) for warmup in warmups[part])).rstrip()
        for number, head in enumerate(heads):
            row = texts[number * len(warmups) : (number + 1) * len(warmups)]
            yield (head.rjust(left) + "".join(text.rjust(size) for text in row[part])).rstrip()


def _threshold(cell: Cell) -> str:
    return "any" if cell.slope_threshold is None else f"{cell.slope_threshold:f}"


def _cell(cell: Cell, result: GridResult) -> str:
    shares = [cell.accuracy] if result.knows_truth else [cell.agreement] if result.knows_labels else []
    shares += [cell.coverage, *([cell.repair] if result.knows_marks else [])]
    text = "/".join(map(_percent, shares))
    # Every cell ends one column after its numbers, so that those stand below one another.
    return (f"[{text}]" if cell.is_own else text) + (FRONT if cell.on_front else " ")


def _percent(share: float | None) -> str:
    """With one decimal; what is not 0 or 100 does not read so."""
    if share is None:
        return _NOTHING
    value = 100 * share
    if 0 < value < 0.05:
        return "<0.1"
    if 99.95 <= value < 100:
        return ">99.9"
    return f"{value:.0f}" if value in (0, 100) else f"{value:.1f}"


def sentences(result: GridResult, *, has_own: bool) -> Iterator[str]:
    """The Pareto front, the mark of the run's own setting, and what a replay can't tell."""
    if any(cell.is_own for cell in result.cells):
        yield "[ ]: the setting the run was trained under."
    elif has_own:
        yield "The setting the run was trained under is not in the grid."
    yield _front(result)
    yield (
        "The rollouts are as they are: under other labels the policy would have learned otherwise, and a replay does"
        " not show how."
    )


def _front(result: GridResult) -> str:
    if not result.knows_truth:
        return "No true answer is known, so nothing is said of accuracy, and there is no Pareto front."
    found = sorted((cell for cell in result.cells if cell.on_front), key=lambda cell: cell.selected)
    if not found:
        return "No setting selects a label whose true answer is known, so there is no Pareto front."
    different = list({(cell.selected, cell.right, cell.known): cell for cell in reversed(found)}.values())[
        ::-1
    ]
    count = f"{len(found)} of {len(result.cells)} cells"
    what = f"Pareto front ({FRONT}; no other cell has at least its accuracy and coverage, and more of one): {count}"
    if len(different) <= _MOST_NAMED:
        equal = ", equal ones named once" if len(different) < len(found) else ""
        return f"{what}{equal}: {'; '.join(map(_named, different))}."
    return f"{what}, from {_named(different[0])} to {_named(different[-1])}."


def _named(cell: Cell) -> str:
    threshold = "" if cell.slope_threshold is None else f" delta {cell.slope_threshold:f}"
    return (
        f"{criteria_name(cell.criteria)}{threshold} T {cell.warmup_epochs} ({cell.right:,} of {cell.known:,} right,"
        f" {_percent(cell.coverage)} % selected)"
    )
