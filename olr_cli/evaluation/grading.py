r"""Which responses are right: mathematics by value (R6 to R8), multiple choice by letter (R20).

Stored responses can be graded again, without a model, after the grader or a benchmark's extractor was mended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from olr_cli.answers import (
    RULES,
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
from olr_cli.evaluation.results import check_reference, scores_answer
from olr_cli.evaluation.scores import Score
from olr_cli.evaluation.store import EvaluationStore, Generation, evaluations_at
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
        return [_by_letter(sample) for sample in read]
    golds = [_golds(sample) for sample in read]
    # The numbers of each problem's samples.
    problems = gathered((sample.problem_id, number) for number, sample in enumerate(read))
    of_all = problems.values()
    grading = Grading(
        [[read[n].answer for n in numbers] for numbers in of_all], judge, benchmark.tolerance
    )
    grading.ask([[gold for n in numbers for gold in golds[n]] for numbers in of_all])
    votes = dict(zip(problems, grading.votes(), strict=True))
    found = [
        grading.verdict(of_one, sample.answer)
        for of_one, sample in zip(golds, read, strict=True)
    ]
    if counted is not None:
        counted.update(found)
    return [
        replace(
            sample,
            answer_class=sample.answer
            and votes[sample.problem_id].spelling[grading.keys[sample.answer]],
            is_correct=bool(verdict),
        )
        for sample, verdict in zip(read, found, strict=True)
    ]


def _golds(sample: Generation) -> list[Gold]:
    """The golds of a problem, any of which is right, as its question asks for them."""
    asks = asks_for_percent(sample.prompt)
    return [Gold(gold, asks) for gold in right_answers(sample.gold)]


def _by_letter(sample: Generation) -> Generation:
    """Grade a sample that names one of several options."""
    options = sample.choices or MOST_OPTIONS  # of a problem that doesn't say how many it has
    golds = right_answers(sample.gold)
    numbered = all(gold.strip().isdecimal() for gold in golds)
    right = [option_letter(gold, options, numbered=numbered) for gold in golds]
    if None in right or not right:
        raise UserError(
            f"{sample.benchmark}: the gold '{sample.gold}' of problem {sample.problem_id} names none of its {options}"
            " options; fix it in the data"
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
        if unknown := ", ".join(name for name in chosen if name not in record.benchmarks):
            raise UserError(
                f"{folder} has no generations of {unknown}; it has {', '.join(record.benchmarks)}"
            )
        done = [name for name in store.finished() if name in chosen]
        if not done:
            raise UserError(
                f"{folder}: no benchmark is done yet; the command that began it continues"
            )
        before = {name: store.generations(name) for name in done}
        ledger = folder / GIVEN_UP
        if record.old_grades:
            ledger.unlink(missing_ok=True)  # other rules may be quicker
        counted: Counter[Verdict] = Counter()
        with Judge(ledger=ledger, report=report) as judge:
            after = {name: grade(chosen[name], before[name], judge, counted) for name in done}
        # All at once, after what takes long: a definition must not stand beside grades of another one.
        for name in done:
            update: dict[str, object] = {"definition": chosen[name], "answer_rules": RULES}
            record.benchmarks[name] = record.benchmarks[name].model_copy(update=update)
        store.write_record(record)
        for name in done:
            store.replace(name, after[name])
        scores = store.rescore()
    pairs = [pair for name in done for pair in zip(before[name], after[name], strict=True)]
    changed = sum(old.is_correct != new.is_correct for old, new in pairs)
    unfinished = ", ".join(name for name in chosen if name not in done)
    left_out = f"; not done yet: {unfinished}" if unfinished else ""
    say(f"{folder}: {len(pairs):,} samples graded again, {changed:,} grades changed{left_out}")
    if reasons := unscorable(counted):
        say(f"  not scored, and counted as wrong: {reasons}")
    for sentence in _changes(pairs):
        say(f"  {sentence}")
    return [scores[name] for name in done]


def _changes(pairs: Sequence[tuple[Generation, Generation]]) -> Iterator[str]:
    """An extractor that reads more where most samples have no answer, and the first changed grades."""
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
