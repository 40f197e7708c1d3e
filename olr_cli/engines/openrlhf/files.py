"""What the command that starts a job and the job tell each other: files in ``<run>/openrlhf``."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from olr_cli.data.prompts import View
from olr_cli.files import write_text, write_whole


class Stopped(Exception):
    """The job was asked to stop, and everything up to the last complete step is saved."""


_OUTCOME_SECONDS = 2
"""Until a file that another machine has written is seen here."""

Kind = Literal["finished", "stopped", "user", "worker", "bug"]


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        kind: ``user``: something the user can mend; ``worker``: a process of the job died; ``bug``: all else.
        reason: a sentence without its stop, or the start of one.
    """

    kind: Kind
    reason: str = ""


@dataclass(frozen=True)
class JobFiles:
    """The files of a run's job.

    Attributes:
        run: the run directory.
    """

    run: Path

    @property
    def folder(self) -> Path:
        """Where all of them are."""
        return self.run / "openrlhf"

    @property
    def prompts(self) -> Path:
        """The training prompts as OpenRLHF reads them."""
        return self.folder / "prompts.parquet"

    @property
    def held_out(self) -> Path:
        """The held-out prompts as OpenRLHF reads them."""
        return self.folder / "held-out.parquet"

    @property
    def log(self) -> Path:
        """What all processes of the job print, attempt after attempt."""
        return self.folder / "log.txt"

    @property
    def scratch(self) -> Path:
        """A folder that OpenRLHF is told to write to."""
        return self.folder / "scratch"

    @property
    def universal(self) -> Path:
        """What stands in for a checkpoint from another number of GPUs while this attempt starts."""
        return self.folder / "universal"

    @property
    def ready(self) -> Path:
        """Exists when everything has started and the first step begins."""
        return self.folder / "ready"

    @property
    def stop(self) -> Path:
        """Exists when the job is asked to stop after its step."""
        return self.folder / "stop"

    @property
    def submission(self) -> Path:
        """The id of the Ray job that works on the run, if it was submitted."""
        return self.folder / "submission.txt"

    @property
    def _working_folder(self) -> Path:
        return self.folder / "working-folder.txt"

    def note_working_folder(self) -> None:
        """Note where the command runs: the recipe's relative paths are relative to that."""
        write_text(self._working_folder, os.getcwd())

    def enter_working_folder(self) -> None:
        """Go to where the command runs."""
        os.chdir(self._working_folder.read_text(encoding="utf-8"))

    @property
    def _outcome(self) -> Path:
        return self.folder / "outcome.json"

    def write_outcome(self, outcome: Outcome) -> None:
        """Tell how the job ended."""
        write_text(self._outcome, json.dumps(asdict(outcome)))

    def read_outcome(self) -> Outcome | None:
        """How the job ended; None if it had no time to tell."""
        deadline = time.monotonic() + _OUTCOME_SECONDS
        # Listed, which a network file system does not answer from memory.
        while self._outcome.name not in os.listdir(self.folder):
            if time.monotonic() > deadline:
                return None
            time.sleep(0.2)
        return Outcome(**json.loads(self._outcome.read_text(encoding="utf-8")))

    def forget_last_attempt(self) -> None:
        """Remove what an earlier attempt left of its end."""
        for file in (self.ready, self.stop, self._outcome):
            file.unlink(missing_ok=True)
        shutil.rmtree(self.universal, ignore_errors=True)


def held_out_label(prefix: str, row: int) -> str:
    """What tells held-out prompt number `row` of the set whose metrics begin with `prefix`."""
    return f"{prefix}:{row}"


def prompt_label(view: View, prompt_id: str) -> str:
    """What tells a view of a training prompt."""
    return f"{view}:{prompt_id}"


def read_prompt_label(label: str) -> tuple[View, str]:
    """View and id of a training prompt, from its `prompt_label`."""
    view, _, prompt_id = label.partition(":")
    return ("original" if view == "original" else "rephrased"), prompt_id


def write_prompts(file: Path, prompts: Sequence[tuple[str, str]]) -> None:
    """Write (text, label) rows as OpenRLHF reads them.

    Parquet, because from JSON the reader would make dates of what looks like dates.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = zip(*prompts, strict=True) if prompts else ((), ())
    table = pa.table([pa.array(column, pa.string()) for column in columns], names=["input", "label"])
    write_whole(file, lambda path: pq.write_table(table, path))
