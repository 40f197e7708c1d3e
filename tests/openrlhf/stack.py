"""Runs of the whole stack on a CPU, as a user starts them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

SMALL = (
    "data.limit=80", "train.epochs=8", "train.prompts_per_step=40", "train.mini_batch_prompts=40",
    "train.checkpoint_every=4", "train.evaluate_every=16", "train.learning_rate=1e-3", "noise.ratio=0.2",
)  # fmt: skip
"""80 prompts, 40 a step, 8 visits: 16 steps, in which the policy learns much more than chance could explain."""

START_SECONDS = 1200
"""Seconds without a new line of the log, while Ray, vLLM and DeepSpeed start on a slow machine."""


class Train:
    """An `olr train laptop/openrlhf` in a process of its own, which starts at once.

    Waiting for it raises `TimeoutError` if the run has shown no progress for `patience` seconds.

    Args:
        run: the run directory; the output goes to <run>-output.txt beside it.
        settings: changes to the recipe, as ``key=value``.
        options: further words of the command line.
        environment: further environment variables.
        folder: the working folder.
        launcher: words before the command line, such as a program that runs it.
        patience: in seconds.
    """

    def __init__(
        self,
        run: Path,
        settings: Sequence[str] = SMALL,
        *options: str,
        environment: dict[str, str] | None = None,
        folder: Path | None = None,
        launcher: Sequence[str] = (),
        patience: float = START_SECONDS,
    ) -> None:
        self.run, self._patience, self._progress = run, patience, Progress(run)
        words = [word for setting in settings for word in ("--set", setting)]
        self._output = run.with_name(f"{run.name}-output.txt")
        with self._output.open("w") as output:
            self.process = subprocess.Popen(
                [
                    *launcher, sys.executable, "-m", "olr_cli", "train", "laptop/openrlhf", *words, "--run-dir",
                    str(run), *options,
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ray's processes inherit this variable, by which `processes_of` finds them.
                env=os.environ | {"OLR_TEST_RUN": str(run)} | (environment or {}),
                cwd=folder,
            )  # fmt: skip

    @property
    def output(self) -> str:
        """What the command has printed so far."""
        return self._output.read_text(encoding="utf-8")

    def await_step(self, step: int) -> None:
        """Wait until the step, or a later one, is in metrics.jsonl."""
        self.await_(lambda: any(line["step"] >= step for line in metrics(self.run)))

    def await_(self, happened: Callable[[], bool]) -> None:
        """Wait until `happened` returns True; fail if the command ends before."""
        while not happened():
            assert self.process.poll() is None, f"ended early: {self.output}"
            self._pause()

    def end(self) -> int:
        """Wait until the command ends, and return its exit status."""
        while (status := self.process.poll()) is None:
            self._pause()
        return status

    def _pause(self) -> None:
        """Wait 0.2 seconds; raise `TimeoutError` if the run has made no progress for too long."""
        if self._progress.seconds_of_silence() > self._patience:
            raise TimeoutError(
                f"{self.output}\nnothing new in its log for {self._patience:.0f} s"
            )
        time.sleep(0.2)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command's process alone, not to its job."""
        self.process.send_signal(number)


class Progress:
    """Measures the time since a run last made progress: a step, or a new line of its log.

    A process that hangs may repeat itself for ever ("no block found in 60 seconds", "… in 120 seconds"). A line is
    therefore new only if it differs from all earlier lines in more than its numbers.
    """

    def __init__(self, run: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._run, self._clock, self._log = run, clock, run / "openrlhf" / "log.txt"
        # Skip the lines of earlier attempts: a resume repeats them, and there they are progress.
        self._read = self._log.stat().st_size if self._log.exists() else 0
        self._lines: set[bytes] = set()
        self._steps: list[int] = []
        self._last = clock()

    def seconds_of_silence(self) -> float:
        """Look for progress, and return the seconds since a call last found some, or since this object was made."""
        text = b""
        with suppress(FileNotFoundError), self._log.open("rb") as log:
            log.seek(self._read)
            text = log.read()
            text = text[: text.rfind(b"\n") + 1]  # leave half of a line for the next call
        self._read += len(text)
        lines = {re.sub(rb"\d+", b"", line) for line in text.splitlines()}
        steps = [line["step"] for line in metrics(self._run)]
        if steps != self._steps or not lines <= self._lines:
            self._last = self._clock()
        self._lines |= lines
        self._steps = steps
        return self._clock() - self._last


def metrics(run: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics.jsonl, without one that is still being written; empty without the file."""
    file = run / "metrics.jsonl"
    lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    return [json.loads(line) for line in lines]


def processes_of(run: Path) -> dict[int, str]:
    """Return the living processes that a `Train` of this run has started, by id, with their command lines.

    They are found by a variable in their environment.
    """
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes().decode(errors="replace")
                title = (
                    (entry / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode(errors="replace")
                )
            except OSError:
                continue
            if title and f"OLR_TEST_RUN={run}" in environment.split("\0"):
                found[int(entry.name)] = title
    return found
