"""Compare two forms: the part of a verdict that needs no text (R7)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from operator import attrgetter

from olr_cli.answers.classes import COUNTED, Form, approximate, exact
from olr_cli.answers.reading import names_value
from olr_cli.answers.units import is_connective

_FILLER = re.compile(r"^(?:there (?:is|are|exists?) )?(?:(?:the|an?) )?|s? exists?$")


_MOST_COMPARED = 50
"""Largest number of list elements that are compared pairwise."""


_NAMED = re.compile(r"(.*?)(\((?!\\?[a-z]+\)).+\)|_.+|(?<=angle).+|[A-Z]{2,4}\W?)")


def may_match(gold: Form, answer: Form) -> bool:
    """Whether two forms that do not match rest on guesses, or another reading of theirs does match."""
    if not gold.is_told_from(answer) or _is_abbreviation(gold, answer):
        return True
    pairs = [
        *((other, answer) for other in gold.others),
        *((gold, other) for other in answer.others),
    ]
    if {gold.kind, answer.kind} == {"equation", "set"}:  # its solutions, perhaps
        return True
    if {gold.kind, answer.kind} != {
        "equation"
    }:  # an equal value under another name is not proved wrong
        pairs.append((_unnamed(gold), _unnamed(answer)))
    return any(compare(*pair) for pair in pairs)


_CALENDAR = re.compile(
    "mon|tue|wed|thu|fri|sat|sun|jan|feb|mar|apr|jun|jul|aug|sep|oct|nov|dec"
)


def _is_abbreviation(gold: Form, answer: Form) -> bool:
    """Whether one of two words begins the other, and both are of a calendar: `Tue` and `Tuesday`."""
    short, long = sorted((gold.label, answer.label), key=len)
    return (
        gold.kind == answer.kind == "word"
        and long.startswith(short)
        and bool(_CALENDAR.match(short))
    )


def is_near(gold: Form, answer: Form, tolerance: Fraction) -> bool:
    """Whether two numbers, or the entries of two tuples, differ by no more than a part of the gold's."""
    gold, answer = _without_names(gold, answer)
    if gold.kind == answer.kind and gold.kind in ("quantity", "tuple", "matrix", "interval"):
        is_alike = gold.label == answer.label and len(gold.parts) == len(answer.parts)
        return is_alike and all(
            compare(a, b) or is_near(a, b, tolerance)
            for a, b in zip(gold.parts, answer.parts, strict=True)
        )
    value, said = approximate(_measured(gold)), approximate(_measured(answer))
    if value is None or said is None or value.denominator == said.denominator == 1:
        return False
    return abs(value - said) <= tolerance * abs(value)


def _unnamed(form: Form) -> Form:
    """The value of a form, or its solutions, whatever they are called."""
    if form.kind == "system":
        return Form("set", parts=tuple(_solutions(form)))
    return form.parts[0] if form.kind in ("assignment", "equation") and form.parts else form


def compare(gold: Form, answer: Form) -> bool | None:
    """The verdict about two forms; None if computer algebra has to compare what they were read from."""
    gold, answer = _without_names(gold, answer)
    kinds = {gold.kind, answer.kind}
    if "quantity" in kinds:
        if _is_one_unit(gold, answer):
            return compare(_measured(gold), _measured(answer))
        is_converted = _measured(gold) != _measured(answer)  # 500 g for 0.5 kg
        return None if is_converted or _may_be_one_unit(gold.label, answer.label) else False
    if (
        "percent" in kinds
    ):  # by value; a gold with the sign also by its numeral, one without if it is a share
        is_shown = gold.kind == "percent"
        is_share = is_shown or 0 <= exact(answer) <= 100
        return (gold.key == answer.key and is_share) or (is_shown and gold.parts[0] == answer)
    if gold.key == answer.key:
        return True
    if "text" in kinds:
        return None
    if "congruence" in kinds:
        return _compare_congruences(gold, answer)
    if kinds <= {"word", "set"} and "word" in kinds:
        return _compare_words(gold, answer)
    if "system" in kinds:
        return _compare_systems(gold, answer)
    if "other" in kinds or (
        kinds == {"equation"} and not all(" = " in form.label for form in (gold, answer))
    ):
        return None  # an equation without the sign has the label of a text
    if kinds & {"tuple", "interval"} and "matrix" in kinds:
        gold, answer = _as_matrix(gold, answer.label), _as_matrix(answer, gold.label)
    if gold.kind != answer.kind or gold.label != answer.label:
        is_list = (
            kinds == {"tuple", "set"}
            and _compare_unordered(gold.parts, answer.parts) is not False
        )
        return (
            None
            if is_list or any(part.kind == "other" for part in (*gold.parts, *answer.parts))
            else False
        )
    if gold.kind in ("set", "union"):
        return _compare_unordered(gold.parts, answer.parts)
    return gold.kind in ("tuple", "interval", "matrix") and _compare_ordered(
        gold.parts, answer.parts
    )


def _without_names(gold: Form, answer: Form) -> tuple[Form, Form]:
    """Two forms made comparable: where one has no name for its value, the other's name is dropped."""
    if not all(
        form.kind in ("choice", "word") and len(form.label) == 1 for form in (gold, answer)
    ):
        gold, answer = (
            form.parts[0] if form.kind == "choice" else form for form in (gold, answer)
        )
    if gold.kind == answer.kind == "assignment" and _are_two(gold, answer):
        return gold.parts[0], Form("equation", answer.label)
    if gold.kind == "assignment":
        gold = (
            gold.parts[1]
            if answer.kind == "equation" and len(gold.parts) > 1
            else gold.parts[0]
        )
    elif gold.kind == "equation" and answer.kind == "assignment" and len(answer.parts) > 1:
        return gold, answer.parts[1]
    if answer.kind == "assignment" or (
        gold.kind != "equation" and names_value(answer, is_gold=False)
    ):
        answer = answer.parts[0]
    elif answer.kind != "equation" and names_value(gold, is_gold=True):
        gold = gold.parts[0]
    return gold, answer


def _are_two(one: Form, other: Form) -> bool:
    """Whether two names are of two values: `f(2)` and `f(3)`, `AB` and `CD`. A symbol or `f(x)` may be any."""
    labels = (
        form.label.replace("\\triangle", "").replace("\\mid", "|") for form in (one, other)
    )
    a, b = map(_NAMED.fullmatch, labels)
    if not (a and b):
        return False
    if a[1] != b[1]:  # E(X) is not D(X), but AB may be |AB|
        return a[2][0] == b[2][0] == "(" and a[1].casefold() != b[1].casefold()
    if "angle" in a[1]:  # angle A may be angle BAC
        return a[2] != b[2] and len(a[2]) == len(b[2])
    return a[2] != b[2] and not (a[2].strip("_|]").isalpha() and sorted(a[2]) == sorted(b[2]))


def _measured(form: Form) -> Form:
    return form.parts[0] if form.kind == "quantity" else form


def _is_one_unit(gold: Form, answer: Form) -> bool:
    """Whether two forms are measured alike; one may lack the unit, and what is only counted have any noun."""
    if gold.kind != answer.kind or gold.label == answer.label:
        return True
    is_counted = gold.label.startswith(COUNTED) and answer.label.startswith(COUNTED)
    return is_counted and gold.parts[0].kind != "percent"


_DERIVED = re.compile(r"(?:^|.*[a-z])(?:N|J|W|Pa|V|C|F|H|T|Wb|ohm|Hz|M|L|Bq|Sv)")


def _may_be_one_unit(one: str, other: str) -> bool:
    """Whether one of two units may be derived from the other's: J and N m."""
    is_product = [" " in unit or "^" in unit for unit in (one, other)]
    simple = other if is_product[0] else one
    return is_product[0] != is_product[1] and _DERIVED.fullmatch(simple) is not None


def _compare_words(gold: Form, answer: Form) -> bool:
    """Compare words by meaning: `no solution` is the empty set, and an adjective may have its noun."""
    expected, said = (_FILLER.sub("", form.label).removesuffix("s") for form in (gold, answer))
    if gold.kind != answer.kind:
        return not (gold.parts or answer.parts) and f"{expected}{said}".startswith("no ")
    adjective, _, noun = said.partition(" ")
    has_noun = noun.isalpha() and len(adjective) > 2 and not is_connective(noun)
    return expected == said or (has_noun and expected == adjective.removesuffix("s"))


def _compare_congruences(gold: Form, answer: Form) -> bool | None:
    """Compare congruences of integers, or one and an integer, which may say its remainder or be one of many."""
    congruence, other = (gold, answer) if gold.kind == "congruence" else (answer, gold)
    numbers = (*congruence.parts, *(other.parts if other.kind == "congruence" else [other]))
    if any(form.kind != "number" for form in numbers):
        return None
    if other.kind == "congruence":
        return False
    remainder, modulus, value = map(exact, numbers)
    return False if (value - remainder) % modulus else True if abs(value) < modulus else None


def _as_matrix(form: Form, shape: str) -> Form:
    """A tuple of rows as a matrix, and a tuple of numbers as one of a row or a column, whichever has that shape."""
    if form.kind == "matrix":
        return form
    rows = [
        part.parts if part.kind in ("tuple", "interval") else (part,) for part in form.parts
    ]
    label = f"{len(rows)}x{len(rows[0])}"
    entries = tuple(entry for row in rows for entry in row)
    return Form(
        "matrix", shape if shape == f"1x{len(rows)}" == f"1x{len(entries)}" else label, entries
    )


def _compare_systems(gold: Form, answer: Form) -> bool | None:
    """Values of several names: by name, or in the order in which they are written."""
    if {gold.kind, answer.kind} <= {"system", "tuple"}:
        named = {part.label: part for part in answer.parts}
        if named.keys() == {part.label for part in gold.parts}:
            return _compare_ordered(gold.parts, [named[part.label] for part in gold.parts])
        verdict = _compare_ordered(gold.parts, answer.parts)
        by_name = [
            form.parts if form.kind == "tuple" else sorted(form.parts, key=attrgetter("label"))
            for form in (gold, answer)
        ]
        return verdict or (
            None if _compare_ordered(*by_name) else verdict
        )  # b=2, a=1 for (1, 2)
    system, other = (gold, answer) if gold.kind == "system" else (answer, gold)
    values = [part.parts[0] for part in system.parts]
    if other.kind == "set" and {part.kind for part in other.parts} <= {"tuple", "system"}:
        values = _solutions(system)
    distinct = list({value.key: value for value in values}.values())
    rest = list(other.parts) if other.kind == "set" else [other]
    return (
        _compare_unordered(distinct, rest)
        if system is gold
        else _compare_unordered(rest, distinct)
    )


def _solutions(system: Form) -> list[Form]:
    """The values of names with an index together: (2, 1) and (3, 4) of `x_1=2, y_1=1; x_2=3, y_2=4`."""
    numbered: dict[str, list[Form]] = {}
    for part in system.parts:
        numbered.setdefault(part.label.partition("_")[2], []).append(part.parts[0])
    return [Form("tuple", parts=tuple(values)) for values in numbered.values()]


def _compare_ordered(gold: Sequence[Form], answer: Sequence[Form]) -> bool | None:
    if len(gold) != len(answer):
        return False
    verdicts = [compare(x, y) for x, y in zip(gold, answer, strict=True)]
    return False if False in verdicts else None if None in verdicts else True


def _compare_unordered(gold: Sequence[Form], answer: Sequence[Form]) -> bool | None:
    """Every element needs a partner of its own."""
    if len(gold) != len(answer):
        return False
    keys = {form.key for form in gold} & {form.key for form in answer}
    rest, others = (
        [form for form in forms if form.key not in keys] for forms in (gold, answer)
    )
    if len(rest) > _MOST_COMPARED:
        return False
    is_open = False
    for element in rest:
        verdicts = [compare(element, other) for other in others]
        if True in verdicts:
            del others[verdicts.index(True)]
        elif None in verdicts:
            is_open = True
        else:
            return False
    return None if is_open else True
