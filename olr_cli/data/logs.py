"""Rollouts in files, whoever stored them: one table with olr's names, prompts told apart by text, visits by step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from types import NoneType
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa

from olr_cli.answers import default_extractor, opened_by, read_answer, reading_more
from olr_cli.data.chat import Message, ending, turns_of
from olr_cli.data.columns import COLUMNS, LABELS, OF_ROLLOUTS
from olr_cli.data.json_rows import json_batches, json_table
from olr_cli.data.log_files import common_place, left_out, log_files, numbered
from olr_cli.data.log_formats import (
    TABLE,
    LogFormat,
    is_of_others,
    recognised,
    require_columns,
)
from olr_cli.data.log_rows import unpacked
from olr_cli.data.log_tables import (
    Layout,
    apart_by_label,
    chat_text,
    is_shaped,
    renamed,
    reward_columns,
    with_ids,
    with_verdicts,
    with_visits,
)
from olr_cli.data.rows import Rows, pick
from olr_cli.data.table_files import read_batches
from olr_cli.data.values import Origins, is_json
from olr_cli.errors import NoRows, UserError, at

_NEEDED = (
    "prompt_id",
    "prompt",
    "visit",
    "step",
    "group",
    "response",
    "answer",
    "data_source",
    "filter",
)


_EMPTY = "no rows, or likelihoods of given answers in place of responses"
_SAMPLE = 100
"""Responses of which it is found out how they could be read, where hardly any has an answer."""
_REPEATED = (
    "prompt_id",
    "prompt",
    "view",
    "model",
    "answer",
    "answer_class",
    *LABELS,
    "data_source",
)
"""Texts of which many rollouts have the same."""


Report: TypeAlias = Callable[[str], None]
"""Takes a sentence, without a full stop, on how far something is that takes long."""


def silent(sentence: str) -> None:
    """A `Report` that says nothing."""


@dataclass(frozen=True)
class RolloutLog:
    """Rollouts that are stored in files.

    Attributes:
        source: the file or folder; of several files the folder that they have in common.
        rows: one row per rollout, in the order of the files: those of `COLUMNS` that the files have, always prompt_id,
            visit (1, 2, … for each prompt) and step (1 where unknown); texts that repeat are categories. `answer` is
            read from the response. `is_correct` is what the log says of the truth, `is_rewarded` whether the reward
            says that the answer is the label.
        questions: prompt_id -> the turns, where the files have prompts.
        trainer: whose log it is; "olr" for a table with olr's names.
        notes: what was taken for what, and what was left out.
        has_ids: whether the files name their prompts; else they have the ids of `question_ids`.
    """

    source: Path
    rows: pl.DataFrame
    questions: Mapping[str, tuple[Message, ...]] = field(default_factory=dict)
    trainer: str = TABLE.name
    notes: Sequence[str] = ()
    has_ids: bool = True


def read_log(
    places: Sequence[Path],
    columns: Mapping[str, str] | None = None,
    *,
    wanted: Collection[str] = COLUMNS,
    extractor: str | None = None,
    keeps_responses: bool = False,
    report: Report = silent,
) -> RolloutLog:
    """Rollouts from files of any trainer, few of the responses in memory at a time.

    Prompts are told apart by `prompt_id`, else by their text. A visit of a prompt is its rollouts of one step; where
    they are a multiple of the usual number of rollouts, each such group is a visit, as each was voted on by itself.

    Args:
        places: files, patterns, or folders of files.
        columns: name in `COLUMNS` -> path in the files (`columns`).
        wanted: those of `COLUMNS` that are read; without ``response``, responses are read only where answers are not
            stored.
        extractor: how answers are read from responses; None: as the data source calls for (R6).
        keeps_responses: whether the rows have `response`.
        report: takes a sentence on how many rollouts are read, now and then.
    """
    source = common_place(places)
    files = _Files(columns or {}, wanted, extractor, keeps_responses, report)
    paths, of_others = log_files(places)
    parts = [
        rows
        for path, step in numbered(paths)
        if (rows := files.read(path, step)) is not None
    ]
    first = files.first
    if first is None or not sum(map(len, parts)):
        if files.silent:
            raise UserError(
                f"{source} has only rows without a response ({files.silent:,}), as of rollouts that failed",
                "name another log, or the column of responses",
            )
        raise NoRows(f"{source} has {_EMPTY}", "name a file with at least one rollout")
    rows, texts = with_ids(_of_first_filter(pl.concat(parts, how="diagonal_relaxed")))
    if any(
        rows[name].null_count() for name in ("prompt_id", "visit") if name in rows.columns
    ):
        raise UserError(
            f"{source} has rows without prompt_id or visit", "remove or complete them"
        )
    notes = [*files.notes(source, len(parts), is_shaped=is_shaped(rows)), *of_others]
    if files.sample and rows["answer"].null_count() > 0.9 * len(rows):
        notes += filter(None, [reading_more(files.sample)])
    has_ids = "prompt_id" in first.places
    if not has_ids:
        rows, conflicts = apart_by_label(rows)
        notes += conflicts
    rows, groups = with_visits(rows)
    rows, verdicts = with_verdicts(rows, first)
    notes += groups + verdicts
    return RolloutLog(
        source, rows, _questions(rows, texts), first.format.name, notes, has_ids
    )


def _of_first_filter(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of each prompt's first filter of lm-eval: the others have the same responses once more."""
    if "filter" not in rows.columns:
        return rows
    is_first = pl.col("filter").eq_missing(pl.col("filter").first().over("prompt_id"))
    return rows.filter(is_first).drop("filter")


def _questions(
    rows: pl.DataFrame, texts: Mapping[str, str]
) -> Mapping[str, tuple[Message, ...]]:
    """Return the turns of each prompt; one of several with a text has its number after the text's id."""
    ids = rows["prompt_id"].unique().cast(pl.String)
    # A prompt that was told apart by its label has the number of the label after its id.
    named = ((name, texts.get(name) or texts.get(name.rpartition("/")[0])) for name in ids)
    return {name: turns_of(text) for name, text in named if text is not None}


@dataclass
class _Files:
    """The files of a log, read one after the other, each reduced to what later steps need of it.

    Attributes:
        first: the layout of the first file with rows.
        sample: some of its responses.
        repeated: steps that were left out, because they have the rollouts of the file before.
        cut: files that end within a line, and its number.
        empty: files of JSON without rollouts.
        silent: how many rows have no response.
    """

    columns: Mapping[str, str]
    wanted: Collection[str]
    extractor: str | None
    keeps_responses: bool
    report: Report
    first: Layout | None = None
    sample: list[str] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)
    cut: dict[Path, int] = field(default_factory=dict)
    empty: list[Path] = field(default_factory=list)
    silent: int = 0
    _layout: Layout = field(init=False)
    _before: pl.Series | None = None
    _count: int = 0

    def read(self, path: Path, step: int) -> pl.DataFrame | None:
        """The rows of a file with olr's names; None without rows, or with those of the file before once more."""
        parts = list(self._parts(path, step))
        if not parts:
            return None
        first = self.first = self.first or self._layout
        if self._layout.format is not first.format:
            raise UserError(
                f"{path} looks like a log of {self._layout.format.name}, and the files before it like one of"
                f" {first.format.name}",
                "read them apart",
            )
        rows = pl.concat(parts, how="diagonal_relaxed")
        if not first.format.repeats_steps:
            return rows
        digest, rows = rows["_digest"], rows.drop("_digest")
        if self._before is not None and digest.equals(self._before):
            self.repeated += rows["step"].unique().to_list()
            return None
        self._before = digest
        return rows

    def notes(self, source: Path, count: int, *, is_shaped: bool) -> Iterator[str]:
        """Yield sentences on how the `count` files with rows were read, and on what was left out of them."""
        assert self.first is not None
        is_table = self.first.format is TABLE
        has_our_label = self.first.places.get("given_label") in (None, "given_label")
        if self.columns or not is_table or not has_our_label:
            files = count + len(self.repeated)
            yield self.first.note(source, files, is_shaped=is_shaped)
        for file, line in self.cut.items():
            yield f"{file} ends within line {line}, as if its writer was killed; that line is left out."
        if self.empty:
            yield left_out(self.empty, _EMPTY)
        if self.silent:
            fate = (
                "counted as rollouts without an answer"
                if is_table
                else "left out, as of rollouts that failed"
            )
            yield f"{self.silent:,} row{'s' * (self.silent > 1)} without a response {fate}."
        if self.repeated:
            several = f"{len(self.repeated)} steps (the first is {self.repeated[0]})"
            shown = several if len(self.repeated) > 1 else f"Step {self.repeated[0]}"
            yield f"{shown} logged the rollouts of the step before once more; they count once."

    def _parts(self, path: Path, step: int) -> Iterator[pl.DataFrame]:
        """The rows of a file, some at a time, reduced; those of rollouts that failed are counted and left out."""
        # Of a Parquet or CSV file, its schema says which columns are read.
        look_at = partial(self._look_at, path)
        is_checked = False
        for rows in self._json_rows(path) if is_json(path) else read_batches(path, look_at):
            # Without columns, an error is due, also where there are no rows.
            if rows.table.column_names and not len(rows):
                continue
            places = self._layout.places
            is_foreign = self._layout.format is not TABLE
            if is_foreign and "prompt" in places and "response" not in places:
                self.silent += len(rows)
                continue
            require_columns(places, self._layout.columns, str(path))
            if not is_checked:
                self._require_named(rows, path)
            is_checked = True
            yield self._reduced(renamed(rows, self._layout, step))

    def _require_named(self, rows: Rows, path: Path) -> None:
        """Make sure that paths which the user names lead somewhere: what lies in a column shows only in its values."""
        columns = rows.table.column_names
        within = {
            role: name
            for role, name in self.columns.items()
            if name.partition(".")[0] in columns
        }
        with at("columns"):
            pick(rows.has, {}, within, place=str(path), available=rows.paths)

    def _json_rows(self, path: Path) -> Iterator[Rows]:
        """The rollouts of a JSON file, some at a time, with the columns that are read."""
        note_cut = partial(self.cut.__setitem__, path)
        # The file is read twice, for a key may come late and change which columns hold what.
        packed = chain.from_iterable(json_batches(path, note_cut))
        schema = _schema_of(map(unpacked, packed))
        if not schema.names:
            # A line that was cut off has a note of its own.
            self.empty += [path] if path not in self.cut else []
            return
        used, start = self._look_at(path, schema), 0
        for objects in json_batches(path, note_cut):
            lists = [unpacked(row) for row in objects]
            rollouts = [*chain.from_iterable(lists)]
            numbers = [start + place for place, of_row in enumerate(lists) for _ in of_row]
            start += len(objects)
            origins = Origins(str(path), [path], numbers)
            for name in {"prompt", "response"} & self._layout.places.keys():
                # Chats become text here: turns of several forms have no common type in a table.
                column = self._layout.places[name]
                for place, cells in enumerate(rollouts):
                    if type(cells.get(column)) not in (str, NoneType):
                        cells[column] = chat_text(
                            cells[column], name, column, place, origins
                        )
            yield Rows(json_table(rollouts, str(path), used), origins)

    def _look_at(self, path: Path, schema: pa.Schema) -> set[str]:
        """Find out which columns of a file hold what; return those that are read."""
        form = recognised(schema.names)
        if form is TABLE and self.first is not None and "response" not in schema.names:
            # Without responses, no rollout of a step can be recognised.
            form = self.first.format
        places = _places(schema, form, self.columns, str(path))
        is_wanted = not {"reward", "is_correct"}.isdisjoint(self.wanted)
        has_rewards = form.has_reward_columns and is_wanted and "reward" not in self.columns
        rewards = reward_columns(schema, places) if has_rewards else []
        needed = {*self.wanted, *_NEEDED}
        read = {name: place for name, place in places.items() if name in needed}
        # Responses are large, and needless where their answers are stored.
        if "response" not in self.wanted and not {"answer", "answer_class"}.isdisjoint(
            read
        ):
            read.pop("response", None)
        self._layout = Layout(schema.names, form, read, rewards)
        columns = {
            path if path in schema.names else path.partition(".")[0]
            for path in read.values()
        }
        return columns | set(rewards)

    def _reduced(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows with answers in place of responses; texts that repeat are categories."""
        self._count += len(rows)
        self.report(f"Read {self._count:,} rollouts")
        if "response" in rows.columns:
            self.silent += rows["response"].null_count()
        if self._layout.format is not TABLE:  # a rollout that failed has no response
            rows = rows.drop_nulls("response")
        if self._layout.format.repeats_steps:
            rows = rows.with_columns(_digest=rows.drop("step").hash_rows())
        if "response" in rows.columns and not self.sample:
            self.sample = rows["response"].drop_nulls().head(_SAMPLE).to_list()
        rows = _answered(rows, self.extractor, keeps_responses=self.keeps_responses)
        return rows.cast(
            {name: pl.Categorical() for name in _REPEATED if name in rows.columns}
        )


def _schema_of(lists: Iterable[list[dict[str, Any]]]) -> pa.Schema:
    """Return the columns of JSON objects, with the types by which it is told what they hold."""
    kinds: dict[str, type] = {}
    for row in chain.from_iterable(lists):
        for name, value in row.items():
            # One float makes a column one of numbers, and what is null at first may be anything later.
            if type(value) is float or kinds.get(name, NoneType) is NoneType:
                kinds[name] = type(value)
    types = {float: pa.float64(), bool: pa.bool_(), NoneType: pa.null()}
    return pa.schema({name: types.get(kind, pa.string()) for name, kind in kinds.items()})


def _places(
    schema: pa.Schema, form: LogFormat, named: Mapping[str, str], place: str
) -> dict[str, str]:
    """Return name in `COLUMNS` -> the column of a file that holds it, as the user says or the log's format does."""
    # verl's gts may be null throughout, and in preference data label says yes or no.
    others = {column.name for column in schema if column.type in ("null", "bool")}
    labels = [name for name in form.roles["given_label"] if name not in others]
    columns = schema.names
    roles = {**form.roles, "given_label": labels}
    if form is TABLE and is_of_others(columns):
        # Beside responses, an answer that was not read from them is the right one.
        responses = OF_ROLLOUTS["response"]
        roles |= {"answer": [], "given_label": [*labels, "answer"]}
        roles["response"] = [*responses.known, *responses.likely]
    with at("columns"):
        return pick(
            lambda path: path in columns or path.partition(".")[0] in columns,
            roles,
            named,
            place=place,
            available=columns,
        )


def _answered(
    rows: pl.DataFrame, extractor: str | None, *, keeps_responses: bool
) -> pl.DataFrame:
    """The rows with the answers that their responses claim."""
    if "response" not in rows.columns:
        return rows.with_columns(pl.col("^answer$").str.strip_chars())
    sources, prompts = (
        rows[name] if name in rows.columns else None for name in ("data_source", "prompt")
    )
    answers = answers_of(rows["response"], sources, extractor, prompts)
    kept = rows.with_columns(answers, characters=pl.col("response").str.len_chars())
    return kept if keeps_responses else kept.drop("response")


def answers_of(
    responses: pl.Series,
    sources: pl.Series | None,
    extractor: str | None,
    prompts: pl.Series | None = None,
) -> pl.Series:
    """Return the answers that responses claim; without an `extractor` read as their data `sources` call for (R6).

    Each prompt is as `as_text` writes it; a log may have it with the end that the chat template gave it.
    """
    if extractor is not None or sources is None:
        of_rows: Iterable[str] = repeat(extractor or default_extractor(""), len(responses))
    else:
        names = {source: default_extractor(source or "") for source in sources.unique()}
        of_rows = map(names.__getitem__, sources)
    endings: Iterable[str] = repeat("", len(responses))
    if prompts is not None:
        opened = {
            text: opened_by(ending(turns_of(text or ""))) for text in prompts.unique()
        }
        endings = map(opened.__getitem__, prompts)
    cases = zip(responses, of_rows, endings, strict=True)
    answers = [
        None if text is None else read_answer(text, name, prompt)
        for text, name, prompt in cases
    ]
    return pl.Series("answer", answers, dtype=pl.String)
