"""Online Label Refinement as a reward function of TRL's `GRPOTrainer`.

    reward = OlrReward("runs/mine")
    GRPOTrainer(model, reward_funcs=reward, callbacks=[reward], args=config, train_dataset=data).train()

The same object has two roles. As the reward function it receives the completions. As the callback it learns the
training data, the size of groups, whether the model is being evaluated, and when a checkpoint is saved or loaded.

    every rank:  completions ──► gathered on the first rank ──► OnlineLabelRefinement ──► rewards, back to each rank

Ranks may split a group in any way. TRL alone decides what it averages, clips and logs. A checkpoint's
trainer_state.json names the run and its step; `trainer.train(resume_from_checkpoint=True)` returns to that step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from itertools import islice
from math import ceil
from typing import Any, NoReturn, get_args

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from olr_cli.answers import ResponseTexts, is_thinking, with_opened
from olr_cli.api import OnlineLabelRefinement, PathName, RecipeSource, SupervisedStep
from olr_cli.data.chat import completion_text
from olr_cli.errors import UserError
from olr_cli.recipe.sections import LrSchedule
from olr_cli.supervision.types import Rollout
from olr_cli.trainers.dataset import PromptIndex, begin, grade_held_out
from olr_cli.trainers.grading import accuracy_reward as accuracy_reward

_METRICS = {
    "policy/kl": "kl",
    "policy/entropy": "entropy",
    "policy/grad_norm": "grad_norm",
    "policy/lr": "learning_rate",
    "policy/clip_fraction": "clip_ratio/region_mean",
    "time/step": "step_time",
    "eval/avg": "eval_rewards/olr/mean",
}
"""Our name of a metric -> TRL's."""


_IDENTITY = ("prompt", "prompt_id", "extra_info")
"""Columns of a row that identify its prompt; other ranks send only these."""


class OlrReward(TrainerCallback, ExportableState):
    """A reward function and callback for one call of `GRPOTrainer.train`, with rewards from refined labels.

    Pass the same object as `reward_funcs` and in `callbacks`. The data set needs the column `prompt` (text or messages)
    and a column of labels: `answer`, `label`, `ground_truth`, `solution`, or `reward_model.ground_truth` as in the
    files of `olr inject-noise`.

    Args:
        run_dir: the directory for labels, rollouts and metrics; by default `olr/` in the trainer's output_dir.
        recipe: keys of a recipe as nested mappings (method, seed, data.extractor …), or the name of a recipe file. It
            must not set what TRL's configuration sets, such as `train.learning_rate` and `model.path`.
    """

    __name__ = "olr"
    """TRL names its metrics after this: rewards/olr/mean."""

    def __init__(
        self, run_dir: PathName | None = None, recipe: RecipeSource | None = None
    ) -> None:
        self._run_dir = run_dir
        self._recipe = recipe
        self._olr: OnlineLabelRefinement | None = None
        self._index: PromptIndex | None = None
        self._args: Any = None
        self._model: Any = None
        self._tokenizer: Any = None
        self._micro_batches = 0

    # The reward function ------------------------------------------------------------------------------------------

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float]:
        """Return one reward per completion of this rank (process), from labels that are refined at every step.

        While the model is in evaluation mode, completions are graded by the labels of the evaluation data, and nothing
        is recorded. Raise UserError if this object is not also a callback of the trainer.

        Args:
            prompts: texts or chats, one per completion.
            completions: texts or chats.
            completion_ids: the token ids of each completion.
            log_metric: TRL's function that logs a metric. It is called with the name and value of each metric of the
                step that concerns labels, majorities or rollouts. If it is None, these metrics are not logged.
            columns: the data set's other columns: name -> one value per completion. Other arguments of TRL are ignored.
        """
        if self._model is None:
            raise UserError(
                "OlrReward is a reward function and a callback",
                "give it to the trainer as both:"
                " GRPOTrainer(..., reward_funcs=reward, callbacks=[reward])",
            )
        rows = _rows({**columns, "prompt": list(prompts)}, len(prompts))
        samples = zip(prompts, completions, completion_ids, strict=True)
        rollouts = [self._rollout(*sample) for sample in samples]
        if not self._model.training:
            # Ranks other than the first have no run, nor has an evaluation without training: grade with an object that
            # records nothing.
            if self._olr is None:
                self._olr = OnlineLabelRefinement(recipe=self._recipe)
            return grade_held_out(self._olr, rows, rollouts)
        # A row may have large columns, such as images; the first rank finds the prompt without them.
        identities = [
            {name: row[name] for name in _IDENTITY if name in row} for row in rows
        ]
        here = list(zip(identities, rollouts, strict=True))
        rewards, metrics = _on_first_rank(here, self._supervise)
        if log_metric is not None:
            for name, value in metrics.items():
                log_metric(name, value)
        return rewards

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled (UserError), because a copy in another process would not share this object's state.

        TRL's asynchronous trainer makes such a copy. The copy would refine the labels, while checkpoints and metrics
        would still come from this object.
        """
        raise UserError(
            "OlrReward works in the process that trains, and cannot be copied into another one",
            "use GRPOTrainer; the asynchronous trainer takes olr_cli.trainers.trl.accuracy_reward",
        )

    def _supervise(
        self, samples: Sequence[tuple[Mapping[str, Any], Rollout]]
    ) -> tuple[list[float], Any]:
        """Return one reward per sample, and the step's metrics of labels, majorities and rollouts by name.

        `samples` has the data row and the rollout of every sample of all ranks. Each `num_generations` consecutive
        samples must belong to one prompt. Raise UserError if they do not, or if training has not begun.
        """
        if self._olr is None or self._index is None:
            raise UserError(
                "OlrReward has not seen training begin",
                "add it to the callbacks of this trainer",
            )
        size = self._args.num_generations
        groups = []
        for start in range(0, len(samples), size):
            members = samples[start : start + size]
            # TRL samples a group's completions one after the other; a group of several prompts would get a meaningless
            # vote.
            prompts = {
                self._index.of(row).prompt_id: self._index.of(row) for row, _ in members
            }
            if len(prompts) > 1 or len(members) < size:
                raise UserError(
                    f"TRL handed over a group of {len(members)} completions of {len(prompts)} prompts, where"
                    f" num_generations is {size}",
                    "OlrReward needs TRL's own sampler and no other trainer class",
                )
            groups.append(
                (next(iter(prompts.values())), [rollout for _, rollout in members])
            )
        step: SupervisedStep = self._olr.supervise(groups)
        return list(step.rewards), {
            name: value
            for name, value in step.metrics.items()
            if name.startswith(("label/", "majority/", "rollout/"))
        }

    def _rollout(self, prompt: Any, completion: Any, tokens: Sequence[int]) -> Rollout:
        """Return a completion as a `Rollout`: its text, its number of tokens, and whether the length limit cut it off.

        `tokens` are the completion's token ids. Whether the text was cut off is unknown (None) if TRL has no length
        limit, or the tokenizer no end token.
        """
        is_cut, end_token = None, getattr(self._tokenizer, "eos_token_id", None)
        if end_token is not None and self._args.max_completion_length is not None:
            is_cut = (
                len(tokens) >= self._args.max_completion_length and tokens[-1] != end_token
            )
        return Rollout(
            self._text(prompt, completion, tokens), tokens=len(tokens), truncated=is_cut
        )

    def _text(self, prompt: Any, completion: Any, tokens: Sequence[int]) -> str:
        """Return a completion as text, with the tags of thinking, such as ``<think>``, that TRL has left out (R6).

        TRL removes tags that are special tokens. They are restored from `tokens`, the completion's token ids. If the
        chat template has put a tag at the end of the prompt, the text begins with this tag.
        """
        text = completion_text(completion)
        if self._tokenizer is None:
            return text
        # With turns of tools, the tokens are more than the answer's text.
        if isinstance(completion, str) or len(completion) == 1:
            (decoded,) = ResponseTexts(self._tokenizer).decode([tokens])
            text = decoded if is_thinking(decoded) is not None else text
        if not isinstance(prompt, str):
            variables = getattr(self._args, "chat_template_kwargs", None) or {}
            prompt = self._tokenizer.apply_chat_template(
                list(prompt), add_generation_prompt=True, tokenize=False, **variables
            )
        return with_opened(prompt, text)

    # The callback -------------------------------------------------------------------------------------------------

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep the trainer's arguments, model and tokenizer.

        TRL calls this when the trainer is made, so they are known in an evaluation without training too.
        """
        self._args, self._model = args, kwargs["model"]
        processor = kwargs.get("processing_class")
        # A processor for images and text wraps its tokenizer.
        self._tokenizer = getattr(processor, "tokenizer", processor)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Read the training data, and begin the run, or continue it after the step of TRL's checkpoint.

        Only the first rank does this, because it decides all labels. Raise UserError if the data are a stream, or if
        the checkpoint was saved without this callback.
        """
        self.on_init_end(args, state, control, **kwargs)
        self._micro_batches = 0
        if not state.is_world_process_zero:
            return
        dataset = kwargs["train_dataloader"].dataset
        if not hasattr(dataset, "with_format") or not hasattr(dataset, "__len__"):
            raise UserError(
                "OlrReward reads all rows of the data set before training, and a stream has no length",
                "load it without streaming",
            )
        run_dir = (
            os.path.join(args.output_dir, "olr")
            if self._run_dir is None
            else os.fspath(self._run_dir)
        )
        self._olr, self._index = begin(
            run_dir,
            self._recipe,
            trainer=f"trl {metadata.version('trl')}",
            settings=_settings(args, state, self._model),
            table=dataset.with_format("arrow")[:],
            place="the training data",
        )
        if state.global_step:
            stored = (state.stateful_callbacks or {}).get(type(self).__name__, {})
            saved = stored.get("attributes", {}).get("olr")
            if saved is None:
                raise UserError(
                    f"the checkpoint of step {state.global_step} was saved without OlrReward, so its step of the run"
                    " is not known",
                    "train from the start",
                )
            self._olr.load_state_dict(saved)

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count one more micro-batch of training.

        From the count, `state` tells whether TRL has finished training on the completions that it generated last.
        """
        self._micro_batches += 1

    on_step_end = on_substep_end

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add TRL's metrics for which olr has names, such as the KL divergence, to the metrics of the latest step."""
        logs = kwargs.get("logs") or {}
        if self._olr is not None and state.is_world_process_zero:
            self._olr.log(
                {name: logs[theirs] for name, theirs in _METRICS.items() if theirs in logs}
            )

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Store what is still in memory, and close the run; do nothing on other ranks than the first."""
        if self._olr is not None:
            self._olr.close()

    def state(self) -> dict[str, Any]:
        """Return what TRL's checkpoint stores about this object in trainer_state.json.

        ``attributes.olr`` has the run's id and the number of complete steps. It is None if this process has no run. A
        step is not counted if TRL has not finished training on its completions, because TRL generates them again after
        a resume. See `transformers.trainer_callback.ExportableState`.
        """
        saved = None
        if self._olr is not None:
            saved = self._olr.state_dict()
            of_a_batch = self._args.steps_per_generation * self._args.num_iterations
            if (
                of_a_batch > self._args.gradient_accumulation_steps
                and self._micro_batches % of_a_batch
            ):
                # The checkpoint is in the middle of a generated batch. TRL does not store the rest of the batch, so
                # after a resume it generates for this step again.
                saved["step"] -= 1
        return {"args": {}, "attributes": {"olr": saved}}


def _rows(columns: Mapping[str, Any], size: int) -> list[dict[str, Any]]:
    """Turn columns into a list of `size` rows, each a dictionary: name of a column -> value.

    `columns` maps a column's name to the list of its values. It may also have other arguments of TRL: anything that is
    not a list of `size` values is left out.
    """
    lists = {
        name: column
        for name, column in columns.items()
        if isinstance(column, list) and len(column) == size
    }
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def _settings(args: Any, state: Any, model: Any) -> dict[str, Any]:
    """Return TRL's configuration as the `train` and `model` keys of a recipe, as nested dictionaries.

    `args` is TRL's configuration, `state` the state of its trainer, and `model` the policy.
    """
    adapter = next(iter((getattr(model, "peft_config", None) or {}).values()), None)
    schedule = str(args.lr_scheduler_type.value)
    train = {
        "epochs": max(1, ceil(state.num_train_epochs)),
        "prompts_per_step": args.generation_batch_size // args.num_generations,
        "mini_batch_prompts": max(
            1,
            args.per_device_train_batch_size
            * args.gradient_accumulation_steps
            * args.world_size
            // args.num_generations,
        ),
        "rollouts_per_prompt": args.num_generations,
        "learning_rate": args.learning_rate,
        "kl_weight": args.beta,
        "clip": args.epsilon,
        "clip_high": args.epsilon_high,
        "loss_average": "sequence" if args.loss_type == "grpo" else "token",
        "temperature": args.temperature,
        "top_p": args.top_p,
        # In TRL, 0, None and vLLM's -1 all mean all tokens.
        "top_k": max(args.top_k or 0, 0) or None,
        "min_p": args.min_p or 0.0,
        **({"lr_schedule": schedule} if schedule in get_args(LrSchedule) else {}),
        "lr_warmup_ratio": args.get_warmup_steps(state.max_steps) / state.max_steps,
        **(
            {}
            if adapter is None
            else {"lora_rank": adapter.r, "lora_alpha": adapter.lora_alpha}
        ),
        **(
            {}
            if args.max_completion_length is None
            else {"max_new_tokens": args.max_completion_length}
        ),
    }
    path = getattr(getattr(model, "config", None), "_name_or_path", "")
    return {"train": train, "model": {"path": path or "unknown"}}


def _on_first_rank(
    here: list[Any], decide: Callable[[Sequence[Any]], tuple[list[float], Any]]
) -> tuple[list[float], dict[str, float]]:
    """Let the first rank (process) decide for all; return the rewards of this rank's samples, and the step's metrics.

    Every rank must call this, and waits for the first rank. If `decide` raises an error, every rank raises this error.

    Args:
        here: this rank's samples.
        decide: called on the first rank alone, with the samples of all ranks, rank by rank. It returns one reward per
            sample, and the step's metrics by name.
    """
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return decide(here)
    rank, world = dist.get_rank(), dist.get_world_size()
    gathered: list[Any] = [None] * world
    dist.all_gather_object(gathered, here)
    reply: list[Any] = [None]
    if rank == 0:
        try:
            rewards, metrics = decide(
                [sample for of_rank in gathered for sample in of_rank]
            )
            left = iter(rewards)
            reply = [([list(islice(left, len(of_rank))) for of_rank in gathered], metrics)]
        except Exception as error:
            # Broadcast the error too: the other ranks wait for a reply, and would otherwise only time out after
            # minutes.
            reply = [error]
    dist.broadcast_object_list(reply, src=0)
    if isinstance(reply[0], Exception):
        raise reply[0]
    of_ranks, metrics = reply[0]
    return of_ranks[rank], metrics
