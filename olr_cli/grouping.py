"""Grouping of values by their keys."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def gathered(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return a dictionary of each key and the list of its values, both in the order of the pairs."""
    values: dict[K, list[V]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values
