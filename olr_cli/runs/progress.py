"""The display of a run at work: a live line in a terminal, plain lines in logs and pipes, JSON lines for machines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TextIO

from olr_cli.errors import printable, style_of
from olr_cli.runs.metrics import Metrics

_LINE_EVERY_SECONDS, _CHANGE_EVERY_SECONDS = 60.0, 0.5
"""Seconds between two lines of a log within a step, and between two changes of a terminal's line."""


class Progress:
    """Base of the displays that show how far a run has come; this class itself shows nothing."""

    def know(self, *, truth: bool, held_out: bool) -> None:
        """Hide the columns that have no values in this run; called before `start`.

        `truth` says whether the run has true answers, and `held_out` whether it has a test set.
        """

    def start(
        self, steps: int, done: int, steps_per_epoch: int, seen: Sequence[Metrics] = ()
    ) -> None:
        """Begin the display.

        Args:
            steps: number of the run's last step.
            done: number of steps that are complete already.
            steps_per_epoch: number of steps in an epoch.
            seen: metrics of each step that is already complete in the current epoch. They count in the epoch's means.
        """

    def step(self, step: int, metrics: Metrics) -> None:
        """Show a step that is complete and stored."""

    def within(self, done: int, of: int, what: str = "rollouts") -> None:
        """Show progress within the current step: `done` of `of` items are ready. `what` names the items."""

    def say(self, sentence: str) -> None:
        """Print a sentence on a line of its own, such as a warning or the news of a checkpoint."""

    def stop(self) -> None:
        """End the display, whether the work succeeded or not."""


class JsonProgress(Progress):
    """Prints one JSON object per line on standard output: the start, each step with its metrics, and each sentence."""

    def start(
        self, steps: int, done: int, steps_per_epoch: int, seen: Sequence[Metrics] = ()
    ) -> None:
        self._print("start", steps=steps, done=done, steps_per_epoch=steps_per_epoch)

    def step(self, step: int, metrics: Metrics) -> None:
        self._print("step", step=step, **metrics)

    def say(self, sentence: str) -> None:
        if sentence:
            self._print("note", text=sentence)

    def _print(self, event: str, **values: object) -> None:
        print(json.dumps({"event": event, **values}), flush=True)


class _EpochProgress(Progress):
    """Base of the displays with one row per epoch. A row shows means over the epoch's steps."""

    def __init__(self, layout: Layout | None) -> None:
        self._whole = TRAINING if layout is None else layout
        # Show all columns unless the engine says that some have no values.
        self.know(truth=True, held_out=True)

    def know(self, *, truth: bool, held_out: bool) -> None:
        columns = (it for it in self._whole.columns if it.needs_truth in (None, truth))
        shown = tuple(it for it in columns if held_out or not it.metric.startswith("eval/"))
        self._layout = replace(self._whole, columns=shown)

    def start(
        self, steps: int, done: int, steps_per_epoch: int, seen: Sequence[Metrics] = ()
    ) -> None:
        self._steps, self._done, self._per_epoch = steps, done, steps_per_epoch
        self._seen = list(seen)
        self._began = self._said = time.monotonic()

    def left(self, step: int) -> str:
        """Return the estimated time that is left after `step`, such as ``12m``.

        The estimate uses the pace since the run was started or resumed. Until a step is complete since then, the text
        is empty.
        """
        taken = step - self._done
        return (
            rough_duration((time.monotonic() - self._began) / taken * (self._steps - step))
            if taken
            else ""
        )

    def is_time(self, seconds: float) -> bool:
        """Return whether the display last changed at least `seconds` ago. If so, the caller may change it again.

        A call that returns True counts as a change.
        """
        now = time.monotonic()
        is_time = now - self._said >= seconds
        self._said = now if is_time else self._said
        return is_time

    def row(self, step: int, metrics: Metrics) -> str | None:
        """Add a step's metrics. If the step completes the epoch, return the text of the epoch's row.

        Return None if the epoch goes on, or if no column has a value.
        """
        self._seen.append(metrics)
        if step % self._per_epoch and step != self._steps:
            return None
        row = ""
        for column in self._layout.columns:
            value = of_epoch(column.metric, self._seen)
            row += f"{'' if value is None else column.cell(value):>{column.width}}"
        self._seen.clear()
        return f"{-(-step // self._per_epoch):>5}{row}" if row.strip() else None


class LineProgress(_EpochProgress):
    """Prints one row per epoch, for logs and pipes."""

    def __init__(self, stream: TextIO | None = None, layout: Layout | None = None) -> None:
        super().__init__(layout)
        self._stream = sys.stdout if stream is None else stream

    def start(
        self, steps: int, done: int, steps_per_epoch: int, seen: Sequence[Metrics] = ()
    ) -> None:
        super().start(steps, done, steps_per_epoch, seen)
        self._step = done
        for line, above_time in zip(self._layout.header, ("time", "left"), strict=True):
            self.say(f"{line}{above_time:>5}")

    def step(self, step: int, metrics: Metrics) -> None:
        row, self._step = self.row(step, metrics), step
        if row is not None:
            # Step 0 is the evaluation before training; no step has set a pace yet.
            self.say(f"{row}{self.left(step):>5}" if step else row.rstrip())

    def within(self, done: int, of: int, what: str = "rollouts") -> None:
        if self.is_time(_LINE_EVERY_SECONDS):
            left = self.left(self._step)
            self.say(
                f"step {self._step + 1}: {done:,} of {of:,} {what}{left and f', {left} left'}"
            )

    def say(self, sentence: str) -> None:
        self._said = time.monotonic()
        print(printable(sentence), file=self._stream, flush=True)


class LiveProgress(_EpochProgress):
    """Prints one row per epoch above a live progress bar, for a terminal."""

    def __init__(self, layout: Layout | None = None) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress as Bar,
            TextColumn,
            TimeElapsedColumn,
        )

        super().__init__(layout)
        self._console = Console()
        self._bar = Bar(
            TextColumn(f"{self._layout.row} {{task.fields[epoch]}}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("in"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}{task.fields[latest]}"),
            console=self._console,
            expand=False,
        )

    def start(
        self, steps: int, done: int, steps_per_epoch: int, seen: Sequence[Metrics] = ()
    ) -> None:
        super().start(steps, done, steps_per_epoch, seen)
        for line in self._layout.header:
            self.say(line)
        self._bar.start()
        self._task = self._bar.add_task(
            "train",
            total=steps,
            completed=done,
            epoch=done // steps_per_epoch + 1,
            left="",
            latest="",
        )

    def step(self, step: int, metrics: Metrics) -> None:
        row = self.row(step, metrics)
        if row is not None:
            self.say(row.rstrip())
        columns = (column for column in self._layout.latest if column.metric in metrics)
        latest = "".join(f"  {it.heading} {it.cell(metrics[it.metric])}" for it in columns)
        # Not rich's estimate: it only looks at the last half minute, and a step may take longer.
        left = self.left(step)
        epoch = max(0, step - 1) // self._per_epoch + 1
        self._bar.update(
            self._task,
            completed=step,
            epoch=epoch,
            left=left and f", {left} left",
            latest=latest,
        )

    def within(self, done: int, of: int, what: str = "rollouts") -> None:
        if self.is_time(_CHANGE_EVERY_SECONDS):
            self._bar.update(self._task, latest=f"  {done:,}/{of:,} {what}")

    def say(self, sentence: str) -> None:
        from rich.text import Text

        text, (length, style) = Text(printable(sentence)), style_of(sentence)
        text.stylize(style, 0, length)
        self._console.print(text, highlight=False, soft_wrap=not length)

    def stop(self) -> None:
        self._bar.stop()


@dataclass(frozen=True, slots=True)
class _Column:
    above: str
    """First line of its heading; it may be wider than the column and then covers the headings to its left."""
    heading: str
    width: int
    """Number of characters, including the space before the value."""
    metric: str
    decimals: int | None = None
    """Most decimals of a number; numbers of more than four digits get fewer. None: the value is a share, in percent."""
    needs_truth: bool | None = None
    """True: shown if true answers are known; False: shown only if none is; None: always shown."""

    def cell(self, value: float) -> str:
        """Return the text of a value in this column.

        A share is shown in percent. Any other number has the column's number of decimals, but fewer if it would
        otherwise have more than four digits.
        """
        if self.decimals is None:
            return f"{value:.0%}"
        digits = len(f"{abs(value):.0f}")
        return f"{value:.{min(self.decimals, max(0, 4 - digits))}f}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Says which metrics a progress display shows: those in its rows, and those of the latest step beside its bar.

    There is one row per epoch or, in `olr rollouts`, per visit.
    """

    row: str
    """Name of a row, ``epoch`` or ``visit``."""

    columns: tuple[_Column, ...]
    """From left to right; `Progress.know` drops those without values."""
    latest: tuple[_Column, ...]
    """Metrics of the latest step, shown beside the progress bar."""

    @property
    def header(self) -> tuple[str, str]:
        """The two lines of headings above the rows.

        In a terminal of 80 characters, they leave room for the time left at the end of each row.
        """
        above = " " * len(self.row)
        for column in self.columns:
            above += " " * column.width
            above = above[: len(above) - len(column.above)] + column.above
        return above, self.row + "".join(
            f"{column.heading:>{column.width}}" for column in self.columns
        )


_REWARD = _Column("", "reward", 7, "rollout/reward", decimals=2)
_EQUAL = _Column("groups", "equal", 6, "rollout/zero_variance_groups")
TRAINING = Layout(
    "epoch",
    (
        _REWARD,
        _Column("", "clean", 6, "majority/accuracy_clean", needs_truth=True),
        _Column("majority right", "noisy", 6, "majority/accuracy_noisy", needs_truth=True),
        _Column("majority", "differs", 9, "majority/differs_from_label", needs_truth=False),
        _Column("labels", "replaced", 9, "label/selection_ratio"),
        _Column("", "right", 6, "label/selected_accuracy", needs_truth=True),
        _Column(
            "----- labels -----", "wrong", 6, "label/effective_noise", needs_truth=True
        ),
        _Column("held-out", "accuracy", 9, "eval/avg"),
        _Column("", "entropy", 8, "policy/entropy", decimals=2),
        _Column("", "length", 7, "rollout/length", decimals=1),
        _Column("", "cut", 5, "rollout/truncated", needs_truth=False),
        _Column("no", "answer", 7, "rollout/missing_answers", needs_truth=False),
        replace(_EQUAL, needs_truth=True),
        replace(_EQUAL, needs_truth=False, width=7),
    ),
    (_REWARD, _EQUAL),
)
_DIFFERS = _Column("majority", "differs", 9, "majority/differs_from_label")
ROLLOUTS = Layout(
    "visit",
    (
        _DIFFERS,
        _Column("", "right", 7, "majority/accuracy", needs_truth=True),
        _Column("", "clean", 7, "majority/accuracy_clean", needs_truth=True),
        _Column(
            "------ majority answer ------",
            "noisy",
            7,
            "majority/accuracy_noisy",
            needs_truth=True,
        ),
        _Column("", "as label", 10, "rollout/reward"),
        _Column("", "no answer", 11, "rollout/missing_answers"),
        _Column("", "cut", 6, "rollout/truncated"),
        _Column(
            "------------ responses -----------", "length", 8, "rollout/length", decimals=1
        ),
    ),
    (_DIFFERS,),
)


def choose_progress(*, as_json: bool, layout: Layout = TRAINING) -> Progress:
    """Return the display for standard output: JSON lines if `as_json`, a live one in a terminal, else plain lines."""
    if as_json:
        return JsonProgress()
    return LiveProgress(layout) if sys.stdout.isatty() else LineProgress(layout=layout)


def headline(lines: Sequence[Metrics]) -> str:
    """Return the results of a run's last epoch in one line, given the lines of its metrics.jsonl (at least one).

    The results are three percentages: held-out accuracy, noisy prompts whose majority is right, and prompts with a
    wrong label. Unknown ones are left out.
    """
    epoch = [line for line in lines if line["epoch"] == lines[-1]["epoch"]]
    values = {
        "held-out accuracy": of_epoch("eval/avg", epoch),
        "majority right on noisy prompts": of_epoch("majority/accuracy_noisy", epoch),
        "wrong labels": of_epoch("label/effective_noise", epoch),
    }
    return "  ".join(
        f"{name} {value:.0%}" for name, value in values.items() if value is not None
    )


def of_epoch(name: str, steps: Sequence[Metrics]) -> float | None:
    """Return a metric's mean over an epoch, given the metrics of each of its steps; None if no step has the metric.

    A held-out metric (``eval/…``) is not averaged; its latest value is returned. Any other metric is weighted by the
    number of prompts that it covers in each step. For example, accuracy on noisy prompts is weighted by the number of
    noisy prompts.
    """
    measured = [metrics for metrics in steps if name in metrics]
    if measured and name.startswith("eval/"):
        return measured[-1][name]
    if not measured:
        return None
    weights = [_weight(name, metrics) for metrics in measured]
    return sum(
        metrics[name] * weight for metrics, weight in zip(measured, weights, strict=True)
    ) / sum(weights)


def _weight(name: str, metrics: Metrics) -> float:
    """Return the weight of a step in the epoch's mean of the metric `name`.

    The weight is the number of the step's prompts that the metric covers, such as the noisy ones. It is the product of
    two of the step's `metrics`: the number of all prompts, and the share of prompts that are covered.
    """
    prompts = metrics.get("rollout/groups", 1)
    if name.endswith("_clean"):
        return prompts * (1 - metrics.get("label/initial_noise", 0))
    if name.endswith("_noisy"):
        return prompts * metrics.get("label/initial_noise", 1)
    return (
        prompts * metrics.get("label/selection_ratio", 1)
        if "selected_" in name
        else prompts
    )


def clock(seconds: float) -> str:
    """Return a duration as h:mm:ss, or m:ss below an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def rough_duration(seconds: float) -> str:
    """Return a duration in at most four characters: 45s, 12m, 3.5h, 26h, 12d."""
    for most, unit, size, decimals in (
        (99.5, "s", 1, 0),
        (99.5, "m", 60, 0),
        (9.95, "h", 3600, 1),
    ):
        if seconds < most * size:
            return f"{seconds / size:.{decimals}f}{unit}"
    hours = seconds / 3600
    return f"{hours:.0f}h" if hours < 47.5 else f"{hours / 24:.0f}d"
