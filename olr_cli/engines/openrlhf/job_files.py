"""The files in ``<run>/openrlhf`` through which a command and its job communicate, and the parts of a checkpoint."""

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
"""Folder of a checkpoint with DeepSpeed's state, where OpenRLHF finds it by `--ckpt.path`."""

UNIVERSAL = "ds.use_universal_ckpt"
"""OpenRLHF's flag that makes DeepSpeed load a universal checkpoint."""

_READERS, _WRITERS = 4, 2
"""Processes of DeepSpeed's converter, its defaults. Each reader holds one GPU's file in memory."""

_END_SECONDS = 2
"""Seconds to wait for a network file system to show the job's outcome."""


class JobStopped(Exception):
    """Raised when the job stops on request; everything up to the last complete step is saved."""


@dataclass(frozen=True)
class JobEnd:
    """How and why a job ended: finished, stopped on request, or failed; `job.run` returns it.

    A failure is a problem that the user can fix, divergence, the death of a process, or a bug.
    """

    kind: Literal["finished", "stopped", "user", "diverged", "worker", "bug"]
    """Kind of end.

    ``user``: a problem that the user can fix. ``diverged``: `reason` is the whole sentence. ``worker``: a process of
    the job died. ``bug``: any other error.
    """

    reason: str = ""
    """A sentence without its full stop, or the start of one."""


class JobFiles:
    """The files in ``<run>/openrlhf`` through which an olr command and the job that it started communicate."""

    def __init__(self, run: Path) -> None:
        self.run, self.folder = run, run / "openrlhf"
        self.prompts, self.held_out = (
            self.folder / "prompts.parquet",
            self.folder / "held-out.parquet",
        )
        self.log = self.folder / "log.txt"  # output of all processes, attempt after attempt
        # Files that OpenRLHF writes and olr does not need.
        self.scratch = self.folder / "scratch"
        # A checkpoint from another number of GPUs. It exists until every rank has loaded it.
        self.universal = self.folder / "universal"
        self.ready = self.folder / "ready"  # exists when the first step begins
        # Exists once the job is asked to stop after its step.
        self.stop = self.folder / "stop"
        self._working_folder, self._end, self._announced = (
            self.folder / "working-folder.txt",
            self.folder / "outcome.json",
            self.folder / "announced.txt",
        )

    def note_working_folder(self) -> None:
        """Record this process's working folder for the job, because paths in the recipe are relative to it."""
        write_text(self._working_folder, os.getcwd())

    def enter_working_folder(self) -> None:
        """Change to the working folder that `note_working_folder` recorded."""
        os.chdir(self._working_folder.read_text(encoding="utf-8"))

    def write_end(self, end: JobEnd) -> None:
        """Record how the job ended, for the command that started it."""
        write_text(self._end, json.dumps(asdict(end)))

    def announce(self, sentence: str) -> None:
        """Pass a sentence to the command that started the job, which shows it at once."""
        with writing(self._announced), self._announced.open("a", encoding="utf-8") as file:
            file.write(f"{sentence}\n")

    def announcements(self) -> list[str]:
        """Return all sentences that this job has announced, in order.

        A sentence that is still being written is left out.
        """
        if not self._announced.exists():
            return []
        text = self._announced.read_text(encoding="utf-8")
        # The last piece is empty, or half of a line that is still being written.
        return text.split("\n")[:-1]

    def read_end(self) -> JobEnd | None:
        """Return how the job ended; None if the job has not recorded that.

        Wait up to 2 seconds for the record, because a network file system may show it late.
        """
        deadline = time.monotonic() + _END_SECONDS
        # List the folder: a network file system may answer `exists` from its cache.
        while self._end.name not in os.listdir(self.folder):
            if time.monotonic() > deadline:
                return None
            time.sleep(0.2)
        return JobEnd(**json.loads(self._end.read_text(encoding="utf-8")))

    def forget_last_attempt(self) -> None:
        """Remove the files that an earlier job of this run has left, if any.

        - `ready` shows that the first step has begun.
        - `stop` asks the job to stop.
        - Two files record how the job ended and what it announced.
        - `universal` is a copy of a checkpoint that any number of GPUs can load.
        """
        for file in (self.ready, self.stop, self._end, self._announced):
            file.unlink(missing_ok=True)
        shutil.rmtree(self.universal, ignore_errors=True)


def held_out_label(prefix: str, row: int) -> str:
    """Return the label ``prefix:row``, which OpenRLHF keeps with a held-out prompt.

    `prefix` is ``eval`` for a prompt of the test set, or ``validation``. `row` is the prompt's position in its set,
    from 0.
    """
    return f"{prefix}:{row}"


def prompt_label(view: View, prompt_id: str) -> str:
    """Return the label ``view:prompt_id``, which OpenRLHF keeps with one view (wording) of a training prompt."""
    return f"{view}:{prompt_id}"


def read_prompt_label(label: str) -> tuple[View, str]:
    """Split a label ``view:prompt_id`` into the view (original or rephrased) and the prompt's id."""
    view, _, prompt_id = label.partition(":")
    return ("original" if view == "original" else "rephrased"), prompt_id


def write_rows(file: Path, rows: Sequence[tuple[str, str]]) -> None:
    """Write (text, label) pairs as a Parquet file with the columns `input` and `label`, which OpenRLHF reads.

    The format is not JSON, because OpenRLHF's reader of JSON would turn texts that look like dates into dates.
    """
    columns = {"input": [text for text, _ in rows], "label": [label for _, label in rows]}
    table = pa.table(columns, schema=pa.schema(dict.fromkeys(columns, pa.string())))
    write_whole(file, lambda path: pq.write_table(table, path))


def saved_parts(checkpoint: Path) -> int:
    """Return the number of GPUs that saved a checkpoint's optimiser state; each has written one file.

    Raises:
        UserError: the checkpoint has no optimiser state.
    """
    parts = list((checkpoint / OPENRLHF_PART / "_actor").glob("*/*_optim_states.pt"))
    if not parts:
        raise UserError(
            f"{checkpoint} has no state of the optimiser to go on from",
            "restore it from a copy",
        )
    return len(parts)


def put_together(checkpoint: Path, target: Path) -> None:
    """Convert a checkpoint's DeepSpeed state to a universal checkpoint in `target`, which any number of GPUs can load.

    With ZeRO, every GPU of the policy saves its part of the float32 weights and of Adam's moments in a file. DeepSpeed
    loads these files only on the same number of GPUs (`DeepSpeedEngine._load_zero_checkpoint`). A universal checkpoint
    has a folder for each weight instead. It takes 12 bytes of disk per parameter. During the conversion, temporary
    files take another 12.

    Raises:
        OSError: the disk is full or not writable.
    """
    from deepspeed.checkpoint import ds_to_universal

    actor = checkpoint / OPENRLHF_PART / "_actor"
    tag = (actor / "latest").read_text(encoding="utf-8").strip()
    universal = target / OPENRLHF_PART / "_actor"
    (universal / tag).mkdir(parents=True)
    options = Namespace(
        input_folder=str(actor / tag),
        output_folder=str(universal / tag),
        num_extract_workers=_READERS,
        num_merge_workers=_WRITERS,
        keep_temp_folder=False,
        strict=True,
        inject_missing_state=True,  # only Megatron stores how it cuts weights, and the converter asks for it
    )
    with naming_the_disks_error(target):
        ds_to_universal.main(options)
    (universal / "latest_universal").write_text(tag, encoding="utf-8")
