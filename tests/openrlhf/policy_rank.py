"""One rank of the policy with DeepSpeed on a CPU, as OpenRLHF sets it up on a GPU, without Ray and vLLM.

python policy_rank.py RANK RANKS PORT ZERO_STAGE GRADIENTS FOLDER [CHECKPOINT]

From the start, the program makes two updates, saves FOLDER/step-2, makes the third and saves FOLDER/step-3. From a
checkpoint, it saves step-2 again at once. GRADIENTS is the type in which gradients are summed up.
"""

import os
import sys
from pathlib import Path

from olr_cli.engines.openrlhf.bridges import bridge_process, environment

os.environ |= environment(trusts_code=True, device="cpu")
bridge_process()

import torch  # noqa: E402  after the bridges
from openrlhf.utils.config import hierarchize  # noqa: E402
from openrlhf.utils.deepspeed import DeepspeedStrategy  # noqa: E402

from olr_cli.engines.models import policy_path  # noqa: E402
from olr_cli.engines.openrlhf.actor import PolicyActor  # noqa: E402
from olr_cli.engines.openrlhf.flags import Places, arguments, openrlhf_parser, recipe_flags  # noqa: E402
from olr_cli.recipe.layers import validate  # noqa: E402

MODEL = str(policy_path("addition-easier"))
SAMPLES = 4


def policy(
    zero_stage,
    folder,
    checkpoint=None,
    *,
    samples=2,
    flags=None,
    sleep=True,
    learning_rate=1e-2,
    rank=0,
    ranks=1,
    port=None,
):
    """Return the policy actor of a recipe, with the engine and optimiser of DeepSpeed that OpenRLHF makes for it.

    Args:
        zero_stage: DeepSpeed's stage of ZeRO.
        folder: for the files that OpenRLHF writes.
        checkpoint: a checkpoint of olr to continue from; None: the built-in policy.
        samples: samples of an optimiser step, one per micro-batch.
        flags: `engine.flags`.
        sleep: whether DeepSpeed's states sleep between updates, and at first.
        learning_rate: Adam's.
        rank: number of this process, from 0.
        ranks: number of processes, each of which stands for a GPU of the policy.
        port: the port at which the ranks meet; None for a single rank.
    """
    section = {
        "name": "openrlhf", "gpus_per_node": ranks, "zero_stage": zero_stage, "micro_batch_samples": 1,
        "gradient_checkpointing": False, "flags": flags or {}, "sleep": sleep,
    }  # fmt: skip
    train = {
        "learning_rate": learning_rate,
        "prompts_per_step": 1,
        "rollouts_per_prompt": samples,
    }
    recipe = validate({"train": train, "engine": section}, "test")
    is_universal = (
        checkpoint is not None
        and (checkpoint / "openrlhf/_actor/latest_universal").exists()
    )
    places = Places(MODEL, "p", None, checkpoint, folder, 64, is_universal=is_universal)
    words = recipe_flags(recipe, places, "sdpa", 0) | {"vllm.sync_backend": "gloo"}
    args = hierarchize(openrlhf_parser().parse_args(arguments(words)))
    # OpenRLHF's command line does this after parsing.
    args.actor.eps_clip_low_high = (args.actor.eps_clip,) * 2
    args.ckpt.path = args.ckpt.path or str(folder)
    strategy = DeepspeedStrategy(
        micro_train_batch_size=1, train_batch_size=samples, zero_stage=zero_stage, args=args
    )
    actor = PolicyActor(
        world_size=ranks, rank=rank, master_addr="127.0.0.1", master_port=port
    )
    actor.init_model_from_pretrained(strategy, MODEL, max_steps=10)
    return actor


def update(actor, number, *, samples=2, rank=0, ranks=1):
    """Take one optimiser step on `samples` random samples, drawn by `number`; this rank computes its share of them."""
    generator = torch.Generator().manual_seed(number)
    tokens_BT = torch.randint(3, 12, (samples, 16), generator=generator)
    for sample in range(rank, samples, ranks):
        tokens = tokens_BT[sample : sample + 1]
        log_probs = actor.actor(tokens, torch.ones(1, 15), torch.ones_like(tokens))
        actor.strategy.backward(-log_probs.mean(), actor.actor, actor.actor_optim)
        actor.strategy.optimizer_step(actor.actor_optim, actor.actor, actor.actor_scheduler)


def main(rank, ranks, port, zero_stage, gradients, folder, checkpoint=None):
    """Make the updates and save the checkpoints that the module's docstring describes, with arguments as texts."""
    rank_keys = {"rank": int(rank), "ranks": int(ranks)}
    folder, begun = Path(folder), None if checkpoint is None else Path(checkpoint)
    actor = policy(
        int(zero_stage), folder, begun, samples=SAMPLES, flags={"ds.grad_accum_dtype": gradients}, sleep=False,
        learning_rate=1e-3, port=port, **rank_keys,
    )  # fmt: skip
    if begun is None:
        for number in (1, 2):
            update(actor, number, samples=SAMPLES, **rank_keys)
    else:
        assert actor.get_checkpoint_states()["global_step"] == 2, (
            actor.get_checkpoint_states()
        )
    actor.save_checkpoint_to(str(folder / "step-2"), 2)
    update(actor, 3, samples=SAMPLES, **rank_keys)
    actor.save_checkpoint_to(str(folder / "step-3"), 3)


if __name__ == "__main__":
    main(*sys.argv[1:])
