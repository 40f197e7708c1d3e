"""Extractors that a recipe writes itself: a regular expression, or a function of the user's own.

A function runs only where the user names it (`olr_cli.user_code`); nothing that data, models, rollouts or stored files
say ever is run. It must be a function of a module that is installed or lies in the working folder; the standard
library's, of which `os.system` would run responses, are refused.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable

from olr_cli.errors import UserError, first_line, shortened
from olr_cli.user_code import require_named

_MOST_SEARCHED = 1 << 30
"""Characters that the searches of one response may go over."""
_TAIL = 1 << 15
"""The last characters of a response, all of whose matches can always be looked for."""


class RegexExtractor:
    """The last match of a pattern: its first group that took part, or all of it where there is no group.

    RE2 searches in time proportional to the text, whatever the pattern. So many matches that their searches could go
    over more than 2^30 characters are counted and not timed: then only the last 32,768 characters are searched (R8).

    Raises:
        UserError: the pattern is not valid for RE2.
    """

    def __init__(self, pattern: str, option: str) -> None:
        import re2

        options = re2.Options()
        options.log_errors = False
        try:
            self._pattern = re2.compile(pattern, options)
        except (re2.error, UnicodeEncodeError) as error:
            reason = error.args[0].decode() if isinstance(error, re2.error) else "it is not Unicode"
            raise UserError(
                f"{option}: the regular expression '{shortened(pattern)}' is not valid ({reason}); mend it; look-around"
                r" and back-references do not exist in RE2, which reads it: take a group, as in '#### (\d+)'"
            ) from None

    def __call__(self, response: str) -> str | None:
        text = response.encode("utf-8", "replace").decode()  # a lone surrogate is no Unicode
        for start in (0, max(0, len(text) - _TAIL)):
            last, searched = None, 0
            for last in self._pattern.finditer(text, start):
                searched += len(text) - last.start()
                if searched > _MOST_SEARCHED:
                    break
            else:
                break
        if last is None:
            return None
        groups = last.groups() or (last[0],)
        return next((group.strip() for group in groups if group is not None), "") or None


def own_extractor(place: str, option: str) -> Callable[[str], str | None]:
    """The function ``package.module:function``, guarded: what it raises or returns is reported in one sentence.

    Raises:
        UserError: there is no such function, it may not be one, or only a stored file names it; or, when called, it
            fails or returns no text.
    """
    module_name, _, name = place.partition(":")
    shown = f"{option} {shortened(place)}"
    parts = [*module_name.split("."), name]
    if not all(part.isidentifier() for part in parts):
        raise UserError(f"{shown}: expected package.module:function, or regex:, after: or tag: and a text")
    if parts[0] in sys.stdlib_module_names or parts[0] == "olr_cli":
        raise UserError(f"{shown}: expected a function of a module of your own; put one around it")
    require_named(place, option)
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
