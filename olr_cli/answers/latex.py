"""math-verify's reading of an answer, several times faster. Runs in workers only: imports sympy.

The parser is math-verify's own (latex2sympy2_extended's grammar). Its Python runtime spends nearly all its time on
full-context prediction, which the grammar needs in one rule only; everywhere else the cheaper SLL prediction gives
the same parse tree or an error (that is what ANTLR guarantees), and after an error we parse again with full context.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import sympy
from antlr4.atn.ParserATNSimulator import ParserATNSimulator  # type: ignore[import-untyped]
from antlr4.atn.PredictionMode import PredictionMode  # type: ignore[import-untyped]
from latex2sympy2_extended.antlr_parser import PSParser
from latex2sympy2_extended.latex2sympy2 import _Latex2Sympy, normalize_latex
from math_verify import LatexExtractionConfig
from math_verify.grader import should_treat_as_complex
from math_verify.parser import get_last_eq

_NORMALIZATION = replace(LatexExtractionConfig().normalization_config, boxed="last")

_RULE = PSParser.ruleNames.index("atom_expr")  # whether x^2(... goes on as a power or as a function call
_FULL_CONTEXT = frozenset(
    decision for decision, state in enumerate(PSParser.atn.decisionToState) if state.ruleIndex == _RULE
)
_PLAIN_DECIMAL = re.compile(r"\d*\.\d+", re.ASCII)


class _Prediction(ParserATNSimulator):  # type: ignore[misc]
    """Full-context prediction in one rule, SLL in the others."""

    def adaptivePredict(self, input: Any, decision: int, outerContext: Any) -> int:
        full = decision in _FULL_CONTEXT
        self.predictionMode = PredictionMode.LL if full else PredictionMode.SLL
        prediction: int = super().adaptivePredict(input, decision, outerContext)
        return prediction


class _Converter(_Latex2Sympy):  # type: ignore[misc]
    def create_parser(self, latex_str: str) -> Any:
        parser = super().create_parser(latex_str)
        old = parser._interp
        parser._interp = _Prediction(parser, old.atn, old.decisionToDFA, old.sharedContextCache)
        return parser

    def parse_number(self, text: str) -> Any:
        # Spelled out, since sympy.Number sends its argument through a whole parser of its own.
        digits = text.replace(",", "")
        if digits.isascii() and digits.isdigit():
            return sympy.Integer(int(digits))
        if _PLAIN_DECIMAL.fullmatch(digits):
            return sympy.Float(digits)
        return super().parse_number(text)


def parse(answer: str) -> Any:
    """The sympy object that math-verify reads in the content of a box; numbers in surrounding prose don't count.

    Raises:
        Exception: of whatever kind the parser raises, if the answer as a whole can't be read.
    """
    latex = normalize_latex(answer, config=_NORMALIZATION)
    try:
        return _convert(latex)
    except Exception:
        last = get_last_eq(latex)  # of a = b = c only the end, as math-verify does
        if last == latex:
            raise
        return _convert(last)


def _convert(latex: str) -> Any:
    is_real = not should_treat_as_complex(latex)
    try:
        return _Converter(is_real=is_real).parse(latex)
    except Exception:
        return _Latex2Sympy(is_real=is_real).parse(latex)
