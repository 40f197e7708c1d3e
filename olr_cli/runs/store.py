"""The two tables of a run as Parquet shards: one pair of files per step.

    labels/step-000251.parquet                rollouts/step-000251.parquet

A shard is written under a temporary name and renamed, the rollouts first: where the labels of a step stand, the
step is complete. Shards reach the disk for good when a checkpoint needs them (`RunStore.sync`), so an ordinary
step does not wait for the disk. Merging old shards into blocks of 250 steps was tried: it paid from 5,000 steps on,
where the paper's runs have 50 to 250, and every reader had to know two kinds of shard.
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

Columns = Mapping[str, Sequence[Any]]
"""The columns of one of the tables, by name."""


class RunStore:
    """Writes and prunes the tables of one run, whose folders are made when they are needed."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._unsynced: list[Path] = []

    def append(self, step: int, labels: Columns, rollouts: Columns) -> tuple[Any, Any]:
        """Store a complete step from the columns of both tables; returns both as they are stored (`pyarrow.Table`)."""
        stored_rollouts = self._write("rollouts", step, rollouts)
        return self._write("labels", step, labels), stored_rollouts

    @cached_property
    def _run_id(self) -> str:
        return run_id(self._run)

    def _write(self, table: str, step: int, columns: Columns) -> Any:
        shard = shard_path(self._run / table, step)
        with writing(shard):
            shard.parent.mkdir(exist_ok=True)
        arrow = arrow_table(table, columns)
        marked = arrow.replace_schema_metadata(
            {**arrow.schema.metadata, "olr.run": self._run_id}
        )
        # A shard is small and of one step: dictionaries and statistics would cost more than they save. lz4 would save a
        # fifth of the time, but a reader may take one wrong byte of the footer for another compression, unnoticed.
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
        """Wait until every shard written so far is on the disk."""
        with writing(self._run):
            for shard in self._unsynced:
                sync(shard)
            for folder in {shard.parent for shard in self._unsynced}:
                sync(folder)
            sync(self._run)
        self._unsynced.clear()

    def drop_after(self, step: int) -> None:
        """Remove the shards of later steps, and what an interrupted write left behind.

        The labels go first and the newest step first, so that the complete steps are 1, 2, … at any moment, for
        whoever reads the run meanwhile and after a kill.
        """
        for table in ("labels", "rollouts"):
            folder = self._run / table
            for number, shard in reversed(table_shards(folder).items()):
                if number > step:
                    shard.unlink()
            sweep(folder, is_held=True)


def arrow_table(table: str, columns: Columns) -> Any:
    """Columns as a `pyarrow.Table` with the schema of `table`."""
    schema = table_schema(table)
    return pa.table(
        [pa.array(columns[field.name], field.type) for field in schema], schema=schema
    )


def scan_labels(run: Path) -> pl.LazyFrame:
    """The labels table: the steps that are complete now, also of a run that is being written.

    Collecting it raises FileNotFoundError if the run is resumed meanwhile, which removes the steps after the checkpoint
    (`olr_cli.runs.shards.explain_removed_shard`).
    """
    return scan_shards("labels", whole_shards([run], "labels"))


def scan_labels_of(runs: Sequence[Path]) -> Iterator[pl.LazyFrame]:
    """The labels of all the runs, with a column ``run`` that counts the runs of a scan, some runs to a scan.

    A query costs more than the rows of a small run, and the rows of many large ones more memory than there may be.
    Errors are those of `scan_labels`.
    """
    shards_so_far = itertools.accumulate(len(table_shards(run / "labels")) for run in runs)
    numbers = (shards // _SHARDS_OF_A_SCAN for shards in shards_so_far)
    for batch in gathered(zip(numbers, runs, strict=True)).values():
        of_batch = whole_shards(batch, "labels")
        rows = scan_shards("labels", of_batch, include_file_paths="shard")
        yield rows.with_columns(run=run_number(of_batch)).drop("shard")


def scan_rollouts(run: Path) -> pl.LazyFrame:
    """The rollouts table, complete steps only; errors as for `scan_labels`."""
    return scan_shards("rollouts", whole_shards([run], "rollouts"))


def stored_responses(run: Path) -> list[str]:
    """A hundred of a run's responses; none before the first step is stored."""
    if not stored_steps(run):
        return []
    return list(scan_rollouts(run).select("response").head(100).collect()["response"])


def read_rollout_steps(
    run: Path,
    columns: Sequence[str],
    steps: Container[int] | None = None,
    prompts: pl.Series | None = None,
) -> Iterator[pl.DataFrame]:
    """Columns of the rollouts of all complete steps, or of some, step by step, in the order they were made.

    With `prompts`, ids, only those of these prompts. Errors are those of `scan_labels`.
    """
    for shard in whole_shards([run], "rollouts"):
        if steps is not None and step_of(shard.path) not in steps:
            continue
        rows = scan_shards("rollouts", [shard])
        if prompts is not None:
            # While they are read: rows that are left out later stay in memory as long as those that are kept.
            rows = rows.filter(pl.col("prompt_id").is_in(prompts.implode()))
        yield rows.select(columns).collect()


def stored_history(path: Path, judge: Judge) -> History:
    """The history in a run's labels table; `judge` finds the classes of its majority answers."""
    # The labels must be of the rollouts, as every other reader asks
    whole_shards([path], "rollouts")
    columns = ("prompt_id", "visit", "majority_answer", "majority_count", "rollouts")
    labels = scan_labels(path).select(columns).cast({pl.Int32: pl.Int64}).collect()
    _require_all_visits(labels, path)
    # Keys are made anew, not stored: those of another version of the rules need not equal today's.
    keys = judge.keys(labels["majority_answer"].drop_nulls().unique(maintain_order=True))
    # A run has far more visits than majorities: visits that differ in nothing else are added together.
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
    """Make sure that the visits of each prompt are 1, 2, …; none comes twice in a run (`whole_shards`)."""
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
