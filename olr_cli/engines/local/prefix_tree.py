"""Token sequences as a tree: common beginnings are computed once, and nothing is padded.

    the few-shot examples ─┬─ 7 * 13 = ─┬─ 9 ─ 1 ─ end
                           │            └─ 8 ─┬─ 1 ─ end
                           │                  └─ 9 ─ end
                           └─ 6 * 23 = ─── …

A node is a token. In attention it sees itself and its ancestors, as it would at the end of its own sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class PrefixTree:
    """Token sequences as a tree, in which sequences share the nodes of their common beginning.

    A node stands for one token. Nodes are numbered from 0 in the order in which they are added.

    Attributes:
        tokens: token id of each node.
        depths: for each node, the number of its ancestors, which is the position of its token in a sequence.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.depths: list[int] = []
        self._parents: list[int] = []
        self._children: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, tokens: Sequence[int], after: int = -1) -> list[int]:
        """Add a token sequence as a path below the node `after`, and return the node number of each token.

        With -1 for `after`, the path begins at the root, which is no node. Nodes that the path shares with an earlier
        one are used again.
        """
        path = []
        for token in tokens:
            child = self._children.get((after, token))
            if child is None:
                child = self._children[after, token] = len(self.tokens)
                self.tokens.append(token)
                self.depths.append(self.depths[after] + 1 if after >= 0 else 0)
                self._parents.append(after)
            path.append(after := child)
        return path

    def is_visible_NN(self) -> NDArray[np.bool_]:
        """Return the attention mask: each node (row) attends to itself and its ancestors (columns)."""
        visible = np.eye(len(self), dtype=np.bool_)
        for node, parent in enumerate(self._parents):
            # A parent is added before its children, so its row is complete here.
            if parent >= 0:
                visible[node] |= visible[parent]
        return visible
