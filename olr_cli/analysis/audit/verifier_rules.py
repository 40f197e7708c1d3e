"""The errors of a verifier as a recipe states them (R25): by rule where one fits what was rewarded, else by rate.

A rule is a condition on an answer and its label under which errors are more frequent than elsewhere. What is learned
from the rewards, such as the distances of numbers that are accepted, is learned from half of the prompts, and tested on
the other half.
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
"""Relative distances within which a verifier may accept a number, as a recipe has them."""
_MOST_VALUES, _MOST_RULES = 12, 3
"""Distances or last digits of one rule, and rules for one kind of errors, at most."""
_FEWEST, _FEWEST_LEARNED = 5, 3
"""Prompts that a rule needs with answers under its condition, and with others; and that a value of a list needs."""
_LEAST, _SURE = 0.2, 4.0
"""A rule's errors are more frequent by at least this share, and by this many standard errors."""

_BAD, _OF = pl.col("bad"), pl.col("of")
_RATE = _BAD.sum() / _OF.sum()


def measured_verifier(known: pl.DataFrame) -> VerifierSection:
    """Return the verifier that errs as these rewards do.

    Args:
        known: a row for each rollout: prompt_id, label, answer, ``is_rewarded``, and ``verdict``, taken to be true.
    """
    cases = known.group_by(
        "prompt_id", "label", "answer", "verdict", maintain_order=True
    ).agg(
        bad=(pl.col("is_rewarded") != pl.col("verdict")).sum().cast(pl.Float64),
        of=pl.len().cast(pl.Float64),
    )
    apart = [_apart(*pair) for pair in cases.select("answer", "label").iter_rows()]
    schema = {"distance": pl.String, "part": pl.Float64}
    cases = cases.hstack(pl.DataFrame(apart, schema, orient="row")).with_columns(
        learns=pl.col("prompt_id").rank("dense") % 2 == 0
    )
    accepted, accepting = _rules(cases.filter(~pl.col("verdict")), "false_positive_rate")
    rejected, rejecting = _rules(cases.filter("verdict"), "false_negative_rate")
    return VerifierSection(
        false_negative_rate=rounded(rejected.select(_RATE).item()),
        false_positive_rate=rounded(accepted.select(_RATE).item()),
        draw="answer" if _comes_back(pl.concat([accepted, rejected])) else "rollout",
        where=(*accepting, *rejecting),
    )


def rounded(rate: Any) -> Decimal:
    """A rate as a recipe has it; 0 where there was nothing to measure."""
    return Decimal(f"{rate or 0:.3f}") if rate == rate else Decimal(0)


def _comes_back(cases: pl.DataFrame) -> bool:
    """Whether errors come back with the same answer, rather than being drawn anew for every rollout.

    Of the pairs of rollouts with one answer whose first is misjudged, this counts those whose second is too. The bar is
    halfway between what independent errors would give and all of them.
    """
    drawn = _RATE.over("verdict") ** 2 * _OF * (_OF - 1)
    counts = (_BAD * (_BAD - 1), _BAD * (_OF - 1), drawn)
    again, pairs, independent = cases.select(
        expression.sum().alias(str(i)) for i, expression in enumerate(counts)
    ).row(0)
    return bool(2 * again > pairs + independent)


def _rules(cases: pl.DataFrame, name: str) -> tuple[pl.DataFrame, list[VerifierRule]]:
    """Return the rules for one kind of errors, the one that explains most first, and before them the cases left."""
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
    """Return what a rule may say, and where it holds; of two that explain as much the first is taken."""
    answer, distance = pl.col("answer"), pl.col("distance")
    last = answer.str.extract("([0-9])$")
    digits, distances = _frequent(cases, last), _frequent(cases, distance)
    conditions: list[tuple[dict[str, Any], pl.Expr]] = [
        *(({"relative_error": part}, pl.col("part") <= float(part)) for part in _NEAR),
        ({"error": distances}, distance.is_in(distances)),
        *(({"answer": form}, answer.str.contains(form)) for form in _FORMS),
        ({"answer": f"[{''.join(digits)}]$"}, last.is_in(digits)),
    ]
    return [(condition, holds.fill_null(False)) for condition, holds in conditions]


def _frequent(cases: pl.DataFrame, value: pl.Expr) -> list[str]:
    """Return the values with which errors are frequent, in the half of the prompts that rules are learned from."""
    rates = (
        cases.filter("learns")
        .group_by(value=value)
        .agg(_RATE.alias("rate"), _OF.sum(), prompts=pl.col("prompt_id").n_unique())
        .drop_nulls()
        .filter(pl.col("prompts") >= _FEWEST_LEARNED)
    )
    middle = (pl.col("rate").max() + pl.col("rate").min()) / 2
    often = rates.filter(pl.col("rate") > middle).sort(
        "of", "value", descending=[True, False]
    )
    return sorted(often["value"].head(_MOST_VALUES), key=float)


def _gain(cases: pl.DataFrame, holds: pl.Expr) -> float:
    """Return how much a rule explains, the sum of squares between its cases and the rest; 0 unless it surely fits."""
    rows = (
        cases.filter(~pl.col("learns"))
        .group_by("prompt_id", holds=holds)
        .agg(_BAD.sum(), _OF.sum())
        .with_columns(rate=_RATE.over("holds"), size=_OF.sum().over("holds"))
    )
    sides = rows.group_by("holds").agg(pl.len(), pl.col("rate", "size").first())
    if len(sides) < 2 or sides["len"].min() < _FEWEST:  # type: ignore[operator]  # whole numbers
        return 0.0
    (rest, less), (inside, more) = sides.sort("holds").select("size", "rate").iter_rows()
    # A prompt's rollouts are no independent draws, so its residuals on both sides count as one.
    sign = pl.col("holds").cast(pl.Int8) * 2 - 1
    residual = sign * (_BAD - pl.col("rate") * _OF) / pl.col("size")
    residuals = rows.group_by("prompt_id").agg(residual.sum().alias("sum"))
    error = residuals.select((pl.col("sum") ** 2).sum().sqrt()).item()
    is_sure = more - less > max(_LEAST, _SURE * error)
    return float((more - less) ** 2 * inside * rest / (inside + rest)) if is_sure else 0.0


def _apart(answer: str, label: str) -> tuple[str | None, float | None]:
    """How far a number is from its label: the distance as a recipe has it, and the least of `_NEAR` that exceeds it.

    Both are None for equal numbers and for texts; the distance also where six digits do not give it exactly.
    """
    claimed, due = exact_number(answer), exact_number(label)
    if claimed is None or due is None or claimed == due:
        return None, None
    distance = abs(claimed - due)
    part = next((near for near in _NEAR if distance < Fraction(near) * abs(due)), None)
    text = f"{float(distance):.6g}" if distance < 1_000_000 else "0"
    is_exact = Fraction(text) == distance
    return text if is_exact else None, None if part is None else float(part)
