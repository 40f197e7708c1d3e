"""The shards of a run, a pair of Parquet files per step: their places, checks that they are whole, and damage.

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
"""Number of shards that one query checks, a limit of memory."""

RESTORE = (
    "restore it from a copy, or train anew in another run directory (of an unfinished run, a resume makes the steps"
    " after the last checkpoint again)"
)
"""The remedy for a damaged shard."""

_DECODERS = ("polars", "pyo3_runtime", "pyarrow")
"""Modules that raise a decoder's errors; pyo3_runtime stands for a panic in polars."""


class Shard(NamedTuple):
    """A file with the rows of one table at one step. The file has been checked and is whole.

    Two `Shard`s are equal only if their files have the same path, size and time of change. A `Shard` can therefore be
    the key of a cache.
    """

    path: Path
    is_of_today: bool
    """Whether it has exactly the columns that olr writes today."""
    modified_ns: int
    size: int

    @classmethod
    def at(cls, path: Path, table: str, run: str = "") -> Shard:
        """Check the file of a shard and return its description.

        Args:
            path: the file.
            table: the table that it must belong to, ``labels`` or ``rollouts``.
            run: id of the run that it must belong to; "" for any.

        Raises:
            UserError: the file is damaged, of another table or run, or of a version that this olr does not read.
            FileNotFoundError: the file has been removed.
        """
        is_of_today, status = check_shard(path, table, run), path.stat()
        return cls(path, is_of_today, status.st_mtime_ns, status.st_size)


def shard_path(folder: Path, step: int) -> Path:
    """Return the path of a step's shard (its file of rows) in a table's folder."""
    return folder / f"step-{step:06d}.parquet"


def step_of(shard: Path) -> int:
    """Return the step whose rows a shard (a file of rows) holds, from its file name."""
    return int(shard.stem.removeprefix("step-"))


def table_shards(folder: Path) -> dict[int, Path]:
    """Return the shards in a table's folder as step -> file, steps ascending; empty if the folder is missing."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        named = ((_SHARD.fullmatch(entry.name), entry) for entry in entries)
        steps = sorted(
            (int(name[1]), entry.name) for name, entry in named if name and entry.is_file()
        )
        return {step: folder / name for step, name in steps}
    return {}


@cache
def table_schema(table: str) -> Any:
    """Return the `pyarrow.Schema` of ``labels`` or ``rollouts``, with the schema's version in its metadata."""
    schema = arrow_schema(_RECORDS[table])  # type: ignore[arg-type]  # mypy takes a class of two for unhashable
    return schema.with_metadata(
        {"olr.table": table, "olr.schema_version": str(SCHEMA_VERSION)}
    )


@cache
def _polars_schema(table: str) -> pl.Schema:
    """Return the schema of a table (``labels`` or ``rollouts``) as polars has it."""
    empty = pl.from_arrow(table_schema(table).empty_table())
    assert isinstance(empty, pl.DataFrame)
    return empty.schema


def stored_steps(run: Path) -> list[int]:
    """Return the complete steps of a run, ascending. A complete step has a shard (file of rows) in both tables."""
    return sorted(set.intersection(*(set(table_shards(run / table)) for table in _RECORDS)))


def newest_shard(run: Path) -> int:
    """Return the newest step that has a shard (file of rows) in at least one table; 0 if there is none."""
    return max(
        (step for table in _RECORDS for step in table_shards(run / table)), default=0
    )


def scan_shards(table: str, shards: Iterable[Shard], **options: Any) -> pl.LazyFrame:
    """Return the rows of shards of one table, read lazily, with the columns that this version of olr writes.

    If another version of olr wrote a shard, a missing column is null and an extra one is left out. Older runs can
    therefore still be read and resumed after a nullable column has been added.

    Args:
        table: ``labels`` or ``rollouts``.
        shards: shards of this table.
        options: passed on to `pl.scan_parquet`.
    """
    schema = _polars_schema(table)

    def scan(alike: Iterable[Shard], is_of_today: bool) -> pl.LazyFrame:
        # Only a shard written with other columns may lack one. In any other shard, a missing column means a damaged
        # name, and its values would silently become nulls.
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
    """Return a polars expression that gives each row the number of its run.

    The rows need a column ``shard`` with the path of the row's file. Runs count from 0, in the order in which they
    first appear in `shards`.
    """
    numbers: dict[Path, int] = {}
    of_shard = {
        str(shard.path): numbers.setdefault(shard.path.parent, len(numbers))
        for shard in shards
    }
    return pl.col("shard").replace_strict(of_shard, return_dtype=pl.Int64)


def whole_shards(runs: Sequence[Path], table: str) -> tuple[Shard, ...]:
    """Return the shards (files) of a table for all complete steps of the runs, after checking that they are whole.

    The order is that of `runs`, then of the steps. `table` is ``labels`` or ``rollouts``. If a resume removes a shard
    meanwhile, all steps are listed and checked once more.

    Raises:
        UserError: a run has no complete step, a step is missing, or a shard is damaged or does not belong to its run or
            step. For ``rollouts``, also: a step's rollouts and labels are not of the same visits.
        FileNotFoundError: a shard was removed during the second check too.
    """
    try:
        return _check_steps(runs, table)
    except FileNotFoundError:
        # A resume has removed some shards since they were listed. List again; it does not happen twice in a moment.
        return _check_steps(runs, table)


def _check_steps(runs: Sequence[Path], table: str) -> tuple[Shard, ...]:
    """List and check the shards for `whole_shards`, with the same result and errors.

    This is one attempt: if a shard is removed after it was listed, FileNotFoundError is raised.
    """
    steps = {run: _complete_steps(run) for run in runs}
    shards = _check_shards(steps, table)
    visits = _prompt_visits(table, shards)
    if table == "rollouts":
        labelled = _prompt_visits("labels", _check_shards(steps, "labels"))
        for shard, of_rollouts, of_labels in zip(shards, visits, labelled, strict=True):
            if of_rollouts not in (None, of_labels):
                raise UserError(
                    f"{shard.path} lacks rollouts of its step's labels, or has others",
                    RESTORE,
                )
    return shards


def _complete_steps(run: Path) -> list[int]:
    """Return the complete steps of a run, ascending.

    Raises:
        UserError: no step is complete, or a step before the last complete one is missing.
    """
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


def _check_shards(steps: Mapping[Path, list[int]], table: str) -> tuple[Shard, ...]:
    """Check the file of each shard of `table`, and return the shards in the order of runs and steps.

    `steps` maps each run directory to the run's complete steps.

    Raises:
        UserError: a file is damaged, of another table or run, or of a version that this olr does not read.
        FileNotFoundError: a file has been removed.
    """
    shards = []
    for run, complete in steps.items():
        of_run = run_id(run)
        shards += [
            Shard.at(shard_path(run / table, step), table, of_run) for step in complete
        ]
    return tuple(shards)


@lru_cache(maxsize=8)
def _prompt_visits(table: str, shards: tuple[Shard, ...]) -> list[tuple[int, int] | None]:
    """Return for each shard the number of prompt visits that it holds, and a digest of these visits.

    The digest does not depend on the order of the visits. A shard of rollouts without rows gets None instead of the
    pair.

    Raises:
        UserError: a shard of labels has no rows, a row has another step than the name of its file, or the labels of a
            run hold the same visit of a prompt twice.
    """
    # One query per shard would take longer than reading its rows; one query for all would need memory for a whole run.
    facts = pl.concat(
        _facts_by_shard(table, shards[start : start + _SHARDS_OF_A_QUERY])
        for start in range(0, len(shards), _SHARDS_OF_A_QUERY)
    )
    rows = {row["shard"]: row for row in facts.drop("hashes").iter_rows(named=True)}
    of_shards = [(shard.path, rows.get(str(shard.path))) for shard in shards]
    for path, row in of_shards:
        number = step_of(path)
        # The rollouts of a step may be empty, because its labels may stand alone; its labels may not be empty.
        is_of_step = table == "rollouts"
        if row is not None:
            is_of_step = (row["first"], row["last"], row["unknown"]) == (number, number, 0)
        if not is_of_step:
            raise UserError(f"{path} has no rows, or rows of another step", RESTORE)
    # Not for rollouts: their rows repeat a visit, once per sample and in any order.
    if table == "labels":
        _require_no_visit_twice(shards, facts)
    return [None if row is None else (row["visits"], row["digest"]) for _, row in of_shards]


def _facts_by_shard(table: str, shards: Sequence[Shard]) -> pl.DataFrame:
    """Return one row of facts for each shard that has rows.

    Returns:
        The columns are:

        - shard: path of the shard.
        - first, last: the smallest and largest step in its rows.
        - unknown: number of rows without a step.
        - visits: number of prompt visits.
        - digest: digest of these visits, whatever their order.
        - hashes: list with one hash per visit.
    """
    step, visit = pl.col("step"), pl.struct("prompt_id", "visit").hash()
    # Count a visit once, not once per rollout.
    if table == "rollouts":
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
            # A sum, because labels and rollouts may have the visits in different orders.
            pl.col("visit").sum().alias("digest"),
            pl.col("visit").alias("hashes"),
        )
        .with_columns(pl.col("shard").cast(pl.String))
        .collect()
    )


def _require_no_visit_twice(shards: Sequence[Shard], facts: pl.DataFrame) -> None:
    """Raise UserError if a run's labels have two rows for the same visit of a prompt.

    `facts` has one row per shard of labels, with the hashes of its visits (`_facts_by_shard`).
    """
    run = run_number(shards).alias("run")
    different = facts.select(run, "hashes").explode("hashes").group_by("run").n_unique()
    if different["hashes"].sum() == facts["visits"].sum():
        return
    # Two visits may share a hash, so now the rows decide. Comparing them always would take several times the memory.
    rows = scan_shards("labels", shards, include_file_paths="shard").with_columns(run)
    is_twice = pl.struct("run", "prompt_id", "visit").is_duplicated()
    damaged = rows.filter(is_twice).select(pl.col("shard").min()).collect().item()
    if damaged is not None:
        raise UserError(f"{damaged} has a prompt's visit twice", RESTORE)


def check_shard(shard: Path, table: str, run: str = "") -> bool:
    """Check that a file is a whole shard of a table, and return whether its columns are exactly those that olr writes.

    Args:
        shard: the file.
        table: the table that it must belong to, ``labels`` or ``rollouts``.
        run: id of the run that it must belong to; "" for any.

    Raises:
        UserError: the file is damaged, of another table or run, or of a version that this olr does not read.
        FileNotFoundError: the file has been removed.
    """
    marks = _metadata(shard)
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
    names = _written_columns(marks.get("ARROW:schema", ""))
    for field in table_schema(table):
        if not field.nullable and field.name not in names:
            raise UserError(f"{shard} has no column {field.name}", RESTORE)
    return names == tuple(table_schema(table).names)


def _metadata(shard: Path) -> dict[str, str]:
    """Return the metadata in a shard's Parquet footer.

    Raises:
        UserError: the file is not whole or cannot be read.
        FileNotFoundError: the file has been removed.
    """
    try:
        # polars takes a quarter of pyarrow's time for this, which matters with one shard per step.
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


# Cached, because all shards of a run have the same schema.
@lru_cache(maxsize=64)
def _written_columns(schema: str) -> tuple[str, ...]:
    """Return the names of the columns that a shard was written with; empty if `schema` cannot be read.

    `schema` is the value of ``ARROW:schema`` in the shard's metadata: an Arrow schema in base64.
    """
    try:
        return tuple(pa.ipc.read_schema(pa.py_buffer(b64decode(schema))).names)
    except (ValueError, OSError, pa.ArrowException):
        return ()


def explain_removed_shard(error: FileNotFoundError) -> str | None:
    """Return a sentence for the user if the missing file is a run's shard, else None.

    A resume removes the shards of the steps after the checkpoint, perhaps while another command reads the run.
    """
    shard = _SHARD_IN_TEXT.search(str(error))
    if shard is None:
        return None
    return (
        f"{shard[0].strip()} was removed while the run was read: the process that trains it makes the steps"
        " after a checkpoint again; repeat the command"
    )


def explain_damage(error: BaseException, places: Iterable[Path]) -> str | None:
    """Return a sentence that names the damaged shard behind an error, or None if no shard is found damaged.

    A shard damaged in the middle is noticed only when its rows are decoded, and the decoder's error names no file. To
    find the file, this function reads the shards of all runs completely, one by one, which may take long. If `error`
    does not come from a decoder, it returns None at once.

    Args:
        error: what was raised while runs were read.
        places: run directories, or folders with runs below them.
    """
    # pyarrow raises some decoding errors as OSError, but without the system's error number.
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
                # This error has a sentence of its own, or the shard was removed meanwhile.
                continue
            except (Exception, pl.exceptions.PanicException) as damage:
                return f"{shard} is damaged ({first_line(damage)}); {RESTORE}"
    return None
