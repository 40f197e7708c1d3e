"""`olr doctor`: the packages and hardware here, and the parts of a recipe that will fail, before anything starts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from olr_cli.engines.computer import GB, Check, Computer, Use, existing, gigabytes, look_at_computer
from olr_cli.engines.models import (
    is_builtin,
    model_location,
    model_shape,
    policy_path,
    require_known_code,
    require_safetensors,
)
from olr_cli.engines.openrlhf import OPENRLHF_VERSION
from olr_cli.engines.openrlhf.checks import (
    attention_of,
    check_attention,
    check_batches,
    check_flags,
    check_gpus,
    check_gradients,
    gpus_needed,
)
from olr_cli.engines.openrlhf.flags import cluster_address, openrlhf_parser, section
from olr_cli.engines.openrlhf.memory import MemoryNeed, memory_need
from olr_cli.engines.run import load_data, require_engine
from olr_cli.errors import UserError, first_line
from olr_cli.packages import installed_version
from olr_cli.recipe.checks import recipe_warnings
from olr_cli.recipe.schema import LocalEngine, OpenRlhfEngine, Recipe
from olr_cli.runs.throughput import ModelShape

_USUAL_CARD = 85.0 * GB
"""A card of "80 GB", where there is none to ask."""


@dataclass(frozen=True)
class Diagnosis:
    """The checks of the computer and then of the recipe; use and memory are None without a recipe, or if unknown."""

    checks: tuple[Check, ...]
    use: Use | None = None
    memory: MemoryNeed | None = None

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
        problems = [check for check in self.checks if self.status(check) in ("warning", "error")]
        return tuple(sorted(problems, key=lambda check: self.status(check) != "error"))

    def plain(self) -> dict[str, Any]:
        """For JSON; sizes in bytes."""
        checks = []
        for check in self.checks:
            fields = asdict(check) | {"status": self.status(check)}
            fields.pop("breaks")
            checks.append(fields)
        memory = None if self.memory is None else asdict(self.memory)
        if memory is not None:
            memory.pop("cache")
        return {"can_run": self.can_run, "use": self.use, "checks": checks, "memory": memory}


def diagnose(recipe: Recipe | None, root: Path = Path("runs")) -> Diagnosis:
    """Look at this computer and, given a recipe, at what it would find here; run directories go below `root`."""
    computer, place = look_at_computer(), existing(root)
    free = shutil.disk_usage(place).free
    disk = Check("disk", f"{gigabytes(free)} free at {place}")
    if recipe is None:
        return Diagnosis((*computer.checks, disk))
    require_engine(recipe)
    use = _use(recipe)
    checks = [*computer.checks, *_recipe_checks(recipe, computer, use)]
    memory = None
    if use in ("gpus", "cluster"):
        shape = _model_shape(recipe)
        if isinstance(shape, Check):
            checks.append(shape)
        else:
            sizes = [gpu.memory for gpu in computer.gpus if gpu.memory]
            card = min(sizes) if use == "gpus" and sizes else _USUAL_CARD
            memory = memory_need(recipe, shape, card=card, flash_attention=_has_flash_attention(computer))
            host = computer.host_memory if use == "gpus" else None
            checks += _memory_checks(recipe, memory, shape, card, host, use)
    if memory is not None:
        problem = None
        if free < memory.disk:
            problem = (
                f"{place} has {gigabytes(free)} free, and the checkpoints take {gigabytes(memory.disk)}; make room, or"
                " name another disk with --run-dir"
            )
        disk = replace(disk, wanted=gigabytes(memory.disk), problem=problem, breaks=frozenset({use}))
    return Diagnosis((*checks, disk), use, memory)


def _use(recipe: Recipe) -> Use:
    if not isinstance(recipe.engine, OpenRlhfEngine):
        on_gpu = isinstance(recipe.engine, LocalEngine) and recipe.engine.device == "cuda"
        return "local gpu" if on_gpu else "local"
    if recipe.engine.device == "cpu":
        return "rehearsal"
    return "gpus" if cluster_address(recipe) is None else "cluster"


def _recipe_checks(recipe: Recipe, computer: Computer, use: Use) -> Iterator[Check]:
    """The settings of a recipe, by the checks that `olr train` makes."""

    def made(name: str, here: str, check: Callable[[], object], wanted: str = "") -> Check:
        """A check that `olr train` makes too: its refusal is the problem."""
        try:
            check()
        except UserError as error:
            return Check(name, here, wanted, str(error), frozenset({use}))
        except Exception as error:  # in an environment with other problems, which the computer's checks name
            why = f"could not be looked at ({type(error).__name__}: {first_line(error)})"
            problem = f"{name} {why}; mend the environment first"
            return Check(name, "unknown", wanted, problem, frozenset({use}))
        return Check(name, here, wanted)

    warnings = recipe_warnings(recipe)
    yield Check("settings", f"{len(warnings)} likely mistakes" if warnings else "plausible")
    for warning in warnings:
        yield Check("settings", "", problem=warning)

    source, prompts = recipe.data.train, recipe.data.limit
    if _comes_from_the_hub(source):
        yield Check("data", f"{source}, from the hub when the run starts")
    else:
        lengths: list[int] = []
        data = made("data", source, lambda: lengths.append(len(load_data(recipe).train.prompts)))
        if lengths:
            prompts = lengths[0]
            data = replace(data, here=f"{source}: {_counted(prompts, 'prompt')}")
        yield data

    model = recipe.model.path
    if is_builtin(model):
        yield made("model", model, lambda: policy_path(model))
    elif os.path.isdir(model):
        yield made("model", model, lambda: _check_model_folder(recipe))
    else:
        from huggingface_hub import try_to_load_from_cache

        cached = isinstance(try_to_load_from_cache(model, "config.json"), str)
        yield Check("model", f"{model}, {'in the hub cache' if cached else 'to be fetched from the hub'}")

    engine, train = recipe.engine, recipe.train
    if not isinstance(engine, OpenRlhfEngine):
        if use == "local gpu" and computer.torch.gpus == 0:
            problem = "engine.device is cuda, and torch finds no GPU; set it to auto or cpu"
            yield Check("its GPUs", "none", "1", problem, frozenset({use}))
        return
    if installed_version("openrlhf") == OPENRLHF_VERSION:
        yield made("flags", "as OpenRLHF reads them", lambda: _check_flags(recipe, computer))
    yield made("gradients", "in a precision that DeepSpeed keeps", lambda: check_gradients(recipe))
    gpus = gpus_needed(engine, train.kl_weight)
    present = None if use == "cluster" else computer.torch.gpus
    here = "the cluster's" if present is None else "logical ones" if use == "rehearsal" else str(present)
    yield made("its GPUs", here, lambda: check_gpus(recipe, present), _counted(gpus, "GPU"))
    if use == "gpus":  # Ray gives every GPU's process a CPU too
        cpus = len(os.sched_getaffinity(0))
        sentence = f"{_counted(gpus, 'GPU')} want as many CPUs of Ray, and here are {cpus}; ask for more"
        yield Check(
            "CPUs", str(cpus), f"{gpus} or more", sentence if cpus < gpus else None, frozenset({"gpus"})
        )
    if prompts is not None:
        size = min(train.mini_batch_prompts or train.prompts_per_step, train.prompts_per_step)
        batches = (
            f"{train.prompts_per_step} prompts a step, {size} an update, {engine.micro_batch_samples} samples"
        )
        yield made("batches", f"{batches} a GPU", lambda: check_batches(recipe, prompts))


def _check_model_folder(recipe: Recipe) -> None:
    require_safetensors(recipe.model.path)
    require_known_code(recipe.model.path, trust_remote_code=recipe.model.trust_remote_code)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _comes_from_the_hub(source: str) -> bool:
    from olr_cli.data.hub import parse_hub_id

    is_here = Path(source).exists() or source.startswith("arithmetic")
    is_file = "/" not in source or source.endswith((".parquet", ".jsonl"))
    return not is_here and not is_file and parse_hub_id(source) is not None


def _check_flags(recipe: Recipe, computer: Computer) -> None:
    check_flags(recipe, openrlhf_parser())
    attention = attention_of(
        section(recipe),
        has_flash_attention=_has_flash_attention(computer),
    )
    check_attention(recipe, attention)


def _has_flash_attention(computer: Computer) -> bool:
    check = next(check for check in computer.checks if check.name == "flash-attn")
    return check.problem is None and not check.here.startswith("absent")


def _model_shape(recipe: Recipe) -> ModelShape | Check:
    """The shape of a recipe's model, or a check that says why the memory is not known."""
    path = model_location(recipe.model.path)
    try:
        return model_shape(path, trust_remote_code=recipe.model.trust_remote_code)
    except Exception as error:
        problem = f"memory was not worked out, because the configuration of {path} could not be read"
        if os.path.isdir(path):
            problem += f" ({first_line(error)})"
        else:
            problem += f"; fetch it where there is a network: hf download {path}"
        return Check("memory", "unknown", problem=problem)


def _memory_checks(
    recipe: Recipe, need: MemoryNeed, shape: ModelShape, card: float, host: float | None, use: Use
) -> Iterator[Check]:
    """Every kind of memory against the estimate of what the recipe needs.

    Args:
        recipe: names the settings that a remedy changes.
        need: the estimate.
        shape: of the model.
        card: bytes of a GPU.
        host: bytes of a node's own memory; None for a cluster's, which is not known here.
        use: of the computer.
    """
    engine, samples = section(recipe), section(recipe).micro_batch_samples
    smaller = f"lower engine.micro_batch_samples from {samples}, " if samples > 1 else ""
    smaller += "set engine.zero_stage to 3, " if engine.zero_stage < 3 else ""
    tokens = recipe.train.max_prompt_tokens + recipe.train.max_new_tokens
    one_response = min(tokens, shape.context or tokens) * shape.cache / engine.tensor_parallel
    offload = f"{smaller}or set engine.flags.ds.adam_offload to true"
    more_cache = "raise engine.vllm_memory or engine.tensor_parallel"
    other_node = "take a node with more, or fewer of its GPUs (engine.gpus_per_node)"
    for name, needed, there, remedy in (
        ("GPU, update", sum(need.update.values()), card, offload),
        ("GPU, generation", sum(need.generation.values()), card, "lower engine.vllm_memory"),
        ("GPU, vLLM's cache", one_response, need.cache, more_cache),
        ("host memory of a node", need.host, host, other_node),
    ):
        problem = None
        if there is not None and needed > there:
            left = f"there are {gigabytes(there)}" if there > 0 else "nothing is left beside the weights"
            problem = f"{name}: {gigabytes(needed)} are needed by the estimate, and {left}; {remedy}"
        here = "the cluster's" if there is None else gigabytes(max(there, 0.0))
        yield Check(name, here, gigabytes(needed), problem, frozenset({use}))
