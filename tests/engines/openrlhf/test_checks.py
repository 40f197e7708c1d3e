"""What is refused before Ray starts: batches that leave gradients half accumulated, and models that don't fit the GPUs.

How OpenRLHF divides a step is simulated here from its sources: `RemoteExperienceMaker.split_rollout_samples`,
`RayActorGroup.async_run_method_batch`, the replay buffer's data loader, and `DeepspeedStrategy.setup_distributed`.
"""

import pytest
from cases import each, refusal
from hypothesis import assume, given, strategies as st

from olr_cli.engines.openrlhf.checks import (
    attention_of,
    check_batches,
    check_gpus,
    check_precision,
    gpus_needed,
)
from olr_cli.errors import UserError
from olr_cli.recipe.layers import validate


def recipe(train=None, method="grpo", **engine):
    sections = {
        "train": train or {},
        "method": {"name": method},
        "engine": {"name": "openrlhf", **engine},
    }
    return validate(sections, "test")


def batches(size=8, mini=4, rollouts=8, micro=4, method="grpo", **engine):
    train = {
        "prompts_per_step": size,
        "mini_batch_prompts": mini,
        "rollouts_per_prompt": rollouts,
    }
    return recipe(train, method, micro_batch_samples=micro, **engine)


def views_of(a_recipe):
    return 2 if a_recipe.method.name == "co_reward" else 1


def is_let_through(a_recipe, prompts):
    try:
        check_batches(a_recipe, prompts, views_of(a_recipe))
    except UserError:
        return False
    return True


def micro_batches(samples, size, gpus):
    """Samples of every micro-batch that every GPU trains on in one step, as OpenRLHF deals them out."""
    dealt = [min(size, samples - first) for first in range(0, samples, size)]
    assert len(dealt) >= gpus  # else it raises
    portion = -(-len(dealt) // gpus)
    own = [sum(dealt[r * portion : (r + 1) * portion]) for r in range(gpus)]
    # The loader drops the rest
    return [[size] * (samples_of_one // size) for samples_of_one in own]


def require_whole_updates(a_recipe, prompts):
    """Simulate an epoch: every sample is trained on, and every optimiser step ends within the step it began in."""
    train, gpus, micro = (
        a_recipe.train,
        a_recipe.engine.policy_gpus,
        a_recipe.engine.micro_batch_samples,
    )
    mini = min(train.mini_batch_prompts or train.prompts_per_step, train.prompts_per_step)
    views = views_of(a_recipe)
    batch_size = mini * train.rollouts_per_prompt * views
    accumulated = batch_size // micro // gpus
    assert accumulated >= 1
    for first in range(0, prompts, train.prompts_per_step):
        step = min(train.prompts_per_step, prompts - first)
        samples = step * train.rollouts_per_prompt * views
        trained = micro_batches(samples, micro, gpus)
        counts = {len(own) for own in trained}
        assert len(counts) == 1, (
            "GPUs that differ in their number of micro-batches wait for each other for ever"
        )
        assert sum(map(sum, trained)) == samples
        assert counts.pop() % accumulated == 0
        # An optimiser step is one mini-batch
        assert accumulated * micro * gpus == batch_size


SMALL = st.integers(1, 12)
METHODS = st.sampled_from(["grpo", "co_reward"])
"""Methods that roll out one view of each prompt, and two."""
ENGINES = st.one_of(
    st.builds(lambda gpus: {"gpus_per_node": gpus}, st.integers(1, 8)),
    st.builds(
        lambda nodes, gpus: {"nodes": nodes, "gpus_per_node": gpus},
        st.integers(1, 3),
        st.integers(1, 4),
    ),
)


@given(
    st.integers(1, 40), SMALL, st.none() | SMALL, st.integers(2, 9), SMALL, METHODS, ENGINES
)
def test_every_step_that_is_let_through_is_whole_mini_batches_of_whole_micro_batches_on_every_gpu(
    prompts, size, mini, rollouts, micro, method, engine
):
    a_recipe = batches(size, mini, rollouts, micro, method, **engine)
    assume(is_let_through(a_recipe, prompts))
    require_whole_updates(a_recipe, prompts)


@given(
    st.integers(2, 6),
    SMALL,
    st.integers(1, 3),
    st.integers(2, 9),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_what_divides_is_let_through(steps, mini, minis, rollouts, gpus, micro):
    assume(mini * rollouts % (micro * gpus) == 0)
    a_recipe = batches(mini * minis, mini, rollouts, micro, gpus_per_node=gpus)
    for prompts in (mini * minis * steps, mini * minis * steps + mini):
        check_batches(a_recipe, prompts)
        require_whole_updates(a_recipe, prompts)


@each(
    "a_recipe, prompts, said",
    (
        batches(),
        30,
        "30 prompts leave 6 .* mini-batch of 4: .* set data.limit to a multiple of 4, or",
    ),
    (
        batches(size=10, mini=4),
        40,
        "10 is not a multiple of .* 4, .*; choose a divisor of 10$",
    ),
    (
        batches(mini=4, rollouts=6, micro=5, gpus_per_node=2),
        40,
        "a mini-batch of 4 prompts x 6 rollouts",
    ),
    (
        batches(mini=1, rollouts=3, method="co_reward"),
        40,
        "1 prompts x 3 rollouts x 2 views = 6 samples",
    ),
)
def test_batches_that_do_not_divide_are_refused_with_a_remedy(a_recipe, prompts, said):
    with pytest.raises(UserError, match=said):
        check_batches(a_recipe, prompts, views_of(a_recipe))


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize(
    "flags", [{"ds.grad_accum_dtype": "fp32"}, {"ds": {"grad_accum_dtype": "fp32"}}]
)
def test_gradients_in_float32_that_deepspeed_ignores_are_refused(flags, stage):
    if stage == 3:
        check_precision(recipe(zero_stage=stage, flags=flags))
    else:
        said = refusal(check_precision, recipe(zero_stage=stage, flags=flags))
        assert said.startswith(
            "engine.flags: ds.grad_accum_dtype fp32 works with ZeRO 3 alone: "
        )
    check_precision(recipe(zero_stage=stage, flags={"ds.grad_accum_dtype": "bf16"}))


@each(
    "engine, kl_weight, gpus",
    ({}, 1e-3, 1),
    ({"nodes": 2, "gpus_per_node": 8}, 1e-3, 16),
    ({"gpus_per_node": 2, "colocate": False}, 1e-3, 2 + 2 + 1),
    ({"gpus_per_node": 2, "colocate": False}, 0, 2 + 1),
    (
        {"gpus_per_node": 4, "colocate": False, "vllm_engines": 3, "tensor_parallel": 2},
        1e-3,
        4 + 4 + 6,
    ),
)
def test_the_gpus_of_all_models_are_counted(engine, kl_weight, gpus):
    assert gpus_needed(recipe({"kl_weight": kl_weight}, **engine)) == gpus
    check_gpus(recipe({"kl_weight": kl_weight}, **engine), gpus)
    assert f"needs {gpus} GPU" in refusal(
        check_gpus, recipe({"kl_weight": kl_weight}, **engine), gpus - 1
    )


@given(st.integers(1, 4), st.integers(1, 8), st.integers(1, 8))
def test_colocated_engines_cover_the_policys_gpus_by_default_wherever_they_can(
    nodes, gpus, tensor_parallel
):
    a_recipe = recipe(nodes=nodes, gpus_per_node=gpus, tensor_parallel=tensor_parallel)
    if nodes * gpus % tensor_parallel:
        assert "engine.colocate needs as many GPUs for vLLM as for the policy" in refusal(
            check_gpus, a_recipe, None
        )
    else:
        check_gpus(a_recipe, None)


@pytest.mark.parametrize(
    ("present", "here"), [(2, "here are 2 GPUs"), (0, "there is no GPU")]
)
def test_too_few_gpus_are_refused_with_what_there_is_and_a_remedy(present, here):
    said = refusal(check_gpus, recipe(gpus_per_node=8), present)
    assert said.startswith(
        f"the recipe needs 8 GPUs and {here}; lower engine.gpus_per_node, name a cluster"
    )


def test_a_rehearsal_needs_no_gpu_but_shows_no_tensor_parallelism():
    check_gpus(recipe(device="cpu", gpus_per_node=2), 0)
    assert "engine.tensor_parallel" in refusal(
        check_gpus, recipe(device="cpu", tensor_parallel=2), 0
    )


@each(
    "attention, device, has_flash_attention, implementation",
    ("auto", "cuda", True, "flash_attention_2"),
    ("auto", "cuda", False, "sdpa"),
    ("auto", "cpu", True, "sdpa"),
    ("sdpa", "cuda", True, "sdpa"),
    ("flash_attention_2", "cuda", True, "flash_attention_2"),
    (
        "flash_attention_2",
        "cuda",
        False,
        "flash-attn is not installed here; set it to auto or sdpa",
    ),
    ("flash_attention_2", "cpu", True, "flash-attn needs a GPU; set it to auto or sdpa"),
)
def test_attention_is_the_fastest_that_there_is_or_the_one_that_is_named(
    attention, device, has_flash_attention, implementation
):
    a_recipe, here = (
        recipe(attention=attention, device=device),
        {"has_flash_attention": has_flash_attention},
    )
    if " " in implementation:
        assert implementation in refusal(lambda: attention_of(a_recipe, **here))
    else:
        assert attention_of(a_recipe, **here) == implementation
