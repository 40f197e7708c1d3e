r"""Recognise units, words and number bases in an answer (R7).

A unit may take four forms:

- text in an upright style after a quantity, as in ``5\text{ cm}`` and ``15\,\mathrm{kcal\,m^{-2}}``;
- a known unit of two letters or more in plain letters, as in ``5 cm``;
- a degree sign;
- a sign of money before a quantity.

A noun that is no known unit counts things (``5\text{ apples}``). A single plain letter, as in ``6m``, is a symbol.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from olr_cli.answers.classes import COUNTED

_PREFIXES = "k kilo M mega G giga T tera h hecto d deci c centi m milli uμµ micro n nano p pico f femto"
# Units and their other names. A symbol takes the letter of a prefix (`km`), a name its word (`kilometer`).
_UNITS_WITH_PREFIXES = (
    "m meter metre|g gram gramme|s second sec|A ampere amp|K kelvin|mol mole|L l liter litre|J joule|W watt|N newton"
    "|Pa pascal|Hz hertz|V volt|C coulomb|F farad|H henry|T tesla|Wb weber|ohm Ω|eV electronvolt|cal calorie|bit b"
    "|byte B|pc parsec|bar|erg|dyn dyne|Bq becquerel|Sv sievert|S siemens|rad radian|M molar"
)
_UNITS_WITHOUT_PREFIXES = (
    "min minute|h hr hour|day|week|month|yr year|in inch inches|ft foot feet|yd yard|mi mile|oz ounce|lb lbs pound"
    "|ton tonne|acre|ha hectare|gal gallon|quart|pint|cup|tsp teaspoon|tbsp tablespoon|cent|£|euro €|yen ¥|rupee rs"
    "|atm|torr|mmHg|AU|ly lightyear|dB|rpm|psi|Å angstrom|arcsecond arcsec|arcminute arcmin|sr|u amu Da|cc"
    "|hp horsepower|knot|degree deg °|dollar USD|°C|°F|°K"
    "|米|厘米|公里 千米|克|公斤 千克|秒|分钟|小时|天|年|岁|元"
)
# Chinese measure words
_MEASURE_WORDS = "个人只条张本名位辆台件颗棵座层页支匹组种户家次步题"
# `mph`, `kmph`, `Nm`, `kWh`
_COMPOUND = re.compile(r"\b(?:(mph)|km?ph|(N|[kMG]?W|m?A)([msh]))\b")
_MONEY = {"\\$": "dollar", "£": "£", "\\pounds": "£", "€": "euro", "¥": "yen", "₹": "rupee"}
_LONGEST_SYMBOL = 3
"""Longest symbol of a unit; longer entries are names."""
_DIMENSIONS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_POWERS = {"squared": 2, "cubed": 3}

_NO_UNIT = re.compile(
    "and|n?or|to|from|of|than|then|mille|more|less|most|least|not?|none|if|when|where|for|at|by|mod|base|i|e|pi|am|pm|ad|bc|is"
    "|are|was|has|with|without|between|about|only|over|under|after|before|around|since|all|any|other|infinity|plus|minus"
    "|times|divided|squared|root|half|third|quarter|dozen|percent|(?:hundred|thousand|million|billion|trillion)s?"
    "|alpha|beta|gamma|delta|theta|lambda|sigma|omega|sqrt|angle|derivative|vector[ijk]"
)
"""Words that change the meaning of a number, or join it to another."""


def _known_units() -> Iterator[tuple[str, str]]:
    """Yield pairs (name, spelling) for all names of all units, with and without prefixes.

    All names of a unit have the same spelling: `m` for `meter` and `metre`.
    """
    prefixes = [
        (sign, word)
        for signs, word in re.findall(r"(\S+) (\w+)", _PREFIXES)
        for sign in signs
    ]
    for table, table_prefixes in (
        (_UNITS_WITH_PREFIXES, prefixes),
        (_UNITS_WITHOUT_PREFIXES, []),
    ):
        for first, *others in map(str.split, table.split("|")):
            for name in (first, *others):
                yield name, first
                for letter, word in table_prefixes:
                    yield (
                        (letter if len(name) <= _LONGEST_SYMBOL else word) + name,
                        f"{word}{first}",
                    )


_UNITS = dict(_known_units()) | {word: COUNTED + word for word in _MEASURE_WORDS}

_DEGREES = r"(?:\^\s*(?:\\circ|\{\s*\\circ\s*\})|\\degree(?![a-zA-Z]))"
# `\text{ m}^2`, `/\text{s}`, `^\circ` or `^\circ C`: a styled unit with its power, or a degree sign
_FACTOR = re.compile(
    r"\s*(?P<joint>/|\\cdot(?![a-zA-Z])|\\times(?![a-zA-Z]))?\s*"
    r"(?:\\text\{(?P<styled>(?:[^{}]|\{[^{}]*\})*)\}(?:\s*\^\s*\{?\s*(?P<power>-?\d)\s*\}?)?"
    rf"|{_DEGREES}(?:\s*(?:\\text\{{\s*)?(?P<scale>[CFK])\}}?(?![a-zA-Z]))?)"
)
# `60 \frac{\text{mi}}{\text{h}}`
_FRACTION = re.compile(
    r"([\d.,]+)(?:\s|(?=\\frac\s*\{\s*\\text))\\frac\s*\{((?:[^{}]|\{[^{}]*\})*)\}\s*\{((?:[^{}]|\{[^{}]*\})*)\}"
)
# ` cm` in `5 cm`
_PLAIN_UNIT = re.compile(
    r"(?<=[\d})\s])\s*(?P<unit>(?P<words>[a-zA-ZμΩÅ°][a-zA-ZμΩÅ°./ ]*?)\.?(?:\^\{?-?\d\}?)?)$"
)
# `2600` and `3 \cdot 10^8`
_LONG_NUMBER = re.compile(r"[\d.,]{3,}|.*10\s*\^\s*\{?\s*[+-]?\d+\s*\}?")
_WORD = re.compile(
    r"(?P<word>[a-zA-ZΩμµÅ£€¥°一-鿿]+)\.?(?:\s*\^?\s*\{?\s*(?P<power>-?\d)\s*\}?)?|(?P<over>/)|[·.*()\s-]+|\\cdot"
)


def split_unit(text: str) -> tuple[str, str]:
    """Split a text that `tidy` has rewritten into its quantity and its unit. Without a unit, return the text and "".

    All names of a unit give the same spelling: `5 metres` gives ("5", "m").
    """
    # `\$5` and `-€3`
    for sign, currency in _MONEY.items():
        if text.startswith((sign, f"-{sign}")):
            return text.replace(sign, "", 1).strip(), currency
    # `5\text{ cm}` and `90^\circ`
    if styled := _styled_unit(text):
        return styled
    # `60 \frac{\text{mi}}{\text{h}}`
    if fraction := _FRACTION.fullmatch(text):
        unit = _unit(_TEXT.sub(r"\1", f"({fraction[2]})/({fraction[3]})"), shortest=1)
        if unit and COUNTED not in unit:
            return fraction[1].rstrip(), unit
    # `5 cm`
    if plain := _PLAIN_UNIT.search(text):
        body = text[: plain.start()].rstrip()
        # `6m` is a product more often than a length, but `2600g` is a weight.
        unit = _unit(plain["unit"], shortest=1 if _LONG_NUMBER.fullmatch(body) else 2)
        if unit and (len(plain["words"]) > 1 or COUNTED not in unit):
            return body, unit
    return text, ""


def _styled_unit(text: str) -> tuple[str, str] | None:
    r"""Split a text into its quantity and its unit, or return None without a unit.

    Only a unit in a text style, as in `5\text{ cm}`, or a degree sign counts here.
    """
    for first in _FACTOR.finditer(text):
        body, styled = text[: first.start()], text[first.start() :]
        # The unit must reach to the end of the text, and the body must end in a quantity.
        if not body or body[-1] in "_^=+-*/({[,<>|" or _FACTOR.sub("", styled):
            continue
        # Round and square brackets are counted together, because an interval may be half open.
        opened, closed = (sum(map(body.count, brackets)) for brackets in ("([", ")]"))
        if opened == closed and body.count("{") == body.count("}"):
            unit = _unit(_FACTOR.sub(_in_plain_letters, styled))
            if unit:
                return body, unit
    return None


def _in_plain_letters(factor: re.Match[str]) -> str:
    r"""Rewrite one unit of a product in plain letters, with a space or a slash in front: ` m^2`, `/s`, ` °C`.

    The match is a unit in a text style, such as `\text{m}^2`, or a degree sign.
    """
    joint = "/" if factor["joint"] == "/" else " "
    unit = f"°{factor['scale'] or ''}" if factor["styled"] is None else factor["styled"]
    return f"{joint}{unit}^{factor['power']}" if factor["power"] else joint + unit


def _unit(text: str, shortest: int = 0) -> str:
    """Return the standard spelling of a product of units and their powers, or "" if a part of it is no unit.

    Args:
        text: the product, in plain letters.
        shortest: fewest letters that the first unit may have in plain letters, where one letter may be a variable. 0 if
            the unit was in a text style.
    """
    text = _COMPOUND.sub(_in_units, text)
    if _WORD.sub("", text):
        return ""
    powers: dict[str, int] = {}
    sign = dimensions = 1
    for match in _WORD.finditer(text):
        token = match["word"]
        # `m/s` and `miles per hour`
        if match["over"] or token == "per":
            sign = -1
        # `square feet`
        elif token in _DIMENSIONS:
            dimensions = _DIMENSIONS[token]
        # `feet squared`
        elif token in _POWERS and powers:
            powers[[*powers][-1]] *= _POWERS[token]
        elif token:
            name = _name(token, is_plain=shortest > 0)
            if not name or (not powers and len(token) < shortest):
                return ""
            powers[name] = powers.get(name, 0) + sign * dimensions * int(
                match["power"] or 1
            )
            dimensions = 1
    return _product(powers)


def _in_units(compound: re.Match[str]) -> str:
    """Split a compound into its units: `mph` into `mi/h`, `kph` into `km/h`, and `Nm` into `N m`."""
    if compound[1]:
        return "mi/h"
    return f"{compound[2]} {compound[3]}" if compound[2] else "km/h"


def _product(powers: Mapping[str, int]) -> str:
    """Spell a product of units, given the power of each unit: `m s^-1`.

    Beside a unit of measurement, counted things are left out: the unit of 5 kg apples is kg.
    """
    # The unit of `5 kg apples` is kg, and that of `5 apples` is apples.
    measured = {
        name: power for name, power in powers.items() if not name.startswith(COUNTED)
    }
    shown = sorted((measured or powers).items())
    return " ".join(name if power == 1 else f"{name}^{power}" for name, power in shown)


def is_connective(word: str) -> bool:
    """Return whether a word cannot be a unit, because it is a connective or a modifier (and, than, more, half)."""
    return _NO_UNIT.fullmatch(word) is not None


def _name(word: str, *, is_plain: bool) -> str:
    """Return the standard spelling of a unit, or "" if the word is no unit.

    A noun that is not in the tables of units counts things, as in `5 apples`, and gets the prefix `COUNTED` ("#").

    Args:
        word: one word, without its power.
        is_plain: whether the word is in plain letters, not in a text style. A noun then needs four letters instead of
            three.
    """
    lower = word.lower()
    if is_connective(lower):
        return ""
    singular = lower[:-1] if lower.endswith("s") and len(lower) > 2 else lower
    # A single letter keeps its case: m is meter, and M is molar.
    names = (word, lower, singular) if len(word) > 1 else (word,)
    for name in names:
        if name in _UNITS:
            return _UNITS[name]
    # Any other noun counts things, but a short word is more likely a symbol.
    shortest = 4 if is_plain else 3
    return f"{COUNTED}{singular}" if len(word) >= shortest and word.isascii() else ""


_ONES, _TENS = (
    "zero one two three four five six seven eight nine",
    "twen thir for fif six seven eigh nine",
)
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
NUMBER_WORDS = {word: number for number, word in enumerate(f"{_ONES} {_TEENS}".split())} | {
    f"{tens}ty {ones}".removesuffix(" zero"): 10 * ten + one
    for ten, tens in enumerate(_TENS.split(), 2)
    for one, ones in enumerate(_ONES.split())
}
_BASED = re.compile(
    r"(?P<sign>-?)(?:\(|\{|\\text\{)?(?P<digits>\d[\dA-F]*|[A-F][\dA-F]+)[)}]?\s*"
    r"(?:_\s*(?:\{\s*)?(?:\\text\{)?\s*\(?\s*(?:base\s*\}?\s*)?(?P<index>\d{1,2}|[a-z]+)\s*\)?\s*\}{0,2}"
    r"|(?:\\text\{)?\s*(?:in\s+|\(\s*)?base[\s-]*(?:\}\s*)?(?P<words>\d{1,2}|[a-z]+)\s*\)?\s*\}?)"
)


def based_digits(text: str) -> str | None:
    r"""Return base and digits of a number, or None if it has no known base.

    ``52_8`` and ``52_{\text{eight}}`` give "8:52".
    """
    match = _BASED.fullmatch(text)
    if match is None:
        return None
    # The base is an index, as in `52_8`, or in words, as in `52 base 8`.
    name = match["index"] or match["words"]
    base = int(name) if name.isdecimal() else NUMBER_WORDS.get(name, 0)
    # `52_{n}` has no known base, and 8 is no digit of `89_8`.
    is_digits = 2 <= base <= 36 and all(int(digit, 36) < base for digit in match["digits"])
    return f"{base}:{match['sign']}{match['digits']}" if is_digits else None


_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_LETTERS = re.compile(r"'*[^\W\d_]+(?:[ ']+[^\W\d_]+)*(?:\.|(?<=\w\w\w)!)?'*")
_HYPHEN = re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])")


def word(text: str) -> str | None:
    """Return the letters of a word or words in lower case, or None if the text is anything else.

    A single letter counts as a word. Letters in a row are a word, not a product: `ABCD` is not `CABD`. Spaces between
    single letters do not count: `A B` is `AB`.
    """
    if "\\" in text:
        # Within a style, a hyphen joins words: `\text{right-angled}`. Outside, it may be a minus sign.
        styled = _TEXT.fullmatch(text)
        text = _TEXT.sub(r"\1", text) if styled is None else _HYPHEN.sub(" ", styled[1])
    text = " ".join(text.split())
    if _LETTERS.fullmatch(text) is None:
        return None
    words = text.strip(".!'").casefold().split()
    return "".join(words) if all(len(part) == 1 for part in words) else " ".join(words)


_TIME = re.compile(r"(\d{1,2})(?: ?: ?(\d\d))? ?([ap])\.? ?m\.?", re.IGNORECASE)


def clock_time(text: str) -> str | None:
    """Return the time of day that a text names with AM or PM, or None if it names none: "17:00" for `5 pm`."""
    match = _TIME.fullmatch(" ".join(_TEXT.sub(r" \1 ", text).split()))
    if match is None or not 1 <= int(match[1]) <= 12:
        return None
    return f"{int(match[1]) % 12 + 12 * (match[3] in 'pP')}:{match[2] or '00'}"
