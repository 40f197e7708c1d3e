"""A step of a run, whoever trains: its records, its metrics, and the time that each part of it took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import polars as pl
import pyarrow as pa

from olr_cli.runs.metrics import Metrics
from olr_cli.supervision.metrics import label_metrics, rollout_metrics

StepTables = tuple[pa.Table, pa.Table]
"""Labels and rollouts of one step, as they are stored."""


def step_metrics(tables: StepTables, timeouts: int) -> Metrics:
    """Metrics of one step's records; `timeouts`: answers and pairs that verification gave up on."""
    labels, rollouts = (pl.DataFrame(pl.from_arrow(table)) for table in tables)
    return {
        **label_metrics(labels),
        **rollout_metrics(labels, rollouts),
        "rollout/groups": len(labels),
        "rollout/verification_timeouts": timeouts,
    }


class Stopwatch:
    """Seconds spent in each part of a step, in one or several goes."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._parts: dict[str, float] = {}

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """Count the block's time as `part`; blocks do not nest."""
        began = time.perf_counter()
        yield
        self._parts[part] = self._parts.get(part, 0.0) + time.perf_counter() - began

    def metrics(self) -> Metrics:
        """`time/<part>` for every part, and the whole step as `time/step`."""
        return {f"time/{part}": seconds for part, seconds in self._parts.items()} | {
            "time/step": time.perf_counter() - self._began
        }
