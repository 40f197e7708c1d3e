r"""Other ways to read a gold and an answer together, by which they may say the same though their classes differ (R7).

Each is a pair of tidied texts. If the readings of one pair match, the answer is right; that none does proves nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import permutations
from string import ascii_letters

from olr_cli.answers.guesses import PLAIN_DECIMAL, with_points
from olr_cli.answers.units import split_unit

_BY = re.compile(r"(?<=\\text\{derivative)(\d \w+) by \w+")
_FUNCTION_OF_TIME = re.compile(r"(?<=[a-zA-Z}])\s*\(\s*[tx]\s*\)")
_DEGREES = re.compile(r"(\d+(?:\.\d+)?)\s*\^\s*(?:\\circ(?![a-zA-Z])|\{\s*\\circ\s*\})")
_PLAIN_UNIT = re.compile(r"(?<=[\d})\s])\s*([a-zA-Z][a-zA-Z/ ]*(?:\^\{?-?\d\}?)?)$")
_POINT = re.compile(r"[A-Z]\s*(\(.*,.*\))")
_BASED = re.compile(r"(?:\\text\{)?([\dA-F]+)\}?_.*")
_CHOSEN = re.compile(r"(?<!\w)(?:C\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)|(\d+)C(\d+)(?!\w))")
_REALS = re.compile(
    r"(?:[a-z]\s*\\in\s*)?(?:\\text\{\s*)?(?:[aA]ll )?(?:real(?: number)?s|\\mathbb\s*\{?\s*R)\s*\}?"
)
_BUILDER = re.compile(
    r"\\?\{\s*[a-zA-Z]\s*(?:\\in\s*\\mathbb\s*\{?R\}?\s*)?(?:\\mid(?![a-zA-Z])|[|:])(.*?)\\?\}"
)
_OR = re.compile(r"\\text\{\s*,?\s*or\s*\}|\bor\b|\\(?:lor|vee|cup)(?![a-zA-Z])")
_ORDER = re.compile(r"([<>]|\\(?:[lg][et]|ne)(?![a-zA-Z]))")
_EXCEPT = re.compile(r"\s*(?:\\setminus|\bexcept(?: for)?\b\s*\}?)\s*")
_UNEQUAL = re.compile(
    r"(?:[,;]|\\text\{\s*,?\s*and\s*\}|\band\b|\\(?:land|wedge)(?![a-zA-Z]))?\s*"
    r"(?<![a-zA-Z\\])([a-zA-Z]|\\(?!pi|infty|text)[a-z]+)\s*\\ne(?![a-zA-Z])"
)
_VARIABLE = re.compile(r"[a-zA-Z]|\\(?!pi|infty)[a-z]+")
LETTER = re.compile(r"\\text\{[^{}]*\}|\\[a-zA-Z]+|[a-zA-Z]")
_NAMES = frozenset(ascii_letters) - {"e", "i"}
_COUNTERS = frozenset("jklmn")
_CALL = re.compile(r"[a-zA-Z]\s*(?:\(|_\s*\{?)\s*([a-z])\s*[)}]?\s*=.*")
_ARGUMENTS = re.compile(r"^[a-zA-Z]\s*\(\s*([a-z](?:\s*,\s*[a-z])+)\s*\)\s*=")
_LINE = re.compile(r"\)\s*\+\s*(?:\\?lambda|([stur]))\s*\(|x\s*=(?=.*y\s*=)[^,;]*?([stur])")
_DECLARED = re.compile(
    r"([a-zA-Z])\s*\\in\s*\\mathbb|\b(?:some|any|all|every|arbitrary)\b[a-z ]*\}?\s*\$?([a-zA-Z])(?![a-zA-Z])"
    r"|([a-zA-Z])\$?\s*(?:\\text\{)?\s*is an[a-z ]* integer"
)
VALUE = re.compile(r"^[^=]*=(?=[^=]*$)")
_DECLARATION = re.compile(r"\s*,?\s*[a-zA-Z]\s*\\in\s*\\mathbb.*")


def other_readings(gold: str, answer: str, said: str) -> Iterator[tuple[str, str]]:
    r"""Yield other readings of a tidied gold and a tidied answer, in pairs.

    `said` is what both said before they were tidied: it may declare a letter as any number, as `k \in \mathbb{Z}` does.
    """
    if PLAIN_DECIMAL.fullmatch(gold) and PLAIN_DECIMAL.fullmatch(answer):
        return
    for more in (
        _derivatives,
        _products_and_units,
        _points,
        _commas_and_bases,
        _respelled,
        _lists,
        _vectors,
        _constants,
    ):
        yield from more(gold, answer)
    for pattern in (_ARGUMENTS, _LINE):
        yield from _with_names_of(gold, answer, pattern)
    yield from _renamed(
        gold, answer, frozenset("".join(groups) for groups in _DECLARED.findall(said))
    )


def _derivatives(gold: str, answer: str) -> Iterator[tuple[str, str]]:
    r"""Derivatives by whatever they are taken: x'(t) and \dot{x} are the same."""
    if "{derivative" in gold and "{derivative" in answer:
        # What they are taken by counts only where both say it.
        if not (" by " in gold and " by " in answer):
            gold, answer = _BY.sub(r"\1", gold), _BY.sub(r"\1", answer)
        yield _FUNCTION_OF_TIME.sub("", gold), _FUNCTION_OF_TIME.sub("", answer)


def _products_and_units(gold: str, answer: str) -> Iterator[tuple[str, str]]:
    r"""A word as a product, `mg`; units in plain letters, `5 m/s` beside `5\text{ m/s}`; an engineer's `j`."""
    # `mg`, which is read as a word, beside `m \cdot g`.
    if gold.isalpha() != answer.isalpha():
        if gold.isalpha():
            yield r" \cdot ".join(gold), answer
        else:
            yield gold, r" \cdot ".join(answer)
    # `5 m/s` beside `5\text{ m/s}`.
    if bool(split_unit(gold)[1]) != bool(split_unit(answer)[1]):
        yield _PLAIN_UNIT.sub(r"\\text{\1}", gold), _PLAIN_UNIT.sub(r"\\text{\1}", answer)
    # `2 + 3j` of an engineer, or of Python.
    if "i" in gold and "j" in answer and "i" not in answer:
        yield gold, answer.replace("j", "i")


def _points(gold: str, answer: str) -> Iterator[tuple[str, str]]:
    """A point with the letter that names it, `P(1, 2)`, by its coordinates."""
    if point := _POINT.fullmatch(answer):
        yield gold, point[1]
    if point := _POINT.fullmatch(gold):
        yield point[1], answer


def _commas_and_bases(gold: str, answer: str) -> Iterator[tuple[str, str]]:
    """Decimal commas as points, and the digits alone of a gold that names its base."""
    # `0,5` for 0.5; where the gold has commas too, only semicolons keep numbers apart.
    if "." in gold and (";" in answer or "," not in gold):
        yield gold, with_points(answer)
    # A gold of `0,25` is no pair of numbers.
    if ";" in gold or re.fullmatch(r"-?0,\d\d+", gold):
        yield with_points(gold), answer
    # 52 for `52_8`.
    if (digits := _BASED.fullmatch(gold)) and "_" not in answer:
        yield digits[1], answer


def _respelled(gold: str, answer: str) -> Iterator[tuple[str, str]]:
    r"""Both in one spelling: intervals, decimals of programs, binomials, radians where one has a `\pi`."""
    spellings = [_as_intervals, _as_short_decimal, _as_binomial]
    if "\\circ" in gold + answer and "\\pi" in gold + answer:
        spellings.append(_in_radians)
    for spelling in spellings:
        one, other = spelling(gold), spelling(answer)
        if (one, other) != (gold, answer):
            yield one, other


def _as_binomial(text: str) -> str:
    return _CHOSEN.sub(r"\\binom{\1\3}{\2\4}", text)


def _in_radians(text: str) -> str:
    return _DEGREES.sub(r"\\frac{\1\\pi}{180}", text)


def _as_intervals(text: str) -> str:
    r"""A set of real numbers as intervals, from inequalities, a builder or words: `\{x \mid x > 1\}`."""
    # `\mathbb{R}`, `all real numbers`.
    if _REALS.fullmatch(text):
        return r"(-\infty,\infty)"
    # `\mathbb{R} \setminus \{1\}`, `all reals except 1`.
    if (excepted := _EXCEPT.search(text)) is not None:
        whole, values = text[: excepted.start()], text[excepted.end() :]
        if not values.startswith(("\\{", "(", "[")):
            values = rf"\{{{VALUE.sub('', values)}\}}"
        return rf"{_as_intervals(whole)} \setminus {values}"
    builder = _BUILDER.fullmatch(text)
    condition = builder[1].strip() if builder else text
    if (between := _BETWEEN.fullmatch(condition)) is not None:  # |x| < 2, and |x - 1| > 2
        letter, shift, sign, bound = between.groups(default="0")
        joint = " or " if sign in (">", "\\ge", "\\gt") else ", "
        condition = f"{letter} {sign} {bound} - ({shift}){joint}-({bound}) - ({shift}) {sign} {letter}"
    if not _ORDER.search(condition):
        return text
    whole, *excluded = _UNEQUAL.split(condition)
    names, values = set(excluded[::2]), ",".join(excluded[1::2])
    if len(names) == 1 and not _ORDER.search(values) and not _OR.search(condition):
        whole = _as_intervals(whole.strip()) or r"\mathbb{R}"
        return rf"{whole} \setminus \{{{values}\}}"
    pieces = [_as_interval(piece.strip()) for piece in _OR.split(condition)]
    return text if None in pieces else r" \cup ".join(map(str, pieces))


_BETWEEN = re.compile(
    r"\|\s*([a-zA-Z])\s*([+-][^|]*)?\|\s*([<>]|\\[lg][et])(?![a-zA-Z])\s*([^|<>]+)"
)
_BOTH = re.compile(
    r"\s*(?:,|\\text\{\s*,?\s*and\s*\}|\band\b|\\(?:land|wedge)(?![a-zA-Z]))\s*"
)


def _as_interval(text: str) -> str | None:
    """The interval that a text states for one letter, with at most two bounds; None if it states anything else."""
    # `x > -1` and `x < 2`.
    if len(apart := _BOTH.split(text)) == 2:
        text = _in_one_line(apart) or text
    # `x = 3` is the point alone.
    name, _, value = text.partition("=")
    if _VARIABLE.fullmatch(name.strip()):
        return rf"\{{{value}\}}"
    terms = [term.strip() for term in _ORDER.split(text)]
    bounds = {}
    # `-1 < x < 2` has a bound below and one above.
    for left, sign, right in zip(terms[:-2:2], terms[1::2], terms[2::2], strict=True):
        letter, bound, is_above = _bound(left, sign, right)
        if not _VARIABLE.fullmatch(letter) or not bound:
            return None
        bounds[is_above] = bound, sign.endswith("e")
    # Two bounds from one side, or none: an interval that is written as one stays.
    if len(bounds) != len(terms) // 2:
        return text if len(terms) == 1 and text[:1] in ("(", "[") else None
    low, has_low = bounds.get(False, (r"-\infty", False))
    high, has_high = bounds.get(True, (r"\infty", False))
    return f"{'[' if has_low else '('}{low},{high}{']' if has_high else ')'}"


def _bound(left: str, sign: str, right: str) -> tuple[str, str, bool]:
    """The letter of an inequality, on whichever side it stands, what bounds it, and whether from above."""
    is_left = _VARIABLE.fullmatch(left) is not None
    letter, bound = (left, right) if is_left else (right, left)
    return letter, bound, sign.startswith(("<", "\\l")) == is_left


def _in_one_line(bounds: Sequence[str]) -> str | None:
    """`-1 < x < 2` for `x > -1` and `x < 2`; None if they are no lower and upper bound of one letter."""
    ends: dict[bool, tuple[str, str, str]] = {}
    for bound in bounds:
        left, sign, right = (part.strip() for part in (*_ORDER.split(bound), "", "")[:3])
        letter, end, is_above = _bound(left, sign, right)
        ends[is_above] = letter, end, "\\le" if sign.endswith("e") else "<"
    if (
        set(ends) != {True, False}
        or ends[True][0] != ends[False][0]
        or not _VARIABLE.fullmatch(ends[True][0])
    ):
        return None
    (letter, low, first), (_, high, second) = ends[False], ends[True]
    return f"{low} {first} {letter} {second} {high}"


def _with_names_of(
    gold: str, answer: str, pattern: re.Pattern[str]
) -> Iterator[tuple[str, str]]:
    """The answer with the gold's letters that a pattern finds in both: arguments, or a line's parameter."""
    ours, theirs = (
        re.findall(r"[a-z]", " ".join(filter(None, found.groups())))
        if (found := pattern.search(text))
        else []
        for text in (gold, answer)
    )
    if ours and len(ours) == len(theirs) and ours != theirs:
        names = dict(zip(theirs, ours, strict=True))
        yield gold, LETTER.sub(lambda letter: names.get(letter[0], letter[0]), answer)


def _renamed(gold: str, answer: str, declared: frozenset[str]) -> Iterator[tuple[str, str]]:
    """The answer with the gold's name for an argument or a free integer, if that is all that differs."""
    calls = _CALL.fullmatch(gold), _CALL.fullmatch(answer)
    gold, answer = (
        _DECLARATION.sub("", VALUE.sub("", text)).strip() for text in (gold, answer)
    )
    here, there = ({*LETTER.findall(text)} & _NAMES for text in (gold, answer))
    ours, theirs = here - there, there - here
    # `f(t) = 2t` for `f(x) = 2x`.
    is_argument = calls[0] and calls[1] and (ours, theirs) == ({calls[0][1]}, {calls[1][1]})
    is_period = (
        all("\\pi" in text or "\\circ" in text for text in (gold, answer))
        and ours | theirs <= _COUNTERS
    )
    # `2n` where `n` is declared as any integer.
    may_differ = is_argument or is_period or not declared.isdisjoint(ours | theirs)
    if may_differ and len(ours) == len(theirs) == 1:
        (name,) = ours
        yield (
            gold,
            LETTER.sub(lambda letter: name if letter[0] in theirs else letter[0], answer),
        )


_WORDS = re.compile(r"(?:\\text\{)?([^\W\d_][\w',& ]*)\}?")
_BETWEEN_WORDS = re.compile(r"\s*(?:,\s*and\b|,|&|\band\b)\s*")
_OPTION_LIST = re.compile(
    r"(?:\\text\{)?\s*\(?[A-J]\)?(?:(?:[\s,;&]|and\b)*\(?[A-J]\)?)+\s*\}?"
)
_LONG_DOUBLE = re.compile(r"-?\d*\.\d{14,17}", re.ASCII)


def _lists(gold: str, answer: str) -> Iterator[tuple[str, str]]:
    """Words and options joined by `and`, by commas or by nothing: `red and blue`, `ACD` beside `A, C, D`."""
    ours, theirs = _WORDS.fullmatch(gold), _WORDS.fullmatch(answer)
    # `red and blue`, `red, blue`.
    if (
        ours
        and theirs
        and _BETWEEN_WORDS.search(ours[1])
        and _BETWEEN_WORDS.search(theirs[1])
    ):
        yield _BETWEEN_WORDS.sub(", ", ours[1]), _BETWEEN_WORDS.sub(", ", theirs[1])
    # `ACD`, `A, C and D`.
    are_options = _OPTION_LIST.fullmatch(gold) and _OPTION_LIST.fullmatch(answer)
    if are_options and not (gold.isalpha() and answer.isalpha()):
        yield ", ".join(re.findall("[A-J]", gold)), ", ".join(re.findall("[A-J]", answer))


def _as_short_decimal(text: str) -> str:
    """The decimal of at most 12 digits of which a program made this double, or the same text."""
    if _LONG_DOUBLE.fullmatch(text) is None:
        return text
    short = f"{float(text):.12g}"
    return short if abs(float(text) - float(short)) <= math.ulp(float(short)) else text


_VECTOR = re.compile(r"\\text\{vector([ijk])\}")
_TERM = re.compile(r"\s*([+-]?)\s*((?:[^+\-()]|\([^()]*\))*?)\s*\\text\{vector([ijk])\}\s*")


def _as_tuple(text: str, size: int) -> str:
    r"""A sum of unit vectors, or a column that is written as `\binom`, as a tuple; any other text as it is."""
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
    """Sums of unit vectors, in whatever style, beside columns of two or three entries."""
    if _VECTOR.search(gold + answer) or "\\binom" in gold + answer:
        # `2\mathbf{i} + 3\mathbf{j}` is a pair, or has 0 in the third place.
        for size in (2, 3):
            yield _as_tuple(gold, size), _as_tuple(answer, size)
        yield _VECTOR.sub(r"\1", gold), _VECTOR.sub(r"\1", answer)


_FUNCTION_OF = re.compile(r"(?<![a-zA-Z\\])[txyu](?![a-zA-Z])")
_FREE = re.compile(r"(?<![a-zA-Z\\])(?:[ABCDK](?:_\{?\d\}?)?|c_\{?\d\}?)(?![a-df-zA-Z_])")
ADDED_CONSTANT = re.compile(r"\s*\+\s*(?:C|K|\\text\{[cC]onst(?:ant)?\.?\})$")


def _constants(gold: str, answer: str) -> Iterator[tuple[str, str]]:
    """An antiderivative with and without its constant, and free constants by other names."""
    if not (_FUNCTION_OF.search(gold) and _FUNCTION_OF.search(answer)):
        return
    bare = ADDED_CONSTANT.sub("", gold), ADDED_CONSTANT.sub("", answer)
    # `x^2 + C` for `x^2`, and the other way round.
    if bare != (gold, answer):
        yield bare
    ours, theirs = (sorted({*_FREE.findall(text)}) for text in (gold, answer))
    # `A e^x + B` for `C e^x + D`, in either order.
    if 0 < len(ours) == len(theirs) <= 2:
        for order in permutations(ours):
            names = dict(zip(theirs, order, strict=True))
            yield gold, _FREE.sub(lambda name, names=names: names[name[0]], answer)  # type: ignore[misc]
