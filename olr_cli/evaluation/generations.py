"""A model's graded responses to the problems of a benchmark: a Parquet row a sample.

    generations/<benchmark>.parts/part-000001.parquet   some problems, all samples of each, until all are done
    generations/<benchmark>.parquet                     the finished benchmark

If several files have a problem, the latest one counts, and a part is later than the finished file. So nothing is lost
or counted twice if the process is killed while the parts are put together, and problems can be added later.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from olr_cli.data.prompts import Prompt
from olr_cli.data.rows import read_table
from olr_cli.errors import UserError
from olr_cli.files import write_whole, writing

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

SCHEMA_VERSION = 2
_MARK = b"olr.generations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One sample of a benchmark's problem; until it is graded (`olr_cli.evaluation.grading.grade`), it has no answer.

    Attributes:
        problem_id: unique in its benchmark.
        sample: its number among the problem's samples, from 0.
        prompt: exactly as the model saw it.
        response: the text as generated, special tokens left out.
        answer: as extracted (R6); None if there is none.
        answer_class: what the answer says, the same for all samples of the problem that say it: the most frequent
            spelling among them (R7), or the option's letter. None without an answer, or where it names no option.
        choices: how many options a multiple-choice problem shows (`Prompt.choices`).
        is_correct: the answer matches the gold (R7); False without an answer.
        tokens: response length, end token included; None if it was imported from a log that doesn't say.
        truncated: the length limit cut the response; None likewise.
        seed: of the sample; None if it was imported.
        unfinished_thought: the response ends inside its thinking (R6), and so has no answer; None if it has no thinking
            at all, or was graded by an older olr.
    """

    benchmark: str
    problem_id: str
    sample: int
    prompt: str
    response: str
    answer: str | None = None
    answer_class: str | None = None
    gold: str
    choices: int | None
    is_correct: bool = False
    tokens: int | None
    truncated: bool | None
    seed: int | None
    unfinished_thought: bool | None = None


class GenerationStore:
    """The generations of one benchmark in an evaluation's folder."""

    def __init__(self, folder: Path, benchmark: str) -> None:
        self._whole = folder / "generations" / f"{benchmark}.parquet"
        self._parts = folder / "generations" / f"{benchmark}.parts"

    def append(self, rows: Sequence[Generation]) -> None:
        """Store all samples of some problems, or nothing.

        Raises:
            UserError: the disk is full or not writable.
        """
        with writing(self._parts):
            # Not the evaluation's folder, which may have been moved.
            for folder in (self._parts.parent, self._parts):
                folder.mkdir(exist_ok=True)
        # Not the number of parts: one may have been removed.
        numbers = [int(file.stem.removeprefix("part-")) for file in self._part_files()]
        _write(self._parts / f"part-{max(numbers, default=0) + 1:06d}.parquet", _table(rows))

    def finish(self, problem_ids: Sequence[str]) -> None:
        """Put all parts into one file, with its rows in the order of `problem_ids`, which must be complete."""
        import polars as pl

        if self._parts.is_dir():
            places = pl.DataFrame({"problem_id": problem_ids}).with_row_index("place")
            rows = self.read().join(places, on="problem_id", how="left")
            _write(self._whole, rows.sort("place", "sample").drop("place").to_arrow())
            shutil.rmtree(self._parts)

    def replace(self, rows: Sequence[Generation]) -> None:
        """Replace the rows of a finished benchmark, after they were graded again."""
        _write(self._whole, _table(rows))

    @property
    def is_finished(self) -> bool:
        """Whether the benchmark is one file."""
        return self._whole.exists() and not self._part_files()

    def missing(self, problems: Sequence[Prompt], samples: int) -> dict[str, list[int]]:
        """The numbers of the samples that problems lack, by the id of each problem that lacks some."""
        stored: dict[str, set[int]] = {}
        for problem_id, sample in self.read(["problem_id", "sample"]).iter_rows():
            stored.setdefault(problem_id, set()).add(sample)
        wanted = range(samples)
        missing = {
            problem.prompt_id: sorted(set(wanted) - stored.get(problem.prompt_id, set()))
            for problem in problems
        }
        return {problem_id: numbers for problem_id, numbers in missing.items() if numbers}

    def samples_of(self, problem_ids: Collection[str]) -> dict[str, list[Generation]]:
        """The stored samples of some problems; errors as for `read`."""
        import polars as pl

        samples: dict[str, list[Generation]] = {problem_id: [] for problem_id in problem_ids}
        rows = self.read().filter(pl.col("problem_id").is_in(list(problem_ids)))
        for row in rows.iter_rows(named=True):
            samples[row["problem_id"]].append(Generation(**row))
        return samples

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """All rows so far, in the order in which problems were worked on.

        Args:
            columns: only these, among them ``problem_id``.

        Raises:
            UserError: a file is torn, of another program or of a newer olr.
        """
        import polars as pl

        files = [self._whole] * self._whole.exists() + self._part_files()
        if not files:
            empty = pl.DataFrame(pl.from_arrow(_arrow_schema().empty_table()))
            return empty if columns is None else empty.select(columns)
        rows = pl.concat([_read(file, columns).with_columns(file=place) for place, file in enumerate(files)])
        return rows.filter(pl.col("file") == pl.col("file").max().over("problem_id")).drop("file")

    def generations(self) -> list[Generation]:
        """All rows so far as records; errors as for `read`."""
        return [Generation(**row) for row in self.read().iter_rows(named=True)]

    def _part_files(self) -> list[Path]:
        return sorted(self._parts.glob("part-*.parquet"))


def _arrow_schema() -> pa.Schema:
    import pyarrow as pa

    kinds = {"str": pa.string(), "int": pa.int64(), "bool": pa.bool_()}
    columns = [
        pa.field(f.name, kinds[str(f.type).removesuffix(" | None")], nullable="None" in str(f.type))
        for f in fields(Generation)
    ]
    return pa.schema(columns, {_MARK: str(SCHEMA_VERSION)})


def _table(rows: Sequence[Generation]) -> pa.Table:
    import pyarrow as pa

    schema = _arrow_schema()
    return pa.table({name: [getattr(row, name) for row in rows] for name in schema.names}, schema=schema)


def _write(file: Path, table: pa.Table) -> None:
    import pyarrow.parquet as pq

    marked = table.cast(_arrow_schema())
    write_whole(file, lambda path: pq.write_table(marked, path, compression="zstd"))


def _read(file: Path, columns: Sequence[str] | None) -> pl.DataFrame:
    import polars as pl
    import pyarrow as pa

    try:
        table = read_table([file], columns)
    except UserError as error:
        detail = str(error).removeprefix(f"{file} ").partition(";")[0]
        raise UserError(f"{file} {detail}; remove it, and the command that made it makes it again") from None
    version = int((table.schema.metadata or {}).get(_MARK, b"0"))
    if not 0 < version <= SCHEMA_VERSION:
        what = "was written by a newer olr" if version else "is not a file of generations"
        raise UserError(f"{file} {what}; {'upgrade olr' if version else 'move it away'}")
    schema = _arrow_schema()
    for name in columns or schema.names:
        if name not in table.column_names and schema.field(name).nullable:  # of an older olr
            table = table.append_column(name, pa.nulls(table.num_rows, schema.field(name).type))
    return pl.DataFrame(pl.from_arrow(table)).select(columns or schema.names)
