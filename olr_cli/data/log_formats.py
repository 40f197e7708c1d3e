"""Which trainer wrote a file of rollouts, by its columns, and which of them holds what.

| format | recognised by | written by |
|---|---|---|
| TRL | step, prompt, completion, advantage | `GRPOTrainer.log` of TRL 1.x with `log_completions` (trl/trainer/grpo_trainer.py) |
| verl | input, output, score | `_dump_generations` of verl 0.7, into `trainer.rollout_data_dir` (verl/trainer/ppo/ray_trainer.py) |
| ms-swift | step, prompt, completion, advantages | `GRPOTrainer.log` with `log_completions` (swift/rlhf_trainers/grpo_trainer.py): one line per step, of lists |
| NeMo-RL | content, rewards, idx | `log_batched_dict_as_jsonl` of `grpo_train` (nemo_rl/utils/logger.py): train_data_step*.jsonl, lists of one; the last text of `content` is the response |
| AReaL | task_id, sample_idx, prompt, completion | `dump_to_file` of its inference engine: rollout/VERSION/TASK.jsonl |
| verifiers | example_id, prompt, completion | `state_to_output` (verifiers/legacy/utils/save_utils.py): results.jsonl, and prime-rl's train_rollouts.jsonl |
| lm-eval | doc_id, doc_hash, target, resps | `EvaluationTracker.save_results_samples` of lm-eval 0.4.13 (lm_eval/loggers/evaluation_tracker.py): samples_TASK_DATE.jsonl, a line for each filter of a problem, with all its responses |

Every other table has to use olr's names (`COLUMNS`), or its columns are named.
"""  # noqa: E501

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from shlex import quote
from typing import Any

from olr_cli.data.columns import GOLD_COLUMNS, OF_ROLLOUTS
from olr_cli.data.labels import golds_of
from olr_cli.data.rows import suggested
from olr_cli.errors import UserError, no_rows
from olr_cli.files import storable


@dataclass(frozen=True)
class LogFormat:
    """How the logs of one trainer name their columns.

    Attributes:
        name: of the trainer.
        marks: columns by which its logs are recognised.
        columns: name in `COLUMNS` -> names that the column may have, the first that is there counts; a dot leads into a
            struct. Empty: the names are those of `COLUMNS`. lm-eval alone has a `filter`, of which the first of each
            prompt counts, and in JSON a `doc`, texts one of which is the bare question, and a `request`, its settings.
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
        return self.columns or {name: names.known for name, names in OF_ROLLOUTS.items()}


_LABELS = (*GOLD_COLUMNS, "target", "solution", "answer")

LM_EVAL = "lm-eval"
TABLE = LogFormat("olr", frozenset())
"""A table with the names of `COLUMNS`."""

_COMPLETION = {
    "prompt": ["prompt"],
    "response": ["completion"],
    "step": ["step"],
    "given_label": _LABELS,
}
_REWARD = {"reward": ["reward"], "is_correct": ["reward"]}

LOG_FORMATS: Sequence[LogFormat] = (
    LogFormat(
        "TRL",
        frozenset({"step", "prompt", "completion", "advantage"}),
        _COMPLETION,
        has_reward_columns=True,
        repeats_steps=True,
    ),
    LogFormat(
        "verl",
        frozenset({"input", "output", "score"}),
        {"prompt": ["input"], "response": ["output"], "step": ["step"], "reward": ["score"]}
        | {
            "given_label": ["gts", *GOLD_COLUMNS],
            "is_correct": ["acc", "score"],
            "data_source": ["data_source"],
        },
    ),
    LogFormat(
        "ms-swift",
        frozenset({"step", "prompt", "completion", "advantages"}),
        _COMPLETION,
        has_reward_columns=True,
    ),
    LogFormat(
        "NeMo-RL",
        frozenset({"prompt", "response", "rewards", "idx"}),
        {"prompt": ["prompt"], "response": ["response"], "given_label": GOLD_COLUMNS}
        | {"reward": ["rewards"], "is_correct": ["rewards"]},
    ),
    LogFormat(
        "AReaL",
        frozenset({"task_id", "sample_idx", "prompt", "completion"}),
        {
            "prompt": ["prompt"],
            "response": ["completion"],
            "group": ["task_id"],
            "given_label": GOLD_COLUMNS,
        }
        | _REWARD,
    ),
    LogFormat(
        "verifiers",
        frozenset({"example_id", "prompt", "completion"}),
        _COMPLETION
        | {"given_label": ["answer", *GOLD_COLUMNS], **_REWARD}
        | {"truncated": ["is_truncated"], "tokens": ["token_usage.output_tokens"]},
    ),
    LogFormat(
        LM_EVAL,
        frozenset({"doc_id", "resps", "prompt", "response"}),
        {"prompt_id": ["prompt_id"], "prompt": ["prompt"], "response": ["response"]}
        | {
            "given_label": ["target"],
            "filter": ["filter"],
            "doc": ["doc"],
            "request": ["request"],
        },
    ),
)


def unpacked(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The rollouts of an object of JSON: ms-swift's, NeMo-RL's and lm-eval's hold lists, with an item a rollout.

    Of NeMo-RL's `content`, the texts of all turns, the last is the response and the others are the prompt.
    """
    if {"doc_id", "resps"} <= row.keys():
        # What is none of lm-eval's lines stays as it is, without the columns of a log.
        with suppress(
            TypeError, LookupError, AttributeError, StopIteration, RecursionError
        ):
            return _of_lm_eval(row)
    texts = row.get("completion", row.get("content"))
    is_packed = {"step", "advantages"} <= row.keys() or "rewards" in row
    if not isinstance(texts, list) or not is_packed:
        return [row]
    lists = {
        key: items
        for key, items in row.items()
        if isinstance(items, list) and len(items) == len(texts)
    }
    return [
        _with_response({**row, **{key: items[place] for key, items in lists.items()}})
        for place in range(len(texts))
    ]


def _with_response(row: dict[str, Any]) -> dict[str, Any]:
    """Return a rollout with prompt and response in place of NeMo-RL's `content`, the texts of all turns."""
    turns = row.get("content")
    if (
        not isinstance(turns, list)
        or not turns
        or not all(isinstance(it, str) for it in turns)
    ):
        return row
    others = {key: value for key, value in row.items() if key != "content"}
    return others | {"prompt": "\n".join(turns[:-1]), "response": turns[-1]}


def _of_lm_eval(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rollouts of a problem of lm-eval's; none where it has likelihoods of given answers.

    Problems have their hash in their names, since every task of a folder numbers its own from 0. A response that is
    null is an API's reply without text.
    """
    replies = chain(*(part if isinstance(part, list) else [part] for part in row["resps"]))
    texts = [storable(it or "") if isinstance(it, str | None) else it for it in replies]
    if any(isinstance(text, list | float) for text in texts):
        return []
    request = next(iter(row["arguments"].values()))
    prompt = request["arg_0"]
    name = (str(row["doc_id"]), row.get("doc_hash", "")[:8])
    facts = {
        "prompt_id": "-".join(map(str, filter(None, name))),
        "prompt": storable(
            prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False)
        ),
        "target": _lm_eval_target(row["target"]),
        "doc": json.dumps([*_texts(row["doc"])]),
        "request": json.dumps(request.get("arg_1")),
    }
    return [{**row, **facts, "response": text} for text in texts]


def _lm_eval_target(target: Any) -> Any:
    """Return a target as one cell: of a list of answers, any of which is right, their texts as JSON."""
    if isinstance(target, list):
        with suppress(ValueError):  # which is named with its row where golds are read
            target = json.dumps(golds_of(target))
    return storable(target) if isinstance(target, str) else target


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def recognised(names: Collection[str]) -> LogFormat:
    """The format of a file that has columns of these names; `TABLE` if it is none of a trainer's."""
    # A table with these two is olr's own, whichever columns of a trainer it kept.
    is_table = {"prompt_id", "visit"} <= set(names)
    return next(
        (one for one in LOG_FORMATS if one.marks <= set(names) and not is_table), TABLE
    )


def require_columns(roles: Collection[str], names: Sequence[str], place: str) -> None:
    """Make sure that a file, which has these columns for `roles` of `COLUMNS`, says what was asked and answered."""
    missing = [] if {"prompt_id", "prompt"}.intersection(roles) else ["prompt"]
    # Questions and answers alone are a data set, whose answers are labels.
    is_log = not {"prompt_id", "visit", "step", "is_correct", "reward"}.isdisjoint(roles)
    if {"response", "answer_class", *(["answer"] if is_log else [])}.isdisjoint(roles):
        missing.append("response")
    if not missing:
        return
    if not names:
        raise no_rows(place, "rollout")
    nobody = (
        f"; if nobody answered yet: olr rollouts MODEL {quote(place)}"
        if "response" in missing
        else ""
    )
    columns = suggested({name: OF_ROLLOUTS[name].likely for name in missing}, names)
    raise UserError(
        f"{place} has no column {' and no column '.join(missing)}; its columns are {', '.join(names)}",
        f"say which of them it is, as in columns={quote(columns)}{nobody}",
        "columns",
    )
