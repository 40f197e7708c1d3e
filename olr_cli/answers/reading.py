r"""Read an answer as a form (R7): lists, tuples, intervals, assignments, units, exact numbers, words.

The texts between commas, brackets and equals signs are expressions. Exact numbers and words are read here, in
microseconds and without heavy imports. All other expressions go to the `leaf` that the caller passes. In a worker that
is computer algebra; in the process that trains it is `no_algebra`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import accumulate, combinations, product
from typing import TypeAlias

from olr_cli.answers.classes import (
    COUNTED,
    OF_LETTERS,
    Form,
    FormKind,
    approximate,
    exact,
    number,
    short,
    unordered,
    unread,
)
from olr_cli.answers.names import CONSTANTS, FUNCTION, is_name, symbols
from olr_cli.answers.notation import LONGEST_CACHED, LONGEST_READ, normal_text, tidy
from olr_cli.answers.numbers import exact_number
from olr_cli.answers.units import based_digits, clock_time, split_unit, word

Leaf: TypeAlias = Callable[[str], Form]
"""Function that reads an expression, relation or matrix in tidied LaTeX; raises `Unreadable` if it cannot."""

_DEEPEST_READ = 40
"""Deepest nesting of brackets. Each level is a recursive call, and the size of Python's stack must not change
verdicts (R8)."""


class Unreadable(Exception):
    """An answer, or a part of it, has no meaning that could be compared."""


class Contradiction(Unreadable):
    """An answer states two different values, or denies the value that it states, and must not be graded right."""


CONTRADICTION = "a contradiction"
"""Guess that marks the form of a contradiction."""
TOO_MANY_DIGITS = "too large"
"""Guess that marks the form of an answer whose numbers are too large to compute."""


class TooLarge(Unreadable):
    """A number in an answer would have more than 100,000 digits."""


class NeedsAlgebra(Exception):
    """An answer has a part that only computer algebra can read."""


def no_algebra(text: str) -> Form:
    """Raise NeedsAlgebra.

    A `Leaf` is a function that reads mathematical expressions. In a process without computer algebra, this function is
    passed instead.
    """
    raise NeedsAlgebra(text)


def read(answer: str, leaf: Leaf = no_algebra) -> Form:
    """Read an answer, and return its meaning as a `Form` (R8).

    If the answer cannot be read, the form holds its text as `normal_text` returns it.

    Args:
        answer: the answer as it was given.
        leaf: function that reads the mathematical expressions in the answer.

    Raises:
        NeedsAlgebra: the answer cannot be read without computer algebra, and `leaf` is `no_algebra`.
    """
    return read_tidied(tidy(answer), leaf)


# Commands, texts and indices are matched without a group, so that the letters in them are skipped.
_LETTER_RUN = re.compile(
    r"\\text\{[A-Z][a-z]?\}\s*(_\s*\{?\d)|\\text\{[^{}]*[a-zA-Z][^{}]*\}|\\(?:begin|end)\{\w+\}"
    r"|\\[a-zA-Z]+|_\{[^{}]*\}"
    r"|((?<=\d)\s*[xX](?=\s*\d|_\{\d)|[a-z]{3,}|[A-Z][a-z]{2,}|mu|nu|xi|[一-鿿]+)"
)
"""Groups hold what computer algebra may misread: chemical formulas, sizes such as `3x4`, and runs of letters."""
# Constants of integration (`x^2 + C`) and free integers (`2k\pi`, `k + 1`).
_FREE_CONSTANT = re.compile(
    r"(?=.*[tuxy])(?:.*\+\s*[CK]$|[CK]\s*\+|[^ABD-Z]*(?<![a-zA-Z\\])C(?![A-Zabdf-su-wz]))"
    r"|.*(?:(?<![a-zA-Z\\])(?:[CK]|[CcK]_\{?\d\}?|A|B)\s*\\?e\s*\^"
    r"|[kmn](?:\s*[+-]\s*\d+\s*\))?\s*(?:\\cdot\s*)?(?:\\pi|\d+\s*\^\s*\\circ)|(?:\\pi|\\circ)\s*(?:\\cdot\s*)?[kmn](?![a-zA-Z]))"
    r"|-?\d*[km]\s*[+-]\s*\d+$"
)
_DENIAL = re.compile(
    r"(?i)^(?=.*(?:\d|\\infty|\\emptyset)).*(?<![a-z\\])(?:not|isn't|wrong|incorrect|false)(?![a-z])"
)
"""Text with a value and a word that denies it: `not 5`."""


def read_tidied(text: str, leaf: Leaf) -> Form:
    """Read an answer that `tidy` has already rewritten, and return its meaning as a `Form`.

    The function `leaf` reads the mathematical expressions in the answer. If it is `no_algebra`, the forms of short
    answers are cached.
    """
    # Only the process without algebra caches. In a worker, a cache would make the work for a text, and so the limit,
    # depend on the texts read before it (R8).
    if leaf is no_algebra and len(text) <= LONGEST_CACHED:
        return _read_before(text, leaf)
    return _read(text, leaf)


def _read(text: str, leaf: Leaf) -> Form:
    """Read an answer that `tidy` has rewritten, without a cache, and return its meaning as a `Form`.

    If the answer cannot be read, the form holds its text as `normal_text` returns it. In two cases `Form.guesses` holds
    the reason: `CONTRADICTION` if the answer contradicts itself, and `TOO_MANY_DIGITS` if a number is too large. `leaf`
    reads the mathematical expressions.
    """
    if len(text) <= LONGEST_READ:
        # The nesting depth at each character, whether or not the brackets pair up.
        depths = accumulate((char in "([{") - (char in ")]}") for char in text)
        try:
            if max(depths, default=0) <= _DEEPEST_READ:
                if _DENIAL.match(text):
                    raise Contradiction("a denial")
                return _read_statement(text, leaf)
        except Contradiction:
            return unread(normal_text(text)).guessed([CONTRADICTION])
        except TooLarge:
            return unread(normal_text(text)).guessed([TOO_MANY_DIGITS])
        except Unreadable:
            pass
    return unread(normal_text(text))


_read_before = functools.lru_cache(1 << 14)(_read)


def _read_statement(text: str, leaf: Leaf) -> Form:
    """Read a text that `tidy` has rewritten, and return its meaning as a `Form`.

    Numbers, words, lists, tuples, equations and the like are read here. The function `leaf` reads all other texts,
    which are mathematical expressions.

    Raises:
        Unreadable: a part of the text cannot be read.
    """
    if (simple := _read_simple(text)) is not None:
        return simple
    # Before lists are split: `x \equiv 1, 2 \bmod 5` has one modulus for both remainders.
    if (
        text.count("\\bmod") == 1
        and (congruence := _read_congruence(text, leaf)) is not None
    ):
        return congruence
    # `2, 3` and `a \pm b` are lists.
    elements = _split_list(text)
    if len(elements) != 1 or elements[0] != text:
        return _read_elements(
            text, elements, [_read_statement(element, leaf) for element in elements]
        )
    # The order matters: `(A) 5 cm` is a choice and `x = 5 cm` a relation, but both could be read as quantities.
    for read_as in (
        _read_choice,
        _read_relation,
        _read_transposed,
        _read_brackets,
        _read_quantity,
        _read_ratio,
    ):
        form = read_as(text, leaf)
        if form is not None:
            return form.guessed(_guesses(text)) if form.kind == "equation" else form
    return leaf(text).guessed(_guesses(text))


def _guesses(text: str) -> Iterator[str]:
    """Yield the parts of a text that computer algebra may misread.

    These are runs of letters, which algebra reads as products, and free constants, such as the C of `x^2 + C`.
    """
    for match in _LETTER_RUN.finditer(split_unit(text)[0]):
        if match.lastindex:
            yield match[match.lastindex]
    if _FREE_CONSTANT.match(text):
        yield f"{OF_LETTERS}{text}"


def _read_simple(text: str) -> Form | None:
    """Read a simple value as a `Form`, or return None for any other text.

    Simple values are words, numbers, percentages, numbers with a unit or a base, infinities, times of day, and dates or
    scores such as `3-1`.
    """
    value = exact_number(text)
    if value is not None:
        return number(value)
    if text.endswith("%"):
        value = exact_number(text[:-1].rstrip("\\ "))
        return None if value is None else Form("percent", parts=(number(value),))
    # `3-1` is a date, a score or a range more often than a difference, so it is not computed.
    if _DASHED.fullmatch(text):
        return Form("word", re.sub(r"\s", "", text)).guessed(["parts"])
    infinity = _INFINITIES.get(word(text) or text)
    if infinity is not None:
        return Form("value", infinity)
    # `Tuesday`, `5 pm`, `52_8`
    for kind, read_label in _WORD_READERS.items():
        label = read_label(text)
        if label is not None and label not in CONSTANTS:
            # `red and blue` may also be a list of two words.
            guesses = [OF_LETTERS + label] if _CONJUNCTION.search(label) else []
            return Form(kind, label).guessed(guesses)
    # Before lists are split: `15,000 kg` has a comma of its own.
    body, unit = split_unit(text)
    value = exact_number(body) if unit else None
    return None if value is None else Form("quantity", unit, (number(value),))


_WORD_READERS: dict[FormKind, Callable[[str], str | None]] = {
    "word": word, "time": clock_time, "based": based_digits
}  # fmt: skip
_CONJUNCTION = re.compile(r"\b(?:and|or)\b")
_PART = r"(?:\\\$\s*)?\d+"
# `3-1`, `2024-11-28` and `11/28/2024`
_DASHED = re.compile(
    rf"(?:\\text\{{[a-zA-Z ]+\}}\s*)?{_PART}(?:\s*-\s*{_PART}){{1,2}}|\d+/\d+/\d+", re.ASCII
)
_INFINITIES = {
    "infinity": "oo",
    "\\infty": "oo",
    "+\\infty": "oo",
    "-\\infty": "-oo",
    "- \\infty": "-oo",
}
_TOKEN = re.compile(
    r"(?P<separator>\\text\{\s*,?\s*(?:and|or)\s*,?\s*\}|(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z])"
    r"|\\(?:lor|vee|land|wedge)(?![a-zA-Z])|[,;])|(?P<ratio>:)"
    r"|(?P<open>\\\{|[(\[{])|(?P<close>\\\}|[)\]}])|(?P<relation>\\in(?![a-zA-Z])|=)"
    r"|(?P<order>[<>]|\\(?:le|ge|ne|lt|gt)(?![a-zA-Z])|\\not)|\\."
)
# `where n is an integer` and `k \in \mathbb{Z}`, which belong to the element before them
_CONDITION = re.compile(
    r"(?:\\text\{\s*)?\(?\s*(?:(?:where|for|with|when|if)\b.*|[a-zA-Z]\s*\\in\s*\\mathbb\s*\{?[NZRQC]\}?(?:\^\S+)?\s*\)?)(?:\s*\})?"
)
ORDER_SIGN = re.compile(r"([<>]|\\(?:[lg][et]|ne)(?![a-zA-Z]))")
"""Signs of inequalities. The group keeps them among the parts when a text is split."""

_PART_OF_REALS = re.compile(r"\\mathbb\s*\{?[NZQ]")
_MOST_SIGNS = 5
"""Most `±` signs in a tuple: n signs stand for 2^n tuples."""
_ALTERNATIVE = re.compile(r"\\(pm|mp)(?![a-zA-Z])")


def _split(text: str, kind: str) -> list[str] | None:
    r"""Split a text at all signs of one kind that are outside brackets.

    Without such a sign, the text is the only item. If the brackets don't pair up, return None.

    Args:
        text: an answer, or a part of one, as `tidy` rewrites it.
        kind: "separator" (comma, semicolon, and, or), "ratio" (colon), "relation" (equals sign, `\in`) or "order" (`<`,
            `\le` and the like).
    """
    depth, start, items = 0, 0, []
    for token in _TOKEN.finditer(text):
        if token["open"]:
            depth += 1
        elif token["close"]:
            depth -= 1
            if depth < 0:
                return None
        elif depth == 0 and token[kind]:
            items.append(text[start : token.start()].strip())
            start = token.end()
    items.append(text[start:].strip())
    return items if depth == 0 else None


def _split_list(text: str) -> list[str]:
    r"""Split a list into its elements, and an element with `\pm` into its two values.

    A text that is no list is the only element. Conditions such as `k \in \mathbb{Z}` are dropped.
    """
    first, *rest = _split(text, "separator") or [text]
    # `2k, k \in \mathbb{Z}` is no list of two: the condition is dropped.
    items = [first, *(item for item in rest if not _is_declaration(item, first))]
    return [alternative for item in items if item for alternative in _expand_signs(item)]


def _is_declaration(item: str, first: str) -> bool:
    r"""Return whether an item of a list only says what a letter of the first item stands for.

    For `x < 3, x \in \mathbb{Z}` the result is False, because the second item changes the solutions.
    """
    restricts = ORDER_SIGN.search(first) and _PART_OF_REALS.search(item)
    return _CONDITION.fullmatch(item) is not None and not restricts


def _expand_signs(text: str) -> list[str]:
    r"""Return the texts that a text with `\pm` or `\mp` stands for: one with the upper signs and one with the lower.

    The signs of a tuple's entries vary independently: `(\pm 1, \pm 2)` gives four texts. A text without such signs, or
    with a set, is returned unchanged as the only item.

    Raises:
        Unreadable: a tuple has more than five such signs.
    """
    sign_count = len(_ALTERNATIVE.findall(text))
    # The signs of a set are expanded later, when its elements are read one by one.
    is_set = "\\{" in text or text.startswith("{")
    if text.startswith("(") and text.endswith(")") and sign_count:
        entries = _split(text[1:-1], "separator") or []
        # `(\pm 1, \pm 2)` stands for four pairs: the signs of its entries vary independently.
        if len(entries) > 1:
            if sign_count > _MOST_SIGNS:
                raise Unreadable("a tuple of too many alternatives")
            tuples = product(*map(_expand_signs, entries))
            return [f"({', '.join(signed_entries)})" for signed_entries in tuples]
    if is_set or not sign_count:
        return [text]
    both = (
        text.replace("\\pm", upper).replace("\\mp", lower) for upper, lower in ("+-", "-+")
    )
    # `1 - 2` alone would be read as a score, but from `1 \pm 2` it is arithmetic: `0+` makes it an expression.
    return [f"0+{signed}" if _DASHED.fullmatch(signed) else signed for signed in both]


def _read_elements(text: str, elements: Sequence[str], forms: Sequence[Form]) -> Form:
    """Return the meaning of a list as a `Form`.

    Alternative statements joined by "or", as in `x > 1 or x < 0`, give the kind "other". Any other list becomes a set
    or a system of named values.

    Args:
        text: the whole list, including the words between the elements.
        elements: the texts of the elements.
        forms: the meanings of the elements.
    """
    joints = text
    for element in elements:
        # Remove each element once and as a whole word: without that, the element r of `q \lor r` would take the r of
        # the sign.
        whole_element = rf"(?<![a-zA-Z\\]){re.escape(element)}(?![a-zA-Z])"
        joints = re.sub(whole_element, "", joints, count=1)
    if _OR.search(joints) and _are_statements(forms, joints):
        keys = sorted(form.key for form in forms)
        return Form("other", short(f"or {' '.join(keys)}"))
    return _read_list(forms)


def _are_statements(forms: Sequence[Form], joints: str) -> bool:
    r"""Return whether parsed answers joined by "or" are alternative statements, rather than several values.

    `x > 1 or x < 0`, `a = 1 or b = 2` and `p \lor q` are statements. `x = 1 or x = 2` lists values.

    Args:
        forms: the meanings of the elements.
        joints: the text between the elements.
    """
    kinds = {form.kind for form in forms}
    if kinds == {"word"}:
        return _LOGIC.search(joints) is not None
    # `x = 1 or x = 2` are two solutions for one name, and not meant here.
    if kinds == {"assignment"}:
        return len({form.label for form in forms}) == len(forms)
    return not kinds.isdisjoint(("equation", "other"))


_OR = re.compile(r"(?<![a-zA-Z\\])or(?![a-zA-Z])|\\(?:lor|vee)(?![a-zA-Z])")
_LOGIC = re.compile(r"\\(?:lor|vee|land|wedge)(?![a-zA-Z])")


def _read_list(forms: Sequence[Form]) -> Form:
    """Return the meaning of a list as a `Form`, given the meanings of its elements.

    Values of different names, such as `p = 5, q = 2`, become a system. Several solutions for the same names become a
    set of systems. Any other list becomes a set of the elements, without their names.

    Raises:
        Unreadable: the list is empty.
    """
    if not forms:
        raise Unreadable("a list of nothing")
    names = _names_and_units(forms)
    # `p = 5, q = 2`, or `3 apples, 2 pears`
    if len(names) == len(forms) > 1:
        return Form("system", parts=tuple(forms))
    are_assignments = all(form.kind == "assignment" for form in forms)
    # `p = 5, q = 2; p = 7, q = 2`
    if are_assignments and len(names) > 1:
        starts = range(0, len(forms), len(names))
        solutions = [tuple(forms[start : start + len(names)]) for start in starts]
        if all(len(_names_and_units(solution)) == len(names) for solution in solutions):
            return unordered(Form("system", parts=solution) for solution in solutions)
    # `x = 1 or x = 2` is the set of 1 and 2.
    return unordered(form.parts[0] if form.kind == "assignment" else form for form in forms)


def _names_and_units(forms: Sequence[Form]) -> set[str]:
    """Return the names of the assignments and the units of the quantities in a list of parsed answers.

    If there are as many of them as elements, the list is a system, such as `p = 5, q = 2`. If some quantities count
    things, as in `3 apples, 2 pears`, only the things counted are returned.
    """
    counted_things = [
        form for form in forms if form.kind == "quantity" and form.label.startswith(COUNTED)
    ]
    return {
        form.label
        for form in counted_things or forms
        if form.kind in ("assignment", "quantity")
    }


_COMMAND_OF_NUMBERS = re.compile(
    r"\\(?:frac|sqrt|cdot|times|pi|binom|circ|div|%)(?![a-zA-Z])|\\%"
)
# `(C) Plane` and `B. 7`
_OPTION = re.compile(
    r"(?:\\text\{\s*)?(?:\(([A-J])\)|([A-J])[).:])(?:\s*\}\s*|\s+)(?=[\w\\(-])(?![-+]\s)(.*?)\}?"
)


def _read_choice(text: str, leaf: Leaf) -> Form | None:
    """Read an option's letter with its text, as in `(C) Plane` and `B. 7`, or return None for any other text.

    A letter alone gives None, because it is read as a word. The function `leaf` reads expressions in the option's text.
    """
    match = _OPTION.fullmatch(text)
    if match is None or _OPTION.fullmatch(match[3]):
        return None
    return Form(
        "choice", (match[1] or match[2]).lower(), (_read_statement(match[3], leaf),)
    )


def _read_relation(text: str, leaf: Leaf) -> Form | None:
    r"""Read an assignment, an equation, an inequality or a membership, or return None for any other text.

    The function `leaf` reads an inequality as a whole. Of the other relations, it reads only the expressions in them. A
    membership counts only if its left side is a name, as in `x \in A`; otherwise the result is None.

    Raises:
        Contradiction: two sides are different numbers, as in `2 = 3`, or letters of answer options, as in `A = B`.
    """
    # Algebra reads inequalities as a whole, because `1 < x \le 2` has three sides.
    if (_split(text, "order") or [text]) != [text]:
        return leaf(text)
    sides = [side for side in _split(text, "relation") or [text] if side]
    if len(sides) < 2:
        return None
    is_member = re.search(r"\\in(?![a-zA-Z])", text) is not None
    # `A = B` between options names two of them, and `2 = 3` two values.
    are_options = _EQUAL_OPTIONS.fullmatch(" = ".join(sides))
    if not is_member and (are_options or _have_two_values(sides, leaf)):
        raise Contradiction("two values")
    # `3 = x`
    if len(sides) == 2 and exact_number(sides[0]) is not None:
        sides.reverse()
    head, value = sides[0], sides[-1]
    if is_name(head, value):
        return _read_assignment(head, value, leaf, is_equation=not is_member)
    # A membership whose left side is no name is left to computer algebra.
    return None if is_member else _read_equation(text, sides, leaf)


def _read_equation(text: str, sides: Sequence[str], leaf: Leaf) -> Form:
    """Return the meaning of an equation as a `Form`. An assignment to a name, such as `x = 5`, is not read here.

    The form has two parts: the last side, which may be taken for the answer, and the equation as text. It has no parts,
    and can only match as a whole, if all sides are words, or if the left side is an expression with one unknown, as in
    `2x = 5`. The last side is then not the value of the unknown.

    Args:
        text: the whole equation.
        sides: the texts of its sides.
        leaf: function that reads the expressions in the equation.
    """
    names = [word(side) or "" for side in sides]
    if all(len(name) > 1 for name in names):
        return Form("equation", " = ".join(sorted(names)))
    head, value = sides[0], sides[-1]
    # The last side of `2x = 5` is not the value of x, so this equation has no parts that could be taken for an answer.
    has_one_unknown = len(symbols(head)) == 1 and not _NO_PLAIN_UNKNOWN.search(head)
    parts = (
        ()
        if has_one_unknown
        else (_read_statement(value, leaf), Form("text", f"{head}={value}"))
    )
    try:
        label = leaf(f"{head} = {value}").label
    except Unreadable:
        label = short(normal_text(text))
    return Form("equation", label, parts)


# The letter of `|z| = 5`, `x^2 = 4` or `\sin x = 1` may be given or asked for; `names_value` decides.
_NO_PLAIN_UNKNOWN = re.compile(rf"[|^]|derivative|{FUNCTION.pattern}")
_EQUAL_OPTIONS = re.compile(
    r"(?i:(?!.*(?:answer|option|choice)))(?:(?:[A-J]|\\text\{[^{}]*\}) = )+[A-J]"
)


def _have_two_values(sides: Sequence[str], leaf: Leaf) -> bool:
    """Return whether two sides of an equation are numbers that differ by more than rounding can explain.

    The function `leaf` reads the sides that are expressions.
    """
    texts = [
        side
        for side in sides
        if not re.search(r"[a-zA-Z_]", _COMMAND_OF_NUMBERS.sub("", side))
    ]
    exact_values = [exact_number(text) for text in texts]
    # Most equations with two numbers state the same number twice, and need no algebra.
    if len(texts) < 2 or (None not in exact_values and len({*exact_values}) == 1):
        return False
    numbers = []
    for text, value in zip(texts, exact_values, strict=True):
        computed = approximate(leaf(text)) if value is None else value
        if computed is not None:
            numbers.append((computed, _rounding(text, value)))
    return any(
        abs(one - other) > max(one_error, other_error)
        for (one, one_error), (other, other_error) in combinations(numbers, 2)
    )


def _rounding(text: str, value: Fraction | None) -> Fraction:
    """Return by how much a number, as it is written, may differ from the value that it stands for.

    For a decimal, this is half a unit in the last place, because the decimal may be rounded. For any other number or
    expression, it is 10^-20. That is far more than the error of the computation, which has about 40 digits.

    Args:
        text: the number as written.
        value: its value; None if the text is an expression.
    """
    decimals = re.fullmatch(r"-?\s*[\d,]*\.(\d+)", text)
    return (
        Fraction(1, 2 * 10 ** len(decimals[1]))
        if decimals and value is not None
        else Fraction(1, 10**20)
    )


def _read_assignment(head: str, value: str, leaf: Leaf, *, is_equation: bool) -> Form:
    r"""Read `head = value` as a form of the kind "assignment", whose first part is the value.

    If the value is a number or an expression, the second part is the whole equation, unless algebra cannot read it.

    Args:
        head: the name on the left side.
        value: the right side.
        leaf: function that reads expressions.
        is_equation: False for a membership, `head \in value`, which has no second part.
    """
    # The `ab` of `S = ab` is a product, but the `ab` of `\text{S} = ab` is a word.
    is_product = _LETTERS.fullmatch(value) is not None and not head.startswith("\\text")
    parts = [leaf(value) if is_product else _read_statement(value, leaf)]
    # Only for a gold that is an equation: `y = 2` is right for `y - 2 = 0`.
    if is_equation and parts[0].kind in ("number", "value") and leaf is not no_algebra:
        with suppress(Unreadable):
            parts.append(leaf(f"{head} = {value}"))
    return Form("assignment", short(re.sub(r"[{}\s]", "", head)), tuple(parts))


_LETTERS = re.compile("[a-zA-Z]{2,}|[a-zA-Z](?: [a-zA-Z]+)+")
# `x \equiv 3 \bmod 7`
_CONGRUENCE = re.compile(
    r"(?:(?P<head>[^=]*?)(?:\\equiv(?![a-zA-Z])|=))?(?P<remainders>[^=]*?)\(?\s*\\bmod\s*"
    r"(?P<modulus>\{(?:[^{}]|\{[^{}]*\})*\}|[\w\\^ ]+)\s*\)?"
)


def _read_congruence(text: str, leaf: Leaf) -> Form | None:
    r"""Read a congruence, or return None for any other text. Several remainders give a set of congruences.

    Remainders that are numbers are reduced by the modulus. The function `leaf` reads the expressions.

    Raises:
        Unreadable: the congruence has to be solved first, as `3x \equiv 1 \pmod 7`.
    """
    match = _CONGRUENCE.fullmatch(text)
    if match is None:
        return None
    head, remainders, modulus_text = ((part or "").strip() for part in match.groups())
    # `3x \equiv 1 \pmod 7`
    if re.search("[a-zA-Z]", head) and not is_name(head, remainders):
        raise Unreadable("a congruence to be solved")
    modulus = _read_statement(modulus_text, leaf)
    return unordered(
        Form(
            "congruence",
            parts=(_reduce(_read_statement(remainder, leaf), modulus), modulus),
        )
        for remainder in _split_list(remainders)
    )


def _reduce(remainder: Form, modulus: Form) -> Form:
    """Reduce an integer or a quotient of integers modulo an integer; return any other form as it is.

    Raises:
        Unreadable: the modulus is 0, or the quotient's denominator has no inverse.
    """
    if not remainder.kind == modulus.kind == "number":
        return remainder
    value, divisor = exact(remainder), exact(modulus)
    with suppress(ValueError, ZeroDivisionError):
        return number(
            Fraction(value.numerator * pow(value.denominator, -1, int(divisor)) % divisor)
        )
    raise Unreadable("a quotient without remainder")


_ROW_KINDS = ("tuple", "interval")


def _read_transposed(text: str, leaf: Leaf) -> Form | None:
    """Read a transposed row or matrix as the matrix that results, or return None for any other text.

    The function `leaf` reads the entries that are expressions.
    """
    body = text.removesuffix("_{transposed}")
    if body == text or not body.endswith((")", "]", "matrix}", "array}")):
        return None
    form = _read_statement(body, leaf)
    if form.kind == "matrix":
        rows, columns = map(int, form.label.split("x"))
    else:
        rows, columns = 1, len(form.parts)
    is_nested = any(part.kind in _ROW_KINDS for part in form.parts)
    if is_nested or form.kind not in ("matrix", *_ROW_KINDS):
        return None
    indices = (row * columns + column for column in range(columns) for row in range(rows))
    entries = tuple(form.parts[index] for index in indices)
    return Form("matrix", f"{columns}x{rows}", entries)


_INNER_SET = re.compile(r"\\\{|\\emptyset")
_BRACKETS = re.compile(r"(\(|\[|\\\{|\{)(.*?)(\)|\]|\\\}|\})", re.DOTALL)


def _read_brackets(text: str, leaf: Leaf) -> Form | None:
    """Read a text in one pair of brackets, or return None for any other text.

    The text is a tuple, an interval, a set or an expression. The function `leaf` reads the expressions in it.
    """
    match = _BRACKETS.fullmatch(text)
    if match is None or "\\begin" in text or "\\mid" in text:
        return None
    inner, brackets = match[2].strip(), match[1][-1] + match[3][-1]
    items = _split(inner, "separator")
    # The outer brackets of `(a) + (b)` are no pair.
    if not items:
        return None
    if brackets == "{}":
        return _read_set(inner, leaf, may_nest=match[1] == "{")
    if "" in items:
        return None
    # `(5)` and `(p \lor q)` mean their contents; `[5]` is left to computer algebra.
    if len(items) == 1 or (brackets == "()" and _LOGIC.search(inner)):
        return _read_statement(inner, leaf) if brackets == "()" else None
    parts = tuple(_read_statement(item, leaf) for item in items)
    is_interval = len(parts) == 2 and brackets != "()"
    return Form("interval", brackets, parts) if is_interval else Form("tuple", parts=parts)


def _read_set(inner: str, leaf: Leaf, *, may_nest: bool) -> Form:
    r"""Return the meaning of a set as a `Form`; a set of one element has the meaning of this element.

    Args:
        inner: the elements, without the brackets of the set.
        leaf: function that reads the expressions in the elements.
        may_nest: whether an element may be a set. True for the brackets `{}`, which may just group: `{\{1, 2\}}` is
            read as the set of 1 and 2. False for `\{\}`, because a set of sets cannot be read.

    Raises:
        Unreadable: an element is a set although `may_nest` is False, or an element cannot be read.
    """
    if not may_nest and _INNER_SET.search(inner):
        # A set with one element is read as that element, so {{1, 2}} would become {1, 2}.
        raise Unreadable("a set of sets")
    if not inner:
        return Form("set")
    return _read_list([_read_statement(element, leaf) for element in _split_list(inner)])


def _read_quantity(text: str, leaf: Leaf) -> Form | None:
    """Read a number, value or percentage with one unit, or return None for any other text.

    The function `leaf` reads a value that is an expression.
    """
    body, unit = split_unit(text)
    if not unit or not body or split_unit(body)[1]:
        return None
    form = _read_statement(body, leaf)
    return (
        Form("quantity", unit, (form,))
        if form.kind in ("number", "value", "percent")
        else None
    )


def _read_ratio(text: str, leaf: Leaf) -> Form | None:
    """Read a ratio of three or more terms, or return None for any other text.

    The result is a tuple of the later terms, each divided by the first term. The function `leaf` reads these quotients.
    """
    first, *terms = _split(text, "ratio") or [text]
    if len(terms) < 2:
        return None
    return Form(
        "tuple",
        ":",
        tuple(_read_statement(f"\\frac{{{term}}}{{{first}}}", leaf) for term in terms),
    )
