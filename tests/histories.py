"""Synthetic run directories, written without training; the same arguments give the same bytes.

A prompt's policy chooses among the true answer, a systematic wrong one, a few rare wrong ones and no answer. Training
on a right effective label makes the true answer likelier; training on a wrong one makes that answer likelier. Right
labels also lift the true answer of every prompt a little. All decisions (R9 to R16) are made here a second time, in
integers and over all prompts at once, so that the project's own code can be compared with them.
"""

import functools
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from samples import json_lines

from olr_cli import seeding
from olr_cli.analysis.arms import Arm, find_runs, group
from olr_cli.analysis.figures import charts_of
from olr_cli.analysis.replay import label_tables
from olr_cli.answers.graded import SENTINEL
from olr_cli.recipe.layers import validate
from olr_cli.recipe.methods import OlrMethod
from olr_cli.recipe.schema import Recipe
from olr_cli.runs.directory import MANIFEST_VERSION, recipe_yaml
from olr_cli.supervision.metrics import label_metrics
from olr_cli.supervision.types import (
    SCHEMA_VERSION,
    LabelRecord,
    RolloutRecord,
    arrow_schema,
)

SMALL = {"prompts": 20, "prompts_per_step": 10, "epochs": 4, "store_rollouts": False}
"""Settings of a history that takes no time, for `write_history`."""

TRUE, WRONG, RARE, NONE = 0, 1, (2, 3, 4), 5
"""The answer classes of every prompt; the last one is no answer."""

Columns = dict[str, Any]


_CACHE = tempfile.TemporaryDirectory()
"""Runs that tests have asked for, to copy from."""


def _once(write: Callable[..., Path]) -> Callable[..., Path]:
    """Wrap `write_history` so that equal calls write a run once and copy it from then on.

    Calls are equal if the name of the run directory and the settings are. That saves 0.1 s of processor time.
    """
    made: dict[str, Path] = {}

    @functools.wraps(write)
    def written(run: Path, **settings: Any) -> Path:
        # The name is part of the recipe, so runs with other names differ.
        key = f"{run.name} {settings}"
        if key not in made:
            made[key] = write(Path(_CACHE.name, str(len(made)), run.name), **settings)
        return Path(
            shutil.copytree(made[key], run, copy_function=shutil.copy, dirs_exist_ok=True)
        )

    return written


@_once
def write_history(
    run: Path,
    *,
    noise: str | None = "active",
    ratio: float = 0.5,
    method: Mapping[str, Any] | None = None,
    prompts: int = 40,
    epochs: int = 8,
    rollouts: int = 8,
    prompts_per_step: int = 20,
    seed: int = 0,
    arm: str = "",
    steps: int | None = None,
    knows_truth: bool = True,
    knows_noise: bool = True,
    store_rollouts: bool = True,
    kind: str = "training",
    data: Mapping[str, Any] | None = None,
    train: Mapping[str, Any] | None = None,
    verifier: Mapping[str, Any] | None = None,
) -> Path:
    """Write a run directory as `olr train` would leave it, without checkpoints, and return `run`.

    Args:
        run: the new directory; its name is the recipe's name.
        noise: type of the noise; None: clean labels.
        ratio: share of prompts with noise.
        method: the recipe's section; by default OLR with threshold 0.02 after 3 epochs.
        prompts: number of prompts.
        epochs: number of times that each prompt is visited, that is sampled and trained on.
        rollouts: number of rollouts per prompt and visit.
        prompts_per_step: as in the recipe.
        seed: the seed of every draw here.
        arm: name of the arm of a sweep that the run belongs to.
        steps: steps after which the run was stopped; None: it is finished.
        knows_truth: whether the data have true answers.
        knows_noise: whether the data say which labels are noise.
        store_rollouts: whether the shards of rollouts have rows.
        kind: ``training``, or ``rollouts`` for a policy that was not trained.
        data: further keys of the recipe's section.
        train: further keys of the recipe's section.
        verifier: the recipe's section; None: it has none.
    """
    tree: dict[str, Any] = {
        "name": run.name,
        "seed": seed,
        "data": {"limit": prompts, **(data or {})},
        "verifier": verifier,
        "method": dict(
            method or {"name": "olr", "slope_threshold": 0.02, "warmup_epochs": 3}
        ),
        "train": {
            "epochs": epochs,
            "prompts_per_step": prompts_per_step,
            "rollouts_per_prompt": rollouts,
            "max_new_tokens": 16,
            **(train or {}),
        },
    }
    if noise is not None:
        tree["noise"] = {"type": noise, "ratio": ratio}
    recipe = validate(tree, str(run))
    for folder in ("labels", "rollouts"):
        (run / folder).mkdir(parents=True)
    (run / "recipe.yaml").write_text(recipe_yaml(recipe))
    history = _History(recipe, prompts, noise, ratio)
    # Rounded up: the last step of an epoch may be short.
    whole = -(-prompts // prompts_per_step) * epochs
    lines: list[dict[str, float]] = [{"step": 0, "epoch": 0, **history.held_out(0)}]
    for step in range(1, min(steps or whole, whole) + 1):
        labels, answers = history.step(
            step, knows_truth=knows_truth, knows_noise=knows_noise
        )
        _write(run, "labels", step, labels)
        _write(
            run,
            "rollouts",
            step,
            answers if store_rollouts else {name: [] for name in answers},
        )
        lines.append({"step": step, "epoch": int(labels["visit"][0]), **_metrics(labels)})
    lines[-1] |= history.held_out(len(lines) - 1)
    json_lines(run / "metrics.jsonl", *lines)
    manifest = {
        "schema_version": MANIFEST_VERSION, "name": run.name, "arm": arm, "seed": seed,
        "kind": kind, "data": {"train": {"prompts": prompts}},
        "status": "finished" if len(lines) > whole else "interrupted", "attempts": [],
    }  # fmt: skip
    (run / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    return run


class _History:
    """The simulated policy and the decisions about all P prompts of a run, epoch by epoch.

    Arrays are (P,), (P, K) for K rollouts, or (P, classes) for the classes of answers.
    """

    def __init__(
        self, recipe: Recipe, prompts: int, noise: str | None, ratio: float
    ) -> None:
        self.recipe, self.prompts = recipe, prompts
        self.k = recipe.train.rollouts_per_prompt
        self.rng = np.random.default_rng(seeding.key("history", recipe.seed))
        # The same draw as olr's own noise, so that a replay finds the same prompts.
        marked = seeding.permutation(prompts, "noise", recipe.seed)[
            : round(ratio * prompts) if noise else 0
        ]
        self.noise_type = np.full(prompts, "clean", dtype=object)
        self.noise_type[marked] = noise
        self.preference = self.rng.normal(
            [0.4, 0.2, -1.2, -1.6, -2.0, -2.2], 0.8, (prompts, 6)
        )
        self.majority_counts: list[np.ndarray] = []
        self.majorities: list[np.ndarray] = []
        self.steps_per_epoch = -(-prompts // recipe.train.prompts_per_step)
        self.visit = 0
        self.columns: Columns = {}
        self.answers = np.zeros((prompts, self.k), dtype=int)
        self.rewards = np.zeros((prompts, self.k))

    def step(
        self, step: int, *, knows_truth: bool, knows_noise: bool
    ) -> tuple[Columns, Columns]:
        """Return the columns of the labels table and of the rollouts table for one step, from 1.

        Call it for each step in order. The first step of an epoch draws the answers of the whole epoch.
        """
        visit, part = divmod(step - 1, self.steps_per_epoch)
        if visit + 1 > self.visit:
            self.visit = visit + 1
            self._epoch(knows_truth=knows_truth, knows_noise=knows_noise)
        size = self.recipe.train.prompts_per_step
        rows = slice(part * size, (part + 1) * size)
        labels = {name: list(values[rows]) for name, values in self.columns.items()}
        labels["step"] = [step] * len(labels["visit"])
        return labels, self._rollouts(rows, step, knows_truth=knows_truth)

    def held_out(self, step: int) -> dict[str, float]:
        """Return held-out accuracies after a step, by metric, near the policy's mean probability of the true answer."""
        share = float(_softmax(self.preference)[:, TRUE].mean())
        wobble = seeding.uniform("held out", self.recipe.seed, step) * 0.02
        return {
            "eval/avg": round(share - wobble, 4),
            "eval/majority": round(share + wobble, 4),
        }

    def _epoch(self, *, knows_truth: bool, knows_noise: bool) -> None:
        """Draw the answers to every prompt at its next visit, decide labels and rewards, and learn from them.

        Decisions follow the rules R9 to R16 in docs/concepts.md and go into `columns`.
        """
        everyone = np.arange(self.prompts)
        # A draw falls into the class whose part of the cumulated probabilities holds it.
        draws = self.rng.random((self.prompts, self.k))
        edges = _softmax(self.preference).cumsum(axis=1)[:, :-1]
        self.answers = (draws[:, :, None] > edges[:, None, :]).sum(axis=2)
        counts = (self.answers[:, :, None] == np.arange(6)).sum(axis=1)
        votes = counts[:, :NONE]
        top = votes.max(axis=1)
        unique = (votes == top[:, None]).sum(axis=1) == 1
        # -1 stands for no majority, as in a tie (R9).
        majority = np.where(unique & (top > 0), votes.argmax(axis=1), -1)
        majority_count = np.where(majority >= 0, top, 0)
        self.majorities.append(majority)
        self.majority_counts.append(majority_count)
        rise, scale = self._slope()
        historical = self._historical()
        consistent = (majority >= 0) & (majority == historical)
        selected = self._selected(majority, rise, scale, consistent)
        noisy = self._noisy_label(votes)
        standing = np.where(self.noise_type == "clean", TRUE, noisy)
        effective = np.where(selected, majority, standing)
        self.rewards = (
            (self.answers == effective[:, None]) & (effective >= 0)[:, None]
        ).astype(float)
        self._learn(effective)
        marked = self.noise_type != "clean"
        right = majority == TRUE
        none = np.full(self.prompts, None, dtype=object)
        # The given label of a marked prompt is the sentinel, which no answer matches (R2).
        given = np.where(
            self.noise_type == "clean", _spelling(np.full(self.prompts, TRUE)), SENTINEL
        )
        source = np.where(effective < 0, "sentinel", np.where(marked, "noisy", "given"))
        self.columns = {
            "prompt_id": np.array([str(i) for i in everyone], dtype=object),
            "visit": np.full(self.prompts, self.visit),
            "step": np.zeros(self.prompts, dtype=int),
            "noise_type": self.noise_type if knows_noise else none,
            "true_answer": _spelling(np.full(self.prompts, TRUE)) if knows_truth else none,
            "given_label": given,
            "noisy_label": np.where(
                marked, np.where(noisy < 0, SENTINEL, _spelling(noisy)), None
            ),
            "noisy_label_count": np.where(
                marked, np.where(noisy < 0, 0, counts[everyone, noisy]), None
            ),
            "true_answer_count": counts[:, TRUE].astype(object) if knows_truth else none,
            "given_label_count": np.where(marked, 0, counts[:, TRUE]),
            "majority_answer": _spelling(majority),
            "majority_count": majority_count,
            "rollouts": np.full(self.prompts, self.k),
            "answered": self.k - counts[:, NONE],
            "pass_rate": majority_count / self.k,
            "slope": rise / scale,
            "historical_majority": _spelling(historical),
            "is_consistent": consistent,
            "is_selected": selected,
            "effective_label": np.where(effective < 0, SENTINEL, _spelling(effective)),
            "label_source": np.where(selected, "majority", source),
            "majority_is_correct": right.astype(object) if knows_truth else none,
            "majority_is_noisy_label": np.where(
                marked, (majority >= 0) & (majority == noisy), None
            ),
            "effective_label_is_correct": np.where(
                (effective < 0) | knows_truth, (effective == TRUE).astype(object), None
            ),
            "reward_mean": self.rewards.mean(axis=1),
            "has_zero_variance": self.rewards.min(axis=1) == self.rewards.max(axis=1),
            "trains": np.full(self.prompts, True),
            "in_percent": [None] * self.prompts,
        }

    def _slope(self) -> tuple[np.ndarray, int]:
        """Return each prompt's slope (rule R12) as an integer numerator, (P,), and the common denominator.

        It is the slope of the majority's share over the visits. The integers are small enough for a correctly rounded
        quotient.
        """
        t = self.visit
        if t == 1:
            return np.zeros(self.prompts, dtype=np.int64), 1
        weights = 2 * np.arange(1, t + 1) - t - 1
        # The slope is sum (2i - t - 1) p(i) * 6 / (t (t^2 - 1)), with p(i) a count over K: two integers, no rounding
        # yet.
        return 6 * np.stack(self.majority_counts, axis=1) @ weights, self.k * t * (
            t * t - 1
        )

    def _historical(self) -> np.ndarray:
        """Return each prompt's historical majority (rule R13) as the number of a class; -1 on a tie or without one.

        It is the answer that was the majority most often, over all visits so far.
        """
        past = np.stack(self.majorities, axis=1)
        counts = (past[:, :, None] == np.arange(NONE)).sum(axis=1)
        top = counts.max(axis=1)
        unique = (counts == top[:, None]).sum(axis=1) == 1
        return np.where(unique & (top > 0), counts.argmax(axis=1), -1)

    def _selected(
        self, majority: Any, rise: Any, scale: int, consistent: Any
    ) -> np.ndarray:
        """Return for each prompt whether OLR replaces its label by the majority; always False for another method.

        Args:
            majority: each prompt's majority as a class, -1 for none.
            rise: numerators of the slopes.
            scale: denominator of the slopes.
            consistent: whether each majority is the historical one.
        """
        method = self.recipe.method
        if not isinstance(method, OlrMethod) or self.visit <= method.warmup_epochs:
            return np.zeros(self.prompts, dtype=bool)
        selected = majority >= 0
        if "slope" in method.criteria:
            threshold = Fraction(Decimal(method.slope_threshold))
            selected = selected & (
                rise * threshold.denominator > threshold.numerator * scale
            )
        return selected & consistent if "consistency" in method.criteria else selected

    def _noisy_label(self, votes: np.ndarray) -> np.ndarray:
        """Draw for each prompt with active noise one of the wrong classes among its answers (rule R3); -1 for others.

        `votes` (P, classes) counts the answers of each class. A prompt without a wrong answer also has -1.
        """
        wrong = (votes > 0) & (np.arange(NONE) != TRUE)
        draw = np.where(wrong, self.rng.random(wrong.shape), -1.0)
        return np.where(
            (self.noise_type == "active") & wrong.any(axis=1), draw.argmax(axis=1), -1
        )

    def _learn(self, effective: np.ndarray) -> None:
        """Raise each prompt's preference for its effective label, if that earned a reward, and for the true answer.

        The true answers rise by the share of effective labels that are true. `effective` has labels as classes, -1 for
        none.
        """
        # The total pull does not depend on the number of epochs.
        pull = 2.5 / self.recipe.train.epochs
        reinforced = (effective >= 0) & (self.rewards.sum(axis=1) > 0)
        self.preference[reinforced, effective[reinforced]] += pull
        self.preference[:, TRUE] += pull * (effective == TRUE).mean()

    def _rollouts(self, rows: slice, step: int, *, knows_truth: bool) -> Columns:
        """Return the columns of the rollouts table for the prompts in `rows`, at the current visit."""
        answers, rewards = self.answers[rows].ravel(), self.rewards[rows].ravel()
        prompts = np.repeat(np.arange(self.prompts)[rows], self.k)
        spelling = list(_spelling(np.where(answers == NONE, -1, answers)))
        size = len(answers)
        return {
            "prompt_id": [str(i) for i in prompts],
            "visit": [self.visit] * size,
            "step": [step] * size,
            "sample": list(np.tile(np.arange(self.k), size // self.k)),
            "view": ["original"] * size,
            "response": [
                "I give up" if text is None else f"\\boxed{{{text}}}" for text in spelling
            ],
            "answer": spelling,
            "answer_class": spelling,
            "reward": list(rewards),
            "is_correct": list(answers == TRUE) if knows_truth else [None] * size,
            "tokens": list(4 + answers),
            "truncated": list(answers == NONE),
            "mean_logprob": [-0.5] * size,
            "entropy": [0.5] * size,
            "self_certainty": [None] * size,
            "oracle_reward": [None] * size,
        }


def _softmax(preference: np.ndarray) -> np.ndarray:
    """Return the probabilities of each prompt's answer classes, from its preferences (P, classes)."""
    weights = np.exp(preference - preference.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _spelling(classes: np.ndarray) -> np.ndarray:
    """Return the answers that stand for these classes as text; None for the class of no answer and for -1."""
    return np.array(["10", "11", "12", "13", "14", None, None], dtype=object)[classes]


def _table(kind: str, columns: Columns) -> pa.Table:
    """Return columns as the Arrow table in which olr stores them; `kind` is ``labels`` or ``rollouts``."""
    schema = arrow_schema({"labels": LabelRecord, "rollouts": RolloutRecord}[kind])
    marks = {"olr.table": kind, "olr.schema_version": str(SCHEMA_VERSION)}
    return pa.table(
        {field.name: columns[field.name] for field in schema}, schema.with_metadata(marks)
    )


def _write(run: Path, kind: str, step: int, columns: Columns) -> None:
    """Write a step's columns as a Parquet file of the run; `kind` is ``labels`` or ``rollouts``."""
    pq.write_table(
        _table(kind, columns), run / kind / f"step-{step:06d}.parquet", compression="zstd"
    )


def _metrics(labels: Columns) -> dict[str, float]:
    """Return the metrics that olr computes from a step's labels, by name."""
    import polars as pl

    frame = pl.from_arrow(_table("labels", labels))
    assert isinstance(frame, pl.DataFrame)
    return {**label_metrics(frame), "rollout/groups": len(frame)}


def replayed(history, judge) -> list[LabelRecord]:
    """Replay a stored history, and return the decisions about labels as records."""
    return [
        LabelRecord(**row)
        for table in label_tables(history, judge)
        for row in table.iter_rows(named=True)
    ]


def arms_of(*places: Path) -> list[Arm]:
    """Return the arms, that is groups of runs that differ only in their seed, of the runs below these paths."""
    return group(find_runs(places))


def drawn(figure: str, *places: Path):
    """Return the chart of a figure of the runs below these paths; the figure must have only one."""
    (chart,) = charts_of(figure, arms_of(*places))
    return chart
