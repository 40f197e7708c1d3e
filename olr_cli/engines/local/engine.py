"""The engine for one machine: torch, the policy and the prompts, prepared for the loop (loop.py)."""

from __future__ import annotations

import ctypes
import platform
import re
from datetime import date
from pathlib import Path
from typing import Any

import torch

from olr_cli.data.prompts import PromptSet, View
from olr_cli.engines.digests import weights_digest
from olr_cli.engines.local.checkpoint import load_trainer
from olr_cli.engines.local.grpo import Grpo
from olr_cli.engines.local.loading import device_of
from olr_cli.engines.local.loop import train
from olr_cli.engines.local.lora import LoraPolicy
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.models import model_location
from olr_cli.engines.prompt_text import (
    ChatFormat,
    require_room,
    template_lines,
    template_warnings,
)
from olr_cli.engines.reporting import require_packages
from olr_cli.engines.run import Attempt, DataSets, engine_section, loss_average_departure
from olr_cli.errors import at
from olr_cli.packages import untested_versions
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.sections import LocalEngine
from olr_cli.runs.checkpoints import checkpoint_path
from olr_cli.runs.schedule import Schedule


def processor() -> str:
    """Return the model name of this machine's processor, for the facts in a run's manifest (R18).

    Another kind of processor rounds matrix products differently, so results repeat only on the same kind.
    """
    described = Path("/proc/cpuinfo")
    text = described.read_text() if described.exists() else ""
    named = re.search(r"^model name\s*:\s*(.+)", text, re.MULTILINE)
    return named[1] if named else platform.processor() or platform.machine()


class LocalRunner:
    """The engine `local`, for one machine: loads the policy, then trains it (see `olr_cli.engines.run.Engine`)."""

    def __init__(self, recipe: Recipe, data: DataSets) -> None:
        """Load the starting policy and encode every prompt; raise UserError if a prompt is too long."""
        require_packages(recipe)
        set_up_torch(recipe)
        self.policy = policy = load_policy(recipe, day=data.day)
        self.views, sets = data.views, data.held_out.items()
        encoded = [encode_prompts(policy, data.train, recipe, view) for view in self.views]
        # From one list per view to one tuple per prompt, with an item per view.
        self.token_ids = list(zip(*encoded, strict=True))
        self.held_out = {
            prefix: encode_prompts(policy, held_out, recipe) for prefix, held_out in sets
        }
        on_gpu = self.policy.device.type == "cuda"
        no_repeat = ["results do not repeat bit for bit on a GPU"] if on_gpu else []
        self.facts = {
            "engine": "local",
            "device": torch.cuda.get_device_name() if on_gpu else "cpu",
            "processor": None if on_gpu else processor(),
            "dtype": str(self.policy.dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "policy_digest": weights_digest(self.policy.model),
            "departures": [
                "advantages are divided by the population standard deviation, as in the paper's Eq. 1 (the authors'"
                " code: sample standard deviation)",
                "mini-batches are of whole prompts (the authors': of single rollouts)",
                loss_average_departure(recipe),
                *(no_repeat or untested_versions()),
            ],
        }
        self.warnings = [*policy.notes, *template_warnings(policy.tokenizer, recipe)]
        if not on_gpu:
            self.warnings += too_much_for_a_cpu(
                policy.model.num_parameters(), len(self.token_ids), recipe
            )

        self.plan = [f"device {self.facts['device']}", *template_lines(policy.tokenizer)]
        self.render = policy.render
        # Attach the adapter before anything is written: `train.lora_layers` may fit no layer.
        if recipe.train.lora_rank is not None:
            self.policy = LoraPolicy.attach(policy, recipe)
            self.plan.append(self.policy.coverage())
        self._start = policy

    def complete(self, run: Attempt) -> dict[str, Any]:
        """Train the steps after `run.done`, the number of complete steps.

        Returns:
            Facts for the manifest: ``steps``, the number of steps of the whole run, and ``policy``, the path of the
            last checkpoint.

        Raises:
            Diverged: a loss, gradient or logit is not finite.
            Interrupted: Ctrl-C or SIGTERM came; a checkpoint after the last complete step exists.
        """
        # The verifier's workers start in the background while the optimiser and the checkpoint are loaded.
        run.supervisor.expect(run.data.train.prompts)
        train(run, self._grpo(run), self.token_ids, self.held_out)
        last = Schedule.of(run.recipe, len(self.token_ids)).last
        return {"steps": last, "policy": str(checkpoint_path(run.path, last))}

    def _grpo(self, run: Attempt) -> Grpo:
        """Return the trainer as it is after `run.done` steps, with policy, reference and optimiser.

        If `run.done` is 0, the policy is the starting policy and the optimiser is new. Otherwise both are loaded from
        the checkpoint after that step. The reference of the KL term is always the starting policy.
        """
        recipe, settings = run.recipe, run.recipe.train
        checkpoint = checkpoint_path(run.path, run.done) if run.done else None
        if isinstance(self.policy, LoraPolicy):
            run.progress.say(self.policy.coverage())
            if checkpoint is not None:
                self.policy.model.unload()
                self.policy = LoraPolicy.attach(self._start, recipe, checkpoint)
        # Copy before the checkpoint is loaded: the reference is the starting policy (R17).
        reference = self.policy.frozen_copy() if settings.kl_weight > 0 else None
        if checkpoint is not None and settings.lora_rank is None:
            self.policy = load_policy(recipe, checkpoint)
        engine = engine_section(recipe, LocalEngine)
        if engine.gradient_checkpointing:
            self.policy.recompute()
        grpo = Grpo(
            self.policy,
            reference,
            settings,
            recipe.method,
            views=len(self.views),
            micro_batch_tokens=engine.micro_batch_tokens or engine.max_batch_tokens,
        )
        if checkpoint is not None:
            load_trainer(grpo, checkpoint)
        return grpo


_CPU_SPEED = 1e11
"""Operations per second in float32; few CPUs reach more."""
_OPERATIONS = 8
"""Operations per parameter and token, at least: two to sample the token, six to train on it."""


def too_much_for_a_cpu(parameters: int, prompts: int, recipe: Recipe) -> list[str]:
    """Return a list with a warning if training on a CPU may take a day or more; otherwise an empty list.

    The estimate assumes responses of full length. `parameters` is the number of the model's weights, and `prompts` the
    number of training prompts.
    """
    settings = recipe.train
    tokens = (
        prompts * settings.epochs * settings.rollouts_per_prompt * settings.max_new_tokens
    )
    days = parameters * tokens * _OPERATIONS / _CPU_SPEED / 86400
    if days < 1:
        return []
    return [
        f"{parameters / 1e6:,.0f} M parameters on a CPU: with responses of full length this takes {days:,.0f} days or"
        " more; take a GPU (engine.device), fewer prompts (data.limit), or shorter responses (train.max_new_tokens)"
    ]


# Parameters of `mallopt` in malloc.h, which Python has no names for.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_KEPT = 32 << 20
"""The largest threshold that glibc accepts; a larger tensor gets its memory from the system each time."""


def keep_freed_memory() -> None:
    """Keep freed memory in this process, to save the time of allocating it again; do nothing without glibc."""
    # Every step allocates and frees the same tensors. If their memory went back to the system in between, each use of a
    # page would cost a page fault, and the system would fill the page with zeros again.
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT)
        libc.mallopt(_M_TRIM_THRESHOLD, -1)  # never


def set_up_torch(recipe: Recipe) -> None:
    """Set torch's number of threads if the recipe gives it, and make results on a CPU repeatable.

    Also call `keep_freed_memory`.
    """
    engine = engine_section(recipe, LocalEngine)
    if engine.threads is not None:
        torch.set_num_threads(engine.threads)
    # Only on a CPU: a GPU's results do not repeat anyway (`no_repeat`), and there deterministic kernels cost time.
    torch.use_deterministic_algorithms(
        device_of(engine.device).type == "cpu", warn_only=True
    )
    # Deterministic mode fills new tensors, in case one is read before it is written. None is here, and filling takes
    # time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    keep_freed_memory()


def load_policy(
    recipe: Recipe, checkpoint: Path | None = None, day: date | None = None
) -> Policy:
    """Load the recipe's starting policy, or the policy in the folder `checkpoint`, onto the recipe's device.

    If a stop text of the recipe is a special token, that token also ends responses. `day` is the date that chat
    templates write; None means today.
    """
    model, engine = (
        checkpoint or model_location(recipe.model.path),
        engine_section(recipe, LocalEngine),
    )
    policy = Policy.load(
        model,
        device=engine.device,
        dtype=None if engine.dtype == "auto" else getattr(torch, engine.dtype),
        trust_remote_code=recipe.model.trust_remote_code,
        chat=ChatFormat.of(recipe, day),
    )
    with at("train.stop"):
        return policy.ending_at(recipe.train.stop)


def encode_prompts(
    policy: Policy, prompts: PromptSet, recipe: Recipe, view: View = "original"
) -> list[list[int]]:
    """Return the token ids of every prompt in its original or its rephrased wording, as `view` says.

    Raises:
        UserError: a prompt is longer than the recipe allows, or leaves no room in the model's context for a full
            response.
    """
    token_ids = policy.encode([prompt.turns(view) for prompt in prompts.prompts])
    require_room(prompts, token_ids, recipe, policy.context_length, view)
    return token_ids
