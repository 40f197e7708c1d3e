"""Compare two forms: the part of a verdict that does not need the texts (R7)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from operator import attrgetter

from olr_cli.answers.classes import COUNTED, Form, approximate, exact
from olr_cli.answers.names import names_value
from olr_cli.answers.units import is_connective

# `there is ` in `there is no solution`
_FILLER_WORDS = re.compile(r"^(?:there (?:is|are|exists?) )?(?:(?:the|an?) )?|s? exists?$")
_MOST_COMPARED = 50
"""Longest list whose elements are compared pairwise: the work grows with the square of its length."""

# `f(2)`, `a_1` and `AB`, but not `f(x)`, which may be any value
_INDEXED_NAME = re.compile(r"(.*?)(\((?!\\?[a-z]+\)).+\)|_.+|(?<=angle).+|[A-Z]{2,4}\W?)")


def may_match(gold: Form, answer: Form) -> bool:
    """Return whether two forms (parsed answers) that do not match may still mean the same.

    If the result is True, the answer is not proved wrong. These are the cases:

    1. One form rests on a guess made while reading, or has another reading that matches.
    2. One form abbreviates the weekday or month in the other form.
    3. One form is an equation, and the other is a set that may hold its solutions.
    4. The values match if names are ignored, as in `f(3) = 5` for `f(2) = 5`.
    """
    if not gold.is_told_from(answer) or _is_abbreviation(gold, answer):
        return True
    kinds = {gold.kind, answer.kind}
    # The set may hold the solutions of the equation, which is not solved here.
    if kinds == {"equation", "set"}:
        return True
    pairs = [(reading, answer) for reading in gold.others]
    pairs += [(gold, reading) for reading in answer.others]
    # An equal value under another name is undecided; two equations have no names to drop.
    if kinds != {"equation"}:
        pairs.append((_drop_names(gold), _drop_names(answer)))
    return any(_match_or_convert(*pair) for pair in pairs)


def _match_or_convert(gold: Form, answer: Form) -> bool:
    """Return whether two forms match, or are quantities that `compare` leaves undecided, such as `60 s` and `1 min`."""
    verdict = compare(gold, answer)
    are_quantities = gold.kind == answer.kind == "quantity"
    return are_quantities if verdict is None else verdict


_CALENDAR = re.compile(
    "mon|tue|wed|thu|fri|sat|sun|jan|feb|mar|apr|jun|jul|aug|sep|oct|nov|dec"
)


def _is_abbreviation(gold: Form, answer: Form) -> bool:
    """Return whether one word abbreviates the weekday or month in the other word, as `Tue` abbreviates `Tuesday`."""
    abbreviation, full_word = sorted((gold.label, answer.label), key=len)
    return (
        gold.kind == answer.kind == "word"
        and full_word.startswith(abbreviation)
        and bool(_CALENDAR.match(abbreviation))
    )


def is_near(gold: Form, answer: Form, tolerance: Fraction) -> bool:
    """Return whether a gold and an answer are numbers that differ by at most `tolerance` times the gold.

    Two integers are never near, and two quantities need the same unit. Tuples, intervals and matrices are compared
    entry by entry: each entry must match or be near.
    """
    gold, answer = _make_comparable(gold, answer)
    if gold.kind == answer.kind and gold.kind in (
        "quantity",
        "tuple",
        "matrix",
        "interval",
    ):
        # The label is the unit of a quantity, the shape of a matrix, or the brackets of an interval.
        is_same_shape = gold.label == answer.label and len(gold.parts) == len(answer.parts)
        return is_same_shape and all(
            compare(expected, claimed) or is_near(expected, claimed, tolerance)
            for expected, claimed in zip(gold.parts, answer.parts, strict=True)
        )
    gold_value, answer_value = (
        approximate(_drop_unit(gold)),
        approximate(_drop_unit(answer)),
    )
    if (
        gold_value is None
        or answer_value is None
        # Integers are exact: 7 is no rounding of 8.
        or gold_value.denominator == answer_value.denominator == 1
    ):
        return False
    return abs(gold_value - answer_value) <= tolerance * abs(gold_value)


def _drop_names(form: Form) -> Form:
    """Return the value of a form (a parsed answer), without names.

    An assignment becomes its value. An equation becomes its last side. A system, such as `x = 1, y = 2`, becomes the
    set of its solutions. Any other form is returned as it is.
    """
    if form.kind == "system":
        return Form("set", parts=tuple(_solutions(form)))
    return form.parts[0] if form.kind in ("assignment", "equation") and form.parts else form


def compare(gold: Form, answer: Form) -> bool | None:
    """Return whether an answer is right, given a gold, or None if the two forms alone cannot decide it.

    A `Form` is a parsed answer: its meaning without its spelling.
    """
    # Most pairs are two numbers, and equal numbers have equal labels.
    if gold.kind == answer.kind == "number":
        return gold.label == answer.label
    gold, answer = _make_comparable(gold, answer)
    kinds = {gold.kind, answer.kind}
    if "quantity" in kinds:
        # `5 cm` and 5, or `5 cm` and `5 kg`
        return _compare_quantities(gold, answer)
    if "percent" in kinds:
        # Before the keys are compared: 2 and `200\%` have one key, but the answer `200\%` is not right for 2.
        return _compare_percentages(gold, answer)
    if gold.key == answer.key:
        return True
    match gold.kind, answer.kind:
        case ("text", _) | (_, "text"):
            return None
        # `x \equiv 2 \pmod 5` and 2
        case ("congruence", _) | (_, "congruence"):
            return _compare_congruences(gold, answer)
        # `no solution` and `\emptyset`
        case ("word", "word" | "set") | ("set", "word"):
            return _compare_words(gold, answer)
        # `x = 1, y = 2` and `(1, 2)`
        case ("system", _) | (_, "system"):
            return _compare_systems(gold, answer)
        case ("other", _) | (_, "other"):
            return None
        case ("equation", "equation") if not (
            " = " in gold.label and " = " in answer.label
        ):
            # A label without " = " is the text of an equation that algebra could not read.
            return None
        # `(1, 2)` and a matrix with one row or one column
        case ("tuple" | "interval", "matrix") | ("matrix", "tuple" | "interval"):
            return _compare_parts(
                _as_matrix(gold, answer.label), _as_matrix(answer, gold.label)
            )
    return _compare_parts(gold, answer)


def _compare_quantities(gold: Form, answer: Form) -> bool | None:
    """Return whether a gold and an answer match. At least one of them has a unit. None means undecided.

    If the units are the same, if only one side has a unit, or if both count things such as apples, the values are
    compared. In all other cases, the numbers before the units decide:

    1. If they differ, as in `500 g` and `0.5 kg`, the result is None, because units are not converted.
    2. If they are equal, as in `5 m` and `5 s`, the result is False, or None if the units may be the same, as `J` and
       `N m` are.
    """
    gold_value, answer_value = _drop_unit(gold), _drop_unit(answer)
    if _have_compatible_units(gold, answer):
        return compare(gold_value, answer_value)
    # Units are not converted here: `500 g` may be `0.5 kg`, and `5 J` is `5 N m`. But `5 m` is not `5 s`.
    may_be_converted = gold_value != answer_value
    return None if may_be_converted or _may_be_one_unit(gold.label, answer.label) else False


def _compare_percentages(gold: Form, answer: Form) -> bool:
    r"""Return whether a gold and an answer match if one or both of them are percentages.

    A gold with a percent sign also accepts its numeral alone: 50 for `50\%`. A gold without the sign accepts
    percentages from `0\%` to `100\%` only: `50\%` for 0.5, but not `200\%` for 2.
    """
    if gold.kind == "percent":
        return gold.key == answer.key or gold.parts[0] == answer
    return gold.key == answer.key and 0 <= exact(answer) <= 100


def _compare_parts(gold: Form, answer: Form) -> bool | None:
    """Return whether two forms (parsed answers) have the same kind, the same label and matching parts.

    None means undecided. If the kinds or labels differ, the result is False, except in two cases where it is None:

    1. A part of one form is an expression that algebra could not compute.
    2. One form is a tuple, the other is a set, and their elements match or may match in some order.
    """
    if gold.kind != answer.kind or gold.label != answer.label:
        # An expression that algebra could not compute leaves the whole open.
        if any(part.kind == "other" for part in (*gold.parts, *answer.parts)):
            return None
        # `2, 1` for (1, 2) may just be an ordered pair without its brackets.
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


def _make_comparable(gold: Form, answer: Form) -> tuple[Form, Form]:
    """Return a gold and an answer without names and option letters that would keep them from being compared.

    - A choice with a text, such as `(B) 7`, becomes its text, 7, unless the other side is a choice or a single letter.
    - An assignment becomes its value: 5 for `x = 5`. If the other side is an equation, the equation in the
      assignment's form is taken instead, if it holds one.
    - If both are assignments whose names denote different values, as `f(2)` and `f(3)` do, the answer becomes an
      equation without parts, which matches nothing.
    - An equation that just states its value, as `m + n = 5` does, becomes the value, unless both sides are equations.
    """
    gold, answer = _drop_option_letters(gold, answer)
    match gold.kind, answer.kind:
        # `f(3) = 5` for `f(2) = 5` is another statement. An equation without parts matches nothing here, and
        # `may_match` keeps it undecided.
        case "assignment", "assignment" if _name_different_values(gold, answer):
            return gold.parts[0], Form("equation", answer.label)
        case "equation", "assignment":
            # The last part of an assignment is its equation, if it has one: `y = 2` for `y - 2 = 0`.
            return gold, answer.parts[-1]
        case "assignment", "assignment":
            return gold.parts[0], answer.parts[0]
        # `x = 5` for 5
        case _, "assignment":
            return gold, answer.parts[0]
        case "assignment", "equation":
            gold = gold.parts[-1]
        case "assignment", _:
            gold = gold.parts[0]
    # `m + n = 25` for 25, or 25 for `m + n = 25`
    if gold.kind != "equation" and names_value(answer, is_gold=False):
        return gold, answer.parts[0]
    if answer.kind != "equation" and names_value(gold, is_gold=True):
        return gold.parts[0], answer
    return gold, answer


def _drop_option_letters(gold: Form, answer: Form) -> tuple[Form, Form]:
    """Replace choices such as `(B) 7` by their texts.

    If both parsed answers are a choice or a single letter, return them unchanged, because their letters can be
    compared.
    """
    forms = gold, answer
    if all(form.kind in ("choice", "word") and len(form.label) == 1 for form in forms):
        return forms
    gold, answer = (form.parts[0] if form.kind == "choice" else form for form in forms)
    return gold, answer


def _name_different_values(one: Form, other: Form) -> bool:
    """Return whether the names in two assignments denote different values, as `f(2)` and `f(3)` or `AB` and `CD` do.

    Only names with a fixed index can: a subscript, an argument other than a variable, or the points of a segment or
    angle. `x` and `f(x)` have none and may stand for any value, so for them the result is False. Fixed indices must
    differ in more than the order of their points, or the names must call different functions, as `E(X)` and `D(X)` do.
    """
    labels = (
        form.label.replace("\\triangle", "").replace("\\mid", "|") for form in (one, other)
    )
    match, other_match = map(_INDEXED_NAME.fullmatch, labels)
    if not (match and other_match):
        return False
    (head, rest), (other_head, other_rest) = match.groups(), other_match.groups()
    # E(X) differs from D(X), but AB may be |AB|.
    if head != other_head:
        are_calls = rest[0] == other_rest[0] == "("
        return are_calls and head.casefold() != other_head.casefold()
    # Angle A may be angle BAC, but angle ABC is not angle BAC.
    if "angle" in head:
        return rest != other_rest and len(rest) == len(other_rest)
    # AB is BA.
    has_same_points = rest.strip("_|]").isalpha() and sorted(rest) == sorted(other_rest)
    return rest != other_rest and not has_same_points


def is_left_to_algebra(form: Form) -> bool:
    """Return whether a form (a parsed answer) is not fully understood, and math-verify may decide about it.

    The result is True for texts that could not be read, equations, congruences, inequalities, expressions that could
    not be computed, and forms with such parts.
    """
    # The first part of an assignment is its value. The second is the equation, which algebra has read even for `x = 5`.
    parts = form.parts[:1] if form.kind == "assignment" else form.parts
    return form.kind in ("text", "other", "equation", "congruence") or any(
        map(is_left_to_algebra, parts)
    )


def _drop_unit(form: Form) -> Form:
    """Return the value of a quantity without its unit, or any other form as it is."""
    return form.parts[0] if form.kind == "quantity" else form


def _have_compatible_units(gold: Form, answer: Form) -> bool:
    """Return whether the units of two parsed answers allow comparing the values.

    They do if the units are the same, if only one answer has a unit, or if both answers count things (5 apples, 5
    fruits). Percentages of different things, such as `5% of girls` and `5% of boys`, cannot be compared.
    """
    if gold.kind != answer.kind or gold.label == answer.label:
        return True
    both_count = gold.label.startswith(COUNTED) and answer.label.startswith(COUNTED)
    # `5% of girls` and `5% of boys` are not the same.
    return both_count and gold.parts[0].kind != "percent"


# Symbols of derived units, with or without a prefix: `N`, `kiloPa`
_DERIVED_UNIT = re.compile(r"(?:^|.*[a-z])(?:N|J|W|Pa|V|C|F|H|T|Wb|ohm|Hz|M|L|Bq|Sv)")


def _may_be_one_unit(one: str, other: str) -> bool:
    """Return whether two units may be the same unit in different spellings, as `N m` and `J` are.

    The result is True if one is any product or power of units and the other is any derived unit. Dimensions are not
    checked: `N m` and `W` give True as well.
    """
    are_products = [" " in unit or "^" in unit for unit in (one, other)]
    single_unit = other if are_products[0] else one
    return (
        are_products[0] != are_products[1]
        and _DERIVED_UNIT.fullmatch(single_unit) is not None
    )


def _compare_words(gold: Form, answer: Form) -> bool:
    """Return whether two words, or a word and a set, mean the same, as `no solution` and the empty set do.

    The answer may add a noun to the gold's adjective: `isosceles triangle` for `isosceles`.
    """
    gold_words, answer_words = (
        _FILLER_WORDS.sub("", form.label).removesuffix("s") for form in (gold, answer)
    )
    if gold.kind != answer.kind:
        # One is a set, whose label is empty, so the two labels together are the words.
        is_empty = not (gold.parts or answer.parts)
        return is_empty and f"{gold_words}{answer_words}".startswith("no ")
    # `isosceles triangle` for `isosceles`
    adjective, _, noun = answer_words.partition(" ")
    has_noun = noun.isalpha() and len(adjective) > 2 and not is_connective(noun)
    return gold_words == answer_words or (
        has_noun and gold_words == adjective.removesuffix("s")
    )


def _compare_congruences(gold: Form, answer: Form) -> bool | None:
    """Return whether a congruence of integers matches another congruence or an integer; None if that is undecided.

    For 3 mod 7, the integer 3 is right and 4 is wrong. The integer 10 is undecided, because it may mean just one member
    of the class. Congruences with letters are undecided, too.
    """
    congruence, other_form = (gold, answer) if gold.kind == "congruence" else (answer, gold)
    other_parts = other_form.parts if other_form.kind == "congruence" else (other_form,)
    # Letters, as in `a \bmod n`, are left to computer algebra.
    if any(form.kind != "number" for form in (*congruence.parts, *other_parts)):
        return None
    # Equal congruences have equal keys and never get here.
    if other_form.kind == "congruence":
        return False
    remainder, modulus, value = map(exact, (*congruence.parts, other_form))
    if (value - remainder) % modulus:
        return False
    # For 3 mod 7, the answer 3 names the class. The answer 10 may mean just one of its members: undecided.
    return True if abs(value) < modulus else None


def _as_matrix(form: Form, shape: str) -> Form:
    """Return a tuple as a matrix, so that it can be compared with a matrix.

    A tuple of rows keeps its rows. A tuple of numbers becomes a column, or a row if `shape` is a row of the same
    length. A matrix is returned as it is.

    Args:
        form: a parsed tuple or matrix. An interval counts as a tuple, because `[1, 2]` is read as one.
        shape: rows and columns of the matrix to compare with, such as "1x3".
    """
    if form.kind == "matrix":
        return form
    rows = [
        part.parts if part.kind in ("tuple", "interval") else (part,) for part in form.parts
    ]
    label = f"{len(rows)}x{len(rows[0])}"
    entries = tuple(entry for row in rows for entry in row)
    # A tuple of numbers is a column here, unless the other matrix is a row of the same length.
    is_row = shape == f"1x{len(rows)}" == f"1x{len(entries)}"
    return Form("matrix", shape if is_row else label, entries)


def _compare_systems(gold: Form, answer: Form) -> bool | None:
    """Return whether a system, such as `x = 1, y = 2`, matches another system, a tuple of values or a set of values.

    None means undecided. At least one of the two parsed answers must be a system.
    """
    if {gold.kind, answer.kind} <= {"system", "tuple"}:
        return _compare_by_name(gold, answer)
    system, other_form = (gold, answer) if gold.kind == "system" else (answer, gold)
    other_values = list(other_form.parts) if other_form.kind == "set" else [other_form]
    # `x_1 = 2, y_1 = 1; x_2 = 3, y_2 = 4` and a set of pairs
    if {part.kind for part in other_values} <= {"tuple", "system"}:
        values = _solutions(system)
    else:
        values = [part.parts[0] for part in system.parts]
    system_values = list({value.key: value for value in values}.values())
    if system is gold:
        return _compare_unordered(system_values, other_values)
    return _compare_unordered(other_values, system_values)


def _compare_by_name(gold: Form, answer: Form) -> bool | None:
    """Return whether the values of two systems, or of a system and a tuple, match. None means undecided.

    A system is a list of named values, such as `b = 2, a = 1`. If both sides have the same names, values are paired by
    name, otherwise by position. If the values match only in the alphabetical order of the names, the result is None, as
    for `b = 2, a = 1` and (1, 2).
    """
    answer_by_name = {part.label: part for part in answer.parts}
    if answer_by_name.keys() == {part.label for part in gold.parts}:
        return _compare_ordered(
            gold.parts, [answer_by_name[part.label] for part in gold.parts]
        )
    verdict = _compare_ordered(gold.parts, answer.parts)
    if verdict:
        return True
    # A pair may follow the alphabet, although the values beside it are written otherwise: `b=2, a=1` and `(1, 2)`.
    in_order = (_in_order_of_names(form) for form in (gold, answer))
    return None if _compare_ordered(*in_order) else verdict


def _in_order_of_names(form: Form) -> Sequence[Form]:
    """Return the values of a system in the alphabetical order of their names, or the values of a tuple as they are."""
    return (
        form.parts if form.kind == "tuple" else sorted(form.parts, key=attrgetter("label"))
    )


def _solutions(system: Form) -> list[Form]:
    """Group a system's values by the indices of their names, and return one tuple per index.

    `x_1=2, y_1=1; x_2=3, y_2=4` gives (2, 1) and (3, 4).
    """
    values_by_index: dict[str, list[Form]] = {}
    for part in system.parts:
        values_by_index.setdefault(part.label.partition("_")[2], []).append(part.parts[0])
    return [Form("tuple", parts=tuple(values)) for values in values_by_index.values()]


def _compare_ordered(gold: Sequence[Form], answer: Sequence[Form]) -> bool | None:
    """Return whether two lists of parsed answers match entry by entry.

    The result is False if the lengths differ or an entry is wrong. Otherwise it is None if an entry is undecided, and
    True if all match.
    """
    if len(gold) != len(answer):
        return False
    verdicts = [
        compare(expected, claimed) for expected, claimed in zip(gold, answer, strict=True)
    ]
    # One wrong entry makes the list wrong, even if others are undecided.
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _compare_unordered(gold: Sequence[Form], answer: Sequence[Form]) -> bool | None:
    """Return whether two lists of parsed answers match in some order. None means undecided.

    Each element needs a partner of its own: a matching element of the other list. The first of these cases that holds
    gives the result; if none holds, it is True.

    1. The lengths differ: False.
    2. More than 50 elements have no partner with the same key: None, because comparing all pairs would take too long.
    3. An element certainly has no partner: False.
    4. An element may or may not have a partner: None.
    """
    if len(gold) != len(answer):
        return False
    # Nearly every element has a partner with the same key, which is found without comparing pairs.
    shared_keys = {form.key for form in gold} & {form.key for form in answer}
    unmatched, candidates = (
        [form for form in forms if form.key not in shared_keys] for forms in (gold, answer)
    )
    if len(unmatched) > _MOST_COMPARED:
        return None
    is_undecided = False
    for element in unmatched:
        verdicts = [compare(element, candidate) for candidate in candidates]
        if True in verdicts:
            del candidates[verdicts.index(True)]
        elif None in verdicts:
            is_undecided = True
        else:
            return False
    return None if is_undecided else True
