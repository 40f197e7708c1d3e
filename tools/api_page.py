"""Write docs/api.md from the docstrings of the public API. Nothing is imported, so no trainer has to be installed.

python tools/api_page.py > docs/api.md
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "olr_cli"

PAGE: dict[str, tuple[str, ...]] = {
    "olr_cli.api": ("OnlineLabelRefinement", "SupervisedStep", "Supervisor", "Visit", "Label", "keep",
                    "replace_by_majority", "no_label", "Rollout", "RolloutGroup", "Prompt", "Decided"),
    "olr_cli.notebook": ("audit", "figure", "replay", "table"),
    "olr_cli.answers": ("verify", "parse", "Verdict", "is_match", "extract", "Judge", "vote", "Vote"),
    "olr_cli.trainers.grading": ("accuracy_reward", "compute_score"),
    "olr_cli.trainers.trl": ("OlrReward",),
    "olr_cli.trainers.verl": ("OlrRewardManager",),
}  # fmt: skip
"""Module -> the names to document, in this order. A module may define a name or import it from another one."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def page() -> str:
    """Return docs/api.md as Markdown: all names in `PAGE`, with their signatures and docstrings."""
    parts = [
        "# Python API",
        "Made from docstrings by `python tools/api_page.py > docs/api.md`. How these are used:"
        " [trainers.md](trainers.md), [methods.md](methods.md#your-own-rule), [grading.md](grading.md).",
    ]
    for module, names in PAGE.items():
        parts.append(f"## `{module}`")
        for name in names:
            parts += _described(found(module, name), 3)
    return "\n\n".join(parts) + "\n"


def found(module: str, name: str) -> Definition:
    """Return the syntax node that defines `name`, which `module` defines or imports from another module.

    Raises:
        LookupError: the module neither defines nor imports the name.
    """
    file = PACKAGE.parent / Path(*module.split("."))
    file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, Definition) and node.name == name:
            return node
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.startswith("olr_cli")
        ):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return found(node.module, alias.name)
    raise LookupError(f"{module} has no {name}")


def _described(node: Definition, level: int) -> Iterator[str]:
    """Yield parts of Markdown that describe a function or class: a heading, the signature and the docstring.

    `level` is the level of the heading. For a class, the fields and the public methods follow, with headings one level
    deeper.
    """
    yield f"{'#' * level} `{node.name}`"
    yield f"```text\n{_signature(node)}\n```"
    yield _text(ast.get_docstring(node) or "")
    if isinstance(node, ast.ClassDef):
        if fields := [f"- `{name}`: {text}" for name, text in _field_docs(node)]:
            yield "\n".join(["**Attributes**", "", *fields])
        for inner in node.body:
            if isinstance(inner, ast.FunctionDef) and re.fullmatch(
                "__call__|[a-z].*", inner.name
            ):
                yield from _described(inner, level + 1)


def _field_docs(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield (name, docstring) for each annotated field of a class. Fields without a docstring are left out.

    The docstring is put on one line.
    """
    for field, below in pairwise(node.body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, " ".join(text.split())


def _signature(node: Definition) -> str:
    """Return how to call a function, or to make an object of a class, as code.

    A property is shown as ``name: type``. A class without an `__init__` is shown with its annotated fields.
    """
    if isinstance(node, ast.ClassDef):
        makers = [
            it
            for it in node.body
            if isinstance(it, ast.FunctionDef) and it.name == "__init__"
        ]
        if not makers:
            # The source of a dataclass has no `__init__`, so its fields are its signature.
            fields = [ast.unparse(it) for it in node.body if isinstance(it, ast.AnnAssign)]
            return (
                "\n    ".join([f"class {node.name}:", *fields])
                if fields
                else f"class {node.name}"
            )
        node, name = makers[0], node.name
    else:
        name = node.name
    arguments = ast.unparse(node.args).removeprefix("self, ").removeprefix("self")
    if {ast.unparse(it) for it in node.decorator_list} & {"property", "cached_property"}:
        return f"{name}: {ast.unparse(node.returns)}" if node.returns else name
    returns = (
        f" -> {ast.unparse(node.returns)}"
        if node.returns is not None and name == node.name
        else ""
    )
    line = f"{name}({arguments}){returns}"
    return (
        line
        if len(line) <= 100
        else line.replace("(", "(\n    ", 1).replace(", *, ", ",\n    *, ", 1)
    )


def _text(docstring: str) -> str:
    """Return a docstring as Markdown, in which sections such as ``Args:`` are bold headings with lists."""
    lines = []
    for line in docstring.splitlines():
        if re.fullmatch(r"(Args|Attributes|Returns|Raises|Yields):", line):
            lines += [f"**{line[:-1]}**", ""]
        elif entry := re.fullmatch(r"    (\*{0,2}\w+(?:, \w+)*): (.*)", line):
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        elif line.startswith("        ") and lines and not lines[-1].startswith("    "):
            lines.append(f"  {line.strip()}")
        else:
            lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(), end="")
