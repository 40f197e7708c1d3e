"""Which column holds what: the names by which files of prompts, logs of trainers and olr itself call the same thing.

`data.columns` and `--columns` name others. Which of its columns a trainer's log uses is in `log_formats.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Names(NamedTuple):
    """How files call one thing."""

    known: Sequence[str]
    """Names that are read as they are, the first that a file has; a dot leads into a struct."""
    likely: Sequence[str] = ()
    """Names that are only suggested, where a file has none of those that are known; the likeliest first."""


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
"""Columns of labels that are short answers even where another column of labels has whole sentences."""
LABEL_COLUMNS = ("answer", "label", *ANSWER_COLUMNS[1:], "solution", "verification_info")
"""Columns of labels, the likeliest first; the last is INTELLECT's: an object with ground_truth, written as text."""
CHOICE_COLUMNS = ("choices", "options", "endings")
"""Columns of the options of multiple choice, each with all of a row's (`olr_cli.data.choices`)."""
CHOICE_LABELS = (
    "answerKey", "answer_key", "answer_idx", "answer_index", "correct", "correct_option", "correct_answer", "cop",
    "gold", "target",
)  # fmt: skip
"""More columns of labels, in files with options."""
GROUND_TRUTH = "reward_model.ground_truth"
"""The label in the interchange format."""
REPHRASED_COLUMN = "rephrased_prompt"
"""Where a file holds the rephrasings: a text, or a list of {role, content} messages."""
ID_COLUMNS = ("extra_info.index", "prompt_id", "id", "uid", "uuid", "_id", "idx", "index", "question_id",
              "problem_id", "unique_id")  # fmt: skip
"""Where ids are looked for; the first that has another value in every row counts."""
NUMBERED = ID_COLUMNS[:2]
"""Where ids are looked for in benchmarks, whose other rows are numbered."""

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
    # An id must also be unique (`ID_COLUMNS`), so no name alone makes a column one.
    "id": Names((), ID_COLUMNS[1:]),
}  # fmt: skip
"""Role in `data.columns` -> the columns of files of prompts; a system message has no usual place."""

# Rollouts ---------------------------------------------------------------------------------------------------------

GOLD_COLUMNS = ("given_label", "ground_truth", "golden_answer", "gold_answer", "label")
"""Names of the label's column in any log."""
STATISTICS = ("tokens", "mean_logprob", "entropy", "self_certainty")
"""Columns of numbers: what some rewards and choices of prompts need of every rollout, besides its answer."""
LABELS = ("given_label", "true_answer", "noise_type")
"""What is known of a prompt's label."""

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
"""olr's name of a column of rollouts -> the columns of a table that no trainer wrote."""

COLUMNS = tuple(OF_ROLLOUTS)
"""What can be known of a rollout; a table with these names is read as it is."""
