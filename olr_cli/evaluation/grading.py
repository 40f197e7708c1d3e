r"""Grade responses: mathematics by value (R6 to R8), multiple choice by letter (R20).

Stored responses can be graded again without a model, for example after a fix of the grader or another extractor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from olr_cli.answers import (
    Gold,
    Grading,
    Judge,
    Verdict,
    is_thinking,
    option_letter,
    read_answer,
    reading_more,
    right_answers,
    unscorable,
    with_opened,
)
from olr_cli.data.percent import asks_for_percent
from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import Benchmark, choose, read_by, registry
from olr_cli.evaluation.keys import stored_task, with_verified_keys
from olr_cli.evaluation.plan import EvaluationRequest, Say
from olr_cli.evaluation.problems import MOST_OPTIONS
from olr_cli.evaluation.record import EvaluationRecord, Generation, Task
from olr_cli.evaluation.results import check_reference, scores_answer
from olr_cli.evaluation.scores import Score, is_evaluation
from olr_cli.evaluation.store import EvaluationStore, Target, evaluations_at
from olr_cli.grouping import gathered
from olr_cli.runs.directory import GIVEN_UP
from olr_cli.tables import Answer


def grade(
    benchmark: Benchmark,
    samples: Sequence[Generation],
    judge: Judge,
    counted: Counter[Verdict] | None = None,
) -> list[Generation]:
    """Read the answer in each response and grade it; return graded copies of the samples, in the same order.

    Equivalent answers to a problem form a class. A sample's `answer_class` becomes the most frequent spelling in the
    class of its answer, or for multiple choice the letter of the option. It is None without an answer, or if the answer
    names no option of a multiple-choice problem.

    Args:
        benchmark: decides the grader, the extractor and the tolerance.
        samples: all samples of one or more problems. If some are missing, `answer_class` may become another spelling.
        judge: decides whether answers are equivalent. Multiple choice does not need it.
        counted: counter to which the verdicts of `judge` are added; None: they are not counted.
    """
    read = [
        replace(
            sample,
            answer=read_answer(sample.response, benchmark.extractor, sample.prompt),
            unfinished_thought=is_thinking(with_opened(sample.prompt, sample.response)),
        )
        for sample in samples
    ]
    if benchmark.grader == "choice":
        return list(map(_by_letter, read))
    golds = list(map(_golds, read))
    problems = gathered(
        (it.problem_id, (it, right)) for it, right in zip(read, golds, strict=True)
    )
    answers = [[sample.answer for sample, _ in of_one] for of_one in problems.values()]
    grading = Grading(answers, judge, benchmark.tolerance)
    # One request for all comparisons keeps every process of the judge busy.
    grading.ask(
        chain.from_iterable(right for _, right in of_one) for of_one in problems.values()
    )
    votes = dict(zip(problems, grading.votes(), strict=True))
    verdicts = list(map(grading.verdict, golds, (sample.answer for sample in read)))
    if counted is not None:
        counted.update(verdicts)
    return [
        replace(
            sample,
            # A response without an answer has no class, so it does not vote.
            answer_class=sample.answer
            and votes[sample.problem_id].spelling[grading.keys[sample.answer]],
            is_correct=bool(verdict),
        )
        for sample, verdict in zip(read, verdicts, strict=True)
    ]


def _golds(sample: Generation) -> list[Gold]:
    """Return the right answers to a sample's problem; an answer needs to match only one of them.

    If the question asks for a percentage, an answer may have a percent sign that the gold lacks.
    """
    asks = asks_for_percent(sample.prompt)
    return [Gold(gold, asks) for gold in right_answers(sample.gold)]


def _by_letter(sample: Generation) -> Generation:
    """Return a copy of a multiple-choice sample, graded by the option that its answer names.

    `answer_class` becomes the letter of that option. If no option is named, it becomes None, and the sample counts as
    wrong.

    Raises:
        UserError: a gold names no option.
    """
    # An imported problem does not say how many options it has.
    options = sample.choices or MOST_OPTIONS
    golds = right_answers(sample.gold)
    # Options are numbered only if every gold is a number: beside letters, `2` may be the text of an option.
    numbered = all(gold.strip().isdecimal() for gold in golds)
    right = [option_letter(gold, options, numbered=numbered) for gold in golds]
    if None in right or not right:
        raise UserError(
            f"{sample.benchmark}: the gold '{sample.gold}' of problem {sample.problem_id} names none of its {options}"
            " options",
            "fix it in the data",
        )
    letter = sample.answer and option_letter(sample.answer, options, numbered=numbered)
    return replace(sample, answer_class=letter, is_correct=letter in right)


# ---- grading again --------------------------------------------------------------------------------------------------

_READ = 1_000
"""Number of unanswered responses that other extractors are tried on, if most responses have no answer."""
_SHOWN = 10
"""Number of changed grades to show in each direction."""


def regrade(
    folder: Path,
    benchmarks: Sequence[Benchmark] | None = None,
    extractor: str | None = None,
    tolerance: float | None = None,
    *,
    say: Say = lambda sentence: None,
    report: Say | None = None,
) -> list[Score]:
    """Grade an evaluation's finished benchmarks again, replace their stored grades, and return the new scores.

    Answers are compared with the golds that are stored with the samples.

    Args:
        folder: the evaluation's folder.
        benchmarks: grade only these, by the definitions given here. None: grade all by their stored definitions.
        extractor: replaces the benchmarks' own extractors; None: each keeps its own.
        tolerance: replaces the benchmarks' own tolerances; None: each keeps its own.
        say: is called with sentences on what has changed.
        report: is called with sentences on the judge's progress; None: progress is not reported.

    Raises:
        UserError: the folder holds no evaluation, a named benchmark was never begun, or none is finished.
    """
    store = EvaluationStore(folder)
    # Raises if this is no evaluation, before the lock leaves a file in somebody else's folder.
    store.record()
    with store.locked(make=False):
        record = store.record()
        stored = [task.definition for task in record.benchmarks.values()]
        wanted = read_by(extractor, stored if benchmarks is None else benchmarks, tolerance)
        chosen = {benchmark.name: benchmark for benchmark in wanted}
        done = _done(store, record, chosen)
        before = {name: store.generations(name) for name in done}
        counted: Counter[Verdict] = Counter()
        with Judge(ledger=folder / GIVEN_UP, report=report) as judge:
            after = {
                name: grade(benchmark, before[name], judge, counted)
                for name, benchmark in done.items()
            }
        # Write everything only after the slow grading: a kill must not leave a definition beside grades of another.
        record = record.graded_by(done)
        store.write_record(record)
        for name, samples in after.items():
            store.replace(name, samples)
        scores = store.rescore(record)
    old, new = chain.from_iterable(before.values()), chain.from_iterable(after.values())
    pairs = list(zip(old, new, strict=True))
    unfinished = [name for name in chosen if name not in done]
    say(f"{folder}: {_summary(pairs, unfinished)}")
    for sentence in _changes(pairs, unscorable(counted)):
        say(f"  {sentence}")
    return [scores[name] for name in done]


def _summary(
    pairs: Sequence[tuple[Generation, Generation]], unfinished: Sequence[str]
) -> str:
    """Say how many samples were graded again, how many grades changed, and which benchmarks are unfinished.

    Args:
        pairs: each sample before and after it was graded again.
        unfinished: names of benchmarks that were not graded again, because they lack samples.
    """
    changed = sum(old.is_correct != new.is_correct for old, new in pairs)
    left_out = f"; not done yet: {', '.join(unfinished)}" if unfinished else ""
    return f"{len(pairs):,} samples graded again, {changed:,} grades changed{left_out}"


def _done(
    store: EvaluationStore, record: EvaluationRecord, chosen: Mapping[str, Benchmark]
) -> dict[str, Benchmark]:
    """Return those entries of `chosen` whose benchmark is finished: all its samples are stored.

    Args:
        store: the evaluation's files.
        record: the content of evaluation.json.
        chosen: benchmark name -> benchmark, with the definition to grade by.

    Raises:
        UserError: a chosen benchmark was never begun, or none is finished.
    """
    if unknown := ", ".join(name for name in chosen if name not in record.benchmarks):
        raise UserError(
            f"{store.folder} has no generations of {unknown}",
            f"it has {', '.join(record.benchmarks)}",
        )
    done = {name: chosen[name] for name in store.finished(record) if name in chosen}
    if not done:
        raise UserError(
            f"{store.folder}: no benchmark is done yet",
            "the command that began it continues",
        )
    return done


def _changes(
    pairs: Sequence[tuple[Generation, Generation]], unscored: str
) -> Iterator[str]:
    """Yield sentences that tell the user what the new grading found.

    They cover three things:

    - how many answers could not be scored, and why;
    - a better extractor, if more than half of the samples have no answer and another extractor reads most of these;
    - up to ten samples whose grade became right, and up to ten whose grade became wrong.

    Args:
        pairs: each sample before and after it was graded again.
        unscored: how many answers could not be scored and why; empty if all could be scored.
    """
    if unscored:
        yield f"not scored, and counted as wrong: {unscored}"
    unread = [new.response for _, new in pairs if new.answer is None]
    if 2 * len(unread) > len(pairs) and (proposal := reading_more(unread[:_READ])):
        yield proposal
    for is_right, verdict in ((True, "right"), (False, "wrong")):
        rows = [
            new
            for old, new in pairs
            if (old.is_correct, new.is_correct) == (not is_right, is_right)
        ]
        for row in rows[:_SHOWN]:
            where = f"{row.benchmark}, problem {row.problem_id}, sample {row.sample}"
            yield f"now {verdict}: {row.answer} for {row.gold} ({where})"
        if len(rows) > _SHOWN:
            yield f"… and {len(rows) - _SHOWN:,} more that are now {verdict}"


def grade_again(
    request: EvaluationRequest, place: Path, say: Say, report: Say | None = None
) -> Answer:
    """Grade the stored evaluations at a path again, and return the output of `olr regrade`.

    The new grades replace the stored ones or, with verified keys (checked golds), go into a copy of each evaluation.

    Args:
        request: the command's options. They name the benchmarks, extractor and tolerance to grade with, or a file of
            verified keys. `compare` names scores to show beside the new ones: a path, or ``paper``.
        place: an evaluation, a run, or a folder of evaluations.
        say: is called with sentences on changed grades, and on evaluations that are left out.
        report: is called with sentences on the judge's progress; None: progress is not reported.
    """
    found = evaluations_at(place)
    # If no evaluation has a finished benchmark, keep all: regrading the first then raises the error.
    stored = [target for target in found if target.store.finished()] or found
    for target in found:
        if target not in stored:
            say(f"{target.folder}: no benchmark is done yet; left out")
    definitions = [
        task.definition
        for target in stored
        for name, task in target.store.record().benchmarks.items()
        if name not in registry()
    ]
    chosen = choose(request.benchmarks, definitions) if request.benchmarks else None
    if request.verified is not None:
        return _under_verified_keys(request, request.verified, stored, chosen, say)
    check_reference(request.compare, stored)
    how = chosen, request.extractor, request.tolerance
    evaluated = [
        (target, regrade(target.folder, *how, say=say, report=report)) for target in stored
    ]
    return scores_answer(evaluated, request.compare)


# ---- under verified keys --------------------------------------------------------------------------------------------


def _under_verified_keys(
    request: EvaluationRequest,
    file: Path,
    stored: Sequence[Target],
    chosen: Sequence[Benchmark] | None,
    say: Say,
) -> Answer:
    """Grade stored evaluations by verified keys, and return the command's output with the new and the old scores.

    Verified keys are golds that people have checked. The new grades are stored in a copy of each evaluation. An
    evaluation is left out if the file has no key for any of its problems, or if its golds are verified keys already.

    Args:
        request: the command's settings, in which `compare`, `extractor` and `tolerance` must be None.
        file: the verified keys.
        stored: the evaluations.
        chosen: score only these benchmarks; None: all.
        say: is called with a sentence for each evaluation that is left out.

    Raises:
        UserError: `compare`, `extractor` or `tolerance` is given, or no evaluation is left.
    """
    for place in ("compare", "extractor", "tolerance"):
        if getattr(request, place) is not None:
            raise UserError(
                "scores under verified keys stand beside those under the old keys, and differ in nothing else",
                "leave it out, and give it to another `olr regrade`, of the folder that this one writes",
                place if request.compare != "paper" else "paper",
            )
    evaluated: list[tuple[Target, Sequence[Score]]] = []
    before = dict[Path, Sequence[Score]]()
    for target in stored:
        # Other benchmarks' evaluations are left out without an error; only the last one may find that none fits.
        is_last = target is stored[-1] and not evaluated
        tasks = _verified_tasks(target, file, chosen, are_needed=is_last)
        if not tasks:
            say(
                f"{target.folder}: {file} verifies no key of it, or did so before; left out"
            )
            continue
        copy, scores, before[copy.folder] = _rekey(target, tasks)
        evaluated.append((copy, scores))
    return scores_answer(evaluated, None, before=before)


def _verified_tasks(
    target: Target, file: Path, chosen: Sequence[Benchmark] | None, *, are_needed: bool
) -> list[Task]:
    """Return an evaluation's finished benchmarks as tasks, with verified keys as golds.

    Verified keys are golds that people have checked. A benchmark is left out if the file has no key for any of its
    problems, or if its golds are verified keys already.

    Args:
        target: the evaluation.
        file: the verified keys.
        chosen: take only these benchmarks; None: all.
        are_needed: raise an error if no benchmark is left.

    Raises:
        UserError: no benchmark is finished; a benchmark's grader, extractor or tolerance has changed since it was
            graded; or `are_needed` is set and no benchmark is left.
    """
    store, record = target.store, target.store.record()
    stored = {name: task.definition for name, task in record.benchmarks.items()}
    # Also refuses an extractor function that only the stored file names: importing it would run a stranger's code.
    named = read_by(None, [*stored.values()] if chosen is None else chosen, None)
    own = []
    for name, benchmark in _done(store, record, {it.name: it for it in named}).items():
        # Unchanged keys keep their old grades, so both have to come from the same grader settings.
        if benchmark.grading != stored[name].grading:
            raise UserError(
                f"{name} is graded otherwise now than in {store.folder}",
                "regrade it before, without verified keys",
                "verified",
            )
        if (task := record.benchmarks[name]).verified is None:
            own.append(stored_task(store, task)[0])
    if are_needed and not own:
        raise UserError(f"{target.folder} is under verified keys already", "name another")
    tasks = with_verified_keys(own, file, are_needed=are_needed)
    return [task for task in tasks if task.verified]


def _rekey(
    target: Target, tasks: Sequence[Task]
) -> tuple[Target, list[Score], list[Score]]:
    """Store a copy of an evaluation that is graded by verified keys (golds that people have checked).

    The copy is a folder inside the evaluation's folder, and the original grades stay as they are. Only samples whose
    gold has changed are graded again.

    Args:
        target: the evaluation.
        tasks: the benchmarks to copy, with verified golds.

    Returns:
        The copy, its scores, and the original's scores. Both lists are in the order of `tasks`. Scores are paired by
        problem id and gold, so `Score.by_problem` of the original's scores has the new golds in its keys.
    """
    store = target.store
    [digest] = {task.verified.digest for task in tasks if task.verified}
    copy = replace(target, folder=target.folder / f"verified-{digest[:8]}")
    # An earlier call with the same file may have stored other benchmarks here.
    there = copy.store.record().benchmarks if is_evaluation(copy.folder) else {}
    benchmarks = there | {task.benchmark.name: task.record() for task in tasks}
    record = store.record().model_copy(update={"benchmarks": benchmarks})
    old, before = {score.benchmark: score for score in store.scores()}, []
    with copy.store.locked(), Judge(ledger=store.folder / GIVEN_UP, keep=False) as judge:
        for task in tasks:
            name = task.benchmark.name
            golds = {problem.prompt_id: problem.gold or "" for problem in task.problems}
            copy.store.replace(
                name, _graded_by(golds, store.generations(name), task, judge)
            )
            # Scores are paired by (id, gold), so the old shares get the new golds.
            by_problem = {
                (key, golds.get(key, gold)): share
                for (key, gold), share in old[name].by_problem.items()
            }
            before.append(replace(old[name], by_problem=by_problem))
        copy.store.write_record(record)
        scores = copy.store.rescore(record)
    return copy, [scores[task.benchmark.name] for task in tasks], before


def _graded_by(
    golds: Mapping[str, str], samples: Sequence[Generation], task: Task, judge: Judge
) -> list[Generation]:
    """Return copies of a benchmark's samples with new golds and the grades that follow from them.

    A sample whose gold stays the same keeps its grade.

    Args:
        golds: problem id -> gold. Samples of problems that are missing here are left out.
        samples: all graded samples of a benchmark.
        task: the benchmark.
        judge: decides whether answers are equivalent.
    """
    kept = [it for it in samples if it.problem_id in golds]
    changed = [
        replace(it, gold=golds[it.problem_id])
        for it in kept
        if it.gold != golds[it.problem_id]
    ]
    graded = {
        (it.problem_id, it.sample): it for it in grade(task.benchmark, changed, judge)
    }
    return [graded.get((it.problem_id, it.sample), it) for it in kept]
