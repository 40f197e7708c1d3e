"""The two tables of a run as Parquet shards, one pair of files per step.

    labels/step-000251.parquet                rollouts/step-000251.parquet

A shard is written under a temporary name and renamed, the rollouts first. A step is therefore complete as soon as its
labels exist. Shards are only forced to the disk when a checkpoint needs them (`RunStore.sync`), so an ordinary step
does not wait for the disk.

Merging old shards into blocks of 250 steps was tried. It paid from 5,000 steps on, while the paper's runs have 50 to
250, and every reader had to know two kinds of shard.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from olr_cli.answers import Judge, Vote
from olr_cli.errors import UserError
from olr_cli.files import sweep, sync, write_whole, writing
from olr_cli.grouping import gathered
from olr_cli.runs.directory import run_id
from olr_cli.runs.shards import (
    RESTORE,
    run_number,
    scan_shards,
    shard_path,
    step_of,
    stored_steps,
    table_schema,
    table_shards,
    whole_shards,
)
from olr_cli.supervision.history import History, Past

_SHARDS_OF_A_SCAN = 500
"""Number of shards in one query: few queries for many small runs, little memory for large ones."""

Columns = Mapping[str, Sequence[Any]]
"""The columns of one table, by name."""


class RunStore:
    """Writes the two tables of a run, labels and rollouts, and removes steps.

    Each step has one file per table (a shard). Missing folders of the tables are made.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._unsynced: list[Path] = []

    def append(self, step: int, labels: Columns, rollouts: Columns) -> tuple[Any, Any]:
        """Store a complete step; files of the same step are replaced.

        `labels` and `rollouts` are the columns of both tables, as name -> values.

        Returns:
            The labels and the rollouts as stored, each a `pyarrow.Table`.
        """
        stored_rollouts = self._write("rollouts", step, rollouts)
        return self._write("labels", step, labels), stored_rollouts

    @cached_property
    def _run_id(self) -> str:
        return run_id(self._run)

    def _write(self, table: str, step: int, columns: Columns) -> Any:
        """Write a step's file of one table, marked with the run's id, and return its rows as a `pyarrow.Table`."""
        shard = shard_path(self._run / table, step)
        with writing(shard):
            shard.parent.mkdir(exist_ok=True)
        arrow = arrow_table(table, columns)
        marked = arrow.replace_schema_metadata(
            {**arrow.schema.metadata, "olr.run": self._run_id}
        )
        # A shard is small and holds one step, so dictionaries and statistics would cost more than they save. With lz4,
        # writing would take a fifth less time. But a reader may take one wrong byte of the footer for another
        # compression, unnoticed.
        options = {
            "compression": "zstd",
            "use_dictionary": False,
            "write_statistics": False,
        }
        write_whole(
            shard, lambda path: pq.write_table(marked, path, **options), durable=False
        )
        self._unsynced.append(shard)
        return arrow

    def sync(self) -> None:
        """Force every file of rows written so far to the disk, and wait for it."""
        with writing(self._run):
            for shard in self._unsynced:
                sync(shard)
            for folder in {shard.parent for shard in self._unsynced}:
                sync(folder)
            sync(self._run)
        self._unsynced.clear()

    def drop_after(self, step: int) -> None:
        """Remove the rows of all steps after `step` from both tables, and the temporary files of interrupted writes.

        All labels are removed before any rollouts, and newer steps before older ones. A kill on the way thus leaves no
        gap in the complete steps.
        """
        for table in ("labels", "rollouts"):
            folder = self._run / table
            for number, shard in reversed(table_shards(folder).items()):
                if number > step:
                    shard.unlink()
            sweep(folder, is_held=True)


def arrow_table(table: str, columns: Columns) -> Any:
    """Return a `pyarrow.Table` with the schema of `table` (``labels`` or ``rollouts``).

    `columns` maps the name of each column to its values.
    """
    schema = table_schema(table)
    return pa.table(
        [pa.array(columns[field.name], field.type) for field in schema], schema=schema
    )


def scan_labels(run: Path) -> pl.LazyFrame:
    """Return the labels of the steps that are complete now, read lazily; the run may still be training.

    If somebody resumes the run meanwhile, the steps after its checkpoint are removed. Collecting the frame then raises
    FileNotFoundError, which `explain_removed_shard` turns into a sentence.

    Raises:
        UserError: no step is complete, a step is missing, or a file is damaged.
    """
    return scan_shards("labels", whole_shards([run], "labels"))


def scan_labels_of(runs: Sequence[Path]) -> Iterator[pl.LazyFrame]:
    """Yield the labels of all runs in a few lazy frames, each with several runs, in the order of `runs`.

    The column ``run`` is the number of the run within its frame, from 0. If somebody resumes a run meanwhile,
    collecting its frame raises FileNotFoundError.
    """
    # A frame per run would be slow for many small runs, and one frame for all runs might need too much memory.
    shards_so_far = itertools.accumulate(len(table_shards(run / "labels")) for run in runs)
    numbers = (shards // _SHARDS_OF_A_SCAN for shards in shards_so_far)
    for batch in gathered(zip(numbers, runs, strict=True)).values():
        of_batch = whole_shards(batch, "labels")
        rows = scan_shards("labels", of_batch, include_file_paths="shard")
        yield rows.with_columns(run=run_number(of_batch)).drop("shard")


def scan_rollouts(run: Path) -> pl.LazyFrame:
    """Return the rollouts of the steps that are complete now, read lazily.

    If somebody resumes the run meanwhile, collecting the frame raises FileNotFoundError.

    Raises:
        UserError: no step is complete, a step is missing, or a file is damaged.
    """
    return scan_shards("rollouts", whole_shards([run], "rollouts"))


def stored_responses(run: Path) -> list[str]:
    """Return the first hundred responses that a run has stored; empty before its first complete step."""
    if not stored_steps(run):
        return []
    return list(scan_rollouts(run).select("response").head(100).collect()["response"])


def read_rollout_steps(
    run: Path,
    columns: Sequence[str],
    steps: Container[int] | None = None,
    prompts: pl.Series | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield one frame of rollouts per complete step, in the order of training.

    Args:
        run: the run directory.
        columns: the columns to read.
        steps: the steps to read; by default all.
        prompts: prompt_ids of the rollouts to read; by default all.

    Raises:
        UserError: no step is complete, a step is missing, or a file is damaged.
        FileNotFoundError: a resume of the run has removed the steps after its checkpoint meanwhile.
    """
    for shard in whole_shards([run], "rollouts"):
        if steps is not None and step_of(shard.path) not in steps:
            continue
        rows = scan_shards("rollouts", [shard])
        if prompts is not None:
            # Filtered during the read: filtered afterwards, the other prompts' rows would stay in memory as long as
            # these.
            rows = rows.filter(pl.col("prompt_id").is_in(prompts.implode()))
        yield rows.select(columns).collect()


def stored_history(path: Path, judge: Judge) -> History:
    """Rebuild the history of each prompt, that is a summary of its visits, from a run's stored labels.

    `judge` decides which of the stored majority answers mean the same.

    Raises:
        UserError: the run has no complete step, the visits of a prompt are not 1, 2, 3, … without a gap, or a file is
            damaged.
    """
    # Also checks that labels and rollouts belong together, as every other reader does.
    whole_shards([path], "rollouts")
    columns = ("prompt_id", "visit", "majority_answer", "majority_count", "rollouts")
    labels = scan_labels(path).select(columns).cast({pl.Int32: pl.Int64}).collect()
    _require_all_visits(labels, path)
    # Keys are computed again, not stored: another version of the rules may have other keys.
    keys = judge.keys(labels["majority_answer"].drop_nulls().unique(maintain_order=True))
    # A run has far more visits than different majorities, so add up the visits that differ in nothing else.
    count = pl.col("majority_count")
    sums = labels.group_by("prompt_id", "majority_answer", "rollouts").agg(
        count.sum(), visits=pl.len(), moment=(pl.col("visit") * count).sum()
    )
    pasts: dict[str, Past] = {}
    for prompt_id, answer, rollouts, of_all, visits, moment in sums.iter_rows():
        key = None if answer is None else keys[answer]
        past = pasts.get(prompt_id, Past())
        vote = Vote.stored(key, answer, of_all, rollouts)
        pasts[prompt_id] = past.plus(vote, visits, moment)
    return History(pasts)


def _require_all_visits(labels: pl.DataFrame, path: Path) -> None:
    """Raise UserError if the visits of a prompt in `labels` are not 1, 2, … without a gap.

    `path` is the run, for the message. No visit may come twice in `labels`; `whole_shards` checks this before.
    """
    visit = pl.col("visit")
    of_prompts = labels.group_by("prompt_id").agg(
        visit.min(), last=visit.max(), visits=pl.len()
    )
    wrong = of_prompts.filter((visit != 1) | (pl.col("last") != pl.col("visits")))
    for prompt_id, _, last, visits in wrong.sort("prompt_id").head(1).iter_rows():
        raise UserError(
            f"the labels of {path} lack a visit, or have another one (prompt {prompt_id}: {visits} up to visit {last})",
            RESTORE,
        )
