"""Sampling on a GPU: a token is one CUDA graph, and no tensor moves.

A token of half a billion weights takes some 2,000 operations of a few microseconds each, and launching one from Python
takes several times that. Keys, values and masks therefore have fixed places, and the numbers that a step depends on are
in tensors. The operations are recorded once and replayed for every token
(https://pytorch.org/docs/stable/notes/cuda.html#cuda-graphs).

They are recorded again when attention needs a wider window of the places, and when half of the rollouts have ended and
leave the batch. Every `LOOK` tokens, one wait for the GPU shows which rollouts have ended; their tokens after the end
are dropped. The random numbers of a rollout are those of sampler.py, uniform numbers of its own key (R18).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from olr_cli.engines.local.policy import Context, Policy
from olr_cli.engines.local.responses import (
    Responses,
    drawn,
    ends_with_stop_text,
    self_certainty_of,
    truncated,
)
from olr_cli.engines.run import LOGITS, NonFinite
from olr_cli.recipe.sampling import Sampling
from olr_cli.seeding import uniform_streams

LOOK = 16
"""Number of tokens between two checks for rollouts that have ended."""

_LEAST_WINDOW = 256
"""Number of places that attention sees at first."""

_STEP = 64
"""Windows are a multiple of it, because CUDA's kernels need masks with aligned rows."""


def respond(
    policy: Policy,
    prompts: Sequence[list[int]],
    keys_PG: NDArray[np.uint64],
    sampling: Sampling,
    report: Callable[[int], None],
) -> Responses:
    """Sample G responses to each of P prompts in one batch, replaying a CUDA graph for each token.

    Each response is a row of the batch, so there are B = P * G rows. If the computation of a token cannot be recorded
    as a CUDA graph, it runs without one.

    Args:
        policy: the policy to sample from. Its `has_fixed_places` must be true.
        prompts: token ids of each prompt.
        keys_PG: one random key per response (`olr_cli.seeding`).
        sampling: how tokens are drawn and where a response ends.
        report: is called after every `LOOK` tokens with the number of responses that have ended.

    Raises:
        NonFinite: logits are NaN or infinite.
    """
    keys_B, limit = keys_PG.ravel(), sampling.max_new_tokens
    written = Responses.none(keys_B.size, limit, policy)
    decoding = _Decoding(policy, policy.read(prompts), keys_PG.shape[1], written, sampling)
    unfinished_B = torch.ones_like(written.truncated_B)
    for start in range(0, limit, LOOK):
        end = min(start + LOOK, limit)
        rows_B = decoding.rows_B
        decoding.advance(_uniforms(keys_B, start, end))
        ends_BL = decoding.ends(start, end)
        has_ended_B = ends_BL.any(-1)
        # An end token belongs to its response. Between two checks a rollout may draw several: only the first counts.
        ends_B = torch.where(has_ended_B, start + 1 + ends_BL.int().argmax(-1), end)
        lengths_B = torch.where(unfinished_B, ends_B, written.lengths_B[rows_B])
        unfinished_B &= ~has_ended_B
        written.lengths_B[rows_B], written.truncated_B[rows_B] = lengths_B, unfinished_B
        is_response_BL = torch.arange(start, end, device=policy.device) < lengths_B[:, None]
        is_broken_BL = written.logprobs_BT[rows_B, start:end].isnan() & is_response_BL
        counts = torch.stack([unfinished_B.sum(), is_broken_BL.any()])
        # Both counts in one tensor, because each `tolist` waits for the GPU.
        going, broken = counts.tolist()
        if broken:
            raise NonFinite(LOGITS, policy.name)
        report(keys_PG.size - going)
        if going == 0:
            break
        # Not at every end: with fewer rows, the graph has to be recorded again.
        if going <= len(rows_B) // 2:
            kept = unfinished_B.nonzero()[:, 0]
            decoding.select(kept)
            keys_B, unfinished_B = keys_B[kept.cpu().numpy()], unfinished_B[kept]
    return decoding.finished()


def _uniforms(keys_B: NDArray[np.uint64], start: int, end: int) -> Tensor:
    """Return the random numbers with which tokens are drawn, (end - start, B) float64, uniform in [0, 1).

    Each row is for one position in the responses, from `start` to `end` - 1. `keys_B` has a random key for each
    response. A number depends only on the key of its response and on the position.
    """
    return torch.from_numpy(
        np.stack([uniform_streams(keys_B, position) for position in range(start, end)])
    )


class _Decoding:
    """A batch of responses in progress: its tensors, and the CUDA graph that draws the next token of each response.

    A response that has ended may leave the batch (`select`), but its row in `written` stays.

    Attributes:
        written: tokens and statistics of all responses, one row each.
        rows_B: for each response still in the batch, the index of its row in `written`.
    """

    def __init__(
        self,
        policy: Policy,
        context: Context,
        G: int,
        written: Responses,
        sampling: Sampling,
    ) -> None:
        """Prepare to sample G responses to each prompt and to store them in `written`, in place.

        `context` holds the prompts, as `Policy.read` returns them.
        """
        self.policy, self.written, self.sampling = policy, written, sampling
        self.entropy_BT = torch.zeros_like(written.logprobs_BT)
        self._end_ids = torch.tensor(policy.end_ids, device=policy.device)
        (B, limit), device = written.tokens_BT.shape, policy.device
        S = context.cache.get_seq_length()
        # `-n % m` rounds up: the room is a multiple of `_STEP`.
        self._used, self._room = S, S + limit + -(S + limit) % _STEP
        self.rows_B = torch.arange(B, device=device)
        # Tensors, not Python numbers: a graph would replay the numbers of its recording for ever.
        self._next_position, self._turn, self._draw = (
            torch.tensor([value], device=device) for value in (S, 0, 0)
        )
        self._uniforms_LB = torch.zeros(LOOK, B, dtype=torch.float64, device=device)
        self._layers = [
            _FixedLayer(layer, G, self._room, policy.dtype, self._next_position)
            for layer in context.cache.layers
        ]
        self._logits_BV = context.logits_BV.repeat_interleave(G, dim=0)
        self._positions_B = context.lengths_B.repeat_interleave(G)
        self._mask_BS = torch.zeros(B, self._room, dtype=torch.bool, device=device)
        self._mask_BS[:, :S] = (
            True if context.mask_BS is None else context.mask_BS.repeat_interleave(G, dim=0)
        )
        self._window = 0
        self._replay: Callable[[], None] | None = None
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def advance(self, uniforms_LB: Tensor) -> None:
        """Draw the next L tokens of every response in the batch, and store them in `written`.

        `uniforms_LB` has a random number for each of these tokens. L is at most `LOOK`, because the graph reads the
        numbers from a buffer of this size.
        """
        L = len(uniforms_LB)
        self._uniforms_LB[:L] = uniforms_LB.to(self.policy.device)
        self._draw.zero_()
        if self._used + L > self._window:
            needed = self._used + L + -(self._used + L) % _STEP
            # Double the window, so that the graph of a long response is recorded only a few times.
            self._window = min(self._room, max(_LEAST_WINDOW, needed, 2 * self._window))
            self._replay = None
        for _ in range(L):
            if self._replay is None:
                # Run the first token without a graph: libraries allocate at first use, which cannot be recorded.
                self._step()
                self._replay = self._recorded()
            else:
                self._replay()
        self._used += L

    def ends(self, start: int, end: int) -> Tensor:
        """Return whether each token drawn at positions `start` to `end` - 1 ends its response, (B, positions).

        A token ends a response if it is an end token or completes a stop text.
        """
        tokens_BT, stop = self.written.tokens_BT, self.sampling.stop
        ends_BL = torch.isin(tokens_BT[self.rows_B, start:end], self._end_ids)
        if stop:
            for position in range(start, end):
                written_BT = tokens_BT[self.rows_B, : position + 1]
                ends_BL[:, position - start] |= ends_with_stop_text(
                    self.policy, stop, written_BT
                )
        return ends_BL

    def select(self, rows: Tensor) -> None:
        """Keep only the responses whose indices in the current batch are in `rows`.

        Responses that leave the batch keep their rows in `written`. The CUDA graph is recorded again at the next token,
        because the tensors now have other shapes.
        """
        self._replay = None
        for layer in self._layers:
            layer.keys, layer.values = layer.keys[rows], layer.values[rows]
        self.rows_B, self._mask_BS = self.rows_B[rows], self._mask_BS[rows]
        self._logits_BV, self._positions_B = self._logits_BV[rows], self._positions_B[rows]
        self._uniforms_LB = self._uniforms_LB[:, rows]

    def finished(self) -> Responses:
        """Return all responses, including those that have left the batch.

        After the end of a response, its tokens are set to padding and its statistics to 0.
        """
        written, (_, limit) = self.written, self.written.tokens_BT.shape
        is_after_BT = (
            torch.arange(limit, device=self.policy.device) >= written.lengths_B[:, None]
        )
        written.tokens_BT.masked_fill_(is_after_BT, self.policy.pad_id)
        for statistic_BT in (
            written.logprobs_BT,
            written.self_certainty_BT,
            self.entropy_BT,
        ):
            statistic_BT.masked_fill_(is_after_BT, 0)
        return written._replace(entropy_B=self.entropy_BT.sum(-1))

    def _recorded(self) -> Callable[[], None]:
        """Record `_step` as a CUDA graph, and return a function that takes the step by replaying the graph.

        If `_step` cannot be recorded, return `_step` itself. That is so on a CPU, or if the model waits for the GPU
        within the step, as some models with experts do.
        """
        if self._pool is None:
            return self._step
        graph = torch.cuda.CUDAGraph()
        try:
            # This records the operations without running them.
            with torch.cuda.graph(graph, pool=self._pool):
                self._step()
        except RuntimeError:
            self._pool = None
            return self._step
        return graph.replay

    def _step(self) -> None:
        """Draw a token for each response in the batch, store it and its statistics, and compute the logits after it."""
        written, window = self.written, self._window
        log_pi_BV = torch.log_softmax(
            self._logits_BV.float() / (self.sampling.temperature or 1.0), dim=-1
        )
        pi_BV = log_pi_BV.exp()
        if self.sampling.temperature:
            uniform_B = self._uniforms_LB.index_select(0, self._draw)[0]
            every_row_B = torch.arange(len(pi_BV), device=pi_BV.device)
            tokens_B = drawn(truncated(pi_BV, self.sampling), every_row_B, uniform_B)
        else:
            tokens_B = pi_BV.argmax(-1)
        tokens_B1 = tokens_B[:, None]
        where = self.rows_B, self._turn
        written.tokens_BT[where] = tokens_B
        written.logprobs_BT[where] = log_pi_BV.gather(-1, tokens_B1)[:, 0]
        written.self_certainty_BT[where] = self_certainty_of(log_pi_BV)
        self.entropy_BT[where] = torch.special.entr(pi_BV).sum(-1)
        self._mask_BS.index_fill_(1, self._next_position, True)
        for layer in self._layers:
            layer.window = window
        logits_B1V = self.policy.model(
            input_ids=tokens_B1,
            attention_mask=self._mask_BS[:, None, None, :window],
            position_ids=self._positions_B[:, None],
            use_cache=True,
            **{self.policy.cache_name: Cache(layers=[*self._layers])},
        ).logits
        # Copy in place: the next replay reads the logits from this tensor.
        self._logits_BV.copy_(logits_B1V[:, -1])
        for counter in (self._positions_B, self._next_position, self._turn, self._draw):
            counter.add_(1)


class _FixedLayer(CacheLayerMixin):
    """A layer of transformers' cache in a buffer that is never moved, because a CUDA graph uses fixed addresses.

    Attributes:
        window: number of positions, counted from the start of the buffer, that attention sees.
    """

    def __init__(
        self, layer: Any, G: int, room: int, dtype: torch.dtype, next_position: Tensor
    ) -> None:
        """Copy the keys and values of `layer`, a `DynamicLayer`, into a new buffer.

        The buffer has G rows for each row of `layer`, and `room` positions in a row. `next_position` is a tensor with
        one number, the position at which `update` writes. The caller adds 1 to it in place after each token.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.window, self._next_position, self._room = room, next_position, room
        self.keys: Tensor = _spread(layer.keys, G, room, dtype)
        self.values: Tensor = _spread(layer.values, G, room, dtype)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the keys and values of one token, (B, heads, 1, width) each, at `next_position`.

        Return the keys and values of all positions in the window, as views of the buffer.
        """
        for places, added in ((self.keys, key_states), (self.values, value_states)):
            places.index_copy_(2, self._next_position, added.to(places.dtype))
        return self.keys[:, :, : self.window], self.values[:, :, : self.window]

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing, because the constructor has allocated the whole buffer."""

    def get_seq_length(self) -> int:
        """Return 0. Nobody needs the real length, because `_Decoding` gives the model its mask and positions."""
        return 0

    def get_max_length(self) -> int:
        """Return the number of positions in the buffer."""
        return self._room

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of positions that a mask covers, which is the window, and the first of them, which is 0."""
        return self.window, 0


def _spread(states: Tensor, G: int, room: int, dtype: torch.dtype) -> Tensor:
    """Copy the keys or values of P sequences into G rows each, with `room` positions in a row.

    `states` is (P, heads, S, width), and the result is (P * G, heads, room, width). Positions from S on are zeros.
    """
    P, heads, S, width = states.shape
    places = states.new_zeros(P, G, heads, room, width, dtype=dtype)
    places[:, :, :, :S] = states[:, None]
    return places.flatten(0, 1)
