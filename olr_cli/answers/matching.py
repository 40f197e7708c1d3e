r"""Decide whether an answer is right, given a gold or a label, from the pair alone (R7).

Two answers of one class match, but for percent signs. Beyond that, a fair grader of the gold accepts the gold's unit or
none, with one percent sign the same numeral, the digits of a gold with a base, the letter of a choice with its text,
the last side of ``m+n = 25``, and what math-verify proves to be the same statement. A value under another name, as
``f(3) = 5`` for ``f(2) = 5``, is undecided.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from olr_cli.answers.classes import Form, Key, approximate
from olr_cli.answers.compare import compare, is_left_to_algebra, is_near, may_match
from olr_cli.answers.guesses import read_surely, with_points
from olr_cli.answers.notation import LONGEST_READ, tidy
from olr_cli.answers.other_readings import ADDED_CONSTANT, LETTER, VALUE, other_readings
from olr_cli.answers.reading import (
    CONTRADICTION,
    TOO_MANY_DIGITS,
    Leaf,
    NeedsAlgebra,
    no_algebra,
    read,
    read_tidied,
)
from olr_cli.answers.units import word

_ROUNDING = Fraction(1, 100)
"""Relative difference of numbers that a lenient grader may call equal."""

_SIGN = re.compile(r"\\*%")
PLAIN_NUMBER = "^(?:0|[1-9][0-9]{0,14})$"
"""A pattern: two answers of this form match if their texts are equal, and for no other reason (R7)."""

Proof = Callable[[str, str], bool | None]
"""Whether math-verify's `verify`, gold first, holds for two tidied texts; None if it can't tell."""


def no_proof(gold: str, answer: str) -> None:
    """The proof of a process without computer algebra."""


def decide(
    kind: str,
    text: str,
    answer: str = "",
    tolerance: str = "",
    in_percent: str = "",
    *,
    leaf: Leaf = no_algebra,
    proof: Proof = no_proof,
    math_verify_proof: Proof = no_proof,
) -> Key | bool | str | None:
    """Do one task of the judge.

    That is the key of an answer's class (``"key", answer``), whether an answer is right (``"matches", gold, answer``,
    then the tolerance, then whether the gold is `in_percent`), whether some grader may call it right (``"may match",
    gold, answer``), or why there is no verdict (``"reason", gold, answer``).

    Raises:
        NeedsAlgebra: `leaf` has none, and the texts can't be told apart without it.
    """
    match kind:
        case "key":
            return read(text, leaf).key
        case "reason":
            return reason(text, answer, leaf)
        case "may match" if proof is no_proof:
            raise NeedsAlgebra
        case "may match":
            # Lenient on purpose: frozen noise (R4) must not write a label into the file that some grader calls right.
            ways = ((text, answer), (answer, text))
            return any(
                matches(*way, leaf, proof, _ROUNDING) or math_verify_proof(*way)
                for way in ways
            )
    relative = Fraction(tolerance or 0)
    verdict = matches(text, answer, leaf, proof, relative)
    said = tidy(answer) if in_percent and "%" not in text else ""
    if verdict or "%" not in said:
        return verdict
    # 30 is met by `30\%`, and (10, 40) by `(10\%, 40\%)`.
    return matches(text, _SIGN.sub("", said), leaf, proof, relative) or verdict


class _Side(NamedTuple):
    """A gold or an answer: as it is given, tidied, and what it says."""

    given: str
    text: str
    form: Form


def matches(
    gold: str,
    answer: str,
    leaf: Leaf = no_algebra,
    proof: Proof = no_proof,
    tolerance: Fraction = Fraction(0),
) -> bool | None:
    """Whether `answer` says what `gold` asks for; None if neither that nor the opposite is proved.

    With a relative tolerance, numbers of which one is no integer may differ by this part of the gold.
    """
    text, other = tidy(gold), tidy(answer)
    if text == other:
        return True
    ours = _Side(gold, text, read_surely(gold, text, leaf))
    theirs = _Side(answer, other, read_surely(answer, other, leaf))
    if CONTRADICTION in ours.form.guesses | theirs.form.guesses:
        return None
    verdict = compare(ours.form, theirs.form)
    if verdict is None:
        if _are_joined_otherwise(text, other):
            return None  # math-verify and intervals take `and` for `or`
        verdict = _proved(ours, theirs, proof)
    if verdict:
        is_doubtful = _has_other_case(ours, theirs) or _have_other_products(gold, answer)
        return None if is_doubtful else True
    if _match_otherwise(ours, theirs, leaf) or (
        tolerance > 0 and is_near(ours.form, theirs.form, tolerance)
    ):
        return True
    # None is kept apart from False: R3 draws noisy labels from answers that are proved wrong (False).
    return None if verdict is None or may_match(ours.form, theirs.form) else False


def _proved(ours: _Side, theirs: _Side, proof: Proof) -> bool | None:
    """Return what math-verify makes of two sides, if one of them was not read in our own terms.

    Where both were, an order or a unit is open, and it knows neither: `2, 1` for (1, 2), 500 g for 0.5 kg.
    """
    if is_left_to_algebra(ours.form) or is_left_to_algebra(theirs.form):
        return proof(ours.text, theirs.text)
    return None


def _match_otherwise(gold: _Side, answer: _Side, leaf: Leaf) -> bool:
    """Whether the two match in another reading of both, by a side of the answer, or but for a constant."""
    if max(len(gold.text), len(answer.text)) > LONGEST_READ:
        return False
    pairs = other_readings(gold.text, answer.text, f"{gold.given} {answer.given}")
    return (
        any(
            compare(read_tidied(ours, leaf), read_tidied(theirs, leaf))
            for ours, theirs in pairs
        )
        or any(
            compare(gold.form, read_tidied(side, leaf))
            for side in _sides(answer.given, leaf)
        )
        or _differ_by_a_constant(gold.text, answer.text, leaf)
    )


def reason(gold: str, answer: str, leaf: Leaf = no_algebra) -> str:
    """Return why `matches` gives no verdict: the name of a `Verdict`."""
    text = tidy(gold)
    # `3,14` may be a decimal or two numbers; in `x_{1,2}` the comma is no point.
    if with_points(text) != text and "_" not in text:
        return "TWO_READINGS"
    expected, said = read(gold, leaf), read(answer, leaf)
    if TOO_MANY_DIGITS in expected.guesses | said.guesses:
        return "TOO_LARGE"
    is_unread = said.kind == "text" and CONTRADICTION not in said.guesses
    return "UNREAD" if is_unread else "UNDECIDED"


_APPROXIMATELY = re.compile(r"\\approx(?![a-zA-Z])|≈")
_OF_NUMBERS = re.compile(
    r"(?:[\d.,\s+*/^(){}=-]|\\(?:frac|sqrt|cdot|times|pi|div)(?![a-zA-Z]))+", re.ASCII
)


def _sides(answer: str, leaf: Leaf) -> list[str]:
    r"""Return the sides of an equation of numbers that holds or rounds, each an answer: `\frac13 \approx 0.333`."""
    text = tidy(_APPROXIMATELY.sub("=", answer))
    sides = [side.strip() for side in text.split("=")]
    if len(sides) < 2 or not _OF_NUMBERS.fullmatch(text):
        return []
    if CONTRADICTION in read_tidied(text, leaf).guesses:
        return []
    are_numbers = all(approximate(read_tidied(side, leaf)) is not None for side in sides)
    return sides if are_numbers else []


def _differ_by_a_constant(gold: str, answer: str, leaf: Leaf) -> bool:
    """Whether two antiderivatives, with their constants, are of one family; of letters in bars both signs are right."""
    one, other = (ADDED_CONSTANT.sub("", VALUE.sub("", text)) for text in (gold, answer))
    # Without its constant, an antiderivative is one among many.
    if one == VALUE.sub("", gold) or other == VALUE.sub("", answer):
        return False
    difference = read_tidied(re.sub(r"\|([^|]*)\|", r"(\1)", f"({one}) - ({other})"), leaf)
    return approximate(difference) is not None


def _are_joined_otherwise(gold: str, answer: str) -> bool:
    """Whether both texts have parts that are joined by words, and by no word in common."""
    ours, theirs = (
        {_JOINTS[sign] for sign in _JOINT.findall(text)} for text in (gold, answer)
    )
    return bool(ours and theirs) and ours.isdisjoint(theirs)


_JOINTS = {
    "and": "and",
    "land": "and",
    "wedge": "and",
    "or": "or",
    "lor": "or",
    "vee": "or",
}
_JOINT = re.compile(rf"(?<![a-zA-Z])({'|'.join(_JOINTS)})(?![a-zA-Z])")


def _has_other_case(gold: _Side, answer: _Side) -> bool:
    """Whether a letter of a formula is in the answer only as a capital or a small one, or a short word is: `Co`."""
    if len(word(gold.text) or "") > 1:
        return _is_code_in_other_case(gold.text, answer.text)
    texts = [gold.text, answer.text]
    match gold.form.kind:
        case "number" | "percent" | "based" | "quantity":
            return False  # units have a case of their own
        case "word" | "choice" if gold.form.label <= "j":
            return False  # an option: `b` is B
        case "assignment":
            # Only its value counts: `F = ma` for `f = ma`.
            texts = [VALUE.sub("", text) for text in texts]
    ours, theirs = ({*LETTER.findall(text)} for text in texts)
    return any(_in_other_case(letter) in theirs for letter in ours - theirs - _CASELESS)


def _is_code_in_other_case(gold: str, answer: str) -> bool:
    """Whether only case differs in a gold that is a code: short, without vowels, or with a capital inside."""
    code, other = (re.sub(r"\\text|[^a-zA-Z]", "", text) for text in (gold, answer))
    if code == other or code.lower() != other.lower() or "no" in (code, other):
        return False
    return len(code) < 3 or not re.search("[aeiouAEIOU]", code) or bool(_MIXED.search(code))


def _have_other_products(gold: str, answer: str) -> bool:
    """Whether both have products of vectors, and others, which algebra takes for products of numbers."""
    ours, theirs = (_products(text) for text in (gold, answer))
    return bool(ours and theirs) and ours != theirs


def _products(text: str) -> list[tuple[str, ...]]:
    """Return the products of vectors in a text: the sign and the two factors, in any order but for a cross."""
    products = (
        (sign, one, other) if sign == "times" else (sign, *sorted((one, other)))
        for one, sign, other in _VECTORS.findall(text)
    )
    return sorted(products)


_VECTOR = r"(?:\\(?:math(?:bf|rm)|boldsymbol|bm|vec|overrightarrow|hat)[\s{]*)+"
_VECTORS = re.compile(
    rf"(\\nabla|(?<=[a-z{{ ])[a-zA-Z])[\s}}]*\\(times|cdot)(?=\s*{_VECTOR}([a-zA-Z]))"
)


def _in_other_case(letter: str) -> str:
    r"""`A` for `a`, and `\\Lambda` for `\\lambda`."""
    return letter[:2].swapcase() + letter[2:]


_MIXED = re.compile("[a-z][A-Z]")
_CASELESS = frozenset("eiEIcC")
"""Constants, and that of integration."""
