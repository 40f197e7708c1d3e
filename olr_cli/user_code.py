"""The user's own functions that a recipe names: extractors and label rules.

A recipe named on the command line belongs to the user, so its functions run. Code named in data, models or rollouts is
never called. A stored recipe of a run or evaluation may be a stranger's: `Recipe.require_named` refuses functions that
only a stored file names.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from olr_cli.errors import UserError, first_line, shortened


def is_function(setting: str | None) -> bool:
    """Return whether a setting names a user's function (``file.py:function``).

    The result is False for None, for olr's own names (``boxed``), and for extractors with a text (``regex:…``,
    ``after:…``, ``tag:…``).
    """
    kind, colon, _ = (setting or "").partition(":")
    return bool(colon) and kind not in ("regex", "after", "tag")


def load_function(place: str) -> Callable[..., Any]:
    """Import and return a user's function.

    `place` names the function: ``package.module:function`` or ``file.py:function``, with the file's path relative to
    the working folder. Raise UserError if there is no such function. Functions of the standard library are refused too,
    because `os.system` as an extractor would execute responses.
    """
    return _loaded(place, os.getcwd())


# Cached per working folder (`_folder`), because two folders may hold different files of the same name.
@functools.cache
def _loaded(place: str, _folder: str) -> Callable[..., Any]:
    """Import and return a user's function, once per name and working folder; raise UserError if there is none.

    Args:
        place: the name of the function: ``package.module:function`` or ``file.py:function``.
        _folder: the working folder, used only as a part of the cache's key.
    """
    source, _, name = place.rpartition(":")
    shown = shortened(place)
    module = (
        _load_file(source, shown)
        if source.endswith(".py")
        else _load_module(source, name, shown)
    )
    function = getattr(module, name, None)
    if not callable(function):
        raise UserError(
            f"{shown}: {module.__file__ or source} has no function {name}", "check the name"
        )
    return function  # type: ignore[no-any-return]


def source_of(place: str) -> str:
    """Return the source text of the whole file that defines a user's function; empty if there is no such file.

    `place` names the function, as in ``file.py:function``. The function is imported for this. Raise UserError if there
    is no such function.
    """
    file = inspect.getsourcefile(load_function(place))
    return "" if file is None else Path(file).read_text(encoding="utf-8", errors="replace")


def raised_at(error: Exception) -> str:
    """Return an error and the place in the user's code that raised it, as in ``ValueError: bad, mine.py line 3``.

    The file and line are left out if they are not known.
    """
    ours = ("<frozen importlib", importlib.__file__, __file__)
    frames = [
        one
        for one in traceback.extract_tb(error.__traceback__)
        if not one.filename.startswith(ours)
    ]
    where = f", {frames[-1].filename} line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {first_line(error)}{where}"


@contextmanager
def running(what: str, place: str = "") -> Iterator[None]:
    """Run the block, which calls a user's code; raise any error of it as a UserError.

    Args:
        what: the first words of the error's message, which name the user's code: ``mine.py:read, on a response,``.
        place: where the user can fix the code's error, such as a key of the recipe.
    """
    try:
        yield
    # A user's function may raise anything; all of it is the user's to fix, not a bug of olr.
    except Exception as error:
        raise UserError(f"{what} raised {raised_at(error)}", "fix it", place) from error


def _load_file(source: str, shown: str) -> ModuleType:
    file = Path(source).absolute()
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise UserError(f"{shown}: {file} does not exist", "check the name")
    module = importlib.util.module_from_spec(spec)
    with running(f"{shown}: {file}"):
        # no user's text: only the recipe's own setting names code, as model.trust_remote_code does
        spec.loader.exec_module(module)
    return module


def _load_module(source: str, name: str, shown: str) -> ModuleType:
    parts = [*source.split("."), name]
    is_own = parts[0] not in sys.stdlib_module_names and parts[0] != "olr_cli"
    if not is_own or not all(part.isidentifier() for part in parts):
        raise UserError(
            f"{shown} names no function of yours",
            "give package.module:function, of a module of your own, or file.py:function (an extractor may also be"
            " regex:, after: or tag: and a text)",
        )
    here = os.getcwd()
    # `python -m` puts the working folder on the path, but the installed command `olr` does not.
    sys.path.insert(0, here)
    try:
        with running(f"{shown}: importing {source} from {here}"):
            # no user's text: only the recipe's own setting names code, as model.trust_remote_code does
            return importlib.import_module(source)
    finally:
        sys.path.remove(here)
