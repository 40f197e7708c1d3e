r"""Each limit of reading answers: what is just within it is read, and what is beyond is given up (R7, R8)."""

from fractions import Fraction

import pytest
from cases import each

from olr_cli.answers import numbers
from olr_cli.answers.algebra import leaf
from olr_cli.answers.classes import Form, is_read, number, unordered
from olr_cli.answers.compare import compare
from olr_cli.answers.matching import _match_otherwise, _Side, decide
from olr_cli.answers.notation import LONGEST_READ, tidy
from olr_cli.answers.reading import read_tidied
from olr_cli.answers.units import NUMBER_WORDS

PLUS_OR_MINUS = r"\pm 1, "


@each(
    "within, beyond",
    ("7" * 1000, "7" * 1001),
    ("(" * 40 + "5" + ")" * 40, "(" * 41 + "5" + ")" * 41),
    (f"({PLUS_OR_MINUS * 5}1)", f"({PLUS_OR_MINUS * 6}1)"),
    ("10^{99999}", "10^{100001}"),
    ("10^{-99999}", "10^{-100001}"),
    ("2^{332191}", "2^{332193}"),
    ("5000!", "30000!"),
    ("1e4000", "1e10000"),
    (r"\Gamma(7)", r"\Gamma(1000000)"),
    (r"\sqrt{2^{3999}}", r"\sqrt{2^{4001}+1}"),
    ("2^{3^2}", "2^3^2"),
    ("7!", "7!!"),
    (r"3 \cdot 4", "3 4"),
    (r"\gcd(12, 18)", r"\gcd(a, b)"),
    (r"\begin{pmatrix}1&1\\0&1\end{pmatrix}^{-1}", r"\begin{pmatrix}4&0\\0&4\end{pmatrix}^{1/2}"),
    (r"\begin{pmatrix}1&1\\0&1\end{pmatrix}^{2}", r"\begin{pmatrix}1&1\\0&1\end{pmatrix}^{n}"),
)  # fmt: skip
def test_what_is_within_a_limit_is_read_and_what_is_beyond_is_not(within, beyond):
    assert is_read(decide("key", within, leaf=leaf))
    assert not is_read(decide("key", beyond, leaf=leaf))


@each("text", "1e4000", "1e-4000", r"3 \times 10^{4000}")
def test_exponents_up_to_four_thousand_are_exact(text):
    assert numbers.exact_number(text) is not None
    assert numbers.exact_number(text.replace("4000", "4001")) is None


@each("gold, answer", ("ACD", "A, C, D"), ("A, C, D", "ACD"))
def test_of_a_text_longer_than_the_limit_there_is_no_other_reading(gold, answer):
    def side(text, length):
        padded = text.ljust(length)
        return _Side(padded, padded, read_tidied(text, leaf))

    shorter = side(answer, 0)._replace(text=answer)
    assert _match_otherwise(side(gold, 0), shorter, leaf)
    for sides in (
        (side(gold, LONGEST_READ + 1), shorter),
        (shorter, side(gold, LONGEST_READ + 1)),
    ):
        assert not _match_otherwise(*sides, leaf)


@pytest.mark.parametrize(("size_", "verdict"), [(50, True), (51, None)])
def test_up_to_fifty_elements_without_a_partner_of_their_class_are_compared(size_, verdict):
    # A quantity and its numeral match, and are two classes.
    bare = [number(Fraction(value)) for value in range(size_)]
    measured = [Form("quantity", "m", (value,)) for value in bare]
    assert compare(unordered(bare), unordered(measured)) is verdict


@each(
    "word, value",
    ("hundred", 10**2), ("thousand", 10**3), ("万", 10**4), ("million", 10**6), ("亿", 10**8), ("billion", 10**9),
    ("trillion", 10**12),
)  # fmt: skip
def test_words_of_scale(word, value):
    assert numbers.exact_number(f"3 {word}") == 3 * value
    assert numbers.exact_number(f"1.5 {word}") == Fraction(3, 2) * value


def test_number_words_count_from_zero_to_ninety_nine():
    assert [NUMBER_WORDS[word] for word in ("zero", "nine", "ten", "eleven", "twelve", "nineteen")] == [
        0, 9, 10, 11, 12, 19
    ]  # fmt: skip
    tens = "twenty thirty forty fifty sixty seventy eighty ninety"
    assert [NUMBER_WORDS[word] for word in tens.split()] == [*range(20, 100, 10)]
    assert NUMBER_WORDS["thirty three"] == 33 and sorted(NUMBER_WORDS.values()) == [
        *range(100)
    ]


@each(
    "words, value",
    ("one half", "1/2"), ("two halves", "1"), ("two thirds", "2/3"), ("three quarters", "3/4"),
    ("three fourths", "3/4"),
    ("two fifths", "2/5"), ("five sixths", "5/6"), ("seven eighths", "7/8"), ("two ninths", "2/9"),
    ("three tenths", "3/10"),
    ("one hundred", "100"), ("two hundred and five", "205"), ("nine hundred ninety-nine", "999"),
    ("minus one half", "-1/2"),
    ("3 and a half", "7/2"), ("a half", "1/2"), ("negative five", "-5"), ("positive 5", "5"),
)  # fmt: skip
def test_numbers_and_shares_in_words(words, value):
    assert numbers.exact_number(tidy(words)) == Fraction(value)
