"""Extractors that a recipe writes itself: a regular expression, or a function of the user's own.

A recipe is its user's, so the function that it names is run; nothing that data, models or rollouts say ever is. It must
be a function of a module that is installed or lies in the working folder; the standard library's, of which `os.system`
would run responses, are refused.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import traceback
from collections.abc import Callable

from olr_cli.errors import UserError, first_line, shortened

_SECONDS = 1.0
"""Of processor time, for one response."""
_MOST_TIMEOUTS = 16
"""Responses that may take longer, before it is the pattern that needs mending."""


class RegexExtractor:
    """The last match of a pattern: its first group that took part, or all of it where there is no group.

    A response on which the search takes more than a second of processor time has no answer: backtracking can take
    for ever (``(a+)+$``).

    Raises:
        UserError: the pattern is not valid; or, when called, a search took too long for the 16th time.
    """

    def __init__(self, pattern: str, option: str) -> None:
        import regex  # unlike re, it has a time limit

        self._place = f"{option}: the regular expression '{shortened(pattern)}'"
        self._timeouts = 0
        try:
            self._pattern = regex.compile(pattern)
        except (regex.error, OverflowError, RecursionError, MemoryError) as error:
            raise UserError(f"{self._place} is not valid ({first_line(error)}); mend it") from None

    def __call__(self, response: str) -> str | None:
        deadline, last = time.process_time() + _SECONDS, None
        try:
            for match in self._pattern.finditer(response, timeout=_SECONDS):
                last = match
                if time.process_time() > deadline:
                    raise TimeoutError
        except TimeoutError:
            self._timeouts += 1
            if self._timeouts < _MOST_TIMEOUTS:
                return None
            raise UserError(
                f"{self._place} took more than {_SECONDS:g} s on {_MOST_TIMEOUTS} responses (the last of"
                f" {len(response):,} characters); mend it: a repetition within a repetition, as in (a+)+, takes for"
                " ever"
            ) from None
        if last is None:
            return None
        groups = last.groups() or (last[0],)
        return next((group.strip() for group in groups if group is not None), "") or None


def own_extractor(place: str, option: str) -> Callable[[str], str | None]:
    """The function ``package.module:function``, guarded: what it raises or returns is reported in one sentence.

    Raises:
        UserError: there is no such function, or it may not be one; or, when called, it fails or returns no text.
    """
    module_name, _, name = place.partition(":")
    shown = f"{option} {shortened(place)}"
    parts = [*module_name.split("."), name]
    if not all(part.isidentifier() for part in parts):
        raise UserError(f"{shown}: expected package.module:function, or regex:, after: or tag: and a text")
    if parts[0] in sys.stdlib_module_names or parts[0] == "olr_cli":
        raise UserError(f"{shown}: expected a function of a module of your own; put one around it")
    here = os.getcwd()
    sys.path.insert(0, here)  # where `python -m` looks too, and `olr` does not
    try:
        # no user's text: the recipe's own setting, which names code as model.trust_remote_code does
        module = importlib.import_module(module_name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name in (module_name, parts[0]):
            raise UserError(
                f"{shown}: there is no module {module_name} in {here} nor installed; check the name"
            ) from None
        raise UserError(f"{shown}: importing {module_name} fails ({_reason(error)}); mend it") from error
    finally:
        sys.path.remove(here)
    function = getattr(module, name, None)
    if not callable(function):
        raise UserError(f"{shown}: {module.__file__ or module_name} has no function {name}; check the name")

    def answer(response: str) -> str | None:
        try:
            value = function(response)
        except Exception as error:
            raise UserError(f"{shown} fails on a response ({_reason(error)}); mend it") from error
        if value is not None and not isinstance(value, str):
            raise UserError(f"{shown} returns a {type(value).__name__}; it must return text, or None")
        return value and (value.strip() or None)

    return answer


def _reason(error: Exception) -> str:
    """Type and message, and the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f", {frames[-1].filename} line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {first_line(error)}{where}"
