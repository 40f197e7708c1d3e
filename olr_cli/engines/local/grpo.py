"""The GRPO update (R17): a step's rollouts and advantages become a loss and optimiser steps.

loss.py has the formula of the loss. Settings and details follow verl, which the authors ran, with three departures:

- The mean is exact, into however many micro-batches a mini-batch is split.
- Mini-batches consist of whole prompts.
- Advantages are those of Eq. 1, with the population standard deviation; the authors' code has the sample's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from olr_cli.engines.local import token_statistics
from olr_cli.engines.local.loss import (
    TokenLosses,
    TokenStatistics,
    smoothed,
    token_losses,
    token_weights,
)
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.local.room import tokens_to_train
from olr_cli.engines.local.sampler import SampledRollouts
from olr_cli.engines.local.token_statistics import response_statistics
from olr_cli.engines.run import (
    ADAM_BETAS,
    GRADIENT_CLIP,
    LOSS_OR_GRADIENT,
    NONFINITE,
    WEIGHT_DECAY,
    NonFinite,
)
from olr_cli.recipe.methods import MethodSection
from olr_cli.recipe.sections import TrainSection


@dataclass(frozen=True)
class _MicroBatch:
    """The rollouts of one forward and backward pass: all rollouts of some prompts, or some rollouts of one prompt.

    `Grpo._micro_batches` makes it from the rollouts of a step.
    """

    where: tuple[list[int], slice]
    """Index into the first two dimensions of the step's tensors: the prompts, and the rollouts of each."""

    prompts: list[list[int]]
    """Token ids of these prompts."""

    tokens_PGT: Tensor
    """Response tokens; T is the longest response here."""

    lengths_PG: Tensor
    """Number of response tokens."""

    @property
    def is_response_PGT(self) -> Tensor:
        """Mask of the responses, True at response tokens and False at padding."""
        positions_T = torch.arange(self.tokens_PGT.shape[2], device=self.lengths_PG.device)
        return positions_T < self.lengths_PG[..., None]


class Grpo:
    """The GRPO update: computes the loss of sampled rollouts and takes the optimiser's steps.

    It owns the optimiser, whose state belongs in a checkpoint.
    """

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
            policy: the policy to train.
            reference: the frozen starting policy of the KL term; None without that term.
            train: the settings of the loss and the mini-batches.
            method: sets the confidence penalty and the label smoothing.
            views: number of wordings (views) of each prompt. Each wording is a row of the rollouts; the rows of a
                prompt are neighbours and belong to one mini-batch.
            micro_batch_tokens: the most tokens of one forward and backward pass, with padding. A pass has at least one
                rollout, even if that is longer. None to measure how many tokens fit (`olr_cli.engines.local.room`).
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
        """Update the policy in one pass over a step's rollouts, with an optimiser step for every mini-batch of prompts.

        Args:
            rollouts: sampled from the policy as it is now; mini-batches take the prompts in order.
            advantages_PG: the rollouts' advantages.
            trains_P: whether each prompt trains. A prompt that does not train is left out of all sums and counts, but
                keeps its place in its mini-batch. A mini-batch in which no prompt trains makes no step.
            learning_rates: one per mini-batch; None for `train.learning_rate` in all of them.

        Returns:
            Metrics whose names begin with ``policy/``. ``kl`` is the mean of the tokens' KL estimates, weighted as in
            the loss. ``clip_fraction`` is the share of tokens at which the clip is active. Both count only prompts that
            train. ``entropy`` is the mean over the tokens of all rollouts, under the policy that sampled. ``grad_norm``
            is the gradient's norm before clipping, averaged over the optimiser steps. ``lr`` is the last mini-batch's
            learning rate. ``nonfinite`` is always 0, because other values raise NonFinite.

            Without a reference, ``kl`` is absent. If no prompt trains, ``kl``, ``clip_fraction`` and ``grad_norm`` are
            absent.

        Raises:
            NonFinite: a loss or the gradient is NaN or infinite. The weights are then those before the failed optimiser
                step.
        """
        advantages_PG = advantages_PG.to(self.policy.device, torch.float32)
        training = [prompt for prompt, trains in enumerate(trains_P) if trains]
        starts = range(0, len(trains_P), self.mini_batch_rows)
        rows_P = range(len(trains_P))
        mini_batches = [
            [row for row in rows_P[start : start + self.mini_batch_rows] if trains_P[row]]
            for start in starts
        ]
        # Before the first optimiser step. Computed later, they would give every mini-batch ratios of 1, and the clip
        # would never act.
        old_logprobs_PGT = self._old_logprobs(rollouts, mini_batches, advantages_PG)
        sums = torch.zeros(3, device=self.policy.device)
        grad_norms: list[Tensor] = []
        rates = learning_rates or [self.train.learning_rate] * len(starts)
        for mini_batch, learning_rate in zip(mini_batches, rates, strict=True):
            self.optimizer.param_groups[0]["lr"] = learning_rate
            if not mini_batch:
                continue
            is_first = not grad_norms
            sums += self._accumulate(
                rollouts,
                advantages_PG,
                None if is_first and self._computes_old_logprobs else old_logprobs_PGT,
                mini_batch,
            )
            grad_norms.append(clip_grad_norm_(self.parameters, GRADIENT_CLIP))
            # Check the sum of all, because each check waits for the GPU.
            if not (sums.sum() + grad_norms[-1]).isfinite():
                raise NonFinite(LOSS_OR_GRADIENT, self.policy.name)
            # AdamW skips parameters without a gradient. A mini-batch that teaches nothing is a step too, with momentum
            # and weight decay.
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
        old_logprobs_PGT: Tensor | None,
        mini_batch: list[int],
    ) -> Tensor:
        """Add the gradient of a mini-batch's loss to the parameters' gradients.

        The loss is the mean over the mini-batch's response tokens, with the weights of `token_weights`.

        Args:
            rollouts: the rollouts of the whole step.
            advantages_PG: the advantages of these rollouts.
            old_logprobs_PGT: what `_old_logprobs` returns; None if the policy has not changed since it sampled.
            mini_batch: indices of the mini-batch's prompts that train.

        Returns:
            A tensor of three numbers: the loss, the weighted sum of the tokens' KL estimates, and the number of tokens
            at which the clip is active.
        """
        weights_PG = token_weights(rollouts.lengths_PG, self.train.loss_average)
        # Sum over the whole mini-batch. In the authors' runs of verl, each micro-batch of 4 responses of similar length
        # has its own mean, and all have the same weight. That is in effect a mean over responses, and a setting for
        # memory changes the loss (R17).
        all_weights = (weights_PG * rollouts.lengths_PG)[mini_batch].sum()
        sums = torch.zeros(3, device=self.policy.device)
        for batch in self._micro_batches(
            rollouts, self._with_gradient(mini_batch, advantages_PG)
        ):
            old_logprobs_pgt = None
            if old_logprobs_PGT is not None:
                T = batch.tokens_PGT.shape[2]
                old_logprobs_pgt = old_logprobs_PGT[batch.where][..., :T]
            loss_PGT, kl_PGT, clipped_PGT = self._token_losses(
                batch, old_logprobs_pgt, advantages_PG[batch.where]
            )
            weights_PG1 = weights_PG[batch.where][..., None]
            # `where`, not a product with the mask: a NaN or an infinity in the padding, times 0, would be NaN.
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
        self, batch: _MicroBatch, old_logprobs_PGT: Tensor | None, advantages_PG: Tensor
    ) -> TokenLosses:
        """Return the losses of a micro-batch's tokens, from one pass of the policy and one of the reference, if any.

        None for `old_logprobs_PGT` means that the policy has not changed since it sampled. The log-probabilities of
        this pass are then used in their place.
        """
        now = self._statistics(
            self.policy,
            batch,
            entropy=self.method.penalty_weight > 0,
            self_certainty=self.method.smoothing > 0,
        )
        if old_logprobs_PGT is None:
            old_logprobs_PGT = self._surrogate_logprobs(now).detach()
        reference_logprobs_PGT = None
        if self.reference is not None:
            with torch.no_grad():
                reference_logprobs_PGT = self._statistics(self.reference, batch).logprobs
        return token_losses(
            now,
            old_logprobs=old_logprobs_PGT,
            advantages=advantages_PG[..., None],
            reference_logprobs=reference_logprobs_PGT,
            train=self.train,
            method=self.method,
        )

    def _statistics(
        self, policy: Policy, batch: _MicroBatch, **wanted: bool
    ) -> TokenStatistics:
        """Return the statistics of a micro-batch's response tokens under `policy`.

        `wanted` may hold the flags `entropy` and `self_certainty` of `response_statistics`. The log-probability is
        always computed.
        """
        prompts, tokens_PGT, lengths_PG = batch.prompts, batch.tokens_PGT, batch.lengths_PG
        return response_statistics(
            policy,
            prompts,
            tokens_PGT,
            self.train.temperature,
            lengths_PG=lengths_PG,
            **wanted,
        )

    def _with_gradient(self, mini_batch: list[int], advantages_PG: Tensor) -> list[int]:
        """Return the indices of those prompts of a mini-batch that contribute to the gradient.

        With a KL term or a confidence penalty, these are all prompts of the mini-batch. Otherwise they are the prompts
        with a rollout whose advantage is not 0. The other prompts need no forward pass, but their tokens still count
        when the loss is averaged.
        """
        # The KL term and the penalty have a gradient even where all advantages are 0.
        if self.reference is not None or self.method.penalty_weight > 0:
            return mini_batch
        teaches_P = advantages_PG.any(dim=1).tolist()
        return [prompt for prompt in mini_batch if teaches_P[prompt]]

    @property
    def _computes_old_logprobs(self) -> bool:
        """Whether the update itself computes the old log-probabilities, those under the policy that sampled.

        In float32 it does not, and takes the sampler's values. In bfloat16 these differ from the update's own values by
        more than the clip tolerates, because the sampler computes one token at a time and so rounds differently.
        """
        return self.policy.dtype != torch.float32

    def _old_logprobs(
        self,
        rollouts: SampledRollouts,
        mini_batches: list[list[int]],
        advantages_PG: Tensor,
    ) -> Tensor:
        """Return the tokens' log-probabilities under the policy that sampled, smoothed if the method smooths labels.

        The shape is (P, G, T). Call this before the first optimiser step. `mini_batches` has, for each mini-batch, the
        indices of its prompts that train.

        In float32 the result holds the sampler's values. Otherwise the values are computed here, and are 0 where the
        update does not need them: in the first mini-batch, because its own pass still sees the policy that sampled, and
        for prompts whose loss has no gradient (`_with_gradient`).
        """
        if not self._computes_old_logprobs:
            return self._surrogate_logprobs(
                TokenStatistics(rollouts.logprobs_PGT, None, rollouts.self_certainty_PGT)
            )
        later_mini_batches = [mini_batch for mini_batch in mini_batches if mini_batch][1:]
        chosen = self._with_gradient(
            [*chain.from_iterable(later_mini_batches)], advantages_PG
        )
        old_logprobs_PGT = torch.zeros_like(rollouts.logprobs_PGT)
        with torch.no_grad():
            for batch in self._micro_batches(rollouts, chosen):
                T = batch.tokens_PGT.shape[2]
                statistics = self._statistics(
                    self.policy, batch, self_certainty=self.method.smoothing > 0
                )
                old_logprobs_PGT[*batch.where, :T] = self._surrogate_logprobs(statistics)
        return old_logprobs_PGT

    def _surrogate_logprobs(self, statistics: TokenStatistics) -> Tensor:
        """Return the log-probabilities that PPO's surrogate takes: smoothed if the method smooths labels."""
        return smoothed(
            statistics.logprobs, statistics.self_certainty, self.method.smoothing
        )

    def _micro_batches(
        self, rollouts: SampledRollouts, chosen: list[int]
    ) -> Iterator[_MicroBatch]:
        """Yield the rollouts of the chosen prompts in micro-batches that fit into memory.

        `chosen` has indices of the step's prompts. A micro-batch has at most `micro_batch_tokens` tokens. The number of
        its logits is limited too, unless they are computed in pieces.

        If all rollouts of a prompt fit into one micro-batch, each micro-batch has all rollouts of one or more prompts.
        Otherwise each has some rollouts of one prompt, and at least one even if it exceeds a limit.
        """
        _, G, T = rollouts.tokens_PGT.shape
        V = self.policy.model.get_output_embeddings().weight.shape[0]
        longest = max(map(len, rollouts.prompts)) + T
        needs_distributions = self.method.penalty_weight > 0 or self.method.smoothing > 0
        most_scores = token_statistics.MOST_SCORES
        # Entropy and self-certainty need whole distributions, and so twice the memory (`MOST_SCORES`).
        if needs_distributions:
            most_scores //= 2
        rows = self.micro_batch_tokens // longest
        # With a plain head on a GPU, logits are computed in pieces and set no limit. On a CPU their number measures the
        # memory as a whole.
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
        """Return the metrics of an update (see `update`).

        Args:
            rollouts: the rollouts of the step.
            training: indices of the prompts that trained.
            sums: three numbers: the loss, the weighted sum of KL estimates, and the number of clipped tokens. Each is
                added up over all mini-batches.
            grad_norms: the gradient's norm at each optimiser step.
        """
        entropy = (
            rollouts.entropy_PG * rollouts.lengths_PG
        ).sum() / rollouts.lengths_PG.sum()
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
