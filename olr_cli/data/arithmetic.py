"""The built-in data sets: the toys' arithmetic, and `few_shot`'s tasks.

A toy's expression such as ``123+456=`` has two 3-digit operands. The policy answers at once, with the least significant
digit first (``975``), because carries arise in that order. True answers are stored in normal order (``579``). Every
expression needs a carry or, in subtraction, a borrow, so a procedure that drops carries is always wrong.

Each expression belongs to one split under every seed, so nothing from warm-up or training is ever in the test set.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from olr_cli.data.chat import Message
from olr_cli.data.few_shot import FEW_SHOT, FewShotName, few_shot_prompts, split_questions
from olr_cli.data.prompts import Prompt
from olr_cli.errors import UserError, did_you_mean
from olr_cli.seeding import key, uniform, uniform_streams

KindName = Literal["addition", "subtraction"]
Split = Literal["train", "validation", "test"]

SOURCE = "arithmetic"
SPLIT_ENDS: dict[Split, float] = {"train": 0.8, "validation": 0.9, "test": 1.0}
"""Upper end of each split on the unit interval to which expressions are hashed."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Addition or subtraction: its symbol, its right answer, and whether two digits need a carry or borrow.

    The functions `solve` and `crosses` take integers or numpy arrays.
    """

    symbol: str

    solve: Callable[[Any, Any], Any]
    """Function that returns the right answer for two operands."""

    crosses: Callable[[Any, Any], Any]
    """Function that returns whether two digits call for a carry or borrow."""


OPERATIONS: dict[KindName, Operation] = {
    "addition": Operation("+", operator.add, lambda x, y: x + y >= 10),
    "subtraction": Operation("-", operator.sub, lambda x, y: x < y),
}


SetName = KindName | FewShotName
SETS: tuple[SetName, ...] = (*OPERATIONS, *FEW_SHOT)

_USUAL = 400
"""Default number of prompts of a set."""


@dataclass(frozen=True, slots=True)
class Expression:
    """One built-in question: two operands of three digits and the operation between them."""

    kind: KindName
    left: int
    right: int

    @property
    def text(self) -> str:
        """The prompt, for example ``123+456=``."""
        return f"{self.left}{OPERATIONS[self.kind].symbol}{self.right}="

    @property
    def index(self) -> int:
        """The two operands written side by side as one number: 123456 for ``123+456=``."""
        return self.left * 1000 + self.right

    @property
    def answer(self) -> int:
        """The right answer."""
        return int(OPERATIONS[self.kind].solve(self.left, self.right))


TOYS: dict[str, KindName] = {
    "addition-easier": "addition",
    "addition-harder": "addition",
    "subtraction": "subtraction",
}
"""Toy policy -> the operation that it computes; subtraction lies between the two difficulties of addition."""

BUILTIN_PREFIX = "builtin:"
"""Beginning of a model path that names a built-in policy."""


def toy_kind(model_path: str) -> KindName | None:
    """Return the operation that a toy policy (``builtin:addition-easier``) computes, or None for any other model."""
    name = model_path.removeprefix(BUILTIN_PREFIX)
    return None if name == model_path else TOYS.get(name)


def mixture_note(model_path: str) -> str | None:
    """Return a warning to show below the results of a toy policy, or None for any other model.

    The toy policies (`TOYS`), such as ``builtin:addition-easier``, were first trained on a mixture of right and wrong
    ways to calculate. The warning says that their wrong answers are therefore systematic.
    """
    if toy_kind(model_path) is None:
        return None
    return (
        f"{model_path} was warmed up on a mixture of a right and a wrong procedure, so its wrong answers are "
        "systematic by construction."
    )


def expressions(kind: KindName, size: int, seed: int, split: Split) -> list[Expression]:
    """Return the first `size` expressions of a split, in an order drawn by `seed`.

    With the same seed, a larger size returns the same expressions and more after them.

    Raises:
        UserError: the split has fewer expressions.
    """
    members = split_members(kind, split)
    if size > len(members):
        raise _too_few(kind, size, len(members), split)
    order = _draws(members, "arithmetic order", kind, seed, split).argsort(kind="stable")
    return [Expression(kind, *divmod(int(index), 1000)) for index in members[order[:size]]]


def rephrasing(expression: Expression, split: Split) -> Expression | None:
    """Return another expression of the same kind and split with the same answer, or None if there is none.

    For ``127+456=``, the result may be ``448+135=``. It is drawn uniformly from all such expressions, but ``b+a`` is
    only taken for ``a+b`` if there is no other. The same expression always gets the same rephrasing.
    """
    # Not in words, because the built-in policies can only read digits and one operator. In the training split, 4 of
    # 560,980 additions (such as 999+999) and 1 of 215,639 subtractions have no rephrasing.
    ordered, starts = _by_answer(expression.kind, split)
    same_answer = ordered[starts[expression.answer] : starts[expression.answer + 1]]
    candidates = same_answer[same_answer != expression.index]
    # A policy that drops carries gives `b+a` the same wrong answer as `a+b`. With any other rephrasing, the two wrong
    # answers are equal in only 48 % of additions and 56 % of subtractions.
    regrouped = candidates[candidates != expression.right * 1000 + expression.left]
    choices = regrouped if len(regrouped) else candidates
    if not len(choices):
        return None
    place = int(uniform("rephrasing", expression.kind, expression.index) * len(choices))
    return Expression(expression.kind, *divmod(int(choices[place]), 1000))


def arithmetic_prompts(
    kind: SetName, size: int | None, seed: int, split: Split
) -> list[Prompt]:
    """Return `size` different prompts of a built-in set with clean labels, in an order drawn by `seed`.

    If `size` is None, 400 prompts are returned, or the whole split if it has fewer.

    Raises:
        UserError: the split has fewer than `size` prompts.
    """
    if kind == "addition" or kind == "subtraction":
        return [
            _prompt(expression, split)
            for expression in expressions(kind, size or _USUAL, seed, split)
        ]
    members = len(split_questions(kind, split))
    if size is not None and size > members:
        raise _too_few(kind, size, members, split)
    return few_shot_prompts(kind, size or min(_USUAL, members), seed, split)


def _too_few(kind: SetName, size: int, members: int, split: Split) -> UserError:
    """Return the error for a split that has only `members` prompts where `size` are wanted."""
    problem = f"the {split} split of {SOURCE}:{kind} has {members} prompts, not {size}"
    return UserError(problem, f"ask for at most {members}")


def _prompt(expression: Expression, split: Split) -> Prompt:
    """Build a prompt with a clean label from an expression, with a rephrasing from the same split if there is one."""
    other = rephrasing(expression, split)
    return Prompt(
        prompt_id=str(expression.index),
        messages=(Message("user", expression.text),),
        given_label=str(expression.answer),
        true_answer=str(expression.answer),
        noise_type="clean",
        data_source=f"{SOURCE}-{expression.kind}",
        rephrased=None if other is None else (Message("user", other.text),),
    )


def parse_source(source: str) -> SetName | None:
    """Return the name of the built-in set that a data source asks for, or None if it asks for other data.

    ``arithmetic:NAME`` asks for the set NAME, and ``arithmetic`` alone for addition.

    Raises:
        UserError: there is no set with this name.
    """
    name, colon, wanted = source.partition(":")
    if name != SOURCE:
        return None
    for set_name in SETS:
        if wanted == set_name or (not colon and set_name == "addition"):
            return set_name
    names = ", ".join(f"{SOURCE}:{set_name}" for set_name in SETS)
    raise UserError(
        f"there is no built-in data set '{source}'{did_you_mean(wanted, SETS)}",
        f"there are {names}",
    )


@functools.lru_cache(maxsize=8)
def split_members(kind: KindName, split: Split) -> NDArray[np.int64]:
    """Return every expression of a split as a number (123456 for ``123+456=``), in ascending order.

    Only expressions with a positive answer and at least one carry or borrow are in a split.
    """
    left, right = (side.ravel() for side in np.mgrid[100:1000, 100:1000])
    rule = OPERATIONS[kind]
    # Keep expressions with a carry or borrow in at least one column, and with a positive answer.
    crosses = [
        rule.crosses(left // place % 10, right // place % 10) for place in (1, 10, 100)
    ]
    valid = np.any(crosses, axis=0) & (rule.solve(left, right) > 0)
    indices: NDArray[np.int64] = left[valid] * 1000 + right[valid]
    # Hashed without a seed, so that an expression never changes its split.
    place = _draws(indices, "arithmetic split", kind)
    ends = list(SPLIT_ENDS.values())
    number = list(SPLIT_ENDS).index(split)
    start = ends[number - 1] if number else 0.0
    return indices[(place >= start) & (place < ends[number])]


@functools.lru_cache(maxsize=8)
def _by_answer(kind: KindName, split: Split) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the expressions of a split sorted by answer, and the index at which each answer starts.

    Returns:
        Two arrays, `ordered` and `starts`. `ordered` holds each expression as a number, such as 123456 for
        ``123+456=``. The expressions with the answer n are ``ordered[starts[n] : starts[n + 1]]``.
    """
    members = split_members(kind, split)
    answers = OPERATIONS[kind].solve(*np.divmod(members, 1000))
    order = answers.argsort(kind="stable")
    return members[order], np.searchsorted(answers[order], np.arange(answers.max() + 2))


def _draws(indices: NDArray[np.int64], *parts: str | int) -> NDArray[np.float64]:
    """Return a pseudorandom number in [0, 1) for each expression; equal arguments give equal numbers.

    Args:
        indices: the expressions as numbers, such as 123456 for ``123+456=``.
        parts: what seeds the draw: its purpose, such as ``"arithmetic split"``, and often a seed.
    """
    # The sum is meant to wrap around: it is a key of 64 bits, not a quantity.
    with np.errstate(over="ignore"):
        return uniform_streams(indices.astype(np.uint64) + np.uint64(key(*parts)), 0)
