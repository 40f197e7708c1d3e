"""GRPO with Online Label Refinement, on one machine and in one process: the whole training loop.

    for every epoch, for the prompts of every step (in an order drawn for the epoch):
        sample       K rollouts of each prompt                                            sampler.py
        supervise    answers → vote → history → label → rewards and advantages            olr_cli/supervision
        update       one pass of GRPO over the rollouts                                   grpo.py
        end of step  store, measure, log; save a due checkpoint; stop if asked to         olr_cli/engines/step.py

    olr train laptop/quickstart

This is the paper's Algorithm 1, whose last line is "update policy with GRPO". GRPO was published by Shao et al. 2024
(DeepSeekMath, arXiv:2402.03300, Algorithm 1). Differences from the published algorithm, and the reasons:

1. No reward model is used or trained. A reward is the verifier's verdict on the answer, given the
   effective label (R16), or an intrinsic score. A response has one reward, so all of its tokens have the same
   advantage: this is outcome supervision, not process supervision.
2. The reference of the KL term stays the starting policy, as in the paper (R17). Published: it is renewed in every
   outer iteration.
3. A step makes one pass over its rollouts, as in the authors' scripts (published: mu passes). Each mini-batch of whole
   prompts gives one optimiser step. In the first mini-batch the policy is still the one that sampled: the ratio is 1
   up to rounding, so the clip can only act from the second one on. The quickstart has one mini-batch per step, so
   there it never acts.
4. The loss of a mini-batch is one mean over all its response tokens, as in the authors' scripts (R17), so long
   responses weigh more. Published: a mean over the tokens of each response, then over responses
   (`train.loss_average: sequence`).
5. Advantages are divided by the population standard deviation + 1e-6, as in the paper's Eq. 1. Published: by the std.
6. The dual clip comes from verl, which the authors ran: a token with a negative advantage A loses at most 3 |A|.
7. The KL term is part of the loss and estimated by k3, as published. Its weight is 1e-3, as in the paper (published:
   0.04). As in verl, the estimate of a token is at most 10, and there it has no gradient.
8. A method may add a term to the loss, and may choose the prompts that train (docs/methods.md). The other prompts
   enter no sum and no count of the update.

On the same kind of CPU, a run with the same number of threads repeats bit for bit, even after a kill and --resume
(R18). The reason is that each of our random draws is keyed by its purpose. A checkpoint holds the weights, the
optimiser, and torch's random state, which only models that draw random numbers themselves need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from olr_cli.data.prompts import Prompt, View
from olr_cli.engines.held_out import held_out_metrics
from olr_cli.engines.local.checkpoint import save_checkpoint
from olr_cli.engines.local.grpo import Grpo
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.local.sampler import SampledRollouts, sample
from olr_cli.engines.reporting import reports, start_progress
from olr_cli.engines.run import Attempt, engine_section
from olr_cli.engines.step import StepEnd
from olr_cli.recipe.sampling import Sampling
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.sections import LocalEngine
from olr_cli.runs.interrupts import stop_requests
from olr_cli.runs.metrics import Metrics, Stopwatch
from olr_cli.runs.schedule import Schedule
from olr_cli.runs.throughput import StepWork, throughput
from olr_cli.seeding import rollout_keys
from olr_cli.supervision import Decided, Step

TokenIds = Sequence[list[int]]
"""The tokens of several texts."""


def train(
    run: Attempt,
    grpo: Grpo,
    token_ids: Sequence[TokenIds],
    held_out: Mapping[str, TokenIds],
) -> None:
    """Train the policy for all steps after `run.done`, which is the number of complete steps.

    Args:
        run: the attempt to train. Its supervisor decides the labels, and its writer stores the steps.
        grpo: policy, reference and optimiser as they are after `run.done` steps.
        token_ids: for each training prompt, its token ids in each of its views (wordings).
        held_out: maps the prefix of a held-out set's metrics, such as ``eval``, to the token ids of the set's prompts.

    Raises:
        Diverged: a loss, gradient or logit is not finite. All earlier steps are kept.
        Interrupted: Ctrl-C or SIGTERM came. A checkpoint after the last complete step has been saved.
    """
    policy, views, schedule = (
        grpo.policy,
        run.data.views,
        Schedule.of(run.recipe, len(token_ids)),
    )
    start_progress(run, schedule)
    with stop_requests() as stop, reports(run) as report:
        end = StepEnd(
            run.writer,
            schedule,
            held_out=lambda: measure_held_out(run, policy, held_out),
            save=lambda step: save_checkpoint(run, step, grpo),
            stop=stop.interruption,
            report=report,
        )
        # A resumed run has measured its starting policy already.
        if run.done == 0:
            end.before_training()
        for step in schedule.after(run.done):
            clock = begin_step(policy)
            with end.stopping_if_diverged(step, failed=step - 1):
                sampled, rollouts = roll_out(
                    run, policy, token_ids, schedule=schedule, step=step, clock=clock
                )
                decided = run.supervisor.supervise(rollouts, clock.measure)
                advantages, trains = advantages_and_trains(decided, views)
                with clock.measure("update"):
                    metrics = grpo.update(
                        sampled, advantages, trains, schedule.learning_rates(step)
                    )
            end.complete(
                step, decided, clock, metrics, partial(speed, policy, sampled, trains)
            )


def roll_out(
    run: Attempt,
    policy: Policy,
    token_ids: Sequence[TokenIds],
    *,
    schedule: Schedule,
    step: int,
    clock: Stopwatch,
) -> tuple[SampledRollouts, Step]:
    """Sample K rollouts of each view (wording) of each prompt of a step.

    Args:
        run: the run, whose recipe sets K.
        policy: the policy to sample from.
        token_ids: for each training prompt, its token ids in each of its views.
        schedule: says which prompts the step takes.
        step: the number of the step, from 1.
        clock: measures the time of sampling and of reading the responses.

    Returns:
        The rollouts in two forms: as tensors for the update, and as a `Step`, from which the supervisor decides labels.
    """
    recipe, views, epoch, rows = (
        run.recipe,
        run.data.views,
        schedule.epoch(step),
        schedule.rows(step),
    )
    prompts = [run.data.train.prompts[row] for row in rows]
    with clock.measure("rollouts"):
        texts = [tokens for row in rows for tokens in token_ids[row]]
        keys_PG = training_keys(recipe, epoch, prompts, views)
        sampled = sample_texts(run, policy, texts, keys_PG, Sampling.of(recipe.train))
    with clock.measure("verification"):
        rollouts = sampled_step(prompts, sampled, epoch, step, views)
    return sampled, rollouts


def measure_held_out(
    run: Attempt, policy: Policy, token_ids: Mapping[str, TokenIds]
) -> Metrics:
    """Sample responses to the held-out prompts, and return the accuracy of each set as metrics.

    `token_ids` maps the prefix of a set's metrics, such as ``eval``, to the token ids of the set's prompts. All
    measurements of a run use the same random numbers, so only the policy changes between them.
    """
    recipe, held_out, responses = run.recipe, run.data.held_out, {}
    for prefix, texts in token_ids.items():
        names = [prompt.prompt_id for prompt in held_out[prefix].prompts]
        # Epoch 0 at every measurement: the same random numbers, so that only the policy makes a difference.
        keys_PG = rollout_keys(
            "held-out", recipe.seed, 0, names, recipe.train.held_out_rollouts
        )
        drawn = Sampling.held_out(recipe.train)
        sampled = sample_texts(run, policy, texts, keys_PG, drawn, what="held-out rollouts")
        responses[prefix] = sampled.texts_PG
    return held_out_metrics(
        held_out, responses, run.supervisor.judge, recipe.data.extractor
    )


def sample_texts(
    run: Attempt,
    policy: Policy,
    texts: TokenIds,
    keys_PG: Any,
    sampling: Sampling,
    *,
    what: str = "rollouts",
) -> SampledRollouts:
    """Sample G rollouts of each of P prompts, and show the progress.

    `texts` has the prompts as token ids, and `keys_PG` a random key for each rollout. `what` is the progress display's
    word for the rollouts.
    """
    return sample(
        policy,
        texts,
        keys_PG,
        sampling,
        batch_tokens=engine_section(run.recipe, LocalEngine).max_batch_tokens,
        report=lambda ended: run.progress.within(ended, keys_PG.size, what),
    )


def training_keys(
    recipe: Recipe, epoch: int, prompts: Sequence[Prompt], views: Sequence[View]
) -> Any:
    """Return an array of random keys for a step's K rollouts of each view (wording) of each prompt.

    Its shape is (prompts * views, K), and the rows of a prompt's views are neighbours. A key depends on the recipe's
    seed, the epoch, the prompt's id, the view, and the number of the rollout.
    """
    # Each view has a purpose of its own, or both wordings would be sampled with the same random numbers.
    purposes = {"original": "rollout", "rephrased": "rollout of the rephrased prompt"}
    names, rollouts = (
        [prompt.prompt_id for prompt in prompts],
        recipe.train.rollouts_per_prompt,
    )
    keys = [
        rollout_keys(purposes[view], recipe.seed, epoch, names, rollouts) for view in views
    ]
    return np.stack(keys, axis=1).reshape(-1, rollouts)


def sampled_step(
    prompts: Sequence[Prompt],
    sampled: SampledRollouts,
    epoch: int,
    step: int,
    views: Sequence[View],
) -> Step:
    """Return a step's rollouts as a `Step`, the form that the supervisor reads.

    `sampled` has a row of rollouts for each view (wording) of each prompt; the rows of a prompt are neighbours.
    """
    columns = {
        name: values_PG.flatten().tolist() for name, values_PG in sampled.statistics.items()
    }
    responses = [text for texts in sampled.texts_PG for text in texts]
    return Step.sampled(
        step, epoch, prompts, views, responses=responses, statistics=columns
    )


def advantages_and_trains(
    decided: Decided, views: Sequence[View]
) -> tuple[torch.Tensor, list[bool]]:
    """Return the supervisor's advantages, a row for each view (wording) of each prompt, and whether each row trains.

    The advantages are a float64 tensor, (P * views, K). A row has the K rollouts of one prompt in one view.
    """
    advantages = torch.tensor(decided.advantages, dtype=torch.float64)
    trains = [trains for trains in decided.trains for _ in views]
    return advantages.view(len(trains), -1), trains


def begin_step(policy: Policy) -> Stopwatch:
    """Start a step: return a running clock, and let torch measure the peak of GPU memory from here."""
    clock = Stopwatch()
    if policy.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(policy.device)
    return clock


def speed(
    policy: Policy, sampled: SampledRollouts, trains: Sequence[bool], metrics: Metrics
) -> dict[str, float | None]:
    """Return metrics of a step's throughput and its peak of GPU memory (see `throughput`).

    On a CPU the peak is None. `trains` says whether each row of `sampled` trained. `metrics` has the seconds of the
    step's parts.
    """
    rollouts = sampled.lengths_PG.shape[1]
    prompts = [len(prompt) for prompt in sampled.prompts for _ in range(rollouts)]
    training = [row for row in trains for _ in range(rollouts)]
    work = StepWork(prompts, sampled.lengths_PG.flatten().tolist(), training)
    peak = (
        torch.cuda.max_memory_allocated(policy.device)
        if policy.device.type == "cuda"
        else None
    )
    return throughput(work, metrics, peak)
