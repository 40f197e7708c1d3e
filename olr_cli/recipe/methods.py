"""Methods as four choices: label, reward, prompts that train, and additions to the loss."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from olr_cli.recipe.section import FUNCTION, Epochs, Exact, Number, Section, default

Criterion = Literal["slope", "consistency"]
"""A condition that a majority must meet to replace a label (R14)."""

PromptRule = Literal["all", "small_loss", "random", "verified"]
"""The prompts of a step that train."""


class MethodSection(Section):
    """The section `method`: which label counts, what is rewarded, which prompts train, and what is added to the loss.

    `name` is a built-in method (`METHODS`), or a label rule of your own (``file.py:function``). A built-in method
    decides the label and the reward, and presets other keys. Further keys add parts of other methods. For example,
    ``{name: olr, penalty_weight: 0.001}`` is OLR with a confidence penalty (docs/methods.md).
    """

    name: str
    prompts: PromptRule = default(
        "all",
        "Which of a step's prompts train: all, those with the smallest loss, a random choice, or those with a verified"
        " label (`data.verified`).",
    )
    keep_fraction: Annotated[Exact, Field(gt=0, le=1)] | None = default(
        None,
        "Share of a step's prompts that train, if `prompts` is not all; null: 1 - the share of marked prompts.",
    )
    penalty_weight: Number = default(
        0.0,
        "Weight of the mean token entropy (nats) subtracted from the loss; 0: no penalty.",
        ge=0,
    )
    smoothing: Number = default(
        0.0,
        "Share of the uniform distribution in each token's target; 0: none.",
        ge=0,
        lt=1,
    )
    majority_graded_by: Literal["class", "verifier"] = default(
        "class",
        "Who grades rollouts by a majority label: its class, so that `verifier` errs on other labels alone (R16), or as"
        " in the authors' code the verifier.",
    )

    @model_validator(mode="before")
    @classmethod
    def _add_presets(cls, keys: Any) -> Any:
        """Return the section's keys, with the named method's presets for those that are not set.

        A user's own label rule, whose name has a colon, has no presets. Its keys are returned unchanged, and so is a
        value that is not a dictionary. Raise pydantic's error if there is no such method.
        """
        if not isinstance(keys, dict) or ":" in str(keys.get("name")):
            return keys
        name = keys.get("name", cls.model_fields["name"].default)
        if not isinstance(name, str) or name not in METHODS:
            expected = ", ".join(f"'{known}'" for known in METHODS)
            raise PydanticCustomError("unknown_method", "unknown", {"expected": expected})
        return {**METHODS[name].presets, **keys}

    @model_validator(mode="after")
    def _refuse_other_presets(self) -> MethodSection:
        """Return the section; raise ValueError if a key has another value than the method's preset.

        Such a section would be another method. If the preset is a number, such as the weight of a penalty, any number
        above 0 is allowed.
        """
        for key, preset in self.row.presets.items():
            value, is_number = getattr(self, key), isinstance(preset, float)
            # A penalty of another weight is the same method, and with 0 it would be plain GRPO.
            if value <= 0 if is_number else value != preset:
                right = "above 0" if is_number else preset
                raise ValueError(
                    f"{self.name} with {key} {value} is another method; input should be {right}"
                )
        return self

    @model_validator(mode="after")
    def _keep_fraction_needs_a_choice(self) -> MethodSection:
        if self.keep_fraction is not None and self.prompts in ("all", "verified"):
            raise ValueError(
                f"keep_fraction is set, but prompts is {self.prompts}, which keeps every such prompt; set"
                " prompts to small_loss or random, or remove keep_fraction"
            )
        return self

    @property
    def row(self) -> MethodRow:
        """What the method's name stands for: a rule for the label, a reward, and presets of other keys.

        This is the method's row in `METHODS`.
        """
        return METHODS[self.name]

    def default_of(self, key: str) -> Any:
        """Return the value that a key has if it is left out: the method's preset, else the section's default."""
        return self.row.presets.get(key, super().default_of(key))


class PlainMethod(MethodSection):
    """The section `method` for a built-in method that has no keys of its own, such as grpo or ttrl."""

    name: str = "grpo"


class OlrMethod(MethodSection):
    """The section `method` for Online Label Refinement (Eq. effective_label, R14).

    After the warm-up, a label is replaced by the majority answer of the prompt's rollouts if this majority meets all
    `criteria` (docs/concepts.md).
    """

    name: str = "olr"
    criteria: tuple[Criterion, ...] = default(
        ("slope", "consistency"),
        "The criteria that a majority must meet to replace the label; empty: every majority does.",
    )
    slope_threshold: Exact = default(
        Decimal("0.05"),
        "delta, in pass rate per visit: the slope must be above it, compared exactly (R12, R14).",
    )
    warmup_epochs: Epochs = default(
        5, "T, in visits of a prompt: the first T keep the label."
    )

    @field_validator("criteria")
    @classmethod
    def _refuse_repeated_criteria(
        cls, criteria: tuple[Criterion, ...]
    ) -> tuple[Criterion, ...]:
        if len(set(criteria)) < len(criteria):
            raise ValueError("each criterion at most once")
        # One order, that of the default, so that the same criteria give the same digest.
        return tuple(sorted(criteria, reverse=True))


class ScoreMethod(MethodSection):
    """The section `method` for token_entropy and sequence_entropy.

    These methods need no labels. token_entropy rewards a response by the negative entropy of the policy's next-token
    distribution. sequence_entropy rewards it by the log-probability of its tokens. Both take the mean or the sum over
    the response's tokens (`score_reduction`).
    """

    name: str = "token_entropy"
    score_reduction: Literal["mean", "sum"] = default(
        "mean",
        "Over the response's tokens; the cited work takes the sum, which rewards short responses.",
    )


class OwnMethod(MethodSection):
    """The section `method` for a label rule of your own: the function that `name` names decides each label.

    The function also gets the section's keys that olr does not know (docs/methods.md).
    """

    model_config = ConfigDict(extra="allow")

    name: str = default(
        "", "`file.py:function` or `package.module:function`.", pattern=FUNCTION
    )
    warmup_epochs: Epochs = default(
        0, "The first T visits of a prompt keep the label, without asking the function."
    )

    @property
    def row(self) -> MethodRow:
        """A label from the user's function, a reward from the verifier, and no presets for other keys."""
        return MethodRow("", "own")


LabelChoice = Literal["given", "refined", "majority", "other_view", "none", "own"]
"""The label that a method trains on (`olr_cli.supervision.methods` has the rules)."""

IntrinsicReward = Literal["self_certainty", "token_entropy", "sequence_entropy"]
"""A reward computed from the policy's own token probabilities."""

RewardChoice = Literal["verifier"] | IntrinsicReward
"""The verifier's verdict, or an intrinsic reward."""


class MethodRow(NamedTuple):
    """What the name of a method stands for, as a row of the table `METHODS`.

    A method has a rule for the label and a reward, and may preset other keys of the section. The presets decide which
    prompts train and what is added to the loss.
    """

    summary: str
    """A sentence with the source, for `olr recipes keys`."""

    label: LabelChoice = "given"
    """The rule for it is in `olr_cli.supervision.methods`."""

    reward: RewardChoice = "verifier"
    """The score for it is in `olr_cli.supervision.rewards`."""

    presets: Mapping[str, Any] = {}
    """Keys of the section with another default than usual."""

    section: type[MethodSection] = PlainMethod
    """The class with the keys that only this method has."""

    @property
    def uses_labels(self) -> bool:
        """Whether the labels in the data can affect training.

        This is True for a user's own rule, even if the rule ignores the labels.
        """
        return self.label in ("given", "refined", "own")

    @property
    def needs_labels(self) -> bool:
        """Whether each training prompt needs a label in the data.

        This is False for a user's own rule, and for methods that make labels or rewards from the responses alone.
        """
        return self.label in ("given", "refined")


METHODS: Mapping[str, MethodRow] = {
    "grpo": MethodRow("Plain GRPO: every label counts as given."),
    "olr": MethodRow(
        "Online Label Refinement (Eq. effective_label, R14).", "refined", section=OlrMethod
    ),
    "ttrl": MethodRow(
        "TTRL (Zuo et al. 2025, arXiv:2504.16084): the label is the majority answer of the same visit.",
        "majority",
    ),
    "co_reward": MethodRow(
        "Co-Reward (Zhang et al. 2025, arXiv:2508.00410): each view's majority is the label of the other view.",
        "other_view",
    ),
    "self_certainty": MethodRow(
        "Self-certainty as reward (Zhao et al. 2025, arXiv:2505.19590); no labels.",
        "none",
        "self_certainty",
    ),
    "token_entropy": MethodRow(
        "Negative token entropy as reward (Agarwal et al. 2025, arXiv:2505.15134, EM-RL-token); no labels.",
        *("none", "token_entropy"),
        section=ScoreMethod,
    ),
    "sequence_entropy": MethodRow(
        "The log-likelihood as reward (Agarwal et al. 2025, arXiv:2505.15134, EM-RL-sequence); no labels.",
        *("none", "sequence_entropy"),
        section=ScoreMethod,
    ),
    "confidence_penalty": MethodRow(
        "GRPO with a confidence penalty on each token (Pereyra et al. 2017, arXiv:1701.06548; weight ours).",
        presets={"penalty_weight": 1e-3},
    ),
    "label_smoothing": MethodRow(
        "GRPO with smoothed token targets (Lukasik et al. 2020, arXiv:2003.02819; share ours).",
        presets={"smoothing": 0.1},
    ),
    "small_loss_selection": MethodRow(
        "GRPO on the prompts of a step with the smallest loss (Gui et al. 2021, arXiv:2106.09291).",
        presets={"prompts": "small_loss"},
    ),
    "random_selection": MethodRow(
        "GRPO on a random choice of a step's prompts: the control of small-loss selection.",
        presets={"prompts": "random"},
    ),
}
"""Name -> choices of every built-in method."""


def tag_of_method(value: Any) -> str:
    """Return the name of the class that validates a section `method`, such as ``OlrMethod``; pydantic calls this.

    `value` is the section's keys as a dictionary, or an object of one of these classes. A `name` with a colon is a
    user's function, for which the class is `OwnMethod`. For an unknown name the class is `PlainMethod`, whose validator
    refuses the name.
    """
    name = value.get("name") if isinstance(value, dict) else getattr(value, "name", None)
    # Only functions have a colon: `file.py:function`.
    if ":" in str(name):
        return OwnMethod.__name__
    row = METHODS.get(name) if isinstance(name, str) else None
    # An unknown name goes to PlainMethod too, whose validator raises a sentence that lists the methods.
    return (PlainMethod if row is None else row.section).__name__
