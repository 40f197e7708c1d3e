"""Evaluate a model: sample, grade and store the problems of all benchmarks; go on where an earlier call stopped.

A sample is a function of its prompt and its own seed, so an evaluation that was interrupted ends with the same bytes
(`olr_cli.evaluation.pool`). `olr_cli.evaluation.grading` grades and scores again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from olr_cli.answers import Judge, Verdict, unscorable
from olr_cli.engines.backends.backend import Backend
from olr_cli.engines.digests import model_digest
from olr_cli.engines.prompt_text import no_template
from olr_cli.errors import printable
from olr_cli.evaluation.plan import Evaluation
from olr_cli.evaluation.pool import PooledProblem, Recorder, pool_of
from olr_cli.evaluation.record import EvaluationRecord, Task
from olr_cli.evaluation.scores import Score
from olr_cli.runs.directory import GIVEN_UP
from olr_cli.runs.interrupts import StopRequest, stop_requests
from olr_cli.runs.progress import clock

if TYPE_CHECKING:
    from rich.console import Console

OpenModel = Callable[[], AbstractContextManager[Backend]]
"""Loads a model."""

_LINE_EVERY_SECONDS = 30


def evaluate(
    evaluation: Evaluation, progress: Progress, open_model: OpenModel | None = None
) -> list[Score]:
    """Evaluate a model, or finish an evaluation that an earlier call began; a score for each task.

    `open_model` takes the place of the request's backend; it is called only if something is left to generate.
    After an error that the user can mend, and an interrupt, what is done is stored.
    """
    target, tasks, request = evaluation.target, evaluation.tasks, evaluation.request
    store = target.store
    with store.locked():
        record = store.begin(evaluation.record(), tasks, is_local=target.is_local)
        pool = pool_of(store, tasks, request.seed)
        scored: dict[str, Score] = {}
        if pool:
            total = sum(len(task.problems) * task.samples for task in tasks)
            to_do = sum(len(entry.seeds) for entry in pool)
            progress.start(target.name, total, total - to_do, is_served=target.is_served)
            chat = replace(request.prompting.chat, day=record.day)
            open_here = partial(request.backend.open, target.model, chat)
            try:
                scored = _sample(
                    evaluation, pool, record, open_model or open_here, progress
                )
            finally:
                progress.stop()
        else:
            facts = {"name": str(request.backend.name)} if request.backend.name else {}
            if target.is_local:
                facts["model_digest"] = model_digest(target.model)
            store.check_backend(record, facts)
            store.write_record(record)
        for task in tasks:
            # What was killed after its last problem is in parts still.
            if task.benchmark.name not in scored:
                scored[task.benchmark.name] = store.finish(task)
        scores = store.rescore(store.record(), scored)
    return [scores[task.benchmark.name] for task in tasks]


def _sample(
    evaluation: Evaluation,
    pool: Sequence[PooledProblem],
    record: EvaluationRecord,
    open_model: OpenModel,
    progress: Progress,
) -> dict[str, Score]:
    """Generate, grade and store the missing samples; return the scores of the benchmarks that become complete."""
    store, request = evaluation.target.store, evaluation.request
    scores: dict[str, Score] = {}

    def finish(task: Task) -> None:
        score = scores[task.benchmark.name] = store.finish(task)
        if len(evaluation.tasks) > 1:
            progress.say(f"{score.title}: {100 * score.avg:.1f}%")

    waiting = "Stopping when the finished samples are stored; Ctrl-C again stops at once."
    with (
        stop_requests(lambda: progress.say(waiting)) as stop,
        open_model() as backend,
        Judge(ledger=store.folder / GIVEN_UP) as judge,
    ):
        _heed(stop)
        for note in backend.notes:
            progress.say(f"Warning: {note}")
        if not backend.has_chat_template and request.prompting.chat.template is None:
            progress.say(f"Warning: {no_template(evaluation.target.model)}")
        store.check_backend(record, backend.facts)
        progress.generating(
            list(dict.fromkeys(entry.task.benchmark.title for entry in pool))
        )
        prompts = backend.render([entry.problem.messages for entry in pool])
        requests = list(map(PooledProblem.request, pool, prompts))
        with (
            Recorder(
                store, record, backend.facts, pool, judge, progress.advance, finish
            ) as recorder,
            closing(backend.stream(requests, request.sampling)) as stream,
        ):
            refused: Collection[str] = ()
            for finished in stream:
                if (
                    finished
                    and not refused
                    and (refused := backend.facts.get("sampling", ()))
                ):
                    progress.say(
                        f"Note: the server refuses {', '.join(refused)}, and samples by its own defaults there"
                    )
                recorder.add(
                    (pool[number], [*pool[number].generations(prompts[number], rollouts)])
                    for number, rollouts in finished.items()
                )
                _heed(stop)
        del recorder.counted[Verdict.NO_ANSWER]  # the table has their share
        if reasons := unscorable(recorder.counted):
            progress.say(f"Warning: not scored, and counted as wrong: {reasons}")
    return scores


def _heed(stop: StopRequest) -> None:
    if (interruption := stop.interruption()) is not None:
        raise interruption


class Progress:
    """How far an evaluation is, on standard error: a bar in a terminal; elsewhere lines, one each half minute.

    The time left is at the pace since the first samples were stored, whose time may include the start of an engine.
    """

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress as Bar,
            TextColumn,
            TimeRemainingColumn,
        )

        self._console = console or Console(stderr=True)
        self._is_live = self._console.is_interactive
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("samples, left"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._is_live,
            speed_estimate_period=float("inf"),
        )

    def start(self, name: str, samples: int, done: int, *, is_served: bool = False) -> None:
        """`done` of a model's samples are stored already; the model is loaded next, unless a server has it."""
        there = f", {done:,} of them there already" if done else ""
        following = "asking the server" if is_served else "loading the model"
        self.say(f"{name}: {samples:,} samples{there}; {following} …")
        self._bar.add_task("", total=samples, completed=done)

    def generating(self, titles: Sequence[str]) -> None:
        """The model is loaded, and samples of the benchmarks with these titles are generated from now on."""
        title = titles[0] if len(titles) == 1 else f"{len(titles)} benchmarks"
        self._bar.start()  # not before: loading the model may have much to say
        self._bar.update(self._bar.task_ids[-1], description=title)
        self._said = self._console.get_time()
        if not self._is_live:
            self.say(f"{', '.join(titles)} …")

    def advance(self, samples: int) -> None:
        """More samples are stored."""
        task, now = self._bar.tasks[-1], self._console.get_time()
        self._bar.advance(task.id, samples)
        if not self._is_live and (now - self._said > _LINE_EVERY_SECONDS or task.finished):
            self._said = now
            left = (
                "\N{EN DASH}" if task.time_remaining is None else clock(task.time_remaining)
            )
            self.say(
                f"{task.description}: {task.completed:,.0f} of {task.total:,.0f} samples in all, {left} left"
            )

    def say(self, sentence: str) -> None:
        """A line of its own."""
        self._console.print(
            printable(sentence), markup=False, highlight=False, soft_wrap=True
        )

    def stop(self) -> None:
        """The work on a model ended, however."""
        self._bar.stop()
        for task in self._bar.task_ids:
            self._bar.remove_task(task)
