"""A long run neither grows in memory, nor in open files, nor in the time of a step; afterwards it is quick to read."""

import os
import re
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.store import scan_labels, scan_rollouts, stored_steps

RECIPE = """
name: soak
data: {train: arithmetic, test: arithmetic, limit: 160}
noise: {type: active, ratio: 0.5}
model: {path: "builtin:addition-easier"}
method: {name: olr, slope_threshold: 0, warmup_epochs: 3}
train:
  epochs: 1000000
  prompts_per_step: 16
  mini_batch_prompts: 16
  rollouts_per_prompt: 4
  learning_rate: 4.0e-5
  max_new_tokens: 5
  evaluate_every: 500
  checkpoint_every: 250
engine: {name: local, device: cpu, threads: 1}
"""
MINUTES = 45
"""How long the run takes."""

MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Sample:
    """What a process uses at a moment."""

    seconds: float
    memory: int
    files: int
    threads: int


def sampled(pid, began):
    status = Path(f"/proc/{pid}/status").read_text()
    number = {name: int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("VmRSS", "Threads")}
    files = len(os.listdir(f"/proc/{pid}/fd"))
    return Sample(time.monotonic() - began, number["VmRSS"] * 1024, files, number["Threads"])


def soaked(folder, seconds, pause):
    """Train for so long, then ask the run to stop: its samples, exit status and output."""
    (folder / "soak.yaml").write_text(RECIPE)
    command = [sys.executable, "-m", "olr_cli", "train", "soak.yaml", "--run-dir", "run"]
    samples, began = [], time.monotonic()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        while not (folder / "run" / "labels").is_dir() or len(stored_steps(folder / "run")) < 2:
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.2)
        end = time.monotonic() + seconds
        while time.monotonic() < end and process.poll() is None:
            samples.append(sampled(process.pid, began))
            time.sleep(pause)
        process.send_signal(signal.SIGTERM)
        status = process.wait(120)
    return samples, status, (folder / "log").read_text()


def thirds(values):
    third = len(values) // 3
    return values[:third], values[third : 2 * third], values[2 * third :]


def olr(folder, *words):
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "olr_cli", *words], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began


@pytest.mark.slow
def test_a_long_run_stays_flat_and_readable(tmp_path, is_long):
    if not is_long:
        pytest.skip("three quarters of an hour of training: make hard")
    samples, status, log = soaked(tmp_path, 60 * MINUTES, pause=5)
    assert status == 143, log
    assert "Continue with: olr train" in log or "--resume" in log, log

    run = tmp_path / "run"
    steps = stored_steps(run)
    assert steps == list(range(1, len(steps) + 1))
    for scan, column in ((scan_labels, 1), (scan_rollouts, 4)):
        rows = scan(run).group_by("step").len().collect()
        assert rows["len"].to_list() == [16 * column] * len(steps)

    files = {sample.files for sample in samples[len(samples) // 3 :]}
    threads = {sample.threads for sample in samples[len(samples) // 3 :]}
    _, second, last = thirds([sample.memory for sample in samples])
    growth = statistics.median(last) - statistics.median(second)
    # A shard or a checkpoint is being written at some samples.
    assert max(files) - min(files) <= 3
    assert max(threads) - min(threads) <= 2
    assert growth < 32 * MEGABYTE

    times = [line["time/step"] for line in read_metrics(run) if line["step"]]
    by_third = [statistics.median(part) * 1e3 for part in thirds(times)]
    rises = by_third[2] / by_third[1]
    assert rises < 1.5

    drawn = olr(tmp_path, "analyze", "run", "--figure", "dynamics", "--out", "figures")
    known = scan_labels(run).select(pl.len()).collect().item()
    memory = [round(statistics.median(part) / MEGABYTE) for part in thirds([s.memory for s in samples])]
    print(
        f"\n{len(steps):,} steps, {known:,} visits in {MINUTES} minutes; memory by thirds {memory} MB,"
        f" files {min(files)} to {max(files)}, threads {min(threads)} to {max(threads)}; a step by thirds"
        f" {[round(ms, 1) for ms in by_third]} ms; dynamics {drawn:.1f} s"
    )
