"""Verified keys of a benchmark (R23): its problems under them, and the problems of stored samples."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
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
    """Return the tasks with golds that people have verified, and without the problems that people have rejected.

    A problem is rejected if the file calls its gold wrong or flawed and has no true answer for it. A problem without a
    label in the file keeps its gold. A task without any labelled problem is returned unchanged.

    Args:
        tasks: the benchmarks with their problems.
        file: the file of verified labels (`VerifiedLabels`).
        are_needed: raise an error if the file has no label for any of the problems.

    Raises:
        UserError: all problems of a task are rejected; no problem has a label although `are_needed` is set; or two
            tasks with labelled problems share a problem id.
    """
    with at("verified"):
        labels = VerifiedLabels.read(file)
        corrected = [_corrected(task, labels, file) for task in tasks]
        if are_needed:
            labels.require_some([problem for task in tasks for problem in task.problems])
    pairs = zip(tasks, corrected, strict=True)
    named = [before for before, after in pairs if after.verified is not None]
    ids = [problem.prompt_id for task in named for problem in task.problems]
    if len({*ids}) < len(ids):
        names = ", ".join(task.benchmark.name for task in named)
        raise UserError(
            f"{file} names problems by ids that several benchmarks have ({names})",
            "name the one that was verified",
            "benchmarks",
        )
    return corrected


def _corrected(task: Task, labels: VerifiedLabels, file: Path) -> Task:
    """Return a task with the golds of a file of verified labels; unchanged if no problem has a label in the file.

    `labels` is the content of `file`. `Task.verified` of the result names the file and counts the changes.

    Raises:
        UserError: the file rejects all problems.
    """
    # People judged the key. For multiple choice, the row's own label is another text, such as an index.
    keyed = [replace(it, given_label=it.gold, noise_type=None) for it in task.problems]
    answers = {key: label.answer for key, label in labels.of(keyed).items()}
    if not answers:
        return task
    problems = list(_with_answers(task, answers))
    if not problems:
        raise UserError(f"{file} leaves no problem of {task.benchmark.name}", "keep some")
    golds = {problem.prompt_id: problem.gold for problem in task.problems}
    keys = VerifiedKeys(
        file=file.name,
        digest=hashlib.sha256(file.read_bytes()).hexdigest(),
        labels=len(labels),
        verified=len(answers),
        corrected=sum(it.gold != golds[it.prompt_id] for it in problems),
        rejected=len(golds) - len(problems),
        skipped=labels.note_on_skipped,
    )
    return replace(task, problems=problems, verified=keys)


def _with_answers(task: Task, answers: Mapping[str, str | None]) -> Iterator[Prompt]:
    """Yield the problems that are not rejected, with their verified answers as golds.

    A problem keeps its old gold if `answers` lacks it, or if its verified answer only spells the old gold differently.

    Args:
        task: the benchmark with its problems.
        answers: problem id -> verified answer, or None if the problem is rejected.
    """
    for problem in task.problems:
        old = problem.gold or ""
        answer = answers.get(problem.prompt_id, old)
        if answer is not None:
            key = answer if answer == old else _as_key(task.benchmark, problem, answer)
            # Another spelling is no correction: the key stays, so that pairs with other evaluations remain. Matching is
            # tested both ways: 75 % accepts 75, but 75 does not accept 75 %.
            is_same = key == old or (is_match(old, key) and is_match(key, old))
            yield problem if is_same else replace(problem, true_answer=key)


def _as_key(benchmark: Benchmark, problem: Prompt, answer: str) -> str:
    """Return a verified answer in the form of the benchmark's golds.

    For multiple choice this is the option's letter, or its number if the old gold is a number. Any other benchmark
    takes the answer unchanged.

    Raises:
        UserError: the answer names no option.
    """
    if benchmark.grader != "choice":
        return answer
    options = problem.choices or MOST_OPTIONS
    # If keys are letters, a number may be the text of an option.
    is_numbered = (problem.gold or "").strip().isdecimal()
    letter = option_letter(answer, options, numbered=is_numbered)
    if letter is None:
        raise UserError(
            f"the verified answer '{answer}' to problem {problem.prompt_id} of {benchmark.name} names none of its"
            f" {options} options",
            "give the number of one" if is_numbered else "give the letter of one",
        )
    return str(ascii_uppercase.index(letter) + 1) if is_numbered else letter


def stored_task(store: EvaluationStore, task: TaskRecord) -> tuple[Task, str]:
    """Return a finished benchmark of an evaluation as a task, with its problems and their stored golds.

    Args:
        store: the evaluation's files.
        task: the benchmark's entry in evaluation.json.

    Returns:
        The task, and the reason why its questions were rebuilt from the stored prompts. The reason is empty if the
        benchmark's source still has the questions exactly as they were asked: they are then read from there.
    """
    benchmark = task.definition
    rows = store.read(benchmark.name, ["problem_id", "gold", "choices", "prompt"])
    stored = {
        problem_id: Prompt(
            problem_id,
            # In a prompt of plain text, the system message comes before the question.
            (Message("user", prompt.removeprefix(f"{benchmark.system}\n")),),
            gold,
            gold,
            None,
            benchmark.name,
            choices=choices,
        )
        for problem_id, gold, choices, prompt in rows.unique(
            "problem_id", keep="first", maintain_order=True
        ).iter_rows()
    }
    system = store.record().prompting.get("system")
    prompting = Prompting("" if system == NONE else system)
    problems, why = [*stored.values()], f"{benchmark.source.place} has other problems now"
    try:
        loaded = load_problems(
            benchmark, data=None if task.data is None else Path(task.data)
        )
        # An evaluation with `--limit` has only the first problems of the source.
        known = [problem for problem in loaded if problem.prompt_id in stored]
        asked = [
            replace(it, true_answer=stored[it.prompt_id].gold)
            for it in prompting.ask(known)
        ]
        if digest(asked) == task.problems_digest:
            problems, why = asked, ""
    except UserError as error:
        why = error.problem
    return Task(benchmark, problems, task.samples, task.data), why
