"""What the linter doesn't see in docstrings."""

import ast
import itertools
from pathlib import Path

import olr_cli

DOCUMENTED = (ast.Assign, ast.AnnAssign)


def is_text(node):
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def test_a_bare_text_stands_right_below_what_it_describes():
    for path in sorted(Path(olr_cli.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            body = getattr(node, "body", None)
            for above, below in itertools.pairwise(body) if isinstance(body, list) else ():
                assert not is_text(below) or isinstance(above, DOCUMENTED), (
                    f"{path}:{below.lineno}"
                )
