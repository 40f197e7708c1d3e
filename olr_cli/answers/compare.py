"""Compare two forms: the part of a verdict that needs no text (R7)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from operator import attrgetter

from olr_cli.answers.classes import COUNTED, Form, approximate, exact
from olr_cli.answers.names import names_value
from olr_cli.answers.units import is_connective

_FILLER = re.compile(r"^(?:there (?:is|are|exists?) )?(?:(?:the|an?) )?|s? exists?$")
_MOST_COMPARED = 50
"""Largest number of list elements that are compared pairwise."""


_NAMED = re.compile(r"(.*?)(\((?!\\?[a-z]+\)).+\)|_.+|(?<=angle).+|[A-Z]{2,4}\W?)")


def may_match(gold: Form, answer: Form) -> bool:
    """Whether two forms that do not match rest on guesses, or another reading of theirs does match."""
    if not gold.is_told_from(answer) or _is_abbreviation(gold, answer):
        return True
    kinds = {gold.kind, answer.kind}
    # The set may be of the solutions.
    if kinds == {"equation", "set"}:
        return True
    pairs = [(other, answer) for other in gold.others]
    pairs += [(gold, other) for other in answer.others]
    # An equal value under another name is not proved wrong.
    if kinds != {"equation"}:
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
    if gold.kind == answer.kind and gold.kind in (
        "quantity",
        "tuple",
        "matrix",
        "interval",
    ):
        # Of one unit, or of one size.
        is_alike = gold.label == answer.label and len(gold.parts) == len(answer.parts)
        return is_alike and all(
            compare(a, b) or is_near(a, b, tolerance)
            for a, b in zip(gold.parts, answer.parts, strict=True)
        )
    # Integers are exact: 7 is no rounding of 8.
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
    """Return the verdict about two forms; None if computer algebra has to compare what they were read from."""
    # Most pairs are of two numbers, each of which has one label.
    if gold.kind == answer.kind == "number":
        return gold.label == answer.label
    gold, answer = _without_names(gold, answer)
    kinds = {gold.kind, answer.kind}
    if "quantity" in kinds:
        # `5 cm` and 5, `5 cm` and `5 kg`.
        return _compare_quantities(gold, answer)
    if "percent" in kinds:
        # `50\%` and 50, `50\%` and 0.5.
        return _is_percentage(gold, answer)
    if gold.key == answer.key:
        return True
    match gold.kind, answer.kind:
        case ("text", _) | (_, "text"):
            return None
        # `x \equiv 2 \pmod 5` and 2.
        case ("congruence", _) | (_, "congruence"):
            return _compare_congruences(gold, answer)
        # `no solution` and `\emptyset`.
        case ("word", "word" | "set") | ("set", "word"):
            return _compare_words(gold, answer)
        # `x = 1, y = 2` and `(1, 2)`.
        case ("system", _) | (_, "system"):
            return _compare_systems(gold, answer)
        case ("other", _) | (_, "other"):
            return None
        case ("equation", "equation") if not (
            " = " in gold.label and " = " in answer.label
        ):
            return None  # without the sign its label is that of a text
        # `(1, 2)` and a matrix of one row or one column.
        case ("tuple" | "interval", "matrix") | ("matrix", "tuple" | "interval"):
            return _compare_parts(
                _as_matrix(gold, answer.label), _as_matrix(answer, gold.label)
            )
    return _compare_parts(gold, answer)


def _compare_quantities(gold: Form, answer: Form) -> bool | None:
    """Compare what two forms measure, of which one at least has a unit; None where units may be converted."""
    value, other = _measured(gold), _measured(answer)
    if _is_one_unit(gold, answer):
        return compare(value, other)
    # 500 g may be 0.5 kg; `5 m` is not `5 s`.
    is_converted = value != other  # 500 g for 0.5 kg
    return None if is_converted or _may_be_one_unit(gold.label, answer.label) else False


def _is_percentage(gold: Form, answer: Form) -> bool:
    """Compare by value, of which one at least is a percentage.

    A gold with the sign also takes its numeral alone, and one without it the sign only if it is a share.
    """
    if gold.kind == "percent":
        return gold.key == answer.key or gold.parts[0] == answer
    return gold.key == answer.key and 0 <= exact(answer) <= 100


def _compare_parts(gold: Form, answer: Form) -> bool | None:
    """Compare two forms by their parts: those of two kinds or shapes differ, unless that is not sure."""
    if gold.kind != answer.kind or gold.label != answer.label:
        if any(part.kind == "other" for part in (*gold.parts, *answer.parts)):
            return None
        is_list = {gold.kind, answer.kind} == {"tuple", "set"}
        return (
            None
            if is_list and _compare_unordered(gold.parts, answer.parts) is not False
            else False
        )
    if gold.kind in ("set", "union"):
        return _compare_unordered(gold.parts, answer.parts)
    has_parts = gold.kind in ("tuple", "interval", "matrix")
    return has_parts and _compare_ordered(gold.parts, answer.parts)


def _without_names(gold: Form, answer: Form) -> tuple[Form, Form]:
    """Return two forms made comparable: where one has no name for its value, the other's name is dropped."""
    gold, answer = _without_letters(gold, answer)
    match gold.kind, answer.kind:
        # `f(3) = 5` for `f(2) = 5` is another statement, and is not proved wrong (`may_match`).
        case "assignment", "assignment" if _are_two(gold, answer):
            return gold.parts[0], Form("equation", answer.label)
        case "equation", "assignment":
            # As an equation, where it can be one: `y = 2x` for `y - 2x = 0`.
            return gold, answer.parts[-1]
        case "assignment", "assignment":
            return gold.parts[0], answer.parts[0]
        # `x = 5` for 5.
        case _, "assignment":
            return gold, answer.parts[0]
        case "assignment", "equation":
            gold = gold.parts[-1]
        case "assignment", _:
            gold = gold.parts[0]
    # `m + n = 25` for 25, and 25 for `m + n = 25`.
    if gold.kind != "equation" and names_value(answer, is_gold=False):
        return gold, answer.parts[0]
    if answer.kind != "equation" and names_value(gold, is_gold=True):
        return gold.parts[0], answer
    return gold, answer


def _without_letters(gold: Form, answer: Form) -> tuple[Form, Form]:
    """Return two forms without the letters of options before their texts, unless both have a letter to compare."""
    both = gold, answer
    if all(form.kind in ("choice", "word") and len(form.label) == 1 for form in both):
        return both
    gold, answer = (form.parts[0] if form.kind == "choice" else form for form in both)
    return gold, answer


def _are_two(one: Form, other: Form) -> bool:
    """Whether two names are of two values: `f(2)` and `f(3)`, `AB` and `CD`. A symbol or `f(x)` may be any."""
    labels = (
        form.label.replace("\\triangle", "").replace("\\mid", "|") for form in (one, other)
    )
    a, b = map(_NAMED.fullmatch, labels)
    if not (a and b):
        return False
    (head, rest), (other_head, other_rest) = a.groups(), b.groups()
    # E(X) is not D(X), but AB may be |AB|.
    if head != other_head:
        is_call = rest[0] == other_rest[0] == "("
        return is_call and head.casefold() != other_head.casefold()
    # Angle A may be angle BAC.
    if "angle" in head:
        return rest != other_rest and len(rest) == len(other_rest)
    # AB is BA.
    is_turned = rest.strip("_|]").isalpha() and sorted(rest) == sorted(other_rest)
    return rest != other_rest and not is_turned


def is_left_to_algebra(form: Form) -> bool:
    """Whether what a form says, or a part of it, was not read but in computer algebra's own terms."""
    # `x = 5` is read; that it is an equation, too, is for a gold that is one.
    parts = form.parts[:1] if form.kind == "assignment" else form.parts
    return form.kind in ("text", "other", "equation", "congruence") or any(
        map(is_left_to_algebra, parts)
    )


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
    expected, said = (
        _FILLER.sub("", form.label).removesuffix("s") for form in (gold, answer)
    )
    if gold.kind != answer.kind:
        # A word and a set: the label of a set is empty.
        is_empty = not (gold.parts or answer.parts)
        return is_empty and f"{expected}{said}".startswith("no ")
    # `isosceles triangle` for `isosceles`.
    adjective, _, noun = said.partition(" ")
    has_noun = noun.isalpha() and len(adjective) > 2 and not is_connective(noun)
    return expected == said or (has_noun and expected == adjective.removesuffix("s"))


def _compare_congruences(gold: Form, answer: Form) -> bool | None:
    """Compare congruences of integers, or one and an integer, which may say its remainder or be one of many."""
    congruence, other = (gold, answer) if gold.kind == "congruence" else (answer, gold)
    # Letters, as in `a \bmod n`, are for computer algebra.
    others = other.parts if other.kind == "congruence" else (other,)
    if any(form.kind != "number" for form in (*congruence.parts, *others)):
        return None
    if other.kind == "congruence":
        return False
    remainder, modulus, value = map(exact, (*congruence.parts, other))
    if (value - remainder) % modulus:
        return False
    return True if abs(value) < modulus else None


def _as_matrix(form: Form, shape: str) -> Form:
    """A tuple of rows as a matrix, and a tuple of numbers as one of a row or a column, whichever has that shape."""
    if form.kind == "matrix":
        return form
    rows = [
        part.parts if part.kind in ("tuple", "interval") else (part,) for part in form.parts
    ]
    label = f"{len(rows)}x{len(rows[0])}"
    entries = tuple(entry for row in rows for entry in row)
    # Of numbers it is a column, unless the other matrix is a row of as many.
    is_row = shape == f"1x{len(rows)}" == f"1x{len(entries)}"
    return Form("matrix", shape if is_row else label, entries)


def _compare_systems(gold: Form, answer: Form) -> bool | None:
    """Compare values of several names with those of others, a tuple, or values without names."""
    if {gold.kind, answer.kind} <= {"system", "tuple"}:
        return _compare_by_name(gold, answer)
    system, other = (gold, answer) if gold.kind == "system" else (answer, gold)
    alone = list(other.parts) if other.kind == "set" else [other]
    # `x_1 = 2, y_1 = 1; x_2 = 3, y_2 = 4` and a set of pairs.
    if {part.kind for part in alone} <= {"tuple", "system"}:
        values = _solutions(system)
    else:
        values = [part.parts[0] for part in system.parts]
    distinct = list({value.key: value for value in values}.values())
    if system is gold:
        return _compare_unordered(distinct, alone)
    return _compare_unordered(alone, distinct)


def _compare_by_name(gold: Form, answer: Form) -> bool | None:
    """Compare values by name, else in the order in which they are written; None for `b=2, a=1` and `(1, 2)`."""
    named = {part.label: part for part in answer.parts}
    if named.keys() == {part.label for part in gold.parts}:
        return _compare_ordered(gold.parts, [named[part.label] for part in gold.parts])
    verdict = _compare_ordered(gold.parts, answer.parts)
    if verdict:
        return True
    # A pair may be in the order of the names, in which the values are not written.
    by_name = (_in_order_of_names(form) for form in (gold, answer))
    return None if _compare_ordered(*by_name) else verdict


def _in_order_of_names(form: Form) -> Sequence[Form]:
    return (
        form.parts if form.kind == "tuple" else sorted(form.parts, key=attrgetter("label"))
    )


def _solutions(system: Form) -> list[Form]:
    """The values of names with an index together: (2, 1) and (3, 4) of `x_1=2, y_1=1; x_2=3, y_2=4`."""
    numbered: dict[str, list[Form]] = {}
    for part in system.parts:
        numbered.setdefault(part.label.partition("_")[2], []).append(part.parts[0])
    return [Form("tuple", parts=tuple(values)) for values in numbered.values()]


def _compare_ordered(gold: Sequence[Form], answer: Sequence[Form]) -> bool | None:
    """Compare element by element; one that differs decides, else one that is open."""
    if len(gold) != len(answer):
        return False
    verdicts = [compare(x, y) for x, y in zip(gold, answer, strict=True)]
    # One pair that differs decides, whatever is open beside it.
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _compare_unordered(gold: Sequence[Form], answer: Sequence[Form]) -> bool | None:
    """Compare lists in any order: every element needs a partner of its own."""
    if len(gold) != len(answer):
        return False
    # Nearly all elements have a partner of their class, which is found without comparing.
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
