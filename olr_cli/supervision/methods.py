"""A method is a composition: which label counts (R14, R15), what is rewarded (R16), which prompts train, and the loss.

| part | rules | where |
|---|---|---|
| label | given, refined, majority, the other view's majority, pseudo-label, none | here |
| reward | the verifier's, self-certainty, entropy, log-likelihood | `olr_cli.supervision.rewards` |
| prompts that train | all, small loss, random, with a verified label, confident | `olr_cli.supervision.selection` |
| loss | confidence penalty, label smoothing | the engines; their weights are in the recipe |

The name in the recipe decides label and reward, other keys the rest, so a mix is a recipe. For a new label or reward
add a section to `olr_cli.recipe.schema` and a case to `_by_name`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from olr_cli.data.prompts import View
from olr_cli.recipe.schema import (
    CoRewardMethod,
    Criterion,
    MethodSection,
    OlrMethod,
    PromptRule,
    SelfCertaintyMethod,
    SelfTrainingMethod,
    SequenceEntropyMethod,
    TokenEntropyMethod,
    TtrlMethod,
)
from olr_cli.supervision.rewards import (
    RewardRule,
    log_likelihood_reward,
    mean_log_likelihood_reward,
    mean_token_entropy_reward,
    self_certainty_reward,
    token_entropy_reward,
    verifier_reward,
)
from olr_cli.supervision.selection import RankRule, any_prompt, small_loss, trusted_only
from olr_cli.supervision.self_training import LABEL, MAJORITY, Calibration, Counts
from olr_cli.supervision.types import LabelSource


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known when the label of a prompt's view is decided.

    Attributes:
        majority: the majority answer of this visit, if there is one (R9).
        slope: S_t (R12).
        is_consistent: the majority is the historical majority (R13).
        label: the label that counts unless a method decides otherwise: this visit's noisy label on a marked
            prompt, else the given label (R15).
        counts: how this visit's rollouts voted.
        calibration: what verified labels say about votes; None without any.
        first_majority: the majority answer of this view; in a tie, the answer that first had so many rollouts.
        other_view: the same of the other view; None where there is no other view, or no answer in it.
    """

    visit: int
    majority: str | None
    slope: Fraction
    is_consistent: bool
    label: str | None
    source: LabelSource
    counts: Counts
    calibration: Calibration | None
    first_majority: str | None = None
    other_view: str | None = None


@dataclass(frozen=True, slots=True)
class EffectiveLabel:
    """The label a visit's rewards are computed with (R15).

    Attributes:
        teaches: whether the prompt may train on it.
    """

    answer: str | None
    source: LabelSource
    is_selected: bool
    teaches: bool = True


LabelRule = Callable[[Evidence], EffectiveLabel]


@dataclass(frozen=True, slots=True)
class Method:
    """How a step's rollout groups are supervised.

    Attributes:
        statistics: fields of a rollout that rewards or ranks are computed from, besides its response.
        votes: decides by majority answers, which few rollouts make unreliable.
        name: as in reports; the ablations of OLR, and mixes, have names of their own.
        needs_labels: a prompt without a given label is an error.
        rank: of a prompt among those of a step, of which the first train; None: all train.
        orders_rollouts: a tie goes to the answer that came first.
        calibrates: verified labels say what the others' votes are worth.
    """

    label: LabelRule
    reward: RewardRule
    statistics: tuple[str, ...] = ()
    votes: bool = False
    views: tuple[View, ...] = ("original",)
    name: str = ""
    needs_labels: bool = True
    rank: RankRule | None = None
    orders_rollouts: bool = False
    calibrates: bool = False


def given_label(evidence: Evidence) -> EffectiveLabel:
    """The label as it stands."""
    return EffectiveLabel(evidence.label, evidence.source, is_selected=False)


def refined_label(section: OlrMethod) -> LabelRule:
    """The majority where it meets the criteria, else the label as it stands (Eq. effective_label, R14, R15)."""
    threshold = Fraction(section.slope_threshold)
    needs_slope, needs_consistency = "slope" in section.criteria, "consistency" in section.criteria

    def rule(evidence: Evidence) -> EffectiveLabel:
        is_selected = (
            evidence.visit > section.warmup_epochs
            and evidence.majority is not None
            and (not needs_slope or evidence.slope > threshold)
            and (not needs_consistency or evidence.is_consistent)
        )
        if is_selected:
            return EffectiveLabel(evidence.majority, "majority", is_selected=True)
        return given_label(evidence)

    return rule


def majority_label(evidence: Evidence) -> EffectiveLabel:
    """The majority of this visit, in a tie the answer that was first to have so many (TTRL, arXiv:2504.16084)."""
    return _voted(evidence.first_majority)


def other_views_label(evidence: Evidence) -> EffectiveLabel:
    """The majority that the other wording of the prompt got at this visit, ties as in `majority_label`.

    Co-Reward (arXiv:2508.00410): a wrong answer that hangs on the wording does not confirm itself.
    """
    return _voted(evidence.other_view)


def pseudo_label(section: SelfTrainingMethod) -> LabelRule:
    """The majority or the label, whichever is likelier to be right (`olr_cli.supervision.self_training`).

    Before anything is verified, the majority where it is consistent (R13).
    """
    without = refined_label(
        OlrMethod(criteria=("consistency",), warmup_epochs=section.warmup(is_verified=False))
    )
    warmup = section.warmup(is_verified=True)

    def rule(evidence: Evidence) -> EffectiveLabel:
        calibration = evidence.calibration
        if calibration is None:
            return without(evidence)
        if evidence.visit > warmup:
            chances = calibration.chances(evidence.counts)
            if chances[MAJORITY] >= max(chances[LABEL], section.confidence) and evidence.majority is not None:
                return EffectiveLabel(evidence.majority, "majority", is_selected=True)
            if chances[LABEL] >= section.confidence:
                return given_label(evidence)
        return replace(given_label(evidence), teaches=calibration.labels_help)

    return rule


def no_label(evidence: Evidence) -> EffectiveLabel:
    """None: the reward looks at no answer."""
    return _voted(None)


def _voted(answer: str | None) -> EffectiveLabel:
    if answer is None:
        return EffectiveLabel(None, "none", is_selected=False)
    return EffectiveLabel(answer, "majority", is_selected=True)


def _by_name(section: MethodSection) -> Method:
    """What a method's name decides."""
    match section:
        case OlrMethod():
            return Method(refined_label(section), verifier_reward, votes=True)
        case TtrlMethod():
            return Method(majority_label, verifier_reward, votes=True, orders_rollouts=True)
        case CoRewardMethod():
            views: tuple[View, ...] = ("original", "rephrased")
            return Method(other_views_label, verifier_reward, votes=True, views=views, orders_rollouts=True)
        case SelfTrainingMethod():
            return Method(pseudo_label(section), verifier_reward, votes=True, calibrates=True)
        case SelfCertaintyMethod():
            return Method(no_label, self_certainty_reward, ("self_certainty",))
        case TokenEntropyMethod(score_reduction="mean"):
            return Method(no_label, mean_token_entropy_reward, ("entropy",))
        case TokenEntropyMethod():
            return Method(no_label, token_entropy_reward, ("entropy", "tokens"))
        case SequenceEntropyMethod(score_reduction="mean"):
            return Method(no_label, mean_log_likelihood_reward, ("mean_logprob",))
        case SequenceEntropyMethod():
            return Method(no_label, log_likelihood_reward, ("mean_logprob", "tokens"))
        case _:
            return Method(given_label, verifier_reward)


_RANKS: dict[PromptRule, RankRule | None] = {
    "all": None,
    "small_loss": small_loss,
    "random": any_prompt,
    "trusted": trusted_only,
}


def compose(section: MethodSection) -> Method:
    """The method a recipe's `method` section asks for."""
    method, rank = _by_name(section), _RANKS[section.prompts]
    ranked_by = ("mean_logprob", "tokens") if rank is small_loss else ()
    return replace(
        method,
        name=_name(section, method.label),
        needs_labels=section.needs_labels,
        rank=rank,
        statistics=(*method.statistics, *ranked_by),
    )


def _name(section: MethodSection, label: LabelRule) -> str:
    """The method in reports: what supervises, then what is added to it; plain GRPO with an addition is that alone."""
    added = {
        "small_loss_selection": section.prompts == "small_loss",
        "random_selection": section.prompts == "random",
        "trusted_only": section.prompts == "trusted",
        "confidence_penalty": section.penalty_weight > 0,
        "label_smoothing": section.smoothing > 0,
    }
    additions = [name for name, is_there in added.items() if is_there]
    if label is given_label:
        return "+".join(additions) or "grpo"
    name = _ABLATIONS[section.criteria] if isinstance(section, OlrMethod) else section.name
    return "+".join([name, *additions])


_ABLATIONS: dict[tuple[Criterion, ...], str] = {
    ("slope", "consistency"): "olr",
    ("consistency",): "olr_without_slope",
    ("slope",): "olr_without_consistency",
    (): "olr_every_majority",
}
