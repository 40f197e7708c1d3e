"""Read prompts from the rows of any file: questions with answers, chats, or the interchange format.

The way of a row: `load_rows` finds the files, `find_columns` assigns roles to their columns, and `read_rows` builds the
prompts. `interchange.py` describes the format in which they are written.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import ne
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from olr_cli.answers import ARITHMETIC_SOURCES, is_match
from olr_cli.answers.graded import SENTINEL
from olr_cli.answers.guesses import with_points
from olr_cli.data import chat
from olr_cli.data.arithmetic import (
    SETS,
    SOURCE,
    SPLIT_ENDS,
    arithmetic_prompts,
    parse_source,
)
from olr_cli.data.chat import Message
from olr_cli.data.choices import (
    NO_CHOICES,
    choice_path,
    option_labels,
    option_notes,
    read_options,
    show_options,
)
from olr_cli.data.columns import (
    CHOICE_LABELS,
    ID_COLUMNS,
    NUMBERED,
    OF_PROMPTS,
    PROMPT_COLUMNS,
    REPHRASED_COLUMN,
)
from olr_cli.data.hub import load_hub_table, parse_hub_id
from olr_cli.data.interchange import interchange_table, prompt_set
from olr_cli.data.label_columns import column_notes, first_filled
from olr_cli.data.labels import read_labels
from olr_cli.data.prompts import NOISE_TYPES, SYSTEM_PROMPT, NoiseType, Prompt, PromptSet
from olr_cli.data.questions import question_ids
from olr_cli.data.rows import Rows, pick, suggested
from olr_cli.data.table_files import files_of_one_split, read_table
from olr_cli.data.values import SUFFIXES, Origins, row_error
from olr_cli.errors import UserError, at, did_you_mean, no_rows
from olr_cli.recipe.sections import ColumnRole


def find_columns(
    rows: Rows, columns: Mapping[ColumnRole, str] | None, *, is_optional: bool = False
) -> Mapping[str, str]:
    """Find the columns of a file; return role -> path of the column, always with the role ``question``.

    A role is what a column holds, such as ``question`` or ``answer`` (`ColumnRole`). The columns of roles that the user
    has not set are found by their usual names.

    Args:
        rows: the rows of the file.
        columns: role -> path of its column, as the user sets it in `data.columns`.
        is_optional: whether to ignore `columns` if the file has none of these paths.

    Raises:
        UserError: a path of `columns` leads nowhere, or no column holds questions.
    """
    named: dict[str, str] = {str(role): path for role, path in (columns or {}).items()}
    if is_optional and not any(map(rows.has, named.values())):
        named = {}
    choices = named.pop("choices", None) or choice_path(rows)
    has_choices = choices is not None and choices != NO_CHOICES
    with at("data.columns"):
        usual = _usual(rows, named, has_choices=has_choices)
        picked = pick(rows.has, usual, named, place=rows.place, available=rows.paths)
        if "question" not in picked:
            raise UserError(
                f"{rows.place} has no column of prompts ({', '.join(PROMPT_COLUMNS)})",
                columns_hint(rows, named, has_choices=has_choices),
            )
    if "answer" not in picked and _are_whole_dialogues(rows, picked["question"]):
        picked["answer"] = f"{picked['question']}.assistant"
    return {**picked, "choices": str(choices)} if has_choices else picked


def _usual(
    rows: Rows, named: Mapping[str, str], *, has_choices: bool
) -> Mapping[str, Sequence[str]]:
    """Return role -> the usual column names of this role that the file has, in the order in which to try them.

    A role is what a column holds, such as ``question``. Roles for which the user has set a column (`named`) are left
    out. With `has_choices`, the role ``answer`` also has the usual names for the labels of multiple-choice questions.
    """
    usual = {role: [*names.known] for role, names in OF_PROMPTS.items()}
    usual["answer"] += CHOICE_LABELS if has_choices else ()
    return {
        role: first_filled(rows, role, names)
        for role, names in usual.items()
        if role not in named
    }


def _are_whole_dialogues(rows: Rows, path: str) -> bool:
    """Return whether all values of a column are dialogues that end with an answer.

    A column called ``prompt`` always gives False: all turns of its dialogues are the prompt, even a last one of the
    assistant.
    """
    return path != "prompt" and all(map(_ends_with_answer, rows.values(path)))


def columns_hint(rows: Rows, named: Mapping[str, str], *, has_choices: bool) -> str:
    """Return a remedy for an error about columns: the file's columns, and a likely value of `data.columns`.

    `named` is role -> path, for columns that are known already. A role is what a column holds, such as ``question``.
    `has_choices` says that the questions are multiple-choice.
    """
    likely = {role: [*names.likely] for role, names in OF_PROMPTS.items()}
    likely["answer"] += CHOICE_LABELS if has_choices else ()
    text = suggested(likely, rows.paths, named).replace(", id: COLUMN", "")
    hint = f"its columns are {', '.join(rows.paths)}; say which hold what, as in data.columns={shlex.quote(text)}"
    if any(path.endswith("?") or len(path) > _LONGEST_NAME for path in rows.paths):
        hint += "; if these are its first row, put a line of names above it"
    return hint


def _ends_with_answer(dialogue: Any) -> bool:
    """Return whether a value is a dialogue whose last turn is the assistant's."""
    last = chat.message(dialogue[-1]) if isinstance(dialogue, list) and dialogue else None
    return last is not None and last.role == "assistant"


NO_SYSTEM_PROMPT = "none"
"""Value of `data.system_prompt` that leaves questions without a system message."""

_LONGEST_NAME = 60
"""Characters of a column's name; a longer one is rather a question in a CSV file without a header."""

_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?![\d,])")
"""A number whose comma may separate thousands or decimals: 1,234."""

_POINT = re.compile(r"(?<![\d.,])[1-9]\d{0,2}\.\d{3}(?![\d.,])")
"""A number whose point may separate thousands or decimals: 1.234."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The user's settings for reading rows as prompts."""

    columns: Mapping[ColumnRole, str] | None = None
    """Role -> path (`data.columns`); None for the standard names."""

    are_optional: bool = False
    """Whether a file that has none of `columns` is read by the standard names."""

    system_prompt: str | None = None
    """System message of prompts that have none, or `NO_SYSTEM_PROMPT`.

    By default, plain questions get the message of R21, except in the arithmetic task, and chats stay as they are.
    """

    are_numbered: bool = False
    """Whether rows without ids get their row number and a digest; benchmarks draw their options by these ids."""

    decimal_comma: bool = False
    """Whether labels and true answers are read with points in place of decimal commas (R7)."""

    is_text_only: bool = False
    """Whether the policy reads only text, so that prompts with images and the like are refused."""

    encoding: str | None = None
    """Encoding of text files, as for `read_text` (`data.encoding`)."""

    @property
    def options(self) -> list[str]:
        """The command-line options of `olr` that set the same `columns`, `decimal_comma` and `encoding`.

        An example is ``["--columns", "question=q", "--decimal-comma"]``. Fields that have their defaults give no
        option.
        """
        columns = ",".join(f"{role}={path}" for role, path in (self.columns or {}).items())
        words = ["--columns", columns] if columns else []
        words += ["--decimal-comma"] if self.decimal_comma else []
        is_utf_8 = self.encoding in (None, "utf-8")
        return words if is_utf_8 else [*words, "--encoding", str(self.encoding)]

    def system(self, data_source: str, *, is_question: bool) -> tuple[Message, ...]:
        """Return the system message for a prompt that has none, as a tuple of one turn, or () for no message.

        If `system_prompt` is set, it is the message, and `NO_SYSTEM_PROMPT` means no message. If it is None, only plain
        questions outside the arithmetic task get a message, the standard instruction.

        `is_question` is true for a plain question and false for a chat.
        """
        if self.system_prompt is not None:
            text = None if self.system_prompt == NO_SYSTEM_PROMPT else self.system_prompt
        else:
            text = (
                SYSTEM_PROMPT
                if is_question and data_source not in ARITHMETIC_SOURCES
                else None
            )
        return () if text is None else (Message("system", text),)


def read_rows(
    rows: Rows,
    *,
    data_source: str,
    split: str,
    noise_type_of_sentinel: NoiseType = "inactive",
    reading: Reading = Reading(),
    prompt_ids: Sequence[str] = (),
) -> PromptSet:
    """Read the rows of a file as prompts (R1).

    Args:
        rows: rows in the interchange format, or rows whose columns `find_columns` can find. The column
            `REPHRASED_COLUMN` may ask the question of a row in other words.
        data_source: data source of rows that don't name theirs.
        split: split in the ``extra_info`` of rows without one.
        noise_type_of_sentinel: noise type of a row that has the sentinel as its label and names no noise type. The
            sentinel is the text `SENTINEL`, which noise writes in place of a label.
        reading: the user's settings, such as the columns and the system message.
        prompt_ids: ids of the rows if the file has none; by default, digests of their questions.

    Raises:
        UserError: there are no rows, or a row cannot be read; the message names the row.
    """
    if not len(rows):
        raise no_rows(rows.place, "prompt")
    columns = find_columns(rows, reading.columns, is_optional=reading.are_optional)
    question = columns["question"]
    rows, questions, notes = _with_questions(rows, question)
    if notes:
        # Find the columns again: a label column may have been chosen for labels of rows that are now skipped.
        columns = find_columns(rows, reading.columns, is_optional=reading.are_optional)
    answer = columns.get("answer")
    _require_structs(rows)
    choices = read_options(rows, columns.get("choices"))
    labels, label_notes = option_labels(rows, answer, choices, columns.get("choices", ""))
    sources = [source or data_source for source in rows.texts("data_source")]
    messages = _messages(
        rows,
        question,
        questions,
        sources=sources,
        systems=rows.texts(columns.get("system")),
        reading=reading,
    )
    rephrased = [
        turns and show_options(turns, options)
        for turns, options in zip(_rephrasings(rows, messages), choices, strict=True)
    ]
    # Keep the turns without options too: the notes below count the questions that got theirs added.
    plain, messages = messages, [*map(show_options, messages, choices)]
    notes += [
        *option_notes(rows, columns.get("choices"), choices, [*map(ne, plain, messages)]),
        *label_notes,
        *_unseen_notes(rows, questions),
        *column_notes(rows, columns),
    ]
    prompt_ids, id_path = _prompt_ids(
        rows, columns.get("id"), messages, reading, prompt_ids
    )
    marks = _marks(rows, labels, noise_type_of_sentinel)
    if reading.decimal_comma:
        notes += _comma_notes(rows, labels)
        labels, marks = _with_points(labels, marks)
    prompts = tuple(
        Prompt(prompt_id, turns, label, true_answer, noise_type, source, other)
        for prompt_id, turns, label, (noise_type, true_answer), source, other in zip(
            prompt_ids, messages, labels, marks, sources, rephrased, strict=True
        )
    )
    # The interchange format has its own columns for question and answer, so the source's would be there twice.
    # A `prompt` column that is shown to the policy unchanged is already in that format.
    consumed = {question, answer, "prompt"}
    if question == "prompt" and list(map(chat.prompt_messages, questions)) == messages:
        consumed.remove("prompt")
    kept = [name for name in rows.table.column_names if name not in consumed]
    table = partial(
        interchange_table,
        rows.table.select(kept),
        prompts,
        split,
        has_other_ids=id_path not in (None, ID_COLUMNS[0]),
    )
    hint = columns_hint(rows, {}, has_choices="choices" in columns)
    has_ids = id_path is not None
    return PromptSet(
        prompts, cache(table), rows.place, None, answer, has_ids, hint, notes, rows.origins
    )


def _with_questions(rows: Rows, path: str) -> tuple[Rows, list[Any], list[str]]:
    """Return the rows that have a question, their questions, and a list with a note on the other rows, if any.

    Raises:
        UserError: no row has a question.
    """
    questions = asked_in(rows, path)
    blank = [row for row, question in enumerate(questions) if is_blank(question)]
    if not blank:
        return rows, questions, []
    first = f"{rows.origins.name(blank[0])} has no '{path}'"
    if len(blank) == len(rows):
        raise UserError(f"no row of {rows.place} has a question: {first}", "fill it in")
    note = f"{len(blank):,} row{'s' * (len(blank) > 1)} without a question skipped: {first}"
    kept = sorted({*range(len(rows))}.difference(blank))
    return rows.take(kept), [questions[row] for row in kept], [note]


def _require_structs(rows: Rows) -> None:
    """Raise UserError if the column `extra_info` or `reward_model` holds plain values.

    In the interchange format, these two hold structs.
    """
    # JSON `null` in every row gives the type null, and that is as good as an absent column.
    are_fit = (pa.types.is_struct, pa.types.is_list, pa.types.is_null)
    for field in rows.table.schema:
        is_fit = any(is_type(field.type) for is_type in are_fit)
        if field.name in ("extra_info", "reward_model") and not is_fit:
            raise UserError(
                f"{rows.place}: column '{field.name}' holds {field.type}, and it should be a struct",
                "rename or drop it",
            )


def _unseen_notes(rows: Rows, questions: Sequence[Any]) -> list[str]:
    """Return a list with a note if some questions have parts that are not text, such as images, else an empty list."""
    unseen = [row for row, question in enumerate(questions) if chat.unseen_part(question)]
    if not unseen:
        return []
    return [
        f"{len(unseen):,} question{'s' * (len(unseen) > 1)} with an image or another part that is no text: only the"
        f" text is read (the first: {rows.origins.name(unseen[0])})"
    ]


def _comma_notes(rows: Rows, labels: Sequence[str | None]) -> list[str]:
    """Return notes on how commas and points in labels were read, if the user has asked for decimal commas.

    Up to three notes count the labels with a decimal comma, the labels with a comma that was read as separating
    thousands, and the labels with a point that may separate thousands but was read as decimal. If there are no such
    labels, the only note says that no label has a decimal comma.
    """
    given = [(row, label, with_points(label)) for row, label in enumerate(labels) if label]
    labels_by_reading = {
        "read with a decimal comma": [it for it in given if it[1] != it[2]],
        "with three digits after a comma read as thousands": [
            it for it in given if it[1] == it[2] and _THOUSANDS.search(it[1])
        ],
        "with a point before three digits read as decimal": [
            it for it in given if it[1] == it[2] and _POINT.search(it[1])
        ],
    }
    return [
        f"{len(cases):,} label{'s' * (len(cases) > 1)} {reading} (the first: {cases[0][1]} is {cases[0][2]},"
        f" {rows.origins.name(cases[0][0])})"
        for reading, cases in labels_by_reading.items()
        if cases
    ] or [f"no label of {rows.place} has a decimal comma"]


def asked_in(rows: Rows, path: str) -> list[Any]:
    """Return the question of every row as it is stored: a text, chat turns or None.

    Turns of the assistant at the end of a dialogue are its answer and are cut off, except in a column called
    ``prompt``.
    """
    return [
        value if path == "prompt" else _without_answer(value) for value in rows.values(path)
    ]


def _without_answer(prompt: Any) -> Any:
    """Drop the assistant's turns from the end of a dialogue; return any other value unchanged."""
    while _ends_with_answer(prompt):
        prompt = prompt[:-1]
    return prompt


def _messages(
    rows: Rows,
    path: str,
    questions: Sequence[Any],
    *,
    sources: Sequence[str],
    systems: Sequence[str | None],
    reading: Reading,
) -> list[tuple[Message, ...]]:
    """Return the chat turns of every row's question, with a system message in front if there is one.

    A chat with a system message of its own keeps it. Any other question gets the system message of its row in
    `systems` or, if that is None, the one that `reading.system` returns.

    Args:
        rows: the rows, for errors.
        path: column of the questions, for errors.
        questions: the question of each row.
        sources: data source of each row.
        systems: system message of each row, None where a row has none.
        reading: the user's settings.

    Raises:
        UserError: a question is neither a text nor messages, or has an image where `reading` allows only text.
    """
    messages = []
    for row, (question, source, text) in enumerate(
        zip(questions, sources, systems, strict=True)
    ):
        if reading.is_text_only and (part := chat.unseen_part(question)):
            raise UserError(
                f"{rows.origins.name(row)}: '{path}' has a part of type '{part}', and only text is shown to the policy",
                "leave such rows out, as `olr check` does with --export",
            )
        is_question = isinstance(question, str)
        if text:
            system: tuple[Message, ...] = (Message("system", text),)
        else:
            system = reading.system(source, is_question=is_question)
        turns = chat.prompt_messages(question, system)
        if turns is None:
            raise _other_form(rows, row, path, question)
        # A chat may have a system message of its own, and that one counts.
        if not is_question and all(message.role != "system" for message in turns):
            turns = (*system, *turns)
        messages.append(turns)
    return messages


def _rephrasings(
    rows: Rows, messages: Sequence[tuple[Message, ...]]
) -> list[tuple[Message, ...] | None]:
    """Return the chat turns of each row's rephrased question (`REPHRASED_COLUMN`), or None where there is none.

    `messages` are the chat turns of each row's question. A rephrasing that is a text takes the place of the user's last
    turn, and the other turns stay.

    Raises:
        UserError: a rephrasing is neither a text nor messages.
    """
    if REPHRASED_COLUMN not in rows.table.column_names:
        return [None] * len(messages)
    rephrased: list[tuple[Message, ...] | None] = []
    values = rows.values(REPHRASED_COLUMN)
    for row, (value, turns) in enumerate(zip(values, messages, strict=True)):
        if is_blank(value):
            rephrased.append(None)
            continue
        # A text rephrases the user's last turn only, so the turns around it stay.
        users = [place for place, turn in enumerate(turns) if turn.role == "user"]
        question = users[-1] if users else len(turns)
        other = chat.prompt_messages(value, turns[:question], turns[question + 1 :])
        if other is None:
            raise _other_form(rows, row, REPHRASED_COLUMN, value)
        rephrased.append(other)
    return rephrased


def _other_form(rows: Rows, row: int, path: str, value: object) -> UserError:
    """Return the error for a question that is neither a text nor messages; `row` and `path` say where it is."""
    return row_error(
        rows.origins.name(row),
        path,
        f"of another form ({type(value).__name__})",
        "text or a list of {role, content} messages with text in both",
    )


def is_blank(value: object) -> bool:
    """Return whether a question is missing or has no text."""
    if value is None or value != value:  # pandas writes a missing value as NaN
        return True
    if isinstance(value, list):
        # A list that is no chat is not blank: reading it is an error that names the row.
        turns = chat.messages(value)
        return turns is not None and not any(turn.content.strip() for turn in turns)
    return isinstance(value, str) and not value.strip()


def _prompt_ids(
    rows: Rows,
    path: str | None,
    messages: Sequence[tuple[Message, ...]],
    reading: Reading,
    otherwise: Sequence[str],
) -> tuple[Sequence[str], str | None]:
    """Return each row's id, and the path of the column that holds the ids, or None if no column does.

    The ids are read from `path`, the column that the user has named. If it is None, they are read from the first usual
    column with a different id in every row (`NUMBERED` if `reading.are_numbered`, else `ID_COLUMNS`).

    If there is no such column, ids are made. With `reading.are_numbered`, an id is the row number and a digest of the
    question, such as ``0-5f2a91c3``. If not, the ids are `otherwise` or, if that is empty, digests of the questions.

    Raises:
        UserError: an id at `path` is missing or repeated.
    """
    if path is not None:
        return _ids_at(rows, path), path
    # Ids that repeat, such as those of problems sampled twice, do not identify rows.
    for column in NUMBERED if reading.are_numbered else ID_COLUMNS:
        ids = [name for name in rows.texts(column) if name is not None]
        if len(set(ids)) == len(messages):
            return ids, column
    if not reading.are_numbered:
        return otherwise or question_ids(messages), None
    texts = (json.dumps(chat.pairs(turns)).encode() for turns in messages)
    digests = (hashlib.sha256(text).hexdigest()[:8] for text in texts)
    return [f"{row}-{digest}" for row, digest in enumerate(digests)], None


def _ids_at(rows: Rows, path: str) -> list[str]:
    """Return the ids at a path that the user names; raise UserError if one is missing or repeated."""
    row_of: dict[str, int] = {}
    for row, name in enumerate(rows.texts(path)):
        if name is None or name in row_of:
            problem = (
                "empty"
                if name is None
                else f"'{name}', as in {rows.origins.name(row_of[name])}"
            )
            should = "an id that names one row; fix it or leave id out of data.columns"
            raise row_error(rows.origins.name(row), path, problem, should)
        row_of[name] = row
    return list(row_of)


Mark: TypeAlias = tuple[NoiseType | None, str | None]
"""The noise type and the true answer of a row, each None where it is not known (R1)."""


def _marks(
    rows: Rows, labels: Sequence[str | None], noise_type_of_sentinel: NoiseType
) -> list[Mark]:
    """Return the noise type and the true answer of every row, each None where it is unknown (R1).

    1. A noise type and a true answer that a row states in `extra_info` are kept. With the type ``clean`` and no true
       answer, the label is the true answer.
    2. A row that states no noise type, but a true answer or the sentinel as its label, gets the values that
       `implied_mark` infers. The sentinel is the text by which noise replaces a label; it gives the type
       `noise_type_of_sentinel`.
    3. A row that states none of these counts as clean if it has a label, no row states a noise type, and some row
       states a true answer or the sentinel. Otherwise, its noise type and its true answer are None.
    """
    originals = read_labels(rows, "extra_info.original_ground_truth")
    noise_types = _noise_types(rows)
    has_marks = SENTINEL in labels or any(original is not None for original in originals)
    names_types = any(noise_type is not None for noise_type in noise_types)
    marks: list[Mark] = []
    for label, original, noise_type in zip(labels, originals, noise_types, strict=True):
        # If other rows name their noise types, a row without a type and without marks is of unknown quality.
        is_unknown = not has_marks or (
            names_types and original is None and label != SENTINEL
        )
        if noise_type is not None:
            is_true = original is None and noise_type == "clean"
            marks.append((noise_type, label if is_true else original))
        elif is_unknown:
            marks.append((None, None))
        else:
            marks.append(implied_mark(label, original, noise_type_of_sentinel))
    return marks


def _noise_types(rows: Rows) -> list[NoiseType | None]:
    """Return the noise type that each row names, or None; raise UserError for an unknown one."""
    path = "extra_info.noise_type"
    types: dict[str, NoiseType] = {name: name for name in NOISE_TYPES}
    names = rows.texts(path)
    for row, name in enumerate(names):
        if name is not None and name not in types:
            raise row_error(
                rows.origins.name(row),
                path,
                f"'{name[:60]}'",
                f"one of {', '.join(NOISE_TYPES)}",
            )
    return [None if name is None else types[name] for name in names]


def _with_points(
    labels: Sequence[str | None], marks: Sequence[Mark]
) -> tuple[list[str | None], list[Mark]]:
    """Replace decimal commas by points in labels and in the true answers of `marks` (R7).

    `marks` are (noise type, true answer) pairs.
    """
    return (
        [label and with_points(label) for label in labels],
        [(noise_type, answer and with_points(answer)) for noise_type, answer in marks],
    )


def implied_mark(
    label: str | None, original: str | None, noise_type_of_sentinel: NoiseType
) -> Mark:
    """Infer (noise type, true answer) for a row that names no noise type.

    Use it only for files that mark their noisy rows: a row with a label but without `original` counts as clean.
    `original` is the true answer that the row states, or None. The sentinel is the text by which noise replaces a
    label.

    | label                      | noise type               | true answer |
    |----------------------------|--------------------------|-------------|
    | None                       | None                     | `original`  |
    | the sentinel               | `noise_type_of_sentinel` | `original`  |
    | any, if `original` is None | clean                    | the label   |
    | matches `original`         | clean                    | `original`  |
    | does not match `original`  | active_frozen            | `original`  |

    The first row that applies counts.
    """
    if label is None:
        return None, original
    if label == SENTINEL:
        return noise_type_of_sentinel, original
    if original is None or is_match(original, label):
        return "clean", original or label
    # The label differs from the truth, so a wrong answer was written into the file (R4).
    return "active_frozen", original


def read_prompts(
    source: str | Path,
    *,
    split: str = "train",
    limit: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    noise_type_of_sentinel: NoiseType = "inactive",
    reading: Reading = Reading(),
) -> PromptSet:
    """Read prompts from a built-in set, from Parquet, JSON or CSV files, or from the hub (R1).

    Args:
        source: a built-in set (``arithmetic[:kind]``), a file, folder or pattern of files, or a hub id
            (``org/name[/configuration][:split][@revision]``). Files are in the interchange format, or have columns for
            question and answer.
        split: split of a built-in set, or of a hub id that names none.
        limit: how many prompts to read at most, from the beginning; None for all. A built-in set must have this number,
            and None stands for 400, or for the whole split if it has fewer.
        sample: how many of these prompts to draw at random; they stay in file order. None keeps all. For a built-in
            set, this number replaces `limit`.
        seed: random seed of a built-in set and of the sample.
        noise_type_of_sentinel: noise type of rows that don't name theirs and whose label is the sentinel, the text by
            which noise replaces a label.
        reading: the user's settings, such as the columns and the system message; a built-in set ignores them.

    Raises:
        UserError: the source does not exist, has too few prompts, or has a row that cannot be read.
    """
    text = str(source)
    kind = parse_source(text)
    if kind is not None:
        part = next((known for known in SPLIT_ENDS if known == split), None)
        if part is None:
            raise UserError(
                f"{text} has no split '{split}'", f"its splits are {', '.join(SPLIT_ENDS)}"
            )
        return prompt_set(
            arithmetic_prompts(kind, sample or limit, seed, part), text, split
        )
    rows, name, data_source, revision = load_rows(text, split, reading.encoding)
    prompts = read_rows(
        rows,
        data_source=data_source,
        split=split,
        noise_type_of_sentinel=noise_type_of_sentinel,
        reading=reading,
    )
    prompts = replace(prompts, source=name, revision=revision)
    if limit is not None:
        prompts = prompts.subset(range(min(limit, len(prompts))))
    return prompts if sample is None else prompts.sample(sample, seed)


def load_rows(
    text: str, split: str, encoding: str | None = None
) -> tuple[Rows, str, str, str | None]:
    """Load the rows of a built-in set, of files or of the hub, not yet read as prompts.

    Args:
        text: a file, folder or pattern, the name of a built-in set, or a hub id, as for `read_prompts`.
        split: split of a built-in set, or of a hub id that names none.
        encoding: encoding of text files; None for UTF-8, or UTF-16 with a byte order mark.

    Returns:
        Four values: the rows, the name of the set, the data source to assume for rows that name none, and the commit of
        a hub data set. The commit is None for other sets, or if it is unknown.
    """
    if parse_source(text) is not None:
        return (
            Rows(read_prompts(text, split=split).table, Origins(text)),
            text,
            SOURCE,
            None,
        )
    if _is_local(text):
        path = Path(text).absolute()
        if os.path.isfile(path / "manifest.json"):
            raise UserError(
                f"{text} is a run, not a data set", "`olr audit` looks at its labels"
            )
        files = files_of_one_split(text)
        # The data source is never the bare name: a file called arithmetic.jsonl is not the arithmetic task.
        return (
            Rows(
                read_table(files, encoding=encoding),
                Origins(text, files, encoding=encoding),
            ),
            path.name,
            f"local/{path.stem}",
            None,
        )
    hub_id = parse_hub_id(text)
    if hub_id is not None:
        table, revision = load_hub_table(hub_id, split)
        return Rows(table, Origins(text)), text, hub_id.name, revision
    built_in = (SOURCE, *(f"{SOURCE}:{kind}" for kind in SETS))
    raise UserError(
        f"no data set '{text}'{did_you_mean(text, built_in)}",
        "name a file, a folder or a hub id org/name",
    )


def _is_local(text: str) -> bool:
    """Return whether a source can only mean files on this machine, and not a hub id.

    That is so if it exists, if it ends like a data file, or if it looks like a path or a pattern. It is also so if the
    part before its first slash is an existing folder.
    """
    path = Path(os.path.expanduser(text))
    if (
        os.path.lexists(path)
        or path.suffix in SUFFIXES
        or text.startswith((".", "/", "~"))
        or "*" in text
    ):
        return True
    return "/" in text and os.path.isdir(path.parts[0])
