"""What a run says while it works: a live line in a terminal, plain lines elsewhere, JSON lines for machines."""

from __future__ import annotations

import json
import sys
import time
from typing import Protocol, TextIO

from olr_cli.runs.metrics import Metrics


class Progress(Protocol):
    """Told by an engine what happens; shows it somehow."""

    def start(self, steps: int, done: int, steps_per_epoch: int) -> None:
        """Training begins at step `done` of `steps`."""

    def step(self, step: int, metrics: Metrics) -> None:
        """A step is complete and stored."""

    def say(self, sentence: str) -> None:
        """Something worth a line of its own: a warning, a checkpoint."""

    def stop(self) -> None:
        """Training ended, however."""


class JsonProgress:
    """One JSON object a line on standard output."""

    def start(self, steps: int, done: int, steps_per_epoch: int) -> None:
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
    """A line an epoch, for logs and pipes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._steps = self._per_epoch = 1

    def start(self, steps: int, done: int, steps_per_epoch: int) -> None:
        self._steps, self._per_epoch = steps, steps_per_epoch
        self._began, self._done = time.monotonic(), done

    def step(self, step: int, metrics: Metrics) -> None:
        if step % self._per_epoch and step != self._steps and "eval/avg" not in metrics:
            return
        pace = (time.monotonic() - self._began) / max(1, step - self._done)
        left = clock(pace * (self._steps - step))
        print(f"step {step}/{self._steps}  {headline(metrics)}  left {left}", file=self._stream, flush=True)

    def say(self, sentence: str) -> None:
        print(sentence, file=self._stream, flush=True)

    def stop(self) -> None:
        """Nothing is held open."""


class LiveProgress:
    """A progress bar with the latest figures below it, in a terminal."""

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
        self._per_epoch = 1

    def start(self, steps: int, done: int, steps_per_epoch: int) -> None:
        self._per_epoch = steps_per_epoch
        self._bar.start()
        self._task = self._bar.add_task(
            "train", total=steps, completed=done, epoch=done // steps_per_epoch + 1
        )

    def step(self, step: int, metrics: Metrics) -> None:
        self._bar.update(self._task, completed=step, epoch=(step - 1) // self._per_epoch + 1)
        if step % self._per_epoch == 0 or "eval/avg" in metrics:
            self._console.print(
                f"epoch {-(-step // self._per_epoch):>3}  {headline(metrics)}", highlight=False
            )

    def say(self, sentence: str) -> None:
        self._console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        self._bar.stop()


def choose_progress(*, as_json: bool) -> Progress:
    """The display that fits where the output goes."""
    if as_json:
        return JsonProgress()
    return LiveProgress() if sys.stdout.isatty() else LineProgress()


_HEADLINES = (
    ("reward", "rollout/reward"),
    ("majority right clean", "majority/accuracy_clean"),
    ("noisy", "majority/accuracy_noisy"),
    ("selected", "label/selection_ratio"),
    ("right", "label/selected_accuracy"),
    ("noise", "label/effective_noise"),
    ("held-out", "eval/avg"),
)


def headline(metrics: Metrics) -> str:
    """The figures a person watches, in one line of at most 100 characters."""
    shown = [f"{name} {metrics[key]:.2f}" for name, key in _HEADLINES if key in metrics]
    return "  ".join(shown)


def clock(seconds: float) -> str:
    """A duration as h:mm:ss or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
