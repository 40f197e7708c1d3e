"""One file of a log as rows with olr's names: which columns it has, and what type each is of."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl

from olr_cli.data.columns import column_at, numbers, text_column, values
from olr_cli.data.files import Kinds, is_json, json_batches, json_table, read_batches, read_table
from olr_cli.data.log_formats import TABLE, LogFormat, as_text, lacking, recognised, response_text
from olr_cli.errors import UserError, no_rows

if TYPE_CHECKING:
    import pyarrow as pa

STATISTICS = ("tokens", "mean_logprob", "entropy", "self_certainty")
"""Columns of numbers: what some rewards and choices of prompts need of every rollout, besides its answer."""

_CORRECTNESS = re.compile("acc|correct|match|verif|solve|answer|math", re.IGNORECASE)
"""In the name of a reward function: it rewards right answers, unlike one that rewards a format or a length."""


def read_rollouts(files: Sequence[Path], columns: Collection[str], place: Path) -> pl.DataFrame:
    """The rollouts in Parquet or JSON files with olr's names, with those of `columns` that the files have.

    `visit`, `step` and `tokens` are whole numbers, the other `STATISTICS` and `reward` numbers, `is_correct` and
    `truncated` true or false; all else is text, null where it is blank (but for a response, which may well be empty).

    Raises:
        UserError: a file can't be read, there is no row, or a column has other values.
    """
    table = read_table(files, columns)
    if table.num_rows == 0:
        raise no_rows(place, "rollout")
    names = [name for name in table.column_names if name in columns]
    return pl.DataFrame([_typed(table.column(name), name, place) for name in names])


def _typed(column: pa.ChunkedArray, name: str, place: Path, first: int = 0) -> pl.Series:
    """A column with the type that its name stands for; `is_correct` may also hold numbers, and has no type of nulls."""
    import pyarrow as pa

    kind = column.type
    if name in ("is_correct", "truncated") and (pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        return pl.Series(name, column, dtype=pl.Boolean if name == "truncated" else None)
    if name in (*STATISTICS, "reward", "is_correct", "truncated"):
        known = pl.Series(name, numbers(column, name, str(place), first=first))
        if name == "truncated":
            return known > 0
        return _whole(known, pl.Int32(), place) if name == "tokens" else known
    alone_in_list = name == "given_label"
    texts = pl.Series(name, text_column(column, name, str(place), alone_in_list=alone_in_list, first=first))
    if name == "response":
        return texts
    given = pl.select(pl.when(texts.str.strip_chars() != "").then(texts).alias(name)).to_series()
    return _whole(given, pl.Int64(), place) if name in ("visit", "step") else given


def _whole(column: pl.Series, kind: pl.DataType, place: Path) -> pl.Series:
    try:
        whole = column.cast(kind)
    except pl.exceptions.PolarsError:
        whole = None
    if whole is None or (column.dtype == pl.Float64 and not column.equals(whole.cast(pl.Float64))):
        raise UserError(f"{place}: the column {column.name} must hold whole numbers, and it holds others")
    return whole


@dataclass(frozen=True)
class LogFile:
    """A file of a log: rows with olr's names, and what was called what."""

    path: Path
    format: LogFormat
    places: Mapping[str, str]
    rewards: Sequence[str]
    rows: pl.DataFrame

    def note(self, source: Path, files: int) -> str:
        """What was taken for what."""
        kind = "a table of rollouts" if self.format is TABLE else f"a log of {self.format.name}"
        renamed = [f"{column} as {name}" for name, column in self.places.items() if name != column]
        if self.rewards:
            renamed.append(f"{' + '.join(self.rewards)} as reward")
        several = f" of {files} files" if files > 1 else ""
        identity = "" if "prompt_id" in self.places else "; prompts are told apart by their text"
        return f"{source} was read as {kind}{several}: {', '.join(renamed)}{identity}."


Reduce: TypeAlias = Callable[[pl.DataFrame, LogFormat], pl.DataFrame]
"""Takes rows with olr's names; returns what remains of them in memory, such as an answer of a response."""


def read_log_file(
    path: Path,
    names: Mapping[str, str],
    wanted: Collection[str],
    step: int,
    reduce: Reduce,
    *,
    takes_stored_answers: bool,
) -> LogFile | None:
    """A file as rows with olr's names, reduced some rows at a time; None without rows.

    `step` is that of rows which have none.
    """
    layout = _Layout(path, names, wanted, takes_stored_answers)
    while True:
        parts, first = [], 0
        try:
            for table in _tables(layout):
                if table.column_names and not table.num_rows:
                    continue
                _require_columns(layout.places, layout.columns, path)
                parts.append(reduce(_renamed(table, layout, step, first), layout.format))
                first += table.num_rows
        except _NewPlacesError:
            continue
        if not parts:
            return None
        rows = pl.concat(parts, how="diagonal_relaxed")
        return LogFile(path, layout.format, layout.places, layout.rewards, rows)


class _NewPlacesError(Exception):
    """A key that first comes late in a file of JSON holds what another was taken for."""


class _Layout:
    """Which columns of a file hold what.

    Attributes:
        columns: all of the file's, as far as it has been read.
        format: whose log it is.
        places: name in `COLUMNS` -> column, of those that are read.
        rewards: columns of reward functions.
        used: the columns that are read.
    """

    def __init__(
        self, path: Path, names: Mapping[str, str], wanted: Collection[str], takes_stored_answers: bool
    ) -> None:
        self.path, self._names, self._wanted = path, names, wanted
        self._takes_stored_answers = takes_stored_answers
        self.columns: list[str] = []
        self.format: LogFormat = TABLE
        self.places: dict[str, str] = {}
        self.rewards: list[str] = []

    @property
    def used(self) -> set[str]:
        return {column.partition(".")[0] for column in self.places.values()} | set(self.rewards)

    def choose(self, schema: pa.Schema) -> set[str]:
        """Take the columns of `schema` for all that there are; returns those that are read."""
        self.columns, names = schema.names, self._names
        self.format = recognised(self.columns)
        places = {**self.format.places(self.columns), **names}
        strange = next((c for c in names.values() if c.partition(".")[0] not in self.columns), None)
        if strange is not None:
            raise UserError(
                f"--columns: {self.path} has no column {strange}; its columns are {', '.join(self.columns)}"
            )
        if self.format.has_reward_columns and "reward" not in names:
            self.rewards = _reward_columns(schema, places)
        places = {name: column for name, column in places.items() if name in self._wanted or name in _NEEDED}
        if self._takes_stored_answers and not {"answer", "answer_class"}.isdisjoint(places):
            places.pop("response", None)
        self.places = places
        return self.used


def _tables(layout: _Layout) -> Iterator[pa.Table]:
    """The columns of a file that are read, some rows at a time.

    Raises:
        _NewPlacesError: later rows have keys that change `layout.places`; the file has to be read anew.
    """
    import pyarrow as pa

    path = layout.path
    if not is_json(path):
        yield from read_batches(path, layout.choose)
        return
    kinds: Kinds = {}
    first = 0
    for rows in json_batches(path):
        keys = dict.fromkeys(chain(layout.columns, *rows))
        if len(keys) > len(layout.columns):
            before = layout.places
            layout.choose(pa.schema([(name, pa.null()) for name in keys]))
            if first and layout.places != before:
                raise _NewPlacesError
        converters = {"prompt": as_text, "response": response_text}
        for name, column in layout.places.items():
            convert = converters.get(name)
            if convert is None:
                continue
            for number, row in enumerate(rows, start=first):
                cell = row.get(column)
                if not (cell is None or type(cell) is str):
                    row[column] = _converted(cell, convert, column, number, path)
        used = layout.used
        yield json_table(rows, str(path), [name for name in keys if name in used], kinds)
        first += len(rows)


_NEEDED = ("prompt_id", "prompt", "visit", "step", "group", "response", "answer", "data_source")


def _converted(
    cell: Any, convert: Callable[[Any], str | None], name: str, row: int, path: Path
) -> str | None:
    """A prompt or response as text."""
    try:
        return convert(cell)
    except TypeError:
        raise UserError(
            f"{path}: '{name}' of row {row} (the first is 0) is a {type(cell).__name__}, and it should be text or a"
            " list of messages with role and content"
        ) from None


def _reward_columns(schema: pa.Schema, places: Mapping[str, str]) -> list[str]:
    """The columns of reward functions: the numbers that are nothing else, those called rewards if there are any."""
    import pyarrow as pa

    others = {*places.values(), "advantage"}
    numeric = [one.name for one in schema if pa.types.is_floating(one.type) and one.name not in others]
    return [name for name in numeric if "reward" in name.lower()] or numeric


def _require_columns(places: Mapping[str, str], names: Sequence[str], path: Path) -> None:
    missing = [] if {"prompt_id", "prompt"} & places.keys() else ["prompt"]
    # Questions and answers alone are a data set, whose answers are labels.
    is_log = bool({"prompt_id", "visit", "step", "is_correct", "reward"} & places.keys())
    if not {"response", "answer_class", *(["answer"] if is_log else [])} & places.keys():
        missing.append("response")
    if missing:
        raise lacking(missing, names, str(path))


def _renamed(table: pa.Table, layout: _Layout, step: int, first: int) -> pl.DataFrame:
    """Rows with olr's names; `first` is the number of the first."""
    path, columns = layout.path, []
    for name, column in layout.places.items():
        cells, steps = column_at(table, column)
        if cells is None or steps:
            continue
        if name in ("prompt", "response"):
            cells = _as_texts(cells, as_text if name == "prompt" else response_text, column, path, first)
        columns.append(_typed(cells, name, path, first))
    frame = pl.DataFrame(columns)
    if layout.rewards:
        sums = [
            pl.Series(name, numbers(table.column(name), name, str(path), first=first)).cast(pl.Float64)
            for name in layout.rewards
        ]
        # TRL weighs every reward function alike unless it is told otherwise, and skips those that give none.
        frame = frame.with_columns(pl.DataFrame(sums).sum_horizontal().alias("reward"))
        verdict = [series for series in sums if len(sums) == 1 or _CORRECTNESS.search(series.name)]
        if len(verdict) == 1 and "is_correct" not in frame.columns:
            frame = frame.with_columns(verdict[0].alias("verdict"))
    if "step" not in frame.columns or frame["step"].null_count():
        known = [pl.col("step")] if "step" in frame.columns else []
        frame = frame.with_columns(pl.coalesce(*known, pl.lit(step, pl.Int64)).alias("step"))
    return frame


def _as_texts(
    column: pa.ChunkedArray, convert: Callable[[Any], str | None], name: str, path: Path, first: int
) -> pa.ChunkedArray:
    """Texts as they are, messages as text."""
    import pyarrow as pa

    if not pa.types.is_nested(column.type):
        return column
    cells = enumerate(values(column, name, str(path)), start=first)
    texts = [_converted(cell, convert, name, row, path) for row, cell in cells]
    return pa.chunked_array([pa.array(texts, pa.large_string())])
