"""A recipe as OpenRLHF's flags, and who decides each flag: a key of the recipe, olr, or else `engine.flags`."""

from __future__ import annotations

import argparse
import ast
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import util
from pathlib import Path
from typing import Any

from olr_cli import seeding
from olr_cli.engines.openrlhf import OPENRLHF_VERSION
from olr_cli.engines.openrlhf.job_files import OPENRLHF_PART, UNIVERSAL
from olr_cli.engines.run import (
    ADAM_BETAS,
    DUAL_CLIP,
    GRADIENT_CLIP,
    WEIGHT_DECAY,
    engine_section,
)
from olr_cli.errors import UserError
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.section import flatten
from olr_cli.recipe.sections import LossAverage, OpenRlhfEngine
from olr_cli.runs.schedule import MIN_LR_RATIO

LOSS_AVERAGES: Mapping[LossAverage, str] = {
    "token": "token-mean",
    "sequence": "seq-mean-token-mean",
}
"""Our names for the average of the loss -> OpenRLHF's."""

INSTALL = "docs/openrlhf-install.md tells how to install it"


@dataclass(frozen=True)
class Places:
    """What a job's flags need besides the recipe: the model, paths, the token limit, and the number of views.

    A view is a wording in which a prompt is sampled. `OpenRlhfRunner` makes this object, and `recipe_flags` reads it.
    """

    model: str
    """Folder or hub id."""

    prompts: Path
    """Parquet file with the texts of the training prompts."""

    held_out: Path | None
    """Parquet file with the texts of the held-out prompts, or None if there are none."""

    checkpoint: Path | None
    """The folder of our checkpoint to continue from, or of the universal checkpoint made of it; None for a new run."""

    scratch: Path
    """A folder for files that OpenRLHF always writes and olr does not need."""

    max_tokens: int
    """Prompt and response together."""

    is_universal: bool = False
    """Whether `checkpoint` is a universal one, which any number of GPUs can load (`job_files.put_together`)."""

    views: int = 1


def cluster_address(recipe: Recipe) -> str | None:
    """Return the address of the Ray cluster that the job joins, or None if the job starts a Ray of its own.

    It comes from `engine.ray_address`, or else from the variable RAY_ADDRESS.
    """
    return engine_section(recipe, OpenRlhfEngine).ray_address or os.environ.get(
        "RAY_ADDRESS"
    )


def openrlhf_parser() -> argparse.ArgumentParser:
    """Return the parser of OpenRLHF's own command line.

    OpenRLHF makes it inside ``if __name__ == "__main__"``, where it cannot be imported. Only the statements that make
    the parser are run, so no large package is loaded.

    Raises:
        UserError: the installed OpenRLHF makes no parser there.
    """
    package = util.find_spec("openrlhf.cli")
    places = list(package.submodule_search_locations or ()) if package else []
    source = (
        Path(places[0], "train_ppo_ray.py").read_text(encoding="utf-8") if places else ""
    )
    main = next((node for node in ast.parse(source).body if isinstance(node, ast.If)), None)
    statements = [] if main is None else main.body
    for number, statement in enumerate(statements):
        # Everything before `parse_args` makes the parser, and everything after it uses the result.
        if isinstance(statement, ast.Assign) and "parse_args" in ast.unparse(statement):
            names: dict[str, Any] = {"argparse": argparse, "datetime": datetime}
            before = ast.Module(statements[:number], [])
            # no user's text: these are statements of the installed OpenRLHF that make its parser
            exec(compile(before, "train_ppo_ray.py", "exec"), names)
            parser = names.get("parser")
            if isinstance(parser, argparse.ArgumentParser):
                return parser
    raise UserError(
        f"the installed openrlhf has no parser where {OPENRLHF_VERSION} has it", INSTALL
    )


_KEYS: Mapping[str, str] = {
    "rollout.n_samples_per_prompt": "train.rollouts_per_prompt",
    "rollout.max_new_tokens": "train.max_new_tokens",
    "rollout.temperature": "train.temperature",
    "rollout.micro_batch_size": "engine.micro_batch_samples",
    "train.num_episodes": "train.epochs",
    "train.micro_batch_size": "engine.micro_batch_samples",
    "actor.adam.lr": "train.learning_rate",
    "actor.eps_clip": "train.clip",
    "algo.kl.init_coef": "train.kl_weight",
    "actor.num_nodes": "engine.nodes",
    "actor.num_gpus_per_node": "engine.gpus_per_node",
    "ref.num_nodes": "engine.nodes",
    "ref.num_gpus_per_node": "engine.gpus_per_node",
    "train.colocate_all": "engine.colocate",
    "actor.gradient_checkpointing_enable": "engine.gradient_checkpointing",
    "ds.zero_stage": "engine.zero_stage",
    "vllm.tensor_parallel_size": "engine.tensor_parallel",
    "vllm.gpu_memory_utilization": "engine.vllm_memory",
    "rollout.top_p": "train.top_p",
    "actor.lr_warmup_ratio": "train.lr_warmup_ratio",
}
"""Flags that have the value of a key of the recipe."""

_COMPUTED: Mapping[str, str] = {
    "actor.model_name_or_path": "model.path",
    "data.prompt_dataset": "data.train",
    "data.max_len": "train.max_prompt_tokens and train.max_new_tokens",
    "data.max_samples": "data.limit",
    "eval.dataset": "data.test and data.validation",
    "eval.steps": "train.evaluate_every",
    "eval.temperature": "train.evaluation_temperature",
    "eval.n_samples_per_prompt": "train.evaluation_samples",
    "rollout.batch_size": "train.prompts_per_step",
    "train.batch_size": "train.mini_batch_prompts",
    "train.seed": "seed",
    "actor.loss_agg_mode": "train.loss_average",
    "actor.entropy_coef": "method.penalty_weight",
    "ds.attn_implementation": "engine.attention",
    "ds.enable_sleep": "engine.sleep",
    "vllm.enable_sleep": "engine.sleep",
    "vllm.num_engines": "engine.vllm_engines",
    "ckpt.save_steps": "train.checkpoint_every",
    "ckpt.max_num": "train.keep_checkpoints",
    "logger.tensorboard_dir": "logging.tensorboard",
    "logger.wandb.key": "logging.wandb",
    "actor.lr_scheduler": "train.lr_schedule and train.lr_warmup_ratio",
    "actor.eps_clip_low_high": "train.clip and train.clip_high",
}
"""Flags that `recipe_flags` computes from keys."""

BY_KEYS = {**_KEYS, **_COMPUTED}
"""Flags that the recipe decides -> the key, or several joined by "and"."""

_REASONS: Mapping[str, str] = {
    "the supervisor needs every rollout of every prompt of a step": "train.async_enable train.partial_rollout_enable"
    " algo.dynamic_filtering_enable rollout.vllm_generate_batch_size",
    "olr deals samples out to GPUs that each hold the whole policy, in batches of one size": "ds.ring_attn_size"
    " train.dynamic_batch_enable ds.tensor_parallel_size",
    "the statistics of tokens are read from padded batches": "ds.packing_samples",
    "olr itself reads the prompts, makes the rewards and writes the checkpoints": "train.agent_func_path"
    " reward.remote_url reward.model_name_or_path data.prompt_probs data.input_key data.label_key data.input_template"
    " data.apply_chat_template data.disable_fast_tokenizer data.prompt_split eval.split ckpt.save_hf ckpt.max_mem"
    " ckpt.path ckpt.output_dir ckpt.load_enable ckpt.disable_ds ckpt.best_metric_key",
    "prompts are text": "data.max_images_per_prompt",
    "what trains would no longer be the reward that olr records": "reward.stop_properly_penalty_coef"
    " reward.overlong_buffer_len reward.overlong_penalty_factor",
    "what is evaluated and what is saved would be two policies": "train.enable_ema",
    "vLLM's weights are bfloat16, and it takes no others": "ds.param_dtype",
    "no checkpoint holds the KL weight that it adapts": "algo.kl.target",
    "a checkpoint would hold adapters alone, and vLLM would not get them": "ds.lora.rank",
    "olr logs every step": "logger.logging_steps",
    "olr logs; see the recipe's section logging": "logger.wandb.org logger.wandb.group logger.wandb.project"
    " logger.wandb.run_name",
    "there is no critic to wait for": "critic.freezing_steps",
    "it follows from the number of GPUs that a checkpoint was saved on": UNIVERSAL,
    "it follows from engine.device": "vllm.sync_backend",
    # DeepSpeed scales the orthogonal step to actor.max_norm: for a model of 1.5 B that is about a 700th of it.
    "DeepSpeed clips Muon's step where it should clip the gradient, and with ZeRO 3 it refuses Muon": "actor.optim"
    " actor.muon.lr actor.muon.momentum actor.muon.ns_steps actor.muon.nesterov actor.muon.no_nesterov",
    "weights of 4 bits cannot be trained, and vLLM takes no others than bfloat16": "ds.load_in_4bit",
    "it replaces the model's layers, for which olr has neither the package nor a test": "ds.use_liger_kernel",
    "it replaces how DeepSpeed gathers weights and reduces gradients, which olr has not tested": "ds.deepcompile",
    "OpenRLHF reads it with a critic alone": "algo.advantage.gamma algo.advantage.lambd",
    "olr has read the model from Hugging Face's hub": "use_ms",
}

BY_OLR = {flag: reason for reason, flags in _REASONS.items() for flag in flags.split()}
"""Flags that only olr may set -> the reason. `engine.flags` may set all that are neither here nor in `BY_KEYS`."""


def recipe_flags(
    recipe: Recipe, places: Places, attention: str, done: int
) -> dict[str, Any]:
    """Return OpenRLHF's flags for a recipe, as name without dashes -> value.

    `arguments` turns them into a command line, and says what True, False, None and a tuple mean as a value. The
    recipe's own `engine.flags` take precedence.

    Args:
        recipe: the recipe.
        places: the model, paths, token limit and number of views of this job.
        attention: transformers' name of the attention implementation.
        done: number of complete steps. vLLM's seed depends on it, so that a resumed run draws other random numbers.
    """
    engine, train, keys = (
        engine_section(recipe, OpenRlhfEngine),
        recipe.train,
        flatten(recipe.plain()),
    )
    on_gpu = engine.device == "cuda"
    mini_batch = min(
        train.mini_batch_prompts or train.prompts_per_step, train.prompts_per_step
    )
    has_warmup_alone = train.lr_schedule == "constant" and train.lr_warmup_ratio > 0
    sleep = engine.sleep and engine.colocate and on_gpu
    ours: dict[str, Any] = {
        "actor.model_name_or_path": places.model,
        "data.prompt_dataset": places.prompts,
        "data.input_key": "input",
        "data.label_key": "label",
        "data.max_len": places.max_tokens,
        "eval.dataset": places.held_out,
        "train.agent_func_path": Path(__file__).with_name("vllm_actor.py"),
        **{flag: keys[key] for flag, key in _KEYS.items()},
        # The rollouts of a step (R17): every prompt once, in each of its views, K times each. To OpenRLHF, a view is
        # a prompt.
        "rollout.batch_size": train.prompts_per_step * places.views,
        # One pass over them in mini-batches. OpenRLHF counts a mini-batch in samples, the recipe in prompts.
        "train.max_epochs": 1,
        "train.batch_size": mini_batch * train.rollouts_per_prompt * places.views,
        # A resume needs another seed, or vLLM would draw the random numbers of the first rollouts once more.
        "train.seed": seeding.key("openrlhf", recipe.seed, done) % 2**31,
        "actor.adam.betas": ADAM_BETAS,
        "actor.adam.weight_decay": WEIGHT_DECAY,
        "actor.max_norm": GRADIENT_CLIP,
        "actor.lr_scheduler": "constant_with_warmup"
        if has_warmup_alone
        else train.lr_schedule,
        "actor.min_lr_ratio": MIN_LR_RATIO,
        "actor.eps_clip_low_high": None
        if train.clip_high is None
        else (train.clip, train.clip_high),
        "actor.dual_clip": DUAL_CLIP,
        "actor.loss_agg_mode": LOSS_AVERAGES[train.loss_average],
        # Leave the flag out without a penalty. Otherwise OpenRLHF would compute the entropy again, which actor.py
        # measures in the forward pass before the update.
        "actor.entropy_coef": recipe.method.penalty_weight or None,
        "algo.advantage.estimator": "group_norm",
        "algo.kl.use_loss": train.kl_weight > 0,
        "algo.kl.estimator": "k3",
        # Advantages grow with the group size, and OpenRLHF's clip at 10 would cut a large group's.
        "reward.clip_range": (-1e6, 1e6),
        "ds.attn_implementation": attention,
        "ds.enable_sleep": sleep,
        "vllm.num_engines": engine.engines,
        "vllm.enable_sleep": sleep,
        "vllm.enable_prefix_caching": True,  # a group's rollouts share their prompt
        "vllm.enforce_eager": not on_gpu,  # on a CPU, compiling takes longer than the rehearsal
        # nccl would send the weights of colocated models through CUDA's shared memory, which a CPU does not have.
        "vllm.sync_backend": "nccl" if on_gpu else "gloo",
        "ckpt.path": None
        if places.checkpoint is None
        else places.checkpoint / OPENRLHF_PART,
        "ckpt.load_enable": places.checkpoint is not None,
        UNIVERSAL: places.is_universal,
        "ckpt.output_dir": places.scratch,
        "ckpt.best_metric_key": "none",
    }
    return ours | flatten(engine.flags)


def arguments(flags: Mapping[str, Any]) -> list[str]:
    """Return command-line arguments for flags, given as name without dashes -> value.

    True gives a flag without a value. None and False give nothing. A tuple or list gives several values.
    """
    words: list[str] = []
    for name, value in flags.items():
        if value is None or value is False:
            continue
        words.append(f"--{name}")
        if value is not True:
            words += (
                [str(v) for v in value] if isinstance(value, tuple | list) else [str(value)]
            )
    return words


def divides_by_std(recipe: Recipe) -> bool:
    """Return whether OpenRLHF divides a group's rewards by their standard deviation.

    It does, unless `engine.flags` chooses another advantage estimator than ``group_norm``.
    """
    flags = flatten(engine_section(recipe, OpenRlhfEngine).flags)
    return bool(flags.get("algo.advantage.estimator", "group_norm") == "group_norm")
