r"""Find doubtful labels without a model: damaged text, more than one answer, or a bad fit to the question."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from string import ascii_uppercase
from typing import Any

from olr_cli.answers.classes import COUNTED
from olr_cli.answers.extraction import boxed, option_letter
from olr_cli.answers.notation import LONGEST_READ, tidy
from olr_cli.answers.units import split_unit
from olr_cli.data.choices import letters_in

_DAMAGED = [
    ("backslash", r"[\a\b\t\n\v\f\r](?:(?<=[\a\b\v\f])[a-z]|(?<=\t)(?:ext|imes|an|au|heta|o|frac|riangle)(?![a-z])"
     r"|(?<=\n)(?:eq|abla)(?![a-z])|(?<=\r)(?:ight|ho|angle)(?![a-z]))"),
    ("invisible", r"[\0-\b\v\f\x0e-\x1f\x7f-\x9f](?!(?<=[\a\b\v\f])[a-z])"),
    ("encoding", "Ã[\x80-\xbf—]|Â[\xa0-\xbf]|â[€\x80ˆ‰†]|ï»¿|ï¿½|\ufffd"),
    ("html", "(?i)</(?:b|i|u|p|em|strong|div|span|su[bp]|t[dr]|table|a|li|[uo]l)>|<(?:br|img)\\b|&(?:[lg]t|amp|nbsp);"),
]  # fmt: skip
"""Kind of finding, and the pattern that is searched for in both label and question."""

_is_sound = re.compile(r"(?:[ -%'-;=-~]++|\n(?!eq|abla))*+").fullmatch
"""Match a text that surely matches nothing of `_DAMAGED`: printable ASCII without ``<`` and ``&``."""

_NUMBER = (
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\\w{3,5}teen|twenty|thirty|forty|fifty|sixty"
    "|seventy|eighty|ninety|hundred|thousand|million|billion|half|halves|thirds?|quarters?|dozen"
)
_COUNTED = r"(?i)\b(?:how (?:many|far|old|long|tall)|is the (?:length|area|volume|probability))\b[^.?!]*[.?!]\W*$"
_YES_OR_NO = r"(?:^|[.?!]\s)\s*(?:Is|Are|Does|Do|Did|Has|Have|Were)\b(?![^?]*\b(?:or|how|what|which)\b)[^.?!]*\?\W*$"
_MONTH = "jan|feb|mar|apr|may|jun|jul|aug|sept?|oct|nov|dec"
_CELL_MONTH = rf"(?i:{_MONTH}|mars|mrz|mär|mai|maj|okt|dez|janv|févr?|fev|avr|juin|juil|août|déc|ene|abr|ago|dic|gen)"
"""A month as spreadsheets show it in cells, in several languages."""

_MONTH_CELL = rf"\d{{1,2}}(?:[-/]|\. ?){_CELL_MONTH}\.?(?:[-/. ]\d{{2,4}})?|{_CELL_MONTH}\.?[-/]\d{{1,4}}"
# A triangle may be 5-12-13, so hyphens need a year of four digits.
_DATE = (
    r"(?:\d{1,2}(?:([/.])\d{1,2}\1(?:\d{4}|\d\d)|-\d{1,2}-\d{4})|\d{4}([/-])\d\d?\2\d\d?)"
    r"(?:[ T]\d\d:\d\d(?::\d\d)?)?"
)
_DAY = r"4\d\d(?!00)\d\d"
"""A day from 2009 to 2036 as spreadsheets count days: they complete a date without a year by the current year."""

_WRITTEN_DATE = (
    rf"(?=.*\d)(?:\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?)?(?i:{_MONTH})[a-z]*\.?"
    r"(?:\s+\d{1,2}(?:st|nd|rd|th)?)?(?:,?\s+\d{4})?"
)
_AMOUNT = r"\d+(?:[.,]\d+)*"
_WHEN = r"(?i:\bdates?\b|\b(?:day|month|year)s?\b|\bbirthday|yyyy|\bwhen (?:did|was|were|is|does|do|will)\b)"
_FRACTION = (
    r"(?i)\A(?!.*(?:\bsum\b|\b[a-z]\s*\+\s*[a-z]\b)).*\b(?:what|which|find|compute|determine) (?:is )?(?:the )?"
    r"(?:\w+ )?(?:fractions?|ratios?|probabilit\w*|odds|intervals?|part|share|portion)\b"
)
"""A question for a value with a slash, a colon or a hyphen, such as a fraction.

Questions for the sum of its two parts (`find m + n`) are none of them: their answer is a whole number.
"""

_CHANGED = [
    (rf"\s*(?:{_MONTH_CELL}|{_DATE})\s*", rf"\A(?!.*{_WHEN})"),
    (r"\s*-?\d[.,]\d{5}(?:\d{9})?E[+-]\d{2,3}\s*", ""),
    (rf"\s*(?:{_DAY}|\d{{1,2}}:\d\d:00(?: [AP]M)?)\s*", _FRACTION),
]  # fmt: skip
"""Pairs of patterns: a label that a spreadsheet may have changed, and the question that makes this likely."""

_SHORT_NUMBER = re.compile(r"\s*\d{1,3}\s*")
_CODE = r"(?i)\A(?!.*\bhow many\b).*\b(?:code|pin|password|zip)\b[^.?!]*\b(?:four|five|six|[456])[ -]digits?"
"""A question for a code with more digits than a short number has: a spreadsheet may have dropped leading zeros."""

_LETTERS = "".join(rf"(?:{letter}\W*)?" for letter in "ABCDEFGH")
_UNFIT = [
    ("date_or_score", rf"^\W*{_DATE}\W*$", _WHEN),
    ("date_or_score", r"^\s*\d{1,2}(?::\d\d){1,2}\s*(?i:[ap]\.?m)[\s.]*$", ""),
    ("date_or_score", rf"^[\s$]*(?:{_WRITTEN_DATE}|{_AMOUNT}\s?-\s?\$?{_AMOUNT})[\s$.]*$", ""),
    ("float_noise", r"^\W*(?=[\d.]{16})\d+\.\d*?(?:0{6,}|9{6,})\d{1,3}\W*$", ""),
    ("several", rf"^\W*(?=[A-H]\W*[A-H])(?:{_LETTERS})$", r"\bA[).:].*\bB[).:]"),
    ("words", r"\A(?!.*\\begin).*\S[ \t]*\n\s*[^\W\d_]{2,}", ""),
    ("invisible", "[\xad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]", ""),
    ("cut", r"(?:[-*/=,^_]|\\[a-z]*frac|\\text)\s*$", ""),
    ("marks", r"""^\s*(?:\[\s*[-+]?[\d./]+\s*\]|[\[{(]\s*["'].*|(["']).*\1|.*\\\\|.*\?)\s*$""", ""),
    ("words", r"(?:(?<![\\A-Za-z])[A-Za-z'’]{2,}[^A-Za-z'’\\]+){6}", ""),
    ("words", r"^\W*\d[^()]*\s\([^()]*[a-z]{3}[^()]*\)\W*$|\b(?i:because|since|hence|therefore|answer|ans|note)\b", ""),
    ("nothing", r"(?i)\bundefined|\bno (?:\w+ )?(?:solution|answer|root|value)s?\b|does ?n[o'’]t exist|\bdne\b", ""),
    ("nothing", r"(?i)can(?:not|'t) be|impossible|insufficient|\\emptyset|\\varnothing|∅", ""),
    ("nothing", r"(?i)^\W*(?:none|unknown|error)\W*$", ""),
    ("several", r"\d.*\b(?i:or)\b.*\d|=.*\band\b.*=|^\W*[A-E]\W+(?:(?:and|or)\W+)?[A-E]\W*$", ""),
    ("several", r"^[\d.,/%\s-]+(?:=|≈|\\approx)[\d.,/%\s-]+$|\d[\s,]*(?:\.{3}|…|\\l?dots)\W*$", ""),
    ("several", r"^\W*(?:(?i:about|approx\w*|around|between|(?:at|less|more) \w+|over)\b|[~≈]|\\approx)\W*\d", ""),
    ("several", r"^\W*\d[\d.,]*\s*(?:[–—~]|to)\s*\$?\d[\d.,]*\W*$", ""),
    ("number_word", rf"(?i)^\W*(?:\\text\w*\{{)?(?:(?:{_NUMBER}|and)\b[\s-]*)+[a-z]*\W*$", ""),
    ("form", r"^\W*0?\.\d+\W*$", r"(?i)(?:as|in) (?:a )?percent|what percent"),
    ("form", r"^\W*\d*\.\d*[1-9]\W*$", r"(?i)\b(?:as|is) an? (?:\w+ )?fraction|in terms of \W*pi\b"),
    ("form", r"frac|\d/\d", r"(?i)\bas a decimal|\bin decimal"),
    ("form", r"\\pi", r"(?i)\bin degrees"),
    ("form", r"°|\\circ", r"(?i)\bin radians"),
    ("form", rf"(?i)^\s*(?!.*\b(?:{_NUMBER}|infini\w*|none|no)\b)[a-z][a-z ]{{2,}}$", _COUNTED),
    ("form", r"^\W*-\d[\d.,/]*\W*$", _COUNTED),
    ("form", r"^\W*\d[\d.,]*\W*$", _YES_OR_NO),
    ("to_prove", "", r"(?:Prove|Show) (?:that|it)\b(?!.*\b(?i:find|what|determine|how)\b)"),
]  # fmt: skip
"""Kind of finding, and the patterns that label and question must both match; an empty pattern matches everything."""

_OPTION = re.compile(r"(?:^|[\s({$])([A-Z])[).:]")
_TWO_LINES = re.compile(r"^A[).:] .*\n\s*B[).:] ", re.MULTILINE)
_MARKED_LETTER = re.compile(r"^\s*[A-Za-z]\)(?=\s|$)")
"""The letter of an option, ``A)`` or ``A) Venus``, with a bracket that has no partner."""

_DRAWING = re.compile(r"\[asy\](?:(?!\[asy\]).)*?\[/asy\]", re.DOTALL)
_LONGEST_QUESTION = 4_000
"""Number of characters to search in a question: half at its beginning and half at its end."""

_MOST_BOXES = 100
_UNIT_ASKED = re.compile(r"(?i)\b(?:in|how many) ([a-z°]{1,12})\b")
_DIGITS_ASKED = re.compile(
    r"(?i)\b([1-4]|one|two|three|four) decimal|nearest (whole|integer|\w+th)\b"
)
_PLACES = (
    "whole integer",
    "1 one tenth",
    "2 two hundredth",
    "3 three thousandth",
    "4 four",
)
_REDUCED_ASKED = re.compile(r"(?i)\bsimplif|\breduced\b|lowest terms|simplest")
_TOLD = re.compile(
    r"(?i)(?:\banswer(?: is|:)|####|\\boxed\{)\s*(.*?)[}.\s]*$|=\s*([\d.,/]+)\s*\?\s*$"
)


def doubts(question: str, label: str) -> set[str]:
    """Return the kinds of findings (`olr_cli.data.findings`) about a question and its label.

    An example is ``cut``: the end of the label seems to be missing.

    If the label is longer than `LONGEST_READ`, most searches see only its beginning and end, because many of them take
    quadratic time. Only missing brackets and damaged text are searched for in the whole label.
    """
    damaged = [text for text in (label, question) if not _is_sound(text)]
    kinds = {kind for kind, find in _IN_EITHER if any(map(find, damaged))}
    is_number = label.isascii() and label.isdecimal()
    if not is_number and _is_unbalanced(label):
        kinds.add("cut")
    label = ends_of(label)
    # All whole numbers match the same patterns, so that the cache needs one entry for them.
    about = _possible_doubts("1" if is_number else label)
    kinds |= {kind for kind, in_question in about if in_question(question)}
    others = _OF_NUMBERS if is_number else _OTHERS
    kinds |= {kind for kind, is_so in others if is_so(question, label)}
    # A label such as `A, D` that names a missing option also looks like several answers, and like unknown letters.
    return kinds - {"several", "letter"} if "option" in kinds else kinds


def is_changed(question: str, label: str) -> bool:
    """Return whether a spreadsheet may have changed a label: 1/2 to a date, a long number to 1.23457E+15, 0042 to 42.

    A date counts only if the question does not ask for a date. A short number such as 42 counts only if the question
    asks for a code with more digits.
    """
    # The cheap test comes first: most labels are short numbers, and few questions mention digits.
    if "digit" in question and _SHORT_NUMBER.fullmatch(label) and _IS_CODE(question):
        return True
    return any(in_label(label) and in_question(question) for in_label, in_question in _MADE)


@functools.lru_cache(1 << 16)  # the same labels are frequent
def _possible_doubts(label: str) -> list[tuple[str, Callable[[str], Any]]]:
    """Return (kind, test) for each kind of finding that the label makes possible.

    The label has the finding if ``test(question)`` is true for its question.
    """
    return [
        (kind, in_question) for kind, in_label, in_question in _IN_BOTH if in_label(label)
    ]


def ends_of(text: str, longest: int = LONGEST_READ) -> str:
    """Return a text or, if it is longer than `longest`, its first and last `longest` // 2 characters, joined."""
    return text if len(text) <= longest else text[: longest // 2] + text[-longest // 2 :]


def boxes(solution: str) -> list[str]:
    r"""Return the different contents of ``\boxed{…}`` in a worked solution, the last box first.

    Only the last `_MOST_BOXES` boxes are read.
    """
    contents: list[str] = []
    while len(contents) < _MOST_BOXES and (answer := boxed(solution)) is not None:
        contents.append(answer)
        # Cut before the box that was found, so that `boxed` finds the one before it.
        solution = solution[: solution.rindex("\\boxed", 0, solution.rindex(answer))]
    return list(dict.fromkeys(contents))


is_day = re.compile(rf"\s*{_DAY}\s*").fullmatch
"""Match a label that may be a date which a spreadsheet shows as a number."""


def _searcher(pattern: str, longest: int = LONGEST_READ) -> Callable[[str], Any]:
    """Return a function that searches a text for a regular expression, and returns the match or None.

    If the text has more than `longest` characters, only its beginning and its end are searched.
    """
    search = re.compile(pattern, re.DOTALL).search
    return lambda text: search(ends_of(text, longest))


_PRICE = _searcher(r"^\W*(?:\$\s*[-+]?[\d.]|\d[\d.,]*\s*\$\W*$)")
"""Search for a price such as ``$108``, ``-$3.50 a day`` or ``12 $``: its single dollar sign opens no formula."""


def _is_unbalanced(label: str) -> bool:
    r"""Return whether brackets or dollar signs in a label do not come in pairs.

    The two brackets of a pair may have different shapes, so `[0, 1)` is balanced. A label with ``\left.`` or
    ``\right.`` always counts as balanced. The dollar sign of a price needs no partner.
    """
    label = _MARKED_LETTER.sub("", label)
    ends = (["([{", ")]}"], [["\\left"], ["\\right"]], [["\\begin"], ["\\end"]])
    is_open = any(
        sum(map(label.count, opening)) != sum(map(label.count, closing))
        for opening, closing in ends
    )
    is_dotted = "\\right." in label or "\\left." in label
    dollars = label.replace("\\$", "").count("$")
    is_price = dollars == 1 and _PRICE(label)
    return (is_open or (dollars % 2 == 1 and not is_price)) and not is_dotted


def _letters(text: str) -> set[str]:
    r"""Return the letters that stand alone, as variables do; words and the content of ``\text{…}`` have none."""
    return {
        *re.findall(
            r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z'’])",
            re.sub(r"\\text\w*\{[^{}]*\}", " ", text),
        )
    }


def _has_other_letters(question: str, label: str) -> bool:
    """Return whether a label's variables do not belong to its question.

    - For a label such as ``x = 5``, the result is True if `x` is not in the question.
    - For a label with several variables and no equals sign, it is True if the question has other variables only.
    - For any other label, it is False.
    """
    named = re.fullmatch(r"\W*([A-Za-z])\s*=[^=A-Za-z]*\d[^=A-Za-z]*", label)
    if named is not None:
        return named[1] not in _letters(question)
    # Solutions introduce these letters: constants (e, i, C), integers (n, k), a parameter (t), a differential (d).
    used = _letters(label) - set("eidCnkt")
    if "=" in label or len(used) < 2:
        return False
    # These three may be words of the question.
    question_letters = _letters(question) - {"a", "A", "I"}
    return bool(question_letters) and used.isdisjoint(question_letters)


def _is_no_option(question: str, label: str) -> bool:
    """Return whether the label is the letter of an option that the question does not show.

    If the question shows no options, the result is True for the letters A to E. It is False if the letter stands alone
    in the question, as the name of a variable or a point.
    """
    # Without a second option there are none: `A.` alone may end a sentence.
    has_second = any(mark in question for mark in ("B)", "B.", "B:"))
    named = {*_OPTION.findall(_DRAWING.sub("", question))} if has_second else set()
    shown = next(
        at for at, letter in enumerate(f"{ascii_uppercase}-") if letter not in named
    )
    # Two letters may be the points of a figure, so two options count only if each begins a line.
    if shown > 2 or (shown == 2 and _TWO_LINES.search(question)):
        # Every letter of `A, C` or `ACD` must be an option.
        letters = letters_in(label) or [label]
        return any(option_letter(letter, shown) is None for letter in letters)
    letter = re.fullmatch(
        r"\W*(?:(?:(?i:option|choice)|\\text\w*\{)\W*)?([A-E])(?:\W*|[).:]\W.*)", label
    )
    return letter is not None and letter[1] not in _letters(question)


def _is_in_other_unit(question: str, label: str) -> bool:
    """Return whether the label has another unit than the question asks for."""
    unit = split_unit(tidy(label))[1] if re.search(r"[a-z°$]", label) else ""
    if not unit.isalpha():
        return False
    words = _UNIT_ASKED.findall(question)
    units = {split_unit(f"5 {word.lower()}")[1] for word in words}
    # Counted things, as in `how many apples`, are no unit that a label has to have.
    asked = {name for name in units if name and COUNTED not in name}
    return bool(asked) and unit not in asked


def _has_more_decimals(question: str, label: str) -> bool:
    """Return whether the label has more decimals than the question asks for."""
    digits = re.fullmatch(r"\W*\d+\.(\d+)\W*", label)
    asked = _DIGITS_ASKED.search(question) if digits is not None else None
    if digits is None or asked is None:
        return False
    name = (asked[1] or asked[2]).lower()
    places = [at for at, names in enumerate(_PLACES) if name in names.split()]
    return bool(places) and len(digits[1].rstrip("0")) > places[0]


def _is_not_reduced(question: str, label: str) -> bool:
    """Return whether the label is a reducible fraction although the question asks for a reduced one."""
    parts = re.fullmatch(r"\W*(?:\\[dt]?frac\{(\d+)\}\{(\d+)\}|(\d+)/(\d+))\W*", label)
    if parts is None:
        return False
    numbers = [int(part) for part in parts.groups() if part]
    return math.gcd(*numbers) > 1 and _REDUCED_ASKED.search(question) is not None


def _is_told(question: str, label: str) -> bool:
    """Return whether the question gives away its answer: it ends with the label as the answer, or equals the label."""
    match = _TOLD.search(question[-len(label) - 40 :])
    # The answer is empty if the question only ends in an instruction: `Answer:` or an empty box.
    answer = match and (match[1] or match[2])
    return label == question or (answer and answer.strip("$ ")) == label.strip("$ ")


_IS_CODE = _searcher(_CODE)
_MADE = [(re.compile(in_label).fullmatch, _searcher(asked)) for in_label, asked in _CHANGED]
_IN_EITHER = [(kind, re.compile(pattern).search) for kind, pattern in _DAMAGED]
_IN_BOTH = [
    # Only questions need `_searcher`: `doubts` has already cut the label to its ends.
    (
        kind,
        re.compile(in_label, re.DOTALL).search,
        _searcher(in_question, _LONGEST_QUESTION),
    )
    for kind, in_label, in_question in _UNFIT
]
_OTHERS = [
    *(("letter", _has_other_letters), ("option", _is_no_option)),
    *(
        ("unit", _is_in_other_unit),
        ("form", _has_more_decimals),
        ("form", _is_not_reduced),
        ("told", _is_told),
    ),
]
_OF_NUMBERS = [("option", _is_no_option), ("told", _is_told)]
"""The tests of `_OTHERS` that a whole number without a sign can fail."""

DOUBTS = frozenset(kind for kind, *_ in (*_DAMAGED, *_UNFIT, *_OTHERS))
"""All kinds of findings that `doubts` may return."""
