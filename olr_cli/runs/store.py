"""The two tables of a run as Parquet shards, a pair of files a step.

    labels/step-000001.parquet      rollouts/step-000001.parquet

A shard is written under a temporary name and renamed, the rollouts first: where the labels shard stands, the
step is complete. Shards reach the disk for good when a checkpoint needs them (`RunStore.sync`), so an ordinary
step does not wait for the disk.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from olr_cli.errors import UserError, first_line
from olr_cli.files import sync, write_whole, writing
from olr_cli.supervision.records import SCHEMA_VERSION, LabelRecord, Record, RolloutRecord, arrow_schema

if TYPE_CHECKING:
    import polars as pl

_RECORDS: dict[str, type[LabelRecord] | type[RolloutRecord]] = {
    "labels": LabelRecord,
    "rollouts": RolloutRecord,
}
_SHARD = re.compile(r"step-(\d{6,})\.parquet")
_SHARD_IN_TEXT = re.compile(rf"(?:[^':]*/)?(?:{'|'.join(_RECORDS)})/{_SHARD.pattern}")


class RunStore:
    """Writes and prunes the tables of one run.

    Args:
        run: the run directory; the table folders are made when they are needed.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._unsynced: list[Path] = []

    def append(self, step: int, labels: Sequence[LabelRecord], rollouts: Sequence[RolloutRecord]) -> None:
        """Store a complete step.

        Raises:
            UserError: the disk is full or not writable; the step is then not in the store.
        """
        self._write("rollouts", step, rollouts)
        self._write("labels", step, labels)

    def _write(self, table: str, step: int, records: Sequence[Record]) -> None:
        import pyarrow.parquet as pq

        shard = self._run / table / f"step-{step:06d}.parquet"
        with writing(shard):
            shard.parent.mkdir(exist_ok=True)
        arrow = arrow_table(table, records)
        # A shard is small and of one step: dictionaries and statistics would cost more than they save.
        options = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
        write_whole(shard, lambda path: pq.write_table(arrow, path, **options), durable=False)
        self._unsynced.append(shard)

    def sync(self) -> None:
        """Wait until every shard written so far is on the disk.

        Raises:
            UserError: the disk is full, which some file systems say only now.
        """
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
            shards = {_step_of(shard): shard for shard in (self._run / table).glob("*.parquet")}
            for number in sorted((n for n in shards if n is not None and n > step), reverse=True):
                shards[number].unlink()
            for leftover in (self._run / table).glob(".*.tmp"):
                leftover.unlink()


def arrow_table(table: str, records: Iterable[Record]) -> Any:
    """Records as a `pyarrow.Table` with the schema of `table` and its version in the metadata."""
    import pyarrow as pa

    kind = _RECORDS[table]
    names = [field.name for field in fields(kind)]
    rows = list(map(attrgetter(*names), records))
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    schema = arrow_schema(kind)  # type: ignore[arg-type]  # mypy takes a class of two for unhashable
    schema = schema.with_metadata({"olr.table": table, "olr.schema_version": str(SCHEMA_VERSION)})
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def stored_steps(run: Path) -> list[int]:
    """The complete steps of a run, ascending."""
    steps = {table: {_step_of(shard) for shard in (run / table).glob("*.parquet")} for table in _RECORDS}
    return sorted(step for step in steps["labels"] & steps["rollouts"] if step is not None)


def newest_shard(run: Path) -> int:
    """The newest step of which there is a shard, complete or not; 0 without one."""
    shards = [shard for table in _RECORDS for shard in (run / table).glob("*.parquet")]
    return max((_step_of(shard) or 0 for shard in shards), default=0)


def scan_labels(run: Path) -> pl.LazyFrame:
    """The labels table: the steps that are complete now, also of a run that is being written.

    Collecting it raises FileNotFoundError if the run is resumed meanwhile, which removes the steps after the checkpoint
    (`told_of_removed_shard`).

    Raises:
        UserError: there is none yet, or a shard is torn, foreign or of a newer version; the shard is named.
    """
    return _scan(run, "labels")


def scan_rollouts(run: Path) -> pl.LazyFrame:
    """The rollouts table, complete steps only; errors as for `scan_labels`."""
    return _scan(run, "rollouts")


def read_rollout_steps(
    run: Path, columns: Sequence[str], steps: Container[int] | None = None
) -> Iterator[pl.DataFrame]:
    """The rollouts of one complete step after the other, in the order they were made; errors as for `scan_labels`.

    Args:
        run: the run directory.
        columns: to read.
        steps: only these of the complete steps; by default all.
    """
    import polars as pl

    for shard in _shards(run, "rollouts"):
        if steps is None or _step_of(shard) in steps:
            yield pl.read_parquet(shard, columns=list(columns))


def _scan(run: Path, table: str) -> pl.LazyFrame:
    import polars as pl

    return pl.scan_parquet(_shards(run, table))


def _shards(run: Path, table: str) -> list[Path]:
    """The shards of the complete steps, each of them checked."""
    try:
        return _checked(run, table)
    except FileNotFoundError:
        # A resume has removed steps since they were listed; what it keeps is there to stay.
        return _checked(run, table)


def _checked(run: Path, table: str) -> list[Path]:
    shards = [run / table / f"step-{step:06d}.parquet" for step in stored_steps(run)]
    if not shards:
        raise UserError(f"{run} holds no complete step yet; train it for at least one step")
    for shard in shards:
        check_shard(shard, table)
    return shards


def check_shard(shard: Path, table: str) -> None:
    """Make sure that a file is a whole shard of `table`, of a version this program reads.

    Raises:
        UserError: it is torn, foreign, or newer than this program.
        FileNotFoundError: it has gone.
    """
    import polars as pl

    try:
        # A quarter of the time that pyarrow's takes, which counts: there is a shard a step.
        marks = pl.read_parquet_metadata(shard)
    except FileNotFoundError:
        raise
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UserError(
            f"{shard} is torn or not Parquet ({first_line(error)}); restore it from a copy, or train anew in another"
            " --run-dir (of an unfinished run, --resume makes the steps after the last checkpoint again)"
        ) from None
    if marks.get("olr.table") != table:
        raise UserError(f"{shard} is not a shard of olr's {table} table; move it out of the run directory")
    version = int(marks.get("olr.schema_version", "0"))
    if version > SCHEMA_VERSION:
        raise UserError(
            f"{shard} was written by a newer olr (schema {version}, this one reads up to {SCHEMA_VERSION}); upgrade olr"
        )


def told_of_removed_shard(error: FileNotFoundError) -> str | None:
    """A sentence for the user if the missing file is a shard, which went after it had been found; else None."""
    shard = _SHARD_IN_TEXT.search(str(error))
    if shard is None:
        return None
    return (
        f"{shard[0].strip()} was removed while the run was read: the run was resumed from its last checkpoint, and"
        " makes the later steps again; repeat the command"
    )


def _step_of(shard: Path) -> int | None:
    match = _SHARD.fullmatch(shard.name)
    return int(match.group(1)) if match else None
