"""Where an audit's history comes from, and where its table of prompts goes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from olr_cli.analysis.audit.audit import Audit
from olr_cli.analysis.audit.report import rows
from olr_cli.analysis.histories import RolloutHistory, read_history
from olr_cli.errors import UserError
from olr_cli.files import write_whole, writing

_SETTABLE = "data.extractor"


def audit_history(source: Path, settings: Sequence[str]) -> RolloutHistory:
    """The history to audit.

    Raises:
        UserError: there is none, or a setting means nothing to an audit.
    """
    for setting in settings:
        key = setting.partition("=")[0].strip()
        if key != _SETTABLE:
            raise UserError(
                f"--set {key}: an audit makes no label decisions and draws nothing; it can set {_SETTABLE}, how answers"
                " are read from responses"
            )
    return read_history(source, settings)


def write_table(found: Audit, out: Path | None, data: str | None, settings: Sequence[str]) -> Path:
    """Write the table of all prompts as Parquet.

    Args:
        found: the audit.
        out: a new file; by default below the run, or beside the table, one name for each way of asking.
        data: what `--data` names.
        settings: what `--set` says.

    Returns:
        The file.

    Raises:
        UserError: it can't be written.
    """
    target = out or _default(found, data, settings)
    try:
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, lambda path: rows(found).write_parquet(path))
    except UserError as error:
        raise UserError(f"{error} (--out FILE)") from None
    return target


def _default(found: Audit, data: str | None, settings: Sequence[str]) -> Path:
    trusted = None if found.trusted is None else str(found.trusted.file.resolve())
    asked = found.threshold, trusted, data, sorted(settings)
    digest = hashlib.sha256(repr(asked).encode()).hexdigest()[:8]
    source = found.source
    if source.is_dir():
        return source / "audit" / f"prompts-{digest}.parquet"
    return source.with_name(f"{source.stem}-audit-{digest}.parquet")
