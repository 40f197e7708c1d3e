"""Memory by the formulas of recipes/paper/README.md, against sums made by hand."""

import pytest
from transformers import AutoModelForCausalLM

from olr_cli.engines.models import model_shape, policy_path
from olr_cli.engines.openrlhf.memory import memory_need
from olr_cli.recipe.layers import validate
from olr_cli.runs.throughput import ModelShape

P = 1_000_000_000
SHAPE = ModelShape(P, 10, attention_width=1000, hidden=1000, mlp=3000, vocabulary=50_000, cache=2_000)
TOKENS = 2 * 600  # two samples a micro-batch


def need(train=None, method="grpo", flash_attention=False, **engine):
    sections = {
        "train": {"max_prompt_tokens": 200, "max_new_tokens": 400, **(train or {})},
        "method": {"name": method},
        "engine": {"name": "openrlhf", "gpus_per_node": 4, "vllm_memory": 0.5, **engine},
    }
    return memory_need(validate(sections, "test"), SHAPE, card=80e9, flash_attention=flash_attention)


@pytest.mark.parametrize(
    ("stage", "dtype", "weights", "gradients"),
    [
        (1, None, 2 * P, 2 * P),
        (2, None, 2 * P, 2 * P / 4),
        (2, "fp32", 2 * P, 2 * P / 4),
        (3, "bf16", 2 * P / 4, 2 * P / 4),
        (3, "fp32", 2 * P / 4, 4 * P / 4),
    ],
)
def test_the_zero_stage_and_the_gradients_type_decide_what_each_gpu_holds(stage, dtype, weights, gradients):
    update = need(zero_stage=stage, flags={"ds.grad_accum_dtype": dtype}).update
    assert (update["policy"], update["reference"]) == (weights, weights)
    assert (update["gradients"], update["optimiser"]) == (gradients, 12 * P / 4)


def test_offloaded_adam_leaves_neither_gradients_nor_states_on_the_gpu():
    found = need(flags={"ds": {"adam_offload": True}})
    assert found.update["gradients"] == found.update["optimiser"] == 0
    assert found.host == 4 * 2 * P + 20 * P


def test_logits_and_layers_are_those_of_a_micro_batch():
    assert need().update["logits"] == 16 * TOKENS * 50_000
    assert need(flash_attention=True, method="label_smoothing").update["logits"] == 12 * TOKENS * 50_000
    one_layer = 2 * TOKENS * (10 * 1000 + 4 * 3000)
    assert need().update["layers"] == 2 * TOKENS * 1000 * 10 + one_layer
    assert need(gradient_checkpointing=False).update["layers"] == 10 * one_layer


def test_whoever_does_not_sleep_stays_on_the_gpu():
    awake = need(sleep=False)
    assert awake.update["vLLM's share"] == 40e9
    assert awake.generation["optimiser"] == 12 * P / 4
    assert "vLLM's share" not in need().update
    assert "optimiser" not in need().generation


def test_models_that_are_not_colocated_have_gpus_of_their_own():
    apart = need(colocate=False)
    assert apart.update["reference"] == 0
    assert apart.generation == {"vLLM's share": 40e9}
    assert need(train={"kl_weight": 0}).update["reference"] == 0


def test_the_cache_is_what_vllms_weights_and_activations_leave():
    assert need().cache_tokens == (40e9 - 2 * P - 3e9) // 2_000
    assert need(tensor_parallel=2).cache_tokens == (40e9 - P - 3e9) * 2 // 2_000


def test_checkpoints_are_counted_with_the_one_that_is_being_written():
    assert need(train={"keep_checkpoints": 1}).disk == 2 * 16 * P
    assert need(train={"keep_checkpoints": 1}, zero_stage=3).disk == 2 * 14 * P


def test_host_memory_holds_what_sleeps_and_what_loads():
    assert need().host == 4 * 2 * P + 2 * 4 * 2 * P
    one = {"gpus_per_node": 1, "zero_stage": 3, "flags": {"ds.grad_accum_dtype": "fp32"}}
    assert need(**one).host == 2 * P + 16 * P


def test_a_model_is_measured_by_its_configuration_alone():
    path = str(policy_path("addition-easier"))
    loaded = AutoModelForCausalLM.from_pretrained(path)
    assert model_shape(path, trust_remote_code=False) == ModelShape.of(loaded)
    assert ModelShape.of(loaded).parameters == 131_520
