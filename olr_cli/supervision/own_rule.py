"""A label rule of your own: a function from `Visit` to `Label` that a recipe names (docs/methods.md)."""

from __future__ import annotations

import inspect

from olr_cli.errors import UserError, at, first_line
from olr_cli.recipe.schema import OwnMethod
from olr_cli.supervision.visit import Label, Rule, Visit, keep, no_label, replace_by_majority
from olr_cli.user_code import load_function, raised_at


def own_rule(section: OwnMethod) -> Rule:
    """The rule that a recipe names, with its keyword arguments; the first T visits keep the label."""
    arguments, T = section.arguments, section.warmup_epochs
    with at("method.name"):
        function = load_function(section.name)
    try:
        inspect.signature(function).bind(None, **arguments)
    except TypeError as error:
        raise UserError(
            f"{section.name} cannot be called with a visit and the keys {', '.join(arguments) or 'none'}"
            f" ({first_line(error)}); give it what it takes under method, and nothing else",
            "method.name",
        ) from None

    def rule(visit: Visit) -> Label:
        if visit.number <= T:
            return keep(visit)
        place = f"{section.name}: prompt {visit.prompt_id}, visit {visit.number}"
        try:
            label = function(visit, **arguments)
        except Exception as error:  # of any kind: it is the user's code
            raise UserError(f"{place}: the rule raised {raised_at(error)}; mend it") from error
        for allowed in (keep, no_label) if visit.majority is None else (keep, no_label, replace_by_majority):
            if label == allowed(visit):
                return allowed(visit)
        raise UserError(
            f"{place}: the rule returned {label!r:.80}, and must return keep(visit), replace_by_majority(visit) or"
            " no_label(visit)"
        )

    return rule
