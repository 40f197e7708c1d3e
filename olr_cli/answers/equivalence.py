"""What a worker does for each request: read an answer, verify a pair (R7). Imports sympy."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import sympy
from math_verify import verify
from sympy.core import random

from olr_cli.answers.canonical import as_algebra, canonical, evaluate, expanded, value_at
from olr_cli.answers.forms import Form
from olr_cli.answers.latex import parse

logging.disable(logging.CRITICAL)  # math-verify warns that its time limits are off; the parent keeps them

_SEED = 0

Result = TypeVar("Result")


@lru_cache(maxsize=4096)
def _parsed(answer: str) -> Any:
    return parse(answer)


def read(answer: str) -> Form | None:
    """The canonical form of a tidied answer; None if it has none."""
    random.seed(_SEED)  # sympy tries some identities at random points
    return _attempt(lambda: canonical(_parsed(answer)))


def same(a: str, b: str) -> bool | None:
    """Whether math-verify's `verify` holds both ways for two tidied answers that can be read; None if it can't tell."""
    random.seed(_SEED)
    parsed = _attempt(lambda: (_parsed(a), _parsed(b)))
    if parsed is None:
        return None
    x, y = parsed
    verdict = _attempt(lambda: _quick_verdict(x, y))
    if verdict is None:
        verdict = _attempt(lambda: _verify(x, y))
        if verdict is not False:
            back = _attempt(lambda: _verify(y, x))
            verdict = back if back is False else verdict and back
    return verdict


def _attempt(algebra: Callable[[], Result]) -> Result | None:
    """What `algebra` returns; None if it fails: on a policy's output anything may go wrong in parser and algebra."""
    try:
        return algebra()
    except MemoryError:
        raise
    except Exception:
        return None


def _verify(x: Any, y: Any) -> bool:
    """What `verify` says; unless told so, it says no where it failed."""
    return bool(verify(x, y, timeout_seconds=None, raise_on_error=True))


def _quick_verdict(x: Any, y: Any) -> bool | None:
    """What `verify` would find by slow simplification or by solving equations, where there is a shorter way."""
    if isinstance(x, sympy.Eq) and isinstance(y, sympy.Eq):
        return False if _have_other_solutions(x, y) else None
    if isinstance(x, sympy.Expr) and isinstance(y, sympy.Expr):
        return True if expanded(evaluate(x) - evaluate(y)) == 0 else None
    return None


def _have_other_solutions(x: sympy.Eq, y: sympy.Eq) -> bool:
    """Whether a solution of `x` is known that doesn't solve `y`."""
    f, g = (as_algebra(evaluate(side.lhs) - evaluate(side.rhs)) for side in (x, y))
    for symbol in sorted(f.free_symbols, key=str):
        slope = sympy.diff(f, symbol)
        if slope.has(symbol) or slope == 0:
            continue
        root = value_at(sympy.expand(symbol - f / slope), {})
        residue = None if root is None else value_at(g, {symbol: root})
        return residue is not None and bool(abs(residue) > 1e-9)
    return False
