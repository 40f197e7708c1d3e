"""The end of a step, the same for both engines.

    store labels and rollouts  →  step metrics  →  held-out accuracy, if due  →  times and speed  →  log
        →  was a stop asked for?  →  checkpoint, if due, best so far or stopped  →  stop

An engine samples, lets the supervisor decide the labels, updates its policy, and calls `StepEnd.complete`. The order
matters after a kill: a step counts once its labels are stored, and --resume continues from the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from olr_cli.engines.reporting import MetricLog
from olr_cli.engines.run import NonFinite, diverged
from olr_cli.errors import UserError
from olr_cli.runs.checkpoints import is_best
from olr_cli.runs.metrics import Metrics, Stopwatch, known, read_metrics
from olr_cli.runs.schedule import Schedule
from olr_cli.runs.writer import RunWriter
from olr_cli.supervision import Decided, step_metrics

Speed = Callable[[Metrics], Mapping[str, float | None]]
"""Computes the speed metrics of a step from its other metrics, which include the seconds of its parts."""


@dataclass(frozen=True)
class StepEnd:
    """Does the work after each computed step: stores and logs it and, if due, evaluates, saves a checkpoint, or stops.

    Each engine that trains makes one for a run.
    """

    writer: RunWriter
    schedule: Schedule
    """Says which steps end with an evaluation or a checkpoint."""

    held_out: Callable[[], Metrics]
    """Measures the policy on the held-out prompts."""

    save: Callable[[int], None]
    """Writes the checkpoint after a step."""

    stop: Callable[[], Exception | None]
    """Returns the exception that ends the run if a stop was asked for, or else None."""

    report: MetricLog | None = None
    """Shows each step's metrics; None if another process reads them from metrics.jsonl."""

    def before_training(self) -> None:
        """Evaluate the starting policy on the held-out prompts, and log the metrics as step 0."""
        with self.stopping_if_diverged(0, failed=0):
            metrics = self.held_out()
        self._log(0, metrics)

    @contextmanager
    def stopping_if_diverged(self, step: int, *, failed: int) -> Iterator[None]:
        """Turn a NonFinite that the block raises into Diverged, which ends the run without keeping `step`.

        `failed` is the last step that updated the policy: `step` if the block runs after the update of `step`, and
        otherwise `step` - 1. If it is `step`, the stored tables of `step` are removed.
        """
        try:
            yield
        except NonFinite as error:
            if failed == step:
                # The step's own update made the policy that is not finite, so its stored tables must go too.
                self.writer.drop_after(step - 1)
            epoch = self.schedule.epoch(step)
            raise diverged(
                self.writer, error, step=step, epoch=epoch, failed=failed
            ) from error

    def complete(
        self,
        step: int,
        decided: Decided,
        clock: Stopwatch,
        measured: Mapping[str, float],
        speed: Speed,
    ) -> None:
        """Store and log a computed step; evaluate, save and stop if that is due.

        Args:
            step: the number of the step, from 1.
            decided: the labels and rollouts of the step.
            clock: has run since the step began.
            measured: metrics of the update.
            speed: computes the metrics of speed from all other metrics, which include the seconds of each part of the
                step.

        Raises:
            Diverged: the policy can no longer answer the held-out prompts.
            Exception: a stop was asked for, and steps are left. It is the exception that `self.stop` returns. A
                checkpoint of this step is saved first.
            UserError: no response was rewarded in the last `train.stop_if_no_reward` steps.
        """
        train = self.writer.recipe.train
        with clock.measure("store"):
            tables = self.writer.store(step, decided.labels, decided.rollouts)
        metrics = {**measured, **step_metrics(*tables, decided.timeouts, decided.undecided)}
        if self.schedule.is_due(step, train.evaluate_every):
            with clock.measure("evaluation"), self.stopping_if_diverged(step, failed=step):
                metrics |= self.held_out()
        metrics |= clock.metrics()
        self._log(step, {**metrics, **speed(metrics)})
        # Ask once: a stop that arrives after this line waits for the next step, so no run stops without a checkpoint.
        stop = self.stop()
        is_due = self.schedule.is_due(step, train.checkpoint_every)
        if is_due or is_best(self.writer.path, step, metrics) or stop is not None:
            self.save(step)
        # Return before raising: a stop during the last step finds a finished run.
        if step == self.schedule.last:
            return
        if stop is not None:
            raise stop
        if train.stop_if_no_reward is not None:
            self._require_reward(train.stop_if_no_reward)

    def _require_reward(self, steps: int) -> None:
        """Raise UserError if the last `steps` steps rewarded no response; a run with fewer steps passes."""
        latest = read_metrics(self.writer.path, "rollout/reward")[-steps:]
        if len(latest) == steps and not any(line["rollout/reward"] for line in latest):
            raise UserError(
                f"no response of the last {steps} steps was rewarded, so the policy learns nothing",
                "look at"
                f" {self.writer.path}/rollouts and at a prompt as the policy sees it (a dry run)",
                "train.stop_if_no_reward",
            )

    def _log(self, step: int, metrics: Mapping[str, float | None]) -> None:
        self.writer.log(step, self.schedule.epoch(step), metrics)
        if self.report is not None:
            self.report(step, known(metrics))
