"""Functions of the user's own that a recipe names: extractors and label rules.

A recipe that a command names is its user's, so its functions run; nothing that data, models or rollouts say ever is
called. What a run or an evaluation has stored may be somebody else's: `Recipe.require_named` refuses a function
that only a stored file names.
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
    """Whether a setting is a function of the user's own, not a name of olr's or a pattern."""
    kind, colon, _ = (setting or "").partition(":")
    return bool(colon) and kind not in ("regex", "after", "tag")


def load_function(place: str) -> Callable[..., Any]:
    """Return the function ``package.module:function``, or ``file.py:function`` with a path from the working folder.

    The standard library's functions, of which `os.system` would run responses, are refused.
    """
    return _loaded(place, os.getcwd())


@functools.cache  # of each folder: another one may have a file of the same name
def _loaded(place: str, _folder: str) -> Callable[..., Any]:
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
    """The text of the file that a function is in; empty where it has none."""
    file = inspect.getsourcefile(load_function(place))
    return "" if file is None else Path(file).read_text(encoding="utf-8", errors="replace")


def raised_at(error: Exception) -> str:
    """Return type and message of an error, and the line of the user's code that raised it."""
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
    """Turn whatever the user's own code raises within the block into one sentence."""
    try:
        yield
    except Exception as error:  # of any kind
        raise UserError(f"{what} raised {raised_at(error)}", "fix it", place) from error


def _load_file(source: str, shown: str) -> ModuleType:
    file = Path(source).absolute()
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise UserError(f"{shown}: {file} does not exist", "check the name")
    module = importlib.util.module_from_spec(spec)
    with running(f"{shown}: {file}"):
        # no user's text: the recipe's own setting, which names code as model.trust_remote_code does
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
    sys.path.insert(0, here)  # where `python -m` looks too, and `olr` does not
    try:
        with running(f"{shown}: importing {source} from {here}"):
            # no user's text: the recipe's own setting, which names code as model.trust_remote_code does
            return importlib.import_module(source)
    finally:
        sys.path.remove(here)
