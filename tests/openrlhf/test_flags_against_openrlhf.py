"""A recipe's flags, judged by OpenRLHF itself: its parser, and what its command line checks after parsing."""

import argparse
import ast
import runpy
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import openrlhf.utils
import pytest
import ray
import torch
from cases import each
from openrlhf.utils.deepspeed import DeepspeedStrategy

from olr_cli.engines.openrlhf import (
    actor,
    experience,
    experience_maker,
    trainer,
    vllm_actor,
)
from olr_cli.engines.openrlhf.actor import FiniteSteps, PolicyActor, PolicyUpdate
from olr_cli.engines.openrlhf.checks import (
    RELIES_ON,
    check_arguments,
    check_flags,
    require_openrlhf,
)
from olr_cli.engines.openrlhf.experience_maker import SupervisedExperienceMaker
from olr_cli.engines.openrlhf.flags import (
    BY_KEYS,
    BY_OLR,
    Places,
    arguments,
    openrlhf_parser,
    recipe_flags,
)
from olr_cli.engines.openrlhf.trainer import SupervisedTrainer
from olr_cli.engines.openrlhf.vllm_actor import AgentExecutor
from olr_cli.errors import UserError
from olr_cli.recipe.layers import load_recipe, read_tree, validate
from olr_cli.recipe.sweep import expand_sweep

RECIPES = Path(__file__).parents[2] / "recipes"


class Reached(Exception):
    """The command line has come to where it is stopped, with what there is to be seen."""

    def __init__(self, seen):
        self.seen = seen


def command_line(words, monkeypatch):
    """Run OpenRLHF's command line up to where Ray is there and models are made; returns what it parsed and set."""

    def reached(args):
        raise Reached(args)

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(openrlhf.utils, "get_strategy", reached)
    monkeypatch.setattr(sys, "argv", ["train_ppo_ray", *words])
    with pytest.raises(Reached) as stop:
        runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__")
    return stop.value.seen


@dataclass(frozen=True)
class Kind:
    """A kind of recipe: its engine and training settings, and what of the command line else depends on the run."""

    engine: dict = field(default_factory=dict)
    train: dict = field(default_factory=dict)
    method: dict = field(default_factory=lambda: {"name": "grpo"})
    attention: str = "sdpa"
    held_out: Path | None = None
    checkpoint: Path | None = None
    done: int = 0

    @property
    def recipe(self):
        sections = {"train": self.train, "method": self.method}
        return validate({"engine": {"name": "openrlhf", **self.engine}, **sections}, "test")

    @property
    def words(self):
        views = 2 if self.method["name"] == "co_reward" else 1
        files = Path("p.jsonl"), self.held_out, self.checkpoint, Path("scratch")
        places = Places("model", *files, 6144, views=views)
        return arguments(recipe_flags(self.recipe, places, self.attention, self.done))


KINDS = {
    "defaults": Kind(),
    "CPU rehearsal": Kind({"device": "cpu", "micro_batch_samples": 4}),
    "CPU rehearsal of several GPUs": Kind(
        {"device": "cpu", "gpus_per_node": 2, "colocate": False, "vllm_engines": 2}
    ),
    "8 colocated GPUs, 4 engines": Kind(
        {"gpus_per_node": 8, "vllm_engines": 4, "tensor_parallel": 2}
    ),
    "models apart": Kind({"gpus_per_node": 2, "colocate": False, "vllm_engines": 3}),
    "4 nodes, ZeRO 3": Kind({"nodes": 4, "gpus_per_node": 8, "zero_stage": 3}),
    "no sleep, no checkpointing": Kind({"sleep": False, "gradient_checkpointing": False}),
    "flash attention": Kind(attention="flash_attention_2"),
    "no KL": Kind(train={"kl_weight": 0}),
    "greedy evaluation, one mini-batch": Kind(
        train={"evaluation_temperature": 0, "mini_batch_prompts": None}
    ),
    "held-out prompts": Kind(held_out=Path("held-out.jsonl")),
    "a resume": Kind(checkpoint=Path("checkpoints/step-000008"), done=8),
    "flags of all forms": Kind(
        {
            "flags": {
                "actor": {"adam": {"betas": [0.8, 0.99]}, "policy_loss_type": "gspo"},
                "ds.adam_offload": True,
                "ds.overlap_comm": False,
                "algo.kl.horizon": None,
                "ds.lora.target_modules": ["q_proj", "v_proj"],
            }
        }
    ),
    "a schedule, clip-higher and a nucleus": Kind(
        train={
            "lr_schedule": "cosine_with_min_lr",
            "lr_warmup_ratio": 0.1,
            "clip_high": 0.28,
            "top_p": 0.9,
        }
    ),
    "confidence penalty": Kind(
        method={"name": "confidence_penalty", "penalty_weight": 0.003}
    ),
    "two views": Kind(method={"name": "co_reward", "smoothing": 0.1}),
}


def openrlhf_recipes():
    """The recipes that come with olr and train on this engine, those of sweeps run by run."""
    for file in sorted(RECIPES.glob("**/*.yaml")):
        runs = expand_sweep(file) if "sweep" in read_tree(file) else None
        recipes = [run.recipe for run in runs] if runs else [load_recipe(file)]
        for number, recipe in enumerate(recipes):
            if recipe.engine.name == "openrlhf":
                yield pytest.param(recipe, id=f"{file.relative_to(RECIPES)}-{number}")


def test_this_is_the_openrlhf_that_the_engine_is_written_for():
    require_openrlhf()


def test_every_method_that_is_overridden_is_among_the_names_that_are_required():
    ours = (
        SupervisedTrainer, SupervisedExperienceMaker, PolicyUpdate, PolicyActor, AgentExecutor, FiniteSteps,
    )  # fmt: skip
    theirs = {name for names in RELIES_ON.values() for name in names}
    for cls in ours:
        bases = (DeepspeedStrategy,) if cls is FiniteSteps else cls.__mro__[1:]
        methods = (
            name
            for name, value in vars(cls).items()
            if callable(value) and not name.startswith("__")
        )
        for name in methods:
            # Ray adds a class of its own
            owners = {f"{base.__name__}.{name}" for base in bases if name in vars(base)}
            assert not owners or owners & theirs


READ_FROM = {
    "self", "sample", "batch", "generator", "experience", "actor", "zero", "engine", "status", "loss_batch_info",
    "response",
}  # fmt: skip
"""Names by which our subclasses have OpenRLHF's and DeepSpeed's objects, and dictionaries of theirs."""


def reads(source):
    """Attributes and keys that a module of ours reads of others' objects, as RELIES_ON writes them."""
    tree = ast.parse(Path(source).read_text(encoding="utf-8"))
    defined, found = set(), set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                defined.add(f".{node.name}")
            case ast.AnnAssign(target=ast.Name(name)):
                defined.add(f".{name}")
            case ast.Attribute(attr=name, ctx=ast.Store()):
                defined.add(f".{name}")
            case ast.Attribute(value=ast.Name(owner), attr=name) if owner in READ_FROM:
                found.add(f".{name}")
            case ast.Subscript(value=ast.Name(owner), slice=ast.Constant(str(key))):
                found |= {repr(key)} if owner in READ_FROM else set()
    return found - defined


@pytest.mark.parametrize(
    "module", [actor, experience, experience_maker, trainer, vllm_actor]
)
def test_every_attribute_and_key_that_is_read_is_among_the_names_that_are_required(module):
    theirs = {name for names in RELIES_ON.values() for name in names}
    methods = {f".{name.rpartition('.')[2]}" for name in theirs}
    of_torch = {f".{name}" for name in dir(torch.nn.Module)}
    found = reads(module.__file__)
    assert len(found) > 1
    assert found - theirs - methods - of_torch == set()


def test_every_metric_that_is_taken_over_is_among_the_names_that_are_required():
    theirs = {name for names in RELIES_ON.values() for name in names}
    assert {repr(name) for name in trainer._METRICS.values()} <= theirs


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_openrlhf_accepts_every_kind_of_recipe(kind, monkeypatch):
    check_flags(kind.recipe, openrlhf_parser())
    check_arguments(kind.words, openrlhf_parser())
    args = command_line(kind.words, monkeypatch)
    assert args.train.batch_size % kind.recipe.train.rollouts_per_prompt == 0
    assert args.critic.model_name_or_path is None
    assert args.reward.model_name_or_path is None
    assert args.rollout.vllm_generate_batch_size == args.rollout.batch_size


@pytest.mark.parametrize("recipe", openrlhf_recipes())
def test_openrlhf_accepts_the_recipes_that_come_with_olr(recipe, monkeypatch):
    places = Places("model", Path("p.jsonl"), Path("h.jsonl"), None, Path("scratch"), 6144)
    check_flags(recipe, openrlhf_parser())
    command_line(arguments(recipe_flags(recipe, places, "sdpa", 0)), monkeypatch)


def looks(parser):
    """What a parser accepts, option by option."""
    return {
        action.option_strings[0]: (
            type(action).__name__,
            tuple(action.option_strings),
            action.dest,
            action.nargs,
            action.type,
            action.choices,
            action.required,
            None
            if action.dest == "logger.wandb.run_name"
            else action.default,  # the time of day
        )
        for action in parser._actions
    }


def test_the_parser_that_is_found_is_openrlhfs_own(monkeypatch):
    def intercepted(self, *_):
        raise Reached(self)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", intercepted)
    with pytest.raises(Reached) as stop:
        runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__")
    found, real = looks(openrlhf_parser()), looks(stop.value.seen)
    assert len(real) > 100
    assert found == real


def test_openrlhf_receives_the_papers_settings(monkeypatch):
    """R17, on the defaults of a recipe."""
    args = command_line(Kind().words, monkeypatch)
    actor, algo, rollout, train = args.actor, args.algo, args.rollout, args.train
    assert (rollout.batch_size, rollout.n_samples_per_prompt) == (160, 8)
    assert (train.batch_size, train.max_epochs, train.num_episodes) == (32 * 8, 1, 10)
    assert train.batch_size * 5 == rollout.batch_size * rollout.n_samples_per_prompt
    assert (actor.optim, actor.adam.lr, actor.lr_scheduler, actor.lr_warmup_ratio) == (
        "adam",
        1e-6,
        "constant",
        0,
    )
    assert (actor.adam.betas, actor.adam.eps, actor.adam.weight_decay) == (
        [0.9, 0.999],
        1e-8,
        0.01,
    )
    assert (actor.max_norm, actor.eps_clip_low_high, actor.dual_clip) == (
        1.0,
        (0.2, 0.2),
        3.0,
    )
    assert (actor.policy_loss_type, actor.loss_agg_mode, actor.entropy_coef) == (
        "ppo",
        "token-mean",
        None,
    )
    assert (algo.kl.use_loss, algo.kl.estimator, algo.kl.init_coef) == (True, "k3", 1e-3)
    assert (algo.kl.target, algo.kl.unbiased_gradient) == (None, False)
    assert (algo.advantage.estimator, algo.advantage.gamma) == ("group_norm", 1)
    assert (algo.advantage.is_correction_level, algo.dynamic_filtering_enable) == (
        "off",
        False,
    )
    assert (rollout.temperature, rollout.top_p, rollout.max_new_tokens) == (1.0, 1.0, 4096)
    assert args.data.max_len == 6144
    assert (args.reward.overlong_buffer_len, args.reward.stop_properly_penalty_coef) == (
        None,
        None,
    )
    assert args.reward.clip_range == [-1e6, 1e6]
    assert args.ckpt.best_metric_key == "none"
    assert args.eval.steps == args.ckpt.save_steps == -1


def refusal(**flags):
    with pytest.raises(UserError) as refused:
        check_flags(Kind({"flags": flags}).recipe, openrlhf_parser())
    return str(refused.value)


@each(
    "name, value",
    ("algo.kl.unbiased_gradient", True),
    ("algo.advantage.is_correction_level", "token"),
)
def test_what_compares_the_old_policy_with_another_cannot_be_had_with_smoothing(
    name, value
):
    check_flags(Kind({"flags": {name: value}}).recipe, openrlhf_parser())
    smoothing = {"name": "grpo", "smoothing": 0.1}
    with pytest.raises(
        UserError, match=rf"^engine\.flags: {name} compares .* method\.smoothing"
    ):
        check_flags(
            Kind({"flags": {name: value}}, method=smoothing).recipe, openrlhf_parser()
        )
    for off in (None, False, "off"):
        check_flags(
            Kind({"flags": {name: off}}, method=smoothing).recipe, openrlhf_parser()
        )


def test_an_unknown_flag_is_refused_with_the_nearest_name():
    assert refusal(actor={"adam": {"bettas": [0.9, 0.99]}}) == (
        "engine.flags: OpenRLHF 0.11.2 has no flag actor.adam.bettas (did you mean 'actor.adam.betas'?);"
        " correct or remove it"
    )


def test_decided_and_refused_flags_are_flags_of_openrlhf():
    known = {name.removeprefix("--") for name in looks(openrlhf_parser())}
    assert known >= BY_KEYS.keys() | BY_OLR.keys()


@each(
    "flags, said",
    (
        {"actor.dual_clip": "many"},
        "argument --actor.dual_clip: invalid float value: 'many'",
    ),
    (
        {"algo.advantage.estimator": "grpo"},
        "argument --algo.advantage.estimator: invalid choice: 'grpo'",
    ),
    ({"ds.adam_offload": "yes"}, "unrecognized arguments: yes"),
)
def test_a_value_that_openrlhf_refuses_is_told_in_its_words(flags, said):
    kind = Kind({"flags": flags})
    with pytest.raises(UserError) as refused:
        check_arguments(kind.words, openrlhf_parser())
    assert str(refused.value).startswith(f"OpenRLHF refuses its flags: {said}")
    assert str(refused.value).endswith("; fix engine.flags")


def test_another_openrlhf_without_the_parser_is_told(monkeypatch, tmp_path):
    (tmp_path / "train_ppo_ray.py").write_text("if __name__ == '__main__':\n    main()\n")
    for places in ([str(tmp_path)], []):
        found = SimpleNamespace(submodule_search_locations=places)
        monkeypatch.setattr(
            "olr_cli.engines.openrlhf.flags.util.find_spec", lambda _, found=found: found
        )
        with pytest.raises(UserError, match=r"has no parser where 0\.11\.2 has it"):
            openrlhf_parser()
