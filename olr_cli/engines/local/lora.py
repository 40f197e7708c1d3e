"""LoRA (Hu et al. 2021, arXiv:2106.09685) by the package peft: to linear layers a product of thin matrices is added.

Only these matrices, the adapter, train. Gradient and optimiser state are as small as they are, and the reference of the
KL term is the policy without them, so no weights are kept twice.
"""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from olr_cli import seeding
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.local.probe import ordinary_tokens
from olr_cli.errors import UserError, first_line
from olr_cli.recipe.schema import Recipe

ADAPTER = "adapter"
"""The folder of a checkpoint that has the adapter alone, as peft saves it; the checkpoint itself is merged."""

_MOST_GAP = 1e-2
"""Nats between log-probabilities before and after merging, far above the rounding of float32 weights."""


class LoraPolicy(Policy):
    """A policy of which only an adapter trains."""

    def __init__(self, policy: Policy, model: Any) -> None:
        """Wrap `policy`, whose model the peft model `model` has changed in place."""
        # Not `super().__init__`, which would set the model up a second time.
        vars(self).update(vars(policy))
        self.model = model
        self.has_plain_head &= type(model.get_output_embeddings()) is torch.nn.Linear

    @classmethod
    def attach(
        cls, policy: Policy, recipe: Recipe, checkpoint: Path | None = None
    ) -> LoraPolicy:
        """`policy` with a new adapter, which changes nothing yet, or with that of a checkpoint."""
        import peft

        rank, alpha, layers = (
            recipe.train.lora_rank,
            recipe.train.lora_alpha,
            recipe.train.lora_layers,
        )
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
            return cls(policy, model.eval())._require_untied(layers)
        try:
            with torch.random.fork_rng(devices=[]):  # peft draws from torch's own generator
                torch.manual_seed(seeding.key("lora", recipe.seed) >> 1)
                model = peft.get_peft_model(policy.model, settings)
        except ValueError as error:
            raise UserError(
                f"train.lora_layers '{layers}' fits no layer of {recipe.model.path} ({first_line(error)})",
                "all-linear takes every linear layer",
            ) from None
        return cls(policy, model.eval())._require_untied(layers)

    def _require_untied(self, layers: str) -> LoraPolicy:
        """Return the policy, but refuse an adapter on weights that another layer has too: both would be merged."""
        uses = Counter(
            weight for _, weight in self.model.named_parameters(remove_duplicate=False)
        )
        for name, module in self.model.get_base_model().named_modules():
            # Experts have several weights and none of this name; nothing shares them.
            if uses[getattr(getattr(module, "base_layer", None), "weight", None)] > 1:
                raise UserError(
                    f"train.lora_layers '{layers}' reaches {name}, whose weights another layer has too (tied"
                    " embeddings), so a merged checkpoint would not be the policy that trained",
                    "leave it out",
                )
        return self

    def coverage(self) -> str:
        """Return a sentence on which layers have adapters, which have none, and how much trains."""
        weights = dict(self.model.named_parameters())
        trained = {name: weight for name, weight in weights.items() if weight.requires_grad}
        layers = {
            name.partition(".lora_")[0].replace(".base_layer", "") for name in trained
        }
        adapted = {layer.rpartition(".")[2] for layer in layers}
        rest = {
            ".".join(name.removesuffix(".weight").split(".")[-2:])
            for name, weight in weights.items()
            if weight.dim() > 1 and not weight.requires_grad and ".base_layer." not in name
        }
        share = sum(map(torch.numel, trained.values())) / sum(
            map(torch.numel, weights.values())
        )
        return (
            f"LoRA trains {share:.2%} of the weights, adapters in {', '.join(sorted(adapted))}; without adapters are"
            f" {', '.join(sorted(rest))}."
        )

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
        self._require_equal(merged.model)
        self.model.save_pretrained(Path(folder, ADAPTER), save_embedding_layers=False)
        Policy.save(merged, folder)

    def _require_equal(self, merged: Any) -> None:
        """Refuse a merged model that does not compute what the policy does, by one pass of each in float32."""
        tokens_1T = torch.tensor([ordinary_tokens(self)], device=self.device)
        with torch.inference_mode():
            scores = [
                it(input_ids=tokens_1T, use_cache=False).logits[0]
                for it in (self.model, merged)
            ]
        trained_TV, merged_TV = (logits_TV.log_softmax(-1) for logits_TV in scores)
        # The median of the tokens: where a router nearly has a tie, rounding may choose another expert for one.
        gap = (trained_TV - merged_TV).abs().nan_to_num(0).amax(-1).median().item()
        if gap > _MOST_GAP:
            raise UserError(
                f"the merged policy is {gap:.2g} nats from the one that trains, so its checkpoint would be another one",
                "name other layers in train.lora_layers",
            )


class _WithoutAdapter:
    """Calls a peft model without its adapter."""

    def __init__(self, model: Any) -> None:
        self._model, self.config = model, model.config
        self.get_output_embeddings = model.get_output_embeddings

    def __call__(self, **inputs: Any) -> Any:
        with self._model.disable_adapter():
            return self._model(**inputs)
