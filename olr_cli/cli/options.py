"""Options that several subcommands have, and what they take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a recipe key, e.g. method.slope_threshold=0.1; may be repeated.",
    ),
]
"""Settings laid over a recipe."""


def require_new(out: Path | None, what: str, *, as_json: bool) -> None:
    """Refuse a file that could not be written as asked.

    Args:
        out: what ``--out`` names.
        what: it is to hold.
        as_json: everything goes to standard output.

    Raises:
        UserError: it is there already, or nothing would go to it.
    """
    from olr_cli.errors import UserError, taken

    if out is not None and as_json:
        raise UserError(f"--out is for {what}, and --json writes to standard output; choose one of them")
    if out is not None and out.exists():
        raise taken(out, "--out")


def shape_of(format_: str, *, as_json: bool) -> str:
    """The format of the output: that of ``--format``, or json.

    Raises:
        UserError: ``--json`` and ``--format`` contradict each other.
    """
    from olr_cli.errors import UserError

    if as_json and format_ not in ("terminal", "json"):
        raise UserError(f"--json and --format {format_} contradict each other; choose one of them")
    return "json" if as_json else format_


def require_known(option: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a value that an option does not know.

    Raises:
        UserError: it is none of them; the likely one is suggested.
    """
    from olr_cli.errors import UserError, did_you_mean

    if value not in known:
        raise UserError(f"{option} {value}{did_you_mean(value, known)}; known: {', '.join(known)}")
