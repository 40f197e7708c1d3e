"""What a worker does for each request: read an answer, verify a pair (R7). Imports sympy."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

import sympy
from math_verify import verify

from olr_cli.answers.canonical import Unreadable, as_algebra, canonical, evaluate, expanded, value_at
from olr_cli.answers.forms import Form
from olr_cli.answers.latex import parse

logging.disable(
    logging.CRITICAL
)  # math-verify reports that its own time limits are off; the parent keeps them


@lru_cache(maxsize=4096)
def _parsed(answer: str) -> Any:
    return parse(answer)


def read(answer: str) -> Form | None:
    """The canonical form of a tidied answer; None if it has none."""
    try:
        return canonical(_parsed(answer))
    except MemoryError:
        raise
    except Exception:
        # Whatever goes wrong inside the parser or the algebra on a policy's output, the answer is just not readable.
        return None


def same(a: str, b: str) -> bool:
    """Whether math-verify's `verify` holds both ways for two tidied answers that can be read."""
    try:
        x, y = _parsed(a), _parsed(b)
        if _is_zero_difference(x, y):
            return True
        if isinstance(x, sympy.Eq) and isinstance(y, sympy.Eq) and _have_other_solutions(x, y):
            return False
        return bool(verify(x, y, timeout_seconds=None) and verify(y, x, timeout_seconds=None))
    except MemoryError:
        raise
    except Exception:
        return False


def _is_zero_difference(x: Any, y: Any) -> bool:
    """A quick yes, where `verify` would find the same by slow simplification."""
    if not (isinstance(x, sympy.Expr) and isinstance(y, sympy.Expr)):
        return False
    try:
        return bool(expanded(evaluate(x) - evaluate(y)) == 0)
    except (Unreadable, TypeError):
        return False


def _have_other_solutions(x: sympy.Eq, y: sympy.Eq) -> bool:
    """Whether a solution of `x` is known that doesn't solve `y`; a quick no, where `verify` would solve both."""
    f, g = (as_algebra(evaluate(side.lhs) - evaluate(side.rhs)) for side in (x, y))
    for symbol in sorted(f.free_symbols, key=str):
        slope = sympy.diff(f, symbol)
        if slope.has(symbol) or slope == 0:
            continue
        root = value_at(sympy.expand(symbol - f / slope), {})
        residue = None if root is None else value_at(g, {symbol: root})
        return residue is not None and bool(abs(residue) > 1e-9)
    return False
