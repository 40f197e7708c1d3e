"""A checkpoint from another number of GPUs: the parts of the optimiser's state are put together and cut anew.

ZeRO keeps a part of the float32 weights and of Adam's moments on every GPU of the policy, and saves a file a GPU.
DeepSpeed loads these on as many GPUs alone (`DeepSpeedEngine._load_zero_checkpoint`); on any other number it loads its
universal checkpoint, a folder a weight, which its own converter (checkpoint/ds_to_universal.py) makes of the files.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from olr_cli.errors import UserError

OPENRLHF_PART = "openrlhf"
"""Folder of a checkpoint that holds DeepSpeed's state; OpenRLHF finds it there by `--ckpt.path`."""

UNIVERSAL = "ds.use_universal_ckpt"
"""OpenRLHF's flag by which DeepSpeed loads a universal checkpoint."""

_READERS, _WRITERS = 4, 2
"""Processes of the converter, as many as it takes by default; each reader holds one GPU's file in memory."""


def saved_parts(checkpoint: Path) -> int:
    """How many GPUs a checkpoint's optimiser state was saved on: each wrote a file.

    Raises:
        UserError: there is none.
    """
    parts = list((checkpoint / OPENRLHF_PART / "_actor").glob("*/*_optim_states.pt"))
    if not parts:
        raise UserError(f"{checkpoint} has no state of the optimiser to go on from; restore it from a copy")
    return len(parts)


def put_together(checkpoint: Path, target: Path) -> None:
    """Write a checkpoint's DeepSpeed state as a universal checkpoint that any number of GPUs can load.

    Takes 12 bytes a parameter of disk, and as much again while it works.

    Args:
        checkpoint: of ours.
        target: a folder that takes its place for OpenRLHF.

    Raises:
        OSError: the disk is full or not writable.
    """
    from deepspeed.checkpoint import ds_to_universal

    actor = checkpoint / OPENRLHF_PART / "_actor"
    tag = (actor / "latest").read_text(encoding="utf-8").strip()
    made = target / OPENRLHF_PART / "_actor"
    (made / tag).mkdir(parents=True)
    ds_to_universal.main(
        Namespace(
            input_folder=str(actor / tag),
            output_folder=str(made / tag),
            num_extract_workers=_READERS,
            num_merge_workers=_WRITERS,
            keep_temp_folder=False,
            strict=True,
            inject_missing_state=True,  # what Megatron would say of its own way to cut weights: nothing here
        )
    )
    (made / "latest_universal").write_text(tag, encoding="utf-8")
