"""All runs of a sweep, a few at a time, each in its own process.

The processes are forked from one that has imported torch and transformers: otherwise a toy's run would spend half of
its time on these imports.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from shlex import quote

from olr_cli.engines.openrlhf.flags import cluster_address
from olr_cli.engines.resume import check_same_recipe, is_complete
from olr_cli.errors import UserError
from olr_cli.files import writing
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.sections import OpenRlhfEngine
from olr_cli.recipe.sweep import SweepRun
from olr_cli.runs.interrupts import StopRequest, stop_requests
from olr_cli.runs.metrics import accuracy_fall, read_metrics
from olr_cli.runs.progress import headline, rough_duration

_POLL_SECONDS = 0.05
_SERVER = multiprocessing.get_context("forkserver")
_PRELOADED = (
    "olr_cli.cli.train",
    "olr_cli.engines.local.engine",
    "olr_cli.runs.summary",
    "transformers.models.auto",
)
_STOPPED = [
    sign
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for sign in (128 + number, -number)
]
"""Exit statuses of a run that a signal ended: the shell's (128 + number), and Python's for a child (-number)."""


def train_all(
    runs: Sequence[SweepRun], folder: Path, jobs: int, train_one: Callable[[int], object]
) -> int:
    """Train every run that is not finished yet; an interrupted sweep continues where it stopped.

    Args:
        runs: the sweep's runs.
        folder: run directories are made below it.
        jobs: number of runs at a time, each in a process of its own; they share a GPU's memory.
        train_one: trains the run with a given index in `runs`, and exits with a status. It is called in the run's own
            process, so it must be picklable.

    Returns:
        The exit status: 0 if every run is finished, and 128 plus its number if a signal stopped the sweep and its runs.
        Otherwise it is 1 if a bug ended a run, and 2 if the user can fix every cause.

    Raises:
        UserError: a run was begun with another recipe, or several runs at a time would take the same GPUs.
    """
    if jobs > 1 and any(_starts_own_ray(run.recipe) for run in runs):
        raise UserError(
            "every run on OpenRLHF takes this machine's GPUs from the first",
            "run one at a time, or start a Ray cluster"
            " (ray start --head) and set engine.ray_address to auto, where runs wait for free GPUs",
            "jobs",
        )
    unfinished = _unfinished(runs, folder)
    print(
        f"{len(runs)} runs below {folder}, {len(runs) - len(unfinished)} of them finished already",
        flush=True,
    )
    with writing(folder):
        (folder / "logs").mkdir(parents=True, exist_ok=True)
    # The preloaded modules are the local engine's.
    if all(run.recipe.engine.name == "local" for run in runs):
        _SERVER.set_forkserver_preload([*_PRELOADED])
    with stop_requests() as stop:
        statuses = _train_side_by_side(unfinished, folder, jobs, train_one, stop)
    if stop.signal_number is not None:
        print("Stopped; the same command continues where it stopped.", file=sys.stderr)
        return 128 + stop.signal_number
    return _conclude(folder, statuses, len(runs))


def _unfinished(runs: Sequence[SweepRun], folder: Path) -> dict[int, str]:
    """Return the unfinished runs, as a mapping from the index in `runs` to the run's path relative to `folder`.

    Raises:
        UserError: a run was begun with another recipe.
    """
    begun = [run for run in runs if (folder / run.place / "manifest.json").exists()]
    for run in begun:
        check_same_recipe(folder / run.place, run.recipe)
    finished = {run.place for run in begun if is_complete(folder / run.place, run.recipe)}
    return {
        number: run.place for number, run in enumerate(runs) if run.place not in finished
    }


def _train_side_by_side(
    runs: Mapping[int, str],
    folder: Path,
    jobs: int,
    train_one: Callable[[int], object],
    stop: StopRequest,
) -> dict[str, int]:
    """Train runs, `jobs` at a time, until all end or a stop is asked for.

    On a stop, running processes are terminated and waited for.

    Args:
        runs: the path of each run relative to `folder`, by the run's index.
        folder: the sweep's folder.
        jobs: the most runs at a time.
        train_one: trains the run with a given index, in the run's own process (see `train_all`).
        stop: says whether a stop was asked for.

    Returns:
        The exit status of each run that was started, by the run's path relative to `folder`.
    """
    waiting = list(runs.items())
    jobs = min(jobs, len(waiting))
    training: dict[str, BaseProcess] = {}
    statuses: dict[str, int] = {}
    began = time.monotonic()
    try:
        while (waiting or training) and stop.signal_number is None:
            while waiting and len(training) < jobs:
                number, place = waiting.pop(0)
                training[place] = _start(train_one, number, _log(folder, place), jobs)
            time.sleep(_POLL_SECONDS)
            for place in [
                place for place, child in training.items() if not child.is_alive()
            ]:
                statuses[place] = _report(folder, place, training.pop(place))
                if left := len(waiting) + len(training):
                    seconds = (time.monotonic() - began) / len(statuses) * left
                    runs_left = f"{left} run{'s' * (left > 1)}"
                    print(f"{runs_left} to go, {rough_duration(seconds)} left", flush=True)
    finally:
        # A terminal sends Ctrl-C to the runs too, but a SIGTERM reaches only this process, so pass it on.
        for child in training.values():
            child.terminate()
    for place, child in training.items():
        statuses[place] = _report(folder, place, child)
    return statuses


def _starts_own_ray(recipe: Recipe) -> bool:
    """Whether a run of this recipe starts a new Ray on this machine and takes GPUs through it.

    That is so if the engine is OpenRLHF on GPUs, and neither `engine.ray_address` nor the variable RAY_ADDRESS names a
    Ray cluster to join. A new Ray takes the machine's first GPUs, even if another run uses them already.
    """
    engine = recipe.engine
    return (
        isinstance(engine, OpenRlhfEngine)
        and engine.device == "cuda"
        and cluster_address(recipe) is None
    )


def _start(
    train_one: Callable[[int], object], number: int, log: Path, jobs: int
) -> BaseProcess:
    """Start a run of a sweep in a process of its own that writes its output to `log`, and return the process.

    Args:
        train_one: is called with `number`, and trains the run.
        number: index of the run in the sweep.
        log: the file for the run's output.
        jobs: number of runs at a time. If it is more than 1, the run may take only 1 / `jobs` of the GPU's memory.
    """
    # `_report` reads the log even if the process ends before it has opened it.
    with writing(log):
        log.touch()
    child = _SERVER.Process(target=_train_logged, args=(train_one, number, log, jobs))
    child.start()
    return child


def _train_logged(
    train_one: Callable[[int], object], number: int, log: Path, jobs: int
) -> None:
    """Train a run of a sweep, in this process, and append all output to `log`.

    `_start` calls it in the run's own process, and describes the arguments.
    """
    with open(os.devnull, "rb") as nothing, log.open("ab") as output:
        # Redirect the process's file descriptors, not sys.stdout: libraries in C and child processes write to these.
        for stream, file in enumerate((nothing, output, output)):
            os.dup2(file.fileno(), stream)
    if jobs > 1:
        from olr_cli.engines.local import room

        room.share = 1 / jobs
    train_one(number)


def _report(folder: Path, place: str, child: BaseProcess) -> int:
    """Wait until `child`, the process of a run, ends; print a line about the outcome, and return the exit status.

    `place` is the run's path relative to `folder`.
    """
    child.join()
    status = child.exitcode or 0
    if status == 0:
        outcome = _outcome(folder / place)
    elif status in _STOPPED:
        outcome = "stopped"
    else:
        outcome = f"failed with status {status}: {_last_words(_log(folder, place))}"
    print(f"{place:<40} {outcome}", flush=True)
    return status


def _outcome(run: Path) -> str:
    """Return a finished run's last metrics as text, with a remark if its held-out accuracy fell."""
    lines = read_metrics(run)
    if not lines:
        return ""
    fall = accuracy_fall(lines)
    return headline(lines) + (f"  sign of collapse after step {fall[0]}" if fall else "")


def _last_words(log: Path) -> str:
    """Return the last line of a log that is not blank, without a leading "Error: "; "no output" if there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next(
        (line.removeprefix("Error: ") for line in reversed(lines) if line.strip()),
        "no output",
    )


def _conclude(folder: Path, statuses: dict[str, int], runs: int) -> int:
    """Print how a sweep ended, and return its exit status.

    If every run is finished, print the next command, and return 0. Otherwise print the paths of the logs of unfinished
    runs. Return 1 if a bug ended any of these runs, and otherwise 2.

    Args:
        folder: the sweep's folder.
        statuses: the exit status of each run that was trained now, by the run's path relative to `folder`.
        runs: number of all runs of the sweep.
    """
    failed = {place: status for place, status in statuses.items() if status}
    if not failed:
        print(f"Next: olr analyze {quote(str(folder))}")
        return 0
    logs = ", ".join(str(_log(folder, place)) for place in failed)
    print(
        f"Error: {len(failed)} of {runs} runs did not finish; see {logs}", file=sys.stderr
    )
    # 1 stands for a bug: at least one run ended in a way that the user cannot fix.
    return 2 if all(status in (2, *_STOPPED) for status in failed.values()) else 1


def _log(folder: Path, place: str) -> Path:
    """Return the path of the log of the run at `place`, which is a path relative to the sweep's `folder`."""
    return folder / "logs" / f"{place}.txt"
