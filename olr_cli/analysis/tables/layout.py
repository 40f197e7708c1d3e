"""Which rows one of the paper's tables has, what they are called, and what they are compared with.

All follows from the published scores (`olr_cli.evaluation.published`).
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
    "verified_only": "verified labels alone",
    "graded_by_verifier": "graded by the verifier",
}
"""What the paper calls the methods, and the parts of mixed ones."""

_WITHOUT_LABELS = frozenset(
    {BASE, *(name for name, row in METHODS.items() if not row.needs_labels)}
)
"""Methods for which noise makes no row of its own."""

_WORDS = {
    "noise_ratio": "{}",
    "train_prompts": "{:,} prompts",
    "model": "{}",
    "slope_threshold": "delta {}",
    "warmup_epochs": "T = {}",
}
"""The fields of `Setting` that a table may vary, in the name of a row."""

USUAL = Setting("Qwen3-4B-Base", slope_threshold=Decimal("0.05"), warmup_epochs=5)
"""The paper's settings wherever it doesn't vary them (R17)."""

_REFERENCES = {
    "grpo": "GRPO under the same noise",
    "olr": "OLR with both criteria under the same noise",
}
"""What the other rows are compared with, within a sentence: the first that a table has."""


@dataclass(frozen=True)
class Layout:
    """The rows of one of the paper's tables.

    Attributes:
        rows: the paper's, in its order.
        named: the field of `Setting` that the name of a row has besides the method; empty if there is none.
        varies: the field that tells rows of one noise apart; likewise.
        reference: the method that the others are compared with.
        in_words: what they are compared with, within a sentence.
    """

    rows: Sequence[PublishedRow]
    named: str
    varies: str
    reference: str
    in_words: str

    @classmethod
    def of(cls, table: str) -> Layout:
        """Return the layout of a table."""
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
        """The paper's rows by their keys."""
        return {self.key(row.setting): row for row in self.rows}

    def varied(self, setting: Setting) -> Any:
        """Return the value of the field that tells rows of one noise apart; None if there is no such field."""
        return getattr(setting, self.varies) if self.varies else None

    def key(self, setting: Setting) -> Hashable:
        """The key of a row: runs and published scores with the same key share it."""
        noise = setting.noise_type, setting.noise_ratio
        return setting.method, *noise, setting.besides, self.varied(setting)

    def reference_key(self, setting: Setting) -> Hashable | None:
        """The key of the row that a row is compared with; None for no comparison."""
        if setting.method == self.reference or _uses_no_labels(setting):
            return None
        return self.key(
            replace(
                setting, method=self.reference, slope_threshold=None, warmup_epochs=None
            )
        )

    def names(self, setting: Setting) -> tuple[str, str]:
        """The title of the rows under the noise of one of the paper's rows, and what the row is called below it."""
        words = _words(setting, self.named)
        # The paper prints the authors' start_select_epoch
        if words and self.named == "warmup_epochs":
            words += f" (printed {setting.warmup_epochs - 1})"  # type: ignore[operator]  # there are words for it
        label = " at ".join(filter(None, (_method_title(setting), words)))
        if setting.noise_type is None:
            return "" if setting.method == BASE else "Unsupervised methods", label
        ratio = "" if self.named == "noise_ratio" else f" {setting.noise_ratio}"
        return f"{setting.noise_type.capitalize()} noise{ratio}", label

    def full_label(self, setting: Setting) -> str:
        """The name of a row that the paper's table doesn't have: method, noise, and the setting that varies in it."""
        noise = "" if _uses_no_labels(setting) else setting.noise or "no marked labels"
        words = (
            _method_title(setting),
            noise,
            setting.besides,
            _words(setting, self.varies),
        )
        return ", ".join(filter(None, words))


def compared_with(table: str) -> tuple[str, str]:
    """The method that the others of one of the paper's tables are compared with, and how a sentence says so."""
    methods = {row.setting.method for row in published_table(table)}
    return next(named for named in _REFERENCES.items() if named[0] in methods)


def _uses_no_labels(setting: Setting) -> bool:
    return setting.method.split("+")[0] in _WITHOUT_LABELS


def _method_title(setting: Setting) -> str:
    return " + ".join(METHOD_TITLES.get(part, part) for part in setting.method.split("+"))


def _words(setting: Setting, name: str) -> str:
    value = getattr(setting, name) if name else None
    untrained = setting.method == BASE and name == "train_prompts"
    return "" if value is None or untrained else _WORDS[name].format(value)
