"""From a recipe to a run: the data, the run directory, what a resume finds, and the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from olr_cli.answers import EXTRACTORS, Judge, default_extractor
from olr_cli.data.prompt_set import PromptSet
from olr_cli.data.prompts import Message
from olr_cli.data.training import held_out_prompts, noise_draw, training_prompts
from olr_cli.engines.steps import steps_per_epoch
from olr_cli.errors import UserError, did_you_mean
from olr_cli.recipe import Recipe, changed_keys
from olr_cli.recipe_checks import recipe_warnings, step_warnings
from olr_cli.runs.checkpoints import checkpoint_steps, drop_unfinished
from olr_cli.runs.directory import (
    begin_attempt,
    create_run,
    drop_leftovers,
    end_attempt,
    held,
    is_held,
    read_manifest,
    read_recipe,
    recipe_yaml,
    require_free,
    versions,
    write_recipe,
)
from olr_cli.runs.interrupts import Interrupted
from olr_cli.runs.metrics import drop_metrics_after
from olr_cli.runs.progress import Progress
from olr_cli.runs.store import RunStore, newest_shard, scan_labels, stored_steps
from olr_cli.supervision import History, Supervisor, compose
from olr_cli.supervision.selection import keep_fraction


@dataclass(frozen=True)
class DataSets:
    """What a run reads: prompts that train, and prompts that never do."""

    train: PromptSet
    validation: PromptSet | None
    test: PromptSet | None

    @property
    def held_out(self) -> dict[str, PromptSet]:
        """The sets that are only measured, by the prefix of their metrics."""
        sets = {"eval": self.test, "validation": self.validation}
        return {prefix: prompts for prefix, prompts in sets.items() if prompts is not None}


@dataclass(frozen=True)
class Run:
    """A run that is ready to go on, as an engine gets it.

    Attributes:
        recipe: what to do.
        path: the run directory, held by this process.
        data: the prompts.
        supervisor: decides labels; its history holds every visit up to `done`.
        store: takes the records.
        done: complete steps; a checkpoint after this step exists unless it is 0.
        progress: told what happens.
    """

    recipe: Recipe
    path: Path
    data: DataSets
    supervisor: Supervisor
    store: RunStore
    done: int
    progress: Progress


def load_data(recipe: Recipe) -> DataSets:
    """The recipe's data sets, with noise on the training labels.

    Raises:
        UserError: they cannot be read or do not serve the recipe's method.
    """
    extractor = recipe.data.extractor
    if extractor is not None and extractor not in EXTRACTORS:
        raise UserError(
            f"data.extractor is '{extractor}'{did_you_mean(extractor, EXTRACTORS)}; known: {', '.join(EXTRACTORS)}"
        )
    train = training_prompts(recipe)
    method = compose(recipe.method)
    if method.needs_labels:
        train.require_labels(f"method '{recipe.method.name}'")
    if "rephrased" in method.views:
        train.require_rephrasings(f"method '{recipe.method.name}'")
    keep_fraction(recipe.method, train.prompts)
    held_out = {
        split: None if source is None else held_out_prompts(recipe, source, split)
        for split, source in (("validation", recipe.data.validation), ("test", recipe.data.test))
    }
    return DataSets(train, held_out["validation"], held_out["test"])


def warnings(recipe: Recipe, data: DataSets) -> list[str]:
    """What is likely a mistake in this recipe on these data, a sentence each."""
    found = [*recipe_warnings(recipe), *step_warnings(recipe, len(data.train.prompts))]
    if recipe.method.prompts != "all" and keep_fraction(recipe.method, data.train.prompts) == 1:
        found.append(
            f"method.prompts is {recipe.method.prompts}, but no label is marked as noise, so every prompt trains; set"
            " method.keep_fraction"
        )
    trained = {prompt.messages for prompt in data.train.prompts}
    for name, held_out in (("validation", data.validation), ("test", data.test)):
        shared = sum(prompt.messages in trained for prompt in held_out.prompts) if held_out else 0
        if shared:
            found.append(
                f"{shared} prompts of data.{name} also train; its accuracy is then not a held-out accuracy"
            )
    return found


def unused_run_path(name: str, root: Path = Path("runs")) -> Path:
    """The first of runs/<name>, runs/<name>-2, … that is free."""
    path, number = root / name, 2
    while path.exists():
        path, number = root / f"{name}-{number}", number + 1
    return path


def unfinished_run(recipe: Recipe, root: Path = Path("runs")) -> Path:
    """The one run below `root` that this recipe, under this name, began and nobody finished.

    Raises:
        UserError: there is none, or several, which are listed.
    """
    places = [manifest.parent for manifest in sorted(root.glob("**/manifest.json"))]
    found = [path for path in places if _is_unfinished(path, recipe) and not is_held(path)]
    if not found:
        raise UserError(
            f"no unfinished run of this recipe below {root}/; name one with --run-dir, or train without --resume"
        )
    if len(found) > 1:
        listed = ", ".join(f"{path} ({len(stored_steps(path))} steps)" for path in found)
        raise UserError(f"several unfinished runs of this recipe: {listed}; choose one with --run-dir")
    return found[0]


def _is_unfinished(path: Path, recipe: Recipe) -> bool:
    try:
        facts = read_manifest(path)
    except UserError:  # another program's manifest.json, or one of a newer olr
        return False
    is_this = facts.get("recipe_digest") == recipe.digest() and facts["name"] == recipe.name
    return is_this and facts["status"] != "finished"


class EngineFailed(Exception):
    """An engine's own process ended by a bug; its traceback is in a log, which the message names."""


class Engine(Protocol):
    """Generates and optimises; made for a recipe and its data before anything is written.

    What it can't work with, it refuses when it is made.
    """

    def __init__(self, recipe: Recipe, data: DataSets) -> None:
        """Load the policy and check that the prompts fit it.

        Raises:
            UserError: the model or a prompt cannot be used.
        """

    @property
    def facts(self) -> dict[str, Any]:
        """For the manifest: engine, device, dtype, threads, policy_digest (of the starting policy's weights),
        departures from the authors' settings.
        """
        ...

    @property
    def warnings(self) -> list[str]:
        """What is likely a mistake, a sentence each."""
        ...

    @property
    def plan(self) -> list[str]:
        """What a dry run tells of how it would train, a line each."""
        ...

    def render(self, messages: Sequence[Message]) -> str:
        """A prompt exactly as the policy sees it."""
        ...

    def train(self, run: Run) -> dict[str, Any]:
        """Train from step `run.done` to the end; returns what the manifest should say of the finished run."""
        ...


def launch(
    recipe: Recipe,
    path: Path,
    make_engine: Callable[[Recipe, DataSets], Engine],
    progress: Progress,
    *,
    resume: bool = False,
    arm: str = "",
) -> None:
    """Start a run at `path`, or continue it, and see it to its end.

    Args:
        recipe: what to do.
        path: the run directory.
        make_engine: the engine's class.
        progress: told what happens.
        resume: continue the run at `path` instead of making it.
        arm: the sweep's name for runs that differ in their seed alone.

    Raises:
        UserError: something the user can mend. Either nothing was written yet, or the run directory holds
            everything up to the last complete step.
        Interrupted: the run was asked to stop; likewise.
        EngineFailed: a bug in another process; likewise.
    """
    if resume:
        check_same_recipe(path, recipe)
    else:
        require_free(path)
    data = load_data(recipe)
    engine = make_engine(recipe, data)
    for warning in [*warnings(recipe, data), *engine.warnings]:
        progress.say(f"Warning: {warning}")
    with held(path, make=not resume), Judge() as judge:
        done = 0
        if resume:
            _check_same_start(path, recipe, data, engine)
            for sentence in _other_conditions(path, engine):
                progress.say(sentence)
            done = _roll_back(path, progress)
            write_recipe(path, recipe)
        else:
            create_run(path, recipe, arm=arm)
        supervisor = make_supervisor(recipe, data.train, judge, stored_history(path) if done else None)
        begin_attempt(path, from_step=done, data=_data_facts(data), facts=engine.facts)
        run = Run(recipe, path, data, supervisor, RunStore(path), done, progress)
        try:
            found = engine.train(run)
        except BaseException as error:
            stopped = isinstance(error, Interrupted | KeyboardInterrupt)
            # On a full disk even this note may fail; the reason to report is the first error.
            with suppress(UserError):
                end_attempt(path, "interrupted" if stopped else "failed")
            raise
        end_attempt(path, "finished", **found)


def make_supervisor(recipe: Recipe, train: PromptSet, judge: Judge, history: History | None) -> Supervisor:
    """The supervisor that a recipe asks for on these prompts, with the history of the visits so far."""
    return Supervisor(
        compose(recipe.method),
        judge,
        seed=recipe.seed,
        draw=noise_draw(recipe),
        extractor=recipe.data.extractor,
        keep_fraction=keep_fraction(recipe.method, train.prompts),
        history=history,
    )


def rehearse(recipe: Recipe, make_engine: Callable[[Recipe, DataSets], Engine]) -> list[str]:
    """What a run of this recipe would do, and one prompt exactly as the policy sees it; nothing is written."""
    data = load_data(recipe)
    engine = make_engine(recipe, data)
    prompts = data.train.prompts
    steps = recipe.train.epochs * steps_per_epoch(recipe, len(prompts))
    views = compose(recipe.method).views
    rollouts = len(prompts) * recipe.train.epochs * recipe.train.rollouts_per_prompt * len(views)
    first, shown = prompts[0], []
    for view in views:
        which = "" if view == "original" else f", {view},"
        shown += [f"prompt {first.prompt_id}{which} as the policy sees it:", engine.render(first.turns(view))]
    return [
        recipe_yaml(recipe),
        *(f"Warning: {warning}" for warning in [*warnings(recipe, data), *engine.warnings]),
        f"{len(prompts)} prompts from {data.train.source}, {sum(p.is_marked for p in prompts)} of them marked as noise",
        f"{steps} steps, {rollouts:,} rollouts",
        *engine.plan,
        *shown,
        f"its label: {first.given_label}",
        f"answers are read by: {recipe.data.extractor or default_extractor(first.data_source)}",
    ]


def stored_history(path: Path) -> History:
    """The history that a run's labels table tells."""
    columns = ("prompt_id", "visit", "majority_answer", "majority_count", "rollouts")
    labels = scan_labels(path).select(columns).sort("visit").collect()
    return History.from_rows(labels.iter_rows(named=True))


def check_same_recipe(path: Path, recipe: Recipe) -> None:
    """Make sure that a run was begun with this recipe.

    Raises:
        UserError: it was not; the changed keys are named.
    """
    changed = changed_keys(read_recipe(path), recipe)
    if changed:
        raise UserError(
            f"{path} was begun with another recipe ({'; '.join(changed)}); continue it with its own,"
            f" {path / 'recipe.yaml'}, or start a new run in another --run-dir"
        )


def require_same_data(path: Path, data: DataSets) -> None:
    """Make sure that the data sets are those that a run was begun with.

    Raises:
        UserError: one has changed.
    """
    before = read_manifest(path)
    digests = {name: facts["digest"] for name, facts in before.get("data", {}).items()}
    for name, facts in _data_facts(data).items():
        if digests.get(name, facts["digest"]) != facts["digest"]:
            raise UserError(
                f"{facts['source']} has changed since {path} was begun (data.{name}); restore it, or start a new run"
            )


def _check_same_start(path: Path, recipe: Recipe, data: DataSets, engine: Engine) -> None:
    require_same_data(path, data)
    before = read_manifest(path)
    policy = engine.facts["policy_digest"]
    if before.get("policy_digest", policy) != policy:
        raise UserError(
            f"the weights of {recipe.model.path} have changed since {path} was begun; restore them, or start a new run"
        )


def _other_conditions(path: Path, engine: Engine) -> list[str]:
    """A warning if this attempt computes elsewhere than the one before: results may then differ in rounding (R18)."""
    before = read_manifest(path)
    then = {**before, "torch": before.get("versions", {}).get("torch")}
    now = {**engine.facts, "torch": versions()["torch"]}
    changed = [
        f"{name} {then[name]}, now {now[name]}"
        for name in ("device", "dtype", "threads", "torch")
        if then.get(name) not in (None, now[name])
    ]
    if not changed:
        return []
    return [
        f"Warning: the last attempt had {'; '.join(changed)}: results will not repeat those of one attempt bit for bit"
    ]


def _data_facts(data: DataSets) -> dict[str, Any]:
    sets = {"train": data.train, "validation": data.validation, "test": data.test}
    return {
        name: {"source": str(prompts.source), "digest": prompts.digest, "prompts": len(prompts.prompts)}
        for name, prompts in sets.items()
        if prompts is not None
    }


def _roll_back(path: Path, progress: Progress) -> int:
    """Bring a run back to its last checkpoint; returns that step, 0 without a checkpoint.

    Raises:
        UserError: shards or checkpoints have gone since; nothing was removed.
    """
    done = max(checkpoint_steps(path), default=0)
    missing = sorted(set(range(1, done + 1)) - set(stored_steps(path)))
    if missing:
        raise UserError(
            f"{path} has a checkpoint after step {done} but no shards of step {missing[0]}; restore them"
        )
    last = newest_shard(path)
    # The recipe on the disk is the last attempt's: no more steps than between its checkpoints can be ahead of them.
    if last - done > read_recipe(path).train.checkpoint_every:
        newest = f"its newest checkpoint is after step {done}" if done else "it has no checkpoint"
        raise UserError(
            f"{path} holds step {last}, but {newest}: checkpoints have gone; restore them, or start a new run in"
            " another --run-dir"
        )
    steps = f"step {last} is" if last == done + 1 else f"steps {done + 1} to {last} are"
    progress.say(f"Continuing {path} after step {done}{f' ({steps} done again)' if last > done else ''}.")
    drop_leftovers(path)
    drop_unfinished(path)
    RunStore(path).drop_after(done)
    # A run without a checkpoint starts anew, with the line of step 0 too.
    drop_metrics_after(path, done if done else -1)
    return done
