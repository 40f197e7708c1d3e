"""Which part of a response is its answer (R6)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from olr_cli.errors import unknown

ARITHMETIC_SOURCES = frozenset({"arithmetic", "arithmetic-addition", "arithmetic-subtraction"})
"""Data sources of the built-in prompts; any other name, even "arithmetic-mine", is a user's own."""

# An escaped brace is a character, not a group; "\\" is a line break, unless what follows is a box all the same.
_TOKEN = re.compile(r"(?P<box>\\boxed\s*\{)|\\(?:[{}]|\\(?!boxed))|(?P<open>\{)|(?P<close>\})")
_REVERSED = re.compile(r"([0-9]+)(-?)")


def boxed(response: str) -> str | None:
    r"""Content of the complete, balanced ``\boxed{...}`` that begins last; None if there is none or it is blank (R6).

    Takes time linear in the length of the response.
    """
    start = response.rfind("\\boxed")
    span = None if start < 0 else _last_box(response, start) or _last_box(response, 0)
    return None if span is None else response[slice(*span)].strip() or None


def _last_box(text: str, start: int) -> tuple[int, int] | None:
    """Span of the content of the complete box that begins last, from `start` on."""
    stack: list[int | None] = []  # content start of each open box, None for any other group
    span = None
    for token in _TOKEN.finditer(text, start):
        if token["box"]:
            stack.append(token.end())
        elif token["open"]:
            stack.append(None)
        elif token["close"] and stack:
            opened = stack.pop()
            if opened is not None and (span is None or opened > span[0]):
                span = opened, token.start()
    return span


def reversed_digits(response: str) -> str | None:
    """The number a response of the arithmetic task claims: digits, least significant first, then the sign.

    ``975`` claims 579, ``5-`` claims -5. Anything else in the response: no answer.
    """
    match = _REVERSED.fullmatch(response.strip())
    if match is None:
        return None
    digits = match[1][::-1].lstrip("0") or "0"
    return match[2] + digits if digits != "0" else digits


EXTRACTORS: Mapping[str, Callable[[str], str | None]] = MappingProxyType({
    "boxed": boxed,
    "reversed_digits": reversed_digits,
    "text": lambda response: response.strip() or None,  # for logs that hold the answer itself
})  # fmt: skip
"""Every extractor by the name a recipe calls it."""


def extract(response: str, extractor: str = "boxed") -> str | None:
    """The answer a response claims, None if it claims none.

    Raises:
        UserError: there is no such extractor.
    """
    try:
        function = EXTRACTORS[extractor]
    except KeyError:
        raise unknown("the extractor", extractor, EXTRACTORS) from None
    return function(response)


def default_extractor(data_source: str) -> str:
    """Name of the extractor for a data source: the built-in arithmetic task has its own (R6)."""
    return "reversed_digits" if data_source in ARITHMETIC_SOURCES else "boxed"
