"""The built-in data sets: the toys' arithmetic, and `few_shot`'s tasks.

A toy's expression such as ``123+456=`` has two 3-digit operands; the policy answers at once, least-significant digit
first (``975``), as that is the order in which carries arise. True answers are stored in normal order (``579``).
Every expression needs a carry (in subtraction, a borrow), so a procedure that drops carries is always wrong.

Each expression belongs to one split for good, whatever the seed: what a policy was warmed up or trained on never
returns in its test set.
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
"""Where each split ends on the unit interval that expressions are hashed to."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One kind of expression. The column functions take two digits, or two arrays of digits."""

    symbol: str
    solve: Callable[[Any, Any], Any]
    crosses: Callable[[Any, Any], Any]
    """Whether two digits call for a carry or borrow."""


OPERATIONS: dict[KindName, Operation] = {
    "addition": Operation("+", operator.add, lambda x, y: x + y >= 10),
    "subtraction": Operation("-", operator.sub, lambda x, y: x < y),
}


SetName = KindName | FewShotName
SETS: tuple[SetName, ...] = (*OPERATIONS, *FEW_SHOT)

_USUAL = 400
"""Prompts of a set where no number is given."""


@dataclass(frozen=True, slots=True)
class Expression:
    """Two 3-digit operands and their operator."""

    kind: KindName
    left: int
    right: int

    @property
    def text(self) -> str:
        """The prompt, for example ``123+456=``."""
        return f"{self.left}{OPERATIONS[self.kind].symbol}{self.right}="

    @property
    def index(self) -> int:
        """A number that no other expression of its kind has."""
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
"""The toy policies and what they compute. Subtraction lies between the two difficulties of addition."""

BUILTIN_PREFIX = "builtin:"
"""How a model path names a built-in policy."""


def toy_kind(model_path: str) -> KindName | None:
    """The operation that a toy policy computes; None for any other model."""
    name = model_path.removeprefix(BUILTIN_PREFIX)
    return None if name == model_path else TOYS.get(name)


def mixture_note(model_path: str) -> str | None:
    """A note for the results of a toy policy; None for any other model."""
    if toy_kind(model_path) is None:
        return None
    return (
        f"{model_path} was warmed up on a mixture of a right and a wrong procedure, so its wrong answers are "
        "systematic by construction."
    )


def expressions(kind: KindName, size: int, seed: int, split: Split) -> list[Expression]:
    """The first `size` expressions of a split, in an order drawn by `seed`; a larger size only adds some."""
    members = split_members(kind, split)
    if size > len(members):
        raise _too_few(kind, size, len(members), split)
    order = _draws(members, "arithmetic order", kind, seed, split).argsort(kind="stable")
    return [Expression(kind, *divmod(int(index), 1000)) for index in members[order[:size]]]


def rephrasing(expression: Expression, split: Split) -> Expression | None:
    """The same question once more: an expression of the same kind and of `split` with the same answer.

    ``a+b`` becomes ``(b-c)+(a+c)``, commuted and regrouped, and ``a-b`` becomes ``(a+c)-(b+c)``; each such
    expression of the split is as likely, drawn by `expression` alone. Where the split has none, ``b+a`` if that is in
    it. Other wording ("what is 123 plus 456?") would be lost on the built-in policies: their warm-up knows nothing but
    digits and one operator, and a text is a rephrasing only to a policy that can read it.

    The wrong procedure gives the same wrong answer to both in 48 % of additions (100 % if they were only commuted) and
    56 % of subtractions. Of the training split, 4 of 560,980 additions (such as ``999+999=``) and 1 of 215,639
    subtractions have no rephrasing.
    """
    ordered, starts = _by_answer(expression.kind, split)
    same_answer = ordered[starts[expression.answer] : starts[expression.answer + 1]]
    others = same_answer[same_answer != expression.index]
    regrouped = others[others != expression.right * 1000 + expression.left]
    choices = regrouped if len(regrouped) else others
    if not len(choices):
        return None
    place = int(uniform("rephrasing", expression.kind, expression.index) * len(choices))
    return Expression(expression.kind, *divmod(int(choices[place]), 1000))


def arithmetic_prompts(
    kind: SetName, size: int | None, seed: int, split: Split
) -> list[Prompt]:
    """`size` different prompts of a split with clean labels; by default 400, or as many as a few-shot task has."""
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
    problem = f"the {split} split of {SOURCE}:{kind} has {members} prompts, not {size}"
    return UserError(problem, f"ask for at most {members}")


def _prompt(expression: Expression, split: Split) -> Prompt:
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
    """The set that ``arithmetic`` (addition) or ``arithmetic:NAME`` names; None for any other data source."""
    name, colon, wanted = source.partition(":")
    if name != SOURCE:
        return None
    for known in SETS:
        if wanted == known or (not colon and known == "addition"):
            return known
    names = ", ".join(f"{SOURCE}:{known}" for known in SETS)
    raise UserError(
        f"there is no built-in data set '{source}'{did_you_mean(wanted, SETS)}",
        f"there are {names}",
    )


@functools.lru_cache(maxsize=8)
def split_members(kind: KindName, split: Split) -> NDArray[np.int64]:
    """Index of every expression of a split, ascending."""
    left, right = (side.ravel() for side in np.mgrid[100:1000, 100:1000])
    rule = OPERATIONS[kind]
    # A carry or borrow in some column, and no negative answer.
    crosses = [
        rule.crosses(left // place % 10, right // place % 10) for place in (1, 10, 100)
    ]
    valid = np.any(crosses, axis=0) & (rule.solve(left, right) > 0)
    indices: NDArray[np.int64] = left[valid] * 1000 + right[valid]
    place = _draws(indices, "arithmetic split", kind)
    ends = list(SPLIT_ENDS.values())
    number = list(SPLIT_ENDS).index(split)
    start = ends[number - 1] if number else 0.0
    return indices[(place >= start) & (place < ends[number])]


@functools.lru_cache(maxsize=8)
def _by_answer(kind: KindName, split: Split) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The indices of a split ordered by answer, and at which of them each answer starts (the answer a at [a])."""
    members = split_members(kind, split)
    answers = OPERATIONS[kind].solve(*np.divmod(members, 1000))
    order = answers.argsort(kind="stable")
    return members[order], np.searchsorted(answers[order], np.arange(answers.max() + 2))


def _draws(indices: NDArray[np.int64], *parts: str | int) -> NDArray[np.float64]:
    """A number in [0, 1) for each expression."""
    with np.errstate(over="ignore"):
        return uniform_streams(indices.astype(np.uint64) + np.uint64(key(*parts)), 0)
