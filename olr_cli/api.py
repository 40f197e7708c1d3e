"""Labels and rewards for the rollouts of any trainer, without torch. docs/trainers.md shows them in use.

    olr = OnlineLabelRefinement("runs/mine", recipe={"method": {"warmup_epochs": 2}})
    for prompts, completions, labels in batches:         # K completions of each prompt, one after the other
        step = olr(prompts, completions, labels)
        update(step.rewards)
        save(checkpoint, json.dumps(olr.state_dict()))
    olr.close()

`OnlineLabelRefinement` counts visits, keeps the history, and writes the run directory that every `olr` command reads.
`Supervisor` makes the same decisions for a loop that counts and stores by itself. Every name in `__all__` is stable:
its arguments and return values change only with a new major version. `olr_cli.trainers` has ready-made rewards for TRL
and verl.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from olr_cli.answers import (
    Judge,
    default_extractor,
    find_extractor,
    read_answer,
    reading_more,
    verdicts,
    with_opened,
)
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.chat import Message, completion_text, ending
from olr_cli.data.external_prompts import (
    DATA_SOURCE,
    Chat,
    ExternalPrompts,
    require_same,
    turns_of_prompt,
)
from olr_cli.data.labels import golds_of, read_cells
from olr_cli.data.prompts import NoiseType, Prompt, in_percent
from olr_cli.data.sets import sentinel_type
from olr_cli.data.values import Origins
from olr_cli.data.verified import VerifiedLabels
from olr_cli.errors import UserError, at
from olr_cli.grouping import gathered
from olr_cli.recipe.layers import find_recipe, overlay, read_tree, validate
from olr_cli.recipe.methods import OlrMethod
from olr_cli.recipe.schema import changed_keys
from olr_cli.recipe.section import flatten
from olr_cli.runs.directory import (
    GIVEN_UP,
    PROMPTS,
    Status,
    is_run,
    read_manifest,
    read_recipe,
    require_run,
)
from olr_cli.runs.metrics import Stopwatch
from olr_cli.runs.store import Columns, stored_history
from olr_cli.runs.writer import RunWriter
from olr_cli.supervision import (
    Decided,
    History,
    Label,
    LabelRecord,
    Rollout,
    RolloutGroup,
    RolloutRecord,
    Step,
    Supervisor,
    Visit,
    compose,
    keep,
    keep_fraction,
    make_supervisor,
    no_label,
    replace_by_majority,
    step_metrics,
)

__all__ = [
    "SENTINEL",
    "Decided",
    "Judge",
    "Label",
    "LabelRecord",
    "Message",
    "OlrMethod",
    "OnlineLabelRefinement",
    "Prompt",
    "Rollout",
    "RolloutGroup",
    "RolloutRecord",
    "Step",
    "SupervisedStep",
    "Supervisor",
    "UserError",
    "Visit",
    "compose",
    "keep",
    "no_label",
    "replace_by_majority",
]

PathName: TypeAlias = str | os.PathLike[str]
RecipeSource: TypeAlias = Mapping[str, Any] | PathName
"""Keys of a recipe as nested mappings, or the name of a recipe file."""

_ALLOWED_KEYS: dict[str, set[str]] = {
    **{"data": {"extractor", "verified"}, "noise": {"", "type", "draw"}},
    **{"engine": set(), "logging": set(), "sweep": set()},
}
"""Section -> the keys that a recipe may set in it here; the trainer decides the section's other keys."""


@dataclass(frozen=True, slots=True)
class SupervisedStep:
    """What `OnlineLabelRefinement` decided about one step: a reward for each completion, and a label for each prompt.

    If the prompts of a step are passed in several calls of `supervise`, each call returns an object for its own
    prompts.
    """

    step: int
    """The number of the step, from 1."""

    rewards: tuple[float, ...]
    """One reward per completion, in the order of the completions."""

    trains: tuple[bool, ...]
    """Whether each completion takes part in the update; False only under methods that choose prompts."""

    metrics: Mapping[str, float]
    """The step's metrics, under their names in metrics.jsonl."""

    decided: Decided
    """All decisions in columns, as they are stored."""

    @property
    def labels(self) -> tuple[LabelRecord, ...]:
        """One record per prompt, with the decision about its label, in the order in which the prompts were passed."""
        return tuple(
            LabelRecord(*row) for row in zip(*self.decided.labels.values(), strict=True)
        )

    @property
    def rollouts(self) -> tuple[RolloutRecord, ...]:
        """One record per completion, with its answer and reward, grouped by prompt in the order of `labels`.

        `rewards` may be in another order: that of the completions in the call.
        """
        return tuple(
            RolloutRecord(*row) for row in zip(*self.decided.rollouts.values(), strict=True)
        )


class OnlineLabelRefinement(AbstractContextManager["OnlineLabelRefinement"]):
    """Rewards for another trainer's completions, step by step, from labels that are refined during training.

    The decisions equal those of `olr train` on the same rollouts. An object must not be called from several threads at
    once. As a context manager, it calls `close` at the end.

    Args:
        run_dir: the directory for labels, rollouts, metrics and the recipe. To continue a run that it already holds,
            call `load_state_dict` first; otherwise the first step raises UserError. If it is None, a temporary folder
            is used, and deleted together with this object.
        recipe: keys of a recipe as nested mappings, or the name of a recipe file. The method is OLR unless
            `method.name` says otherwise. `train` and `model.path` describe what the trainer does, and are only stored.
            `data.verified` names a file of verified labels, with a prompt_id or a question in each row.
        trainer: the trainer's name and version, which are stored in the run's manifest.
        settings: the trainer's own settings, as nested keys of a recipe; `recipe` must not set the same keys.
    """

    def __init__(
        self,
        run_dir: PathName | None = None,
        recipe: RecipeSource | None = None,
        *,
        trainer: str = "another trainer",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._is_temporary = run_dir is None
        if run_dir is None:
            temporary = TemporaryDirectory(prefix="olr-", ignore_cleanup_errors=True)
            # A TemporaryDirectory that is garbage-collected without `cleanup` emits a ResourceWarning.
            weakref.finalize(self, temporary.cleanup)
            run_dir = os.path.join(temporary.name, "external")
        self.run_dir = Path(run_dir)
        self._trainer = trainer
        self._tree = _recipe_tree(recipe, trainer, settings or {}, self.run_dir)
        # A trainer may not say how many epochs it trains; `close` then stores the number of epochs seen.
        self._knows_epochs = "epochs" in self._tree.get("train", {})
        self.recipe = validate(self._tree, "recipe")
        if self.recipe.data.extractor is not None:
            with at("recipe: data.extractor"):
                find_extractor(self.recipe.data.extractor)
        if (
            # The default share is 1 - (share of marked prompts), which nobody can count before all prompts have
            # arrived.
            self.recipe.method.prompts not in ("all", "verified")
            and self.recipe.method.keep_fraction is None
        ):
            raise UserError(
                f"recipe: method.prompts is {self.recipe.method.prompts}, and how many of all prompts are marked is not"
                " known before they have come",
                "set method.keep_fraction",
            )
        self._verified = VerifiedLabels.for_prompts_to_come(self.recipe.data.verified)
        self._reset()

    def _reset(self) -> None:
        self._run: RunWriter | None = None
        self._run_id: str | None = None
        self._step = self._epoch = 0
        self._decided: list[Decided] = []
        self._prompts = ExternalPrompts()
        self._pending: tuple[int, int, dict[str, float]] | None = None
        self._supervisor = self._make_supervisor(
            Judge(tolerance=self.recipe.data.tolerance)
        )

    def _make_supervisor(self, judge: Judge, history: History | None = None) -> Supervisor:
        return make_supervisor(
            self.recipe, keep_fraction(self.recipe.method, ()), judge, history
        )

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        stopped = isinstance(error, KeyboardInterrupt)
        self.close("finished" if error is None else "interrupted" if stopped else "failed")

    @property
    def step(self) -> int:
        """The number of complete steps so far."""
        return self._step

    @property
    def groups_in_step(self) -> int:
        """The number of prompts that the current step has so far; 0 between two steps."""
        return sum(len(part.trains) for part in self._decided)

    # Rewards ------------------------------------------------------------------------------------------------------

    def __call__(
        self,
        prompts: Sequence[str | Chat],
        completions: Sequence[str | Chat | Rollout],
        labels: Sequence[Any],
        *,
        prompt_ids: Sequence[str] | None = None,
        true_answers: Sequence[Any] | None = None,
        noise_types: Sequence[NoiseType | None] | None = None,
        step: int | None = None,
    ) -> SupervisedStep:
        """Decide the labels of a step and reward its completions (R3).

        Every argument but `step` has one item per completion. All completions of a prompt must come in the same call,
        in any order.

        Args:
            prompts: texts or chats; the prompt of each completion.
            completions: texts, chats or rollouts. A `Rollout` also carries the number of tokens, whether the response
                was truncated, and the statistics that intrinsic rewards need.
            labels: the prompt's label in the data. For inactive or active noise, pass `SENTINEL`, the text that stands
                for a wrong label. None is allowed if the method needs no labels.
            prompt_ids: the prompt's id; by default it is made from the prompt's question.
            true_answers: the prompt's true answer, or None if unknown. It is used to report accuracy. Active noise also
                needs it, to draw the label from answers that differ from the true answer.
            noise_types: the noise in the prompt's label: ``clean``, ``inactive``, ``active``, or ``active_frozen`` for
                a wrong label that stays the same at every visit. By default it is derived from the label and the true
                answer.
            step: the number that this step must have, from 1. If another number is due, a step was lost or repeated,
                and UserError is raised. None skips this check.

        Returns:
            Rewards in the order of the completions, the decided labels, and the step's metrics.
        """
        of_completions = self._prompts.of_call(
            prompts,
            completions,
            labels,
            prompt_ids=prompt_ids,
            true_answers=true_answers,
            noise_types=noise_types,
            noise_type_of_sentinel=sentinel_type(self.recipe),
        )
        by_id = {prompt.prompt_id: prompt for prompt in of_completions}
        positions = gathered(
            (prompt.prompt_id, position) for position, prompt in enumerate(of_completions)
        )
        groups = [
            (by_id[name], [completions[position] for position in positions[name]])
            for name in positions
        ]
        decided = self.supervise(groups, step=step)
        rewards, trains = [*decided.rewards], [*decided.trains]
        # Decisions are in the order of the groups; put each back to the position of its completion in the call.
        for i, position in enumerate(chain.from_iterable(positions.values())):
            rewards[position], trains[position] = decided.rewards[i], decided.trains[i]
        return replace(decided, rewards=tuple(rewards), trains=tuple(trains))

    def supervise(
        self,
        groups: Sequence[tuple[Prompt, Sequence[str | Chat | Rollout]]],
        *,
        step: int | None = None,
        complete: bool = True,
    ) -> SupervisedStep:
        """Decide the labels and rewards of completions that are already grouped by prompt.

        If the completions are not grouped, call the object itself instead.

        Args:
            groups: each prompt once, with its completions.
            step: the number that this step must have, from 1; UserError is raised if another number is due. None skips
                this check.
            complete: whether these are the last groups of the step. If False, the returned metrics are empty, and the
                step is stored only by a later call with the last groups, or by `finish_step`.

        Returns:
            The decisions about these groups. Rewards are in the order of the groups, and within a group in the order of
            its completions.
        """
        number = self._step + 1
        if step is not None and step != number:
            raise UserError(
                f"step {step} came where step {number} is due",
                f"load the state after step {step - 1}",
            )
        prompts = [prompt for prompt, _ in groups]
        marked = self._verified.mark(prompts)
        self._require_groups(groups, marked)
        run = self._open(groups)
        self.flush()
        run.add_prompts(prompts, self._verified.mark)
        history = self._supervisor.history
        # A step may come in several parts; its time runs from the first one.
        if not self._decided:
            self._clock = Stopwatch()
        rollout_groups = [
            RolloutGroup(
                prompt,
                # Counted per prompt, because another trainer may visit some prompts more often than others.
                history.of(prompt.prompt_id).visits + 1,
                number,
                tuple(_rollout(completion, prompt.messages) for completion in completions),
            )
            for prompt, (_, completions) in zip(marked, groups, strict=True)
        ]
        decided = self._supervisor.supervise(Step.of(rollout_groups), self._clock.measure)
        self._decided.append(decided)
        trains = tuple(
            does
            for does, (_, completions) in zip(decided.trains, groups, strict=True)
            for _ in completions
        )
        metrics = self.finish_step() if complete else {}
        return SupervisedStep(number, tuple(decided.rewards), trains, metrics, decided)

    def finish_step(self) -> Mapping[str, float]:
        """Store the groups received since the last complete step as one step, and return the step's metrics by name.

        If there are no such groups, do nothing and return no metrics.
        """
        run, parts, self._decided = self._run, self._decided, []
        if run is None or not parts:
            return {}
        labels = _joined([part.labels for part in parts])
        rollouts = _joined([part.rollouts for part in parts])
        number = self._step + 1
        with self._clock.measure("store"):
            tables = run.store(number, labels, rollouts)
        counts = (
            sum(part.timeouts for part in parts),
            sum(part.undecided for part in parts),
        )
        metrics = step_metrics(*tables, *counts)
        times = self._clock.metrics()
        # The time between the parts of a step belongs to the trainer, so the sum would mislead.
        times.pop("time/step", None)
        self._step = number
        epoch = max(labels["visit"])
        self._epoch = max(self._epoch, epoch)
        # Not written yet: `log` may still add the trainer's metrics to this line.
        self._pending = (number, epoch, {**metrics, **times})
        if number == 1:
            _warn_if_unread(metrics["rollout/missing_answers"], rollouts["response"])
        return metrics

    def grade(
        self,
        completions: Sequence[str | Chat | Rollout],
        golds: Sequence[Any],
        *,
        data_sources: Sequence[str] | None = None,
        prompts: Sequence[str | Chat] | None = None,
    ) -> list[float]:
        """Return 1.0 for every completion whose answer is right, else 0.0 (R6, R7).

        Use this to evaluate: it decides no labels and records nothing. Each argument has one item per completion.

        Args:
            completions: texts, chats or rollouts.
            golds: the right answer, as the data have it, or a list of several, each of which is right.
            data_sources: names of data sets. If the recipe has no `data.extractor`, they decide how answers are read.
                Without them, the boxed answer is read.
            prompts: texts or chats. If a prompt asks for a percentage, its right answer also matches an answer with a
                percent sign. If a prompt ends with a tag such as ``<think>``, its completion is read as beginning
                inside the thinking.
        """
        sources = [DATA_SOURCE] * len(golds) if data_sources is None else data_sources
        turns: list[tuple[Message, ...]] = [()] * len(golds)
        if prompts is not None:
            turns = [turns_of_prompt(prompt) for prompt in prompts]
        answers = [
            read_answer(
                _rollout(completion, of_one).response,
                self.recipe.data.extractor or default_extractor(source),
            )
            for completion, source, of_one in zip(completions, sources, turns, strict=True)
        ]
        cells = read_cells(golds_of, golds, Origins("grade"), "golds")
        asks = [in_percent(of_one) for of_one in turns]
        return [
            float(bool(verdict))
            for verdict in verdicts(cells, answers, self._supervisor.judge, in_percent=asks)
        ]

    def log(self, metrics: Mapping[str, float]) -> None:
        """Add the trainer's own metrics to those of the latest step, or to step 0 if there has been no step.

        Call this before `flush`, `state_dict`, `close` or the next step, which write the latest step's metrics to
        metrics.jsonl. Once they are written, further metrics of that step are dropped without an error.
        """
        # If the latest step's line is already in the file, as after `state_dict` or a resume, these metrics are
        # dropped.
        if self._pending is None and self._step == 0:
            self._pending = (0, 0, {})
        if self._pending is not None:
            self._pending[2].update(metrics)

    # State --------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Write to the disk everything that decisions depend on, and return the run's id and step for a checkpoint.

        The result is a dictionary of JSON values, for `load_state_dict`. Call this between two steps. In the middle of
        a step, it would store the groups so far as a step of their own.
        """
        self.finish_step()
        self.flush()
        if self._run is not None:
            self._run.sync()
        return {"run": self._run_id, "step": self._step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the run in the run directory after the step at which `state` was saved; remove the steps after it.

        `state` is what `state_dict` returned. Raise UserError if the directory holds another run. Also raise it if the
        run's recipe differs from this object's in other sections than `train` and `model`.
        """
        self.close("interrupted")
        self._reset()
        self._step = state["step"]
        if state["run"] is not None:
            self._resume(state["run"])

    def close(self, status: Status = "finished") -> None:
        """Write what is pending, note in the manifest how the run ended (`status`), and release the run directory.

        The groups of an incomplete step are stored as a step. If `status` is ``finished`` and the recipe has verified
        labels, log how many of these labels belong to a prompt of the run, as a warning if some do not.
        """
        self.finish_step()
        self.flush()
        if len(self._verified) and status == "finished":
            level = logging.WARNING if self._verified.unknown else logging.INFO
            logging.getLogger(__name__).log(level, "%s", self._verified.note)
        if self._run is not None:
            # Now the number of epochs is known, which readers of the recipe need.
            if status == "finished" and self._epoch and not self._knows_epochs:
                self._tree = overlay(self._tree, {"train": {"epochs": self._epoch}})
                self.recipe = validate(self._tree, "recipe")
            self._run.sync()
            self._run.close(status, recipe=self.recipe, steps=self._step)
            self._run = None
        self._supervisor.judge.close()

    # The run directory --------------------------------------------------------------------------------------------

    def _open(self, groups: Sequence[tuple[Prompt, Sequence[Any]]]) -> RunWriter:
        """Return the writer of the run directory; the first call makes it.

        The first call also sets the recipe's numbers of prompts per step and rollouts per prompt, if the recipe lacks
        them. Raise UserError if the directory holds a run already, or if this object was closed.

        `groups` are the groups of the step: each prompt with its completions. Only the first call reads them.
        """
        path = self.run_dir
        if self._run is not None:
            return self._run
        if self._run_id is not None:
            raise UserError(
                f"{path} was closed after step {self._step}", "load its state to continue"
            )
        # The first step shows the batch sizes, which the recipe of another trainer rarely has.
        sizes = (
            {"prompts_per_step": len(groups), "rollouts_per_prompt": len(groups[0][1])}
            if groups
            else {}
        )
        self._tree = overlay({"train": {**sizes, "mini_batch_prompts": None}}, self._tree)
        self.recipe = validate(self._tree, "recipe")
        if (path / "manifest.json").exists():
            raise UserError(
                f"{path} holds a run already ({read_manifest(path)['status']})",
                "load the state that was saved with its"
                " checkpoint to continue it, or choose another run_dir",
            )
        return self._write_to(RunWriter.create(path, self.recipe), is_resumed=False)

    def _resume(self, run_id: str) -> None:
        """Continue the stored run `run_id` after step `self._step`, and remove its later steps.

        Raise UserError if the run directory does not hold this run. Also raise it if the stored recipe differs from
        this object's in other sections than `train` and `model`.
        """
        path = self.run_dir
        # A temporary folder never survives its process, so a state of one has no run to continue.
        if not is_run(path) and (self._is_temporary or not path.exists()):
            raise UserError(
                f"the state is of a run that is not in {path}",
                "name its run_dir, or start without the checkpoint",
            )
        require_run(path)
        if read_manifest(path)["id"] != run_id:
            raise UserError(
                f"the state was saved by another run than the one in {path}",
                "name the run_dir that it belongs to",
            )
        stored, given = read_recipe(path), flatten(self._tree).keys()
        self._tree = overlay(stored.plain(), self._tree)
        self.recipe = validate(self._tree, "recipe")
        # The stored recipe may be a stranger's: run only the code that this call's own recipe names.
        self.recipe = self.recipe.of_strangers(self.recipe.code().keys() - given)
        self.recipe.require_named()
        keys = changed_keys(stored, self.recipe)
        # These two sections describe the trainer, which may continue with other batch sizes or from another model path.
        if changed := [key for key in keys if not key.startswith(("train.", "model."))]:
            raise UserError(
                f"{path} was begun with another recipe ({'; '.join(changed)})",
                "continue it with its own, or start a new run in another run_dir",
            )
        self._verified = VerifiedLabels.for_prompts_to_come(self.recipe.data.verified)
        self._write_to(RunWriter.resume(path, self.recipe), is_resumed=True)

    def _write_to(self, run: RunWriter, *, is_resumed: bool) -> RunWriter:
        """Begin to write to `run`, whose directory is already locked, and return `run`.

        With `is_resumed`, the steps after `self._step` are removed first. The stored prompts and history are read,
        because decisions depend on them. If this fails before the run has begun, the lock is released; afterwards, only
        `close` releases it.
        """
        with ExitStack() as lock:
            lock.enter_context(run)
            if is_resumed:
                run.roll_back(self._step)
                run.read_prompts(self._verified.mark)
            run.begin(after=self._step, facts={"engine": self._trainer})
            # From here on `close` releases the lock, not the end of this block.
            lock.pop_all()
        self._prompts.continue_with(run.prompts.values())
        self._run, self._run_id = run, read_manifest(run.path)["id"]
        judge = Judge(ledger=run.path / GIVEN_UP, tolerance=self.recipe.data.tolerance)
        history = stored_history(run.path, judge) if self._step else None
        self._supervisor = self._make_supervisor(judge, history)
        return run

    def flush(self) -> None:
        """Write the metrics of the latest step to metrics.jsonl; `log` cannot add to them afterwards."""
        if self._pending is not None and self._run is not None:
            self._run.log(*self._pending)
        self._pending = None

    # Prompts ------------------------------------------------------------------------------------------------------

    def _require_groups(
        self, groups: Sequence[tuple[Prompt, Sequence[Any]]], marked: Sequence[Prompt]
    ) -> None:
        """Raise UserError if a step's groups cannot be used.

        A prompt must come once in a step, with at least two completions. It must equal the prompt with this id in
        earlier steps. If the method needs labels, a prompt must have a given or a verified label.

        Args:
            groups: each prompt with its completions.
            marked: the prompts of `groups` in the same order, with `is_verified` set on each that has a verified label.
        """
        names = {name for part in self._decided for name in part.labels["prompt_id"]}
        known = {} if self._run is None else self._run.prompts
        for (prompt, completions), verified in zip(groups, marked, strict=True):
            if prompt.prompt_id in names:
                raise UserError(
                    f"prompt {prompt.prompt_id} comes twice in one step",
                    "give its completions at once",
                )
            names.add(prompt.prompt_id)
            if len(completions) < 2:
                raise UserError(
                    f"prompt {prompt.prompt_id} has one completion, and a vote needs several",
                    "give all completions of a"
                    " prompt in one call, and sample at least 2 of each",
                )
            is_unlabelled = prompt.given_label is None and not verified.is_verified
            if is_unlabelled and self.recipe.method.row.needs_labels:
                raise UserError(
                    f"prompt {prompt.prompt_id} has no label, which method {self.recipe.method.name} needs",
                    "fill it in or leave the prompt out",
                )
            require_same(known.get(prompt.prompt_id, prompt), prompt)


def _recipe_tree(
    recipe: RecipeSource | None, trainer: str, settings: Mapping[str, Any], run_dir: Path
) -> dict[str, Any]:
    """Return the nested keys of the recipe for a run of another trainer: the user's keys, and the trainer's settings.

    Args:
        recipe: the user's keys, or the name of a recipe file; None for no keys.
        trainer: the trainer's name and version.
        settings: the trainer's own settings, as nested keys of a recipe.
        run_dir: the run directory. If the user's keys have no `name`, the recipe is named after this folder.

    Raises:
        UserError: the user's keys include one that the trainer sets, or one that has no effect here.
    """
    recipe = {} if recipe is None else recipe
    keys = (
        dict(recipe) if isinstance(recipe, Mapping) else read_tree(find_recipe(str(recipe)))
    )
    fixed = flatten(dict(settings))
    for key in flatten(keys):
        section, _, name = key.partition(".")
        if section in _ALLOWED_KEYS and name not in _ALLOWED_KEYS[section]:
            raise UserError(f"recipe: {key} has no effect under {trainer}", "leave it out")
        if key in fixed:
            raise UserError(
                f"recipe: {key} is a setting of {trainer}, which has {fixed[key]}",
                "leave it out here",
            )
    tree = overlay(dict(settings), keys)
    if isinstance(method := tree.get("method", {}), Mapping):
        # `olr train` defaults to GRPO, but whoever makes this object wants refinement.
        tree["method"] = {"name": "olr", **method}
    data = {**tree.get("data", {}), "train": str((run_dir / PROMPTS).absolute())}
    # Absolute, because a resume may start in another working folder.
    if isinstance(data.get("verified"), str):
        data["verified"] = str(Path(data["verified"]).absolute())
    model = {"path": "unknown", **tree.get("model", {})}
    name = tree.get("name") or run_dir.name or "external"
    engine = {"name": "external", "trainer": trainer}
    return {**tree, "name": name, "data": data, "model": model, "engine": engine}


def _warn_if_unread(missing: float, responses: Sequence[str]) -> None:
    """Log a warning if no answer can be read from more than 90 % of the responses.

    The warning also suggests an extractor, if there is one that reads most of the first 100 responses.

    Args:
        missing: the share of responses without an answer, from 0 to 1.
        responses: the texts of all responses.
    """
    if missing > 0.9:
        logging.getLogger(__name__).warning(
            "%.0f%% of the responses have no answer; data.extractor may be wrong. %s",
            100 * missing,
            reading_more(responses[:100]) or "",
        )


def _joined(parts: Sequence[Columns]) -> Columns:
    """Concatenate tables with the same columns to one table; a table is a mapping: name -> column."""
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}


def _rollout(completion: str | Chat | Rollout, prompt: Sequence[Message]) -> Rollout:
    """Return a completion as a `Rollout`; its response begins with the thinking tag, if the prompt ends with one.

    If `prompt` ends with a tag such as ``<think>``, the completion alone would not show that it begins inside the
    thinking. So the tag is put in front of the response.
    """
    rollout = (
        completion
        if isinstance(completion, Rollout)
        else Rollout(completion_text(completion))
    )
    return replace(rollout, response=with_opened(ending(prompt), rollout.response))
