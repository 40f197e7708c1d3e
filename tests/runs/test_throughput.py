"""Tokens a second, model FLOP utilisation and memory: formulas, cards, and metrics that are not known."""

import itertools
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from olr_cli.runs import metrics
from olr_cli.runs.metrics import MetricsTail, Stopwatch, append_metrics, drop_metrics_after, read_metrics
from olr_cli.runs.throughput import Hardware, ModelShape, StepWork, medians, peak_flops, throughput

QWEN3_4B = ModelShape(parameters=4_022_468_096, layers=36, attention_width=32 * 128)
TIMES = {"time/rollouts": 2.0, "time/update": 4.0, "time/step": 13.0, "time/evaluation": 3.0}
WORK = StepWork(prompt_tokens=[10, 10, 20], response_tokens=[5, 7, 8], trains=[True, True, False])


def test_a_forward_pass_is_the_formula_of_the_papers_recipes():
    """recipes/paper/README.md: 33.0 and 4.9 x 10¹² operations for 4,096 tokens of Qwen3-4B, 7 C = 265 x 10¹²."""
    weights, attention = 2 * QWEN3_4B.parameters * 4096, 2 * 36 * 4096 * 4096**2
    assert QWEN3_4B.forward_flops(4096) == pytest.approx(weights + attention)
    assert (round(weights / 1e12, 1), round(attention / 1e12, 1)) == (33.0, 4.9)
    assert 7 * QWEN3_4B.forward_flops(4096) == pytest.approx(265e12, rel=0.01)


def test_what_does_not_train_is_sampled_and_read_but_not_updated():
    size = ModelShape(parameters=1000, layers=2, attention_width=8)
    passes = [(15, 1 + 2 + 3), (17, 1 + 2 + 3), (28, 1 + 2)]
    by_hand = sum(count * (2 * 1000 * n + 2 * 2 * 8 * n * n) for n, count in passes)
    assert WORK.flops(size, passes_before=2) == by_hand


def test_rates_are_over_their_own_part_of_the_step_and_leave_evaluation_out():
    found = throughput(WORK, TIMES, Hardware(8, "NVIDIA A100-SXM4-80GB", QWEN3_4B, 2), 62_500_000_000)
    assert found["speed/generated_tokens"] == 20 / 2
    assert found["speed/trained_tokens"] == (15 + 17) / 4
    assert found["speed/samples"] == 3 / 10
    assert found["memory/gpu_peak"] == 62.5
    assert found["speed/mfu"] == pytest.approx(WORK.flops(QWEN3_4B, passes_before=2) / (10 * 8 * 312e12))


@pytest.mark.parametrize(
    "hardware",
    [
        Hardware(0, None, QWEN3_4B, 1),
        Hardware(1, "NVIDIA GeForce GTX 1080", QWEN3_4B, 1),
        Hardware(1, "NVIDIA H200", None, 1),
    ],
)
def test_utilisation_is_null_where_the_peak_or_the_model_is_unknown(hardware):
    found = throughput(WORK, TIMES, hardware, None)
    assert (found["speed/mfu"], found["memory/gpu_peak"]) == (None, None)
    assert found["speed/samples"] == 0.3


@pytest.mark.parametrize(
    ("card", "teraflops"),
    [
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 NVL", 835.5),
        ("NVIDIA GH200 480GB", 989.4),
        ("NVIDIA L4", 121),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", None),
        ("NVIDIA A1000", None),
        ("AMD Instinct MI300X", None),
        (None, None),
    ],
)
def test_a_cards_peak_is_that_of_its_whole_name_or_unknown(card, teraflops):
    assert peak_flops(card) == (None if teraflops is None else teraflops * 1e12)


def test_a_models_shape_is_read_from_the_model():
    config = SimpleNamespace(num_hidden_layers=3, num_attention_heads=4, hidden_size=64, vocab_size=10)
    config.get_text_config = lambda: config
    weights = [SimpleNamespace(numel=lambda: 10), SimpleNamespace(numel=lambda: 32)]
    model = SimpleNamespace(config=config, parameters=lambda: weights)
    shape = ModelShape(42, 3, attention_width=64, hidden=64, mlp=256, vocabulary=10, cache=3 * 2 * 64 * 2)
    assert ModelShape.of(model) == shape
    config.head_dim = 32  # Qwen3: not hidden size over heads
    assert ModelShape.of(model) == replace(shape, attention_width=128, cache=2 * shape.cache)
    config.num_key_value_heads, config.intermediate_size, config.max_position_embeddings = 1, 99, 512
    shape = replace(shape, attention_width=128, mlp=99, cache=shape.cache // 2, context=512)
    assert ModelShape.of(model) == shape
    del config.num_attention_heads
    assert ModelShape.of(model) is None


def test_an_unknown_metric_is_null_in_the_file_and_absent_where_it_is_read(tmp_path):
    tail = MetricsTail(tmp_path)
    append_metrics(tmp_path, 1, 1, {"speed/samples": 2.0, "speed/mfu": None})
    append_metrics(tmp_path, 2, 1, {"speed/mfu": None})
    first = {"step": 1, "epoch": 1, "speed/samples": 2.0}
    assert tail.new_lines() == read_metrics(tmp_path) == [first, {"step": 2, "epoch": 1}]
    drop_metrics_after(tmp_path, 1)
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line) == {**first, "speed/mfu": None}


def test_medians_are_over_the_steps_that_have_the_metric():
    lines = [{"speed/samples": 1.0}, {"speed/samples": 3.0}, {"speed/samples": 8.0, "time/weights": 0.5}, {}]
    assert medians(lines) == {"speed/samples": 3.0, "time/weights": 0.5}


def test_a_stopwatch_adds_up_what_is_measured_in_several_goes(monkeypatch):
    monkeypatch.setattr(
        metrics.time, "perf_counter", itertools.count().__next__
    )  # a second a look at the clock
    clock = Stopwatch()
    for part in ("verification", "labels", "verification"):
        with clock.measure(part):
            pass
    assert clock.metrics() == {"time/verification": 2, "time/labels": 1, "time/step": 7}
