"""An evaluation's folder: what was asked of which model, and the results.

    <folder>/evaluation.json                     `EvaluationRecord`
    <folder>/generations/<benchmark>.parquet     a row a sample (`olr_cli.evaluation.generations`)
    <folder>/scores.json                         the scores

Benchmarks may be added to an evaluation, and problems to a benchmark, if all else is asked as before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from olr_cli.answers import RULES
from olr_cli.data.prompts import Prompt
from olr_cli.errors import UserError
from olr_cli.evaluation.backends import Sampling
from olr_cli.evaluation.benchmark import Benchmark
from olr_cli.evaluation.generations import GenerationStore
from olr_cli.evaluation.problems import digest
from olr_cli.evaluation.scores import Score, averages, is_evaluation, score
from olr_cli.files import write_text
from olr_cli.recipe.schema import Section
from olr_cli.runs.directory import GIVEN_UP, held, versions

VERSION = 1
"""Raised whenever a key of evaluation.json changes its meaning."""

_MADE_WITH = {
    "model_digest": ("other weights", ""),
    "name": ("another backend", "ask for --backend {}, "),
    "dtype": ("another number format", "use a device like the one before, "),
}
"""Backend facts that must be equal for all samples of an evaluation, and the words of the error if they are not."""

_SCORED = ("problem_id", "sample", "answer", "answer_class", "is_correct", "tokens", "truncated")


@dataclass(frozen=True)
class Target:
    """A model to evaluate, and where its evaluation goes.

    Attributes:
        model: absolute path of a folder in Hugging Face layout, or hub id.
        folder: of the evaluation.
        name: in tables.
        origin: of a run's checkpoint: the run, the step and how it was chosen (R22); empty for any other model.
    """

    model: str
    folder: Path
    name: str
    origin: Mapping[str, Any]

    @property
    def is_local(self) -> bool:
        """Whether the model is a folder on this machine."""
        return Path(self.model).is_dir()

    def store(self, benchmark: Benchmark) -> GenerationStore:
        """Where the generations of a benchmark are."""
        return _store(self.folder, benchmark.name)


@dataclass(frozen=True)
class Asked:
    """A benchmark that is asked: its problems, and how many samples of each (R19)."""

    benchmark: Benchmark
    problems: Sequence[Prompt]
    samples: int


class AskedRecord(Section):
    """A benchmark in evaluation.json.

    Attributes:
        samples: n, of each problem.
        problems: how many.
        problems_digest: of their messages and golds, in order (`olr_cli.evaluation.problems.digest`).
        answer_rules: the version of the rules that graded the samples (`olr_cli.answers.RULES`); the oldest, if they
            differ.
    """

    definition: Benchmark
    samples: int
    problems: int
    problems_digest: str
    answer_rules: int = 1


class EvaluationRecord(Section):
    """evaluation.json: what decides the generations, and what they were made with.

    Attributes:
        schema_version: `VERSION` of the olr that wrote it.
        name: as in `Target`, like `model` and `origin`.
        seed: as in `Settings` of `olr_cli.evaluation.evaluate`.
        benchmarks: by name.
        generated_by: backend, weights, device and versions; an entry for every combination that generated samples.
    """

    schema_version: int
    name: str
    model: str
    origin: dict[str, Any]
    sampling: Sampling
    seed: int
    benchmarks: dict[str, AskedRecord]
    generated_by: tuple[dict[str, Any], ...] = ()

    def target(self, folder: Path) -> Target:
        """The model that was evaluated, whose evaluation is in `folder`."""
        return Target(self.model, folder, self.name, self.origin)

    def with_backend(self, folder: Path, facts: Mapping[str, Any]) -> EvaluationRecord:
        """The record of an evaluation that goes on with a backend; errors as of `check_backend`."""
        self.check_backend(folder, facts)
        now = versions() | dict(facts)
        if now in self.generated_by:
            return self
        return self.model_copy(update={"generated_by": (*self.generated_by, now)})

    @property
    def old_grades(self) -> list[str]:
        """The benchmarks with grades by other rules than today's."""
        return [name for name, asked in self.benchmarks.items() if asked.answer_rules != RULES]

    def check_backend(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """Make sure that a backend can add samples to those that are stored.

        Raises:
            UserError: it has other weights, is another backend, or computes in another number format.
        """
        known = self.generated_by[-1] if self.generated_by else facts
        for key, (what, remedy) in _MADE_WITH.items():
            before, now = str(known.get(key)), str(facts.get(key))
            if key in facts and before != now:
                raise UserError(
                    f"{folder} holds generations of {what} ({before[:15]} -> {now[:15]}); {remedy.format(before)}"
                    "choose another --out, or remove it"
                )


def begin(target: Target, asked: Sequence[Asked], sampling: Sampling, seed: int) -> EvaluationRecord:
    """The record of an evaluation that begins, or goes on; it isn't written yet.

    Raises:
        UserError: the folder holds something else, or an evaluation that was asked otherwise; says what changed.
    """
    now = EvaluationRecord(
        schema_version=VERSION,
        name=target.name,
        model=target.model,
        origin=dict(target.origin),
        sampling=sampling,
        seed=seed,
        benchmarks={
            part.benchmark.name: AskedRecord(
                definition=part.benchmark,
                samples=part.samples,
                problems=len(part.problems),
                problems_digest=digest(part.problems),
                answer_rules=RULES,
            )
            for part in asked
        },
    )
    if not is_evaluation(target.folder):
        if any(not file.name.startswith(".") and file.name != GIVEN_UP for file in target.folder.iterdir()):
            raise UserError(f"{target.folder} holds something else than an evaluation; choose another --out")
        return now
    before = read_evaluation(target.folder)
    changed = list(_changes(before, now, target, {part.benchmark.name: part.problems for part in asked}))
    if changed:
        raise UserError(
            f"{target.folder} holds an evaluation that was asked otherwise ({'; '.join(changed)}); ask as before, or"
            " choose another --out"
        )
    again = {
        name: part.model_copy(update={"answer_rules": before.benchmarks[name].answer_rules})
        for name, part in now.benchmarks.items()
        if name in before.benchmarks
    }
    merged = {"benchmarks": before.benchmarks | now.benchmarks | again, "generated_by": before.generated_by}
    return now.model_copy(update=merged)


def _changes(
    before: EvaluationRecord, now: EvaluationRecord, target: Target, problems: Mapping[str, Sequence[Prompt]]
) -> Iterator[str]:
    """What has changed since the evaluation began. A local model may move: its weights are compared, not its path."""
    pairs: list[tuple[str, object, object]] = []
    if not target.is_local:
        pairs.append(("model", before.model, now.model))
    pairs += [(key, getattr(before.sampling, key), value) for key, value in asdict(now.sampling).items()]
    pairs.append(("seed", before.seed, now.seed))
    for name in before.benchmarks.keys() & now.benchmarks.keys():
        old, new = before.benchmarks[name], now.benchmarks[name]
        pairs.append((f"samples of {name}", old.samples, new.samples))
        pairs += [
            (f"{key} of {name}", getattr(old.definition, key), getattr(new.definition, key))
            for key in ("grader", "extractor")
        ]
        if new.problems < old.problems:
            pairs.append((f"problems of {name}", old.problems, new.problems))
        elif digest(problems[name][: old.problems]) != old.problems_digest:
            yield f"{name} has other problems or golds"
    yield from (f"{what}: {old} -> {new}" for what, old, new in pairs if old != new)


def read_evaluation(folder: Path) -> EvaluationRecord:
    """An evaluation's record.

    Raises:
        UserError: the folder has none, or it is damaged or of a newer olr.
    """
    file = folder / "evaluation.json"
    if not file.is_file():
        raise UserError(f"{folder} is not an evaluation (no evaluation.json); `olr evaluate` makes one")
    try:
        plain = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file} is not valid JSON ({error}); restore it from a copy") from None
    version = plain.get("schema_version") if isinstance(plain, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise UserError(
            f"{file} was written by a newer olr (schema {version}, this one reads {VERSION}); upgrade olr"
        )
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
    """The benchmarks of an evaluation that are done, in the order in which they were first asked."""
    return [name for name in read_evaluation(folder).benchmarks if _store(folder, name).is_finished]


def read_scores(folder: Path, names: Sequence[str] | None = None) -> list[Score]:
    """The scores of the finished benchmarks, computed from the generations (`stored_scores`: those of scores.json).

    Args:
        folder: the evaluation's.
        names: only of these, in this order.

    Raises:
        UserError: it is no evaluation, its files cannot be read, or samples or problems are missing (R19).
    """
    record = read_evaluation(folder)
    asked = {name: record.benchmarks[name] for name in (finished(folder) if names is None else names)}
    return [
        score(part.definition, _store(folder, name).read(_SCORED), part.samples, problems=part.problems)
        for name, part in asked.items()
    ]


def write_scores(folder: Path, scores: Sequence[Score]) -> None:
    """Replace scores.json, which says of what and how, too."""
    record = read_evaluation(folder)
    plain = record.model_dump(mode="json", include={"name", "model", "origin", "sampling", "seed"})
    plain |= {
        "scores": [score.plain() for score in scores],
        "averages": averages(scores),
        "versions": versions(),
    }
    _write_json(folder / "scores.json", plain)


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
    places = [folder / "generations", *(folder / "generations").glob("*.parts")]
    patterns = [(folder, ".evaluation.json.*.tmp"), (folder, ".scores.json.*.tmp")]
    patterns += [(place, ".*.parquet.*.tmp") for place in places]
    for place, pattern in patterns:
        for leftover in place.glob(pattern):
            leftover.unlink()


def _store(folder: Path, name: str) -> GenerationStore:
    return GenerationStore(folder / "generations", name)


def _write_json(file: Path, value: Mapping[str, Any]) -> None:
    write_text(file, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
