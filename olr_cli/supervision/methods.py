"""A method is four choices: the label that counts (R14, R15), the reward (R16), the prompts that train, and the loss.

| choice | built in | where |
|---|---|---|
| label | given, refined, majority, the other view's majority, none | here: a rule, from `Visit` to `Label` |
| reward | the verifier's, self-certainty, entropy, log-likelihood | `olr_cli.supervision.rewards` |
| prompts that train | all, small loss, random, with a verified label | `olr_cli.supervision.selection` |
| loss | confidence penalty, label smoothing | the engines; their weights are in the recipe |

`olr_cli.recipe.methods.METHODS` lists the choices of each named method. Other keys of the recipe override them, so a
new combination needs only a recipe.

Online Label Refinement (`olr`, R14) follows the paper where the authors' code departs from it:

- The first T visits keep their label; their `start_select_epoch` is T - 1.
- A majority replaces the label if the slope is larger than delta; their code also accepts a slope of exactly delta.
- A visit without a majority keeps its label; their code replaces it with one that no answer can match.
- A majority label rewards the answers of its class (R16); their code asks the verifier, as
  `method.majority_graded_by: verifier` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import assert_never

from olr_cli.data.prompts import View
from olr_cli.recipe.methods import (
    METHODS,
    LabelChoice,
    MethodSection,
    OlrMethod,
    OwnMethod,
    PromptRule,
    ScoreMethod,
)
from olr_cli.supervision.own_rule import OwnRule
from olr_cli.supervision.rewards import SCORES, Score
from olr_cli.supervision.selection import RankRule, any_prompt, small_loss, verified_only
from olr_cli.supervision.visit import (
    Label,
    Rule,
    Visit,
    keep,
    no_label,
    replace_by_majority,
)


@dataclass(frozen=True, slots=True)
class Method:
    """The choices that make up a method: the label rule, the reward, and which prompts of a step train.

    It also says which wordings (views) of a prompt and which statistics of a rollout the method needs. `compose` makes
    one from a recipe.
    """

    rule: Rule
    """Maps a visit to its label."""

    score: Score | None
    """The intrinsic reward; None where the verifier's verdict is the reward."""

    statistics: tuple[str, ...]
    """Fields of `Rollout` besides the response that rewards or ranks are computed from."""

    views: tuple[View, ...]
    """The wordings in which each prompt is rolled out."""

    name: str
    """Name in reports. Ablations of OLR and combinations of methods have names of their own."""

    needs_labels: bool
    """A prompt without a given label is an error."""

    rank: RankRule | None
    """Ranks the prompts of a step, the first of which train; None if all train."""

    orders_rollouts: bool
    """The order of the rollouts breaks ties: the first answer to reach the top count is the majority."""


def olr(section: OlrMethod) -> Rule:
    """Return the rule of Online Label Refinement (Eq. effective_label, R14).

    After T visits (`warmup_epochs`), the rule replaces the label by the majority if two criteria hold:

    - ``slope``: the majority's pass rate rises by more than delta (`slope_threshold`) per visit (S_t).
    - ``consistency``: the majority is the answer that has been the majority most often (C_t).

    Otherwise the label stays. A criterion that `section.criteria` does not list is not applied. A slope of exactly
    delta does not count, as in the paper; the authors' code accepts it.
    """
    # A Fraction, because a slope that equals the threshold must not exceed it (R12).
    T, delta = section.warmup_epochs, Fraction(section.slope_threshold)
    needs_slope = needs_consistency = False
    for criterion in section.criteria:
        match criterion:
            case "slope":
                needs_slope = True
            case "consistency":
                needs_consistency = True
            case _:
                assert_never(criterion)

    def rule(visit: Visit) -> Label:
        # The names of the paper's Eq. effective_label.
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
    """Label with this visit's majority (TTRL, arXiv:2504.16084), or give no label if nobody answered.

    In a tie, the answer that reached the top count first is the majority.
    """
    return _voted(visit.first_majorities)


def co_reward(visit: Visit) -> Label:
    """Label each of a prompt's two wordings with the majority of the other wording (Co-Reward, arXiv:2508.00410).

    A wrong answer that depends on the wording thus cannot confirm itself. In a tie, the answer that reached the top
    count first is the majority. A wording gets no label if nobody answered the other one.
    """
    original, rephrased = visit.first_majorities
    return _voted((rephrased, original))


def _voted(answers: tuple[str | None, ...]) -> Label:
    """Return a `Label` that replaces the label of each view (wording of the prompt) by a majority.

    `answers` has one majority answer per view, the original view's first; None leaves the view without a label. The
    source of the label is ``majority``, or ``none`` if the first answer is None.
    """
    has_majority = answers[0] is not None
    return Label(answers, "majority" if has_majority else "none", is_selected=has_majority)


def _rule(section: MethodSection, label: LabelChoice) -> Rule:
    """Return the label rule that a choice such as ``refined`` stands for.

    `section` is the recipe's method section, which holds the settings of the rule.
    """
    match label:
        case "given":
            return keep
        case "refined":
            assert isinstance(section, OlrMethod)
            return olr(section)
        case "majority":
            return ttrl
        case "other_view":
            return co_reward
        case "none":
            return no_label
        case "own":
            assert isinstance(section, OwnMethod)
            return OwnRule(section)
    assert_never(label)


def _rank(prompts: PromptRule) -> RankRule | None:
    """Return the function that ranks a step's prompts to choose which of them train; None if all train.

    `prompts` is the recipe's choice, such as ``small_loss``.
    """
    match prompts:
        case "all":
            return None
        case "small_loss":
            return small_loss
        case "random":
            return any_prompt
        case "verified":
            return verified_only
    assert_never(prompts)


def compose(section: MethodSection) -> Method:
    """Build the method that a recipe's `method` section describes."""
    row, rank = section.row, _rank(section.prompts)
    is_summed = isinstance(section, ScoreMethod) and section.score_reduction == "sum"
    score = None if row.reward == "verifier" else Score(*SCORES[row.reward], is_summed)
    statistics = () if score is None else score.statistics
    return Method(
        _rule(section, row.label),
        score,
        (*statistics, *(("mean_logprob", "tokens") if rank is small_loss else ())),
        ("original", "rephrased") if row.label == "other_view" else ("original",),
        _name(section, row.label),
        row.needs_labels,
        rank,
        orders_rollouts=row.label in ("majority", "other_view"),
    )


def _name(section: MethodSection, label: LabelChoice) -> str:
    """Return the method's name in reports, such as ``olr_without_slope+label_smoothing``.

    The parts of the name are joined by ``+``. The first part is the label rule; for OLR, it also says which criteria
    the recipe removes or adds. The other parts are additions: a selection of prompts, a confidence penalty, or label
    smoothing. Plain GRPO (`label` is ``given``) has no first part, and without additions its name is ``grpo``.
    """
    is_added = {
        "small_loss_selection": section.prompts == "small_loss",
        "random_selection": section.prompts == "random",
        "verified_only": section.prompts == "verified",
        "confidence_penalty": section.penalty_weight > 0,
        "label_smoothing": section.smoothing > 0,
    }
    additions = [name for name, applies in is_added.items() if applies]
    if label == "given":
        return "+".join(additions) or "grpo"
    # A user's rule `rules.py:my_rule` is called `my_rule`, unless that would pass for a built-in method.
    name = section.name.rpartition(":")[2]
    name = section.name if label == "own" and name in METHODS else name
    # `olr_without_slope` is the paper's method less one criterion.
    if isinstance(section, OlrMethod):
        criteria, defaults = section.criteria, OlrMethod().criteria
        removed = [
            f"without_{criterion}" for criterion in defaults if criterion not in criteria
        ]
        extra = [f"with_{criterion}" for criterion in criteria if criterion not in defaults]
        name = "_".join(["olr", *removed, *extra]) if criteria else "olr_every_majority"
    return "+".join([name, *additions])
