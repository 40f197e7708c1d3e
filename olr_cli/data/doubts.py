r"""What one question and its label give away without a model: the text is damaged, or they do not fit each other."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from string import ascii_uppercase

from olr_cli.answers.classes import COUNTED
from olr_cli.answers.extraction import boxed, option_letter
from olr_cli.answers.notation import tidy
from olr_cli.answers.units import split_unit

_COUNT = (
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\\w{3,5}teen|twenty|thirty|forty|fifty|sixty"
    "|seventy|eighty|ninety|hundred|thousand|million|billion|half|halves|thirds?|quarters?|dozen"
)
_BOX = "\\boxed"
_OPTION = re.compile(r"(?:^|[\s({$])([A-Z])[).:]")
_DRAWING = re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL)
_LETTER = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z'’])")
_USUAL = set("eidCnkt")
"""Constants, and what solutions name by themselves."""
_ASKED_UNIT = re.compile(r"(?i)\b(?:in|how many) ([a-z°]{1,12})\b")
_ASKED_DIGITS = re.compile(r"(?i)\b(\d|one|two|three|four) decimal|nearest (whole|integer|\w*th)\b")
_PLACES: Mapping[str, int] = {
    "whole": 0,
    "integer": 0,
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "tenth": 1,
    "hundredth": 2,
    "thousandth": 3,
}
_FORMS = [
    (re.compile(label).fullmatch, re.compile(question, re.IGNORECASE).search)
    for label, question in (
        (r"\W*0?\.\d+\W*", r"(?:as|in) (?:a )?percent|what percent"),
        (r"\W*\d*\.\d*[1-9]\W*", r"\b(?:as|is) an? (?:\w+ )?fraction|in terms of \W*pi\b"),
        (r".*(?:frac|\d/\d).*", r"\bas a decimal|\bin decimal"),
        (r".*\\pi.*", r"\bin degrees"),
        (r".*(?:°|\\circ).*", r"\bin radians"),
    )
]
"""Forms of labels, and questions that ask for another one."""
_ASKED_REDUCED = re.compile(r"(?i)\bsimplif|\breduced\b|lowest terms|simplest")
_TOLD = re.compile(r"(?i)(?:\banswer(?: is|:)|####|\\boxed\{)\s*(.*?)[}.\s]*$|=\s*([\d.,/]+)\s*\?\s*$")
_LOST = re.compile(
    "\a(?:lpha|ngle|pprox|rc|st)|\b(?:ar|eta|egin|inom|ig|mod|oxed|ullet)|\v(?:ec|ar|ert|dots|ee)"
    "|\f(?:rac|orall|lat|box|loor)|\t(?:ext|imes|an|au|heta|o|frac|riangle)(?![a-z])|\n(?:eq|abla)(?![a-z])"
    "|\r(?:ight|ho|angle)(?![a-z])"
)
_CONTROL = re.compile("[\0-\b\v\f\x0e-\x1f\x7f-\x9f]")
_HIDDEN = re.compile("[\xad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]")


def _lost(question: str, label: str) -> bool:
    return _LOST.search(question) is not None or _LOST.search(label) is not None


def _invisible(question: str, label: str) -> bool:
    """Zero-width characters are harmless in a question."""
    found = _CONTROL.search(question) or _CONTROL.search(label) or _HIDDEN.search(label)
    return found is not None and not _lost(question, label)


def boxes(solution: str) -> list[str]:
    r"""What the boxes of a worked solution hold that differ, the last first."""
    found: list[str] = []
    while (answer := boxed(solution)) is not None:
        found.append(answer)
        solution = solution[: solution.rindex(_BOX, 0, solution.rindex(answer))]
    return list(dict.fromkeys(found))


def _in_label(pattern: str) -> Callable[[str, str], bool]:
    find = re.compile(pattern, re.DOTALL).search
    return lambda _, label: find(label) is not None


def _in_both(pattern: str) -> Callable[[str, str], bool]:
    find = re.compile(pattern, re.DOTALL).search
    return lambda question, label: find(question) is not None or find(label) is not None


def _mismatched(label: str, question: str) -> Callable[[str, str], bool]:
    """The label is of one form, and the question asks for another."""
    is_other, asks = re.compile(label, re.DOTALL).fullmatch, re.compile(question, re.DOTALL).search
    return lambda asked, given: is_other(given) is not None and asks(asked) is not None


def _is_cut(_: str, label: str) -> bool:
    """A bracket is missing, or what follows an operator; `[0, 1)` has all, and so has what a dot closes."""
    brackets = (sum(map(label.count, signs)) for signs in ("([{", ")]}"))
    pairs = [brackets, *(map(label.count, names) for names in (("\\left", "\\right"), ("\\begin", "\\end")))]
    is_open = (
        any(opened != closed for opened, closed in pairs) or label.replace("\\$", "").count("$") % 2 == 1
    )
    is_open &= "\\right." not in label and "\\left." not in label
    return is_open or re.search(r"(?:[-*/=,^_]|\\[a-z]*frac|\\text)\s*$", label) is not None


def _letters(text: str) -> set[str]:
    """Letters that stand alone, as variables do."""
    return {*_LETTER.findall(re.sub(r"\\text\w*\{[^}]*\}", " ", text))}


def _other_letters(question: str, label: str) -> bool:
    """The label gives a value to a letter, or consists of letters, that the question does not have."""
    if (named := re.fullmatch(r"\W*([A-Za-z])\s*=[^=A-Za-z]*\d[^=A-Za-z]*", label)) is not None:
        return named[1] not in _letters(question)
    used = _letters(label) - _USUAL if "=" not in label else set()
    there = _letters(question) - {"a", "A", "I"} if len(used) > 1 else set()
    return bool(there) and used.isdisjoint(there)


def _no_option(question: str, label: str) -> bool:
    """The question shows options and the label names none of them; or it is the letter of one where there are none."""
    has_second = any(mark in question for mark in ("B)", "B.", "B:"))
    named = {*_OPTION.findall(_DRAWING.sub("", question))} if has_second else set()
    shown = next(at for at, letter in enumerate(f"{ascii_uppercase}-") if letter not in named)
    if shown > 2:
        return option_letter(label, shown) is None
    letter = re.fullmatch(
        r"\W*(?:(?:(?i:option|choice)|\\(?:text|math)\w*\{)\W*)?([A-E])(?:\W*|[).:]\W.*)", label
    )
    return letter is not None and letter[1] not in _letters(question)


def _other_unit(question: str, label: str) -> bool:
    unit = split_unit(tidy(label))[1] if re.search(r"[a-z°$]", label) else ""
    words = _ASKED_UNIT.findall(question) if re.fullmatch(r"[^\W\d_]+", unit) else []
    asked = {split_unit(f"5 {word.lower()}")[1] for word in words}
    known = {one for one in asked if one and COUNTED not in one}
    return bool(known) and unit not in known


def _other_form(question: str, label: str) -> bool:
    """The label has more digits than the question asks for, is not reduced, or is no fraction, decimal, percentage …"""
    if any(is_other(label) and asks(question) for is_other, asks in _FORMS):
        return True
    digits = re.fullmatch(r"\W*\d+\.(\d+)\W*", label)
    if digits and (asked := _ASKED_DIGITS.search(question)):
        name = (asked[1] or asked[2]).lower()
        return len(digits[1].rstrip("0")) > (int(name) if name.isdecimal() else _PLACES.get(name, 99))
    parts = re.fullmatch(r"\W*(?:\\[dt]?frac\{(\d+)\}\{(\d+)\}|(\d+)/(\d+))\W*", label)
    numbers = [int(part) for part in parts.groups() if part] if parts else []
    return math.gcd(*numbers) > 1 and _ASKED_REDUCED.search(question) is not None


def _told(question: str, label: str) -> bool:
    if label.strip() == question.strip():
        return True
    told = _TOLD.search(question[-len(label) - 40 :])
    return told is not None and (told[1] or told[2]).strip("$ ") == label.strip("$ ")


DOUBTS: Mapping[str, tuple[str, Callable[[str, str], bool]]] = {
    "backslash": (r"row with a lost backslash, as of \frac or \text, which JSON writes twice", _lost),
    "invisible": ("row with control or invisible characters", _invisible),
    "encoding": (
        "row with wrongly decoded characters",
        _in_both("Ã[\x80-\xbf—]|Â[\xa0-\xbf]|â[€\x80ˆ‰†]|ï»¿|ï¿½|\ufffd"),
    ),
    "html": (
        "row with HTML",
        _in_both(
            r"(?i)</(?:b|i|u|p|em|strong|div|span|sub|sup|table|tr|td|a|li|[uo]l)>|<(?:br|img)\b|&(?:[lg]t|amp|nbsp|#\d+);"
        ),
    ),
    "cut": ("label cut off, or with a bracket missing", _is_cut),
    "marks": (
        "label with marks around it",
        _in_label(r"""^\s*(?:\[\s*[-+]?[\d./]+\s*\]|[\[{(]\s*["'].*|(["']).*\1|.*\\\\|.*\?)\s*$"""),
    ),
    "remark": (
        "label with a remark",
        _in_label(
            r"^\W*\d[^()]*\s\([^()]*[a-z]{3}[^()]*\)\W*$|\b(?i:because|since|hence|therefore|answer|ans|note)\b"
        ),
    ),
    "sentence": ("label in a sentence", _in_label(r"(?:(?<![\\A-Za-z])[A-Za-z'’]{2,}[^A-Za-z'’\\]+){6}")),
    "nothing": (
        "label saying that there is no answer",
        _in_label(
            r"(?i)\b(?:undefined|no (?:real |integer |such )?(?:solutions?|answers?|roots?|values?)|does ?n[o'’]t exist"
            r"|dne|can(?:not|'t) be|impossible|insufficient|not possible)\b|\\emptyset|\\varnothing|∅"
        ),
    ),
    "several": (
        "label with several answers",
        _in_label(
            r"\d.*\b(?i:or)\b.*\d|=.*\band\b.*=|^\W*[A-E]\W+(?:(?:and|or)\W+)?[A-E]\W*$"
            r"|^[\d.,/%\s-]+(?:=|≈|\\approx)[\d.,/%\s-]+$"
        ),
    ),
    "estimate": (
        "label giving a range or an estimate",
        _in_label(
            r"(?i)^\W*(?:about|approx\w*\.?|around|roughly|nearly|almost|between|at (?:least|most)|(?:more|less) than"
            r"|up to|over|under|\\approx|\\sim|[~≈])\s*\$?\d|^\W*\d[\d.,]*\s*(?:[–—~]|to)\s*\$?\d[\d.,]*\W*$"
            r"|\d[\s,]*(?:\.{3}|…|\\l?dots)\W*$"
        ),
    ),
    "number_word": (
        "label spelling a number in words",
        _in_label(rf"(?i)^\W*(?:\\text\w*\{{)?(?:(?:{_COUNT}|and)[\s-]*)+\W*$"),
    ),
    "letter": ("label in letters that its question does not have", _other_letters),
    "option": ("label naming no option of its question", _no_option),
    "unit": ("label in another unit than asked for", _other_unit),
    "form": ("label in another form than asked for", _other_form),
    "no_number": (
        "label without a number, where one is asked for",
        _mismatched(
            rf"(?i)\s*(?!.*\b(?:{_COUNT}|infini\w*|none|no)\b)[a-z][a-z ]{{2,}}",
            r"(?i)\b(?:how (?:many|much|far|old|long|tall)|number of)\b[^.?!]*[.?!]\W*$",
        ),
    ),
    "negative": (
        "label below 0 for a count or a size",
        _mismatched(
            r"\W*-\d[\d.,/]*\W*",
            r"(?i)\b(?:how (?:many|far|old|long|tall)|(?:find|is) the (?:\w+ )?(?:length|area|volume|perimeter|distance"
            r"|probability))\b[^.?!]*[.?!]\W*$",
        ),
    ),
    "to_prove": (
        "question asking for a proof",
        _mismatched(
            r".*", r"(?i)(?:^|[.!?] )\W*(?:prove|show) (?:that|it)\b(?!.*\b(?:find|what|determine|how)\b)"
        ),
    ),
    "yes_no": (
        "label with a number, where yes or no is asked for",
        _mismatched(
            r"\W*\d[\d.,]*\W*",
            r"(?:^|[.?!]\s)\s*(?:Is|Are|Does|Do|Did|Has|Have|Were)\b(?![^?]*\b(?:or|how|what|which)\b)[^.?!]*\?\W*$",
        ),
    ),
    "told": ("question saying its answer", _told),
}
"""Kind -> what is wrong, and whether it is so, given the question and its label."""
