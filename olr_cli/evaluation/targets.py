"""The models and checkpoints that a command names, and the folders of their evaluations."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from olr_cli.data.hub import hub_answers
from olr_cli.engines.models import (
    NAMES,
    is_builtin,
    policy_path,
)
from olr_cli.errors import UserError, did_you_mean, first_line, no_path
from olr_cli.evaluation.scores import is_evaluation
from olr_cli.evaluation.store import Target
from olr_cli.recipe.layers import folder_name
from olr_cli.runs.checkpoints import best_step, checkpoint_path, checkpoint_steps
from olr_cli.runs.directory import is_run, read_manifest, read_recipe, require_run
from olr_cli.runs.listing import status_of
from olr_cli.runs.stored import runs_below

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


def targets(
    model: str, checkpoints: Sequence[str], out: Path | None, *, is_served: bool = False
) -> list[Target]:
    """Return what is evaluated for one model that a command names: the model itself, or checkpoints of a run (R22).

    Each target has a folder for its results.

    Args:
        model: a run directory, a folder in Hugging Face layout, a hub id, or a built-in policy.
        checkpoints: checkpoints of the run: ``last``, ``best`` (on its validation set) or steps. Empty: the last.
        out: the folder for the results; for a run, each checkpoint gets a folder in it. None: a folder in the run
            directory, or below ``evaluations/`` for any other model.
        is_served: whether a server has the model; `model` is then the server's name for it.

    Raises:
        UserError: there is no such model or checkpoint.
    """
    if is_served or not is_run(model):
        name = folder_name(model).strip("-.") or "model"
        known_as = model if is_served else _model(model)
        return [Target(known_as, out or Path("evaluations") / name, model, {}, is_served)]
    run = Path(model)
    require_run(run)
    # Raises for a run of a newer olr, whose files may mean something else.
    read_manifest(run)
    # A dictionary, since `last` and `best` may be the same step, which is then evaluated once.
    chosen = dict(_step(run, wanted) for wanted in checkpoints or ("last",))
    folder = out or run / "evaluation"
    return [
        Target(
            str(checkpoint_path(run, step).absolute()),
            folder / f"step-{step:06d}",
            f"{run.absolute().name} step {step}",
            {"run": str(run.absolute()), "step": step, "chosen": how},
        )
        for step, how in chosen.items()
    ]


def with_runs_of_folders(
    models: Sequence[str], say: Callable[[str], None] = lambda _: None
) -> list[str]:
    """Return the models that a command names, with each folder of runs (a sweep) replaced by its finished runs.

    Args:
        models: run directories, model folders, hub ids, built-in policies, or folders of runs.
        say: is called with a sentence on the runs of a folder that are left out, and why.

    Raises:
        UserError: no run of a folder is finished.
    """
    chosen: list[str] = []
    for model in models:
        is_single = is_run(model) or os.path.isfile(Path(model) / "config.json")
        runs = [] if is_single else sorted(runs_below(Path(model)))
        chosen += _finished(model, runs, say) if runs else [model]
    return list(dict.fromkeys(chosen))


def _finished(folder: str, runs: Sequence[Path], say: Callable[[str], None]) -> list[str]:
    """Return the paths of the finished runs of a folder. A run without a checkpoint is left out, too.

    Args:
        folder: the folder, as given on the command line.
        runs: all runs of the folder.
        say: is called with a sentence on the runs that are left out, if any.

    Raises:
        UserError: no run is left.
    """
    left_out = {run: reason for run in runs if (reason := _why_not_scored(run))}
    reasons = ", ".join(
        f"{os.path.relpath(run, folder)} ({reason})" for run, reason in left_out.items()
    )
    if len(left_out) == len(runs):
        raise UserError(
            f"no run below {folder} can be scored: {reasons}",
            f"`olr runs {shlex.quote(folder)}` shows them, and how to go on with them",
        )
    if left_out:
        say(f"{folder}: {len(left_out)} of {len(runs)} runs are left out: {reasons}.")
    return [str(run) for run in runs if run not in left_out]


def _why_not_scored(run: Path) -> str | None:
    """Return why a run cannot be scored, such as ``running``, ``damaged`` or ``no checkpoint``; None if it can."""
    try:
        status = status_of(run, read_manifest(run))
    except (UserError, OSError):
        return "damaged"
    if status != "finished":
        return status
    return None if checkpoint_steps(run) else "no checkpoint"


def all_targets(
    models: Sequence[str],
    checkpoints: Sequence[str],
    out: Path | None,
    *,
    is_served: bool = False,
) -> dict[str, list[Target]]:
    """Return the targets of several models; keys are the models as given on the command line.

    A target is a model, or one checkpoint of a run, with the folder for its results.

    Args:
        models: run directories, folders in Hugging Face layout, hub ids, or built-in policies.
        checkpoints: checkpoints of the runs: ``last``, ``best`` or steps. Empty: the last.
        out: for one model, the folder for its results; for several models, the folder in which each target gets a
            folder. None: a folder in the run directory, or below ``evaluations/`` for any other model.
        is_served: whether a server has the models.

    Raises:
        UserError: there is no such model or checkpoint, checkpoints are named without a run, or two models would have
            the same folder for results.
    """
    models = list(dict.fromkeys(models))
    if checkpoints and (is_served or not any(map(is_run, models))):
        raise UserError(
            f"only runs have checkpoints, and {', '.join(models)} is none (it has no manifest.json)",
            "name a run",
            "checkpoint",
        )
    named = {
        model: targets(
            model, checkpoints, out if len(models) == 1 else None, is_served=is_served
        )
        for model in models
    }
    if out is not None and len(models) > 1:
        named = {model: _placed_below(group, model, out) for model, group in named.items()}
    _require_own_folders(named)
    return named


def _placed_below(group: Sequence[Target], model: str, out: Path) -> list[Target]:
    """Return copies of a model's targets whose folders for results are moved right below `out`.

    The folders keep their own names. If the model is a run, the run's name is put before them.
    """
    run = f"{Path(model).absolute().name}-" if is_run(model) else ""
    return [replace(target, folder=out / f"{run}{target.folder.name}") for target in group]


def _require_own_folders(named: Mapping[str, Sequence[Target]]) -> None:
    """Raise `UserError` if targets of two models have the same folder for results.

    Args:
        named: model as given on the command line -> its targets.
    """
    places: dict[Path, str] = {}
    for model, group in named.items():
        for target in group:
            other = places.setdefault(target.folder.absolute(), model)
            if other != model:
                raise UserError(
                    f"{other} and {model} have the same folder for results, {target.folder}",
                    "evaluate them one at a time, each into another folder",
                    "out",
                )


def origin(model: str) -> str:
    """Return the model that a run started from, or the model itself if it is not a run."""
    return read_recipe(Path(model)).model.path if is_run(model) else model


def _model(model: str) -> str:
    """Return the absolute folder of a local or built-in model, or a hub id unchanged.

    Raises:
        UserError: the name is no model folder, built-in policy or hub id.
    """
    if is_builtin(model):
        return str(policy_path(model))
    path = Path(model)
    if os.path.isfile(path / "config.json"):
        return str(path.absolute())
    if os.path.exists(path):
        raise UserError(
            f"{model} is neither a model (it has no config.json) nor a run (no manifest.json)",
            "name one",
        )
    # A misspelled `runs/quikstart` looks like a hub id. Next to runs, it is more likely a path.
    is_beside_runs = "/" in model and any(path.parent.glob("*/manifest.json"))
    if is_beside_runs or not _HUB_ID.fullmatch(model) or model.startswith("."):
        raise no_path(model, "name a run, a model folder, or a hub id (org/name)")
    return model


def require_models(targets: Sequence[Target]) -> None:
    """Raise `UserError` if a model is neither a folder nor on the hub.

    Call this before the benchmarks are loaded. A model that a server has is not looked up. Neither is a model whose
    evaluation has begun: it may have all its samples already.
    """
    remote = {
        target.model
        for target in targets
        if not (target.is_local or target.is_served or is_evaluation(target.folder))
    }
    if not remote:
        return
    from huggingface_hub import errors, hf_hub_download

    for model in remote:
        reason = (
            ""
            if hub_answers()
            else " (it cannot be reached from here, and its local cache has none)"
        )
        try:
            hf_hub_download(model, "config.json")
        except errors.GatedRepoError:
            # The model exists. Its loading will say how to get access.
            continue
        except (
            errors.LocalEntryNotFoundError,
            errors.HfHubHTTPError,
            errors.HFValidationError,
        ) as error:
            # These two mean that there is no such model; other errors, such as 503, have their own sentence.
            if not isinstance(
                error, errors.LocalEntryNotFoundError | errors.RepositoryNotFoundError
            ):
                reason = f" ({first_line(error)})"
            hint = did_you_mean(model, [f"builtin:{name}" for name in NAMES])
            raise UserError(
                f"there is no model folder, run or built-in policy '{model}', and no such model on the Hugging Face"
                f" hub{reason}{hint}",
                "check the name",
            ) from error


def _step(run: Path, wanted: str) -> tuple[int, str]:
    """Return the step of a run's checkpoint, and how it was chosen.

    Args:
        run: the run directory.
        wanted: ``last``, ``best`` or a step.

    Returns:
        The step, and ``last``, ``best on the validation set`` or ``named``.

    Raises:
        UserError: there is no such checkpoint.
    """
    steps = checkpoint_steps(run)
    if not steps:
        raise UserError(
            f"{run} has no checkpoint",
            f"train it further, or name the model, {read_recipe(run).model.path}",
        )
    if wanted == "last":
        return steps[-1], "last"
    there = f"there are {', '.join(map(str, steps))}"
    if wanted == "best":
        best = best_step(run)
        if best not in steps:
            raise UserError(
                f"{run} has no validation set (data.validation), or its best checkpoint is gone",
                there,
                "checkpoint best",
            )
        return best, "best on the validation set"
    if not wanted.isdecimal() or int(wanted) not in steps:
        raise UserError(
            f"{run} has no such checkpoint",
            f"{there}, last and best",
            f"checkpoint {wanted}",
        )
    return int(wanted), "named"
