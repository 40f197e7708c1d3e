"""Random draws as pure functions of their purpose (R18).

A draw is named by its parts, for example ``("order", seed, epoch)``. No generator keeps a state. Neither the order of
the work nor a resume can therefore change a result, and checkpoints store no random state of ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Part = str | int | float

_GOLDEN = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio, the increment of splitmix64."""


def key(*parts: Part) -> int:
    """Return a 64-bit number that depends only on `parts`, which name a random draw, as in ``("order", seed, epoch)``.

    It is equal on every machine and Python version. 1, 1.0 and "1" are different parts.
    """
    # The type is part of the key, so that 1, 1.0 and "1" draw differently; the separator keeps ("ab", "c") apart from
    # ("a", "bc").
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def uniform(*parts: Part) -> float:
    """Return a random number in [0, 1) that depends only on `parts`, which name the draw."""
    # A float64 holds 53 bits; with all 64 the largest keys would round up to 1.0.
    return (key(*parts) >> 11) * 2.0**-53


def permutation(size: int, *parts: Part) -> list[int]:
    """Return the numbers 0 to size - 1 in a random order that depends only on `parts`, which name the draw."""
    return sorted(range(size), key=lambda i: (key(*parts, i), i))


def rollout_keys(
    purpose: str, seed: int, epoch: int, prompt_ids: Iterable[str], rollouts: int
) -> NDArray[np.uint64]:
    """Return an array of random 64-bit numbers (keys), one per rollout, from which the rollout's tokens are drawn.

    The shape of the array is (prompts, rollouts). A key depends only on `purpose`, `seed`, `epoch`, the prompt's id and
    the rollout's number. The batch in which a rollout is sampled makes no difference.

    `purpose` names the draw, such as ``rollout`` or ``held-out``. `rollouts` is the number of rollouts per prompt.
    """
    import numpy as np

    keys = [
        [key(purpose, seed, epoch, name, g) for g in range(rollouts)] for name in prompt_ids
    ]
    return np.array(keys, dtype=np.uint64)


def uniform_streams(keys: NDArray[np.uint64], position: int) -> NDArray[np.float64]:
    """Return one random number in [0, 1) for each key, in the shape of `keys`.

    Each key stands for a stream of random numbers, which depends only on this key (splitmix64, a counter-based
    generator). `position`, from 0, says which number of every stream is returned.
    """
    import numpy as np

    # The algorithm multiplies modulo 2**64, so overflow is intended.
    with np.errstate(over="ignore"):
        z = keys + np.uint64((_GOLDEN * (position + 1)) & 0xFFFFFFFFFFFFFFFF)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
