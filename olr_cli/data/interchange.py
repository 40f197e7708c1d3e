"""Write prompts as rows of the interchange format of verl, LUFFY and the authors.

    data_source   prompt: list of {role, content}   ability   reward_model: {ground_truth, style}
    extra_info: {index, split, original_ground_truth, noise_type}   rephrased_prompt: like prompt, and may be missing

All other columns, and all other fields of the structs, stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import pyarrow as pa

from olr_cli.data.chat import Message
from olr_cli.data.columns import REPHRASED_COLUMN
from olr_cli.data.prompts import Prompt, PromptSet


def interchange_table(
    rows: pa.Table, prompts: Sequence[Prompt], split: str, *, has_other_ids: bool = False
) -> pa.Table:
    """Return a table with all columns of `rows` and all columns of the interchange format, which verl reads too.

    Columns and struct fields of the format are taken from `rows` or, if they are missing there, made from `prompts`.
    Two kinds of column are always made from `prompts`: `data_source`, and messages that are plain texts in `rows`.

    Args:
        rows: the source's rows, one for each prompt.
        prompts: the prompts of the rows.
        split: value of `extra_info.split` for rows that have none.
        has_other_ids: whether the prompts' ids replace those in `extra_info.index`.
    """
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
    place = {
        "index": index_column([p.prompt_id for p in prompts]),
        "split": pa.array([split] * size),
    }
    standard["reward_model"] = with_fields(
        columns.get("reward_model"), reward, replace=False
    )
    standard["extra_info"] = with_fields(columns.get("extra_info"), place, replace=False)
    if has_other_ids:
        standard["extra_info"] = with_fields(
            standard["extra_info"], {"index": place["index"]}, replace=True
        )
    others = {name: c for name, c in columns.items() if name not in standard}
    # Keep the column even if it is empty, so that nothing of the source is lost.
    rephrased = columns.get(REPHRASED_COLUMN)
    if rephrased is not None or any(p.rephrased is not None for p in prompts):
        others[REPHRASED_COLUMN] = _message_column(
            rephrased, [p.rephrased for p in prompts]
        )
    return pa.table(standard | others)


def prompt_set(prompts: Sequence[Prompt], source: str, split: str = "train") -> PromptSet:
    """Build a `PromptSet` from prompts that come from no file; `source` is the set's name.

    The rows of the set are made from the prompts, in the interchange format, with `split` in their `extra_info`.
    """
    no_columns = pa.table({"data_source": [p.data_source for p in prompts]})
    make_table = cache(partial(interchange_table, no_columns, prompts, split))
    return PromptSet(tuple(prompts), make_table, source)


def _message_column(
    column: Any, turns_of_rows: Sequence[Sequence[Message] | None]
) -> pa.Array:
    """Return a column of messages: `column` if it holds lists or structs, else a new one made from chat turns.

    `column` is None if the source has no such column. `turns_of_rows` has the chat turns of each row for the new
    column, None where a row has none.
    """
    if column is not None and pa.types.is_nested(column.type):
        return column
    rows = [
        None if turns is None else [{"role": m.role, "content": m.content} for m in turns]
        for turns in turns_of_rows
    ]
    # Name the type, because pyarrow cannot infer it if every row is null.
    return pa.array(
        rows, pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    )


def labelled_table(table: pa.Table, prompts: Sequence[Prompt]) -> pa.Table:
    """Return a table in the interchange format with its labels replaced by those of `prompts`, one for each row.

    If at least one prompt has a true answer or a noise type, both are written too, for all rows
    (``original_ground_truth`` and ``noise_type``).
    """

    def text(values: Iterable[str | None]) -> pa.Array:
        return pa.array(list(values), pa.string())

    # If nobody knows the truth, leave both columns out: they would be empty in every row.
    marks: dict[str, pa.Array] = {}
    if any(p.true_answer is not None or p.noise_type is not None for p in prompts):
        marks["original_ground_truth"] = text(p.true_answer for p in prompts)
        marks["noise_type"] = text(p.noise_type for p in prompts)
    labels = {"ground_truth": text(p.given_label for p in prompts)}
    for name, fields in (("reward_model", labels), ("extra_info", marks)):
        table = with_fields_of(table, name, fields)
    return table


def with_fields_of(table: pa.Table, name: str, fields: Mapping[str, pa.Array]) -> pa.Table:
    """Return a table with `fields` added to its struct column `name`; they replace fields that have the same name."""
    column = with_fields(table.column(name), fields, replace=True)
    return table.set_column(table.schema.get_field_index(name), name, column)


def with_fields(column: Any, fields: Mapping[str, pa.Array], *, replace: bool) -> pa.Array:
    """Return a struct column with `fields` added, or build one if `column` is None or no struct.

    `fields` is name -> values. A field that the column already has is replaced if `replace` is set, and kept if not.
    """
    existing: dict[str, pa.Array] = {}
    if column is not None and pa.types.is_struct(column.type):
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        # Not `field`, which returns arbitrary values where the struct is null; `flatten` returns nulls there.
        existing = {
            f.name: part for f, part in zip(whole.type, whole.flatten(), strict=True)
        }
    merged = existing | {
        name: part for name, part in fields.items() if replace or name not in existing
    }
    return pa.StructArray.from_arrays(list(merged.values()), list(merged))


def index_column(prompt_ids: Sequence[str]) -> pa.Array:
    """Return prompt ids as a column of integers if all are whole numbers such as ``7``, else as a column of texts.

    An id such as ``007`` would lose its zeros as an integer. If there is such an id, all ids become texts.
    """
    # An id such as `007` stays a text, and with it all others, or it would come back from the file as `7`.
    if all(
        i.isascii() and i.isdecimal() and len(i) < 18 and str(int(i)) == i
        for i in prompt_ids
    ):
        return pa.array([int(i) for i in prompt_ids])
    return pa.array(list(prompt_ids))
