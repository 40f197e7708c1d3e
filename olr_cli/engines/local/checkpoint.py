"""A checkpoint of the local engine: the policy, the optimiser, and torch's random state."""

from __future__ import annotations

import json
from pathlib import Path
from pickle import UnpicklingError

import torch

from olr_cli.engines.local.grpo import Grpo
from olr_cli.engines.run import Attempt
from olr_cli.errors import UserError, first_line
from olr_cli.files import is_out_of_memory, system_problem


def save_checkpoint(run: Attempt, step: int, grpo: Grpo) -> None:
    """Write the run's checkpoint after a step: weights and tokenizer, the optimiser's state, and torch's random state.

    Weights and tokenizer are in Hugging Face layout.
    """

    def fill(folder: Path) -> None:
        grpo.policy.save(folder)
        # Open the file ourselves: torch's own file object hides the system's error on a full disk.
        with (folder / "optimizer.pt").open("wb") as file:
            torch.save(grpo.optimizer.state_dict(), file)

    run.writer.checkpoint(step, fill, rng=torch.get_rng_state().tolist())


def load_trainer(grpo: Grpo, checkpoint: Path) -> None:
    """Restore the optimiser's state and torch's random state from a checkpoint's folder, but not the weights.

    Raises:
        UserError: the checkpoint cannot be read, or its state does not fit this optimiser.
    """
    optimizer, device = grpo.optimizer, grpo.policy.device
    try:
        state = torch.load(
            checkpoint / "optimizer.pt", weights_only=True, map_location=device
        )
        optimizer.load_state_dict(state)
        saved = json.loads((checkpoint / "trainer.json").read_text(encoding="utf-8"))
        torch.set_rng_state(torch.tensor(saved["rng"], dtype=torch.uint8))
    except (
        OSError,
        EOFError,
        RuntimeError,
        UnpicklingError,
        ValueError,
        KeyError,
        TypeError,
    ) as error:
        # An error of torch's about memory is a RuntimeError too, but the checkpoint is sound then.
        if is_out_of_memory(error):
            raise
        problem = (
            system_problem(error)
            or f"it has no state of this run's optimiser ({first_line(error)})"
        )
        raise UserError(
            f"{checkpoint} could not be continued: {problem}",
            "remove it, and a resume takes the one before",
        ) from error
