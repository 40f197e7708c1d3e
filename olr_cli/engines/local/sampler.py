"""Sampling: G rollouts of each of P prompts, where the randomness of a rollout depends on its own key alone (R18).

The next token is drawn by inverting the cumulative distribution at a uniform number. A rollout therefore needs one
number per token, and runs that differ in batching draw the same rollouts. Rollouts that have ended leave the batch once
they are half of it. Rollouts of a prompt that are equal so far are continued as one row, until they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from olr_cli.engines.local import captured
from olr_cli.engines.local.policy import Context, Policy
from olr_cli.engines.local.responses import (
    Responses,
    drawn,
    ends_with_stop_text,
    self_certainty_of,
    truncated,
)
from olr_cli.engines.local.room import rows_to_sample
from olr_cli.engines.prompt_text import before_stop
from olr_cli.engines.run import LOGITS, NonFinite
from olr_cli.recipe.sampling import Sampling
from olr_cli.seeding import uniform_streams


@dataclass(frozen=True)
class SampledRollouts:
    """G rollouts of each of P prompts, made by `sample`. The longest has T response tokens, end tokens included.

    Log-probabilities, entropies and self-certainties are those of softmax(logits / temperature) over all tokens, even
    if top_p, top_k or min_p limits the draw. The update compares the log-probabilities with those of the policy that
    trains, to which no such limit applies.
    """

    prompts: Sequence[list[int]]
    """Token ids of each prompt."""

    tokens_PGT: Tensor
    """Response tokens, with padding after the end."""

    lengths_PG: Tensor
    """Number of response tokens of each rollout."""

    truncated_PG: Tensor
    """Whether the length limit cut the response off."""

    # TRL and verl compute their old log-probabilities in the same way.
    logprobs_PGT: Tensor
    """log pi(token), 0 at padding; float32."""

    entropy_PG: Tensor
    """Mean over response tokens of the entropy, in nats."""

    self_certainty_PGT: Tensor
    """KL(uniform || pi) = -log V - mean_v log pi(v), 0 at padding, in nats; float32."""

    texts_PG: list[list[str]]
    """Responses as text (`ResponseTexts`).

    If its prompt ends with the mark that opens the thinking, a text begins with that mark. A text ends before the end
    token or a stop text.
    """

    @property
    def statistics(self) -> dict[str, Tensor]:
        """Statistics of each response, (P, G) each, by the name of the field of `Rollout` in which they are stored.

        ``tokens`` is the number of tokens, and ``truncated`` says whether the length limit cut the response off.
        ``mean_logprob``, ``entropy`` and ``self_certainty`` are means over the tokens of the response.
        """
        return {
            "tokens": self.lengths_PG,
            "truncated": self.truncated_PG,
            "mean_logprob": self.logprobs_PGT.sum(-1) / self.lengths_PG,
            "entropy": self.entropy_PG,
            "self_certainty": self.self_certainty_PGT.sum(-1) / self.lengths_PG,
        }


def sample(
    policy: Policy,
    prompts: Sequence[list[int]],
    keys_PG: NDArray[np.uint64],
    sampling: Sampling,
    *,
    batch_tokens: int | None = None,
    report: Callable[[int], None] = lambda ended: None,
) -> SampledRollouts:
    """Sample G rollouts of each of P prompts, one for each random key.

    Args:
        policy: the policy to sample from.
        prompts: token ids, none empty.
        keys_PG: the random keys (`olr_cli.seeding`).
        sampling: how tokens are drawn. At temperature 0 the most likely token is taken, and statistics are those of
            temperature 1. A stop text ends a response like an end token; the response's text leaves it out.
        batch_tokens: the most tokens, of prompts and responses, whose keys and values are held at once. The rollouts of
            one prompt are never split, even if they have more. None to measure how many tokens fit
            (`olr_cli.engines.local.room`).
        report: is called while tokens are drawn, with the number of rollouts that have ended.

    Raises:
        NonFinite: logits are NaN or infinite.
    """
    policy = policy.ending_at(sampling.stop)
    P, G = keys_PG.shape
    longest = max(map(len, prompts)) + sampling.max_new_tokens
    rows = (
        rows_to_sample(policy, longest) if batch_tokens is None else batch_tokens // longest
    )
    at_once = max(1, rows // G)
    respond = captured.respond if policy.has_fixed_places else _respond
    with policy.without_gradients():
        chunks = [
            respond(
                policy,
                prompts[first : first + at_once],
                keys_PG[first : first + at_once],
                sampling,
                lambda ended, before=first * G: report(before + ended),  # type: ignore[misc]
            )
            for first in range(0, P, at_once)
        ]
    written = Responses(*map(torch.cat, zip(*chunks, strict=True)))
    T = int(written.lengths_B.max())
    tokens_PGT = written.tokens_BT[:, :T].reshape(P, G, T)
    lengths_PG, truncated_PG = written.lengths_B.view(P, G), written.truncated_B.view(P, G)
    return SampledRollouts(
        prompts=prompts,
        tokens_PGT=tokens_PGT,
        lengths_PG=lengths_PG,
        truncated_PG=truncated_PG,
        logprobs_PGT=written.logprobs_BT[:, :T].reshape(P, G, T),
        entropy_PG=written.entropy_B.view(P, G) / lengths_PG,
        self_certainty_PGT=written.self_certainty_BT[:, :T].reshape(P, G, T),
        texts_PG=_texts(policy, prompts, tokens_PGT, lengths_PG, sampling.stop),
    )


def _respond(
    policy: Policy,
    prompts: Sequence[list[int]],
    keys_PG: NDArray[np.uint64],
    sampling: Sampling,
    report: Callable[[int], None],
) -> Responses:
    """Sample G responses to each of P prompts, as one batch of B = P * G rollouts.

    Rollouts of a prompt are computed as one row as long as their tokens are equal (`_extend`).

    Args:
        policy: the policy to sample from.
        prompts: token ids of each prompt.
        keys_PG: one random key per rollout.
        sampling: how tokens are drawn and where a response ends.
        report: is called at every token with the number of rollouts that have ended.

    Raises:
        NonFinite: logits are NaN or infinite.
    """
    limit, temperature, stop = sampling.max_new_tokens, sampling.temperature, sampling.stop
    keys_B, B, device = keys_PG.ravel(), keys_PG.size, policy.device
    written = Responses.none(B, limit, policy)
    end_ids = torch.tensor(policy.end_ids, device=device)
    context = policy.read(prompts)
    context.repeat(1, room=limit, dtype=policy.dtype)
    # The rows of `written` that have not ended, and the rows of the context (D in all) that they continue.
    rows = torch.arange(B, device=device)
    context_rows_B = rows // keys_PG.shape[1]

    for position in range(limit):
        # float32 even under autocast: draws, stored statistics and the update's ratios come from these numbers.
        log_pi_DV = torch.log_softmax(
            context.logits_BV.float() / (temperature or 1.0), dim=-1
        )
        pi_DV = log_pi_DV.exp()
        if temperature:
            # One number per key and position. Draws in turn from one generator would depend on which rollouts have
            # ended (R18).
            uniform_B = torch.from_numpy(uniform_streams(keys_B, position)).to(device)
            tokens_B = drawn(truncated(pi_DV, sampling), context_rows_B, uniform_B)
        else:
            tokens_B = pi_DV.argmax(-1)[context_rows_B]
        # A NaN or +inf among the logits makes its whole row NaN. -inf is allowed: it is a token that is never drawn.
        logprobs_B = log_pi_DV[context_rows_B, tokens_B]

        written.tokens_BT[rows, position] = tokens_B
        written.logprobs_BT[rows, position] = logprobs_B
        written.entropy_B[rows] += torch.special.entr(pi_DV).sum(-1)[context_rows_B]
        written.self_certainty_BT[rows, position] = self_certainty_of(log_pi_DV)[
            context_rows_B
        ]
        written.lengths_B[rows] += 1

        unfinished_B = ~torch.isin(tokens_B, end_ids)
        if stop:
            unfinished_B &= ~ends_with_stop_text(
                policy, stop, written.tokens_BT[rows, : position + 1]
            )
        written.truncated_B[rows] = unfinished_B
        counts = torch.stack([unfinished_B.sum(), logprobs_B.isnan().sum()])
        # Both counts in one tensor, because each `tolist` waits for the GPU.
        going, broken = counts.tolist()
        if broken:
            raise NonFinite(LOGITS, policy.name)
        report(B - going)
        if going == 0 or position + 1 == limit:
            break
        if going < len(rows):
            kept = unfinished_B.nonzero()[:, 0]
            rows, tokens_B, context_rows_B = (
                rows[kept],
                tokens_B[kept],
                context_rows_B[kept],
            )
            keys_B = keys_B[kept.cpu().numpy()]
        context_rows_B = _extend(policy, context, context_rows_B, tokens_B)
    return written


def _extend(
    policy: Policy, context: Context, context_rows_B: Tensor, tokens_B: Tensor
) -> Tensor:
    """Append each rollout's next token to its row of `context`, in place, and return the new row of each rollout, (B,).

    Rollouts share a row as long as all their tokens are equal. When their next tokens differ, the row is split. Rows
    that no rollout uses any more are removed when a row is split, or once they are half of all rows.

    In this example, rollouts 0 to 2 share row 0, and no rollout uses row 1 any more:

        rollout             0    1    2    3
        its row before      0    0    0    2
        its next token      a    b    a    a
        its row after       0    1    0    2

    Args:
        policy: computes the logits after the tokens.
        context: the sequences so far, one per row.
        context_rows_B: for each rollout, the index of its row in `context`.
        tokens_B: the next token of each rollout.
    """
    D, V = context.logits_BV.shape
    # Give each pair of row and token a number; from now on, each distinct pair is a row.
    pairs_N, next_rows_B = torch.unique(context_rows_B * V + tokens_B, return_inverse=True)
    parents_N, next_N = pairs_N // V, pairs_N % V
    is_split = bool((parents_N[1:] == parents_N[:-1]).any())
    # Removing rows earlier would cost about as much as it saves, because keys and values have to be moved.
    if is_split or len(parents_N) <= D // 2:
        context.select(parents_N)
        policy.extend(context, next_N[:, None])
        return cast(Tensor, next_rows_B)
    # Otherwise keep all rows; those that no rollout continues read a padding token that nothing looks at.
    tokens_D = tokens_B.new_full((D,), policy.pad_id)
    tokens_D[context_rows_B] = tokens_B
    policy.extend(context, tokens_D[:, None])
    return context_rows_B


def _texts(
    policy: Policy,
    prompts: Sequence[list[int]],
    tokens_PGT: Tensor,
    lengths_PG: Tensor,
    stop: Sequence[str],
) -> list[list[str]]:
    """Return the text of each response, up to its end token or the first stop text, which is left out.

    If a prompt ends with a mark that opens the thinking, such as <think>, the texts of its responses begin with that
    mark.
    """
    G = lengths_PG.shape[1]
    last_PG = tokens_PGT.gather(-1, lengths_PG[..., None] - 1)[..., 0]
    kept_PG = (
        lengths_PG
        - torch.isin(last_PG, torch.tensor(policy.end_ids, device=last_PG.device)).long()
    )
    rows = zip(tokens_PGT.flatten(0, 1).tolist(), kept_PG.flatten().tolist(), strict=True)
    texts = [
        before_stop(text, stop)
        for text in policy.decode([tokens[:kept] for tokens, kept in rows])
    ]
    opened_P = policy.texts.opened(prompts)
    return [
        [opened + text for text in texts[p * G : (p + 1) * G]]
        for p, opened in enumerate(opened_P)
    ]
