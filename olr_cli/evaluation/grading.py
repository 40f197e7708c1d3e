r"""Which responses are right: mathematics by value (R6 to R8), multiple choice by letter (R20).

Stored responses can be graded again, without a model, after the grader or a benchmark's extractor was mended.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from olr_cli.answers import (
    RULES,
    THINK,
    THINK_END,
    Judge,
    Verdict,
    extract,
    is_thinking,
    reading_more,
    unscorable,
    verdicts,
    vote,
)
from olr_cli.answers.extraction import option_letter
from olr_cli.data.percent import asks_for_percent
from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import Benchmark, choose, read_by, registry
from olr_cli.evaluation.plan import EvaluationRequest, Say
from olr_cli.evaluation.problems import MOST_OPTIONS
from olr_cli.evaluation.results import check_reference, scores_answer
from olr_cli.evaluation.scores import Score
from olr_cli.evaluation.store import EvaluationStore, Generation, evaluations_at
from olr_cli.runs.directory import GIVEN_UP
from olr_cli.tables import Answer


def any_of(golds: Sequence[str]) -> str:
    """The gold of a problem with one right answer, or with several, each of which is enough: then a list in JSON."""
    return golds[0] if len(golds) == 1 else json.dumps(golds, ensure_ascii=False)


def _right_answers(gold: str) -> list[str]:
    """The answers of a gold, as `any_of` writes them."""
    with suppress(ValueError, RecursionError):
        return [str(item) for item in json.loads(gold)] if gold.startswith('["') else [gold]
    return [gold]


def grade(
    benchmark: Benchmark, samples: Sequence[Generation], judge: Judge, counted: Counter[Verdict] | None = None
) -> list[Generation]:
    """The same samples, which are all of some problems, with their answers and grades.

    Verdicts are `counted`, but for multiple choice, where an answer names an option or none.
    """
    samples = [replace(sample, unfinished_thought=_unfinished_thought(sample)) for sample in samples]
    answers = [
        None if sample.unfinished_thought else extract(sample.response, benchmark.extractor)
        for sample in samples
    ]
    pairs = list(zip(samples, answers, strict=True))
    if benchmark.grader == "choice":
        return [_by_letter(sample, answer) for sample, answer in pairs]
    keys = judge.keys(answer for answer in answers if answer is not None)
    golds = [_right_answers(sample.gold) for sample in samples]
    asks = [asks_for_percent(sample.prompt) for sample in samples]
    found = verdicts(golds, answers, judge, benchmark.tolerance, asks)
    if counted is not None:
        counted.update(found)
    answers_of: dict[str, list[str | None]] = {}
    for sample, answer in pairs:
        answers_of.setdefault(sample.problem_id, []).append(answer)
    spellings = {problem_id: vote(answers, keys).spelling for problem_id, answers in answers_of.items()}
    graded = []
    for (sample, answer), verdict in zip(pairs, found, strict=True):
        spelling = None if answer is None else spellings[sample.problem_id][keys[answer]]
        graded.append(replace(sample, answer=answer, answer_class=spelling, is_correct=bool(verdict)))
    return graded


def _unfinished_thought(sample: Generation) -> bool | None:
    """Whether a response ends inside its thinking, which its prompt may have opened; None if it has none."""
    opened = THINK if sample.prompt.rstrip().endswith(THINK) else ""
    text = opened + sample.response
    return is_thinking(text) if THINK in text or THINK_END in text else None


def _by_letter(sample: Generation, answer: str | None) -> Generation:
    options = sample.choices or MOST_OPTIONS  # of a problem that doesn't say how many it has
    golds = _right_answers(sample.gold)
    numbered = all(gold.strip().isdecimal() for gold in golds)
    right = [option_letter(gold, options, numbered=numbered) for gold in golds]
    if None in right:
        raise UserError(
            f"{sample.benchmark}: the gold '{sample.gold}' of problem {sample.problem_id} names none of its {options}"
            " options; fix it in the data"
        )
    letter = answer and option_letter(answer, options, numbered=numbered)
    return replace(sample, answer=answer, answer_class=letter, is_correct=letter in right)


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
            raise UserError(f"{folder}: no benchmark is done yet; the command that began it continues")
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
        rows = [new for old, new in pairs if (old.is_correct, new.is_correct) == (not is_right, is_right)]
        for row in rows[:_SHOWN]:
            where = f"{row.benchmark}, problem {row.problem_id}, sample {row.sample}"
            yield f"now {verdict}: {row.answer} for {row.gold} ({where})"
        if len(rows) > _SHOWN:
            yield f"… and {len(rows) - _SHOWN:,} more that are now {verdict}"


def grade_again(request: EvaluationRequest, place: Path, say: Say, report: Say | None = None) -> Answer:
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
    evaluated = [(target, regrade(target.folder, *how, say=say, report=report)) for target in stored]
    return scores_answer(evaluated, request.compare)
