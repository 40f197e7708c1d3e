"""A method is four choices: which label counts (R14, R15), what is rewarded (R16), which prompts train, and the loss.

| choice | built in | where |
|---|---|---|
| label | given, refined, majority, the other view's majority, none | here: a rule, from `Visit` to `Label` |
| reward | the verifier's, self-certainty, entropy, log-likelihood | `olr_cli.supervision.rewards` |
| prompts that train | all, small loss, random, with a verified label | `olr_cli.supervision.selection` |
| loss | confidence penalty, label smoothing | the engines; their weights are in the recipe |

`olr_cli.recipe.methods.METHODS` has the choices of each method by its name; other keys of the recipe change them, so a
mix is a recipe.

Online Label Refinement (`olr`, R14) follows the paper where the authors' code departs from it:

- The first T visits keep their label; their `start_select_epoch` is T - 1.
- A majority replaces the label if the slope is larger than delta; their code also takes a slope of delta.
- A visit without a majority keeps its label; their code replaces it, by one that no answer can meet.
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
    """How a step's rollout groups are supervised.

    Attributes:
        rule: from a visit to its label.
        score: what is rewarded in place of the verifier's verdict.
        statistics: fields of a rollout that rewards or ranks are computed from, besides its response.
        views: in which words each prompt is rolled out.
        name: as in reports; the ablations of OLR, and mixes, have names of their own.
        needs_labels: a prompt without a given label is an error.
        rank: of a prompt among those of a step, of which the first train; None: all train.
        orders_rollouts: a tie goes to the answer that came first.
    """

    rule: Rule
    score: Score | None
    statistics: tuple[str, ...]
    views: tuple[View, ...]
    name: str
    needs_labels: bool
    rank: RankRule | None
    orders_rollouts: bool


def olr(section: OlrMethod) -> Rule:
    """Online Label Refinement (Eq. effective_label, R14): the majority replaces the label once it can be trusted.

    That is after T visits, while its pass rate rises by more than delta a visit and it is the answer that was the
    majority most often (C_t). Strictly more, as in the paper; the authors' code takes equality too.
    """
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
        # Named as in the paper's Eq. effective_label.
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


def _rule(section: MethodSection, label: LabelChoice) -> Rule:
    """The rule of a built-in label."""
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
    """The method that a recipe's `method` section asks for."""
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
    """The method in reports: what supervises, then what is added to it; plain GRPO with an addition is that alone."""
    added = {
        "small_loss_selection": section.prompts == "small_loss",
        "random_selection": section.prompts == "random",
        "verified_only": section.prompts == "verified",
        "confidence_penalty": section.penalty_weight > 0,
        "label_smoothing": section.smoothing > 0,
    }
    # Plain GRPO with an addition is the addition.
    additions = [name for name, is_there in added.items() if is_there]
    if label == "given":
        return "+".join(additions) or "grpo"
    # A function has its own name, unless a method of olr has it too.
    name = section.name.rpartition(":")[2]
    name = section.name if label == "own" and name in METHODS else name
    # OLR says which of the paper's criteria it lacks.
    if isinstance(section, OlrMethod):
        chosen, papers = section.criteria, OlrMethod().criteria
        lacking = [
            f"without_{criterion}" for criterion in papers if criterion not in chosen
        ]
        more = [f"with_{criterion}" for criterion in chosen if criterion not in papers]
        name = "_".join(["olr", *lacking, *more]) if chosen else "olr_every_majority"
    return "+".join([name, *additions])
