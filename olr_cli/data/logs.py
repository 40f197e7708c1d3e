"""Rollouts in files, whoever stored them: one table with olr's names, prompts told apart by text, visits by step."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from types import NoneType
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa

from olr_cli.answers import default_extractor, opened_by, read_answer, reading_more
from olr_cli.data.chat import Message, as_text, ending, messages, response_text, turns_of
from olr_cli.data.columns import COLUMNS, LABELS, STATISTICS
from olr_cli.data.json_rows import json_batches, json_table
from olr_cli.data.labels import label_of
from olr_cli.data.log_formats import (
    TABLE,
    LogFormat,
    recognised,
    require_columns,
    unpacked,
)
from olr_cli.data.places import is_json
from olr_cli.data.questions import question_ids
from olr_cli.data.rows import Rows, pick
from olr_cli.data.table_files import matching_files, read_batches
from olr_cli.data.values import Origins, row_error
from olr_cli.errors import UserError, at, no_rows

_HELD_OUT = re.compile(r"^(eval|val|test|valid|validation)([-_.]|$)")
_OUTPUT = re.compile(r"-(audit|replay)-[0-9a-f]{8}\.parquet$")
"""What olr writes beside a log."""

_NESTED_LOGS = ("completions/*.parquet", "**/train_rollouts.jsonl", "**/results.jsonl",
                "**/rollout/[0-9]*/[0-9]*.jsonl", "[0-9]*/[0-9]*.jsonl", "**/samples_*.jsonl")  # fmt: skip
"""Where the logs lie in the folder that a trainer was given: TRL's, verifiers', prime-rl's, AReaL's and lm-eval's."""


def common_place(places: Sequence[Path]) -> Path:
    """The path by which several files are named: the only one, else the folder that they share."""
    if len(places) == 1:
        return places[0].parent if glob.has_magic(str(places[0])) else places[0]
    return Path(os.path.commonpath(places))


def log_files(places: Sequence[Path]) -> list[Path]:
    """The files of rollouts at some places, in the order of the numbers in their names; held-out ones are left out."""
    files = [file for place in places for file in _files_at(place)]
    unique = {file.resolve(): file for file in files}
    return sorted(unique.values(), key=lambda file: [natural(part) for part in file.parts])


def _files_at(place: Path) -> list[Path]:
    if not place.is_dir():
        return matching_files(str(place))
    for pattern in _NESTED_LOGS:
        found = place.glob(pattern)
        if below := [
            f for f in found if not any(map(_HELD_OUT.match, f.relative_to(place).parts))
        ]:
            return below
    files = [file for file in matching_files(str(place)) if not _OUTPUT.search(file.name)]
    if not files:
        raise UserError(f"the folder {place} has no file of rollouts; name another")
    # Validation files beside those of training hold rewards too, which count other questions.
    return [file for file in files if not _HELD_OUT.match(file.name)] or files


def is_log(place: Path) -> bool:
    """Whether there are files of rollouts at a place that is not a run directory or a folder of runs."""
    try:
        return bool(_files_at(place))
    except UserError:
        return False


def natural(name: str) -> list[Any]:
    """A key that sorts names with their numbers as numbers: a2 before a10."""
    return [int(part) if at % 2 else part for at, part in enumerate(re.split("([0-9]+)", name))]


def numbered(files: Sequence[Path]) -> Iterator[tuple[Path, int]]:
    """Each file with the step that its path names: the last number in which the paths differ, else its place."""
    texts = [str(file) for file in files]
    differ = (
        place
        for place, letters in enumerate(zip(*texts, strict=False))
        if len(set(letters)) > 1
    )
    start = len(texts[0][: next(differ, 0)].rstrip("0123456789"))
    steps = [re.search("[0-9]+", text[start:]) for text in texts]
    for place, (file, step) in enumerate(zip(files, steps, strict=True), start=1):
        yield file, int(step[0]) if step is not None and len(files) > 1 else place


_CORRECTNESS = re.compile("acc|correct|match|verif|solve|answer|math", re.IGNORECASE)
"""In the name of a reward function: it rewards right answers, unlike one that rewards a format or a length."""


def _typed(rows: Rows, name: str, path: str) -> pl.Series:
    """A column with the type that its name stands for; `is_correct` may also hold numbers, and has no type of nulls."""
    is_column = path in rows.table.column_names
    if name in ("is_correct", "reward", "truncated") and is_column:
        column = rows.table.column(path)
        if pa.types.is_boolean(column.type) or pa.types.is_null(column.type):
            verdicts, types = (
                pl.Series(name, column),
                {"reward": pl.Float64, "truncated": pl.Boolean},
            )
            return verdicts.cast(types[name]) if name in types else verdicts
    if name in (*STATISTICS, "reward", "is_correct", "truncated"):
        known = pl.Series(name, rows.numbers(path))
        if name == "truncated":
            return known > 0
        return _whole(known, pl.Int32(), rows.place) if name == "tokens" else known
    if name in ("prompt", "response") and (
        not is_column or pa.types.is_nested(rows.table[path].type)
    ):
        chats = [
            _chat_text(cell, name, path, row, rows.origins)
            for row, cell in enumerate(rows.values(path))
        ]
        texts = pl.Series(name, chats, dtype=pl.String)
    else:
        texts = pl.Series(name, rows.text_column(path))
    if name in ("given_label", "true_answer"):
        texts = _as_labels(texts)
    if name == "response":
        return texts
    given = pl.select(
        pl.when(texts.str.strip_chars() != "").then(texts).alias(name)
    ).to_series()
    return _whole(given, pl.Int64(), rows.place) if name in ("visit", "step") else given


def _as_labels(texts: pl.Series) -> pl.Series:
    """Labels read as in a file of prompts; one that holds several answers which differ stays as it is."""
    labels = {}
    for text in texts.drop_nulls().unique():
        with suppress(ValueError):
            labels[text] = label_of(text)
    return texts.replace({text: label for text, label in labels.items() if label != text})


def _whole(column: pl.Series, kind: pl.DataType, place: str) -> pl.Series:
    try:
        whole = column.cast(kind)
    except pl.exceptions.PolarsError:
        whole = None
    if whole is None or (
        column.dtype == pl.Float64 and not column.equals(whole.cast(pl.Float64))
    ):
        raise UserError(
            f"{place}: the column {column.name} must hold whole numbers, and it holds others"
        )
    return whole


@dataclass(frozen=True)
class _Layout:
    """Which of a file's columns hold what: `places` is name in `COLUMNS` -> path; `rewards` are of reward functions."""

    columns: Sequence[str]
    format: LogFormat
    places: Mapping[str, str]
    rewards: Sequence[str]

    def note(self, source: Path, files: int) -> str:
        """A sentence on which columns were read as what."""
        kind = "a table of rollouts" if self.format is TABLE else f"a log of {self.format.name}"
        renamed = [
            f"{column} as {name}" for name, column in self.places.items() if name != column
        ]
        if self.rewards:
            renamed.append(f"{' + '.join(self.rewards)} as reward")
        several = f" of {files} files" if files > 1 else ""
        identity = (
            "" if "prompt_id" in self.places else "; prompts are told apart by their text"
        )
        return f"{source} was read as {kind}{several}: {', '.join(renamed)}{identity}."


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


def _chat_text(cell: Any, name: str, path: str, row: int, origins: Origins) -> str | None:
    """A prompt or a response, which may be messages, as text."""
    text = None if cell is None else as_text(cell) if name == "prompt" else response_text(cell)
    if text is None and cell is not None and messages(cell) is None:
        raise row_error(
            origins.name(row),
            path,
            f"a {type(cell).__name__}",
            "text or a list of messages with role and content",
        )
    return text


def _reward_columns(schema: pa.Schema, places: Mapping[str, str]) -> list[str]:
    """The columns of reward functions: the numbers that are nothing else, those called rewards if there are any."""
    others = {*places.values(), "advantage", "advantages"}
    numeric = [
        one.name for one in schema if pa.types.is_floating(one.type) and one.name not in others
    ]
    return [name for name in numeric if "reward" in name.lower()] or numeric


def _renamed(rows: Rows, layout: _Layout, step: int) -> pl.DataFrame:
    """Rows with olr's names; `step` is that of rows which have none."""
    frame = pl.DataFrame(
        [_typed(rows, name, path) for name, path in layout.places.items() if rows.has(path)]
    )
    if layout.rewards:
        sums = [pl.Series(name, rows.numbers(name)).cast(pl.Float64) for name in layout.rewards]
        # TRL weighs every reward function alike unless it is told otherwise, and skips those that give none.
        frame = frame.with_columns(pl.DataFrame(sums).sum_horizontal().alias("reward"))
        verdict = [
            series for series in sums if len(sums) == 1 or _CORRECTNESS.search(series.name)
        ]
        if len(verdict) == 1 and "is_correct" not in frame.columns:
            frame = frame.with_columns(verdict[0].alias("verdict"))
    if "step" not in frame.columns or frame["step"].null_count():
        known = [pl.col("step")] if "step" in frame.columns else []
        frame = frame.with_columns(pl.coalesce(*known, pl.lit(step, pl.Int64)).alias("step"))
    return frame


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

_MOST_REWARDS = 4
"""Different rewards of which those in the upper half mean right; more of them are a score, which says nothing of it."""


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
    parts = [
        rows
        for path, step in numbered(log_files(places))
        if (rows := files.read(path, step)) is not None
    ]
    first, repeated = files.first, files.repeated
    if first is None or not sum(map(len, parts)):
        raise no_rows(source, "rollout")
    rows = pl.concat(parts, how="diagonal_relaxed")
    if "filter" in rows.columns:  # the others have the same responses once more
        is_first = pl.col("filter").eq_missing(pl.col("filter").first().over("prompt_id"))
        rows = rows.filter(is_first).drop("filter")
    rows, texts = _with_ids(rows)
    if rows["prompt_id"].null_count() or (
        "visit" in rows.columns and rows["visit"].null_count()
    ):
        raise UserError(
            f"{source} has rows without prompt_id or visit; remove or complete them"
        )
    is_plain = (
        not columns
        and first.format is TABLE
        and first.places.get("given_label") in (None, "given_label")
    )
    notes = [] if is_plain else [first.note(source, len(parts) + len(repeated))]
    notes += files.losses()
    if repeated:
        several = f"{len(repeated)} steps (the first is {repeated[0]})"
        shown = several if len(repeated) > 1 else f"Step {repeated[0]}"
        notes.append(
            f"{shown} logged the rollouts of the step before once more; they count once."
        )
    if files.sample and rows["answer"].null_count() > 0.9 * len(rows):
        notes += filter(None, [reading_more(files.sample)])
    if "prompt_id" not in first.places:
        rows, conflicts = _apart_by_label(rows)
        notes += conflicts
    rows, groups = _with_visits(rows)
    notes += groups
    rows, verdicts = _with_verdicts(rows, first)
    notes += verdicts
    ids = rows["prompt_id"].unique().cast(pl.String)
    named = ((name, texts.get(name) or texts.get(name.rpartition("/")[0])) for name in ids)
    questions = {name: turns_of(text) for name, text in named if text is not None}
    return RolloutLog(
        source, rows, questions, first.format.name, notes, "prompt_id" in first.places
    )


@dataclass
class _Files:
    """The files of a log, read one after the other, each reduced to what later steps need of it.

    Attributes:
        first: the layout of the first file with rows.
        sample: some of its responses.
        repeated: steps that were left out, because they have the rollouts of the file before.
        cut: files that end within a line, and its number.
        silent: how many rows have no response.
    """

    columns: Mapping[str, str]
    wanted: Collection[str]
    extractor: str | None
    keeps_responses: bool
    report: Report
    first: _Layout | None = None
    sample: list[str] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)
    cut: dict[Path, int] = field(default_factory=dict)
    silent: int = 0
    _layout: _Layout = field(init=False)
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
                f" {first.format.name}; read them apart"
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

    def losses(self) -> Iterator[str]:
        """Sentences on what is not there, because a rollout failed or the trainer was killed."""
        for file, line in self.cut.items():
            yield f"{file} ends within line {line}, as if its writer was killed; that line is left out."
        if self.silent:
            is_kept = self.first is not None and self.first.format is TABLE
            fate = (
                "counted as rollouts without an answer"
                if is_kept
                else "left out, as of rollouts that failed"
            )
            yield f"{self.silent:,} row{'s' * (self.silent > 1)} without a response {fate}."

    def _parts(self, path: Path, step: int) -> Iterator[pl.DataFrame]:
        is_first = True
        # Of a Parquet or CSV file, its schema says which columns are read.
        look_at = partial(self._look_at, path)
        for rows in self._json_rows(path) if is_json(path) else read_batches(path, look_at):
            names = rows.table.column_names
            if names and not len(rows):
                continue
            places = self._layout.places
            if (
                self._layout.format is not TABLE
                and "prompt" in places
                and "response" not in places
            ):
                self.silent += len(rows)
                continue
            require_columns(places, self._layout.columns, str(path))
            if is_first:
                # What lies within a column shows only in its values.
                named = self.columns.items()
                within = {role: name for role, name in named if name.partition(".")[0] in names}
                with at("columns"):
                    pick(rows.has, {}, within, place=str(path), available=rows.paths)
            yield self._reduced(_renamed(rows, self._layout, step))
            is_first = False

    def _json_rows(self, path: Path) -> Iterator[Rows]:
        """The rollouts of a JSON file, some at a time, with the columns that are read."""
        # The file is read twice, for a key may come late and change which columns hold what.
        kinds: dict[str, type] = {}
        note_cut = partial(self.cut.__setitem__, path)
        for row in chain.from_iterable(
            map(unpacked, chain.from_iterable(json_batches(path, note_cut)))
        ):
            for name, value in row.items():
                if type(value) is float or kinds.get(name, NoneType) is NoneType:
                    kinds[name] = type(value)
        if not kinds:
            return
        types = {float: pa.float64(), bool: pa.bool_(), NoneType: pa.null()}
        schema = pa.schema({name: types.get(kind, pa.string()) for name, kind in kinds.items()})
        used, start = self._look_at(path, schema), 0
        for packed in json_batches(path, note_cut):
            lists = list(map(unpacked, packed))
            objects = list(chain.from_iterable(lists))
            numbers = [start + place for place, rollouts in enumerate(lists) for _ in rollouts]
            origins = Origins(str(path), [path], numbers)
            for name in {"prompt", "response"} & self._layout.places.keys():
                column = self._layout.places[name]
                for place, cells in enumerate(objects):
                    if type(cells.get(column)) not in (str, NoneType):
                        cells[column] = _chat_text(cells[column], name, column, place, origins)
            start += len(packed)
            yield Rows(json_table(objects, str(path), used), origins)

    def _look_at(self, path: Path, schema: pa.Schema) -> set[str]:
        """Find out which columns of a file hold what; returns those that are read."""
        columns, form = schema.names, recognised(schema.names)
        if form is TABLE and self.first is not None and "response" not in columns:
            form = (
                self.first.format
            )  # without responses, no rollout of a step can be recognised
        # verl's gts may be null throughout, and in preference data label says yes or no.
        others = {column.name for column in schema if column.type in ("null", "bool")}
        labels = [name for name in form.roles["given_label"] if name not in others]
        with at("columns"):
            places = pick(
                lambda path: path in columns or path.partition(".")[0] in columns,
                {**form.roles, "given_label": labels},
                self.columns,
                place=str(path),
                available=columns,
            )
        has_rewards = form.has_reward_columns and "reward" not in self.columns
        rewards = _reward_columns(schema, places) if has_rewards else []
        places = {
            name: place
            for name, place in places.items()
            if name in self.wanted or name in _NEEDED
        }
        if "response" not in self.wanted and not {"answer", "answer_class"}.isdisjoint(places):
            places.pop("response", None)
        self._layout = _Layout(columns, form, places, rewards)
        return {column.partition(".")[0] for column in places.values()} | set(rewards)

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
        return rows.cast({name: pl.Categorical() for name in _REPEATED if name in rows.columns})


def _with_ids(rows: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, str]]:
    """The rows with an id a prompt instead of its text, and the texts by id."""
    if "prompt" not in rows.columns:
        return rows, {}
    if "prompt_id" not in rows.columns:
        texts = (
            rows["prompt"].drop_nulls().unique(maintain_order=True).cast(pl.String).to_list()
        )
        ids, prompt = question_ids(map(turns_of, texts)), pl.col("prompt").cast(pl.String)
        names = prompt.replace_strict(texts, ids, default=None, return_dtype=pl.String)
        rows = rows.with_columns(names.cast(pl.Categorical()).alias("prompt_id"))
        return rows.drop("prompt"), dict(zip(ids, texts, strict=True))
    pairs = rows.select(pl.col("prompt_id", "prompt").cast(pl.String)).drop_nulls()
    return rows.drop("prompt"), dict(pairs.unique("prompt_id", keep="first").iter_rows())


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
        opened = {text: opened_by(ending(turns_of(text or ""))) for text in prompts.unique()}
        endings = map(opened.__getitem__, prompts)
    cases = zip(responses, of_rows, endings, strict=True)
    answers = [
        None if text is None else read_answer(text, name, prompt)
        for text, name, prompt in cases
    ]
    return pl.Series("answer", answers, dtype=pl.String)


def _apart_by_label(rows: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Prompts of one text that have different labels are different prompts."""
    if "given_label" not in rows.columns:
        return rows, []
    labels = rows.select("prompt_id", "given_label").drop_nulls().unique()
    several = labels.filter(pl.len().over("prompt_id") > 1).sort("prompt_id", "given_label")
    if several.is_empty():
        return rows, []
    number = pl.int_range(1, pl.len() + 1).over("prompt_id").cast(pl.String)
    apart = (pl.col("prompt_id").cast(pl.String) + "/" + number).cast(pl.Categorical())
    joined = rows.join(
        several.with_columns(apart=apart),
        on=["prompt_id", "given_label"],
        how="left",
        maintain_order="left",
    )
    rows = joined.with_columns(pl.coalesce("apart", "prompt_id").alias("prompt_id")).drop(
        "apart"
    )
    count = several["prompt_id"].n_unique()
    are = (
        "s have different labels and count" if count > 1 else " has different labels and counts"
    )
    return rows, [f"{count:,} prompt{are} once for each label."]


def _with_visits(rows: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """The rows with `visit` 1, 2, … of each prompt."""
    notes: list[str] = []
    if "visit" in rows.columns:
        order = pl.col("visit")
    elif "group" in rows.columns and rows["group"].null_count() == 0:
        first = pl.col("_group").min().over("prompt_id", "step", "group")
        rows, order = (
            rows.with_row_index("_group").with_columns(first),
            pl.struct("step", "_group"),
        )
    else:
        order = pl.col("step")
        sizes = rows.group_by("prompt_id", "step").len()["len"]
        usual = int(sizes.mode().min())  # type: ignore[arg-type]  # of whole numbers
        more = int(((sizes > usual) & (sizes % usual == 0)).sum())
        if more:
            several = (pl.len() > usual) & (pl.len() % usual == 0)
            place = pl.when(several).then(pl.int_range(pl.len()) // usual).otherwise(0)
            rows = rows.with_columns(place.over("prompt_id", "step").alias("_group"))
            order = pl.struct("step", "_group")
            times = f"{more:,} times" if more > 1 else "once"
            notes.append(
                f"A step holds several groups of {usual} rollouts of one prompt {times}; each group counts as a visit."
            )
    rank = order.rank("dense").over("prompt_id").cast(pl.Int32)
    return rows.with_columns(rank.alias("visit")).drop("_group", "group", strict=False), notes


def _with_verdicts(rows: pl.DataFrame, layout: _Layout) -> tuple[pl.DataFrame, list[str]]:
    """The rows with `is_correct` and `is_rewarded` where they can be known."""
    kept, notes = rows.drop("verdict", "is_correct", strict=False), list[str]()
    if (
        layout.format is TABLE and "is_correct" in rows.columns
    ):  # of the truth, whatever was rewarded
        verdicts, notes = _verdicts(rows["is_correct"])
        kept, rows = kept.with_columns(*verdicts), rows.drop("is_correct")
    source = next(
        (name for name in ("is_correct", "verdict", "reward") if name in rows.columns), None
    )
    if source is None or (source == "reward" and len(layout.rewards) > 1):
        note = (
            f"Which of {', '.join(layout.rewards)} rewards right answers is not known; name it as the column of"
            " is_correct."
        )
        return kept, [note] if len(layout.rewards) > 1 else notes
    verdicts, more = _verdicts(rows[source])
    return kept.with_columns(one.alias("is_rewarded") for one in verdicts), notes + more


def _verdicts(column: pl.Series) -> tuple[list[pl.Series], list[str]]:
    """Which of these numbers say right, and a note if that is not plain; nothing of a score."""
    numbers = column.cast(pl.Float64)
    different = numbers.drop_nulls().unique()
    if different.is_empty() or len(different) > _MOST_REWARDS:
        return [], []
    low, high = min(0.0, *different), max(0.0, *different)
    notes = []
    if not {*different} <= {-1.0, 0.0, 1.0}:
        values = ", ".join(f"{value:g}" for value in sorted(different))
        notes = [
            f"Rewards are {values}; those above {(low + high) / 2:g} are taken to say that an answer is right."
        ]
    return [numbers > (low + high) / 2], notes
