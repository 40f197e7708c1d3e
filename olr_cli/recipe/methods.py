"""A recipe's `method` section: one class a method, whose defaults are the vetted settings.

What the methods do is in `olr_cli.supervision.methods`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, field_validator, model_validator

from olr_cli.recipe.section import Exact, Number, Section, Whole

Criterion = Literal["slope", "consistency"]
PromptRule = Literal["all", "small_loss", "random"]


class MethodSection(Section):
    """What a method is composed of besides its labels and rewards, which its name decides.

    Every method has these keys, so a new mix is a recipe: OLR with a confidence penalty is
    ``{name: olr, penalty_weight: 0.001}``.

    Attributes:
        name: decides labels and rewards, and the other keys' defaults.
        prompts: which of a step's prompts train: `all`, those with a `small_loss`, or a `random` choice
            (`olr_cli.supervision.selection`).
        keep_fraction: share of a step's prompts that train; by default 1 - the share of marked prompts.
        penalty_weight: weight of the mean token entropy, which is subtracted from the loss; 0: no penalty.
        smoothing: share of the uniform distribution in each token's target; 0: none.
    """

    needs_labels: ClassVar[bool] = True
    """Whether a prompt without a given label is an error; the paper calls methods that need none unsupervised."""

    name: str
    prompts: PromptRule = "all"
    keep_fraction: Annotated[Exact, Field(gt=0, le=1)] | None = None
    penalty_weight: Annotated[Number, Field(ge=0)] = 0.0
    smoothing: Annotated[Number, Field(ge=0, lt=1)] = 0.0

    @model_validator(mode="after")
    def _a_fraction_of_something(self) -> MethodSection:
        if self.keep_fraction is not None and self.prompts == "all":
            raise ValueError(
                "keep_fraction is set, but prompts is all, which keeps every prompt; set prompts to small_loss or"
                " random, or remove keep_fraction"
            )
        return self


class GrpoMethod(MethodSection):
    """Plain GRPO: every label counts as given."""

    name: Literal["grpo"] = "grpo"


class OlrMethod(MethodSection):
    """Online Label Refinement (Eq. effective_label, R14).

    Attributes:
        criteria: which criteria a majority must meet; empty: every majority replaces the label.
        slope_threshold: delta, compared exactly and strictly (R12, R14); may be negative.
        warmup_epochs: T, leading visits that keep the label.
    """

    name: Literal["olr"] = "olr"
    criteria: tuple[Criterion, ...] = ("slope", "consistency")
    slope_threshold: Exact = Decimal("0.05")
    warmup_epochs: Annotated[Whole, Field(ge=0, lt=2**31)] = 5

    @field_validator("criteria")
    @classmethod
    def _each_once(cls, criteria: tuple[Criterion, ...]) -> tuple[Criterion, ...]:
        if len(set(criteria)) < len(criteria):
            raise ValueError("each criterion at most once")
        return tuple(sorted(criteria, reverse=True))


class TtrlMethod(MethodSection):
    """TTRL (Zuo et al. 2025, arXiv:2504.16084): every visit's own majority is its label."""

    needs_labels: ClassVar[bool] = False

    name: Literal["ttrl"] = "ttrl"


class CoRewardMethod(MethodSection):
    """Co-Reward (Zhang et al. 2025, arXiv:2508.00410): each view's majority is the label of the other view.

    Needs a `rephrased_prompt` for every prompt; rolls out K responses to each of the two.
    """

    needs_labels: ClassVar[bool] = False

    name: Literal["co_reward"] = "co_reward"


class SelfCertaintyMethod(MethodSection):
    """Self-certainty as reward (Zhao et al. 2025, arXiv:2505.19590); no labels."""

    needs_labels: ClassVar[bool] = False

    name: Literal["self_certainty"] = "self_certainty"


class TokenEntropyMethod(MethodSection):
    """Minus the tokens' entropy as reward (Agarwal et al. 2025, arXiv:2505.15134, EM-RL-token); no labels.

    Attributes:
        score_reduction: `mean` over response tokens, a departure from the cited `sum`, which rewards short responses.
    """

    needs_labels: ClassVar[bool] = False

    name: Literal["token_entropy"] = "token_entropy"
    score_reduction: Literal["mean", "sum"] = "mean"


class SequenceEntropyMethod(MethodSection):
    """The response's log-likelihood as reward (Agarwal et al. 2025, arXiv:2505.15134, EM-RL-sequence); no labels.

    Attributes:
        score_reduction: `mean` over response tokens, a departure from the cited `sum`, which rewards short responses.
    """

    needs_labels: ClassVar[bool] = False

    name: Literal["sequence_entropy"] = "sequence_entropy"
    score_reduction: Literal["mean", "sum"] = "mean"


class ConfidencePenaltyMethod(MethodSection):
    """GRPO with a confidence penalty on each token (Pereyra et al. 2017, arXiv:1701.06548).

    The paper does not give its weight.
    """

    name: Literal["confidence_penalty"] = "confidence_penalty"
    penalty_weight: Annotated[Number, Field(gt=0)] = 1e-3


class LabelSmoothingMethod(MethodSection):
    """GRPO with smoothed token targets (Lukasik et al. 2020, arXiv:2003.02819).

    The paper does not give its weight.
    """

    name: Literal["label_smoothing"] = "label_smoothing"
    smoothing: Annotated[Number, Field(gt=0, lt=1)] = 0.1


class SmallLossSelectionMethod(MethodSection):
    """GRPO on the prompts of a step with the smallest loss (Gui et al. 2021, arXiv:2106.09291)."""

    name: Literal["small_loss_selection"] = "small_loss_selection"
    prompts: Literal["small_loss"] = "small_loss"


class RandomSelectionMethod(MethodSection):
    """GRPO on a random choice of a step's prompts: the control of `SmallLossSelectionMethod`."""

    name: Literal["random_selection"] = "random_selection"
    prompts: Literal["random"] = "random"


Method = Annotated[
    GrpoMethod
    | OlrMethod
    | TtrlMethod
    | CoRewardMethod
    | SelfCertaintyMethod
    | TokenEntropyMethod
    | SequenceEntropyMethod
    | ConfidencePenaltyMethod
    | LabelSmoothingMethod
    | SmallLossSelectionMethod
    | RandomSelectionMethod,
    Field(discriminator="name"),
]

METHODS: tuple[type[MethodSection], ...] = get_args(get_args(Method)[0])
"""The section of every method."""
