"""What cannot work on OpenRLHF, said before Ray starts."""

from __future__ import annotations

from olr_cli.engines.openrlhf.flags import section
from olr_cli.errors import NotHere, UserError
from olr_cli.recipe.schema import OpenRlhfEngine, Recipe, flatten
from olr_cli.supervision import compose


def check_batches(recipe: Recipe, prompts: int) -> None:
    """Make sure that every step divides into whole mini-batches, and these into whole micro-batches on every GPU.

    DeepSpeed takes an optimiser step after a fixed number of micro-batches. Samples left over at a step's end would
    stay in the gradient of the next.

    Raises:
        UserError: they don't; names what would.
    """
    train, engine = recipe.train, section(recipe)
    size = train.prompts_per_step
    mini = min(train.mini_batch_prompts or size, size)
    if size % mini:
        raise UserError(
            f"train.prompts_per_step {size} is not a multiple of train.mini_batch_prompts {mini}: gradients of the last"
            f" {size % mini} prompts of a step would be half accumulated; choose a divisor of {size}"
        )
    over = prompts % size % mini
    if over:
        nearest = prompts - over
        remedy = f"set data.limit to {nearest}" if nearest else f"give at least {mini} prompts"
        raise UserError(
            f"{prompts} prompts leave {prompts % size} for an epoch's last step, not a multiple of the mini-batch of"
            f" {mini}: gradients would be half accumulated; {remedy}, or change train.mini_batch_prompts"
        )
    gpus = engine.policy_gpus
    views = len(compose(recipe.method).views)
    samples, portion = mini * train.rollouts_per_prompt * views, engine.micro_batch_samples * gpus
    if samples % portion:
        options = [m for m in range(1, samples + 1) if samples % (m * gpus) == 0]
        remedy = (
            f"set engine.micro_batch_samples to one of {', '.join(map(str, options))}"
            if options
            else f"choose train.mini_batch_prompts so that the samples are a multiple of {gpus}"
        )
        each = f"{train.rollouts_per_prompt} rollouts" + (f" x {views} views" if views > 1 else "")
        raise UserError(
            f"a mini-batch of {mini} prompts x {each} = {samples} samples does not divide"
            f" into micro-batches of {engine.micro_batch_samples} on {gpus} GPUs; {remedy}"
        )


def check_gradients(recipe: Recipe) -> None:
    """Make sure that gradients are added up in the precision that the recipe asks for.

    DeepSpeed 0.19.6 honours `grad_accum_dtype` with ZeRO 3. With ZeRO 2 it goes on in bfloat16
    (`copy_grads_in_partition` in runtime/zero/stage_1_and_2.py; tests/openrlhf/test_gradients.py measures it), and with
    ZeRO 1 it takes another optimizer, `BF16_Optimizer`, which has no `offload_states` to sleep with.

    Raises:
        UserError: float32 without ZeRO 3, or another precision.
    """
    engine = section(recipe)
    precision = flatten(engine.flags).get("ds.grad_accum_dtype")
    if precision not in (None, "bf16", "fp32"):
        raise UserError(f"engine.flags: ds.grad_accum_dtype is {precision!r}; choose bf16 or fp32")
    if precision == "fp32" and engine.zero_stage != 3:
        raise UserError(
            "engine.flags: ds.grad_accum_dtype fp32 works with ZeRO 3 alone: with ZeRO 2 DeepSpeed adds gradients up in"
            " bfloat16 all the same, and with ZeRO 1 it cannot sleep; set engine.zero_stage to 3, or remove the flag"
        )


def gpus_needed(engine: OpenRlhfEngine, kl_weight: float) -> int:
    """GPUs that all models together take."""
    if engine.colocate:
        return engine.policy_gpus
    shared = flatten(engine.flags).get("train.colocate_actor_ref", False)
    reference = engine.policy_gpus if kl_weight > 0 and not shared else 0
    return engine.policy_gpus + reference + engine.engines * engine.tensor_parallel


def check_gpus(recipe: Recipe, present: int | None) -> None:
    """Make sure that the models fit the GPUs.

    Args:
        recipe: says how many are wanted.
        present: GPUs that Ray will find; None if only the cluster knows.

    Raises:
        UserError: vLLM's engines don't cover the policy's GPUs, or (`NotHere`) there are too few.
    """
    engine = section(recipe)
    if engine.device == "cpu" and engine.tensor_parallel > 1:
        raise UserError(
            "engine.tensor_parallel is more than 1, which the CPU rehearsal cannot show; set it to 1"
        )
    if engine.colocate and engine.engines * engine.tensor_parallel != engine.policy_gpus:
        raise UserError(
            f"engine.colocate needs as many GPUs for vLLM as for the policy: engine.vllm_engines {engine.engines} x"
            f" engine.tensor_parallel {engine.tensor_parallel} = {engine.engines * engine.tensor_parallel}, and"
            f" engine.nodes {engine.nodes} x engine.gpus_per_node {engine.gpus_per_node} = {engine.policy_gpus}; make"
            " them equal, or set engine.colocate to false"
        )
    needed = gpus_needed(engine, recipe.train.kl_weight)
    if present is not None and engine.device == "cuda" and needed > present:
        found = f"here {'are' if present > 1 else 'is'} {_gpus(present)}" if present else "there is no GPU"
        smaller = (
            "set engine.device to cpu to rehearse with a tiny model, or engine.ray_address to the cluster that has them"
            if present == 0
            else "lower engine.gpus_per_node, or name a cluster with engine.ray_address"
        )
        raise NotHere(f"the recipe needs {_gpus(needed)} and {found}; {smaller}")


def _gpus(number: int) -> str:
    return f"{number} GPU" if number == 1 else f"{number} GPUs"
