"""Parse an expression in tidied LaTeX. Runs in workers only: imports sympy.

The parser is math-verify's own (latex2sympy2_extended's grammar). Its Python runtime spends nearly all its time on
full-context prediction, but the grammar needs that in one rule only. Everywhere else we use the cheaper SLL prediction:
ANTLR guarantees that it gives the same parse tree or an error. After an error we parse again with full context.
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
# `\sin{x}`: the grammar ignores the braces, and reads `\sin{x} y` as the sine of xy
_ARGUMENT = re.compile(
    r"(\\(?:(?:arc|a|ar)?(?:sin|cos|tan|cot|sec|csc)h?|ln|log|exp)(?:\s*[_^](?:\w|\{[^{}]*\}))*)"
    r"\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
)
# The 2 of `2(3)` and `2\binom{n}{k}`
_PRODUCT = re.compile(
    r"((?<![_^\d.])\d+(?:\.\d+)?|\)|\\binom(?:\{(?:[^{}]|\{[^{}]*\})*\}){2})\s*(?=\(|\\binom)"
)
_LETTER_GAMMA = re.compile(r"\\gamma(?![a-zA-Z])")
_INDEXED_E = re.compile(r"E(?=\s*_)")
# `Maximum`
_CAPITALIZED_WORD = re.compile(r"(?<![\\a-zA-Z])[A-Z][a-z]{2,}(?![a-zA-Z])")
_LETTER = re.compile(r"\\[a-zA-Z]+|[a-zA-Z]")
_TEXT = re.compile(r"\\text\{[^{}]*\}")
_MISREAD = re.compile(
    r"!!|(?<![_^\d])\d+\s+\d|\^\s*(?:\{[^{}]*\}|\\?\w)\s*\^|\\(?:gcd|lcm)\s*\(?[^)]*[a-zA-Z]|\\(?:bmod|equiv|ldots)"
    r"|\d[eE][+-]?0*[1-9]\d{4}|\\Gamma\D{0,9}\d{6}"
)
"""Expressions that math-verify misreads or that are too large to parse.

It reads double factorials as factorials of factorials, numbers side by side as a sum, and powers without braces from
the left. It computes a gcd or lcm although it has letters. Powers of ten and `\\Gamma` are computed while they are
read, so large ones are excluded.
"""

# The rule decides whether `x^2(` continues as a power or as a function call.
_RULE = PSParser.ruleNames.index("atom_expr")
_FULL_CONTEXT = frozenset(
    decision
    for decision, state in enumerate(PSParser.atn.decisionToState)
    if state.ruleIndex == _RULE
)
_PLAIN_DECIMAL = re.compile(r"\d*\.\d+", re.ASCII)


class _Prediction(ParserATNSimulator):  # type: ignore[misc]
    """A predictor for ANTLR's parser that is faster than ANTLR's own.

    A predictor chooses between the alternatives of a grammar's rule. The fast mode (SLL) ignores the rules that led to
    the present one. Only the decisions in the rule `atom_expr` depend on those, so they use the slower mode (LL).
    """

    def adaptivePredict(self, input: Any, decision: int, outerContext: Any) -> int:
        """Set the mode for a decision of the grammar, and return the alternative that ANTLR predicts in this mode."""
        needs_context = decision in _FULL_CONTEXT
        self.predictionMode = PredictionMode.LL if needs_context else PredictionMode.SLL
        prediction: int = super().adaptivePredict(input, decision, outerContext)
        return prediction


_convert_expr = _Latex2Sympy.convert_expr


def _convert_and_check(self: Any, context: Any) -> Any:
    """Convert a node of the parse tree to sympy, and check its size at once. Replaces the parser's `convert_expr`.

    The check cannot wait until the whole text is converted, because the parser computes some numbers earlier. For
    example, it compares the ends of an interval.

    Raises:
        Unreadable: a number in the node is too large, or a matrix has a power that is no integer.
    """
    parsed = _convert_expr(self, context)
    check_size(parsed)
    if isinstance(parsed, sympy.Pow) and isinstance(parsed.base, sympy.MatrixBase):
        # For any other exponent sympy would look for the eigenvalues of any matrix.
        if not parsed.exp.is_Integer:
            raise Unreadable("a power of a matrix")
        return parsed.base**parsed.exp
    return parsed


def _convert_binom(self: Any, binom: Any) -> Any:
    """Convert a binomial without computing it, because its size is not checked yet.

    Replaces math-verify's converter, which computes the binomial at once.
    """
    return sympy.binomial(
        self.convert_expr(binom.upper), self.convert_expr(binom.lower), evaluate=False
    )


# Patch the class itself, not a subclass, so that the checks hold for `math_verify_proof` as well.
_Latex2Sympy.convert_expr, _Latex2Sympy.convert_binom = _convert_and_check, _convert_binom


class _Converter(_Latex2Sympy):  # type: ignore[misc]
    """math-verify's converter from LaTeX to sympy, made faster by `_Prediction` and by `parse_number`."""

    def create_parser(self, latex_str: str) -> Any:
        """Create math-verify's parser, and make it predict with `_Prediction`."""
        parser = super().create_parser(latex_str)
        old = parser._interp
        parser._interp = _Prediction(
            parser, old.atn, old.decisionToDFA, old.sharedContextCache
        )
        return parser

    def parse_number(self, text: str) -> Any:
        """Convert the text of a number to a sympy number.

        Plain integers and decimals are converted without sympy.Number, which runs a whole parser for its argument.
        """
        digits = text.replace(",", "")
        if digits.isascii() and digits.isdigit():
            return sympy.Integer(int(digits))
        if _PLAIN_DECIMAL.fullmatch(digits):
            return sympy.Float(digits)
        return super().parse_number(text)


@lru_cache(maxsize=4096)
def parse(text: str) -> Any:
    """Convert LaTeX to a sympy object, as math-verify does, with two differences.

    1. math-verify writes all letters in lower case. If a text has a letter in both cases, as in `M/m`, all letters keep
       their case here.
    2. The letter `E` may have an index, as in `E_1`.

    Args:
        text: LaTeX as `tidy` returns it.

    Raises:
        Unreadable: math-verify would misread the text.
        Exception: any error of the parser.
    """
    if _MISREAD.search(text):
        raise Unreadable(text)
    latex = _ARGUMENT.sub(r"\1(\2)", normalize_latex(text, _NORMALIZATION))
    # The grammar would read `2(3)` as a mixed number, which is 5.
    latex = _PRODUCT.sub(r"\1\\cdot ", latex)
    # The grammar would read `\gamma(x)` as the gamma function.
    latex = _LETTER_GAMMA.sub(r"\\text{gamma}", latex)
    with contextlib.suppress(Exception):
        return _convert(latex)
    # The grammar has no index for E.
    return _convert(_INDEXED_E.sub(r"\\text{E}", latex))


def _convert(latex: str) -> Any:
    """Convert LaTeX to a sympy object, with every letter in lower case: `A` becomes `a`.

    If a letter appears in both cases, all letters keep their case, so that `M/m` is not 1.
    """
    letters = set(_LETTER.findall(_TEXT.sub("", latex)))
    if len({letter.lower() for letter in letters}) < len(letters):
        parsed = _parse(
            _CAPITALIZED_WORD.sub(_without_capital, latex),
            ConversionConfig(lowercase_symbols=False),
        )
        names = {symbol.name for symbol in parsed.atoms(sympy.Symbol)}
        if len({name.lower() for name in names}) < len(names):
            return parsed
    return _parse(latex, ConversionConfig())


def _without_capital(name: re.Match[str]) -> str:
    """Write a capitalized word in lower case if its first letter occurs again in it: `maximum` for `Maximum`.

    `M` and `m` would otherwise count as two symbols. Any other word is returned as it is.
    """
    word = name[0].lower()
    return word if word[0] in word[1:] else name[0]


def _parse(latex: str, config: ConversionConfig) -> Any:
    """Convert LaTeX to a sympy object with the fast `_Prediction`. If that fails, try again with ANTLR's own.

    Raises:
        TooLarge: a number is too large. There is no second attempt.
        Exception: any error of the second attempt.
    """
    try:
        return _Converter(is_real=True, config=config).parse(latex)
    except TooLarge:
        raise
    except Exception:
        return _Latex2Sympy(is_real=True, config=config).parse(latex)
