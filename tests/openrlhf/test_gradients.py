"""In what precision DeepSpeed adds up the gradients of a mini-batch, measured on its engine (`check_precision`)."""

import torch
from cases import each
from deepspeed.utils import safe_get_full_grad
from policy_rank import policy

MICRO_BATCHES = 16
FP32 = {"ds.grad_accum_dtype": "fp32"}


def loss(model, number):
    """The loss of one micro-batch."""
    generator = torch.Generator().manual_seed(number)
    tokens = torch.randint(3, 12, (1, 16), generator=generator)
    return -model(tokens).logits.float().log_softmax(-1)[0, range(15), tokens[0, 1:]].mean()


def gradients_of_micro_batches(model):
    """The sums in float64 of the gradients that autograd finds for each weight, as they come."""
    total = {name: 0 for name, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        parameter.register_hook(
            lambda found, name=name: total.update({name: total[name] + found.double()})
        )
    return total


@each("zero_stage, flags, is_exact", (3, FP32, True), (3, {}, False), (2, FP32, False))
def test_gradients_are_added_up_in_float32_with_the_flag_and_zero_3_alone(
    zero_stage, flags, is_exact, tmp_path
):
    actor = policy(zero_stage, tmp_path, samples=MICRO_BATCHES, flags=flags, sleep=False)
    engine = actor.actor.model
    gradient = gradients_of_micro_batches(engine.module)
    for number in range(MICRO_BATCHES):
        engine.backward(loss(engine, number))
        if number < MICRO_BATCHES - 1:
            engine.step()
    errors = [
        (safe_get_full_grad(parameter).double() - gradient[name]).norm()
        / gradient[name].norm()
        for name, parameter in engine.module.named_parameters()
    ]
    assert max(errors) < 0.02
    assert (max(errors) < 1e-6) == is_exact
