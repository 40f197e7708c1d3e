"""The only writer of a run directory, for every trainer: steps, metrics, checkpoints, and how an attempt ended.

    with RunWriter.create(path, recipe) as writer:        # or `resume`, then `roll_back`
        writer.begin(after=0, data=…, facts=…)
        tables = writer.store(step, decided.labels, decided.rollouts)
        writer.log(step, epoch, metrics)
        writer.checkpoint(step, fill)
        writer.close("finished")

It holds the run's lock until it is closed, and prints nothing. If the command holds the lock and a controller in
another process writes, the controller joins the command's attempt.
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
"""Adds verified labels to prompts."""


class RunWriter(AbstractContextManager["RunWriter"]):
    """Writes to a run directory during one attempt, which lasts from a start or resume until the run stops.

    The writer holds the run's lock until it is closed or its block ends. After `join`, another process holds the lock.
    """

    def __init__(
        self, path: Path, recipe: Recipe, lock: ExitStack, joined: int | None = None
    ) -> None:
        self.path, self.recipe = path, recipe
        self.prompts: dict[str, Prompt] = {}
        """Prompt id -> prompt, from `add_prompts`: the prompts of another trainer are known only when they arrive."""
        self._digest = hashlib.sha256()
        self._store = RunStore(path)
        self._lock = lock
        self._joined = joined
        self._is_open = False

    @classmethod
    def create(
        cls, path: Path, recipe: Recipe, *, kind: Kind = "training", arm: str = ""
    ) -> RunWriter:
        """Make a run directory, lock it and return its writer.

        `path` must be empty or missing. `kind` says which command makes the run. In a sweep, `arm` is the common name
        of all runs that differ only in their seed; else it is empty.

        Raises:
            UserError: the folder holds a run or other files, or it cannot be made or locked.
        """
        with at("run_dir"), ExitStack() as lock:
            lock.enter_context(held(path, make=True))
            create_run(path, recipe, kind=kind, arm=arm)
            return cls(path, recipe, lock.pop_all())

    @classmethod
    def resume(cls, path: Path, recipe: Recipe) -> RunWriter:
        """Lock an existing run and return its writer. Files change only once `roll_back` is called.

        Raises:
            UserError: another process holds the run, or the file with the user's label rule has changed.
        """
        with at("run_dir"), ExitStack() as lock:
            lock.enter_context(held(path))
            _require_same_rule(path, recipe)
            return cls(path, recipe, lock.pop_all())

    @classmethod
    def join(cls, path: Path, recipe: Recipe) -> RunWriter:
        """Return a writer for a run that another process has started or resumed, and keeps locked.

        If the run is resumed again later, `store`, `log` and `checkpoint` raise UserError.
        """
        return cls(path, recipe, ExitStack(), joined=len(read_manifest(path)["attempts"]))

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool | None:
        """Release the run. If an error ends an attempt that has begun, note the attempt's status in the manifest.

        After a stop on request, the status is ``interrupted``. After any other error, it is the error's attribute
        `run_status` or, if there is none, ``failed``. The error then propagates to the caller.
        """
        if error is not None and self._is_open:
            # On a full disk even this note may fail; the user should see the first error.
            is_stop = isinstance(error, Interrupted | KeyboardInterrupt | BrokenPipeError)
            with suppress(UserError, OSError):
                self._end(
                    "interrupted" if is_stop else getattr(error, "run_status", "failed")
                )
        return self._lock.__exit__(kind, error, trace)

    def roll_back(self, step: int, damaged: Iterable[int] = ()) -> None:
        """Remove everything stored after `step`, and all that interrupted writes have left.

        The checkpoints of the steps in `damaged` are renamed, so that they can be written again. Then old checkpoints
        are removed: the best one stays, and as many of the newest as the recipe keeps.
        """
        drop_unfinished(self.path)
        self.drop_after(step)
        # Step 0 has a line too, the held-out score before training; a run that starts again writes it again.
        drop_metrics_after(self.path, step if step else -1)
        # Last: a kill before this point must not leave steps without checkpoints, as if somebody had deleted them.
        for number in damaged:
            set_aside(checkpoint_path(self.path, number))
        keep_newest(self.path, read_recipe(self.path).train.keep_checkpoints)

    def begin(
        self, *, after: int, facts: Mapping[str, Any], data: Mapping[str, Any] | None = None
    ) -> None:
        """Note in the manifest that this process begins an attempt, that is a start or a resume of the run.

        Args:
            after: number of steps that are complete already.
            facts: key of the manifest -> fact about this process, such as its device. They go into the attempt's entry,
                and also to the top level, where they replace those of the last attempt.
            data: the manifest's entry about the data sets. By default, it describes the prompts received so far.
        """
        manifest = read_manifest(self.path)
        circumstances = {
            "versions": versions(),
            "recipe_digest": self.recipe.digest(),
            **facts,
        }
        manifest |= {
            "status": "running",
            "data": self._prompt_facts if data is None else data,
        }
        manifest |= rule_facts(self.recipe.method) | circumstances
        process = {
            "started": now(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "from_step": after,
        }
        manifest["attempts"].append(process | circumstances)
        write_manifest(self.path, manifest)
        # Now, not at the end: however this attempt ends, a resume reads the number of epochs from this file.
        if read_recipe(self.path) != self.recipe:
            write_recipe(self.path, self.recipe)
        self._is_open = True

    def store(
        self, step: int, labels: Columns, rollouts: Columns
    ) -> tuple[pa.Table, pa.Table]:
        """Store a complete step. `labels` and `rollouts` are the columns of both tables, as name -> values.

        The labels are written last, so a step that has labels is complete.

        Returns:
            The labels and the rollouts as stored.
        """
        self._require_attempt()
        return self._store.append(step, labels, rollouts)

    def log(self, step: int, epoch: int, metrics: Mapping[str, float | None]) -> None:
        """Append a step's line to metrics.jsonl; a metric of None becomes null.

        Call it after `store` and after the step's held-out evaluation, if any.
        """
        self._require_attempt()
        append_metrics(self.path, step, epoch, metrics)

    def add_prompts(self, prompts: Iterable[Prompt], mark: Mark) -> None:
        """Append new prompts to the run's file of prompts, and update the manifest.

        It is for another trainer's prompts, which arrive step by step.

        Args:
            prompts: prompts that have arrived; those that came before are skipped.
            mark: function that adds the user's verified labels to prompts. These labels are not written to the file,
                but the digest of the data in the manifest covers them.
        """
        new = [prompt for prompt in prompts if prompt.prompt_id not in self.prompts]
        if not new:
            return
        self._add(new, mark)
        with (self.path / PROMPTS).open("ab") as file:
            file.write(encode(prompt_set(new, PROMPTS), self.path / PROMPTS))
        write_manifest(self.path, {**read_manifest(self.path), "data": self._prompt_facts})

    def read_prompts(self, mark: Mark) -> None:
        """Read the run's file of prompts, which earlier attempts have written, into `self.prompts`.

        A last line that a kill cut off is removed from the file. Without a file, nothing happens. `mark` is a function
        that adds the user's verified labels to prompts. `self.prompts` stays without these labels, but the digest of
        the data covers them.
        """
        file = self.path / PROMPTS
        if not file.exists():
            return
        content = regular(file).read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            file.write_bytes(whole)
        if whole:
            self._add(read_prompts(file).prompts, mark)

    def sync(self) -> None:
        """Wait until all stored steps and metrics are on the disk."""
        self._store.sync()
        if (lines := self.path / "metrics.jsonl").exists():
            with writing(lines):
                sync(lines)

    def checkpoint(self, step: int, fill: Callable[[Path], None], **state: Any) -> None:
        """Write the checkpoint after `step`, and remove old ones.

        `fill` writes the engine's files into the folder that it receives. `state` has entries for the checkpoint's
        ``trainer.json``, in addition to the step and the run's id.
        """

        def fill_alone(folder: Path) -> None:
            fill(folder)
            trainer = {"step": step, "run": run_id(self.path), **state}
            (folder / "trainer.json").write_text(json.dumps(trainer), encoding="utf-8")
            # Checked again: filling takes long, and another attempt may have begun meanwhile.
            self._require_attempt()

        self._require_attempt()
        # First, because after a power cut no run can continue from a checkpoint whose steps are missing.
        self.sync()
        write_checkpoint(
            self.path, step, fill_alone, keep=self.recipe.train.keep_checkpoints
        )

    def drop_after(self, step: int) -> None:
        """Remove the rows of all steps after `step` from both tables."""
        self._store.drop_after(step)

    def close(self, status: Status, *, recipe: Recipe | None = None, **facts: Any) -> None:
        """Note in the manifest that the attempt ended with `status`, such as ``finished``, and release the run.

        If the attempt has added to the run's recipe, pass the new `recipe`. `facts` are more entries of the manifest.
        """
        if recipe is not None and recipe != self.recipe:
            # The manifest first: `read_recipe` accepts the digest of any attempt or the manifest's, so a kill between
            # the two writes leaves a readable run.
            write_manifest(
                self.path, {**read_manifest(self.path), "recipe_digest": recipe.digest()}
            )
            write_recipe(self.path, recipe)
        self._end(status, **facts)
        self._lock.close()

    def _end(self, status: Status, **facts: Any) -> None:
        """Note the end of the attempt in the manifest; `facts` are more entries of the manifest.

        Limits of the file system that the attempt had to work around are noted too.
        """
        self._is_open = False
        manifest = read_manifest(self.path)
        manifest |= {"status": status, **facts}
        manifest["attempts"][-1] |= {"ended": now(), "outcome": status}
        if departures:
            manifest["attempts"][-1]["file_system"] = sorted(departures)
        write_manifest(self.path, manifest)

    def _require_attempt(self) -> None:
        """Raise UserError if another process has resumed the run since this writer joined an attempt."""
        if self._joined is not None and self._joined != len(
            read_manifest(self.path)["attempts"]
        ):
            raise UserError(
                f"{self.path} was resumed by another process, so this one has stopped",
                "let that one go on",
            )

    def _add(self, prompts: Sequence[Prompt], mark: Mark) -> None:
        """Add prompts to `self.prompts`, and to the digest of the data.

        `mark` is a function that adds the user's verified labels to prompts. Only the digest covers these labels.
        """
        self.prompts |= {prompt.prompt_id: prompt for prompt in prompts}
        for marked in mark(prompts):
            self._digest.update(digested(marked))

    @property
    def _prompt_facts(self) -> dict[str, Any]:
        """The manifest's entry ``data`` for prompts that arrive step by step: their file, digest and number."""
        size = len(self.prompts)
        return {
            "train": {
                "source": PROMPTS,
                "digest": self._digest.hexdigest(),
                "prompts": size,
            }
        }


def _require_same_rule(path: Path, recipe: Recipe) -> None:
    """Raise UserError if the run's label rule is a user's function and its file has changed since the run began."""
    before, now = read_manifest(path).get("rule"), rule_facts(recipe.method).get("rule")
    if before and now and before["digest"] != now["digest"]:
        raise UserError(
            f"{path} was begun with another text of {before['function']}, which stands in its manifest.json",
            "restore it, or start a new run",
        )
