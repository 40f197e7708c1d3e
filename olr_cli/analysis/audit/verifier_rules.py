"""The errors of a verifier as a recipe says them (R25): by rule where one fits what was rewarded, else by rate.

A rule is a condition on an answer and its label under which errors are more frequent than elsewhere. What is learned of
the rewards, such as the distances of numbers that are accepted, is learned of half of the prompts, and whether a rule
fits is asked of the other half.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from olr_cli.analysis.audit.annotators import Bools, Floats
from olr_cli.answers import exact_number
from olr_cli.recipe.verifier import VerifierRule, VerifierSection
from olr_cli.seeding import key

_FORMS = (
    r"\.[0-9]",
    "/|frac",
    "^-",
    ",",
    "=",
    r"[(\[{|]",
    r"\\",
    "[%$\N{DEGREE SIGN}]",
    "[A-Za-z]{2}",
    r"\\text|[A-Za-z]{3}",
)
"""Patterns of answers that a verifier may read otherwise than others: decimals, fractions, signs, units, words."""
_NEAR = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2)
"""Relative distances within which a number may be accepted."""
_MOST_DISTANCES, _MOST_RULES = 12, 3
_FEWEST = 5
"""Prompts that are needed with answers of a kind, and with others, to say something of the kind."""
_LEAST, _SURE = 0.2, 4.0
"""By how much errors must be more frequent where a rule holds, and by how many standard errors."""


def measured_verifier(known: pl.DataFrame) -> VerifierSection:
    """Return the verifier that errs as these rewards do.

    Args:
        known: a row each rollout: prompt_id, label, answer, ``is_rewarded``, and ``verdict``, taken to be true.
    """
    cases = known.group_by(
        "prompt_id", "label", "answer", "verdict", maintain_order=True
    ).agg(
        bad=(pl.col("is_rewarded") != pl.col("verdict")).sum().cast(pl.Float64),
        of=pl.len().cast(pl.Float64),
    )
    missed, accepted = (
        _Errors(cases.filter(which)) for which in ("verdict", ~pl.col("verdict"))
    )
    rules = [
        VerifierRule.model_validate({**condition, name: rounded(rate)})
        for name, errors in (
            ("false_positive_rate", accepted),
            ("false_negative_rate", missed),
        )
        for condition, rate in errors.rules()
    ]
    again, pairs, drawn = missed.again() + accepted.again()
    # Halfway between errors that are drawn anew for every rollout and those that always come back.
    comes_back = pairs > 0 and 2 * again > pairs + drawn
    return VerifierSection(
        false_negative_rate=rounded(missed.rate),
        false_positive_rate=rounded(accepted.rate),
        draw="answer" if comes_back else "rollout",
        where=tuple(rules),
    )


def rounded(rate: float | str | None) -> Decimal:
    """A rate as a recipe has it; one that nobody measured is 0."""
    return Decimal(f"{rate or 0.0:.3f}")


class _Errors:
    """The errors on right answers, or on wrong ones, and the rules that were found in them.

    Attributes:
        bad, of: how many rollouts of each case were misjudged, of how many; (N,).
        left: the cases in which no rule holds.
    """

    def __init__(self, cases: pl.DataFrame) -> None:
        self.bad, self.of = cases["bad"].to_numpy(), cases["of"].to_numpy()
        self.left: Bools = np.ones(len(cases), bool)
        self._answers, self._distances = cases["answer"], _distances(cases)
        self._accepts = not cases["verdict"].any()
        self._prompts = cases["prompt_id"].rank("dense").to_numpy() - 1
        halves = np.random.default_rng(key("rules of a verifier")).random(len(cases)) < 0.5
        self._learns: Bools = halves[self._prompts]

    @property
    def rate(self) -> float:
        """The share of errors where no rule holds."""
        return self._rate(self.left)

    def _rate(self, which: Bools) -> float:
        return float(self.bad[which].sum() / max(self.of[which].sum(), 1))

    def again(self) -> Floats:
        """Pairs of rollouts with one answer, of which no rule holds and the first is misjudged: (3,).

        Those of which the second is misjudged too, all, and those of the first kind if each error were drawn anew.
        """
        bad, of, rate = self.bad[self.left], self.of[self.left], self.rate
        return np.array(
            [
                (bad * (bad - 1)).sum(),
                (bad * (of - 1)).sum(),
                rate**2 * (of * (of - 1)).sum(),
            ]
        )

    def rules(self) -> Iterator[tuple[dict[str, Any], float]]:
        """Conditions under which errors are more frequent, the one that explains most first, and their share there."""
        for _ in range(_MOST_RULES):
            found = [
                (self._gain(holds), condition, holds)
                for condition, holds in self._conditions()
            ]
            gain, condition, holds = max(found, key=lambda one: one[0])
            if not gain:
                return
            yield condition, self._rate(holds & self.left)
            self.left &= ~holds

    def _conditions(self) -> Iterator[tuple[dict[str, Any], Bools]]:
        for pattern in _FORMS:
            yield {"answer": pattern}, self._answers.str.contains(pattern).to_numpy()
        last = self._answers.str.extract("([0-9])$").fill_null("")
        if digits := self._frequent(last):
            yield {"answer": f"[{''.join(digits)}]$"}, last.is_in(digits).to_numpy()
        if not self._accepts:
            return  # right answers are at no distance
        for part in _NEAR:
            is_near = (self._distances["part"] < part).fill_null(False)
            yield {"relative_error": part}, is_near.to_numpy()
        distance = self._distances["distance"]
        if distances := self._frequent(distance):
            yield (
                {"error": distances},
                distance.is_in(distances).fill_null(False).to_numpy(),
            )

    def _frequent(self, values: pl.Series) -> list[str]:
        """The values with which errors are frequent, in the half of the prompts that rules are learned of."""
        learned = pl.DataFrame(
            {"value": values, "prompt": self._prompts, "bad": self.bad, "of": self.of}
        ).filter(pl.Series(self._learns & self.left))
        rates = (
            learned.drop_nulls()
            .group_by("value")
            .agg(
                pl.col("bad").sum() / pl.col("of").sum(),
                pl.col("of").sum(),
                pl.col("prompt").n_unique(),
            )
        )
        rates = rates.filter(pl.col("prompt") >= _FEWEST, pl.col("value") != "")
        middle = (pl.col("bad").max() + pl.col("bad").min()) / 2
        often = rates.filter(pl.col("bad") > middle).sort(
            "of", "value", descending=[True, False]
        )
        return sorted(often["value"].head(_MOST_DISTANCES), key=float)

    def _gain(self, holds: Bools) -> float:
        """How much a rule explains: the squares between its part and the rest; 0 unless it surely fits."""
        asked = self.left & ~self._learns
        inside, outside = asked & holds, asked & ~holds
        if min(len(np.unique(self._prompts[part])) for part in (inside, outside)) < _FEWEST:
            return 0.0
        residuals, sizes = np.zeros(len(holds)), list[float]()
        for part in (inside, outside):
            sizes.append(self.of[part].sum())
            sign = 1 if part is inside else -1
            residuals[part] = (
                sign * (self.bad - self._rate(part) * self.of)[part] / sizes[-1]
            )
        error = float(np.sqrt((np.bincount(self._prompts, residuals) ** 2).sum()))
        more = self._rate(inside) - self._rate(outside)
        is_sure = more > max(_LEAST, _SURE * error)
        return more**2 * sizes[0] * sizes[1] / sum(sizes) if is_sure else 0.0


def _distances(cases: pl.DataFrame) -> pl.DataFrame:
    """Return of each answer the ``distance`` to its label, as a recipe writes it, and the ``part`` of the label it is.

    Both are null where one is no number, the distance also where it has more than six decimals.
    """
    rows: list[tuple[str | None, float | None]] = []
    for answer, label in cases.select("answer", "label").iter_rows():
        claimed, due = exact_number(answer), exact_number(label)
        row: tuple[str | None, float | None] = (None, None)
        if claimed is not None and due is not None:
            with suppress(OverflowError):  # of a number that no double holds
                distance = abs(claimed - due)
                text = f"{float(distance):.6f}".rstrip("0").rstrip(".")
                part = float(distance / abs(due)) if due else None
                is_exact = distance < 1_000_000 and Fraction(text) == distance
                row = (text if is_exact else None, part)
        rows.append(row)
    schema = {"distance": pl.String, "part": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")
