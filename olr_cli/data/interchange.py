"""From the rows of any file to prompts and to the interchange format of verl, LUFFY and the authors.

    data_source   prompt: list of {role, content}   ability   reward_model: {ground_truth, style}
    extra_info: {index, split, original_ground_truth, noise_type}   rephrased_prompt: like prompt, and may be missing

Plain question/answer rows become such rows; every other column, and every other field of the structs, stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from olr_cli.answers import ARITHMETIC_SOURCES, is_match
from olr_cli.answers.extraction import boxed
from olr_cli.data.columns import values
from olr_cli.data.fields import (
    GROUND_TRUTH,
    ID_COLUMNS,
    NUMBERED,
    field_texts,
    field_values,
    find_fields,
    paths,
    turn,
)
from olr_cli.data.prompts import (
    NOISE_TYPES,
    REPHRASED_COLUMN,
    SENTINEL,
    SYSTEM_PROMPT,
    Message,
    NoiseType,
    Prompt,
    PromptSet,
)
from olr_cli.data.questions import QuestionIds, turns_digest
from olr_cli.errors import UserError, no_rows
from olr_cli.recipe.schema import ColumnRole

if TYPE_CHECKING:
    import pyarrow as pa

NO_SYSTEM_PROMPT = "none"


@dataclass(frozen=True, slots=True)
class Reading:
    """How the rows of a file become prompts.

    Attributes:
        columns: which of them hold what (`data.columns`); by default, those of standard names.
        are_optional: read a file that has none of `columns` by the standard names.
        system_prompt: of prompts without a system message, or `NO_SYSTEM_PROMPT`; by default plain questions get that
            of R21, but not in the arithmetic task, and messages stay as they are.
        are_numbered: rows without ids get their row number and a digest, as in runs of earlier versions.
    """

    columns: Mapping[ColumnRole, str] | None = None
    are_optional: bool = False
    system_prompt: str | None = None
    are_numbered: bool = False

    def system(self, data_source: str, *, is_question: bool) -> tuple[Message, ...]:
        """The system message of a prompt that has none: a plain question, or messages."""
        if self.system_prompt is not None:
            text = None if self.system_prompt == NO_SYSTEM_PROMPT else self.system_prompt
        else:
            text = SYSTEM_PROMPT if is_question and data_source not in ARITHMETIC_SOURCES else None
        return () if text is None else (Message("system", text),)


@dataclass(frozen=True, slots=True)
class Rows:
    """Prompts, the same rows in the interchange format (their labels as in the file), and where the labels are.

    Attributes:
        paths: what the file has, for a message that says where labels may be.
    """

    prompts: tuple[Prompt, ...]
    table: pa.Table
    label_column: str | None
    paths: tuple[str, ...]


def read_rows(
    raw: pa.Table,
    *,
    place: str,
    data_source: str,
    split: str,
    noise_type_of_sentinel: NoiseType,
    reading: Reading = Reading(),
) -> Rows:
    """Read the rows of a file as prompts.

    Args:
        raw: interchange rows, or others (`olr_cli.data.fields`). `REPHRASED_COLUMN` may ask the question of a row in
            other words.
        place: file name, for errors.
        data_source: for rows that don't name theirs.
        split: for the ``extra_info`` of rows without one.
        noise_type_of_sentinel: for sentinel rows that don't name their noise type (R1).
        reading: settings of the user.

    Raises:
        UserError: there are no rows or no prompts, or a value is not what its column should hold.
    """
    if raw.num_rows == 0:
        raise no_rows(place, "prompt")
    fields = find_fields(raw, reading.columns, place, is_optional=reading.are_optional)
    labels = _labels(raw, fields.answer, place)
    sources = [source or data_source for source in field_texts(raw, "data_source", place)]
    asked = field_values(raw, fields.question, place)
    if fields.question != "prompt":
        asked = [_without_answer(prompt) for prompt in asked]
    systems = field_texts(raw, fields.system, place)
    messages = _messages(asked, sources, systems, reading, fields.question, place)
    rephrased = _rephrasings(raw, messages, place)
    prompt_ids, id_path = _prompt_ids(raw, fields.id, messages, reading, place)
    marks = _marks(raw, labels, noise_type_of_sentinel, place)
    prompts = tuple(
        Prompt(prompt_id, turns, label, true_answer, noise_type, source, other)
        for prompt_id, turns, label, (noise_type, true_answer), source, other in zip(
            prompt_ids, messages, labels, marks, sources, rephrased, strict=True
        )
    )
    # Their content is in the format's own columns.
    consumed = {
        name for name in raw.column_names if name in (fields.question, fields.answer) and name != "prompt"
    }
    if "prompt" in raw.column_names and (
        fields.question != "prompt" or [_turns(value, ()) for value in asked] != messages
    ):
        consumed.add("prompt")
    table = interchange_table(raw.drop_columns(sorted(consumed)), prompts, split)
    if id_path is not None and id_path != ID_COLUMNS[0]:
        index = with_fields(table.column("extra_info"), {"index": _index(prompt_ids)}, replace=True)
        table = table.set_column(table.schema.get_field_index("extra_info"), "extra_info", index)
    return Rows(prompts, table, fields.answer, tuple(paths(raw)))


def interchange_table(rows: pa.Table, prompts: Sequence[Prompt], split: str) -> pa.Table:
    """`rows` with every column of the interchange format, missing ones filled in from `prompts`.

    A column of messages stays as it is, with whatever else its messages hold. `REPHRASED_COLUMN` is there if `rows`
    have it or some prompt has a rephrasing; null where there is none.
    """
    import pyarrow as pa

    size = len(prompts)
    columns = dict(zip(rows.column_names, rows.columns, strict=True))
    standard = {
        "data_source": pa.array([p.data_source for p in prompts]),
        "prompt": columns.get("prompt"),
        "ability": columns.get("ability", pa.array(["math"] * size)),
    }
    if not _holds_messages(standard["prompt"]):
        standard["prompt"] = _message_column([p.messages for p in prompts])
    reward = {
        "ground_truth": pa.array([p.given_label for p in prompts], pa.string()),
        "style": pa.array(["rule"] * size),
    }
    place = {"index": _index([p.prompt_id for p in prompts]), "split": pa.array([split] * size)}
    standard["reward_model"] = with_fields(columns.get("reward_model"), reward, replace=False)
    standard["extra_info"] = with_fields(columns.get("extra_info"), place, replace=False)
    others = {name: c for name, c in columns.items() if name not in standard}
    rephrased = columns.get(REPHRASED_COLUMN)
    is_wanted = rephrased is not None or any(p.rephrased is not None for p in prompts)
    if is_wanted and not _holds_messages(rephrased):
        others[REPHRASED_COLUMN] = _message_column([p.rephrased for p in prompts])
    return pa.table(standard | others)


def prompt_set(prompts: Sequence[Prompt], source: str, split: str = "train") -> PromptSet:
    """Prompts that come from no file, with their rows in the interchange format."""
    import pyarrow as pa

    no_columns = pa.table({"data_source": [p.data_source for p in prompts]})
    return PromptSet(tuple(prompts), interchange_table(no_columns, prompts, split), source)


def _holds_messages(column: Any) -> bool:
    import pyarrow as pa

    return column is not None and pa.types.is_nested(column.type)


def _message_column(turns_of_rows: Sequence[Sequence[Message] | None]) -> pa.Array:
    import pyarrow as pa

    rows = [
        None if turns is None else [{"role": m.role, "content": m.content} for m in turns]
        for turns in turns_of_rows
    ]
    # With its type, for a column that is null in every row would have none.
    return pa.array(rows, pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])))


def labelled_table(table: pa.Table, prompts: Sequence[Prompt]) -> pa.Table:
    """An interchange table with the labels of `prompts` in it.

    ``original_ground_truth`` and ``noise_type`` are written where the truth of some prompt is known.
    """
    import pyarrow as pa

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
    import pyarrow as pa

    have: dict[str, pa.Array] = {}
    if column is not None and pa.types.is_struct(column.type):
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        # unlike `field`, `flatten` makes the fields of a missing struct missing too
        have = {f.name: part for f, part in zip(whole.type, whole.flatten(), strict=True)}
    merged = have | {name: part for name, part in fields.items() if replace or name not in have}
    return pa.StructArray.from_arrays(list(merged.values()), list(merged))


def _labels(raw: pa.Table, path: str | None, place: str) -> list[str | None]:
    r"""The labels in the file; of a worked solution the content of its last ``\boxed{…}``, or what follows ``####``."""
    labels = field_texts(raw, path, place)
    if path == GROUND_TRUTH:
        return labels
    return [text and (boxed(text) or text.rpartition("####")[2].strip() or None) for text in labels]


def _without_answer(prompt: Any) -> Any:
    """A dialogue up to its last question."""
    while isinstance(prompt, list) and prompt and (last := turn(prompt[-1])) and last[0] == "assistant":
        prompt = prompt[:-1]
    return prompt


def _messages(
    prompts: Sequence[Any],
    sources: Sequence[str],
    systems: Sequence[str | None],
    reading: Reading,
    path: str,
    place: str,
) -> list[tuple[Message, ...]]:
    """The chat turns, with a system message where `reading` or the row itself (`systems`) gives one."""
    messages = []
    for row, (prompt, source, text) in enumerate(zip(prompts, sources, systems, strict=True)):
        is_question = isinstance(prompt, str)
        system = (Message("system", text),) if text else reading.system(source, is_question=is_question)
        turns = None if _is_blank(prompt) else _turns(prompt, system)
        if turns is None:
            raise _not_a_prompt(prompt, path, row, place)
        if not is_question and system and all(message.role != "system" for message in turns):
            turns = (*system, *turns)
        messages.append(turns)
    return messages


def _rephrasings(
    raw: pa.Table, messages: Sequence[tuple[Message, ...]], place: str
) -> list[tuple[Message, ...] | None]:
    """The chat turns of `REPHRASED_COLUMN`; None where it is missing or blank.

    A plain text takes the place of the question, the last turn of the user, among the other turns of its prompt.
    """
    if REPHRASED_COLUMN not in raw.column_names:
        return [None] * len(messages)
    rephrased: list[tuple[Message, ...] | None] = []
    rephrasings = values(raw.column(REPHRASED_COLUMN), REPHRASED_COLUMN, place)
    for row, (value, original) in enumerate(zip(rephrasings, messages, strict=True)):
        if _is_blank(value):
            rephrased.append(None)
            continue
        question = max((at for at, m in enumerate(original) if m.role == "user"), default=len(original))
        turns = _turns(value, original[:question], original[question + 1 :])
        if turns is None:
            raise _not_a_prompt(value, REPHRASED_COLUMN, row, place)
        rephrased.append(turns)
    return rephrased


def _is_blank(value: object) -> bool:
    if value is None or value != value:  # NaN is how pandas writes a missing value
        return True
    if isinstance(value, list):
        return all((said := turn(item)) is not None and not said[1].strip() for item in value)
    return isinstance(value, str) and not value.strip()


def _turns(
    value: object, before: tuple[Message, ...], after: tuple[Message, ...] = ()
) -> tuple[Message, ...] | None:
    """Messages as they are, or a text as the user's turn between `before` and `after`; None for anything else."""
    if isinstance(value, str):
        return (*before, Message("user", value), *after)
    if isinstance(value, list):
        said = [turn(item) for item in value]
        if None not in said:
            return tuple(Message(*one) for one in said if one is not None)
    return None


def _not_a_prompt(value: object, column: str, row: int, place: str) -> UserError:
    form = "empty" if _is_blank(value) else f"of another form ({type(value).__name__})"
    return UserError(
        f"{place}: '{column}' of row {row} (the first is 0) is {form}, and it should be text or a list of"
        " {role, content} messages with text in both"
    )


def _prompt_ids(
    raw: pa.Table, path: str | None, messages: Sequence[tuple[Message, ...]], reading: Reading, place: str
) -> tuple[list[str], str | None]:
    """Each row's id and where it is from: the path that the user names, the first of `ID_COLUMNS` that has another one
    in every row, or None: digests of the questions, so that they stay the same in another order of rows.
    """
    if path is not None:
        return _named_ids(raw, path, place), path
    for column in NUMBERED if reading.are_numbered else ID_COLUMNS:
        present = [name for name in field_texts(raw, column, place) if name is not None]
        if len(set(present)) == len(messages):
            return present, column
    if reading.are_numbered:
        return [f"{row}-{turns_digest(turns)[:8]}" for row, turns in enumerate(messages)], None
    ids = QuestionIds()
    return [ids.next(turns) for turns in messages], None


def _named_ids(raw: pa.Table, path: str, place: str) -> list[str]:
    rows: dict[str, int] = {}
    for row, name in enumerate(field_texts(raw, path, place)):
        if name is None or name in rows:
            problem = "is empty" if name is None else f"is '{name}', as in row {rows[name]}"
            raise UserError(
                f"{place}: '{path}' of row {row} (the first is 0) {problem}; an id names one row, so mend it or leave"
                " id out of data.columns"
            )
        rows[name] = row
    return list(rows)


def _index(prompt_ids: Sequence[str]) -> pa.Array:
    """Prompt ids as a column: whole numbers where all are, so that they look as in the authors' files."""
    import pyarrow as pa

    if all(i.isascii() and i.isdecimal() and len(i) < 18 and str(int(i)) == i for i in prompt_ids):
        return pa.array([int(i) for i in prompt_ids])
    return pa.array(list(prompt_ids))


def _marks(
    raw: pa.Table, labels: Sequence[str | None], noise_type_of_sentinel: NoiseType, place: str
) -> list[tuple[NoiseType | None, str | None]]:
    """Noise type and true answer of every row (R1), as the row has them or as the marks of the file imply them."""
    originals = field_texts(raw, "extra_info.original_ground_truth", place)
    named = field_texts(raw, "extra_info.noise_type", place)
    has_marks = SENTINEL in labels or any(original is not None for original in originals)
    names_types = any(name is not None for name in named)
    marks: list[tuple[NoiseType | None, str | None]] = []
    for row, (label, original, name) in enumerate(zip(labels, originals, named, strict=True)):
        # Where other rows are called clean, one without a type and without marks is of unknown quality.
        is_unknown = not has_marks or (names_types and original is None and label != SENTINEL)
        if name is not None:
            marks.append(_named_mark(name, label, original, f"{place}: row {row} (the first is 0)"))
        else:
            marks.append(
                (None, None) if is_unknown else implied_mark(label, original, noise_type_of_sentinel)
            )
    return marks


def _named_mark(
    name: str, label: str | None, original: str | None, place: str
) -> tuple[NoiseType, str | None]:
    noise_type = next((known for known in NOISE_TYPES if known == name), None)
    if noise_type is None:
        raise UserError(f"{place} has the noise type '{name}'; known are {', '.join(NOISE_TYPES)}")
    if noise_type == "clean" and label == SENTINEL:
        raise UserError(
            f"{place} is called clean, and its label is {SENTINEL}; mend its extra_info.noise_type"
        )
    if original is None and noise_type == "clean":
        return noise_type, label
    return noise_type, original


def implied_mark(
    label: str | None, original: str | None, noise_type_of_sentinel: NoiseType
) -> tuple[NoiseType | None, str | None]:
    if label is None:
        return None, original
    if label == SENTINEL:
        return noise_type_of_sentinel, original
    if original is None or is_match(original, label):
        return "clean", original or label
    return "active_frozen", original  # another answer than the truth was written into the file (R4)
