r"""What computer algebra says of an expression: its value at fixed points, and what is no value (R7)."""

from fractions import Fraction

import pytest
import sympy
from cases import each
from hypothesis import given, strategies as st

from olr_cli.answers import algebra
from olr_cli.answers.algebra import leaf, proof
from olr_cli.answers.classes import OF_LETTERS
from olr_cli.answers.reading import Contradiction, Unreadable

X, Y = sympy.symbols("x y", positive=True)
THIRD, HALF = sympy.Rational(1, 3), sympy.Rational(1, 2)
ONE = 1 << 132


def label(text):
    return leaf(text).label


@each(
    "one, other",
    ("x < 1", "1 > x"), ("x < 1", "2x < 2"), ("x < 1", "-x > -1"), (r"x \le 1", r"1 \ge x"), (r"x \ge 1", r"-x \le -1"),
    (r"x \ne 1", r"1 \ne x"), (r"x \ne 1", r"-x \ne -1"), ("0 < x < 2", "2 > x > 0"), ("x = 1", "2x = 2"),
    ("x = 1", "1 = x"), ("x y = 1", r"y = \frac{1}{x}"), ("x = y", "-y = -x"),
)  # fmt: skip
def test_a_relation_is_read_from_either_side_and_as_any_multiple(one, other):
    assert label(one) == label(other)


@each(
    "one, other",
    ("x < 1", "x > 1"), ("x < 1", r"x \le 1"), (r"x \le 1", r"x \ge 1"), (r"x \ne 1", "x = 1"), ("x < 1", "x < 2"),
    ("0 < x < 2", "0 < x < 3"), ("x = 1", "y = 1"), ("x < 1", "-x < 1"), ("x^2 = 1", "x = 1"),
)  # fmt: skip
def test_relations_that_differ_have_two_labels(one, other):
    assert label(one) != label(other)


@each(
    "text", "x = x", "1 < 2", r"\frac{1}{0}", r"\infty - \infty", "x + y - y - x = 0",
    r"\begin{pmatrix}1&1\\0&1\end{pmatrix}^{x}",
)  # fmt: skip
def test_what_says_nothing_is_unreadable(text):
    with pytest.raises(Unreadable):
        leaf(text)


def test_an_infinity_beside_letters_is_a_contradiction_and_alone_a_value():
    assert (label(r"\infty"), label(r"-\infty")) == ("oo", "-oo")
    with pytest.raises(Contradiction):
        leaf(r"x + \infty")


@each(
    "base, exponent, root",
    (-8, THIRD, -2), (-8, 2 * THIRD, 4), (-8, -THIRD, -HALF), (-8, HALF, None), (8, THIRD, None), (X, THIRD, None),
    (-8, 3, None), (-8, X, None),
)  # fmt: skip
def test_odd_roots_of_negative_numbers_are_real(base, exponent, root):
    assert algebra._root(sympy.sympify(base), sympy.sympify(exponent)) == root


@each(
    "text, other, is_one",
    (r"\sqrt{x^2}", "|x|", True), (r"\sqrt{x^2}", "x", False), (r"\sqrt{4x^2}", "2|x|", True),
    (r"\sqrt{x^2 - 2x + 1}", "|x - 1|", True), (r"\sqrt{x^2 - 2x + 1}", "|1 - x|", True), (r"\sqrt{x^4}", "x^2", False),
    (r"\sqrt{x^3}", r"x \sqrt{x}", True), (r"\sqrt{x^2 + y}", r"\sqrt{y + x^2}", True), ("|x - 1|", "x - 1", False),
    (r"\sqrt{-x^2}", "x", False), (r"\max(x, 1)", r"\max(1, x)", True), (r"\max(x, 1)", r"\min(x, 1)", False),
    (r"\lfloor x \rfloor", r"-\lceil -x \rceil", True), (r"\lfloor x \rfloor", r"\lceil x \rceil", False),
    (r"\lfloor x \rfloor", "x", False), ("f(x) + 1", "1 + f(x)", True), ("f(x) + 1", "f(y) + 1", False),
    (r"\sum_{i=1}^{3} i", "6", True), ("i^2", "-1", True), (r"\sin^2 x + \cos^2 x", "1", True),
    (r"(1+\sqrt2)(1-\sqrt2)", "-1", True), (r"\sqrt{x - 2}", r"\sqrt{x - 3}", False), ("x^{-1}", r"\frac1x", True),
    ("2^{100} + x", "2^{100} + y", False), ("10^{30} + x", "10^{30} + 2x", False), ("0.1 + 0.2", "0.3", True),
    (r"(-7)^{-\frac13}", r"-\frac{1}{\sqrt[3]{7}}", True),
    (r"\gamma + 1", r"1 + \gamma", True), (r"\gamma", "0.5772156649", False), ("|z|^2", "z^2", False),
)  # fmt: skip
def test_expressions_are_one_where_their_values_are(text, other, is_one):
    assert (leaf(text).key == leaf(other).key) is is_one


@each(
    "text, is_guess",
    ("|x|", True), (r"\lfloor x \rfloor + 1", True), ("|x| + 1", True), (r"\sqrt{x - 2}", True), ("x + 1", False),
    (r"\sqrt{2}", False), ("i + 1", False), (r"x^2 + \sqrt{y}", False), (r"\sqrt{x}", False),
)  # fmt: skip
def test_the_value_of_letters_of_unknown_sign_is_a_guess(text, is_guess):
    guesses = leaf(text).guesses
    assert bool(guesses) is is_guess
    assert all(guess.startswith(OF_LETTERS) for guess in guesses)


@given(st.integers(-(10**6), 10**6), st.integers(-25, 25))
def test_a_mantissa_is_rounded_as_its_fraction_is(mantissa, shift):
    assert algebra._rounded(mantissa, shift) == round(mantissa * Fraction(2) ** shift)


@each(
    "value, rational",
    (((ONE, 0), -132), 1), (((ONE // 3, 0), -132), Fraction(1, 3)), (((ONE // 3 + 2, 0), -132), Fraction(1, 3)),
    (((ONE // 3 + 3, 0), -132), None), (((ONE, 1), -132), None), (((1 << 70, 0), -64), 64), (((1 << 70, 0), -63), None),
    (((ONE // (10**6 + 3), 0), -132), None),
)  # fmt: skip
def test_a_value_next_to_a_simple_rational_is_that_rational(value, rational):
    assert algebra._rational(value) == rational


@each(
    "value, bits",
    (X, 133), (X + 2**63, 133), (X + 2**64, 198), (X + sympy.Rational(1, 2**80), 214), (X + sympy.pi, 133),
    (X + sympy.Rational(2**80, 3), 214),
)  # fmt: skip
def test_long_constants_are_compared_in_more_bits(value, bits):
    assert algebra._compared_bits(value) == bits


def test_constants_of_four_thousand_bits_are_out_of_bounds():
    assert algebra._compared_bits(X + 2**3866) == 4000
    with pytest.raises(Unreadable):
        algebra._compared_bits(X + 2**3867)


@each(
    "value",
    sympy.sqrt(2),
    sympy.pi / 7,
    -sympy.E,
    sympy.sqrt(2) * 10**9,
    sympy.log(3) / 10**9,
)
def test_a_value_has_the_bits_that_are_asked_for(value):
    for factor in (1, sympy.I):
        (real, imaginary), exponent = algebra._value_at(value * factor, 0, 133)
        size = real or imaginary
        assert (real == 0, imaginary == 0) == (factor != 1, factor == 1)
        assert abs(size).bit_length() == 133
        near = value.evalf(60)
        assert abs(sympy.Rational(size) * sympy.Integer(2) ** exponent / near - 1) < 2**-130


def test_nothing_has_a_value_of_no_bits():
    assert algebra._value_at(sympy.Integer(0), 0, 133) == ((0, 0), 0)


def test_letters_are_small_at_each_third_point_and_else_between_one_and_nine():
    places = [algebra._coordinate(name, place) for name in "xyz" for place in range(6)]
    assert all(0 < value < 1 for value in places[::3])
    assert all(1 < value < 9 for at in (1, 2) for value in places[at::3])
    assert len({*places}) == 18 and max(places) > 5


@each(
    "value, unit, ratio",
    (((3, 0), 0), ((2, 0), 0), "3/2"), (((3, 0), 2), ((2, 0), 0), "6"), (((3, 0), 0), ((2, 0), 1), "3/4"),
    (((3, 0), 0), ((-2, 0), 0), "-3/2"),
)  # fmt: skip
def test_a_ratio_of_values_is_their_quotient(value, unit, ratio):
    assert algebra._ratio(value, unit) == f"{int(Fraction(ratio) * 2**133):x},0"


def test_a_ratio_of_complex_values_is_complex():
    # (3 + 4i) / (1 + 2i) is (11 - 2i) / 5.
    parts = [round(Fraction(part, 5) * 2**133) for part in (11, -2)]
    assert algebra._ratio(((3, 4), 0), ((1, 2), 0)) == "{:x},{:x}".format(*parts)


@each(
    "gold, answer, is_proved",
    ("x + 1", "1 + x", True), ("x + 1", "x", False), (r"\{1, 2\}", "x", False), (r"\foo{", "x", None),
    ("x", r"\foo{", None),
)  # fmt: skip
def test_a_proof_tells_what_it_can(gold, answer, is_proved):
    assert proof(gold, answer) is is_proved
