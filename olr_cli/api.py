"""Labels and rewards for the rollouts of any trainer; needs no torch. docs/trainers.md shows it in use.

    olr = OnlineLabelRefinement("runs/mine", recipe={"method": {"warmup_epochs": 2}})
    for prompts, completions, labels in batches:         # K completions of each prompt, one after the other
        step = olr(prompts, completions, labels)
        update(step.rewards)
        save(checkpoint, json.dumps(olr.state_dict()))
    olr.close()

`OnlineLabelRefinement` counts visits, keeps the history, and writes the run directory that every `olr` command reads.
`Supervisor` is what decides, for a loop that counts and stores by itself. Every name of `__all__` is stable: what it
takes and returns changes only with a new major version. `olr_cli.trainers` has ready-made rewards for TRL and verl.
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

_OF_SECTIONS: dict[str, set[str]] = {
    **{"data": {"extractor", "verified"}, "noise": {"", "type", "draw"}},
    **{"engine": set(), "logging": set(), "sweep": set()},
}
"""What counts in sections whose other keys are the trainer's."""


@dataclass(frozen=True, slots=True)
class SupervisedStep:
    """What was decided for the completions of one step.

    Attributes:
        step: its number, from 1.
        rewards: a reward a completion, in the order in which they were given.
        trains: whether each completion takes part in the update; False only under methods that choose prompts.
        metrics: of the step, by the names of metrics.jsonl.
        decided: the same and more in columns, as they are stored.
    """

    step: int
    rewards: tuple[float, ...]
    trains: tuple[bool, ...]
    metrics: Mapping[str, float]
    decided: Decided

    @property
    def labels(self) -> tuple[LabelRecord, ...]:
        """A record a prompt."""
        return tuple(
            LabelRecord(*row) for row in zip(*self.decided.labels.values(), strict=True)
        )

    @property
    def rollouts(self) -> tuple[RolloutRecord, ...]:
        """A record a completion, prompt by prompt."""
        return tuple(
            RolloutRecord(*row) for row in zip(*self.decided.rollouts.values(), strict=True)
        )


class OnlineLabelRefinement(AbstractContextManager["OnlineLabelRefinement"]):
    """Rewards for the completions of another trainer, step by step, by labels that are refined on the way.

    Decisions are those of `olr train` on the same rollouts. Not for threads that call it at the same time.

    Args:
        run_dir: where labels, rollouts, metrics and the recipe are stored; must not hold a run yet, unless the state
            of one is loaded. None: a temporary folder, which lasts as long as this object.
        recipe: keys of a recipe as nested mappings, or the name of a recipe file. The method is OLR unless
            `method.name` says otherwise; `train` and `model.path` describe what the trainer does, and are only stored.
            `data.verified` is a file of verified labels, by prompt_id or as a data set by question.
        trainer: name and version, for the run's manifest.
        settings: what the trainer is known to do, as keys of a recipe, which `recipe` then must not set.
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
            # Left to the directory itself, it would warn
            weakref.finalize(self, temporary.cleanup)
            run_dir = os.path.join(temporary.name, "external")
        self.run_dir = Path(run_dir)
        self._trainer = trainer
        self._tree = _recipe_tree(recipe, trainer, settings or {}, self.run_dir)
        self._knows_epochs = "epochs" in self._tree.get("train", {})
        self.recipe = validate(self._tree, "recipe")
        if self.recipe.data.extractor is not None:
            with at("recipe: data.extractor"):
                find_extractor(self.recipe.data.extractor)
        if (
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
        """Complete steps so far."""
        return self._step

    @property
    def groups_in_step(self) -> int:
        """Groups that have come of a step that is not complete."""
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
        """Decide the labels of a step and reward its completions.

        All arguments but `step` have one item a completion, N in all; the K completions of a prompt come in the same
        call, in any place.

        Args:
            prompts: N texts or chats.
            completions: N texts, chats or rollouts; a `Rollout` also tells tokens, truncation and what intrinsic
                rewards are made of.
            labels: N labels as the data has them (`SENTINEL` on prompts marked as inactive or active noise); None
                where a prompt has none, under methods that need none.
            prompt_ids: N ids; by default those of a file without ids (`QuestionIds`).
            true_answers: N true answers, where they are known; they decide what is reported, and noisy labels (R3).
            noise_types: N of clean, inactive, active, active_frozen; by default what label and true answer say.
            step: the number of this step, to make sure that none is lost or repeated.
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
        places = gathered(
            (prompt.prompt_id, place) for place, prompt in enumerate(of_completions)
        )
        groups = [
            (by_id[name], [completions[place] for place in places[name]]) for name in places
        ]
        decided = self.supervise(groups, step=step)
        rewards, trains = [*decided.rewards], [*decided.trains]
        # Decisions come group by group; each belongs to the place where its completion stood in the call.
        for one, place in enumerate(chain.from_iterable(places.values())):
            rewards[place], trains[place] = decided.rewards[one], decided.trains[one]
        return replace(decided, rewards=tuple(rewards), trains=tuple(trains))

    def supervise(
        self,
        groups: Sequence[tuple[Prompt, Sequence[str | Chat | Rollout]]],
        *,
        step: int | None = None,
        complete: bool = True,
    ) -> SupervisedStep:
        """As a call, on completions that are grouped already; rewards are in the order of the groups.

        Args:
            groups: each prompt of the step once, with its completions.
            step: as in a call.
            complete: False if more groups of the same step follow; it is stored by the last one, or by `finish_step`.
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
        if not self._decided:
            self._clock = Stopwatch()
        rollout_groups = [
            RolloutGroup(
                prompt,
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
        """Store the groups that came since the last step as one step; its metrics, none if there were no groups."""
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
        times.pop("time/step", None)
        self._step = number
        epoch = max(labels["visit"])
        self._epoch = max(self._epoch, epoch)
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
        """Return 1.0 for every completion that is right, given the gold beside it, else 0.0; for held-out prompts.

        A gold is an answer, or a list of answers of which any is right, in every form that a file may have it in.
        Nothing is recorded. Without `data.extractor`, `data_sources` decide how answers are read (R6). Where `prompts`
        ask for a percentage, golds accept a percent sign that they lack (R7); where they end inside the thinking, so do
        responses begin (R6).
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
            for verdict in verdicts(cells, answers, self._supervisor.judge, None, asks)
        ]

    def log(self, metrics: Mapping[str, float]) -> None:
        """Add the trainer's metrics to those of the latest step; before the first step, to those of step 0.

        They are written with the next step, or by `state_dict` and `close`.
        """
        if self._pending is None and self._step == 0:
            self._pending = (0, 0, {})
        if self._pending is not None:
            self._pending[2].update(metrics)

    # State --------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The run and its step, as JSON values: what later decisions depend on is in the run directory, on the disk.

        Between steps only: what has come of a step that is not complete is stored as one.
        """
        self.finish_step()
        self.flush()
        if self._run is not None:
            self._run.sync()
        return {"run": self._run_id, "step": self._step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after the step at which a state was taken; later steps in the run directory are removed."""
        self.close("interrupted")
        self._reset()
        self._step = state["step"]
        if state["run"] is not None:
            self._resume(state["run"])

    def close(self, status: Status = "finished") -> None:
        """Write what is pending, note in the manifest how the run ended, and let the run directory go.

        How many verified labels were for the prompts is logged; a warning, if some were for none.
        """
        self.finish_step()
        self.flush()
        if len(self._verified) and status == "finished":
            level = logging.WARNING if self._verified.unknown else logging.INFO
            logging.getLogger(__name__).log(level, "%s", self._verified.note)
        if self._run is not None:
            if status == "finished" and self._epoch and not self._knows_epochs:
                self._tree = overlay(self._tree, {"train": {"epochs": self._epoch}})
                self.recipe = validate(self._tree, "recipe")
            self._run.sync()
            self._run.close(status, recipe=self.recipe, steps=self._step)
            self._run = None
        self._supervisor.judge.close()

    # The run directory --------------------------------------------------------------------------------------------

    def _open(self, groups: Sequence[tuple[Prompt, Sequence[Any]]]) -> RunWriter:
        """The writer of the run directory, which is made before the first step."""
        path = self.run_dir
        if self._run is not None:
            return self._run
        if self._run_id is not None:
            raise UserError(
                f"{path} was closed after step {self._step}", "load its state to continue"
            )
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
        return self._write_to(RunWriter.create(path, self.recipe))

    def _resume(self, run_id: str) -> None:
        """Continue the run of a state; what is stored of later steps is removed."""
        path = self.run_dir
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
        self.recipe = self.recipe.of_strangers(self.recipe.code().keys() - given)
        self.recipe.require_named()
        keys = changed_keys(stored, self.recipe)
        if changed := [key for key in keys if not key.startswith(("train.", "model."))]:
            raise UserError(
                f"{path} was begun with another recipe ({'; '.join(changed)})",
                "continue it with its own, or start a new run in another run_dir",
            )
        self._verified = VerifiedLabels.for_prompts_to_come(self.recipe.data.verified)
        self._write_to(RunWriter.resume(path, self.recipe), is_resumed=True)

    def _write_to(self, run: RunWriter, *, is_resumed: bool = False) -> RunWriter:
        """Begin an attempt of a run that this process holds; let it go if that fails."""
        with ExitStack() as lock:
            lock.enter_context(run)
            if is_resumed:
                run.roll_back(self._step)
                run.read_prompts(self._verified.mark)
            run.begin(after=self._step, facts={"engine": self._trainer})
            lock.pop_all()  # `close` lets it go
        self._prompts.continue_with(run.prompts.values())
        self._run, self._run_id = run, read_manifest(run.path)["id"]
        judge = Judge(ledger=run.path / GIVEN_UP, tolerance=self.recipe.data.tolerance)
        history = stored_history(run.path, judge) if self._step else None
        self._supervisor = self._make_supervisor(judge, history)
        return run

    def flush(self) -> None:
        """Write the metrics of the latest step, to which nothing can be added then."""
        if self._pending is not None and self._run is not None:
            self._run.log(*self._pending)
        self._pending = None

    # Prompts ------------------------------------------------------------------------------------------------------

    def _require_groups(
        self, groups: Sequence[tuple[Prompt, Sequence[Any]]], marked: Sequence[Prompt]
    ) -> None:
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
    """The keys of a run that another trainer makes."""
    recipe = {} if recipe is None else recipe
    keys = (
        dict(recipe) if isinstance(recipe, Mapping) else read_tree(find_recipe(str(recipe)))
    )
    known = flatten(dict(settings))
    for key in flatten(keys):
        section, _, name = key.partition(".")
        if section in _OF_SECTIONS and name not in _OF_SECTIONS[section]:
            raise UserError(f"recipe: {key} has no effect under {trainer}", "leave it out")
        if key in known:
            raise UserError(
                f"recipe: {key} is a setting of {trainer}, which has {known[key]}",
                "leave it out here",
            )
    tree = overlay(dict(settings), keys)
    if isinstance(method := tree.get("method", {}), Mapping):
        tree["method"] = {"name": "olr", **method}
    data = {**tree.get("data", {}), "train": str((run_dir / PROMPTS).absolute())}
    if isinstance(data.get("verified"), str):
        data["verified"] = str(Path(data["verified"]).absolute())
    model = {"path": "unknown", **tree.get("model", {})}
    name = tree.get("name") or run_dir.name or "external"
    engine = {"name": "external", "trainer": trainer}
    return {**tree, "name": name, "data": data, "model": model, "engine": engine}


def _warn_if_unread(missing: float, responses: Sequence[str]) -> None:
    """Log a warning if hardly any response has an answer that is read; `missing` is their share without one."""
    if missing > 0.9:
        logging.getLogger(__name__).warning(
            "%.0f%% of the responses have no answer; data.extractor may be wrong. %s",
            100 * missing,
            reading_more(responses[:100]) or "",
        )


def _joined(parts: Sequence[Columns]) -> Columns:
    """The columns of a step that came in parts."""
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}


def _rollout(completion: str | Chat | Rollout, prompt: Sequence[Message]) -> Rollout:
    """Return a completion of a prompt, with what that opened in front: stored, it is read again without the prompt."""
    rollout = (
        completion
        if isinstance(completion, Rollout)
        else Rollout(completion_text(completion))
    )
    return replace(rollout, response=with_opened(ending(prompt), rollout.response))
