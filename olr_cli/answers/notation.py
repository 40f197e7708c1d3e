r"""Rewrite answers in one notation before they are read: signs, styles, wrappers, derivatives."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable

from olr_cli.answers.extraction import boxed
from olr_cli.answers.units import NUMBER_WORDS

_COMMANDS = """×✕ times ·⋅∙・ cdot ÷ div ± pm ∓ mp ≤⩽≦ le ≥⩾≧ ge ≠ ne ≈ approx ∞ infty ∈ in ∪ cup ∩ cap ∅ emptyset
    √ sqrt ∛ sqrt[3] ∜ sqrt[4] ∠ angle △ triangle ∑ sum ∏ prod ∫ int ∂ partial → to ∧ land ∨ lor ¬ neg ∖ setminus
    Γ Gamma ∆Δ Delta Θ Theta Λ Lambda Π Pi Σ Sigma Φ Phi Ψ Psi ℝ mathbb{R} ℤ mathbb{Z} ℕ mathbb{N} ℚ mathbb{Q}
    ℂ mathbb{C} ℓ ell ⌊ lfloor ⌋ rfloor ⌈ lceil ⌉ rceil ✓✔✅ checkmark ∎■ blacksquare ≡ equiv …⋯ ldots"""
_GREEK = """alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma sigma tau
    upsilon phi chi psi omega"""
_SIGNS: dict[str, str | None] = {
    **{
        sign: f"\\{command} "
        for signs, command in re.findall(r"(\S+) (\S+)", _COMMANDS)
        for sign in signs
    },
    **{
        chr(ord("α") + place): f"\\{name} "
        for place, name in enumerate(_GREEK.split())
        if name != "mu"
    },
    **{
        sign: rf"\frac{{{unicodedata.normalize('NFKC', sign).replace('⁄', '}{')}}} "
        for sign in "¼½¾⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
    },
    **{chr(ord("①") + number): f"{number + 1}, " for number in range(20)},
    **dict(zip("−‐‒–—′’⁄∣∶∗、。~", "-----''/|:*,. ", strict=True)),
    **{"°": r"^\circ ", "º": r"^\circ ", "¢": " cents"},
    **dict.fromkeys('$"“”`'),
}
# Superscripts (group 1) and subscripts
_SCRIPT = re.compile("([²³¹⁰ⁱ⁴-ⁿˣʸᴬ-ᵡ]+)|[₀-ₜᵢ-ᵪ]+")
# Control characters and invisible marks carry no meaning, except white space.
_INVISIBLE = [
    c for c in map(chr, (*range(0x2070), 0xFEFF)) if not (c.isprintable() or c.isspace())
]
_TRANSLATION = str.maketrans(_SIGNS | dict.fromkeys(_INVISIBLE))
_MONEY = "\ue000"
"""Placeholder for an escaped dollar sign while the other dollar signs are dropped."""


def _command(names: str) -> str:
    """Return a regular expression for a LaTeX command with any of several names.

    `names` is a regular expression for the names, such as "bm|boldsymbol".
    """
    return rf"\\(?:{names})(?![a-zA-Z])"


_BRACES = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_SQRT = r"\\sqrt(?:\s*\[[^\[\]]*\])?"
_CHOOSE = r"(?<![a-zA-Z\\])(?:C|\{\s*C\s*\}|\\text\{\s*C\s*\})"
# The upper entry of a binomial is no 1 or 2: `C_1^2` is a constant, squared.
_UPPER_ENTRY = r"(?:\{\s*(?=[^{}()]*[\dkmnN])([^{}()]+)\}|([3-9kmnN]))"
_LOWER_ENTRY = r"(?:\{\s*([^{}()]+)\}|(\w))"

_BARE_FUNCTION = "(?:arc|ar|a)?(?:sin|cos|tan|cot)h?|csc|ln|log|(?:arc)?c?tg|cotg|cosec|lg"
"""Functions whose argument may follow without brackets (`sin x`), with the spellings of programs (`asin`) and of other
countries (`tg`)."""
_FUNCTION = f"{_BARE_FUNCTION}|(?:arc)?sech?|(?:arc|ar)csch?|exp|lcm|gcd|max|min|det"
# Greek letters and functions without a backslash. `psi` is a unit. Two letters such as `mu` may be a product, except
# `pi`, which has a rule below.
_BARE_NAME = (
    rf"(?<![a-zA-Z\\])(?:{'|'.join(name for name in _GREEK.split() if len(name) > 2 and name != 'psi')}"
    rf"|(?:{_BARE_FUNCTION})(?=\s*(?:[\w(|^]|\\(?!sin|cos))))(?![a-zA-Z])"
)
# A text in which every run of letters is a name or a short product, so that it holds no prose
_KNOWN_NAMES = (
    rf"^(?:[^a-zA-Z\\]|\\text\{{[^{{}}]*\}}|\\(?:begin|end)\s*\{{\w*\}}|\\(?:[a-zA-Z]+|.)"
    rf"|{_BARE_NAME}|(?:[A-Z]+|[a-zA-Z]{{1,2}}|and)(?![a-zA-Z]))*+$"
)
# Pairs of a command and the name that LaTeX or the parser knows it by
_OTHER_NAMES = """asin arcsin acos arccos atan arctan acot arccot asinh arsinh acosh arcosh atanh artanh
    tg tan ctg|cotg cot arctg arctan arcctg arccot cosec csc sh sinh ch cosh th tanh lg log_{10}
    [iI]nf(?:inity)?|oo infty varnothing emptyset simeq|cong|doteq approx"""
# Functions of programs -> templates in LaTeX, with `#1` for the first argument
_TEMPLATES = {
    **{
        "sqrt": r"\sqrt{#1}",
        "cbrt": r"\sqrt[3]{#1}",
        "abs": "|#1|",
        "Abs": "|#1|",
        "factorial": "(#1)!",
    },
    **{
        "floor": r"\lfloor #1\rfloor ",
        "ceil": r"\lceil #1\rceil ",
        "ceiling": r"\lceil #1\rceil ",
    },
    **dict.fromkeys(["binomial", "binom", "comb", "nCr"], r"\binom{#1}{#2}"),
    **{
        "Rational": r"\frac{#1}{#2}",
        "Fraction": r"\frac{#1}{#2}",
        "Eq": "#1 = #2",
        "Matrix": "#1",
    },
    **{"Integral": r"\int_{#3}^{#4} (#1) d#2", "Sum": r"\sum_{#2=#3}^{#4} (#1)"},
}
_PROGRAM_CALL = rf"\\?(?<![a-zA-Z])({'|'.join(_TEMPLATES)})\s*\(((?:[^()]++|\((?:[^()]++|\([^()]*+\))*+\))*+)\)"


def _rewrite_call(match: re.Match[str]) -> str:
    r"""Rewrite a function call in a program's notation as LaTeX: `Sum(k, (k, 1, n))` becomes `\sum_{k=1}^{n} (k)`.

    A call with an unexpected number of arguments stays as it is.
    """
    template, inner = (
        _TEMPLATES[match[1]],
        re.sub(_PROGRAM_CALL, _rewrite_call, match[2]),
    )
    # The limits of a sum or an integral are a tuple: drop its brackets, so that its entries count as arguments.
    if "#4" in template:
        inner = re.sub(r",\s*\((.*)\)\s*$", r",\1", inner)
    arguments = re.split(r",(?![^(]*\))", inner) if "#2" in template else [inner]
    if len(arguments) != template.count("#"):
        return match[0]
    return re.sub(r"#(\d)", lambda slot: arguments[int(slot[1]) - 1].strip(), template)


def _with_commands(match: re.Match[str]) -> str:
    r"""Put a backslash before Greek letters and functions that lack one, as in `2*theta` and `ln 2`.

    Args:
        match: a match of a whole answer. Its letters outside `\text{}` are in such names, short products or commands.
    """
    pattern = rf"\\text\{{[^{{}}]*\}}|({_BARE_NAME})"
    return re.sub(pattern, lambda name: f"\\{name[1]} " if name[1] else name[0], match[0])


_NUMBER_WORD = "|".join(sorted(NUMBER_WORDS, key=len, reverse=True)).replace(" ", "[ -]")
_FRACTION_WORDS = {"half": 2, "halve": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "eighth": 8,
           "ninth": 9, "tenth": 10}  # fmt: skip


def _in_digits(match: re.Match[str]) -> str:
    """Rewrite matched number words in digits: `105` for one hundred and five, `2/3` for two thirds."""
    hundreds, rest = (
        NUMBER_WORDS.get((words or "").lower().replace("-", " "), 0)
        for words in match.group(2, 3)
    )
    return f"{match[1]}{100 * hundreds + rest}{f'/{_FRACTION_WORDS[match[4].lower()]}' if match[4] else ''}"


def _as_list(system: re.Match[str]) -> str:
    """Rewrite a matched system of equations, such as a `cases` block, as a list in braces.

    If a row is no equation, as in a function defined by cases, return the text unchanged.
    """
    lines = system[2].replace("\\hfill", "").replace("=&", "=").split("\\\\")
    rows = [_ROW.fullmatch(line.strip(" ,;.")) for line in lines if line.strip()]
    return rf"\{{{', '.join(row[2] for row in rows if row)}\}}" if all(rows) else system[0]


def _derivative(match: re.Match[str]) -> str:
    r"""Rewrite a derivative as a name in `\text{}`: `derivative1 x by t` for dx/dt, `derivative2 x` for x''.

    The digit is the order of the derivative. Dots as in `\dot{x}` count as derivatives by t.
    """
    groups = match.groupdict("")
    # Primes or dots; for a quotient, the exponent in its numerator.
    order = groups.get("order") or match[1] or "1"
    degree = (
        order
        if order.isdigit()
        else str(order.count("'") or order.count("prime") or order.count("d"))
    )
    # Dots mean derivatives by time.
    variable = (
        "t" if order.startswith("d") else re.sub(r"[\\{}_]", "", groups.get("by", ""))
    )
    name = re.sub(
        r"[\\{}_]",
        "",
        "".join(groups.get(part, "") for part in ("name", "beside", "index")),
    )
    return f"\\text{{derivative{degree} {name}{f' by {variable}' if variable else ''}}}"


def _from_either_side(angle: re.Match[str]) -> str:
    r"""Rewrite an angle as a name without a direction: `\text{angle ABC}` for the angles ABC and CBA."""
    points = [
        re.sub(r"[_{}]", "", point)
        for point in re.findall(r"[A-Z](?:_?\{?\d\}?)?", angle[1])
    ]
    return f"\\text{{angle {''.join(min(points, points[::-1]))}}}"


_SYMBOL = r"(?:\\[a-zA-Z]+|[a-zA-Z])(?:_(?:\w|\{[^{}]*\}))?"
_DERIVED = rf"(?!\\(?:{_FUNCTION})){_SYMBOL}"
_INDEX = r"(?:\s*_\s*(?P<index>\w|\{[^{}]*\}))?"
_ARG = r"(?:\s*\(\s*\w\s*\))?"
_OPTIONAL_ORDER = r"(?:\s*\^\s*\{?\s*(\d)\s*\}?)?"
_DIFFERENTIAL = r"(?:d|\\partial)\s*"
# `f'g` is a product with a derivative, but `o'clock` and `don't` are words.
_PRIMES = (
    r"(?:'+|\^\s*\{\s*(?:\\prime\s*)+\}|\^\s*\\prime(?![a-zA-Z]))"
    r"(?![^\W\d_]{3}|(?<=[a-zA-Z]{2}')(?:[stdm]|ll|re|ve)(?![a-zA-Z]))"
)
_ROW = re.compile(r"(\{)?([^=&]+=[^&]+?)(?(1)\})")
_SENTENCE_END = r"(?:[\s,;]|(?<!\.)\.|(?<!\\)\\$|(?<!^)\\(?:checkmark|(?:black)?square|Box|qed\w*)(?![a-zA-Z]))"
_ORDINAL = r"(?:(?:st|nd|rd|th)\b|\\text\{\s*(?:st|nd|rd|th)\s*\})"
# The order matters. Each pattern expects the notation that the ones above it leave: styles, for example, are all
# `\text` once ordinals are read.
_REWRITES: dict[str, str | Callable[[re.Match[str]], str]] = {
    # wrappers and spaces
    r"^\\[(\[](.*)\\[)\]]$": r"\1",
    r"^\*\*(.*)\*\*$": r"\1",
    r"(?:\\left\s*)?\\(?:\{|lbrace)\s*\{?\s*\\begin\s*\{(aligned|array|gathered|matrix|split)\}"
    r"(?:\{(?:\*\{\d+\})?\{?[lcr\s]*\}?\})?(.*?)\\end\s*\{\1\}\s*\}?(?!\s*(?:\\right\s*)?\\(?:\}|rbrace))"
    r"(?:\s*\\right\s*\.)?": r"\\begin{cases}\2\\end{cases}",
    r"\\\\\s*\[[^\[\]]*[a-z]{2}\s*\]": r"\\\\",
    r"\\\\\s*(?=$|\\end\{aligned)|\\(?:begin|end)\s*\{(?:aligned|align|gathered|split)\*?\}": "",
    r"\\(?:tag\*?|label|[hv]space\*?|[hv]?phantom)\s*\{[^{}]*\}|\\no(?:number|tag)(?![a-zA-Z])": "",
    r"&\s*=": "=",
    r"(?<=[\d}])\.(?=\s*[])}])": "",
    r",\s*\\!\s*": ",",
    r"(?<!\\)\\(?:[,;:> ]|(?:q?quad|(?:thin|med|thick)space|enspace|enskip|hfill|newline)(?![a-zA-Z]))": " ",
    _command(r"left|right|[bB]igg?[lrm]?") + r"\.?|\\!": "",
    _command(
        "displaystyle|textstyle|limits|bf|rm|it|sf|tt|[lL]arge|LARGE|[hH]uge|underline"
    ): "",
    r"\\(?:(?:math|text)?color|colorbox|fcolorbox\s*\{[^{}]*\})\s*\{[^{}]*\}": "",
    r"(?:(?<=\w)[_^]|(?<=\d))\s*\{\s*\}\s*$": "",
    _command("bm|boldsymbol|mathbf") + r"\s*\{\s*([a-zA-Z])\s*\}": r"\1",
    _command("bm|boldsymbol|mathbf|boxed") + r"|\\mathbb(?=\s*\{[^RNZQC])": "",
    # synonyms
    _command("[lv]?langle"): "(",
    _command("rangle"): ")",
    r"\\(le|ge|ne)(?:q|slant|qslant)(?![a-zA-Z])": r"\\\1 ",
    r"\\[dtc](frac|binom)(?![a-zA-Z])": r"\\\1",
    r"\\(frac|binom)\s*(\\(?!sqrt|text|math)[a-zA-Z]+|[a-zA-Z\d])": r"\\\1{\2}",
    rf"(\\frac\s*(?:{_BRACES})?)\s*({_SQRT}\s*(?:{_BRACES}|\w))": r"\1{\2}",
    rf"(\\(?:frac|binom)\s*{_BRACES})\s*(\\(?!sqrt|frac|text|math)[a-zA-Z]+|[a-zA-Z\d])": r"\1{\2}",
    _command("[hlc]?dots[bcmio]?") + r"|\.{3}": r"\\ldots ",
    _command("R|Reals") + r"|\\mathbb\s*(?:R|\{\s*R\s*\})": r"\\mathbb{R}",
    r"(\\\}|\\mathbb\{[A-Z]\}|[\])])\s*-\s*(?=\\\{)|"
    + _command("smallsetminus|backslash"): r"\1\\setminus ",
    r"\\(begin|end)\s*\{([pbvBV]?)smallmatrix\}": r"\\\1{\2matrix}",
    _command("cr"): r"\\\\",
    r"\\([pbvBV]?matrix)\s*\{([^{}]*)\}": r"\\begin{\1}\2\\end{\1}",
    r"\*\*": "^",
    r"(\\sqrt\s*\[[^\[\]]*\])\s*((?<=\s)\d+|\w|\([^()]*\))": r"\1{\2}",
    rf"(\^|_|{_SQRT})\s*(-?\s*(?:\\(?:frac|binom)\s*{_BRACES}\s*{_BRACES}|{_SQRT}\s*(?:{_BRACES}|\w))"
    r"|-\s*(?:\d+|[a-zA-Z])|(?<=\s)\d{2,})": r"\1{\2}",
    r"\\log\s*_\s*(?:\{\s*e\s*\}|e(?![a-zA-Z]))": r"\\ln ",
    # styles
    rf"\\operatorname\*?\s*\{{\s*({_FUNCTION}|[sct]h)\s*\}}": r"\\\1 ",
    _command(
        r"text[a-z]*|[fmh]box|framebox|emph|math(?:rm|it|sf|tt|normal|up)|operatorname\*?"
    )
    + r"\s*(?=\{)": r"\\text",
    r"\\text\{\s*([ied])\s*\}": r"\1",
    r"\\text\{\s*\^\\circ\s*\}": r"^\\circ ",
    r"(\\text\{[^{}]*)\^\\circ\s*(?=[CFK])": r"\1°",
    r"\\text\{\s*(\(?)\s*mod(?:ulo)?(?![a-zA-Z])([^{}]*)\}|\\(?:[pb]?mod|pod)(?![a-zA-Z])"
    r"|(?<![a-zA-Z\\])mod(?:ulo)?(?![a-zA-Z])": r"\1\\bmod \2",
    r"^(\S+) *\\bmod +([^\s=]+) *= *(\S+)$": r"\1 \\equiv \3 \\bmod \2",
    r"\\(max|min|gcd|lcm)\s*\\\{((?:[^{}\\]|\\[^{}]|\{[^{}]*\})*)\\\}": r"\\\1(\2)",
    r"(\\text\{[^{}]*)\}\s*\\text\{": r"\1 ",
    r"\\text\{(?:([^{}]*\d)\s+|\s*,?\s*)(and|or)\s+([^{}]*\d[^{}]*)\}": r"\1 \2 \3",
    r"\\text\{([^{}]*)\s(and|or)\s*\}(?=\s*[\d\\-])": r"\\text{\1} \2 ",
    rf"\\text\{{\s*(?:({_BARE_FUNCTION}|[sc]h|pi)\s*\}}(?!\s*$)|({_FUNCTION}|{'|'.join(_TEMPLATES)})\s*\}}(?=\s*\())": (
        r"\\\1\2 "
    ),
    # ordinals, ratios, phrases around an answer
    rf"(?<=\d)(?:\s*\^?\s*{_ORDINAL}|\s*\^\s*\{{\s*{_ORDINAL}\s*\}})": "",
    r"^(\d+)\s*(?:\\text\{\s*to\s*\}|to)\s*(\d+)$": r"\1:\2",
    r"\b(years?)[ -]old(?=\W*$)": r"\1",
    r"(?i)^(?:\\text\{\s*)?(?:option|choice|answer)\s*:?\s*\(?([A-J])\)?\s*\}?$": r"(\1)",
    rf"(?i)^(\\text\{{\s*)?(?:minus|negative) (?=\d|infinity|{_NUMBER_WORD})": r"\1-",
    r"(?i)^(\\text\{\s*)?(?:plus|positive) (?=\d|infinity)": r"\1",
    rf"(?i)^((?:\\text\{{\s*)?-?)(?:({_NUMBER_WORD})[ -]hundred (?:and )?)?({_NUMBER_WORD})"
    rf"(?:[ -]({'|'.join(_FRACTION_WORDS)})s?)?(?=(?: [a-z]{{4,}}| and a half)?\s*\}}?$)": _in_digits,
    r"(?<=\d) and a half(?=\s*\}?$)": " 1/2",
    r"(?i)^(\\text\{\s*)?(?:a )?half(?=\s*\}?$)": r"\1 1/2",
    r"(?i)^(?:\\text\{\s*only\s*\}|only\b)": "",
    r"(?i)^(?:\\text\{\s*)?(?:(?:the )?limit )?d(?:ne|\.n\.e|oes(?:n't| not) exist)[\s.]*\}?$": (
        r"\\text{does not exist}"
    ),
    r"(?i)^(?:\\text\{\s*)?(yes|no|true|false)\s*\}?\s*,\s*(?:\\text\{\s*)?(?:(?:because|since)\b.*"
    r"|(?:it|s?he|they|there|we|you|this|that|the .* (?:is|are|does|do))\b[^\d\\]*)$": r"\1",
    r"\\text\{((?:[^{}a-zA-Z\\]|\\\$)*)\}": r" \1",
    r"(?i)\\text\{\s*(?:per ?cent(?:age)?|pct|\\?%)\s*\}|(?<=[\d}\s])(?:per ?cent(?:age)?|pct)\s*$": r"\\%",
    r"^\\text\{[^{}]*(?:\b(?:is|are|equals?)\s*:?|:)\s*\}": "",
    r"^(\\text\{(?!.*except)[a-zA-Z ]+\})\s*([\d.,]+)$": r"\2 \1",
    r"\\text\{\s*'*([^{}']*)''?\s*\}": r"\\text{\1}",
    # plain text and code
    r"(?<![a-zA-Z\\])(?:(?:np|math)\.)?log(2|10)(?=\s*\()": r"\\log_{\1}",
    r"(?<![a-zA-Z\\])(?:np|numpy|math|sympy)\.(?=[a-z])": r"\\",
    _PROGRAM_CALL: _rewrite_call,
    rf"(?<![a-zA-Z\\])(?=(?:pi|[iI]nf(?:inity)?|oo|(?:{_FUNCTION})(?=\s*(?:[_^]\s*\{{?-?\w+\}}?\s*)?\((?!s\))))"
    r"(?![a-zA-Z]))": r"\\",
    _KNOWN_NAMES: _with_commands,
    **{
        _command(name): rf"\\{latex} "
        for name, latex in re.findall(r"(\S+) (\S+)", _OTHER_NAMES)
    },
    rf"({_command('sin|cos|tan|cot|sec|csc')}\s*[({{]?\s*)(\d+(?:\.\d+)?)\s*\^\s*(?:\\circ|\{{\s*\\circ\s*\}})": (
        r"\1\\frac{\2\\pi}{180}"
    ),
    rf"{_CHOOSE}\s*_\s*{_UPPER_ENTRY}\s*\^\s*{_LOWER_ENTRY}": r"\\binom{\1\2}{\3\4}",
    rf"{_CHOOSE}\s*\^\s*{_LOWER_ENTRY}\s*_\s*{_UPPER_ENTRY}": r"\\binom{\3\4}{\1\2}",
    r"(?<![a-zA-Z\\])sqrt\s*(\d+|[a-z](?![a-zA-Z]))": r"\\sqrt{\1}",
    r"(?<![a-zA-Z\\^_])([a-df-z]|(?<!\d)[A-Ze])(\d+)(?![\d_]|\.\d)": r"\1_{\2}",
    r"μ(?![a-zA-Z])": r"\\mu ",
    r"(?<=[\d}])\s*([一-鿿]+|[ΩÅ£€¥])$": r"\\text{ \1}",
    # indices, thousands, times of day
    r"_\s*(?:\{\s*(?:\\text\{\s*([a-zA-Z]+)\s*\}|\\([a-zA-Z]+))\s*\}|\\text\{\s*([a-zA-Z]+)\s*\}|\\([a-zA-Z]+))": (
        r"_{\1\2\3\4}"
    ),
    r"(?<=\d)(?<!\b0)\{,\}(?=\d{3}(?!\d))": "",
    r"(?<=\d)\{,\}(?=\d)": ".",
    r"\{\s*:\s*\}": ":",
    # systems, ends of sentences, and text around the answer, once all of it has one spelling
    r"\\begin\s*\{([dr]?cases|array)\}(?:\{[lcr\s]*\})?(.*?)\\end\s*\{\1\}": _as_list,
    rf"{_SENTENCE_END}+$": "",
    r"^(?:\s|=|:|\\(?:approx|sim|therefore|implies|Rightarrow|to)(?![a-zA-Z]))+": "",
    r"^(?!.*\\begin)(.*?\S)\s*(?:,?\s*\(?\s*\\text\{\s*[,(]?\s*(?:where|for|with|when|such that|since|because|as)\b"
    r"|(?:\\text\{\s*(?:\(|or )|\(\s*\\text\{)\s*(?:about|approx|by)|(?<=[\d}])\s*\\text\{\s*is the\b).*": r"\1",
    r"\\text\{\s*([+-]?(?:\d[\d,]*\.?\d*|\.\d+))(?=\s[^{}]*\})": r"\1\\text{",
    rf"^\\text\{{(?!(?: *[^\W\d_])+ *\}}$)((?:[^{{}}]|\{{[^{{}}]*\}})*?){_SENTENCE_END}*\}}$": r"\1",
    r"^[a-zA-Z][a-zA-Z' ]*(?:\b(?:is|are|equals?)\b\s*:?|:)\s*(?=[-+\d\\($])": "",
    r"^(?!-?[\d.]+ *\\approx *-?[\d.]+$)(?=(?:(?!\\approx)\D)*+\d)"
    r"((?:(?![ \\,;(]*\\approx).)*+)[ \\,;(]*\\approx(?![a-zA-Z]).*": r"\1",
    _command("approx"): "=",
    # names in place of derivatives, angles and transposes, which algebra would read as fractions, products and powers
    rf"\\frac\s*\{{\s*{_DIFFERENTIAL}{_OPTIONAL_ORDER}\s*(?:(?P<name>{_DERIVED}){_ARG}\s*)?\}}\s*\{{\s*{_DIFFERENTIAL}(?P<by>{_SYMBOL}){_OPTIONAL_ORDER}\s*\}}"
    rf"(?(name)|\s*(?P<open>\(\s*)?(?P<beside>{_DERIVED}){_ARG}\s*(?(open)\)\s*)(?![\^'(\\{{a-zA-Z\d]))": _derivative,
    rf"(?P<name>{_SYMBOL})\s*(?P<order>{_PRIMES}){_INDEX}": _derivative,
    rf"\\(?P<order>d+)ot\s*(?P<open>\{{\s*)?(?P<name>{_SYMBOL})(?(open)\s*\}}){_INDEX}": _derivative,
    r"(?:(?<![a-zA-Z\\])m\s*)?\\angle\s*((?:[A-Z](?:_(?:\d|\{\d\}))?\s*){1,3})": _from_either_side,
    r"(?<=[a-zA-Z}\])])\s*\^\s*(?:\{\s*)?(?:\\text\{\s*T\s*\}|(?:\\math[a-z]{2}\s*)?T(?![a-zA-Z])|\\top|\\intercal)"
    r"(?:\s*\})?": "_{transposed}",
}
_COMPILED = [
    (re.compile(pattern), replacement) for pattern, replacement in _REWRITES.items()
]

_STYLED_LETTER = re.compile(r"\\math(?:cal|scr|frak)\s*(?:\{\s*([a-zA-Z])\s*\}|([a-zA-Z]))")
_VARIANTS = {
    "varepsilon": "epsilon",
    "varphi": "phi",
    "vartheta": "theta",
    "varrho": "rho",
    "varkappa": "kappa",
}
_VARIANT = re.compile(rf"\\({'|'.join(_VARIANTS)})(?![a-zA-Z])")


def _in_one_style(text: re.Match[str]) -> str:
    r"""Drop the styles of letters: `\mathcal{F}` becomes `F`, and `\varphi` becomes `\phi`.

    A styled letter stays if the text has the same letter without the style, because the two may differ in meaning.
    """
    plain = _VARIANT.sub("", _STYLED_LETTER.sub("", text[0]))
    letters, commands = (
        {*re.findall(r"(?<![a-zA-Z\\])[a-zA-Z](?![a-zA-Z])", plain)},
        {*_COMMAND.findall(plain)},
    )
    bare = _STYLED_LETTER.sub(
        lambda styled: (
            styled[0] if (letter := styled[1] or styled[2]) in letters else letter
        ),
        text[0],
    )
    return _VARIANT.sub(
        lambda variant: (
            variant[0] if (name := _VARIANTS[variant[1]]) in commands else f"\\{name} "
        ),
        bare,
    )


_COMMAND = re.compile(r"\\([a-zA-Z]+)")
_ELL = re.compile(r"\\ell(?![a-zA-Z])\s*")
_UNIT_VECTOR = (
    r"\\(?:mathbf|boldsymbol|bm|hat|vec|overrightarrow)\s*\{?\s*(?:\\(?:hat|mathbf|boldsymbol)\s*)?\{?"
    r"\s*\\?([ijk])(?:math)?(?![a-zA-Z])\s*\}{0,2}"
)


def _half_open(interval: re.Match[str]) -> str:
    """Rewrite the French notation `]2,5]` of a half-open interval as `(2,5]`."""
    before, opening, ends, closing = interval.groups()
    return f"{before}{'(' if opening == ']' else '['}{ends}{')' if closing == '[' else ']'}"


# Applied before the others, and only if `_HAS_RARE` finds a sign of them: most answers skip these patterns.
_RARE_REWRITES: dict[str, str | Callable[[re.Match[str]], str]] = {
    # markup and code
    r"^(?:«(.*)»|'([^']*)'|\*+([^*]+)\*+|([^*]+)\*\*|\*\*([^*]+))$": r"\1\2\3\4\5",
    r"<sup>(.*?)</sup>": r"^{\1}",
    r"<sub>(.*?)</sub>": r"_{\1}",
    r"^(\d{1,3}(?:_\d{3})+)$": lambda digits: digits[1].replace("_", ""),
    # India writes 2,50,000.
    r"^(\d{1,2}(?:,\d\d)+,\d{3})$": lambda digits: digits[1].replace(",", ""),
    # times signs, old and other commands
    r"(?<=[\d})])\s*[xX]\s*(?=10\s*\^)|(?<=[\d)])\s+[xX]\s+(?=[\d(])": r" \\times ",
    r"\\(?:nice|s|x)frac(?![a-zA-Z])": r"\\frac",
    r"\{([^{}]*)\\over(?![a-zA-Z])([^{}]*)\}": r"\\frac{\1}{\2}",
    r"\\root\s*(\d+|\{[^{}]*\})\s*\\of\s*(\w|\{[^{}]*\})": r"\\sqrt[\1]{\2}",
    r"\\lnot(?![a-zA-Z])|^\\sim(?=\s*[a-zA-Z(])": r"\\neg ",
    r"\\(?:Longr|R|longr)ightarrow(?![a-zA-Z])": r"\\implies ",
    r"\\(?:operatorname|mathrm|text)\s*\{\s*cis\s*\}\s*\(?\s*(\d+)\s*\^\s*\{?\s*\\circ\s*\}?\s*\)?": (
        r"e^{i\\frac{\1\\pi}{180}}"
    ),
    r"\\(?:operatorname|mathrm|text)\s*\{\s*cis\s*\}\s*"
    rf"(\\frac\s*{_BRACES}\s*{_BRACES}|\([^()]*\)|{_BRACES}|\w+)": r"e^{i(\1)}",
    r"(^|\\(?:cup|in)(?![a-zA-Z])\s*)([\]\[])\s*([^\[\]]*[,;][^\[\]]*?)\s*([\]\[])(?=\s*(?:$|\\cup))": _half_open,
    # options
    r"^(?:\(([a-jA-J])|\[([A-J])\]|([a-jA-J])[).\]])$": r"\1\2\3",
    # letters and their styles
    r"(?<![a-zA-Z])\{\s*([a-zA-Z]|\\[a-zA-Z]+)\s*\}(?=\s*_)": r"\1",
    r"^\{\s*([a-zA-Z]\s*_\s*(?:\w|\{\s*\w+\s*\}))\s*\}$": r"\1",
    r"\\mathbb\s+([A-Z])(?![a-zA-Z])": r"\\mathbb{\1}",
    r"\\mathbb\{Z\}\s*/\s*(?:\(\s*)?(\d+)\s*\\mathbb\{Z\}(?:\s*\))?": r"\\mathbb{Z}_{\1}",
    _UNIT_VECTOR: r"\\text{vector\1}",
    r"(\\[a-zA-Z]+)(?=\\ell(?![a-zA-Z]))": r"\1 ",
    r"^(?!.*(?<![a-zA-Z\\])l(?![a-zA-Z])).*\\ell(?![a-zA-Z]).*$": lambda text: _ELL.sub(" l", text[0]),
    r"^.*\\(?:math(?:cal|scr|frak)|var(?:epsilon|phi|theta|rho|kappa))(?![a-zA-Z]).*$": _in_one_style,
    # units and money
    r"\\AA(?![a-zA-Z])|\\mathring\s*\{?\s*A\s*\}?": r"\\text{ Å}",
    r"(\\(?:text|mathrm)\s*\{[^{}]*)\\Omega(?![a-zA-Z])": r"\1Ω",
    r"(\\(?:text|mathrm)\s*\{[^{}]*)\\mu(?![a-zA-Z])\s*": r"\1μ",
    r"(?<=[\d}])(?:\s|\\[,;:! ]|\\(?:text|mathrm)\s*\{\s*\})*\\mu(?![a-zA-Z])\s*\\(?:text|mathrm)\s*\{\s*": (
        r"\\text{ μ"
    ),
    r"(?<=\d)(?:\s|\\[,;:! ])*(?:\\(?:text|mathrm)\s*\{\s*([kMGm]?)\s*\}\s*)?\\Omega(?![a-zA-Z])\s*$": (
        r"\\text{ \1Ω}"
    ),
    r"(?i)\bdegrees? (?:(c)elsius|(f)ahrenheit)\b": lambda scale: f"°{(scale[1] or scale[2]).upper()}",
    r"^Rs\.?\s*(?=\d)": "₹",
    r"\\euro(?![a-zA-Z])": "€",
    # siunitx
    r"\\num\s*\{([^{}]*)\}": r"\1",
    r"\\ang\s*\{([^{};]*)\}": r"\1^\\circ ",
}  # fmt: skip
_RARE = [
    (re.compile(pattern), replacement) for pattern, replacement in _RARE_REWRITES.items()
]
_HAS_RARE = re.compile(
    r"[«*'_\]₹]|</su|\d,\d\d,|[\d})]\s*[xX]\s*[\d(]|\\(?:[nsx][a-z]*frac|over|root|lnot|sim|num|ang|AA|ell|mathring|mu|Omega|euro"
    r"|[lLR]\w*ightarrow|hat|vec|bm|boldsymbol|overrightarrow|math(?:bf|cal|scr|frak|bb\s)|var|mathbb\{Z\}\s*/)|cis|^\(.$|^.[).]$"
    r"|^\[|\}\s*_|(?i:degrees? [cf])|^Rs"
)
_NEEDS_NO_REWRITING = re.compile(
    r"(?!=|.*\.\.|.*\d,\d\d,)[\s\d.,+/()=-]*(?<![.,])|-?\\frac\{\d+\}\{\d+\}"
)

_STYLED = re.compile(r"\\text\{((?:[^{}]|\{[^{}]*\})*)\}")
_INDEX_IN_BRACES = re.compile(r"(?<=[_^])\{ ?(\w) ?\}")
_SPACE_BESIDE_SIGN = re.compile(r"(?<!\w) | (?!\w)")
LONGEST_READ = 1000
"""Longest answer that is read, in characters; longer ones are compared as texts."""
_LONGEST_NORMALIZED = 2000
"""Longest answer that is normalised: Unicode's order of a run of combining marks takes quadratic time."""
LONGEST_CACHED = 120
"""Longest answer that is cached. Longer ones seldom repeat, and would only fill the caches."""


def tidy(answer: str) -> str:
    r"""Rewrite an answer in plain LaTeX, with one spelling for each sign, and without wrappers that carry no meaning.

    Upright styles become ``\text``. Derivatives, angles and transposes become names, so that algebra does not compute
    them. In answers over 1,000 characters, only signs are replaced.
    """
    return tidied_before(answer) if len(answer) <= LONGEST_CACHED else _tidied(answer)


def _tidied(answer: str) -> str:
    """Rewrite an answer in plain LaTeX. `tidy` describes the result, and caches it for short answers."""
    # Some data sets have their golds in boxes.
    if "\\boxed" in answer:
        answer = boxed(answer) or answer
    # An escaped dollar sign is money; all others begin or end a formula.
    answer = answer.replace("\\$", _MONEY)
    # Superscripts, signs, full-width letters, and digits of any script.
    if not answer.isascii() and len(answer) <= _LONGEST_NORMALIZED:
        answer = _SCRIPT.sub(lambda run: f"{'^' if run[1] else '_'}{{{run[0]}}}", answer)
        answer = unicodedata.normalize("NFKC", answer.translate(_TRANSLATION))
        answer = re.sub(
            r"[^\D0-9]", lambda digit: str(unicodedata.decimal(digit[0])), answer
        )
    text = " ".join(answer.translate(_TRANSLATION).replace(_MONEY, "\\$").split())
    if text.isdecimal() or len(text) > LONGEST_READ:
        return text
    # Most golds and answers are numbers or fractions, which need no rewriting.
    if not _NEEDS_NO_REWRITING.fullmatch(text):
        for pattern, replacement in (
            *(_RARE if _HAS_RARE.search(text) else ()),
            *_COMPILED,
        ):
            text = pattern.sub(replacement, text)
    return " ".join(text.split())


tidied_before = functools.lru_cache(1 << 14)(_tidied)
"""`tidy` for short answers, with a cache: an answer is tidied again for every gold or answer that it is compared
with."""


def normal_text(tidied: str) -> str:
    r"""Return the text by which unreadable answers are compared (R8).

    In the result, a ``\text{}`` is replaced by its content, an index of one character has no braces (``x_1`` for
    ``x_{1}``), and spaces are only between words.

    Args:
        tidied: the answer as `tidy` rewrites it.
    """
    text = _STYLED.sub(r"\1", tidied)
    return _SPACE_BESIDE_SIGN.sub("", _INDEX_IN_BRACES.sub(r"\1", " ".join(text.split())))
