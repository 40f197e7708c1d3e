"""A long run neither grows in memory, nor in open files, nor in the time of a step."""

import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.shards import stored_steps
from olr_cli.runs.store import scan_labels, scan_rollouts

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


def sample(pid):
    """What a process uses at a moment: memory in kilobytes, threads, open files."""
    status = Path(f"/proc/{pid}/status").read_text()
    memory, threads = (
        int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("VmRSS", "Threads")
    )
    return memory, threads, len(os.listdir(f"/proc/{pid}/fd"))


def thirds(values):
    third = len(values) // 3
    return values[:third], values[third : 2 * third], values[2 * third :]


@pytest.mark.slow
def test_a_long_run_stays_flat_and_readable(tmp_path, is_long):
    if not is_long:
        pytest.skip("three quarters of an hour of training: make hard")
    run, samples = tmp_path / "run", []
    (tmp_path / "soak.yaml").write_text(RECIPE)
    command = [sys.executable, "-m", "olr_cli", "train", "soak.yaml", "--run-dir", "run"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT
        )
    end = time.monotonic() + 60 * MINUTES
    while time.monotonic() < end and process.poll() is None:
        samples.append(sample(process.pid))
        time.sleep(MINUTES / 10)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 143, (tmp_path / "log").read_text()

    steps = stored_steps(run)
    assert steps == list(range(1, len(steps) + 1))
    for scan, rows_of_prompt in ((scan_labels, 1), (scan_rollouts, 4)):
        rows = scan(run).group_by("step").len().collect()
        assert rows["len"].to_list() == [16 * rows_of_prompt] * len(steps)

    memory, threads, files = zip(*samples, strict=True)
    megabytes = [statistics.median(part) / 1024 for part in thirds(memory)]
    milliseconds = [
        1e3 * statistics.median(part)
        for part in thirds(
            [line["time/step"] for line in read_metrics(run) if line["step"]]
        )
    ]
    print(f"\n{len(steps):,} steps; by thirds {megabytes} MB, {milliseconds} ms a step")
    assert megabytes[2] - megabytes[1] < 32
    assert milliseconds[2] / milliseconds[1] < 1.5
    # A shard or a checkpoint is being written at some samples.
    for count, most in ((threads, 2), (files, 3)):
        assert max(count[len(count) // 3 :]) - min(count[len(count) // 3 :]) <= most
