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


@dataclass(frozen=True)
class Quantity:
    """A metric of this module.

    Attributes:
        label: how tables and reports call it.
        unit: what it is counted in; empty for a share.
        head: of a column in a terminal, in two lines.
    """

    label: str
    unit: str
    head: str

    def text(self, value: float) -> str:
        """Three digits; a share in percent."""
        if not self.unit:
            return f"{value:.1%}"
        return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


GENERATED, TRAINED, SAMPLES = "speed/generated_tokens", "speed/trained_tokens", "speed/samples"
UTILISATION, PEAK_MEMORY = "speed/mfu", "memory/gpu_peak"

QUANTITIES: Mapping[str, Quantity] = {
    GENERATED: Quantity("generated tokens", "tokens/s", "generated\ntokens/s"),
    TRAINED: Quantity("trained tokens", "tokens/s", "trained\ntokens/s"),
    SAMPLES: Quantity("samples", "samples/s", "samples\n/s"),
    UTILISATION: Quantity("model FLOP utilisation", "", "MFU"),
    PEAK_MEMORY: Quantity("GPU memory, peak", "GB", "peak\nGB"),
    "time/weights": Quantity("waiting for weights", "s", "weights\ns"),
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
    """The median of each of `QUANTITIES` over the lines of metrics.jsonl that have it; without those that none has."""
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

    A MIG slice has a part of its card's peak, which its name does not tell.
    """
    if card is None or "MIG" in card:
        return None
    known = [name for name in _PEAK_TERAFLOPS if re.search(rf"\b{name}\b", card)]
    return _PEAK_TERAFLOPS[max(known, key=len)] * 1e12 if known else None


@dataclass(frozen=True)
class ModelSize:
    """What the operations of a forward pass depend on.

    Attributes:
        parameters: P; weights that two layers share count once.
        layers: with attention.
        attention_width: heads x size of a head.
    """

    parameters: int
    layers: int
    attention_width: int

    @classmethod
    def of(cls, model: Any) -> ModelSize | None:
        """The size of a Hugging Face model, on whichever device; None if its configuration does not tell."""
        config = model.config.get_text_config()
        layers, heads = (getattr(config, name, None) for name in ("num_hidden_layers", "num_attention_heads"))
        if not layers or not heads:
            return None
        head = getattr(config, "head_dim", None) or config.hidden_size // heads
        return cls(sum(weight.numel() for weight in model.parameters()), layers, heads * head)

    def forward_flops(self, tokens: int) -> float:
        """C(L): operations of one forward pass over a sequence of L tokens."""
        return 2.0 * self.parameters * tokens + 2.0 * self.layers * self.attention_width * tokens**2


@dataclass(frozen=True)
class StepWork:
    """What a step worked on.

    Attributes:
        prompt_tokens: of each rollout's prompt.
        response_tokens: of each rollout's response.
        trains: whether each rollout takes part in the update.
    """

    prompt_tokens: Sequence[int]
    response_tokens: Sequence[int]
    trains: Sequence[bool]

    def flops(self, size: ModelSize, *, passes_before: int) -> float:
        """Operations that the model needs in this step.

        Args:
            size: of the policy.
            passes_before: forward passes over every rollout between sampling and update: of the policy that
                sampled, and of the reference.

        Returns:
            Sampling is one C(L), each pass before the update another, and the update three: a forward pass, and a
            backward pass of twice its operations.
        """
        return sum(
            size.forward_flops(prompt + response) * (1 + passes_before + 3 * trains)
            for prompt, response, trains in zip(
                self.prompt_tokens, self.response_tokens, self.trains, strict=True
            )
        )


@dataclass(frozen=True)
class Machine:
    """What a run computes on.

    Attributes:
        gpus: how many; 0 on a CPU.
        card: their name; None on a CPU.
        size: of the policy; None if it is not known.
        passes_before: see `StepWork.flops`.
    """

    gpus: int
    card: str | None
    size: ModelSize | None
    passes_before: int


def throughput(
    work: StepWork, times: Mapping[str, float], machine: Machine, peak_bytes: int | None
) -> dict[str, float | None]:
    """The metrics of `QUANTITIES` for one step, but for those that are times; None where unknown.

    Args:
        work: what it worked on.
        times: its seconds, ``time/rollouts``, ``time/update`` and ``time/step``.
        machine: what it ran on.
        peak_bytes: the most memory that torch held on one GPU; None on a CPU.
    """
    seconds = times["time/step"] - times.get("time/evaluation", 0.0)
    rollouts = list(zip(work.prompt_tokens, work.response_tokens, work.trains, strict=True))
    trained = sum(prompt + response for prompt, response, trains in rollouts if trains)
    peak, utilisation = peak_flops(machine.card), None
    if peak is not None and machine.gpus and machine.size is not None:
        flops = work.flops(machine.size, passes_before=machine.passes_before)
        utilisation = flops / (seconds * machine.gpus * peak)
    return {
        GENERATED: sum(work.response_tokens) / times["time/rollouts"],
        TRAINED: trained / times["time/update"],
        SAMPLES: len(rollouts) / seconds,
        UTILISATION: utilisation,
        PEAK_MEMORY: None if peak_bytes is None else peak_bytes / 1e9,
    }
