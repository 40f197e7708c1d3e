r"""Which responses are right: mathematics by value (R6 to R8), multiple choice by letter (R20).

Stored responses can be graded again, without a model, after the grader or a benchmark's extractor was mended.
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
from olr_cli.evaluation.plan import EvaluationRequest, Say
from olr_cli.evaluation.problems import MOST_OPTIONS
from olr_cli.evaluation.record import EvaluationRecord, Generation
from olr_cli.evaluation.results import check_reference, scores_answer
from olr_cli.evaluation.scores import Score
from olr_cli.evaluation.store import EvaluationStore, evaluations_at
from olr_cli.grouping import gathered
from olr_cli.runs.directory import GIVEN_UP
from olr_cli.tables import Answer


def grade(
    benchmark: Benchmark,
    samples: Sequence[Generation],
    judge: Judge,
    counted: Counter[Verdict] | None = None,
) -> list[Generation]:
    """Return the same samples, which are all of some problems, with their answers and grades.

    Verdicts are `counted`, but for multiple choice, where an answer names an option or none.
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
            answer_class=sample.answer
            and votes[sample.problem_id].spelling[grading.keys[sample.answer]],
            is_correct=bool(verdict),
        )
        for sample, verdict in zip(read, verdicts, strict=True)
    ]


def _golds(sample: Generation) -> list[Gold]:
    """The golds of a problem, any of which is right, as its question asks for them."""
    asks = asks_for_percent(sample.prompt)
    return [Gold(gold, asks) for gold in right_answers(sample.gold)]


def _by_letter(sample: Generation) -> Generation:
    """Grade a sample that names one of several options."""
    # Of a problem that doesn't say how many it has
    options = sample.choices or MOST_OPTIONS
    golds = right_answers(sample.gold)
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
"""Responses without an answer that are read in other ways, where most have none."""
_SHOWN = 10
"""Changed grades that are shown of each kind."""


def regrade(
    folder: Path,
    benchmarks: Sequence[Benchmark] | None = None,
    extractor: str | None = None,
    tolerance: float | None = None,
    *,
    say: Say = lambda sentence: None,
    report: Say | None = None,
) -> list[Score]:
    """Grade an evaluation's finished benchmarks again, by the golds that are stored with them; their scores.

    `benchmarks`: only these, as they are defined now; by default all, as they were defined when they were graded.
    `extractor` and `tolerance` take the place of the benchmarks' own. `say` takes what changed.
    """
    store = EvaluationStore(folder)
    store.record()  # or else a lock would be put into a folder of something else
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
        # All at once, after what takes long: a definition must not stand beside grades of another one.
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
    """Return how many samples were graded again, how many grades changed, and what is not done yet."""
    changed = sum(old.is_correct != new.is_correct for old, new in pairs)
    left_out = f"; not done yet: {', '.join(unfinished)}" if unfinished else ""
    return f"{len(pairs):,} samples graded again, {changed:,} grades changed{left_out}"


def _done(
    store: EvaluationStore, record: EvaluationRecord, chosen: Mapping[str, Benchmark]
) -> dict[str, Benchmark]:
    """Return which of the chosen benchmarks are done, of which there must be one; all must have been begun."""
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
    """Yield why samples are not scored, an extractor that reads more where most have no answer, and changed grades."""
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
    """Grade the stored evaluations at a place again, with the request's benchmarks and extractor."""
    found = evaluations_at(place)
    # If none is done, regrading the first raises the error.
    stored = [target for target in found if target.store.finished()] or found
    for target in found:
        if target not in stored:
            say(f"{target.folder}: no benchmark is done yet; left out")
    check_reference(request.compare, stored)
    definitions = [
        task.definition
        for target in stored
        for name, task in target.store.record().benchmarks.items()
        if name not in registry()
    ]
    chosen = choose(request.benchmarks, definitions) if request.benchmarks else None
    how = chosen, request.extractor, request.tolerance
    evaluated = [
        (target, regrade(target.folder, *how, say=say, report=report)) for target in stored
    ]
    return scores_answer(evaluated, request.compare)
