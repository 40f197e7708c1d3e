"""Which files make up a run's table: a shard a step, and one for many steps once they are old.

step-000251.parquet holds step 251, steps-000001-000250.parquet the steps 1 to 250, in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PATTERN = r"step-\d{6,}\.parquet|steps-\d{6,}-\d{6,}\.parquet"
"""Regular expression of a shard's name."""

_NAME = re.compile(r"step-(\d{6,})\.parquet|steps-(\d{6,})-(\d{6,})\.parquet")


@dataclass(frozen=True)
class Shard:
    """A file with the rows of the steps `first` to `last`, both inclusive."""

    path: Path
    first: int
    last: int

    @property
    def steps(self) -> range:
        """The steps it holds."""
        return range(self.first, self.last + 1)


def shard_path(folder: Path, first: int, last: int) -> Path:
    """The file of the shard with the steps `first` to `last`, both inclusive."""
    name = f"step-{first:06d}" if first == last else f"steps-{first:06d}-{last:06d}"
    return folder / f"{name}.parquet"


def all_shards(folder: Path) -> list[Shard]:
    """Every shard in a table's folder, by first step; where two begin with the same step, the longer one first."""
    matches = ((path, _NAME.fullmatch(path.name)) for path in folder.glob("step*.parquet"))
    shards = [Shard(path, int(m[1] or m[2]), int(m[1] or m[3])) for path, m in matches if m]
    return sorted(shards, key=lambda shard: (shard.first, -shard.last))


def table_shards(folder: Path) -> list[Shard]:
    """The shards that make up a table, ascending.

    A shard whose steps are all in another one is left out: while shards are put together, or one is cut, both exist
    for a moment.
    """
    kept: list[Shard] = []
    for shard in all_shards(folder):
        if not kept or shard.last > kept[-1].last:
            kept.append(shard)
    return kept


def holds(shards: Iterable[Shard], steps: range) -> bool:
    """Whether shards without a common step have all `steps`, which are consecutive; in memory that does not grow."""
    common = (min(shard.last, steps[-1]) - max(shard.first, steps[0]) + 1 for shard in shards)
    return sum(max(0, count) for count in common) == len(steps)


def complete_steps(tables: Iterable[Path]) -> list[int]:
    """The steps of which every one of these folders has a shard, ascending."""
    held = [{step for shard in table_shards(folder) for step in shard.steps} for folder in tables]
    return sorted(set.intersection(*held))
