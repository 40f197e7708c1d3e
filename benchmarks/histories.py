"""Run directories of any size, as `olr train` would have left them, without a policy.

    python benchmarks/histories.py OUT --prompts 4000 --visits 100 --rollouts 8 --response-characters 200

Only the rollouts are made up. A prompt's policy chooses among the true answer, a systematic wrong one, a few rare wrong
ones and no answer; an answer that is rewarded becomes likelier, and the share of right labels lifts the true answer of
every prompt. Everything else is the project's own: the prompts (arithmetic, half of them mislabelled), the `Supervisor`
that decides every label, the store, metrics and manifest. So `olr replay` of such a run gives the stored decisions.
There are no checkpoints, and the times in metrics.jsonl are those of making it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from olr_cli import seeding
from olr_cli.answers import Judge
from olr_cli.data.prompts import Prompt
from olr_cli.data.sets import training_prompts
from olr_cli.recipe.layers import validate
from olr_cli.recipe.schema import Recipe
from olr_cli.runs.metrics import Stopwatch
from olr_cli.runs.schedule import Schedule
from olr_cli.runs.writer import RunWriter
from olr_cli.supervision import (
    Decided,
    Rollout,
    RolloutGroup,
    Step,
    compose,
    make_supervisor,
)
from olr_cli.supervision.metrics import step_metrics
from olr_cli.supervision.selection import keep_fraction

ANSWERS = 5
"""Different answers of a prompt, the true one first; one more choice is no answer."""

_POOL = 1 << 20
_CHARACTERS_PER_TOKEN = 4
_COUPLING = 2.0
"""How much more right labels elsewhere lift a prompt's true answer than its own label lifts what it rewards."""


def write_run(
    run: Path,
    *,
    prompts: int = 4000,
    visits: int = 100,
    rollouts: int = 8,
    prompts_per_step: int = 160,
    response_characters: int = 200,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    arm: str = "",
    steps: int | None = None,
) -> Path:
    """Write a run directory; the same arguments give the same shards.

    Args:
        run: a free place.
        prompts: in the training set.
        visits: of every prompt.
        rollouts: K.
        prompts_per_step: a pair of shards has so many prompts.
        response_characters: length of a response.
        seed: of the recipe and of everything drawn.
        settings: sections of the recipe that replace those made up here (``noise``, ``method``, …).
        arm: as a sweep calls runs of this recipe.
        steps: stop after so many, as an interrupted run; by default the run is finished.

    Returns:
        `run`.

    Raises:
        UserError: there is something at `run` already, or the recipe is wrong.
    """
    recipe = validate(
        {
            "name": run.name,
            "seed": seed,
            # Answers of 3 or 4 digits, in a box as a language model writes them.
            "data": {"train": "arithmetic", "limit": prompts, "extractor": "boxed"},
            "noise": {"type": "active", "ratio": "0.5"},
            "model": {"path": "synthetic"},
            # What 0.02 after 3 visits is to a run of 10.
            "method": {
                "name": "olr",
                "slope_threshold": str(Decimal("0.2") / visits),
                "warmup_epochs": 3 * visits // 10,
            },
            "train": {
                "epochs": visits,
                "prompts_per_step": prompts_per_step,
                "mini_batch_prompts": None,
                "rollouts_per_prompt": rollouts,
            },
            **(settings or {}),
        },
        str(run),
    )
    with RunWriter.create(run, recipe, arm=arm) as writer, Judge() as judge:
        _fill(writer, judge, response_characters, steps)
    return run


def _fill(writer: RunWriter, judge: Judge, characters: int, steps: int | None) -> None:
    recipe = writer.recipe
    data = training_prompts(recipe)
    facts = {
        "source": str(data.source),
        "digest": data.digest,
        "prompts": len(data.prompts),
    }
    writer.begin(after=0, data={"train": facts}, facts={"engine": "synthetic"})
    policy = _Policy(recipe, data.prompts, characters)
    supervisor = make_supervisor(
        recipe, keep_fraction(recipe.method, data.prompts), judge, history=None
    )
    watch = Stopwatch()
    writer.log(0, 0, policy.held_out())
    schedule = Schedule.of(recipe, len(data.prompts))
    for step in islice(schedule.after(0), steps):
        visit, rows = schedule.epoch(step), schedule.rows(step)
        with watch.measure("rollouts"):
            groups = policy.groups(rows, visit, step)
        decided = supervisor.supervise(Step.of(groups), watch.measure)
        with watch.measure("update"):
            policy.learn(rows, decided)
        with watch.measure("store"):
            tables = writer.store(step, decided.labels, decided.rollouts)
        metrics = step_metrics(*tables, 0, 0) | (
            policy.held_out() if step % schedule.per_epoch == 0 else {}
        )
        writer.log(step, visit, metrics | watch.metrics())
        watch = Stopwatch()
    writer.sync()
    done = schedule.last if steps is None else min(steps, schedule.last)
    writer.close("finished" if done == schedule.last else "interrupted", steps=done)


class _Policy:
    """A policy that is a table: how likely each prompt's answers are, as logits of shape (P, ANSWERS + 1)."""

    def __init__(self, recipe: Recipe, prompts: Sequence[Prompt], characters: int) -> None:
        self._prompts, self._characters = prompts, characters
        self._k = recipe.train.rollouts_per_prompt
        self._views = compose(recipe.method).views
        self._rng = np.random.default_rng(seeding.key("synthetic history", recipe.seed))
        self._logits = self._rng.normal(
            [0.4, 0.2, -1.2, -1.6, -2.0, -2.2], 0.8, (len(prompts), ANSWERS + 1)
        )
        self._answers = [self._answers_of(prompt) for prompt in prompts]
        self._pull = 3.0 / recipe.train.epochs
        self._text = self._reasoning()

    def _answers_of(self, prompt: Prompt) -> list[str]:
        true = int(prompt.true_answer or 0)
        slips = self._rng.permutation([-100, -1, 1, 2, 10, 100])[: ANSWERS - 2]
        # The systematic error is a dropped carry.
        return [
            str(answer)
            for answer in (true, true - 10, *(true + int(slip) for slip in slips))
        ]

    def _reasoning(self) -> str:
        """A long text, pieces of which are responses; it compresses about as prose does."""
        syllables = [
            "add",
            "ing",
            "car",
            "ry",
            "the",
            "ten",
            "s",
            "we",
            "ob",
            "tain",
            "so",
            "num",
            "ber",
            "one",
        ]
        words = [
            "".join(self._rng.choice(syllables, self._rng.integers(1, 4)))
            for _ in range(2000)
        ]
        # Words are as frequent as in a language (Zipf).
        frequency = 1 / np.arange(1, len(words) + 1)
        drawn = self._rng.choice(
            words, (_POOL + self._characters) // 5, p=frequency / frequency.sum()
        )
        text = " ".join(drawn)
        return text * (1 + (_POOL + self._characters) // len(text))

    def groups(self, rows: Sequence[int], visit: int, step: int) -> list[RolloutGroup]:
        """The complete rollout groups of a step."""
        k = self._k * len(self._views)
        chances = _softmax(self._logits[rows]).cumsum(axis=1)[:, :-1]
        chosen = (self._rng.random((len(rows), k, 1)) > chances[:, None, :]).sum(axis=2)
        starts = self._rng.integers(_POOL, size=chosen.shape)
        statistics = self._rng.gamma(2.0, 0.2, (*chosen.shape, 3))
        return [
            RolloutGroup(
                self._prompts[row],
                visit,
                step,
                tuple(
                    self._rollout(row, *drawn, place // self._k)
                    for place, drawn in enumerate(zip(answers, texts, numbers, strict=True))
                ),
            )
            for row, answers, texts, numbers in zip(
                rows, chosen.tolist(), starts.tolist(), statistics.tolist(), strict=True
            )
        ]

    def _rollout(
        self, row: int, answer: int, start: int, statistics: Sequence[float], view: int
    ) -> Rollout:
        has_answer = answer < ANSWERS
        box = f" \\boxed{{{self._answers[row][answer]}}}" if has_answer else ""
        response = self._text[start : start + self._characters - len(box)] + box
        entropy, surprise, certainty = statistics
        return Rollout(
            response,
            tokens=len(response) // _CHARACTERS_PER_TOKEN + 1,
            truncated=not has_answer,
            view=self._views[view],
            mean_logprob=-surprise,
            entropy=entropy,
            self_certainty=10 + certainty,
        )

    def learn(self, rows: Sequence[int], decided: Decided) -> None:
        """What is rewarded becomes likelier, and the truth everywhere as far as labels are right."""
        right = 0
        labels = decided.labels
        names = (
            "effective_label",
            "effective_label_is_correct",
            "has_zero_variance",
            "trains",
        )
        for row, label, is_correct, is_uniform, trains in zip(
            rows, *map(labels.get, names), strict=True
        ):
            answers = self._answers[row]
            right += bool(is_correct)
            if trains and not is_uniform and label in answers:
                self._logits[row, answers.index(label)] += self._pull
        self._logits[rows, 0] += _COUPLING * self._pull * right / len(rows)

    def held_out(self) -> dict[str, float]:
        """What a held-out evaluation might have given."""
        shares = _softmax(self._logits)
        best = shares[:, :ANSWERS].argmax(axis=1) == 0
        return {"eval/avg": float(shares[:, 0].mean()), "eval/majority": float(best.mean())}


def _softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def main() -> None:
    """Write one run directory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="the run directory")
    parser.add_argument("--prompts", type=int, default=4000)
    parser.add_argument("--visits", type=int, default=100)
    parser.add_argument("--rollouts", type=int, default=8, help="of every visit")
    parser.add_argument("--prompts-per-step", type=int, default=160)
    parser.add_argument("--response-characters", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    sizes = vars(parser.parse_args())
    out, began = sizes.pop("out"), time.perf_counter()
    write_run(out, **sizes)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    made = sizes["prompts"] * sizes["visits"] * sizes["rollouts"]
    print(
        f"{out}: {made:,} rollouts, {size / 1e6:,.0f} MB, in {time.perf_counter() - began:.0f} s"
    )


if __name__ == "__main__":
    main()
