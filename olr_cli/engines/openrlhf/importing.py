"""Code that runs around the import of a module, whenever that import comes.

Ray prepares every worker it starts, used or not. To patch modules there at once would import all of torch, vLLM and
DeepSpeed into each of them, so they are patched when they are imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType

Around = Callable[[ModuleType], Iterator[None]]
"""Runs up to its `yield` before the module's code, and the rest after it."""


def around_import(name: str, around: Around) -> None:
    """Run `around` when module `name` is imported; at once, if it is already."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        with contextmanager(around)(loaded):
            return
    sys.meta_path.insert(0, _Finder(name, around))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module once, and lets its loader run the module's code within `around`."""

    def __init__(self, name: str, around: Around) -> None:
        self._name, self._around = name, around

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            exec_module = spec.loader.exec_module

            def run_within(module: ModuleType) -> None:
                with contextmanager(self._around)(module):
                    # no user's text: an installed module
                    exec_module(module)

            vars(spec.loader)["exec_module"] = run_within
        return spec
