r"""Units and words, spelled a second time (R7)."""

from cases import each

from olr_cli.answers.names import is_name, names_value, symbols
from olr_cli.answers.reading import no_algebra, read
from olr_cli.answers.units import (
    based_digits,
    clock_time,
    is_connective,
    split_unit,
    word,
)


@each(
    "unit, name",
    ("km", "kilom"), ("kilometres", "kilom"), ("MW", "megaW"), ("GB", "gigabyte"), ("TB", "terabyte"),
    ("hPa", "hectoPa"), ("dL", "deciL"), ("cm", "centim"), ("mg", "millig"), ("μs", "micros"), ("µm", "microm"),
    ("ns", "nanos"), ("pF", "picoF"), ("fm", "femtom"), ("kilograms", "kilog"), ("milliseconds", "millis"),
    ("microfarads", "microF"), ("hrs", "h"), ("hours", "h"), ("minutes", "min"), ("inches", "in"), ("feet", "ft"),
    ("miles", "mi"), ("lbs", "lb"), ("acres", "acre"), ("dollars", "dollar"), ("degrees", "degree"), ("euros", "euro"),
    ("mph", "h^-1 mi"), ("kph", "h^-1 kilom"), ("kmph", "h^-1 kilom"), ("Nm", "N m"), ("kWh", "h kiloW"),
    ("mAh", "h milliA"), ("m/s", "m s^-1"), ("miles per hour", "h^-1 mi"), ("m^2", "m^2"), ("square metres", "m^2"),
    ("cubic feet", "ft^3"), ("metres squared", "m^2"), ("metres cubed", "m^3"), ("kg apples", "kilog"),
    ("apples", "#apple"), ("m s^{-2}", "m s^-2"), ("个", "#个"), ("厘米", "厘米"), ("M", "M"), ("Mm", "megam"),
    ("and", ""),
    ("half", ""), ("?", ""),
)  # fmt: skip
def test_a_unit_has_one_name(unit, name):
    text = rf"5\text{{ {unit}}}"
    assert split_unit(text) == (("5", name) if name else (text, ""))


@each(
    "text, body, unit",
    (r"\$5", "5", "dollar"), (r"-\$5", "-5", "dollar"), ("£5", "5", "£"), ("-€3", "-3", "euro"), ("₹7", "7", "rupee"),
    (r"90^\circ", "90", "degree"), (r"20^\circ\text{C}", "20", "°C"), (r"20^{\circ}\text{F}", "20", "°F"),
    ("5 cm", "5", "centim"), ("5 m", "5 m", ""), ("500 m", "500", "m"), ("2600g", "2600", "g"), ("26g", "26g", ""),

    (r"2 \times 10^3 m", r"2 \times 10^3", "m"), ("5 cats", "5", "#cat"), ("5 cat", "5 cat", ""),
    ("260 cat", "260 cat", ""), ("5 ab", "5 ab", ""),
    (r"60 \frac{\text{mi}}{\text{h}}", "60", "h^-1 mi"),
    (r"60 \frac{\text{cats}}{\text{dogs}}", r"60 \frac{\text{cats}}{\text{dogs}}", ""),
    (r"(0, 5]\text{ cm}", "(0, 5]", "centim"), (r"(0, 5\text{ cm}", r"(0, 5\text{ cm}", ""),
    (r"{5\text{ cm}", r"{5\text{ cm}", ""), (r"2+\text{cm}", r"2+\text{cm}", ""), (r"2-\text{cm}", r"2-\text{cm}", ""),
    (r"x^\text{cm}", r"x^\text{cm}", ""), (r"\text{ cm}", r"\text{ cm}", ""),
    (r"5\text{ cm} + 1", r"5\text{ cm} + 1", ""), ("7", "7", ""),
)  # fmt: skip
def test_a_unit_is_split_from_what_it_measures(text, body, unit):
    assert split_unit(text) == (body, unit)


@each(
    "text, digits",
    ("52_8", "8:52"), (r"52_{\text{eight}}", "8:52"), ("52 base 8", "8:52"), ("-52_8", "8:-52"), ("FF_{16}", "16:FF"),
    ("89_8", None), ("52_1", None), ("52_{n}", None), ("11_2", "2:11"), ("12_2", None), ("Z_{36}", None),
    ("10_{36}", "36:10"), ("10_{37}", None), ("(52)_8", "8:52"),
)  # fmt: skip
def test_the_digits_of_a_number_with_a_base(text, digits):
    assert based_digits(text) == digits


@each(
    "text, time",
    ("5 pm", "17:00"), ("5 am", "5:00"), ("12 am", "0:00"), ("12 pm", "12:00"), ("5:30 P.M.", "17:30"),
    ("1 am", "1:00"), ("11:59 pm", "23:59"), ("13 pm", None), ("0 am", None), ("5", None),
)  # fmt: skip
def test_the_time_of_day_that_an_answer_names(text, time):
    assert clock_time(text) == time


@each(
    "text, letters",
    ("A B", "ab"), ("AB", "ab"), ("right angle", "right angle"), ("Right  Angle.", "right angle"), ("7", None),
    (r"\text{right-angled}", "right angled"), ("right-angled", None), (r"\text{A} \text{B}", "ab"), ("a1", None),
    ("Yes!", "yes"), ("x!", None), ("ab cd e", "ab cd e"),
)  # fmt: skip
def test_the_letters_of_an_answer_in_words(text, letters):
    assert word(text) == letters


def test_words_that_join_or_change_numbers_are_no_units():
    known = (
        "and or nor to more half percent million millions billion vectori sqrt e i no not"
    )
    assert all(map(is_connective, known.split()))
    assert not any(map(is_connective, ("andy", "mole", "cm", "metre")))


@each(
    "head, value, names",
    ("x", "5", True), ("5", "x", False), ("x", "2x - 3", False), ("x", "x_1 + 2", True), ("f(x)", "2x", True),
    ("AB", "5", True), ("AB", "2AB", False), (r"\pi", "3", False), ("e", "3", False), ("i", "3", False),
    (r"\text{area}", "5", True), (r"\text{Alice}", r"\text{Bob}", False), (r"\text{Alice}", "5", True),
    (r"\text{ln}(x)", "5", False), (r"\ln(x)", "5", False), (r"\triangle ABC", "5", True), ("[ABC]", "5", True),
    ("|AB|", "5", True), ("(x, y)", "(1, 2)", True), ("f^{-1}(x)", "2x", True), ("x + y", "5", False),
    (r"\vec{v}", "5", True), ("x^*", "5", True),
)  # fmt: skip
def test_what_only_names_a_value(head, value, names):
    assert is_name(head, value) is names


def test_the_symbols_of_an_expression_are_its_letters_without_constants_and_commands():
    assert symbols(r"\frac{x_1}{2} + \alpha e^{i t} \sin y \cdot \pi") == [
        "x_1", r"\alpha", "t", "y"
    ]  # fmt: skip


def test_only_equations_name_their_last_side():
    assert not names_value(read("5", no_algebra), is_gold=True)
    assert not names_value(read("x = 5", no_algebra), is_gold=False)
