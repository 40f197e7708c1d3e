"""A cache of keys and values that rarely moves when it grows."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.cache_utils import DynamicLayer


class RoomyLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values of one layer, kept where there is room for more: appending a token moves no other.

    Twice the room is made where it runs out, so that T tokens, one by one, cost copies of 2 T and not of T * T / 2.
    For sampling: what is appended has no gradient.
    """

    def __init__(self, layer: Any, room: int) -> None:
        """Go on where the `DynamicLayer` `layer` stands, for at most `room` tokens more."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.lazy_initialization(layer.keys, layer.values)
        self._places = [layer.keys, layer.values]
        self._most = layer.get_seq_length() + room
        self._show(layer.get_seq_length())

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values, (B, heads, T, width) each; returns all so far."""
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if end > self._places[0].shape[-2]:
            self._places = [_moved(place, min(2 * end, self._most)) for place in self._places]
        for place, added in zip(self._places, (key_states, value_states), strict=True):
            place[:, :, start:end] = added
        return self._show(end)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep only these rows."""
        used = self.get_seq_length()
        self._places = [place[indices, :, :used] for place in self._places]
        self._show(used)

    def _show(self, tokens: int) -> tuple[Tensor, Tensor]:
        """Make the first so many tokens what the layer holds."""
        keys, values = (place[:, :, :tokens] for place in self._places)
        self.keys, self.values = keys, values
        return keys, values


def _moved(states: Tensor, tokens: int) -> Tensor:
    """The states at the beginning of a place for so many tokens."""
    rows, heads, used, width = states.shape
    place = states.new_empty(rows, heads, tokens, width)
    place[:, :, :used] = states
    return place
