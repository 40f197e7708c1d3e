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
    SequenceEntropyMethod,
    TokenEntropyMethod,
    TtrlMethod,
)
from olr_cli.supervision.rewards import SCORES, Score
from olr_cli.supervision.selection import RankRule, any_prompt, small_loss, trusted_only
from olr_cli.supervision.visit import Label, Rule, Visit, keep, no_label, replace_by_majority


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

    rule: Rule
    score: Score | None = None
    statistics: tuple[str, ...] = ()
    views: tuple[View, ...] = ("original",)
    name: str = ""
    needs_labels: bool = True
    rank: RankRule | None = None
    orders_rollouts: bool = False


def olr(section: OlrMethod) -> Rule:
    """Online Label Refinement (Eq. effective_label, R14): the majority replaces the label once it can be trusted.

    That is after T visits, while its pass rate rises by more than delta a visit and it is the answer that was the
    majority most often (C_t). Strictly more, as in the paper; the authors' code takes equality too.
    """
    T, delta, criteria = section.warmup_epochs, Fraction(section.slope_threshold), section.criteria
    needs_slope, needs_consistency = "slope" in criteria, "consistency" in criteria

    def rule(visit: Visit) -> Label:
        S_t, C_t = visit.slope, visit.is_consistent
        if (
            visit.number > T
            and visit.majority is not None
            and (S_t > delta or not needs_slope)
            and (C_t or not needs_consistency)
        ):
            return replace_by_majority(visit)
        return keep(visit)

    return rule


def ttrl(visit: Visit) -> Label:
    """The majority of this visit, in a tie the answer that was first to have so many (TTRL, arXiv:2504.16084)."""
    return _voted(visit.first_majorities)


def co_reward(visit: Visit) -> Label:
    """For each wording the majority that the other one got at this visit, ties as in `ttrl`.

    Co-Reward (arXiv:2508.00410): a wrong answer that hangs on the wording does not confirm itself.
    """
    original, rephrased = visit.first_majorities
    return _voted((rephrased, original))


def _voted(answers: tuple[str | None, ...]) -> Label:
    is_there = answers[0] is not None
    return Label(answers, "majority" if is_there else "none", is_selected=is_there)


def _by_name(section: MethodSection) -> Method:
    """What a method's name decides."""
    match section:
        case OlrMethod():
            return Method(olr(section))
        case TtrlMethod():
            return Method(ttrl, orders_rollouts=True)
        case CoRewardMethod():
            views: tuple[View, ...] = ("original", "rephrased")
            return Method(co_reward, views=views, orders_rollouts=True)
        case SelfCertaintyMethod() | TokenEntropyMethod() | SequenceEntropyMethod():
            score = Score(*SCORES[section.name], getattr(section, "score_reduction", "mean") == "sum")
            return Method(no_label, score, score.statistics)
        case _:
            return Method(keep)


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
        name=_name(section, method.rule),
        needs_labels=section.needs_labels,
        rank=rank,
        statistics=(*method.statistics, *ranked_by),
    )


def _name(section: MethodSection, rule: Rule) -> str:
    """The method in reports: what supervises, then what is added to it; plain GRPO with an addition is that alone."""
    added = {
        "small_loss_selection": section.prompts == "small_loss",
        "random_selection": section.prompts == "random",
        "trusted_only": section.prompts == "trusted",
        "confidence_penalty": section.penalty_weight > 0,
        "label_smoothing": section.smoothing > 0,
    }
    additions = [name for name, is_there in added.items() if is_there]
    if rule is keep:
        return "+".join(additions) or "grpo"
    name = _ABLATIONS[section.criteria] if isinstance(section, OlrMethod) else section.name
    return "+".join([name, *additions])


_ABLATIONS: dict[tuple[Criterion, ...], str] = {
    ("slope", "consistency"): "olr",
    ("consistency",): "olr_without_slope",
    ("slope",): "olr_without_consistency",
    (): "olr_every_majority",
}
