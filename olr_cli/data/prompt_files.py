"""From the rows of any file to prompts and to the interchange format of verl, LUFFY and the authors.

    data_source   prompt: list of {role, content}   ability   reward_model: {ground_truth, style}
    extra_info: {index, split, original_ground_truth, noise_type}   rephrased_prompt: like prompt, and may be missing

Plain question/answer rows become such rows; every other column, and every other field of the structs, stays.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from olr_cli.answers import ARITHMETIC_SOURCES, is_match
from olr_cli.answers.guesses import with_points
from olr_cli.data import chat
from olr_cli.data.arithmetic import SETS, SOURCE, SPLIT_ENDS, arithmetic_prompts, parse_source
from olr_cli.data.chat import Message
from olr_cli.data.hub import load_hub_table, parse_hub_id
from olr_cli.data.labels import LABEL_COLUMNS, read_labels
from olr_cli.data.prompts import (
    NOISE_TYPES,
    REPHRASED_COLUMN,
    SENTINEL,
    SYSTEM_PROMPT,
    NoiseType,
    Prompt,
    PromptSet,
)
from olr_cli.data.questions import question_ids
from olr_cli.data.rows import (
    MESSAGE_COLUMNS,
    SUFFIXES,
    Origins,
    Rows,
    files_of_one_split,
    pick,
    read_table,
    row_error,
    suggested,
)
from olr_cli.errors import UserError, at, did_you_mean, no_rows
from olr_cli.recipe.schema import ColumnRole

GROUND_TRUTH = "reward_model.ground_truth"
PROMPT_COLUMNS = ("prompt", "question", "problem", *MESSAGE_COLUMNS)
ID_COLUMNS = ("extra_info.index", "prompt_id", "id", "uid", "uuid", "_id", "idx", "index", "question_id",
              "problem_id", "unique_id")  # fmt: skip
"""Where ids are looked for; the first that has another value in every row counts."""
NUMBERED = ID_COLUMNS[:2]
"""Where ids are looked for in benchmarks, whose other rows are numbered."""

_LIKELY: Mapping[str, Sequence[str]] = {
    "question": (*PROMPT_COLUMNS, "query", "instruction", "input", "task", "text", "q"),
    "answer": (*LABEL_COLUMNS, "final_answer", "target", "output", "gold", "expected_answer", "reference_answer",
               "assistant", "response", "completion", "a"),
    "id": ("prompt_id", *ID_COLUMNS[2:]),
}  # fmt: skip
"""Names that columns often have, the likeliest first."""

_ROLES: Mapping[str, Sequence[str]] = {
    "question": PROMPT_COLUMNS,
    "answer": (GROUND_TRUTH, *LABEL_COLUMNS),
}
"""Where questions and labels are looked for; ids have rules of their own, and a system message has no usual place."""


def find_columns(
    rows: Rows, columns: Mapping[ColumnRole, str] | None, *, is_optional: bool = False
) -> Mapping[str, str]:
    """Role -> path of what a file holds: always a question; what `data.columns` leave out is looked for by its names.

    `is_optional`: leave `columns` aside if the file has none of them.
    """
    named: Mapping[str, str] = {str(role): path for role, path in (columns or {}).items()}
    if is_optional and not any(map(rows.has, named.values())):
        named = {}
    with at("data.columns"):
        picked = pick(rows.has, _ROLES, named, place=rows.place, available=rows.paths)
        if "question" not in picked:
            raise UserError(
                f"{rows.place} has no column of prompts ({', '.join(PROMPT_COLUMNS)}); {columns_hint(rows, named)}"
            )
    question = picked["question"]
    if (
        "answer" not in picked
        and question != "prompt"
        and all(map(_ends_with_answer, rows.values(question)))
    ):
        picked["answer"] = f"{question}.assistant"
    return picked


def columns_hint(rows: Rows, named: Mapping[str, str]) -> str:
    """Which columns there are, and the `data.columns` that say which holds what, with the likeliest ones."""
    text = suggested(_LIKELY, rows.paths, named).replace(", id: COLUMN", "")
    columns = ", ".join(rows.paths)
    return f"its columns are {columns}; say which hold what, as in data.columns={shlex.quote(text)}"


def _ends_with_answer(dialogue: Any) -> bool:
    last = chat.message(dialogue[-1]) if isinstance(dialogue, list) and dialogue else None
    return last is not None and last.role == "assistant"


NO_SYSTEM_PROMPT = "none"


@dataclass(frozen=True, slots=True)
class Reading:
    """How the rows of a file become prompts.

    Attributes:
        columns: which of them hold what (`data.columns`); by default, those of standard names.
        are_optional: read a file that has none of `columns` by the standard names.
        system_prompt: of prompts without a system message, or `NO_SYSTEM_PROMPT`; by default plain questions get that
            of R21, but not in the arithmetic task, and messages stay as they are.
        are_numbered: rows without ids get their row number and a digest, by which the options of benchmarks are drawn.
        decimal_comma: labels and true answers are read with points for their decimal commas (R7).
        is_text_only: the prompts are for a policy that reads text alone, so that images and the like are refused.
    """

    columns: Mapping[ColumnRole, str] | None = None
    are_optional: bool = False
    system_prompt: str | None = None
    are_numbered: bool = False
    decimal_comma: bool = False
    is_text_only: bool = False

    def system(self, data_source: str, *, is_question: bool) -> tuple[Message, ...]:
        """The system message of a prompt that has none: a plain question, or messages."""
        if self.system_prompt is not None:
            text = None if self.system_prompt == NO_SYSTEM_PROMPT else self.system_prompt
        else:
            text = (
                SYSTEM_PROMPT if is_question and data_source not in ARITHMETIC_SOURCES else None
            )
        return () if text is None else (Message("system", text),)


def read_rows(
    rows: Rows,
    *,
    data_source: str,
    split: str,
    noise_type_of_sentinel: NoiseType = "inactive",
    reading: Reading = Reading(),
) -> PromptSet:
    """Read the rows of a file as prompts.

    Args:
        rows: interchange rows, or others (`find_columns`). `REPHRASED_COLUMN` may ask the question of a row in other
            words.
        data_source: for rows that don't name theirs.
        split: for the ``extra_info`` of rows without one.
        noise_type_of_sentinel: for sentinel rows that don't name their noise type (R1).
        reading: settings of the user.
    """
    if not len(rows):
        raise no_rows(rows.place, "prompt")
    columns = find_columns(rows, reading.columns, is_optional=reading.are_optional)
    question, answer = columns["question"], columns.get("answer")
    asked, notes = asked_in(rows, question), list[str]()
    if blank := [row for row, prompt in enumerate(asked) if is_blank(prompt)]:
        first = f"{rows.origins.name(blank[0])} has no '{question}'"
        if len(blank) == len(rows):
            raise UserError(f"no row of {rows.place} has a question: {first}; fill it in")
        notes.append(
            f"{len(blank):,} row{'s' * (len(blank) > 1)} without a question skipped: {first}"
        )
        kept = sorted({*range(len(rows))}.difference(blank))
        rows, asked = rows.take(kept), [asked[row] for row in kept]
    for field in rows.table.schema:
        fit = (pa.types.is_struct, pa.types.is_list, pa.types.is_null)
        if field.name in ("extra_info", "reward_model") and not any(
            is_fit(field.type) for is_fit in fit
        ):
            raise UserError(
                f"{rows.place}: column '{field.name}' holds {field.type}, and it should be a struct; rename or drop it"
            )
    labels = read_labels(rows, answer)
    sources = [source or data_source for source in rows.texts("data_source")]
    messages = _messages(
        asked, sources, rows.texts(columns.get("system")), reading, question, rows
    )
    if unseen := [row for row, prompt in enumerate(asked) if chat.unseen_part(prompt)]:
        notes.append(
            f"{len(unseen):,} question{'s' * (len(unseen) > 1)} with an image or another part that is no text: only the"
            f" text is read (the first: {rows.origins.name(unseen[0])})"
        )
    rephrased = _rephrasings(rows, messages)
    prompt_ids, id_path = _prompt_ids(rows, columns.get("id"), messages, reading)
    marks = _marks(rows, labels, noise_type_of_sentinel)
    if reading.decimal_comma:
        labels = [label and with_points(label) for label in labels]
        marks = [(noise_type, true and with_points(true)) for noise_type, true in marks]
    prompts = tuple(
        Prompt(prompt_id, turns, label, true_answer, noise_type, source, other)
        for prompt_id, turns, label, (noise_type, true_answer), source, other in zip(
            prompt_ids, messages, labels, marks, sources, rephrased, strict=True
        )
    )
    # Their content is in the format's own columns.
    is_as_read = (
        question == "prompt" and [chat.prompt_messages(value) for value in asked] == messages
    )
    consumed = {question, answer, "prompt"} - ({"prompt"} if is_as_read else set())
    kept = [name for name in rows.table.column_names if name not in consumed]
    table = interchange_table(rows.table.select(kept), prompts, split)
    if id_path is not None and id_path != ID_COLUMNS[0]:
        index = with_fields(
            table.column("extra_info"), {"index": _index(prompt_ids)}, replace=True
        )
        table = table.set_column(
            table.schema.get_field_index("extra_info"), "extra_info", index
        )
    hint, has_ids = columns_hint(rows, {}), id_path is not None
    return PromptSet(
        prompts, table, rows.place, None, answer, has_ids, hint, notes, rows.origins
    )


def interchange_table(rows: pa.Table, prompts: Sequence[Prompt], split: str) -> pa.Table:
    """`rows` with every column of the interchange format; those that are missing, or no messages, are of `prompts`."""
    size = len(prompts)
    columns = dict(zip(rows.column_names, rows.columns, strict=True))
    standard = {
        "data_source": pa.array([p.data_source for p in prompts]),
        "prompt": _message_column(columns.get("prompt"), [p.messages for p in prompts]),
        "ability": columns.get("ability", pa.array(["math"] * size)),
    }
    reward = {
        "ground_truth": pa.array([p.given_label for p in prompts], pa.string()),
        "style": pa.array(["rule"] * size),
    }
    place = {"index": _index([p.prompt_id for p in prompts]), "split": pa.array([split] * size)}
    standard["reward_model"] = with_fields(columns.get("reward_model"), reward, replace=False)
    standard["extra_info"] = with_fields(columns.get("extra_info"), place, replace=False)
    others = {name: c for name, c in columns.items() if name not in standard}
    rephrased = columns.get(REPHRASED_COLUMN)
    if rephrased is not None or any(p.rephrased is not None for p in prompts):
        others[REPHRASED_COLUMN] = _message_column(rephrased, [p.rephrased for p in prompts])
    return pa.table(standard | others)


def prompt_set(prompts: Sequence[Prompt], source: str, split: str = "train") -> PromptSet:
    """Prompts that come from no file, with their rows in the interchange format."""
    no_columns = pa.table({"data_source": [p.data_source for p in prompts]})
    return PromptSet(tuple(prompts), interchange_table(no_columns, prompts, split), source)


def _message_column(column: Any, turns_of_rows: Sequence[Sequence[Message] | None]) -> pa.Array:
    """A column of messages as it is; in place of any other one the turns."""
    if column is not None and pa.types.is_nested(column.type):
        return column
    rows = [
        None if turns is None else [{"role": m.role, "content": m.content} for m in turns]
        for turns in turns_of_rows
    ]
    # With its type, for a column that is null in every row would have none.
    return pa.array(
        rows, pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    )


def labelled_table(table: pa.Table, prompts: Sequence[Prompt]) -> pa.Table:
    """An interchange table with the labels of `prompts` in it.

    ``original_ground_truth`` and ``noise_type`` are written where the truth of some prompt is known.
    """

    def text(values: Iterable[str | None]) -> pa.Array:
        return pa.array(list(values), pa.string())

    marks: dict[str, pa.Array] = {}
    if any(p.true_answer is not None or p.noise_type is not None for p in prompts):
        marks["original_ground_truth"] = text(p.true_answer for p in prompts)
        marks["noise_type"] = text(p.noise_type for p in prompts)
    labels = {"ground_truth": text(p.given_label for p in prompts)}
    for name, fields in (("reward_model", labels), ("extra_info", marks)):
        column = with_fields(table.column(name), fields, replace=True)
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def with_fields(column: Any, fields: Mapping[str, pa.Array], *, replace: bool) -> pa.Array:
    """A struct column with more `fields`; a field it has already is kept, or replaced."""
    have: dict[str, pa.Array] = {}
    if column is not None and pa.types.is_struct(column.type):
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        # unlike `field`, `flatten` makes the fields of a missing struct missing too
        have = {f.name: part for f, part in zip(whole.type, whole.flatten(), strict=True)}
    merged = have | {name: part for name, part in fields.items() if replace or name not in have}
    return pa.StructArray.from_arrays(list(merged.values()), list(merged))


def asked_in(rows: Rows, path: str) -> list[Any]:
    """The question of every row: a dialogue up to its last question, unless the column holds prompts."""
    return [
        value if path == "prompt" else _without_answer(value) for value in rows.values(path)
    ]


def _without_answer(prompt: Any) -> Any:
    while _ends_with_answer(prompt):
        prompt = prompt[:-1]
    return prompt


def _messages(
    prompts: Sequence[Any],
    sources: Sequence[str],
    systems: Sequence[str | None],
    reading: Reading,
    path: str,
    rows: Rows,
) -> list[tuple[Message, ...]]:
    """The chat turns, with a system message where `reading` or the row itself (`systems`) gives one."""
    messages = []
    for row, (prompt, source, text) in enumerate(zip(prompts, sources, systems, strict=True)):
        if reading.is_text_only and (part := chat.unseen_part(prompt)):
            raise UserError(
                f"{rows.origins.name(row)}: '{path}' has a part of type '{part}', and only text is shown to the policy;"
                " leave such rows out, as `olr check` does with --export"
            )
        is_question = isinstance(prompt, str)
        system = (
            (Message("system", text),)
            if text
            else reading.system(source, is_question=is_question)
        )
        turns = _turns(prompt, system, (), path, row, rows)
        if not is_question and all(message.role != "system" for message in turns):
            turns = (*system, *turns)
        messages.append(turns)
    return messages


def _rephrasings(
    rows: Rows, messages: Sequence[tuple[Message, ...]]
) -> list[tuple[Message, ...] | None]:
    """The chat turns of `REPHRASED_COLUMN`, where a text replaces the user's last turn; None where it is blank."""
    if REPHRASED_COLUMN not in rows.table.column_names:
        return [None] * len(messages)
    rephrased: list[tuple[Message, ...] | None] = []
    for row, (value, turns) in enumerate(
        zip(rows.values(REPHRASED_COLUMN), messages, strict=True)
    ):
        question = max(
            (at for at, turn in enumerate(turns) if turn.role == "user"), default=len(turns)
        )
        around = turns[:question], turns[question + 1 :]
        rephrased.append(
            None if is_blank(value) else _turns(value, *around, REPHRASED_COLUMN, row, rows)
        )
    return rephrased


def _turns(
    value: Any,
    before: tuple[Message, ...],
    after: tuple[Message, ...],
    path: str,
    row: int,
    rows: Rows,
) -> tuple[Message, ...]:
    """The chat turns of a question; a plain text becomes the user's turn between `before` and `after`."""
    turns = chat.prompt_messages(value, before, after)
    if turns is None:
        raise row_error(
            rows.origins.name(row),
            path,
            f"of another form ({type(value).__name__})",
            "text or a list of {role, content} messages with text in both",
        )
    return turns


def is_blank(value: object) -> bool:
    """Whether a question is missing or has no text."""
    if value is None or value != value:  # NaN is how pandas writes a missing value
        return True
    if isinstance(value, list):
        turns = chat.messages(value)
        return turns is not None and not any(turn.content.strip() for turn in turns)
    return isinstance(value, str) and not value.strip()


def _prompt_ids(
    rows: Rows, path: str | None, messages: Sequence[tuple[Message, ...]], reading: Reading
) -> tuple[list[str], str | None]:
    """Each row's id and where it is from: the path that the user names, the first of `ID_COLUMNS` that has another one
    in every row, or None: digests of the questions, so that they stay the same in another order of rows.
    """
    if path is not None:
        row_of: dict[str, int] = {}
        for row, name in enumerate(rows.texts(path)):
            if name is None or name in row_of:
                what = (
                    "empty"
                    if name is None
                    else f"'{name}', as in {rows.origins.name(row_of[name])}"
                )
                should = "an id that names one row; fix it or leave id out of data.columns"
                raise row_error(rows.origins.name(row), path, what, should)
            row_of[name] = row
        return list(row_of), path
    for column in NUMBERED if reading.are_numbered else ID_COLUMNS:
        present = [name for name in rows.texts(column) if name is not None]
        if len(set(present)) == len(messages):
            return present, column
    if reading.are_numbered:
        texts = (json.dumps(chat.pairs(turns)).encode() for turns in messages)
        return [
            f"{row}-{hashlib.sha256(text).hexdigest()[:8]}" for row, text in enumerate(texts)
        ], None
    return question_ids(messages), None


def _index(prompt_ids: Sequence[str]) -> pa.Array:
    """Prompt ids as a column: whole numbers where all are, so that they look as in the authors' files."""
    if all(
        i.isascii() and i.isdecimal() and len(i) < 18 and str(int(i)) == i for i in prompt_ids
    ):
        return pa.array([int(i) for i in prompt_ids])
    return pa.array(list(prompt_ids))


def _marks(
    rows: Rows, labels: Sequence[str | None], noise_type_of_sentinel: NoiseType
) -> list[tuple[NoiseType | None, str | None]]:
    """Noise type and true answer of every row (R1), as the row has them or as the marks of the file imply them."""
    originals = read_labels(rows, "extra_info.original_ground_truth")
    named = rows.texts("extra_info.noise_type")
    has_marks = SENTINEL in labels or any(original is not None for original in originals)
    names_types = any(name is not None for name in named)
    marks: list[tuple[NoiseType | None, str | None]] = []
    for row, (label, original, name) in enumerate(zip(labels, originals, named, strict=True)):
        # Where other rows are called clean, one without a type and without marks is of unknown quality.
        is_unknown = not has_marks or (names_types and original is None and label != SENTINEL)
        noise_type = next((known for known in NOISE_TYPES if known == name), None)
        if noise_type is not None:
            marks.append(
                (noise_type, label if original is None and noise_type == "clean" else original)
            )
        elif name is not None:
            should = f"one of {', '.join(NOISE_TYPES)}"
            raise row_error(
                rows.origins.name(row), "extra_info.noise_type", f"'{name[:60]}'", should
            )
        elif is_unknown:
            marks.append((None, None))
        else:
            marks.append(implied_mark(label, original, noise_type_of_sentinel))
    return marks


def implied_mark(
    label: str | None, original: str | None, noise_type_of_sentinel: NoiseType
) -> tuple[NoiseType | None, str | None]:
    if label is None:
        return None, original
    if label == SENTINEL:
        return noise_type_of_sentinel, original
    if original is None or is_match(original, label):
        return "clean", original or label
    return (
        "active_frozen",
        original,
    )  # another answer than the truth was written into the file (R4)


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
    """Prompts from a built-in set, Parquet, JSON or CSV files, or the hub.

    Args:
        source: ``arithmetic[:kind]``; a file, folder or pattern of Parquet, JSON or CSV files, in the
            interchange format or with columns for question and answer; or
            ``org/name[/configuration][:split][@revision]``.
        split: which prompts of a built-in set; the split of a hub id that names none.
        limit: at most so many, the first ones; of a built-in set, exactly so many (400 by default, or as
            many as there are).
        sample: exactly so many, drawn at random and kept in file order.
        seed: of a built-in set, and of the sample.
        noise_type_of_sentinel: what sentinel rows without a noise type are (R1); inactive by default.
        reading: which columns hold what, and the system message; of no effect on a built-in set.
    """
    text = str(source)
    kind = parse_source(text)
    if kind is not None:
        part = next((known for known in SPLIT_ENDS if known == split), None)
        if part is None:
            raise UserError(
                f"{text} has no split '{split}'; its splits are {', '.join(SPLIT_ENDS)}"
            )
        return prompt_set(arithmetic_prompts(kind, sample or limit, seed, part), text, split)
    rows, name, data_source, revision = load_rows(text, split)
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


def load_rows(text: str, split: str) -> tuple[Rows, str, str, str | None]:
    """The rows of a built-in set, in a file or on the hub, their name, data source by default, and revision."""
    if parse_source(text) is not None:
        return Rows(read_prompts(text, split=split).table, Origins(text)), text, SOURCE, None
    if _is_local(text):
        path = Path(text).absolute()
        if os.path.isfile(path / "manifest.json"):
            raise UserError(f"{text} is a run, not a data set; `olr audit` looks at its labels")
        # never the bare name: a file called arithmetic.jsonl is not the arithmetic task
        files = files_of_one_split(text)
        return (
            Rows(read_table(files), Origins(text, files)),
            path.name,
            f"local/{path.stem}",
            None,
        )
    hub_id = parse_hub_id(text)
    if hub_id is not None:
        table, revision = load_hub_table(hub_id, split)
        return Rows(table, Origins(text)), text, hub_id.name, revision
    built_in = (SOURCE, *(f"{SOURCE}:{kind}" for kind in SETS))
    guess = did_you_mean(text, built_in) or "; name a file, a folder or a hub id org/name"
    raise UserError(f"no data set '{text}'{guess}")


def _is_local(text: str) -> bool:
    """Whether a source can only mean a file: it exists, has a file's suffix or a path's form, or its folder exists."""
    path = Path(os.path.expanduser(text))
    if (
        os.path.lexists(path)
        or path.suffix in SUFFIXES
        or text.startswith((".", "/", "~"))
        or "*" in text
    ):
        return True
    return "/" in text and os.path.isdir(path.parts[0])
