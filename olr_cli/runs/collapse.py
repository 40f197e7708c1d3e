"""Signs that the policy collapses, read from the lines of metrics.jsonl while the run goes on.

| sign | seen in | needs the truth |
|---|---|---|
| it always says the same | `policy/entropy` | no |
| it has left the starting policy | `policy/entropy` + `policy/kl`, with a KL term | no |
| responses grow or shrink | `rollout/length` | no |
| responses are cut off, or have no answer | `rollout/truncated`, `rollout/missing_answers` | no |
| accuracy falls | `eval/avg`, `majority/accuracy` | yes |

A good run also ends with little entropy, groups of equal rewards and, at times, long responses. Where the truth is
known, the first sign is not said of a policy that is right nearly every time, and the next three not of one that is
right more often than at the start; where it is not known, the sentence leaves that open. Collapse need not look like a
lack of entropy: trained on its own certainty, the built-in policy goes from 42 % to 2 % held-out accuracy with more
entropy than before, while KL grows to seven times the entropy at the start.

The thresholds were set on some 200 runs of the built-in policies. "Good runs" below are the 190 of them at ordinary
learning rates, most of 50 steps, that ended with a held-out accuracy more than 10 points above that at the start.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import islice

from olr_cli.recipe.schema import Recipe
from olr_cli.runs.metrics import Metrics
from olr_cli.runs.schedule import Schedule
from olr_cli.supervision.rewards import SCORES

STEADY_STEPS = 3
"""What counts as the start, and as lasting: one bad update in a run that became good had 2.3 times the usual cross
entropy."""

LOW_ENTROPY = 0.05
"""Share of the entropy at the start. Good runs of 50 steps kept 0.23; longer or faster ones get here by being right."""

MULTIPLE = 2.0
"""Of the start's value, which is too much: for a length, and for the cross entropy of the responses under the starting
policy, as a multiple of that policy's own entropy. Good runs kept their lengths within 0.96 and 1.09 and stayed below
1.26 in cross entropy: what they say, the starting policy says too, only less often. Trained on its own certainty or
token entropy, the policy passed 2 at step 15 of 50, half of its majority accuracy gone, and reached 6.5 and more."""

MOST = 0.5
"""Share of truncated responses, or of responses without an answer, that was not there at the start."""

ALL_RIGHT = 0.9
"""Share of right majority answers of a policy that says the same every time because it can do the task."""

ACCURACY_VISITS = 400
"""Least prompt visits over which majority accuracy is averaged, in whole epochs: every step has other prompts, and the
best of many means of a part of them is too good."""

HELD_OUT_FALL, MAJORITY_FALL, FALL_ERRORS = 0.05, 0.1, 4.0
"""Least fall of an accuracy from its best, and in standard errors, as there is a best of many. In good runs held-out
accuracy fell by 0.03 or 1.1 standard errors, that of the majority on training prompts by 0.085 or 3.3."""


class CollapseWatch:
    """Reads a run's metrics, step by step, and reports each sign of collapse once.

    Args:
        recipe: of the run.
        prompts: number of training prompts.
        seen: the lines of metrics.jsonl when a run is resumed: they have its start, and their signs were reported.
    """

    def __init__(self, recipe: Recipe, prompts: int, seen: Sequence[Metrics] = ()) -> None:
        per_epoch = Schedule.of(recipe, prompts).per_epoch
        epochs = -(-max(ACCURACY_VISITS, STEADY_STEPS * prompts // per_epoch) // prompts)
        self._window, self._visits = epochs * per_epoch, epochs * prompts
        self._advice = (
            "stop with Ctrl-C and look at the responses in rollouts/; a lower train.learning_rate may help"
        )
        if recipe.method.name in SCORES:
            self._advice += f"; the paper reports collapse of {recipe.method.name}"
        self._first: list[Metrics] = []
        self._recent: deque[Metrics] = deque(maxlen=max(self._window, STEADY_STEPS))
        self._held_out: Metrics | None = None
        self._best_held_out: Metrics | None = None
        self._best = 0.0  # majority accuracy
        self._reported: set[str] = set()
        for metrics in seen:
            self.signs(metrics)

    def look(self, metrics: Metrics) -> list[str]:
        """Take a step's metrics, step 0 included; a warning, with advice, for each sign that was not there before."""
        return [f"Warning: {sign}: {self._advice}" for sign in self.signs(metrics)]

    def signs(self, metrics: Metrics) -> list[str]:
        """Take a step's metrics, step 0 included; each sign that was not there before, in half a sentence."""
        if "rollout/length" in metrics:
            self._recent.append(metrics)
            if len(self._first) < STEADY_STEPS:
                self._first.append(metrics)
        if metrics.keys() >= {"eval/avg", "eval/avg_stderr"}:
            best = self._best_held_out
            if best is None or metrics["eval/avg"] > best["eval/avg"]:
                self._best_held_out = metrics
            self._held_out = metrics
        signs = {
            "same": self._same_every_time(),
            "foreign": self._unless_better(self._foreign()),
            "length": self._unless_better(self._length()),
            "truncated": self._unless_better(self._mostly("truncated", "are cut off")),
            "missing": self._unless_better(self._mostly("missing_answers", "have no answer")),
            "accuracy": self._accuracy_fell(),
        }
        new = {kind: sign for kind, sign in signs.items() if sign is not None and kind not in self._reported}
        self._reported |= new.keys()
        return list(new.values())

    def _same_every_time(self) -> str | None:
        start, now = self._then_and_now("policy/entropy")
        if not now or start == 0 or max(now) > LOW_ENTROPY * start:
            return None
        shown = f"the policy says nearly the same every time (entropy {now[-1]:.2g} nats, {start:.2g} at the start)"
        right = self._last("majority/accuracy")
        if not right:
            return f"{shown}; if it is not right every time, it has collapsed"
        if _mean(right) >= ALL_RIGHT:
            return None
        return f"{shown}, but is right on {_mean(right):.0%} of the prompts only"

    def _foreign(self) -> str | None:
        """Cross entropy H(policy, starting policy) = H(policy) + KL(policy || starting policy), a token."""
        start, entropy = self._then_and_now("policy/entropy")
        now = [h + kl for h, kl in zip(entropy, self._last("policy/kl"), strict=False)]
        if not now or min(now) <= MULTIPLE * start:
            return None
        return (
            "the policy has left the starting policy, under which a token of its responses now has a mean negative"
            f" log-likelihood of {now[-1]:.2f} nats ({start:.2f} at the start)"
        )

    def _length(self) -> str | None:
        start, now = self._then_and_now("rollout/length")
        if not now or (max(now) > start / MULTIPLE and min(now) < start * MULTIPLE):
            return None
        return f"the mean response has {now[-1]:,.0f} tokens ({start:,.0f} at the start)"

    def _mostly(self, name: str, what: str) -> str | None:
        start, now = self._then_and_now(f"rollout/{name}")
        if not now or start > MOST or min(now) <= MOST:
            return None
        return f"{now[-1]:.0%} of the responses {what} ({start:.0%} at the start)"

    def _unless_better(self, sign: str | None) -> str | None:
        """A sign of collapse with what is known about accuracy, unless that rose."""
        if sign is None:
            return None
        before, right = self._then_and_now("majority/accuracy")
        if not right:
            return f"{sign}; if its answers are not better than at the start, the policy has collapsed"
        if _mean(right) > before:
            return None
        share = f"{_mean(right):.0%} of the prompts ({before:.0%} at the start)"
        return f"{sign}, and the majority answer is right on {share}"

    def _accuracy_fell(self) -> str | None:
        now, best = self._held_out, self._best_held_out
        if now is not None and best is not None:
            error = max(now["eval/avg_stderr"], best["eval/avg_stderr"])
            if best["eval/avg"] - now["eval/avg"] > max(HELD_OUT_FALL, FALL_ERRORS * error):
                return f"held-out accuracy fell to {now['eval/avg']:.0%} ({best['eval/avg']:.0%} at its best)"
        right = self._last("majority/accuracy", self._window)
        if not right:
            return None
        mean = _mean(right)
        self._best = max(self._best, mean)
        variance = self._best * (1 - self._best) + mean * (1 - mean)
        error = math.sqrt(variance / self._visits)
        if self._best - mean <= max(MAJORITY_FALL, FALL_ERRORS * error):
            return None
        return f"the majority answer is right on {mean:.0%} of the prompts ({self._best:.0%} at its best)"

    def _then_and_now(self, name: str) -> tuple[float, list[float]]:
        """The mean over the first steps, and the values of the last; no values where either is not known."""
        first = [line[name] for line in self._first if name in line]
        return (_mean(first), self._last(name)) if first else (0.0, [])

    def _last(self, name: str, steps: int = STEADY_STEPS) -> list[float]:
        """The values of the last steps; none before there are enough, or where one of them has none."""
        recent = islice(self._recent, max(len(self._recent) - steps, 0), None)
        values = [line[name] for line in recent if name in line]
        return values if len(values) == steps else []


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
