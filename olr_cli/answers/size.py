"""Refuse what would be a number of more than 100,000 digits before any algebra computes it (R8).

The bounds of an expression follow from those of its parts and from their rough values, so a tower of powers costs no
more than a sum.
"""

from __future__ import annotations

import cmath
import math
import operator
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import sympy

from olr_cli.answers.reading import TooLarge

_MOST_BITS = 332_192
_MOST_BITS_IN_A_FUNCTION = 20_000
_MOST_BITS_UNDER_A_ROOT = 4000
"""Whether a number is a perfect power takes sympy cubic time to find out: 34 s at 16,000 bits."""


class _Size(NamedTuple):
    """The most bits of a value's numerator and denominator as exact arithmetic writes them, and a rough value."""

    top: float = 0
    bottom: float = 0
    value: complex = 1


def check_size(node: Any, indices: Mapping[Any, float] = MappingProxyType({})) -> _Size:
    """Return the size of an expression, given the largest value of each index of the sums around it.

    Raises:
        TooLarge: a part of it has more than 100,000 digits.
    """
    match node:
        case sympy.MatrixBase():
            # An entry of a product is a sum of as many products as there are rows.
            sizes = [check_size(entry, indices) for entry in node.flat()]
            top = max(size.top for size in sizes) + math.log2(node.rows)
            size = _Size(top, max(size.bottom for size in sizes))
        case sympy.Integral() | sympy.Sum() | sympy.Product():
            size = _of_bounded(node, indices)
        case sympy.Basic() if node.args:
            parts = [check_size(argument, indices) for argument in node.args]
            size = _of_operation(node, parts)
        case sympy.Basic():
            size = _of_atom(node, indices)
        case _:
            return _Size()
    # nan is too large as well.
    if not size.top + size.bottom <= _MOST_BITS:
        raise TooLarge
    return size


def _of_atom(node: Any, indices: Mapping[Any, float]) -> _Size:
    if node in indices:
        return _Size(math.log2(indices[node] + 1), 0, indices[node])
    match node:
        case sympy.Float() if node.is_finite:
            _, _, exponent, bits = node._mpf_
            if abs(exponent) + bits > _MOST_BITS:
                raise TooLarge
            return _of_rational(sympy.Rational(str(node)))
        case sympy.Rational():
            return _of_rational(node)
        case sympy.Symbol():
            return _Size(1, 0, 0.5)
    return _Size(2, 0, complex(node)) if node.is_number and node.is_finite else _Size()


def _of_rational(number: sympy.Rational) -> _Size:
    p, q = int(number.p), int(number.q)
    return _Size(math.log2(abs(p) or 1), math.log2(q), _value(operator.truediv, p, q))


def _of_operation(node: Any, parts: list[_Size]) -> _Size:
    tops, bottoms, values = zip(*parts, strict=True)
    match node:
        case sympy.Add():
            largest = max(top - bottom for top, bottom, _ in parts)
            top = largest + sum(bottoms) + math.log2(len(parts))
            return _Size(top, sum(bottoms), sum(values))
        case sympy.Mul():
            return _Size(sum(tops), sum(bottoms), _value(math.prod, values))
        case sympy.Pow():
            return _of_power(*parts)
        case sympy.binomial() if node.args[1].is_integer:
            n, k = map(abs, values)
            top = min(n + k, min(k, abs(n - k)) * math.log2(n + k + 1))
            return _of_function(node, _Size(top, 0, _value(math.exp2, top)), values)
        case (
            sympy.factorial()
            | sympy.factorial2()
            | sympy.subfactorial()
            | sympy.gamma()
            | sympy.binomial()  # of no integer, which is made of factorials
        ):
            n = abs(values[0])
            return _Size(n * math.log2(n + 1), 0, _value(math.gamma, n + 1))
    return _of_function(node, _Size(max(tops), max(bottoms), values[0]), values)


def _of_function(node: Any, size: _Size, values: Sequence[complex]) -> _Size:
    """The size of a function of values, given that of its largest argument; of a vector or the like, that alone."""
    if (
        isinstance(node, sympy.Function)
        and size.top + size.bottom > _MOST_BITS_IN_A_FUNCTION
    ):
        raise TooLarge
    if isinstance(node, sympy.exp):
        return _of_power(_Size(1.45, 0, math.e), size)
    function = getattr(cmath, node.func.__name__, None)
    return size if function is None else size._replace(value=_value(function, *values))


def _of_power(base: _Size, exponent: _Size) -> _Size:
    if exponent.bottom and base.top + base.bottom > _MOST_BITS_UNDER_A_ROOT:
        raise TooLarge
    top, bottom = (
        (base.bottom, base.top) if exponent.value.real < 0 else (base.top, base.bottom)
    )
    times = abs(exponent.value)
    return _Size(
        top * times, bottom * times, _value(operator.pow, base.value, exponent.value)
    )


def _of_bounded(node: Any, indices: Mapping[Any, float]) -> _Size:
    """The size of a sum, product or integral; a sum counts with its terms, each at least one digit."""
    terms, inner = 1.0, dict(indices)
    for index, *ends in node.limits:
        bounds = [abs(check_size(end, indices).value) for end in ends]
        inner[index] = max(bounds, default=1.0)
        if len(bounds) == 2 and not isinstance(node, sympy.Integral):
            terms *= abs(bounds[1] - bounds[0]) + 1
    top, bottom, value = check_size(node.function, inner)
    if isinstance(node, sympy.Product):
        return _Size(
            terms * max(top, 1), terms * bottom, _value(operator.pow, value, terms)
        )
    if isinstance(node, sympy.Sum):
        return _Size(
            top + terms * max(bottom, 1), terms * bottom, _value(operator.mul, value, terms)
        )
    return _Size(top, bottom, value)


def _value(function: Any, *values: Any) -> complex:
    """The value of a function; 1 where it has none, since symbols have no values of their own here."""
    try:
        value: complex = function(*values)
    except OverflowError:
        return math.inf
    except (ArithmeticError, TypeError, ValueError):
        return 1
    return value
