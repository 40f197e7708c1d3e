"""Report each step of a run while it works: progress display, TensorBoard, Weights & Biases, and warnings."""

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
    """Start the progress display at the step after `run.done`.

    If a run continues in the middle of an epoch, the display also gets the stored metrics of the epoch's earlier steps.
    """
    epochs, steps = divmod(run.done, schedule.per_epoch)
    lines = read_metrics(run.path) if steps else []
    seen = [
        line for line in lines if line["epoch"] == epochs + 1 and line["step"] <= run.done
    ]
    run.progress.start(schedule.last, run.done, schedule.per_epoch, seen)


def signs_of_a_wrong_template(metrics: Metrics, run: Path) -> list[str]:
    """Return a sentence for each sign in a step's metrics that the chat template or the answer extractor is wrong.

    The first sign is that more than 90 % of the prompts got equal rewards for all their rollouts. The second sign is
    that more than 90 % of the responses have no answer. In the second case, other extractors are tried on the responses
    stored in `run`. If one of them finds an answer in more than half, a further sentence names it.
    """
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
    """Return signs of a wrong chat template or extractor, as sentences, if the run has never rewarded a response.

    The signs are those in the run's last step (`signs_of_a_wrong_template`). The list is empty if a response was
    rewarded, or if no step is stored.
    """
    lines = read_metrics(run, "rollout/reward")
    is_rewarded = any(line["rollout/reward"] for line in lines)
    return [] if is_rewarded or not lines else signs_of_a_wrong_template(lines[-1], run)


_LARGEST_GAP = 0.05
"""Mean gap, in nats, between two programs' log-probabilities that rounding in bfloat16 can still explain."""


def sign_of_other_weights(metrics: Metrics, top_p: float) -> str | None:
    """Return a warning if the sampling program seems to hold other weights than the policy that trains, or else None.

    The metric ``rollout/sampler_gap`` is the mean absolute difference between the log-probabilities that the two give
    to the sampled tokens. The warning is returned if this gap is larger than rounding can explain. With `top_p` below
    1, the sampler's values are higher, so the gap may be larger, by up to -log(top_p). Without the metric, return None.
    """
    gap, limit = metrics.get("rollout/sampler_gap", 0), _LARGEST_GAP - math.log(top_p)
    if gap <= limit:
        return None
    return (
        f"the log-probabilities of the sampled tokens are {gap:.2f} nats from the policy's on average, and rounding"
        f" explains {limit:.2f}: what samples may have old or broken weights; stop with Ctrl-C, and try"
        " engine.flags.vllm.enforce_eager true, which leaves CUDA graphs out"
    )


_ADVICE = "stop with Ctrl-C and look at the responses in rollouts/; a lower train.learning_rate may help"

MetricLog = Callable[[int, Metrics], None]
"""Receives a step and its metrics."""


def require_packages(recipe: Recipe) -> None:
    """Raise NotHere if a package that this recipe's settings need is not installed: tensorboard, wandb or peft."""
    for wanted, package, key in (
        (recipe.logging.tensorboard, "tensorboard", "logging.tensorboard"),
        (recipe.logging.wandb, "wandb", "logging.wandb"),
        (recipe.train.lora_rank, "peft", "train.lora_rank"),
    ):
        if wanted and find_spec(package) is None:
            raise not_installed(package, key)


@contextmanager
def metric_logs(recipe: Recipe, run: Path, done: int) -> Iterator[list[MetricLog]]:
    """Open TensorBoard's log and Weights & Biases if the recipe asks for them, and close them after the block.

    `done` is the number of steps that a resumed run keeps; TensorBoard hides what was logged for later steps.

    Yields:
        A list with a function for each open log. The function takes the number of a step and the step's metrics, and
        logs them.
    """
    with ExitStack() as stack:
        logs: list[MetricLog] = []
        if recipe.logging.tensorboard:
            logs.append(stack.enter_context(_tensorboard(run, done)))
        if recipe.logging.wandb:
            logs.append(stack.enter_context(_wandb(recipe, run)))
        yield logs


@contextmanager
def reports(run: Attempt) -> Iterator[MetricLog]:
    """Yield a function to call with each step's number and metrics.

    The function logs and shows the metrics, and warns if they look wrong. The logs are closed after the block.
    """
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
    """Finds signs of trouble in a run's metrics, step by step.

    Two signs are reported only once: falling held-out accuracy, and a sampler whose weights are not the policy's.
    """

    def __init__(self, run: Attempt) -> None:
        self._run, self._has_other_weights = run, False
        self._measured = read_metrics(run.path, "eval/avg")
        # If accuracy had already fallen, an earlier attempt of the run has reported it.
        self._has_fallen = accuracy_fall(self._measured) is not None

    def after(self, step: int, metrics: Metrics) -> Iterator[str]:
        """Yield a sentence for each sign of trouble that appears with this step's metrics."""
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
    """Yield a function that writes a step's metrics for TensorBoard; hide what was logged for steps after `done`."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(
        # Hide what an earlier attempt logged for steps that are now taken once more.
        str(run / "tensorboard"),
        purge_step=done + 1 if done else 0,
    ) as writer:

        def log(step: int, metrics: Metrics) -> None:
            for name, value in metrics.items():
                writer.add_scalar(name, value, step)

        yield log


@contextmanager
def _wandb(recipe: Recipe, run: Path) -> Iterator[MetricLog]:
    """Yield a function that sends a step's metrics to Weights & Biases; a resumed run continues its curves."""
    import wandb

    session = wandb.init(
        project=recipe.logging.wandb,
        name=run.absolute().name,  # all runs of a sweep share the recipe's name
        group=recipe.name,
        dir=str(run),
        config=recipe.plain(),
        # With the run's own id, an attempt that resumes continues the same curves.
        id=run_id(run),
        resume="allow",
    )

    def log(step: int, metrics: Metrics) -> None:
        session.log(metrics, step=step)

    try:
        yield log
    finally:
        session.finish()
