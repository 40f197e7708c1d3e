"""math-verify's reading of an answer, several times faster. Runs in workers only: imports sympy.

The parser is math-verify's own (latex2sympy2_extended's grammar). Its Python runtime spends nearly all its time on
full-context prediction, which the grammar needs in one rule only; everywhere else the cheaper SLL prediction gives
the same parse tree or an error (that is what ANTLR guarantees), and after an error we parse again with full context.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

import sympy
from antlr4.atn.ParserATNSimulator import ParserATNSimulator  # type: ignore[import-untyped]
from antlr4.atn.PredictionMode import PredictionMode  # type: ignore[import-untyped]
from latex2sympy2_extended.antlr_parser import PSParser
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy, normalize_latex
from latex2sympy2_extended.math_normalization import NormalizationConfig, units
from math_verify.grader import should_treat_as_complex
from math_verify.parser import get_last_eq

# math-verify's normalisation in two parts: between them units are dropped.
_COMMANDS = NormalizationConfig(boxed="last")
_OPERATORS = NormalizationConfig(basic_latex=False, malformed_operators=True, nits=True, boxed="none")

_TEXT = r"\\(?:text|mbox)\{[^{}]*\}(?:\^\d|\{\^\d\})?"
_TEXTS = re.compile(rf"(?:{_TEXT}\s*)*")
_UNIT = re.compile(rf"(?<=[\w)}}\]!%])\s*{_TEXT}\s*(?=[,;)\]]|$)")
_UNITS = "|".join(re.escape(unit) for unit in units if unit not in ("ab", "bc"))
_BARE_UNITS = re.compile(rf"(?<=[\d}}\s])\s*((?:{_UNITS})(?:e?s)?(?:\s+(?:{_UNITS})(?:e?s)?)?)$")
_VARIABLE = re.compile(r"(?<![a-zA-Z\\])[a-zA-Z]")
_ARGUMENT = re.compile(
    r"(\\(?:(?:arc|a|ar)?(?:sin|cos|tan|cot|sec|csc)h?|ln|log|exp)(?:\s*[_^](?:\w|\{[^{}]*\}))*)"
    r"\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
)
_INDEXED_E = re.compile(r"E(?=\s*_)")
_NAME = re.compile(r"(?<![\\a-zA-Z])[A-Z][a-z]{2,}(?![a-zA-Z])")
_LETTER = re.compile(r"\\[a-zA-Z]+|[a-zA-Z]")

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

    It reads a little more than math-verify does: an `E` with an index, and `M` beside `m` as another symbol.

    Raises:
        Exception: of whatever kind the parser raises, if the answer as a whole can't be read.
    """
    latex = normalized(answer)
    # The grammar has no index for E. Of a = b = c that can't be read only the end counts, as in math-verify.
    *attempts, last = dict.fromkeys((latex, _INDEXED_E.sub(r"\\text{E}", latex), get_last_eq(latex)))
    for attempt in attempts:
        with contextlib.suppress(Exception):
            return _convert(attempt)
    return _convert(last)


def normalized(answer: str) -> str:
    r"""`answer` in the LaTeX that the grammar knows, without units.

    Where math-verify swallows what is no unit, or takes what follows an argument for a part of it, it isn't followed:
    it reads 3 in ``3\text{ or }\sqrt{2}``, ``3 a b`` and ``3 h k``, and 0 in ``\ln{2}/2``.
    """
    latex = normalize_latex(answer, _COMMANDS)
    if not _TEXTS.fullmatch(latex):
        latex = _UNIT.sub("", latex)
    latex = normalize_latex(_without_bare_units(" ".join(latex.split())), _OPERATORS)
    return _ARGUMENT.sub(r"\1(\2)", latex)


def _without_bare_units(latex: str) -> str:
    """`latex` without units that are not in a text; a letter or two are a unit only after a number: not in `2 r h`."""
    match = _BARE_UNITS.search(latex)
    if match is None:
        return latex
    quantity, lengths = latex[: match.start()], [len(unit) for unit in match[1].split()]
    if lengths.count(1) > 1 or (min(lengths) <= 2 and _VARIABLE.search(quantity.rpartition("=")[2])):
        return latex
    return quantity


def _convert(latex: str) -> Any:
    """What `latex` says. Letters have no case, so that `A` is `a`, unless both are there: `M/m` is not 1."""
    letters = set(_LETTER.findall(latex))
    if len({letter.lower() for letter in letters}) < len(letters):
        parsed = _parse(_NAME.sub(_without_capital, latex), ConversionConfig(lowercase_symbols=False))
        names = {symbol.name for symbol in parsed.atoms(sympy.Symbol)}
        if len({name.lower() for name in names}) < len(names):
            return parsed
    return _parse(latex, ConversionConfig())


def _without_capital(name: re.Match[str]) -> str:
    """`Anna` as `anna`: its letters are no symbols."""
    word = name[0].lower()
    return word if word[0] in word[1:] else name[0]


def _parse(latex: str, config: ConversionConfig) -> Any:
    is_real = not should_treat_as_complex(latex)
    try:
        return _Converter(is_real=is_real, config=config).parse(latex)
    except Exception:
        return _Latex2Sympy(is_real=is_real, config=config).parse(latex)
