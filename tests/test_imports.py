"""No module imports, directly or through others, a module that imports it: a circle cannot be read from either end.

Imports inside functions count, for they need the other module too; those for annotations (`TYPE_CHECKING`) do not.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def modules(package: Path) -> dict[str, Path]:
    """Return the file of every module of a package, by its whole name."""
    names = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return names


def imports(node: ast.AST) -> Iterator[str]:
    """Yield what code imports, each name of a module too, which may be a module itself."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "relative imports are not looked at"
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from imports(child)


def graph(package: Path) -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    files = modules(package)
    return {
        name: {
            imported if imported in files else imported.rpartition(".")[0]
            for imported in imports(ast.parse(file.read_text(encoding="utf-8")))
        }
        & files.keys()
        for name, file in files.items()
    }


def circles(imported: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of modules that reach each other (the strongly connected components of more than one)."""
    reached: dict[str, set[str]] = {}
    for name in imported:
        reached[name], new = set(), {name}
        while new:
            new = {other for one in new for other in imported[one]} - reached[name]
            reached[name] |= new
    found: list[set[str]] = []
    for name in imported:
        circle = {other for other in reached[name] if name in reached[other]}
        if circle and circle not in found:
            found.append(circle)
    return found


def test_no_modules_import_each_other():
    assert circles(graph(ROOT / "olr_cli")) == []


@pytest.mark.parametrize(
    "text, is_circle",
    [
        ("import small.b", True),
        ("def late():\n    from small.b import x", True),
        ("from small import b", True),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from small.b import x",
            False,
        ),
        ("import json", False),
    ],
)
def test_a_circle_is_found_wherever_the_import_stands(text, is_circle, tmp_path):
    package = tmp_path / "small"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "a.py").write_text(text)
    (package / "b.py").write_text("from small import c")
    (package / "c.py").write_text("from small.a import y")
    names = {"small.a", "small.b", "small.c"}
    assert circles(graph(package)) == ([names] if is_circle else [])
