"""A checkpoint is loaded on another number of ranks: the same optimiser state, whole, and the same next update."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cases import each

from olr_cli.engines.openrlhf.job_files import put_together, saved_parts


def live(ranks, zero_stage, gradients, folder, checkpoint=None):
    """The state before and after the third update of a policy of so many ranks, see policy_rank.py."""
    folder.mkdir(exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(__file__).with_name("policy_rank.py")
    words = [
        str(word)
        for word in (port, zero_stage, gradients, folder, checkpoint)
        if word is not None
    ]
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(ranks), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    outputs = [process.communicate(timeout=600)[0] for process in processes]
    assert all(process.returncode == 0 for process in processes), "\n".join(
        out[-3000:] for out in outputs
    )
    return [state(folder / f"step-{step}", folder / f"universal-{step}") for step in (2, 3)]


def state(checkpoint, universal):
    """Float32 weights and both moments of a checkpoint, each of all weights in one row."""
    put_together(checkpoint, universal)
    weights = sorted(universal.glob("openrlhf/_actor/global_step*/zero/*/"))
    assert len(weights) > 10
    found = [
        {file.stem: torch.load(file) for file in weight.glob("*.pt")} for weight in weights
    ]
    return {
        name: torch.cat([values(weight[name]).flatten() for weight in found])
        for name in ("fp32", "exp_avg", "exp_avg_sq")
    }


def values(saved):
    """A tensor, or a dictionary that has it: ZeRO 3 writes the one, ZeRO 1 and 2 the other."""
    return saved if torch.is_tensor(saved) else saved["param"]


IN_EVERY_RUN = [(3, "bf16", 1, 2)]
"""ZeRO 2 on fewer GPUs is in test_two_ranks.py, on the whole stack."""


@each(
    "zero_stage, gradients, ranks, ranks_later",
    *IN_EVERY_RUN, (2, "fp32", 1, 2), (3, "bf16", 2, 1), (2, "bf16", 2, 1), (1, "fp32", 2, 1),
)  # fmt: skip
def test_the_state_is_the_same_on_another_number_of_ranks_and_so_is_the_next_update(
    zero_stage, gradients, ranks, ranks_later, tmp_path, is_long
):
    if not is_long and (zero_stage, gradients, ranks, ranks_later) not in IN_EVERY_RUN:
        pytest.skip("with --long: half a minute each")
    saved, undisturbed = live(ranks, zero_stage, gradients, tmp_path / "first")
    assert saved_parts(tmp_path / "first" / "step-2") == ranks
    loaded, resumed = live(
        ranks_later,
        zero_stage,
        gradients,
        tmp_path / "later",
        tmp_path / "first" / "universal-2",
    )
    assert saved_parts(tmp_path / "later" / "step-2") == ranks_later
    for name, row in saved.items():
        assert row.any(), name
        assert torch.equal(loaded[name], row), name
    # Gradients are summed up in another order, in bfloat16; without moments or step count the update is another.
    step, other = (after["fp32"] - saved["fp32"] for after in (undisturbed, resumed))
    assert (step - other).abs().mean() < 0.02 * step.abs().mean()
