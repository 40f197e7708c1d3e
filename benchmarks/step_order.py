"""What the order of a step's samples costs, and what each response weighs in the loss: a simulation, in a second.

A step of the paper: 160 prompts x 8 responses, mini-batches of 256 samples on 8 GPUs. Lengths are drawn: log-normal,
half of the variance between prompts, cut at 4,096 tokens. A forward pass over L tokens costs 2 P L + 2 layers 4096 L^2
(recipes/paper/README.md, Cost; Qwen3-4B), a micro-batch as much as its longest sample each, because samples are padded.

- Forward passes: every GPU computes its own samples, and the step waits for the last GPU. With ZeRO 3 GPUs hand each
  other their parts of the weights on the way, so each waits for the longest after every micro-batch.
- Update: GPUs add their gradients up after each micro-batch (ZeRO 2 and 3), so each waits for the longest.
- Times are relative to all samples without padding, divided equally among the GPUs.
- Weights are shares of the loss relative to shares of the samples: 1 where all responses weigh alike.

    python benchmarks/step_order.py
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable, Sequence

from olr_cli.engines.openrlhf.balance import deal

PROMPTS, ROLLOUTS, LONGEST, PROMPT_TOKENS = 160, 8, 4096, 200
RANKS, MINI_BATCH, MICRO_BATCH, AUTHORS_MICRO_BATCH = 8, 256, 2, 4
PARAMETERS, LAYERS, HEADS = 4.02e9, 36, 4096

Groups = list[list[int]]
"""Response tokens, of a prompt's rollouts each."""


def lengths_of_a_step(rng: random.Random, median: float, spread: float) -> Groups:
    """Response lengths of a step, its groups in the order in which their longest response ends."""

    def group() -> list[int]:
        own = rng.gauss(0, spread / 2**0.5)
        return [
            min(
                LONGEST,
                max(
                    1, round(median * 2.718281828 ** (own + rng.gauss(0, spread / 2**0.5)))
                ),
            )
            for _ in range(ROLLOUTS)
        ]

    return sorted((group() for _ in range(PROMPTS)), key=max)


def cost(tokens: int) -> float:
    """Operations of a forward pass over one sample."""
    return 2 * PARAMETERS * tokens + 2 * LAYERS * HEADS * tokens**2


def padded(batch: Sequence[int]) -> float:
    """Operations of a micro-batch of samples, given by their tokens."""
    return len(batch) * cost(max(batch))


def cut(items: Sequence[int], size: int) -> list[list[int]]:
    """Consecutive pieces."""
    return [list(items[first : first + size]) for first in range(0, len(items), size)]


def openrlhf_ranks(samples: Sequence[int]) -> list[list[list[int]]]:
    """Each rank's micro-batches: contiguous chunks in the order of arrival."""
    return [cut(chunk, MICRO_BATCH) for chunk in cut(samples, len(samples) // RANKS)]


def shuffled(ranks: list[list[list[int]]], rng: random.Random) -> list[list[list[int]]]:
    """The micro-batches of the update when every rank shuffles its samples."""
    own = [[tokens for batch in rank for tokens in batch] for rank in ranks]
    return [cut(rng.sample(samples, len(samples)), MICRO_BATCH) for samples in own]


def dealt_ranks(samples: Sequence[int], step: int) -> list[list[list[int]]]:
    """Each rank's micro-batches as olr deals them out."""
    batches = deal(
        samples,
        ranks=RANKS,
        mini_batch=MINI_BATCH,
        micro_batch=MICRO_BATCH,
        draw=("benchmark", step),
    )
    tokens = [[samples[number] for number in batch] for batch in batches]
    return [
        tokens[first : first + len(tokens) // RANKS]
        for first in range(0, len(tokens), len(tokens) // RANKS)
    ]


def forward_time(ranks: list[list[list[int]]]) -> float:
    """Of the slowest rank, over an equal share without padding."""
    return max(sum(map(padded, rank)) for rank in ranks) / _share(ranks)


def time_together(ranks: list[list[list[int]]]) -> float:
    """Ranks wait for each other after every micro-batch."""
    return sum(
        max(map(padded, together)) for together in zip(*ranks, strict=True)
    ) / _share(ranks)


def _share(ranks: list[list[list[int]]]) -> float:
    return sum(cost(tokens) for rank in ranks for batch in rank for tokens in batch) / len(
        ranks
    )


def token_weights(responses: Sequence[int], rng: random.Random) -> list[tuple[int, float]]:
    """(Length, weight) with one mean over the tokens of a mini-batch, drawn at random."""
    mini_batches = cut(rng.sample(responses, len(responses)), MINI_BATCH)
    return [
        (length, length / statistics.mean(batch))
        for batch in mini_batches
        for length in batch
    ]


def sequence_weights(
    responses: Sequence[int], rng: random.Random
) -> list[tuple[int, float]]:
    """(Length, weight) with a mean over responses."""
    return [(length, 1.0) for length in responses]


def authors_weights(
    responses: Sequence[int], rng: random.Random
) -> list[tuple[int, float]]:
    """(Length, weight) with verl's `balance_batch`, micro-batches of 4 and a token mean of each.

    Samples are dealt to ranks in turns, which stands for verl's partition; each rank's are sorted by length, every
    second one in falling order behind the others, and cut.
    """
    found = []
    by_length = sorted(responses)
    for rank in range(RANKS):
        own = by_length[rank::RANKS]
        for batch in cut(own[::2] + own[1::2][::-1], AUTHORS_MICRO_BATCH):
            found += [(length, length / statistics.mean(batch)) for length in batch]
    return found


def ends(weights: list[tuple[int, float]], share: float = 0.05) -> tuple[float, float]:
    """Mean weight of the longest and of the shortest responses, a share of all."""
    ordered, count = [weight for _, weight in sorted(weights)], round(share * len(weights))
    return statistics.mean(ordered[-count:]), statistics.mean(ordered[:count])


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--median", type=float, default=800, help="tokens of a response")
    parser.add_argument(
        "--spread", type=float, default=0.7, help="standard deviation of their logarithm"
    )
    options = parser.parse_args()
    rng = random.Random(0)
    steps = [
        lengths_of_a_step(rng, options.median, options.spread) for _ in range(options.steps)
    ]
    responses = [[length for group in groups for length in group] for groups in steps]
    samples = [[PROMPT_TOKENS + length for length in step] for step in responses]

    before = [openrlhf_ranks(step) for step in samples]
    after = [dealt_ranks(step, number) for number, step in enumerate(samples)]
    print(f"{'time over an equal share without padding':44} forward  ZeRO 3  update")
    for name, ranks, update in (
        (
            "OpenRLHF: chunks as they finish, shuffled",
            before,
            [shuffled(one, rng) for one in before],
        ),
        ("olr: dealt out by length", after, after),
    ):
        pairs = ((forward_time, ranks), (time_together, ranks), (time_together, update))
        print(
            f"{name:44}", *(f"{statistics.mean(map(time, of)):7.2f}" for time, of in pairs)
        )
    print(f"\n{'weight in the loss, 5 % of the responses':44} longest shortest")
    rules: dict[str, Callable[[Sequence[int], random.Random], list[tuple[int, float]]]] = {
        "loss_average: token": token_weights,
        "loss_average: sequence": sequence_weights,
        "the authors'": authors_weights,
    }
    for name, rule in rules.items():
        found = [ends(rule(step, rng)) for step in responses]
        longest, shortest = (statistics.mean(column) for column in zip(*found, strict=True))
        print(f"{name:44} {longest:7.2f} {shortest:8.2f}")


if __name__ == "__main__":
    main()
