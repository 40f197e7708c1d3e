"""How fast a step was and what it took of the GPUs: names and units of the metrics, and the formulas behind them.

The work of a step is counted with the formula of recipes/paper/README.md (Cost): a forward pass over a sequence of L
tokens takes C(L) = 2 P L + 2 layers width L² operations, for the P weights and for causal attention. Model FLOP
utilisation (Chowdhery et al. 2022, arXiv:2204.02311, appendix B) is the work that the model needs over what the GPUs
could have done in the step, so layers that gradient checkpointing computes a second time do not count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from olr_cli.tables.table import Cell


@dataclass(frozen=True)
class Quantity:
    """Name and unit of a metric of this module; the unit of a share is empty."""

    label: str
    unit: str

    def text(self, value: float) -> str:
        """Three digits; a share in percent."""
        return Cell(value, "number" if self.unit else "percent").brief


GENERATED, TRAINED, SAMPLES = "speed/generated_tokens", "speed/trained_tokens", "speed/samples"
UTILISATION, PEAK_MEMORY = "speed/mfu", "memory/gpu_peak"

QUANTITIES: Mapping[str, Quantity] = {
    GENERATED: Quantity("generated tokens", "tokens/s"),
    TRAINED: Quantity("trained tokens", "tokens/s"),
    SAMPLES: Quantity("samples", "samples/s"),
    UTILISATION: Quantity("model FLOP utilisation", ""),
    PEAK_MEMORY: Quantity("GPU memory, peak", "GB"),
    "time/weights": Quantity("waiting for weights", "s"),
}
"""Throughput metrics of metrics.jsonl; GB are 10⁹ bytes.

- generated: response tokens over the seconds of sampling;
- trained: prompt and response tokens of the rollouts that train over the seconds of the update;
- samples: rollouts over the seconds of the whole step without held-out evaluation;
- utilisation: of all GPUs over the same seconds; null where the card's peak is not known, so on every CPU;
- memory: the most that torch held on one GPU during the step, in the policy's processes; null on a CPU;
- weights: how long the step waited until vLLM had the new weights (OpenRLHF alone).
"""


def medians(lines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each of `QUANTITIES` over the lines of metrics.jsonl that have it."""
    values = {name: [line[name] for line in lines if name in line] for name in QUANTITIES}
    return {name: median(known) for name, known in values.items() if known}


_PEAK_TERAFLOPS: Mapping[str, float] = {
    "A100": 312.0,
    "A800": 312.0,
    "A30": 165.0,
    "A40": 149.7,
    "B200": 2250.0,
    "GH200": 989.4,
    "H100": 989.4,
    "H100 NVL": 835.5,
    "H100 PCIe": 756.5,
    "H20": 148.0,
    "H200": 989.4,
    "H200 NVL": 835.5,
    "H800": 989.4,
    "L4": 121.0,
    "L40S": 362.0,
}
"""Peak of dense bfloat16 products on tensor cores, in 10¹² a second, from NVIDIA's data sheets.

A data sheet that gives the figure with sparsity counts half. A card of a name that is no key but begins with one, like
"A100-SXM4-80GB", is of that kind; the longest key wins.
"""


def peak_flops(card: str | None) -> float | None:
    """Peak operations a second of a card by the name that torch gives it; None if it is not known.

    A MIG slice has a part of its card's peak, which its name does not say.
    """
    if card is None or "MIG" in card:
        return None
    known = [name for name in _PEAK_TERAFLOPS if re.search(rf"\b{name}\b", card)]
    return _PEAK_TERAFLOPS[max(known, key=len)] * 1e12 if known else None


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a causal language model, on which operations and memory depend.

    Attributes:
        parameters: P; weights that two layers share count once.
        layers: with attention.
        attention_width: heads x size of a head.
        hidden: width of the residual stream.
        mlp: width of each layer's MLP.
        vocabulary: logits of a token.
        cache: bytes that a token's keys and values take in bfloat16, in all layers.
        context: the most tokens it is made for; None if it does not say.
    """

    parameters: int
    layers: int
    attention_width: int
    hidden: int = 0
    mlp: int = 0
    vocabulary: int = 0
    cache: int = 0
    context: int | None = None

    @classmethod
    def of(cls, model: Any) -> ModelShape | None:
        """The shape of a Hugging Face model, on whichever device; None if its configuration does not say."""
        config = model.config.get_text_config()
        layers, heads = (getattr(config, name, None) for name in ("num_hidden_layers", "num_attention_heads"))
        if not layers or not heads:
            return None
        head = getattr(config, "head_dim", None) or config.hidden_size // heads
        return cls(
            parameters=sum(weight.numel() for weight in model.parameters()),
            layers=layers,
            attention_width=heads * head,
            hidden=config.hidden_size,
            mlp=getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
            vocabulary=config.vocab_size,
            cache=2 * layers * (getattr(config, "num_key_value_heads", None) or heads) * head * 2,
            context=getattr(config, "max_position_embeddings", None),
        )

    def forward_flops(self, tokens: int) -> float:
        """C(L): operations of one forward pass over a sequence of L tokens."""
        return 2.0 * self.parameters * tokens + 2.0 * self.layers * self.attention_width * tokens**2


@dataclass(frozen=True)
class StepWork:
    """The rollouts of a step: tokens of each one's prompt and response, and whether it takes part in the update."""

    prompt_tokens: Sequence[int]
    response_tokens: Sequence[int]
    trains: Sequence[bool]

    def flops(self, shape: ModelShape, *, passes_before: int) -> float:
        """Operations that the policy's model needs in this step.

        Sampling is one C(L), each of `passes_before` another, and the update three: a forward pass, and a backward
        pass of twice its operations.
        """
        return sum(
            shape.forward_flops(prompt + response) * (1 + passes_before + 3 * trains)
            for prompt, response, trains in zip(
                self.prompt_tokens, self.response_tokens, self.trains, strict=True
            )
        )


@dataclass(frozen=True)
class Hardware:
    """The hardware and the model with which the throughput of a run is measured.

    Attributes:
        gpus: number of all GPUs, 0 on a CPU.
        card: the GPUs' name; None on a CPU.
        shape: of the policy; None if it is not known.
        passes_before: forward passes over every rollout between sampling and update: of the policy that sampled, and
            of the reference.
    """

    gpus: int
    card: str | None
    shape: ModelShape | None
    passes_before: int


def throughput(
    work: StepWork, times: Mapping[str, float], hardware: Hardware, peak_bytes: int | None
) -> dict[str, float | None]:
    """The metrics of `QUANTITIES` for one step, but for those that are times; None where unknown.

    Args:
        work: the rollouts of the step.
        times: its seconds, ``time/rollouts``, ``time/update`` and ``time/step``.
        hardware: what it ran on.
        peak_bytes: the most memory that torch held on one GPU; None on a CPU.
    """
    seconds = times["time/step"] - times.get("time/evaluation", 0.0)
    rollouts = list(zip(work.prompt_tokens, work.response_tokens, work.trains, strict=True))
    trained = sum(prompt + response for prompt, response, trains in rollouts if trains)
    peak, utilisation = peak_flops(hardware.card), None
    if peak is not None and hardware.gpus and hardware.shape is not None:
        flops = work.flops(hardware.shape, passes_before=hardware.passes_before)
        utilisation = flops / (seconds * hardware.gpus * peak)
    return {
        GENERATED: sum(work.response_tokens) / times["time/rollouts"],
        TRAINED: trained / times["time/update"],
        SAMPLES: len(rollouts) / seconds,
        UTILISATION: utilisation,
        PEAK_MEMORY: None if peak_bytes is None else peak_bytes / 1e9,
    }
