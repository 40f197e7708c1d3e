"""The shards of a run, a pair of Parquet files per step: where they are, whether they are whole, and what damage is.

    labels/step-000251.parquet                rollouts/step-000251.parquet

Every reader goes through `whole_shards`; store.py writes shards and makes tables of them.
"""

from __future__ import annotations

import itertools
import os
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa

from olr_cli.errors import UserError, first_line
from olr_cli.files import system_problem
from olr_cli.runs.directory import run_id
from olr_cli.supervision.types import (
    SCHEMA_VERSION,
    LabelRecord,
    RolloutRecord,
    arrow_schema,
)

_RECORDS: dict[str, type[LabelRecord] | type[RolloutRecord]] = {
    "labels": LabelRecord,
    "rollouts": RolloutRecord,
}

_SHARD = re.compile(r"step-(\d{6,9})\.parquet")
_SHARD_IN_TEXT = re.compile(rf"(?:[^':]*/)?(?:{'|'.join(_RECORDS)})/{_SHARD.pattern}")
_SHARDS_OF_A_QUERY = 100
RESTORE = (
    "restore it from a copy, or train anew in another run directory (of an unfinished run, a resume makes the steps"
    " after the last checkpoint again)"
)
_DECODERS = ("polars", "pyo3_runtime", "pyarrow")
"""Modules of decoders' errors; pyo3_runtime: a panic in polars."""


class Shard(NamedTuple):
    """A shard that is whole, with what changes when its bytes do: what was read from an equal one need not be again."""

    path: Path
    is_of_today: bool
    """Whether it has exactly the columns of today."""
    modified_ns: int
    size: int

    @classmethod
    def at(cls, path: Path, table: str, run: str = "") -> Shard:
        """Look at a shard of `table`; errors as of `check_shard`."""
        is_of_today, status = check_shard(path, table, run), path.stat()
        return cls(path, is_of_today, status.st_mtime_ns, status.st_size)


def shard_path(folder: Path, step: int) -> Path:
    """The file of a step's rows in a table's folder."""
    return folder / f"step-{step:06d}.parquet"


def step_of(shard: Path) -> int:
    return int(shard.stem.removeprefix("step-"))


def table_shards(folder: Path) -> dict[int, Path]:
    """Step -> its shard in a table's folder, steps ascending; what is no file is no shard."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        named = ((_SHARD.fullmatch(entry.name), entry) for entry in entries)
        steps = sorted(
            (int(name[1]), entry.name) for name, entry in named if name and entry.is_file()
        )
        return {step: folder / name for step, name in steps}
    return {}


@cache
def table_schema(table: str) -> Any:
    """The `pyarrow.Schema` of `table`, with its version in the metadata."""
    schema = arrow_schema(_RECORDS[table])  # type: ignore[arg-type]  # mypy takes a class of two for unhashable
    return schema.with_metadata(
        {"olr.table": table, "olr.schema_version": str(SCHEMA_VERSION)}
    )


@cache
def _polars_schema(table: str) -> pl.Schema:
    empty = pl.from_arrow(table_schema(table).empty_table())
    assert isinstance(empty, pl.DataFrame)
    return empty.schema


def stored_steps(run: Path) -> list[int]:
    """The complete steps of a run, ascending."""
    return sorted(set.intersection(*(set(table_shards(run / table)) for table in _RECORDS)))


def newest_shard(run: Path) -> int:
    """The newest step that has a shard, complete or not; 0 if there is none."""
    return max(
        (step for table in _RECORDS for step in table_shards(run / table)), default=0
    )


def scan_shards(table: str, shards: Iterable[Shard], **options: Any) -> pl.LazyFrame:
    """Return the rows of shards, whichever olr wrote them: what a shard lacks is null, what it has too many left out.

    So a column that may be null can be added, and runs of before can still be read and resumed.
    """
    schema = _polars_schema(table)

    def scan(alike: Iterable[Shard], is_of_today: bool) -> pl.LazyFrame:
        # Only a shard that was written with other columns may lack one. In any other a missing column is a damaged
        # name, and its values would silently be nulls.
        lenient: Any = (
            {} if is_of_today else {"missing_columns": "insert", "extra_columns": "ignore"}
        )
        paths = [shard.path for shard in alike]
        return pl.scan_parquet(paths, glob=False, schema=schema, **lenient, **options)

    return pl.concat(
        scan(alike, is_of_today)
        for is_of_today, alike in itertools.groupby(shards, lambda shard: shard.is_of_today)
    )


def run_number(shards: Iterable[Shard]) -> pl.Expr:
    """Return the number of the run whose ``shard`` a row is from, counted in the order of these shards."""
    numbers: dict[Path, int] = {}
    of_shard = {
        str(shard.path): numbers.setdefault(shard.path.parent, len(numbers))
        for shard in shards
    }
    return pl.col("shard").replace_strict(of_shard, return_dtype=pl.Int64)


def whole_shards(runs: Sequence[Path], table: str) -> tuple[Shard, ...]:
    """Return the shards of the runs' complete steps, each of them checked."""
    try:
        return _checked(runs, table)
    except FileNotFoundError:
        return _checked(runs, table)  # a resume has removed some since they were listed


def _checked(runs: Sequence[Path], table: str) -> tuple[Shard, ...]:
    steps = {run: _complete_steps(run) for run in runs}
    shards = _as_they_are(steps, table)
    visits = _prompt_visits(table, shards)
    if table == "rollouts":
        labelled = _prompt_visits("labels", _as_they_are(steps, "labels"))
        for shard, of_rollouts, of_labels in zip(shards, visits, labelled, strict=True):
            if of_rollouts not in (None, of_labels):
                raise UserError(
                    f"{shard.path} lacks rollouts of its step's labels, or has others",
                    RESTORE,
                )
    return shards


def _complete_steps(run: Path) -> list[int]:
    """Return the complete steps of a run, which must be 1, 2, … without a gap."""
    steps = stored_steps(run)
    if not steps:
        raise UserError(
            f"{run} holds no complete step yet", "train it for at least one step"
        )
    if steps[-1] > len(steps):
        lost = next(step for step, stored in enumerate(steps, start=1) if step != stored)
        raise UserError(
            f"{run} has no labels or no rollouts of step {lost}, though it has step {steps[-1]}",
            RESTORE,
        )
    return steps


def _as_they_are(steps: Mapping[Path, list[int]], table: str) -> tuple[Shard, ...]:
    """Return the shards of the steps of runs, each of them checked."""
    shards = []
    for run, complete in steps.items():
        of_run = run_id(run)
        shards += [
            Shard.at(shard_path(run / table, step), table, of_run) for step in complete
        ]
    return tuple(shards)


@lru_cache(maxsize=8)
def _prompt_visits(table: str, shards: tuple[Shard, ...]) -> list[tuple[int, int] | None]:
    """Return how many prompt visits each of these shards has, and a digest of them; None where it has no rows.

    Refuse rows that cannot be a run's: a shard must have the step of its name, and no prompt's visit comes twice in a
    run.
    """
    # A query for each shard takes longer than its rows, and one for all takes memory for the rows of a whole run.
    facts = pl.concat(
        _facts_by_shard(table, shards[start : start + _SHARDS_OF_A_QUERY])
        for start in range(0, len(shards), _SHARDS_OF_A_QUERY)
    )
    rows = {row["shard"]: row for row in facts.drop("hashes").iter_rows(named=True)}
    of_shards = [(shard.path, rows.get(str(shard.path))) for shard in shards]
    for path, row in of_shards:
        number = step_of(path)
        is_of_step = table == "rollouts"  # the labels of a step may stand alone
        if row is not None:
            is_of_step = (row["first"], row["last"], row["unknown"]) == (number, number, 0)
        if not is_of_step:
            raise UserError(f"{path} has no rows, or rows of another step", RESTORE)
    if table == "labels":  # in rollouts, samples of a visit may stand in any order
        _require_no_visit_twice(shards, facts)
    return [None if row is None else (row["visits"], row["digest"]) for _, row in of_shards]


def _facts_by_shard(table: str, shards: Sequence[Shard]) -> pl.DataFrame:
    """Return a row a shard that has rows: its steps, its prompt visits, a digest of these, and the hash of each."""
    step, visit = pl.col("step"), pl.struct("prompt_id", "visit").hash()
    if table == "rollouts":  # a visit has several rollouts
        visit = pl.when(pl.col("sample") == 0).then(visit)
    return (
        scan_shards(table, shards, include_file_paths="shard")
        .select(pl.col("shard").cast(pl.Categorical), "step", visit=visit)
        .group_by("shard")
        .agg(
            step.min().alias("first"),
            step.max().alias("last"),
            step.null_count().alias("unknown"),
            pl.col("visit").count().alias("visits"),
            pl.col("visit").sum().alias("digest"),  # the same in any order
            pl.col("visit").alias("hashes"),
        )
        .with_columns(pl.col("shard").cast(pl.String))
        .collect()
    )


def _require_no_visit_twice(shards: Sequence[Shard], facts: pl.DataFrame) -> None:
    """Refuse labels that have a prompt's visit twice in a run."""
    run = run_number(shards).alias("run")
    different = facts.select(run, "hashes").explode("hashes").group_by("run").n_unique()
    if different["hashes"].sum() == facts["visits"].sum():
        return
    # Different visits may have one hash, so the rows decide; comparing them takes several times the memory.
    rows = scan_shards("labels", shards, include_file_paths="shard").with_columns(run)
    is_twice = pl.struct("run", "prompt_id", "visit").is_duplicated()
    damaged = rows.filter(is_twice).select(pl.col("shard").min()).collect().item()
    if damaged is not None:
        raise UserError(f"{damaged} has a prompt's visit twice", RESTORE)


def check_shard(shard: Path, table: str, run: str = "") -> bool:
    """Make sure that a file is a whole shard of `table`, of a version this program reads and of the run of this id.

    Returns whether it has exactly the columns of today; FileNotFoundError if it has gone.
    """
    marks = _marks(shard)
    if marks.get("olr.table") != table:
        raise UserError(
            f"{shard} is not a shard of olr's {table} table",
            "move it out of the run directory",
        )
    version = marks.get("olr.schema_version", "")
    if version != str(SCHEMA_VERSION):
        raise UserError(
            f"{shard} was written by a newer olr (schema {version}, this one reads {SCHEMA_VERSION})",
            "upgrade olr",
        )
    if run and marks.get("olr.run", run) != run:
        raise UserError(f"{shard} is of another run", RESTORE)
    there = _columns(marks.get("ARROW:schema", ""))
    for field in table_schema(table):
        if not field.nullable and field.name not in there:
            raise UserError(f"{shard} has no column {field.name}", RESTORE)
    return there == tuple(table_schema(table).names)


def _marks(shard: Path) -> dict[str, str]:
    """The metadata of a shard."""
    try:
        # By polars, in a quarter of pyarrow's time, which matters with one shard per step.
        return pl.read_parquet_metadata(shard)
    except FileNotFoundError:
        raise
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        problem = system_problem(error)
        if problem is not None:
            raise UserError.of(
                f"{shard} could not be read: {problem}", remedy="check the disk"
            ) from None
        raise UserError(
            f"{shard} is not a whole Parquet file ({first_line(error)})", RESTORE
        ) from None


@lru_cache(maxsize=64)
def _columns(schema: str) -> tuple[str, ...]:
    """The columns that a shard was written with, by Arrow's schema in its metadata; all shards of a run have one."""
    try:
        return tuple(pa.ipc.read_schema(pa.py_buffer(b64decode(schema))).names)
    except (ValueError, OSError, pa.ArrowException):
        return ()


def explain_removed_shard(error: FileNotFoundError) -> str | None:
    """A sentence for the user if the missing file is a shard, removed after it had been listed; else None."""
    shard = _SHARD_IN_TEXT.search(str(error))
    if shard is None:
        return None
    return (
        f"{shard[0].strip()} was removed while the run was read: the process that trains it makes the steps"
        " after a checkpoint again; repeat the command"
    )


def explain_damage(error: BaseException, places: Iterable[Path]) -> str | None:
    """A sentence for the user if an error comes from a damaged shard of a run at or below `places`; else None.

    A shard that is cut off is noticed before it is read (`check_shard`), one that is damaged in the middle only while
    its rows are decoded, by an error that names no file; so every shard is read whole, however long it takes.
    """
    # pyarrow raises some as errors of the system, without the system's number.
    is_of_system = isinstance(error, OSError) and error.errno is None
    if not is_of_system and type(error).__module__.partition(".")[0] not in _DECODERS:
        return None
    manifests = (
        manifest for place in places for manifest in sorted(place.glob("**/manifest.json"))
    )
    for run, table in itertools.product(
        (manifest.parent for manifest in manifests), _RECORDS
    ):
        for shard in table_shards(run / table).values():
            try:
                scan_shards(table, [Shard.at(shard, table)]).collect()
            except (UserError, FileNotFoundError):
                continue  # it has its own sentence, or was removed meanwhile
            except (Exception, pl.exceptions.PanicException) as damage:
                return f"{shard} is damaged ({first_line(damage)}); {RESTORE}"
    return None
