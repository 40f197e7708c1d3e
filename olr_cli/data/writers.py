"""Prompts into a file that `olr train` and verl both read; equal prompts give equal bytes."""

from __future__ import annotations

import io
import json
from pathlib import Path

from olr_cli.data.prompt_files import labelled_table
from olr_cli.data.prompts import PromptSet
from olr_cli.errors import UserError, first_line, taken
from olr_cli.files import make_folder_of, write_whole

SCHEMA_VERSION = 1
"""Raised whenever a field of the written rows changes its meaning."""


def write_prompts(prompts: PromptSet, target: Path) -> bool:
    """Write `prompts` in the interchange format: Parquet, or JSON Lines if the name ends in ``.jsonl``.

    The file appears whole or not at all, and no other file is ever replaced.

    Returns:
        True if the file was written, False if it was there already with the same bytes.
    """
    content = encode(prompts, target)
    if target.exists():
        if target.is_file() and target.read_bytes() == content:
            return False
        raise taken(target, ", with other content")
    make_folder_of(target)

    def write(path: Path) -> None:
        path.write_bytes(content)

    write_whole(target, write)
    return True


def encode(prompts: PromptSet, target: Path) -> bytes:
    """The content of the file `target`, which depends on nothing but the prompts and the kind of file."""
    if target.suffix == ".parquet":
        return _parquet(prompts)
    if target.suffix == ".jsonl":
        return _json_lines(prompts, target)
    raise UserError(
        f"{target}: prompts are written as .parquet or .jsonl; give the file one of these endings"
    )


def _parquet(prompts: PromptSet) -> bytes:
    import pyarrow.parquet as pq

    facts = {
        "schema_version": str(SCHEMA_VERSION),
        "source": prompts.source,
        "digest": prompts.digest,
        **({} if prompts.revision is None else {"revision": prompts.revision}),
        **prompts.facts,
    }
    # Metadata of pandas or datasets about the columns of the source no longer hold, and datasets would believe them.
    table = labelled_table(prompts.table, prompts.prompts).replace_schema_metadata(
        {f"olr.{name}": value for name, value in facts.items()}
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def _json_lines(prompts: PromptSet, target: Path) -> bytes:
    try:
        rows = labelled_table(prompts.table, prompts.prompts).to_pylist()
        return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows).encode()
    except (TypeError, ValueError, OverflowError, KeyError) as error:  # KeyError: of an unknown time zone
        raise UserError(
            f"{target}: a column of {prompts.source} does not fit JSON ({first_line(error)}); write .parquet"
        ) from None
