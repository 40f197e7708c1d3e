"""A run that another trainer makes (`olr_cli.api`): whether its directory may be made, or gone on with.

Prompts are known only as they come, so the directory has them in a file of its own, prompts.jsonl, which its recipe
names as `data.train`.
"""

from __future__ import annotations

from pathlib import Path

from olr_cli.errors import UserError
from olr_cli.recipe.schema import Recipe, changed_keys
from olr_cli.runs.directory import read_manifest, read_recipe, require_run
from olr_cli.runs.writer import Mark, RunWriter


def create_external(path: Path, recipe: Recipe, trainer: str) -> RunWriter:
    """Begin a run of a trainer, whose name and version `trainer` is.

    Raises:
        UserError: the folder holds a run already, is held by another process, or cannot be written.
    """
    if (path / "manifest.json").exists():
        raise UserError(
            f"{path} holds a run already ({read_manifest(path)['status']}); load the state that was saved with its"
            " checkpoint to continue it, or choose another run_dir"
        )
    writer = RunWriter.create(path, recipe, option="run_dir")
    writer.begin(after=0, facts={"engine": trainer})
    return writer


def resume_external(
    path: Path, recipe: Recipe, trainer: str, mark: Mark, *, run_id: str, step: int
) -> RunWriter:
    """Continue the run `run_id` after a step; what is stored of later steps is removed.

    Raises:
        UserError: the folder holds no run, another one, or one that was begun with another recipe.
    """
    require_run(path)
    if read_manifest(path)["id"] != run_id:
        raise UserError(
            f"the state was saved by another run than the one in {path}; name the run_dir that it belongs to"
        )
    changed = [
        key for key in changed_keys(read_recipe(path), recipe) if not key.startswith(("train.", "model."))
    ]
    if changed:
        raise UserError(
            f"{path} was begun with another recipe ({'; '.join(changed)}); continue it with its own, or start a new"
            " run in another run_dir"
        )
    writer = RunWriter.resume(path, recipe, option="run_dir")
    writer.roll_back(step)
    writer.read_prompts(mark)
    writer.begin(after=step, facts={"engine": trainer})
    return writer
