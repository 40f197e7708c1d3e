"""The paper's table of baselines (its Table 2): every method under 50 % noise of either kind."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from olr_cli.analysis.arms import Arm
from olr_cli.analysis.tables.paper_table import BASE, Layout
from olr_cli.evaluation.published import Setting
from olr_cli.recipe.schema import METHODS
from olr_cli.supervision import compose

TITLES = {
    BASE: "before training",
    "ttrl": "TTRL",
    "co_reward": "Co-Reward",
    "self_certainty": "Self-Certainty",
    "token_entropy": "Token Entropy",
    "sequence_entropy": "Sequence Entropy",
    "grpo": "GRPO",
    "confidence_penalty": "Confidence Penalty",
    "label_smoothing": "Label Smoothing",
    "small_loss_selection": "Small-loss Selection",
    "random_selection": "Random Selection",
    "olr": "OLR",
    "olr_without_slope": "OLR without slope",
    "olr_without_consistency": "OLR without consistency",
    "olr_every_majority": "OLR, every majority",
}
"""What the paper calls the methods, and the parts of mixed ones."""

UNSUPERVISED = frozenset(kind.model_fields["name"].default for kind in METHODS if not kind.needs_labels)
"""Methods that use no labels, so that noise makes no row of its own."""


def method_and_noise(setting: Setting) -> tuple[Hashable, ...]:
    """What makes a row of most tables."""
    return setting.method, setting.noise_type, setting.noise_ratio


def noise_block(setting: Setting) -> str:
    """The title of the rows under the same noise; none for the policy before training."""
    if setting.method == BASE:
        return ""
    if setting.noise_type is None:
        return "Unsupervised methods"
    return f"{setting.noise_type.capitalize()} noise {setting.noise_ratio}"


def method_title(setting: Setting) -> str:
    """The method as the paper calls it; of a mixed one its parts."""
    return " + ".join(TITLES.get(part, part) for part in setting.method.split("+"))


def title_and_noise(setting: Setting) -> str:
    """The method, and the noise where it makes a difference."""
    if setting.method.split("+")[0] in {BASE, *UNSUPERVISED}:
        return method_title(setting)
    noise = f"{setting.noise_type} {setting.noise_ratio}" if setting.noise_type else "no marked labels"
    return f"{method_title(setting)}, {noise}"


def grpo_under_the_same_noise(setting: Setting) -> Hashable:
    """GRPO under the same noise; the paper compares neither that itself nor unsupervised methods with it."""
    if setting.method in ("grpo", BASE) or setting.method.split("+")[0] in UNSUPERVISED:
        return None
    return "grpo", setting.noise_type, setting.noise_ratio


_DEPARTURES = {
    "co_reward": "Co-Reward rolls out K responses to a prompt and K to its rephrasing, twice as many as the others. It"
    " is not in the authors' code.",
    "token_entropy": "Token Entropy rewards minus the mean entropy of a response's tokens (score_reduction: mean), a"
    " departure: Agarwal et al. (2025) reward the sum, which favours short responses.",
    "sequence_entropy": "Sequence Entropy rewards the mean log-probability of a response's tokens (score_reduction:"
    " mean), a departure: Agarwal et al. (2025) reward the sum, which favours short responses.",
    "confidence_penalty": "The confidence penalty is not in the authors' code, and the paper does not give its weight.",
    "label_smoothing": "Label smoothing is commented out in the authors' code, and the paper does not give its weight.",
    "small_loss_selection": "Small-loss selection ranks prompts by a definition of ours, abs(mean over response tokens"
    " of A log pi_old): the plain surrogate is about 0 for every group.",
}
"""Part of a method -> where it departs from the paper, from its sources or from the authors' code."""

_TOKEN_MEANS = (
    "Self-certainty, entropy and log-probability are averaged over response tokens only. The authors' code averages"
    " over padding too and then sums over tokens, which rewards length."
)


def _departures(arms: Sequence[Arm]) -> Iterator[str]:
    sections = [arm.recipe.method for arm in arms]
    shown = {part for section in sections for part in compose(section).name.split("+")}
    sums = {each.name for each in sections if getattr(each, "score_reduction", "mean") == "sum"}
    means = {each.name for each in sections if getattr(each, "score_reduction", "sum") == "mean"}
    shown -= sums - means
    values = {
        "confidence_penalty": sorted({each.penalty_weight for each in sections} - {0}),
        "label_smoothing": sorted({each.smoothing for each in sections} - {0}),
    }
    for part, sentence in _DEPARTURES.items():
        if part in shown:
            ours = ", ".join(f"{value:g}" for value in values.get(part, ()))
            yield f"{sentence} Ours: {ours}." if ours else sentence
    if any(section.name in ("self_certainty", "token_entropy", "sequence_entropy") for section in sections):
        yield _TOKEN_MEANS


def published(what: str) -> str:
    """The sentence on the published scores, which are of `what`."""
    return (
        f"Published: {what}; means over the six in-distribution (ID) and the three out-of-distribution (OOD)"
        " benchmarks, and differences of them, are computed from its scores and may differ by 0.1 from the printed"
        " ones."
    )


LAYOUT = Layout(
    name="baselines",
    published=published("Qwen3-4B-Base trained on 800 prompts"),
    key=method_and_noise,
    block=noise_block,
    label=method_title,
    other_label=title_and_noise,
    reference=grpo_under_the_same_noise,
    departures=_departures,
)
