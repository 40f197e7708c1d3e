"""Built-in tasks for pretrained models: plain text to continue, after solved examples.

A small model that was trained on text can continue ``7 * 13 =`` after three solved lines, but cannot answer it in a
chat. Its errors are its own, unlike the toys': docs/results/real-model.md has the accuracy of SmolLM2-135M and the
agreement of its wrong answers.

A recipe uses such prompts without a chat template (`model.chat_template: none`) and ends responses at the end of the
line (`train.stop`). The answer is the first integer. Each question belongs to one split under every seed, together with
the questions that ask the same in another order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product
from math import prod
from typing import Literal, get_args

from olr_cli.data.chat import Message
from olr_cli.data.prompts import Prompt
from olr_cli.seeding import key, uniform

FewShotName = Literal["products", "sums", "maxima", "dates"]
FEW_SHOT: tuple[FewShotName, ...] = get_args(FewShotName)

FEW_SHOT_SPLIT_ENDS = {"train": 0.5, "validation": 0.65, "test": 1.0}
"""Upper end of each split on the unit interval to which questions are hashed; half is held out, as tasks are small."""


@dataclass(frozen=True, slots=True)
class FewShotTask:
    """A built-in task with solved examples, a question about a few numbers, and a function that answers it.

    The order of the numbers does not change the answer.
    """

    examples: str
    """Solved lines, which precede every question."""

    line: Callable[[Sequence[int]], str]
    """Function that writes the question about some numbers, up to the answer."""

    solve: Callable[[Sequence[int]], int]
    """Function that returns the right answer."""

    numbers: Callable[[], Iterable[tuple[int, ...]]]
    """Function that returns the numbers of all questions, each selection once and in ascending order."""


def _pairs(large: range, small: range) -> list[tuple[int, int]]:
    """Return all pairs of a number from `large` and a number from `small`, sorted and without duplicates.

    In each pair, the smaller number comes first, so that (3, 5) and (5, 3) are the same pair.
    """
    return sorted({(min(pair), max(pair)) for pair in product(large, small)})


TASKS: dict[FewShotName, FewShotTask] = {
    "products": FewShotTask(
        "12 + 7 = 19\n45 - 3 = 42\n6 * 8 = 48\n",
        lambda numbers: f"{numbers[0]} * {numbers[1]} =",
        prod,
        lambda: _pairs(range(3, 26), range(3, 10)),
    ),
    "sums": FewShotTask(
        "12 + 7 = 19\n4 + 9 = 13\n21 + 6 = 27\n",
        lambda numbers: f"{numbers[0]} + {numbers[1]} =",
        sum,
        lambda: _pairs(range(10, 30), range(2, 10)),
    ),
    "maxima": FewShotTask(
        "max(31, 27, 54) = 54\nmax(45, 86, 92) = 92\nmax(62, 39, 19) = 62\n",
        lambda numbers: f"max({', '.join(map(str, numbers))}) =",
        max,
        lambda: combinations(range(11, 100, 8), 3),
    ),
    "dates": FewShotTask(  # a number is a year with a month: 201309 is September 2013
        "later of 2007-12 and 2013-09: 2013\nlater of 1988-12 and 1947-04: 1988\nlater of 2013-02 and 1927-05: 2013\n",
        lambda numbers: (
            f"later of {' and '.join(f'{number // 100}-{number % 100:02d}' for number in numbers)}:"
        ),
        lambda numbers: max(numbers) // 100,
        lambda: combinations(
            (100 * year + 1 + 5 * year % 12 for year in range(1900, 2020, 3)), 2
        ),
    ),
}
"""Chosen so that SmolLM2-135M answers a quarter to a half of the questions right."""


def few_shot_prompts(
    name: FewShotName, size: int | None, seed: int, split: str
) -> list[Prompt]:
    """Return the first `size` prompts of a split, in an order drawn by `seed`; all prompts if `size` is None.

    The rephrasing of a prompt names the same numbers in reverse order.
    """
    task, members = TASKS[name], split_questions(name, split)
    order = sorted(
        members,
        key=lambda numbers: (key("few-shot order", name, seed, split, *numbers), numbers),
    )
    return [_prompt(name, task, numbers) for numbers in order[:size]]


@functools.cache
def split_questions(name: FewShotName, split: str) -> list[tuple[int, ...]]:
    """Return the questions of a split, each as a tuple of its numbers: ``12 * 7 =`` is (12, 7).

    A question is in no split if it is one of the solved examples, even with its numbers in another order.
    """
    task, bounds = TASKS[name], [0.0, *FEW_SHOT_SPLIT_ENDS.values()]
    start, end = bounds[(place := list(FEW_SHOT_SPLIT_ENDS).index(split)) : place + 2]
    asked = (sorted(set(permutations(chosen))) for chosen in task.numbers())
    # The split is drawn by the ascending order, so that all orders of the same numbers are on one side.
    return [
        numbers
        for orders in asked
        if start <= uniform("few-shot split", name, *orders[0]) < end
        and not any(task.line(order) in task.examples for order in orders)
        for numbers in orders
    ]


def _prompt(name: FewShotName, task: FewShotTask, numbers: tuple[int, ...]) -> Prompt:
    """Build the prompt that asks about `numbers` after the task's solved examples, with a clean label."""
    answer = str(task.solve(numbers))

    def ask(order: Sequence[int]) -> tuple[Message, ...]:
        return (Message("user", task.examples + task.line(order)),)

    return Prompt(
        prompt_id="-".join(map(str, numbers)),
        messages=ask(numbers),
        given_label=answer,
        true_answer=answer,
        noise_type="clean",
        data_source=f"arithmetic-{name}",
        rephrased=ask(numbers[::-1]) if numbers[::-1] != numbers else None,
    )
