"""Progress of an evaluation, on standard error: a bar in a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Protocol

from olr_cli.runs.progress import Display, clock

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

_LINE_EVERY_SECONDS = 30


class Progress(Display, Protocol):
    """Shows how far an evaluation is."""

    def start(self, name: str, samples: int, done: int) -> None:
        """`done` of a model's samples are stored already; the model is loaded next."""

    def benchmark(self, title: str) -> None:
        """The benchmark's samples are generated from now on."""

    def advance(self, samples: int) -> None:
        """More samples are stored."""


class Pace:
    """The time left, at the pace of this process so far.

    Once there is a second chunk of samples, the first no longer counts: it may have waited for an engine to start.

    Args:
        left: samples to generate.
    """

    def __init__(self, left: int) -> None:
        self._left, self._made = left, 0
        self._since = self._latest = time.monotonic()
        self._is_first = True

    def advance(self, samples: int) -> None:
        """So many more are generated."""
        if self._made and self._is_first:
            self._since, self._made, self._is_first = self._latest, 0, False
        self._made += samples
        self._left -= samples
        self._latest = time.monotonic()

    def __str__(self) -> str:
        """As h:mm:ss or m:ss, counting down between chunks; a dash before the first."""
        if not self._made:
            return "\N{EN DASH}"
        seconds = (self._latest - self._since) / self._made * self._left
        return clock(max(0, seconds - (time.monotonic() - self._latest)))


class LineProgress:
    """A line a benchmark, and one every half minute."""

    _pace: Pace | None = None

    def start(self, name: str, samples: int, done: int) -> None:
        self._samples, self._done = samples, done
        self._pace = None
        self.say(_opening(name, samples, done))

    def benchmark(self, title: str) -> None:
        if self._pace is None:
            self._pace = Pace(self._samples - self._done)
        self._title, self._said = title, time.monotonic()
        self.say(f"{title} …")

    def advance(self, samples: int) -> None:
        assert self._pace is not None
        self._pace.advance(samples)
        self._done += samples
        now = time.monotonic()
        if now - self._said > _LINE_EVERY_SECONDS or self._done == self._samples:
            self._said = now
            self.say(f"{self._title}: {self._done:,} of {self._samples:,} samples in all, {self._pace} left")

    def say(self, sentence: str) -> None:
        print(sentence, file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Nothing is held open."""


class BarProgress:
    """A bar over all samples; it appears when the model is loaded, which may have much to say."""

    _bar: Bar | None = None
    _task: TaskID
    _pace: Pace

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)

    def start(self, name: str, samples: int, done: int) -> None:
        self.stop()
        self._samples, self._done = samples, done
        self.say(_opening(name, samples, done))

    def benchmark(self, title: str) -> None:
        if self._bar is None:
            self._pace = Pace(self._samples - self._done)
            self._bar = self._new_bar()
            self._task = self._bar.add_task(title, total=self._samples, completed=self._done, left=self._pace)
            self._bar.start()
        self._bar.update(self._task, description=title)

    def advance(self, samples: int) -> None:
        assert self._bar is not None
        self._pace.advance(samples)
        self._bar.advance(self._task, samples)

    def say(self, sentence: str) -> None:
        self._console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _new_bar(self) -> Bar:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        return Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("samples, {task.fields[left]} left"),
            console=self._console,
            transient=True,
        )


def _opening(name: str, samples: int, done: int) -> str:
    there = f", {done:,} of them there already" if done else ""
    return f"{name}: {samples:,} samples{there}; loading the model …"


def choose_progress() -> Progress:
    """The display that fits where standard error goes."""
    return BarProgress() if sys.stderr.isatty() else LineProgress()
