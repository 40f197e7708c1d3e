"""The grader alone as a reward function of TRL's or verl's; imports neither, and no torch.

It keeps no state but counts of what could not be scored, and works in any thread, process or Ray worker.
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
_unread: list[str] = []
_MOST_UNREAD = 100
"""Responses without an answer that are kept, to find out how they could be read."""


def accuracy_reward(
    completions: Sequence[Any],
    extractor: str | Sequence[str | None] = "boxed",
    prompts: Sequence[Any] | None = None,
    opened: str | Sequence[str | None] = "",
    **columns: Any,
) -> list[float | None]:
    """Reward a right answer with 1.0 and any other with 0.0, for `GRPOTrainer(reward_funcs=…)`.

    What is right stands in the data set's first column of `reward_model` (with ground_truth), `answer`, `label`,
    `ground_truth`, `final_answer`, `expected_answer`, `answer_number` and `solution`, as in files (docs/data.md); of
    several answers any is right. Where there is none, or none that can be read, the reward is None, and TRL leaves it
    out. Completions, texts or chats, are read as `extractor` says, as by `data.extractor`.

    Where the chat template opens the thinking, `opened` is the mark, such as ``<think>``: TRL tells a reward function
    only how a prompt of plain text ends. TRL hands on columns of the names `extractor` and `opened`.
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

    `ground_truth` is read as in files (docs/data.md); of several answers any is right, and one there must be. verl
    cannot leave a reward out: where no gold can be read, all responses but its own text get 0, so that the group
    teaches nothing. A question is known where the row has `extra_info.question`.

    `custom_reward_function.reward_kwargs` sets `extractor`, as `data.extractor` (by default the row's `data_source`
    decides how its answer is read), and `opened`, the mark such as ``<think>`` if the chat template opens the thinking.
    """
    right: Sequence[str] = ()
    try:
        right, what = golds_of(ground_truth), "empty"
    except ValueError as error:
        what = str(error)
    info = extra_info or {}
    if not right:
        row = info.get("index", "unknown")
        raise UserError(
            f"{data_source}: 'reward_model.ground_truth' of the row with extra_info.index {row} is {what}, and it"
            " should be text or a number",
            "fix it or leave the row out",
        )
    (verdict,) = _verdicts(
        [solution_str],
        [right],
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
    """Return the verdict on each completion, of whose golds any is right, and count it.

    A gold may hold its answer after the extractor's mark. `marks`: what each chat template has opened, if known.
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
    unread = (
        response
        for response, verdict in zip(responses, found, strict=True)
        if verdict is Verdict.NO_ANSWER
    )
    _unread.extend(islice(unread, max(0, _MOST_UNREAD - len(_unread))))
    return found


def _answer_of_gold(gold: str, extractor: str) -> str:
    """Return the answer in a gold, which may be a solution that ends as the extractor reads responses."""
    return (extract(gold, extractor) if ":" in extractor else None) or gold


def row_turns(prompt: Any) -> tuple[Message, ...]:
    """Return the turns of a row's prompt: a text, or any sequence of messages; none for anything else."""
    return prompt_messages(prompt if isinstance(prompt, str) else list(prompt)) or ()


@atexit.register
def _report() -> None:
    """Print how many responses could not be scored, and how answers that were not found could be read."""
    if counted := unscorable(_counted):
        print(
            f"olr: of {_counted.total():,} responses these could not be scored: {counted}",
            file=sys.stderr,
        )
    if 2 * _counted[Verdict.NO_ANSWER] > _counted.total() and (
        sentence := reading_more(_unread)
    ):
        print(f"olr: of those without an answer: {sentence}", file=sys.stderr)
