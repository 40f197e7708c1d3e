"""Options that several subcommands have."""

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
