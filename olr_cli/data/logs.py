"""Read rollouts from the files of any trainer, as one table with olr's names.

`log_files.py` finds the files, `log_formats.py` recognises the trainer, `log_rows.py` unpacks its JSON, and
`log_tables.py` names the columns and numbers the visits. `read_log` puts them together.
"""

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
"""Number of responses in which to look for another way of reading answers, if hardly any answer is found."""
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
"""Columns whose texts repeat in many rollouts, so that they are stored as categories."""


Report: TypeAlias = Callable[[str], None]
"""Function that takes a sentence, without a full stop, on the progress of something slow."""


def silent(sentence: str) -> None:
    """Ignore a sentence on progress; callers that show no progress pass this function."""


@dataclass(frozen=True)
class RolloutLog:
    """What `read_log` returns: a table of the rollouts in a log, their questions, and notes on how they were read."""

    source: Path
    """The file or folder, or the common folder of several files."""

    rows: pl.DataFrame
    """One row per rollout, in the order of the files.

    The columns are those of `COLUMNS` that the files have. prompt_id, visit (1, 2, … for each prompt) and step (1 where
    unknown) are always there. Repeated texts are categories. `answer` is read from the response. `is_correct` is the
    log's own verdict on the true answer, and `is_rewarded` the reward's verdict on the label.
    """

    questions: Mapping[str, tuple[Message, ...]] = field(default_factory=dict)
    """prompt_id -> chat turns; empty if the files have no prompts."""

    trainer: str = TABLE.name
    """Name of the trainer that wrote the log; "olr" for a table with olr's names."""

    notes: Sequence[str] = ()
    """Sentences on how the files were read, and on what was left out."""

    has_ids: bool = True
    """Whether the files name their prompts; else `question_ids` made the ids."""


def read_log(
    places: Sequence[Path],
    columns: Mapping[str, str] | None = None,
    *,
    wanted: Collection[str] = COLUMNS,
    extractor: str | None = None,
    keeps_responses: bool = False,
    report: Report = silent,
) -> RolloutLog:
    """Read rollouts from the files of any trainer, with few responses in memory at a time (R6).

    Prompts are told apart by `prompt_id` or, if the files have no ids, by their text. A visit of a prompt is the group
    of its rollouts in one step. If a step has a multiple of the usual number of rollouts of a prompt, it holds several
    groups, and each group is a visit.

    Args:
        places: files, patterns, or folders of files.
        columns: olr's name of a column (`COLUMNS`) -> its path in the files, as the user sets it; other columns are
            found by their usual names.
        wanted: olr's names of the columns to read. If ``response`` is not among them, responses are read only from
            files without stored answers.
        extractor: name of the extractor of answers from responses; None for the default extractor of each rollout's
            data source.
        keeps_responses: whether the rows keep `response`.
        report: function that is called now and then with a sentence on progress.

    Raises:
        UserError: a file cannot be read or lacks a column, or no row has a response. `NoRows`, if there is no rollout.
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
    # Visits are counted for each prompt, so prompts with one text and several labels have to be apart by now.
    rows, groups = with_visits(rows)
    rows, verdicts = with_verdicts(rows, first)
    notes += groups + verdicts
    return RolloutLog(
        source, rows, _questions(rows, texts), first.format.name, notes, has_ids
    )


def _of_first_filter(rows: pl.DataFrame) -> pl.DataFrame:
    """Keep only the rows of each prompt's first filter; rows without a column `filter` stay unchanged.

    A filter is a rule by which lm-eval reads the answer in a response. With several filters, lm-eval stores each
    response several times.
    """
    if "filter" not in rows.columns:
        return rows
    is_first = pl.col("filter").eq_missing(pl.col("filter").first().over("prompt_id"))
    return rows.filter(is_first).drop("filter")


def _questions(
    rows: pl.DataFrame, texts: Mapping[str, str]
) -> Mapping[str, tuple[Message, ...]]:
    """Return prompt_id -> chat turns for the prompts of `rows` whose text is known; `texts` is prompt_id -> text."""
    ids = rows["prompt_id"].unique().cast(pl.String)
    # `apart_by_label` has added `/1`, `/2`, … to the ids of prompts with one text and several labels.
    named = ((name, texts.get(name) or texts.get(name.rpartition("/")[0])) for name in ids)
    return {name: turns_of(text) for name, text in named if text is not None}


@dataclass
class _Files:
    """The state of one call of `read_log`: it reads the files one by one, and collects facts for the notes on them.

    The fields from `columns` to `report` are the arguments of `read_log` with these names.
    """

    columns: Mapping[str, str]
    wanted: Collection[str]
    extractor: str | None
    keeps_responses: bool
    report: Report

    first: Layout | None = None
    """The layout of the first file with rows."""

    sample: list[str] = field(default_factory=list)
    """Some responses of the first file that has any."""

    repeated: list[int] = field(default_factory=list)
    """Steps that were left out because they repeat the rollouts of the step before."""

    cut: dict[Path, int] = field(default_factory=dict)
    """File -> number of its last line, for files that end within a line."""

    empty: list[Path] = field(default_factory=list)
    """JSON files without rollouts."""

    silent: int = 0
    """Number of rows without a response."""

    _layout: Layout = field(init=False)
    """The layout of the file that is being read."""

    _before: pl.Series | None = None
    """Digests of the rows of the file before, if its format repeats steps."""

    _count: int = 0
    """Number of rollouts read so far."""

    def read(self, path: Path, step: int) -> pl.DataFrame | None:
        """Return the rows of a file with olr's names, or None if it has no rows or repeats the rows of the file before.

        Rows without a step get `step`.

        Raises:
            UserError: the file cannot be read, or has another format than the files before it.
        """
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
        # TRL may log the rollouts of a step once more under the next step; the digests leave the step out.
        digest, rows = rows["_digest"], rows.drop("_digest")
        if self._before is not None and digest.equals(self._before):
            self.repeated += rows["step"].unique().to_list()
            return None
        self._before = digest
        return rows

    def notes(self, source: Path, count: int, *, is_shaped: bool) -> Iterator[str]:
        """Yield notes on how the files were read, and on what was left out of them.

        Args:
            source: the file, or the folder of all files.
            count: number of files with rows.
            is_shaped: whether the rewards are scores with more than two values, and so no verdicts.
        """
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
        """Yield the rows of a file in batches, with olr's names and with answers in place of responses.

        In a trainer's log, rows without a response are rollouts that failed. They are left out, and `self.silent`
        counts them. Rows without a step get `step`.
        """
        # `read_batches` calls this with the schema of a Parquet or CSV file, to learn which columns to read.
        look_at = partial(self._look_at, path)
        is_checked = False
        for rows in self._json_rows(path) if is_json(path) else read_batches(path, look_at):
            # A table without columns must reach `require_columns`, which raises the error.
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
        """Raise UserError if a column that the user has named, such as ``meta.gold``, leads to no value in `rows`.

        Columns whose first part (``meta``) is not in `rows` are not tested here. `path` is the log file, for the error.
        """
        columns = rows.table.column_names
        within = {
            role: name
            for role, name in self.columns.items()
            if name.partition(".")[0] in columns
        }
        with at("columns"):
            pick(rows.has, {}, within, place=str(path), available=rows.paths)

    def _json_rows(self, path: Path) -> Iterator[Rows]:
        """Yield the rollouts of a JSON file in batches, with only those columns that are needed."""
        note_cut = partial(self.cut.__setitem__, path)
        # Read the file twice: a key that first appears in a late row may still change the roles of the columns.
        packed = chain.from_iterable(json_batches(path, note_cut))
        schema = _schema_of(map(unpacked, packed))
        if not schema.names:
            # A file that is only a cut-off line already has a note.
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
                # Turn chats into text before they become a column: turns of several forms have no common type.
                column = self._layout.places[name]
                for place, cells in enumerate(rollouts):
                    if type(cells.get(column)) not in (str, NoneType):
                        cells[column] = chat_text(
                            cells[column], name, column, place, origins
                        )
            yield Rows(json_table(rollouts, str(path), used), origins)

    def _look_at(self, path: Path, schema: pa.Schema) -> set[str]:
        """Decide what each column of a file is read as, and return the names of the columns to read.

        The decision is stored in `_layout`, for the rows of this file.
        """
        form = recognised(schema.names)
        if form is TABLE and self.first is not None and "response" not in schema.names:
            # Without responses, no row has all the columns that identify the trainer: take the format of the files
            # before.
            form = self.first.format
        places = _places(schema, form, self.columns, str(path))
        is_wanted = not {"reward", "is_correct"}.isdisjoint(self.wanted)
        has_rewards = form.has_reward_columns and is_wanted and "reward" not in self.columns
        rewards = reward_columns(schema, places) if has_rewards else []
        needed = {*self.wanted, *_NEEDED}
        read = {name: place for name, place in places.items() if name in needed}
        # Responses are large, so skip them if their answers are stored.
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
        """Return the rows with answers in place of responses and with repeated texts as categories; report progress.

        The rows of a trainer's log that have no response, because the rollout failed, are left out.
        """
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
    """Return the columns of JSON objects, with types that are exact enough to find out what the columns hold.

    The types are float, boolean, null, and text for anything else. `lists` yields lists of objects, all of one file.
    """
    kinds: dict[str, type] = {}
    for row in chain.from_iterable(lists):
        for name, value in row.items():
            # The first value that is not null sets the type, but one float makes it a column of numbers.
            if type(value) is float or kinds.get(name, NoneType) is NoneType:
                kinds[name] = type(value)
    types = {float: pa.float64(), bool: pa.bool_(), NoneType: pa.null()}
    return pa.schema({name: types.get(kind, pa.string()) for name, kind in kinds.items()})


def _places(
    schema: pa.Schema, form: LogFormat, named: Mapping[str, str], place: str
) -> dict[str, str]:
    """Return olr's name of a column (`COLUMNS`) -> its path in the file.

    The path is the one that the user names, else the first path that is usual in this format and exists in the file.
    Columns that the file lacks are left out.

    Args:
        schema: the columns of the file.
        form: the format of the log.
        named: olr's name of a column -> its path in the file, as the user sets them.
        place: name of the file, for errors.

    Raises:
        UserError: a path in `named` leads to no column.
    """
    # verl's `gts` may be null throughout, and `label` in preference data is true or false: both are no labels.
    others = {column.name for column in schema if column.type in ("null", "bool")}
    labels = [name for name in form.roles["given_label"] if name not in others]
    columns = schema.names
    roles = {**form.roles, "given_label": labels}
    if form is TABLE and is_of_others(columns):
        # In a file that olr did not write, an `answer` beside responses is the right answer, hence a label.
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
    """Add the column `answer`, read from the responses, and `characters`, the length of each response.

    The column `response` is then dropped, unless `keeps_responses` is set. If the rows have no column `response`, they
    have stored answers, and these are only stripped of white space.
    """
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
    """Return a series `answer` with the answer that each response claims, null where there is none (R6).

    Args:
        responses: texts of the responses.
        sources: data source of each response, or None. Each response is read by the default extractor of its data
            source; without `sources`, all are read by the general default.
        extractor: name of an extractor that reads all responses, whatever their data source, or None.
        prompts: the prompt of each response, as `as_text` writes it, or None if unknown. If a prompt ends with a mark
            that opens the thinking, such as ``<think>``, the response begins inside its thinking.
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
