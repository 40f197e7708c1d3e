"""What a run computes on, as throughput needs it."""

from transformers import AutoModelForCausalLM

from olr_cli.engines.local.builtin import policy_path
from olr_cli.engines.openrlhf.machine import machine, model_size
from olr_cli.recipe.checks import validate
from olr_cli.runs.throughput import ModelSize


def test_a_model_is_measured_by_its_configuration_alone():
    path = str(policy_path("addition-easier"))
    loaded = AutoModelForCausalLM.from_pretrained(path)
    assert model_size(path, trust_remote_code=False) == ModelSize.of(loaded)
    assert ModelSize.of(loaded).parameters == 131_520


def test_all_gpus_count_and_a_cpus_logical_ones_are_none():
    path = str(policy_path("addition-easier"))
    section = {"name": "openrlhf", "gpus_per_node": 2, "colocate": False}
    apart = validate({"engine": section, "train": {"kl_weight": 0.1}}, "test")
    found = machine(apart, path, "NVIDIA H200")
    assert (found.gpus, found.card, found.passes_before) == (2 + 2 + 1, "NVIDIA H200", 2)
    alone = validate({"engine": {**section, "device": "cpu"}, "train": {"kl_weight": 0}}, "test")
    assert machine(alone, path, None).gpus == 0
    assert machine(alone, path, None).passes_before == 1
