"""An evaluation's folder: what a model was asked, its graded responses, and the scores.

    <folder>/evaluation.json                     `EvaluationRecord`
    <folder>/generations/<benchmark>.parquet     a row a sample (`olr_cli.evaluation.generations`)
    <folder>/scores.json                         the scores (read by `olr_cli.evaluation.scores.stored_scores` alone)

Benchmarks can be added to an evaluation, problems to a benchmark and samples to each problem, if nothing else changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, ValidationError

from olr_cli.answers import RULES
from olr_cli.data.prompts import Prompt
from olr_cli.errors import UserError, shortened
from olr_cli.evaluation.backends import Sampling
from olr_cli.evaluation.benchmark import Benchmark
from olr_cli.evaluation.generations import GenerationStore
from olr_cli.evaluation.problems import digest
from olr_cli.evaluation.prompting import SETTINGS as PROMPTING
from olr_cli.evaluation.scores import Score, averages, is_evaluation, score
from olr_cli.files import read_record, write_text
from olr_cli.recipe.schema import Section
from olr_cli.runs.directory import GIVEN_UP, versions
from olr_cli.runs.locks import held

VERSION = 1
"""Raised whenever a key of evaluation.json changes its meaning."""

_MADE_WITH = {
    "model_digest": ("other weights", ""),
    "name": ("another backend", "ask for --backend {}, "),
    "dtype": ("another number format", "use a device like the one before, "),
    "quantization": ("another quantization", "give --vllm quantization={}, "),
    "adapter_digest": ("another LoRA adapter", "name the adapter of before, "),
}
"""Backend facts that must be equal for all samples of an evaluation, and the words of the error if they are not."""

_SCORED = (
    "problem_id",
    "sample",
    "answer",
    "answer_class",
    "is_correct",
    "tokens",
    "truncated",
    "unfinished_thought",
)


Protocol = Literal["standard", "paper"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)


@dataclass(frozen=True)
class Task:
    """A benchmark, its problems, and how many samples of each are taken (R19)."""

    benchmark: Benchmark
    problems: Sequence[Prompt]
    samples: int
    data: str | None = None
    """File or folder that took the place of the benchmark's source."""


@dataclass(frozen=True)
class Target:
    """A model to evaluate, and where its evaluation goes.

    Attributes:
        model: absolute path of a folder in Hugging Face layout, or hub id.
        folder: of the evaluation.
        name: in tables.
        origin: of a run's checkpoint: the run, the step and how it was chosen (R22); empty for any other model.
        is_served: the model is a server's, which knows it by this name.
    """

    model: str
    folder: Path
    name: str
    origin: Mapping[str, Any]
    is_served: bool = False

    @property
    def is_local(self) -> bool:
        """Whether the model is a folder on this machine."""
        return not self.is_served and Path(self.model).is_dir()

    def store(self, benchmark: str) -> GenerationStore:
        """The generations of a benchmark."""
        return GenerationStore(self.folder, benchmark)


class TaskRecord(Section):
    """A benchmark in evaluation.json.

    Attributes:
        definition: the benchmark as it was when the samples were graded.
        samples: n, of each problem.
        problems: how many.
        problems_digest: of their messages and golds, in order (`olr_cli.evaluation.problems.digest`).
        answer_rules: the version of the rules that graded the samples (`olr_cli.answers.RULES`); the oldest, if they
            differ.
        data: file or folder that took the place of the benchmark's source.
    """

    definition: Benchmark
    samples: int
    problems: int
    problems_digest: str
    answer_rules: int = 1
    data: str | None = None


class EvaluationRecord(Section):
    """evaluation.json: what decides the generations, and what they were made with.

    Attributes:
        schema_version: `VERSION` of the olr that wrote it.
        name: as in `Target`, like `model` and `origin`.
        benchmarks: by name.
        prompting: what the command changed in the prompts (`olr_cli.evaluation.prompting.Prompting.settings`).
        protocol: whose choices the defaults were: ``standard`` (R19) or ``paper`` (`olr_cli.evaluation.protocol`).
        generated_by: backend, weights, device and versions; an entry for every combination that generated samples.
    """

    schema_version: int
    name: str
    model: str
    origin: dict[str, Any]
    sampling: Sampling
    seed: int
    benchmarks: dict[str, TaskRecord]
    prompting: dict[str, Any] = Field(default_factory=dict)
    protocol: Protocol = "standard"
    generated_by: tuple[dict[str, Any], ...] = ()

    def target(self, folder: Path) -> Target:
        """The model that was evaluated, whose evaluation is in `folder`."""
        return Target(self.model, folder, self.name, self.origin)

    def decisive(self) -> dict[str, object]:
        """What must not change while an evaluation goes on, but for its problems."""
        settings = {"model": self.model, **asdict(self.sampling), "seed": self.seed}
        settings |= {key: self.prompting.get(key, "default") for key in PROMPTING}
        for name, task in self.benchmarks.items():
            definition = task.definition
            settings[f"grader of {name}"] = definition.grader
            settings[f"extractor of {name}"] = definition.extractor
        return settings

    @property
    def old_grades(self) -> list[str]:
        """The benchmarks with grades by other rules than today's."""
        return [name for name, task in self.benchmarks.items() if task.answer_rules != RULES]

    def with_backend(self, folder: Path, facts: Mapping[str, Any]) -> EvaluationRecord:
        """The record of an evaluation that goes on with a backend; errors as of `check_backend`."""
        self.check_backend(folder, facts)
        entry = versions() | dict(facts)
        entries = self.generated_by if entry in self.generated_by else (*self.generated_by, entry)
        return self.model_copy(update={"generated_by": entries})

    def check_backend(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """Make sure that a backend can add samples to those that are stored.

        Raises:
            UserError: it has other weights, is another backend, or computes in another number format.
        """
        known = self.generated_by[-1] if self.generated_by else facts
        for key, (difference, remedy) in _MADE_WITH.items():
            before, now = str(known.get(key)), str(facts.get(key))
            if key in facts and before != now:
                raise UserError(
                    f"{folder} holds generations of {difference} ({before[:15]} -> {now[:15]});"
                    f" {remedy.format(before)}choose another --out, or remove it"
                )


def begin(
    target: Target,
    tasks: Sequence[Task],
    sampling: Sampling,
    seed: int,
    prompting: Mapping[str, Any],
    protocol: Protocol = "standard",
) -> EvaluationRecord:
    """The record of an evaluation that begins, or goes on; it isn't written yet.

    Args:
        target: the model and the folder.
        tasks: what is sampled.
        sampling: how.
        seed: of all samples.
        prompting: the settings with which the messages of `tasks` were made (`Prompting.settings`).
        protocol: whose choices the defaults were.

    Raises:
        UserError: the folder holds something else, or an evaluation with other settings; says what changed.
    """
    record = EvaluationRecord(
        schema_version=VERSION,
        name=target.name,
        model=target.model,
        origin=dict(target.origin),
        sampling=sampling,
        seed=seed,
        prompting=dict(prompting),
        protocol=protocol,
        benchmarks={
            task.benchmark.name: TaskRecord(
                definition=task.benchmark,
                samples=task.samples,
                problems=len(task.problems),
                problems_digest=digest(task.problems),
                answer_rules=RULES,
                data=task.data,
            )
            for task in tasks
        },
    )
    if not is_evaluation(target.folder):
        if any(not file.name.startswith(".") and file.name != GIVEN_UP for file in target.folder.iterdir()):
            raise UserError(f"{target.folder} holds something else than an evaluation; choose another --out")
        return record
    before = read_evaluation(target.folder)
    old, new = before.decisive(), record.decisive()
    if target.is_local:  # it may move: its weights are compared (`check_backend`), not its path
        old["model"] = new["model"]
    changed = [key for key, value in new.items() if old.get(key, value) != value]
    changes = [f"{key}: {shortened(str(old[key]))} -> {shortened(str(new[key]))}" for key in changed]
    same_prompting = before.prompting == record.prompting
    for task in tasks:
        name = task.benchmark.name
        if name in before.benchmarks:
            stored = before.benchmarks[name]
            if task.samples < stored.samples:
                changes.append(
                    f"samples of {name}: {stored.samples} -> {task.samples}, and --samples can only be raised"
                )
            if len(task.problems) < stored.problems:
                changes.append(f"problems of {name}: {stored.problems} -> {len(task.problems)}")
            elif same_prompting and digest(task.problems[: stored.problems]) != stored.problems_digest:
                changes.append(f"{name} has other problems or golds")
            # With more samples of each problem, all are graded again.
            rules = {"answer_rules": RULES if task.samples > stored.samples else stored.answer_rules}
            record.benchmarks[name] = record.benchmarks[name].model_copy(update=rules)
    if changes:
        raise UserError(
            f"{target.folder} holds an evaluation that was asked otherwise ({'; '.join(changes)}); ask as before, or"
            " choose another --out"
        )
    benchmarks = before.benchmarks | record.benchmarks
    return record.model_copy(update={"benchmarks": benchmarks, "generated_by": before.generated_by})


def read_evaluation(folder: Path) -> EvaluationRecord:
    """An evaluation's record.

    Raises:
        UserError: the folder has none, or it is damaged or of a newer olr.
    """
    file = folder / "evaluation.json"
    if not file.is_file():
        raise UserError(f"{folder} is not an evaluation (no evaluation.json); `olr evaluate` makes one")
    plain = read_record(file, VERSION)
    try:
        return EvaluationRecord.model_validate(plain)
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"])) or "the whole"
        raise UserError(
            f"{file} is no evaluation's record ({place} is wrong); restore it from a copy"
        ) from None


def write_evaluation(folder: Path, record: EvaluationRecord) -> None:
    """Replace evaluation.json, whole."""
    _write_json(folder / "evaluation.json", record.model_dump(mode="json"))


def finished(folder: Path) -> list[str]:
    """The benchmarks of an evaluation that are done, in the order in which they were begun."""
    return [name for name in read_evaluation(folder).benchmarks if GenerationStore(folder, name).is_finished]


def read_scores(folder: Path, names: Sequence[str] | None = None) -> list[Score]:
    """The scores of the finished benchmarks, or of those `names`, computed from the generations.

    Raises:
        UserError: it is no evaluation, its files cannot be read, or samples or problems are missing (R19).
    """
    tasks = read_evaluation(folder).benchmarks
    return [
        score(
            tasks[name].definition,
            GenerationStore(folder, name).read(_SCORED),
            tasks[name].samples,
            problems=tasks[name].problems,
        )
        for name in (finished(folder) if names is None else names)
    ]


def rescore(folder: Path) -> dict[str, Score]:
    """Score the finished benchmarks and replace scores.json; errors as of `read_scores`."""
    scores = read_scores(folder)
    plain = read_evaluation(folder).model_dump(
        mode="json", include={"name", "model", "origin", "sampling", "seed"}
    )
    plain |= {
        "scores": [score.plain() for score in scores],
        "averages": averages(scores),
        "versions": versions(),
    }
    _write_json(folder / "scores.json", plain)
    return {score.benchmark: score for score in scores}


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Lock an evaluation's folder, and make it if necessary; a folder that stays empty is removed again.

    Raises:
        UserError: another live process holds it, or it can't be made.
    """
    made = [parent for parent in folder.parents if not parent.exists()]
    try:
        with held(folder, make=True, option="--out"):
            drop_leftovers(folder)
            yield
    finally:
        for parent in made:
            with suppress(OSError):  # it is not empty
                parent.rmdir()


def drop_leftovers(folder: Path) -> None:
    """Remove half-written files of a killed process; the caller holds the folder's lock."""
    for leftover in (
        *folder.glob(".evaluation.json.*.tmp"),
        *folder.glob(".scores.json.*.tmp"),
        *(folder / "generations").rglob(".*.parquet.*.tmp"),
    ):
        leftover.unlink()


def _write_json(file: Path, value: Mapping[str, Any]) -> None:
    write_text(file, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
