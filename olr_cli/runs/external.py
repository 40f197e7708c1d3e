"""The run directory of a run that another trainer makes (`olr_cli.api`): recipe, prompts, steps, metrics.

Prompts are known only as they come, so the directory has them in a file of its own, prompts.jsonl, which its recipe
names as `data.train`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

from olr_cli.data.prompt_files import prompt_set, read_prompts
from olr_cli.data.prompts import Prompt, digested
from olr_cli.data.writers import encode
from olr_cli.errors import UserError
from olr_cli.recipe.schema import Recipe, changed_keys
from olr_cli.runs.directory import (
    PROMPTS,
    Status,
    begin_attempt,
    create_run,
    drop_leftovers,
    end_attempt,
    read_manifest,
    read_recipe,
    require_run,
    write_manifest,
    write_recipe,
)
from olr_cli.runs.locks import held
from olr_cli.runs.metrics import append_metrics, drop_metrics_after, sync_metrics
from olr_cli.runs.store import RunStore

Mark: TypeAlias = Callable[[Iterable[Prompt]], Sequence[Prompt]]


class ExternalRun:
    """A run directory that is being written; its lock is held until `close`.

    Attributes:
        path: the run directory.
        recipe: as it is written there.
        prompts: by id, those that have come so far.
        store: labels and rollouts.
        id: of the manifest; other attempts of the run have the same.
    """

    def __init__(self, path: Path, recipe: Recipe, mark: Mark, lock: ExitStack) -> None:
        self.path, self.recipe = path, recipe
        self.prompts: dict[str, Prompt] = {}
        self._digest = hashlib.sha256()
        self._mark = mark
        self._lock = lock

    @classmethod
    def create(cls, path: Path, recipe: Recipe, trainer: str, mark: Mark) -> ExternalRun:
        """Begin a run.

        Args:
            path: the run directory.
            recipe: of the run.
            trainer: name and version.
            mark: puts verified labels on prompts; the file has them as the trainer gave them.

        Raises:
            UserError: the folder holds a run already, is held by another process, or cannot be written.
        """
        if (path / "manifest.json").exists():
            raise UserError(
                f"{path} holds a run already ({read_manifest(path)['status']}); load the state that was saved with its"
                " checkpoint to continue it, or choose another run_dir"
            )
        lock = ExitStack()
        lock.enter_context(held(path, make=True, option="run_dir"))
        create_run(path, recipe)
        return cls(path, recipe, mark, lock)._begin(trainer, from_step=0)

    @classmethod
    def resume(
        cls, path: Path, recipe: Recipe, trainer: str, mark: Mark, *, run_id: str, step: int
    ) -> ExternalRun:
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
        lock = ExitStack()
        lock.enter_context(held(path, option="run_dir"))
        drop_leftovers(path)
        RunStore(path).drop_after(step)
        drop_metrics_after(path, step)
        write_recipe(path, recipe)
        run = cls(path, recipe, mark, lock)
        run._note(_read_prompts(path / PROMPTS))
        return run._begin(trainer, from_step=step)

    def _begin(self, trainer: str, *, from_step: int) -> ExternalRun:
        begin_attempt(self.path, from_step=from_step, data=self._facts, facts={"engine": trainer})
        self.id: str = read_manifest(self.path)["id"]
        self.store = RunStore(self.path)
        return self

    def add_prompts(self, prompts: Iterable[Prompt]) -> None:
        """Write the prompts that have come for the first time."""
        new = [prompt for prompt in prompts if prompt.prompt_id not in self.prompts]
        if not new:
            return
        self._note(new)
        with (self.path / PROMPTS).open("ab") as file:
            file.write(encode(prompt_set(new, PROMPTS), self.path / PROMPTS))
        write_manifest(self.path, {**read_manifest(self.path), "data": self._facts})

    def add_metrics(self, step: int, epoch: int, metrics: Mapping[str, float]) -> None:
        """Write the line of a step."""
        append_metrics(self.path, step, epoch, metrics)

    def sync(self) -> None:
        """Make sure that all steps are on the disk."""
        self.store.sync()
        if (self.path / "metrics.jsonl").exists():
            sync_metrics(self.path)

    def close(self, status: Status, *, steps: int, recipe: Recipe) -> None:
        """Note how the run ended, and let the directory go."""
        self.sync()
        if recipe != self.recipe:
            write_recipe(self.path, recipe)
        end_attempt(self.path, status, steps=steps)
        self._lock.close()

    def _note(self, prompts: Sequence[Prompt]) -> None:
        self.prompts |= {prompt.prompt_id: prompt for prompt in prompts}
        for marked in self._mark(prompts):
            self._digest.update(digested(marked))

    @property
    def _facts(self) -> dict[str, Any]:
        size = len(self.prompts)
        return {"train": {"source": PROMPTS, "digest": self._digest.hexdigest(), "prompts": size}}


def _read_prompts(file: Path) -> Sequence[Prompt]:
    """The prompts of the run so far; a last line that a kill has cut off is removed."""
    if not file.exists():
        return ()
    content = file.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        file.write_bytes(whole)
    return read_prompts(file).prompts if whole else ()
