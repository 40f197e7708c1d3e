r"""Decide whether an answer is right, given a gold or a label, from the pair alone (R7).

Two answers of one class match, but for percent signs. Beyond that, a fair grader of the gold accepts the gold's unit or
none, with one percent sign the same numeral, the digits of a gold with a base, the letter of a choice with its text,
the last side of ``m+n = 25``, and what math-verify proves to be the same statement. A value under another name, as
``f(3) = 5`` for ``f(2) = 5``, is undecided.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from operator import attrgetter

from olr_cli.answers.classes import COUNTED, Form, Key, approximate, exact
from olr_cli.answers.notation import LONGEST_READ, tidy
from olr_cli.answers.other_readings import ADDED_CONSTANT, LETTER, VALUE, other_readings
from olr_cli.answers.reading import (
    CONTRADICTION,
    TOO_MANY_DIGITS,
    Leaf,
    NeedsAlgebra,
    names_value,
    no_algebra,
    read,
    read_surely,
    read_tidied,
    with_points,
)
from olr_cli.answers.units import is_connective, word

_FILLER = re.compile(r"^(?:there (?:is|are|exists?) )?(?:(?:the|an?) )?|s? exists?$")
_ROUNDING = Fraction(1, 100)
"""Relative difference of numbers that a lenient grader may call equal."""
_MOST_COMPARED = 50
"""Largest number of list elements that are compared pairwise."""

_SIGN = re.compile(r"\\*%")


_NAMED = re.compile(r"(.*?)(\((?!\\?[a-z]+\)).+\)|_.+|(?<=angle).+|[A-Z]{2,4}\W?)")

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
    if kind == "key":
        return read(text, leaf).key
    if kind == "reason":
        return reason(text, answer, leaf)
    if kind == "may match":
        if proof is no_proof:
            raise NeedsAlgebra
        # Lenient on purpose: frozen noise (R4) must not write a label into the file that some grader calls right.
        ways = ((text, answer), (answer, text))
        return any(
            matches(*way, leaf, proof, _ROUNDING) or math_verify_proof(*way) for way in ways
        )
    verdict = matches(text, answer, leaf, proof, Fraction(tolerance or 0))
    if verdict or not in_percent or "%" in text or "%" not in (said := tidy(answer)):
        return verdict
    return matches(text, _SIGN.sub("", said), leaf, proof, Fraction(tolerance or 0)) or verdict


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
    plain_gold, plain = tidy(gold), tidy(answer)
    if plain_gold == plain:
        return True
    expected, said = read_surely(gold, plain_gold, leaf), read_surely(answer, plain, leaf)
    if CONTRADICTION in expected.guesses | said.guesses:
        return None
    verdict = _compare(expected, said)
    joined, said_joined = _joints(plain_gold), _joints(plain)
    if verdict is None and joined and said_joined and joined.isdisjoint(said_joined):
        return None  # math-verify and intervals take `and` for `or`
    if verdict is None:
        verdict = proof(plain_gold, plain)
    if verdict and (
        _has_other_case(plain_gold, plain, expected) or _have_other_products(gold, answer)
    ):
        return None
    if not verdict and max(len(plain_gold), len(plain)) <= LONGEST_READ:
        others = other_readings(plain_gold, plain, f"{gold} {answer}")
        if any(_compare(*(read_tidied(text, leaf) for text in pair)) for pair in others):
            return True
        if any(_compare(expected, read_tidied(side, leaf)) for side in _sides(answer, leaf)):
            return True
        if _differ_by_a_constant(plain_gold, plain, leaf):
            return True
    if verdict or (tolerance > 0 and _is_near(expected, said, tolerance)):
        return True
    # None is kept apart from False: R3 draws noisy labels from answers that are proved wrong (False).
    return None if verdict is None or _may_match(expected, said) else False


def reason(gold: str, answer: str, leaf: Leaf = no_algebra) -> str:
    """Return why `matches` gives no verdict: the name of a `Verdict`."""
    text = tidy(gold)
    if with_points(text) != text and "_" not in text:
        return "TWO_READINGS"
    forms = read(gold, leaf), read(answer, leaf)
    if any(TOO_MANY_DIGITS in form.guesses for form in forms):
        return "TOO_LARGE"
    return (
        "UNREAD"
        if forms[1].kind == "text" and CONTRADICTION not in forms[1].guesses
        else "UNDECIDED"
    )


_APPROXIMATELY = re.compile(r"\\approx(?![a-zA-Z])|≈")
_OF_NUMBERS = re.compile(
    r"(?:[\d.,\s+*/^(){}=-]|\\(?:frac|sqrt|cdot|times|pi|div)(?![a-zA-Z]))+", re.ASCII
)


def _sides(answer: str, leaf: Leaf) -> list[str]:
    r"""The sides of an equation of numbers that holds, or rounds, as in `\frac13 \approx 0.333`: each is an answer."""
    text = tidy(_APPROXIMATELY.sub("=", answer))
    sides = [side.strip() for side in text.split("=")]
    if (
        len(sides) < 2
        or not _OF_NUMBERS.fullmatch(text)
        or CONTRADICTION in read_tidied(text, leaf).guesses
    ):
        return []
    are_numbers = all(approximate(read_tidied(side, leaf)) is not None for side in sides)
    return sides if are_numbers else []


def _differ_by_a_constant(gold: str, answer: str, leaf: Leaf) -> bool:
    """Whether two antiderivatives, with their constants, are of one family; of letters in bars both signs are right."""
    one, other = (ADDED_CONSTANT.sub("", VALUE.sub("", text)) for text in (gold, answer))
    if one == VALUE.sub("", gold) or other == VALUE.sub("", answer):
        return False
    difference = read_tidied(re.sub(r"\|([^|]*)\|", r"(\1)", f"({one}) - ({other})"), leaf)
    return approximate(difference) is not None


def _joints(text: str) -> set[str]:
    """The words that join the parts of a text, in one spelling."""
    return {_JOINTS[sign] for sign in _JOINT.findall(text)}


_JOINTS = {"and": "and", "land": "and", "wedge": "and", "or": "or", "lor": "or", "vee": "or"}
_JOINT = re.compile(rf"(?<![a-zA-Z])({'|'.join(_JOINTS)})(?![a-zA-Z])")


def _may_match(gold: Form, answer: Form) -> bool:
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
    return any(_compare(*pair) for pair in pairs)


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


def _is_near(gold: Form, answer: Form, tolerance: Fraction) -> bool:
    """Whether two numbers, or the entries of two tuples, differ by no more than a part of the gold's."""
    gold, answer = _without_names(gold, answer)
    if gold.kind == answer.kind and gold.kind in ("quantity", "tuple", "matrix", "interval"):
        is_alike = gold.label == answer.label and len(gold.parts) == len(answer.parts)
        return is_alike and all(
            _compare(a, b) or _is_near(a, b, tolerance)
            for a, b in zip(gold.parts, answer.parts, strict=True)
        )
    value, said = approximate(_measured(gold)), approximate(_measured(answer))
    if value is None or said is None or value.denominator == said.denominator == 1:
        return False
    return abs(value - said) <= tolerance * abs(value)


def _has_other_case(gold: str, answer: str, form: Form) -> bool:
    """Whether a letter of a formula is in the answer only as a capital or a small one, or a short word is: `Co`."""
    if len(word(gold) or "") > 1:
        gold, answer = (re.sub(r"\\text|[^a-zA-Z]", "", text) for text in (gold, answer))
        is_code = (
            len(gold) < 3 or not re.search("[aeiouAEIOU]", gold) or bool(_MIXED.search(gold))
        )
        return (
            is_code
            and gold != answer
            and gold.lower() == answer.lower()
            and "no" not in (gold, answer)
        )
    if form.kind in ("number", "percent", "based", "quantity"):
        return False
    if form.kind == "assignment":
        gold, answer = VALUE.sub("", gold), VALUE.sub("", answer)
    ours, theirs = ({*LETTER.findall(text)} for text in (gold, answer))
    is_option = form.kind in ("word", "choice") and form.label <= "j"
    return not is_option and any(
        _in_other_case(letter) in theirs for letter in ours - theirs - _CASELESS
    )


def _have_other_products(gold: str, answer: str) -> bool:
    """Whether both have products of vectors, and others, which algebra takes for products of numbers."""
    ours, theirs = (
        sorted(
            (sign, *(pair if sign == "times" else sorted(pair)))
            for one, sign, other in _VECTORS.findall(text)
            for pair in [(one, other)]
        )
        for text in (gold, answer)
    )
    return bool(ours and theirs) and ours != theirs


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


def _unnamed(form: Form) -> Form:
    """The value of a form, or its solutions, whatever they are called."""
    if form.kind == "system":
        return Form("set", parts=tuple(_solutions(form)))
    return form.parts[0] if form.kind in ("assignment", "equation") and form.parts else form


def _compare(gold: Form, answer: Form) -> bool | None:
    """The verdict about two forms; None if computer algebra has to compare what they were read from."""
    gold, answer = _without_names(gold, answer)
    kinds = {gold.kind, answer.kind}
    if "quantity" in kinds:
        if _is_one_unit(gold, answer):
            return _compare(_measured(gold), _measured(answer))
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
    verdicts = [_compare(x, y) for x, y in zip(gold, answer, strict=True)]
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
        verdicts = [_compare(element, other) for other in others]
        if True in verdicts:
            del others[verdicts.index(True)]
        elif None in verdicts:
            is_open = True
        else:
            return False
    return None if is_open else True
