"""Usual names of columns: what files of prompts, logs of trainers and olr itself call the same thing.

`data.columns` and `--columns` set other names. `log_formats.py` has the names in the logs of each trainer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Names(NamedTuple):
    """Usual column names for one kind of content, such as the label: those to read, and those to suggest in errors."""

    known: Sequence[str]
    """Names that are read without being asked for, the first that a file has; a dot leads into a struct."""

    likely: Sequence[str] = ()
    """Names that are only suggested, if a file has none of the known ones; the likeliest first."""


# Prompts ----------------------------------------------------------------------------------------------------------

MESSAGE_COLUMNS = ("messages", "conversations")
"""Columns of whole dialogues."""

PROMPT_COLUMNS = ("prompt", "question", "problem", "problem_text", *MESSAGE_COLUMNS)
ANSWER_COLUMNS = (
    "answer",
    "ground_truth",
    "final_answer",
    "expected_answer",
    "answer_number",
)
"""Columns of labels that hold short answers even if another column of labels holds whole sentences."""

LABEL_COLUMNS = ("answer", "label", *ANSWER_COLUMNS[1:], "solution", "verification_info")
"""Columns of labels, the likeliest first; the last is INTELLECT's: an object with ground_truth, written as text."""

CHOICE_COLUMNS = ("choices", "options", "endings")
"""Columns with all multiple-choice options of a row (`olr_cli.data.choices`)."""

CHOICE_LABELS = (
    "answerKey", "answer_key", "answer_idx", "answer_index", "correct", "correct_option", "correct_answer", "cop",
    "gold", "target",
)  # fmt: skip
"""More columns of labels, which count only in files with options."""

GROUND_TRUTH = "reward_model.ground_truth"
"""The label in the interchange format."""

REPHRASED_COLUMN = "rephrased_prompt"
"""Column of rephrasings: texts, or lists of {role, content} messages."""

ID_COLUMNS = ("extra_info.index", "prompt_id", "id", "uid", "uuid", "_id", "idx", "index", "question_id",
              "problem_id", "unique_id")  # fmt: skip
"""Columns that may hold ids, in order; the first whose values are all different is used."""

NUMBERED = ID_COLUMNS[:2]
"""Columns that may hold ids in benchmarks; without them, the rows of a benchmark are numbered."""

OF_PROMPTS: Mapping[str, Names] = {
    "question": Names(
        PROMPT_COLUMNS,
        (*PROMPT_COLUMNS, "stem", "sentence", "query", "instruction", "input", "task", "text", "q"),
    ),
    "answer": Names(
        (GROUND_TRUTH, *LABEL_COLUMNS),
        (*LABEL_COLUMNS, "target", "output", "gold",
         "reference_answer", "assistant", "response", "completion", "a"),
    ),
    # No name is enough for a column of ids, because its values must also be unique (`_prompt_ids`).
    "id": Names((), ID_COLUMNS[1:]),
}  # fmt: skip
"""Role in `data.columns` -> names of its column in files of prompts; a system message has no usual column."""

# Rollouts ---------------------------------------------------------------------------------------------------------

GOLD_COLUMNS = ("given_label", "ground_truth", "golden_answer", "gold_answer", "label")
"""Names of the label's column in any log."""

STATISTICS = ("tokens", "mean_logprob", "entropy", "self_certainty")
"""Columns of numbers that some rewards and prompt selections need for every rollout, besides its answer."""

LABELS = ("given_label", "true_answer", "noise_type")
"""Columns about the label of a rollout's prompt."""

OF_ROLLOUTS: Mapping[str, Names] = {
    "prompt_id": Names(("prompt_id",)),
    "prompt": Names(
        ("prompt", "question", "problem"),
        ("input", "query", "instruction", "prompts", "messages"),
    ),
    "visit": Names(("visit",)),
    "step": Names(("step",)),
    "group": Names(("group",)),
    "view": Names(("view",)),
    "model": Names(("model", "policy")),
    "response": Names(
        ("response",),
        ("completion", "output", "generation", "generated_text", "text", "responses", "completions"),
    ),
    "answer": Names(("answer",)),
    "answer_class": Names(("answer_class",)),
    "given_label": Names(GOLD_COLUMNS),
    "true_answer": Names(("true_answer",)),
    "noise_type": Names(("noise_type",)),
    "data_source": Names(("data_source",)),
    "reward": Names(("reward",)),
    "is_correct": Names(("is_correct",)),
    "tokens": Names(("tokens",)),
    "truncated": Names(("truncated",)),
    "mean_logprob": Names(("mean_logprob",)),
    "entropy": Names(("entropy",)),
    "self_certainty": Names(("self_certainty",)),
}  # fmt: skip
"""olr's name of a column of rollouts -> its names in a table that no trainer has written."""

COLUMNS = tuple(OF_ROLLOUTS)
"""All columns that olr reads from logs; a table with these names needs no `--columns`."""
