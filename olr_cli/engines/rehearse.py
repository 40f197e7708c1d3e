"""A dry run: check what a recipe would find on this machine, before anything starts.

A user with a cluster may try a dry run before data, packages and GPUs are there. Something that is missing therefore
does not end it: it is noted and replaced by a stand-in. The exit status is then 2, as for a run that cannot start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from olr_cli.data.chat import Message
from olr_cli.data.prompts import SYSTEM_PROMPT, Prompt, PromptSet, View
from olr_cli.engines.launch import engine_of, extractor_of, run_warnings
from olr_cli.engines.models import model_location
from olr_cli.engines.openrlhf.needs import missing_here, version_warnings
from olr_cli.engines.run import DataSets, Engine, load_data
from olr_cli.errors import NotHere, UserError
from olr_cli.packages import untested_versions
from olr_cli.recipe.checks import code_notes, recipe_warnings
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.sections import OpenRlhfEngine, TrainSection
from olr_cli.recipe.sweep import SweepRun
from olr_cli.runs.directory import Kind, read_manifest, read_recipe, recipe_yaml
from olr_cli.runs.listing import size_text
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.progress import rough_duration
from olr_cli.runs.schedule import Schedule
from olr_cli.supervision import compose
from olr_cli.tables import Answer

_SYSTEM = Message("system", SYSTEM_PROMPT)
_EXAMPLE = Prompt(
    "example",
    (_SYSTEM, Message("user", "What is the sum of the first 100 positive integers?")),
    given_label="5050",
    true_answer="5050",
    noise_type="clean",
    rephrased=(_SYSTEM, Message("user", "Add up all integers from 1 to 100.")),
)
"""Stands in for every prompt of data that are missing."""

_ROW_BYTES = 50
"""Bytes stored of a rollout besides its response, roughly: a toy's take 30."""


@dataclass(frozen=True)
class Rehearsal:
    """What a dry run has found: the data and the engine of a run, warnings, and what this machine lacks.

    `rehearse` makes it. `missing` has a sentence for each thing that this machine lacks. If `is_example` is true, the
    run's data are missing, and example prompts stand in for them.
    """

    recipe: Recipe
    data: DataSets
    is_example: bool
    engine: Engine
    warnings: Sequence[str]
    missing: Sequence[str]

    @property
    def amount(self) -> Mapping[str, int | None]:
        """The size of the run, as counts by name; an unknown count is None.

        The names are ``prompts``, ``marked`` (prompts whose label is known to be noise), ``verified`` (prompts whose
        true answer somebody has verified), ``steps`` and ``rollouts``.
        """
        recipe, train = self.recipe, self.data.train
        if self.is_example and recipe.data.limit is None:
            return dict.fromkeys(("prompts", "marked", "verified", "steps", "rollouts"))
        prompts, views = len(train.prompts), len(compose(recipe.method).views)
        with_noise_type = [
            p for p in train.prompts if p.noise_type is not None and not self.is_example
        ]
        return {
            "prompts": prompts,
            "marked": sum(prompt.is_marked for prompt in with_noise_type)
            if with_noise_type
            else None,
            "verified": None
            if self.is_example
            else sum(prompt.is_verified for prompt in train.prompts),
            "steps": Schedule.of(recipe, prompts).last,
            "rollouts": prompts
            * recipe.train.epochs
            * recipe.train.rollouts_per_prompt
            * views,
        }

    def answer(self) -> Answer:
        """Return the output of a dry run: what a run would do, and one prompt exactly as the policy sees it."""
        prompt, engine = self.data.train.prompts[0], self.engine
        views = {view: engine.render(prompt.turns(view)) for view in self.data.views}
        lines = [recipe_yaml(self.recipe), *code_notes(self.recipe)]
        # Only runs in one process on a CPU repeat bit for bit, and only with tested versions.
        repeats = (engine.facts["engine"], engine.facts["device"]) == ("local", "cpu")
        notes = [*self.data.notes, *(untested_versions() if repeats else [])]
        lines += [f"Note: {note}." for note in notes]
        lines += [f"Warning: {sentence}" for sentence in self.warnings]
        lines += [*self.amount_lines(), *engine.plan, *self._prompt_lines(prompt, views)]
        if self.missing:
            lines += ["missing here:", *(f"  - {sentence}" for sentence in self.missing)]
        example = {
            "prompt_id": prompt.prompt_id,
            "is_made_up": self.is_example,
            "views": views,
        }
        if not self.is_example:
            extractor = extractor_of(self.recipe, prompt)
            example |= {"given_label": prompt.given_label, "extractor": extractor}
        result = {
            "recipe": self.recipe,
            "digest": self.recipe.digest(),
            "warnings": self.warnings,
            **self.amount,
            "plan": engine.plan,
            "prompt": example,
            "missing": self.missing,
        }
        return Answer(lines, result)

    def amount_lines(self) -> Iterator[str]:
        """Yield lines about the run's size: prompts, labels, steps and rollouts.

        If a comparable run is stored below runs/, the last line estimates the duration.
        """
        amount, source = self.amount, self.data.train.source
        if amount["prompts"] is None:
            yield f"prompts, steps and rollouts: unknown without {source}"
            return
        if self.is_example:
            yield f"{amount['prompts']} prompts, if {source} holds as many as data.limit asks for"
        else:
            count = amount["marked"]
            marked = (
                "labels of unknown quality"
                if count is None
                else f"{count} of them marked as noise"
            )
            verified = (
                f", {amount['verified']} with a verified label"
                if amount["verified"]
                else ""
            )
            yield f"{amount['prompts']} prompts from {source}, {marked}{verified}"
            if (test := self.data.test) is not None:
                yield f"{len(test)} held-out prompts from {test.source}"
        if (verifier := self.recipe.verifier) is not None:
            yield f"a verifier that errs: {verifier.brief or 'never'}"
        yield f"{amount['steps']} steps, {amount['rollouts']:,} rollouts"
        if (before := self._earlier_run()) is not None:
            path, seconds = before
            yield f"about {rough_duration(seconds * (amount['rollouts'] or 0))}, as fast as {path}"

    def _earlier_run(self) -> tuple[Path, float] | None:
        """Return the path of the newest comparable run below runs/ and its seconds per rollout; None if there is none.

        A run is comparable if it has the same policy, engine, device and `train.max_new_tokens`.
        """
        for path, settings in self._runs_alike():
            if settings.max_new_tokens != self.recipe.train.max_new_tokens:
                continue
            steps = read_metrics(path, "time/step")
            groups = sum(step.get("rollout/groups", 0) for step in steps)
            if rollouts := groups * settings.rollouts_per_prompt:
                return path, sum(step["time/step"] for step in steps) / rollouts
        return None

    def _runs_alike(self) -> list[tuple[Path, TrainSection]]:
        """Return path and recipe's `train` section of each run below runs/ with this policy, engine and device.

        The newest run comes first.
        """
        same = ("engine", "device", "dtype", "threads", "policy_digest")
        runs = []
        for file in Path("runs").glob("**/manifest.json"):
            # Another program's manifest, or a damaged one, is no run to compare with.
            with suppress(UserError):
                manifest = read_manifest(file.parent)
                if all(manifest.get(name) == self.engine.facts.get(name) for name in same):
                    settings = read_recipe(file.parent).train
                    runs.append((manifest["created"], file.parent, settings))
        newest_first = sorted(runs, key=lambda run: run[0], reverse=True)
        return [(path, settings) for _, path, settings in newest_first]

    def _prompt_lines(self, prompt: Prompt, views: Mapping[View, str]) -> Iterator[str]:
        """Yield lines that show a prompt: its text in each view (wording), its label, and its extractor.

        `views` has the texts as the policy reads them. An example prompt is shown without label and extractor.
        """
        name = (
            "an example prompt (the data is missing)"
            if self.is_example
            else f"prompt {prompt.prompt_id}"
        )
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
) -> Rehearsal:
    """Load the data and make the engine of a run, without writing anything.

    Missing data are listed in the result's `missing`, and so is anything else that the engine OpenRLHF would lack on
    this machine. If another engine lacks something, its exception reaches the caller.

    Args:
        recipe: the recipe of the run.
        make_engine: makes the engine from recipe and data; None for the recipe's own engine.
        kind: `training`, or `rollouts` for a run that only samples.
    """
    missing: list[str] = []
    try:
        data, is_example = load_data(recipe, kind), False
    except NotHere as error:
        missing.append(str(error))
        data, is_example = _example_data(recipe), True
    engine = (make_engine or engine_of(recipe, missing))(recipe, data)
    warnings = [
        *(recipe_warnings(recipe) if is_example else run_warnings(recipe, data, kind)),
        *engine.warnings,
    ]
    if isinstance(recipe.engine, OpenRlhfEngine):
        missing += missing_here(recipe)
        warnings += version_warnings()
    return Rehearsal(recipe, data, is_example, engine, warnings, missing)


def sweep_answer(runs: Sequence[SweepRun], folder: Path) -> Answer:
    """Return the output of a dry run of a sweep: its runs, and their total steps, rollouts and bytes on the disk.

    Only the sweep's first run is rehearsed, so warnings and what this machine lacks are those of this run.
    """
    first = rehearse(runs[0].recipe)
    rows = [
        {
            "index": number,
            "arm": run.arm,
            "run": folder / run.place,
            "digest": run.recipe.digest(),
        }
        for number, run in enumerate(runs)
    ]
    # One unknown number makes the total unknown.
    amounts = zip(*(_cost(first, run.recipe) for run in runs), strict=True)
    steps, rollouts, disk = (
        None if None in amount else sum(filter(None, amount)) for amount in amounts
    )
    size = "unknown" if disk is None else f"about {size_text(disk)} at most"
    counts = "unknown" if steps is None else f"{steps:,} steps, {rollouts:,} rollouts"
    lines = [
        *(f"{row['index']:>4}  {row['arm']:<32} {row['run']}" for row in rows),
        *(f"Warning: {sentence}" for sentence in first.warnings),
        f"all {len(runs)} runs: {counts}; on the disk: {size}",
        *([f"missing here for {runs[0].arm}:"] if first.missing else ()),
        *(f"  - {sentence}" for sentence in first.missing),
    ]
    result = {
        "folder": folder,
        "runs": rows,
        "warnings": first.warnings,
        "missing": first.missing,
    }
    return Answer(
        lines, result | {"steps": steps, "rollouts": rollouts, "disk_bytes": disk}
    )


def _cost(first: Rehearsal, recipe: Recipe) -> tuple[int | None, int | None, int | None]:
    """Return the numbers of steps, rollouts and bytes on the disk of one run of a sweep; None for an unknown number.

    The bytes are an upper estimate for responses and checkpoints. They are unknown if the model's files are not on this
    machine.

    Args:
        first: the rehearsal of the sweep's first run. Its data are used again if `recipe` names the same data.
        recipe: the recipe of the run.
    """
    train, data, weights = recipe.train, first.data, 0
    if recipe.data != first.recipe.data:
        data = _example_data(recipe) if first.is_example else load_data(recipe)
    amount = replace(first, recipe=recipe, data=data).amount
    with suppress(NotHere):
        files = Path(model_location(recipe.model.path)).glob("*.safetensors")
        weights = sum(file.stat().st_size for file in files)
    # In units of the model's files: 14 bytes a parameter are 7 files of bfloat16; weights and two moments are 3. With
    # LoRA Adam's moments are negligible, and the merged weights remain.
    copies = 7 if isinstance(recipe.engine, OpenRlhfEngine) else 1 if train.lora_rank else 3
    checkpoints = (
        # The best checkpoint by data.validation is kept besides the newest ones.
        (train.keep_checkpoints + (recipe.data.validation is not None)) * copies * weights
    )
    responses = (_ROW_BYTES + 4 * train.max_new_tokens) * (amount["rollouts"] or 0)
    return (
        amount["steps"],
        amount["rollouts"],
        checkpoints + responses if checkpoints and responses else None,
    )


def _example_data(recipe: Recipe) -> DataSets:
    """Return data sets of copies of the example prompt, in place of missing data.

    The training set has `data.limit` prompts, or without a limit as many as one step takes. Each held-out set that the
    recipe names has one prompt.
    """
    count = recipe.data.limit or recipe.train.prompts_per_step
    prompts = tuple(
        replace(_EXAMPLE, prompt_id=f"example {number}") for number in range(1, count + 1)
    )
    train = PromptSet(prompts, lambda: pa.table({}), recipe.data.train)
    held_out = replace(train, prompts=prompts[:1])
    return DataSets(
        train,
        None if recipe.data.validation is None else held_out,
        None if recipe.data.test is None and recipe.data.held_out is None else held_out,
        compose(recipe.method).views,
    )
