"""Sample logs of other evaluation tools: lm-evaluation-harness and lighteval."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from olr_cli.errors import UserError, no_path
from olr_cli.evaluation.logs import lighteval, lm_eval
from olr_cli.evaluation.logs.log import Log, LoggedSample, LoggedTask

__all__ = ["Log", "LoggedSample", "LoggedTask", "read_log"]

_READERS: dict[str, Callable[[list[Path]], Log]] = {
    lm_eval.PATTERN: lm_eval.read,
    lighteval.PATTERN: lighteval.read,
}
"""File name pattern of a log -> its reader."""


def read_log(path: Path) -> Log:
    """The log at a place: a file, or a folder that is searched; of a task that was run several times the latest run.

    Raises:
        UserError: there is no log, it is damaged, of several models, or has no generated text.
    """
    if path.is_file():
        reader = {".jsonl": lm_eval.read, ".parquet": lighteval.read}.get(path.suffix)
        if reader is not None:
            return reader([path])
    elif not path.exists():
        raise no_path(path, "name a sample log, or the folder that lm-eval or lighteval wrote")
    found = {pattern: sorted(path.rglob(pattern)) for pattern in _READERS} if path.is_dir() else {}
    for pattern, files in found.items():
        if files:
            return _READERS[pattern](files)
    raise UserError(
        f"{path} has no sample log: neither {lm_eval.PATTERN} (lm_eval --log_samples) nor {lighteval.PATTERN}"
        " (lighteval --save-details)"
    )
