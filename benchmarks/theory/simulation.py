"""Log-ratio dynamics under noisy labels, simulated: softmax policies coupled by gamma, K rollouts a prompt and step.

The paper's drift gamma (1 - rho) G_c - rho G_n fixes who moves whom: the logits of clean prompts move by their own
mean gradient with weight (1 - rho) and by that of noisy prompts with weight gamma rho; those of noisy prompts the other
way round. That takes every noisy label to push all noisy prompts alike, so that gamma is the coupling of clean prompts
to noisy ones relative to that among noisy ones. KL pulls each prompt's own logits with weight one, as in the paper's
drift, toward the first policy. Answers are coupled by their role: noisy label, true answer, any other. Unlike in the
theorems, G_c and G_n change as the policies do, and rollouts are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.theory import formulas
from benchmarks.theory.formulas import Counts, Numbers, Values
from olr_cli import seeding
from olr_cli.supervision.advantages import STD_EPSILON

NOISY, TRUE = 0, 1
"""Roles of answers, others follow. A vote that is tied goes to the first: never in favour of the true answer."""

_CLEAN_PROMPTS, _NOISY_PROMPTS = 0, 1


@dataclass(frozen=True)
class Refinement:
    """OLR in the simulation, where a step is one visit of every prompt.

    Attributes:
        warmup: steps before labels may change.
        slope: delta, of the majority's pass rate a step.
    """

    warmup: int = 10
    slope: float = 0.0


@dataclass(frozen=True)
class Simulation:
    """What all cells of a simulation have in common; letters as in `formulas`.

    Attributes:
        true: p_0(y*), of every prompt.
        noisy: p_0 of the answer that is the label of noisy prompts, of every prompt.
        others: other answers, which share the rest.
        prompts: of each kind.
        runs: independent ones in a cell.
        early: steps after which `Outcome.rises` is read.
        normalised: advantages are divided by the group's standard deviation, as GRPO does.
        refinement: OLR; None for labels as given.
    """

    true: float = 0.4
    noisy: float = 0.25
    others: int = 2
    prompts: int = 4
    runs: int = 4
    early: int = 5
    steps: int = 100
    learning_rate: float = 0.5
    beta: float = 0.0
    normalised: bool = True
    refinement: Refinement | None = None

    @property
    def start(self) -> Numbers:
        """Probabilities of the answers by role, shape (answers,)."""
        rest = (1 - self.true - self.noisy) / self.others
        return np.array([self.noisy, self.true, *[rest] * self.others])

    @property
    def reference(self) -> float:
        """Delta_ref, and L_0."""
        return float(np.log(self.true / self.noisy))

    def magnitudes(self, rollouts: Counts | None = None) -> tuple[Numbers, Numbers]:
        """G_c and G_n at the start."""
        magnitude = partial(
            formulas.advantage_magnitude, rollouts=rollouts, normalised=self.normalised
        )
        return magnitude(self.true, self.noisy), magnitude(self.noisy, self.true)


@dataclass(frozen=True)
class Outcome:
    """Where the runs of each cell end; all of the cells' shape.

    Attributes:
        coherent: share of runs in which the most likely answer to noisy prompts is the true one.
        rises: share of runs in which L of noisy prompts is above L_0 after the early steps.
        log_ratio: L of noisy prompts at the end, mean over runs.
        replaced: Delta: share of noisy prompts whose label was another one than given, mean over the steps after
            warm-up; 0 without refinement.
    """

    coherent: Numbers
    rises: Numbers
    log_ratio: Numbers
    replaced: Numbers


def simulate(
    setting: Simulation, ratio: Values, coupling: Values, rollouts: Counts, seed: int
) -> Outcome:
    """Run all cells at once: rho, gamma and K of each, in shapes that fit each other."""
    rho, gamma, k = np.broadcast_arrays(
        np.asarray(ratio, float), np.asarray(coupling, float), rollouts
    )
    shape, rho, gamma, k = rho.shape, rho.ravel(), gamma.ravel(), k.ravel()
    generator = np.random.default_rng(seeding.key("theory", seed))
    start = np.log(setting.start)
    # Prompts of a kind begin alike and move alike, so they share their logits: (kind, cell, run, answer).
    logits = np.broadcast_to(start, (2, rho.size, setting.runs, len(start))).copy()
    votes = _Votes(setting, setting.refinement, rho.size) if setting.refinement else None
    labels = np.empty((2, rho.size, setting.runs, setting.prompts), dtype=np.int64)
    given = np.array([TRUE, NOISY])[:, None, None, None]
    # How prompts of kind j move those of kind i: shape (i, j, cell).
    weights = np.array([[1 - rho, gamma * rho], [gamma * (1 - rho), rho]])
    replaced, rises = np.zeros(rho.size), np.zeros(rho.size)
    for step in range(1, setting.steps + 1):
        log_p = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        shares = _shares(generator, np.exp(log_p), k, setting.prompts)
        labels[:] = given
        if votes is not None:
            votes.see(shares)
            votes.refine(labels)
            replaced += (labels[_NOISY_PROMPTS] != NOISY).mean(axis=(1, 2))
        push = _push(shares, labels, normalised=setting.normalised).mean(axis=3)
        moved = np.einsum("ijc,jcra->icra", weights, push)
        logits += setting.learning_rate * (moved - setting.beta * (log_p - start))
        if step == setting.early:
            rises = (_log_ratio(logits) > setting.reference).mean(axis=-1)
    counted = setting.steps - (setting.refinement.warmup if setting.refinement else 0)
    return Outcome(
        (logits[_NOISY_PROMPTS].argmax(axis=-1) == TRUE).mean(axis=-1).reshape(shape),
        rises.reshape(shape),
        _log_ratio(logits).mean(axis=-1).reshape(shape),
        (replaced / max(counted, 1)).reshape(shape),
    )


def _log_ratio(logits: Numbers) -> Numbers:
    """L of noisy prompts, shape (cell, run)."""
    return np.asarray(
        logits[_NOISY_PROMPTS, ..., TRUE] - logits[_NOISY_PROMPTS, ..., NOISY]
    )


def _shares(
    generator: np.random.Generator, p: Numbers, rollouts: NDArray[np.int64], prompts: int
) -> Numbers:
    """Each answer's share of K rollouts, shape (kind, cell, run, prompt, answer)."""
    repeated, k = np.repeat(p[:, :, :, None], prompts, axis=3), rollouts[:, None, None]
    return np.asarray(generator.multinomial(k, repeated) / k[..., None])


def _push(shares: Numbers, labels: NDArray[np.int64], *, normalised: bool) -> Numbers:
    """The policy gradient's mean over the group, on each answer's logit: shape as `shares`.

    The advantages of a group sum to 0, which leaves an answer's share times its advantage.
    """
    hit = np.take_along_axis(shares, labels[..., None], axis=-1)
    push = -shares * hit
    np.put_along_axis(push, labels[..., None], hit * (1 - hit), axis=-1)
    return push / (np.sqrt(hit * (1 - hit)) + STD_EPSILON) if normalised else push


class _Votes:
    """OLR's memory of each prompt: sums for the slope, and how often each answer was the majority."""

    def __init__(self, setting: Simulation, rule: Refinement, cells: int) -> None:
        self._rule = rule
        shape = (2, cells, setting.runs, setting.prompts)
        self._visits = 0
        self._majority = np.zeros(shape, dtype=np.int64)
        self._rate, self._rate_by_visit = np.zeros(shape), np.zeros(shape)
        self._wins = np.zeros((*shape, setting.others + 2))

    def see(self, shares: Numbers) -> None:
        self._visits += 1
        self._majority = shares.argmax(axis=-1)
        rate = shares.max(axis=-1)
        self._rate += rate
        self._rate_by_visit += self._visits * rate
        won = np.take_along_axis(self._wins, self._majority[..., None], axis=-1)
        np.put_along_axis(self._wins, self._majority[..., None], won + 1, axis=-1)

    def refine(self, labels: NDArray[np.int64]) -> None:
        """Put in the majority answers that meet both criteria (Eqs. slope, hist_consistency, effective_label)."""
        t = self._visits
        if t <= self._rule.warmup or t < 2:
            return
        slope = (self._rate_by_visit - (t + 1) / 2 * self._rate) / (t * (t * t - 1) / 12)
        trusted = (slope > self._rule.slope) & (
            self._wins.argmax(axis=-1) == self._majority
        )
        np.copyto(labels, self._majority, where=trusted)
