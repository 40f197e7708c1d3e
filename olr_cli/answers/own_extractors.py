"""Extractors that users provide: a regular expression, or a function of their own (R6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from olr_cli.errors import UserError, shortened
from olr_cli.user_code import load_function, running

Extractor: TypeAlias = Callable[[str], str | None]
"""Function from a response to the answer that it claims, or to None if it claims none."""


_MOST_SEARCHED = 1 << 30
"""Most characters that the searches of one response may scan in total."""


_TAIL = 1 << 15
"""Length of the end of a response that is always searched for all matches."""


def found_by(pattern: str) -> Callable[[str], bool]:
    """Return a function that says whether a text contains a match of a pattern.

    The library RE2 searches, in time proportional to the length of the text.

    Raises:
        UserError: RE2 cannot read the pattern.
    """
    compiled = _compiled(pattern)
    return lambda text: (
        compiled.search(text.encode("utf-8", "replace").decode()) is not None
    )


def _compiled(pattern: str) -> Any:
    """Compile a pattern with RE2.

    Raises:
        UserError: RE2 cannot read the pattern.
    """
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
    """Return an extractor for the last match of a pattern of RE2 (R8).

    The answer is the first group that matched, or the whole match if the pattern has no group. Without a match, or if
    the answer is blank, the extractor returns None.

    If a pattern matches so often that the searches of a response scan more than 2^30 characters in total, only the last
    32,768 characters of the response are searched.

    Raises:
        UserError: RE2 cannot read the pattern.
    """
    compiled = _compiled(pattern)

    def answer(response: str) -> str | None:
        # RE2 fails on a lone surrogate, which is no Unicode.
        text = response.encode("utf-8", "replace").decode()
        for start in (0, max(0, len(text) - _TAIL)):
            last, searched = None, 0
            for last in compiled.finditer(text, start):
                # Counted in characters, not in seconds: the answer must not depend on the machine.
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
    """Return an extractor that calls a function of the user.

    If the function raises anything, or returns neither text nor None, the extractor raises UserError. Blank text counts
    as None.

    Args:
        place: where the function is, as ``package.module:function`` or ``file.py:function``.

    Raises:
        UserError: there is no such function.
    """
    function, name = load_function(place), shortened(place)

    def answer(response: str) -> str | None:
        with running(f"{name}, on a response,"):
            value = function(response)
        if value is not None and not isinstance(value, str):
            raise UserError(
                f"{name} returns a {type(value).__name__}", "it must return text, or None"
            )
        return value and (value.strip() or None)

    return answer
