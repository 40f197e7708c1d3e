"""The contents of an evaluation's files: a record of its settings and benchmarks, and one row per sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, Literal

from pydantic import ConfigDict, Field

from olr_cli.data.prompts import Prompt
from olr_cli.evaluation.benchmark import Benchmark
from olr_cli.evaluation.problems import digest
from olr_cli.evaluation.prompting import SETTINGS as PROMPTING
from olr_cli.recipe.sampling import Sampling
from olr_cli.recipe.section import Section

VERSION = 1
"""Version of evaluation.json, increased whenever a key changes its meaning."""

Protocol = Literal["standard", "paper"]
"""Defaults of an evaluation: those of R19, or the samples and prompts behind the paper's printed scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One sample of a benchmark's problem: prompt, response, gold and grade.

    The fields of the answer and the grade have their defaults until `olr_cli.evaluation.grading.grade` sets them.
    """

    benchmark: str
    problem_id: str
    sample: int
    """Number of the sample among the problem's samples, from 0."""

    prompt: str
    """Exactly the text that the model read."""

    response: str
    """Text as generated, without special tokens."""

    answer: str | None = None
    """Extracted answer (R6), or None if there is none."""

    answer_class: str | None = None
    """Most frequent spelling among the problem's samples with an equivalent answer (R7), or the option's letter. None
    without an answer, and if the answer names no option.
    """

    gold: str
    choices: int | None
    """Number of options of a multiple-choice problem (`Prompt.choices`)."""

    is_correct: bool = False
    """Whether the answer matches the gold (R7); False without an answer."""

    tokens: int | None
    """Response length, end token included; None if an imported log does not contain it."""

    truncated: bool | None
    """Whether the length limit cut the response; None if an imported log does not contain it."""

    seed: int | None
    """Seed of the sample; None if it was imported."""

    unfinished_thought: bool | None = None
    """Whether the response ends inside its thinking (R6) and so has no answer; None if it has no thinking."""

    ended_by: str | None = None
    """Any other reason why the response ended, in the words of the server (`Rollout.ended_by`)."""


class VerifiedKeys(Section):
    """The file of verified keys (checked golds) that replaced a benchmark's own golds, and how many golds changed."""

    file: str
    """Name of the file of verified labels."""

    digest: str
    """sha256 of the file's bytes."""

    labels: int
    """Number of labels in the file."""

    verified: int
    """Number of problems that have a label in the file."""

    corrected: int
    """Number of problems whose key the file changes."""

    rejected: int
    """Number of problems that are left out: the key is wrong, and nobody gave the true answer."""

    skipped: str = ""
    """End of a sentence on rows that contradict themselves (`VerifiedLabels.note_on_skipped`)."""

    def __str__(self) -> str:
        return (
            f"keys verified by {self.file} ({self.labels:,} labels): {self.verified:,}, {self.corrected:,} of them"
            f" corrected and {self.rejected:,} rejected (problems left out)"
            f"{self.skipped}"
        )


class TaskRecord(Section):
    """A benchmark's entry in evaluation.json: its definition, a digest of its problems, and its number of samples."""

    # Version 0.1.0 wrote one more key, answer_rules, and its evaluations must stay readable.
    model_config = ConfigDict(extra="ignore", frozen=True)

    definition: Benchmark
    """Benchmark as it was when the samples were graded."""

    samples: int
    """Number of samples of each problem."""

    problems: int
    """Number of problems."""

    problems_digest: str
    """Digest of their messages and golds, in order (`olr_cli.evaluation.problems.digest`)."""

    data: str | None = None
    """File or folder that replaced the benchmark's source."""

    verified: VerifiedKeys | None = None
    """Verified keys behind the golds; None: the golds are the benchmark's own."""


@dataclass(frozen=True)
class Task:
    """A benchmark to evaluate, with its problems and the number of samples of each (R19).

    `data` is the file or folder that replaces the benchmark's source, if any. `verified` describes the file of checked
    golds (verified keys) that replaced the benchmark's own golds, if any.
    """

    benchmark: Benchmark
    problems: Sequence[Prompt]
    samples: int
    data: str | None = None
    verified: VerifiedKeys | None = None

    def record(self) -> TaskRecord:
        """Return the task's entry of evaluation.json."""
        return TaskRecord(
            definition=self.benchmark,
            samples=self.samples,
            problems=len(self.problems),
            problems_digest=digest(self.problems),
            data=self.data,
            verified=self.verified,
        )


class EvaluationRecord(Section):
    """The content of evaluation.json: the settings that decide the generations, and the backends that made them."""

    schema_version: int = VERSION
    """`VERSION` of the olr that wrote the file."""

    name: str
    """Name of the model in tables, as in `Target`, like `model` and `origin`."""

    model: str
    origin: dict[str, Any]
    sampling: Sampling
    seed: int
    benchmarks: dict[str, TaskRecord]
    prompting: dict[str, Any] = Field(default_factory=dict)
    """The command's changes to the prompts (`olr_cli.evaluation.prompting.Prompting.settings`)."""

    protocol: Protocol = "standard"
    """Protocol that the defaults came from."""

    day: date | None = None
    """Day of the evaluation's start, for chat templates that write the date; None if it was imported or is older than
    this key.
    """

    generated_by: tuple[dict[str, Any], ...] = ()
    """Backend, weights, device and versions, with an entry for every combination that generated samples. ``sampling``
    in an entry holds the settings that the backend decided itself, and how (`OpenAIBackend` if a server refuses one).
    """

    @property
    def not_as_asked(self) -> dict[str, str]:
        """Setting -> words on what happened instead, for each setting that a backend did not use as asked.

        A setting is ``seed`` or a field of `sampling`. For example, a server may have refused to take a seed. The words
        are those in `generated_by`.
        """
        return {
            name: how
            for entry in self.generated_by
            for name, how in entry.get("sampling", {}).items()
        }

    def graded_by(self, definitions: Mapping[str, Benchmark]) -> EvaluationRecord:
        """Return the record with new definitions of the benchmarks that were graded again.

        Args:
            definitions: name of a benchmark -> its new definition; the other benchmarks keep theirs.
        """
        graded = {
            name: self.benchmarks[name].model_copy(update={"definition": definition})
            for name, definition in definitions.items()
        }
        return self.model_copy(update={"benchmarks": self.benchmarks | graded})

    def decisive(self) -> dict[str, object]:
        """Return setting -> value for the settings that decide samples or grades.

        An evaluation can be resumed only if none of them has changed. The problems are not among them, because
        `EvaluationStore.begin` compares digests of the problems.
        """
        settings = {"model": self.model, **asdict(self.sampling), "seed": self.seed}
        # The record leaves out defaults. They are named here, so that an error can show both sides of a change.
        settings |= {key: self.prompting.get(key, "default") for key in PROMPTING}
        for name, task in self.benchmarks.items():
            settings |= {
                f"{key} of {name}": value for key, value in task.definition.grading.items()
            }
            # The digest, not the file's name: a copy elsewhere has the same keys, an edited file has others.
            keys = task.verified.digest[:12] if task.verified else "none"
            settings[f"verified keys of {name}"] = keys
        return settings
