"""Label rules written by users: functions from `Visit` to `Label` that a recipe names (docs/methods.md)."""

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
    """A user's label rule; the other keys of the recipe's method section become its keyword arguments.

    The function is loaded by `load` or at its first visit, not when the rule is made. Commands that only print a
    method's name must not run a user's code.
    """

    def __init__(self, section: OwnMethod) -> None:
        self._section, self._arguments = section, dict(section.model_extra or {})
        self._function: Callable[..., Any] | None = None

    def load(self) -> Callable[..., Any]:
        """Load the function and check that it accepts a visit and the arguments."""
        if self._function is None:
            name, arguments = self._section.name, self._arguments
            with at("method.name"):
                function = load_function(name)
            # Check the arguments now: the warm-up does not call the function, so a wrong key would fail hours later.
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
        """Return the label of a visit; during the T warm-up visits, the label as it is."""
        if visit.number <= self._section.warmup_epochs:
            return keep(visit)
        function = self._function or self.load()
        with running(f"{self._where(visit)} the rule"):
            label = function(visit, **self._arguments)
        # Allow nothing else: a replay could not reproduce a label from any other source.
        choices = [keep(visit), no_label(visit)]
        if visit.majority is not None:
            choices.append(replace_by_majority(visit))
        if label not in choices:
            raise UserError(
                f"{self._where(visit)} the rule returned {label!r:.80}",
                "it must return keep(visit), no_label(visit) or,"
                " where there is a majority, replace_by_majority(visit)",
            )
        # The rule may return a plain tuple that equals a `Label`: return the `Label`.
        return choices[choices.index(label)]

    def _where(self, visit: Visit) -> str:
        """Name the rule, the prompt and the visit, as an error begins."""
        return f"{self._section.name}, prompt {visit.prompt_id}, visit {visit.number}:"


def rule_facts(method: MethodSection) -> dict[str, dict[str, Any]]:
    """Return what a run's manifest records of a user's rule: its file's text, a digest, and the defaults of its keys.

    The defaults are those of this run, so that runs can be compared by a key that only some of them set. Built-in
    methods have no facts.
    """
    if not isinstance(method, OwnMethod):
        return {}
    source = source_of(method.name)
    # Digest the whole file, because the rule may call its other functions.
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
