"""A label rule of your own: a function from `Visit` to `Label` that a recipe names (docs/methods.md)."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import Any

from olr_cli.errors import UserError, at, first_line
from olr_cli.recipe.methods import MethodSection, OwnMethod
from olr_cli.supervision.visit import Label, Visit, keep, no_label, replace_by_majority
from olr_cli.user_code import load_function, running, source_of


class OwnRule:
    """The rule that a recipe names, with the recipe's other keys as keyword arguments.

    The function is loaded before its first visit, not before: whoever only names a method in a table runs no code.
    """

    def __init__(self, section: OwnMethod) -> None:
        self._section, self._arguments = section, dict(section.model_extra or {})
        self._function: Callable[..., Any] | None = None

    def load(self) -> Callable[..., Any]:
        """The function, which takes a visit and the arguments."""
        if self._function is None:
            name, arguments = self._section.name, self._arguments
            with at("method.name"):
                function = load_function(name)
            try:
                inspect.signature(function).bind(None, **arguments)
            except TypeError as error:
                raise UserError(
                    f"{name} cannot be called with a visit and the recipe's keys {', '.join(arguments) or '(none)'}:"
                    f" {first_line(error)}",
                    "give it what it takes, and no more",
                    "method.name",
                ) from None
            self._function = function
        return self._function

    def __call__(self, visit: Visit) -> Label:
        """The label of a visit; the first T visits keep theirs."""
        if visit.number <= self._section.warmup_epochs:
            return keep(visit)
        function = self._function or self.load()
        with running(f"{self._place(visit)} the rule"):
            label = function(visit, **self._arguments)
        # Nothing else: a label out of nowhere could not be replayed.
        choices = [keep(visit), no_label(visit)]
        if visit.majority is not None:
            choices.append(replace_by_majority(visit))
        if label not in choices:
            raise UserError(
                f"{self._place(visit)} the rule returned {label!r:.80}",
                "it must return keep(visit), no_label(visit) or,"
                " where there is a majority, replace_by_majority(visit)",
            )
        return choices[choices.index(label)]

    def _place(self, visit: Visit) -> str:
        return f"{self._section.name}, prompt {visit.prompt_id}, visit {visit.number}:"


def rule_facts(method: MethodSection) -> dict[str, dict[str, Any]]:
    """Return a manifest's facts on a rule of your own: its file's text, a digest, and the defaults of its keys.

    The defaults are those that count in this run, so that runs can be compared over a key that only some of them set.
    There are no facts on a built-in method.
    """
    if not isinstance(method, OwnMethod):
        return {}
    source = source_of(method.name)
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    _, *keys = inspect.signature(load_function(method.name)).parameters.values()
    defaults = {
        key.name: key.default
        for key in keys
        if isinstance(key.default, str | int | float | None)
    }
    return {
        "rule": {
            "function": method.name,
            "digest": digest,
            "source": source,
            "defaults": defaults,
        }
    }
