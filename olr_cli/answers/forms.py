"""Canonical forms of parsed answers, and what can be decided from them alone (R7).

Two answers with the same form are the same. From two different forms `compare` answers yes, no, or "ask
math-verify", and it never says yes or no against what `verify` would say both ways, except where R7 is stricter:
exact numbers are compared exactly, wherever they stand, and ordered tuples are never unordered lists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, get_args

Kind = Literal[
    "number",
    "symbol",
    "product",
    "scalar",
    "tuple",
    "set",
    "interval",
    "union",
    "matrix",
    "assignment",
    "equation",
    "other",
    "text",
]
_KINDS = frozenset(get_args(Kind))
_EXPRESSIONS = {"symbol", "product", "scalar"}

_LONGEST_LABEL = 120
_RELATIVE_DIFFERENCE = 1e-9
"""Values of two expressions at the same point, good to 15 digits, that differ by more are different."""


@dataclass(frozen=True, slots=True)
class Point:
    """The value ``mantissa * 2**exponent`` of an expression, with 0.5 <= abs(mantissa) < 2."""

    mantissa: complex
    exponent: int


@dataclass(frozen=True, slots=True)
class Form:
    """What an answer says, independent of its spelling. Equality is equality of kind, label and parts.

    | kind       | label                            | parts                                         |
    |------------|----------------------------------|-----------------------------------------------|
    | number     | the exact rational, "p" or "p/q" |                                               |
    | symbol     | its name, in small letters       |                                               |
    | product    | symbols, which may spell a word  |                                               |
    | scalar     | the evaluated expression         |                                               |
    | tuple      |                                  | the entries; also open intervals: (1, 2)      |
    | set        |                                  | the distinct elements, sorted; never just one |
    | interval   | its brackets, "[]", "[)" ...     | the two ends                                  |
    | union      |                                  | its intervals and sets                        |
    | matrix     | "rows x columns"                 | the entries, row by row                       |
    | assignment | left-hand side                   | right-hand side; then the equation            |
    | equation   | the polynomial that vanishes     |                                               |
    | other      | the expression                   |                                               |
    | text       | normalised text                  | (can't be parsed, R8)                         |

    Attributes:
        point: of a symbol, product or scalar: its value where every symbol has a fixed value of its own; None if
            unknown.
        is_linear: of an equation, whether it is linear, so that its label tells all.
    """

    kind: Kind
    label: str = ""
    parts: tuple[Form, ...] = ()
    point: Point | None = field(default=None, compare=False)
    is_linear: bool = field(default=False, compare=False)

    @property
    def is_parsed(self) -> bool:
        """Whether the answer could be parsed within its limits."""
        return self.kind != "text"

    def size(self) -> int:
        """How many forms it consists of."""
        return 1 + sum(part.size() for part in self.parts)

    def sort_key(self) -> tuple[Any, ...]:
        """An order of forms that has no meaning but is the same everywhere."""
        return self.kind, self.label, tuple(part.sort_key() for part in self.parts)


def short(label: str) -> str:
    """`label`, or its digest if it is long."""
    if len(label) <= _LONGEST_LABEL:
        return label
    return "#" + hashlib.blake2b(label.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


def number(value: Fraction) -> Form:
    """Form of an exact rational."""
    p, q = value.numerator, value.denominator
    if p.bit_length() + q.bit_length() > 2000:  # decimal digits of a huge integer take quadratic time
        return Form("number", short(f"{p:x}/{q:x}"))
    return Form("number", short(str(p) if q == 1 else f"{p}/{q}"))


def unordered(parts: Sequence[Form]) -> Form:
    """Form of a set or list whose order means nothing; a single element is the element itself."""
    distinct = sorted(set(parts), key=Form.sort_key)
    return distinct[0] if len(distinct) == 1 else Form("set", parts=tuple(distinct))


def to_json(form: Form) -> list[Any]:
    """`form` as JSON values."""
    point = None
    if form.point is not None:
        point = [form.point.mantissa.real, form.point.mantissa.imag, form.point.exponent]
    return [form.kind, form.label, [to_json(part) for part in form.parts], point, form.is_linear]


def from_json(data: Any) -> Form:
    """The form that `to_json` wrote."""
    kind, label, parts, numbers, is_linear = data
    if kind not in _KINDS:
        raise ValueError(f"unknown kind of form: {kind}")
    point = None if numbers is None else Point(complex(numbers[0], numbers[1]), numbers[2])
    return Form(kind, label, tuple(map(from_json, parts)), point, is_linear)


def compare(a: Form, b: Form) -> bool | None:
    """Whether two forms mean the same; None where only math-verify can tell. Symmetric."""
    if a == b:
        return True
    kinds = {a.kind, b.kind}
    if "text" in kinds:
        return False
    if "assignment" in kinds:
        return _compare_assignment(a, b) if a.kind == "assignment" else _compare_assignment(b, a)
    if "number" in kinds or kinds == {"tuple", "set"}:
        return False
    if "equation" in kinds:
        if a.kind != b.kind:
            return None if "other" in kinds else False
        return False if a.is_linear and b.is_linear else None
    if a.kind != b.kind:
        if kinds == {"symbol", "product"} or "other" in kinds:
            return None  # math-verify takes `\text{no}` for the product `no`
        return _values(a, b) if kinds <= _EXPRESSIONS else False
    return _SAME_KIND[a.kind](a, b)


def _compare_assignment(a: Form, b: Form) -> bool | None:
    r"""`a` is an assignment such as ``x = 5``: it says what its right-hand side says, unless `b` is one too."""
    if b.kind == "equation":
        return compare(a.parts[1], b)
    if b.kind != "assignment":
        return compare(a.parts[0], b)
    if a.label == b.label:
        return compare(a.parts[0], b.parts[0])
    return compare(a.parts[1], b.parts[1])


def _ordered(a: Form, b: Form) -> bool | None:
    """Entry by entry."""
    if a.label != b.label or len(a.parts) != len(b.parts):
        return False
    is_open = False
    for x, y in zip(a.parts, b.parts, strict=True):
        verdict = compare(x, y)
        if verdict is False:
            return False
        is_open |= verdict is None
    return None if is_open else True


def _unordered(a: Form, b: Form) -> bool | None:
    """Every element needs a partner; with several candidates math-verify decides.

    Long lists that a policy repeats itself in mostly differ by an element that has none: it is looked for first.
    """
    if _has_lonely(a.parts, b.parts) or _has_lonely(b.parts, a.parts):
        return False
    if len(a.parts) != len(b.parts):
        return None
    table = [[compare(x, y) for y in b.parts] for x in a.parts]
    if all(line.count(False) == len(line) - 1 for line in table):
        return None if any(None in line for line in table) else True
    return None


def _has_lonely(own: Sequence[Form], others: Sequence[Form]) -> bool:
    """Whether an element of `own` is surely none of `others`."""
    known = set(others)
    return any(x not in known and all(compare(x, y) is False for y in others) for x in own)


def _values(a: Form, b: Form) -> bool | None:
    """Expressions that differ at one point differ."""
    if a.point is None or b.point is None:
        return None
    shift = a.point.exponent - b.point.exponent
    if abs(shift) > 2:
        return False
    difference = abs(a.point.mantissa * 2.0**shift - b.point.mantissa)
    return False if difference > _RELATIVE_DIFFERENCE else None


_SAME_KIND: dict[str, Callable[[Form, Form], bool | None]] = {
    "symbol": lambda a, b: False,
    "product": _values,
    "scalar": _values,
    "tuple": _ordered,
    "interval": _ordered,
    "matrix": _ordered,
    "set": _unordered,
    "union": _unordered,
    "other": lambda a, b: None,
}
