"""Rewards, from the verifier's verdict (R16) or the policy's own certainty about a response.

The intrinsic rewards need no label. They are statistics of the policy that sampled, means over response tokens alone;
no gradient flows through them: like the verifier's, they only weigh the tokens' log-likelihood, by their advantage.
(The authors' code averages over padding too and then sums over tokens, which rewards length.)

A response has one score. Rounding gives equal responses scores that differ in the last digits, and dividing by the
group's standard deviation would blow those up to advantages; so equal responses share their mean score. (Equal texts
that were written in other tokens, or ended by another end token, are told apart by their scores.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import fsum

from olr_cli.recipe.methods import IntrinsicReward
from olr_cli.supervision.types import Step

ROUNDING = 1e-2
"""Nats by which the mean of one response's token statistics may differ between batches, in bfloat16."""


@dataclass(frozen=True, slots=True)
class Score:
    """An intrinsic reward: `sign` times a statistic of the policy that sampled, in nats.

    Attributes:
        field: the statistic, a mean over response tokens.
        is_summed: the statistic is summed over response tokens instead, which rewards brevity.
    """

    field: str
    sign: int
    is_summed: bool = False

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics that it is computed from."""
        return (self.field, "tokens") if self.is_summed else (self.field,)

    def rewards(self, step: Step, start: int, end: int) -> list[float]:
        """Rewards of the rollouts from `start` up to `end`, which are those of one view of a prompt.

        Raises:
            ValueError: a rollout lacks a statistic.
        """
        scores = self._shared(step, start, end)
        if self.is_summed:
            # A sum over tokens is their mean times their number.
            lengths = step.statistic("tokens", start, end)
            scores = [mean * tokens for mean, tokens in zip(scores, lengths, strict=True)]
        return [self.sign * score for score in scores]

    def _shared(self, step: Step, start: int, end: int) -> list[float]:
        """Return the statistic of every rollout: its mean over the rollouts that are equal to it up to rounding."""
        scores, responses = (
            step.statistic(self.field, start, end),
            step.responses[start:end],
        )
        tokens = step.statistics.get("tokens")
        lengths = [0] * len(scores) if tokens is None else tokens[start:end]
        texts = [
            (text, length or 0) for text, length in zip(responses, lengths, strict=True)
        ]
        # Equal responses side by side, by their scores.
        order = sorted(range(len(scores)), key=lambda place: (texts[place], scores[place]))
        # Where another response begins, or the same one with a score that rounding does not explain.
        starts = [
            number
            for number, (one, other) in enumerate(pairwise(order), start=1)
            if texts[one] != texts[other] or scores[other] - scores[one] >= ROUNDING
        ]
        for first, last in pairwise([0, *starts, len(order)]):
            mean = fsum(scores[place] for place in order[first:last]) / (last - first)
            for place in order[first:last]:
                scores[place] = mean
        return scores


SCORES: Mapping[IntrinsicReward, tuple[str, int]] = {
    "self_certainty": ("self_certainty", 1),
    "token_entropy": ("entropy", -1),
    "sequence_entropy": ("mean_logprob", 1),
}
"""The statistic and the sign of each method that needs no label.

| method | score | source |
|---|---|---|
| self_certainty | mean of KL(uniform, pi) = -log V - mean_v log pi(v), V tokens | Zhao et al. 2025, arXiv:2505.19590 |
| token_entropy | minus mean or sum of H(pi) = -sum_v pi(v) log pi(v) | Agarwal et al. 2025, arXiv:2505.15134, token |
| sequence_entropy | mean or sum of log pi(token), the response's log-likelihood | the same, sequence |

`score_reduction: mean`, the default, departs from the sources, which sum.
"""
