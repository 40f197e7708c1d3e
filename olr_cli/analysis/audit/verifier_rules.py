"""The errors of a verifier in the form of a recipe (R25): by rule if one fits the rewards, else by rate.

A rule is a condition on an answer and its label under which errors are more frequent than elsewhere. Rules with values
from the rewards, such as the distances of accepted numbers, learn them from half of the prompts and are tested on the
other half.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from operator import itemgetter
from typing import Any

import polars as pl

from olr_cli.answers import exact_number
from olr_cli.recipe.verifier import VerifierRule, VerifierSection

_FORMS = (
    r"\.[0-9]",
    "/|frac",
    "^-",
    ",",
    "=",
    r"[(\[{|]",
    r"\\",
    "[%$\N{DEGREE SIGN}]",
    r"(^|[^\\A-Za-z])[A-Za-z]{2}",
)
"""Patterns of answers that verifiers misread: decimals, fractions, signs, lists, LaTeX, units, words."""
_NEAR = ("0.001", "0.01", "0.02", "0.05", "0.1", "0.2")
"""Relative distances within which a verifier may accept a number, in the notation of a recipe."""

_MOST_VALUES, _MOST_RULES = 12, 3
"""Largest number of distances or last digits of one rule, and of rules for one kind of errors."""

_FEWEST, _FEWEST_LEARNED = 5, 3
"""Fewest prompts that a rule needs on each side of its condition, and that a value of a list needs."""

_LEAST, _SURE = 0.2, 4.0
"""Smallest difference between the error rates of both sides, as a share and in standard errors."""

_BAD, _OF = pl.col("bad"), pl.col("of")
_RATE = _BAD.sum() / _OF.sum()


def measured_verifier(known: pl.DataFrame) -> VerifierSection:
    """Return the `verifier` section of a recipe, for a verifier that errs as often as these rewards.

    The section has rules for answers that are often misjudged, and rates for all other answers.

    Args:
        known: one row per rollout, with the columns prompt_id, label, answer, ``is_rewarded`` and ``verdict``. The
            verdict counts as the truth.
    """
    cases = known.group_by(
        "prompt_id", "label", "answer", "verdict", maintain_order=True
    ).agg(
        bad=(pl.col("is_rewarded") != pl.col("verdict")).sum().cast(pl.Float64),
        of=pl.len().cast(pl.Float64),
    )
    distances = [_apart(*pair) for pair in cases.select("answer", "label").iter_rows()]
    schema = {"distance": pl.String, "part": pl.Float64}
    cases = cases.hstack(pl.DataFrame(distances, schema, orient="row")).with_columns(
        # Split by prompt, since rollouts of one prompt share their errors; by rank, so that the split needs no seed.
        learns=pl.col("prompt_id").rank("dense") % 2 == 0
    )
    wrong_cases, wrong_rules = _rules(
        cases.filter(~pl.col("verdict")), "false_positive_rate"
    )
    right_cases, right_rules = _rules(cases.filter("verdict"), "false_negative_rate")
    return VerifierSection(
        false_negative_rate=rounded(right_cases.select(_RATE).item()),
        false_positive_rate=rounded(wrong_cases.select(_RATE).item()),
        draw="answer"
        if _errors_repeat(pl.concat([wrong_cases, right_cases]))
        else "rollout",
        where=(*wrong_rules, *right_rules),
    )


def rounded(rate: Any) -> Decimal:
    """Return a rate as a recipe writes it, with three decimals; 0 if there was nothing to measure (None or NaN)."""
    # 0 / 0 in a frame is NaN, the only value that differs from itself.
    return Decimal(f"{rate or 0:.3f}") if rate == rate else Decimal(0)


def _errors_repeat(cases: pl.DataFrame) -> bool:
    """Return whether an answer that is misjudged once is misjudged in every rollout.

    The alternative is that each rollout is misjudged independently. To decide between these two hypotheses, this counts
    the pairs of rollouts with the same answer in which both are misjudged. The hypothesis whose predicted count is
    nearer wins.

    In `cases`, a row is an answer to a prompt. The column ``of`` is the number of rollouts with this answer, and
    ``bad`` is the number of these that are misjudged.
    """
    # Independent errors hit both rollouts of a pair with the square of their rate, which differs between right and
    # wrong answers.
    drawn = _RATE.over("verdict") ** 2 * _OF * (_OF - 1)
    counts = (_BAD * (_BAD - 1), _BAD * (_OF - 1), drawn)
    repeated, pairs, independent = cases.select(
        expression.sum().alias(str(i)) for i, expression in enumerate(counts)
    ).row(0)
    return bool(2 * repeated > pairs + independent)


def _rules(cases: pl.DataFrame, name: str) -> tuple[pl.DataFrame, list[VerifierRule]]:
    """Find at most `_MOST_RULES` rules for one kind of errors, those that explain most errors first.

    Args:
        cases: a row per answer to a prompt; its column ``bad`` says how many of its ``of`` rollouts are misjudged.
        name: key of the rule's rate, ``false_positive_rate`` or ``false_negative_rate``.

    Returns:
        The cases that no rule covers, and the rules.
    """
    rules = list[VerifierRule]()
    while len(rules) < _MOST_RULES:
        fits = [
            (_gain(cases, holds), condition, holds)
            for condition, holds in _conditions(cases)
        ]
        gain, condition, holds = max(fits, key=itemgetter(0))
        if not gain:
            break
        rate = rounded(cases.filter(holds).select(_RATE).item())
        rules.append(VerifierRule.model_validate({**condition, name: rate}))
        cases = cases.filter(~holds)
    return cases, rules


def _conditions(cases: pl.DataFrame) -> list[tuple[dict[str, Any], pl.Expr]]:
    """Return the conditions under which a verifier may err, each in two forms.

    The first form is a dict, with the keys of `VerifierRule` that state the condition in a recipe. The second is an
    expression that is true for the cases that the condition covers. Earlier conditions take precedence if several
    explain equally many errors. `cases` has a row per answer to a prompt; it says at which distances from the label and
    at which last digits errors are frequent.
    """
    answer, distance = pl.col("answer"), pl.col("distance")
    last = answer.str.extract("([0-9])$")
    digits, distances = _frequent(cases, last), _frequent(cases, distance)
    conditions: list[tuple[dict[str, Any], pl.Expr]] = [
        *(({"relative_error": part}, pl.col("part") <= float(part)) for part in _NEAR),
        ({"error": distances}, distance.is_in(distances)),
        *(({"answer": form}, answer.str.contains(form)) for form in _FORMS),
        ({"answer": f"[{''.join(digits)}]$"}, last.is_in(digits)),
    ]
    # A text has no distance and no last digit; the condition is null there, and does not hold.
    return [(condition, holds.fill_null(False)) for condition, holds in conditions]


def _frequent(cases: pl.DataFrame, value: pl.Expr) -> list[str]:
    """Return the values of an expression at which errors are frequent: at most `_MOST_VALUES`, in ascending order.

    Each value has an error rate, the share of misjudged rollouts. Errors are frequent if this rate lies above the
    middle between the lowest and the highest rate of all values. Values with few prompts are left out.

    Args:
        cases: a row per answer to a prompt. Only rows whose column ``learns`` is true count: rules are learned from
            half of the prompts.
        value: the expression, such as the last digit of an answer.
    """
    rates = (
        cases.filter("learns")
        .group_by(value=value)
        .agg(_RATE.alias("rate"), _OF.sum(), prompts=pl.col("prompt_id").n_unique())
        .drop_nulls()
        .filter(pl.col("prompts") >= _FEWEST_LEARNED)
    )
    middle = (pl.col("rate").max() + pl.col("rate").min()) / 2
    frequent = rates.filter(pl.col("rate") > middle).sort(
        "of", "value", descending=[True, False]
    )
    return sorted(frequent["value"].head(_MOST_VALUES), key=float)


def _gain(cases: pl.DataFrame, holds: pl.Expr) -> float:
    """Return how much of the variation of the error rate a rule explains, or 0 if the rule is not clearly supported.

    The measure is the sum of squares between two groups: the cases that meet the condition `holds`, and all others. A
    rule is clearly supported if both groups have at least `_FEWEST` prompts, and the first has the higher error rate.
    The rates must differ by more than `_LEAST`, and by more than `_SURE` standard errors.

    Rules are learned from half of the prompts. This tests them on the other half (``learns`` is false).
    """
    rows = (
        cases.filter(~pl.col("learns"))
        .group_by("prompt_id", holds=holds)
        .agg(_BAD.sum(), _OF.sum())
        .with_columns(rate=_RATE.over("holds"), size=_OF.sum().over("holds"))
    )
    sides = rows.group_by("holds").agg(pl.len(), pl.col("rate", "size").first())
    if len(sides) < 2 or sides["len"].min() < _FEWEST:  # type: ignore[operator]  # whole numbers
        return 0.0
    (rest, rest_rate), (inside, inside_rate) = (
        sides.sort("holds").select("size", "rate").iter_rows()
    )
    # A prompt's rollouts are not independent draws. Add its residuals on both sides before squaring, or the standard
    # error would be too small.
    sign = pl.col("holds").cast(pl.Int8) * 2 - 1
    residual = sign * (_BAD - pl.col("rate") * _OF) / pl.col("size")
    residuals = rows.group_by("prompt_id").agg(residual.sum().alias("sum"))
    error = residuals.select((pl.col("sum") ** 2).sum().sqrt()).item()
    is_sure = inside_rate - rest_rate > max(_LEAST, _SURE * error)
    return (
        float((inside_rate - rest_rate) ** 2 * inside * rest / (inside + rest))
        if is_sure
        else 0.0
    )


def _apart(answer: str, label: str) -> tuple[str | None, float | None]:
    """Return how far apart the numbers in two texts are: their distance, and the distance as a share of the label.

    If the numbers are equal, or a text is no number, both results are None.

    Returns:
        The distance as text with up to six digits; None if these do not give it exactly.
        The share, rounded up to a value of `_NEAR`; None if it is larger than all of them.
    """
    answer_number, label_number = exact_number(answer), exact_number(label)
    if answer_number is None or label_number is None or answer_number == label_number:
        return None, None
    distance = abs(answer_number - label_number)
    part = next(
        (near for near in _NEAR if distance < Fraction(near) * abs(label_number)), None
    )
    text = f"{float(distance):.6g}" if distance < 1_000_000 else "0"
    is_exact = Fraction(text) == distance
    return text if is_exact else None, None if part is None else float(part)
