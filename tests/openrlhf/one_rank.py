"""One rank of the policy in this process: DeepSpeed's engine on a CPU, set up as OpenRLHF does it on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from openrlhf.utils.config import hierarchize
from openrlhf.utils.deepspeed import DeepspeedStrategy

from olr_cli.engines.local.builtin import policy_path
from olr_cli.engines.openrlhf.flags import Places, arguments, openrlhf_parser, recipe_flags
from olr_cli.engines.openrlhf.policy import PolicyActor
from olr_cli.recipe.checks import validate

PATH = str(policy_path("addition-easier"))


def policy(
    zero_stage: int,
    folder: Path,
    checkpoint: Path | None = None,
    *,
    micro_batches: int = 2,
    flags: dict[str, Any] | None = None,
    sleep: bool = True,
) -> PolicyActor:
    """The policy actor of a recipe for one GPU, asleep, with DeepSpeed's engine, and without vLLM.

    Args:
        zero_stage: DeepSpeed's.
        folder: for what OpenRLHF writes.
        checkpoint: of ours, to go on from.
        micro_batches: of one sample, in an update.
        flags: `engine.flags`.
        sleep: whether its states sleep between updates.
    """
    recipe = validate(
        {
            "train": {"learning_rate": 1e-2, "prompts_per_step": 1, "rollouts_per_prompt": micro_batches},
            "engine": {
                "name": "openrlhf",
                "zero_stage": zero_stage,
                "micro_batch_samples": 1,
                "gradient_checkpointing": False,
                "flags": flags or {},
                "sleep": sleep,
            },
        },
        "test",
    )
    words = recipe_flags(recipe, Places(PATH, "p", None, checkpoint, folder, 64), "sdpa", 0)
    args = hierarchize(openrlhf_parser().parse_args(arguments(words | {"vllm.sync_backend": "gloo"})))
    args.actor.eps_clip_low_high = (args.actor.eps_clip,) * 2  # as the command line goes on
    args.ckpt.path = args.ckpt.path or str(folder)
    strategy = DeepspeedStrategy(
        micro_train_batch_size=args.train.micro_batch_size,
        train_batch_size=args.train.batch_size,
        zero_stage=args.ds.zero_stage,
        args=args,
    )
    actor = PolicyActor(world_size=1, rank=0, master_addr="127.0.0.1", master_port=None)
    actor.init_model_from_pretrained(strategy, PATH, max_steps=10)
    return actor
