"""Tokens a second and memory: formulas, and metrics that are not known."""

import itertools
import json

from olr_cli.runs import metrics
from olr_cli.runs.metrics import (
    MetricsTail,
    Stopwatch,
    append_metrics,
    drop_metrics_after,
    read_metrics,
)
from olr_cli.runs.throughput import StepWork, medians, throughput

TIMES = {
    "time/rollouts": 2.0,
    "time/update": 4.0,
    "time/step": 13.0,
    "time/evaluation": 3.0,
}
WORK = StepWork(
    prompt_tokens=[10, 10, 20], response_tokens=[5, 7, 8], trains=[True, True, False]
)


def test_rates_are_over_their_own_part_of_the_step_and_leave_evaluation_out():
    assert throughput(WORK, TIMES, 62_500_000_000) == {
        "speed/generated_tokens": 20 / 2,
        "speed/trained_tokens": (15 + 17) / 4,
        "speed/samples": 3 / 10,
        "memory/gpu_peak": 62.5,
    }
    assert throughput(WORK, TIMES, None)["memory/gpu_peak"] is None
    without = {name: time for name, time in TIMES.items() if name != "time/evaluation"}
    assert throughput(WORK, without, None)["speed/samples"] == 3 / 13


def test_an_unknown_metric_is_null_in_the_file_and_absent_where_it_is_read(tmp_path):
    tail = MetricsTail(tmp_path)
    append_metrics(tmp_path, 1, 1, {"speed/samples": 2.0, "memory/gpu_peak": None})
    append_metrics(tmp_path, 2, 1, {"memory/gpu_peak": None})
    first = {"step": 1, "epoch": 1, "speed/samples": 2.0}
    assert tail.new_lines() == read_metrics(tmp_path) == [first, {"step": 2, "epoch": 1}]
    drop_metrics_after(tmp_path, 1)
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line) == {**first, "memory/gpu_peak": None}


def test_medians_are_over_the_steps_that_have_the_metric():
    lines = [
        {"speed/samples": 1.0},
        {"speed/samples": 3.0},
        {"speed/samples": 8.0, "time/weights": 0.5},
        {},
    ]
    assert medians(lines) == {"speed/samples": 3.0, "time/weights": 0.5}


def test_a_stopwatch_adds_up_what_is_measured_in_several_goes(monkeypatch):
    # A second a look at the clock
    monkeypatch.setattr(metrics.time, "perf_counter", itertools.count().__next__)
    clock = Stopwatch()
    for part in ("verification", "labels", "verification"):
        with clock.measure(part):
            pass
    assert clock.metrics() == {"time/verification": 2, "time/labels": 1, "time/step": 7}
