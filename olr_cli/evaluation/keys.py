"""A benchmark's keys that people have verified (R23): its problems under them, and the problems of stored samples."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase

from olr_cli.answers import is_match, option_letter
from olr_cli.data.chat import Message
from olr_cli.data.prompts import Prompt
from olr_cli.data.verified import VerifiedLabels
from olr_cli.engines.prompt_text import NONE
from olr_cli.errors import UserError, at
from olr_cli.evaluation.benchmark import Benchmark
from olr_cli.evaluation.problems import MOST_OPTIONS, digest, load_problems
from olr_cli.evaluation.prompting import Prompting
from olr_cli.evaluation.record import Task, TaskRecord, VerifiedKeys
from olr_cli.evaluation.store import EvaluationStore


def with_verified_keys(
    tasks: Sequence[Task], file: Path, *, are_needed: bool = True
) -> list[Task]:
    """Return the tasks under the keys that a file verifies (`VerifiedLabels`), without the problems that it rejects.

    A problem is rejected if its key is wrong or its question flawed, and the file has no true answer. Those that the
    file does not name keep their keys, and so do tasks of which it names none.

    Raises:
        UserError: the file names no problem (if it has to: `are_needed`), or problems of several tasks by the same ids,
            or rejects all of a task.
    """
    with at("verified"):
        labels = VerifiedLabels.read(file)
        contents = hashlib.sha256(file.read_bytes()).hexdigest()
        corrected, named = [], dict[str, str]()
        for task in tasks:
            name = task.benchmark.name
            # What people judged is the key, which for multiple choice is not what the row has.
            keyed = [
                replace(it, given_label=it.gold, noise_type=None) for it in task.problems
            ]
            answers = {key: it.answer for key, it in labels.of(keyed).items()}
            for prompt_id in answers:
                if named.setdefault(prompt_id, name) != name:
                    raise UserError(
                        f"{file} has the prompt_id {prompt_id}, which is a problem of {named[prompt_id]} and of {name}",
                        "name the one benchmark that was verified",
                        "benchmarks",
                    )
            keys = VerifiedKeys(
                file=file.name,
                digest=contents,
                labels=len(labels),
                named=len(answers),
                corrected=0,
                rejected=list(answers.values()).count(None),
            )
            corrected.append(_corrected(task, answers, keys) if answers else task)
        if are_needed:
            labels.require_some([problem for task in tasks for problem in task.problems])
    return corrected


def _corrected(task: Task, answers: Mapping[str, str | None], keys: VerifiedKeys) -> Task:
    """Return a task under the verified answers; None rejects a problem."""
    problems, corrected = [], 0
    for problem in task.problems:
        answer = answers.get(problem.prompt_id, problem.gold)
        if answer is not None:
            key = _as_key(task.benchmark, problem, answer)
            is_same = key == problem.gold or _say_the_same(problem.gold or "", key)
            # Another spelling is no correction: the key stays, and so do pairs with other evaluations.
            problems.append(problem if is_same else replace(problem, true_answer=key))
            corrected += not is_same
    if not problems:
        raise UserError(
            f"{keys.file} rejects all problems of {task.benchmark.name}", "keep some"
        )
    verified = keys.model_copy(update={"corrected": corrected})
    return replace(task, problems=problems, verified=verified)


def _say_the_same(one: str, other: str) -> bool:
    """Whether two keys accept each other: 75 % accepts 75, which does not accept 75 %."""
    return is_match(one, other) and is_match(other, one)


def _as_key(benchmark: Benchmark, problem: Prompt, answer: str) -> str:
    """Return an answer in the form of the benchmark's keys: of multiple choice the option's letter, or its number."""
    if benchmark.grader != "choice" or answer == problem.gold:
        return answer
    options = problem.choices or MOST_OPTIONS
    letter = option_letter(answer, options, numbered=answer.strip().isdecimal())
    if letter is None:
        raise UserError(
            f"the verified answer '{answer}' to problem {problem.prompt_id} of {benchmark.name} names none of its"
            f" {options} options",
            "give the letter of one",
        )
    is_numbered = (problem.gold or "").strip().isdecimal()
    return str(ascii_uppercase.index(letter) + 1) if is_numbered else letter


def stored_task(store: EvaluationStore, task: TaskRecord) -> tuple[Task, str]:
    """Return a finished benchmark with its problems, and why their questions are not known exactly, if so.

    The problems are those of the benchmark's source, if it still has them as they were asked; else their questions are
    the stored prompts.
    """
    benchmark = task.definition
    rows = store.read(benchmark.name, ["problem_id", "gold", "choices", "prompt"])
    stored = {
        row["problem_id"]: Prompt(
            row["problem_id"],
            _messages(benchmark, row["prompt"]),
            row["gold"],
            row["gold"],
            None,
            benchmark.name,
            choices=row["choices"],
        )
        for row in rows.unique("problem_id", keep="first", maintain_order=True).iter_rows(
            named=True
        )
    }
    try:
        problems, why = _asked(store, task, stored), ""
    except UserError as error:
        problems, why = (
            list(stored.values()),
            f"{error.problem}; they are shown as the model read them",
        )
    return Task(benchmark, problems, task.samples, task.data, task.verified), why


def _messages(benchmark: Benchmark, prompt: str) -> tuple[Message, ...]:
    """Return a stored prompt as a question: without the system message that stands before it as plain text."""
    return (Message("user", prompt.removeprefix(f"{benchmark.system}\n")),)


def _asked(
    store: EvaluationStore, task: TaskRecord, stored: Mapping[str, Prompt]
) -> list[Prompt]:
    """Return the problems of a benchmark's source with the stored keys.

    Raises:
        UserError: the source cannot be read, or has other problems than those that were asked.
    """
    system = store.record().prompting.get("system")
    prompting = Prompting("" if system == NONE else system)
    data = None if task.data is None else Path(task.data)
    loaded = prompting.ask(load_problems(task.definition, data=data))
    problems = [
        replace(problem, true_answer=stored[problem.prompt_id].gold)
        for problem in loaded
        if problem.prompt_id in stored
    ]
    if digest(problems) != task.problems_digest:
        raise UserError(
            f"{data or task.definition.source.place} has other problems now", "restore it"
        )
    return problems
