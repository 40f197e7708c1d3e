"""The one writer of a run directory, whoever trains: its steps, metrics and checkpoints, and how an attempt ended.

    with RunWriter.create(path, recipe) as writer:        # or `resume`, then `roll_back`
        writer.begin(after=0, data=…, facts=…)
        tables = writer.store(step, decided.labels, decided.rollouts)
        writer.log(step, epoch, metrics)
        writer.checkpoint(step, fill)
        writer.close("finished")

It holds the run's lock until it is closed, and shows nothing. Where a controller in another process writes while the
command holds the lock, that one joins the attempt.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from olr_cli.data.interchange import prompt_set
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.prompts import Prompt, digested
from olr_cli.data.writers import encode
from olr_cli.errors import UserError, at
from olr_cli.files import departures, regular, sync, writing
from olr_cli.recipe.schema import Recipe
from olr_cli.runs.checkpoints import (
    checkpoint_path,
    drop_unfinished,
    keep_newest,
    set_aside,
    write_checkpoint,
)
from olr_cli.runs.directory import (
    PROMPTS,
    Kind,
    Status,
    create_run,
    now,
    read_manifest,
    read_recipe,
    run_id,
    versions,
    write_manifest,
    write_recipe,
)
from olr_cli.runs.interrupts import Interrupted
from olr_cli.runs.locks import held
from olr_cli.runs.metrics import append_metrics, drop_metrics_after
from olr_cli.runs.store import Columns, RunStore
from olr_cli.supervision.own_rule import rule_facts

Mark = Callable[[Iterable[Prompt]], Sequence[Prompt]]
"""Puts verified labels on prompts."""


class RunWriter(AbstractContextManager["RunWriter"]):
    """Writes one attempt of a run."""

    def __init__(
        self, path: Path, recipe: Recipe, lock: ExitStack, joined: int | None = None
    ) -> None:
        self.path, self.recipe = path, recipe
        self.prompts: dict[str, Prompt] = {}
        """By id, those that `add_prompts` got: of a run whose prompts are known only as they come."""
        self._digest = hashlib.sha256()
        self._store = RunStore(path)
        self._lock = lock
        self._joined = joined
        self._is_open = False

    @classmethod
    def create(
        cls, path: Path, recipe: Recipe, *, kind: Kind = "training", arm: str = ""
    ) -> RunWriter:
        """Make a run directory and hold it; see `create_run`."""
        with at("run_dir"), ExitStack() as lock:
            lock.enter_context(held(path, make=True))
            create_run(path, recipe, kind=kind, arm=arm)
            return cls(path, recipe, lock.pop_all())

    @classmethod
    def resume(cls, path: Path, recipe: Recipe) -> RunWriter:
        """Hold a run that is there; nothing is changed before `roll_back`."""
        with at("run_dir"), ExitStack() as lock:
            lock.enter_context(held(path))
            _require_same_rule(path, recipe)
            return cls(path, recipe, lock.pop_all())

    @classmethod
    def join(cls, path: Path, recipe: Recipe) -> RunWriter:
        """Join the attempt of another process, which holds the lock; every write checks that it is still the latest."""
        return cls(path, recipe, ExitStack(), joined=len(read_manifest(path)["attempts"]))

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool | None:
        """Let the run go; an attempt that an error ends is noted with the status that the error names."""
        if error is not None and self._is_open:
            # On a full disk even this note may fail; the reason to report is the first error.
            is_stop = isinstance(error, Interrupted | KeyboardInterrupt | BrokenPipeError)
            with suppress(UserError, OSError):
                self._end(
                    "interrupted" if is_stop else getattr(error, "run_status", "failed")
                )
        return self._lock.__exit__(kind, error, trace)

    def roll_back(self, step: int, damaged: Iterable[int] = ()) -> None:
        """Remove what is stored after a step, and what interrupted writes left; set damaged checkpoints aside."""
        drop_unfinished(self.path)
        self.drop_after(step)
        # Step 0 has a line too, the held-out score before training: a run that starts anew writes it again.
        drop_metrics_after(self.path, step if step else -1)
        # Last: a kill in between would leave steps without their checkpoints, as if somebody had removed them.
        for number in damaged:
            set_aside(checkpoint_path(self.path, number))
        keep_newest(self.path, read_recipe(self.path).train.keep_checkpoints)

    def begin(
        self, *, after: int, facts: Mapping[str, Any], data: Mapping[str, Any] | None = None
    ) -> None:
        """Note in the manifest that this process works on the run.

        Args:
            after: complete steps so far.
            facts: what the process works with (device, threads …); kept for each attempt, the latest at the top too.
            data: the data sets, which are the same in every attempt; by default the prompts that came so far.
        """
        manifest = read_manifest(self.path)
        working_with = {
            "versions": versions(),
            "recipe_digest": self.recipe.digest(),
            **facts,
        }
        manifest |= {
            "status": "running",
            "data": self._prompt_facts if data is None else data,
        }
        manifest |= rule_facts(self.recipe.method) | working_with
        process = {
            "started": now(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "from_step": after,
        }
        manifest["attempts"].append(process | working_with)
        write_manifest(self.path, manifest)
        # Now, not at the end: wherever this attempt ends, a resume takes the number of epochs from here.
        if read_recipe(self.path) != self.recipe:
            write_recipe(self.path, self.recipe)
        self._is_open = True

    def store(
        self, step: int, labels: Columns, rollouts: Columns
    ) -> tuple[pa.Table, pa.Table]:
        """Store what was decided about a complete step, the labels last; both tables as they are stored."""
        self._require_attempt()
        return self._store.append(step, labels, rollouts)

    def log(self, step: int, epoch: int, metrics: Mapping[str, float | None]) -> None:
        """Write a step's line of metrics; apart from `store`, as held-out evaluation lies between."""
        self._require_attempt()
        append_metrics(self.path, step, epoch, metrics)

    def add_prompts(self, prompts: Iterable[Prompt], mark: Mark) -> None:
        """Write the prompts that have not come before, as they came; the data's digest is of the marked ones."""
        new = [prompt for prompt in prompts if prompt.prompt_id not in self.prompts]
        if not new:
            return
        self._note(new, mark)
        with (self.path / PROMPTS).open("ab") as file:
            file.write(encode(prompt_set(new, PROMPTS), self.path / PROMPTS))
        write_manifest(self.path, {**read_manifest(self.path), "data": self._prompt_facts})

    def read_prompts(self, mark: Mark) -> None:
        """Read the prompts that came in earlier attempts; a last line that a kill has cut off is removed."""
        file = self.path / PROMPTS
        if not file.exists():
            return
        content = regular(file).read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            file.write_bytes(whole)
        if whole:
            self._note(read_prompts(file).prompts, mark)

    def sync(self) -> None:
        """Make sure that all steps are on the disk."""
        self._store.sync()
        if (lines := self.path / "metrics.jsonl").exists():
            with writing(lines):
                sync(lines)

    def checkpoint(self, step: int, fill: Callable[[Path], None], **state: Any) -> None:
        """Write the checkpoint after a step: the files that `fill` puts into a folder, and where the trainer stands."""

        def fill_alone(folder: Path) -> None:
            fill(folder)
            stands = {"step": step, "run": run_id(self.path), **state}
            (folder / "trainer.json").write_text(json.dumps(stands), encoding="utf-8")
            self._require_attempt()  # again: filling takes long, and another attempt may have begun

        self._require_attempt()
        # First: after a power cut, a run cannot continue from a checkpoint whose steps are missing.
        self.sync()
        write_checkpoint(
            self.path, step, fill_alone, keep=self.recipe.train.keep_checkpoints
        )

    def drop_after(self, step: int) -> None:
        """Remove the records of later steps."""
        self._store.drop_after(step)

    def close(self, status: Status, *, recipe: Recipe | None = None, **facts: Any) -> None:
        """Note how the attempt ended, facts about the run, and the recipe if more of it is known; let the run go."""
        if recipe is not None and recipe != self.recipe:
            # First, so that `read_recipe` finds the digest of the one or the other, wherever a kill comes.
            write_manifest(
                self.path, {**read_manifest(self.path), "recipe_digest": recipe.digest()}
            )
            write_recipe(self.path, recipe)
        self._end(status, **facts)
        self._lock.close()

    def _end(self, status: Status, **facts: Any) -> None:
        self._is_open = False
        manifest = read_manifest(self.path)
        manifest |= {"status": status, **facts}
        manifest["attempts"][-1] |= {"ended": now(), "outcome": status}
        if departures:
            manifest["attempts"][-1]["file_system"] = sorted(departures)
        write_manifest(self.path, manifest)

    def _require_attempt(self) -> None:
        if self._joined is not None and self._joined != len(
            read_manifest(self.path)["attempts"]
        ):
            raise UserError(
                f"{self.path} was resumed by another process, so this one has stopped",
                "let that one go on",
            )

    def _note(self, prompts: Sequence[Prompt], mark: Mark) -> None:
        self.prompts |= {prompt.prompt_id: prompt for prompt in prompts}
        for marked in mark(prompts):
            self._digest.update(digested(marked))

    @property
    def _prompt_facts(self) -> dict[str, Any]:
        size = len(self.prompts)
        return {
            "train": {
                "source": PROMPTS,
                "digest": self._digest.hexdigest(),
                "prompts": size,
            }
        }


def _require_same_rule(path: Path, recipe: Recipe) -> None:
    """Refuse to go on by a label rule whose text has changed, as by a recipe that has."""
    before, now = read_manifest(path).get("rule"), rule_facts(recipe.method).get("rule")
    if before and now and before["digest"] != now["digest"]:
        raise UserError(
            f"{path} was begun with another text of {before['function']}, which stands in its manifest.json",
            "restore it, or start a new run",
        )
