"""A method is a composition: which label counts (R14, R15), what is rewarded (R16), which prompts train, and the loss.

| part | rules | where |
|---|---|---|
| label | given, refined, majority, the other view's majority, none | here |
| reward | the verifier's, self-certainty, entropy, log-likelihood | `olr_cli.supervision.rewards` |
| prompts that train | all, small loss, random, with a verified label | `olr_cli.supervision.selection` |
| loss | confidence penalty, label smoothing | the engines; their weights are in the recipe |

The name in the recipe decides label and reward, other keys the rest, so a mix is a recipe. For a new label or reward
add a section to `olr_cli.recipe.schema` and a case to `_by_name`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from olr_cli.data.prompts import View
from olr_cli.recipe.schema import (
    CoRewardMethod,
    Criterion,
    MethodSection,
    OlrMethod,
    PromptRule,
    SelfCertaintyMethod,
    SequenceEntropyMethod,
    TokenEntropyMethod,
    TtrlMethod,
)
from olr_cli.supervision.rewards import SCORES, Score
from olr_cli.supervision.selection import RankRule, any_prompt, small_loss, trusted_only
from olr_cli.supervision.types import LabelSource


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a step's P visits when labels are decided: columns of P values.

    Attributes:
        majorities: the majority answer of each visit that has one (R9).
        majority_counts: rollouts in the majority; 0 without one.
        rollouts: K.
        slopes: S_t, each a numerator and a denominator (R12).
        are_consistent: the majority is the historical majority (R13).
        labels: the label that counts unless a method decides otherwise: this visit's noisy label on a marked
            prompt, else the given label (R15).
        sources: of `labels`.
        first_majorities: P * views; the majority answer of each view, in a tie the answer that first had so many
            rollouts. Empty unless the method orders rollouts.
    """

    visits: Sequence[int]
    majorities: Sequence[str | None]
    majority_counts: Sequence[int]
    rollouts: Sequence[int]
    slopes: Sequence[tuple[int, int]]
    are_consistent: Sequence[bool]
    labels: Sequence[str | None]
    sources: Sequence[LabelSource]
    first_majorities: Sequence[str | None]


@dataclass(frozen=True, slots=True)
class EffectiveLabels:
    """The labels that a step's rewards are computed with (R15): columns of P * views values.

    Attributes:
        are_selected: a majority replaces the label (R14).
    """

    answers: list[str | None]
    sources: list[LabelSource]
    are_selected: list[bool]


LabelRule = Callable[[Evidence], EffectiveLabels]


@dataclass(frozen=True, slots=True)
class Method:
    """How a step's rollout groups are supervised.

    Attributes:
        score: what is rewarded in place of the verifier's verdict.
        statistics: fields of a rollout that rewards or ranks are computed from, besides its response.
        name: as in reports; the ablations of OLR, and mixes, have names of their own.
        needs_labels: a prompt without a given label is an error.
        rank: of a prompt among those of a step, of which the first train; None: all train.
        orders_rollouts: a tie goes to the answer that came first.
    """

    label: LabelRule
    score: Score | None = None
    statistics: tuple[str, ...] = ()
    views: tuple[View, ...] = ("original",)
    name: str = ""
    needs_labels: bool = True
    rank: RankRule | None = None
    orders_rollouts: bool = False


def given_label(evidence: Evidence) -> EffectiveLabels:
    """The label as it stands."""
    return _replaced(evidence, [False] * len(evidence.labels))


def refined_label(section: OlrMethod) -> LabelRule:
    """The majority where it meets the criteria, else the label as it stands (Eq. effective_label, R14, R15)."""
    numerator, denominator = section.slope_threshold.as_integer_ratio()
    needs_slope, needs_consistency = "slope" in section.criteria, "consistency" in section.criteria

    def rule(evidence: Evidence) -> EffectiveLabels:
        columns = (evidence.visits, evidence.majorities, evidence.slopes, evidence.are_consistent)
        return _replaced(
            evidence,
            [
                visit > section.warmup_epochs
                and majority is not None
                and (not needs_slope or rise * denominator > numerator * run)
                and (not needs_consistency or is_consistent)
                for visit, majority, (rise, run), is_consistent in zip(*columns, strict=True)
            ],
        )

    return rule


def majority_label(evidence: Evidence) -> EffectiveLabels:
    """The majority of this visit, in a tie the answer that was first to have so many (TTRL, arXiv:2504.16084)."""
    return _voted(evidence.first_majorities)


def other_views_label(evidence: Evidence) -> EffectiveLabels:
    """The majority that the other wording of the prompt got at this visit, ties as in `majority_label`.

    Co-Reward (arXiv:2508.00410): a wrong answer that hangs on the wording does not confirm itself.
    """
    first = evidence.first_majorities
    return _voted([first[place ^ 1] for place in range(len(first))])


def no_label(evidence: Evidence) -> EffectiveLabels:
    """None: the reward looks at no answer."""
    return _voted([None] * len(evidence.labels))


def _replaced(evidence: Evidence, are_selected: list[bool]) -> EffectiveLabels:
    """The majority where it is selected, else the label as it stands."""
    columns = (are_selected, evidence.majorities, evidence.labels)
    return EffectiveLabels(
        [majority if selected else label for selected, majority, label in zip(*columns, strict=True)],
        ["majority" if yes else source for yes, source in zip(are_selected, evidence.sources, strict=True)],
        are_selected,
    )


def _voted(answers: Sequence[str | None]) -> EffectiveLabels:
    return EffectiveLabels(
        list(answers),
        ["none" if answer is None else "majority" for answer in answers],
        [answer is not None for answer in answers],
    )


def _by_name(section: MethodSection) -> Method:
    """What a method's name decides."""
    match section:
        case OlrMethod():
            return Method(refined_label(section))
        case TtrlMethod():
            return Method(majority_label, orders_rollouts=True)
        case CoRewardMethod():
            views: tuple[View, ...] = ("original", "rephrased")
            return Method(other_views_label, views=views, orders_rollouts=True)
        case SelfCertaintyMethod() | TokenEntropyMethod() | SequenceEntropyMethod():
            score = Score(*SCORES[section.name], getattr(section, "score_reduction", "mean") == "sum")
            return Method(no_label, score, score.statistics)
        case _:
            return Method(given_label)


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
