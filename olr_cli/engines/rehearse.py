"""What a recipe would find on this machine, before anything starts: the dry run, and `olr doctor`.

The first command that somebody with a cluster types may come before data, packages and GPUs are there. What is missing
does not end a rehearsal: it is noted and stood in for, and the exit status is 2 as for a run that cannot start.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from olr_cli.data.chat import Message
from olr_cli.data.prompts import SYSTEM_PROMPT, Prompt, PromptSet, View
from olr_cli.engines.launch import engine_of, extractor_of, run_warnings
from olr_cli.engines.machine import Check, Machine, Use, existing, gigabytes, look_at_machine
from olr_cli.engines.models import model_location, model_shape
from olr_cli.engines.openrlhf.flags import cluster_address
from olr_cli.engines.openrlhf.memory import GB, PAPERS_MODELS, MemoryNeed, memory_need
from olr_cli.engines.run import DataSets, Engine, engine_section, load_data, require_engine
from olr_cli.errors import NotHere, UserError, first_line
from olr_cli.recipe.checks import recipe_warnings
from olr_cli.recipe.schema import LocalEngine, OpenRlhfEngine, Recipe
from olr_cli.runs.directory import Kind, recipe_yaml
from olr_cli.runs.schedule import Schedule
from olr_cli.runs.throughput import ModelShape
from olr_cli.supervision import compose
from olr_cli.tables import Answer

_EXAMPLE = Prompt(
    "example",
    (
        Message("system", SYSTEM_PROMPT),
        Message("user", "What is the sum of the first 100 positive integers?"),
    ),
    given_label="5050",
    true_answer="5050",
    noise_type="clean",
    rephrased=(Message("system", SYSTEM_PROMPT), Message("user", "Add up all integers from 1 to 100.")),
)


@dataclass(frozen=True)
class Rehearsal:
    """What a run would be made of, with stand-ins for what this machine lacks.

    Attributes:
        is_example: the data are missing, and made-up prompts stand in for them.
        warnings: likely mistakes.
        missing: a sentence for everything that this machine lacks.
    """

    recipe: Recipe
    data: DataSets
    is_example: bool
    engine: Engine
    warnings: Sequence[str]
    missing: Sequence[str]

    @property
    def amount(self) -> Mapping[str, int | None]:
        """How many prompts, marked and verified ones, steps and rollouts; None where the data are missing."""
        recipe, train = self.recipe, self.data.train
        if self.is_example and recipe.data.limit is None:
            return dict.fromkeys(("prompts", "marked", "trusted", "steps", "rollouts"))
        prompts = len(train.prompts)
        return {
            "prompts": prompts,
            "marked": None if self.is_example else sum(prompt.is_marked for prompt in train.prompts),
            "trusted": None if self.is_example else sum(prompt.is_trusted for prompt in train.prompts),
            "steps": Schedule.of(recipe, prompts).last,
            "rollouts": prompts
            * recipe.train.epochs
            * recipe.train.rollouts_per_prompt
            * len(self.data.views),
        }

    def answer(self) -> Answer:
        """A dry run: what a run would do, and one prompt exactly as the policy sees it."""
        prompt, engine = self.data.train.prompts[0], self.engine
        views = {view: engine.render(prompt.turns(view)) for view in self.data.views}
        sentences = [f"Note: {note}." for note in self.data.train.notes]
        sentences += [f"Warning: {sentence}" for sentence in self.warnings]
        lines = [recipe_yaml(self.recipe), *sentences, *self.amount_lines(), *engine.plan]
        lines += self._prompt_lines(prompt, views)
        if self.missing:
            lines += ["missing here:", *(f"  - {sentence}" for sentence in self.missing)]
        example = {"prompt_id": prompt.prompt_id, "is_made_up": self.is_example, "views": views}
        if not self.is_example:
            extractor = extractor_of(self.recipe, prompt)
            example |= {"given_label": prompt.given_label, "extractor": extractor}
        facts = {
            "recipe": self.recipe.plain(),
            "digest": self.recipe.digest(),
            "warnings": self.warnings,
            **self.amount,
            "plan": engine.plan,
            "prompt": example,
            "missing": self.missing,
        }
        return Answer(lines, facts)

    def amount_lines(self) -> Iterator[str]:
        """What the run would work through."""
        amount, source = self.amount, self.data.train.source
        if amount["prompts"] is None:
            yield f"prompts, steps and rollouts: unknown without {source}"
            return
        if self.is_example:
            yield f"{amount['prompts']} prompts, if {source} holds as many as data.limit asks for"
        else:
            verified = f", {amount['trusted']} with a verified label" if amount["trusted"] else ""
            yield f"{amount['prompts']} prompts from {source}, {amount['marked']} of them marked as noise{verified}"
            if (test := self.data.test) is not None:
                yield f"{len(test)} held-out prompts from {test.source}"
        yield f"{amount['steps']} steps, {amount['rollouts']:,} rollouts"

    def _prompt_lines(self, prompt: Prompt, views: Mapping[View, str]) -> Iterator[str]:
        """A prompt in each of its views, its label, and how answers to it are read."""
        name = "an example prompt (the data is missing)" if self.is_example else f"prompt {prompt.prompt_id}"
        for view, text in views.items():
            which = "" if view == "original" else f", {view},"
            yield f"{name}{which} as the policy sees it:"
            yield text
        if not self.is_example:
            yield f"its label: {prompt.given_label}"
            yield f"answers are read by: {extractor_of(self.recipe, prompt)}"


def rehearse(
    recipe: Recipe,
    make_engine: Callable[[Recipe, DataSets], Engine] | None = None,
    *,
    kind: Kind = "training",
    missing: list[str] | None = None,
) -> Rehearsal:
    """Make everything that a run is made of; nothing is written.

    `missing` receives a sentence for everything that this machine lacks, also where a mistake ends the rehearsal; an
    engine that `make_engine` makes raises what it does not find.

    Raises:
        UserError: the recipe cannot work anywhere.
    """
    missing = [] if missing is None else missing
    try:
        data, is_example = load_data(recipe, kind), False
    except NotHere as error:
        missing.append(str(error))
        data, is_example = _example_data(recipe), True
    engine = (make_engine or engine_of(recipe, missing))(recipe, data)
    mistakes = recipe_warnings(recipe) if is_example else run_warnings(recipe, data, kind)
    return Rehearsal(recipe, data, is_example, engine, [*mistakes, *engine.warnings], missing)


def _example_data(recipe: Recipe) -> DataSets:
    """One prompt as many times as the recipe's `data.limit` says, or else as one step takes."""
    count = recipe.data.limit or recipe.train.prompts_per_step
    prompts = tuple(replace(_EXAMPLE, prompt_id=f"example {number}") for number in range(1, count + 1))
    train = PromptSet(prompts, pa.table({}), recipe.data.train)
    held_out = replace(train, prompts=prompts[:1])
    return DataSets(
        train,
        None if recipe.data.validation is None else held_out,
        None if recipe.data.test is None and recipe.data.held_out is None else held_out,
        compose(recipe.method).views,
    )


_USUAL_CARD = 85.0 * GB
"""A card of "80 GB", where there is none to ask."""


@dataclass(frozen=True)
class Diagnosis:
    """The checks of the machine and then of the recipe; use and memory are None without a recipe, or if unknown."""

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
        checks = [
            {name: value for name, value in asdict(check).items() if name != "breaks"}
            | {"status": self.status(check)}
            for check in self.checks
        ]
        memory = None if self.memory is None else asdict(self.memory)
        if memory is not None:
            memory.pop("cache")
        return {"can_run": self.can_run, "use": self.use, "checks": checks, "memory": memory}


def diagnose(recipe: Recipe | None, root: Path = Path("runs")) -> Diagnosis:
    """Look at this machine and, given a recipe, at what it would find here; run directories go below `root`."""
    machine, place = look_at_machine(), existing(root)
    free = shutil.disk_usage(place).free
    disk = Check("disk", f"{gigabytes(free)} free at {place}")
    if recipe is None:
        return Diagnosis((*machine.checks, disk))
    require_engine(recipe)
    use = _use(recipe)
    checks = [*machine.checks, *_recipe_checks(recipe, machine, use)]
    memory = None
    if use in ("gpus", "cluster"):
        shape = _model_shape(recipe)
        if isinstance(shape, Check):
            checks.append(shape)
        else:
            sizes = [gpu.memory for gpu in machine.gpus if gpu.memory]
            card = min(sizes) if use == "gpus" and sizes else _USUAL_CARD
            memory = memory_need(recipe, shape, card=card, flash_attention=machine.has_flash_attention)
            host = machine.host_memory if use == "gpus" else None
            checks += _memory_checks(recipe, memory, shape, card, host, use)
            problem = None
            if free < memory.disk:
                problem = (
                    f"{place} has {gigabytes(free)} free, and the checkpoints take {gigabytes(memory.disk)}; make room,"
                    " or name another disk with --run-dir"
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


def _recipe_checks(recipe: Recipe, machine: Machine, use: Use) -> Iterator[Check]:
    """What a rehearsal finds, a check a sentence."""
    missing: list[str] = []
    likely: Sequence[str] = recipe_warnings(recipe)
    try:
        if machine.torch.error is not None:  # the engines need it, and the machine's checks name it
            load_data(recipe)
        else:
            rehearsal = rehearse(recipe, missing=missing)
            likely = rehearsal.warnings
            if not rehearsal.is_example:
                yield Check("recipe", "; ".join(rehearsal.amount_lines()))
    except UserError as error:
        missing.append(str(error))
    except Exception as error:  # in an environment with other problems, which the machine's checks name
        why = f"{type(error).__name__}: {first_line(error)}"
        missing.append(f"the recipe could not be looked at ({why}); mend the environment first")
    named = {check.problem for check in machine.checks}
    for sentence in missing:
        if sentence not in named:
            yield Check("missing", "", problem=sentence, breaks=frozenset({use}))
    for sentence in likely:
        yield Check("likely mistake", "", problem=sentence)


def _model_shape(recipe: Recipe) -> ModelShape | Check:
    """The shape of a recipe's model, or a check that says that the memory is not known."""
    try:
        return model_shape(
            model_location(recipe.model.path), trust_remote_code=recipe.model.trust_remote_code
        )
    except Exception:  # of any kind, and the rehearsal says it of a model that is missing
        if recipe.model.path in PAPERS_MODELS:
            return PAPERS_MODELS[recipe.model.path]
        problem = "the memory that the recipe needs is unknown, because the model's configuration cannot be read here"
        return Check("memory", "unknown", problem=problem)


def _memory_checks(
    recipe: Recipe, need: MemoryNeed, shape: ModelShape, card: float, host: float | None, use: Use
) -> Iterator[Check]:
    """Every kind of memory against the estimate of what the recipe needs.

    `card` and `host` are bytes of a GPU and of a node's own memory, which is None where it is a cluster's.
    """
    engine = engine_section(recipe, OpenRlhfEngine)
    samples = engine.micro_batch_samples
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
