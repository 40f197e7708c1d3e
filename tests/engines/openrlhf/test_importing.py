"""Something is done around a module's import, whenever that comes, and once."""

import importlib
import sys

import pytest

from olr_cli.engines.openrlhf.importing import around_import

NAME = "a_module_of_this_test"


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    """A module that notes what it sees when it is run, and a submodule."""
    package = tmp_path / NAME
    package.mkdir()
    (package / "__init__.py").write_text("import sys\nseen = list(sys.notes)\nvalue = 1\n")
    (package / "part.py").write_text("value = 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "notes", [], raising=False)
    hooks = list(sys.meta_path)
    yield
    sys.meta_path[:] = hooks
    for name in (NAME, f"{NAME}.part"):
        sys.modules.pop(name, None)


def around(module):
    sys.notes.append("before")
    has_run = hasattr(module, "value")
    yield
    sys.notes.append("after")
    module.patched = (has_run, module.value)


def test_before_the_import_nothing_happens_and_at_the_import_both_parts_do():
    around_import(NAME, around)
    assert sys.notes == [] and NAME not in sys.modules
    module = importlib.import_module(NAME)
    assert module.seen == ["before"]
    assert sys.notes == ["before", "after"]
    assert module.patched == (False, 1)


def test_a_module_that_is_loaded_already_is_patched_at_once():
    module = importlib.import_module(NAME)
    around_import(NAME, around)
    assert sys.notes == ["before", "after"]
    assert module.patched == (True, 1)


def test_it_happens_once():
    hooks = list(sys.meta_path)
    around_import(NAME, around)
    importlib.import_module(NAME)
    assert sys.meta_path == hooks
    importlib.reload(sys.modules[NAME])
    importlib.import_module(NAME)
    assert sys.notes == ["before", "after"]


def test_other_modules_are_imported_as_ever():
    around_import(f"{NAME}.part", around)
    module = importlib.import_module(NAME)
    assert sys.notes == [] and not hasattr(module, "patched")
    assert importlib.import_module(f"{NAME}.part").patched == (False, 2)


def test_a_module_that_is_absent_stays_absent():
    around_import("no_such_module_anywhere", around)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        importlib.import_module("no_such_module_anywhere")
    assert sys.notes == []


def test_a_failing_import_fails_as_ever_and_what_comes_after_is_undone(tmp_path):
    (tmp_path / NAME / "part.py").write_text("raise OSError('no')\n")

    def undone(_module):
        sys.notes.append("before")
        try:
            yield
        finally:
            sys.notes.append("undone")

    around_import(f"{NAME}.part", undone)
    with pytest.raises(OSError, match="no"):
        importlib.import_module(f"{NAME}.part")
    assert sys.notes == ["before", "undone"]
    assert f"{NAME}.part" not in sys.modules
