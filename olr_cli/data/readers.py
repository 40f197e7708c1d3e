"""One way in for prompts: built-in sets, files, the Hugging Face hub."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from olr_cli.data.arithmetic import SETS, SOURCE, SPLIT_ENDS, SetName, arithmetic_prompts, parse_source
from olr_cli.data.files import SUFFIXES, matching_files, read_table
from olr_cli.data.hub import load_hub_table, parse_hub_id
from olr_cli.data.interchange import Reading, prompt_set, read_rows
from olr_cli.data.prompts import NoiseType, PromptSet
from olr_cli.errors import UserError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa


def read_prompts(
    source: str | Path,
    *,
    split: str = "train",
    limit: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    noise_type_of_sentinel: NoiseType | None = None,
    reading: Reading = Reading(),  # noqa: B008 - it is immutable
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

    Raises:
        UserError: one sentence on what is missing or wrong, and where.
    """
    text = str(source)
    kind = parse_source(text)
    if kind is not None:
        return _built_in(text, kind, split=split, size=sample or limit, seed=seed)
    table, name, data_source, revision = _load(text, split)
    rows = read_rows(
        table,
        place=text,
        data_source=data_source,
        split=split,
        noise_type_of_sentinel=noise_type_of_sentinel or "inactive",
        reading=reading,
    )
    prompts = PromptSet(rows.prompts, rows.table, name, revision, rows.label_column, rows.paths)
    if limit is not None:
        prompts = prompts.subset(range(min(limit, len(prompts))))
    return prompts if sample is None else prompts.sample(sample, seed)


def _built_in(name: str, kind: SetName, *, split: str, size: int | None, seed: int) -> PromptSet:
    part = next((known for known in SPLIT_ENDS if known == split), None)
    if part is None:
        raise UserError(f"{name} has no split '{split}'; its splits are {', '.join(SPLIT_ENDS)}")
    return prompt_set(arithmetic_prompts(kind, size, seed, part), name, split)


def _load(text: str, split: str) -> tuple[pa.Table, str, str, str | None]:
    """The rows in a file or on the hub, their name, the default of their data source, and their revision."""
    if _is_local(text):
        path = Path(text).absolute()
        # never the bare name: a file called arithmetic.jsonl is not the arithmetic task
        return read_table(matching_files(text)), path.name, f"local/{path.stem}", None
    hub_id = parse_hub_id(text)
    if hub_id is not None:
        table, revision = load_hub_table(hub_id, split)
        return table, text, hub_id.name, revision
    built_in = (SOURCE, *(f"{SOURCE}:{kind}" for kind in SETS))
    guess = did_you_mean(text, built_in) or "; name a file, a folder or a hub id org/name"
    raise UserError(f"no data set '{text}'{guess}")


def _is_local(text: str) -> bool:
    """Whether a source can only mean a file: it exists, has a file's suffix or a path's form, or its folder exists."""
    path = Path(os.path.expanduser(text))
    if os.path.lexists(path) or path.suffix in SUFFIXES or text.startswith((".", "/", "~")) or "*" in text:
        return True
    return "/" in text and os.path.isdir(path.parts[0])
