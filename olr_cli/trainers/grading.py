"""The grader alone as a reward function for TRL or verl; it imports neither of them, and no torch.

It keeps no state except counts of responses that could not be scored. It works in any thread, process or Ray worker.
"""

from __future__ import annotations

import atexit
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

from olr_cli.answers import (
    Verdict,
    default_extractor,
    extract,
    opened_by,
    read_answer,
    reading_more,
    shared_judge,
    unscorable,
    verdicts,
)
from olr_cli.data.chat import Message, completion_text, ending, prompt_messages
from olr_cli.data.columns import LABEL_COLUMNS
from olr_cli.data.labels import golds_of, read_cells
from olr_cli.data.prompts import in_percent
from olr_cli.data.values import Origins
from olr_cli.errors import UserError

_counted: Counter[Verdict] = Counter()
"""Number of responses by verdict, for the report at exit."""

_unread: list[str] = []
"""Responses without an answer, for a hint how to read them."""

_MOST_UNREAD = 100
"""Most responses to keep in `_unread`."""


def accuracy_reward(
    completions: Sequence[Any],
    extractor: str | Sequence[str | None] = "boxed",
    prompts: Sequence[Any] | None = None,
    opened: str | Sequence[str | None] = "",
    **columns: Any,
) -> list[float | None]:
    """Reward a right answer with 1.0 and any other with 0.0, for `GRPOTrainer(reward_funcs=…)`.

    The right answer is in the first of these columns that the data set has: `reward_model` (with ground_truth),
    `answer`, `label`, `ground_truth`, `final_answer`, `expected_answer`, `answer_number` and `solution` (docs/data.md).
    If a row has several answers there, each of them is right.

    Args:
        completions: texts or chats.
        extractor: how answers are read from completions, in the form of the recipe's key `data.extractor`. It is one
            text for all completions, or one per completion. TRL passes one per completion if the data set has a column
            of this name.
        prompts: texts or chats, one per completion. They show whether a percentage is asked for, and whether a prompt
            ends with a tag that opens the model's thinking, such as ``<think>``.
        opened: the tag with which the chat template opens the thinking at the end of a prompt; one for all, or one per
            completion. It is needed if prompts are chats, because TRL then does not show their end to a reward
            function.
        columns: the data set's other columns, with one value per completion.

    Returns:
        One reward per completion. If the right answer cannot be read, the reward is None, and TRL ignores this reward.

    Raises:
        UserError: the data set has none of the columns above, or `opened` does not open any thinking.
    """
    known = ("reward_model", *LABEL_COLUMNS)
    name = next((name for name in known if columns.get(name) is not None), None)
    if name is None:
        raise UserError(
            f"accuracy_reward needs one of the columns {', '.join(known)}", "rename yours"
        )
    extractors = [extractor] * len(completions) if isinstance(extractor, str) else extractor
    marks = [opened] * len(completions) if isinstance(opened, str) else opened
    cells = read_cells(golds_of, columns[name], Origins("accuracy_reward"), name)
    if len(cells) != len(completions):
        raise UserError(
            f"accuracy_reward has {len(completions)} completions and {len(cells)} golds in '{name}'",
            "give one of each",
        )
    found = _verdicts(
        completions,
        cells,
        extractors=[one or "boxed" for one in extractors],
        prompts=prompts or [""] * len(cells),
        marks=marks,
    )
    return [
        None if verdict is Verdict.NO_GOLD else float(bool(verdict)) for verdict in found
    ]


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Any = None,
    *,
    extractor: str | None = None,
    opened: str = "",
    **_: Any,
) -> float:
    """Reward a right answer with 1.0 and any other with 0.0, for verl's `reward.custom_reward_function`.

    verl needs a reward for every response. If `ground_truth` cannot be read as an answer, only a response whose answer
    is exactly this text gets 1.0. Usually all responses to such a prompt get the same reward, so GRPO learns nothing
    from them.

    `extractor` and `opened` are set in `custom_reward_function.reward_kwargs`.

    Args:
        data_source: the name of the data set, which decides how the answer is read if `extractor` is None.
        solution_str: the response.
        ground_truth: the right answer, or a list of several, each of which is right (docs/data.md).
        extra_info: the row's column of that name. Its `question`, if there is one, shows whether a percentage is asked
            for.
        extractor: how the answer is read from the response, in the form of the recipe's key `data.extractor`.
        opened: the tag, such as ``<think>``, with which the chat template opens the thinking at the end of a prompt;
            empty if it opens none.

    Raises:
        UserError: there is no right answer, or `opened` does not open any thinking.
    """
    golds: Sequence[str] = ()
    try:
        golds, problem = golds_of(ground_truth), "empty"
    except ValueError as error:
        problem = str(error)
    info = extra_info or {}
    if not golds:
        row = info.get("index", "unknown")
        raise UserError(
            f"{data_source}: 'reward_model.ground_truth' of the row with extra_info.index {row} is {problem}, and it"
            " should be text or a number",
            "fix it or leave the row out",
        )
    (verdict,) = _verdicts(
        [solution_str],
        [golds],
        extractors=[extractor or default_extractor(data_source)],
        prompts=[info.get("question") or ""],
        marks=[opened],
    )
    return float(bool(verdict))


def _verdicts(
    completions: Sequence[Any],
    golds: Sequence[Sequence[str]],
    *,
    extractors: Sequence[str],
    prompts: Sequence[Any],
    marks: Sequence[str | None],
) -> list[Verdict]:
    """Return the verdict on each completion: whether its answer matches one of the prompt's right answers.

    For `_report`, verdicts are counted, and a few responses without a readable answer are kept. Raise UserError if a
    tag in `marks` does not open any thinking.

    Args:
        completions: texts or chats. Every other argument has one item per completion.
        golds: the right answers of the prompt. If one is a whole solution, the extractor finds the answer in it, for
            example after ``####``.
        extractors: how the answer is read from the completion.
        prompts: texts or chats.
        marks: the tag, such as ``<think>``, with which the chat template opens the thinking at the end of the prompt.
            If it is empty or None, a tag at the end of the prompt's text is used, if there is one.
    """
    for mark in {*marks} - {None, ""}:
        if not opened_by(str(mark)):
            raise UserError(
                f"opened is '{mark}', which begins no thinking",
                "give the mark that ends the prompt, such as <think>",
            )
    turns = list(map(row_turns, prompts))
    responses = list(map(completion_text, completions))
    reading = zip(responses, extractors, marks, turns, strict=True)
    answers = [
        read_answer(response, extractor, mark or ending(asked))
        for response, extractor, mark, asked in reading
    ]
    read_golds = [
        [_answer_of_gold(gold, extractor) for gold in of_one]
        for of_one, extractor in zip(golds, extractors, strict=True)
    ]
    found = verdicts(
        read_golds,
        answers,
        shared_judge(),
        in_percent=[in_percent(asked) for asked in turns],
    )
    _counted.update(found)
    # Keep only a sample: a training run has millions of responses.
    unread = (
        response
        for response, verdict in zip(responses, found, strict=True)
        if verdict is Verdict.NO_ANSWER
    )
    _unread.extend(islice(unread, max(0, _MOST_UNREAD - len(_unread))))
    return found


def _answer_of_gold(gold: str, extractor: str) -> str:
    """Return the answer in `gold`, a right answer from the data that may be a whole solution.

    An extractor with a colon, such as ``after:####``, is applied to `gold`. If it finds nothing, or for any other
    extractor, the answer is `gold` itself.
    """
    # Only extractors with a setting, such as `after:####`: GSM8K's golds are solutions that end in `#### 72`.
    return (extract(gold, extractor) if ":" in extractor else None) or gold


def row_turns(prompt: Any) -> tuple[Message, ...]:
    """Return a row's prompt, which is a text or a sequence of messages, as messages.

    A text becomes one message of the user. A sequence of anything else gives an empty tuple.
    """
    return prompt_messages(prompt if isinstance(prompt, str) else list(prompt)) or ()


@atexit.register
def _report() -> None:
    """Print to standard error, when the process ends, how many responses could not be scored and why.

    If more than half of all responses have no readable answer, also print which extractor would find one, if any does.
    """
    if counted := unscorable(_counted):
        print(
            f"olr: of {_counted.total():,} responses these could not be scored: {counted}",
            file=sys.stderr,
        )
    if 2 * _counted[Verdict.NO_ANSWER] > _counted.total() and (
        sentence := reading_more(_unread)
    ):
        print(f"olr: of those without an answer: {sentence}", file=sys.stderr)
