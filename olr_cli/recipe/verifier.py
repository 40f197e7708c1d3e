"""The errors of a verifier (R25)."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field, model_validator

from olr_cli.recipe.section import FUNCTION, Exact, Ratio, Section, Text, default

_CONDITIONS = ("error", "relative_error", "answer", "response", "function")


class VerifierRule(Section):
    """A systematic error of the verifier.

    The rule has one condition, such as a pattern in the answer. Its rates say how often the verifier errs on answers
    that meet this condition.
    """

    error: tuple[Exact, ...] | None = default(
        None, "Numbers that are off by exactly one of these distances, above or below."
    )
    relative_error: Annotated[Exact, Field(gt=0)] | None = default(
        None, "Numbers that are off by less than this part of the label."
    )
    answer: Text | None = default(None, "Answers in which this pattern (RE2) is found.")
    response: Text | None = default(None, "Responses in which this pattern (RE2) is found.")
    function: Annotated[Text, Field(pattern=FUNCTION)] | None = default(
        None,
        "`file.py:function` of yours, which gets prompt, response, answer and label and returns a bool.",
    )
    false_negative_rate: Ratio | None = default(
        None, "There, in place of the section's; null: the section's."
    )
    false_positive_rate: Ratio | None = default(
        None, "There, in place of the section's; null: the section's."
    )

    @property
    def conditions(self) -> list[str]:
        """The keys of the conditions that are set, such as ``answer``; a valid rule has exactly one."""
        return [name for name in _CONDITIONS if getattr(self, name) is not None]

    @model_validator(mode="after")
    def _one_condition(self) -> VerifierRule:
        if len(self.conditions) != 1:
            raise ValueError(
                f"a rule has one of {', '.join(_CONDITIONS)}, and here are {len(self.conditions)}"
            )
        if self.false_negative_rate is None and self.false_positive_rate is None:
            raise ValueError(
                "a rule needs false_negative_rate, false_positive_rate or both"
            )
        # The default refuses an empty list too, which would match no answer.
        if self.error is not None and min(self.error, default=-1) < 0:
            raise ValueError(
                "error is a list of distances, which count above and below; name some, without signs"
            )
        return self


class VerifierSection(Section):
    """A verifier that errs, in rewards alone (R25).

    It rewards some right answers with 0 and some wrong ones with 1. It errs at random with the two rates, or
    systematically by rules (`where`). R25 is a rule in docs/concepts.md.
    """

    false_negative_rate: Ratio = default(
        Decimal(0), "rho_1: how often an answer that matches the label gets reward 0."
    )
    false_positive_rate: Ratio = default(
        Decimal(0),
        "rho_0: how often an answer that does not match the label gets reward 1.",
    )
    draw: Literal["rollout", "answer"] = default(
        "rollout",
        "Drawn anew for every rollout, or once: the same answer to a prompt always errs.",
    )
    where: tuple[VerifierRule, ...] = default(
        (),
        "Systematic errors, as `[{error: [10, 100], false_positive_rate: 1}]`; the first rule that fits decides, then"
        " the rates above (docs/methods.md).",
    )

    @property
    def brief(self) -> str:
        """The verifier's errors as a short text, such as ``FN 0.3 FP 0.1 by answer``; empty if it makes none.

        FN and FP are the rates of false negatives and false positives. ``by answer`` means that the error is drawn once
        for all rollouts with the same answer to a prompt. Rules are named by their conditions, as in
        ``rules on error and answer``.
        """
        rates = {"FN": self.false_negative_rate, "FP": self.false_positive_rate}
        words = [f"{name} {rate}" for name, rate in rates.items() if rate]
        words += ["by answer"] if words and self.draw == "answer" else []
        kinds = dict.fromkeys(name for rule in self.where for name in rule.conditions)
        rules = (
            f"rule{'s' * (len(self.where) > 1)} on {' and '.join(kinds)}" if kinds else ""
        )
        return ", ".join(filter(None, (" ".join(words), rules)))
