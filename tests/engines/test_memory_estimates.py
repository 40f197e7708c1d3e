"""Settings that cannot fit into memory are refused before anything starts; large ones on large machines are not."""

import pytest

from olr_cli.engines import memory
from olr_cli.engines.memory import local_memory, require_local_memory, require_rollout_memory
from olr_cli.errors import UserError
from olr_cli.recipe.files import load_recipe
from olr_cli.runs.throughput import ModelShape

GB = 10**9
QWEN3_4B = ModelShape(
    4_022_468_096, 36, 4096, hidden=2560, mlp=9728, vocabulary=151_936, cache=147_456, context=32_768
)


@pytest.fixture
def host(monkeypatch):
    def set_memory(size):
        monkeypatch.setattr(memory, "host_memory", lambda: size)

    return set_memory


@pytest.mark.parametrize(
    ("settings", "held_out", "expected"),
    [
        (
            ["train.rollouts_per_prompt=1000000"],
            0,
            "^80,000,000 rollouts .* 144 GB .* here are 24 GB; lower train.roll",
        ),
        (["train.rollouts_per_prompt=100000"], 500, "^50,000,000 rollouts .* lower train.evaluation_samples"),
        (["train.prompts_per_step=10000000", "train.mini_batch_prompts=8"], 0, "or prompts_per_step"),
    ],
)
def test_rollouts_that_no_memory_holds_are_refused(host, settings, held_out, expected):
    host(24 * GB)
    with pytest.raises(UserError, match=expected):
        require_rollout_memory(load_recipe("laptop/quickstart", settings), 10_000_000, held_out)


@pytest.mark.parametrize("recipe", ["laptop/quickstart", "paper/qwen3-4b"])
def test_rollouts_of_the_recipes_fit_into_a_laptop(host, recipe):
    host(2 * GB)
    require_rollout_memory(load_recipe(recipe), 40_000, 5_000)


def test_few_prompts_make_a_step_small(host):
    host(GB)
    require_rollout_memory(load_recipe("laptop/quickstart", ["train.prompts_per_step=10000000"]), 400)


def test_a_large_model_and_a_large_group_are_named_by_what_takes_most(host):
    host(128 * GB)
    recipe = load_recipe("laptop/quickstart")
    require_local_memory(recipe, QWEN3_4B)
    with pytest.raises(
        UserError, match=r"at least 80 GB of GPU memory .* for model.path, .*; choose a smaller model"
    ):
        require_local_memory(recipe, QWEN3_4B, card=24.0 * GB)
    many = load_recipe("laptop/quickstart", ["train.rollouts_per_prompt=100000"])
    with pytest.raises(
        UserError, match=r"622 GB of it for train.rollouts_per_prompt, and here are 128 GB; lower train"
    ):
        require_local_memory(many, QWEN3_4B)


def test_an_adapter_needs_no_states_for_all_weights():
    full, adapter = (
        local_memory(load_recipe("laptop/quickstart", settings), QWEN3_4B)["model.path"]
        for settings in ([], ["train.lora_rank=8"])
    )
    # weights, gradients, two states of AdamW, and the reference of the KL term
    assert (full, adapter) == (20.0 * QWEN3_4B.parameters, 4.0 * QWEN3_4B.parameters)
