"""What typer's help of a command shows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from typer.core import TyperCommand, TyperGroup


def _without_types(parameters: list[Any]) -> list[Any]:
    """Types only where they say something: `FILE`, not ``<bool>`` and ``<list[Path]>``."""
    for parameter in parameters:
        if parameter.metavar is None or parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None
    return parameters


class Command(TyperCommand):
    """A command; an option with the metavar `[FILE.yaml]` needs no value, and then has the value `-`."""

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        # Typer has no options whose value may be left out.
        optional = {
            name
            for option in self.params
            if option.metavar == "[FILE.yaml]"
            for name in option.opts
        }
        words = list[str]()
        for word, following in pairwise([*args, ""]):
            words.append(word)
            if word in optional and not following.endswith((".yaml", ".yml")):
                words.append("-")
        return super().parse_args(ctx, words)


class Group(TyperGroup):
    """A command of commands."""

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))
