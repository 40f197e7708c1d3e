r"""Online Label Refinement as a reward manager of verl (0.9, trainer v1).

    python -m verl.trainer.main_ppo … \
        reward.reward_manager.source=importlib reward.reward_manager.name=OlrRewardManager \
        reward.reward_manager.module.path=pkg://olr_cli.trainers.verl \
        +reward.reward_kwargs.run_dir=runs/mine +reward.reward_kwargs.recipe=olr.yaml

verl requests the reward of each response separately, from one of `reward.num_workers` processes that it draws at
random. A label needs a whole group. Every worker therefore sends its responses to one process and waits for the group:

    agent loop ──► a reward worker: OlrRewardManager.run_single ──► RewardServer, once a run ──► supervise the group
                      └──────────────────── the reward, when the group's last response is there ◄──┘

The wait costs no extra time, because a step of verl needs all its rewards. Rows of `data.val_files` are graded by
their answers at once, and not recorded. Steps are stored under verl's numbers. If verl resumes from a checkpoint, the
run directory is rolled back to that step automatically.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import ray
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
from verl.utils.fs import copy_to_local

from olr_cli.answers import ResponseTexts
from olr_cli.api import OnlineLabelRefinement
from olr_cli.data.questions import normal_question
from olr_cli.data.table_files import read_table
from olr_cli.errors import UserError
from olr_cli.runs.directory import read_manifest, require_run
from olr_cli.runs.metrics import read_metrics
from olr_cli.supervision.types import Rollout
from olr_cli.trainers.dataset import begin, grade_held_out
from olr_cli.trainers.grading import compute_score as compute_score, row_turns

GLOBAL_STEP = "trainer/global_step"
"""Metric with verl's number of a stored step."""

_MOST_WAITING = 800
"""Most responses that may wait in one reward worker; Ray runs at most 1,000 calls of an actor at a time."""


class OlrRewardManager(RewardManagerBase):  # type: ignore[misc]
    """A reward manager for verl that rewards responses by refined labels; its settings are in `reward.reward_kwargs`.

    Responses to a prompt are rewarded together, so each waits until all have arrived.

    | setting | meaning |
    |---|---|
    | run_dir | the directory for labels, rollouts and metrics; by default `olr/` in `trainer.default_local_dir` |
    | recipe | a recipe file, or keys of a recipe: method, seed, data.extractor …; verl sets `train` and `model` |
    | group_timeout | the responses to a prompt fail if no other arrives for this many seconds; by default 3600 |
    """

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Any,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        super().__init__(config, tokenizer, compute_score)
        self._length = config.data.max_response_length
        self._texts = ResponseTexts(tokenizer)
        require_enough_workers(config)
        server = ray.remote(RewardServer).options(
            name=f"olr {run_path(config).absolute()}",
            get_if_exists=True,
            num_cpus=0,
            # Every waiting response is a call in progress; the limit must be above the responses of a step.
            max_concurrency=1_000_000,
        )
        self._server = server.remote(config)
        _unwrapped(self._server.start.remote())

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Return the reward of one response, once all responses to the same prompt have arrived.

        The result is ``{"reward_score": reward, "reward_extra_info": {"acc": reward}}``. A response to a held-out
        prompt does not wait for others.

        `data` is verl's DataProto with the tokens of the response. If it has several token sequences, the last one is
        graded, because it holds the answer.
        """
        # A trajectory may have several sequences; the last one holds the answer.
        item = data[len(data) - 1]
        tokens = item.batch["responses"]
        length = int(item.batch["attention_mask"][-tokens.shape[-1] :].sum())
        tokens = tokens[:length].tolist()
        prompt = item.batch["input_ids"][item.batch["attention_mask"].bool()][
            : -length or None
        ].tolist()
        (opened,), (text,) = await self.loop.run_in_executor(
            None, lambda: (self._texts.opened([prompt]), self._texts.decode([tokens]))
        )
        is_cut = length >= self._length and tokens[-1] != self.tokenizer.eos_token_id
        columns = {
            # Plain Python values instead of numpy's, as in rows from files.
            name: value.tolist() if hasattr(value, "tolist") else value
            for name, value in item.non_tensor_batch.items()
        }
        rollout = Rollout(opened + text, tokens=length, truncated=is_cut)
        try:
            reward = await self._server.reward.remote(columns, rollout)
        except ray.exceptions.RayTaskError as error:
            # Ray wraps the error in a traceback of the remote process; the user needs only the sentence.
            raise error.cause from None
        return {"reward_score": reward, "reward_extra_info": {"acc": reward}}


@dataclass
class _Group:
    """The responses to one prompt that have arrived so far, and the prompt's row.

    An item of `rollouts` has a response's number in the group, the response, and the future that will hold its reward.
    """

    row: Mapping[str, Any]
    rollouts: list[tuple[int, Rollout, asyncio.Future[float]]] = field(default_factory=list)


class RewardServer:
    """A Ray actor, one per run, that collects the responses from all reward workers and decides labels and rewards."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._olr: OnlineLabelRefinement | None = None
        self._groups: dict[str, _Group] = {}
        self._global_step = 0

    async def start(self) -> None:
        """Read verl's settings and data, and prepare the run; raise UserError if the settings or data cannot be used.

        Every reward worker calls this at its start, but only the first call does anything.
        """
        if self._olr is not None:
            return
        from omegaconf import OmegaConf

        config = self._config
        require_supported(config)
        settings = config.reward.get("reward_kwargs") or {}
        recipe, key = settings.get("recipe"), config.data.prompt_key
        olr, self._index = begin(
            run_path(config),
            OmegaConf.to_container(recipe, resolve=True)
            if OmegaConf.is_config(recipe)
            else recipe,
            trainer=f"verl {metadata.version('verl')}",
            settings=trainer_settings(config),
            table=read_data(config.data.train_files, key),
            place="data.train_files",
        )
        self._timeout = float(settings.get("group_timeout", 3600))
        self._held_out = set()
        if config.trainer.test_freq > 0 or config.trainer.val_before_train:
            held_out = read_data(config.data.val_files, key).column("prompt").to_pylist()
            self._held_out = {normal_question(row_turns(prompt)) for prompt in held_out}
        shared = len(self._held_out & self._index.questions)
        if shared:
            raise UserError(
                f"{shared} prompts of data.val_files are in data.train_files too, and verl does not tell to which of"
                " the two a response belongs",
                "take them out of one, or set trainer.test_freq=-1"
                " trainer.val_before_train=False",
            )
        _require_free_or_resumed(config)
        per_epoch = len(self._index.prompts) // config.data.train_batch_size
        self._last_step = (
            config.trainer.total_training_steps or config.trainer.total_epochs * per_epoch
        )
        self._olr = olr

    async def reward(self, columns: Mapping[str, Any], rollout: Rollout) -> float:
        """Return the reward of a response, once all responses to its prompt have arrived.

        A response to a held-out prompt gets its reward at once. If the decision on the prompt fails, raise its error.
        Raise UserError if the other responses do not arrive in time (`_waited`).

        `columns` has verl's columns of the response by name: those of its data row, the id of its group (`uid`), its
        number in the group (`session_id`), and the number of the step (`global_steps`).
        """
        olr = self._olr
        assert olr is not None
        row = {**columns, "prompt": columns["raw_prompt"]}
        if normal_question(row_turns(row["prompt"])) in self._held_out:
            return grade_held_out(olr, [row], [rollout])[0]
        group = self._groups.setdefault(columns["uid"], _Group(row))
        waiting: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        group.rollouts.append((int(columns["session_id"]), rollout, waiting))
        if len(group.rollouts) == self._config.actor_rollout_ref.rollout.n:
            # Before the decision, so that an error cannot leave a complete group behind.
            del self._groups[columns["uid"]]
            try:
                self._supervise(olr, group, int(columns["global_steps"]))
            except Exception as error:
                for _, _, other in group.rollouts:
                    other.set_exception(error)
        return await self._waited(waiting, group, columns["uid"])

    async def _waited(
        self, waiting: asyncio.Future[float], group: _Group, uid: str
    ) -> float:
        """Wait until `waiting` holds the response's reward, and return the reward.

        Raise UserError if no further response of the group arrives for `group_timeout` seconds, because verl may have
        lost some. `group` has the responses to the prompt that have arrived so far, and `uid` is verl's id of the
        group.
        """
        while True:
            size = len(group.rollouts)
            try:
                # `shield`, because a timeout would cancel the future, and the group may still grow.
                return await asyncio.wait_for(asyncio.shield(waiting), self._timeout)
            except TimeoutError:
                if len(group.rollouts) == size:
                    self._groups.pop(uid, None)
                    raise UserError(
                        f"a group of {self._config.actor_rollout_ref.rollout.n} has had {size} responses for"
                        f" {self._timeout:.0f} seconds",
                        "if they take longer, raise reward.reward_kwargs.group_timeout",
                    ) from None

    def _supervise(
        self, olr: OnlineLabelRefinement, group: _Group, global_step: int
    ) -> None:
        """Decide the label of a complete group's prompt, and hand the rewards to the calls that wait for them.

        If verl has resumed, the first call begins by removing all stored steps after verl's checkpoint. The call with
        the last group of a step also stores the step. `global_step` is verl's number of the group's step.
        """
        # The first group of a process that starts after step 1: verl has resumed from a checkpoint.
        if self._global_step == 0 and global_step > 1:
            self._go_back(olr, global_step - 1)
        if global_step > self._global_step:
            self._finish(olr)
            self._global_step = global_step
        # Responses arrive in any order; a repeatable run needs a fixed one.
        members = sorted(group.rollouts, key=lambda member: member[0])
        prompt = self._index.of(group.row)
        decided = olr.supervise(
            [(prompt, [rollout for _, rollout, _ in members])], complete=False
        )
        if olr.groups_in_step == self._config.data.train_batch_size:
            self._finish(olr)
        for (_, _, waiting), reward in zip(members, decided.rewards, strict=True):
            waiting.set_result(reward)

    def _finish(self, olr: OnlineLabelRefinement) -> None:
        """Store the groups that have come since the last stored step as one step; do nothing if there are none.

        After verl's last step, also close the run.
        """
        if olr.finish_step():
            olr.log({GLOBAL_STEP: self._global_step})
            olr.flush()
            if self._global_step == self._last_step:
                olr.close()

    def _go_back(self, olr: OnlineLabelRefinement, global_step: int) -> None:
        """Continue the stored run after verl's step `global_step`, and remove later steps.

        Raise UserError if the run ends before that step, because verl's checkpoint then belongs to another run.
        """
        path = run_path(self._config)
        require_run(path)
        steps = [
            int(line["step"])
            for line in read_metrics(path)
            if line.get(GLOBAL_STEP, 0) <= global_step
        ]
        last = max((line.get(GLOBAL_STEP, 0) for line in read_metrics(path)), default=0)
        if last < global_step:
            raise UserError(
                f"verl continues after step {global_step}, and {path} ends with step {last:.0f}",
                "name the run_dir of the run that the checkpoint is of",
            )
        olr.load_state_dict({"run": read_manifest(path)["id"], "step": max(steps)})


# verl's configuration -------------------------------------------------------------------------------------------------


def run_path(config: Any) -> Path:
    """Return the run directory: `reward.reward_kwargs.run_dir`, or by default `olr/` in `trainer.default_local_dir`."""
    settings = config.reward.get("reward_kwargs") or {}
    return Path(
        settings.get("run_dir") or os.path.join(config.trainer.default_local_dir, "olr")
    )


def require_supported(config: Any) -> None:
    """Raise UserError unless verl runs its trainer v1 in the mode ``sync``.

    In its other modes, responses of different steps arrive interleaved.
    """
    if not config.trainer.use_v1:
        raise UserError(
            "OlrRewardManager needs verl's trainer v1",
            "set trainer.use_v1=True, which is verl's default",
        )
    mode = config.trainer.v1.trainer_mode
    if mode != "sync":
        raise UserError(
            f"trainer.v1.trainer_mode is {mode}, where responses of several steps come mixed",
            "set it to sync, verl's default",
        )


def _require_free_or_resumed(config: Any) -> None:
    """Raise UserError if the run directory holds a run, and verl is going to start from scratch.

    This is checked before anything is sampled.
    """
    path, trainer = run_path(config), config.trainer
    checkpoints = os.path.join(
        trainer.default_local_dir, "latest_checkpointed_iteration.txt"
    )
    resumes = trainer.resume_mode == "resume_path" or (
        trainer.resume_mode == "auto" and os.path.exists(checkpoints)
    )
    if (path / "manifest.json").exists() and not resumes:
        raise UserError(
            f"{path} holds a run already, and verl starts anew",
            "set reward.reward_kwargs.run_dir to another folder",
        )


def require_enough_workers(config: Any) -> None:
    """Raise UserError if verl has too few reward workers for all responses of a step to wait at the same time.

    At most `_MOST_WAITING` responses can wait in one worker.
    """
    responses = config.data.train_batch_size * config.actor_rollout_ref.rollout.n
    least = -(-responses // _MOST_WAITING)
    if config.reward.num_workers < least:
        raise UserError(
            f"{responses} responses of a step wait in {config.reward.num_workers} reward workers, and each takes"
            f" {_MOST_WAITING}",
            f"set reward.num_workers={least}",
        )


def trainer_settings(config: Any) -> dict[str, Any]:
    """Return verl's configuration as the `train` and `model` keys of a recipe, as nested dictionaries."""
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    train = {
        "epochs": config.trainer.total_epochs,
        "prompts_per_step": config.data.train_batch_size,
        "mini_batch_prompts": actor.ppo_mini_batch_size,
        "rollouts_per_prompt": rollout.n,
        "learning_rate": actor.optim.lr,
        "kl_weight": actor.kl_loss_coef if actor.use_kl_loss else 0.0,
        "clip": actor.clip_ratio,
        "clip_high": actor.clip_ratio_high,
        "loss_average": "token" if actor.loss_agg_mode == "token-mean" else "sequence",
        "temperature": rollout.temperature,
        "top_p": rollout.top_p,
        "top_k": rollout.top_k if rollout.top_k > 0 else None,
        "max_new_tokens": config.data.max_response_length,
        "max_prompt_tokens": config.data.max_prompt_length,
    }
    return {"train": train, "model": {"path": str(config.actor_rollout_ref.model.path)}}


def read_data(files: str | Sequence[str], key: str) -> Any:
    """Return the rows of verl's data files as one Arrow table.

    The column named `key`, which holds the prompts, is renamed to `prompt`.
    """
    names = [files] if isinstance(files, str) else list(files)
    table = read_table([Path(copy_to_local(name)) for name in names])
    return table.rename_columns(
        ["prompt" if name == key else name for name in table.column_names]
    )


def _unwrapped(reference: Any) -> Any:
    """Wait for the result of a Ray call and return it; if the call failed, raise its error without Ray's wrapper."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
