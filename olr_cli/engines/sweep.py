"""All runs of a sweep, each in a process of its own, a few at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from olr_cli.errors import UserError
from olr_cli.recipe_files import SweepRun
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.progress import headline


def train_all(
    recipe: str, settings: Sequence[str], runs: Sequence[SweepRun], folder: Path, jobs: int
) -> None:
    """Train every run that is not finished yet; an interrupted sweep goes on where it stopped.

    Args:
        recipe: the recipe's name, as given.
        settings: its overrides.
        runs: what the sweep expands to.
        folder: the run directories are made below it.
        jobs: processes at a time.

    Raises:
        UserError: some runs failed; the others are finished, and each failed run's log is named.
    """
    waiting = [(number, run) for number, run in enumerate(runs) if not _is_finished(folder / run.place)]
    print(f"{len(runs)} runs below {folder}, {len(runs) - len(waiting)} of them finished already", flush=True)
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    failed: list[Path] = []
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(_train, recipe, settings, folder, number, run): run for number, run in waiting}
        for future in as_completed(futures):
            run = futures[future]
            status = future.result()
            if status:
                failed.append(_log(folder, run))
            outcome = f"failed with status {status}" if status else _figures(folder / run.place)
            print(f"{run.place:<40} {outcome}", flush=True)
    if failed:
        raise UserError(f"{len(failed)} of {len(runs)} runs failed; see {', '.join(map(str, failed))}")
    print(f"Next: olr analyze {folder} --figure coherence --table arms")


def _train(recipe: str, settings: Sequence[str], folder: Path, number: int, run: SweepRun) -> int:
    options = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "-m", "olr_cli", "train", recipe, *options]
    command += ["--sweep", "--index", str(number), "--run-dir", str(folder)]
    with _log(folder, run).open("ab") as log:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
        ).returncode


def _log(folder: Path, run: SweepRun) -> Path:
    return folder / "logs" / f"{run.place}.txt"


def _is_finished(path: Path) -> bool:
    return (path / "manifest.json").exists() and read_manifest(path)["status"] == "finished"


def _figures(path: Path) -> str:
    lines = read_metrics(path)
    return headline(lines[-1]) if lines else ""
