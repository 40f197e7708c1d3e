"""The training loop: a stop never without its checkpoint, counts that are the step's own, prompts that fit."""

import io
import signal
from contextlib import contextmanager

import pytest
from samples import json_lines
from test_resume import STEPS, recipe

from olr_cli.answers import Judge
from olr_cli.engines.launch import launch
from olr_cli.engines.local import loop
from olr_cli.engines.local.engine import LocalRunner, encode_prompts
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.models import policy_path
from olr_cli.engines.run import load_data
from olr_cli.runs.checkpoints import best_step, checkpoint_steps
from olr_cli.runs.interrupts import Interrupted, StopRequest
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.progress import LineProgress
from olr_cli.runs.store import scan_labels, scan_rollouts

KEYS = ("prompt_id", "visit")


def go(path, a_recipe):
    launch(a_recipe, path, LocalRunner, LineProgress(io.StringIO()))


class LateSignal(StopRequest):
    """A SIGTERM that comes right after the loop first looked."""

    looks = 0

    @property
    def signal_number(self):
        self.looks += 1
        return signal.SIGTERM if self.looks > 1 else None

    @signal_number.setter
    def signal_number(self, number):
        pass


def test_a_signal_at_the_end_of_a_step_does_not_stop_without_a_checkpoint(
    tmp_path, monkeypatch
):
    @contextmanager
    def late():
        yield LateSignal()

    monkeypatch.setattr(loop, "stop_requests", late)
    with pytest.raises(Interrupted):
        go(tmp_path / "run", recipe())
    assert checkpoint_steps(tmp_path / "run") == [2]


def test_timeouts_are_counted_for_each_step(tmp_path, monkeypatch):
    real = Judge.keys

    def two_timeouts(self, answers):
        self.timeouts += 2
        return real(self, answers)

    # Once a step, and once where held-out prompts are measured
    monkeypatch.setattr(Judge, "keys", two_timeouts)
    go(tmp_path / "run", recipe())
    lines = read_metrics(tmp_path / "run")[1:]
    assert [line["rollout/verification_timeouts"] for line in lines] == [2] * STEPS


def test_throughput_counts_the_tokens_of_the_stored_rollouts(tmp_path):
    some = recipe(method={"name": "random_selection", "keep_fraction": 0.5})
    go(tmp_path / "run", some)
    prompts = load_data(some).train
    policy = Policy.load(policy_path("addition-easier"), device="cpu")
    lengths = map(len, encode_prompts(policy, prompts, some))
    ids = (prompt.prompt_id for prompt in prompts.prompts)
    asked = dict(zip(ids, lengths, strict=True))
    labels = scan_labels(tmp_path / "run").select(*KEYS, "trains").collect()
    trains = {row[:2]: row[2] for row in labels.rows()}
    rollouts = (
        scan_rollouts(tmp_path / "run").select(*KEYS, "step", "tokens").collect().rows()
    )
    for line in read_metrics(tmp_path / "run")[1:]:
        step = [row for row in rollouts if row[2] == line["step"]]
        seen = sum(asked[row[0]] + row[3] for row in step if trains[row[:2]])
        assert 0 < seen < sum(asked[row[0]] + row[3] for row in step)
        generated = sum(row[3] for row in step) / line["time/rollouts"]
        assert line["speed/generated_tokens"] == pytest.approx(generated)
        assert line["speed/trained_tokens"] == pytest.approx(seen / line["time/update"])
        whole = line["time/step"] - line.get("time/evaluation", 0)
        assert line["speed/samples"] == pytest.approx(len(step) / whole)


@pytest.fixture
def few(tmp_path):
    """A data set for measuring, of six prompts."""
    return str(
        json_lines(
            tmp_path / "few.jsonl",
            *({"question": f"{n}+100=", "answer": n} for n in range(6)),
        )
    )


@pytest.mark.parametrize(("samples", "expected"), [(None, 4), (3, 3)])
def test_held_out_accuracy_has_its_own_number_of_samples(
    samples, expected, few, tmp_path, monkeypatch
):
    plain, seen = recipe().plain(), []
    measure = loop.held_out_metrics

    def measuring(sets, responses, *arguments):
        seen.append({len(own) for own in responses["eval"]})
        return measure(sets, responses, *arguments)

    monkeypatch.setattr(loop, "held_out_metrics", measuring)
    train = {**plain["train"], "rollouts_per_prompt": 4, "evaluation_samples": samples}
    go(tmp_path / "run", recipe(train=train, data={**plain["data"], "test": few}))
    assert seen and all(own == {expected} for own in seen)


def test_the_best_policy_on_the_validation_set_is_saved_when_it_is_reached(few, tmp_path):
    plain = recipe().plain()
    settings = {
        **plain["train"],
        "evaluate_every": 1,
        "checkpoint_every": 100,
        "keep_checkpoints": 1,
    }
    go(tmp_path / "run", recipe(train=settings, data={**plain["data"], "validation": few}))
    best = best_step(tmp_path / "run")
    scores = {
        line["step"]: line["validation/avg"] for line in read_metrics(tmp_path / "run")[1:]
    }
    assert scores[best] == max(scores.values())
    assert checkpoint_steps(tmp_path / "run") == sorted({best, STEPS})
