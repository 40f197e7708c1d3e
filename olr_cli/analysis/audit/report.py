"""An audit told: sentences for a terminal, the ranked prompts as a table, everything for JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import polars as pl
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from olr_cli.analysis.audit.audit import CHANGES, Audit
from olr_cli.analysis.audit.estimator import Noise
from olr_cli.analysis.audit.evidence import STATUSES
from olr_cli.analysis.audit.export import changes
from olr_cli.answers import EXTRACTORS
from olr_cli.runs.directory import read_recipe

NOTHING = "\N{EN DASH}"
HEAD = 12
"""Columns of the terminal that the first word of a line takes."""

_INTERNAL = ("log_odds", "proposal_log_odds")
_FEW_ROLLOUTS = 4
_WIDEST = 24

Line = tuple[str, str]
"""What a line is about, and what it says; a word that is empty goes on with the line above."""


def told(found: Audit) -> Iterator[Line]:
    """The summary: what was audited, the noise ratio, how many labels are doubted, where confidence comes from."""
    yield "Audited", _size(found)
    if found.noise is not None and found.interval is not None:
        yield "Noise ratio", _ratio(found, found.noise, found.interval)
    yield "Labels", _statuses(found)
    yield "Confidence", _confidence(found)
    if found.cross_validation is not None:
        v = found.cross_validation
        area = "" if v.auroc is None else f", AUROC {v.auroc:.2f}"
        yield (
            "",
            f"cross-validated on {v.labels} trusted labels ({v.wrong} of them wrong){area}; mean squared error"
            f" {v.brier:.3f}, with the built-in calibration alone {v.brier_built_in:.3f}",
        )
    for warning in warnings(found):
        yield "Warning", warning
    counts = changes(found)
    changed = counts.get("changed", 0)
    added = f", {counts['added']:,} to fill in" if counts.get("added") else ""
    if found.noise is None and not added:
        return
    yield (
        "Changes",
        f"{changed:,} label{'s' * (changed != 1)} to replace by the proposal{added}: from confidence"
        f" {found.threshold:g} on (--threshold), if it is likelier right",
    )


def _size(found: Audit) -> str:
    visits, rollouts = (_Spread.of(found.prompts[name]) for name in ("visits", "rollouts"))
    size = len(found.prompts)
    return (
        f"{size:,} prompt{'s' * (size != 1)}, {visits} visit{'s' * (visits.most != 1)} of each, {rollouts}"
        f" rollout{'s' * (rollouts.most != 1)} a visit"
    )


@dataclass(frozen=True)
class _Spread:
    """The least, the middle and the most of whole numbers."""

    least: int
    middle: float
    most: int

    @classmethod
    def of(cls, values: pl.Series) -> _Spread:
        numbers = values.to_numpy()
        return cls(int(numbers.min()), float(np.median(numbers)), int(numbers.max()))

    def __str__(self) -> str:
        return f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"


def _ratio(found: Audit, noise: Noise, interval: tuple[float, float]) -> str:
    what = (
        "other prompts, and votes that count for more or less"
        if not _is_recalibrated(found)
        else "of the trusted labels alone"
    )
    text = f"{found.ratio:.2f} of the labels are wrong (95 % interval {interval[0]:.2f} to {interval[1]:.2f}: {what})"
    if noise.ratio * len(found.prompts) < 1:
        return text  # of less than one label there are no shares
    return f"{text}; {noise.seen_share:.0%} of the wrong ones are answers that the policy gives"


def _is_recalibrated(found: Audit) -> bool:
    return found.trusted is not None and found.trusted.labels > 0


def _statuses(found: Audit) -> str:
    counts = dict(found.prompts.group_by("status").len().iter_rows())
    meanings = {
        "doubted": "doubted",
        "undecided": "undecided (nobody solved the prompt)",
        "fine": "fine",
        "missing": "without a label",
    }
    parts = [
        f"{counts.get(status, 0):,} {meanings[status]}"
        for status in STATUSES
        if counts.get(status) or status != "missing"
    ]
    return ", ".join(parts)


def _confidence(found: Audit) -> str:
    if found.trusted is None:
        return (
            "from the built-in calibration, which was fitted on an arithmetic task and need not fit other data; some"
            " verified labels make it yours: --trusted FILE"
        )
    labels, wrong = found.trusted.labels, found.trusted.wrong
    answers = len(found.trusted.answers) - found.trusted.answers.count(None) - labels
    moved = [f"{labels} trusted label{'s' * (labels != 1)} ({wrong} of them wrong)"] if labels else []
    moved += [f"{answers} true answer{'s' * (answers != 1)} of prompts without a label"] if answers else []
    text = f"from the built-in calibration, moved by {' and '.join(moved)}"
    return text + (
        f"; {found.trusted.strangers:,} more are of other prompts" if found.trusted.strangers else ""
    )


def warnings(found: Audit) -> Iterator[str]:
    """What makes the numbers doubtful."""
    visits, rollouts = (_Spread.of(found.prompts[name]).middle for name in ("visits", "rollouts"))
    if found.answered < 0.1:
        yield (
            f"{1 - found.answered:.0%} of the responses have no answer; another --set data.extractor"
            f" ({', '.join(EXTRACTORS)}) may help"
        )
    if found.noise is None:
        yield "no label can be judged: there are no labels, or no answers"
        return
    if visits < 2:
        yield "after a single visit the noise ratio is unusable, and the confidences are poor; make more visits"
    if rollouts < _FEW_ROLLOUTS:
        yield f"fewer than {_FEW_ROLLOUTS} rollouts a visit hardly show a majority; the noise ratio comes out too low"
    if found.cross_validation is not None:
        return
    if not found.noise.can_be_told:
        yield (
            "labels seem to be wrong with answers of the policy as often as right; then agreement with the rollouts"
            " does not show which are, and all numbers here can be confidently wrong. Trust none without --trusted FILE"
        )
    if found.was_training is False:
        yield (
            "a policy that is not trained keeps its systematic errors, which look like wrong labels, the more so the"
            " weaker it is: the noise ratio may be far too high, beyond its interval; the order of the prompts suffers"
            " less"
        )


def notes(found: Audit) -> Iterator[str]:
    """What to know for reading the table."""
    if found.status not in (None, "finished"):
        yield f"The run is not finished ({found.status}): what it has not visited yet is not in here."
    if found.was_training is False:
        yield "The policy was not trained in these visits, so a slope means nothing and is left out."
    elif found.was_training is None:
        yield "The slope counts only if the visits are those of a policy in training."
    if found.draws_labels:
        yield "Active noise draws a noisy label at every visit: those of the last visit are audited."


def table(found: Audit, size: int, width: int) -> Table:
    """The `size` prompts that are surest to be wrong, in a terminal of so many columns."""
    shown = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    shows_slope = found.was_training is not False
    numbers = ["visits", "passes", *(["slope"] if shows_slope else []), "consistent", "wrong"]
    first = ranked(found, size)
    texts = {
        "prompt": [_shown(text) for text in first["prompt_id"]],
        "given": [_shown(text) for text in first["given_label"]],
        "proposed": [_shown(text) for text in first["proposed_label"]],
    }
    widths = _text_widths(texts, width - sum(len(name) + 1 for name in numbers) - len(texts))
    for name, own in widths.items():
        shown.add_column(name, no_wrap=True, overflow="ellipsis", width=own)
    for name in numbers:
        shown.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    texts["prompt"] = [_end(text, widths["prompt"]) for text in texts["prompt"]]
    for row, own_texts in zip(first.iter_rows(named=True), zip(*texts.values(), strict=True), strict=True):
        shown.add_row(
            *map(Text, own_texts),
            str(row["visits"]),
            _number(row["pass_rate"], ".0%"),
            *([_number(row["slope"], "+.2f")] if shows_slope else []),
            _number(row["consistency"], ".0%"),
            _sure(row["confidence"]),
        )
    return shown


def _text_widths(texts: Mapping[str, Sequence[str]], room: int) -> dict[str, int]:
    """As wide as the texts are, up to `_WIDEST`; the widest gives way until all fit and the numbers are in sight."""
    widths = {name: min(_WIDEST, max(cell_len(text) for text in (name, *own))) for name, own in texts.items()}
    while sum(widths.values()) > max(room, len(texts)):
        widths[max(widths, key=lambda name: widths[name])] -= 1
    return widths


def _end(text: str, width: int) -> str:
    """The end of a prompt's id, which tells it from the others."""
    if cell_len(text) <= width:
        return text
    while cell_len(text) > width - 1:
        text = text[1:]
    return f"\N{HORIZONTAL ELLIPSIS}{text}"


def ranked(found: Audit, size: int) -> pl.DataFrame:
    """The `size` prompts with an estimated confidence that are surest to be wrong."""
    return found.prompts.filter(pl.col("confidence").is_not_null() & ~pl.col("is_trusted")).head(size)


def legend(found: Audit) -> str:
    """What the columns mean."""
    slope = "" if found.was_training is False else "slope: of that share over the visits; "
    return (
        "passes: share of the last visit's rollouts that give the proposed answer (the given one where none is"
        f" proposed); {slope}consistent: share of the visits whose majority it is; wrong: confidence that the given"
        " label is wrong"
    )


def truth_lines(found: Audit, *, is_exported: bool) -> Iterator[Line]:
    """How good the audit was, which only a history with stored truth tells."""
    if found.truth is None:
        return
    truth, q = found.truth, found.truth.quality
    yield (
        "Known truth",
        f"(stored, and not used above): of {q.labels:,} labels {q.wrong:,} are wrong; precision {_share(q.precision)},"
        f" recall {_share(q.recall)}, AUROC {NOTHING if q.auroc is None else f'{q.auroc:.3f}'}",
    )
    made = "right after the changes" if is_exported else "right if they were changed as proposed"
    yield "", f"{truth.right_before:.1%} of the labels are right, {truth.right_after:.1%} {made}"


def ending(
    found: Audit,
    table: Path,
    export: Path | None,
    options: Sequence[str],
    settings: Sequence[str],
    *,
    is_new: bool,
) -> Iterator[Line]:
    """What was written, and the likely next command.

    Args:
        found: the audit.
        table: the file of all prompts.
        export: the repaired data set, if it was asked for.
        options: of this audit, that its repair needs too.
        settings: what `--set` says, which training on the repaired data needs too.
        is_new: whether that was written, and not there already.
    """
    yield "Wrote", f"{table} (a row for each prompt)"
    if export is None:
        own = [str(found.source), *options, *_sets(settings)]
        yield "Next", " ".join(["olr audit", *map(quote, own), "--export repaired.parquet"])
        return
    counts = changes(found)
    made = ", ".join(
        f"{counts.get(name, 0):,} {name}" for name in CHANGES if name != "added" or counts.get(name)
    )
    yield (
        "Wrote" if is_new else "Unchanged",
        f"{export} ({made}" + (")" if is_new else "; already there with these bytes)"),
    )
    yield "Next", " ".join(["olr train", *map(quote, _training(found, export, settings))])


def _training(found: Audit, export: Path, settings: Sequence[str]) -> list[str]:
    """What trains on the repaired data: the run's own recipe, else one for the policy of the rollouts."""
    data = [f"data.train={export}", *settings]
    if found.was_training:
        again = f"runs/{found.source.name}-repaired"
        return [str(found.source / "recipe.yaml"), *_sets(["noise=null", *data]), "--run-dir", again]
    policy = "MODEL"
    if found.was_training is False:
        recipe = read_recipe(found.source)
        policy = recipe.model.path
        if recipe.data.extractor is not None and not settings:
            data.append(f"data.extractor={recipe.data.extractor}")
    if policy.startswith("builtin:"):
        return ["laptop/quickstart", *_sets([f"model.path={policy}", "noise=null", *data])]
    return ["own-data", *_sets([f"model.path={policy}", *data])]


def _sets(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def hanging(text: str, width: int, indent: int = HEAD) -> str:
    """A line of the summary, wrapped below itself."""
    return textwrap.fill(text, max(width - indent, 40), break_on_hyphens=False).replace(
        "\n", "\n" + " " * indent
    )


def rows(found: Audit) -> pl.DataFrame:
    """The table of all prompts as it is stored; without slopes where they mean nothing."""
    left_out = [*_INTERNAL, *(["slope"] if found.was_training is False else [])]
    return found.prompts.drop(left_out)


def plain(found: Audit, size: int | None) -> dict[str, Any]:
    """For JSON."""
    noise, trusted = found.noise, found.trusted
    counts = dict(found.prompts.group_by("status").len().iter_rows())
    validation, truth = found.cross_validation, found.truth
    return {
        "history": str(found.source),
        "prompts": len(found.prompts),
        "policy_was_training": found.was_training,
        "noise_ratio": found.ratio,
        "noise_ratio_interval": found.interval,
        "seen_share": None if noise is None else noise.seen_share,
        "can_be_told": None if noise is None else noise.can_be_told,
        "labels": {status: counts.get(status, 0) for status in STATUSES},
        "changes": {name: changes(found).get(name, 0) for name in CHANGES},
        "threshold": found.threshold,
        "calibration": {
            "source": "built-in" if trusted is None else "trusted",
            "trusted_labels": 0 if trusted is None else trusted.labels,
            **found.calibrations.plain(),
        },
        "cross_validation": None if validation is None else vars(validation),
        "warnings": list(warnings(found)),
        "truth": None
        if truth is None
        else truth.quality.plain() | {"right_before": truth.right_before, "right_after": truth.right_after},
        "ranked": (rows(found) if size is None else rows(found).head(size)).to_dicts(),
    }


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1%}"


def _number(value: float | None, form: str) -> str:
    return NOTHING if value is None else format(value, form)


def _sure(confidence: float | None) -> str:
    """Two digits; what is not certain does not read so."""
    if confidence is None:
        return NOTHING
    if confidence in (0, 1):
        return f"{confidence:.0f}"
    return ">.99" if confidence > 0.995 else "<.01" if confidence < 0.005 else f"{confidence:.2f}"


def _shown(text: str | None) -> str:
    """On one line and without control characters: labels are data."""
    line = NOTHING if text is None else " ".join(text.split())
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line
    )
