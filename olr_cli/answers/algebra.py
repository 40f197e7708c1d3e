"""Read expressions, relations and matrices by computer algebra (R7). Runs in workers only: imports sympy.

The label of an expression is its value at fixed points, at which every symbol has a different value. Equal expressions
have equal values, however they are written. Different expressions differ in at least one of 40 digits.
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
"""Most operations in an equation whose fractions are put over a common denominator."""
_MOST_FACTORED = 30
"""Most operations in a sum that is factored under a square root."""
_BITS = 133
"""Number of compared bits of a value: 40 digits."""
_SPARE_BITS = 50
"""Number of bits that are computed beyond those that are compared."""
_MOST_POINTS = 8
"""Largest number of points at which an expression is computed to find two where it is real."""
_SMALL_CONSTANT = 64
"""Longest constant, in bits, that needs no extra precision; the bits of a longer one are added to those compared."""
_MOST_COMPARED = 4000
"""Most bits of a value that are compared."""
_LARGEST_EXPONENT = 1 << 20
"""Largest binary exponent of a value, in either direction."""
_LARGEST_DENOMINATOR = 10**6
"""Largest denominator of a rational that an irrational expression may turn out to be."""
_PRIME = 2**127 - 1
"""Denominator of the symbols' values: a prime, so that nothing in an expression cancels with it."""

_Bounded = (sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit)
_SignDependent = (
    sympy.Abs,
    sympy.sign,
    sympy.Max,
    sympy.Min,
    sympy.arg,
    sympy.re,
    sympy.im,
    sympy.conjugate,
)
"""Functions that depend on the signs of symbols; since all symbols are positive here, sympy would drop them."""
_SIGNED_NAMES = tuple(f"{function.__name__} " for function in _SignDependent)
_Point = tuple[int, int]
"""Real and imaginary part of a value, in units of the last bit."""


def clear_caches() -> None:
    """Empty the caches of sympy and of our parser (R8).

    A worker calls this before each task. With full caches, the work for a task would depend on the tasks before it.
    """
    clear_cache()
    parse.cache_clear()
    tidied_before.cache_clear()


def leaf(text: str) -> Form:
    """Read an expression, relation, matrix or set with sympy, and return its meaning as a `Form`.

    Args:
        text: LaTeX as `tidy` returns it.

    Raises:
        Unreadable: the parser or sympy raised an error of any kind but MemoryError.
        MemoryError: the parser or sympy ran out of memory.
    """
    # sympy tests some identities at random points, and a verdict must not depend on earlier ones.
    random.seed(_SEED)
    try:
        return _form(parse(text))
    except (MemoryError, Unreadable):
        raise
    # Parser and sympy raise errors of many classes for texts that they do not expect.
    except Exception as error:
        raise Unreadable(str(error)[:80]) from None


def _form(parsed: Any) -> Form:
    """Return the meaning of a parsed text as a `Form`.

    Args:
        parsed: what the LaTeX parser returned, usually a sympy object.

    Raises:
        Unreadable: `parsed` is no expression, relation, tuple, matrix or set, or cannot be computed.
    """
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
            # With letters, `\infty x` becomes infinity for positive x, and sympy takes all letters for positive.
            if form.label in ("oo", "-oo") and parsed.free_symbols:
                raise Contradiction("an infinity beside letters")
            return form
    raise Unreadable(f"a {type(parsed).__name__} is no answer")


def _set(value: sympy.Set) -> Form:
    """Return the meaning of an evaluated sympy set as a `Form`.

    Finite sets, intervals and unions become forms of the kinds "set", "interval" and "union", with two exceptions: a
    set of one element becomes this element, and an open interval outside a union becomes a "tuple", because `(1, 2)`
    may mean either. Any other set becomes a form of the kind "other", with sympy's text as its label.
    """
    match value:
        case sympy.FiniteSet() | sympy.sets.sets.EmptySet():
            return unordered(map(_form, value.args))
        case sympy.Interval():
            brackets = ("(" if value.left_open else "[") + (
                ")" if value.right_open else "]"
            )
            ends = (_form(value.start), _form(value.end))
            # An open interval is written like an ordered pair, and only the prompt can tell them apart.
            if brackets == "()":
                return Form("tuple", parts=ends)
            return Form("interval", brackets, ends)
        case sympy.Union():
            parts = [_form(part) for part in value.args]
            # In a union, such a pair can only be an interval.
            intervals = [
                Form("interval", "()", part.parts) if part.kind == "tuple" else part
                for part in parts
            ]
            return Form("union", parts=tuple(sorted(intervals, key=lambda part: part.key)))
    return Form("other", short(str(value)))


def _expression(value: Any) -> Form:
    """Return the meaning of an evaluated expression as a `Form`.

    A rational number becomes a form of the kind "number", an infinity becomes a "value", and a single letter becomes a
    "word". Any other expression becomes the form that `_at_points` returns. If its values cannot be computed, the kind
    is "other", with sympy's text as the label.

    Raises:
        Unreadable: the expression is undefined, as 1/0 is.
    """
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
        # A zero cannot be computed to any relative precision, so ask sympy whether it is one.
        if sympy.simplify(value) == 0:
            return number(Fraction(0))
        return Form("other", short(str(value)))


def _at_points(value: sympy.Expr) -> Form:
    """Return a `Form` that identifies an expression by its values at two points.

    A point gives each letter of the expression a fixed value. Points 0 and 1 are used first. If a value there is
    complex, although the expression has no `i`, `_real_values` looks for two points where the expression is real. If it
    finds none, the values at points 0 and 1 are kept.

    The form has the kind "number" if both values are the same rational number with a denominator of at most 10^6.
    Otherwise it has the kind "value".

    Raises:
        _NoValue: the expression has no value at one of the points.
    """
    opaque = _with_symbols(value)
    bits = _compared_bits(opaque)
    values = [_value_at(opaque, index, bits) for index in range(2)]
    # `\sqrt{x - 2}` is imaginary at the first point, where x is below 1, but real at others.
    is_complex = any(imaginary for (_, imaginary), _ in values) and not value.has(sympy.I)
    if is_complex:
        values = _real_values(opaque, bits) or values
    # `(1 + \sqrt2)(1 - \sqrt2)` is the number -1, and `\sin^2 x + \cos^2 x` is 1.
    first_rational, second_rational = map(_rational, values)
    if first_rational is not None and first_rational == second_rational:
        return number(first_rational)
    label = short(
        " ".join(
            f"{real:x},{imaginary:x}@{exponent}" for (real, imaginary), exponent in values
        )
    )
    # The symbol for `|x|` or a floor has an arbitrary value, so a difference proves nothing about it.
    names = (symbol.name for symbol in opaque.free_symbols)
    guesses = {name for name in names if name.startswith((*_SIGNED_NAMES, "floor "))}
    if is_complex:
        # Another expression may have been compared at other points, where it is real.
        guesses.add(label)
    return Form("value", label).guessed(OF_LETTERS + guess for guess in guesses)


def _real_values(expression: sympy.Expr, bits: int) -> list[tuple[_Point, int]]:
    """Return the values of an expression at the first two points where it is real.

    A point gives each letter a fixed value. Eight points are tried. If the expression is real at fewer than two of
    them, or has no letters, the list is empty. A value ((real, imaginary), exponent) stands for (real + imaginary * i)
    * 2**exponent.

    Args:
        expression: an evaluated expression.
        bits: precision of the values.

    Raises:
        _NoValue: the expression has no value at one of the eight points.
    """
    if not expression.free_symbols:
        return []
    values = (_value_at(expression, index, bits) for index in range(_MOST_POINTS))
    real_values = [value for value in values if not value[0][1]]
    return real_values[:2] if len(real_values) > 1 else []


def _with_symbols(expression: sympy.Expr) -> sympy.Expr:
    """Put symbols in place of the parts of an expression that are not computed.

    These parts are unknown functions such as `f(x)`, derivatives, floors and ceilings. Equal parts get the same symbol.
    """
    opaque = expression.atoms(AppliedUndef, sympy.Derivative)
    names = {atom: sympy.Symbol(str(atom), positive=True) for atom in opaque}
    for atom in expression.atoms(sympy.floor, sympy.ceiling):
        # The ceiling of x is the negative floor of -x, so the two share one symbol.
        sign = 1 if isinstance(atom, sympy.floor) else -1
        names[atom] = sign * sympy.Symbol(
            f"floor {_expression(sign * atom.args[0]).key}", positive=True
        )
    return expression.xreplace(names) if names else expression


def _compared_bits(expression: sympy.Expr) -> int:
    """Return the precision, in bits, to which an expression's values are computed and compared.

    The precision is 133 bits, which is 40 decimal digits. If a numerator or denominator in the expression has more than
    64 bits, the bits of the longest one are added: long integers that differ by 1 may agree in the first 133 bits.

    Raises:
        Unreadable: the precision would exceed 4,000 bits.
    """
    constants = expression.atoms(sympy.Rational)
    longest = max(
        (int(n).bit_length() for constant in constants for n in (constant.p, constant.q)),
        default=0,
    )
    bits = _BITS + (longest if longest > _SMALL_CONSTANT else 0)
    if bits > _MOST_COMPARED:
        raise Unreadable("a constant out of bounds")
    return bits


class _NoValue(Unreadable):
    """An expression has no value at a point, or its value cannot be computed to enough bits."""


def _value_at(expression: sympy.Expr, index: int, bits: int) -> tuple[_Point, int]:
    """Return the value of an expression at a point as three integers, ((real, imaginary), exponent).

    A point gives each letter of the expression a fixed value. The three integers stand for (real + imaginary * i) *
    2**exponent. For 0, all are 0.

    Args:
        expression: an evaluated expression.
        index: number of the point. If it is divisible by 3, all letters are between 0 and 1, otherwise between 1 and 9.
        bits: the precision. The larger of `real` and `imaginary` gets this many bits.

    Raises:
        _NoValue: the expression has no value at the point, or cannot be computed to this precision.
    """
    if expression.atoms(*_Bounded):
        raise _NoValue("a bounded variable")
    point = {symbol: _coordinate(symbol.name, index) for symbol in expression.free_symbols}
    # A decimal digit has more than 3.3 bits.
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
    # The precision is relative to the larger part: a real number may have an imaginary part of rounding errors.
    mantissa, exponent, precision = max(
        numbers, key=lambda n: (n[0] != 0, n[0].bit_length() + n[1])
    )
    if not mantissa:
        return (0, 0), 0
    last_bit = mantissa.bit_length() + exponent - bits
    if precision < bits or abs(last_bit) > _LARGEST_EXPONENT:
        raise _NoValue("zero in disguise, perhaps")
    real, imaginary = (_rounded(m, e - last_bit) for m, e, _ in numbers)
    # Rounding up to a power of two has added a bit.
    if max(abs(real), abs(imaginary)).bit_length() > bits:
        real, imaginary, last_bit = real // 2, imaginary // 2, last_bit + 1
    return (real, imaginary), last_bit


def _coordinate(name: str, index: int) -> sympy.Rational:
    """Return the value of the symbol `name` at the point with the number `index`.

    It is a rational number derived from a hash of `name` and `index`. It is positive, because sympy has simplified the
    expression on the assumption that all symbols are positive.
    """
    digest = hashlib.blake2b(
        f"{index} {name}".encode("utf-8", "surrogatepass"), digest_size=15
    ).digest()
    share = sympy.Rational(int.from_bytes(digest, "big") * 128, _PRIME)
    return share if index % 3 == 0 else 1 + 8 * share


def _binary(part: Any) -> tuple[int, int, int]:
    """Return a real sympy number as three integers: mantissa, exponent and precision.

    The number is mantissa * 2**exponent. The precision is the number of bits to which sympy computed it. An integer is
    exact and gets 4,000, the most bits that are ever compared.

    Raises:
        _NoValue: `part` is no number, or not finite.
    """
    if part.is_Integer:
        return int(part), 0, _MOST_COMPARED
    if not part.is_Float or not part.is_finite:
        raise _NoValue("no real number")
    sign, mantissa, exponent, _ = part._mpf_
    return (-1 if sign else 1) * int(mantissa), int(exponent), int(part._prec)


def _rounded(mantissa: int, shift: int) -> int:
    """Return mantissa * 2**shift, rounded to the nearest integer, half to even."""
    if shift >= 0:
        return mantissa << shift
    return (
        round(Fraction(mantissa, 1 << -shift)) if -shift <= mantissa.bit_length() + 1 else 0
    )


def _rational(value: tuple[_Point, int]) -> Fraction | None:
    r"""Return the rational number that equals a value up to rounding, or None if there is none.

    Only rational numbers with a denominator of at most 10^6 are found. The value ((real, imaginary), exponent) stands
    for (real + imaginary * i) * 2**exponent. For ``(1+\sqrt2)(1-\sqrt2)`` the rational number is -1.
    """
    (real, imaginary), exponent = value
    # Without enough bits after the point, every value is close to a simple rational.
    if imaginary or exponent > -64:
        return None
    exact = Fraction(real, 1 << -exponent)
    near = exact.limit_denominator(_LARGEST_DENOMINATOR)
    return near if abs(near - exact) <= Fraction(2, 1 << -exponent) else None


def _relation(relation: Any) -> Form:
    """Return the meaning of an equation, an inequality, or several inequalities that hold together, as a `Form`.

    An equation becomes a form of the kind "equation". Anything else becomes a form of the kind "other".
    """
    parts = relation._unsorted_args if isinstance(relation, And) else [relation]
    if len(parts) == 1 and isinstance(parts[0], Eq):
        return Form("equation", _equation(parts[0].lhs, parts[0].rhs))
    return Form("other", short(" & ".join(sorted(map(_inequality, parts)))))


def _equation(left: Any, right: Any) -> str:
    """Return a text that identifies the equation ``left = right``.

    All multiples of an equation, such as ``y = x`` and ``2y = 2x``, have the same text. If a side is no expression (a
    set, for example), the text consists of the two sides as sympy prints them.

    Raises:
        Unreadable: the equation has no letters, or cannot be computed.
    """
    if not (isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr)):
        return short(f"{left} = {right}")
    # `y = 1/x` is `xy = 1`: a fraction is 0 if and only if its numerator is.
    difference = evaluate(left) - evaluate(right)
    if sympy.count_ops(difference) <= _MOST_OPERATIONS:
        difference = sympy.fraction(sympy.together(difference))[0]
    return f"{_proportions(difference)[0]} = 0"


def _inequality(relation: Any) -> str:
    """Return a text that identifies an inequality.

    The text is the same for ``a < b``, ``b > a`` and all their positive multiples.

    Raises:
        Unreadable: the inequality has no letters, or cannot be computed.
    """
    sign = {Lt: "<", Gt: "<", Le: "<=", Ge: "<=", Ne: "!=", Eq: "="}[type(relation)]
    left, right = (evaluate(side) for side in (relation.lhs, relation.rhs))
    proportions, is_positive = _proportions(
        right - left if isinstance(relation, (Gt, Ge)) else left - right
    )
    return f"{'' if is_positive or sign in ('!=', '=') else '-'}{proportions} {sign} 0"


def _proportions(difference: sympy.Expr) -> tuple[str, bool]:
    """Return the ratios of an expression's values at three points, as text, and whether the first value is positive.

    A point gives each letter a fixed value. The second and the third value are divided by the first. All multiples of
    an expression have the same ratios. The sign of the first value tells positive multiples from negative ones.

    Args:
        difference: one side of a relation minus the other side.

    Raises:
        Unreadable: the expression has no letters, or cannot be computed.
    """
    opaque = _with_symbols(difference)
    if not sympy.expand(opaque).free_symbols:
        raise Unreadable("a relation of nothing")
    first_value, *other_values = (
        _value_at(opaque, index, _compared_bits(opaque) + _SPARE_BITS) for index in range(3)
    )
    if first_value[0] == (0, 0):
        raise Unreadable("a relation that can't be computed")
    return " ".join(_ratio(value, first_value) for value in other_values), sum(
        first_value[0]
    ) > 0


def _ratio(value: tuple[_Point, int], unit: tuple[_Point, int]) -> str:
    """Return the quotient value / unit as text: its real part, a comma and its imaginary part.

    Each part is an integer in hexadecimal: the part times 2**133, rounded. Both arguments are ((real, imaginary),
    exponent) and stand for (real + imaginary * i) * 2**exponent.
    """
    # (a + bi) / (c + di) = (a + bi)(c - di) / (c^2 + d^2)
    (a, b), e = value
    (c, d), f = unit
    norm = c * c + d * d
    parts = [Fraction(a * c + b * d, norm), Fraction(b * c - a * d, norm)]
    scale = Fraction(2) ** (e - f)
    return ",".join(f"{round(part * scale * 2**_BITS):x}" for part in parts)


def evaluate(expression: Any) -> Any:
    """Return a sympy expression with all operations carried out, except derivatives.

    Decimals become exact rationals, and percent signs become hundredths. Odd roots of negative numbers are real. The
    letter `i` is the imaginary unit, unless it is the index of a sum, product or the like.

    Raises:
        Unreadable: a number in the expression is too large to compute.
    """
    limits = [
        limit
        for bounded in expression.atoms(*_Bounded)
        for limit in getattr(bounded, "limits", ())
    ]
    return _evaluated(expression, "i" not in {str(limit[0]) for limit in limits})


def _evaluated(expression: Any, has_imaginary_unit: bool) -> Any:
    """Carry out all operations in a sympy expression except derivatives.

    `has_imaginary_unit` says whether the letter `i` is the imaginary unit.
    """
    if not expression.args:
        return _evaluated_atom(expression, has_imaginary_unit)
    if isinstance(expression, sympy.Derivative):
        return expression
    arguments = [_evaluated(argument, has_imaginary_unit) for argument in expression.args]
    if isinstance(expression, sympy.UnevaluatedExpr):
        return arguments[0]
    if isinstance(expression, _SignDependent) and any(
        argument.free_symbols for argument in arguments
    ):
        return _symbol_of_signed(expression, arguments)
    # sympy would return the complex cube root of -8, and `x` for `\sqrt{x^2}`, since its letters are positive.
    root = _root(*arguments) if isinstance(expression, sympy.Pow) else None
    if root is not None:
        return root
    value = expression.func(*arguments)
    return value.doit() if isinstance(value, _Bounded) else value


def _evaluated_atom(atom: Any, has_imaginary_unit: bool) -> Any:
    """Return the exact meaning of an atom of sympy: a number, a symbol or a constant.

    Decimals become exact rationals, and letters become positive symbols. If `has_imaginary_unit` is true, the letter
    `i` becomes the imaginary unit. Euler's constant becomes the letter gamma. Any other atom is returned unchanged.
    """
    match atom:
        case sympy.Float():
            return sympy.Rational(str(atom)) if atom.is_finite else atom
        case sympy.Symbol(name="i") if has_imaginary_unit:
            return sympy.I
        case sympy.Symbol():
            return sympy.Symbol(atom.name, positive=True)
        case sympy.EulerGamma:
            # The parser reads the letter gamma as Euler's constant.
            return sympy.Symbol("gamma", positive=True)
    return atom


def _root(base: sympy.Expr, exponent: sympy.Expr) -> sympy.Expr | None:
    r"""Compute a root for which sympy's result is not what an answer means; return None for any other power.

    There are two kinds of such roots:

    1. An odd root of a negative number. The result is real: -2 for the cube root of -8.
    2. A square root of an expression with letters. The root of a square is an absolute value: `|x|` for `\sqrt{x^2}`.

    Powers with an exponent such as 2/3 or 3/2 count as roots.
    """
    if not exponent.is_Rational:
        return None
    if exponent.q == 2 and base.free_symbols:
        return _square_root(base, exponent)
    if exponent.q % 2 and exponent.q > 1 and base.is_number and base.is_negative:
        return (-1) ** abs(exponent.p) * (-base) ** exponent
    return None


def _square_root(base: sympy.Expr, exponent: sympy.Rational) -> sympy.Expr:
    r"""Raise an expression with letters to an exponent such as 1/2 or 3/2. `\sqrt{x^2}` becomes `|x|`."""
    factor, square = base.as_coeff_Mul()
    # `\sqrt{x^2 - 2x + 1}` is `|x - 1|`. Factoring a long sum would take too much work.
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
        return factor**exponent * _symbol_of_signed(
            sympy.Abs(square.base, evaluate=False), [square.base]
        ) ** (square.exp * exponent)
    return base**exponent


def _symbol_of_signed(expression: Any, arguments: list[Any]) -> sympy.Expr:
    """Return a symbol in place of `|x|`, a maximum, or another call whose value depends on the signs of its arguments.

    Calls of the same function with equal arguments get the same symbol. `|x - 1|` and `|1 - x|` share a symbol, too.

    Args:
        expression: the call. Only its function is used.
        arguments: the arguments of the call, evaluated.
    """
    # The square is the same for x - 1 and 1 - x.
    if isinstance(expression, sympy.Abs):
        arguments = [sympy.expand(argument**2) for argument in arguments]
    keys = sorted(_expression(argument).key for argument in arguments)
    return sympy.Symbol(f"{type(expression).__name__} {' '.join(keys)}", positive=True)


def proof(gold: str, answer: str, reader: Callable[[str], Any] = parse) -> bool | None:
    """Return whether math-verify finds that an answer states the same as a gold, or None if it raises an error.

    math-verify is not symmetric: if gold and answer are swapped, the result may change.

    Args:
        gold: a label or true answer, as rewritten by `tidy`.
        answer: the answer, as rewritten by `tidy`.
        reader: function that parses each text for math-verify.

    Raises:
        MemoryError: math-verify ran out of memory.
    """
    random.seed(_SEED)
    try:
        # math-verify limits its time by the clock (SIGALRM), so a busy machine would change verdicts (R8).
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
    """Return whether math-verify, with its own parser, finds that an answer states the same as a gold.

    Unlike `proof`, this function takes the texts as they were given, not as `tidy` rewrites them. The result is None if
    math-verify raises an error other than MemoryError.
    """
    return proof(
        gold, answer, lambda text: parse_alone(f"\\boxed{{{text}}}", parsing_timeout=None)
    )
