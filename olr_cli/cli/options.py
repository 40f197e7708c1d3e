"""Options that several subcommands have, and what they take."""

from __future__ import annotations

from typing import Annotated

import typer

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a key, e.g. method.slope_threshold=0.1; may be repeated."
    ),
]
"""Settings laid over a recipe."""


def require_known(option: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a value that an option does not know.

    Raises:
        UserError: it is none of them; the likely one is suggested.
    """
    from olr_cli.errors import UserError, did_you_mean

    if value not in known:
        raise UserError(f"{option} {value}{did_you_mean(value, known)}; known: {', '.join(known)}")
