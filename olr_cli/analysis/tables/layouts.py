"""The paper's tables of scores: what each prints, row by row.

Runs stand in the row of their method and noise, and of the one thing that a table varies besides. Other settings of
ours may differ from the paper's, as those of laptop runs do: a note says so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from olr_cli.analysis.arms import Arm
from olr_cli.analysis.tables import baselines
from olr_cli.analysis.tables.baselines import (
    UNSUPERVISED,
    method_and_noise,
    method_title,
    noise_block,
    title_and_noise,
)
from olr_cli.analysis.tables.paper_table import BASE, Layout
from olr_cli.evaluation.published import Setting

PAPER_SETTINGS = {"slope_threshold": Decimal("0.05"), "warmup_epochs": 5}
"""OLR's settings wherever the paper doesn't vary them (R17)."""

_SYMBOLS = {"slope_threshold": "delta", "warmup_epochs": "T"}

_T_IS_PRINTED_LESS = (
    "T counts the epochs that keep the given labels, as in the paper's other tables; this one prints the authors'"
    " start_select_epoch, which is T - 1."
)
_EXCHANGED = (
    "The paper's scores of GRPO under active noise on AIME25 (56.2) and AMC (19.6) look exchanged; they are shown as"
    " printed."
)


def _layout(
    name: str,
    trained: str,
    *,
    label: Callable[[Setting], str] = method_title,
    block: Callable[[Setting], str] = noise_block,
    tells: str = "",
    told: Callable[[Setting], str] = lambda _: "",
    reference: str = "grpo",
    reference_in_words: str = "GRPO under the same noise",
    remark: str = "",
    misprint: str = "",
) -> Layout:
    """A table of runs with and without OLR.

    Args:
        name: of the table.
        trained: what the published scores are of.
        label: as in `Layout`.
        block: as in `Layout`.
        tells: what of a setting the table varies besides method and noise; empty for nothing.
        told: the same in words, for rows that the paper's table doesn't have.
        reference: the method that the others are compared with.
        reference_in_words: as in `Layout`.
        remark: a note of the table's own.
        misprint: a note on published scores that look wrong.
    """

    def key(setting: Setting) -> Hashable:
        return *method_and_noise(setting), *([getattr(setting, tells)] if tells else [])

    def compared_with(setting: Setting) -> Hashable:
        if setting.method.split("+")[0] in {BASE, *UNSUPERVISED} or setting.method == reference:
            return None
        own = setting if reference == "olr" else replace(setting, slope_threshold=None, warmup_epochs=None)
        return key(replace(own, method=reference))

    def departures(arms: Sequence[Arm]) -> Iterator[str]:
        if remark:
            yield remark
        yield from unlike_the_papers(arms, leave_out=tells)

    return Layout(
        name=name,
        published=" ".join(filter(None, (baselines.published(trained), misprint))),
        key=key,
        block=block,
        label=label,
        other_label=lambda setting: ", ".join(filter(None, (title_and_noise(setting), told(setting)))),
        reference=compared_with,
        departures=departures,
        tells=(tells,) if tells else (),
        reference_name=baselines.TITLES[reference],
        reference_in_words=reference_in_words,
    )


def unlike_the_papers(arms: Sequence[Arm], leave_out: str) -> Iterator[str]:
    """Sentences on settings of OLR that are not the paper's.

    Args:
        arms: that are shown.
        leave_out: the setting that the table varies.
    """
    for name, papers in PAPER_SETTINGS.items():
        counted = [
            arm.olr for arm in arms if arm.olr and (name != "slope_threshold" or "slope" in arm.olr.criteria)
        ]
        ours = sorted({getattr(olr, name) for olr in counted})
        if name != leave_out and any(value != papers for value in ours):
            shown = ", ".join(map(str, ours))
            yield f"OLR's {name} ({_SYMBOLS[name]}) is {shown} in ours and {papers} in the paper."


def _noise_type(setting: Setting) -> str:
    return f"{setting.noise_type.capitalize()} noise" if setting.noise_type else ""


def _at_ratio(setting: Setting) -> str:
    return (
        f"{method_title(setting)} at {setting.noise_ratio}" if setting.noise_type else method_title(setting)
    )


def _delta(setting: Setting) -> str:
    return "" if setting.slope_threshold is None else f"delta {setting.slope_threshold}"


def _warmup(setting: Setting) -> str:
    return "" if setting.warmup_epochs is None else f"T = {setting.warmup_epochs}"


def _at_delta(setting: Setting) -> str:
    return " at ".join(filter(None, (method_title(setting), _delta(setting))))


def _at_warmup(setting: Setting) -> str:
    printed = (
        "" if setting.warmup_epochs is None else f"{_warmup(setting)} (printed {setting.warmup_epochs - 1})"
    )
    return " at ".join(filter(None, (method_title(setting), printed)))


def _prompts(setting: Setting) -> str:
    return "" if setting.method == BASE else f"{setting.train_prompts:,} prompts"


_QWEN = "Qwen3-4B-Base trained on 800 prompts"

_ALL = (
    _layout("noise_ratios", _QWEN, block=_noise_type, label=_at_ratio),
    baselines.LAYOUT,
    _layout("scale_4k", "Qwen3-4B-Base trained on 4,000 prompts", tells="train_prompts", told=_prompts),
    _layout(
        "qwen3_8b",
        "Qwen3-8B-Base trained on 800 prompts",
        tells="model",
        told=lambda setting: setting.model,
    ),
    _layout(
        "llama_8b",
        "DeepSeek-R1-Distill-Llama-8B trained on 800 prompts",
        tells="model",
        told=lambda setting: setting.model,
        misprint=_EXCHANGED,
    ),
    _layout("slope_sensitivity", _QWEN, label=_at_delta, tells="slope_threshold", told=_delta),
    _layout(
        "warmup_sensitivity",
        _QWEN,
        label=_at_warmup,
        tells="warmup_epochs",
        told=_warmup,
        remark=_T_IS_PRINTED_LESS,
    ),
    _layout(
        "ablation",
        _QWEN,
        reference="olr",
        reference_in_words="OLR with both criteria under the same noise",
    ),
)

LAYOUTS: Mapping[str, Layout] = {layout.name: layout for layout in _ALL}
"""Table -> what it shows, in the paper's order."""
