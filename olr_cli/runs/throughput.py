"""Speed and GPU memory of a step: names, units and formulas of the metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

GENERATED, TRAINED, SAMPLES = (
    "speed/generated_tokens",
    "speed/trained_tokens",
    "speed/samples",
)
PEAK_MEMORY = "memory/gpu_peak"

QUANTITIES: Mapping[str, tuple[str, str]] = {
    GENERATED: ("generated tokens", "tokens/s"),
    TRAINED: ("trained tokens", "tokens/s"),
    SAMPLES: ("samples", "samples/s"),
    PEAK_MEMORY: ("GPU memory, peak", "GB"),
    "time/weights": ("waiting for weights", "s"),
}
"""Throughput metric in metrics.jsonl -> its name in words and its unit; GB are 10⁹ bytes.

- generated: response tokens per second of sampling;
- trained: prompt and response tokens of the rollouts that train, per second of the update;
- samples: rollouts per second of the whole step without held-out evaluation;
- memory: the most that torch held on one GPU during the step, in the policy's processes; null on a CPU;
- weights: how long the step waited until vLLM had the new weights (OpenRLHF alone).
"""


def medians(lines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each metric of speed, memory and waiting (`QUANTITIES`), over the lines of metrics.jsonl.

    A line without a metric does not count in that metric's median. A metric that no line has is left out.
    """
    values = {name: [line[name] for line in lines if name in line] for name in QUANTITIES}
    return {name: median(numbers) for name, numbers in values.items() if numbers}


@dataclass(frozen=True)
class StepWork:
    """The rollouts of a step: the length of each prompt and response, and whether the rollout takes part in the update.

    Each field has one value per rollout.
    """

    prompt_tokens: Sequence[int]
    response_tokens: Sequence[int]
    trains: Sequence[bool]


def throughput(
    work: StepWork, times: Mapping[str, float], peak_bytes: int | None
) -> dict[str, float | None]:
    """Return metric -> value for the speed (tokens and samples per second) and peak GPU memory (GB) of one step.

    Args:
        work: the step's rollouts.
        times: metric -> seconds, for ``time/rollouts``, ``time/update``, ``time/step`` and, if the step had an
            evaluation, ``time/evaluation``.
        peak_bytes: the most memory that torch held on one GPU. On a CPU it is None, and so is the metric.
    """
    seconds = times["time/step"] - times.get("time/evaluation", 0.0)
    rollouts = list(zip(work.prompt_tokens, work.response_tokens, work.trains, strict=True))
    trained = sum(prompt + response for prompt, response, trains in rollouts if trains)
    return {
        GENERATED: sum(work.response_tokens) / times["time/rollouts"],
        TRAINED: trained / times["time/update"],
        SAMPLES: len(rollouts) / seconds,
        PEAK_MEMORY: None if peak_bytes is None else peak_bytes / 1e9,
    }
