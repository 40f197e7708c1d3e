"""The GRPO update (R17): a step's rollouts and advantages become a loss and optimiser steps.

    loss = mean over response tokens of
           clipped surrogate(log pi, A)  +  kl_weight * KL  -  penalty_weight * entropy of pi

Either every token weighs alike in that mean, or every response does (`token_weights`).

With label smoothing (Szegedy et al. 2016, arXiv:1512.00567; Lukasik et al. 2020, arXiv:2003.02819) the log pi of the
surrogate is that of a token mixed with the uniform distribution, see `smoothed`. The confidence penalty (Pereyra et
al. 2017, arXiv:1701.06548) is the last term, and its gradient flows through the entropy.

Settings and details follow verl, which the authors ran, with three departures. The mean is exact, however many
micro-batches a mini-batch is accumulated from; mini-batches are of whole prompts; and advantages are Eq. 1's, with the
population standard deviation, where the authors' code has the sample's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.utils.checkpoint import checkpoint

from olr_cli.engines.local.policy import Policy
from olr_cli.engines.local.prefix_tree import PrefixTree
from olr_cli.engines.local.responses import self_certainty_of
from olr_cli.engines.local.room import tokens_to_train
from olr_cli.engines.local.sampler import SampledRollouts
from olr_cli.engines.run import (
    ADAM_BETAS,
    DUAL_CLIP,
    GRADIENT_CLIP,
    LOSS_OR_GRADIENT,
    NONFINITE,
    WEIGHT_DECAY,
    NonFinite,
)
from olr_cli.recipe.methods import MethodSection
from olr_cli.recipe.sections import LossAverage, TrainSection

MOST_SCORES = 2**28
"""Logits of one forward and backward pass: 1 GiB in float32, of which a pass needs about four; twice that where it
needs whole distributions."""

_FULL_TREE = 384
"""Nodes at which the next prompt begins another tree: attention computes all pairs of a tree's nodes, masked or not."""

_MOST_NODES = 4096
"""Largest number of nodes in one tree."""


def clipped_surrogate(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    clip: float,
    clip_high: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Minus the clipped surrogate of each token, and whether the clip holds there.

    PPO's clip bounds what a token can gain. What it can lose, where the advantage is negative and the ratio large, is
    bounded by the dual clip (Ye et al. 2020, arXiv:1912.09729, Eq. 5; on by default in verl's `compute_policy_loss`).

    Args:
        logprobs: log pi(token), any shape.
        old_logprobs: the same under the policy that sampled.
        advantages: broadcastable to them.
        clip: allowed distance of the ratio from 1.
        clip_high: another one above 1, which lets unlikely tokens gain more (clip-higher; Yu et al. 2025,
            arXiv:2503.14476, Eq. 10); None: `clip`.
    """
    ratio = (logprobs - old_logprobs).clamp(-20, 20).exp()
    free = -advantages * ratio
    clipped = -advantages * ratio.clamp(
        1 - clip, 1 + (clip if clip_high is None else clip_high)
    )
    loss = torch.maximum(free, clipped)
    loss = torch.where(advantages < 0, torch.minimum(loss, -advantages * DUAL_CLIP), loss)
    return loss, clipped > free


def k3_divergence(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """KL(policy || reference) estimated from each sampled token: r - 1 - log r, r = reference / policy.

    Unbiased and never negative (Schulman, "Approximating KL divergence", 2020). Bounded as in verl's
    `low_var_kl`: a token whose estimate exceeds 10 has no gradient.
    """
    log_ratio = (reference_logprobs - logprobs).clamp(-20, 20)
    return (log_ratio.exp() - 1 - log_ratio).clamp(max=10)


def smoothed(logprobs: Tensor, self_certainty: Tensor, smoothing: float) -> Tensor:
    """(1 - s) log pi(token) + s mean_v log pi(v), up to a constant that no ratio depends on.

    mean_v log pi(v) is -KL(uniform || pi) - log V. In the ratio of the clipped surrogate, new and old policy alike,
    so at the old policy the gradient is the advantage times that of the smoothed log-likelihood, and the clip bounds
    it as it does without smoothing. Log-likelihoods and self-certainty, KL(uniform || pi), are of the same tokens.
    """
    return (1 - smoothing) * logprobs - smoothing * self_certainty


def token_weights(lengths: Tensor, average: LossAverage) -> Tensor:
    """How much each token of a response weighs in the loss, beside the tokens of the other responses.

    The loss of a mini-batch is the weighted mean over its response tokens: of all tokens alike, or of the responses'
    own means alike. `lengths`, of any shape, are at least 1.
    """
    return (
        1 / lengths if average == "sequence" else torch.ones_like(lengths, dtype=torch.float32)
    )


class TokenStatistics(NamedTuple):
    """Statistics of each response token at the sampling temperature, in nats, (P, G, T) float32; None if not wanted."""

    logprobs: Tensor
    entropy: Tensor | None
    self_certainty: Tensor | None


def response_statistics(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    tokens_PGT: Tensor,
    temperature: float,
    *,
    lengths_PG: Tensor | None = None,
    entropy: bool = False,
    self_certainty: bool = False,
) -> TokenStatistics:
    """Statistics of given responses; each prompt is read once, and where tokens are costly every equal beginning.

    Differentiable. Padding after a response (of T tokens, unless `lengths_PG` says how many) has no influence on
    it; positions past the end of a response hold arbitrary values.
    """

    def of(logits_NV: Tensor, place: Tensor, tokens: Tensor) -> TokenStatistics:
        """Statistics of tokens of any shape, each drawn by the logits of one of N places."""
        logits_NV = logits_NV.float()
        if temperature != 1:
            logits_NV = logits_NV / temperature
        log_pi_NV = torch.log_softmax(logits_NV, dim=-1)
        return TokenStatistics(
            log_pi_NV[place, tokens],
            -(log_pi_NV.exp() * log_pi_NV).sum(-1)[place] if entropy else None,
            self_certainty_of(log_pi_NV)[place] if self_certainty else None,
        )

    head = policy.model.get_output_embeddings()
    V = head.weight.shape[0]
    in_pieces = policy.has_plain_head and tokens_PGT.numel() * V > MOST_SCORES
    with policy.precision(), policy.without_head() if in_pieces else nullcontext():
        scores = (
            _scores_of_tree(policy, prompts, tokens_PGT, lengths_PG)
            if policy.reads_trees
            else None
        )
        states_ND, place_PGT = scores or _scores_of_rows(policy, prompts, tokens_PGT)
    if not in_pieces:
        return of(states_ND, place_PGT, tokens_PGT)

    def of_hidden(hidden_ND: Tensor, place_M: Tensor, tokens_M: Tensor) -> TokenStatistics:
        with policy.precision():
            logits_NV = head(hidden_ND)
        return of(logits_NV, place_M, tokens_M)

    return _in_pieces(
        of_hidden, states_ND, place_PGT, tokens_PGT, max(1, MOST_SCORES // 4 // V)
    )


def _in_pieces(
    of: Callable[[Tensor, Tensor, Tensor], TokenStatistics],
    hidden_ND: Tensor,
    place_PGT: Tensor,
    tokens_PGT: Tensor,
    size: int,
) -> TokenStatistics:
    """Statistics from the hidden states of `size` places at a time, of which the backward pass makes logits again."""
    # Tokens in the order of their places: those of a piece are neighbours.
    place_M, order_M = place_PGT.flatten().sort(stable=True)
    tokens_M = tokens_PGT.flatten()[order_M]
    starts = torch.arange(0, len(hidden_ND) + size, size, device=place_M.device)
    bounds = torch.searchsorted(place_M, starts).tolist()
    pieces = [
        checkpoint(
            of,
            hidden_ND[number * size : (number + 1) * size],
            place_M[first:last] - number * size,
            tokens_M[first:last],
            use_reentrant=False,
            preserve_rng_state=False,
        )
        for number, (first, last) in enumerate(pairwise(bounds))
    ]
    back_M = order_M.argsort()
    columns = (
        None if parts[0] is None else torch.cat(parts)[back_M].view_as(tokens_PGT)
        for parts in zip(*pieces, strict=True)
    )
    return TokenStatistics(*columns)  # type: ignore[arg-type]


def _scores_of_rows(
    policy: Policy, prompts: Sequence[Sequence[int]], tokens_PGT: Tensor
) -> tuple[Tensor, Tensor]:
    """Logits before every token of every response, (N, V), and the row of each token, (P, G, T)."""
    P, G, T = tokens_PGT.shape
    place_PGT = torch.arange(P * G * T, device=policy.device).view(P, G, T)
    if policy.reads_whole(prompts, T):
        with policy.recomputing():
            return policy.read_whole(prompts, tokens_PGT).flatten(0, 1), place_PGT
    context = policy.read(prompts)
    context.repeat(G)
    logits_BTV = context.logits_BV[:, None]
    if T > 1:
        later_BTV = policy.extend(context, tokens_PGT.flatten(0, 1)[:, :-1])
        logits_BTV = torch.cat([logits_BTV, later_BTV], dim=1)
    return logits_BTV.flatten(0, 1), place_PGT


def _scores_of_tree(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    tokens_PGT: Tensor,
    lengths_PG: Tensor | None,
) -> tuple[Tensor, Tensor] | None:
    """Like `_scores_of_rows`, equal beginnings computed once; None if a prompt's tree is too large."""
    P, G, T = tokens_PGT.shape
    lengths = [[T] * G] * P if lengths_PG is None else lengths_PG.tolist()
    trees: list[tuple[PrefixTree, list[int]]] = []
    place_PGT = torch.zeros(P, G, T, dtype=torch.long)
    scored = 0
    for p, group in enumerate(tokens_PGT.tolist()):
        if not trees or len(trees[-1][0]) >= _FULL_TREE:
            trees.append((PrefixTree(), []))
        tree, nodes = trees[-1]
        end = tree.add(prompts[p])[-1]
        places: dict[int, int] = {}
        for g, (tokens, length) in enumerate(zip(group, lengths[p], strict=True)):
            path = [end, *tree.add(tokens[: length - 1], after=end)]
            for node in path:
                places.setdefault(node, scored + len(places))
            place_PGT[p, g, :length] = torch.tensor([places[node] for node in path])
        nodes += places
        scored += len(places)
        if len(tree) > _MOST_NODES:
            return None
    with policy.recomputing():
        logits = [policy.read_tree(tree, nodes) for tree, nodes in trees]
    return torch.cat(logits), place_PGT.to(policy.device)


@dataclass(frozen=True)
class _MicroBatch:
    """Some rollouts of some prompts: what one forward and backward pass takes.

    Attributes:
        where: index into the step's (P, G).
        prompts: their token ids.
        tokens_PGT: their responses, T the longest here.
        lengths_PG: response tokens.
    """

    where: tuple[list[int], slice]
    prompts: list[list[int]]
    tokens_PGT: Tensor
    lengths_PG: Tensor

    @property
    def is_response_PGT(self) -> Tensor:
        """False at padding."""
        positions_T = torch.arange(self.tokens_PGT.shape[2], device=self.lengths_PG.device)
        return positions_T < self.lengths_PG[..., None]


class Grpo:
    """Owns the optimiser, whose state belongs in a checkpoint, and takes its steps."""

    def __init__(
        self,
        policy: Policy,
        reference: Policy | None,
        train: TrainSection,
        method: MethodSection,
        *,
        views: int = 1,
        micro_batch_tokens: int | None = None,
    ) -> None:
        """Make an optimiser for `policy`, which is trained in place.

        Args:
            policy: to be trained.
            reference: the frozen starting policy of the KL term; None for none.
            train: the settings of the loss and the mini-batches.
            method: for its confidence penalty and its label smoothing.
            views: of each prompt, neighbours in the rollouts; a mini-batch has all views of its prompts.
            micro_batch_tokens: the most tokens of one forward and backward pass, with padding; at least one rollout.
                None: `olr_cli.engines.local.room`.
        """
        self.policy = policy
        self.reference = reference
        self.train = train
        self.method = method
        self.mini_batch_rows = (train.mini_batch_prompts or train.prompts_per_step) * views
        self.micro_batch_tokens = micro_batch_tokens or tokens_to_train(policy)
        self.parameters = [
            weight for weight in policy.model.parameters() if weight.requires_grad
        ]
        self.optimizer = torch.optim.AdamW(
            self.parameters, betas=ADAM_BETAS, weight_decay=WEIGHT_DECAY, fused=True
        )
        self.optimizer.zero_grad()

    def update(
        self,
        rollouts: SampledRollouts,
        advantages_PG: Tensor,
        trains_P: Sequence[bool],
        learning_rates: Sequence[float] | None = None,
    ) -> dict[str, float]:
        """One pass over a step's rollouts, an optimiser step for every mini-batch of prompts, in their order.

        Args:
            rollouts: sampled from the policy as it is now.
            advantages_PG: theirs (Eq. 1).
            trains_P: whether a prompt takes part. One that doesn't is in no sum and no count; it only keeps its
                place in its mini-batch. A mini-batch without any prompt that trains is no step.
            learning_rates: of each mini-batch; by default `train.learning_rate`.

        Returns:
            ``policy/{kl,entropy,clip_fraction,grad_norm,lr,nonfinite}``. The KL is averaged as the loss is, over the
            rollouts that train; the entropy is of the policy that sampled, over the tokens of all rollouts. What has
            no value (KL without reference, anything of a step that trains nothing) is omitted.

        Raises:
            NonFinite: a loss or the gradient is not; the weights are as before this optimiser step.
        """
        advantages_PG = advantages_PG.to(self.policy.device, torch.float32)
        training = [prompt for prompt, trains in enumerate(trains_P) if trains]
        # Before the first optimiser step: later, the ratios of each mini-batch would begin at 1 and never be clipped.
        old_logprobs_PGT = self._old_logprobs(rollouts, training)
        sums = torch.zeros(3, device=self.policy.device)
        grad_norms = []
        starts = range(0, len(trains_P), self.mini_batch_rows)
        rates = learning_rates or [self.train.learning_rate] * len(starts)
        for first, learning_rate in zip(starts, rates, strict=True):
            self.optimizer.param_groups[0]["lr"] = learning_rate
            rows = range(len(trains_P))[first : first + self.mini_batch_rows]
            mini_batch = [row for row in rows if trains_P[row]]
            if not mini_batch:
                continue
            sums += self._accumulate(rollouts, advantages_PG, old_logprobs_PGT, mini_batch)
            grad_norms.append(clip_grad_norm_(self.parameters, GRADIENT_CLIP))
            if not (sums.sum() + grad_norms[-1]).isfinite():  # one wait for the GPU
                raise NonFinite(LOSS_OR_GRADIENT, self.policy.name)
            # AdamW skips what has no gradient; but a mini-batch that teaches nothing is a step too, with momentum and
            # weight decay.
            for parameter in self.parameters:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            self.optimizer.step()
            self.optimizer.zero_grad()
        return self._metrics(rollouts, training, sums, grad_norms)

    def _accumulate(
        self,
        rollouts: SampledRollouts,
        advantages_PG: Tensor,
        old_logprobs_PGT: Tensor,
        mini_batch: list[int],
    ) -> Tensor:
        """Add up the gradient of a mini-batch's loss: the weighted mean over its response tokens.

        Returns:
            The loss, and sums over these tokens: weighted KL estimates, and tokens where the clip held.
        """
        weights_PG = token_weights(rollouts.lengths_PG, self.train.loss_average)
        # Of the whole mini-batch. As the authors ran verl, each micro-batch of 4 responses of like length has its own
        # mean, all with the same weight: in effect a mean over responses, and a memory setting changes the loss (R17).
        all_weights = (weights_PG * rollouts.lengths_PG)[mini_batch].sum()
        sums = torch.zeros(3, device=self.policy.device)
        for batch in self._micro_batches(
            rollouts, self._with_gradient(mini_batch, advantages_PG)
        ):
            T = batch.tokens_PGT.shape[2]
            loss_PGT, kl_PGT, clipped_PGT = self._token_losses(
                batch, old_logprobs_PGT[batch.where][..., :T], advantages_PG[batch.where]
            )
            weights_PG1 = weights_PG[batch.where][..., None]
            # `where`, not a product with the mask: a NaN or an infinity in the padding times 0 would be NaN.
            weighted_PGT = (loss_PGT * weights_PG1).where(batch.is_response_PGT, 0)
            loss = weighted_PGT.sum() / all_weights
            torch.autograd.backward(loss)
            measured_PGT2 = torch.stack(
                [kl_PGT.detach() * weights_PG1, clipped_PGT.float()], dim=-1
            )
            sums[0] += loss.detach()
            sums[1:] += measured_PGT2[batch.is_response_PGT].sum(0)
        return sums

    def _token_losses(
        self, batch: _MicroBatch, old_logprobs_PGT: Tensor, advantages_PG: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Each token's loss without its weight, its KL, and whether the clip held."""
        penalised, is_smoothed = self.method.penalty_weight > 0, self.method.smoothing > 0
        now = self._statistics(
            self.policy, batch, entropy=penalised, self_certainty=is_smoothed
        )
        loss_PGT, clipped_PGT = clipped_surrogate(
            self._surrogate_logprobs(now),
            old_logprobs_PGT,
            advantages_PG[..., None],
            self.train.clip,
            self.train.clip_high,
        )
        if now.entropy is not None:
            loss_PGT = loss_PGT - self.method.penalty_weight * now.entropy
        if self.reference is None:
            return loss_PGT, torch.zeros_like(loss_PGT), clipped_PGT
        with torch.no_grad():
            reference = self._statistics(self.reference, batch)
        # Of the policy itself: label smoothing is for the surrogate's ratio alone.
        kl_PGT = k3_divergence(now.logprobs, reference.logprobs)
        return loss_PGT + self.train.kl_weight * kl_PGT, kl_PGT, clipped_PGT

    def _statistics(
        self, policy: Policy, batch: _MicroBatch, **wanted: bool
    ) -> TokenStatistics:
        prompts, tokens_PGT, lengths_PG = batch.prompts, batch.tokens_PGT, batch.lengths_PG
        return response_statistics(
            policy, prompts, tokens_PGT, self.train.temperature, lengths_PG=lengths_PG, **wanted
        )

    def _surrogate_logprobs(self, statistics: TokenStatistics) -> Tensor:
        """The log-probabilities whose ratio the surrogate takes."""
        if statistics.self_certainty is None:
            return statistics.logprobs
        return smoothed(statistics.logprobs, statistics.self_certainty, self.method.smoothing)

    def _with_gradient(self, mini_batch: list[int], advantages_PG: Tensor) -> list[int]:
        """The prompts of a mini-batch whose loss has a gradient; the tokens of the others still count in the mean."""
        if self.reference is not None or self.method.penalty_weight > 0:
            return mini_batch
        teaches_P = advantages_PG.any(dim=1).tolist()
        return [prompt for prompt in mini_batch if teaches_P[prompt]]

    def _old_logprobs(self, rollouts: SampledRollouts, training: list[int]) -> Tensor:
        """The surrogate's log-probabilities under the policy that sampled.

        In float32 the sampler's own. In bfloat16 the sampler's one-token products and the update's long ones round
        differently, by more than the clip forgives, so they are computed again as the update does.
        """
        if self.policy.dtype == torch.float32:
            if self.method.smoothing == 0:
                return rollouts.logprobs_PGT
            return smoothed(
                rollouts.logprobs_PGT, rollouts.self_certainty_PGT, self.method.smoothing
            )
        old_logprobs_PGT = torch.zeros_like(rollouts.logprobs_PGT)
        with torch.no_grad():
            for batch in self._micro_batches(rollouts, training):
                T = batch.tokens_PGT.shape[2]
                then = self._statistics(
                    self.policy, batch, self_certainty=self.method.smoothing > 0
                )
                old_logprobs_PGT[*batch.where, :T] = self._surrogate_logprobs(then)
        return old_logprobs_PGT

    def _micro_batches(
        self, rollouts: SampledRollouts, chosen: list[int]
    ) -> Iterator[_MicroBatch]:
        """The rollouts of the chosen prompts in as few pieces as fit: whole groups, or parts of one."""
        _, G, T = rollouts.tokens_PGT.shape
        V = self.policy.model.get_output_embeddings().weight.shape[0]
        longest = max(map(len, rollouts.prompts)) + T
        needs_distributions = self.method.penalty_weight > 0 or self.method.smoothing > 0
        most_scores = MOST_SCORES // 2 if needs_distributions else MOST_SCORES
        rows = self.micro_batch_tokens // longest
        # On a GPU the logits come in pieces; on a CPU their number stands for memory as a whole.
        if not (self.policy.device.type == "cuda" and self.policy.has_plain_head):
            rows = min(rows, most_scores // (T * V))
        rows = max(1, rows)
        groups_at_once, rollouts_at_once = max(1, rows // G), min(rows, G)
        for first_group in range(0, len(chosen), groups_at_once):
            for first_rollout in range(0, G, rollouts_at_once):
                groups = chosen[first_group : first_group + groups_at_once]
                where = groups, slice(first_rollout, first_rollout + rollouts_at_once)
                lengths_PG = rollouts.lengths_PG[where]
                tokens_PGT = rollouts.tokens_PGT[where][..., : int(lengths_PG.max())]
                prompts = [rollouts.prompts[prompt] for prompt in groups]
                yield _MicroBatch(where, prompts, tokens_PGT, lengths_PG)

    def _metrics(
        self,
        rollouts: SampledRollouts,
        training: list[int],
        sums: Tensor,
        grad_norms: list[Tensor],
    ) -> dict[str, float]:
        entropy = (rollouts.entropy_PG * rollouts.lengths_PG).sum() / rollouts.lengths_PG.sum()
        metrics = {
            "policy/entropy": float(entropy),
            "policy/lr": self.optimizer.param_groups[0]["lr"],
            NONFINITE: 0.0,
        }
        if training:
            _, kl, clipped = sums.tolist()
            lengths_PG = rollouts.lengths_PG[training]
            metrics["policy/clip_fraction"] = clipped / int(lengths_PG.sum())
            metrics["policy/grad_norm"] = float(torch.stack(grad_norms).mean())
            if self.reference is not None:
                weights_PG = token_weights(lengths_PG, self.train.loss_average)
                metrics["policy/kl"] = kl / float((weights_PG * lengths_PG).sum())
        return metrics
