"""Memory that a recipe takes at the least: on any engine for the rollouts of a step, on the local one for all.

A setting that cannot fit is named before anything starts. Responses of one token are assumed, which grow up to
`train.max_new_tokens`: what passes may still be too much, and what is refused is too much whatever the model answers.
What OpenRLHF takes of GPUs is in openrlhf/memory.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from olr_cli.engines.computer import gigabytes, host_memory
from olr_cli.errors import UserError
from olr_cli.recipe.schema import Recipe
from olr_cli.runs.throughput import ModelShape
from olr_cli.supervision import compose

BYTES_PER_WORD = 40
"""Memory of the sampler's float32 and float64 tensors, for each batch row and vocabulary entry."""

BYTES_A_ROLLOUT, BYTES_A_HELD_OUT_ROLLOUT = 1800, 500
"""Memory of a rollout of a few tokens until its step is stored: tensors, text, decision and record; held-out rollouts
have no record. Measured: olr train laptop/quickstart with 80 prompts and 200, then 1,000 rollouts of each."""


def require_rollout_memory(recipe: Recipe, prompts: int, held_out: int = 0) -> None:
    """Make sure that the rollouts of a step, and of a held-out evaluation, fit into this computer's memory.

    Raises:
        UserError: they do not; says what to lower.
    """
    train, host = recipe.train, host_memory()
    groups = min(train.prompts_per_step, prompts) * len(compose(recipe.method).views)
    for rollouts, size, settings in (
        (
            groups * train.rollouts_per_prompt,
            BYTES_A_ROLLOUT,
            "train.rollouts_per_prompt or prompts_per_step",
        ),
        (
            held_out * train.held_out_rollouts,
            BYTES_A_HELD_OUT_ROLLOUT,
            "train.evaluation_samples, or take fewer held-out prompts",
        ),
    ):
        needed = float(rollouts * size)
        if needed > host:
            raise UserError(
                f"{rollouts:,} rollouts are in memory at a time, which takes {gigabytes(needed)} by the estimate, and"
                f" here are {gigabytes(host)}; lower {settings}"
            )


def require_local_memory(recipe: Recipe, shape: ModelShape, *, card: float | None = None) -> None:
    """Make sure that the model and the rows that are sampled together fit where the local engine computes.

    Args:
        recipe: that is to run.
        shape: of its model.
        card: bytes of the GPU's memory; None: the model computes in the computer's.

    Raises:
        UserError: they do not; says which setting takes most.
    """
    needs = local_memory(recipe, shape)
    needed, there = sum(needs.values()), host_memory() if card is None else card
    if needed <= there:
        return
    largest = max(needs, key=lambda subject: needs[subject])
    remedy = "choose a smaller model" if largest == "model.path" else f"lower {largest}"
    raise UserError(
        f"the recipe needs at least {gigabytes(needed)} of {'memory' if card is None else 'GPU memory'} by the"
        f" estimate, {gigabytes(needs[largest])} of it for {largest}, and here are {gigabytes(there)}; {remedy}"
    )


def local_memory(recipe: Recipe, shape: ModelShape) -> Mapping[str, float]:
    """Bytes by the setting on which they depend: weights with gradients and AdamW's states, and one group's rows."""
    train = recipe.train
    copies = 1 if train.lora_rank is not None else 4 + (train.kl_weight > 0)
    # A group is never split, so one group is the least that is sampled together.
    row = BYTES_PER_WORD * shape.vocabulary + shape.cache
    return {
        "model.path": 4.0 * shape.parameters * copies,
        "train.rollouts_per_prompt": float(train.rollouts_per_prompt * row),
    }
