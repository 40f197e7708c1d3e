r"""From an answer to its form (R7): lists, tuples, intervals, assignments, units, exact numbers, words.

The texts between commas, brackets and equals signs are expressions. Exact numbers and words are read here, in
microseconds and without heavy imports. Other expressions are read by the `leaf` that is given: computer algebra in a
worker; nothing in the process that trains.
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
"""Reads an expression, relation or matrix in tidied LaTeX, or raises `Unreadable`."""

_DEEPEST_READ = 40


class Unreadable(Exception):
    """An answer, or a part of it, says nothing that could be compared."""


class Contradiction(Unreadable):
    """An answer names two values, or denies the one that it names: nobody can make it right."""


CONTRADICTION = "a contradiction"
"""The guess of the form of such an answer."""
TOO_MANY_DIGITS = "too large"
"""The guess of the form of an answer that is not computed."""


class TooLarge(Unreadable):
    """A number in it would have more than 100,000 digits."""


class NeedsAlgebra(Exception):
    """An answer has a part that only computer algebra can read."""


def no_algebra(text: str) -> Form:
    """The leaf of a process without computer algebra."""
    raise NeedsAlgebra(text)


def read(answer: str, leaf: Leaf = no_algebra) -> Form:
    """Read an answer; one that can't be read has the form of its normalised text (R8).

    Raises:
        NeedsAlgebra: `leaf` has none, and the answer can't be read without it.
    """
    return read_tidied(tidy(answer), leaf)


_NAMELESS = re.compile(
    r"\\text\{[A-Z][a-z]?\}\s*(_\s*\{?\d)|\\text\{[^{}]*[a-zA-Z][^{}]*\}|\\(?:begin|end)\{\w+\}"
    r"|\\[a-zA-Z]+|_\{[^{}]*\}"
    r"|((?<=\d)\s*[xX](?=\s*\d|_\{\d)|[a-z]{3,}|[A-Z][a-z]{2,}|mu|nu|xi|[一-鿿]+)"
)
"""In its groups what computer algebra may misread: indices and formulas, letters in a row."""
_ANY_VALUE = re.compile(  # constants of integration, free integers
    r"(?=.*[tuxy])(?:.*\+\s*[CK]$|[CK]\s*\+|[^ABD-Z]*(?<![a-zA-Z\\])C(?![A-Zabdf-su-wz]))"
    r"|.*(?:(?<![a-zA-Z\\])(?:[CK]|[CcK]_\{?\d\}?|A|B)\s*\\?e\s*\^"
    r"|[kmn](?:\s*[+-]\s*\d+\s*\))?\s*(?:\\cdot\s*)?(?:\\pi|\d+\s*\^\s*\\circ)|(?:\\pi|\\circ)\s*(?:\\cdot\s*)?[kmn](?![a-zA-Z]))"
    r"|-?\d*[km]\s*[+-]\s*\d+$"
)
_DENIAL = re.compile(
    r"(?i)^(?=.*(?:\d|\\infty|\\emptyset)).*(?<![a-z\\])(?:not|isn't|wrong|incorrect|false)(?![a-z])"
)
"""A value, and a word that takes it back."""


def read_tidied(text: str, leaf: Leaf) -> Form:
    """Like `read`, for an answer that `tidy` went over."""
    # Workers, which know algebra, must do the same work for a text whatever they have read before (R8).
    if leaf is no_algebra and len(text) <= LONGEST_CACHED:
        return _read_before(text, leaf)
    return _read(text, leaf)


def _read(text: str, leaf: Leaf) -> Form:
    """Do what `read_tidied` does."""
    if len(text) <= LONGEST_READ:
        # How deep brackets nest, whether or not they pair up.
        depths = accumulate((sign in "([{") - (sign in ")]}") for sign in text)
        try:
            if max(depths, default=0) <= _DEEPEST_READ:
                if _DENIAL.match(text):
                    raise Contradiction("a denial")
                return _statement(text, leaf)
        except Contradiction:
            return unread(normal_text(text)).guessed([CONTRADICTION])
        except TooLarge:
            return unread(normal_text(text)).guessed([TOO_MANY_DIGITS])
        except Unreadable:
            pass
    return unread(normal_text(text))


_read_before = functools.lru_cache(1 << 14)(_read)


def _statement(text: str, leaf: Leaf) -> Form:
    """Read a tidied text."""
    if (simple := _simple(text)) is not None:
        return simple
    if text.count("\\bmod") == 1 and (congruence := _congruence(text, leaf)) is not None:
        return congruence
    # `2, 3`, `a \pm b`; a text that is no list is its only element.
    elements = _elements(text)
    if len(elements) != 1 or elements[0] != text:
        return _joined(text, elements, [_statement(element, leaf) for element in elements])
    # In this order: `(A) 5 cm` is a choice, and `x = 5 cm` no quantity.
    for read_as in (_choice, _relation, _transposed, _group, _quantity, _ratio):
        form = read_as(text, leaf)
        if form is not None:
            return form.guessed(_guesses(text)) if form.kind == "equation" else form
    return leaf(text).guessed(_guesses(text))


def _guesses(text: str) -> Iterator[str]:
    """Yield what computer algebra may misread: products that are none, letters for which any value may stand."""
    for found in _NAMELESS.finditer(split_unit(text)[0]):
        if found.lastindex:
            yield found[found.lastindex]
    if _ANY_VALUE.match(text):
        yield f"{OF_LETTERS}{text}"


def _simple(text: str) -> Form | None:
    """Return the form of a text that needs neither algebra nor to be taken apart; None for any other."""
    value = exact_number(text)
    if value is not None:
        return number(value)
    if text.endswith("%"):
        value = exact_number(text[:-1].rstrip("\\ "))
        return None if value is None else Form("percent", parts=(number(value),))
    # A date, a score, a range, `3-1`: hardly a difference.
    if _DASHED.fullmatch(text):
        return Form("word", re.sub(r"\s", "", text)).guessed(["parts"])
    infinity = _INFINITIES.get(word(text) or text)
    if infinity is not None:
        return Form("value", infinity)
    # `Tuesday`, `5 pm`, `52_8`; `red and blue` may be a list.
    for kind, recognized in _SPELLED.items():
        label = recognized(text)
        if label is not None and label not in CONSTANTS:
            guesses = [OF_LETTERS + label] if _AMONG.search(label) else []
            return Form(kind, label).guessed(guesses)
    # A number with a unit may have commas of its own: `15,000 kg`.
    body, unit = split_unit(text)
    value = exact_number(body) if unit else None
    return None if value is None else Form("quantity", unit, (number(value),))


_SPELLED: dict[FormKind, Callable[[str], str | None]] = {
    "word": word, "time": clock_time, "based": based_digits
}  # fmt: skip
_AMONG = re.compile(r"\b(?:and|or)\b")
_PART = r"(?:\\\$\s*)?\d+"
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
_CONDITION = re.compile(
    r"(?:\\text\{\s*)?\(?\s*(?:(?:where|for|with|when|if)\b.*|[a-zA-Z]\s*\\in\s*\\mathbb\s*\{?[NZRQC]\}?(?:\^\S+)?\s*\)?)(?:\s*\})?"
)
_MOST_SIGNS = 5
"""`±` signs in a tuple: n of them stand for 2^n tuples."""
_ALTERNATIVE = re.compile(r"\\(pm|mp)(?![a-zA-Z])")


def _split(text: str, kind: str) -> list[str] | None:
    """`text` split at the tokens of a kind outside all brackets; None if brackets don't pair up."""
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


def _elements(text: str) -> list[str]:
    """The elements of a list, each `±` as two; a text that is no list is its only element."""
    first, *rest = _split(text, "separator") or [text]
    # `2k, k \in \mathbb{Z}` is no list: the condition goes.
    items = [first, *(item for item in rest if _CONDITION.fullmatch(item) is None)]
    return [alternative for item in items if item for alternative in _alternatives(item)]


def _alternatives(text: str) -> list[str]:
    r"""Return a text for the upper and one for the lower signs of `\pm`; the text alone if it has none."""
    signs = len(_ALTERNATIVE.findall(text))
    # The elements of a set have signs of their own, and are read one by one.
    is_set = "\\{" in text or text.startswith("{")
    if text.startswith("(") and text.endswith(")") and signs:
        entries = _split(text[1:-1], "separator") or []
        # `(\pm 1, \pm 2)` is four pairs: each entry has signs of its own.
        if len(entries) > 1:
            if signs > _MOST_SIGNS:
                raise Unreadable("a tuple of too many alternatives")
            tuples = product(*map(_alternatives, entries))
            return [f"({', '.join(chosen)})" for chosen in tuples]
    if is_set or not signs:
        return [text]
    either = (text.replace("\\pm", a).replace("\\mp", b) for a, b in ("+-", "-+"))
    # `1 - 2` alone may be a score, and of `1 \pm 2` it is arithmetic.
    return [f"0+{one}" if _DASHED.fullmatch(one) else one for one in either]


def _joined(text: str, elements: Sequence[str], forms: Sequence[Form]) -> Form:
    """Return the form of a list; of statements joined by `or`, one that says so: they are no two solutions."""
    joints = text
    for element in elements:
        # Once, and whole: the r of `\lor r` is no part of the sign.
        whole = rf"(?<![a-zA-Z\\]){re.escape(element)}(?![a-zA-Z])"
        joints = re.sub(whole, "", joints, count=1)
    if _EITHER.search(joints) and _are_statements(forms, joints):
        keys = sorted(form.key for form in forms)
        return Form("other", short(f"or {' '.join(keys)}"))
    return _list(forms)


def _are_statements(forms: Sequence[Form], joints: str) -> bool:
    r"""Whether forms are statements of which one holds: `x > 1 or x < 0`, `a = 1 or b = 2`, `p \lor q`."""
    kinds = {form.kind for form in forms}
    if kinds == {"word"}:
        return _LOGIC.search(joints) is not None
    if kinds == {"assignment"}:
        return len({form.label for form in forms}) == len(forms)
    return not kinds.isdisjoint(("equation", "other"))


_EITHER = re.compile(r"(?<![a-zA-Z\\])or(?![a-zA-Z])|\\(?:lor|vee)(?![a-zA-Z])")
_LOGIC = re.compile(r"\\(?:lor|vee|land|wedge)(?![a-zA-Z])")


def _list(forms: Sequence[Form]) -> Form:
    """Return the form of an unordered list, of values of several names, or of solutions: values of the same names."""
    if not forms:
        raise Unreadable("a list of nothing")
    names = _names(forms)
    # `p = 5, q = 2`, and `3 apples, 2 pears`.
    if len(names) == len(forms) > 1:
        return Form("system", parts=tuple(forms))
    are_assignments = all(form.kind == "assignment" for form in forms)
    # `p = 5, q = 2; p = 7, q = 2`.
    if are_assignments and len(names) > 1:
        starts = range(0, len(forms), len(names))
        solutions = [tuple(forms[start : start + len(names)]) for start in starts]
        if all(len(_names(solution)) == len(names) for solution in solutions):
            return unordered(Form("system", parts=solution) for solution in solutions)
    # `x = 1 or x = 2` is 1 and 2.
    return unordered(form.parts[0] if form.kind == "assignment" else form for form in forms)


def _names(forms: Sequence[Form]) -> set[str]:
    """Return the names and units of values; where things are counted, theirs alone: `3 apples, 2 pears`."""
    things = [
        form for form in forms if form.kind == "quantity" and form.label.startswith(COUNTED)
    ]
    return {
        form.label for form in things or forms if form.kind in ("assignment", "quantity")
    }


_COMMANDS = re.compile(r"\\(?:frac|sqrt|cdot|times|pi|binom|circ|div|%)(?![a-zA-Z])|\\%")
_OPTION = re.compile(
    r"(?:\\text\{\s*)?(?:\(([A-J])\)|([A-J])[).:])(?:\s*\}\s*|\s+)(?=[\w\\(-])(?![-+]\s)(.*?)\}?"
)


def _choice(text: str, leaf: Leaf) -> Form | None:
    """An option's letter with its text, as in `(C) Plane` and `B. 7`; the letter alone is a word."""
    match = _OPTION.fullmatch(text)
    if match is None or _OPTION.fullmatch(match[3]):
        return None
    return Form("choice", (match[1] or match[2]).lower(), (_statement(match[3], leaf),))


def _relation(text: str, leaf: Leaf) -> Form | None:
    """Read an assignment, an equation, an inequality or membership; None if a text is none of these."""
    # Inequalities are read whole: `1 < x \le 2`.
    if (_split(text, "order") or [text]) != [text]:
        return leaf(text)
    sides = [side for side in _split(text, "relation") or [text] if side]
    if len(sides) < 2:
        return None
    is_member = re.search(r"\\in(?![a-zA-Z])", text) is not None
    # `A = B` of two options, and `2 = 3`.
    are_options = _OPTIONS_CHAINED.fullmatch(" = ".join(sides))
    if not is_member and (are_options or _contradict(sides, leaf)):
        raise Contradiction("two values")
    # `3 = x`.
    if len(sides) == 2 and exact_number(sides[0]) is not None:
        sides.reverse()
    head, value = sides[0], sides[-1]
    if is_name(head, value):
        return _assignment(head, value, leaf, is_equation=not is_member)
    # A set without a name for its element is left to computer algebra.
    return None if is_member else _equation(text, sides, leaf)


def _equation(text: str, sides: Sequence[str], leaf: Leaf) -> Form:
    """Return the form of an equation, with its last side where that may be what is asked for."""
    names = [word(side) or "" for side in sides]
    if all(len(name) > 1 for name in names):
        return Form("equation", " = ".join(sorted(names)))
    head, value = sides[0], sides[-1]
    # The one letter of `2x = 5` is another number than 5.
    is_solved = len(symbols(head)) == 1 and not _NOT_SOLVED.search(head)
    last = () if is_solved else (_statement(value, leaf), Form("text", f"{head}={value}"))
    try:
        label = leaf(f"{head} = {value}").label
    except Unreadable:
        label = short(normal_text(text))
    return Form("equation", label, last)


_NOT_SOLVED = re.compile(rf"[|^]|derivative|{FUNCTION.pattern}")
_OPTIONS_CHAINED = re.compile(
    r"(?i:(?!.*(?:answer|option|choice)))(?:(?:[A-J]|\\text\{[^{}]*\}) = )+[A-J]"
)


def _contradict(sides: Sequence[str], leaf: Leaf) -> bool:
    """Whether two sides of an equation are different numbers, none of them the other's rounding."""
    texts = [side for side in sides if not re.search(r"[a-zA-Z_]", _COMMANDS.sub("", side))]
    spelled = [exact_number(text) for text in texts]
    # One number, however it is spelled: most of what is asked here, and without algebra.
    if len(texts) < 2 or (None not in spelled and len({*spelled}) == 1):
        return False
    numbers = []
    for text, value in zip(texts, spelled, strict=True):
        computed = approximate(leaf(text)) if value is None else value
        if computed is not None:
            numbers.append((computed, _rounding(text, value)))
    return any(
        abs(one - other) > max(by, within)
        for (one, by), (other, within) in combinations(numbers, 2)
    )


def _rounding(text: str, value: Fraction | None) -> Fraction:
    """By how much a number may differ from what `text` says, if it is `text` once it is rounded; its exact `value`."""
    decimals = re.fullmatch(r"-?\s*[\d,]*\.(\d+)", text)
    return (
        Fraction(1, 2 * 10 ** len(decimals[1]))
        if decimals and value is not None
        else Fraction(1, 10**20)
    )


def _assignment(head: str, value: str, leaf: Leaf, *, is_equation: bool) -> Form:
    # The `ab` of `S = ab` is a product, that of `\text{name} = ab` a word.
    is_product = _LETTERS.fullmatch(value) is not None and not head.startswith("\\text")
    parts = [leaf(value) if is_product else _statement(value, leaf)]
    # For a gold that is an equation: `y = 2` is `y - 2 = 0`.
    if is_equation and parts[0].kind in ("number", "value") and leaf is not no_algebra:
        with suppress(Unreadable):
            parts.append(leaf(f"{head} = {value}"))
    return Form("assignment", short(re.sub(r"[{}\s]", "", head)), tuple(parts))


_LETTERS = re.compile("[a-zA-Z]{2,}|[a-zA-Z](?: [a-zA-Z]+)+")
_CONGRUENCE = re.compile(
    r"(?:(?P<head>[^=]*?)(?:\\equiv(?![a-zA-Z])|=))?(?P<remainders>[^=]*?)\(?\s*\\bmod\s*"
    r"(?P<modulus>\{(?:[^{}]|\{[^{}]*\})*\}|[\w\\^ ]+)\s*\)?"
)


def _congruence(text: str, leaf: Leaf) -> Form | None:
    """One remainder or several; integers are reduced."""
    match = _CONGRUENCE.fullmatch(text)
    if match is None:
        return None
    head, remainders, m = ((part or "").strip() for part in match.groups())
    # `3x \equiv 1 \pmod 7`.
    if re.search("[a-zA-Z]", head) and not is_name(head, remainders):
        raise Unreadable("a congruence to be solved")
    modulus = _statement(m, leaf)
    return unordered(
        Form("congruence", parts=(_reduced(_statement(remainder, leaf), modulus), modulus))
        for remainder in _elements(remainders)
    )


def _reduced(remainder: Form, modulus: Form) -> Form:
    if not remainder.kind == modulus.kind == "number":
        return remainder
    value, m = exact(remainder), exact(modulus)
    with suppress(ValueError, ZeroDivisionError):
        return number(Fraction(value.numerator * pow(value.denominator, -1, int(m)) % m))
    raise Unreadable("a quotient without remainder")


_ROWS = ("tuple", "interval")


def _transposed(text: str, leaf: Leaf) -> Form | None:
    """Read a matrix by its columns, and a row in brackets as a column; None if a text is not transposed."""
    body = text.removesuffix("_{transposed}")
    if body == text or not body.endswith((")", "]", "matrix}", "array}")):
        return None
    form = _statement(body, leaf)
    if form.kind == "matrix":
        rows, columns = map(int, form.label.split("x"))
    else:
        rows, columns = 1, len(form.parts)
    is_nested = any(part.kind in _ROWS for part in form.parts)
    if is_nested or form.kind not in ("matrix", *_ROWS):
        return None
    places = (row * columns + column for column in range(columns) for row in range(rows))
    entries = tuple(form.parts[place] for place in places)
    return Form("matrix", f"{columns}x{rows}", entries)


_NESTED = re.compile(r"\\\{|\\emptyset")
_GROUP = re.compile(r"(\(|\[|\\\{|\{)(.*?)(\)|\]|\\\}|\})", re.DOTALL)


def _group(text: str, leaf: Leaf) -> Form | None:
    """Read the contents of one pair of brackets; None if a text is anything else."""
    match = _GROUP.fullmatch(text)
    if match is None or "\\begin" in text or "\\mid" in text:
        return None
    inner, brackets = match[2].strip(), match[1][-1] + match[3][-1]
    items = _split(inner, "separator")
    # `(a) + (b)`, whose outer brackets are no pair.
    if not items:
        return None
    if brackets == "{}":
        return _set(inner, leaf, may_nest=match[1] == "{")
    if "" in items:
        return None
    # `(5)` and `(p \lor q)` are what is in them; `[5]` is for computer algebra.
    if len(items) == 1 or (brackets == "()" and _LOGIC.search(inner)):
        return _statement(inner, leaf) if brackets == "()" else None
    parts = tuple(_statement(item, leaf) for item in items)
    is_interval = len(parts) == 2 and brackets != "()"
    return Form("interval", brackets, parts) if is_interval else Form("tuple", parts=parts)


def _set(inner: str, leaf: Leaf, *, may_nest: bool) -> Form:
    """Read the elements of a set."""
    if not may_nest and _NESTED.search(inner):
        raise Unreadable("a set of sets")  # a set of one is its element
    if not inner:
        return Form("set")
    return _list([_statement(element, leaf) for element in _elements(inner)])


def _quantity(text: str, leaf: Leaf) -> Form | None:
    body, unit = split_unit(text)
    if not unit or not body or split_unit(body)[1]:
        return None
    form = _statement(body, leaf)
    return (
        Form("quantity", unit, (form,))
        if form.kind in ("number", "value", "percent")
        else None
    )


def _ratio(text: str, leaf: Leaf) -> Form | None:
    """Three terms or more, in units of the first; two are a quotient."""
    first, *terms = _split(text, "ratio") or [text]
    if len(terms) < 2:
        return None
    return Form(
        "tuple",
        ":",
        tuple(_statement(f"\\frac{{{term}}}{{{first}}}", leaf) for term in terms),
    )
