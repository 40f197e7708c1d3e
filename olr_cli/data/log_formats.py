"""Which trainer wrote a file of rollouts, by its columns, and which of them holds what.

| format | recognised by | written by |
|---|---|---|
| TRL | step, prompt, completion, advantage | `GRPOTrainer.log` of TRL 1.x with `log_completions` (trl/trainer/grpo_trainer.py) |
| verl | input, output, score | `_dump_generations` of verl 0.7, into `trainer.rollout_data_dir` (verl/trainer/ppo/ray_trainer.py) |
| verifiers | example_id, prompt, completion | `state_to_output` (verifiers/legacy/utils/save_utils.py): results.jsonl, and prime-rl's train_rollouts.jsonl |

Every other table has to use olr's names (`COLUMNS`), or is read with ``--columns``.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from olr_cli.data.rows import suggested
from olr_cli.errors import UserError

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
    """

    name: str
    marks: frozenset[str]
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    has_reward_columns: bool = False
    repeats_steps: bool = False

    @property
    def roles(self) -> Mapping[str, Sequence[str]]:
        """Name in `COLUMNS` -> paths in a file that it may have."""
        return self.columns or {name: _ALIASES.get(name, (name,)) for name in COLUMNS}


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

LOG_FORMATS: Sequence[LogFormat] = (
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
        "verifiers",
        frozenset({"example_id", "prompt", "completion"}),
        {
            **{"prompt": ["prompt"], "response": ["completion"], "step": ["step"], "given_label": ["answer"]},
            **{"reward": ["reward"], "is_correct": ["reward"], "truncated": ["is_truncated"]},
            "tokens": ["token_usage.output_tokens"],
        },
    ),
)


def recognised(names: Collection[str]) -> LogFormat:
    """The format of a file that has columns of these names; `TABLE` if it is none of a trainer's."""
    is_table = {"prompt_id", "visit"} <= set(names)
    return next((one for one in LOG_FORMATS if one.marks <= set(names) and not is_table), TABLE)


def lacking(missing: Sequence[str], names: Sequence[str], place: str) -> UserError:
    """The error for a file without a column; it lists those that are there, and writes an option out."""
    columns = suggested({name: _GUESSES.get(name, ()) for name in missing}, names)
    return UserError(
        f"{place} has no column {' and no column '.join(missing)}; its columns are {', '.join(names)}. Say which of"
        f" them it is: --columns '{columns}'"
    )
