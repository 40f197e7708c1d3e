"""The rows of one of the paper's tables, their names, and the rows that they are compared with.

Everything follows from the published scores (`olr_cli.evaluation.published`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

from olr_cli.evaluation.published import PublishedRow, Setting, published_table
from olr_cli.recipe.methods import METHODS

BASE = "base"
"""Name of the policy before training in the published scores."""

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
    "verified_only": "verified labels alone",
    "graded_by_verifier": "graded by the verifier",
}
"""The paper's names of the methods, and of the parts of mixed ones."""

_WITHOUT_LABELS = frozenset(
    {BASE, *(name for name, row in METHODS.items() if not row.needs_labels)}
)
"""Methods that use no labels, so noise makes no separate row for them."""

_WORDS = {
    "noise_ratio": "{}",
    "train_prompts": "{:,} prompts",
    "model": "{}",
    "slope_threshold": "delta {}",
    "warmup_epochs": "T = {}",
}
"""Fields of `Setting` that a table may vary, with their text in the name of a row."""

# A Decimal, since recipes have Decimals and 0.05 as a float is equal to none of them.
USUAL = Setting("Qwen3-4B-Base", slope_threshold=Decimal("0.05"), warmup_epochs=5)
"""The paper's settings unless a table varies them (R17)."""

_REFERENCES = {
    "grpo": "GRPO under the same noise",
    "olr": "OLR with both criteria under the same noise",
}
"""Method that the other rows are compared with -> its description within a sentence. A table uses the first that it
has.
"""


@dataclass(frozen=True)
class Layout:
    """One of the paper's tables: its rows, the settings in which they differ, and the method they are compared with.

    `Layout.of` makes it.
    """

    rows: Sequence[PublishedRow]
    """The paper's rows, in its order."""

    named: str
    """Field of `Setting` in the name of a row, besides the method; empty if there is none."""

    varies: str
    """Field of `Setting` in which rows of the same noise differ; empty if there is none."""

    reference: str
    """Method that the others are compared with."""

    in_words: str
    """Description of that reference within a sentence."""

    @classmethod
    def of(cls, table: str) -> Layout:
        """Return the layout of the paper's table with this name, such as ``baselines``, from the published scores."""
        rows = published_table(table)
        values = {
            key: {getattr(row.setting, key) for row in rows} - {None} for key in _WORDS
        }
        named = next((key for key in _WORDS if len(values[key]) > 1), "")
        unusual = (key for key in _WORDS if values[key] - {getattr(USUAL, key)})
        varies = next((key for key in unusual if key != "noise_ratio"), "")
        return cls(rows, named, varies, *compared_with(table))

    @cached_property
    def printed(self) -> dict[Hashable, PublishedRow]:
        """The paper's rows, by the key that tells rows of the table apart (`Layout.key`)."""
        return {self.key(row.setting): row for row in self.rows}

    def varied(self, setting: Setting) -> Any:
        """Return the value that `setting` has in the field that the table varies, such as the slope threshold.

        The result is None if the table varies nothing besides method and noise.
        """
        return getattr(setting, self.varies) if self.varies else None

    def key(self, setting: Setting) -> Hashable:
        """Return a key that says in which row of the table a training with this setting belongs.

        The key has the method, the noise, other settings that decide labels or rewards, and the value that the table
        varies. Trainings with the same key, such as one of ours and one of the paper's, share a row.
        """
        noise = setting.noise_type, setting.noise_ratio
        return setting.method, *noise, setting.besides, self.varied(setting)

    def reference_key(self, setting: Setting) -> Hashable | None:
        """Return the key of the row that a training with this setting is compared with; None if there is no such row.

        The key is that of `setting` with the table's reference method instead of its own, and without OLR's threshold
        and warm-up. The reference method itself and methods that use no labels are not compared.
        """
        if setting.method == self.reference or _uses_no_labels(setting):
            return None
        return self.key(
            replace(
                setting, method=self.reference, slope_threshold=None, warmup_epochs=None
            )
        )

    def names(self, setting: Setting) -> tuple[str, str]:
        """Return two texts for a row of the paper: the title above its group of rows, and the row's label.

        The title names the noise that the group shares, such as ``Active noise 0.5``. It is ``Unsupervised methods``
        for methods that use no labels, and empty for the policy before training.
        """
        words = _words(setting, self.named)
        # The paper prints the authors' start_select_epoch, which is one less than our number of warm-up epochs.
        if words and self.named == "warmup_epochs":
            words += f" (printed {setting.warmup_epochs - 1})"  # type: ignore[operator]  # there are words for it
        label = " at ".join(filter(None, (_method_title(setting), words)))
        if setting.noise_type is None:
            return "" if setting.method == BASE else "Unsupervised methods", label
        ratio = "" if self.named == "noise_ratio" else f" {setting.noise_ratio}"
        return f"{setting.noise_type.capitalize()} noise{ratio}", label

    def full_label(self, setting: Setting) -> str:
        """Return the label of a row that the paper's table does not have.

        The label names the method, the noise, other settings that decide labels or rewards, and the value that the
        table varies.
        """
        noise = "" if _uses_no_labels(setting) else setting.noise or "no marked labels"
        words = (
            _method_title(setting),
            noise,
            setting.besides,
            _words(setting, self.varies),
        )
        return ", ".join(filter(None, words))


def compared_with(table: str) -> tuple[str, str]:
    """Return the reference method of one of the paper's tables, and a phrase that describes the reference row.

    The other rows of the table are compared with rows of this method: ``grpo`` if the table has GRPO, otherwise
    ``olr``.
    """
    methods = {row.setting.method for row in published_table(table)}
    return next(named for named in _REFERENCES.items() if named[0] in methods)


def _uses_no_labels(setting: Setting) -> bool:
    return setting.method.split("+")[0] in _WITHOUT_LABELS


def _method_title(setting: Setting) -> str:
    return " + ".join(METHOD_TITLES.get(part, part) for part in setting.method.split("+"))


def _words(setting: Setting, name: str) -> str:
    value = getattr(setting, name) if name else None
    # The policy before training has seen none of the prompts.
    untrained = setting.method == BASE and name == "train_prompts"
    return "" if value is None or untrained else _WORDS[name].format(value)
