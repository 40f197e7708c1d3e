"""Replacements for two classes of OpenRLHF's controller: the order of prompts, and the experience maker.

    OpenRLHF:   sample ──► forward passes ──► [supervise] ──► advantages ──► update
                      └──► [verify] ────────────────┘

The steps in brackets are the trainer's (trainer.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from torch import Tensor

from olr_cli.engines.openrlhf.actor import PolicyForward
from olr_cli.runs.schedule import Schedule

if TYPE_CHECKING:
    from olr_cli.engines.openrlhf.trainer import SupervisedTrainer


class PromptOrder:
    """Iterate over a run's prompts for OpenRLHF, in the order in which the local engine visits them (R18).

    Each iteration covers one epoch. The first one skips the epoch's steps that were complete when the job started. This
    class replaces OpenRLHF's data loader, whose state cannot be restored at the end of an epoch.

    Args:
        schedule: says which prompts each step has.
        rows: OpenRLHF's rows (source, text, label, images), one for each wording of a prompt. Prompts are in the order
            of the training data, and the rows of a prompt are adjacent.
        done: number of complete steps.
    """

    def __init__(self, schedule: Schedule, rows: Any, done: int) -> None:
        self._schedule, self._rows, self._done = schedule, rows, done
        self._views = len(rows) // schedule.prompts

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[tuple[list[Any], ...]]:
        """Yield (source, text, label, images) for each wording of each prompt that is left in the current epoch.

        Each of the four is a list with one value, as in a batch of one row. After the last row, the epoch's steps count
        as done, and the next iteration yields the next epoch.
        """
        epoch = self._schedule.epoch(self._done + 1)
        steps = [
            step
            for step in self._schedule.after(self._done)
            if self._schedule.epoch(step) == epoch
        ]
        for prompt in (prompt for step in steps for prompt in self._schedule.rows(step)):
            for row in range(prompt * self._views, (prompt + 1) * self._views):
                yield tuple([value] for value in self._rows[row])
        self._done += len(steps)

    def state_dict(self) -> dict[str, Any]:
        """Return an empty dict, because the number of complete steps already says where to continue."""
        return {}


class SupervisedExperienceMaker(RemoteExperienceMaker):  # type: ignore[misc]
    """Make experience as OpenRLHF does, but with rewards from the supervisor in place of a reward model.

    The supervisor decides a step's labels and rewards after the forward passes, before OpenRLHF computes advantages.
    """

    trainer: SupervisedTrainer

    def make_experience_batch(self, rollout_samples: list[Any]) -> list[Any]:
        """Return a step's micro-batches with advantages, made from an `Experience` for each rollout.

        The rewards are 0 until `make_experience` sets them. If they were missing, OpenRLHF would ask a reward model.
        """
        self._samples = rollout_samples
        for sample in rollout_samples:  # without rewards, OpenRLHF would ask a reward model
            sample.rewards = sample.sequences.new_zeros(1).float()
        batches: list[Any] = super().make_experience_batch(rollout_samples)
        return batches

    def split_rollout_samples(self, rollout_samples: list[Any]) -> list[Any]:
        """Return a step's rollouts as OpenRLHF's micro-batches, dealt out so that all ranks have about the same work.

        The `index` of a micro-batch holds its samples' positions in `rollout_samples`. By these positions OpenRLHF
        finds the members of a group when it computes advantages, even if the members are on different ranks.
        """
        order = self.trainer.deal([int(sample.total_length) for sample in rollout_samples])
        batches: list[Any] = super().split_rollout_samples(
            [rollout_samples[number] for number in order]
        )
        for batch in batches:
            # OpenRLHF numbers the samples in the order that it was given. Translate that to the step's own numbers.
            batch.index = [order[position] for position in batch.index]
        return batches

    def make_experience(self, samples_list: list[Any]) -> list[Any]:
        """Run OpenRLHF's forward passes over a step's micro-batches, and return the micro-batches with rewards.

        Answers are verified while the models compute. Then the supervisor labels and rewards the whole step.
        """
        # The models compute in other processes, so this process is free to verify answers.
        with ThreadPoolExecutor(max_workers=1) as beside:
            read = beside.submit(self.trainer.read, self._samples)
            batches: list[Any] = super().make_experience(samples_list)
            self.trainer.supervise(read, batches, self._forwards)
        return batches

    def compute_advantages_and_returns(self, experiences: list[Any]) -> list[Any]:
        """Compute advantages as OpenRLHF does, and return the micro-batches.

        OpenRLHF computes the advantages from the `rewards` that `give_rewards` has set. It also overwrites the reward
        that it logs, in the `info` of each micro-batch. The supervisor's rewards are put back there afterwards.
        """
        rewards = [batch.info["reward"] for batch in experiences]
        batches: list[Any] = super().compute_advantages_and_returns(experiences)
        for batch, reward in zip(batches, rewards, strict=True):
            batch.info["reward"] = reward
        return batches

    def get_cumulative_returns(
        self, rewards: Tensor, action_mask: Tensor, gamma: float
    ) -> Tensor:
        """Return, at each response token, the sum of its reward and all later rewards, with the shape (B, A).

        OpenRLHF computes the same in a loop over tokens. `gamma` is ignored, because it is 1 without a critic.
        """
        returns: Tensor = (rewards * action_mask).flip(1).cumsum(1).flip(1)
        return returns

    def _flatten_results(self, refs: Any, duplicate_factor: int) -> list[Any]:
        """Return the results of a model's forward passes, one for each micro-batch.

        For the reference model, the results are OpenRLHF's. For the policy, they are only the tensors of
        log-probabilities, as OpenRLHF expects. The complete `PolicyForward` objects are kept in `_forwards` for the
        supervisor.

        Args:
            refs: Ray's references to the results of all ranks.
            duplicate_factor: number of ranks that return equal results.
        """
        results: list[Any] = super()._flatten_results(refs, duplicate_factor)
        if not isinstance(results[0], PolicyForward):  # results of the reference
            return results
        self._forwards = results
        return [forward.log_probs for forward in results]
