"""Commands and groups for typer, with shorter help texts and an option whose value can be left out."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from typer.core import TyperCommand, TyperGroup


def _without_types(parameters: list[Any]) -> list[Any]:
    """Hide the type of parameters, such as ``<bool>`` or ``<list[Path]>``, in the help of a command.

    The parameters are changed in place, and the same list is returned. An option that has a metavar is not changed.
    """
    for parameter in parameters:
        if parameter.metavar is None or parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None
    return parameters


class Command(TyperCommand):
    """A command of typer whose help leaves out types, and whose options may have an optional value.

    An option with the metavar `[FILE.yaml]` takes the next word as its value only if that word ends in .yaml or .yml.
    Without a value, it gets `-`.
    """

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        # typer has no options with an optional value, so insert `-` before the words are parsed. Only a word that ends
        # in .yaml or .yml is the value; any other word after `--as-recipe` is an argument.
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
    """A command with subcommands, whose help leaves out types."""

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))
