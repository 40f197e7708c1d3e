"""What an evaluation's files say: the record of its settings and benchmarks, and a row a sample."""

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
"""Raised whenever a key of evaluation.json changes its meaning."""

Protocol = Literal["standard", "paper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One sample of a benchmark's problem; until it is graded (`olr_cli.evaluation.grading.grade`), it has no answer.

    Attributes:
        sample: its number among the problem's samples, from 0.
        prompt: exactly as the model saw it.
        response: the text as generated, special tokens left out.
        answer: the extracted answer (R6); None if there is none.
        answer_class: the most frequent spelling among the problem's samples that say the same (R7), or the option's
            letter. None without an answer, or where it names no option.
        choices: how many options a multiple-choice problem shows (`Prompt.choices`).
        is_correct: the answer matches the gold (R7); False without an answer.
        tokens: response length, end token included; None if it was imported from a log that doesn't say.
        truncated: the length limit cut the response; None likewise.
        seed: the sample's seed; None if it was imported.
        unfinished_thought: the response ends inside its thinking (R6), and so has no answer; None if it has no thinking
            at all.
        ended_by: what else ended the response, by the words of a server (`Rollout.ended_by`).
    """

    benchmark: str
    problem_id: str
    sample: int
    prompt: str
    response: str
    answer: str | None = None
    answer_class: str | None = None
    gold: str
    choices: int | None
    is_correct: bool = False
    tokens: int | None
    truncated: bool | None
    seed: int | None
    unfinished_thought: bool | None = None
    ended_by: str | None = None


class VerifiedKeys(Section):
    """The verified keys that took the place of a benchmark's own.

    Attributes:
        file, digest: the name of the file of verified labels, and the sha256 of its bytes.
        labels: how many labels it has.
        verified: how many problems it has a label of.
        corrected: how many of them have another key.
        rejected: how many of them are left out: the key is wrong, and nobody gave the true answer.
        skipped: the end of a sentence on rows that contradict themselves (`VerifiedLabels.note_on_skipped`).
    """

    file: str
    digest: str
    labels: int
    verified: int
    corrected: int
    rejected: int
    skipped: str = ""

    def __str__(self) -> str:
        return (
            f"keys verified by {self.file} ({self.labels:,} labels): {self.verified:,}, {self.corrected:,} of them"
            f" corrected and {self.rejected:,} rejected (problems left out)"
            f"{self.skipped}"
        )


class TaskRecord(Section):
    """A benchmark in evaluation.json.

    Attributes:
        definition: the benchmark as it was when the samples were graded.
        problems_digest: the digest of their messages and golds, in order (`olr_cli.evaluation.problems.digest`).
        data: file or folder that took the place of the benchmark's source.
        verified: whose keys the golds are; None: the benchmark's own.
    """

    # 0.1.0 wrote another key, answer_rules.
    model_config = ConfigDict(extra="ignore", frozen=True)

    definition: Benchmark
    samples: int
    problems: int
    problems_digest: str
    data: str | None = None
    verified: VerifiedKeys | None = None


@dataclass(frozen=True)
class Task:
    """A benchmark, its problems, and how many samples of each are taken (R19); the rest as in `TaskRecord`."""

    benchmark: Benchmark
    problems: Sequence[Prompt]
    samples: int
    data: str | None = None
    verified: VerifiedKeys | None = None

    def record(self) -> TaskRecord:
        """As evaluation.json has it."""
        return TaskRecord(
            definition=self.benchmark,
            samples=self.samples,
            problems=len(self.problems),
            problems_digest=digest(self.problems),
            data=self.data,
            verified=self.verified,
        )


class EvaluationRecord(Section):
    """evaluation.json: what decides the generations, and what they were made with.

    Attributes:
        schema_version: `VERSION` of the olr that wrote it.
        name: as in `Target`, like `model` and `origin`.
        prompting: the command's changes to the prompts (`olr_cli.evaluation.prompting.Prompting.settings`).
        protocol: whose choices the defaults were: ``standard`` (R19) or ``paper`` (of its printed scores).
        day: that of its start, for chat templates that write the date; None: it was imported, or is older than the key.
        generated_by: backend, weights, device and versions; an entry for every combination that generated samples. Its
            ``sampling`` are the settings that it decided itself, and how (`OpenAIBackend` where a server refuses one).
    """

    schema_version: int = VERSION
    name: str
    model: str
    origin: dict[str, Any]
    sampling: Sampling
    seed: int
    benchmarks: dict[str, TaskRecord]
    prompting: dict[str, Any] = Field(default_factory=dict)
    protocol: Protocol = "standard"
    day: date | None = None
    generated_by: tuple[dict[str, Any], ...] = ()

    @property
    def not_as_asked(self) -> dict[str, str]:
        """The settings that others decided, whatever `sampling` says, as in `generated_by`."""
        return {
            name: how
            for entry in self.generated_by
            for name, how in entry.get("sampling", {}).items()
        }

    def graded_by(self, definitions: Mapping[str, Benchmark]) -> EvaluationRecord:
        """Return the record with benchmarks that were graded again, by these definitions."""
        graded = {
            name: self.benchmarks[name].model_copy(update={"definition": definition})
            for name, definition in definitions.items()
        }
        return self.model_copy(update={"benchmarks": self.benchmarks | graded})

    def decisive(self) -> dict[str, object]:
        """The settings that must not change while an evaluation goes on, except for its problems."""
        settings = {"model": self.model, **asdict(self.sampling), "seed": self.seed}
        settings |= {key: self.prompting.get(key, "default") for key in PROMPTING}
        for name, task in self.benchmarks.items():
            settings |= {
                f"{key} of {name}": value for key, value in task.definition.grading.items()
            }
            keys = task.verified.digest[:12] if task.verified else "none"
            settings[f"verified keys of {name}"] = keys
        return settings
