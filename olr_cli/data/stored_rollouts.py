"""Wrong answers that a policy has given, from a run or another trainer's log, as frozen active noise (R4)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from olr_cli.data.columns import text_column
from olr_cli.data.files import matching_files, read_table
from olr_cli.data.prompt_set import PromptSet
from olr_cli.errors import UserError
from olr_cli.shards import complete_steps, table_shards

if TYPE_CHECKING:
    import pyarrow as pa

_KEYS = ("prompt_id", "is_correct")
_ANSWERS = ("answer_class", "answer")


def wrong_answers(
    source: Path, prompts: PromptSet, extract: Callable[[str], str | None]
) -> dict[str, list[str]]:
    """The different answers to each prompt that are marked wrong, over all its visits; none for other prompts.

    Args:
        source: a run directory (its complete steps), or a Parquet or JSON table with ``prompt_id``, ``is_correct``
            and one of ``answer_class``, ``answer``, ``response`` (the first that is there counts).
        prompts: whose rollouts they must be.
        extract: finds the answer of a response.

    Raises:
        UserError: nothing is there, a column is missing, no rollout is judged, or they are of other prompts.
    """
    files = _files(source)
    table = read_table(files, {*_KEYS, *_ANSWERS})
    if not set(_ANSWERS) & set(
        table.column_names
    ):  # responses are long, so they are read only where they must be
        table = read_table(files, {*_KEYS, "response"})
    column = next((name for name in (*_ANSWERS, "response") if name in table.column_names), None)
    lacking = [name for name in _KEYS if name not in table.column_names]
    if column is None or lacking:
        raise UserError(
            f"{source} lacks the column {lacking[0] if lacking else 'answer'}; stored rollouts have prompt_id,"
            " is_correct and answer or response"
        )
    found = _wrong_by_prompt(table, column, source)
    known = {prompt.prompt_id for prompt in prompts.prompts}
    if not known & found.keys():
        theirs, ours = next(iter(found), "none"), prompts.prompts[0].prompt_id
        raise UserError(
            f"{source} has no wrong answer to a prompt of {prompts.source} (its first prompt_id: {theirs}, here:"
            f" {ours}); name a run on the same data, or give the seed it was made with (--seed)"
        )
    if column == "response":
        answers = {prompt_id: map(extract, texts) for prompt_id, texts in found.items()}
        found = {
            prompt_id: [text for text in texts if text is not None] for prompt_id, texts in answers.items()
        }
    return found


def _files(source: Path) -> list[Path]:
    if not source.is_dir():
        return matching_files(str(source))
    if not (source / "rollouts").is_dir():
        raise UserError(f"{source} is not a run directory: it has no folder rollouts; name a run or a table")
    complete = complete_steps([source / "rollouts", source / "labels"])
    if not complete:
        raise UserError(f"{source} holds no complete step yet; train it for at least one step")
    return [shard.path for shard in table_shards(source / "rollouts") if shard.last <= complete[-1]]


def _wrong_by_prompt(table: pa.Table, column: str, source: Path) -> dict[str, list[str]]:
    import polars as pl
    import pyarrow as pa

    judged = table.column("is_correct")
    if not pa.types.is_boolean(judged.type) or judged.null_count == len(judged):
        raise UserError(f"{source} does not say which rollouts are wrong: is_correct must be true or false")
    read = {
        name: text_column(table.column(name), name, str(source))
        for name in dict.fromkeys(("prompt_id", column))
    }
    rollouts = pl.DataFrame(pa.table({**read, "is_correct": judged}))
    # A blank answer is none, and a blank label in a data set means that there is none.
    wrong = rollouts.filter(~pl.col("is_correct"), *(pl.col(name).str.strip_chars() != "" for name in read))
    unique = wrong.select("prompt_id", column).unique().sort("prompt_id", column)
    grouped = unique.group_by("prompt_id", maintain_order=True).agg(column)
    return dict(zip(grouped["prompt_id"].to_list(), grouped[column].to_list(), strict=True))
