"""From math-verify's parse to a canonical form (R7). Runs in workers only: imports sympy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import sympy
from latex2sympy2_extended.logic import And
from math_verify.grader import is_assignment_relation, take_first_relation, take_last_relation
from sympy.core.function import AppliedUndef
from sympy.core.relational import Eq, Ge, Gt, Le, Lt, Ne, Relational

from olr_cli.answers.forms import Form, Kind, Point, number, short, unordered
from olr_cli.answers.reading import exact_number

_MOST_BITS = 1 << 20
"""Integers beyond this aren't computed: `9^{9^{9^9}}` is not a number but a text."""
_LARGEST_FACTORIAL = 50_000
_MOST_EXPANDED = 60
_DIGITS = 30
_MOST_DIGITS = 200
_SMALLEST_EXPONENT = -400
"""Zero in disguise comes out as noise around 2**-660, which is what `_MOST_DIGITS` leave of it."""
_LARGEST_DENOMINATOR = 10**6

_Limits = (sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit, sympy.Derivative)


class Unreadable(Exception):
    """What was parsed has no form: undefined, too large, or nothing an answer can be."""


def canonical(parsed: Any) -> Form:
    """The canonical form of what math-verify parsed.

    Raises:
        Unreadable: it has none.
    """
    if isinstance(parsed, (And, Relational)):
        return _relation(parsed)
    if isinstance(parsed, sympy.FiniteSet):
        return unordered([canonical(element) for element in parsed.args])
    if isinstance(parsed, sympy.Tuple):
        return Form("tuple", parts=tuple(canonical(entry) for entry in parsed.args))
    if isinstance(parsed, sympy.MatrixBase):
        return Form(
            "matrix", f"{parsed.rows}x{parsed.cols}", tuple(canonical(entry) for entry in parsed.flat())
        )
    if isinstance(parsed, sympy.Interval):
        return _interval(parsed)
    if isinstance(parsed, sympy.Set):
        return _set(parsed)
    if isinstance(parsed, sympy.MatrixExpr):
        matrix = parsed.doit()
        if not isinstance(matrix, sympy.MatrixBase):
            raise Unreadable("a matrix that can't be computed")
        return canonical(matrix)
    if isinstance(parsed, sympy.Expr):
        return _expression(evaluate(parsed))
    raise Unreadable(f"a {type(parsed).__name__} is no answer")


def _interval(interval: sympy.Interval, *, in_union: bool = False) -> Form:
    """An open interval is written like an ordered pair, and only the prompt can tell them apart."""
    brackets = ("(" if interval.left_open else "[") + (")" if interval.right_open else "]")
    ends = (canonical(interval.start), canonical(interval.end))
    if brackets == "()" and not in_union:
        return Form("tuple", parts=ends)
    return Form("interval", brackets, ends)


def _set(unevaluated: sympy.Set) -> Form:
    value = evaluate(unevaluated)
    if value is sympy.S.EmptySet:
        return unordered([])
    if isinstance(value, (sympy.FiniteSet, sympy.Interval)):
        return canonical(value)
    if isinstance(value, sympy.Union) and not value.free_symbols:
        pieces = [
            _interval(s, in_union=True) if isinstance(s, sympy.Interval) else canonical(s) for s in value.args
        ]
        return Form("union", parts=tuple(sorted(pieces, key=Form.sort_key)))
    return Form("other", short(str(value)))


def _relation(relation: Any) -> Form:
    if is_assignment_relation(relation):
        left, right = take_first_relation(relation).lhs, take_last_relation(relation).rhs
        if not (left.free_symbols & right.free_symbols and isinstance(left, sympy.Symbol)):
            return Form("assignment", short(str(left)), (canonical(right), _equation(left, right)))
        return _equation(left, right)
    if isinstance(relation, Eq):
        return _equation(relation.lhs, relation.rhs)
    parts = relation._unsorted_args if isinstance(relation, And) else [relation]
    return Form("other", short(" & ".join(sorted(map(_inequality, parts)))))


def _equation(left: Any, right: Any) -> Form:
    if not (isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr)):
        return Form("equation", short(f"{left} = {right}"))
    left, right = evaluate(left), evaluate(right)
    vanishing = expanded(left - right).as_content_primitive()[1]
    _check_says_something(vanishing)
    if vanishing.could_extract_minus_sign():
        vanishing = -vanishing
    symbols = vanishing.free_symbols
    is_linear = bool(symbols) and not vanishing.atoms(AppliedUndef) and _is_linear(vanishing, symbols)
    return Form("equation", short(str(vanishing)), is_linear=is_linear)


def _is_linear(expression: sympy.Expr, symbols: Iterable[sympy.Symbol]) -> bool:
    """Whether `expression` is a linear polynomial with rational coefficients."""
    if not expression.is_polynomial(*symbols):
        return False
    polynomial = sympy.Poly(expression, *symbols)
    return polynomial.total_degree() == 1 and all(c.is_Rational for c in polynomial.coeffs())


def _inequality(relation: Any) -> str:
    r"""One text for ``a < b`` and ``b > a``, and for any positive multiple."""
    sign = {Lt: "<", Gt: "<", Le: "<=", Ge: "<=", Ne: "!=", Eq: "="}[type(relation)]
    swapped = isinstance(relation, (Gt, Ge))
    left, right = (evaluate(side) for side in (relation.lhs, relation.rhs))
    difference = expanded(right - left if swapped else left - right).as_content_primitive()[1]
    _check_says_something(difference)
    if sign in ("!=", "=") and difference.could_extract_minus_sign():
        difference = -difference
    return f"{difference} {sign} 0"


def _check_says_something(difference: sympy.Expr) -> None:
    """``x = x`` and ``1 = 2`` hold always and never: so they would be the same as any other that does."""
    if not difference.free_symbols:
        raise Unreadable("a relation of nothing")


def expanded(expression: sympy.Expr) -> sympy.Expr:
    """`expression` multiplied out, where that stays small."""
    powers = [p for p in expression.atoms(sympy.Pow) if p.base.is_Add and p.exp.is_Integer]
    size = sum(abs(int(p.exp)) * len(p.base.args) for p in powers) + sympy.count_ops(expression) // 4
    return sympy.expand(expression) if size <= _MOST_EXPANDED else expression


def _expression(value: Any) -> Form:
    if not isinstance(value, sympy.Expr):
        return canonical(value)
    if value.has(sympy.nan, sympy.zoo):
        raise Unreadable("undefined")
    if value.is_Symbol and exact_number(value.name) is not None:
        return canonical(sympy.Rational(exact_number(value.name)))  # \text{5}
    if value.is_Rational:
        return number(Fraction(int(value.p), int(value.q)))
    there = value_at(value, {})
    rational = None if there is None else _rational(value, there)
    if rational is not None:
        return number(rational)
    label, kind = short(str(value)), _kind(value)
    point = None if there is None else _point(there)
    return Form(kind, label.lower() if kind == "symbol" else label, point=point)


def _kind(value: sympy.Expr) -> Kind:
    if value.is_Symbol:
        return "symbol"
    letters = all(
        (base.is_Symbol or base is sympy.E) and power.is_Integer and power > 0
        for base, power in value.as_powers_dict().items()
    )
    return "product" if letters else "scalar"


def value_at(expression: sympy.Expr, point: Mapping[sympy.Symbol, sympy.Expr]) -> sympy.Expr | None:
    """`expression` to 30 digits at `point`, every other symbol and unknown function at a value of its own.

    None if it has no such value.
    """
    if expression.atoms(*_Limits) or expression.is_infinite:
        return None
    expression = as_algebra(expression)
    values = {symbol: point.get(symbol, _coordinate(symbol.name)) for symbol in expression.free_symbols}
    try:
        value = expression.evalf(_DIGITS, subs=values, maxn=_MOST_DIGITS)
        is_known = all(part.is_Float or part.is_Integer for part in value.as_real_imag())
    except (ArithmeticError, AttributeError, NotImplementedError, TypeError, ValueError):
        return None
    return value if is_known else None


def as_algebra(expression: sympy.Expr) -> sympy.Expr:
    """`expression` with a symbol in the place of every unknown function such as `f(x)`."""
    return expression.xreplace({f: sympy.Symbol(str(f)) for f in expression.atoms(AppliedUndef)})


def _coordinate(name: str) -> sympy.Float:
    """A value in (1, 9) of a symbol's own: positive and real, where identities that sympy proves do hold."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return sympy.Float(1 + sympy.Rational(int.from_bytes(digest, "big"), 1 << 45), _DIGITS)


def _point(value: sympy.Expr) -> Point | None:
    """The mantissa and binary exponent of a value; None where it is so small that it may be rounding error."""
    parts = [_mantissa(part) for part in value.as_real_imag()]
    exponent = max(exponent for _, exponent in parts)
    if exponent < _SMALLEST_EXPONENT:
        return None
    # Beyond 2**-100 the smaller part is lost against the larger.
    real, imaginary = (m * 2.0 ** max(e - exponent, -100) for m, e in parts)
    return Point(complex(real, imaginary), exponent)


def _mantissa(part: sympy.Expr) -> tuple[float, int]:
    """Mantissa and binary exponent of a real number."""
    sign, mantissa, exponent, bits = sympy.Float(part, _DIGITS)._mpf_
    if not mantissa:
        return 0.0, _SMALLEST_EXPONENT - 1
    return (-1.0 if sign else 1.0) * int(mantissa) / (1 << bits), int(exponent) + int(bits)


def _rational(value: sympy.Expr, there: sympy.Expr) -> Fraction | None:
    r"""The simple rational that an expression such as ``(1+\sqrt2)(1-\sqrt2)`` is; None if it is none."""
    real, imaginary = there.as_real_imag()
    if abs(imaginary) > 1e-20 or abs(real) > 1e15:
        return None
    digits = sympy.Rational(real)
    exact = Fraction(int(digits.p), int(digits.q))
    near = exact.limit_denominator(_LARGEST_DENOMINATOR)
    if abs(near - exact) > Fraction(1, 10**20):
        return None
    difference = value - sympy.Rational(near.numerator, near.denominator)
    return near if sympy.simplify(difference).equals(0) else None


def evaluate(expression: Any) -> Any:
    """`expression` with every operation carried out, decimals as exact rationals, percent signs as hundredths.

    Raises:
        Unreadable: a number in it is too large to compute.
    """
    if isinstance(expression, sympy.Float):
        return _exact(expression)
    if not expression.args:
        return expression
    if isinstance(expression, sympy.UnevaluatedExpr):
        return evaluate(expression.args[0])
    arguments = [evaluate(argument) for argument in expression.args]
    _check_size(expression, arguments)
    value = expression.func(*arguments)
    return value.doit() if isinstance(value, _Limits) else value


def _exact(decimal: sympy.Float) -> sympy.Expr:
    """The rational that a decimal was written as."""
    if not decimal.is_finite:
        return decimal
    _, _, exponent, bits = decimal._mpf_
    if abs(exponent) + bits > _MOST_BITS:
        raise Unreadable("a decimal out of bounds")
    return sympy.Rational(str(decimal))


def _check_size(expression: Any, arguments: list[Any]) -> None:
    if isinstance(expression, sympy.Pow):
        base, exponent = arguments
        if base.is_Rational and exponent.is_Rational:
            bits = max(int(base.p).bit_length(), int(base.q).bit_length())
            if bits > 1 and abs(exponent) * bits > _MOST_BITS:
                raise Unreadable("a power out of bounds")
    elif isinstance(expression, (sympy.factorial, sympy.gamma)):
        (argument,) = arguments
        if argument.is_Rational and abs(argument) > _LARGEST_FACTORIAL:
            raise Unreadable("a factorial out of bounds")
