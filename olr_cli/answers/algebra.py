"""Read expressions, relations and matrices by computer algebra (R7). Runs in workers only: imports sympy.

The label of an expression is its value at fixed points, which give every symbol another value: equal expressions have
the same, however they are written, and others differ in some of 40 digits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import sympy
from latex2sympy2_extended.logic import And
from math_verify import parse as parse_alone, verify
from sympy.core import random
from sympy.core.cache import clear_cache
from sympy.core.function import AppliedUndef
from sympy.core.relational import Eq, Ge, Gt, Le, Lt, Ne, Relational

from olr_cli.answers.classes import OF_LETTERS, Form, number, short, unordered
from olr_cli.answers.latex import parse
from olr_cli.answers.notation import tidied_before
from olr_cli.answers.reading import Contradiction, Unreadable

_SEED = 0
_MOST_OPERATIONS = 500
_MOST_FACTORED = 30
_BITS = 133
"""Compared bits of a value: 40 digits."""
_SPARE_BITS = 50
_MOST_POINTS = 8
"""Points at which an expression is computed, in search of two at which it is real."""
_SMALL_CONSTANT = 64
"""Bits of a constant that may be lost in a sum with others; a longer one adds its bits to what is compared."""
_MOST_COMPARED = 4000
_LARGEST_EXPONENT = 1 << 20
_LARGEST_DENOMINATOR = 10**6
_PRIME = 2**127 - 1

_Bounded = (sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit)
_Signed = (
    sympy.Abs,
    sympy.sign,
    sympy.Max,
    sympy.Min,
    sympy.arg,
    sympy.re,
    sympy.im,
    sympy.conjugate,
)
"""Functions of the signs of symbols, all of which are positive here."""
_SIGNED_NAMES = tuple(f"{function.__name__} " for function in _Signed)
_Point = tuple[int, int]
"""The real and the imaginary part of a value, in units of the last bit."""


def clear_caches() -> None:
    """Clear every cache, so that the work a text takes depends on the text alone (R8)."""
    clear_cache()
    parse.cache_clear()
    tidied_before.cache_clear()


def leaf(text: str) -> Form:
    """The form of an expression, relation or matrix in tidied LaTeX.

    Raises:
        Unreadable: for whatever goes wrong in parser and algebra.
    """
    random.seed(_SEED)  # sympy tries some identities at random points
    try:
        return _form(parse(text))
    except (MemoryError, Unreadable):
        raise
    except Exception as error:
        raise Unreadable(str(error)[:80]) from None


def _form(parsed: Any) -> Form:
    """Return the form of what the parser has read."""
    match parsed:
        case And() | Relational():
            return _relation(parsed)
        case sympy.Tuple():
            return Form("tuple", parts=tuple(map(_form, parsed.args)))
        case sympy.MatrixBase():
            shape = f"{parsed.rows}x{parsed.cols}"
            return Form("matrix", shape, tuple(map(_form, parsed.flat())))
        case sympy.Set():
            return _set(evaluate(parsed))
        case sympy.MatrixExpr():
            matrix = parsed.doit()
            if not isinstance(matrix, sympy.MatrixBase):
                raise Unreadable("a matrix that can't be computed")
            return _form(matrix)
        case sympy.Expr():
            form = _expression(evaluate(parsed))
            if form.label in ("oo", "-oo") and parsed.free_symbols:
                raise Contradiction("an infinity beside letters")
            return form
    raise Unreadable(f"a {type(parsed).__name__} is no answer")


def _set(value: sympy.Set) -> Form:
    """Return the form of a set of numbers."""
    match value:
        case sympy.FiniteSet() | sympy.sets.sets.EmptySet():
            return unordered(map(_form, value.args))
        case sympy.Interval():
            brackets = ("(" if value.left_open else "[") + (
                ")" if value.right_open else "]"
            )
            ends = (_form(value.start), _form(value.end))
            if brackets == "()":
                # It is written like an ordered pair, and only the prompt can tell them apart.
                return Form("tuple", parts=ends)
            return Form("interval", brackets, ends)
        case sympy.Union():
            parts = [_form(part) for part in value.args]
            # Among others the same pair can only be an interval.
            intervals = [
                Form("interval", "()", part.parts) if part.kind == "tuple" else part
                for part in parts
            ]
            return Form("union", parts=tuple(sorted(intervals, key=lambda part: part.key)))
    return Form("other", short(str(value)))


def _expression(value: Any) -> Form:
    """Return the form of an evaluated expression: a number, an infinity, a letter, or its value at fixed points."""
    if not isinstance(value, sympy.Expr):
        return _form(value)
    if value.has(sympy.nan, sympy.zoo):
        raise Unreadable("undefined")
    if value.is_Rational:
        return number(Fraction(int(value.p), int(value.q)))
    if value.is_infinite:
        return Form("value", str(value))
    if value.is_Symbol:
        guesses = [OF_LETTERS + value.name] if value.name.startswith(_SIGNED_NAMES) else []
        return Form("word", value.name.lower()).guessed(guesses)
    try:
        return _at_points(value)
    except _NoValue:
        if sympy.simplify(value) == 0:
            return number(Fraction(0))
        return Form("other", short(str(value)))


def _at_points(value: sympy.Expr) -> Form:
    """Return the form of an expression by its values at two points, where it is real if there are such.

    Raises:
        _NoValue: it has none.
    """
    opaque = _with_names(value)
    bits = _compared_bits(opaque)
    values = [_value_at(opaque, place, bits) for place in range(2)]
    # `\sqrt{x - 2}` is imaginary at one point and real at another.
    is_complex = any(imaginary for (_, imaginary), _ in values) and not value.has(sympy.I)
    if is_complex:
        values = _real_values(opaque, bits) or values
    # `(1 + \sqrt2)(1 - \sqrt2)` is -1, and `\sin^2 x + \cos^2 x` is 1.
    one, other = map(_rational, values)
    if one is not None and one == other:
        return number(one)
    label = short(" ".join(f"{r:x},{i:x}@{e}" for (r, i), e in values))
    # A symbol that stands for `|x|` or a floor has some value, not the one that it would have.
    names = (symbol.name for symbol in opaque.free_symbols)
    guesses = {name for name in names if name.startswith((*_SIGNED_NAMES, "floor "))}
    if is_complex:
        # Where another expression is real, perhaps, this one may not be.
        guesses.add(label)
    return Form("value", label).guessed(OF_LETTERS + guess for guess in guesses)


def _real_values(expression: sympy.Expr, bits: int) -> list[tuple[_Point, int]]:
    """The values at the first two points at which an expression of roots and logarithms is real; none without two."""
    if not expression.free_symbols:
        return []
    values = (_value_at(expression, place, bits) for place in range(_MOST_POINTS))
    real = [one for one in values if not one[0][1]]
    return real[:2] if len(real) > 1 else []


def _with_names(expression: sympy.Expr) -> sympy.Expr:
    """`expression` with a symbol in the place of everything that has no value at a point: `f(x)`, dx/dt, floors."""
    opaque = expression.atoms(AppliedUndef, sympy.Derivative)
    names = {atom: sympy.Symbol(str(atom), positive=True) for atom in opaque}
    for atom in expression.atoms(sympy.floor, sympy.ceiling):
        sign = 1 if isinstance(atom, sympy.floor) else -1
        names[atom] = sign * sympy.Symbol(
            f"floor {_expression(sign * atom.args[0]).key}", positive=True
        )
    return expression.xreplace(names) if names else expression


def _compared_bits(expression: sympy.Expr) -> int:
    constants = expression.atoms(sympy.Rational)
    longest = max((int(n).bit_length() for c in constants for n in (c.p, c.q)), default=0)
    bits = _BITS + (longest if longest > _SMALL_CONSTANT else 0)
    if bits > _MOST_COMPARED:
        raise Unreadable("a constant out of bounds")
    return bits


class _NoValue(Unreadable):
    """An expression has no value at a point, or not enough of it can be computed."""


def _value_at(expression: sympy.Expr, place: int, bits: int) -> tuple[_Point, int]:
    """The value of `expression` at a point, as two integers of `bits` bits and a binary exponent.

    At every third point, from the first on, symbols are between 0 and 1, at others between 1 and 9.

    Raises:
        _NoValue: there is none.
    """
    if expression.atoms(*_Bounded):
        raise _NoValue("a bounded variable")
    point = {symbol: _coordinate(symbol.name, place) for symbol in expression.free_symbols}
    # A digit has more than three bits.
    digits = (bits + _SPARE_BITS) * 3 // 10
    try:
        value = expression.evalf(digits, subs=point, maxn=3 * digits)
        numbers = [_binary(part) for part in value.as_real_imag()]
    except (
        ArithmeticError,
        AttributeError,
        NotImplementedError,
        TypeError,
        ValueError,
    ) as error:
        raise _NoValue(str(error)) from None
    # The larger of the two parts says how precise both have to be.
    mantissa, exponent, precision = max(
        numbers, key=lambda n: (n[0] != 0, n[0].bit_length() + n[1])
    )
    if not mantissa:
        return (0, 0), 0
    last = mantissa.bit_length() + exponent - bits
    if precision < bits or abs(last) > _LARGEST_EXPONENT:
        raise _NoValue("zero in disguise, perhaps")
    real, imaginary = (_rounded(m, e - last) for m, e, _ in numbers)
    if max(abs(real), abs(imaginary)).bit_length() > bits:  # rounded up to a power of two
        real, imaginary, last = real // 2, imaginary // 2, last + 1
    return (real, imaginary), last


def _coordinate(name: str, place: int) -> sympy.Rational:
    """The value of a symbol at a point: positive and real, where identities that sympy proves do hold."""
    digest = hashlib.blake2b(
        f"{place} {name}".encode("utf-8", "surrogatepass"), digest_size=15
    ).digest()
    share = sympy.Rational(int.from_bytes(digest, "big") * 128, _PRIME)
    return share if place % 3 == 0 else 1 + 8 * share


def _binary(part: Any) -> tuple[int, int, int]:
    """Mantissa, binary exponent and precise bits of a real number."""
    if part.is_Integer:
        return int(part), 0, _MOST_COMPARED
    if not part.is_Float or not part.is_finite:
        raise _NoValue("no real number")
    sign, mantissa, exponent, _ = part._mpf_
    return (-1 if sign else 1) * int(mantissa), int(exponent), int(part._prec)


def _rounded(mantissa: int, shift: int) -> int:
    if shift >= 0:
        return mantissa << shift
    return (
        round(Fraction(mantissa, 1 << -shift)) if -shift <= mantissa.bit_length() + 1 else 0
    )


def _rational(value: tuple[_Point, int]) -> Fraction | None:
    r"""The simple rational that a value such as that of ``(1+\sqrt2)(1-\sqrt2)`` is; None if it is none."""
    (real, imaginary), exponent = value
    if imaginary or exponent > -64:
        return None
    exact = Fraction(real, 1 << -exponent)
    near = exact.limit_denominator(_LARGEST_DENOMINATOR)
    return near if abs(near - exact) <= Fraction(2, 1 << -exponent) else None


def _relation(relation: Any) -> Form:
    parts = relation._unsorted_args if isinstance(relation, And) else [relation]
    if len(parts) == 1 and isinstance(parts[0], Eq):
        return Form("equation", _equation(parts[0].lhs, parts[0].rhs))
    return Form("other", short(" & ".join(sorted(map(_inequality, parts)))))


def _equation(left: Any, right: Any) -> str:
    """One text for an equation and for every multiple of it."""
    if not (isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr)):
        return short(f"{left} = {right}")
    # `y = 1/x` is `xy = 1`: a numerator vanishes where its fraction does.
    difference = evaluate(left) - evaluate(right)
    if sympy.count_ops(difference) <= _MOST_OPERATIONS:
        difference = sympy.fraction(sympy.together(difference))[0]
    return f"{_proportions(difference)[0]} = 0"


def _inequality(relation: Any) -> str:
    """One text for ``a < b`` and ``b > a``, and for any positive multiple."""
    sign = {Lt: "<", Gt: "<", Le: "<=", Ge: "<=", Ne: "!=", Eq: "="}[type(relation)]
    left, right = (evaluate(side) for side in (relation.lhs, relation.rhs))
    proportions, is_positive = _proportions(
        right - left if isinstance(relation, (Gt, Ge)) else left - right
    )
    return f"{'' if is_positive or sign in ('!=', '=') else '-'}{proportions} {sign} 0"


def _proportions(difference: sympy.Expr) -> tuple[str, bool]:
    """How the values of an expression at three points relate, which no factor changes; whether the first is positive.

    Raises:
        Unreadable: it has no symbols or no values: ``x = x`` and ``1 = 2`` hold always and never, so they would be the
            same as any other that does.
    """
    opaque = _with_names(difference)
    if not sympy.expand(opaque).free_symbols:
        raise Unreadable("a relation of nothing")
    first, *others = (
        _value_at(opaque, place, _compared_bits(opaque) + _SPARE_BITS) for place in range(3)
    )
    if first[0] == (0, 0):
        raise Unreadable("a relation that can't be computed")
    return " ".join(_ratio(other, first) for other in others), sum(first[0]) > 0


def _ratio(value: tuple[_Point, int], unit: tuple[_Point, int]) -> str:
    """Value / unit, to `_BITS` bits."""
    (a, b), e = value
    (c, d), f = unit
    norm = c * c + d * d
    parts = [Fraction(a * c + b * d, norm), Fraction(b * c - a * d, norm)]
    scale = Fraction(2) ** (e - f)
    return ",".join(f"{round(part * scale * 2**_BITS):x}" for part in parts)


def evaluate(expression: Any) -> Any:
    """`expression` with every operation carried out, decimals as exact rationals, percent signs as hundredths.

    `i` is the imaginary unit, unless a sum or the like counts with it. Derivatives stay. Odd roots of negative numbers
    are real.

    Raises:
        Unreadable: a number in it is too large to compute.
    """
    limits = [
        limit
        for bound in expression.atoms(*_Bounded)
        for limit in getattr(bound, "limits", ())
    ]
    return _evaluated(expression, "i" not in {str(limit[0]) for limit in limits})


def _evaluated(expression: Any, has_imaginary_unit: bool) -> Any:
    if not expression.args:
        return _evaluated_atom(expression, has_imaginary_unit)
    if isinstance(expression, sympy.Derivative):
        return expression
    arguments = [_evaluated(argument, has_imaginary_unit) for argument in expression.args]
    if isinstance(expression, sympy.UnevaluatedExpr):
        return arguments[0]
    if isinstance(expression, _Signed) and any(
        argument.free_symbols for argument in arguments
    ):
        return _signed(expression, arguments)
    # sympy takes complex odd roots of negative numbers, and letters for positive.
    root = _root(*arguments) if isinstance(expression, sympy.Pow) else None
    if root is not None:
        return root
    value = expression.func(*arguments)
    return value.doit() if isinstance(value, _Bounded) else value


def _evaluated_atom(atom: Any, has_imaginary_unit: bool) -> Any:
    match atom:
        case sympy.Float():
            return sympy.Rational(str(atom)) if atom.is_finite else atom
        case sympy.Symbol(name="i") if has_imaginary_unit:
            return sympy.I
        case sympy.Symbol():
            return sympy.Symbol(atom.name, positive=True)
        case sympy.EulerGamma:  # what the parser makes of the letter
            return sympy.Symbol("gamma", positive=True)
    return atom


def _root(base: sympy.Expr, exponent: sympy.Expr) -> sympy.Expr | None:
    """Return an odd root of a negative number, which is real, or a square root of letters; None for other powers."""
    if not exponent.is_Rational:
        return None
    if exponent.q == 2 and base.free_symbols:
        return _square_root(base, exponent)
    if exponent.q % 2 and exponent.q > 1 and base.is_number and base.is_negative:
        return (-1) ** abs(exponent.p) * (-base) ** exponent
    return None


def _square_root(base: sympy.Expr, exponent: sympy.Rational) -> sympy.Expr:
    """Return a root of letters; that of a square is an absolute value."""
    factor, square = base.as_coeff_Mul()
    if (
        square.is_Add
        and sympy.count_ops(square) <= _MOST_FACTORED
        and square.is_polynomial()
    ):
        square = sympy.factor(square)
    if (
        factor.is_positive
        and square.is_Pow
        and square.exp.is_even
        and square.base.free_symbols
    ):
        return factor**exponent * _signed(
            sympy.Abs(square.base, evaluate=False), [square.base]
        ) ** (square.exp * exponent)
    return base**exponent


def _signed(expression: Any, arguments: list[Any]) -> sympy.Expr:
    """A name for what depends on the signs of symbols: `|x|` is not `x`, but `|x - 1|` is `|1 - x|`."""
    if isinstance(expression, sympy.Abs):
        arguments = [sympy.expand(argument**2) for argument in arguments]
    keys = sorted(_expression(argument).key for argument in arguments)
    return sympy.Symbol(f"{type(expression).__name__} {' '.join(keys)}", positive=True)


def proof(gold: str, answer: str, reader: Callable[[str], Any] = parse) -> bool | None:
    """Whether math-verify proves that two tidied texts say the same, gold first; None if it can't tell."""
    random.seed(_SEED)
    try:
        # math-verify's own limits are alarms of the clock (SIGALRM): a busy machine would change verdicts (R8).
        options = {
            "allow_set_relation_comp": True,
            "timeout_seconds": None,
            "raise_on_error": True,
        }
        return bool(verify(reader(gold), reader(answer), **options))
    except MemoryError:
        raise
    except Exception:
        return None


def math_verify_proof(gold: str, answer: str) -> bool | None:
    """Like `proof`, but math-verify reads the texts itself, by its own rules."""
    return proof(
        gold, answer, lambda text: parse_alone(f"\\boxed{{{text}}}", parsing_timeout=None)
    )
