"""Refuse numbers of more than 100,000 digits before any algebra computes them (R8).

The size of an expression is bounded by the sizes and rough values of its parts. So a tower of powers takes no more work
than a sum.
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
"""100,000 decimal digits, in bits."""
_MOST_BITS_IN_A_FUNCTION = 20_000
"""Most bits of a function's argument."""
_MOST_BITS_UNDER_A_ROOT = 4000
"""Most bits of a radicand: sympy tests for perfect powers in cubic time, 34 s at 16,000 bits."""


class _Size(NamedTuple):
    """Upper bounds for the bits of an expression's exact value, and a rough value of the expression.

    `check_size` makes it from the sizes of the expression's parts, without computing the exact value.
    """

    top: float = 0
    """Most bits of the numerator."""

    bottom: float = 0
    """Most bits of the denominator."""

    value: complex = 1
    """Rough value."""


def check_size(node: Any, indices: Mapping[Any, float] = MappingProxyType({})) -> _Size:
    """Check that an expression's exact value is not too large, and return bounds for the bits of this value.

    The value itself is not computed.

    Args:
        node: the expression.
        indices: index variable of each sum or product around the expression -> largest value of this variable.

    Raises:
        TooLarge: a part of the expression may have more than 100,000 digits.
    """
    match node:
        case sympy.MatrixBase():
            # An entry of a product of two matrices is a sum with one term per row.
            sizes = [check_size(entry, indices) for entry in node.flat()]
            top = max(size.top for size in sizes) + math.log2(node.rows)
            size = _Size(top, max(size.bottom for size in sizes))
        case sympy.Integral() | sympy.Sum() | sympy.Product():
            size = _of_sum_or_integral(node, indices)
        case sympy.Basic() if node.args:
            parts = [check_size(argument, indices) for argument in node.args]
            size = _of_operation(node, parts)
        case sympy.Basic():
            size = _of_atom(node, indices)
        case _:
            return _Size()
    # `not <=` rather than `>`, so that nan counts as too large.
    if not size.top + size.bottom <= _MOST_BITS:
        raise TooLarge
    return size


def _of_atom(node: Any, indices: Mapping[Any, float]) -> _Size:
    """Return the `_Size` of a number, a symbol or a constant.

    The size has upper bounds for the bits of the numerator and denominator of the exact value, and a rough value.

    `indices` maps the index variable of each sum or product around the atom to its largest value. An atom that is such
    a variable counts as that value.

    Raises:
        TooLarge: the atom is a decimal that could need more than 100,000 digits as an exact fraction.
    """
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
    """Return the bits of a rational number's numerator and denominator, and the rough value of the number."""
    p, q = int(number.p), int(number.q)
    return _Size(math.log2(abs(p) or 1), math.log2(q), _value(operator.truediv, p, q))


def _of_operation(node: Any, parts: list[_Size]) -> _Size:
    """Return the `_Size` of a sum, product, power or function.

    The size has upper bounds for the bits of the numerator and denominator of the exact value, and a rough value.

    Args:
        node: the operation.
        parts: the sizes of its arguments.

    Raises:
        TooLarge: a function's argument, or the number under a root, has too many bits to be computed.
    """
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
            | sympy.binomial()  # without an integer below, it consists of factorials
        ):
            n = abs(values[0])
            return _Size(n * math.log2(n + 1), 0, _value(math.gamma, n + 1))
    return _of_function(node, _Size(max(tops), max(bottoms), values[0]), values)


def _of_function(node: Any, size: _Size, values: Sequence[complex]) -> _Size:
    """Return bounds for the bits of a function's value, and its rough value.

    The bounds are those in `size`. The rough value is computed if Python's `cmath` has the function, and otherwise
    taken from `size`. For `exp`, bounds and value are those of a power of e.

    Args:
        node: the function applied to its arguments, or another object with arguments, such as a vector.
        size: the size of the largest argument; for a binomial, the size of its value.
        values: rough values of the arguments.

    Raises:
        TooLarge: the node is a function, and `size` is more than 20,000 bits.
    """
    if (
        isinstance(node, sympy.Function)
        and size.top + size.bottom > _MOST_BITS_IN_A_FUNCTION
    ):
        raise TooLarge
    # For its powers, e counts as a number of 1.45 bits: log2(e) is 1.4427.
    if isinstance(node, sympy.exp):
        return _of_power(_Size(1.45, 0, math.e), size)
    function = getattr(cmath, node.func.__name__, None)
    return size if function is None else size._replace(value=_value(function, *values))


def _of_power(base: _Size, exponent: _Size) -> _Size:
    """Return bounds for the bits of a power, and its rough value, given the sizes of its base and exponent.

    Raises:
        TooLarge: the power is a root of a number of more than 4,000 bits.
    """
    # An exponent with a denominator is a root.
    if exponent.bottom and base.top + base.bottom > _MOST_BITS_UNDER_A_ROOT:
        raise TooLarge
    # A negative exponent swaps numerator and denominator.
    top, bottom = (
        (base.bottom, base.top) if exponent.value.real < 0 else (base.top, base.bottom)
    )
    times = abs(exponent.value)
    return _Size(
        top * times, bottom * times, _value(operator.pow, base.value, exponent.value)
    )


def _of_sum_or_integral(node: Any, indices: Mapping[Any, float]) -> _Size:
    """Return bounds for the bits of the value of a sum, product or integral, and its rough value.

    The bound of a sum or product is at least one bit per term. `indices` maps the index variable of each sum or product
    around the node to its largest value.

    Raises:
        TooLarge: a part of the expression may have more than 100,000 digits.
    """
    terms, inner_indices = 1.0, dict(indices)
    for index, *ends in node.limits:
        bounds = [abs(check_size(end, indices).value) for end in ends]
        inner_indices[index] = max(bounds, default=1.0)
        # An integral has no terms to write out.
        if len(bounds) == 2 and not isinstance(node, sympy.Integral):
            terms *= abs(bounds[1] - bounds[0]) + 1
    top, bottom, value = check_size(node.function, inner_indices)
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
    """Return a function's value for rough values of its arguments, which were computed with 0.5 for every symbol.

    If the value overflows, return infinity. If the function is undefined for these arguments, return 1: it may be
    defined for other values of the symbols.
    """
    # It may be undefined only here, where every symbol has the value 0.5.
    try:
        value: complex = function(*values)
    except OverflowError:
        return math.inf
    except (ArithmeticError, TypeError, ValueError):
        return 1
    return value
