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
    """A label rule written by a user: a function that the recipe names, called at every visit after the warm-up.

    Keys of the recipe's method section that olr does not know become keyword arguments of the function. The function is
    loaded by `load`, or else when it is first called.
    """

    def __init__(self, section: OwnMethod) -> None:
        self._section, self._arguments = section, dict(section.model_extra or {})
        # Not loaded here: commands that only print a method's name must not run a user's code.
        self._function: Callable[..., Any] | None = None

    def load(self) -> Callable[..., Any]:
        """Return the user's function; the first call loads it and checks its arguments.

        Raises:
            UserError: the function cannot be loaded, or does not accept a visit and the recipe's keys.
        """
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
        """Return the label that the user's function gives a visit.

        During the warm-up epochs, the label stays as it is and the function is not called.

        Raises:
            UserError: the function raises, or its result is not one of `keep`, `no_label` or `replace_by_majority`.
        """
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
        """Return the beginning of an error message: the names of the rule, the prompt and the visit."""
        return f"{self._section.name}, prompt {visit.prompt_id}, visit {visit.number}:"


def rule_facts(method: MethodSection) -> dict[str, dict[str, Any]]:
    """Return what a run's manifest records of a user's label rule; empty for a built-in method.

    The only key is ``rule``. Its value holds the function's name, the text and a digest of its file, and the default
    values of its arguments.
    """
    if not isinstance(method, OwnMethod):
        return {}
    source = source_of(method.name)
    # Digest the whole file, because the rule may call its other functions.
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    _, *keys = inspect.signature(load_function(method.name)).parameters.values()
    # With the defaults, runs can be compared even if only some of their recipes set an argument.
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
