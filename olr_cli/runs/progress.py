"""What a run says while it works: a live line in a terminal, plain lines elsewhere, JSON lines for machines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Protocol, TextIO

from olr_cli.runs.metrics import Metrics


class Progress(Protocol):
    """Told by an engine what happens; shows it somehow."""

    def start(self, steps: int, done: int, steps_per_epoch: int, seen: Sequence[Metrics] = ()) -> None:
        """Training begins after step `done` of `steps`; `seen`: the metrics of the epoch's steps before that."""

    def step(self, step: int, metrics: Metrics) -> None:
        """A step is complete and stored."""

    def say(self, sentence: str) -> None:
        """Something worth a line of its own: a warning, a checkpoint."""

    def stop(self) -> None:
        """Training ended, however."""


class JsonProgress:
    """One JSON object a line on standard output."""

    def start(self, steps: int, done: int, steps_per_epoch: int, seen: Sequence[Metrics] = ()) -> None:
        self._print({"event": "start", "steps": steps, "done": done, "steps_per_epoch": steps_per_epoch})

    def step(self, step: int, metrics: Metrics) -> None:
        self._print({"event": "step", "step": step, **metrics})

    def say(self, sentence: str) -> None:
        self._print({"event": "note", "text": sentence})

    def stop(self) -> None:
        """Nothing is held open."""

    def _print(self, event: dict[str, object]) -> None:
        print(json.dumps(event), flush=True)


class LineProgress:
    """A row an epoch, for logs and pipes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream

    def start(self, steps: int, done: int, steps_per_epoch: int, seen: Sequence[Metrics] = ()) -> None:
        self._rows = EpochRows(steps, steps_per_epoch, seen)
        self._steps, self._done, self._began = steps, done, time.monotonic()
        for line in HEADER:
            self.say(line)

    def step(self, step: int, metrics: Metrics) -> None:
        row = self._rows.add(step, metrics)
        if row is not None:
            pace = (time.monotonic() - self._began) / max(1, step - self._done)
            self.say(f"{row} {clock(pace * (self._steps - step)):>5} left" if step else row)

    def say(self, sentence: str) -> None:
        print(sentence, file=self._stream, flush=True)

    def stop(self) -> None:
        """Nothing is held open."""


class LiveProgress:
    """A row an epoch above a progress bar, in a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._console = Console()
        self._bar = Bar(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("steps, left"),
            TimeRemainingColumn(),
            console=self._console,
            expand=False,
        )

    def start(self, steps: int, done: int, steps_per_epoch: int, seen: Sequence[Metrics] = ()) -> None:
        self._rows = EpochRows(steps, steps_per_epoch, seen)
        self._per_epoch = steps_per_epoch
        for line in HEADER:
            self.say(line)
        self._bar.start()
        self._task = self._bar.add_task(
            "train", total=steps, completed=done, epoch=done // steps_per_epoch + 1
        )

    def step(self, step: int, metrics: Metrics) -> None:
        row = self._rows.add(step, metrics)
        if row is not None:
            self.say(row)
        self._bar.update(self._task, completed=step, epoch=max(0, step - 1) // self._per_epoch + 1)

    def say(self, sentence: str) -> None:
        self._console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        self._bar.stop()


_COLUMNS = (
    ("", "reward", "rollout/reward"),
    ("majority", "clean", "majority/accuracy_clean"),
    ("right", "noisy", "majority/accuracy_noisy"),
    ("labels", "replaced", "label/selection_ratio"),
    ("", "right", "label/selected_accuracy"),
    ("wrong", "labels", "label/effective_noise"),
    ("held-out", "accuracy", "eval/avg"),
)
HEADER = (
    "      " + "".join(f"{above:>9}" for above, _, _ in _COLUMNS),
    "epoch " + "".join(f"{below:>9}" for _, below, _ in _COLUMNS),
)
"""Two lines above the rows; with the time left, 80 columns."""


class EpochRows:
    """Collects the metrics of an epoch's steps and puts their means into a row.

    Args:
        steps: of the whole run.
        steps_per_epoch: the last one may have fewer prompts.
        seen: the metrics of the first epoch's steps that are done already, when a run is resumed.
    """

    def __init__(self, steps: int, steps_per_epoch: int, seen: Sequence[Metrics] = ()) -> None:
        self._steps, self._per_epoch = steps, steps_per_epoch
        self._seen = list(seen)

    def add(self, step: int, metrics: Metrics) -> str | None:
        """Take a step's metrics; a row if the epoch is complete."""
        self._seen.append(metrics)
        if step % self._per_epoch and step != self._steps:
            return None
        cells = []
        for _, _, name in _COLUMNS:
            values = [metrics[name] for metrics in self._seen if name in metrics]
            cells.append(f"{_of_epoch(name, values):>9.0%}" if values else " " * 9)
        self._seen.clear()
        return f"{-(-step // self._per_epoch):>5} {''.join(cells)}"


def choose_progress(*, as_json: bool) -> Progress:
    """The display that fits where the output goes."""
    if as_json:
        return JsonProgress()
    return LiveProgress() if sys.stdout.isatty() else LineProgress()


def headline(lines: Sequence[Metrics]) -> str:
    """A run's last epoch in a line, from the lines of its metrics.jsonl."""
    epoch = [line for line in lines if line["epoch"] == lines[-1]["epoch"]]
    shown = []
    for name, key in (
        ("held-out accuracy", "eval/avg"),
        ("majority right on noisy prompts", "majority/accuracy_noisy"),
        ("wrong labels", "label/effective_noise"),
    ):
        values = [line[key] for line in epoch if key in line]
        if values:
            shown.append(f"{name} {_of_epoch(key, values):.0%}")
    return "  ".join(shown)


def _of_epoch(name: str, values: Sequence[float]) -> float:
    """What an epoch shows for a metric of its steps: the mean; of what is measured now and then, the latest."""
    return values[-1] if name.startswith("eval/") else sum(values) / len(values)


def clock(seconds: float) -> str:
    """A duration as h:mm:ss or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
