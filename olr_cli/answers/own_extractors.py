"""Extractors that a recipe brings: a regular expression, or a function of the user's own (R6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from olr_cli.errors import UserError, shortened
from olr_cli.user_code import load_function, running

Extractor: TypeAlias = Callable[[str], str | None]
"""A function from a response to the answer it claims; None if it claims none."""


_MOST_SEARCHED = 1 << 30
"""Characters that the searches of one response may scan in all."""


_TAIL = 1 << 15
"""Length of the end of a response that is always searched for all matches."""


def found_by(pattern: str) -> Callable[[str], bool]:
    """Whether a pattern is found in a text, by RE2, so in time proportional to the text.

    Raises:
        UserError: RE2 cannot read the pattern.
    """
    compiled = _compiled(pattern)
    return lambda text: (
        compiled.search(text.encode("utf-8", "replace").decode()) is not None
    )


def _compiled(pattern: str) -> Any:
    """A pattern as RE2 reads it; errors as of `found_by`."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = (
            error.args[0].decode() if isinstance(error, re2.error) else "it is not Unicode"
        )
        raise UserError(
            f"the regular expression '{shortened(pattern)}' is not valid ({reason})",
            "fix it; look-around"
            r" and back-references do not exist in RE2, which reads it: take a group, as in '#### (\d+)'",
        ) from None


def last_match(pattern: str) -> Extractor:
    """The last match of a pattern: its first group that took part, or all of it where there is no group.

    RE2 searches in time proportional to the text, whatever the pattern. So many matches that their searches could go
    over more than 2^30 characters are counted and not timed: then only the last 32,768 characters are searched (R8).
    """
    compiled = _compiled(pattern)

    def answer(response: str) -> str | None:
        text = response.encode(
            "utf-8", "replace"
        ).decode()  # a lone surrogate is no Unicode
        for start in (0, max(0, len(text) - _TAIL)):
            last, searched = None, 0
            for last in compiled.finditer(text, start):
                searched += len(text) - last.start()
                if searched > _MOST_SEARCHED:
                    break
            else:
                break
        if last is None:
            return None
        groups = last.groups() or (last[0],)
        return next((group.strip() for group in groups if group is not None), "") or None

    return answer


def own_extractor(place: str) -> Extractor:
    """A function of the user's own (`olr_cli.user_code`), guarded: what it raises or returns is one sentence."""
    function, shown = load_function(place), shortened(place)

    def answer(response: str) -> str | None:
        with running(f"{shown}, on a response,"):
            value = function(response)
        if value is not None and not isinstance(value, str):
            raise UserError(
                f"{shown} returns a {type(value).__name__}", "it must return text, or None"
            )
        return value and (value.strip() or None)

    return answer
