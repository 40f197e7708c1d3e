"""What the paper's theory assumes, measured in the policies of stored runs: coupling, log-ratio, Delta_p, rho_c.

Takes runs of a built-in policy under active noise with a checkpoint an epoch (`train.keep_checkpoints`). Everything is
computed at the policy before training and at checkpoints, with nothing sampled where it says exact:

    L           exact: mean over noisy prompts of log p(y*) - log p(label), the label being the first visit's
    coupling    gradients of log p(y*), prompt by prompt: gamma as printed, normalised, and the mean cosine
    push        what the gradient of the surrogate does to L, that of the clean and that of the noisy prompts, a mean
                prompt each; from sampled groups, with noisy labels drawn as in training. Both have one unit, so that
                rho_c is where they cancel, without coupling, magnitudes or assumptions on who moves whom
    Adam        the same pushes through the diagonal that the optimiser's stored state divides gradients by
    errors      how often a majority of K new rollouts is wrong, by exact Delta_p, beside the bounds

The observed rho_c is where the change of exact L reaches 0 over runs at several noise ratios.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from benchmarks.theory import formulas
from benchmarks.theory.policy_tables import (
    print_critical,
    print_errors,
    print_log_ratios,
    print_policies,
)
from benchmarks.theory.simulation import Simulation, simulate
from benchmarks.theory.table import crossing
from olr_cli import seeding
from olr_cli.answers.extraction import reversed_digits
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.prompts import Prompt
from olr_cli.data.sets import noise_draw, training_prompts
from olr_cli.engines.local.engine import encode_prompts, load_policy
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.local.sampler import SampledRollouts, sample
from olr_cli.engines.local.token_statistics import response_statistics
from olr_cli.engines.run import ADAM_BETAS
from olr_cli.recipe.sampling import Sampling
from olr_cli.recipe.sections import NoiseDraw
from olr_cli.runs.checkpoints import checkpoint_path, checkpoint_steps
from olr_cli.runs.stored import Run
from olr_cli.supervision.advantages import group_advantages

MOST_DIGITS = 4
"""Of an answer; the recipes leave room for these and the end token. Longer ones, which are rare, are left out."""
AT_ONCE = 512
"""Prompts and answers of one forward pass."""
PROMPTS_AT_ONCE = 32
"""Of one backward pass through all their groups."""


@dataclass
class Subject:
    """A policy of a run: at its start or at a checkpoint.

    Attributes:
        run: the run.
        epoch: after how many; 0 before training.
        policy: as it is then.
        prompts: of the training set.
        token_ids: theirs.
        noisy: rows of the marked prompts that had a label at their first visit.
        clean: rows of the clean prompts.
        labels: row -> the first visit's label, of `noisy`.
        draw: how a noisy label is drawn from a visit's wrong answers.
    """

    run: Run
    epoch: int
    policy: Policy
    prompts: Sequence[Prompt]
    token_ids: list[list[int]]
    noisy: list[int]
    clean: list[int]
    labels: dict[int, str]
    draw: NoiseDraw

    @property
    def parameters(self) -> list[Tensor]:
        return list(self.policy.model.parameters())

    def gradient(self, of: Tensor) -> Tensor:
        """The gradient in all parameters as one vector."""
        return torch.cat(
            [part.flatten() for part in torch.autograd.grad(of, self.parameters)]
        )

    def log_p(self, rows: Sequence[int], answers: Sequence[str]) -> Tensor:
        """The log-probability of an answer to each of some prompts, in all its spellings, shape (rows,)."""
        parts = [
            self._log_p(rows[first : first + AT_ONCE], answers[first : first + AT_ONCE])
            for first in range(0, len(rows), AT_ONCE)
        ]
        return torch.cat(parts)

    def _log_p(self, rows: Sequence[int], answers: Sequence[str]) -> Tensor:
        tokens_PGT = torch.full(
            (len(rows), MOST_DIGITS, MOST_DIGITS + 1), self.policy.pad_id
        )
        lengths_PG = torch.zeros(len(rows), MOST_DIGITS, dtype=torch.long)
        for p, answer in enumerate(answers):
            # The same number with leading zeros is the same answer.
            for g, digits in enumerate(range(len(answer), MOST_DIGITS + 1)):
                response = self._response(f"{int(answer):0{digits}d}"[::-1])
                tokens_PGT[p, g, : len(response)] = torch.tensor(response)
                lengths_PG[p, g] = len(response)
        prompts = [self.token_ids[row] for row in rows]
        logprobs_PGT = response_statistics(self.policy, prompts, tokens_PGT, 1.0).logprobs
        is_response = torch.arange(MOST_DIGITS + 1) < lengths_PG[..., None]
        log_p_PG = logprobs_PGT.where(is_response, 0).sum(-1)
        return log_p_PG.masked_fill(lengths_PG == 0, -torch.inf).logsumexp(-1)

    def _response(self, text: str) -> list[int]:
        return [
            *self.policy.tokenizer(text, add_special_tokens=False)["input_ids"],
            self.policy.end_ids[0],
        ]

    def rollouts(self, rows: Sequence[int], groups: int, purpose: str) -> SampledRollouts:
        """New groups of K rollouts, the groups of a prompt being neighbours."""
        k = self.run.recipe.train.rollouts_per_prompt
        ids = [self.prompts[row].prompt_id for row in rows]
        keys = [
            [
                seeding.key(purpose, self.run.seed, self.epoch, name, group, g)
                for g in range(k)
            ]
            for name in ids
            for group in range(groups)
        ]
        prompts = [self.token_ids[row] for row in rows for _ in range(groups)]
        most = self.run.recipe.train.max_new_tokens
        return sample(self.policy, prompts, np.array(keys, np.uint64), Sampling(1.0, most))


def subjects(run: Run, draw: NoiseDraw | None = None) -> Iterator[Subject]:
    """The run's policies: before training, and at each checkpoint that ends an epoch."""
    recipe = run.recipe
    train = training_prompts(recipe)
    prompts = train.prompts
    per_epoch = -(-len(prompts) // recipe.train.prompts_per_step)
    first = run.labels.filter(
        pl.col("visit") == 1, pl.col("noise_type") == "active"
    ).collect()
    known = dict(
        first.filter(pl.col("noisy_label") != SENTINEL)
        .select("prompt_id", "noisy_label")
        .iter_rows()
    )
    labels = {
        row: label
        for row, p in enumerate(prompts)
        if (label := known.get(p.prompt_id)) is not None and len(label) <= MOST_DIGITS
    }
    clean = [row for row, p in enumerate(prompts) if p.noise_type == "clean"]
    steps = {0: 0} | {
        step // per_epoch: step
        for step in checkpoint_steps(run.path)
        if step % per_epoch == 0
    }
    for epoch, step in steps.items():
        policy = load_policy(recipe, checkpoint_path(run.path, step) if step else None)
        token_ids = encode_prompts(policy, train, recipe)
        yield Subject(
            run,
            epoch,
            policy,
            prompts,
            token_ids,
            list(labels),
            clean,
            labels,
            draw or noise_draw(recipe),
        )


def exact(subject: Subject) -> dict[str, float]:
    """Assumption (i) and L."""
    with torch.no_grad():
        true, label = _true_and_label(subject)
    return {
        "log_ratio": float((true - label).mean()),
        "p_true": float(true.exp().mean()),
        "p_label": float(label.exp().mean()),
        "true_ahead": float((true > label).double().mean()),
    }


def _true_and_label(subject: Subject) -> tuple[Tensor, Tensor]:
    rows = subject.noisy
    true = subject.log_p(rows, [_true(subject, row) for row in rows])
    return true, subject.log_p(rows, [subject.labels[row] for row in rows])


def _true(subject: Subject, row: int) -> str:
    answer = subject.prompts[row].true_answer
    assert answer is not None
    return answer


def coupling(subject: Subject, most: int) -> dict[str, float]:
    """Assumption (ii): gradients of log p(y*), of at most so many clean and so many noisy prompts."""
    gradients = {
        kind: np.stack([_gradient(subject, row).double().numpy() for row in rows])
        for kind, rows in (("clean", subject.clean[:most]), ("noisy", subject.noisy[:most]))
    }
    found = formulas.coupling(gradients["clean"], gradients["noisy"])
    squared = {kind: float((own**2).sum(axis=1).mean()) for kind, own in gradients.items()}
    directions = [
        (own / np.linalg.norm(own, axis=1, keepdims=True)).mean(axis=0)
        for own in gradients.values()
    ]
    return {
        "gamma_printed": found.printed,
        "gamma": found.normalised,
        "cosine": float(directions[0] @ directions[1]),
        "squared_clean": squared["clean"],
        "squared_noisy": squared["noisy"],
    }


def _gradient(subject: Subject, row: int) -> Tensor:
    return subject.gradient(subject.log_p([row], [_true(subject, row)]).sum())


def magnitudes(subject: Subject, measured: dict[str, float]) -> dict[str, float]:
    """G_c and G_n by `formulas.advantage_magnitude` at the mean probabilities, and the rho_c that they give."""
    k = subject.run.recipe.train.rollouts_per_prompt
    p, q = measured["p_true"], measured["p_label"]
    found: dict[str, float] = {}
    for name, rollouts in (("", None), (f"_K{k}", k)):
        clean, noisy = (
            float(formulas.advantage_magnitude(*pair, rollouts))
            for pair in ((p, q), (q, p))
        )
        found |= {f"G_c{name}": clean, f"G_n{name}": noisy}
        found[f"rho_c{name}"] = float(
            formulas.critical_ratio(measured["gamma"], clean, noisy)
        )
        found[f"rho_c_printed{name}"] = float(
            formulas.critical_ratio(measured["gamma_printed"], clean, noisy)
        )
    return found


def pushes(subject: Subject, groups: int) -> dict[str, float]:
    """What a step does to L to first order, by kind of prompt, and where the two cancel."""
    true, label = _true_and_label(subject)
    raised = subject.gradient(true.mean() - label.mean())
    clean = _step_gradient(subject, subject.clean, groups)
    noisy = _step_gradient(subject, subject.noisy, groups)
    found = {"push_clean": float(clean @ raised), "push_noisy": float(noisy @ raised)}
    diagonal = _adam_diagonal(subject)
    if diagonal is not None:
        found |= {
            "adam_push_clean": float(clean @ (diagonal * raised)),
            "adam_push_noisy": float(noisy @ (diagonal * raised)),
        }
    for prefix in ("", "adam_"):
        helps, harms = (
            found.get(f"{prefix}push_{kind}", 0.0) for kind in ("clean", "noisy")
        )
        if helps > 0 > harms:
            found[f"{prefix}rho_c_pushes"] = float(formulas.balanced_ratio(helps, harms))
    return found


def _step_gradient(subject: Subject, rows: Sequence[int], groups: int) -> Tensor:
    """The surrogate's gradient at the policy that sampled: mean over prompts of that of a group's mean of A log p."""
    total = torch.zeros(sum(weight.numel() for weight in subject.parameters))
    for first in range(0, len(rows), PROMPTS_AT_ONCE):
        own = rows[first : first + PROMPTS_AT_ONCE]
        total += subject.gradient(_surrogate(subject, own, groups)) * len(own) / len(rows)
    return total


def _surrogate(subject: Subject, rows: Sequence[int], groups: int) -> Tensor:
    sampled = subject.rollouts(rows, groups, "theory: push")
    rewards = [
        _rewards(subject, rows[number // groups], number % groups, texts)
        for number, texts in enumerate(sampled.texts_PG)
    ]
    advantages = torch.tensor([group_advantages(own) for own in rewards])
    logprobs_PGT = response_statistics(
        subject.policy, sampled.prompts, sampled.tokens_PGT, 1.0
    ).logprobs
    positions = torch.arange(sampled.tokens_PGT.shape[2])
    log_p_PG = logprobs_PGT.where(positions < sampled.lengths_PG[..., None], 0).sum(-1)
    return (advantages * log_p_PG).mean()


def _rewards(subject: Subject, row: int, group: int, texts: Sequence[str]) -> list[float]:
    """R16, with a noisy label drawn from the group itself on a marked prompt (R3)."""
    answers = [reversed_digits(text) for text in texts]
    label = true = _true(subject, row)
    if subject.prompts[row].noise_type != "clean":
        wrong = Counter(sorted(answer for answer in answers if answer not in (None, true)))
        if not wrong:
            return [0.0] * len(answers)
        u = seeding.uniform("theory: label", subject.run.seed, subject.epoch, row, group)
        choices = {
            "uniform": list(wrong),
            "frequency": list(wrong.elements()),
            "most_frequent": [wrong.most_common(1)[0][0]],
        }[subject.draw]
        label = choices[int(u * len(choices))]
    return [float(answer == label) for answer in answers]


def _adam_diagonal(subject: Subject) -> Tensor | None:
    """What AdamW multiplies a gradient by, up to the learning rate; None before training."""
    step = subject.epoch * -(
        -len(subject.prompts) // subject.run.recipe.train.prompts_per_step
    )
    if not step:
        return None
    file = checkpoint_path(subject.run.path, step) / "optimizer.pt"
    state = torch.load(file, weights_only=True)["state"]
    squares = torch.cat([state[number]["exp_avg_sq"].flatten() for number in sorted(state)])
    return 1 / ((squares / (1 - ADAM_BETAS[1] ** step)).sqrt() + 1e-8)


def selection(subject: Subject, groups: int) -> list[dict[str, float]]:
    """Delta_p and wrong majorities of new rollouts, a row a noisy prompt.

    The likeliest wrong answer is looked for among all that were sampled.
    """
    rows, k = subject.noisy, subject.run.recipe.train.rollouts_per_prompt
    sampled = subject.rollouts(rows, groups, "theory: selection")
    answers = [[reversed_digits(text) for text in texts] for texts in sampled.texts_PG]
    voted = {
        row: answers[place * groups : (place + 1) * groups]
        for place, row in enumerate(rows)
    }
    wrong = {
        row: sorted(
            {
                a
                for group in own
                for a in group
                if a is not None and a != _true(subject, row)
            }
        )
        for row, own in voted.items()
    }
    pairs = [
        (row, answer) for row in rows for answer in wrong[row] if len(answer) <= MOST_DIGITS
    ]
    with torch.no_grad():
        true = (
            subject.log_p(rows, [_true(subject, row) for row in rows])
            .double()
            .exp()
            .tolist()
        )
        others = (
            subject.log_p([row for row, _ in pairs], [answer for _, answer in pairs])
            .double()
            .exp()
        )
    by_row = defaultdict(list)
    for (row, _), p in zip(pairs, others.tolist(), strict=True):
        by_row[row].append(p)
    found = []
    for row, p in zip(rows, true, strict=True):
        gap = p - max(by_row[row], default=0.0)
        lost = [
            max(map(group.count, wrong[row]), default=0) >= group.count(_true(subject, row))
            for group in voted[row]
        ]
        rivals = np.array([other for other in by_row[row] if other < p])
        found.append(
            {
                "gap": gap,
                "error": fmean(lost),
                "printed": float(formulas.selection_error_printed(k, gap)),
                "chernoff": float(min(formulas.selection_error(k, p, rivals).sum(), 1.0)),
            }
        )
    return found


def relative_coupling(measured: dict[str, float]) -> float | None:
    """The gamma at which rho_c of the theorem is that of the pushes: coupling of clean to noisy by noisy to noisy."""
    if "rho_c_pushes" not in measured:
        return None
    return (
        measured["push_clean"]
        / measured["G_c"]
        / (-measured["push_noisy"] / measured["G_n"])
    )


def simulated(
    subject: Subject, measured: dict[str, float], gamma: float, suffix: str
) -> dict[str, float]:
    """Where the simulation of `phase.py` beside this file has rho_c, from this policy and a coupling."""
    ratios = (np.arange(50) + 0.5) / 50
    setting = Simulation(
        true=measured["p_true"], noisy=measured["p_label"], prompts=16, runs=8
    )
    outcome = simulate(
        setting, ratios, gamma, subject.run.recipe.train.rollouts_per_prompt, seed=0
    )
    shares = {"early": outcome.rises, "end": outcome.coherent}
    found = {
        name: crossing(dict(zip(ratios.tolist(), (share - 0.5).tolist(), strict=True)))
        for name, share in shares.items()
    }
    return {
        f"rho_c_simulated_{name}{suffix}": at
        for name, at in found.items()
        if at is not None
    }


def identity(subject: Subject) -> dict[str, Any]:
    """Which policy it is."""
    recipe = subject.run.recipe
    return {
        "run": str(subject.run.path),
        "arm": subject.run.arm or subject.run.path.name,
        "method": recipe.method.name,
        "ratio": float(getattr(recipe.noise, "ratio", None) or 0),
        "seed": subject.run.seed,
        "epoch": subject.epoch,
    }


def whole(
    subject: Subject, measured: dict[str, Any], groups: int, gradients: int
) -> dict[str, float]:
    """All that needs gradients, and what follows."""
    found = measured | coupling(subject, gradients)
    found |= magnitudes(subject, found)
    found |= pushes(subject, groups)
    found |= simulated(subject, found, found["gamma"], "")
    relative = relative_coupling(found)
    if relative is not None:
        found["gamma_relative"] = relative
        found |= simulated(subject, found, relative, "_relative")
    return found


def print_measured(
    runs: Sequence[Run],
    epochs: Sequence[int],
    groups: int,
    gradients: int,
    draw: NoiseDraw | None,
) -> None:
    """Print Markdown tables, means over seeds.

    Args:
        runs: of a built-in policy.
        epochs: after which more than L is measured.
        groups: new groups of K rollouts a prompt.
        gradients: of so many prompts of a kind.
        draw: push as if noisy labels were drawn so.
    """
    torch.set_num_threads(1)
    policies, prompts = [], []
    for run in runs:
        for subject in subjects(run, draw):
            name, measured = identity(subject), exact(subject)
            if subject.epoch in epochs:
                measured = whole(subject, measured, groups, gradients)
                prompts += [name | row for row in selection(subject, groups)]
            policies.append(name | measured)
    print_log_ratios(policies)
    print_policies(policies)
    print_errors(prompts)
    print_critical(policies)
