"""The parts of a run: its data, its supervisor and its engine. `olr_cli.engines.launch` puts them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, Protocol, TypeVar

from olr_cli.answers import find_extractor
from olr_cli.data.chat import Message
from olr_cli.data.prompts import PromptSet, View
from olr_cli.data.sets import held_out_prompts, training_data
from olr_cli.engines.models import load_tokenizer, model_location
from olr_cli.engines.prompt_text import ChatFormat, without_long
from olr_cli.errors import UserError, at
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.sections import ExternalEngine, LocalEngine, OpenRlhfEngine
from olr_cli.runs.checkpoints import checkpoint_path, checkpoint_steps
from olr_cli.runs.directory import Kind, Status
from olr_cli.runs.progress import Progress
from olr_cli.runs.writer import RunWriter
from olr_cli.supervision import Supervisor, compose, keep_fraction
from olr_cli.supervision.own_rule import OwnRule
from olr_cli.supervision.verifier import Verifier

DUAL_CLIP = 3.0
GRADIENT_CLIP = 1.0
ADAM_BETAS = (0.9, 0.999)
WEIGHT_DECAY = 0.01
"""The settings of R17 that are not keys of a recipe."""


@dataclass(frozen=True)
class DataSets:
    """The prompts of a run: those that train, and those that are only evaluated (validation and test).

    `load_data` makes it. It also holds the wordings in which each training prompt is rolled out, the share of a step's
    prompts that a selecting method trains on, and the day on which the run started.
    """

    train: PromptSet
    validation: PromptSet | None
    test: PromptSet | None
    views: tuple[View, ...] = ("original",)
    """The views, that is wordings, in which each training prompt is rolled out."""

    keep_fraction: Fraction = Fraction(1)
    """Share of a step's prompts that train, if the recipe's method chooses among them."""

    day: date | None = None
    """Day on which the run started, for chat templates that write the date; None if nothing has started."""

    @property
    def held_out(self) -> dict[str, PromptSet]:
        """The sets that are only evaluated, by the prefix of their metrics.

        The prefix of the test set is ``eval``, and that of the validation set ``validation``. Sets that the run lacks
        are absent.
        """
        sets = {"eval": self.test, "validation": self.validation}
        return {prefix: prompts for prefix, prompts in sets.items() if prompts is not None}

    @property
    def notes(self) -> list[str]:
        """Sentences on how the sets were read (`PromptSet.notes`). A sentence that several sets share appears once."""
        sets = (self.train, *self.held_out.values())
        return list(dict.fromkeys(note for prompts in sets for note in prompts.notes))

    @property
    def facts(self) -> dict[str, Any]:
        """Entries for the manifest: source, digest and number of prompts of each set, by the set's name.

        For ``train`` there may also be the digest of the verified labels, and the ids of prompts left out as too long.
        """
        sets = {"train": self.train, "validation": self.validation, "test": self.test}
        facts: dict[str, dict[str, Any]] = {
            name: {
                "source": str(prompts.source),
                "digest": prompts.digest,
                "prompts": len(prompts.prompts),
            }
            for name, prompts in sets.items()
            if prompts is not None
        }
        if "verified.digest" in self.train.facts:
            facts["train"]["verified_digest"] = self.train.facts["verified.digest"]
        if self.train.left_out:
            facts["train"]["left_out"] = self.train.left_out
        return facts


@dataclass(frozen=True)
class Attempt:
    """Everything that an engine needs to complete a run in this process, whether the run is new or resumed.

    `launch` makes it. `writer` stores the run's steps, and `progress` shows them.
    """

    recipe: Recipe
    path: Path
    """The run directory, locked by this process."""

    data: DataSets
    supervisor: Supervisor
    """Decides the labels. Its history holds every visit, that is a prompt in one epoch, up to `done`."""

    writer: RunWriter
    done: int
    """Number of complete steps. In training there is a checkpoint after this step, unless it is 0."""

    progress: Progress


class EngineFailed(Exception):
    """Raised when a bug has ended one of the engine's processes; the message names the log that has its traceback."""


class Engine(Protocol):
    """The interface of engines, which sample rollouts and train the policy.

    An engine is made before anything of the run is written.
    """

    def __init__(self, recipe: Recipe, data: DataSets) -> None:
        """Load the starting policy; raise UserError if a prompt exceeds its context or the recipe's limits."""

    @property
    def facts(self) -> dict[str, Any]:
        """Entries for the manifest.

        The keys are ``engine``, ``device``, ``dtype``, ``threads``, ``departures`` and ``policy_digest``. Departures
        are sentences on where the run departs from the settings of the paper's authors. The digest is that of the
        starting policy's weights.
        """
        ...

    @property
    def warnings(self) -> list[str]:
        """Likely mistakes in the recipe or the model that this engine has noticed, a sentence each."""
        ...

    @property
    def plan(self) -> list[str]:
        """Lines of a dry run: where and how the engine would compute."""
        ...

    def render(self, messages: Sequence[Message]) -> str:
        """Return a prompt exactly as the policy sees it."""
        ...

    def complete(self, run: Attempt) -> dict[str, Any]:
        """Take all steps after `run.done`, and return facts about the finished run, which go into its manifest."""
        ...


Section = TypeVar("Section", LocalEngine, OpenRlhfEngine)


def engine_section(recipe: Recipe, kind: type[Section]) -> Section:
    """Return the recipe's section `engine`, which must be of the class `kind`.

    Raises:
        ValueError: the recipe has another engine.
    """
    if not isinstance(recipe.engine, kind):
        raise ValueError(f"the recipe asks for the engine {recipe.engine.name}")
    return recipe.engine


def require_engine(recipe: Recipe) -> None:
    """Raise UserError if the recipe's engine is external, which means that another program trains."""
    if isinstance(recipe.engine, ExternalEngine):
        raise UserError(
            f"engine.name is external: {recipe.engine.trainer} trains and takes its rewards from olr",
            "start or continue it there (docs/trainers.md)",
        )


def load_data(recipe: Recipe, kind: Kind = "training", day: date | None = None) -> DataSets:
    """Load the recipe's data sets and put noise on the training labels.

    If `data.drop_long` is set, prompts that are too long are left out of all sets.

    Args:
        recipe: names the data sets.
        kind: `training`, or `rollouts` for a run that trains nothing, whose prompts need no labels.
        day: day on which the run started, for chat templates that write the date; None for today.

    Raises:
        UserError: the data cannot be read, or lack something that the recipe's method needs.
    """
    # A stored recipe may be a stranger's: code that only it names must not run unasked.
    recipe.require_named()
    extractor = recipe.data.extractor
    if extractor is not None:
        with at("data.extractor"):
            find_extractor(extractor)
    train, held_out = training_data(recipe)
    method = compose(recipe.method)
    if isinstance(method.rule, OwnRule):
        method.rule.load()  # so that an error in the user's file is found before anything starts
    if recipe.verifier is not None:
        Verifier(recipe).require_numbers(train.prompts)
    if method.needs_labels and kind == "training":
        train.require_labels(f"method '{recipe.method.name}'")
    if "rephrased" in method.views:
        train.require_rephrasings(f"method '{recipe.method.name}'")
    validation, test = recipe.data.validation, recipe.data.test
    sets: dict[str, PromptSet | None] = {
        "validation": None
        if validation is None
        else held_out_prompts(recipe, validation, "validation"),
        "test": held_out if test is None else held_out_prompts(recipe, test, "test"),
    }
    # Lengths need a tokenizer, which takes seconds to load, so only recipes that drop prompts load it here.
    if recipe.data.drop_long:
        tokenizer = load_tokenizer(
            model_location(recipe.model.path),
            trust_remote_code=recipe.model.trust_remote_code,
        )
        fit = partial(without_long, tokenizer, recipe, ChatFormat.of(recipe, day))
        train = fit(train, method.views)
        sets = {name: prompts and fit(prompts) for name, prompts in sets.items()}
    # Compute the share last: it depends on the marked prompts that remain after long ones are dropped.
    share = keep_fraction(recipe.method, train.prompts)
    return DataSets(train, **sets, views=method.views, keep_fraction=share, day=day)


def loss_average_departure(recipe: Recipe) -> str:
    """Return a sentence for the manifest on how olr averages the loss differently from the paper's authors (R17).

    The authors average the loss over the tokens of each micro-batch of 4 responses, and then over the micro-batches.
    Neither value of `train.loss_average` does exactly that, so either gets a sentence.
    """
    # The authors' setting `balance_batch` sorts responses by length, so a micro-batch has responses of about equal
    # length. `benchmarks/step_order.py` shows the weight that each response then has.
    authors = (
        "the authors' mean of token means over micro-batches of 4 responses of like length"
    )
    if recipe.train.loss_average == "token":
        return (
            f"the loss is one mean over a mini-batch's response tokens, and long responses weigh more; {authors} is in"
            " effect a mean over responses (train.loss_average sequence)"
        )
    return f"the loss is exactly a mean over a mini-batch's responses; {authors} comes close to it"


# A run that diverges ends at the first loss, gradient or logit that is not finite, before the optimiser uses it. Both
# engines raise `NonFinite` where they compute it. Adam moves a weight by about the learning rate, however large a
# finite gradient is. So checking before a step is enough to keep all weights, and thus every checkpoint, finite.

NONFINITE = "policy/nonfinite"
"""The metric: optimiser steps left out because a loss, gradient or logit is not finite."""

LOGITS, LOSS_OR_GRADIENT = "its logits are", "its loss or gradient is"


class NonFinite(UserError):
    """Raised when a loss, a gradient or logits are NaN or infinite.

    The message is written for commands that do not train. In training, the error that `diverged` returns is raised
    instead.
    """

    def __init__(self, quantity: str, model: str = "the policy") -> None:
        super().__init__(
            f"{model} cannot answer: {quantity} not finite, so it has diverged or is damaged",
            "use another checkpoint",
        )
        self.quantity = quantity


class Diverged(UserError):
    """Raised when a run ends because its policy has diverged. Everything up to the last complete step is kept."""

    run_status: Status = "diverged"


def diverged(
    writer: RunWriter, error: NonFinite, *, step: int, epoch: int, failed: int
) -> Diverged:
    """Record in metrics.jsonl that a step has met a value that is not finite, and return the error to raise.

    Args:
        writer: writes the run's files.
        error: names the quantity that is not finite.
        step: the step that was not completed; 0 is before training.
        epoch: the epoch of `step`.
        failed: the last step that updated the policy, or 0 for the starting policy. The error proposes the newest
            checkpoint before this step.
    """
    # The step itself is not kept, so this line of metrics is the run's only record of the failure.
    writer.log(step, epoch, {NONFINITE: 1})
    run, recipe = writer.path, writer.recipe
    if failed == 0:
        return Diverged(
            f"{recipe.model.path} cannot answer: {error.quantity} not finite, before anything is trained",
            "use another model, or another precision",
        )
    # The checkpoint of step `failed` itself is not proposed: the policy that it holds is the one that is not finite.
    good = max((saved for saved in checkpoint_steps(run) if saved < failed), default=None)
    remedy = "start a new run with a lower train.learning_rate"
    if good is None:
        remedy += "; no checkpoint was due before"
    else:
        remedy += f", from here with model.path={quote(str(checkpoint_path(run, good)))}"
    return Diverged(
        f"the policy has diverged: at step {step} {error.quantity} not finite (train.learning_rate"
        f" {recipe.train.learning_rate:g}), and the step is not kept",
        f"{remedy} (a resume would repeat it)",
    )
