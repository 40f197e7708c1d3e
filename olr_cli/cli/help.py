"""What typer's help of a command shows."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


def _without_types(parameters: list[Any]) -> list[Any]:
    """Types only where they say something: `FILE`, not ``<bool>`` and ``<list[Path]>``."""
    for parameter in parameters:
        if parameter.metavar is None or parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None
    return parameters


class Command(TyperCommand):
    """A command."""

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))


class Group(TyperGroup):
    """A command of commands."""

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))
