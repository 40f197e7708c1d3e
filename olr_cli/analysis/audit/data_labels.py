"""The labels of a data set, for a history that lacks them."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from olr_cli.analysis.histories import NO_LABELS, RolloutHistory
from olr_cli.answers import is_match
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.prompts import Prompt, PromptSet
from olr_cli.data.questions import normal_question, same_prompts
from olr_cli.errors import UserError
from olr_cli.grouping import gathered


def with_labels_of(
    history: RolloutHistory, data: PromptSet, *, are_for_rewards: bool = False
) -> RolloutHistory:
    """Return the history, with the data set's label for every prompt whose label is unknown.

    Prompts are matched by prompt_id. If no id matches, or a log has no ids, they are matched by the text of the
    question and get the ids of the data set.

    If several rows of the data set ask the same question, the rollouts of a log are copied to each of these rows. The
    rows may have different labels.

    Args:
        history: the history.
        data: the data set that the rollouts were made on.
        are_for_rewards: whether the rewards are to be audited. Then no rollouts are copied. A question whose rows have
            different labels is left out, because it is unknown which label its rewards are for.

    Raises:
        UserError: no prompt matches, or a prompt's known label differs from the data set's.
    """
    in_data = {prompt.prompt_id: prompt for prompt in data.prompts}
    has_ids = history.log is None or history.log.has_ids
    is_by_text = not has_ids or in_data.keys().isdisjoint(history.prompts)
    if is_by_text:
        history = _with_ids_of(history, data)
    if not are_for_rewards:
        history = _copied_to_repeats(history, data)
    elif is_by_text and not history.knows_labels:
        in_data, notes = _without_ambiguous(data, history)
        history = replace(history, notes=[*history.notes, *notes])
    prompts = dict(history.prompts)
    for prompt_id in prompts.keys() & in_data.keys():
        prompts[prompt_id] = _with_label(
            prompts[prompt_id], in_data[prompt_id], history, data
        )
    if not prompts.keys() <= in_data.keys():
        return replace(history, prompts=prompts)
    # Every prompt has a label of the data set now, so the note on guessed labels no longer holds.
    notes = [note for note in history.notes if not note.startswith(NO_LABELS)]
    return replace(history, prompts=prompts, knows_labels=True, notes=notes)


def _with_label(
    prompt: Prompt, in_data: Prompt, history: RolloutHistory, data: PromptSet
) -> Prompt:
    """Return a prompt of the history, with what the data set knows about it.

    If the history does not know the prompt's label, the result is `in_data`. Otherwise the prompt keeps its label and
    gets the messages of `in_data`.

    Args:
        prompt: the prompt in the history.
        in_data: the same prompt in the data set.
        history: the history; its `knows_labels` is False if its labels are only guesses from rewards.
        data: the data set, for the error.

    Raises:
        UserError: both labels are known, and they differ.
    """
    label, data_label = prompt.given_label, in_data.given_label
    if label is None or not history.knows_labels:
        return in_data
    # Labels that only differ in their spelling are the same; the history's own spelling stays.
    if data_label not in (None, SENTINEL, label) and not is_match(label, data_label):
        raise UserError(
            f"prompt {prompt.prompt_id} has the label {label} in {history.source} and {data_label} in {data.source}",
            "name the data set that the rollouts were made on",
        )
    return replace(prompt, messages=in_data.messages)


def _without_ambiguous(
    data: PromptSet, history: RolloutHistory
) -> tuple[dict[str, Prompt], list[str]]:
    """Return the prompts of a data set, with the sentinel as the label of every prompt whose label is ambiguous.

    No answer matches the sentinel. A label is ambiguous if another row with the same question has a different label.
    Only questions in the history are checked. The history's prompts must already have the ids of the data set.

    Returns:
        prompt_id -> prompt.
        A list with one note on the ambiguous rows; empty if there are none.
    """
    rows = gathered((normal_question(prompt.messages), prompt) for prompt in data.prompts)
    unclear: list[Prompt] = []
    for same_rows in rows.values():
        is_asked = any(prompt.prompt_id in history.prompts for prompt in same_rows)
        if is_asked and len({prompt.given_label for prompt in same_rows}) > 1:
            unclear += same_rows
    prompts = {prompt.prompt_id: prompt for prompt in data.prompts}
    prompts |= {
        prompt.prompt_id: replace(prompt, given_label=SENTINEL) for prompt in unclear
    }
    note = f"{len(unclear):,} rows of {data.source} ask questions that have several labels; rewards there are left out."
    return prompts, [note] if unclear else []


def _copied_to_repeats(history: RolloutHistory, data: PromptSet) -> RolloutHistory:
    """Copy a log's rollouts on a question to all rows of the data set that ask this question; return the new history.

    Such rows may have different labels. A log without ids cannot tell them apart, so `_with_ids_of` has assigned all
    rollouts to the first row. A run samples every row separately, so its history is returned unchanged.
    """
    first_ids, candidates = dict[str, str](), list[tuple[str, Prompt]]()
    # A run samples repeated rows separately, so it has answers of their own.
    for prompt in () if history.log is None else data.prompts:
        if prompt.prompt_id in history.prompts:
            first_ids.setdefault(normal_question(prompt.messages), prompt.prompt_id)
        else:
            candidates.append((normal_question(prompt.messages), prompt))
    repeated = {
        prompt.prompt_id: (first_ids[question], prompt)
        for question, prompt in candidates
        if question in first_ids
    }
    if not repeated:
        return history
    ids = pl.DataFrame(
        {"prompt_id": [first for first, _ in repeated.values()], "repeats": [*repeated]}
    )
    steps = (
        pl.concat(
            [
                rows,
                rows.join(ids, on="prompt_id")
                .with_columns(prompt_id="repeats")
                .drop("repeats"),
            ]
        )
        for rows in history.steps
    )
    prompts = {
        **history.prompts,
        **{name: prompt for name, (_, prompt) in repeated.items()},
    }
    return replace(history, steps=steps, prompts=prompts)


def _with_ids_of(history: RolloutHistory, data: PromptSet) -> RolloutHistory:
    """Give prompts of the history the ids that the data set has for the same text; other prompts keep their ids.

    Raises:
        UserError: no prompt of the history is in the data set.
    """
    ids, taken = dict[str, str](), set[str]()
    for name, prompt in same_prompts(history.prompts, data.prompts).items():
        # Two prompts of the history may match one row; only the first gets its id.
        if prompt.prompt_id not in taken:
            ids[name] = prompt.prompt_id
            taken.add(prompt.prompt_id)
    if not ids:
        theirs, ours = data.prompts[0].prompt_id, next(iter(history.prompts), "none")
        raise UserError(
            f"{data.source} has no prompt of {history.source} (its first prompt_id: {theirs}, in the history: {ours})",
            "prompts are matched by prompt_id, of a data set its extra_info.index, and those of a log by their text",
        )
    named = pl.col("prompt_id").replace(ids)
    steps = (rows.with_columns(named) for rows in history.steps)
    rewards = None if history.rewards is None else history.rewards.with_columns(named)
    prompts = {ids.get(p.prompt_id, p.prompt_id): p for p in history.prompts.values()}
    prompts = {name: replace(prompt, prompt_id=name) for name, prompt in prompts.items()}
    notes = [*history.notes]
    if history.log is not None and len(ids) < len(prompts):
        notes.append(
            f"{len(ids):,} of {len(prompts):,} prompts are in {data.source}, by their text."
        )
    return replace(history, steps=steps, prompts=prompts, rewards=rewards, notes=notes)
