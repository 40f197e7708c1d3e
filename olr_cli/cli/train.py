"""`olr train`: GRPO with the settings of a recipe, while a method supervises the labels."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

import typer
from typer import Argument, Option

from olr_cli.cli import options
from olr_cli.cli.errors import shown_until_stopped
from olr_cli.cli.printing import show, show_dry_run
from olr_cli.errors import UserError

if TYPE_CHECKING:
    from olr_cli.recipe.schema import Recipe


class Recipes(NamedTuple):
    """What is trained: options of `olr train` that change keys of the recipe, or train the runs of its sweep."""

    set_: list[str] = options.SETTINGS
    sweep: bool = Option(
        False,
        "--sweep",
        help="Train every run of the recipe's `sweep`, as `sweep: {grid: {seed: [0, 1, 2]}}` for three seeds; resumes"
        " automatically.",
    )
    index_: int | None = Option(
        None,
        "--index",
        metavar="I",
        help="With --sweep: train only this run, counted from 0 (for job arrays).",
    )
    jobs: int | None = Option(
        None,
        metavar="N",
        min=1,
        help="With --sweep: number of runs to train at a time; by default 1.",
    )


class Storage(NamedTuple):
    """The run: options of `olr train` that choose the run directory and the form of output.

    Further options resume a run, or only show what would run.
    """

    run_dir: Path | None = Option(
        None,
        metavar="DIR",
        help="Run directory; by default runs/<name>, or runs/<name>-2, … if that exists.",
    )
    resume: bool = Option(
        False,
        "--resume",
        help="Continue the run at --run-dir, or this recipe's unfinished run; with --set train.epochs=N also a"
        " finished one.",
    )
    dry_run: bool = options.DRY_RUN
    json: bool = options.JSON_LINES


@options.grouped
def train(
    context: typer.Context,
    recipe: str | None = Argument(
        None,
        help="A recipe file, or the name of a recipe that comes with olr; --resume --run-dir DIR needs none.",
        autocompletion=options.recipe_names,
    ),
    *,
    recipes: Recipes,
    storage: Storage,
) -> None:
    """Train a policy with the settings of a recipe."""
    from olr_cli.recipe.layers import load_recipe
    from olr_cli.recipe.sweep import expand_sweep

    if recipe is None:
        recipe = _recipe_of_run(storage)
    _require_fitting(recipes, storage)
    if recipes.sweep:
        _sweep(recipe, recipes, storage, context.obj)
        return
    alone = load_recipe(recipe, recipes.set_)
    # Training the base recipe of a sweep by mistake would cost hours and answer nothing.
    if alone.sweep is not None:
        raise UserError(
            f"{recipe} is a sweep of {len(expand_sweep(recipe, recipes.set_))} runs",
            "add --sweep",
        )
    run_dir, resume, dry_run, as_json = storage
    _train_one(alone, run_dir, resume=resume, dry_run=dry_run, as_json=as_json)


def _recipe_of_run(storage: Storage) -> str:
    """Return the recipe file of the run that `--resume --run-dir` names.

    Raises:
        UserError: these options are not both given, or there is no such run.
    """
    from olr_cli.runs.directory import read_recipe

    if not storage.resume or storage.run_dir is None:
        raise UserError(
            "no recipe is named",
            "name one (`olr recipes ls` lists those that come with olr), or continue a run with --resume"
            " --run-dir DIR (`olr runs` lists the runs)",
        )
    # Raises if there is no run, or its recipe was written by a newer olr.
    read_recipe(storage.run_dir)
    return str(storage.run_dir / "recipe.yaml")


def _require_fitting(recipes: Recipes, storage: Storage) -> None:
    """Raise `UserError` if options of `olr train` contradict each other."""
    _, sweep, index, jobs = recipes
    for option, value in {"--index": index, "--jobs": jobs}.items():
        if value is not None and not sweep:
            raise UserError(f"{option} is for the runs of a sweep", "add --sweep")
    if index is not None and jobs is not None:
        raise UserError("--index trains one run of the sweep", "leave --jobs out")
    if sweep and storage.resume:
        raise UserError("--sweep resumes automatically", "leave --resume out")
    if sweep and storage.json and index is None and not storage.dry_run:
        raise UserError("--json shows one run", "choose one of the sweep's with --index")


def _sweep(
    recipe: str, recipes: Recipes, storage: Storage, program: Callable[[], None]
) -> None:
    """Train the runs of a sweep, or one of them, or show what would run.

    Args:
        recipe: name or file of the recipe.
        recipes: the options `--set`, `--index` (train only this run) and `--jobs` (runs at a time).
        storage: the folder of all runs, and whether only to show them.
        program: the entry point of `olr`. Each run gets a process of its own, which calls it.
    """
    from olr_cli.engines.rehearse import sweep_answer
    from olr_cli.engines.sweep import train_all
    from olr_cli.recipe.layers import load_recipe
    from olr_cli.recipe.sweep import expand_sweep

    settings, _, index, jobs = recipes
    run_dir, _, dry_run, as_json = storage
    runs = expand_sweep(recipe, settings)
    if index is not None and not 0 <= index < len(runs):
        raise UserError(
            f"--index {index}: {recipe} has runs 0 to {len(runs) - 1}", "name one of them"
        )
    folder = run_dir or Path("runs") / load_recipe(recipe, settings).name
    # --index names one run, so that each job of an array trains its own.
    if index is not None:
        chosen, path = runs[index], folder / runs[index].place
        # A job array restarts with the same words, so an existing run is resumed without --resume.
        resume = (path / "manifest.json").exists()
        _train_one(
            chosen.recipe,
            path,
            resume=resume,
            dry_run=dry_run,
            arm=chosen.arm,
            as_json=as_json,
        )
    elif dry_run:
        show_dry_run(sweep_answer(runs, folder), as_json=as_json)
    else:
        overrides = [word for setting in settings for word in ("--set", setting)]
        words = ["train", recipe, *overrides, "--sweep", "--run-dir", str(folder)]
        train_one = partial(_train_run_of_sweep, program, words)
        raise typer.Exit(train_all(runs, folder, jobs or 1, train_one))


def _train_run_of_sweep(program: Callable[[], None], words: list[str], number: int) -> None:
    """Train one run of a sweep, by running the whole of `olr` in this process.

    The caller starts a process for each run. The run's errors and output are then the same as if a user had typed the
    command.

    Args:
        program: the entry point of `olr`.
        words: the words of the command that trains the sweep, without ``olr``.
        number: the number of the run, from 0; it is appended to `words` as ``--index``.
    """
    sys.argv = ["olr", *words, "--index", str(number)]
    program()


def _train_one(
    recipe: Recipe,
    path: Path | None,
    *,
    resume: bool,
    dry_run: bool,
    as_json: bool,
    arm: str = "",
) -> None:
    """Train one run, or show what would run.

    Args:
        recipe: the run's recipe.
        path: the run directory. None: with `resume`, the unfinished run of this recipe; otherwise a new directory.
        resume: whether to continue a stored run. If it is already complete, this is printed and nothing is trained.
        dry_run: whether only to show what would run.
        as_json: whether to print JSON lines.
        arm: the name of the run's arm, that is, its group of settings in a sweep; empty outside a sweep.
    """
    from olr_cli.engines.launch import engine_of, launch, unfinished_run, unused_run_path
    from olr_cli.engines.rehearse import rehearse
    from olr_cli.engines.reporting import signs_of_no_reward
    from olr_cli.engines.resume import check_same_recipe, is_complete
    from olr_cli.runs.progress import choose_progress
    from olr_cli.runs.summary import run_summary

    shape = "event" if as_json else "terminal"
    # A stored recipe may name a stranger's code; refuse it before anything imports it.
    recipe.require_named()
    if dry_run:
        show_dry_run(rehearse(recipe).answer(), as_json=as_json)
        return
    path = path or (unfinished_run(recipe) if resume else unused_run_path(recipe.name))
    if resume:
        check_same_recipe(path, recipe)
        if is_complete(path, recipe):
            answer = run_summary(path)
            command = (
                f"olr train --resume --run-dir {quote(str(path))} --set train.epochs=N"
            )
            more = (
                {command: f"more than {recipe.train.epochs} epochs"}
                if recipe.can_be_extended
                else {}
            )
            line = f"{path} is finished; nothing to resume."
            show(replace(answer, parts=[line], next={**more, **answer.next}), shape)
            return
    progress = choose_progress(as_json=as_json)
    words = ["olr", "train", "--resume", "--run-dir", str(path), *recipe.named_again()]
    with shown_until_stopped(progress, path, words):
        launch(recipe, path, engine_of(recipe), progress, resume=resume, arm=arm)
    answer = run_summary(path)
    show(replace(answer, notes=[*answer.notes, *signs_of_no_reward(path)]), shape)
