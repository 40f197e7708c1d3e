"""`olr doctor`: what is here, and what will fail of a recipe, before anything starts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from olr_cli.engines.launch import load_data
from olr_cli.engines.local.builtin import is_builtin, policy_path
from olr_cli.engines.machine import (
    GB,
    Check,
    Machine,
    Use,
    existing,
    gigabytes,
    look_at_machine,
)
from olr_cli.engines.model_files import require_safetensors
from olr_cli.engines.openrlhf import OPENRLHF_VERSION, flash_attention
from olr_cli.engines.openrlhf.checks import check_batches, check_gpus, check_gradients, gpus_needed
from olr_cli.engines.openrlhf.flags import (
    check_attention,
    check_flags,
    cluster_address,
    installed_version,
    openrlhf_parser,
    section,
)
from olr_cli.engines.openrlhf.memory import MemoryNeed, ModelShape, memory_need
from olr_cli.errors import UserError, first_line
from olr_cli.recipe.checks import recipe_warnings
from olr_cli.recipe.schema import OpenRlhfEngine, Recipe

_USUAL_CARD = 85.0 * GB
"""A card of "80 GB", where there is none to ask."""


@dataclass(frozen=True)
class Diagnosis:
    """What `olr doctor` found.

    Attributes:
        checks: of the machine, then of the recipe.
        use: how the recipe uses the machine; None without a recipe.
        memory: what the recipe needs; None where nobody could work it out.
    """

    checks: tuple[Check, ...]
    use: Use | None
    memory: MemoryNeed | None

    def status(self, check: Check) -> str:
        """``ok``; ``warning``; ``error``: the recipe cannot run because of it; ``unused``: the recipe does without."""
        if check.problem is None:
            return "ok"
        if self.use is None or not check.breaks:
            return "warning"
        return "error" if self.use in check.breaks else "unused"

    @property
    def can_run(self) -> bool | None:
        """Whether the recipe can run here, as far as one can tell; None without a recipe."""
        return None if self.use is None else all(self.status(check) != "error" for check in self.checks)

    @property
    def problems(self) -> tuple[Check, ...]:
        """Checks with a problem that concerns the recipe, errors first."""
        found = [check for check in self.checks if self.status(check) in ("warning", "error")]
        return tuple(sorted(found, key=lambda check: self.status(check) != "error"))

    def plain(self) -> dict[str, Any]:
        """For JSON; sizes in bytes."""
        keys = ("name", "here", "wanted", "problem")
        memory = None
        if self.memory is not None:
            memory = {
                "update": dict(self.memory.update),
                "generation": dict(self.memory.generation),
                "cache_tokens": self.memory.cache_tokens,
                "host": self.memory.host,
                "disk": self.memory.disk,
            }
        checks = [
            {key: getattr(check, key) for key in keys} | {"status": self.status(check)}
            for check in self.checks
        ]
        return {"can_run": self.can_run, "use": self.use, "checks": checks, "memory": memory}


def diagnose(recipe: Recipe | None, root: Path = Path("runs")) -> Diagnosis:
    """Look at this machine, and at what a recipe would find on it.

    Args:
        recipe: what is to run; None: the machine alone.
        root: where run directories go.
    """
    machine = look_at_machine()
    room = Check("disk", f"{gigabytes(shutil.disk_usage(existing(root)).free)} free at {existing(root)}")
    if recipe is None:
        return Diagnosis((*machine.checks, room), None, None)
    use = _use(recipe)
    memory, of_memory = _memory(recipe, machine, use)
    checks = (
        *machine.checks,
        *_recipe_checks(recipe, machine, use),
        *of_memory,
        _disk(room, root, memory, use),
    )
    return Diagnosis(checks, use, memory)


def _use(recipe: Recipe) -> Use:
    if not isinstance(recipe.engine, OpenRlhfEngine):
        return "local gpu" if recipe.engine.device == "cuda" else "local"
    if recipe.engine.device == "cpu":
        return "rehearsal"
    return "gpus" if cluster_address(recipe) is None else "cluster"


def _recipe_checks(recipe: Recipe, machine: Machine, use: Use) -> Iterator[Check]:
    """What the recipe asks for, by the checks that `olr train` makes."""
    warnings = recipe_warnings(recipe)
    yield _about(
        use, "settings", f"{len(warnings)} likely mistakes" if warnings else "plausible", lambda: None
    )
    for warning in warnings:
        yield Check("settings", "", problem=warning)
    prompts, data = _data(recipe, use)
    yield data
    yield _model(recipe, use)
    if not isinstance(recipe.engine, OpenRlhfEngine):
        if recipe.engine.device == "cuda" and machine.torch.gpus == 0:
            problem = "engine.device is cuda, and torch finds no GPU; set it to auto or cpu"
            yield Check("its GPUs", "none", "1", problem, frozenset({use}))
        return
    engine, train = recipe.engine, recipe.train
    if installed_version("openrlhf") == OPENRLHF_VERSION:
        yield _about(use, "flags", "as OpenRLHF reads them", lambda: _check_flags(recipe, machine))
    yield _about(use, "gradients", "in a precision that DeepSpeed keeps", lambda: check_gradients(recipe))
    gpus = gpus_needed(engine, train.kl_weight)
    present = None if use == "cluster" else machine.torch.gpus
    here = "the cluster's" if present is None else "logical ones" if use == "rehearsal" else str(present)
    yield replace(
        _about(use, "its GPUs", here, lambda: check_gpus(recipe, present)), wanted=_counted(gpus, "GPU")
    )
    if use == "gpus":
        yield _cpus(gpus)
    size = min(train.mini_batch_prompts or train.prompts_per_step, train.prompts_per_step)
    batches = f"{train.prompts_per_step} prompts a step, {size} an update, {engine.micro_batch_samples} samples a GPU"
    if prompts is not None:
        yield _about(use, "batches", batches, lambda: check_batches(recipe, prompts))


def _about(use: Use, name: str, here: str, look: Callable[[], object]) -> Check:
    """A check that `olr train` makes too: its refusal is the problem."""
    try:
        look()
    except UserError as error:
        return Check(name, here, problem=str(error), breaks=frozenset({use}))
    except Exception as error:  # of an environment that is broken otherwise, which the machine's checks tell
        problem = f"could not be looked at ({type(error).__name__}: {first_line(error)}); mend the environment first"
        return Check(name, "unknown", problem=f"{name} {problem}", breaks=frozenset({use}))
    return Check(name, here)


def _cpus(gpus: int) -> Check:
    """Ray gives every GPU's process a CPU too."""
    here = len(os.sched_getaffinity(0))
    problem = None
    if here < gpus:
        problem = f"{_counted(gpus, 'GPU')} want as many CPUs of Ray, and here are {here}; ask for more"
    return Check("CPUs", str(here), f"{gpus} or more", problem, frozenset({"gpus"}))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _check_flags(recipe: Recipe, machine: Machine) -> None:
    check_flags(recipe, openrlhf_parser())
    check_attention(recipe, _attention(recipe, machine))


def _attention(recipe: Recipe, machine: Machine) -> str:
    wanted = section(recipe).attention
    if wanted == "kernels" and not flash_attention.has_kernels():
        raise UserError(
            "engine.attention is kernels, and that package is not installed here; docs/openrlhf-install.md tells how"
        )
    if wanted != "auto":
        return wanted
    return "flash_attention_2" if _has_flash_attention(machine) else "sdpa"


def _has_flash_attention(machine: Machine) -> bool:
    check = next(check for check in machine.checks if check.name == "flash-attn")
    return check.problem is None and not check.here.startswith("absent")


def _data(recipe: Recipe, use: Use) -> tuple[int | None, Check]:
    """How many prompts train, as far as that is known, and the check of the data sets."""
    source = recipe.data.train
    if not Path(source).exists() and not source.startswith("arithmetic") and _is_hub_id(source):
        return recipe.data.limit, Check("data", f"{source}, from the hub when the run starts")
    prompts: list[int] = []
    check = _about(use, "data", source, lambda: prompts.append(len(load_data(recipe).train.prompts)))
    if not prompts:
        return recipe.data.limit, check
    return prompts[0], replace(check, here=f"{source}: {_counted(prompts[0], 'prompt')}")


def _is_hub_id(source: str) -> bool:
    from olr_cli.data.hub import parse_hub_id

    return "/" in source and parse_hub_id(source) is not None and not source.endswith((".parquet", ".jsonl"))


def _model(recipe: Recipe, use: Use) -> Check:
    """Whether the weights are here."""
    path = recipe.model.path
    if is_builtin(path):
        return _about(use, "model", path, lambda: policy_path(path))
    if os.path.isdir(path):
        return _about(use, "model", path, lambda: require_safetensors(path))
    from huggingface_hub import try_to_load_from_cache

    cached = isinstance(try_to_load_from_cache(path, "config.json"), str)
    return Check("model", f"{path}, {'in the hub cache' if cached else 'to be fetched from the hub'}")


def _memory(recipe: Recipe, machine: Machine, use: Use) -> tuple[MemoryNeed | None, list[Check]]:
    """The memory that a recipe for GPUs needs, and whether it is there."""
    if use not in ("gpus", "cluster"):
        return None, []
    path = str(policy_path(recipe.model.path)) if is_builtin(recipe.model.path) else recipe.model.path
    try:
        shape = ModelShape.look_at(path, trust_remote_code=recipe.model.trust_remote_code)
    except Exception as error:
        problem = f"memory was not worked out, because the configuration of {path} could not be read"
        if not os.path.isdir(path):
            problem += "; fetch it where there is a network: hf download " + path
        else:
            problem += f" ({first_line(error)})"
        return None, [Check("memory", "unknown", problem=problem)]
    known = use == "gpus" and any(gpu.memory for gpu in machine.gpus)
    card = min(gpu.memory for gpu in machine.gpus if gpu.memory) if known else _USUAL_CARD
    need = memory_need(recipe, shape, card=card, flash_attention=_has_flash_attention(machine))
    return need, _memory_checks(
        recipe, need, shape, card, machine.host_memory if use == "gpus" else None, use
    )


def _memory_checks(
    recipe: Recipe, need: MemoryNeed, shape: ModelShape, card: float, host: float | None, use: Use
) -> list[Check]:
    """Each memory against what the recipe needs of it, by the estimate.

    Args:
        recipe: names the settings that a remedy changes.
        need: the estimate.
        shape: the model's.
        card: bytes of a GPU.
        host: bytes of this machine's memory; None if it is another's that counts.
        use: of the machine.
    """
    update, generation = sum(need.update.values()), sum(need.generation.values())
    samples = section(recipe).micro_batch_samples
    smaller = f"lower engine.micro_batch_samples from {samples}, " if samples > 1 else ""
    smaller += "set engine.zero_stage to 3, " if section(recipe).zero_stage < 3 else ""
    tokens = recipe.train.max_prompt_tokens + recipe.train.max_new_tokens
    longest = min(tokens, shape.context or tokens)
    return [
        _room(
            "GPU, update",
            update,
            card,
            f"{smaller}or set engine.flags.ds.adam_offload to true",
            use,
        ),
        _room("GPU, generation", generation, card, "lower engine.vllm_memory", use),
        _room(
            "GPU, vLLM's cache",
            longest * shape.cache / section(recipe).tensor_parallel,
            need.cache,
            "raise engine.vllm_memory or engine.tensor_parallel",
            use,
        ),
        Check("host memory of a node", "the cluster's", gigabytes(need.host))
        if host is None
        else _room(
            "host memory of a node",
            need.host,
            host,
            "take a node with more, or fewer of its GPUs (engine.gpus_per_node)",
            use,
        ),
    ]


def _room(name: str, needed: float, there: float, remedy: str, use: Use) -> Check:
    problem = None
    if needed > there:
        left = f"there are {gigabytes(there)}" if there > 0 else "nothing is left beside the weights"
        problem = f"{name}: {gigabytes(needed)} are needed by the estimate, and {left}; {remedy}"
    return Check(name, gigabytes(max(there, 0.0)), gigabytes(needed), problem, frozenset({use}))


def _disk(room: Check, root: Path, memory: MemoryNeed | None, use: Use) -> Check:
    """Room for the run's checkpoints."""
    if memory is None:
        return room
    free = shutil.disk_usage(existing(root)).free
    if free >= memory.disk:
        return replace(room, wanted=gigabytes(memory.disk))
    problem = (
        f"{existing(root)} has {gigabytes(free)} free, and the checkpoints take {gigabytes(memory.disk)}; make room, or"
        " name another disk with --run-dir"
    )
    return replace(room, wanted=gigabytes(memory.disk), problem=problem, breaks=frozenset({use}))
