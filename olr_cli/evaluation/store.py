"""An evaluation's folder: the settings, the graded responses, and the scores.

    <folder>/evaluation.json                                    `EvaluationRecord`
    <folder>/generations/<benchmark>.parts/part-000001.parquet  all samples of some problems, until all are done
    <folder>/generations/<benchmark>.parquet                    the finished benchmark, one row per sample
    <folder>/scores.json                                        the scores (read by `scores.stored_scores` alone)

A sample's key is (benchmark, problem_id, sample), whether it was generated, graded again or imported. If several files
have a problem, the latest one counts, and a part is later than the finished file. So nothing is lost or counted twice
if the process is killed while it merges the parts. As long as nothing else changes, benchmarks can be added to an
evaluation, problems to a benchmark, and samples to each problem.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from olr_cli.data.table_files import read_table
from olr_cli.errors import UserError, no_path, shortened
from olr_cli.evaluation.benchmark import Benchmark
from olr_cli.evaluation.problems import digest
from olr_cli.evaluation.record import (
    VERSION,
    EvaluationRecord,
    Generation,
    Task,
    TaskRecord,
)
from olr_cli.evaluation.scores import Score, averages, is_evaluation, score
from olr_cli.files import read_record, sweep, write_text, write_whole, writing
from olr_cli.runs.directory import GIVEN_UP, versions
from olr_cli.runs.locks import held
from olr_cli.supervision.types import arrow_schema
from olr_cli.tables import as_json

GENERATIONS_VERSION = 1
"""Version of the columns in a file of generations."""

_MARK = b"olr.generations"
"""Key of the version in a Parquet file's metadata."""

_MADE_WITH = {
    "model_digest": "other weights",
    "name": "another backend",
    "dtype": "another number format",
    "quantization": "another quantization",
    "adapter_digest": "another LoRA adapter",
}
"""Backend fact that must be equal for all samples of an evaluation -> the words of an error if it is not."""

_TEXTS = ("prompt", "response")
_SCORED = [column.name for column in fields(Generation) if column.name not in _TEXTS]
"""Columns that scores are computed from. The long texts are left out, which are most of a file's bytes."""


@dataclass(frozen=True)
class Target:
    """A model or checkpoint to evaluate, its name in tables, where it comes from, and the folder of its evaluation."""

    model: str
    """Absolute path of a folder in Hugging Face layout, or hub id."""

    folder: Path
    name: str
    """Name of the model in tables."""

    origin: Mapping[str, Any]
    """The run, the step and how the checkpoint was chosen (R22), or the imported log; empty for a plain model."""

    is_served: bool = False
    """Whether a server has the model and knows it by this name."""

    @property
    def is_local(self) -> bool:
        """Whether the model is a folder on this machine; False if a server has the model."""
        return not self.is_served and Path(self.model).is_dir()

    @property
    def store(self) -> EvaluationStore:
        """The evaluation's files."""
        return EvaluationStore(self.folder)


class EvaluationStore:
    """Reads and writes one evaluation's folder: evaluation.json, the samples in generations/, and scores.json."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # ---- the record ---------------------------------------------------------------------------------------------

    def record(self) -> EvaluationRecord:
        """Read evaluation.json.

        Raises:
            UserError: the file does not exist, is damaged, or was written by a newer olr.
        """
        file = self.folder / "evaluation.json"
        if not file.is_file():
            raise UserError(
                f"{self.folder} is not an evaluation (no evaluation.json)",
                "`olr evaluate` makes one",
            )
        try:
            return EvaluationRecord.model_validate(read_record(file, VERSION))
        except ValidationError:
            raise UserError(
                f"{file} is no evaluation's record", "restore it from a copy"
            ) from None

    def write_record(self, record: EvaluationRecord) -> None:
        """Replace evaluation.json atomically: a killed process leaves either the old file or the new one."""
        _write_json(self.folder / "evaluation.json", record.model_dump(mode="json"))

    def target(self) -> Target:
        """Return the evaluated model and this folder as a target.

        Raises:
            UserError: evaluation.json does not exist, is damaged, or was written by a newer olr.
        """
        record = self.record()
        return Target(record.model, self.folder, record.name, record.origin)

    def begin(
        self, asked: EvaluationRecord, tasks: Sequence[Task], *, is_local: bool
    ) -> EvaluationRecord:
        """Return the record of an evaluation that begins or is resumed, without writing it.

        Args:
            asked: the settings of this command.
            tasks: the command's benchmarks, with their problems. When a benchmark is resumed, its number of samples may
                grow, and problems may be added at the end. Neither number may shrink.
            is_local: whether the model is a folder. A folder may move, so its path is not compared here;
                `check_backend` compares its weights.

        Raises:
            UserError: the folder holds an evaluation with other settings or problems, or files that are no evaluation.
        """
        if not is_evaluation(self.folder):
            if not self.is_empty:
                raise UserError(
                    f"{self.folder} holds something that is no evaluation",
                    "choose another name",
                    "out",
                )
            return asked
        before = self.record()
        changes = _changed_settings(before, asked, is_local=is_local)
        for task in tasks:
            if (stored := before.benchmarks.get(task.benchmark.name)) is not None:
                changes += _lowered_numbers(stored, task)
                # More problems may be asked than before, as long as the first ones are the same.
                problems = task.problems[: stored.problems]
                if not changes and digest(problems) != stored.problems_digest:
                    changes.append(f"{task.benchmark.name} has other problems or golds")
        if changes:
            raise UserError(
                f"{self.folder} holds an evaluation that was asked otherwise ({'; '.join(changes)})",
                "ask as before, or choose another name",
                "out",
            )
        # A resumed evaluation keeps its first day, so that its prompts stay the same (`EvaluationRecord.day`).
        kept = {"generated_by": before.generated_by, "day": before.day}
        benchmarks = before.benchmarks | asked.benchmarks
        return asked.model_copy(update={"benchmarks": benchmarks, **kept})

    def with_backend(
        self, record: EvaluationRecord, facts: Mapping[str, Any]
    ) -> EvaluationRecord:
        """Return the record with the present backend in `generated_by`; unchanged if it is listed there already.

        Args:
            record: the evaluation's record.
            facts: what is known about the present backend, as name -> value, such as its ``dtype``.

        Raises:
            UserError: the backend's samples may not be mixed with the stored ones (`check_backend`).
        """
        self.check_backend(record, facts)
        entry = versions() | dict(facts)
        if entry in record.generated_by:
            return record
        return record.model_copy(update={"generated_by": (*record.generated_by, entry)})

    def check_backend(self, record: EvaluationRecord, facts: Mapping[str, Any]) -> None:
        """Raise `UserError` if the present backend's samples may not be mixed with the stored ones.

        Samples may be mixed if their backends have the same name, weights, number format, quantization and LoRA
        adapter.

        Args:
            record: the evaluation's record, which lists the backends of the stored samples.
            facts: what is known about the present backend, as name -> value, such as its ``dtype``. Facts that are
                missing here are not compared.
        """
        # Each entry passed this check before it was added, so a comparison with the last one is enough.
        known = record.generated_by[-1] if record.generated_by else facts
        for key, difference in _MADE_WITH.items():
            before, now = str(known.get(key)), str(facts.get(key))
            if key in facts and before != now:
                raise UserError(
                    f"{self.folder} holds generations of {difference} ({before[:15]} -> {now[:15]})",
                    "use the former, choose another name, or remove the folder",
                    "out",
                )

    # ---- generations --------------------------------------------------------------------------------------------

    def append(self, benchmark: str, rows: Sequence[Generation]) -> None:
        """Store all samples of some problems in a new file; a killed process leaves the whole file or nothing of it.

        The new rows replace any samples of these problems that are stored already.
        """
        # Continue from the highest number: if a part was removed, the number of parts would name one that exists.
        numbers = [
            int(file.stem.removeprefix("part-")) for file in self._part_files(benchmark)
        ]
        self._write(
            self._parts(benchmark) / f"part-{max(numbers, default=0) + 1:06d}.parquet",
            _table(rows),
        )

    def finish(self, task: Task) -> Score:
        """Merge the files of a complete benchmark into one, and return the benchmark's score.

        The merged rows are in the order of the task's problems. If the files were merged before, nothing is written.
        """
        name = task.benchmark.name
        if self._parts(name).is_dir():
            # Parts are in the order in which samples finished, which differs from call to call.
            ids = [problem.prompt_id for problem in task.problems]
            places = pl.DataFrame({"problem_id": ids}).with_row_index("place")
            rows = self.read(name).join(places, on="problem_id", how="left")
            self._write(
                self._whole(name), rows.sort("place", "sample").drop("place").to_arrow()
            )
            # Only now: a kill before this line leaves both, and the parts count until they are merged again.
            shutil.rmtree(self._parts(name))
        return self._score(task.benchmark, task.samples, len(task.problems))

    def replace(self, benchmark: str, rows: Sequence[Generation]) -> None:
        """Write all samples of a finished benchmark, in place of any stored ones."""
        self._write(self._whole(benchmark), _table(rows))

    def _write(self, file: Path, table: pa.Table) -> None:
        with writing(file.parent):
            # Do not make the evaluation's own folder: if it is gone, it was moved, and a second one would split it.
            for folder in (self.folder / "generations", file.parent):
                folder.mkdir(exist_ok=True)
        marked = table.cast(_arrow_schema())
        write_whole(file, lambda path: pq.write_table(marked, path, compression="zstd"))

    def missing(self, task: Task) -> dict[str, list[int]]:
        """Return problem id -> numbers of its missing samples, counted from 0; complete problems are left out."""
        stored = {*self.read(task.benchmark.name, ["problem_id", "sample"]).iter_rows()}
        missing = {
            problem.prompt_id: [
                n for n in range(task.samples) if (problem.prompt_id, n) not in stored
            ]
            for problem in task.problems
        }
        return {problem_id: numbers for problem_id, numbers in missing.items() if numbers}

    def generations(self, benchmark: str) -> list[Generation]:
        """Return the stored samples of a benchmark."""
        return [Generation(**row) for row in self.read(benchmark).iter_rows(named=True)]

    def read(self, benchmark: str, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return the stored samples of a benchmark, a row each, in the order in which problems were worked on.

        The result has no rows if no sample is stored.

        Args:
            benchmark: the benchmark's name.
            columns: read only these columns, which must include ``problem_id``; None: all.
        """
        whole = self._whole(benchmark)
        files = [whole] * whole.exists() + self._part_files(benchmark)
        if not files:
            empty = pl.DataFrame(pl.from_arrow(_arrow_schema().empty_table()))
            return empty if columns is None else empty.select(columns)
        rows = pl.concat(
            [
                _read(file, columns).with_columns(file=place)
                for place, file in enumerate(files)
            ]
        )
        # Later files replace a problem's rows as a whole: its samples were all graded again with the new ones.
        return rows.filter(pl.col("file") == pl.col("file").max().over("problem_id")).drop(
            "file"
        )

    def _whole(self, benchmark: str) -> Path:
        return self.folder / "generations" / f"{benchmark}.parquet"

    def _parts(self, benchmark: str) -> Path:
        return self.folder / "generations" / f"{benchmark}.parts"

    def _part_files(self, benchmark: str) -> list[Path]:
        return sorted(self._parts(benchmark).glob("part-*.parquet"))

    # ---- scores -------------------------------------------------------------------------------------------------

    def finished(self, record: EvaluationRecord | None = None) -> list[str]:
        """Return the names of the finished benchmarks, in the order in which they were begun.

        Args:
            record: the evaluation's record; None: read it.
        """
        names = (record or self.record()).benchmarks
        return [
            name
            for name in names
            if self._whole(name).exists() and not self._part_files(name)
        ]

    def scores(self) -> list[Score]:
        """Return the scores of the finished benchmarks, computed from the generations."""
        return list(self._scores(self.record(), {}).values())

    def rescore(
        self, record: EvaluationRecord, scored: Mapping[str, Score] = MappingProxyType({})
    ) -> dict[str, Score]:
        """Write scores.json anew, and return the score of each finished benchmark by name.

        Args:
            record: the evaluation's record.
            scored: benchmark -> score, for scores that are computed already. All other scores are computed here.
        """
        scores = self._scores(record, scored)
        plain = record.model_dump(
            mode="json", include={"name", "model", "origin", "sampling", "seed"}
        )
        # A number that was asked for and not used would mislead: say who decided instead.
        for name, how in record.not_as_asked.items():
            (plain if name == "seed" else plain["sampling"])[name] = how
        plain |= {
            "scores": as_json([*scores.values()]),
            "averages": averages({name: score.avg for name, score in scores.items()}),
            "versions": versions(),
        }
        _write_json(self.folder / "scores.json", plain)
        return scores

    def _scores(
        self, record: EvaluationRecord, scored: Mapping[str, Score]
    ) -> dict[str, Score]:
        """Return the score of each finished benchmark by name, computed unless `scored` has it."""
        tasks = {name: record.benchmarks[name] for name in self.finished(record)}
        return {
            name: scored.get(name)
            or self._score(task.definition, task.samples, task.problems)
            for name, task in tasks.items()
        }

    def _score(self, benchmark: Benchmark, samples: int, problems: int) -> Score:
        return score(
            benchmark, self.read(benchmark.name, _SCORED), samples, problems=problems
        )

    # ---- the folder ---------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether the folder is empty. Hidden files and the judge's list of abandoned comparisons do not count."""
        return all(
            file.name.startswith(".") or file.name == GIVEN_UP
            for file in self.folder.iterdir()
        )

    @contextmanager
    def locked(self, *, make: bool = True) -> Iterator[None]:
        """Hold the folder's lock during the block, so that no other process works on the evaluation.

        Before the block, files that interrupted writes left behind are removed. After it, the folder is removed if it
        was made for the lock and is still empty.

        Args:
            make: make the folder if it does not exist.

        Raises:
            UserError: another process holds the lock, or the folder cannot be locked or made.
            FileNotFoundError: the folder does not exist, and `make` is false.
        """
        with held(self.folder, make=make):
            sweep(self.folder / "generations", is_held=True)
            yield


def evaluation_folders(place: Path) -> list[Path]:
    """Return the folders of the evaluations at a path; empty if there are none.

    The path may be an evaluation, a folder of evaluations, or a run. The evaluations are not read, so those of a newer
    olr count too.
    """
    for folder in (place, place / "evaluation"):
        below = sorted(file.parent for file in folder.glob("*/evaluation.json"))
        if folders := [folder] if is_evaluation(folder) else below:
            return folders
    return []


def evaluations_at(place: Path) -> list[Target]:
    """Return the evaluations at a path, in the order of their folders' names.

    The path may be an evaluation, a folder of evaluations, or a run.

    Raises:
        UserError: there are none, or one cannot be read.
    """
    if folders := evaluation_folders(place):
        return [EvaluationStore(folder).target() for folder in folders]
    if not os.path.exists(place):
        raise no_path(place, "`olr evaluate` makes evaluations")
    raise UserError(f"there is no evaluation at {place}", "`olr evaluate` makes one")


def _changed_settings(
    before: EvaluationRecord, asked: EvaluationRecord, *, is_local: bool
) -> list[str]:
    """Return a text such as ``seed: 0 -> 1`` for each changed setting that decides samples or grades.

    Args:
        before: the stored record.
        asked: the record of the present command. A setting that only one of the records has does not count.
        is_local: whether the model is a folder, whose path may change.
    """
    old, new = before.decisive(), asked.decisive()
    if is_local:
        old["model"] = new["model"]
    return [
        f"{key}: {shortened(str(old[key]))} -> {shortened(str(value))}"
        for key, value in new.items()
        if old.get(key, value) != value
    ]


def _lowered_numbers(stored: TaskRecord, task: Task) -> list[str]:
    """Return an error text if a task has fewer samples than its stored entry, and another if it has fewer problems.

    The result is empty if the verified keys (checked golds) have changed, because a new file may reject problems.
    """
    numbers = {
        "samples": (stored.samples, task.samples),
        "problems": (stored.problems, len(task.problems)),
    }
    return [
        f"{what} of {task.benchmark.name}: {was} -> {now}, which can only be raised"
        for what, (was, now) in numbers.items()
        if now < was and stored.verified == task.verified
    ]


def _write_json(file: Path, value: Mapping[str, Any]) -> None:
    write_text(file, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _arrow_schema() -> pa.Schema:
    # Seeds have 63 bits, so int32 would overflow.
    schema: pa.Schema = arrow_schema(Generation, pa.int64())
    return schema.with_metadata({_MARK: str(GENERATIONS_VERSION)})


def _table(rows: Sequence[Generation]) -> pa.Table:
    schema = _arrow_schema()
    return pa.table(
        {name: [getattr(row, name) for row in rows] for name in schema.names}, schema=schema
    )


def _read(file: Path, columns: Sequence[str] | None) -> pl.DataFrame:
    try:
        table = read_table([file], columns)
    except UserError as error:
        # The file's remedy is for a user's data; this file is olr's own, so removing it is enough.
        detail = str(error).removeprefix(f"{file} ").partition(";")[0]
        raise UserError(
            f"{file} {detail}", "remove it, and the command that made it makes it again"
        ) from None
    if (table.schema.metadata or {}).get(_MARK) != str(GENERATIONS_VERSION).encode():
        raise UserError(
            f"{file} is not a file of generations of this version of olr", "move it away"
        )
    rows = pl.DataFrame(pl.from_arrow(table))
    # Files of older versions have no such column.
    if "ended_by" not in rows.columns:
        rows = rows.with_columns(ended_by=pl.lit(None, pl.String))
    return rows.select(columns or _arrow_schema().names)
