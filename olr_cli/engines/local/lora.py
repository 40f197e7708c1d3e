"""LoRA (Hu et al. 2021, arXiv:2106.09685) by the package peft: a product of thin matrices is added to linear layers.

Only these matrices, the adapter, train, so gradient and optimiser state are small. The reference of the KL term is the
policy without them, so no weights are kept twice.
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
"""Folder in a checkpoint with the adapter alone, as peft saves it; the checkpoint itself is merged."""

_MOST_GAP = 1e-2
"""Largest allowed gap between log-probabilities before and after merging, in nats.

It is far above the rounding of float32 weights.
"""


class LoraPolicy(Policy):
    """A policy of which only a LoRA adapter trains, while the model's own weights stay frozen."""

    def __init__(self, policy: Policy, model: Any) -> None:
        """Copy the attributes of `policy` except its model; `model` is that model, wrapped by peft."""
        # `super().__init__` would set up and probe the model a second time, so copy its results.
        vars(self).update(vars(policy))
        self.model = model
        self.has_plain_head &= type(model.get_output_embeddings()) is torch.nn.Linear

    @classmethod
    def attach(
        cls, policy: Policy, recipe: Recipe, checkpoint: Path | None = None
    ) -> LoraPolicy:
        """Return `policy` with a new adapter, or with the adapter in the folder `checkpoint`.

        A new adapter does not change the logits until it is trained. The recipe sets its rank, its alpha and the layers
        that get it. The model of `policy` is changed in place.

        Raises:
            UserError: `train.lora_layers` matches no layer, or matches a layer that shares its weights with another
                one.
        """
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
            # No dropout: the probabilities that train must be those that were sampled.
            lora_dropout=0.0,
            target_modules=layers,
        )
        if checkpoint is not None:
            # Use the recipe's settings, because those in the adapter's file could name modules that peft imports.
            model = peft.PeftModel.from_pretrained(
                policy.model, str(checkpoint / ADAPTER), is_trainable=True, config=settings
            )
            return cls(policy, model.eval())._require_untied(layers)
        try:
            # peft draws from torch's global generator: seed it for the adapter alone, then restore it.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seeding.key("lora", recipe.seed) >> 1)
                model = peft.get_peft_model(policy.model, settings)
        except ValueError as error:
            raise UserError(
                f"train.lora_layers '{layers}' fits no layer of {recipe.model.path} ({first_line(error)})",
                "all-linear takes every linear layer",
            ) from None
        return cls(policy, model.eval())._require_untied(layers)

    def _require_untied(self, layers: str) -> LoraPolicy:
        """Return this policy; raise UserError if a layer with an adapter shares its weights with another layer.

        Merging the adapter would change both layers. `layers` is the recipe's `train.lora_layers`, which the error
        quotes.
        """
        uses = Counter(
            weight for _, weight in self.model.named_parameters(remove_duplicate=False)
        )
        for name, module in self.model.get_base_model().named_modules():
            # Layers of experts have several weights and none by this name; no layer shares them.
            if uses[getattr(getattr(module, "base_layer", None), "weight", None)] > 1:
                raise UserError(
                    f"train.lora_layers '{layers}' reaches {name}, whose weights another layer has too (tied"
                    " embeddings), so a merged checkpoint would not be the policy that trained",
                    "leave it out",
                )
        return self

    def coverage(self) -> str:
        """Return a sentence that names the layers with and without adapters, and the share of weights that train."""
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
        """Return the starting policy, for the reference of the KL term.

        It shares the weights of this policy, and turns the adapter off during its own passes.
        """
        frozen = copy.copy(self)
        frozen.model = _WithoutAdapter(self.model)
        return frozen

    def save(self, folder: str | Path) -> None:
        """Write the policy with its adapter merged, in Hugging Face layout, and the adapter alone in a subfolder.

        Raises:
            UserError: the merged policy gives other log-probabilities than this policy (`_require_equal`).
        """
        merged = copy.copy(self)
        # Merge a copy: to merge and undo it would leave rounding errors in the weights, which train on.
        merged.model = copy.deepcopy(self.model).merge_and_unload()
        self._require_equal(merged.model)
        self.model.save_pretrained(Path(folder, ADAPTER), save_embedding_layers=False)
        Policy.save(merged, folder)

    def _require_equal(self, merged: Any) -> None:
        """Raise UserError if the merged model and this policy's model disagree about log-probabilities, rounding aside.

        `merged` is the model with its adapter merged into the weights. Both read one short text (`ordinary_tokens`).
        """
        tokens_1T = torch.tensor([ordinary_tokens(self)], device=self.device)
        with torch.inference_mode():
            scores = [
                it(input_ids=tokens_1T, use_cache=False).logits[0]
                for it in (self.model, merged)
            ]
        trained_TV, merged_TV = (logits_TV.log_softmax(-1) for logits_TV in scores)
        # Take the median over tokens: at a near tie of a router, rounding may choose another expert for one token.
        gap = (trained_TV - merged_TV).abs().nan_to_num(0).amax(-1).median().item()
        if gap > _MOST_GAP:
            raise UserError(
                f"the merged policy is {gap:.2g} nats from the one that trains, so its checkpoint would be another one",
                "name other layers in train.lora_layers",
            )


class _WithoutAdapter:
    """Stands in for a peft model, but turns the adapter off during each call.

    It therefore computes what the model computed before training. `LoraPolicy.frozen_copy` makes it.
    """

    def __init__(self, model: Any) -> None:
        self._model, self.config = model, model.config
        self.get_output_embeddings = model.get_output_embeddings

    def __call__(self, **inputs: Any) -> Any:
        with self._model.disable_adapter():
            return self._model(**inputs)
