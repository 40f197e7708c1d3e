"""What engines report of their steps: metrics for TensorBoard and Weights & Biases, and that accuracy fell."""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from cases import each
from samples import json_lines

from olr_cli.engines.reporting import (
    metric_logs,
    reports,
    require_packages,
    signs_of_no_reward,
)
from olr_cli.errors import UserError
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.sections import LoggingSection
from olr_cli.runs.directory import create_run, read_manifest

RECORDED = Path(__file__).parents[1] / "fixtures" / "metrics"


def test_nothing_is_logged_unless_asked(tmp_path):
    require_packages(Recipe())
    with metric_logs(Recipe(), tmp_path, 0) as logs:
        assert logs == []
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_gets_every_metric(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def rewards():
        events = EventAccumulator(str(tmp_path / "tensorboard"))
        events.Reload()
        return [(event.step, event.value) for event in events.Scalars("rollout/reward")]

    recipe = Recipe(logging=LoggingSection(tensorboard=True))
    require_packages(recipe)
    with metric_logs(recipe, tmp_path, 0) as (log,):
        log(1, {"rollout/reward": 0.25})
        log(2, {"rollout/reward": 0.5})
    assert rewards() == [(1, 0.25), (2, 0.5)]
    with metric_logs(recipe, tmp_path, 1) as (log,):
        log(2, {"rollout/reward": 0.75})
    assert rewards() == [(1, 0.25), (2, 0.75)], (
        "a resume repeats the steps after its checkpoint"
    )


def test_wandb_gets_every_metric_and_one_session_a_run(tmp_path, monkeypatch):
    calls = []
    session = SimpleNamespace(
        log=lambda metrics, step: calls.append((step, metrics)),
        finish=lambda: calls.append("finished"),
    )
    monkeypatch.setitem(
        sys.modules,
        "wandb",
        SimpleNamespace(init=lambda **settings: calls.append(settings) or session),
    )
    recipe = Recipe(name="mine", logging=LoggingSection(wandb="project"))
    run = tmp_path / "active_ratio-0.5"  # of the sweep "mine"
    run.mkdir()
    create_run(run, recipe)
    with metric_logs(recipe, run, 0) as (log,):
        log(1, {"rollout/reward": 0.25})
    settings, *rest = calls
    assert (settings["project"], settings["resume"]) == ("project", "allow")
    assert (settings["name"], settings["group"]) == ("active_ratio-0.5", "mine")
    assert settings["id"] == read_manifest(run)["id"]
    assert settings["config"]["train"]["rollouts_per_prompt"] == 8
    assert rest == [(1, {"rollout/reward": 0.25}), "finished"]


def test_a_missing_package_is_said_before_anything_starts(monkeypatch):
    monkeypatch.setattr("olr_cli.engines.reporting.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install '\.\[wandb\]'"):
        require_packages(Recipe(logging=LoggingSection(wandb="project")))


def recorded(name):
    return [
        json.loads(line)
        for line in (RECORDED / f"{name}.jsonl").read_text("utf-8").splitlines()
    ]


def warnings(folder, lines, method, done=0, **train):
    """(step, warning) of an attempt that makes the steps after the first `done` lines of metrics.jsonl."""
    said = []
    json_lines(folder / "metrics.jsonl", *lines[:done])
    progress = SimpleNamespace(
        step=lambda step, _: None, say=lambda sentence: said.append((step, sentence))
    )
    recipe = Recipe.model_validate({"method": {"name": method}, "train": train})
    with reports(
        SimpleNamespace(recipe=recipe, path=folder, done=done, progress=progress)
    ) as report:
        for line in lines[done:]:
            step = line["step"]
            report(
                step,
                {
                    name: value
                    for name, value in line.items()
                    if name not in ("step", "epoch")
                },
            )
    return said


def test_a_fall_of_accuracy_is_a_warning_with_advice_said_once_also_over_a_resume(tmp_path):
    lines = recorded("self_certainty")
    ((step, warning),) = warnings(tmp_path, lines, "self_certainty")
    assert step == 10 and warning.startswith("Warning: held-out accuracy fell to ")
    assert (
        "a lower train.learning_rate may help; the paper reports collapse of self_certainty"
        in warning
    )
    fallen = [line["step"] for line in lines].index(10) + 1
    assert warnings(tmp_path, lines, "self_certainty", done=fallen) == []
    assert warnings(tmp_path, lines, "self_certainty", done=fallen - 1) == [(step, warning)]


@each(
    "missing, equal, begins",
    (0.9, 0.9, []),
    (0.91, 0.0, ["91% of the responses have no answer; the chat template or data.extractor (boxed, "]),
    (0.0, 0.95, ["95% of the groups have equal rewards throughout; the chat template or data.extractor ("]),
)  # fmt: skip
def test_the_first_step_alone_tells_signs_of_a_wrong_template(
    tmp_path, missing, equal, begins
):
    metrics = {"rollout/missing_answers": missing, "rollout/zero_variance_groups": equal}
    lines = [{"step": step, **metrics} for step in (1, 2)]
    said = warnings(tmp_path, lines, "grpo")
    assert [step for step, _ in said] == [1] * len(begins)
    for (_, sentence), begin in zip(said, begins, strict=True):
        assert sentence.startswith(f"Warning: {begin}")
        assert sentence.endswith(
            "; `olr train --dry-run` shows a prompt as the policy sees it"
        )


@each("rewards, is_told", ((0.0, 0.0), True), ((0.0, 0.1), False), ((), False))
def test_a_run_that_never_rewarded_tells_the_signs_at_its_end(tmp_path, rewards, is_told):
    lines = [
        {"step": step, "rollout/reward": reward, "rollout/zero_variance_groups": 1.0}
        for step, reward in enumerate(rewards, 1)
    ]
    json_lines(tmp_path / "metrics.jsonl", *lines)
    assert bool(signs_of_no_reward(tmp_path)) is is_told


def test_a_run_that_gets_better_gives_no_warning(tmp_path):
    assert warnings(tmp_path, recorded("sequence_entropy"), "sequence_entropy") == []


@pytest.mark.parametrize(("top_p", "most"), [(1, 0.05), (0.9, 0.05 - math.log(0.9))])
def test_a_sampler_that_seems_to_have_other_weights_is_a_warning_said_once(
    tmp_path, top_p, most
):
    gaps = [most - 0.01, most + 0.01, most + 0.1]
    lines = [{"step": step, "rollout/sampler_gap": gap} for step, gap in enumerate(gaps, 1)]
    ((step, warning),) = warnings(tmp_path, lines, "grpo", top_p=top_p)
    assert step == 2 and f"are {gaps[1]:.2f} nats from the policy's" in warning
