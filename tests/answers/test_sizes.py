r"""How large the number that an expression makes would be, before it is computed (R8)."""

import math

import pytest
import sympy
from cases import each

from olr_cli.answers.latex import parse
from olr_cli.answers.reading import TooLarge
from olr_cli.answers.size import check_size

LOG = math.log2


@each(
    "text, top, bottom, value",
    ("8", 3, 0, 8), ("-8", 3, 0, -8), (r"\frac{3}{8}", LOG(3), 3, 3 / 8), ("0.5", 0, 1, 0.5), ("0", 0, 0, 0),
    ("x", 1, 0, 0.5), (r"\pi", 2, 0, math.pi), ("x + 8", 4, 0, 8.5), ("x + y + 8", 3 + LOG(3), 0, 9), ("8x", 4, 0, 4),
    (r"\frac18 + \frac14", 4, 5, 3 / 8), ("2^{10}", 10, 0, 1024), ("2^{-10}", 0, 10, 2**-10),
    (r"\sqrt{8}", 1.5, 0, 8**0.5),
    ("10!", 10 * LOG(11), 0, 3628800), ("e^{8}", 1.45 * 8, 0, math.exp(8)), (r"\ln 8", 3, 0, math.log(8)),
    (r"\sum_{k=1}^{8} k", LOG(9) + 8, 0, 64), (r"\sum_{k=1}^{8} \frac1k", 8 * LOG(9), 8 * LOG(9), 1),
    (r"\prod_{k=1}^{8} k", 8 * LOG(9), 0, 8**8), (r"\prod_{k=2}^{8} \frac1k", 7, 7 * LOG(9), 8**-7),
    (r"\int_0^8 x dx", LOG(9), 0, 8), (r"\begin{pmatrix}8&1\\\frac12&2\end{pmatrix}", 4, 1, 1),
    (r"\binom{10}{3}", 3 * LOG(14), 0, 14**3), (r"\binom{10}{7}", 3 * LOG(18), 0, 18**3),
    (r"\binom{10}{x}", 10 * LOG(11), 0, 3628800), (r"\binom{2}{2}", 0, 0, 1), (r"\binom{20}{1}", LOG(22), 0, 22),
)  # fmt: skip
def test_the_size_of_an_expression_follows_from_those_of_its_parts(
    text, top, bottom, value
):
    size = check_size(parse(text))
    assert (size.top, size.bottom) == pytest.approx((top, bottom))
    assert complex(size.value) == pytest.approx(value)


def test_what_is_no_expression_has_no_size():
    assert check_size("text") == check_size(sympy.oo) == (0, 0, 1)


@each(
    "within, beyond",
    (sympy.Integer(2) ** 332_192, sympy.Integer(2) ** 332_193),
    (sympy.Rational(1, 2**332_192), sympy.Rational(1, 2**332_193)),
    (sympy.Float(2.0**1000), sympy.Float("1e100001")),
    (sympy.sin(sympy.Integer(2**20_000), evaluate=False), sympy.sin(sympy.Integer(2**20_001), evaluate=False)),
    (sympy.sqrt(sympy.UnevaluatedExpr(2**4000)), sympy.sqrt(sympy.UnevaluatedExpr(2**4001))),
    (sympy.Pow(2**4001, 2, evaluate=False), sympy.Pow(2**166_097, 2, evaluate=False)),
    (sympy.Symbol("x"), sympy.Float("1e-100001")),
)  # fmt: skip
def test_a_number_of_more_than_a_hundred_thousand_digits_is_refused(within, beyond):
    check_size(within)
    with pytest.raises(TooLarge):
        check_size(beyond)
