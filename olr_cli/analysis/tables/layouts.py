"""The paper's tables of scores: what each prints.

Runs stand in the row of their method and noise, and of the one setting that a table varies besides. Other settings of
ours may differ from the paper's, as those of laptop runs do: a note says so.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from olr_cli.analysis.arms import Arm
from olr_cli.evaluation.published import Setting
from olr_cli.recipe.schema import METHODS

BASE = "base"
"""What the published scores call the policy before training."""

METHOD_TITLES = {
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

UNSUPERVISED = frozenset(name for name, row in METHODS.items() if not row.needs_labels)
"""Methods that use no labels, so that noise makes no row of its own."""

_WORDS = {
    "noise_ratio": "{}",
    "train_prompts": "{:,} prompts",
    "model": "{}",
    "slope_threshold": "delta {}",
    "warmup_epochs": "T = {}",
}
"""A field of `Setting` in the name of a row."""


@dataclass(frozen=True)
class Layout:
    """One of the paper's tables.

    Attributes:
        name: of the table in the published scores, and of ours.
        trained: what the published scores are of.
        varies: the field of `Setting` that tells rows apart besides method and noise: a column of CSV, and the order of
            rows that the paper's table doesn't have; empty for none.
        named: the field that the name of a row has besides the method; the noise ratio is then not in the title above.
        reference: the method that the others are compared with.
        reference_in_words: the same within a sentence.
        misprint: a sentence on published scores that look wrong.
    """

    name: str
    trained: str
    varies: str = ""
    named: str = ""
    reference: str = "grpo"
    reference_in_words: str = "GRPO under the same noise"
    misprint: str = ""

    def key(self, setting: Setting) -> Hashable:
        """What makes a row: runs and published scores with the same key stand together."""
        varied = [getattr(setting, self.varies)] if self.varies else []
        return setting.method, setting.noise_type, setting.noise_ratio, *varied

    def reference_key(self, setting: Setting) -> Hashable | None:
        """The key of the row that a row is compared with; None for no comparison."""
        if setting.method == self.reference or _uses_no_labels(setting):
            return None
        return self.key(replace(setting, method=self.reference, slope_threshold=None, warmup_epochs=None))

    def block(self, setting: Setting) -> str:
        """The title of the rows under the same noise; none for the policy before training."""
        if setting.method == BASE:
            return ""
        if setting.noise_type is None:
            return "Unsupervised methods"
        ratio = "" if self.named == "noise_ratio" else f" {setting.noise_ratio}"
        return f"{setting.noise_type.capitalize()} noise{ratio}"

    def label(self, setting: Setting) -> str:
        """What a row is called below the title of its block."""
        words = _words(setting, self.named)
        if words and self.named == "warmup_epochs":  # the paper prints the authors' start_select_epoch
            words += f" (printed {setting.warmup_epochs - 1})"  # type: ignore[operator]  # there are words for it
        return " at ".join(filter(None, (_method_title(setting), words)))

    def full_label(self, setting: Setting) -> str:
        """What a row is called that the paper's table doesn't have: method, noise, and what the table varies."""
        noise = f"{setting.noise_type} {setting.noise_ratio}" if setting.noise_type else "no marked labels"
        words = (
            _method_title(setting),
            "" if _uses_no_labels(setting) else noise,
            _words(setting, self.varies),
        )
        return ", ".join(filter(None, words))

    def departures(self, arms: Sequence[Arm]) -> Iterator[str]:
        """Sentences on where the arms that are shown are not what their rows' names say."""
        for name, (symbol, papers) in _PAPER_SETTINGS.items():
            methods = [arm.olr for arm in arms if arm.olr]
            ours = {
                getattr(method, name)
                for method in methods
                if name != "slope_threshold" or "slope" in method.criteria
            }
            if name != self.varies and ours - {papers}:
                values = ", ".join(map(str, sorted(ours)))
                yield f"OLR's {name} ({symbol}) is {values} in ours and {papers} in the paper."
        if any(_DEPARTING & set(arm.method.split("+")) for arm in arms):
            yield "Where methods depart from the paper, their sources or the authors' code: docs/methods.md."

    @property
    def published(self) -> str:
        """What to know of the published scores, for when they are shown."""
        note = (
            f"Published: {self.trained}; means over the six in-distribution (ID) and the three out-of-distribution"
            " (OOD) benchmarks, and differences of them, are computed from its scores and may differ by 0.1 from the"
            " printed ones."
        )
        return " ".join(filter(None, (note, self.misprint)))


def _uses_no_labels(setting: Setting) -> bool:
    return setting.method.split("+")[0] in {BASE, *UNSUPERVISED}


def _method_title(setting: Setting) -> str:
    return " + ".join(METHOD_TITLES.get(part, part) for part in setting.method.split("+"))


def _words(setting: Setting, name: str) -> str:
    value = getattr(setting, name) if name else None
    untrained = setting.method == BASE and name == "train_prompts"
    return "" if value is None or untrained else _WORDS[name].format(value)


_PAPER_SETTINGS = {"slope_threshold": ("delta", Decimal("0.05")), "warmup_epochs": ("T", 5)}
"""OLR's settings wherever the paper doesn't vary them (R17), with their symbols."""


_DEPARTING = frozenset(
    {
        *("co_reward", "self_certainty", "token_entropy", "sequence_entropy"),
        *("confidence_penalty", "label_smoothing", "small_loss_selection"),
    }
)
"""Methods, and parts of mixed ones, whose definition is ours in part."""


_QWEN = "Qwen3-4B-Base trained on 800 prompts"

_ALL = (
    Layout("noise_ratios", _QWEN, named="noise_ratio"),
    Layout("baselines", _QWEN),
    Layout("scale_4k", "Qwen3-4B-Base trained on 4,000 prompts", varies="train_prompts"),
    Layout("qwen3_8b", "Qwen3-8B-Base trained on 800 prompts", varies="model"),
    Layout(
        "llama_8b",
        "DeepSeek-R1-Distill-Llama-8B trained on 800 prompts",
        varies="model",
        misprint="The paper's scores of GRPO under active noise on AIME25 (56.2) and AMC (19.6) look exchanged; they"
        " are shown as printed.",
    ),
    Layout("slope_sensitivity", _QWEN, varies="slope_threshold", named="slope_threshold"),
    Layout("warmup_sensitivity", _QWEN, varies="warmup_epochs", named="warmup_epochs"),
    Layout(
        "ablation", _QWEN, reference="olr", reference_in_words="OLR with both criteria under the same noise"
    ),
)

LAYOUTS: Mapping[str, Layout] = {layout.name: layout for layout in _ALL}
"""Table -> what it shows, in the paper's order."""
