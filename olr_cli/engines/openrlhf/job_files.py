"""Files by which the command that starts a job and the job communicate, in ``<run>/openrlhf``; a checkpoint's parts."""

from __future__ import annotations

import json
import os
import shutil
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from olr_cli.data.prompts import View
from olr_cli.errors import UserError
from olr_cli.files import naming_the_disks_error, write_text, write_whole, writing

OPENRLHF_PART = "openrlhf"
"""Folder of a checkpoint that holds DeepSpeed's state; OpenRLHF finds it there by `--ckpt.path`."""

UNIVERSAL = "ds.use_universal_ckpt"
"""OpenRLHF's flag by which DeepSpeed loads a universal checkpoint."""

_READERS, _WRITERS = 4, 2
"""Processes of DeepSpeed's converter, its defaults; each reader holds one GPU's file in memory."""

_END_SECONDS = 2
"""Until a file that another machine has written is seen here."""


class JobStopped(Exception):
    """The job was asked to stop, and everything up to the last complete step is saved."""


@dataclass(frozen=True)
class JobEnd:
    """How a job ended.

    Attributes:
        kind: ``user``: something the user can mend; ``diverged``: the whole sentence is in `reason`;
            ``worker``: a process of the job died; ``bug``: all else.
        reason: a sentence without its stop, or the start of one.
    """

    kind: Literal["finished", "stopped", "user", "diverged", "worker", "bug"]
    reason: str = ""


class JobFiles:
    """The files of a run's job."""

    def __init__(self, run: Path) -> None:
        self.run, self.folder = run, run / "openrlhf"
        self.prompts, self.held_out = (
            self.folder / "prompts.parquet",
            self.folder / "held-out.parquet",
        )
        self.log = self.folder / "log.txt"  # of all processes, attempt after attempt
        self.scratch = self.folder / "scratch"  # for what OpenRLHF insists on writing
        # A checkpoint from another number of GPUs, until it is loaded.
        self.universal = self.folder / "universal"
        self.ready = self.folder / "ready"  # exists when the first step begins
        # Exists when the job is asked to stop after its step
        self.stop = self.folder / "stop"
        self._working_folder, self._end, self._announced = (
            self.folder / "working-folder.txt",
            self.folder / "outcome.json",
            self.folder / "announced.txt",
        )

    def note_working_folder(self) -> None:
        """Note where the command runs: the recipe's relative paths are relative to that."""
        write_text(self._working_folder, os.getcwd())

    def enter_working_folder(self) -> None:
        """Go to where the command runs."""
        os.chdir(self._working_folder.read_text(encoding="utf-8"))

    def write_end(self, end: JobEnd) -> None:
        """Note how the job ended."""
        write_text(self._end, json.dumps(asdict(end)))

    def announce(self, sentence: str) -> None:
        """Have the command show a sentence now."""
        with writing(self._announced), self._announced.open("a", encoding="utf-8") as file:
            file.write(f"{sentence}\n")

    def announcements(self) -> list[str]:
        """Return the sentences to show, the first one first."""
        if not self._announced.exists():
            return []
        text = self._announced.read_text(encoding="utf-8")
        return text.split("\n")[:-1]  # whole lines

    def read_end(self) -> JobEnd | None:
        """How the job ended; None if it had no time to note it."""
        deadline = time.monotonic() + _END_SECONDS
        # Listed, which a network file system does not answer from memory.
        while self._end.name not in os.listdir(self.folder):
            if time.monotonic() > deadline:
                return None
            time.sleep(0.2)
        return JobEnd(**json.loads(self._end.read_text(encoding="utf-8")))

    def forget_last_attempt(self) -> None:
        """Remove what an earlier attempt left of its end."""
        for file in (self.ready, self.stop, self._end, self._announced):
            file.unlink(missing_ok=True)
        shutil.rmtree(self.universal, ignore_errors=True)


def held_out_label(prefix: str, row: int) -> str:
    """Identifies a prompt of the held-out set whose metrics begin with `prefix`."""
    return f"{prefix}:{row}"


def prompt_label(view: View, prompt_id: str) -> str:
    """Identifies a view of a training prompt."""
    return f"{view}:{prompt_id}"


def read_prompt_label(label: str) -> tuple[View, str]:
    """View and id of a training prompt, from its `prompt_label`."""
    view, _, prompt_id = label.partition(":")
    return ("original" if view == "original" else "rephrased"), prompt_id


def write_rows(file: Path, rows: Sequence[tuple[str, str]]) -> None:
    """Write (text, label) rows as OpenRLHF reads them.

    Parquet, because from JSON the reader would make dates of what looks like dates.
    """
    columns = {"input": [text for text, _ in rows], "label": [label for _, label in rows]}
    table = pa.table(columns, schema=pa.schema(dict.fromkeys(columns, pa.string())))
    write_whole(file, lambda path: pq.write_table(table, path))


def saved_parts(checkpoint: Path) -> int:
    """Number of GPUs that a checkpoint's optimiser state was saved on: each wrote a file."""
    parts = list((checkpoint / OPENRLHF_PART / "_actor").glob("*/*_optim_states.pt"))
    if not parts:
        raise UserError(
            f"{checkpoint} has no state of the optimiser to go on from",
            "restore it from a copy",
        )
    return len(parts)


def put_together(checkpoint: Path, target: Path) -> None:
    """Write a checkpoint's DeepSpeed state as a universal checkpoint that any number of GPUs can load.

    ZeRO keeps a part of the float32 weights and of Adam's moments on every GPU of the policy, and saves a file a GPU.
    DeepSpeed loads these on as many GPUs alone (`DeepSpeedEngine._load_zero_checkpoint`); on any other number it loads
    its universal checkpoint, a folder a weight, which its own converter (checkpoint/ds_to_universal.py) makes of the
    files. Takes 12 bytes a parameter of disk, and as much again while it works.

    Raises:
        OSError: the disk is full or not writable.
    """
    from deepspeed.checkpoint import ds_to_universal

    actor = checkpoint / OPENRLHF_PART / "_actor"
    tag = (actor / "latest").read_text(encoding="utf-8").strip()
    made = target / OPENRLHF_PART / "_actor"
    (made / tag).mkdir(parents=True)
    options = Namespace(
        input_folder=str(actor / tag),
        output_folder=str(made / tag),
        num_extract_workers=_READERS,
        num_merge_workers=_WRITERS,
        keep_temp_folder=False,
        strict=True,
        inject_missing_state=True,  # what Megatron would say of its own way to cut weights: nothing here
    )
    with naming_the_disks_error(target):
        ds_to_universal.main(options)
    (made / "latest_universal").write_text(tag, encoding="utf-8")
