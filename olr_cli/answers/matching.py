r"""Decide whether an answer is right, given a gold or a label, from the pair alone (R7).

Two answers of one class match, except that percent signs count. Beyond that, a fair grader of the gold accepts:

- the gold's unit, or no unit;
- the numeral of a gold with a percent sign;
- the digits of a gold that states its number base;
- the letter of a choice together with its text;
- the last side of an equation such as ``m+n = 25``;
- a statement that math-verify proves to be the same.

A value under another name, such as ``f(3) = 5`` for ``f(2) = 5``, is undecided.
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
from olr_cli.answers.other_readings import (
    ADDED_CONSTANT,
    LETTER,
    VALUE,
    is_unsolved,
    other_readings,
)
from olr_cli.answers.reading import (
    CONTRADICTION,
    ORDER_SIGN,
    TOO_MANY_DIGITS,
    Leaf,
    NeedsAlgebra,
    no_algebra,
    read,
    read_tidied,
)
from olr_cli.answers.units import word

_ROUNDING = Fraction(1, 100)
"""Relative difference of two numbers that a lenient grader may still call equal."""

_PERCENT_SIGN = re.compile(r"\\*%")
PLAIN_NUMBER = "^(?:0|[1-9][0-9]{0,14})$"
"""Pattern of plain integers: two answers of this form match if and only if their texts are equal (R7)."""

Proof = Callable[[str, str], bool | None]
"""Whether math-verify's `verify`, gold first, holds for two tidied texts; None if it cannot tell."""


def no_proof(gold: str, answer: str) -> None:
    """Return None, which means that nothing is proved.

    A `Proof` is a function that asks math-verify about two texts. In a process without computer algebra, this function
    is passed instead.
    """


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
    """Carry out one task of the judge.

    | kind      | `text` | `answer`  | result                                         |
    |-----------|--------|-----------|------------------------------------------------|
    | key       | answer |           | the key of the answer's class                  |
    | matches   | gold   | answer    | whether the answer is right; None if undecided |
    | may match | gold   | answer    | whether a lenient grader may call it right     |
    | reason    | gold   | answer    | why there is no verdict (see `reason`)         |

    A lenient grader tolerates a relative difference of 1 %, asks math-verify alone, or swaps gold and answer. Only
    "matches" uses `tolerance` and `in_percent`. `tolerance` is a relative tolerance such as "0.01"; empty for none. If
    `in_percent` is not empty, the question asks for a percentage, and the answer may have a percent sign that the gold
    lacks.

    Three functions do what needs computer algebra. `leaf` reads expressions. `proof` asks math-verify about texts that
    `tidy` has rewritten, and `math_verify_proof` asks it about the texts as given. Workers pass all three. The defaults
    read and prove nothing.

    Raises:
        NeedsAlgebra: the texts cannot be decided without computer algebra, and `leaf` is `no_algebra`.
    """
    match kind:
        case "key":
            return read(text, leaf).key
        case "reason":
            return reason(text, answer, leaf)
        case "may match" if proof is no_proof:
            raise NeedsAlgebra
        case "may match":
            # Lenient on purpose: frozen noise (R4) writes wrong labels into a file, and no grader may call them right.
            orders = ((text, answer), (answer, text))
            return any(
                matches(*order, leaf, proof, _ROUNDING) or math_verify_proof(*order)
                for order in orders
            )
    relative = Fraction(tolerance or 0)
    verdict = matches(text, answer, leaf, proof, relative)
    tidied = tidy(answer) if in_percent and "%" not in text else ""
    if verdict or "%" not in tidied:
        return verdict
    # If the question asks for a percentage, `30\%` is right for a gold of 30, and `(10\%, 40\%)` for (10, 40).
    return matches(text, _PERCENT_SIGN.sub("", tidied), leaf, proof, relative) or verdict


class _Side(NamedTuple):
    """A gold or an answer: its text as given, the text as `tidy` rewrites it, and its meaning as a `Form`."""

    given: str
    """The text as it was given."""

    text: str
    """The tidied text."""

    form: Form


def matches(
    gold: str,
    answer: str,
    leaf: Leaf = no_algebra,
    proof: Proof = no_proof,
    tolerance: Fraction = Fraction(0),
) -> bool | None:
    """Return whether an answer is right, given a gold, or None if it is proved neither right nor wrong.

    Args:
        gold: a label or true answer.
        answer: the answer, written like the content of a box.
        leaf: function that reads mathematical expressions.
        proof: function that asks math-verify about texts that our own parser cannot compare.
        tolerance: largest relative difference of two numbers, unless both are integers; 1/100 allows 1 %.
    """
    gold_text, answer_text = tidy(gold), tidy(answer)
    if gold_text == answer_text:
        return True
    gold_side = _Side(gold, gold_text, read_surely(gold, gold_text, leaf))
    answer_side = _Side(answer, answer_text, read_surely(answer, answer_text, leaf))
    if CONTRADICTION in gold_side.form.guesses | answer_side.form.guesses:
        return None
    verdict = compare(gold_side.form, answer_side.form)
    if verdict is None:
        # math-verify and the reading as intervals treat `and` like `or`, so they must not see this pair.
        if _are_joined_by_other_words(gold_text, answer_text):
            return None
        verdict = _proof_by_algebra(gold_side, answer_side, proof)
    if verdict:
        # Algebra ignores case and takes all products for products of numbers, so a match may still be wrong.
        is_doubtful = _has_other_case(gold_side, answer_side) or _have_other_products(
            gold, answer
        )
        return None if is_doubtful else True
    if _match_otherwise(gold_side, answer_side, leaf) or (
        tolerance > 0 and is_near(gold_side.form, answer_side.form, tolerance)
    ):
        return True
    # Return None, not False, where the answer may still be right: R3 draws noisy labels from answers that are proved
    # wrong (False), and a right answer would be no noise.
    is_open = (
        verdict is None
        or may_match(gold_side.form, answer_side.form)
        or _may_be_one_set(gold_side, answer_side)
    )
    return None if is_open else False


def _may_be_one_set(gold: _Side, answer: _Side) -> bool:
    """Return whether a gold and an answer may describe the same set of numbers.

    The result is True if one of them is an inequality or a membership that our parser does not solve, and neither is a
    number, a quantity, an option or a word. math-verify compares only how such statements are written.
    """
    if {gold.form.kind, answer.form.kind} & _NO_SETS:
        return False
    return is_unsolved(gold.text) or is_unsolved(answer.text)


_NO_SETS = {"number", "percent", "based", "quantity", "choice", "word"}
"""Kinds of forms that are never the solution of an inequality."""


def _proof_by_algebra(gold: _Side, answer: _Side, proof: Proof) -> bool | None:
    """Return math-verify's verdict on a pair that our own comparison left open; None if it is not asked or cannot tell.

    `proof` asks math-verify. It is called only if our parser could not fully read the gold or the answer. If the parser
    read both, they may differ in order (`2, 1` for (1, 2)) or in units (500 g for 0.5 kg), which math-verify ignores.
    """
    if is_left_to_algebra(gold.form) or is_left_to_algebra(answer.form):
        return proof(gold.text, answer.text)
    return None


def _match_otherwise(gold: _Side, answer: _Side, leaf: Leaf) -> bool:
    """Return whether a gold and an answer match in a way that comparing their meanings does not find.

    They match if one of these is true:

    1. Another reading of the two texts matches.
    2. The answer is an equation of numbers, and one of its sides matches.
    3. The gold and the answer are antiderivatives that differ by a constant.

    Texts over 1,000 characters never match. The function `leaf` reads the mathematical expressions.
    """
    if max(len(gold.text), len(answer.text)) > LONGEST_READ:
        return False
    pairs = other_readings(gold.text, answer.text, f"{gold.given} {answer.given}")
    return (
        any(
            compare(read_tidied(gold_reading, leaf), read_tidied(answer_reading, leaf))
            for gold_reading, answer_reading in pairs
        )
        or any(
            compare(gold.form, read_tidied(side, leaf))
            for side in _sides(answer.given, leaf)
        )
        or _differ_by_a_constant(gold.text, answer.text, leaf)
    )


def reason(gold: str, answer: str, leaf: Leaf = no_algebra) -> str:
    """Return why `matches` left a pair undecided, as the name of a `Verdict`; call it for such pairs alone.

    - TWO_READINGS: the gold may be one number or two, as `3,14`.
    - TOO_LARGE: a number has too many digits.
    - UNREAD: the answer could not be read.
    - UNDECIDED: any other reason.

    `leaf` reads mathematical expressions with computer algebra. By default, a text that needs it raises `NeedsAlgebra`.
    """
    text = tidy(gold)
    # `3,14` may be a decimal or two numbers, but the comma of an index (`x_{1,2}`) is never a decimal comma.
    if with_points(text) != text and "_" not in text:
        return "TWO_READINGS"
    gold_form, answer_form = read(gold, leaf), read(answer, leaf)
    if TOO_MANY_DIGITS in gold_form.guesses | answer_form.guesses:
        return "TOO_LARGE"
    # The form of a contradiction is a text, too, but the answer was read.
    is_unread = answer_form.kind == "text" and CONTRADICTION not in answer_form.guesses
    return "UNREAD" if is_unread else "UNDECIDED"


_APPROXIMATELY = re.compile(r"\\approx(?![a-zA-Z])|≈")
_ONLY_NUMBERS = re.compile(
    r"(?:[\d.,\s+*/^(){}=-]|\\(?:frac|sqrt|cdot|times|pi|div)(?![a-zA-Z]))+", re.ASCII
)


def _sides(answer: str, leaf: Leaf) -> list[str]:
    r"""Return the sides of a true equation of numbers, such as `0.5` and `\frac12` of `0.5 = \frac12`.

    An equation that is true up to rounding counts, too: `\frac13 \approx 0.333`. For any other text the list is empty.
    The function `leaf` reads the sides.
    """
    text = tidy(_APPROXIMATELY.sub("=", answer))
    sides = [side.strip() for side in text.split("=")]
    if len(sides) < 2 or not _ONLY_NUMBERS.fullmatch(text):
        return []
    if CONTRADICTION in read_tidied(text, leaf).guesses:
        return []
    are_numbers = all(approximate(read_tidied(side, leaf)) is not None for side in sides)
    return sides if are_numbers else []


def _differ_by_a_constant(gold: str, answer: str, leaf: Leaf) -> bool:
    r"""Return whether two antiderivatives, both with a "+ C" at the end, differ only by a number.

    The bars of absolute values are ignored: `\ln|x| + C` and `\ln x + C` are equal here. The function `leaf` reads the
    difference.
    """
    gold_part, answer_part = (
        ADDED_CONSTANT.sub("", VALUE.sub("", text)) for text in (gold, answer)
    )
    # Without "+ C", a text is one function and no family: x^2 + 1 is not x^2.
    if gold_part == VALUE.sub("", gold) or answer_part == VALUE.sub("", answer):
        return False
    difference = read_tidied(
        re.sub(r"\|([^|]*)\|", r"(\1)", f"({gold_part}) - ({answer_part})"), leaf
    )
    return approximate(difference) is not None


def _are_joined_by_other_words(gold: str, answer: str) -> bool:
    r"""Return whether one text joins its parts only by "and", and the other text only by "or".

    The signs `\land` and `\lor` count as these words.
    """
    gold_joints, answer_joints = (
        {_JOINTS[sign] for sign in _JOINT.findall(text)} or _joint_of_commas(text)
        for text in (gold, answer)
    )
    return bool(gold_joints and answer_joints) and gold_joints.isdisjoint(answer_joints)


def _joint_of_commas(text: str) -> set[str]:
    """Return {"and"} if a text has a comma and several inequalities, as in `x > 0, x < 2`, otherwise an empty set."""
    return {"and"} if len(ORDER_SIGN.findall(text)) > 1 and "," in text else set()


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
    """Return whether a letter of the gold appears in the answer only in the other case: `m` for `M`.

    Case does not matter in numbers with a unit, in letters of options, or in the name of an assignment. In words, it
    matters only if the gold is a code such as `Co`.
    """
    if len(word(gold.text) or "") > 1:
        return _is_code_in_other_case(gold.text, answer.text)
    texts = [gold.text, answer.text]
    match gold.form.kind:
        case "number" | "percent" | "based" | "quantity":
            # `units` has compared the units already, and it knows where case matters.
            return False
        case "word" | "choice" if gold.form.label <= "j":
            # The letter of an option: `b` is B.
            return False
        case "assignment":
            # The name on the left may differ: `F = ma` is right for `f = ma`.
            texts = [VALUE.sub("", text) for text in texts]
    gold_letters, answer_letters = ({*LETTER.findall(text)} for text in texts)
    return any(
        _in_other_case(letter) in answer_letters
        for letter in gold_letters - answer_letters - _CASELESS
    )


def _is_code_in_other_case(gold: str, answer: str) -> bool:
    """Return whether the gold is a code such as `NaCl`, and the answer differs from it only in case.

    A word counts as a code if it is short (`Co`), has no vowels (`TTL`) or has a capital inside (`NaCl`).
    """
    gold_code, answer_code = (
        re.sub(r"\\text|[^a-zA-Z]", "", text) for text in (gold, answer)
    )
    # `no` is short, but a word: `No` means the same.
    if (
        gold_code == answer_code
        or gold_code.lower() != answer_code.lower()
        or "no" in (gold_code, answer_code)
    ):
        return False
    return (
        len(gold_code) < 3
        or not re.search("[aeiouAEIOU]", gold_code)
        or bool(_CAPITAL_INSIDE.search(gold_code))
    )


def _have_other_products(gold: str, answer: str) -> bool:
    r"""Return whether both texts have products of vectors, but different ones: `a \times b` and `b \times a`.

    Algebra reads vectors as numbers, and would find these products equal.
    """
    gold_products, answer_products = (_products(text) for text in (gold, answer))
    return bool(gold_products and answer_products) and gold_products != answer_products


def _products(text: str) -> list[tuple[str, ...]]:
    """Return the products of vectors in a text, sorted, each as (sign, factor, factor).

    The sign is "times" or "cdot". The two factors of a "cdot" are sorted. The factors of a cross product ("times") keep
    their order, because it matters.
    """
    products = (
        (sign, left, right) if sign == "times" else (sign, *sorted((left, right)))
        for left, sign, right in _VECTOR_PRODUCT.findall(text)
    )
    return sorted(products)


_VECTOR = r"(?:\\(?:math(?:bf|rm)|boldsymbol|bm|vec|overrightarrow|hat)[\s{]*)+"
_VECTOR_PRODUCT = re.compile(
    rf"(\\nabla|(?<=[a-z{{ ])[a-zA-Z])[\s}}]*\\(times|cdot)(?=\s*{_VECTOR}([a-zA-Z]))"
)


def _in_other_case(letter: str) -> str:
    r"""Return a letter in the other case: `A` for `a`, and `\Lambda` for `\lambda`."""
    return letter[:2].swapcase() + letter[2:]


_CAPITAL_INSIDE = re.compile("[a-z][A-Z]")
_CASELESS = frozenset("eiEIcC")
"""Letters of constants, whose case does not matter: e, i, and c, the constant of integration."""
