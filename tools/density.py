"""How dense the code is to read, room by room: a measure to look at, not a limit.

python tools/density.py [FOLDER] [--worst N]

Lines say little about size, because code that is squeezed into few lines takes several readings. So this counts:

    statements  what formatting and words cannot change; docstrings do not count
    br/line     branches per line of a function's body (without its docstring). A branch is an if, for, while, try,
                with, case, conditional expression, `and`/`or` chain, or a for in a comprehension
    >12         functions with more than 12 branches
    >5 args     functions with more than five positional parameters (self apart)
    verb        docstrings of functions that begin with a verb, in percent
    comment     lines that are comments, in percent

Whole packages, by the same count: httpx .19, TRL .19, prime-rl .16, verifiers .20, tinker-cookbook .12 branches a line.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "olr_cli"
BRANCHES = (
    ast.If, ast.For, ast.AsyncFor, ast.While, ast.IfExp, ast.BoolOp, ast.comprehension, ast.Try,
    ast.match_case, ast.With, ast.AsyncWith,
)  # fmt: skip
MANY_BRANCHES = 12
MANY_ARGUMENTS = 5
# Words with which a docstring often begins, and which are no verbs.
NO_VERBS = {
    "a", "all", "an", "as", "each", "every", "for", "how", "in", "it", "its", "like", "no", "of", "one",
    "some", "that", "the", "their", "these", "this", "those", "what", "where", "whether", "which",
}  # fmt: skip
# `Returned`, `Reader`, `Reading` and `Returns` are no imperatives, nor are most nouns with these endings.
NO_VERB_ENDINGS = ("ed", "er", "ing", "ion", "ity", "ness", "s")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Measured:
    """How much a reader of one function must keep in mind, and where the function is."""

    place: str
    """File, line and name."""

    branches: int
    """Branches of its body, without the branches of functions inside it."""

    arguments: int
    """Number of positional parameters, without self."""

    lines: int
    """Lines of its body, without the docstring."""

    begins_with_verb: bool | None
    """Whether its docstring does; None without a docstring, and for properties."""


@dataclass
class Room:
    """Counts over a room, which is a folder of the package or a file directly in the package."""

    name: str
    files: int = 0
    lines: int = 0
    comments: int = 0
    statements: int = 0
    functions: list[Measured] = field(default_factory=list)

    def __add__(self, other: Room) -> Room:
        """Return the sums of two rooms' counts, under the name of the first room."""
        return Room(
            self.name,
            self.files + other.files,
            self.lines + other.lines,
            self.comments + other.comments,
            self.statements + other.statements,
            self.functions + other.functions,
        )

    def row(self) -> str:
        """Return the room's line of the table. The table's heading is `HEAD`."""
        body = sum(function.lines for function in self.functions)
        branches = sum(function.branches for function in self.functions)
        hard = sum(function.branches > MANY_BRANCHES for function in self.functions)
        wide = sum(function.arguments > MANY_ARGUMENTS for function in self.functions)
        verbs = [
            f.begins_with_verb for f in self.functions if f.begins_with_verb is not None
        ]
        return (
            f"{self.name:14}{self.files:6}{self.lines:8,}{self.statements:12,}"
            f"{branches / max(body, 1):9.2f}{hard:6}{wide:9}"
            f"{sum(verbs) / max(len(verbs), 1):8.0%}{self.comments / max(self.lines, 1):9.1%}"
        )


HEAD = (
    f"{'room':14}{'files':>6}{'lines':>8}{'statements':>12}{'br/line':>9}{'>12':>6}{'>5 args':>9}"
    f"{'verb':>8}{'comment':>9}"
)


def measure(source: str, name: str) -> Room:
    """Count statements, branches and the like in one file, and return the counts as a `Room` of its own.

    `source` is the text of the file. `name` is its path, which becomes the room's name and begins the place of each
    function.
    """
    tree = ast.parse(source)
    lines = source.split("\n")
    return Room(
        name,
        files=1,
        lines=len(lines) - 1,
        comments=sum(line.lstrip().startswith("#") for line in lines),
        statements=sum(
            isinstance(node, ast.stmt) and not _is_text(node) for node in ast.walk(tree)
        ),
        functions=[
            _measured(node, name) for node in ast.walk(tree) if isinstance(node, Function)
        ],
    )


def _measured(function: Function, name: str) -> Measured:
    """Count the branches, parameters and lines of one function. `name` is the path of its file."""
    docstring = ast.get_docstring(function)
    body = function.body if docstring is None else function.body[1:]
    end = function.end_lineno or function.lineno
    arguments = [*function.args.posonlyargs, *function.args.args]
    is_property = any("property" in ast.dump(node) for node in function.decorator_list)
    return Measured(
        f"{name}:{function.lineno} {function.name}",
        branches=sum(isinstance(node, BRANCHES) for node in _own_nodes(function)),
        arguments=sum(argument.arg not in ("self", "cls") for argument in arguments),
        # A function that is only its docstring counts one line.
        lines=end - body[0].lineno + 1 if body else 1,
        begins_with_verb=None if docstring is None or is_property else _is_verb(docstring),
    )


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    """Yield the syntax nodes in a function, without those in the functions and classes inside it."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(node))


def _is_text(statement: ast.stmt) -> bool:
    """Return whether a statement is only a string, such as the docstring of a function or field."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _is_verb(docstring: str) -> bool:
    """Return whether a docstring seems to begin with an imperative.

    The first word must not be an article, a pronoun or the like (`NO_VERBS`), nor end like a plural, participle or
    noun.
    """
    word = re.split(r"\W", docstring.strip(), maxsplit=1)[0].lower()
    return word.isalpha() and word not in NO_VERBS and not word.endswith(NO_VERB_ENDINGS)


def rooms_of(package: Path) -> list[Room]:
    """Measure all files of a package, and return a `Room` for each folder and file directly in it, sorted by name."""
    rooms: dict[str, Room] = {}
    for file in sorted(package.rglob("*.py")):
        place = file.relative_to(package)
        name = place.parts[0]
        rooms[name] = rooms.get(name, Room(name)) + measure(file.read_text(), str(place))
    return [rooms[name] for name in sorted(rooms)]


def main() -> None:
    """Print the table of all rooms and, with ``--worst N``, the N functions with the most branches."""
    parser = argparse.ArgumentParser(
        description="How dense the code is to read, room by room."
    )
    parser.add_argument("folder", nargs="?", type=Path, default=PACKAGE)
    parser.add_argument("--worst", type=int, default=0, help="also list so many functions")
    options = parser.parse_args()
    rooms = rooms_of(options.folder)
    whole = sum(rooms, Room("all"))
    print(HEAD)
    for room in (*rooms, whole):
        print(room.row())
    hardest = sorted(whole.functions, key=lambda function: -function.branches)
    for function in hardest[: options.worst]:
        print(
            f"{function.branches:4} branches {function.arguments:3} arguments {function.lines:4} lines"
            f"  {function.place}"
        )


if __name__ == "__main__":
    main()
