"""rldoctor, a tool that others use on their logs, reads a run's metrics.jsonl."""

import math

import pytest
from commands import done

from olr_cli.runs.metrics import read_metrics

rl_doctor = pytest.importorskip("rl_doctor")

READ = {
    "entropy": "policy/entropy",
    "grad_norm": "policy/grad_norm",
    "kl": "policy/kl",
    "lr": "policy/lr",
    "reward_mean": "rollout/reward",
    "time_per_step": "time/step",
    # rldoctor's guess by the last word: it is the training prompts' majority that is right, not a held-out score.
    "eval_score": "majority/accuracy",
}
"""rldoctor's name for a series -> ours."""


def test_rldoctor_reads_every_step_of_a_run(here):
    sizes = {"data.limit": 16, "data.test": "null", "train.prompts_per_step": 8}
    sizes |= {"train.mini_batch_prompts": 8, "train.epochs": 2}
    words = [word for size in sizes.items() for word in ("--set", "{}={}".format(*size))]
    done("train", "laptop/quickstart", *words, "--run-dir", here / "run")
    lines = read_metrics(here / "run")
    found = rl_doctor.load_run(str(here / "run" / "metrics.jsonl"))
    assert list(found.steps) == [0, 1, 2, 3, 4]
    assert found.series.keys() == READ.keys()
    for name, values in found.series.items():
        before, *after = values  # step 0 has no metrics of training
        assert math.isnan(before)
        assert list(after) == [line[READ[name]] for line in lines[1:]]
    assert not found.nonfinite_steps
    assert rl_doctor.diagnose(found).findings
