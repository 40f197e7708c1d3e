"""Evaluate a model: sample, grade and store the problems of all benchmarks, and resume an interrupted evaluation.

A sample is a function of its prompt and its own seed, so an interrupted evaluation ends with the same bytes as one
without an interruption (`olr_cli.evaluation.pool`). `olr_cli.evaluation.grading` grades stored samples again.
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
"""Function that loads a model, as a context manager that releases it."""

_LINE_EVERY_SECONDS = 30
"""Time between two lines of progress outside a terminal."""


def evaluate(
    evaluation: Evaluation, progress: Progress, open_model: OpenModel | None = None
) -> list[Score]:
    """Evaluate a model on its benchmarks, or finish an evaluation that an earlier call began.

    All finished samples stay stored if the user interrupts the call or if it fails with a `UserError`.

    Args:
        evaluation: the model, its tasks (benchmarks with their problems), and how samples are drawn.
        progress: shows how many samples are stored.
        open_model: loads the model if samples are missing. None: the backend that the evaluation names loads it.

    Returns:
        One score for each task, in the order of the tasks.
    """
    target, tasks, request = evaluation.target, evaluation.tasks, evaluation.request
    store = target.store
    # Two processes on one evaluation would generate the same samples and mix their parts.
    with store.locked():
        record = store.begin(evaluation.record(), tasks, is_local=target.is_local)
        pool = pool_of(store, tasks, request.seed)
        scored: dict[str, Score] = {}
        if pool:
            total = sum(len(task.problems) * task.samples for task in tasks)
            to_do = sum(len(entry.seeds) for entry in pool)
            progress.start(target.name, total, total - to_do, is_served=target.is_served)
            # Some chat templates write the date. The day of the first call keeps a resumed evaluation's prompts equal.
            chat = replace(request.prompting.chat, day=record.day)
            open_here = partial(request.backend.open, target.model, chat)
            try:
                scored = _sample(
                    evaluation, pool, record, open_model or open_here, progress
                )
            finally:
                progress.stop()
        else:
            # Nothing is left to generate, so no backend is opened. Still refuse other weights or another backend.
            facts = {"name": str(request.backend.name)} if request.backend.name else {}
            if target.is_local:
                facts["model_digest"] = model_digest(target.model)
            store.check_backend(record, facts)
            store.write_record(record)
        for task in tasks:
            # A call that was killed after a benchmark's last problem has left it in parts: merge them now.
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
    """Generate, grade and store the missing samples.

    Args:
        evaluation: the model, its tasks (benchmarks with their problems), and how samples are drawn.
        pool: the problems that lack samples.
        record: the content of evaluation.json so far.
        open_model: loads the model.
        progress: shows warnings, and how many samples are stored.

    Returns:
        The score of each benchmark that this call completes, by the benchmark's name.

    Raises:
        Interrupted: a stop was requested, for example by Ctrl-C. The finished samples are stored.
    """
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
        _raise_if_stopped(stop)
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
                # Only replies show which settings a server refuses, so the facts are not complete before the first one.
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
                _raise_if_stopped(stop)
        # The table already has the share of missing answers, in its column "no answer".
        del recorder.counted[Verdict.NO_ANSWER]
        if reasons := unscorable(recorder.counted):
            progress.say(f"Warning: not scored, and counted as wrong: {reasons}")
    return scores


def _raise_if_stopped(stop: StopRequest) -> None:
    """Raise `Interrupted` if a stop was requested, for example by Ctrl-C."""
    if (interruption := stop.interruption()) is not None:
        raise interruption


class Progress:
    """Progress of an evaluation on standard error: a bar in a terminal, elsewhere a line every 30 seconds.

    The time left is estimated from the mean speed since samples were first stored.
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
            # rich's default looks back 30 s, which is only two parts (`pool.STORED_EVERY`): the estimate would jump.
            speed_estimate_period=float("inf"),
        )

    def start(self, name: str, samples: int, done: int, *, is_served: bool = False) -> None:
        """Print that a model is about to be loaded, or a server asked; prepare the bar without showing it yet.

        Args:
            name: the model's name in tables.
            samples: number of samples in all.
            done: number of samples that an earlier call stored.
            is_served: whether a server has the model; otherwise it is loaded here.
        """
        there = f", {done:,} of them there already" if done else ""
        following = "asking the server" if is_served else "loading the model"
        self.say(f"{name}: {samples:,} samples{there}; {following} …")
        self._bar.add_task("", total=samples, completed=done)

    def generating(self, titles: Sequence[str]) -> None:
        """Show the bar in a terminal; print the titles of the benchmarks elsewhere.

        Call this after the model is loaded.

        Args:
            titles: the titles of the benchmarks that lack samples.
        """
        title = titles[0] if len(titles) == 1 else f"{len(titles)} benchmarks"
        # Not earlier: libraries print while they load a model, and their lines would break the bar.
        self._bar.start()
        self._bar.update(self._bar.task_ids[-1], description=title)
        self._last_line = self._console.get_time()
        if not self._is_live:
            self.say(f"{', '.join(titles)} …")

    def advance(self, samples: int) -> None:
        """Add a number of newly stored samples to the progress.

        Outside a terminal, this prints a line if the last one is more than 30 seconds old or all samples are stored.
        """
        task, now = self._bar.tasks[-1], self._console.get_time()
        self._bar.advance(task.id, samples)
        # A log file has no bar, and it still needs a line when everything is done.
        if not self._is_live and (
            now - self._last_line > _LINE_EVERY_SECONDS or task.finished
        ):
            self._last_line = now
            left = (
                "\N{EN DASH}" if task.time_remaining is None else clock(task.time_remaining)
            )
            self.say(
                f"{task.description}: {task.completed:,.0f} of {task.total:,.0f} samples in all, {left} left"
            )

    def say(self, sentence: str) -> None:
        """Print a sentence on its own line, above the bar if there is one."""
        self._console.print(
            printable(sentence), markup=False, highlight=False, soft_wrap=True
        )

    def stop(self) -> None:
        """Remove the bar at the end of the work on a model, successful or not."""
        self._bar.stop()
        for task in self._bar.task_ids:
            self._bar.remove_task(task)
