"""Which trainer wrote a file of rollouts, by its columns, and which of them holds what.

| format | recognised by | written by |
|---|---|---|
| TRL | step, prompt, completion, advantage | `GRPOTrainer.log` of TRL 1.x with `log_completions` (trl/trainer/grpo_trainer.py) |
| verl | input, output, score | `_dump_generations` of verl 0.7, into `trainer.rollout_data_dir` (verl/trainer/ppo/ray_trainer.py) |
| OpenRLHF | input, output | OpenRLHF 0.9's batch inference (openrlhf/cli/batch_inference.py); its trainer stores no rollouts |
| verifiers | example_id, prompt, completion | `state_to_output` (verifiers/legacy/utils/save_utils.py): results.jsonl, and prime-rl's train_rollouts.jsonl |
| verifiers v1 | traces, or nodes and task | `Episode.to_record` (verifiers/v1/episode.py): traces.jsonl, also prime-rl's (prime_rl/monitors/file.py) |

Every other table has to use olr's names (`COLUMNS`), or is read with ``--columns``.
"""  # noqa: E501

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from olr_cli.data.prompts import Message
from olr_cli.errors import UserError, unknown

COLUMNS = (
    *("prompt_id", "prompt", "visit", "step", "group", "view", "response", "answer", "answer_class"),
    *("given_label", "true_answer", "noise_type", "data_source", "reward", "is_correct"),
    *("tokens", "truncated", "mean_logprob", "entropy", "self_certainty"),
)
"""What can be known of a rollout; a table with these names needs no ``--columns``."""

_ALIASES: Mapping[str, Sequence[str]] = {"prompt": ("prompt", "question", "problem")}
"""Other names that olr gives a column."""

_GUESSES: Mapping[str, Sequence[str]] = {
    "prompt": ("input", "query", "instruction", "prompts", "messages"),
    "response": ("completion", "output", "generation", "generated_text", "text", "responses", "completions"),
}
"""Likely names of the columns without which nothing can be read, for errors."""


@dataclass(frozen=True)
class LogFormat:
    """How the logs of one trainer name their columns.

    Attributes:
        name: of the trainer.
        marks: columns by which its logs are recognised.
        columns: name in `COLUMNS` -> names that the column may have, the first that is there counts; a dot leads into a
            struct. Empty: the names are those of `COLUMNS`.
        has_reward_columns: each reward function has a column of its own.
        repeats_steps: a step may hold the rollouts of the step before once more.
        is_nested: a row holds several rollouts, or parts of one (`flattened`).
    """

    name: str
    marks: frozenset[str]
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    has_reward_columns: bool = False
    repeats_steps: bool = False
    is_nested: bool = False

    def places(self, names: Collection[str]) -> dict[str, str]:
        """Name in `COLUMNS` -> name in a file that has columns of these `names`."""
        choices = self.columns or {name: _ALIASES.get(name, (name,)) for name in COLUMNS}
        named = ((name, _first(columns, names)) for name, columns in choices.items())
        return {name: column for name, column in named if column is not None}


def _first(columns: Iterable[str], names: Collection[str]) -> str | None:
    return next((column for column in columns if column.partition(".")[0] in names), None)


_LABELS = (
    "given_label",
    "ground_truth",
    "golden_answer",
    "gold_answer",
    "label",
    "target",
    "solution",
    "answer",
)

TABLE = LogFormat("olr", frozenset())
"""A table with the names of `COLUMNS`."""

FORMATS: Sequence[LogFormat] = (
    LogFormat(
        "TRL",
        frozenset({"step", "prompt", "completion", "advantage"}),
        {"prompt": ["prompt"], "response": ["completion"], "step": ["step"], "given_label": _LABELS},
        has_reward_columns=True,
        repeats_steps=True,
    ),
    LogFormat(
        "verl",
        frozenset({"input", "output", "score"}),
        {
            **{"prompt": ["input"], "response": ["output"], "step": ["step"], "given_label": ["gts"]},
            **{"reward": ["score"], "is_correct": ["acc", "score"], "data_source": ["data_source"]},
        },
    ),
    LogFormat(
        "OpenRLHF",
        frozenset({"input", "output"}),
        {
            **{"prompt": ["input"], "response": ["output"], "step": ["step"], "given_label": ["label"]},
            **{"reward": ["reward"], "is_correct": ["reward"]},
        },
    ),
    LogFormat(
        "verifiers",
        frozenset({"example_id", "prompt", "completion"}),
        {
            **{"prompt": ["prompt"], "response": ["completion"], "step": ["step"], "given_label": ["answer"]},
            **{"reward": ["reward"], "is_correct": ["reward"], "truncated": ["is_truncated"]},
            "tokens": ["token_usage.output_tokens"],
        },
    ),
)
_TRACES = LogFormat("verifiers v1", frozenset(), is_nested=True)


def recognised(names: Collection[str]) -> LogFormat:
    """The format of a file that has columns of these names; `TABLE` if it is none of a trainer's."""
    is_table = {"prompt_id", "visit"} <= set(names)
    return next((one for one in FORMATS if one.marks <= set(names) and not is_table), TABLE)


def named_columns(options: Sequence[str]) -> dict[str, str]:
    """What ``--columns`` says: name in `COLUMNS` -> name in the file.

    Raises:
        UserError: an option has no equals sign, or another name before it.
    """
    names: dict[str, str] = {}
    for option in options:
        name, equals, column = (part.strip() for part in option.partition("="))
        if not equals or not column:
            raise UserError(f"--columns {option}: expected NAME=COLUMN, as in --columns response=generation")
        if name not in COLUMNS:
            raise unknown("--columns", name, COLUMNS)
        names[name] = column
    return names


def lacking(missing: Sequence[str], names: Sequence[str], place: str) -> UserError:
    """The error for a file without a column; it lists those that are there, and writes an option out."""
    guesses = {name: _first(_GUESSES.get(name, ()), names) for name in missing}
    options = " ".join(f"--columns {name}={guess or 'COLUMN'}" for name, guess in guesses.items())
    return UserError(
        f"{place} has no column {' and no column '.join(missing)}; its columns are {', '.join(names)}. Say which of"
        f" them it is: {options}"
    )


# Values -----------------------------------------------------------------------------------------------------------

_CHAT = "\x1e"
"""Begins a prompt of several turns when it is written as one text."""


def as_text(value: Any) -> str | None:
    """A prompt as one text, by which it is told from others: a text as it is, messages as JSON after a mark."""
    if value is None or isinstance(value, str):
        return value
    turns = [(str(turn.get("role")), _content(turn)) for turn in _messages(value)]
    return _CHAT + json.dumps(turns) if turns else None


def turns_of(text: str) -> tuple[Message, ...]:
    """The turns of a prompt that `as_text` wrote."""
    if not text.startswith(_CHAT):
        return (Message("user", text),)
    return tuple(Message(role, content) for role, content in json.loads(text[1:]))


def response_text(value: Any) -> str | None:
    """A response as text: of messages, what the assistant says in them."""
    if value is None or isinstance(value, str):
        return value
    said = [_content(turn) for turn in _messages(value) if turn.get("role") == "assistant"]
    return "\n\n".join(filter(None, said)) if said else None


def _messages(value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(turn, Mapping) and "role" in turn for turn in value):
        raise TypeError("not messages")
    return value


def _content(turn: Mapping[str, Any]) -> str:
    """The text of a message, whose content may be a list of parts."""
    content = turn.get("content")
    if isinstance(content, list):
        content = "\n".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


# verifiers v1 -----------------------------------------------------------------------------------------------------


def flattened(
    rows: list[dict[str, Any]], first: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], LogFormat | None]:
    """Rows of a JSON file as rollouts, a row each: episodes and traces of verifiers v1 are nested; others stay.

    Returns:
        The rows, and the format if they were nested, as the `first` row of the file tells.
    """
    if isinstance(first.get("traces"), list):
        return [row for episode in rows for row in _rollouts(episode)], _TRACES
    if isinstance(first.get("nodes"), list) and "task" in first:
        return [row for trace in rows if (row := _rollout(trace, trace)) is not None], _TRACES
    return rows, None


def _rollouts(episode: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for trace in episode.get("traces") or ():
        row = _rollout(trace, episode)
        if row is not None:
            yield row


def _rollout(trace: Mapping[str, Any], episode: Mapping[str, Any]) -> dict[str, Any] | None:
    """A trace's final branch as a rollout; None if nothing was sampled in it."""
    nodes = trace.get("nodes") or []
    path: list[Mapping[str, Any]] = []
    place = len(nodes) - 1 if nodes else None
    while place is not None and len(path) < len(nodes):
        path.append(nodes[place])
        place = nodes[place].get("parent")
    path.reverse()
    start = next((at for at, node in enumerate(path) if node.get("sampled")), None)
    if start is None:
        return None
    run, task = episode.get("run") or {}, (trace.get("task") or {}).get("data") or {}
    rewards = [reward for reward in (trace.get("rewards") or {}).values() if reward is not None]
    reward = sum(one["score"] * one.get("weight", 1.0) for one in rewards) if rewards else None
    calls = [call for call in trace.get("calls") or () if call.get("error") is None]
    usages = [call["usage"] for call in calls if call.get("usage")]
    label = task.get("answer")
    return {
        "prompt": as_text([node["message"] for node in path[:start]]),
        "response": response_text([node["message"] for node in path[start:] if node.get("sampled")]),
        "given_label": label if isinstance(label, str | int | float) else None,
        "step": (run.get("work") or {}).get("step"),
        "group": (episode.get("group") or {}).get("id"),
        "reward": reward,
        "tokens": sum(usage["completion_tokens"] for usage in usages) if usages else None,
        "truncated": bool(calls) and calls[-1].get("finish_reason") == "length",
    }
