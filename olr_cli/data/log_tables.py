"""One file of a log as rows with olr's names: which columns it has, and what type each is of."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from olr_cli.data.columns import numbers, text_column, values
from olr_cli.data.files import json_rows, json_table, read_table
from olr_cli.data.log_formats import TABLE, LogFormat, as_text, flattened, lacking, recognised, response_text
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


def _typed(column: pa.ChunkedArray, name: str, place: Path) -> pl.Series:
    """A column with the type that its name stands for; `is_correct` may also hold numbers."""
    import pyarrow as pa

    if name in ("is_correct", "truncated") and pa.types.is_boolean(column.type):
        return pl.Series(name, column)
    if name in (*STATISTICS, "reward", "is_correct", "truncated"):
        known = pl.Series(name, numbers(column, name, str(place)), dtype=pl.Float64)
        if name == "truncated":
            return known > 0
        return _whole(known, pl.Int32(), place) if name == "tokens" else known
    texts = pl.Series(name, text_column(column, name, str(place), alone_in_list=name == "given_label"))
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
        if self.format.name == "verifiers v1":
            return f"{source} was read as {kind}."
        renamed = [f"{column} as {name}" for name, column in self.places.items() if name != column]
        if self.rewards:
            renamed.append(f"{' + '.join(self.rewards)} as reward")
        several = f" of {files} files" if files > 1 else ""
        identity = "" if "prompt_id" in self.places else "; prompts are told apart by their text"
        return f"{source} was read as {kind}{several}: {', '.join(renamed)}{identity}."


def read_log_file(
    path: Path, names: Mapping[str, str], wanted: Collection[str], step: int, *, takes_stored_answers: bool
) -> LogFile | None:
    """A file as rows with olr's names, None without rows; `step` is that of rows which have none."""
    import pyarrow as pa

    kind: LogFormat = TABLE
    places: dict[str, str] = {}
    rewards: list[str] = []
    there: list[str] = []

    def choose(schema: pa.Schema) -> set[str]:
        nonlocal kind, places, rewards, there
        there = schema.names
        kind = kind if kind is not TABLE else recognised(there)
        places = {**kind.places(there), **names}
        strange = next((c for c in names.values() if c.partition(".")[0] not in there), None)
        if strange is not None:
            raise UserError(f"--columns: {path} has no column {strange}; its columns are {', '.join(there)}")
        if kind.has_reward_columns and "reward" not in names:
            rewards = _reward_columns(schema, places)
        places = {name: column for name, column in places.items() if name in wanted or name in _NEEDED}
        if takes_stored_answers and not {"answer", "answer_class"}.isdisjoint(places):
            places.pop("response", None)
        return {column.partition(".")[0] for column in places.values()} | set(rewards)

    if path.suffix == ".parquet":
        table = read_table([path], choose)
    else:
        rows, nested = flattened(json_rows(path))
        kind = nested or TABLE
        keys = {name: None for row in rows for name in row}
        used = choose(pa.schema([(name, pa.null()) for name in keys]))
        texts = {places.get("prompt"): as_text, places.get("response"): response_text}
        columns = {
            name: _converted([row.get(name) for row in rows], texts.get(name), name, path)
            for name in used
            if name in keys
        }
        rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
        table = json_table(rows, str(path))
    if not there or (table.column_names and not table.num_rows):
        return None
    _require_columns(places, there, path)
    return LogFile(path, kind, places, rewards, _renamed(table, places, rewards, path, step))


_NEEDED = ("prompt_id", "prompt", "visit", "step", "group", "response", "answer", "data_source")


def _converted(
    cells: list[Any], convert: Callable[[Any], str | None] | None, name: str, path: Path
) -> list[Any]:
    """The cells of a column, messages among them as texts."""
    if convert is None:
        return cells
    texts = []
    for row, cell in enumerate(cells):
        try:
            texts.append(convert(cell))
        except TypeError:
            raise UserError(
                f"{path}: '{name}' of row {row} (the first is 0) is a {type(cell).__name__}, and it should be text or a"
                " list of messages with role and content"
            ) from None
    return texts


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


def _renamed(
    table: pa.Table, places: Mapping[str, str], rewards: Sequence[str], path: Path, step: int
) -> pl.DataFrame:
    columns = []
    for name, column in places.items():
        cells = _field(table, column)
        if cells is None:
            continue
        if name in ("prompt", "response"):
            cells = _as_texts(cells, as_text if name == "prompt" else response_text, column, path)
        columns.append(_typed(cells, name, path))
    frame = pl.DataFrame(columns)
    if rewards:
        sums = [
            pl.Series(name, numbers(table.column(name), name, str(path)), dtype=pl.Float64)
            for name in rewards
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


def _field(table: pa.Table, dotted: str) -> pa.ChunkedArray | None:
    """A column, or the field of a struct that a dotted name leads to; None if there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if dotted in table.column_names:
        return table.column(dotted)
    name, _, inner = dotted.partition(".")
    if name not in table.column_names:
        return None
    column = table.column(name)
    for part in inner.split("."):
        if not pa.types.is_struct(column.type) or column.type.get_field_index(part) < 0:
            return None
        column = pc.struct_field(column, part)
    return column


def _as_texts(
    column: pa.ChunkedArray, convert: Callable[[Any], str | None], name: str, path: Path
) -> pa.ChunkedArray:
    """Texts as they are, messages as text."""
    import pyarrow as pa

    if not pa.types.is_nested(column.type):
        return column
    texts = _converted(values(column, name, str(path)), convert, name, path)
    return pa.chunked_array([pa.array(texts, pa.large_string())])
