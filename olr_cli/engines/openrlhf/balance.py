"""Which rank computes which samples of a step, and in which mini-batch, so that no rank waits for another.

OpenRLHF takes samples as vLLM finishes them, short ones first, and gives every rank one contiguous chunk. The last rank
therefore gets the long responses. For the update every rank shuffles its own samples, so that in each micro-batch all
ranks wait for the one that drew the longest. Here a step is dealt out once, for its forward passes and its update. With
two mini-batches, two ranks and micro-batches of one sample:

    tokens of 8 samples  80 70 | 60 50 | 40 30 | 20 10   strata of as many samples as there are mini-batches
    mini-batches         70 60 30 20 and 80 50 40 10     drawn: one sample of each stratum, so lengths are spread alike
    rank 0               70 20 and 80 10                 samples of like length are computed side by side; the rank
    rank 1               60 30 and 50 40                 with fewer tokens so far gets the longer one
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from olr_cli import seeding

T = TypeVar("T")


def deal(
    lengths: Sequence[int],
    *,
    ranks: int,
    mini_batch: int,
    micro_batch: int,
    draw: Iterable[seeding.Part],
) -> list[list[int]]:
    """Deal a step's samples out to ranks so that all ranks have about the same work; return the micro-batches (R18).

    Each micro-batch is a list of indices into `lengths`. All micro-batches of the first rank come first, then all of
    the second rank, and so on. Within a rank, they are in the order of the mini-batches.

    Args:
        lengths: number of tokens of each sample, prompt and response together.
        ranks: number of processes that train a copy of the policy.
        mini_batch: number of samples per optimiser step, on all ranks together.
        micro_batch: number of samples per pass on one rank.
        draw: words and numbers that identify the random draw of the mini-batches, such as the seed and the step
            (`olr_cli.seeding`). For equal lengths, the same draw gives the same mini-batches.

    Raises:
        ValueError: the number of samples is not a multiple of `mini_batch`, or `mini_batch` is not a multiple of
            `micro_batch` * `ranks`.
    """
    if len(lengths) % mini_batch or mini_batch % (micro_batch * ranks):
        raise ValueError(
            f"{len(lengths)} samples don't divide into mini-batches of {mini_batch} on {ranks} ranks, {micro_batch} at"
            " a time"
        )
    batches_of_ranks: list[list[list[int]]] = [[] for _ in range(ranks)]
    tokens = [
        0
    ] * ranks  # with padding: each sample of a micro-batch costs as much as its longest
    for samples in _mini_batches(lengths, len(lengths) // mini_batch, tuple(draw)):
        # Deal the longest first, so that the shorter ones can level the difference that remains.
        for side_by_side in _cut(_cut(samples, micro_batch), ranks):
            # `side_by_side` begins with the longest micro-batch, which goes to the rank with the fewest tokens.
            for rank, batch in zip(
                sorted(range(ranks), key=tokens.__getitem__), side_by_side, strict=True
            ):
                # A rank pads its micro-batch to its longest sample, which is the first.
                batches_of_ranks[rank].append(batch)
                tokens[rank] += lengths[batch[0]]
    return [batch for batches in batches_of_ranks for batch in batches]


def _mini_batches(
    lengths: Sequence[int], count: int, draw: tuple[seeding.Part, ...]
) -> list[list[int]]:
    """Draw `count` mini-batches of equal size, each with a similar mix of short and long samples.

    A mini-batch is a list of indices into `lengths`, the longest sample first. `draw` names the random draw, as in
    `deal`.
    """
    by_length = sorted(range(len(lengths)), key=lambda sample: (-lengths[sample], sample))
    strata = [
        [stratum[place] for place in seeding.permutation(count, *draw, number)]
        for number, stratum in enumerate(_cut(by_length, count))
    ]
    return [list(samples) for samples in zip(*strata, strict=True)]


def _cut(items: Sequence[T], size: int) -> list[list[T]]:
    """Cut a list into parts of `size` items; the last part may be shorter."""
    return [list(items[first : first + size]) for first in range(0, len(items), size)]
