"""A resume: check that recipe, data and weights are the same, and find the step from which the run continues."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from olr_cli.engines.run import DataSets, Engine
from olr_cli.errors import UserError
from olr_cli.files import read_json
from olr_cli.recipe.schema import Recipe, refused_changes
from olr_cli.runs.checkpoints import checkpoint_path, checkpoint_steps, damage_of
from olr_cli.runs.directory import (
    Kind,
    read_manifest,
    read_recipe,
    require_kind,
    run_id,
    versions,
)
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.progress import Progress
from olr_cli.runs.shards import newest_shard, stored_steps
from olr_cli.runs.writer import RunWriter


def check_same_recipe(path: Path, recipe: Recipe, kind: Kind = "training") -> None:
    """Raise UserError unless the run at `path` is of this kind and can continue with this recipe.

    A run can continue with its own recipe, or with one that only asks for more epochs.
    """
    require_kind(path, kind)
    refused = refused_changes(read_recipe(path), recipe)
    if not refused:
        return
    if kind == "rollouts":
        raise UserError(
            f"{path} was begun with other settings ({'; '.join(refused)})",
            "ask as before (but for more visits), or start anew under another name",
            "run_dir",
        )
    raise UserError(
        f"{path} was begun with another recipe ({'; '.join(refused)})",
        "continue it as it was, with olr train --resume"
        f" --run-dir {quote(str(path))}, or start a new run under another name; a resume may raise train.epochs",
    )


def is_complete(path: Path, recipe: Recipe) -> bool:
    """Whether the run at `path` is finished and has as many epochs as the recipe asks for.

    The recipe must be one with which the run can continue (`check_same_recipe`).
    """
    return bool(
        read_manifest(path)["status"] == "finished"
        and read_recipe(path).train.epochs >= recipe.train.epochs
    )


def require_same_data(path: Path, data: DataSets) -> None:
    """Raise UserError if one of the data sets, or the file of verified labels, has changed since the run was begun."""
    begun = read_manifest(path).get("data", {})
    for name, facts in data.facts.items():
        before = begun.get(name, {})
        if before.get("digest", facts["digest"]) == facts["digest"]:
            continue
        key, source = name, facts["source"]
        # Verified labels are part of the prompts, so a changed file of them changes the prompts' digest too. Name
        # that file: nothing is wrong with data.train.
        if before.get("verified_digest") != facts.get("verified_digest"):
            key, source = "verified", data.train.facts["verified"]
        raise UserError(
            f"{source} has changed since {path} was begun (data.{key})",
            "restore it, or start a new run",
        )


def check_same_start(path: Path, recipe: Recipe, data: DataSets, engine: Engine) -> None:
    """Raise UserError if a data set, or the weights of the starting policy, have changed since the run was begun."""
    require_same_data(path, data)
    before = read_manifest(path)
    policy = engine.facts["policy_digest"]
    if before.get("policy_digest", policy) != policy:
        raise UserError(
            f"the weights of {recipe.model.path} have changed since {path} was begun",
            "restore them, or start a new run",
        )


def other_conditions(path: Path, engine: Engine) -> list[str]:
    """Return a list with a warning if server, hardware, precision or versions differ from the run's last attempt.

    Results may then differ in rounding (R18). If nothing differs, the list is empty.
    """
    before = read_manifest(path)
    then, now = before | before.get("versions", {}), engine.facts | versions()
    changed = [
        f"{name} {then[name]}, now {now.get(name)}"
        # None: the last attempt recorded nothing under this name. Only a server has a `url`, for example.
        for name in (
            "url",
            "served_model",
            "device",
            "processor",
            "dtype",
            "threads",
            "torch",
            "olr",
        )
        if then.get(name) not in (None, now.get(name))
    ]
    if not changed:
        return []
    return [
        f"Warning: the last attempt had {'; '.join(changed)}: results may not repeat those of one attempt bit for bit"
    ]


def roll_back(writer: RunWriter, kind: Kind, progress: Progress) -> int:
    """Remove what a run has stored after the step from which it continues, and return that step, or 0 for a new start.

    Training continues from the newest undamaged checkpoint; damaged ones after it are renamed. A run that only samples
    has no checkpoints and continues after its last complete step.
    """
    path = writer.path
    damaged = _damaged_checkpoints(path) if kind == "training" else {}
    checkpoints = set(checkpoint_steps(path)) - damaged.keys()
    done = max(checkpoints, default=0) if kind == "training" else _last_complete_step(path)
    last = newest_shard(path)
    _require_whole(path, kind, done, last, newest=max([done, *damaged]))
    for step, reason in damaged.items():
        progress.say(
            f"Warning: {checkpoint_path(path, step)} is damaged ({reason}) and is set aside."
        )
    steps = f"step {last} is" if last == done + 1 else f"steps {done + 1} to {last} are"
    progress.say(
        f"Continuing {path} after step {done}{f' ({steps} done again)' if last > done else ''}."
    )
    writer.roll_back(done, damaged)
    return done


def _damaged_checkpoints(path: Path) -> dict[int, str]:
    """Return the damaged checkpoints after the newest undamaged one: for each step, what is wrong with its checkpoint.

    A checkpoint of another run or another step counts as damaged too.

    Raises:
        UserError: the run has checkpoints, and all of them are damaged.
    """
    damage: dict[int, str] = {}
    for step in reversed(checkpoint_steps(path)):
        reason = damage_of(checkpoint_path(path, step)) or _foreign_checkpoint(path, step)
        if reason is None:
            return damage
        damage[step] = reason
    if damage:
        newest = max(damage)
        raise UserError(
            f"no checkpoint of {path} is whole ({checkpoint_path(path, newest)}: {damage[newest]})",
            "restore one from a copy, or start a new run under another name",
        )
    return damage


def _foreign_checkpoint(path: Path, step: int) -> str | None:
    """Return why the checkpoint in the folder of `step` does not belong to this run and step, or None if it does."""
    saved = read_json(checkpoint_path(path, step) / "trainer.json")
    if not isinstance(saved, dict) or saved.get("run", "") != run_id(path):
        return "it is of another run"
    return None if saved.get("step") == step else f"it is of step {saved.get('step')}"


def _last_complete_step(path: Path) -> int:
    """Return the last complete step of a run, or 0 if there is none.

    A step is complete if it has its tables and its line in metrics.jsonl. The line is written last.
    """
    measured = max((int(line["step"]) for line in read_metrics(path)), default=0)
    return min(measured, max(stored_steps(path), default=0))


def _require_whole(path: Path, kind: Kind, done: int, last: int, newest: int) -> None:
    """Raise UserError if more of a run is missing than an interruption can explain.

    Two things are checked. Each step up to `done` must have its tables and its line in metrics.jsonl. And `last` may be
    at most one checkpoint interval after `newest`, or one step in a run without checkpoints; otherwise a checkpoint or
    a line has been deleted.

    Args:
        path: the run directory.
        kind: `training`, or `rollouts` for a run without checkpoints.
        done: the step after which the run would continue.
        last: the last step with stored tables (shards).
        newest: the step of the newest checkpoint, damaged or not; in a run without checkpoints, `done`.
    """
    measured = {int(line["step"]) for line in read_metrics(path)}
    missing = set(range(1, done + 1)) - (measured & set(stored_steps(path)))
    if missing:
        raise UserError(
            f"{path} continues after step {done}, but shards or the line in metrics.jsonl of step {min(missing)} have"
            " gone",
            "restore them",
        )
    # An interruption loses at most the steps since the last checkpoint. The new recipe may set another interval, so
    # read the last attempt's from its recipe on the disk.
    most = 1 if kind == "rollouts" else read_recipe(path).train.checkpoint_every
    if last - newest > most:
        lost = "lines of metrics.jsonl" if kind == "rollouts" else "checkpoints"
        raise UserError(
            f"{path} holds step {last} and would go on after step {newest}: {lost} have gone",
            "restore them, or start a new run under another name",
        )
