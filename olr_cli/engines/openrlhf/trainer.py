"""OpenRLHF's controller with the supervisor in it.

    OpenRLHF:   sample ──► forward passes ──► [supervise] ──► advantages ──► update ──► weights to vLLM ──► [record]
                      └──► [verify] ────────────────┘

The steps in brackets are ours. Answers are verified while the models, in other processes, make their forward passes.
This process alone writes the run's records; the command that started the job reads them.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import ray
from openrlhf.trainer.ppo_trainer import PPOTrainer
from openrlhf.trainer.ray.vllm_engine import batch_vllm_engine_call
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from olr_cli.answers import Judge, ResponseTexts
from olr_cli.engines.held_out import held_out_metrics
from olr_cli.engines.local.loss import smoothed
from olr_cli.engines.openrlhf.actor import PolicyForward
from olr_cli.engines.openrlhf.balance import deal
from olr_cli.engines.openrlhf.experience import (
    give_rewards,
    group_members,
    response_texts,
    sampled_step,
    sampler_gap,
    step_work,
    token_means,
    with_statistics,
)
from olr_cli.engines.openrlhf.experience_maker import PromptOrder, SupervisedExperienceMaker
from olr_cli.engines.openrlhf.flags import divides_by_std
from olr_cli.engines.openrlhf.job_files import JobFiles, JobStopped, held_out_label
from olr_cli.engines.prompt_text import ChatFormat
from olr_cli.engines.resume import require_same_data
from olr_cli.engines.run import (
    LOGITS,
    LOSS_OR_GRADIENT,
    NONFINITE,
    NonFinite,
    engine_section,
    load_data,
)
from olr_cli.engines.step import StepEnd
from olr_cli.errors import UserError
from olr_cli.recipe.sections import OpenRlhfEngine
from olr_cli.runs.checkpoints import checkpoint_steps
from olr_cli.runs.directory import GIVEN_UP, read_recipe, start_day
from olr_cli.runs.metrics import Metrics, Stopwatch
from olr_cli.runs.schedule import Schedule
from olr_cli.runs.store import stored_history
from olr_cli.runs.throughput import StepWork, throughput
from olr_cli.runs.writer import RunWriter
from olr_cli.supervision import Decided, Step, make_supervisor

_METRICS = {
    "policy/kl": "kl",
    "policy/clip_fraction": "ppo_clip_ratio",
    "policy/grad_norm": "actor_grad_norm",
    "policy/lr": "actor_lr",
    "time/rollouts": "timing/generation",
    "time/weights": "timing/broadcast",
}
"""Our names of metrics -> OpenRLHF's."""


class ReadRollouts(NamedTuple):
    """A step's rollouts before any forward pass, in the order of the step's prompts; `SupervisedTrainer.read` makes it.

    `order[i]` is the index of rollout i of `step` in OpenRLHF's list of the step's samples.
    """

    step: Step
    order: list[int]


@dataclass(frozen=True)
class SupervisedStep:
    """A step that is not recorded yet: the supervisor's labels and rewards, token counts, and the sampler gap.

    `SupervisedTrainer.supervise` makes it. `sampler_gap` defines the gap.
    """

    decided: Decided
    work: StepWork
    sampler_gap: float | None
    """None if it is unknown."""


class SupervisedTrainer(PPOTrainer.__ray_metadata__.modified_class):  # type: ignore[misc]
    """Run OpenRLHF's training loop with labels and rewards from olr's supervisor, and record every step."""

    run_path: Path  # locked by the command that started the job
    _step: int  # the step in progress, from 1
    _clock: Stopwatch  # has run since that step began
    _supervised: SupervisedStep | None  # None until the step's labels are decided

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.files = JobFiles(self.run_path)
        self.files.enter_working_folder()
        # OpenRLHF reads our files with the package datasets, which would leave copies of them in the user's home.
        datasets.config.HF_DATASETS_CACHE = self.files.scratch / "datasets"
        super().__init__(*args, **kwargs)
        # The command that started this job has asked whether the recipe's code may run.
        self.recipe = read_recipe(self.run_path).of_strangers(())
        # The command holds the run's lock, so this process joins its attempt.
        writer = RunWriter.join(self.run_path, self.recipe)
        self.data = load_data(self.recipe, day=start_day(self.run_path))
        require_same_data(self.run_path, self.data)
        self.schedule = Schedule.of(self.recipe, len(self.data.train.prompts))
        self._done = max(checkpoint_steps(self.run_path), default=0)
        judge = Judge(ledger=self.run_path / GIVEN_UP, tolerance=self.recipe.data.tolerance)
        history = stored_history(self.run_path, judge) if self._done else None
        self.supervisor = make_supervisor(
            self.recipe, self.data.keep_fraction, judge, history
        )
        self.supervisor.expect(self.data.train.prompts)
        self._end = StepEnd(
            writer,
            self.schedule,
            held_out=self.measure_held_out,
            save=self._save_checkpoint,
            stop=lambda: JobStopped() if self.files.stop.exists() else None,
        )
        rows = self.samples_generator.prompts_dataloader.dataset
        self.prompts_dataloader = PromptOrder(self.schedule, rows, self._done)
        self.samples_generator.prompts_dataloader = self.prompts_dataloader
        self.generate_kwargs["min_new_tokens"] = 0  # an empty response counts too
        self.experience_maker = SupervisedExperienceMaker(
            self.actor_model_group,
            self.critic_model_group,
            self.reward_model_group,
            self.reference_model_group,
            self.kl_ctl,
            self.strategy,
            self.tokenizer,
        )
        self.experience_maker.trainer = self

    @cached_property
    def texts(self) -> ResponseTexts:
        """Return the decoder of responses' token ids, made on first use."""
        return ResponseTexts(self.tokenizer)

    def get_max_steps(self) -> int:
        """Wait until every vLLM engine has started, then return OpenRLHF's total number of steps.

        OpenRLHF calls this before it makes the policy. It does not always wait for the engines itself, and the policy
        would wait many minutes for a dead engine. Here the death of an engine raises Ray's error at once.
        """
        batch_vllm_engine_call(self.vllm_engines, "get_num_unfinished_requests")
        steps: int = super().get_max_steps()
        return steps

    def init_checkpoint_states(self) -> dict[str, Any]:
        """Return the state from which OpenRLHF's loop continues: the episode and the step of our last checkpoint.

        Without a checkpoint, episode and step are 0.

        Raises:
            UserError: DeepSpeed has not loaded the state of that step.
        """
        states = ray.get(
            self.actor_model_group.async_run_method(method_name="get_checkpoint_states")
        )
        loaded = {state.get("global_step", 0) for state in states}
        if loaded != {self._done}:
            raise UserError(
                f"{self.run_path} continues after step {self._done}, but DeepSpeed loaded the state of step"
                f" {', '.join(map(str, sorted(loaded)))}",
                "restore the checkpoint's folder",
            )
        return {
            "episode": self._done // self.schedule.per_epoch,
            "global_step": self._done,
            # `PromptOrder` finds its own position from the number of complete steps.
            "total_consumed_prompts": 0,
            "data_loader_state_dict": {},
        }

    def fit(self, global_step: int = 0) -> None:
        """Train from the step after the last checkpoint to the end.

        Without a checkpoint, first evaluate the untrained policy on the held-out prompts. `global_step` is the number
        of complete steps.
        """
        shutil.rmtree(self.files.universal, ignore_errors=True)  # every rank has loaded it
        self.files.ready.touch()
        if self._done == 0:
            self._end.before_training()
        super().fit(global_step)

    def train_step(
        self, rollout_samples: list[Any], global_step: int
    ) -> tuple[dict[str, Any], int]:
        """Take step `global_step` + 1; return OpenRLHF's status of the step, and the step's number.

        `supervise` decides the rewards after the forward passes, before the update.

        Raises:
            Diverged: logits, a loss or the gradient are infinite or NaN; the step is not recorded.
        """
        self._step, self._clock, self._supervised = global_step + 1, Stopwatch(), None
        with self._end.stopping_if_diverged(self._step, failed=global_step):
            try:
                result: tuple[dict[str, Any], int] = super().train_step(
                    rollout_samples, global_step
                )
            # An error of a rank counts too: Ray's error inherits from the class of its cause.
            except NonFinite as error:
                raise NonFinite(
                    LOGITS if self._supervised is None else LOSS_OR_GRADIENT
                ) from error
        return result

    def deal(self, lengths: Sequence[int]) -> list[int]:
        """Return a step's samples in an order that gives all ranks about the same work, as indices into `lengths`.

        OpenRLHF cuts this order into equal chunks, one for each rank. `lengths` has the number of tokens of each
        sample.
        """
        batches = deal(
            lengths,
            ranks=engine_section(self.recipe, OpenRlhfEngine).policy_gpus,
            mini_batch=self.args.train.batch_size,
            micro_batch=self.args.rollout.micro_batch_size,
            draw=("mini-batches", self.recipe.seed, self._step),
        )
        return [number for batch in batches for number in batch]

    def read(self, samples: list[Any]) -> ReadRollouts:
        """Read a step's rollouts and verify their answers; return the rollouts in the order of the step's prompts.

        `samples` has an `Experience` for each rollout, in the order in which vLLM finished them. The method runs in a
        thread while the models compute.

        Raises:
            ValueError: the samples are not those of the step's prompts.
        """
        # OpenRLHF gives the samples as vLLM finished them.
        samples_of = group_members(
            samples, self.supervisor.method.views, self.recipe.train.rollouts_per_prompt
        )
        # vLLM finishes groups in any order. Restore the order of the step's prompts, in which the local engine stores
        # them too: noise draws and label choices must not depend on vLLM's speed (R18).
        prompts = [self.data.train.prompts[row] for row in self.schedule.rows(self._step)]
        order = [
            sample for prompt in prompts for sample in samples_of.pop(prompt.prompt_id)
        ]
        if samples_of:
            raise ValueError(
                f"step {self._step} does not visit prompts {', '.join(samples_of)}"
            )
        step = sampled_step(
            [samples[number] for number in order],
            prompts,
            self.texts,
            self.supervisor.method.views,
            visit=self.schedule.epoch(self._step),
            step=self._step,
            stop=self.recipe.train.stop,
        )
        self.supervisor.read_ahead(step)
        return ReadRollouts(step, order)

    def supervise(
        self, read: Future[ReadRollouts], batches: list[Any], forwards: list[PolicyForward]
    ) -> None:
        """Decide a step's labels and rewards, and write the rewards into its micro-batches.

        The decisions are kept for `save_logs_and_checkpoints`, which records them.

        Args:
            read: the pending result of the method `read`, which this method waits for.
            batches: OpenRLHF's micro-batches; changed in place.
            forwards: the policy's forward pass over each micro-batch.

        Raises:
            NonFinite: a log-probability is NaN.
        """
        with self._clock.measure("verification"):
            step, order = read.result()
            log_probs, entropies, self_certainties = zip(*forwards, strict=True)
            # A logit of NaN or +infinity makes all log-probabilities of its position NaN.
            if any(values.isnan().any() for values in log_probs):
                raise NonFinite(LOGITS)
            named = {
                "mean_logprob": log_probs,
                "entropy": entropies,
                "self_certainty": self_certainties,
            }
            means = {
                name: token_means(values, batches, len(order))
                for name, values in named.items()
            }
            step = with_statistics(step, order, means)
        decided = self.supervisor.supervise(step, self._clock.measure)
        gap = sampler_gap(batches, log_probs)
        if self.args.algo.advantage.is_correction_level == "off":
            for batch in batches:  # the update does not use them
                batch.rollout_log_probs = None
        self._supervised = SupervisedStep(decided, step_work(batches, decided, order), gap)
        give_rewards(batches, decided, order, normalised=divides_by_std(self.recipe))
        smoothing = self.recipe.method.smoothing
        # Smooth last: `token_means` and OpenRLHF's KL have read the old policy's own log-probabilities. From here on
        # only the ratio uses them.
        if smoothing > 0:
            for batch, forward in zip(batches, forwards, strict=True):
                batch.action_log_probs = smoothed(
                    forward.log_probs, forward.self_certainties, smoothing
                )

    def save_logs_and_checkpoints(
        self, global_step: int, logs_dict: Any = None, client_states: Any = None
    ) -> None:
        """Record the step that has just ended; evaluate held-out prompts and write a checkpoint if they are due.

        This replaces OpenRLHF's own logs and checkpoints. `global_step` is the step's number, and `logs_dict` is
        OpenRLHF's status of it. `client_states` is ignored.

        Raises:
            JobStopped: a stop was asked for.
            Diverged: the policy can no longer answer the held-out prompts.
            UserError: no response was rewarded in the last `train.stop_if_no_reward` steps.
        """
        step = self._supervised
        assert step is not None
        measured, speed = (
            self._openrlhf_metrics(logs_dict, step),
            partial(self._speed, logs_dict, step.work),
        )
        self._end.complete(global_step, step.decided, self._clock, measured, speed)

    def measure_held_out(self) -> Metrics:
        """Sample responses to all held-out prompts, and return the accuracy metrics of each held-out set.

        Without a held-out set, return an empty mapping.
        """
        if self.eval_dataloader is None:
            return {}
        settings = self.generate_kwargs | {
            "temperature": self.recipe.train.evaluation_temperature,
            "n_samples_per_prompt": self.recipe.train.held_out_rollouts,
        }
        responses: dict[str, list[str]] = {}
        for sample in held_out_samples(self.samples_generator, settings):
            responses.setdefault(sample.labels[0], []).extend(
                response_texts([sample], self.texts, self.recipe.train.stop)
            )
        sets = self.data.held_out
        texts = {
            prefix: [
                responses[held_out_label(prefix, row)]
                for row in range(len(held_out.prompts))
            ]
            for prefix, held_out in sets.items()
        }
        return held_out_metrics(
            sets, texts, self.supervisor.judge, self.recipe.data.extractor
        )

    def _openrlhf_metrics(self, status: dict[str, Any], step: SupervisedStep) -> Metrics:
        """Return a step's metrics under olr's names: OpenRLHF's own, the policy's entropy, and the sampler gap.

        `sampler_gap` defines the gap. `status` is what OpenRLHF reports. Metrics that were not measured are left out.
        """
        metrics = {
            name: float(status[theirs])
            for name, theirs in _METRICS.items()
            if theirs in status
        }
        # Without a reference OpenRLHF reports 0, which would look measured.
        if self.recipe.train.kl_weight == 0:
            metrics.pop("policy/kl", None)
        if step.sampler_gap is not None:
            metrics["rollout/sampler_gap"] = step.sampler_gap
        metrics[NONFINITE] = 0.0  # any other value has ended the run
        return metrics | policy_entropy(step.decided)

    def _speed(
        self, status: dict[str, Any], work: StepWork, metrics: Metrics
    ) -> dict[str, float | None]:
        """Return the time, speed and memory metrics of a step, as name of the metric -> value.

        They are the seconds of the update and of the whole step, tokens and samples per second, and the peak of GPU
        memory in GB. The peak is None on a CPU.

        Args:
            status: what OpenRLHF reports of the step, with the seconds of the step's parts.
            work: the token counts of the step's rollouts.
            metrics: the step's metrics so far, with the seconds that olr has measured.
        """
        # OpenRLHF's time of make_experience includes our supervision, which has metrics of its own.
        supervision = metrics["time/verification"] + metrics["time/labels"]
        update = status["timing/make_experience"] - supervision + status["timing/ppo_train"]
        # OpenRLHF's total ends before the step is stored and measured.
        after = metrics["time/store"] + metrics.get("time/evaluation", 0.0)
        times = {"time/update": update, "time/step": status["timing/step_total"] + after}
        peaks = ray.get(
            self.actor_model_group.async_run_method(method_name="take_gpu_peak")
        )
        peak = max((peak for peak in peaks if peak is not None), default=None)
        return {**times, **throughput(work, metrics | times, peak)}

    def _save_checkpoint(self, step: int) -> None:
        """Write the checkpoint after `step` steps; every rank of the policy writes its part."""

        def fill(folder: Path) -> None:
            ray.get(
                self.actor_model_group.async_run_method(
                    "save_checkpoint_to",
                    folder=str(folder),
                    step=step,
                    chat=ChatFormat.of(self.recipe),
                )
            )

        self._end.writer.checkpoint(step, fill)


def held_out_samples(generator: Any, settings: Mapping[str, Any]) -> list[Any]:
    """Sample responses to all held-out prompts, and return an OpenRLHF `Experience` for each response.

    vLLM receives all prompts at once. OpenRLHF would send them in batches of the size of a training step, and wait for
    the longest response of each batch.

    Args:
        generator: OpenRLHF's `SamplesGenerator`, which has the prompts.
        settings: the sampling settings, such as ``temperature`` and ``n_samples_per_prompt``, by name.
    """
    rollout = generator.args.rollout
    step_size, rollout.batch_size = rollout.batch_size, len(generator.eval_dataloader)
    try:
        samples: list[Any] = generator.generate_eval_samples(**settings)
    finally:
        rollout.batch_size = step_size
    return samples


def policy_entropy(decided: Decided) -> Metrics:
    """Return the metric ``policy/entropy``, the mean entropy over a step's response tokens, in nats.

    The entropy is of the policy that sampled the tokens, before the update. Without tokens, return an empty mapping.
    """
    columns = decided.step.statistics
    pairs = zip(columns["entropy"], columns["tokens"], strict=True)
    means = [
        (mean, count) for mean, count in pairs if mean is not None and count is not None
    ]
    tokens = sum(count for _, count in means)
    return (
        {"policy/entropy": sum(mean * count for mean, count in means) / tokens}
        if tokens
        else {}
    )


def trainer_actor(run_path: Path, node_id: str) -> Any:
    """Return the Ray actor class that replaces OpenRLHF's trainer, which controls the other actors of a run.

    Ray starts it only on the node `node_id`, which has the run directory.
    """

    # Ray pickles a class that a function defines by value, with its attributes, and a module's class only by name.
    class Trainer(SupervisedTrainer):
        pass

    Trainer.run_path = run_path
    here = NodeAffinitySchedulingStrategy(node_id, soft=False)
    # Reserve no CPU: the models' placement may have taken all of this node's, and the actor would wait for ever.
    return ray.remote(num_cpus=0, scheduling_strategy=here)(Trainer)
