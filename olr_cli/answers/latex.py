"""Parse an expression in tidied LaTeX. Runs in workers only: imports sympy.

The parser is math-verify's own (latex2sympy2_extended's grammar). Its Python runtime spends nearly all its time on
full-context prediction, which the grammar needs in one rule only; everywhere else the cheaper SLL prediction gives
the same parse tree or an error (that is what ANTLR guarantees), and after an error we parse again with full context.
"""

from __future__ import annotations

import contextlib
import re
from functools import lru_cache
from typing import Any

import sympy
from antlr4.atn.ParserATNSimulator import ParserATNSimulator  # type: ignore[import-untyped]
from antlr4.atn.PredictionMode import PredictionMode  # type: ignore[import-untyped]
from latex2sympy2_extended.antlr_parser import PSParser
from latex2sympy2_extended.latex2sympy2 import (
    ConversionConfig,
    _Latex2Sympy,
    normalize_latex,
)
from latex2sympy2_extended.math_normalization import NormalizationConfig

from olr_cli.answers.reading import TooLarge, Unreadable
from olr_cli.answers.size import check_size

_NORMALIZATION = NormalizationConfig(malformed_operators=True, nits=True, boxed="none")
_ARGUMENT = re.compile(
    r"(\\(?:(?:arc|a|ar)?(?:sin|cos|tan|cot|sec|csc)h?|ln|log|exp)(?:\s*[_^](?:\w|\{[^{}]*\}))*)"
    r"\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
)
_PRODUCT = re.compile(
    r"((?<![_^\d.])\d+(?:\.\d+)?|\)|\\binom(?:\{(?:[^{}]|\{[^{}]*\})*\}){2})\s*(?=\(|\\binom)"
)
_GAMMA = re.compile(r"\\gamma(?![a-zA-Z])")
_INDEXED_E = re.compile(r"E(?=\s*_)")
_NAME = re.compile(r"(?<![\\a-zA-Z])[A-Z][a-z]{2,}(?![a-zA-Z])")
_LETTER = re.compile(r"\\[a-zA-Z]+|[a-zA-Z]")
_TEXT = re.compile(r"\\text\{[^{}]*\}")
_MISREAD = re.compile(
    r"!!|(?<![_^\d])\d+\s+\d|\^\s*(?:\{[^{}]*\}|\\?\w)\s*\^|\\(?:gcd|lcm)\s*\(?[^)]*[a-zA-Z]|\\(?:bmod|equiv|ldots)"
    r"|\d[eE][+-]?0*[1-9]\d{4}|\\Gamma\D{0,9}\d{6}"
)
"""Double factorials (read as factorials of factorials), numbers side by side (read as a sum), powers without braces
(read from the left), what is computed though it has letters, and what is computed while it is read, unless small."""

# Whether x^2(... continues as a power or as a function call
_RULE = PSParser.ruleNames.index("atom_expr")
_FULL_CONTEXT = frozenset(
    decision
    for decision, state in enumerate(PSParser.atn.decisionToState)
    if state.ruleIndex == _RULE
)
_PLAIN_DECIMAL = re.compile(r"\d*\.\d+", re.ASCII)


class _Prediction(ParserATNSimulator):  # type: ignore[misc]
    """Full-context prediction in one rule, SLL in the others."""

    def adaptivePredict(self, input: Any, decision: int, outerContext: Any) -> int:
        full = decision in _FULL_CONTEXT
        self.predictionMode = PredictionMode.LL if full else PredictionMode.SLL
        prediction: int = super().adaptivePredict(input, decision, outerContext)
        return prediction


_convert_expr = _Latex2Sympy.convert_expr


def _convert_and_check(self: Any, context: Any) -> Any:
    """Check the size of each expression that is read: the parser compares the ends of intervals at once."""
    parsed = _convert_expr(self, context)
    check_size(parsed)
    if isinstance(parsed, sympy.Pow) and isinstance(parsed.base, sympy.MatrixBase):
        if not parsed.exp.is_Integer:  # sympy would look for eigenvalues of anything
            raise Unreadable("a power of a matrix")
        return parsed.base**parsed.exp
    return parsed


def _convert_binom(self: Any, binom: Any) -> Any:
    """Leave a binomial as it is; the parser computes it."""
    return sympy.binomial(
        self.convert_expr(binom.upper), self.convert_expr(binom.lower), evaluate=False
    )


# For math-verify's own reading as well.
_Latex2Sympy.convert_expr, _Latex2Sympy.convert_binom = _convert_and_check, _convert_binom


class _Converter(_Latex2Sympy):  # type: ignore[misc]
    def create_parser(self, latex_str: str) -> Any:
        parser = super().create_parser(latex_str)
        old = parser._interp
        parser._interp = _Prediction(
            parser, old.atn, old.decisionToDFA, old.sharedContextCache
        )
        return parser

    def parse_number(self, text: str) -> Any:
        # Spelled out, since sympy.Number sends its argument through a whole parser of its own.
        digits = text.replace(",", "")
        if digits.isascii() and digits.isdigit():
            return sympy.Integer(int(digits))
        if _PLAIN_DECIMAL.fullmatch(digits):
            return sympy.Float(digits)
        return super().parse_number(text)


@lru_cache(maxsize=4096)
def parse(text: str) -> Any:
    """Parse tidied LaTeX as math-verify does, and also an `E` with an index, and `M` beside `m`.

    Raises:
        Unreadable: math-verify would misread it.
        Exception: whatever the parser raises.
    """
    if _MISREAD.search(text):
        raise Unreadable(text)
    latex = _ARGUMENT.sub(r"\1(\2)", normalize_latex(text, _NORMALIZATION))
    latex = _PRODUCT.sub(r"\1\\cdot ", latex)  # the grammar takes it for a mixed number
    latex = _GAMMA.sub(r"\\text{gamma}", latex)  # the grammar takes it for the function
    with contextlib.suppress(Exception):
        return _convert(latex)
    return _convert(_INDEXED_E.sub(r"\\text{E}", latex))  # the grammar has no index for E


def _convert(latex: str) -> Any:
    """Parse `latex`. Letters have no case, so that `A` is `a`, unless both are there: `M/m` is not 1."""
    letters = set(_LETTER.findall(_TEXT.sub("", latex)))
    if len({letter.lower() for letter in letters}) < len(letters):
        parsed = _parse(
            _NAME.sub(_without_capital, latex), ConversionConfig(lowercase_symbols=False)
        )
        names = {symbol.name for symbol in parsed.atoms(sympy.Symbol)}
        if len({name.lower() for name in names}) < len(names):
            return parsed
    return _parse(latex, ConversionConfig())


def _without_capital(name: re.Match[str]) -> str:
    """`Maximum` as `maximum`: its letters are no symbols."""
    word = name[0].lower()
    return word if word[0] in word[1:] else name[0]


def _parse(latex: str, config: ConversionConfig) -> Any:
    try:
        return _Converter(is_real=True, config=config).parse(latex)
    except TooLarge:
        raise
    except Exception:
        return _Latex2Sympy(is_real=True, config=config).parse(latex)
