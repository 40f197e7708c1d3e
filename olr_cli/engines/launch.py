"""From a recipe to a run: load the data, make the engine and the run directory, and train.

`olr_cli.engines.rehearse` does the same without the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from pathlib import Path

from olr_cli.answers import Judge, default_extractor
from olr_cli.data.check import label_notes, repeat_notes
from olr_cli.data.prompts import Prompt, PromptSet
from olr_cli.data.questions import normal_question
from olr_cli.data.rows import Rows
from olr_cli.data.sets import recipe_reading
from olr_cli.data.writers import write_prompts
from olr_cli.engines.resume import (
    check_same_recipe,
    check_same_start,
    is_complete,
    other_conditions,
    roll_back,
)
from olr_cli.engines.run import Attempt, DataSets, Engine, load_data, require_engine
from olr_cli.errors import UserError
from olr_cli.files import departures
from olr_cli.recipe.checks import code_notes, recipe_warnings, step_warnings
from olr_cli.recipe.schema import Recipe, refused_changes
from olr_cli.recipe.sections import OpenRlhfEngine
from olr_cli.runs.directory import (
    GIVEN_UP,
    HELD_OUT_FILE,
    Kind,
    kind_of,
    read_manifest,
    read_recipe,
    require_free,
    start_day,
)
from olr_cli.runs.locks import is_held
from olr_cli.runs.progress import Progress
from olr_cli.runs.shards import stored_steps
from olr_cli.runs.store import stored_history
from olr_cli.runs.writer import RunWriter
from olr_cli.supervision import make_supervisor


def engine_of(
    recipe: Recipe, missing: list[str] | None = None
) -> Callable[[Recipe, DataSets], Engine]:
    """Return a class or function that makes the recipe's engine from the recipe and its data sets.

    Only the packages of that engine are imported.

    Args:
        recipe: names the engine.
        missing: for a dry run, a list to which OpenRLHF's engine appends a sentence for each thing that this machine
            lacks. If it is None, the engine raises an error for the first such thing.

    Raises:
        UserError: the engine is external, so that another program trains.
    """
    require_engine(recipe)
    if isinstance(recipe.engine, OpenRlhfEngine):
        from olr_cli.engines.openrlhf import engine

        return partial(engine.OpenRlhfRunner, missing=missing)
    from olr_cli.engines.local.engine import LocalRunner

    return LocalRunner


def run_warnings(recipe: Recipe, data: DataSets, kind: Kind) -> list[str]:
    """Return a sentence for each likely mistake in this recipe and these data.

    A run of the kind `rollouts` only samples, so it gets only the warnings about its data.
    """
    # The notes count labels of one file, so they include a test set that was split off the training file, but none
    # that comes from a file of its own.
    own_test = (
        () if data.test is None or recipe.data.test is not None else data.test.prompts
    )
    whole = [*data.train.prompts, *own_test]
    rows = Rows(data.train.table, data.train.origins)
    sentences = [
        *data_warnings(recipe, data.train),
        *label_notes(whole, recipe.data.train, recipe_reading(recipe), rows),
    ]
    if kind == "rollouts":
        return sentences
    sentences += [*recipe_warnings(recipe), *step_warnings(recipe, len(data.train.prompts))]
    if recipe.method.prompts not in ("all", "verified") and data.keep_fraction == 1:
        sentences.append(
            f"method.prompts is {recipe.method.prompts}, but no label is marked as noise, so every prompt trains; set"
            " method.keep_fraction"
        )
    trained = {normal_question(prompt.messages) for prompt in data.train.prompts}
    for name, held_out in (("validation", data.validation), ("test", data.test)):
        prompts = held_out.prompts if held_out else ()
        if shared := sum(normal_question(prompt.messages) in trained for prompt in prompts):
            sentences.append(
                f"{shared} prompts of data.{name} also train; its accuracy is then not a held-out accuracy"
            )
    return sentences


_LONG_LABEL = 200
"""Number of characters; a longer label is probably a whole solution."""


def data_warnings(recipe: Recipe, prompts: PromptSet) -> Iterator[str]:
    """Yield a sentence for each kind of likely mistake that occurs in the prompts.

    There are three kinds: answers are read from a box, but the prompt does not ask for one; a label is too long to be a
    final answer; a question occurs more than once.
    """
    size = len(prompts)
    boxed = [
        row for row, it in enumerate(prompts.prompts) if extractor_of(recipe, it) == "boxed"
    ]
    silent = [
        row
        for row in boxed
        if not any("boxed" in it.content for it in prompts.prompts[row].messages)
    ]
    if silent:
        yield (
            f"{len(silent)} of {size} prompts (the first: {prompts.name(silent[0])}) do not ask for a \\boxed{{}}, from"
            " which answers are read; set data.system_prompt to a text that does, or data.extractor to how it answers"
        )
    labels = [prompt.given_label or "" for prompt in prompts.prompts]
    long = [row for row, label in enumerate(labels) if len(label) > _LONG_LABEL]
    if long:
        yield (
            f"{len(long)} of {size} labels have more than {_LONG_LABEL} characters (the first:"
            f" {prompts.name(long[0])}), so they are hardly final answers, and nothing matches them; put"
            " these into a column, and name it in data.columns"
        )
    yield from repeat_notes(prompts)


def extractor_of(recipe: Recipe, prompt: Prompt) -> str:
    """Return the name of the extractor that the recipe sets, or else the default for the prompt's data source."""
    return recipe.data.extractor or default_extractor(prompt.data_source)


def unused_run_path(name: str, root: Path = Path("runs")) -> Path:
    """Return the first of the paths <name>, <name>-2, <name>-3, … below `root` that does not exist."""
    path, number = root / name, 2
    while path.exists():
        path, number = root / f"{name}-{number}", number + 1
    return path


def unfinished_run(
    recipe: Recipe, root: Path = Path("runs"), *, kind: Kind = "training"
) -> Path:
    """Return the path of the only unfinished run below `root` that the recipe can continue.

    The run must have the recipe's name and the given kind (see `_is_unfinished`). A run that another process is working
    on is passed over.

    Raises:
        UserError: there is no such run, or there are several.
    """
    places = [manifest.parent for manifest in sorted(root.glob("**/manifest.json"))]
    # A run that another process is training cannot be resumed.
    runs = [
        path for path in places if _is_unfinished(path, recipe, kind) and not is_held(path)
    ]
    if not runs:
        raise UserError(
            f"there is no unfinished run of this recipe below {root}/",
            "name one, or start a new run",
            "run_dir",
        )
    if len(runs) > 1:
        listed = ", ".join(f"{path} ({len(stored_steps(path))} steps)" for path in runs)
        raise UserError(
            f"several unfinished runs of this recipe: {listed}", "choose one", "run_dir"
        )
    return runs[0]


def _is_unfinished(path: Path, recipe: Recipe, kind: Kind) -> bool:
    """Whether `path` holds an unfinished run of this kind that the recipe can continue.

    The run must have the recipe's name. A finished run counts as unfinished if the recipe asks for more epochs. False
    if `path` holds no run, or one that this version of olr cannot read.
    """
    try:
        facts = read_manifest(path)
        is_this = facts["name"] == recipe.name and kind_of(facts) == kind
        return (
            is_this
            and not refused_changes(read_recipe(path), recipe)
            and not is_complete(path, recipe)
        )
    except UserError:  # another program's manifest.json, or one of a newer olr
        return False


def launch(
    recipe: Recipe,
    path: Path,
    make_engine: Callable[[Recipe, DataSets], Engine],
    progress: Progress,
    *,
    kind: Kind = "training",
    resume: bool = False,
    arm: str = "",
) -> None:
    """Start a run at `path`, or continue the run there, and complete it.

    Args:
        recipe: the recipe to run.
        path: the run directory.
        make_engine: makes the engine from the recipe and its data; nothing is written before it returns.
        progress: shows notes, warnings and steps.
        kind: `training`, or `rollouts` for a run that only samples and writes no checkpoints.
        resume: whether to continue the run at `path`.
        arm: in a sweep, the name that runs share if they differ only in their seed; empty outside a sweep.

    Raises:
        UserError: the run cannot start or go on, for a reason that the user can fix. If anything has been written, the
            run directory holds everything up to the last complete step.
        Interrupted: a stop was asked for; everything up to the last complete step is stored.
        EngineFailed: a bug has ended another process of the engine; everything up to the last complete step is stored.
    """
    if resume:
        check_same_recipe(path, recipe, kind)
    else:
        require_free(path)
    for note in code_notes(recipe):
        progress.say(note)
    # A chat template may write today's date, and a run must also repeat if it is resumed tomorrow (R18).
    day = start_day(path) if resume else date.today()
    data = load_data(recipe, kind, day)
    engine = _opened(make_engine, recipe, data, progress)
    for warning in [*run_warnings(recipe, data, kind), *engine.warnings]:
        progress.say(f"Warning: {warning}")
    # Nothing is written before this line: the engine has loaded the policy and checked that every prompt fits.
    writer = (
        RunWriter.resume(path, recipe)
        if resume
        else RunWriter.create(path, recipe, kind=kind, arm=arm)
    )
    with writer, Judge(ledger=path / GIVEN_UP, tolerance=recipe.data.tolerance) as judge:
        done = _rolled_back(writer, data, engine, progress, kind) if resume else 0
        history = stored_history(path, judge) if done else None
        supervisor = make_supervisor(recipe, data.keep_fraction, judge, history)
        writer.begin(
            after=done, data=data.facts, facts={**engine.facts, "day": str(data.day)}
        )
        for departure in sorted(departures):
            progress.say(f"Note: {departure}.")
        # `olr evaluate` must find exactly these held-out prompts, even if the training file changes later.
        if recipe.data.test is None and data.test is not None:
            write_prompts(data.test, path / HELD_OUT_FILE)
        progress.know(
            truth=any(prompt.true_answer is not None for prompt in data.train.prompts),
            held_out=data.test is not None,
        )
        facts = engine.complete(
            Attempt(recipe, path, data, supervisor, writer, done, progress)
        )
        writer.close("finished", **facts)


def _opened(
    make_engine: Callable[[Recipe, DataSets], Engine],
    recipe: Recipe,
    data: DataSets,
    progress: Progress,
) -> Engine:
    """Make the engine, which loads the starting policy, and return it; show the notes on how the data were read."""
    # A built-in model is there at once, and a hub shows its own progress.
    if Path(recipe.model.path).is_dir():
        progress.say(f"Loading {recipe.model.path} …")
    engine = make_engine(recipe, data)
    for note in data.notes:
        progress.say(f"Note: {note}.")
    return engine


def _rolled_back(
    writer: RunWriter, data: DataSets, engine: Engine, progress: Progress, kind: Kind
) -> int:
    """Check that a run can continue, and remove what it stored after the step from which it continues.

    Return this step, or 0 for a start from the beginning. Show a warning if hardware or versions have changed.
    """
    check_same_start(writer.path, writer.recipe, data, engine)
    for sentence in other_conditions(writer.path, engine):
        progress.say(sentence)
    return roll_back(writer, kind, progress)
