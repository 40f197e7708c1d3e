"""A recipe as OpenRLHF's flags, and who decides each of them: a key of the recipe, olr, or else `engine.flags`."""

from __future__ import annotations

import argparse
import ast
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import util
from pathlib import Path
from typing import Any, Literal, NamedTuple

from olr_cli import seeding
from olr_cli.engines.openrlhf import OPENRLHF_VERSION
from olr_cli.engines.openrlhf.job_files import OPENRLHF_PART, UNIVERSAL
from olr_cli.engines.run import ADAM_BETAS, DUAL_CLIP, GRADIENT_CLIP, WEIGHT_DECAY, engine_section
from olr_cli.errors import UserError
from olr_cli.recipe.schema import LossAverage, OpenRlhfEngine, Recipe, flatten
from olr_cli.runs.schedule import MIN_LR_RATIO

LOSS_AVERAGES: Mapping[LossAverage, str] = {"token": "token-mean", "sequence": "seq-mean-token-mean"}
"""OpenRLHF's names for what weighs alike in the loss."""

INSTALL = "docs/openrlhf-install.md tells how to install it"


@dataclass(frozen=True)
class Places:
    """The places that OpenRLHF reads from and writes to, and the sizes that come from the data.

    Attributes:
        model: folder or hub id.
        checkpoint: of ours, to go on from, or the universal one in its place (`job_files.put_together`).
        scratch: a folder for what OpenRLHF insists on writing.
        max_tokens: prompt and response together.
    """

    model: str
    prompts: Path
    held_out: Path | None
    checkpoint: Path | None
    scratch: Path
    max_tokens: int
    is_universal: bool = False
    views: int = 1


def cluster_address(recipe: Recipe) -> str | None:
    """Where a running Ray cluster is, by the recipe or by Ray's own variable; None: the job makes one of its own."""
    return engine_section(recipe, OpenRlhfEngine).ray_address or os.environ.get("RAY_ADDRESS")


def openrlhf_parser() -> argparse.ArgumentParser:
    """The parser of OpenRLHF's own command line.

    It is made inside the module's ``if __name__ == "__main__"``. Only the statements that make it are run, so nothing
    heavy is imported.
    """
    package = util.find_spec("openrlhf.cli")
    places = list(package.submodule_search_locations or ()) if package else []
    source = Path(places[0], "train_ppo_ray.py").read_text(encoding="utf-8") if places else ""
    main = next((node for node in ast.parse(source).body if isinstance(node, ast.If)), None)
    making = [] if main is None else main.body
    for number, statement in enumerate(making):
        if isinstance(statement, ast.Assign) and "parse_args" in ast.unparse(statement):
            names: dict[str, Any] = {"argparse": argparse, "datetime": datetime}
            # no user's text: statements of the installed OpenRLHF that make its parser
            exec(compile(ast.Module(making[:number], []), "train_ppo_ray.py", "exec"), names)
            parser = names.get("parser")
            if isinstance(parser, argparse.ArgumentParser):
                return parser
    raise UserError(f"the installed openrlhf has no parser where {OPENRLHF_VERSION} has it; {INSTALL}")


class Decision(NamedTuple):
    """Who decides the value of one of OpenRLHF's flags.

    Attributes:
        by: ``key``: the flag has the value of a key of the recipe; ``recipe``: `recipe_flags` works it out from keys;
            ``olr``: nobody else may set it.
        what: the key, or several joined by "and"; for ``olr`` the reason.
    """

    by: Literal["key", "recipe", "olr"]
    what: str


_GROUPS = "the supervisor needs every rollout of every prompt of a step"
_ROLE = "olr itself reads the prompts, makes the rewards and writes the checkpoints"
_LOGS = "olr logs; see the recipe's section logging"
_REWARDS = "what trains would no longer be the reward that olr records"
_DEAL = "olr deals samples out to GPUs that each hold the whole policy, in batches of one size"

DECISIONS: Mapping[str, Decision] = {
    "rollout.n_samples_per_prompt": Decision("key", "train.rollouts_per_prompt"),
    "rollout.max_new_tokens": Decision("key", "train.max_new_tokens"),
    "rollout.temperature": Decision("key", "train.temperature"),
    "rollout.micro_batch_size": Decision("key", "engine.micro_batch_samples"),
    "train.num_episodes": Decision("key", "train.epochs"),
    "train.micro_batch_size": Decision("key", "engine.micro_batch_samples"),
    "actor.adam.lr": Decision("key", "train.learning_rate"),
    "actor.eps_clip": Decision("key", "train.clip"),
    "algo.kl.init_coef": Decision("key", "train.kl_weight"),
    "actor.num_nodes": Decision("key", "engine.nodes"),
    "actor.num_gpus_per_node": Decision("key", "engine.gpus_per_node"),
    "ref.num_nodes": Decision("key", "engine.nodes"),
    "ref.num_gpus_per_node": Decision("key", "engine.gpus_per_node"),
    "train.colocate_all": Decision("key", "engine.colocate"),
    "actor.gradient_checkpointing_enable": Decision("key", "engine.gradient_checkpointing"),
    "ds.zero_stage": Decision("key", "engine.zero_stage"),
    "vllm.tensor_parallel_size": Decision("key", "engine.tensor_parallel"),
    "vllm.gpu_memory_utilization": Decision("key", "engine.vllm_memory"),
    "rollout.top_p": Decision("key", "train.top_p"),
    "actor.lr_warmup_ratio": Decision("key", "train.lr_warmup_ratio"),
    "actor.model_name_or_path": Decision("recipe", "model.path"),
    "data.prompt_dataset": Decision("recipe", "data.train"),
    "data.max_len": Decision("recipe", "train.max_prompt_tokens and train.max_new_tokens"),
    "data.max_samples": Decision("recipe", "data.limit"),
    "eval.dataset": Decision("recipe", "data.test and data.validation"),
    "eval.steps": Decision("recipe", "train.evaluate_every"),
    "eval.temperature": Decision("recipe", "train.evaluation_temperature"),
    "eval.n_samples_per_prompt": Decision("recipe", "train.evaluation_samples"),
    "rollout.batch_size": Decision("recipe", "train.prompts_per_step"),
    "train.batch_size": Decision("recipe", "train.mini_batch_prompts"),
    "train.seed": Decision("recipe", "seed"),
    "actor.loss_agg_mode": Decision("recipe", "train.loss_average"),
    "actor.entropy_coef": Decision("recipe", "method.penalty_weight"),
    "ds.attn_implementation": Decision("recipe", "engine.attention"),
    "ds.enable_sleep": Decision("recipe", "engine.sleep"),
    "vllm.enable_sleep": Decision("recipe", "engine.sleep"),
    "vllm.num_engines": Decision("recipe", "engine.vllm_engines"),
    "ckpt.save_steps": Decision("recipe", "train.checkpoint_every"),
    "ckpt.max_num": Decision("recipe", "train.keep_checkpoints"),
    "logger.tensorboard_dir": Decision("recipe", "logging.tensorboard"),
    "logger.wandb.key": Decision("recipe", "logging.wandb"),
    "actor.lr_scheduler": Decision("recipe", "train.lr_schedule and train.lr_warmup_ratio"),
    "actor.eps_clip_low_high": Decision("recipe", "train.clip and train.clip_high"),
    "train.async_enable": Decision("olr", _GROUPS),
    "train.partial_rollout_enable": Decision("olr", _GROUPS),
    "algo.dynamic_filtering_enable": Decision("olr", _GROUPS),
    "rollout.vllm_generate_batch_size": Decision("olr", _GROUPS),
    "train.dynamic_batch_enable": Decision("olr", _DEAL),
    "ds.ring_attn_size": Decision("olr", _DEAL),
    "ds.packing_samples": Decision("olr", "the statistics of tokens are read from padded batches"),
    "ds.tensor_parallel_size": Decision("olr", _DEAL),
    "train.agent_func_path": Decision("olr", _ROLE),
    "reward.remote_url": Decision("olr", _ROLE),
    "reward.model_name_or_path": Decision("olr", _ROLE),
    "data.prompt_probs": Decision("olr", _ROLE),
    "data.input_key": Decision("olr", _ROLE),
    "data.label_key": Decision("olr", _ROLE),
    "data.input_template": Decision("olr", _ROLE),
    "data.apply_chat_template": Decision("olr", _ROLE),
    "data.prompt_split": Decision("olr", _ROLE),
    "data.max_images_per_prompt": Decision("olr", "prompts are text"),
    "eval.split": Decision("olr", _ROLE),
    "reward.stop_properly_penalty_coef": Decision("olr", _REWARDS),
    "reward.overlong_buffer_len": Decision("olr", _REWARDS),
    "reward.overlong_penalty_factor": Decision("olr", _REWARDS),
    "train.enable_ema": Decision("olr", "what is evaluated and what is saved would be two policies"),
    "ds.param_dtype": Decision("olr", "vLLM's weights are bfloat16, and it takes no others"),
    "algo.kl.target": Decision("olr", "no checkpoint holds the KL weight that it adapts"),
    "ds.lora.rank": Decision("olr", "a checkpoint would hold adapters alone, and vLLM would not get them"),
    "ckpt.save_hf": Decision("olr", _ROLE),
    "ckpt.max_mem": Decision("olr", _ROLE),
    "logger.logging_steps": Decision("olr", "olr logs every step"),
    "logger.wandb.org": Decision("olr", _LOGS),
    "logger.wandb.group": Decision("olr", _LOGS),
    "logger.wandb.project": Decision("olr", _LOGS),
    "logger.wandb.run_name": Decision("olr", _LOGS),
    "critic.freezing_steps": Decision("olr", "there is no critic to wait for"),
    "ckpt.path": Decision("olr", _ROLE),
    "ckpt.output_dir": Decision("olr", _ROLE),
    "ckpt.load_enable": Decision("olr", _ROLE),
    "ckpt.disable_ds": Decision("olr", _ROLE),
    "ckpt.best_metric_key": Decision("olr", _ROLE),
    UNIVERSAL: Decision("olr", "it follows from the number of GPUs that a checkpoint was saved on"),
    "vllm.sync_backend": Decision("olr", "it follows from engine.device"),
}
"""The flags that `engine.flags` cannot set; it may set all others of OpenRLHF."""


def recipe_flags(recipe: Recipe, places: Places, attention: str, done: int) -> dict[str, Any]:
    """OpenRLHF's flags, without dashes, that a recipe amounts to; those of `engine.flags` last.

    Returns:
        True stands for a flag without a value, None and False for one that is left out, a tuple for several values.
    """
    engine, train, keys = engine_section(recipe, OpenRlhfEngine), recipe.train, flatten(recipe.plain())
    on_gpu = engine.device == "cuda"
    mini_batch = min(train.mini_batch_prompts or train.prompts_per_step, train.prompts_per_step)
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
        **{flag: keys[decision.what] for flag, decision in DECISIONS.items() if decision.by == "key"},
        # The rollouts of a step (R17): every prompt once, in each of its views, K times each.
        "rollout.batch_size": train.prompts_per_step * places.views,
        # One pass over them in mini-batches, which OpenRLHF counts in samples.
        "train.max_epochs": 1,
        "train.batch_size": mini_batch * train.rollouts_per_prompt * places.views,
        # Another seed after a resume, or the first rollouts' random numbers would come again.
        "train.seed": seeding.key("openrlhf", recipe.seed, done) % 2**31,
        "actor.adam.betas": ADAM_BETAS,
        "actor.adam.weight_decay": WEIGHT_DECAY,
        "actor.max_norm": GRADIENT_CLIP,
        "actor.lr_scheduler": "constant_with_warmup" if has_warmup_alone else train.lr_schedule,
        "actor.min_lr_ratio": MIN_LR_RATIO,
        "actor.eps_clip_low_high": None if train.clip_high is None else (train.clip, train.clip_high),
        "actor.dual_clip": DUAL_CLIP,
        "actor.loss_agg_mode": LOSS_AVERAGES[train.loss_average],
        # Without a penalty left out: the forward pass before the update measures the entropy (actor.py).
        "actor.entropy_coef": recipe.method.penalty_weight or None,
        "algo.advantage.estimator": "group_norm",
        "algo.kl.use_loss": train.kl_weight > 0,
        "algo.kl.estimator": "k3",
        # Advantages are bounded by the group size; OpenRLHF's clip at 10 would cut those of large groups.
        "reward.clip_range": (-1e6, 1e6),
        "ds.attn_implementation": attention,
        "ds.enable_sleep": sleep,
        "vllm.num_engines": engine.engines,
        "vllm.enable_sleep": sleep,
        "vllm.enable_prefix_caching": True,  # a group's rollouts share their prompt
        "vllm.enforce_eager": not on_gpu,  # compiling takes longer than a rehearsal samples
        # With nccl, colocated weights go over CUDA's shared memory.
        "vllm.sync_backend": "nccl" if on_gpu else "gloo",
        "ckpt.path": None if places.checkpoint is None else places.checkpoint / OPENRLHF_PART,
        "ckpt.load_enable": places.checkpoint is not None,
        UNIVERSAL: places.is_universal,
        "ckpt.output_dir": places.scratch,
        "ckpt.best_metric_key": "none",
    }
    return ours | flatten(engine.flags)


def arguments(flags: Mapping[str, Any]) -> list[str]:
    """Flags as words of a command line."""
    words: list[str] = []
    for name, value in flags.items():
        if value is None or value is False:
            continue
        words.append(f"--{name}")
        if value is not True:
            words += [str(v) for v in value] if isinstance(value, tuple | list) else [str(value)]
    return words


def divides_by_std(recipe: Recipe) -> bool:
    """Whether OpenRLHF divides a group's rewards by their standard deviation."""
    flags = flatten(engine_section(recipe, OpenRlhfEngine).flags)
    return bool(flags.get("algo.advantage.estimator", "group_norm") == "group_norm")
