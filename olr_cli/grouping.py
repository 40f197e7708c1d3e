"""Grouping of values by their keys."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def gathered(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Group the values of pairs (key, value) by their keys, and return a dictionary: key -> list of its values.

    The values of a key stay in their order. Keys are in the order in which they first appear.
    """
    values: dict[K, list[V]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values
