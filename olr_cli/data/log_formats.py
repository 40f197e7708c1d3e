"""Recognise the trainer that wrote a file of rollouts by the file's columns, and find out their roles.

| format | recognised by | written by |
|---|---|---|
| TRL | step, prompt, completion, advantage | `GRPOTrainer.log` of TRL 1.x with `log_completions` (trl/trainer/grpo_trainer.py) |
| verl | input, output, score | `_dump_generations` of verl 0.7, into `trainer.rollout_data_dir` (verl/trainer/ppo/ray_trainer.py) |
| ms-swift | step, prompt, completion, advantages | `GRPOTrainer.log` with `log_completions` (swift/rlhf_trainers/grpo_trainer.py): one line per step, of lists |
| NeMo-RL | content, rewards, idx | `log_batched_dict_as_jsonl` of `grpo_train` (nemo_rl/utils/logger.py): train_data_step*.jsonl, lists of one; the last text of `content` is the response |
| AReaL | task_id, sample_idx, prompt, completion | `dump_to_file` of its inference engine: rollout/VERSION/TASK.jsonl |
| verifiers | example_id, prompt, completion | `state_to_output` (verifiers/legacy/utils/save_utils.py): results.jsonl, and prime-rl's train_rollouts.jsonl |
| prime-rl | task, traces | `FileMonitor.log_episodes` (prime_rl/monitors/file.py): rollouts/step_N/{train,eval}/{all,effective}/traces.jsonl, an `Episode` of verifiers v1 (verifiers/v1/episode.py) a line; a `Trace` a line before |
| lm-eval | doc_id, doc_hash, target, resps | `EvaluationTracker.save_results_samples` of lm-eval 0.4.13 (lm_eval/loggers/evaluation_tracker.py): samples_TASK_DATE.jsonl, a line for each filter of a problem, with all its responses |
| inspect_ai | epoch, input, target, output | `EvalSample` (inspect_ai/log/_log.py), in the `samples` of a log in JSON or in an archive (.eval) |
| NeMo Gym | responses_create_params, response, reward | `RolloutCollectionHelper` (nemo_gym/rollout_collection.py): the request and the reply of the Responses API |
| OpenCompass | origin_prompt, prediction, gold | `GenInferencerOutputHandler` (opencompass/openicl/icl_inferencer/icl_base_inferencer.py): predictions/MODEL/TASK.json, an object |
| evalscope | target, sample_score | `ReviewResult` (evalscope/api/evaluator/cache.py): reviews/MODEL/TASK.jsonl |

Every other table has to use olr's names (`COLUMNS`), or the user names its columns.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote

from olr_cli.data.columns import GOLD_COLUMNS, OF_ROLLOUTS
from olr_cli.data.rows import suggested
from olr_cli.errors import UserError, no_rows


@dataclass(frozen=True)
class LogFormat:
    """The form of the logs that one trainer writes: how to recognise them, and how to read their columns."""

    name: str
    """The trainer's name."""

    marks: frozenset[str]
    """Columns by which its logs are recognised."""

    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Name in `COLUMNS` -> possible paths in the file, of which the first that exists counts; empty for olr's names.

    Three more names are lm-eval's alone. `filter` is the filter of the responses, and the first one of each prompt
    counts. `doc` holds the problem's texts in JSON, one of which is the bare question, and `request` its settings.
    """

    has_reward_columns: bool = False
    """Whether each reward function has a column of its own."""

    repeats_steps: bool = False
    """Whether a step may repeat the rollouts of the step before."""

    @property
    def roles(self) -> Mapping[str, Sequence[str]]:
        """Where such a log may have its columns: olr's name of a column -> possible paths.

        If a file has several of these paths, the first counts.
        """
        return self.columns or {name: names.known for name, names in OF_ROLLOUTS.items()}


_LABELS = (*GOLD_COLUMNS, "target", "solution", "answer")

LM_EVAL = "lm-eval"
INSPECT = "inspect_ai"
TABLE = LogFormat("olr", frozenset())
"""A table with the names of `COLUMNS`."""

_COMPLETION = {
    "prompt": ["prompt"],
    "response": ["completion"],
    "step": ["step"],
    "given_label": _LABELS,
}
_REWARD = {"reward": ["reward"], "is_correct": ["reward"]}
_TURNS = {"prompt": ["prompt"], "response": ["response"]}

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
    LogFormat(
        "prime-rl",
        frozenset({"trace", "prompt", "response", "reward"}),
        _TURNS
        | {"step": ["step"], "group": ["group"], "reward": ["reward"]}
        | {"given_label": [f"task.data.{name}" for name in ("answer", *_LABELS)]}
        | {"truncated": ["truncated"]},
        has_reward_columns=True,
    ),
    LogFormat(
        INSPECT,
        frozenset({"epoch", "target", "output", "prompt", "response"}),
        _TURNS
        | {"given_label": ["target"], "truncated": ["truncated"], "model": ["model"]},
        has_reward_columns=True,
    ),
    LogFormat(
        "NeMo Gym",
        frozenset({"responses_create_params", "prompt", "response", "reward"}),
        _TURNS | {"given_label": ["expected_answer", *_LABELS], **_REWARD},
    ),
    LogFormat(
        "OpenCompass",
        frozenset({"origin_prompt", "prediction", "prompt", "gold"}),
        {"prompt": ["prompt"], "response": ["prediction"], "given_label": ["gold"]},
    ),
    LogFormat(
        "evalscope",
        frozenset({"sample_score", "target", "prompt", "response"}),
        _TURNS | {"given_label": ["target"]},
        has_reward_columns=True,
    ),
)


def recognised(names: Collection[str]) -> LogFormat:
    """Return the format of a log, recognised by the names of its columns.

    If they are not the columns of any known trainer, return olr's own format, `TABLE`.
    """
    # A table with these two is olr's own, even if it has kept all columns of a trainer.
    is_table = {"prompt_id", "visit"} <= set(names)
    return next(
        (
            log_format
            for log_format in LOG_FORMATS
            if log_format.marks <= set(names) and not is_table
        ),
        TABLE,
    )


def is_of_others(names: Collection[str]) -> bool:
    """Return whether the column `answer` of a table holds right answers, judged by the names of the table's columns.

    In a table that olr wrote, `answer` holds the answers that the responses claim. In any other table with a column of
    responses, `answer` holds the right answers. A table without `answer` or without responses gives False.
    """
    responses = {*OF_ROLLOUTS["response"].known, *OF_ROLLOUTS["response"].likely}
    is_ours = {"prompt_id", "visit", "answer_class"}.intersection(names)
    return not is_ours and "answer" in names and not responses.isdisjoint(names)


def require_columns(roles: Collection[str], names: Sequence[str], place: str) -> None:
    """Raise UserError if a log has no column of prompts or none of responses.

    Instead of prompts, a log may have their ids; instead of responses, the answers that were read from them.

    Args:
        roles: olr's names (`COLUMNS`) of the columns that were found in the file.
        names: all columns of the file by its own names, for the error. If empty, the error is `NoRows`.
        place: the file, for the error.
    """
    missing = [] if {"prompt_id", "prompt"}.intersection(roles) else ["prompt"]
    # An `answer` stands in for a response only in a log: in a file of questions and answers alone, it is a label.
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
