"""The small changes that `mutate.py` makes: slips of the hand or of the mind that a line could have suffered.

A change replaces the text of one node of the syntax tree; the text around it stays.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import NamedTuple

Text = Callable[[ast.AST], str]
"""Returns the source of a node."""


class Change(NamedTuple):
    """A change of source: the text of the syntax node `node` is replaced by the text `becomes`.

    `kind` names the sort of change, such as ``comparison``.
    """

    node: ast.AST
    kind: str
    becomes: str


class Mutant(NamedTuple):
    """The source of a file with one change, the line of the change, and a description of it."""

    line: int
    """Line of the change, from 1."""

    kind: str
    what: str
    """The kind of change, and the text before and after it, shortened."""

    source: str
    """The text of the whole file."""


_NEIGHBOUR = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_OPPOSITE = {ast.Lt: ">", ast.LtE: ">=", ast.Gt: "<", ast.GtE: "<="}
_OTHER_OPERATOR = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "/",
    ast.Mod: "//",
    ast.Pow: "*",
}
_OTHER_FUNCTION = {"min": "max", "max": "min", "any": "all", "all": "any"}
_ORDER_IS_NOTHING = {
    *("isinstance", "getattr", "hasattr", "suppress", "zip", "max", "min"),
    *("np.maximum", "np.minimum", "np.logaddexp"),
}
"""Functions whose first two arguments may be swapped, or whose swap only crashes."""

_STRICTNESS = {"strict", "frozen", "slots", "maxsize"}
"""Arguments that refuse or keep more, and change nothing where all goes well."""

_MESSAGES = {"UserError", "warn", "warning", "info", "count_of", "assert_never"}
"""Calls that make sentences, whose words no test has to pin."""


def mutants_of(source: str) -> Iterator[Mutant]:
    """Yield every mutant of a file. A mutant is the file's `source` with one small change."""
    tree, data = ast.parse(source), source.encode()
    starts = [0, *accumulate(len(line) for line in data.splitlines(keepends=True))]

    def span(node: ast.AST) -> slice:
        first = starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        last = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return slice(first, last)

    def text(node: ast.AST) -> str:
        # ast counts columns in bytes of UTF-8, so cut the encoded source.
        return data[span(node)].decode()

    exempt = {id(part) for node in ast.walk(tree) for part in _exempt(node)}
    for node in ast.walk(tree):
        if id(node) in exempt:
            continue
        for change in _changes(node, text):
            extent = span(change.node)
            changed = data[: extent.start] + change.becomes.encode() + data[extent.stop :]
            before, after = text(change.node), change.becomes
            what = f"{change.kind}: {_short(before)}  ->  {_short(after)}"
            line = change.node.lineno  # type: ignore[attr-defined]
            yield Mutant(line, change.kind, what, changed.decode())


def _short(text: str) -> str:
    """Return a text on one line, at most 70 characters of it."""
    return " ".join(text.split())[:70]


def _exempt(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the syntax nodes, from `node` and below it, that are not changed because no test has to notice a change.

    These are annotations, messages, assertions, arguments such as ``strict``, and code that only a type checker reads.
    """
    for name in ("annotation", "returns"):
        if annotation := getattr(node, name, None):
            yield from ast.walk(annotation)
    if isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING":
        yield from ast.walk(node)  # only the type checker reads it
    says_something = isinstance(node, ast.Call) and _name(node.func) in _MESSAGES
    is_strictness = isinstance(node, ast.keyword) and node.arg in _STRICTNESS
    if (
        says_something
        or is_strictness
        or isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr)
    ):
        yield from ast.walk(node)


def _name(function: ast.expr) -> str:
    """Return the last part of a dotted name: ``warn`` for ``warnings.warn``."""
    return ast.unparse(function).split(".")[-1]


def _changes(node: ast.AST, text: Text) -> Iterator[Change]:
    """Yield the changes of one node itself, not of the nodes below it.

    Many kinds of nodes have no changes. `text` returns the source of a node.
    """
    match node:
        case ast.Compare(ops=[_], comparators=[_]):
            yield from _of_comparison(node, text)
        case ast.BoolOp():
            yield from _of_and_or(node, text)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            if not isinstance(operand, ast.Constant):
                yield Change(node, "not or minus dropped", f"({text(operand)})")
        case ast.Constant(value=bool() as value):
            yield Change(node, "constant", str(not value))
        case ast.Constant(value=int() | float() as value):
            yield Change(node, "constant", repr(value + 1))
            yield Change(node, "constant", repr(value - 1))
        case ast.BinOp():
            yield from _of_arithmetic(node, text)
        case ast.Call():
            yield from _of_call(node, text)
        case ast.IfExp(test, body, orelse):
            swapped = f"(({text(orelse)}) if ({text(test)}) else ({text(body)}))"
            yield Change(node, "branches swapped", swapped)
        # Other conditions, such as comparisons, have changes of their own.
        case ast.If(
            test=ast.Name() | ast.Call() | ast.Attribute() | ast.NamedExpr() as test
        ):
            yield Change(test, "condition forced", "True")
            yield Change(test, "condition forced", "False")
        case ast.comprehension(ifs=[condition, *_]):
            yield Change(condition, "filter dropped", "True")
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield Change(node, "return None", "return None")
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            yield Change(node, "statement dropped", "pass")
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Continue():
            yield Change(node, "statement dropped", "pass")


def _of_comparison(node: ast.Compare, text: Text) -> Iterator[Change]:
    """Yield changes that replace the operator of a comparison.

    The operator ``<`` is replaced by its neighbour ``<=`` and by its opposite ``>``. An operator such as ``==`` has
    only one replacement, ``!=``.
    """
    left, right = text(node.left), text(node.comparators[0])
    for others in (_NEIGHBOUR, _OPPOSITE):
        if sign := others.get(type(node.ops[0])):
            yield Change(node, "comparison", f"(({left}) {sign} ({right}))")


def _of_and_or(node: ast.BoolOp, text: Text) -> Iterator[Change]:
    """Yield a change that exchanges ``and`` and ``or``, and for each operand a change that leaves it out."""
    words = (" and ", " or ") if isinstance(node.op, ast.And) else (" or ", " and ")
    same, other = words
    operands = [f"({text(value)})" for value in node.values]
    yield Change(node, "and/or", f"({other.join(operands)})")
    for number in range(len(operands)):
        fewer = [*operands[:number], *operands[number + 1 :]]
        yield Change(node, "operand dropped", f"({same.join(fewer)})")


def _of_arithmetic(node: ast.BinOp, text: Text) -> Iterator[Change]:
    """Yield a change that replaces the operator of an expression, such as ``+`` by ``-``.

    Nothing is yielded if an operand ends in a quote. Such an operand is a text, and the change would only crash.
    """
    sign = _OTHER_OPERATOR.get(type(node.op))
    left, right = text(node.left), text(node.right)
    # `-` between texts only crashes, which any test notices.
    joins_texts = {left[-1], right[-1]} & {"'", '"'}
    if sign and not joins_texts:
        yield Change(node, "arithmetic", f"(({left}) {sign} ({right}))")


def _of_call(node: ast.Call, text: Text) -> Iterator[Change]:
    """Yield a change of a call, or nothing if none makes sense.

    A function such as ``min`` is replaced by its opposite, ``max``. In calls of other functions, the first two
    arguments are swapped if both are names or attributes and their order matters.
    """
    if isinstance(node.func, ast.Name) and node.func.id in _OTHER_FUNCTION:
        yield Change(node.func, "min/max, any/all", _OTHER_FUNCTION[node.func.id])
        return
    match node.args:
        case [
            ast.Name() | ast.Attribute() as first,
            ast.Name() | ast.Attribute() as second,
            *more,
        ]:
            differ = text(first) != text(second)
            if differ and ast.unparse(node.func) not in _ORDER_IS_NOTHING:
                words = ", ".join(text(it) for it in [second, first, *more, *node.keywords])
                yield Change(node, "arguments swapped", f"{text(node.func)}({words})")
