"""The loss of TRL's GRPOTrainer on the same numbers (tests/fixtures/trl/make.py calls it) is the local engine's."""

import json
from pathlib import Path

import pytest
import torch

from olr_cli.engines.local.loss import clipped_surrogate, k3_divergence, token_weights

NUMBERS = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "trl" / "grpo_losses.json").read_text("utf-8")
)
AVERAGES = {"grpo": "sequence", "dapo": "token"}  # TRL's loss_type: our train.loss_average


@pytest.mark.parametrize(
    "case",
    NUMBERS["cases"],
    ids=lambda case: f"{case['loss_type']}-{case['beta']}-{case['epsilon_high']}",
)
def test_the_loss_and_its_gradient_are_trls_with_its_delta_as_the_dual_clip(case):
    logprobs = torch.tensor(NUMBERS["logprobs"], requires_grad=True)
    old, reference = (
        torch.tensor(NUMBERS["old_logprobs"]),
        torch.tensor(NUMBERS["reference_logprobs"]),
    )
    advantages, lengths = (
        torch.tensor(NUMBERS["advantages"]),
        torch.tensor(NUMBERS["lengths"]),
    )
    losses, clipped = clipped_surrogate(
        logprobs, old, advantages[:, None], 0.2, case["epsilon_high"]
    )
    losses = losses + case["beta"] * k3_divergence(logprobs, reference)
    is_response = torch.arange(logprobs.shape[1]) < lengths[:, None]
    weights = token_weights(lengths, AVERAGES[case["loss_type"]])
    loss = (losses * weights[:, None] * is_response).sum() / (weights * lengths).sum()
    (gradient,) = torch.autograd.grad(loss, logprobs)
    assert loss.item() == pytest.approx(case["loss"], abs=1e-6)
    torch.testing.assert_close(
        gradient, torch.tensor(case["gradient"]), atol=1e-7, rtol=1e-5
    )
    assert clipped.any()
