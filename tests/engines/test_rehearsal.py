"""A dry run shows what it can, lists what this machine lacks, and ends like a run that cannot start here."""

import re
import shutil

import pytest
import torch
from cases import each
from commands import olr, refused
from transformers.utils import hub

from olr_cli import packages
from olr_cli.data.prompts import SYSTEM_PROMPT
from olr_cli.engines import models
from olr_cli.engines.openrlhf import checks, needs
from olr_cli.errors import NotHere, noting

CACHED_FILE = hub.cached_file


@pytest.fixture(autouse=True)
def bare_machine(here, monkeypatch):
    """An empty folder on a machine without OpenRLHF, GPUs, a Ray cluster and a network."""
    for module in (checks, needs):
        monkeypatch.setattr(module, "installed_version", lambda _package: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")
    for name in ("RAY_ADDRESS", "CXX"):
        monkeypatch.delenv(name, raising=False)
    asked = []

    def no_network(path, name, **options):
        asked.append(name)
        if options["_raise_exceptions_for_connection_errors"]:
            raise OSError("We couldn't connect to 'https://huggingface.co'")

    monkeypatch.setattr(hub, "cached_file", no_network)
    monkeypatch.setattr(models, "hub_answers", lambda: False)
    return asked


def dry_run(*words):
    return olr("train", *words, "--dry-run")


def listed(result):
    shown, _, missing = result.stdout.partition("missing here:\n")
    return shown, [line.removeprefix("  - ") for line in missing.splitlines()]


def test_the_papers_recipe_is_shown_without_data_openrlhf_gpus_and_network(
    tmp_path, bare_machine
):
    result = dry_run("paper/qwen3-4b")
    assert result.exit_code == 2
    shown, missing = listed(result)
    assert "800 prompts, if dapo_800.parquet holds as many as data.limit asks for" in shown
    assert "50 steps, 64,000 rollouts" in shown
    assert (
        "the command, which only OpenRLHF can check:\npython -m olr_cli.engines.openrlhf.job"
        in shown
    )
    assert "--actor.model_name_or_path Qwen/Qwen3-4B-Base" in shown
    assert "--train.batch_size 256" in shown
    assert f"[system] {SYSTEM_PROMPT}\n[user] What is" in shown
    assert [re.match(r"[^;(']*", sentence).group().strip() for sentence in missing] == [
        "dapo_800.parquet does not exist",
        "the engine openrlhf needs the package openrlhf, which is not installed here",
        "the recipe needs 8 GPUs and there is no GPU",
        "cannot load a model from",
    ]
    assert "the Hugging Face hub cannot be reached from here" in missing[-1]
    assert bare_machine == ["config.json"]  # one attempt, not one a file
    assert (
        result.stderr
        == "Error: this run cannot start here: 4 things are missing; provide what is listed above\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_with_the_model_and_data_at_hand_the_prompt_is_as_the_policy_sees_it(monkeypatch):
    monkeypatch.setattr(hub, "cached_file", CACHED_FILE)
    result = dry_run("laptop/openrlhf")
    shown, missing = listed(result)
    assert re.search(r"prompt \S+ as the policy sees it:\n\d+\+\d+=\n", shown)
    assert len(missing) == 1 and "package openrlhf, which is not installed" in missing[0]
    assert result.exit_code == 2
    assert (
        result.stderr
        == "Error: this run cannot start here: one thing is missing; provide what is listed above\n"
    )


def test_without_its_data_a_recipe_without_a_limit_does_not_guess_its_steps():
    result = dry_run(
        "laptop/quickstart", "--set", "data.train=mine.jsonl", "--set", "data.limit=null"
    )
    shown, missing = listed(result)
    assert "prompts, steps and rollouts: unknown without mine.jsonl" in shown
    assert "an example prompt (the data is missing) as the policy sees it:" in shown
    assert missing == ["mine.jsonl does not exist; check the name"]
    assert result.exit_code == 2


def test_tools_and_a_ray_that_the_recipes_engine_needs_are_listed_too(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(shutil, "which", lambda program: None)
    _, missing = listed(dry_run("paper/qwen3-4b"))
    assert len(missing) == 5 and "no C++ compiler (no-such-compiler)" in missing[-1]
    _, missing = listed(
        dry_run("paper/qwen3-4b", "--set", "engine.ray_address=127.0.0.1:1")
    )
    assert len(missing) == 4 and "no Ray answers at 127.0.0.1:1" in missing[-1]


def test_versions_are_those_of_the_recipes_engine_alone(monkeypatch):
    newer = {"torch": "2.99.0", "transformers": "5.99.0", "ray": "9.9.9"}
    for module in (needs, packages):
        monkeypatch.setattr(module, "installed_version", newer.get)
    local = dry_run("laptop/quickstart")
    (note,) = (
        line
        for line in local.stdout.splitlines()
        if line.startswith(("Note: ", "Warning: "))
    )
    tested = "tested with torch 2.13 and transformers 5.15"
    assert note.endswith(f"{tested}, not with torch 2.99.0 and transformers 5.99.0.")
    assert (
        "not with ray 9.9.9, torch 2.99.0, transformers 5.99.0;"
        in dry_run("laptop/openrlhf").stdout
    )


@each(
    "setting, said",
    ("train.mini_batch_prompts=33", "is not a multiple of train.mini_batch_prompts 33"),
    ("data.limit=801", "not a multiple of the mini-batch of 32"),
    (
        "engine.flags.ds.param_dtype=fp16",
        "ds.param_dtype cannot be set, because vLLM's weights are",
    ),
)
def test_a_mistake_in_the_recipe_is_one_sentence_whatever_is_missing(setting, said):
    assert said in refused("train", "paper/qwen3-4b", "--set", setting, "--dry-run")


def test_only_what_another_machine_may_have_is_noted_and_only_in_a_dry_run(tmp_path):
    lacking = []
    with noting(lacking):
        raise NotHere("no GPU", "find one")
    assert lacking == ["no GPU; find one"]
    with pytest.raises(NotHere), noting(None):
        raise NotHere("no GPU", "find one")
    for place, is_lack in (("org/name", True), (str(tmp_path), False)):
        with pytest.raises(models.UserError) as raised, models.loading(place):
            raise OSError("no such thing")
        assert isinstance(raised.value, NotHere) == is_lack
