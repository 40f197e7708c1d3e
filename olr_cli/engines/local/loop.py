"""GRPO on one machine, in one process: the whole training loop.

    for every epoch, for every batch of prompts (in an order drawn for the epoch):
        sample K rollouts of each prompt  →  supervise the labels
        →  one pass of GRPO updates  →  store records and metrics
        →  every now and then: held-out accuracy, a checkpoint

On CPU a run repeats bit for bit for one thread count, also after a kill and --resume (R18): every draw of ours is keyed
by what it is for. A checkpoint holds weights, optimiser, and torch's random state for models that draw themselves.

    olr train laptop/quickstart
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from olr_cli.data.chat import Message
from olr_cli.data.prompts import Prompt, View
from olr_cli.engines.held_out import held_out_metrics
from olr_cli.engines.local.grpo import Grpo
from olr_cli.engines.local.lora import LoraPolicy
from olr_cli.engines.local.policy import Policy, digest
from olr_cli.engines.local.sampler import SampledRollouts, sample
from olr_cli.engines.models import model_location
from olr_cli.engines.prompt_text import ChatFormat, require_room, template_warnings
from olr_cli.engines.reporting import MetricLog, reports, require_packages, start_progress
from olr_cli.engines.run import Attempt, DataSets, NonFinite, diverged, engine_section, loss_average_departure
from olr_cli.errors import UserError, first_line
from olr_cli.files import system_problem
from olr_cli.packages import untested_versions
from olr_cli.recipe.schema import LocalEngine, Recipe
from olr_cli.runs.checkpoints import checkpoint_path, is_best
from olr_cli.runs.interrupts import Interrupted, stop_requests
from olr_cli.runs.metrics import Metrics, Stopwatch, known
from olr_cli.runs.schedule import Schedule
from olr_cli.runs.throughput import StepWork, throughput
from olr_cli.seeding import rollout_keys
from olr_cli.supervision import Decided, Step
from olr_cli.supervision.metrics import step_metrics


class LocalRunner:
    """The engine for one machine: loads the policy, then trains it (see `olr_cli.engines.run.Engine`)."""

    def __init__(self, recipe: Recipe, data: DataSets) -> None:
        """Load the starting policy and encode every prompt."""
        require_packages(recipe)
        set_up_torch(recipe)
        self.policy = load_policy(recipe)
        self.views = data.views
        encoded = [encode_prompts(self.policy, data.train.prompts, recipe, view) for view in self.views]
        self.token_ids = list(zip(*encoded, strict=True))  # of each prompt, its views
        self.held_out = {
            prefix: encode_prompts(self.policy, prompts.prompts, recipe)
            for prefix, prompts in data.held_out.items()
        }
        on_gpu = self.policy.device.type == "cuda"
        no_repeat = ["results do not repeat bit for bit on a GPU"] if on_gpu else []
        self.facts = {
            "engine": "local",
            "device": torch.cuda.get_device_name() if on_gpu else "cpu",
            "dtype": str(self.policy.dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "policy_digest": digest(self.policy.model),
            "departures": [
                "advantages are divided by the population standard deviation, as in the paper's Eq. 1 (the authors'"
                " code: sample standard deviation)",
                "mini-batches are of whole prompts (the authors': of single rollouts)",
                loss_average_departure(recipe),
                *(no_repeat or untested_versions()),
            ],
        }
        self.warnings = template_warnings(self.policy.tokenizer, recipe)

    @property
    def plan(self) -> list[str]:
        """Where it would compute."""
        return [f"device {self.facts['device']}"]

    def render(self, messages: Sequence[Message]) -> str:
        """A prompt exactly as the policy sees it."""
        return self.policy.render(messages)

    def complete(self, run: Attempt) -> dict[str, Any]:
        """Train from step `run.done` to the end.

        Raises:
            UserError: the disk is full.
            Diverged: a loss, gradient or logit is not finite; everything before that step is kept.
            Interrupted: Ctrl-C or SIGTERM came; a checkpoint after the last complete step exists.
        """
        recipe, prompts, judge = run.recipe, run.data.train.prompts, run.supervisor.judge
        run.supervisor.expect(prompts)
        schedule = Schedule.of(recipe, len(prompts))
        settings, checkpoint = recipe.train, checkpoint_path(run.path, run.done) if run.done else None
        if settings.lora_rank is not None:
            self.policy = LoraPolicy.attach(self.policy, recipe, checkpoint)
        reference = self.policy.frozen_copy() if settings.kl_weight > 0 else None
        if checkpoint is not None and settings.lora_rank is None:
            self.policy = load_policy(recipe, checkpoint)
        engine = engine_section(recipe, LocalEngine)
        grpo = Grpo(
            self.policy,
            reference,
            settings,
            recipe.method,
            views=len(self.views),
            micro_batch_tokens=engine.micro_batch_tokens or engine.max_batch_tokens,
        )
        if checkpoint is not None:
            load_trainer(grpo, checkpoint)
        on_gpu = self.policy.device.type == "cuda"
        start_progress(run, schedule)

        with stop_requests() as stop, reports(run) as report:
            if run.done == 0:
                with stopping_if_diverged(run, 0, 0, failed=0):
                    before_training = self.measure_held_out(run)
                _record(run, report, 0, 0, before_training)
            for step in schedule.after(run.done):
                epoch = schedule.epoch(step)
                clock = Stopwatch()
                if on_gpu:
                    torch.cuda.reset_peak_memory_stats(self.policy.device)
                timeouts_before = judge.timeouts
                with stopping_if_diverged(run, step, epoch, failed=step - 1):
                    sampled, decided = self._roll_out(run, clock, step, epoch, schedule.rows(step))
                advantages, trains = advantages_and_trains(decided, self.views)
                with clock.measure("update"), stopping_if_diverged(run, step, epoch, failed=step - 1):
                    metrics = grpo.update(sampled, advantages, trains, schedule.learning_rates(step))
                with clock.measure("store"):
                    tables = run.writer.store(step, decided.labels, decided.rollouts)
                metrics |= step_metrics(*tables, judge.timeouts - timeouts_before)
                if schedule.is_due(step, settings.evaluate_every):
                    with clock.measure("evaluation"), stopping_if_diverged(run, step, epoch, failed=step):
                        metrics |= self.measure_held_out(run)
                times = clock.metrics()
                peak = torch.cuda.max_memory_allocated(self.policy.device) if on_gpu else None
                speed = throughput(step_work(sampled, trains), times, peak)
                _record(run, report, step, epoch, {**metrics, **times, **speed})
                signal_number = stop.signal_number  # read once: no stop without its checkpoint
                is_due = schedule.is_due(step, settings.checkpoint_every)
                if is_due or is_best(run.path, step, metrics) or signal_number is not None:
                    save_checkpoint(run, step, self.policy, grpo)
                if step < schedule.last and signal_number is not None:
                    raise Interrupted(signal_number)
        return {"steps": schedule.last, "policy": str(checkpoint_path(run.path, schedule.last))}

    def _roll_out(
        self, run: Attempt, clock: Stopwatch, step: int, epoch: int, rows: Sequence[int]
    ) -> tuple[SampledRollouts, Decided]:
        """Rollouts of the prompts in `rows`, and what the supervisor decided about them."""
        batch = [run.data.train.prompts[row] for row in rows]
        with clock.measure("rollouts"):
            sampled = self._sample(
                run.recipe,
                [tokens for row in rows for tokens in self.token_ids[row]],
                training_keys(run.recipe, epoch, batch, self.views),
                run.recipe.train.temperature,
            )
        with clock.measure("verification"):
            rollouts = sampled_step(batch, sampled, epoch, step, self.views)
        return sampled, run.supervisor.supervise(rollouts, clock.measure)

    def measure_held_out(self, run: Attempt) -> Metrics:
        """Accuracy on the recipe's held-out prompts."""
        recipe, held_out, responses = run.recipe, run.data.held_out, {}
        for prefix, token_ids in self.held_out.items():
            names = [prompt.prompt_id for prompt in held_out[prefix].prompts]
            keys = rollout_keys("held-out", recipe.seed, 0, names, recipe.train.held_out_rollouts)
            sampled = self._sample(recipe, token_ids, keys, recipe.train.evaluation_temperature)
            responses[prefix] = sampled.texts_PG
        return held_out_metrics(held_out, responses, run.supervisor.judge, recipe.data.extractor)

    def _sample(
        self, recipe: Recipe, token_ids: Sequence[list[int]], keys_PG: Any, temperature: float
    ) -> SampledRollouts:
        return sample(
            self.policy,
            token_ids,
            keys_PG,
            max_new_tokens=recipe.train.max_new_tokens,
            temperature=temperature,
            top_p=recipe.train.top_p,
            stop=recipe.train.stop,
            top_k=recipe.train.top_k,
            min_p=recipe.train.min_p,
            batch_tokens=engine_section(recipe, LocalEngine).max_batch_tokens,
        )


@contextmanager
def stopping_if_diverged(run: Attempt, step: int, epoch: int, *, failed: int) -> Iterator[None]:
    """End the run where a part of a step computes what is not finite (see `diverged`)."""
    try:
        yield
    except NonFinite as error:
        run.writer.drop_after(max(step - 1, 0))  # held-out accuracy is measured when the step is stored
        raise diverged(run.writer, error, step=step, epoch=epoch, failed=failed) from error


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # in malloc.h
_LARGEST_KEPT = 32 << 20
"""The most that glibc takes; a larger tensor's memory comes from the system each time."""


def keep_freed_memory() -> None:
    """Let this process keep the memory it frees, where the C library is glibc.

    Every step allocates and frees the same tensors. Had the system their memory in between, every page of it would
    come back through a fault, and filled with zeros.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT)
        libc.mallopt(_M_TRIM_THRESHOLD, -1)  # never


def set_up_torch(recipe: Recipe) -> None:
    """Set torch up as the recipe says, so that results repeat, and so that memory costs little time."""
    threads = engine_section(recipe, LocalEngine).threads
    if threads is not None:
        torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    # No memory is read here before it is written; to fill it first would only take time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    keep_freed_memory()


def load_policy(recipe: Recipe, checkpoint: Path | None = None) -> Policy:
    """The recipe's starting policy, or the one in a checkpoint."""
    model, engine = checkpoint or model_location(recipe.model.path), engine_section(recipe, LocalEngine)
    policy = Policy.load(
        model,
        device=engine.device,
        dtype=None if engine.dtype == "auto" else getattr(torch, engine.dtype),
        trust_remote_code=recipe.model.trust_remote_code,
    )
    ChatFormat.of(recipe).put_into(policy.tokenizer)
    return policy


def encode_prompts(
    policy: Policy, prompts: Sequence[Prompt], recipe: Recipe, view: View = "original"
) -> list[list[int]]:
    """Token ids of every prompt, in the words of a view."""
    token_ids = policy.encode([prompt.turns(view) for prompt in prompts])
    require_room(prompts, token_ids, recipe, policy.context_length, view)
    return token_ids


def training_keys(recipe: Recipe, epoch: int, prompts: Sequence[Prompt], views: Sequence[View]) -> Any:
    """Keys of a step's rollouts, of shape (prompts * views, K), the views of a prompt neighbours."""
    purposes = {"original": "rollout", "rephrased": "rollout of the rephrased prompt"}
    names, rollouts = [prompt.prompt_id for prompt in prompts], recipe.train.rollouts_per_prompt
    keys = [rollout_keys(purposes[view], recipe.seed, epoch, names, rollouts) for view in views]
    return np.stack(keys, axis=1).reshape(-1, rollouts)


def sampled_step(
    prompts: Sequence[Prompt], sampled: SampledRollouts, epoch: int, step: int, views: Sequence[View]
) -> Step:
    """Rollouts of P prompts, sampled as P * views, as the supervisor takes them."""
    statistics = {
        "tokens": sampled.lengths_PG,
        "truncated": sampled.truncated_PG,
        "mean_logprob": sampled.mean_logprobs_PG,
        "entropy": sampled.entropy_PG,
        "self_certainty": sampled.self_certainty_PG,
    }
    columns = {name: values_PG.flatten().tolist() for name, values_PG in statistics.items()}
    responses = [text for texts in sampled.texts_PG for text in texts]
    return Step.sampled(step, epoch, prompts, views, responses, columns)


def advantages_and_trains(decided: Decided, views: Sequence[View]) -> tuple[torch.Tensor, list[bool]]:
    """Advantages (P * views, K), and whether each row trains."""
    advantages = torch.tensor(decided.advantages, dtype=torch.float64)
    trains = [trains for trains in decided.trains for _ in views]
    return advantages.view(len(trains), -1), trains


def step_work(sampled: SampledRollouts, trains: Sequence[bool]) -> StepWork:
    """The work of a step; `trains` has a value a row of `sampled`."""
    rollouts = sampled.lengths_PG.shape[1]
    return StepWork(
        [len(prompt) for prompt in sampled.prompts for _ in range(rollouts)],
        sampled.lengths_PG.flatten().tolist(),
        [row for row in trains for _ in range(rollouts)],
    )


def save_checkpoint(run: Attempt, step: int, policy: Policy, grpo: Grpo) -> None:
    """Write weights and tokenizer in Hugging Face layout, the optimiser, and torch's random state."""

    def fill(folder: Path) -> None:
        policy.save(folder)
        # Through a file of ours: torch's own hides the system's error on a full disk.
        with (folder / "optimizer.pt").open("wb") as file:
            torch.save(grpo.optimizer.state_dict(), file)

    run.writer.checkpoint(step, fill, rng=torch.get_rng_state().tolist())


def load_trainer(grpo: Grpo, checkpoint: Path) -> None:
    """Bring the optimiser, and torch's random state, to where a checkpoint left them."""
    try:
        state = torch.load(checkpoint / "optimizer.pt", weights_only=True, map_location=grpo.policy.device)
        grpo.optimizer.load_state_dict(state)
        saved = json.loads((checkpoint / "trainer.json").read_text(encoding="utf-8"))
        torch.set_rng_state(torch.tensor(saved["rng"], dtype=torch.uint8))
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        problem = system_problem(error) or f"it has no state of this run's optimiser ({first_line(error)})"
        raise UserError(
            f"{checkpoint} could not be continued: {problem}; remove it, and --resume takes the one before"
        ) from error


def _record(
    run: Attempt, report: MetricLog, step: int, epoch: int, measured: Mapping[str, float | None]
) -> None:
    run.writer.log(step, epoch, measured)
    report(step, known(measured))
