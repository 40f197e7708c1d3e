"""Runs that diverge: they end at the first loss, gradient or logit that is not finite, before a step is taken with it.

Both engines raise `NonFinite` where they compute it. Adam moves a weight by about the learning rate, however large a
finite gradient is, so what is checked before a step keeps all weights finite, and with them every checkpoint.
"""

from __future__ import annotations

from shlex import quote

from olr_cli.errors import UserError
from olr_cli.runs.checkpoints import checkpoint_path, checkpoint_steps
from olr_cli.runs.directory import Status
from olr_cli.runs.writer import RunWriter

NONFINITE = "policy/nonfinite"
"""The metric: optimiser steps left out because of a loss, gradient or logit that is not finite."""

LOGITS, LOSS_OR_GRADIENT = "its logits are", "its loss or gradient is"


class NonFinite(UserError):
    """A loss, a gradient or logits are NaN or infinite; the message is a sentence for commands that do not train."""

    def __init__(self, quantity: str, model: str = "the policy") -> None:
        super().__init__(
            f"{model} cannot answer: {quantity} not finite, so it has diverged or is damaged; use another checkpoint"
        )
        self.quantity = quantity


class Diverged(UserError):
    """A run ended because the policy diverged; everything up to the last complete step is kept."""

    run_status: Status = "diverged"


def diverged(writer: RunWriter, error: NonFinite, *, step: int, epoch: int, failed: int) -> Diverged:
    """Record that a step could not be taken, as the run's last line of metrics, and say what to do.

    Args:
        writer: of the run.
        error: what is not finite.
        step: the step that was not completed; 0 before training.
        epoch: its epoch.
        failed: the step after which the policy was what it is; its own numbers are not finite.

    Returns:
        The error to raise. It proposes the newest checkpoint from which a whole step was made.
    """
    writer.log(step, epoch, {NONFINITE: 1})
    run, recipe = writer.path, writer.recipe
    if failed == 0:
        return Diverged(
            f"{recipe.model.path} cannot answer: {error.quantity} not finite, before anything is trained; use another"
            " model, or another precision"
        )
    good = max((saved for saved in checkpoint_steps(run) if saved < failed), default=None)
    remedy = "start a new run with a lower train.learning_rate"
    if good is None:
        remedy += "; no checkpoint was due before"
    else:
        remedy += f", from here with --set model.path={quote(str(checkpoint_path(run, good)))}"
    return Diverged(
        f"the policy has diverged: at step {step} {error.quantity} not finite (train.learning_rate"
        f" {recipe.train.learning_rate:g}), and the step is not kept; {remedy} (--resume would repeat it)"
    )
