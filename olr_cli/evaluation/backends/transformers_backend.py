"""Generation by transformers: the local engine's policy and sampler, on a CPU or one GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
import transformers

from olr_cli.data.prompts import Message
from olr_cli.engines.local.policy import Device, Policy
from olr_cli.engines.local.sampler import sample
from olr_cli.evaluation.backends import Backend, Sampling, model_digest
from olr_cli.supervision import Rollout

CPU_MEMORY = 2 * 1024**3
"""Bytes that a batch may take on a CPU; on a GPU it is half of what is free."""
BYTES_PER_WORD = 40
"""Memory of the sampler's float32 and float64 tensors, for each batch row and vocabulary entry."""


class TransformersBackend(Backend):
    """Generation on `olr_cli.engines.local`: slower than vLLM, and for models of attention layers only.

    A sample's uniform numbers are a function of its seed, so it is the same in every batch.
    """

    def __init__(self, model: str, *, device: Device = "auto", trust_remote_code: bool = False) -> None:
        """Load the model.

        Raises:
            UserError: no such model, or not one of attention layers.
        """
        self._policy = Policy.load(model, device=device, trust_remote_code=trust_remote_code)
        self.model, self.tokenizer, self.context = model, self._policy.tokenizer, self._policy.context_length
        self._on_gpu = self._policy.device.type == "cuda"
        with torch.inference_mode(), self._policy.precision():
            layers = self._policy.read([[self._policy.pad_id]]).cache.layers
        self._bytes_per_token = sum(int(layer.keys.nbytes + layer.values.nbytes) for layer in layers)
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

    def generate(
        self, prompts: Sequence[Sequence[Message]], seeds: Sequence[Sequence[int]], sampling: Sampling
    ) -> list[list[Rollout]]:
        """See `Backend`."""
        tokens, limits = self.encode(prompts, sampling)
        # The sampler takes prompts of one limit and one number of samples; of like length they need little padding.
        alike: dict[tuple[int, int], list[int]] = defaultdict(list)
        for number in sorted(range(len(prompts)), key=lambda number: len(tokens[number])):
            alike[limits[number], len(seeds[number])].append(number)

        rollouts: list[list[Rollout]] = [[] for _ in prompts]
        for (limit, samples), numbers in alike.items():
            longest = len(tokens[numbers[-1]]) + limit
            rows = self._rows(longest)
            for first in range(0, samples, rows):
                part = slice(first, first + rows)
                written = sample(
                    self._policy,
                    [tokens[number] for number in numbers],
                    np.array([seeds[number][part] for number in numbers], dtype=np.uint64),
                    max_new_tokens=limit,
                    temperature=sampling.temperature,
                    top_p=sampling.top_p,
                    batch_tokens=rows * longest,
                )
                values_PG = (
                    written.lengths_PG,
                    written.truncated_PG,
                    written.mean_logprobs_PG,
                    written.entropy_PG,
                    written.self_certainty_PG,
                )
                columns_PG = (written.texts_PG, *(values.tolist() for values in values_PG))
                for number, *columns_G in zip(numbers, *columns_PG, strict=True):
                    rollouts[number] += [
                        Rollout(text, length, cut, "original", *statistics)
                        for text, length, cut, *statistics in zip(*columns_G, strict=True)
                    ]
        return rollouts

    def _rows(self, longest: int) -> int:
        """How many responses, of `longest` tokens with their prompts, memory allows at once."""
        memory = torch.cuda.mem_get_info()[0] // 2 if self._on_gpu else CPU_MEMORY
        words: int = self._policy.model.config.vocab_size
        return max(1, memory // (longest * self._bytes_per_token + words * BYTES_PER_WORD))
