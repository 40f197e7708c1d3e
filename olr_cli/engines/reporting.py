"""What is said of a run's steps while it works: progress, TensorBoard, Weights & Biases, signs of trouble."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from olr_cli.answers import EXTRACTORS, reading_more
from olr_cli.engines.run import Attempt
from olr_cli.packages import not_installed
from olr_cli.recipe.schema import Recipe
from olr_cli.runs.directory import run_id
from olr_cli.runs.metrics import Metrics, accuracy_fall, read_metrics
from olr_cli.runs.schedule import Schedule
from olr_cli.runs.store import stored_responses
from olr_cli.supervision.rewards import SCORES


def start_progress(run: Attempt, schedule: Schedule) -> None:
    """Begin to show the steps after `run.done`, with what the epoch's steps so far measured."""
    epochs, steps = divmod(run.done, schedule.per_epoch)
    lines = read_metrics(run.path) if steps else []
    seen = [
        line for line in lines if line["epoch"] == epochs + 1 and line["step"] <= run.done
    ]
    run.progress.start(schedule.last, run.done, schedule.per_epoch, seen)


def signs_of_a_wrong_template(metrics: Metrics, run: Path) -> list[str]:
    """Signs of a wrong chat template or answer extractor, a sentence each, and the extractor that reads more."""
    signs = [
        f"{metrics[name]:.0%} {what}; the chat template or data.extractor"
        f" ({', '.join(EXTRACTORS)}) may be wrong; `olr train --dry-run` shows a prompt as the policy sees it"
        for name, what in (
            ("rollout/zero_variance_groups", "of the groups have equal rewards throughout"),
            ("rollout/missing_answers", "of the responses have no answer"),
        )
        if metrics.get(name, 0) > 0.9
    ]
    if metrics.get("rollout/missing_answers", 0) > 0.9:
        signs += filter(None, [reading_more(stored_responses(run))])
    return signs


def signs_of_no_reward(run: Path) -> list[str]:
    """The same of a run in which no response was ever rewarded, for its end; else none."""
    lines = read_metrics(run, "rollout/reward")
    is_rewarded = any(line["rollout/reward"] for line in lines)
    return [] if is_rewarded or not lines else signs_of_a_wrong_template(lines[-1], run)


_MOST_GAP = 0.05
"""Nats between the log-probabilities of two programs, on average over tokens, that rounding in bfloat16 explains."""


def sign_of_other_weights(metrics: Metrics, top_p: float) -> str | None:
    """A sentence where what samples seems to have other weights than the policy.

    Of a nucleus the sampler's log-probabilities are larger than the policy's, by -log(top_p) at most.
    """
    gap, most = metrics.get("rollout/sampler_gap", 0), _MOST_GAP - math.log(top_p)
    if gap <= most:
        return None
    return (
        f"the log-probabilities of the sampled tokens are {gap:.2f} nats from the policy's on average, and rounding"
        f" explains {most:.2f}: what samples may have old or broken weights; stop with Ctrl-C, and try"
        " engine.flags.vllm.enforce_eager true, which leaves CUDA graphs out"
    )


_ADVICE = "stop with Ctrl-C and look at the responses in rollouts/; a lower train.learning_rate may help"

MetricLog = Callable[[int, Metrics], None]
"""Takes a step and its metrics."""


def require_packages(recipe: Recipe) -> None:
    """Make sure that the packages are installed that only some recipes need."""
    for wanted, package, key in (
        (recipe.logging.tensorboard, "tensorboard", "logging.tensorboard"),
        (recipe.logging.wandb, "wandb", "logging.wandb"),
        (recipe.train.lora_rank, "peft", "train.lora_rank"),
    ):
        if wanted and find_spec(package) is None:
            raise not_installed(package, key)


@contextmanager
def metric_logs(recipe: Recipe, run: Path, done: int) -> Iterator[list[MetricLog]]:
    """The logs that the recipe asks for besides metrics.jsonl; steps after `done` are logged once more."""
    with ExitStack() as stack:
        logs: list[MetricLog] = []
        if recipe.logging.tensorboard:
            logs.append(stack.enter_context(_tensorboard(run, done)))
        if recipe.logging.wandb:
            logs.append(stack.enter_context(_wandb(recipe, run)))
        yield logs


@contextmanager
def reports(run: Attempt) -> Iterator[MetricLog]:
    """A function that logs and shows a step's metrics, and warns when something is plainly wrong, within the block."""
    signs = _Signs(run)
    with metric_logs(run.recipe, run.path, run.done) as logs:

        def report(step: int, metrics: Metrics) -> None:
            for log in logs:
                log(step, metrics)
            run.progress.step(step, metrics)
            for sign in signs.after(step, metrics):
                run.progress.say(f"Warning: {sign}")

        yield report


class _Signs:
    """What looks wrong as a run goes on: a fall of held-out accuracy, and other weights, are told once."""

    def __init__(self, run: Attempt) -> None:
        self._run, self._has_other_weights = run, False
        self._measured = read_metrics(run.path, "eval/avg")
        # An earlier attempt has told it then.
        self._has_fallen = accuracy_fall(self._measured) is not None

    def after(self, step: int, metrics: Metrics) -> Iterator[str]:
        """Yield a sentence for each sign that a step's metrics are the first to show."""
        recipe = self._run.recipe
        if step == 1:
            yield from signs_of_a_wrong_template(metrics, self._run.path)
        if "eval/avg" in metrics and not self._has_fallen:
            self._measured.append({"step": step, **metrics})
            if fall := accuracy_fall(self._measured):
                self._has_fallen, method = True, recipe.method.name
                reported = (
                    f"; the paper reports collapse of {method}" if method in SCORES else ""
                )
                yield f"{fall[1]}: {_ADVICE}{reported}"
        if not self._has_other_weights:
            sign = sign_of_other_weights(metrics, recipe.train.top_p)
            self._has_other_weights = sign is not None
            yield from filter(None, [sign])


@contextmanager
def _tensorboard(run: Path, done: int) -> Iterator[MetricLog]:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(
        str(run / "tensorboard"), purge_step=done + 1 if done else 0
    ) as writer:

        def log(step: int, metrics: Metrics) -> None:
            for name, value in metrics.items():
                writer.add_scalar(name, value, step)

        yield log


@contextmanager
def _wandb(recipe: Recipe, run: Path) -> Iterator[MetricLog]:
    import wandb

    session = wandb.init(
        project=recipe.logging.wandb,
        name=run.absolute().name,  # in a sweep the recipe's name is that of all its runs
        group=recipe.name,
        dir=str(run),
        config=recipe.plain(),
        id=run_id(run),
        resume="allow",
    )

    def log(step: int, metrics: Metrics) -> None:
        session.log(metrics, step=step)

    try:
        yield log
    finally:
        session.finish()
