"""What olr takes from another tool's sample log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from olr_cli.answers.extraction import boxed
from olr_cli.errors import UserError


@dataclass(frozen=True)
class LoggedSample:
    """A problem and a model's responses to it.

    Attributes:
        problem_id: unique in its task.
        texts: every text of the problem's record, one of them usually the bare question.
        prompt: as the model read it, as far as the log says.
        gold: what the log gives as the right answer; a worked solution ends with it (`gold_answer`).
        responses: at least one.
        tokens: length of each response; None where the log doesn't say.
        metrics: the tool's own scores of the problem, by name.
    """

    problem_id: str
    texts: frozenset[str]
    prompt: str
    gold: str
    responses: tuple[str, ...]
    tokens: tuple[int | None, ...]
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class LoggedTask:
    """A task of a log.

    Attributes:
        name: as the tool calls it.
        file: where it was read from.
        temperature: 0 where the most likely token was taken.
        max_new_tokens: length limit of a response.
    """

    name: str
    file: Path
    samples: Sequence[LoggedSample]
    temperature: float
    max_new_tokens: int

    @property
    def metrics(self) -> dict[str, float]:
        """The tool's own scores: the mean over problems of each metric that every problem has."""
        names = [name for name in self.samples[0].metrics if all(name in s.metrics for s in self.samples)]
        return {
            name: sum(sample.metrics[name] for sample in self.samples) / len(self.samples) for name in names
        }


@dataclass(frozen=True)
class Log:
    """A model's responses to the tasks of another evaluation tool.

    Attributes:
        tool: ``lm-eval`` or ``lighteval``.
        version: of the tool; empty if the log doesn't say.
        model: as the log calls it: a hub id or a folder.
        left_out: tasks without generated text.
        facts: what else is known of how the responses were made.
    """

    tool: str
    version: str
    model: str
    tasks: Sequence[LoggedTask]
    left_out: Sequence[str]
    facts: Mapping[str, str]


def gold_answer(text: str) -> str:
    r"""The answer that a gold ends with: of a worked solution what its last ``\boxed{}``, or ``####``, holds."""
    last = text.rpartition("####")[2].strip()
    return boxed(last) or last.removeprefix("ANSWER:").strip()


def readable(text: str) -> str:
    """A text without halves of surrogate pairs, which JSON allows and no file of generations can hold."""
    return text.encode(errors="replace").decode()


def latest(files: Iterable[Path], name: str) -> dict[str, Path]:
    """Task -> its latest file, of names such as ``samples_gsm8k_2026-01-31T12-00-00.123456.jsonl``.

    A file without a date, which was renamed, is a task of its own.
    """
    newest: dict[str, tuple[str, Path]] = {}
    for file in files:
        task, _, date = file.stem.removeprefix(name).rpartition("_")
        if not task:
            task, date = date, ""
        if task not in newest or date > newest[task][0]:
            newest[task] = (date, file)
    return {task: file for task, (_, file) in newest.items()}


def require_one_model(models: Mapping[Path, str]) -> str:
    """The model of all files.

    Raises:
        UserError: they are of several models.
    """
    names = sorted(set(models.values()))
    if len(names) > 1:
        folders = ", ".join(sorted({str(file.parent) for file in models}))
        raise UserError(f"there are logs of {len(names)} models ({', '.join(names)}); name one of {folders}")
    return names[0]


def damaged(file: Path, tool: str, detail: str) -> UserError:
    """The error for a file that does not have the form of the tool's logs."""
    return UserError(f"{file} is no sample log of {tool} ({detail}); name another, or write it again")


def read_tasks(
    files: Mapping[str, Path], read: Callable[[str, Path], LoggedTask | None]
) -> tuple[list[LoggedTask], list[str]]:
    """The tasks among some files, by name, that have generated text, and the names of the others.

    Raises:
        UserError: none has.
    """
    tasks = {name: read(name, file) for name, file in files.items()}
    left_out = [name for name, task in tasks.items() if task is None]
    if len(left_out) == len(tasks):
        raise without_text(files[left_out[0]])
    return [task for task in tasks.values() if task is not None], left_out


def without_text(file: Path) -> UserError:
    """The error for a task that compares likelihoods of given answers."""
    return UserError(
        f"{file} has likelihoods of given answers and no generated text, so there is nothing to grade again; import a"
        " task that generates"
    )
