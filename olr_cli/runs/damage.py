"""Which shard is damaged, after a reader has met something in it that cannot be.

A shard that is cut off is found before it is read (`olr_cli.runs.store.check_shard`). What a file has of its beginning
and its end but not of its middle shows only while its rows are decoded, as an error of the decoder that names no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from olr_cli.errors import UserError, first_line
from olr_cli.runs.store import check_shard
from olr_cli.shards import all_shards
from olr_cli.supervision.records import LabelRecord, RolloutRecord, arrow_schema

_DECODERS = ("polars", "pyo3_runtime", "pyarrow")
"""Modules that the errors of decoders are of; pyo3_runtime: a panic in polars."""


def told_of_damage(error: BaseException, places: Iterable[Path]) -> str | None:
    """A sentence for the user if an error comes of a damaged shard in one of the runs at or below `places`; else None.

    Every shard is read whole, which takes as long as it takes: something is wrong anyway.
    """
    # pyarrow makes errors of the system of some, without the system's number.
    is_of_system = isinstance(error, OSError) and error.errno is None
    if not is_of_system and type(error).__module__.partition(".")[0] not in _DECODERS:
        return None
    return next((sentence for place in places for sentence in _damage_below(place)), None)


def _damage_below(place: Path) -> Iterator[str]:
    for manifest in sorted(place.glob("**/manifest.json")):
        for table, schema in (
            ("labels", arrow_schema(LabelRecord)),
            ("rollouts", arrow_schema(RolloutRecord)),
        ):
            for shard in all_shards(manifest.parent / table):
                reason = _damage_of(shard.path, table, schema.names)
                if reason is not None:
                    yield (
                        f"{shard.path} is damaged ({reason}); restore it from a copy, or train anew in another"
                        " --run-dir (of an unfinished run, --resume makes the steps after the last checkpoint again)"
                    )


def _damage_of(shard: Path, table: str, columns: list[str]) -> str | None:
    import polars as pl

    try:
        check_shard(shard, table)
        missing = set(columns) - set(pl.read_parquet(shard).columns)
    except (UserError, FileNotFoundError):
        return None  # it has its own sentence, or has gone meanwhile
    except (Exception, pl.exceptions.PanicException) as error:
        return first_line(error)
    return f"it has no column {sorted(missing)[0]}" if missing else None
