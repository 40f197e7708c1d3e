"""Which columns of a file hold question, answer and id: those of standard names, or those that `data.columns` names.

A path names a column (``Question``), a field of a struct (``meta.gold``), an item of a list (``answers.0``), or, in a
list of chat turns, the last turn of a role (``messages.assistant``).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from olr_cli.data.columns import column_at, text_of, texts, values
from olr_cli.errors import UserError, did_you_mean
from olr_cli.recipe.schema import ColumnRole

if TYPE_CHECKING:
    import pyarrow as pa

GROUND_TRUTH = "reward_model.ground_truth"
MESSAGE_COLUMNS = ("messages", "conversations")
"""Whole dialogues: the last turn of the assistant is the answer, where no column of `LABEL_COLUMNS` has one."""
PROMPT_COLUMNS = ("prompt", "question", "problem", *MESSAGE_COLUMNS)
LABEL_COLUMNS = ("answer", "label", "ground_truth", "solution")
ID_COLUMNS = ("extra_info.index", "prompt_id", "id", "uid", "uuid", "_id", "idx", "index", "question_id",
              "problem_id", "unique_id")  # fmt: skip
"""Where ids are looked for; the first that has another value in every row counts."""
NUMBERED = ID_COLUMNS[:2]
"""Where olr looked for ids when it still numbered the rows of files without them."""

_ROLES = {"human": "user", "gpt": "assistant"}
"""Roles as ShareGPT calls them."""
_LIKELY: Mapping[ColumnRole, Sequence[str]] = {
    "question": (*PROMPT_COLUMNS, "query", "instruction", "input", "task", "text", "q"),
    "answer": (*LABEL_COLUMNS, "final_answer", "target", "output", "gold", "expected_answer", "reference_answer",
               "assistant", "response", "completion", "a"),
    "id": ("prompt_id", *ID_COLUMNS[2:]),
}  # fmt: skip
"""Names that columns often have, the likeliest first."""


@dataclass(frozen=True)
class Fields:
    """Paths of what a file holds; None: nothing there."""

    question: str
    answer: str | None
    id: str | None
    system: str | None


def find_fields(
    raw: pa.Table, columns: Mapping[ColumnRole, str] | None, place: str, *, is_optional: bool = False
) -> Fields:
    """Where a file holds what.

    Args:
        raw: the file.
        columns: `data.columns`; what they leave out is looked for under its standard names.
        place: file name, for errors.
        is_optional: leave `columns` aside if the file has none of them.

    Raises:
        UserError: it has no question, or lacks one of `columns`; the file's columns and the setting are named.
    """
    named = dict(columns or {})
    lacking = [path for path in named.values() if not has_field(raw, path, place)]
    if is_optional and len(lacking) == len(named):
        named, lacking = {}, []
    if lacking:
        raise UserError(
            f"{place} has no '{lacking[0]}', which data.columns names{did_you_mean(lacking[0], paths(raw))}; its"
            f" columns are {', '.join(paths(raw))}"
        )
    question = named.get("question") or _first(raw, PROMPT_COLUMNS, place)
    if question is None:
        raise UserError(
            f"{place} has no column of prompts ({', '.join(PROMPT_COLUMNS)}); its columns are"
            f" {', '.join(paths(raw))}; say which hold what: {setting(paths(raw), named)}"
        )
    answer = named.get("answer") or _first(raw, (GROUND_TRUTH, *LABEL_COLUMNS), place)
    if (
        answer is None
        and question != "prompt"
        and all(map(_ends_with_answer, field_values(raw, question, place)))
    ):
        answer = f"{question}.assistant"
    return Fields(question, answer, named.get("id"), named.get("system"))


def _first(raw: pa.Table, candidates: Iterable[str], place: str) -> str | None:
    return next((path for path in candidates if has_field(raw, path, place)), None)


def paths(raw: pa.Table) -> list[str]:
    """The columns of a file; of structs, their fields instead."""
    return [path for field in raw.schema for path in _paths(field, field.name)]


def _paths(field: pa.Field, path: str) -> Iterator[str]:
    import pyarrow as pa

    if pa.types.is_struct(field.type) and field.type.num_fields:
        for number in range(field.type.num_fields):
            inner = field.type.field(number)
            yield from _paths(inner, f"{path}.{inner.name}")
    else:
        yield path
        if path in MESSAGE_COLUMNS:
            yield f"{path}.assistant"


def setting(available: Sequence[str], named: Mapping[ColumnRole, str]) -> str:
    """The setting that says which column holds what, ready to paste; the likeliest columns are filled in."""
    guess = {role: named.get(role) or _likeliest(available, words) for role, words in _LIKELY.items()}
    guess |= {"question": guess["question"] or "COLUMN", "answer": guess["answer"] or "COLUMN"}
    pairs = ", ".join(f"{role}: {_yaml(path)}" for role, path in guess.items() if path is not None)
    text = f"{{{pairs}}}"
    return f"--set {shlex.quote(f'data.columns={text}')} (inject-noise and rollouts: --columns {shlex.quote(text)})"


def _likeliest(available: Sequence[str], words: Sequence[str]) -> str | None:
    """The path whose last name is one of `words`, whatever its case, or else has it as a word in it."""
    for is_like in (lambda name, word: name == word, lambda name, word: word in re.split(r"[\W_]+", name)):
        for word in words:
            for path in available:
                if is_like(path.rpartition(".")[2].lower(), word):
                    return path
    return None


def _yaml(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][\w.-]*", name) else json.dumps(name, ensure_ascii=False)


# Values at a path -------------------------------------------------------------------------------------------------


def has_field(raw: pa.Table, path: str, place: str) -> bool:
    """Whether a file has a column, or a field of a column, by that path; in some row, if a list is on the way."""
    column, steps = _column(raw, path, place)
    return column is not None and (
        not steps or any(item is not None for item in _walked(column, steps, path, place))
    )


def field_values(raw: pa.Table, path: str, place: str) -> list[Any]:
    """What every row holds at a path; None where there is nothing."""
    column, steps = _column(raw, path, place)
    if column is None:
        return [None] * raw.num_rows
    return _walked(column, steps, path, place) if steps else values(column, path, place)


def field_texts(raw: pa.Table, path: str | None, place: str) -> list[str | None]:
    """What every row holds at a path, as text; None where a value is missing or blank, or there is no such column."""
    column, steps = (None, []) if path is None else _column(raw, path, place)
    if path is None or column is None:
        return [None] * raw.num_rows
    if not steps:
        return texts(column, path, place, alone_in_list=True)
    walked = _walked(column, steps, path, place)
    found = [
        text_of(item, f"{place}: '{path}' of row {row} (the first is 0)") for row, item in enumerate(walked)
    ]
    return [text if text is not None and text.strip() else None for text in found]


def _column(raw: pa.Table, path: str, place: str) -> tuple[Any, list[str]]:
    """The column or struct field that a path leads to, and the steps that remain below it; None if there is none."""
    import pyarrow as pa

    column, steps = column_at(raw, path)
    if column is None:
        return None, []
    if not steps or pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return column, steps
    name = path.partition(".")[0]
    if name in ("reward_model", "extra_info") and not pa.types.is_null(column.type):
        raise UserError(
            f"{place}: column '{name}' holds {column.type}, and it should be a struct with '{steps[0]}'"
        )
    return None, []


def _walked(column: Any, steps: Sequence[str], path: str, place: str) -> list[Any]:
    return [_walk(value, steps) for value in values(column, path, place)]


def _walk(value: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal():
            value = value[int(step)] if int(step) < len(value) else None
        elif isinstance(value, list):
            contents = [content for role, content in filter(None, map(turn, value)) if role == step]
            value = contents[-1] if contents else None
        else:
            return None
    return value


def _ends_with_answer(dialogue: Any) -> bool:
    last = turn(dialogue[-1]) if isinstance(dialogue, list) and dialogue else None
    return last is not None and last[0] == "assistant"


def turn(value: Any) -> tuple[str, str] | None:
    """Role and content of a chat turn, ``{role, content}`` or ShareGPT's ``{from, value}``; None for anything else."""
    if not isinstance(value, dict):
        return None
    for role_key, content_key in (("role", "content"), ("from", "value")):
        role, content = value.get(role_key), value.get(content_key)
        if isinstance(role, str) and isinstance(content, str):
            return (role if role_key == "role" else _ROLES.get(role, role)), content
    return None
