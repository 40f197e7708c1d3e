"""Intrinsic rewards: how sure the policy is of a response, instead of a verifier's verdict (R16).

They need no label. Each is a statistic of the policy that sampled the response, a mean over its tokens. No gradient
flows through it: like a verdict, it only weighs the tokens' log-likelihood, through the advantage. (The authors' code
averages over padding too and then sums over tokens, which rewards length.)

Equal responses share one score, the mean of theirs. Rounding gives them scores that differ in the last digits, and
dividing by the group's standard deviation would blow those differences up into advantages. (Equal texts made of other
tokens, or ended by another end token, keep different scores.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import fsum

from olr_cli.recipe.methods import IntrinsicReward
from olr_cli.supervision.types import Step

ROUNDING = 1e-2
"""Largest difference, in nats, between the mean token statistics of one response in different batches (bfloat16)."""


@dataclass(frozen=True, slots=True)
class Score:
    """Computes a method's intrinsic rewards, which tell how sure the policy is of a response and need no label.

    The reward of a rollout is `sign` (1 or -1) times the statistic `field` of its tokens, such as their entropy, in
    nats. The statistic is the mean over the tokens or, if `is_summed`, the sum.
    """

    field: str
    """The statistic, a mean over response tokens."""

    sign: int
    is_summed: bool = False
    """Sum the statistic over response tokens instead, which rewards brevity."""

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the columns of `Step.statistics` that the reward is computed from."""
        return (self.field, "tokens") if self.is_summed else (self.field,)

    def rewards(self, step: Step, start: int, end: int) -> list[float]:
        """Return the intrinsic rewards of a step's rollouts from index `start` up to, but not including, `end`.

        They say how sure the policy was of each response: `sign` times the mean (or sum) of the statistic `field` over
        its tokens. Rewards of equal responses that differ only by rounding are made equal, so the rollouts must be
        those of one prompt in one wording.

        Raises:
            ValueError: a rollout lacks the statistic or, if `is_summed`, its number of tokens.
        """
        scores = self._shared_values(step, start, end)
        if self.is_summed:
            # A sum over tokens is their mean times their number.
            lengths = step.statistic("tokens", start, end)
            scores = [mean * tokens for mean, tokens in zip(scores, lengths, strict=True)]
        return [self.sign * score for score in scores]

    def _shared_values(self, step: Step, start: int, end: int) -> list[float]:
        """Return the reward's statistic for the rollouts from index `start` up to, but not including, `end`.

        Equal responses (same text and number of tokens) should have equal values, but rounding makes them differ.
        Values of equal responses that are less than `ROUNDING` apart are all replaced by their mean.
        """
        scores, responses = (
            step.statistic(self.field, start, end),
            step.responses[start:end],
        )
        tokens = step.statistics.get("tokens")
        lengths = [0] * len(scores) if tokens is None else tokens[start:end]
        # Equal texts of different lengths were made of other tokens, so they are different responses.
        identities = [
            (text, length or 0) for text, length in zip(responses, lengths, strict=True)
        ]
        # Equal responses become neighbours; a new run begins where the text changes or the score jumps.
        order = sorted(
            range(len(scores)), key=lambda index: (identities[index], scores[index])
        )
        run_starts = [
            position
            for position, (previous, current) in enumerate(pairwise(order), start=1)
            if identities[previous] != identities[current]
            or scores[current] - scores[previous] >= ROUNDING
        ]
        for run_start, run_end in pairwise([0, *run_starts, len(order)]):
            mean = fsum(scores[index] for index in order[run_start:run_end]) / (
                run_end - run_start
            )
            for index in order[run_start:run_end]:
                scores[index] = mean
        return scores


SCORES: Mapping[IntrinsicReward, tuple[str, int]] = {
    "self_certainty": ("self_certainty", 1),
    "token_entropy": ("entropy", -1),
    "sequence_entropy": ("mean_logprob", 1),
}
"""Reward -> (statistic, sign).

| method | score | source |
|---|---|---|
| self_certainty | mean of KL(uniform, pi) = -log V - mean_v log pi(v), V tokens | Zhao et al. 2025, arXiv:2505.19590 |
| token_entropy | minus mean or sum of H(pi) = -sum_v pi(v) log pi(v) | Agarwal et al. 2025, arXiv:2505.15134, token |
| sequence_entropy | mean or sum of log pi(token), the response's log-likelihood | the same, sequence |

The default, `score_reduction: mean`, departs from the sources, which sum.
"""
