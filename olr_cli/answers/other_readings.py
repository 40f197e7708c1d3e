r"""Other readings of a gold and an answer that may agree although their classes differ (R7).

Each reading is a pair of tidied texts. If the texts of one pair match, the answer is right. If no pair matches, nothing
is proved.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, permutations
from string import ascii_letters
from typing import NamedTuple

from olr_cli.answers.guesses import PLAIN_DECIMAL, with_points
from olr_cli.answers.reading import ORDER_SIGN
from olr_cli.answers.units import split_unit

# ` by x` in `\text{derivative1 y by x}`, as `tidy` writes dy/dx
_DERIVATIVE_BY = re.compile(r"(?<=\\text\{derivative)(\d \w+) by \w+")
# `(t)` in `x(t)`
_FUNCTION_OF_TIME = re.compile(r"(?<=[a-zA-Z}])\s*\(\s*[tx]\s*\)")
# `30^\circ`
_DEGREES = re.compile(r"(\d+(?:\.\d+)?)\s*\^\s*(?:\\circ(?![a-zA-Z])|\{\s*\\circ\s*\})")
# `m/s` in `5 m/s`
_PLAIN_UNIT = re.compile(r"(?<=[\d})\s])\s*([a-zA-Z][a-zA-Z/ ]*(?:\^\{?-?\d\}?)?)$")
# `A(1, 2)`
_NAMED_POINT = re.compile(r"[A-Z]\s*(\(.*,.*\))")
# `1101_2`
_NUMBER_WITH_BASE = re.compile(r"(?:\\text\{)?([\dA-F]+)\}?_.*")
# `C(5, 2)` and `5C2`
_BINOMIAL = re.compile(r"(?<!\w)(?:C\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)|(\d+)C(\d+)(?!\w))")
# `x \in \mathbb{R}` and `all real numbers`
_REALS = re.compile(
    r"(?:[a-z]\s*\\in\s*)?(?:\\text\{\s*)?(?:[aA]ll )?(?:real(?: number)?s|\\mathbb\s*\{?\s*R)\s*\}?"
)
# `\{x \mid x > 1\}`
_SET_BUILDER = re.compile(
    r"\\?\{\s*[a-zA-Z]\s*(?:\\in\s*\\mathbb\s*\{?R\}?\s*)?(?:\\mid(?![a-zA-Z])|[|:])(.*?)\\?\}"
)
_OR = re.compile(r"\\text\{\s*,?\s*or\s*\}|\bor\b|\\(?:lor|vee|cup)(?![a-zA-Z])")
# an order sign, `\notin`, or two memberships, as in `x \in (1,2) or x \in (3,4)`
_STATEMENT = re.compile(
    r"[<>]|\\(?:[lg][et]|ne|notin)(?![a-zA-Z])|\\in(?![a-zA-Z]).*\\in(?![a-zA-Z])"
)
# ` \setminus ` in `\mathbb{R} \setminus \{1\}`
_EXCEPT = re.compile(r"\s*(?:\\setminus|\bexcept(?: for)?\b\s*\}?)\s*")
# `, x \ne` in `x > 0, x \ne 1`
_UNEQUAL = re.compile(
    r"(?:[,;]|\\text\{\s*,?\s*and\s*\}|\band\b|\\(?:land|wedge)(?![a-zA-Z]))?\s*"
    r"(?<![a-zA-Z\\])([a-zA-Z]|\\(?!pi|infty|text)[a-z]+)\s*\\ne(?![a-zA-Z])"
)
_VARIABLE = re.compile(r"[a-zA-Z]|\\(?!pi|infty)[a-z]+")
LETTER = re.compile(r"\\text\{[^{}]*\}|\\[a-zA-Z]+|[a-zA-Z]")
_SYMBOL_LETTERS = frozenset(ascii_letters) - {"e", "i"}  # e and i are numbers
_INTEGER_LETTERS = frozenset("jklmn")  # beside pi, they stand for any integer: `2k\pi`
# `f(x) = 2x` and `a_n = 2n`
_FUNCTION_DEFINITION = re.compile(r"[a-zA-Z]\s*(?:\(|_\s*\{?)\s*([a-z])\s*[)}]?\s*=.*")
# `f(x, y) =`
_ARGUMENTS = re.compile(r"^[a-zA-Z]\s*\(\s*([a-z](?:\s*,\s*[a-z])+)\s*\)\s*=")
# t in `(1, 2) + t(3, 4)` and in `x = 1 + t, y = 2 - t`
_LINE_PARAMETER = re.compile(
    r"\)\s*\+\s*(?:\\?lambda|([stur]))\s*\(|x\s*=(?=.*y\s*=)[^,;]*?([stur])"
)
# k in `k \in \mathbb{Z}`, n in `any integer n` and in `n is an integer`
_DECLARED = re.compile(
    r"([a-zA-Z])\s*\\in\s*\\mathbb|\b(?:some|any|all|every|arbitrary)\b[a-z ]*\}?\s*\$?([a-zA-Z])(?![a-zA-Z])"
    r"|([a-zA-Z])\$?\s*(?:\\text\{)?\s*is an[a-z ]* integer"
)
# `x =` in `x = 3`; nothing if there are several equals signs
VALUE = re.compile(r"^[^=]*=(?=[^=]*$)")
# `, k \in \mathbb{Z}` in `2k\pi, k \in \mathbb{Z}`
_DECLARATION = re.compile(r"\s*,?\s*[a-zA-Z]\s*\\in\s*\\mathbb.*")


def other_readings(gold: str, answer: str, given: str) -> Iterator[tuple[str, str]]:
    r"""Yield other ways to read two texts, each as a pair (gold, answer).

    If the texts of any pair match, the answer is right. If none do, nothing is proved.

    Args:
        gold: the gold as `tidy` rewrites it.
        answer: the answer as `tidy` rewrites it.
        given: the gold and the answer as they were given, joined to one text. It is searched for declarations such as
            `k \in \mathbb{Z}`, because a declared letter may be renamed.
    """
    if PLAIN_DECIMAL.fullmatch(gold) and PLAIN_DECIMAL.fullmatch(answer):
        return
    for readings in (
        _derivatives,
        _products_and_units,
        _points,
        _commas_and_bases,
        _respell_both,
        _lists,
        _vectors,
        _constants,
    ):
        yield from readings(gold, answer)
    for pattern in (_ARGUMENTS, _LINE_PARAMETER):
        yield from _rename_letters(gold, answer, pattern)
    yield from _rename_as_in_gold(
        gold, answer, frozenset("".join(groups) for groups in _DECLARED.findall(given))
    )


def _derivatives(gold: str, answer: str) -> Iterator[tuple[str, str]]:
    r"""Yield the pair (gold, answer) without the variables of derivatives, if the gold has derivatives.

    Thus x'(t) matches \dot{x}. If both texts name a variable, as dy/dx and dy/dt do, these variables stay.
    """
    if "{derivative" in gold:
        # The variable counts only if both texts name it: dy/dx is y', but not dy/dt.
        if not (" by " in gold and " by " in answer):
            gold, answer = (
                _DERIVATIVE_BY.sub(r"\1", gold),
                _DERIVATIVE_BY.sub(r"\1", answer),
            )
        yield _FUNCTION_OF_TIME.sub("", gold), _FUNCTION_OF_TIME.sub("", answer)


def _products_and_units(gold: str, answer: str) -> Iterator[tuple[str, str]]:
    """Yield pairs (gold, answer) in which one text helps to read the other one.

    - If one text is a word and the other is not, the word becomes the product of its letters.
    - If one text has a unit and the other has none, plain letters after a number become a unit.
    - If the gold has an `i` and the answer has only a `j`, this `j` becomes `i`.
    """
    # Alone, `mg` is read as a word. Beside `m \cdot g`, it is a product.
    if gold.isalpha() != answer.isalpha():
        if gold.isalpha():
            yield r" \cdot ".join(gold), answer
        else:
            yield gold, r" \cdot ".join(answer)
    # Beside `5\text{ m/s}`, `5 m/s` is a speed.
    if bool(split_unit(gold)[1]) != bool(split_unit(answer)[1]):
        yield _PLAIN_UNIT.sub(r"\\text{\1}", gold), _PLAIN_UNIT.sub(r"\\text{\1}", answer)
    # Engineers and Python write `2 + 3j`.
    if "i" in gold and "j" in answer and "i" not in answer:
        yield gold, answer.replace("j", "i")


def _points(gold: str, answer: str) -> Iterator[tuple[str, str]]:
    """Yield pairs (gold, answer) in which a named point, such as `P(1, 2)`, becomes its coordinates, `(1, 2)`.

    If both texts are named points, one pair changes the answer, and another one the gold.
    """
    if match := _NAMED_POINT.fullmatch(answer):
        yield gold, match[1]
    if match := _NAMED_POINT.fullmatch(gold):
        yield match[1], answer


def _commas_and_bases(gold: str, answer: str) -> Iterator[tuple[str, str]]:
    """Yield pairs (gold, answer) in which one text is rewritten.

    1. If the gold has a point, decimal commas of the answer become points: 0.5 for `0,5`.
    2. If the gold has a semicolon or looks like `0,25`, its decimal commas become points.
    3. If the gold has a number base and the answer has none, the gold loses its base: 52 for `52_8`.
    """
    # `0,5` is right for 0.5. If the gold has commas too, only semicolons in the answer tell numbers apart.
    if "." in gold and (";" in answer or "," not in gold):
        yield gold, with_points(answer)
    # Nobody writes the pair of 0 and 25 as `0,25`.
    if ";" in gold or re.fullmatch(r"-?0,\d\d+", gold):
        yield with_points(gold), answer
    # 52 is right for `52_8`. The other way round it is not: a gold of 52 has base 10.
    if (match := _NUMBER_WITH_BASE.fullmatch(gold)) and "_" not in answer:
        yield match[1], answer


def _respell_both(gold: str, answer: str) -> Iterator[tuple[str, str]]:
    r"""Yield pairs (gold, answer) in which one kind of expression is rewritten in both texts.

    1. Sets of real numbers become intervals.
    2. Decimals with an error of floating point are rounded.
    3. Binomials become `\binom{n}{k}`.
    4. Degrees become radians, if one of the texts has degrees and one has a `\pi`.

    A pair in which nothing changes is left out.
    """
    respellings = [_as_intervals, _as_short_decimal, _as_binomial]
    # Only beside a `\pi` may degrees be meant as radians; the class of `90^\circ` is that of 90.
    if "\\circ" in gold + answer and "\\pi" in gold + answer:
        respellings.append(_in_radians)
    for respell in respellings:
        gold_reading, answer_reading = respell(gold), respell(answer)
        if (gold_reading, answer_reading) != (gold, answer):
            yield gold_reading, answer_reading


def _as_binomial(text: str) -> str:
    r"""Rewrite `C(5, 2)` and `5C2` as `\binom{5}{2}`."""
    return _BINOMIAL.sub(r"\\binom{\1\3}{\2\4}", text)


def _in_radians(text: str) -> str:
    r"""Rewrite degrees as radians: `\frac{90\pi}{180}` for `90^\circ`."""
    return _DEGREES.sub(r"\\frac{\1\\pi}{180}", text)


def _as_intervals(text: str) -> str:
    r"""Rewrite a set of real numbers as intervals; return any other text as it is.

    The set may be given by inequalities, by a set builder such as `\{x \mid x > 1\}`, or in words.
    """
    # `\mathbb{R}` and `all real numbers`
    if _REALS.fullmatch(text):
        return r"(-\infty,\infty)"
    # `\mathbb{R} \setminus \{1\}` and `all reals except 1`
    if (match := _EXCEPT.search(text)) is not None:
        whole, values = text[: match.start()], text[match.end() :]
        if not values.startswith(("\\{", "(", "[")):
            values = rf"\{{{VALUE.sub('', values)}\}}"
        return rf"{_as_intervals(whole)} \setminus {values}"
    builder = _SET_BUILDER.fullmatch(text)
    condition = builder[1].strip() if builder else text
    if not ORDER_SIGN.search(condition):
        return text
    if not _OR.search(condition) and _UNEQUAL.search(condition):
        return _without_points(condition) or text
    # |x| < 2 becomes -2 < x < 2 in two inequalities, and |x - 1| > 2 becomes x > 3 or x < -1.
    if (absolute := _ABSOLUTE_VALUE.fullmatch(condition)) is not None:
        letter, shift, sign, bound = absolute.groups(default="0")
        joint = " or " if sign in (">", "\\ge", "\\gt") else ", "
        condition = f"{letter} {sign} {bound} - ({shift}){joint}-({bound}) - ({shift}) {sign} {letter}"
    return _union(_OR.split(condition)) or text


def is_unsolved(text: str) -> bool:
    r"""Return whether a text states an inequality or a membership that `_as_intervals` does not solve.

    Examples are `|2x - 1| < 3` and `x \notin [3, 5]`.
    """
    return _STATEMENT.search(text) is not None and _as_intervals(text) == text


def _union(alternatives: Iterable[str]) -> str | None:
    r"""Return the values of a letter that meet at least one of several conditions, as a union of intervals.

    `x < 0` and `x > 1` give `(-\infty,0) \cup (1,\infty)`. A condition may also be an interval, such as `(0,1)`. If the
    conditions are about different letters, or `_as_interval` finds no values for one of them, return None.
    """
    sets = [_as_interval(alternative.strip()) for alternative in alternatives]
    letters = {letter for letter, _ in sets if letter}
    intervals = [interval for _, interval in sets]
    # `x > 1 or y < 2` is no set of numbers. A plain interval has no letter, and may stand beside those of any letter.
    return None if "" in intervals or len(letters) > 1 else r" \cup ".join(intervals)


def _without_points(condition: str) -> str | None:
    r"""Return the values that a condition on one letter allows: an interval without the points that are excluded.

    `x > 0, x \ne 1` gives `(0,\infty) \setminus \{1\}`. If the condition has several letters, return None.
    """
    first, *exclusions = _UNEQUAL.split(condition)
    letters = set(exclusions[::2])
    # In `x \ne 1, x < 3`, the inequality comes after a point.
    parts = [first, *chain.from_iterable(map(_AND.split, exclusions[1::2]))]
    inequalities = ", ".join(part.strip() for part in parts if ORDER_SIGN.search(part))
    points = ",".join(part.strip() for part in parts[1:] if not ORDER_SIGN.search(part))
    if len(letters) > 1 or (
        inequalities and letters.isdisjoint(_VARIABLE.findall(inequalities))
    ):
        return None
    interval = _as_intervals(inequalities) if inequalities else r"\mathbb{R}"
    return rf"{interval} \setminus \{{{points}\}}"


# `|x - 1| < 2`
_ABSOLUTE_VALUE = re.compile(
    r"\|\s*([a-zA-Z])\s*([+-][^|]*)?\|\s*([<>]|\\[lg][et](?![a-zA-Z]))\s*([^|<>]+)"
)
_AND = re.compile(
    r"\s*(?:,|\\text\{\s*,?\s*and\s*\}|\band\b|\\(?:land|wedge)(?![a-zA-Z]))\s*"
)


def _as_interval(text: str) -> tuple[str, str]:
    r"""Return a pair: the letter that a condition is about, and the values that the condition allows.

    - `-1 < x < 2` gives `x` and `(-1,2)`.
    - `x = 3` gives `x` and `\{3\}`.
    - `(0,1)`, an interval, gives "" and the interval.
    - `1 > x < 2`, with two lower or two upper bounds, gives `x` and "".

    Any other text gives "" and "".
    """
    # `x > -1` and `x < 2`
    if len(inequalities := _AND.split(text)) == 2:
        text = _in_one_line(inequalities) or text
    # `x = 3` is the set of one point.
    left_side, _, value = text.partition("=")
    if _VARIABLE.fullmatch(letter := left_side.strip()):
        return letter, rf"\{{{value}\}}"
    terms = [term.strip() for term in ORDER_SIGN.split(text)]
    if len(terms) == 1:
        return "", text if text[:1] in ("(", "[") else ""
    # `-1 < x < 2` has two inequalities, with x on the right and on the left.
    bounds = [_bound(*terms[i : i + 3]) for i in range(0, len(terms) - 2, 2)]
    letters = {bound.letter for bound in bounds}
    letter = letters.pop() if len(letters) == 1 else ""
    return (letter, _between(bounds)) if letter else ("", "")


def _between(bounds: Sequence[_Bound]) -> str:
    """Return the interval between a lower and an upper bound, such as `(-1,2]`.

    If a bound is missing, the interval is infinite on that side. If there are two lower or two upper bounds, return "".
    """
    ends = {bound.is_upper: bound for bound in bounds}
    if len(ends) < len(bounds):
        return ""
    lower = ends.get(False, _Bound("", r"-\infty", False, False))
    upper = ends.get(True, _Bound("", r"\infty", True, False))
    opening, closing = "[" if lower.is_included else "(", "]" if upper.is_included else ")"
    return f"{opening}{lower.value},{upper.value}{closing}"


class _Bound(NamedTuple):
    """A bound that an inequality sets for a letter, as `_bound` reads it.

    `x < 2` sets an upper bound for x. Its value is 2, and 2 is not included.
    """

    letter: str
    """The letter, or "" if the text bounds none, as `2 < 3` and `x \\ne 2` do not."""

    value: str
    is_upper: bool

    is_included: bool
    """Whether the letter may have the value."""


def _bound(left: str, sign: str, right: str) -> _Bound:
    r"""Read an inequality as a bound on its letter.

    If neither side is a letter, or the sign is `\ne`, the letter of the bound is "".

    Args:
        left: the left side.
        sign: `<`, `>`, or a command such as `\le`.
        right: the right side.
    """
    letter_is_left = _VARIABLE.fullmatch(left) is not None
    letter, value = (left, right) if letter_is_left else (right, left)
    bounds_a_letter = value and sign != "\\ne" and _VARIABLE.fullmatch(letter)
    is_upper = sign.startswith(("<", "\\l")) == letter_is_left
    return _Bound(letter if bounds_a_letter else "", value, is_upper, sign.endswith("e"))


def _in_one_line(inequalities: Sequence[str]) -> str | None:
    """Join a lower and an upper bound of one letter: `-1 < x < 2` for `x > -1` and `x < 2`.

    Return None if the inequalities are anything else.
    """
    bounds = [
        _bound(*(part.strip() for part in (*ORDER_SIGN.split(inequality), "", "")[:3]))
        for inequality in inequalities
    ]
    lower, upper = sorted(bounds, key=lambda bound: bound.is_upper)
    if lower.is_upper or not upper.is_upper or not lower.letter == upper.letter != "":
        return None
    signs = ["\\le" if bound.is_included else "<" for bound in (lower, upper)]
    return f"{lower.value} {signs[0]} {lower.letter} {signs[1]} {upper.value}"


def _rename_letters(
    gold: str, answer: str, pattern: re.Pattern[str]
) -> Iterator[tuple[str, str]]:
    """Yield the pair (gold, answer) with letters of the answer renamed as in the gold.

    `pattern` finds the letters to rename, such as a function's arguments or a line's parameter. Nothing is yielded if
    it finds no letters, the same letters in both texts, or more letters in one text than in the other.
    """
    gold_letters, answer_letters = (
        re.findall(r"[a-z]", " ".join(filter(None, match.groups())))
        if (match := pattern.search(text))
        else []
        for text in (gold, answer)
    )
    if (
        gold_letters
        and len(gold_letters) == len(answer_letters)
        and gold_letters != answer_letters
    ):
        new_names = dict(zip(answer_letters, gold_letters, strict=True))
        yield gold, LETTER.sub(lambda letter: new_names.get(letter[0], letter[0]), answer)


def _rename_as_in_gold(
    gold: str, answer: str, declared: frozenset[str]
) -> Iterator[tuple[str, str]]:
    r"""Yield the pair (gold, answer) with one letter of the answer renamed as in the gold.

    Each text must have exactly one letter that the other one lacks. The answer's letter becomes the gold's letter if
    one of these is true:

    1. Both are arguments of a function: `f(t) = 2t` for `f(x) = 2x`.
    2. Both are free integers: `n\pi` for `k\pi`.
    3. One of them is in `declared`, the letters of declarations such as `k \in \mathbb{Z}` in the gold or the answer.

    Otherwise nothing is yielded. Left sides such as `f(x) =` and declarations are dropped from the yielded texts.
    """
    definitions = (
        _FUNCTION_DEFINITION.fullmatch(gold),
        _FUNCTION_DEFINITION.fullmatch(answer),
    )
    gold, answer = (
        _DECLARATION.sub("", VALUE.sub("", text)).strip() for text in (gold, answer)
    )
    gold_letters, answer_letters = (
        {*LETTER.findall(text)} & _SYMBOL_LETTERS for text in (gold, answer)
    )
    only_in_gold, only_in_answer = (
        gold_letters - answer_letters,
        answer_letters - gold_letters,
    )
    is_argument = (
        definitions[0]
        and definitions[1]
        and (only_in_gold, only_in_answer) == ({definitions[0][1]}, {definitions[1][1]})
    )
    is_free_integer = (
        all("\\pi" in text or "\\circ" in text for text in (gold, answer))
        and only_in_gold | only_in_answer <= _INTEGER_LETTERS
    )
    may_rename = (
        is_argument
        or is_free_integer
        or not declared.isdisjoint(only_in_gold | only_in_answer)
    )
    if may_rename and len(only_in_gold) == len(only_in_answer) == 1:
        (name,) = only_in_gold
        yield (
            gold,
            LETTER.sub(
                lambda letter: name if letter[0] in only_in_answer else letter[0], answer
            ),
        )


_WORDS = re.compile(r"(?:\\text\{)?([^\W\d_][\w',& ]*)\}?")
_BETWEEN_WORDS = re.compile(r"\s*(?:,\s*and\b|,|&|\band\b)\s*")
_OPTION_LIST = re.compile(
    r"(?:\\text\{)?\s*\(?[A-J]\)?(?:(?:[\s,;&]|and\b)*\(?[A-J]\)?)+\s*\}?"
)
# `0.30000000000000004`
_LONG_DOUBLE = re.compile(r"-?\d*\.\d{14,17}", re.ASCII)


def _lists(gold: str, answer: str) -> Iterator[tuple[str, str]]:
    """Yield the pair (gold, answer) with commas between the items, if both texts list words or letters of options.

    `red and blue` becomes `red, blue`. `ACD` becomes `A, C, D` if the other text separates its letters.
    """
    gold_words, answer_words = _WORDS.fullmatch(gold), _WORDS.fullmatch(answer)
    # `red and blue`, `red, blue`
    if (
        gold_words
        and answer_words
        and _BETWEEN_WORDS.search(gold_words[1])
        and _BETWEEN_WORDS.search(answer_words[1])
    ):
        yield (
            _BETWEEN_WORDS.sub(", ", gold_words[1]),
            _BETWEEN_WORDS.sub(", ", answer_words[1]),
        )
    # `ACD`, `A, C and D`; if both are written without separators, they are compared as words.
    are_options = _OPTION_LIST.fullmatch(gold) and _OPTION_LIST.fullmatch(answer)
    if are_options and not (gold.isalpha() and answer.isalpha()):
        yield ", ".join(re.findall("[A-J]", gold)), ", ".join(re.findall("[A-J]", answer))


def _as_short_decimal(text: str) -> str:
    """Round a decimal that shows an error of floating point, such as `0.30000000000000004`, to 12 digits.

    Any other text is returned as it is.
    """
    if _LONG_DOUBLE.fullmatch(text) is None:
        return text
    # Only if the rounding error of one operation explains the difference: 0.12345678901234 has its own digits.
    short = f"{float(text):.12g}"
    return short if abs(float(text) - float(short)) <= math.ulp(float(short)) else text


_UNIT_VECTOR = re.compile(r"\\text\{vector([ijk])\}")
_TERM = re.compile(r"\s*([+-]?)\s*((?:[^+\-()]|\([^()]*\))*?)\s*\\text\{vector([ijk])\}\s*")


def _as_tuple(text: str, size: int) -> str:
    r"""Rewrite a sum of unit vectors as a tuple with `size` entries, and a column `\binom{a}{b}` as the pair (a, b).

    Any other text is returned as it is, and so is a sum with a unit vector beyond `size`.
    """
    column = re.fullmatch(r"\\binom\s*\{(.*)\}\s*\{(.*)\}", text)
    if column:
        return f"({column[1]}, {column[2]})"
    terms = _TERM.findall(text)
    entries = {unit: f"{sign}{factor or 1}" for sign, factor, unit in terms}
    if (
        not entries
        or _TERM.sub("", text)
        or len(entries) < len(terms)
        or not entries.keys() <= {*"ijk"[:size]}
    ):
        return text
    return f"({', '.join(entries.get(unit, '0') for unit in 'ijk'[:size])})"


def _vectors(gold: str, answer: str) -> Iterator[tuple[str, str]]:
    """Yield pairs (gold, answer) with other notations for vectors.

    Sums of unit vectors become tuples, first of two entries and then of three. In the last pair, the unit vectors i, j
    and k become plain letters.
    """
    if _UNIT_VECTOR.search(gold + answer) or "\\binom" in gold + answer:
        # `2\mathbf{i} + 3\mathbf{j}` is (2, 3) in the plane and (2, 3, 0) in space.
        for size in (2, 3):
            yield _as_tuple(gold, size), _as_tuple(answer, size)
        yield _UNIT_VECTOR.sub(r"\1", gold), _UNIT_VECTOR.sub(r"\1", answer)


# A variable; without one, `C` in an answer is no constant of integration
_FUNCTION_VARIABLE = re.compile(r"(?<![a-zA-Z\\])[txyu](?![a-zA-Z])")
_FREE_CONSTANT = re.compile(
    r"(?<![a-zA-Z\\])(?:[ABCDK](?:_\{?\d\}?)?|c_\{?\d\}?)(?![a-df-zA-Z_])"
)
ADDED_CONSTANT = re.compile(r"\s*\+\s*(?:C|K|\\text\{[cC]onst(?:ant)?\.?\})$")


def _constants(gold: str, answer: str) -> Iterator[tuple[str, str]]:
    """Yield pairs (gold, answer) that differ from the given ones only in their constants.

    Nothing is yielded unless both texts have a variable (t, x, y or u).

    1. If a text has a constant of integration, the first pair is without such constants: `x^2` for `x^2 + C`.
    2. If both texts have one free constant, or both have two, the answer's constants are renamed as in the gold. With
       two, there is a pair for each order.
    """
    # Without a variable, `C` is no constant of integration.
    if not (_FUNCTION_VARIABLE.search(gold) and _FUNCTION_VARIABLE.search(answer)):
        return
    without_constants = ADDED_CONSTANT.sub("", gold), ADDED_CONSTANT.sub("", answer)
    # `x^2 + C` is right for `x^2`, and the other way round.
    if without_constants != (gold, answer):
        yield without_constants
    gold_constants, answer_constants = (
        sorted({*_FREE_CONSTANT.findall(text)}) for text in (gold, answer)
    )
    # `Be^x + A` is right for `Ae^x + B`, so every order of names is tried. Two constants have two
    # orders, but n have n!, so there is a limit.
    if 0 < len(gold_constants) == len(answer_constants) <= 2:
        for order in permutations(gold_constants):
            names = dict(zip(answer_constants, order, strict=True))
            yield gold, _FREE_CONSTANT.sub(lambda name, names=names: names[name[0]], answer)  # type: ignore[misc]
