"""Texts cut so that a page stays small; the middle goes, as questions begin and answers end a text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

HEAD = 1 / 3
"""Share of a cut text that is its beginning."""


def longest(lengths: NDArray[np.int64], budget: int, most: int) -> int:
    """The largest length, `most` at most, to which texts can be cut without exceeding a budget in all.

    Args:
        lengths: of the texts, shape (N,).
        budget: what the cut texts may add up to.
        most: whatever the budget.
    """
    ascending = np.sort(lengths)
    below = np.concatenate([[0], np.cumsum(ascending)[:-1]])
    # With the n shortest texts whole, the others share the rest; the first that fits its share no more is where to cut.
    shares = (budget - below) // np.arange(len(ascending), 0, -1)
    too_long = ascending > shares
    share = int(shares[too_long.argmax()]) if too_long.any() else most
    return max(0, min(most, share))


def ends(text: str, length: int) -> tuple[str, str]:
    """Beginning and end of a text, together `length` characters; of a text that is no longer, all and nothing."""
    if len(text) <= length:
        return text, ""
    head = int(length * HEAD)
    return text[:head], text[len(text) - (length - head) :]
