"""Generation by transformers: the local engine's policy and sampler, on a CPU or one GPU."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
import transformers

from olr_cli.engines.backends.backend import Backend, GenerationRequest
from olr_cli.engines.digests import model_digest
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.local.room import free_memory, rows_in
from olr_cli.engines.local.sampler import sample
from olr_cli.engines.prompt_text import ChatFormat
from olr_cli.grouping import gathered
from olr_cli.recipe.sampling import Sampling
from olr_cli.supervision import Rollout

if TYPE_CHECKING:
    from olr_cli.engines.backends import BackendOptions

CPU_MEMORY = 2 * 1024**3
"""Bytes that a batch may take on a CPU. On a GPU it may take half of the free memory."""
BATCH = 131_072
"""Tokens in a batch, prompts and responses together, if memory allows; `LEAST_ROWS` responses may have more. Larger
batches are hardly faster, and a batch is lost if the process is killed.
"""
LEAST_ROWS = {"cpu": 64, "cuda": 256}
"""Responses in a batch, if memory allows, no matter how long they may become."""


class TransformersBackend(Backend):
    """Generation by olr's own sampler (`olr_cli.engines.local`).

    It is slower than vLLM, and runs only models with attention in every layer.
    """

    def __init__(self, model: str, options: BackendOptions, chat: ChatFormat) -> None:
        """Load the model onto the device of `options`.

        Raises:
            UserError: the model cannot be loaded, or olr's sampler cannot run it.
        """
        self.chat = chat
        self._policy = Policy.load(
            model,
            device=options.device,
            trust_remote_code=options.trust_remote_code,
            chat=chat,
        )
        self.model, self.tokenizer, self.context = (
            model,
            self._policy.tokenizer,
            self._policy.context_length,
        )
        self.notes = self._policy.notes
        self._on_gpu = self._policy.device.type == "cuda"
        self.facts = {
            "name": "transformers",
            "model_digest": model_digest(model, self._policy.model.config),
            "device": torch.cuda.get_device_name() if self._on_gpu else "cpu",
            "dtype": str(self._policy.dtype).removeprefix("torch."),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }

    def __exit__(self, *error: object) -> None:
        """Free the model's memory."""
        del self._policy
        if self._on_gpu:
            torch.cuda.empty_cache()

    def stream(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[Mapping[int, list[Rollout]], None, None]:
        """Generate one response per seed of every request, in batches, longest prompts first (see `Backend.stream`).

        The requests of a batch are yielded when the batch is complete. No rollout is None.
        """
        tokens, limits = self.encode([request.prompt for request in requests], sampling)
        # All prompts of a call to the sampler share one limit and one number of samples; similar lengths save padding.
        longest_first = sorted(
            range(len(requests)), key=lambda number: -len(tokens[number])
        )
        alike = gathered(((limits[n], len(requests[n].seeds)), n) for n in longest_first)
        for (limit, samples), numbers in alike.items():
            first = 0
            while first < len(numbers):
                rows = self._rows(len(tokens[numbers[first]]) + limit)
                # Take at least one request: if its samples exceed a batch, `_respond` draws them in parts.
                batch = numbers[first : first + max(1, rows // max(1, samples))]
                rollouts = self._respond(
                    [requests[n] for n in batch],
                    [tokens[n] for n in batch],
                    limit,
                    sampling,
                    rows=rows,
                )
                yield dict(zip(batch, rollouts, strict=True))
                first += len(batch)

    def _respond(
        self,
        requests: Sequence[GenerationRequest],
        prompts: Sequence[list[int]],
        limit: int,
        sampling: Sampling,
        *,
        rows: int,
    ) -> list[list[Rollout]]:
        """Sample one rollout for each seed of every request, and return a list of rollouts per request.

        All requests must have equally many seeds. At most `rows` rollouts of each request are sampled at once.
        `prompts` has the token ids of each request's prompt, and `limit` is the most tokens of a response.
        """
        rollouts_PG: list[list[Rollout]] = [[] for _ in requests]
        for first in range(0, len(requests[0].seeds), rows):
            seeds_PG = [request.seeds[first : first + rows] for request in requests]
            sampled = sample(
                self._policy,
                prompts,
                np.array(seeds_PG, dtype=np.uint64),
                replace(sampling, max_new_tokens=limit),
                # The batch has been measured above, so the sampler must not split it again.
                batch_tokens=len(requests) * rows * (max(map(len, prompts)) + limit),
            )
            names, values_PG = zip(*sampled.statistics.items(), strict=True)
            columns_PG = (sampled.texts_PG, *(values.tolist() for values in values_PG))
            for rollouts_G, *columns_G in zip(rollouts_PG, *columns_PG, strict=True):
                rollouts_G += [
                    Rollout(text, **dict(zip(names, values, strict=True)))
                    for text, *values in zip(*columns_G, strict=True)
                ]
        return rollouts_PG

    def _rows(self, longest: int) -> int:
        """Return how many responses to sample in a batch.

        `longest` is the most tokens of a prompt and its response together.
        """
        memory = free_memory(self._policy) // 2 if self._on_gpu else CPU_MEMORY
        wanted = max(BATCH // longest, LEAST_ROWS["cuda" if self._on_gpu else "cpu"])
        return min(rows_in(memory, self._policy, longest), wanted)
