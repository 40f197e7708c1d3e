r"""Spellings brought to one notation before anything is read: signs, styles, wrappers, derivatives."""

from __future__ import annotations

import re
import unicodedata

from olr_cli.answers.extraction import boxed

_COMMANDS = """× times · cdot ÷ div ± pm ∓ mp ≤ le ≥ ge ≠ ne ≈ approx ∞ infty ∈ in ∪ cup ∩ cap ∅ emptyset √ sqrt ∠ angle
    α alpha β beta γ gamma δ delta ε epsilon θ theta λ lambda π pi ρ rho σ sigma τ tau φ phi ω omega ½ frac12
    ¼ frac14 ¾ frac34 ⌊ lfloor ⌋ rfloor ⌈ lceil ⌉ rceil
    ≡ equiv … ldots ⋯ ldots ℝ R"""
_SIGNS: dict[str, str | None] = {
    **{sign: f"\\{command} " for sign, command in re.findall(r"(\S) (\w+)", _COMMANDS)},
    **{chr(ord("①") + number): f"{number + 1}, " for number in range(20)},
    **{"−": "-", "–": "-", "°": r"^\circ ", "′": "'", "’": "'", "~": " ", "¢": " cents"},
    **dict.fromkeys('$"“”`'),
}
_RAISED = re.compile("[⁺⁻⁰¹²³⁴-⁹]+"), str.maketrans("⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+-0123456789"), "^"
_LOWERED = re.compile("[₊₋₀-₉]+"), str.maketrans("₊₋₀₁₂₃₄₅₆₇₈₉", "+-0123456789"), "_"
# Control characters and invisible marks carry no meaning; those that are white space stay.
_INVISIBLE = [chr(c) for c in (*range(32), *range(127, 160), 0x200B, 0x2060, 0xFEFF) if not chr(c).isspace()]
_TRANSLATION = str.maketrans(_SIGNS | dict.fromkeys(_INVISIBLE))
_MONEY = "\ue000"
"""Stands for an escaped dollar sign while the others are dropped."""


def _command(names: str) -> str:
    return rf"\\(?:{names})(?![a-zA-Z])"


_FUNCTION = "(?:arc|ar)?(?:sin|cos|tan|cot|sec|csc)h?|ln|log|exp|lcm|gcd|max|min|det"
_ORDINAL = r"(?:(?:st|nd|rd|th)\b|\\text\{\s*(?:st|nd|rd|th)\s*\})"
_REWRITES = {  # in this order
    # wrappers and spaces
    r"^\*\*(.*)\*\*$": r"\1",
    r"\\\\\s*\[[^\[\]]*[a-z]{2}\s*\]": r"\\\\",
    r"\\\\\s*(?=$|\\end\{aligned)|\\tag\s*\{[^{}]*\}|\\(?:begin|end)\s*\{(?:aligned|align|gathered|split)\*?\}": "",
    r"&\s*=": "=",
    r"(?<=[\d}])\.(?=\s*[])}])": "",
    r",\s*\\!\s*": ",",
    r"(?<!\\)\\(?:[,;: ]|q?quad(?![a-zA-Z]))": " ",
    _command(r"left|right|[bB]igg?[lrm]?") + r"\.?|\\!": "",
    _command("displaystyle|textstyle|limits|bf|rm|it|sf|tt|[lL]arge|LARGE|[hH]uge|underline"): "",
    r"\\(?:math|text)?color\s*\{[^{}]*\}": "",
    _command("bm|boldsymbol|mathbf") + r"\s*\{\s*([a-zA-Z])\s*\}": r"\1",
    _command("bm|boldsymbol|mathbf|boxed") + r"|\\mathbb(?=\s*\{[^RNZQC])": "",
    # synonyms
    _command("[lv]?langle"): "(",
    _command("rangle"): ")",
    _command("varnothing"): r"\\emptyset ",
    r"\\(le|ge)(?:q|slant|qslant)(?![a-zA-Z])": r"\\\1 ",
    _command("neq"): r"\\ne ",
    _command("simeq|cong|doteq"): r"\\approx ",
    _command("[dtc]frac"): r"\\frac",
    r"\\frac\s*(\\(?!sqrt|text|math)[a-zA-Z]+|[a-zA-Z]|\d(?=\s+\d))": r"\\frac{\1}",
    r"(\\frac\s*\{(?:[^{}]|\{[^{}]*\})*\})\s*(\\(?!sqrt|frac|text|math)[a-zA-Z]+|[a-zA-Z\d])": r"\1{\2}",
    r"\\log\s*_\s*(?:\{\s*e\s*\}|e(?![a-zA-Z]))": r"\\ln ",
    rf"({_command('sin|cos|tan|cot|sec|csc')}\s*[({{]?\s*)(\d+(?:\.\d+)?)\s*\^\s*(?:\\circ|\{{\s*\\circ\s*\}})": (
        r"\1\\frac{\2\\pi}{180}"
    ),
    _command("[dt]binom"): r"\\binom",
    _command("[hlc]?dots[bcmio]?") + r"|\.{3}": r"\\ldots ",
    _command("R|Reals") + r"|\\mathbb\s*(?:R|\{\s*R\s*\})": r"\\mathbb{R}",
    r"(\\\}|\\mathbb\{[A-Z]\}|[\])])\s*-\s*(?=\\\{)|" + _command("smallsetminus|backslash"): r"\1\\setminus ",
    r"\\(begin|end)\s*\{([pbvBV]?)smallmatrix\}": r"\\\1{\2matrix}",
    _command("cr"): r"\\\\",
    r"\\([pbvBV]?matrix)\s*\{([^{}]*)\}": r"\\begin{\1}\2\\end{\1}",
    r"\*\*": "^",
    # styles
    rf"\\operatorname\*?\s*\{{\s*({_FUNCTION})\s*\}}": r"\\\1 ",
    _command(r"text[a-z]*|[mh]box|emph|math(?:rm|it|sf|tt|normal|up)|operatorname\*?")
    + r"\s*(?=\{)": r"\\text",
    r"\\text\{\s*([ied])\s*\}": r"\1",
    r"\\text\{\s*(\(?)\s*mod(?:ulo)?(?![a-zA-Z])([^{}]*)\}|\\(?:[pb]?mod|pod)(?![a-zA-Z])"
    r"|(?<![a-zA-Z\\])mod(?:ulo)?(?![a-zA-Z])": r"\1\\bmod \2",
    r"^(\S+) *\\bmod +([^\s=]+) *= *(\S+)$": r"\1 \\equiv \3 \\bmod \2",
    r"\\(max|min|gcd|lcm)\s*\\\{((?:[^{}\\]|\\[^{}]|\{[^{}]*\})*)\\\}": r"\\\1(\2)",
    r"(\\text\{[^{}]*)\}\s*\\text\{": r"\1 ",
    r"\\text\{([^{}]*\d)\s+(and|or)\s+([^{}]*\d[^{}]*)\}": r"\1 \2 \3",
    r"\\text\{\s*,?\s*(and|or)\s+([^{}]*\d[^{}]*)\}": r" \1 \2",
    r"\\text\{([^{}]*)\s(and|or)\s*\}(?=\s*[\d\\-])": r"\\text{\1} \2 ",
    # ordinals, ratios, phrases around an answer
    rf"(?<=\d)(?:\s*\^?\s*{_ORDINAL}|\s*\^\s*\{{\s*{_ORDINAL}\s*\}})": "",
    r"^(\d+)\s*(?:\\text\{\s*to\s*\}|to)\s*(\d+)$": r"\1:\2",
    r"\b(years?)[ -]old(?=\W*$)": r"\1",
    r"(?i)^(?:\\text\{\s*)?(?:option|choice|answer)\s*:?\s*\(?([A-J])\)?\s*\}?$": r"(\1)",
    r"(?i)^(?:\\text\{\s*only\s*\}|only\b)": "",
    r"\\text\{((?:[^{}a-zA-Z\\]|\\\$)*)\}": r" \1",
    r"\\text\{\s*(?:percent(?:age)?|pct|\\?%)\s*\}|(?<=[\d}\s])(?:percent(?:age)?|pct)\s*$": r"\\%",
    r"^\\text\{[^{}]*(?:\b(?:is|are|equals?)\s*:?|:)\s*\}": "",
    r"^(\\text\{(?!.*except)[a-zA-Z ]+\})\s*([\d.,]+)$": r"\2 \1",
    r"\\text\{\s*'*([^{}']*)''?\s*\}": r"\\text{\1}",
    # plain text and code
    r"(?<![a-zA-Z\\])(?:np|numpy|math)\.(?=[a-z])": r"\\",
    r"\\?(?<![a-zA-Z])sqrt\s*\(([^()]*)\)": r"\\sqrt{\1}",
    r"(?<![a-zA-Z\\])(?=(?:pi|arcsin|arccos|arctan)(?![a-zA-Z])|infinity)": r"\\",
    r"\\infinity|\\inf(?![a-zA-Z])": r"\\infty ",
    # indices, thousands, times of day
    r"_\s*(?:\{\s*(?:\\text\{\s*([a-zA-Z]+)\s*\}|\\([a-zA-Z]+))\s*\}|\\([a-zA-Z]+))": r"_{\1\2\3}",
    r"(?<=\d)\{,\}(?=\d{3})": "",
    r"\{\s*:\s*\}": ":",
}
_COMPILED = [(re.compile(pattern), replacement) for pattern, replacement in _REWRITES.items()]
_NEEDS_NO_REWRITING = re.compile(r"(?!.*\.\.)[\s\d.,+/()=-]*|-?\\frac\{\d+\}\{\d+\}")

_SYMBOL = r"(?:\\[a-zA-Z]+|[a-zA-Z])(?:_(?:\w|\{[^{}]*\}))?"
_INDEX = r"(?:\s*_\s*(\w|\{[^{}]*\}))?"
_ORDER = r"(?:\s*\^\s*(?:(\d)|\{\s*(\d)\s*\}))?"
_D = r"(?:d|\\partial)\s*"
_ABOVE = rf"\{{\s*{_D}{_ORDER}\s*({_SYMBOL})(?:\s*\(\s*\w\s*\))?\s*\}}"
_PRIMES = r"('+|\^\s*\{\s*(?:\\prime\s*)+\}|\^\s*\\prime)(?![a-zA-Z])"
_DERIVATIVES = [  # the function, its variable, and the groups that hold the order
    (re.compile(rf"\\frac\s*{_ABOVE}\s*\{{\s*{_D}({_SYMBOL}){_ORDER}\s*\}}"), r"\3", r"\4", (1, 2)),
    (re.compile(rf"({_SYMBOL})\s*{_PRIMES}"), r"\1", "", (2,)),
    (re.compile(rf"\\(d+)ot\s*(?:\{{\s*({_SYMBOL})\s*\}}|({_SYMBOL})){_INDEX}"), r"\2\3\4", "t", (1,)),
]
_ANGLE = re.compile(r"\\angle\s*((?:[A-Z](?:_(?:\d|\{\d\}))?\s*){1,3})")
_TRANSPOSED = re.compile(
    r"(?<=[a-zA-Z}\])])\s*\^\s*(?:\{\s*)?(?:\\text\{\s*T\s*\}|(?:\\math[a-z]{2}\s*)?T(?![a-zA-Z])|\\top|\\intercal)(?:\s*\})?"
)
_NAMED_NUMBER = re.compile(r"\\text\{\s*([+-]?(?:\d[\d,]*\.?\d*|\.\d+))(?=[\s}])([^{}]*)\}")
_APPROXIMATION = re.compile(r"(.*?)\s*\\approx(?![a-zA-Z])")
_CONDITION = re.compile(r"(?<=\S)\s*,?\s*\\text\{\s*,?\s*(?:where|for|with|when|such that)\b.*")
_LEADING = re.compile(r"^(?:\s|=|:|\\(?:approx|sim|therefore|implies|Rightarrow|to)(?![a-zA-Z]))+")
_TRAILING = re.compile(r"(?:\s|(?<!\.)\.|,|;|(?<!\\)\\$)+$")

_SENTENCE = re.compile(r"^[a-zA-Z][a-zA-Z' ]*(?:\b(?:is|are|equals?)\b\s*:?|:)\s*(?=[-+\d\\($])")

_STYLED = re.compile(r"\\text\{((?:[^{}]|\{[^{}]*\})*)\}")
_BRACED = re.compile(r"(?<=[_^])\{ ?(\w) ?\}")
_GAP = re.compile(r"(?<!\w) | (?!\w)")
LONGEST_READ = 1000
"""Longer answers are compared as texts."""
_LONGEST_NORMALIZED = 2000
"""Putting a run of combining marks into Unicode's order takes quadratic time."""


def tidy(answer: str) -> str:
    r"""`answer` in plain LaTeX without the wrappers that carry no meaning.

    Drops ``$``, ``\(...\)``, ``\left``, bold and colours, control characters, an ``=`` or ``\approx`` in front and the
    full stop at the end; spells Unicode signs, ``percent`` and ``**`` as LaTeX does, and all upright styles as
    ``\text``; takes the content of a box. Derivatives, angles and transposes become names, which algebra leaves alone.
    A long answer keeps all but its signs.
    """
    if "\\boxed" in answer:
        answer = boxed(answer) or answer
    for signs, plain, place in () if answer.isascii() else (_RAISED, _LOWERED):
        answer = signs.sub(lambda run: f"{place}{{{run[0].translate(plain)}}}", answer)  # noqa: B023
    text = " ".join(answer.replace("\\$", _MONEY).translate(_TRANSLATION).replace(_MONEY, "\\$").split())
    is_plain = text.isdecimal() or text.isalpha()
    return text if is_plain or len(text) > LONGEST_READ else _rewritten(text)


def _rewritten(text: str) -> str:
    for opening, closing in (("\\(", "\\)"), ("\\[", "\\]")):
        if text.startswith(opening) and text.endswith(closing):
            text = text[2:-2]
    if not _NEEDS_NO_REWRITING.fullmatch(text):
        for pattern, replacement in _COMPILED:
            text = pattern.sub(replacement, text)
    text = _LEADING.sub("", _TRAILING.sub("", text))
    if "\\text{" in text:
        text = _unwrapped(text if "\\begin" in text else _CONDITION.sub("", text))
    text = _SENTENCE.sub("", text)
    if "\\approx" in text:
        text = _without_approximation(text)
    return " ".join(_with_names(text).split())


def _unwrapped(text: str) -> str:
    r"""`text` without a style around all of it: `5\text{ cm}` for `\text{5 cm}`."""
    text = _NAMED_NUMBER.sub(lambda m: m[1] + (f"\\text{{{m[2]}}}" if m[2].strip() else ""), text)
    whole = _STYLED.fullmatch(text)
    if whole is None or whole[1].replace(" ", "").isalpha():
        return text
    return _TRAILING.sub("", whole[1])


def _without_approximation(text: str) -> str:
    """An exact value before its approximation; `x = 3.1` for `x ≈ 3.1`."""
    match = _APPROXIMATION.match(text)
    if match is not None and any(sign.isdigit() for sign in match[1]):
        return match[1].rstrip(" \\,;")
    return text.replace("\\approx", "=")


def _with_names(text: str) -> str:
    """Derivatives, angles and transposes as names: to algebra they would be products, powers and fractions."""
    if "'" in text or "\\" in text:
        for pattern, symbol, variable, order in _DERIVATIVES:
            text = pattern.sub(lambda m: _derivative(m, symbol, variable, order), text)  # noqa: B023
    if "\\angle" in text:
        text = _ANGLE.sub(lambda m: f"\\text{{angle {_from_either_side(m[1])}}}", text)
    if "^" in text:
        text = _TRANSPOSED.sub(r"_{transposed}", text)
    return text


def _derivative(match: re.Match[str], symbol: str, variable: str, groups: tuple[int, ...]) -> str:
    """A derivative as a name: `derivative1 x by t` for dx/dt, `derivative2 x` for x''."""
    order = next((match[group] for group in groups if match[group]), "1")
    times = order if order.isdigit() else str(order.count("'") or order.count("prime") or order.count("d"))
    by = match.expand(variable)
    name = re.sub(r"[\\{}_]", "", f"{match.expand(symbol)} by {by}" if by else match.expand(symbol))
    return f"\\text{{derivative{times} {name}}}"


def _from_either_side(letters: str) -> str:
    """`ABC` for both `ABC` and `CBA`."""
    points = re.findall(r"[A-Z](?:_?\{?\d\}?)?", letters)
    points = [re.sub(r"[_{}]", "", point) for point in points]
    return "".join(min(points, points[::-1]))


def normal_text(tidied: str) -> str:
    r"""The text by which unreadable answers are compared (R8).

    The tidied answer without ``\text{}``, the braces of ``x_{1}`` and white space but a single space between words; in
    Unicode NFC unless it is very long. Case stays.
    """
    text = _STYLED.sub(r"\1", tidied)
    text = _GAP.sub("", _BRACED.sub(r"\1", " ".join(text.split())))
    return text if len(text) > _LONGEST_NORMALIZED else unicodedata.normalize("NFC", text)
