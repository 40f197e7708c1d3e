"""The two tables of a run as Parquet shards: one pair of files per step.

    labels/step-000251.parquet                rollouts/step-000251.parquet

A shard is written under a temporary name and renamed, the rollouts first: where the labels of a step stand, the
step is complete. Shards reach the disk for good when a checkpoint needs them (`RunStore.sync`), so an ordinary
step does not wait for the disk. Merging old shards into blocks of 250 steps was tried: it paid from 5,000 steps on,
where the paper's runs have 50 to 250, and every reader had to know two kinds of shard.
"""

from __future__ import annotations

import itertools
import os
import re
from base64 import b64decode
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from olr_cli.answers import Judge, Vote
from olr_cli.errors import UserError, first_line
from olr_cli.files import sweep, sync, system_problem, write_whole, writing
from olr_cli.runs.directory import run_id
from olr_cli.supervision.history import History
from olr_cli.supervision.types import SCHEMA_VERSION, LabelRecord, RolloutRecord, arrow_schema

_RECORDS: dict[str, type[LabelRecord] | type[RolloutRecord]] = {
    "labels": LabelRecord,
    "rollouts": RolloutRecord,
}
_DECODERS = ("polars", "pyo3_runtime", "pyarrow")
"""Modules of decoders' errors; pyo3_runtime: a panic in polars."""
_RESTORE = (
    "restore it from a copy, or train anew in another run directory (of an unfinished run, a resume makes the steps"
    " after the last checkpoint again)"
)
_SHARD = re.compile(r"step-(\d{6,9})\.parquet")
_SHARD_IN_TEXT = re.compile(rf"(?:[^':]*/)?(?:{'|'.join(_RECORDS)})/{_SHARD.pattern}")

_SHARDS_OF_A_SCAN = 2000

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
        options = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
        write_whole(shard, lambda path: pq.write_table(marked, path, **options), durable=False)
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


def shard_path(folder: Path, step: int) -> Path:
    """The file of a step's rows in a table's folder."""
    return folder / f"step-{step:06d}.parquet"


def _step_of(shard: Path) -> int:
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
    return schema.with_metadata({"olr.table": table, "olr.schema_version": str(SCHEMA_VERSION)})


def arrow_table(table: str, columns: Columns) -> Any:
    """Columns as a `pyarrow.Table` with the schema of `table`."""
    schema = table_schema(table)
    return pa.table(
        [pa.array(columns[field.name], field.type) for field in schema], schema=schema
    )


def stored_steps(run: Path) -> list[int]:
    """The complete steps of a run, ascending."""
    return sorted(set.intersection(*(set(table_shards(run / table)) for table in _RECORDS)))


def newest_shard(run: Path) -> int:
    """The newest step that has a shard, complete or not; 0 if there is none."""
    return max((step for table in _RECORDS for step in table_shards(run / table)), default=0)


def scan_labels(run: Path) -> pl.LazyFrame:
    """The labels table: the steps that are complete now, also of a run that is being written.

    Collecting it raises FileNotFoundError if the run is resumed meanwhile, which removes the steps after the checkpoint
    (`explain_removed_shard`).
    """
    return _scan_shards("labels", _shards([run], "labels"))


def scan_labels_of(runs: Iterable[Path]) -> Iterator[pl.LazyFrame]:
    """The labels of all the runs, with a column ``run`` that counts the runs of a scan, some runs to a scan.

    A query costs more than the rows of a small run, and the rows of many large ones more memory than there may be.
    Errors are those of `scan_labels`.
    """
    batches: list[list[Path]] = []
    shards_left = 0
    for run in runs:
        shards = len(table_shards(run / "labels"))
        if not batches or shards > shards_left:
            batches.append([])
            shards_left = _SHARDS_OF_A_SCAN
        batches[-1].append(run)
        shards_left -= shards
    for batch in batches:
        of_batch = _shards(batch, "labels")
        rows = _scan_shards("labels", of_batch, include_file_paths="shard")
        yield rows.with_columns(run=_run(of_batch)).drop("shard")


def _run(shards: Iterable[Path]) -> pl.Expr:
    """The number of the run whose ``shard`` a row is from, counted in the order of these shards."""
    numbers: dict[Path, int] = {}
    of_shard = {str(shard): numbers.setdefault(shard.parent, len(numbers)) for shard in shards}
    return pl.col("shard").replace_strict(of_shard, return_dtype=pl.Int64)


def scan_rollouts(run: Path) -> pl.LazyFrame:
    """The rollouts table, complete steps only; errors as for `scan_labels`."""
    return _scan_shards("rollouts", _shards([run], "rollouts"))


def stored_responses(run: Path) -> list[str]:
    """A hundred of a run's responses; none before the first step is stored."""
    if not stored_steps(run):
        return []
    return list(scan_rollouts(run).select("response").head(100).collect()["response"])


def read_rollout_steps(
    run: Path, columns: Sequence[str], steps: Container[int] | None = None
) -> Iterator[pl.DataFrame]:
    """Columns of the rollouts of all complete steps, or of some, step by step, in the order they were made.

    Errors are those of `scan_labels`.
    """
    for shard, is_of_today in _shards([run], "rollouts").items():
        if steps is None or _step_of(shard) in steps:
            yield _scan_shards("rollouts", {shard: is_of_today}).select(columns).collect()


def _scan_shards(table: str, shards: Mapping[Path, bool], **options: Any) -> pl.LazyFrame:
    """The rows of shards, whichever olr wrote them: a column that a shard lacks is null, one too many is left out.

    So a column that may be null can be added, and runs of before can still be read and resumed.
    """
    schema = _polars_schema(table)

    def scan(alike: Iterable[Path], is_of_today: bool) -> pl.LazyFrame:
        # Only a shard that was written with other columns may lack one. In any other a missing column is a damaged
        # name, and its values would silently be nulls.
        lenient: Any = (
            {} if is_of_today else {"missing_columns": "insert", "extra_columns": "ignore"}
        )
        return pl.scan_parquet([*alike], glob=False, schema=schema, **lenient, **options)

    return pl.concat(
        scan(alike, kind) for kind, alike in itertools.groupby(shards, shards.__getitem__)
    )


@cache
def _polars_schema(table: str) -> pl.Schema:
    empty = pl.from_arrow(table_schema(table).empty_table())
    assert isinstance(empty, pl.DataFrame)
    return empty.schema


def _shards(runs: Sequence[Path], table: str) -> dict[Path, bool]:
    """The shards of the runs' complete steps, each of them checked, and whether it has the columns of today."""
    try:
        return _checked(runs, table)
    except FileNotFoundError:
        return _checked(runs, table)  # a resume has removed some since they were listed


def _checked(runs: Sequence[Path], table: str) -> dict[Path, bool]:
    steps = {run: stored_steps(run) for run in runs}
    for run, complete in steps.items():
        if not complete:
            raise UserError(f"{run} holds no complete step yet; train it for at least one step")
        if complete[-1] > len(complete):
            lost = next(step for step, stored in enumerate(complete, start=1) if step != stored)
            raise UserError(
                f"{run} has no labels or no rollouts of step {lost}, though it has step {complete[-1]}; {_RESTORE}"
            )
    shards = _as_they_are(steps, table)
    visits = _prompt_visits(table, shards)
    if table == "rollouts":
        labelled = _prompt_visits("labels", _as_they_are(steps, "labels"))
        for (shard, *_), of_rollouts, of_labels in zip(shards, visits, labelled, strict=True):
            if of_rollouts not in (None, of_labels):
                raise UserError(
                    f"{shard} lacks rollouts of its step's labels, or has others; {_RESTORE}"
                )
    return {shard: is_of_today for shard, is_of_today, *_ in shards}


def _as_they_are(
    steps: Mapping[Path, list[int]], table: str
) -> tuple[tuple[Path, bool, int, int], ...]:
    """The shards of the steps of runs, each of them checked, with what changes when their bytes do."""
    found = []
    for run, complete in steps.items():
        of_run = run_id(run)
        for shard in (shard_path(run / table, step) for step in complete):
            is_of_today, status = check_shard(shard, table, of_run), shard.stat()
            found.append((shard, is_of_today, status.st_mtime_ns, status.st_size))
    return tuple(found)


@lru_cache(maxsize=8)
def _prompt_visits(
    table: str, shards: tuple[tuple[Path, bool, int, int], ...]
) -> list[tuple[int, int] | None]:
    """How many prompt visits each of these shards has, and a digest of them, where their rows can be a run's.

    They can if every shard has the step of its name and no prompt's visit comes twice in a run.
    """
    step, of_labels = pl.col("step"), table == "labels"
    is_twice = (
        pl.struct("run", "prompt_id", "visit").is_duplicated() if of_labels else pl.lit(False)
    )
    # One query for all: a query costs more than a shard's rows, and a folder may have thousands of runs.
    is_of_today = {shard: kind for shard, kind, *_ in shards}
    rows = _scan_shards(table, is_of_today, include_file_paths="shard")
    is_visit = pl.lit(True) if of_labels else pl.col("sample") == 0
    of_visits = pl.struct("prompt_id", "visit").filter(is_visit)
    facts = (
        rows.with_columns(pl.col("shard").cast(pl.Categorical), run=_run(is_of_today))
        .with_columns(is_twice.alias("is_twice"))
        .group_by("shard")
        .agg(
            step.min().alias("first"),
            step.max().alias("last"),
            step.null_count().alias("unknown"),
            of_visits.len().alias("visits"),
            of_visits.hash().sum().alias("digest"),  # the same in any order
            pl.col("is_twice").any(),
        )
        .collect()
    )
    rows_of = {row["shard"]: row for row in facts.iter_rows(named=True)}
    found = [(shard, rows_of.get(str(shard))) for shard in is_of_today]
    for shard, row in found:
        number = _step_of(shard)
        is_of_step = row is not None and (row["first"], row["last"], row["unknown"]) == (
            number,
            number,
            0,
        )
        if not is_of_step and (of_labels or row is not None):
            raise UserError(f"{shard} has no rows, or rows of another step; {_RESTORE}")
    for shard, row in found:
        if row is not None and row["is_twice"]:
            raise UserError(f"{shard} has a prompt's visit twice; {_RESTORE}")
    return [None if row is None else (row["visits"], row["digest"]) for _, row in found]


def check_shard(shard: Path, table: str, run: str = "") -> bool:
    """Make sure that a file is a whole shard of `table`, of a version this program reads and of the run of this id.

    Returns whether it has exactly the columns of today; FileNotFoundError if it has gone.
    """
    marks = _marks(shard)
    if marks.get("olr.table") != table:
        raise UserError(
            f"{shard} is not a shard of olr's {table} table; move it out of the run directory"
        )
    version = marks.get("olr.schema_version", "")
    if version != str(SCHEMA_VERSION):
        raise UserError(
            f"{shard} was written by a newer olr (schema {version}, this one reads {SCHEMA_VERSION}); upgrade olr"
        )
    if run and marks.get("olr.run", run) != run:
        raise UserError(f"{shard} is of another run; {_RESTORE}")
    there = _columns(marks.get("ARROW:schema", ""))
    for field in table_schema(table):
        if not field.nullable and field.name not in there:
            raise UserError(f"{shard} has no column {field.name}; {_RESTORE}")
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
            raise UserError(f"{shard} could not be read: {problem}") from None
        raise UserError(
            f"{shard} is not a whole Parquet file ({first_line(error)}); {_RESTORE}"
        ) from None


@lru_cache(maxsize=64)
def _columns(schema: str) -> tuple[str, ...]:
    """The columns that a shard was written with, by Arrow's schema in its metadata; all shards of a run have one."""
    try:
        return tuple(pa.ipc.read_schema(pa.py_buffer(b64decode(schema))).names)
    except (ValueError, OSError, pa.ArrowException):
        return ()


def stored_history(path: Path, judge: Judge) -> History:
    """The history in a run's labels table; `judge` finds the classes of its majority answers."""
    _shards(
        [path], "rollouts"
    )  # the labels must be of the rollouts, as every other reader asks
    columns = ("prompt_id", "visit", "majority_answer", "majority_count", "rollouts")
    labels = scan_labels(path).select(columns).sort("visit").collect()
    # Keys are made anew, not stored: those of another version of the rules need not equal today's.
    keys = judge.keys(labels["majority_answer"].drop_nulls().unique(maintain_order=True))
    history = History()
    for prompt_id, number, answer, count, rollouts in labels.iter_rows():
        key = None if answer is None else keys[answer]
        try:
            history.add(prompt_id, number, Vote.stored(key, answer, count, rollouts))
        except ValueError as error:
            raise UserError(
                f"the labels of {path} lack a visit, or have another one ({error}); {_RESTORE}"
            ) from None
    return history


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
    for run, table in itertools.product((manifest.parent for manifest in manifests), _RECORDS):
        for shard in table_shards(run / table).values():
            try:
                _scan_shards(table, {shard: check_shard(shard, table)}).collect()
            except (UserError, FileNotFoundError):
                continue  # it has its own sentence, or was removed meanwhile
            except (Exception, pl.exceptions.PanicException) as damage:
                return f"{shard} is damaged ({first_line(damage)}); {_RESTORE}"
    return None
