"""LoRA (Hu et al. 2021, arXiv:2106.09685) by the package peft: to linear layers a product of thin matrices is added.

Only these matrices, the adapter, train. Gradient and optimiser state are as small as they are, and the reference of the
KL term is the policy without them, so no weights are kept twice.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch

from olr_cli import seeding
from olr_cli.engines.local.policy import Policy
from olr_cli.errors import UserError, first_line
from olr_cli.recipe.schema import Recipe

ADAPTER = "adapter"
"""The folder of a checkpoint that has the adapter alone, as peft saves it; the checkpoint itself is merged."""


class LoraPolicy(Policy):
    """A policy of which only an adapter trains."""

    def __init__(self, policy: Policy, model: Any) -> None:
        """Wrap `policy`, whose model the peft model `model` has changed in place."""
        # Not `super().__init__`, which would set the model up a second time.
        vars(self).update(vars(policy))
        self.model = model
        self.has_plain_head &= type(model.get_output_embeddings()) is torch.nn.Linear

    @classmethod
    def attach(cls, policy: Policy, recipe: Recipe, checkpoint: Path | None = None) -> LoraPolicy:
        """`policy` with a new adapter, which changes nothing yet, or with that of a checkpoint."""
        import peft

        rank, alpha, layers = recipe.train.lora_rank, recipe.train.lora_alpha, recipe.train.lora_layers
        assert rank is not None
        settings = peft.LoraConfig(
            task_type="CAUSAL_LM",
            r=rank,
            lora_alpha=alpha or 2 * rank,
            lora_dropout=0.0,  # the probabilities that train must be those that were sampled
            target_modules=layers,
        )
        if checkpoint is not None:
            # The settings are the recipe's: those of the adapter's file could name modules that peft imports.
            model = peft.PeftModel.from_pretrained(
                policy.model, str(checkpoint / ADAPTER), is_trainable=True, config=settings
            )
            return cls(policy, model.eval())
        try:
            with torch.random.fork_rng(devices=[]):  # peft draws from torch's own generator
                torch.manual_seed(seeding.key("lora", recipe.seed) >> 1)
                return cls(policy, peft.get_peft_model(policy.model, settings).eval())
        except ValueError as error:
            raise UserError(
                f"train.lora_layers '{layers}' fits no layer of {recipe.model.path} ({first_line(error)}); all-linear"
                " takes every linear layer"
            ) from None

    def frozen_copy(self) -> Policy:
        """The policy without its adapter."""
        frozen = copy.copy(self)
        frozen.model = _WithoutAdapter(self.model)
        return frozen

    def save(self, folder: str | Path) -> None:
        """Write the merged policy, as any other in Hugging Face layout, and in a folder of its own the adapter."""
        merged = copy.copy(self)
        # A copy: merging and undoing it would leave rounding in the weights that train on.
        merged.model = copy.deepcopy(self.model).merge_and_unload()
        Policy.save(merged, folder)
        self.model.save_pretrained(Path(folder, ADAPTER), save_embedding_layers=False)
        for weights in Path(folder, ADAPTER).glob("*.safetensors"):
            weights.chmod(0o644)


class _WithoutAdapter:
    """Calls a peft model without its adapter."""

    def __init__(self, model: Any) -> None:
        self._model, self.config = model, model.config
        self.get_output_embeddings = model.get_output_embeddings

    def __call__(self, **inputs: Any) -> Any:
        with self._model.disable_adapter():
            return self._model(**inputs)
