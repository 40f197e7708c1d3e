"""An audit as an answer: sentences, the ranked prompts as a table, everything for JSON; the table of all prompts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Any

import polars as pl
from rich.cells import cell_len, set_cell_size

from olr_cli.analysis.audit.audit import Audit
from olr_cli.analysis.audit.forecast import Estimate
from olr_cli.answers import EXTRACTORS
from olr_cli.data.arithmetic import toy_kind
from olr_cli.data.logs import common_place
from olr_cli.data.prompts import NEVER_REWARDED
from olr_cli.errors import UserError
from olr_cli.files import write_whole, writing
from olr_cli.recipe.schema import ExternalEngine
from olr_cli.runs.directory import read_recipe
from olr_cli.tables import NOTHING, Answer, Block, Cell, Column, Line, Row, Table, one_line

_INDENT, _WIDTH = 12, 80
_FEW_ROLLOUTS = 4
_WIDEST = 24
_QUESTION = 76
"""Characters of a question below its prompt, so that it stays on one line."""


def audit_answer(audit: Audit, top: int | None, notes: Sequence[str], *, is_exported: bool) -> Answer:
    """What an audit says; JSON has the table of the `top` prompts, by default of all, a terminal of 15."""
    parts: list[Line | Table | str] = [*_summary(audit)]
    table = ranking(audit, 15 if top is None else top)
    if table.blocks[0].rows:
        parts += ["", table, Line(None, _legend(audit), "dim", is_wrapped=True)]
    parts += [
        *(Line(None, note, is_wrapped=True) for note in _remarks(audit)),
        "",
        *_truth(audit, is_exported),
    ]
    return Answer(parts, _plain(audit, top), notes, indent=_INDENT)


# The summary ------------------------------------------------------------------------------------------------------


def _summary(audit: Audit) -> Iterator[Line]:
    """What was audited, the noise ratio, how many labels are doubted, where confidence comes from."""
    visits, rollouts = audit.prompts["visits"], audit.prompts["rollouts"]
    size = len(audit.prompts)
    yield _line(
        "Audited",
        f"{size:,} prompt{'s' * (size != 1)}, {_counted(visits, 'visit')} of each, {_counted(rollouts, 'rollout')}"
        " a visit",
    )
    if audit.noise is not None:
        yield _line("Noise ratio", _ratio(audit))
    meanings = {"undecided": "undecided (nobody solved the prompt)", "missing": "without a label"}
    counts = audit.statuses
    shown = [name for name in counts if counts[name] or name != "missing"]
    yield _line("Labels", ", ".join(f"{counts[name]:,} {meanings.get(name, name)}" for name in shown))
    yield _line("Confidence", _origin(audit))
    if (validation := audit.cross_validation) is not None:
        area = "" if validation.auroc is None else f", AUROC {validation.auroc:.2f}"
        yield _line(
            "",
            f"cross-validated on {validation.labels} trusted labels ({validation.wrong} of them wrong){area}; mean"
            f" squared error {validation.brier:.3f}, knowing their share of wrong ones alone"
            f" {validation.brier_of_ratio:.3f}",
        )
    for warning in warnings(audit):
        yield Line("Warning", warning, "yellow", is_wrapped=True)
    changed, added = audit.changes["changed"], audit.changes["added"]
    if audit.noise is not None or added:
        yield _line(
            "Changes",
            f"{changed:,} label{'s' * (changed != 1)} to replace by the proposal"
            f"{f', {added:,} to fill in' if added else ''}: where it is likelier right"
            f"{'' if audit.threshold is None else f', from confidence {audit.threshold:g} on (--threshold)'}",
        )
    if (expected := audit.forecast) is not None:
        yield _line(
            "Expected",
            f"{_share(expected.before)} of the labels are right; after the changes {_share(expected.after)},"
            f" {_share(expected.gain, sign='+')} points",
        )


def _line(head: str, text: str) -> Line:
    return Line(head, text, is_wrapped=True)


def _counted(values: pl.Series, name: str) -> str:
    """``2 to 5 visits``: the least and the most."""
    least, most = values.to_numpy().min(), values.to_numpy().max()
    return f"{least}{'' if least == most else f' to {most}'} {name}{'s' * bool(most != 1)}"


def _ratio(audit: Audit) -> str:
    assert audit.noise is not None and audit.forecast is not None
    ratio = audit.forecast.ratio
    text = f"{ratio.mean:.2f} of the labels are wrong (95 % interval {ratio.low:.2f} to {ratio.high:.2f})"
    if audit.noise.ratio * len(audit.prompts) < 1:
        return text  # of less than one label there are no shares
    return f"{text}; {audit.noise.seen_share:.0%} of the wrong ones are answers that the policy gives"


def _share(estimate: Estimate, *, sign: str = "") -> str:
    """``50 % (43 to 58)``."""
    mean, low, high = (
        f"{round(100 * value) + 0:{sign}}" for value in (estimate.mean, estimate.low, estimate.high)
    )
    return f"{mean}{'' if sign else ' %'} ({low} to {high})"


def _origin(audit: Audit) -> str:
    """Where the confidence comes from."""
    trusted = audit.trusted
    if trusted is None:
        return (
            "from votes alone, and how far such confidences were off on an arithmetic task, which need not fit other"
            " data; some verified labels make them yours: --trusted FILE"
        )
    labels, wrong, answers = trusted.labels, trusted.wrong, trusted.unlabelled
    moved = [f"{labels} trusted label{'s' * (labels != 1)} ({wrong} of them wrong)"] if labels else []
    moved += [f"{answers} true answer{'s' * (answers != 1)} of prompts without a label"] if answers else []
    return f"from votes, moved by {' and '.join(moved)}"


def warnings(audit: Audit) -> Iterator[str]:
    """What makes the numbers doubtful."""
    visits, rollouts = (audit.prompts.select(pl.col("visits", "rollouts").median())).row(0)
    if audit.answered < 0.1:
        yield (
            f"{1 - audit.answered:.0%} of the responses have no answer; another --set data.extractor"
            f" ({', '.join(EXTRACTORS)}) may help"
        )
    if audit.noise is None:
        yield "no label can be judged: there are no labels, or no answers"
        return
    if visits < 2:
        yield "after a single visit the noise ratio is unusable, and the confidences are poor; make more visits"
    if rollouts < _FEW_ROLLOUTS:
        yield f"fewer than {_FEW_ROLLOUTS} rollouts a visit hardly show a majority; the noise ratio comes out too low"
    if audit.selection is not None:
        more = "more" if audit.selection > 0.5 else "less"
        share = max(audit.selection, 1 - audit.selection)
        yield (
            f"the trusted labels are no random draw: one of them is in {more} doubt than one of the others in"
            f" {share:.0%} of the cases. What they say of themselves holds; the estimates for the others may not"
        )
    elif audit.cross_validation is not None and audit.cross_validation.is_convincing:
        return
    still = (
        "" if audit.trusted is None else ". The trusted labels do not yet show that the confidences are right"
    )
    if not audit.noise.can_be_told:
        remedy = still or ". Trust none without --trusted FILE"
        yield (
            "labels seem to be wrong with answers of the policy as often as right; then agreement with the rollouts"
            f" does not show which are, and all numbers here can be confidently wrong{remedy}"
        )
    if audit.was_training is False:
        yield (
            "a policy that is not trained keeps its systematic errors, which look like wrong labels, the more so the"
            f" weaker it is{still or '; the order of the prompts suffers less than the numbers'}"
        )
    if audit.forecast is not None and audit.changes["changed"] and audit.forecast.gain.low <= 0:
        remedy = (
            ", as policies differ and nothing here shows how far the votes of this one can be trusted. Before you use"
            " the changes, verify 25 to 100 labels drawn at random (olr analyze HISTORY --report: Prompts, sort by"
            " random order, export) and give them with --trusted FILE"
            if audit.trusted is None
            else ""
        )
        yield f"the changes may do harm: the interval of what they gain does not lie above 0{remedy}"


def _remarks(audit: Audit) -> Iterator[str]:
    """What to know for reading the table."""
    if audit.status not in (None, "finished"):
        yield f"The run is not finished ({audit.status}): what it has not visited yet is not in here."
    if audit.was_training is False:
        yield "The policy was not trained in these visits, so a slope means nothing and is left out."
    elif audit.was_training is None:
        yield "The slope counts only if the visits are those of a policy in training."
    if audit.draws_labels:
        yield "Active noise draws a noisy label at every visit: those of the last visit are audited."


def _truth(audit: Audit, is_exported: bool) -> Iterator[Line]:
    """How good the audit was, which only a history with stored truth shows."""
    truth = audit.truth
    if truth is None:
        return
    area = _number(truth["auroc"], ".3f")
    yield _line(
        "Known truth",
        f"(stored, and not used above): of {truth['labels']:,} labels {truth['wrong']:,} are wrong; precision"
        f" {_number(truth['precision'], '.1%')}, recall {_number(truth['recall'], '.1%')}, AUROC {area}",
    )
    made = "right after the changes" if is_exported else "right if they were changed as proposed"
    yield _line("", f"{truth['right_before']:.1%} of the labels are right, {truth['right_after']:.1%} {made}")


# The ranked prompts -----------------------------------------------------------------------------------------------


def ranking(audit: Audit, size: int) -> Table:
    """The `size` prompts with an estimated confidence that are surest to be wrong."""
    is_estimated = pl.col("confidence").is_not_null() & ~pl.col("is_trusted")
    prompts = audit.prompts.filter(is_estimated).head(size)
    numbers = {
        "visits": [str(visits) for visits in prompts["visits"]],
        "passes": [_number(rate, ".0%") for rate in prompts["pass_rate"]],
        "slope": [_number(slope, "+.2f") for slope in prompts["slope"]],
        "consistent": [_number(share, ".0%") for share in prompts["consistency"]],
        "wrong": [_sure(confidence) for confidence in prompts["confidence"]],
    }
    if audit.was_training is False:
        del numbers["slope"]
    names = {"prompt": "prompt_id", "given": "given_label", "proposed": "proposed_label"}
    texts = {
        head: [one_line("unknown" if text == NEVER_REWARDED else text) for text in prompts[name]]
        for head, name in names.items()
    }
    widths = _text_widths(texts, _WIDTH - sum(len(name) + 1 for name in numbers) - len(texts))
    cells = [
        [Cell(text, "text", short=_cut(text, widths[head], is_end=head == "prompt")) for text in of_column]
        for head, of_column in texts.items()
    ]
    columns = [*(Column(head, is_text=True) for head in texts), *(Column(head) for head in numbers)]
    rows = []
    for prompt_id, row in zip(prompts["prompt_id"], zip(*cells, *numbers.values(), strict=True), strict=True):
        rows.append(Row(row))
        if prompt_id in audit.questions:
            rows.append(Row([one_line(audit.questions[prompt_id], _QUESTION)], "note"))
    return Table([Block(columns, rows)], {"rows": stored(audit).head(size).to_dicts()})


def _text_widths(texts: Mapping[str, Sequence[str]], room: int) -> dict[str, int]:
    """As wide as the texts are, up to `_WIDEST`; the widest gives way until all fit and the numbers are in sight."""
    widths = {
        head: min(_WIDEST, max(cell_len(text) for text in (head, *column))) for head, column in texts.items()
    }
    while sum(widths.values()) > room:
        widths[max(widths, key=lambda head: widths[head])] -= 1
    return widths


def _cut(text: str, width: int, *, is_end: bool) -> str:
    """The beginning of a text, or its end, by which ids of prompts differ."""
    if cell_len(text) <= width:
        return text
    dots = "\N{HORIZONTAL ELLIPSIS}"
    return (
        dots + set_cell_size(text[::-1], width - 1)[::-1] if is_end else set_cell_size(text, width - 1) + dots
    )


def _number(value: float | None, form: str) -> str:
    return NOTHING if value is None else format(value, form)


def _sure(confidence: float) -> str:
    """Two digits; what is not certain does not read so."""
    if confidence in (0, 1):
        return f"{confidence:.0f}"
    return ">.99" if confidence > 0.995 else "<.01" if confidence < 0.005 else f"{confidence:.2f}"


def _legend(audit: Audit) -> str:
    slope = "" if audit.was_training is False else "slope: of that share over the visits; "
    return (
        "passes: share of the last visit's rollouts that give the proposed answer (the given one where none is"
        f" proposed); {slope}consistent: share of the visits whose majority it is; wrong: confidence that the given"
        " label is wrong"
    )


# What is stored, and what comes next ------------------------------------------------------------------------------


def stored(audit: Audit) -> pl.DataFrame:
    """The table of all prompts as it is stored: with the questions if known, without slopes where they mean nothing."""
    left_out = ["log_odds", "proposal_log_odds", *(["slope"] if audit.was_training is False else [])]
    table = audit.prompts.drop(left_out)
    if not audit.questions:
        return table
    questions = [audit.questions.get(prompt_id) for prompt_id in table["prompt_id"]]
    return table.with_columns(pl.Series("question", questions, dtype=pl.String))


def write_prompts(audit: Audit, out: Path | None, data: str | None, settings: Sequence[str]) -> Path:
    """Write the table of all prompts: `out`, as CSV if it ends so, or Parquet below the run or beside the table.

    Its name is that of the options `--data`, `--set`, `--threshold` and of what is trusted.

    Raises:
        UserError: it can't be written.
    """
    trusted = audit.trusted
    verified = trusted and tuple(
        "wrong" if answer is None and is_wrong == 1 else answer
        for answer, is_wrong in zip(trusted.answers, trusted.is_wrong, strict=True)
    )
    options = audit.threshold, verified, data, sorted(settings)
    digest, source = hashlib.sha256(repr(options).encode()).hexdigest()[:8], audit.source
    beside = source.with_name(f"{source.stem}-audit-{digest}.parquet")
    target = out or (source / "audit" / f"prompts-{digest}.parquet" if audit.status else beside)
    try:
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        table = stored(audit)
        write_whole(target, table.write_csv if target.suffix == ".csv" else table.write_parquet)
    except UserError as error:
        raise UserError(f"{error} (--out FILE)") from None
    return target


def export_command(places: Sequence[Path], options: Sequence[str], settings: Sequence[str]) -> str:
    """The command that repairs the data set as an audit of these places proposes."""
    named = places if len(places) < 4 else [common_place(places)]
    words = [*map(str, named), *options, *_sets(settings)]
    return " ".join(["olr audit", *map(quote, words), "--export repaired.parquet"])


def training_command(audit: Audit, export: Path, settings: Sequence[str]) -> str | None:
    """The command that trains on the repaired data: the run's own recipe, else one for the policy of the rollouts.

    None for a run of another trainer, which olr cannot start.
    """
    data = [f"data.train={export}", *settings]
    recipe = None if audit.was_training is None else read_recipe(audit.source)
    if recipe is not None and isinstance(recipe.engine, ExternalEngine):
        return None
    if recipe is not None and recipe.data.columns is not None:
        data.append("data.columns=null")  # the export has the columns of the interchange format
    if audit.was_training:
        again = f"runs/{audit.source.name}-repaired"
        words = [str(audit.source / "recipe.yaml"), *_sets(["noise=null", *data]), "--run-dir", again]
        return " ".join(["olr train", *map(quote, words)])
    policy = "MODEL"
    if recipe is not None:
        policy = recipe.model.path
        if recipe.data.extractor is not None and not settings:
            data.append(f"data.extractor={recipe.data.extractor}")
    is_toy = toy_kind(policy) is not None
    words = _sets([f"model.path={policy}", *(["noise=null"] if is_toy else []), *data])
    return " ".join(["olr train", "laptop/quickstart" if is_toy else "own-data", *map(quote, words)])


def _sets(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def _plain(audit: Audit, top: int | None) -> dict[str, Any]:
    """For JSON."""
    noise, trusted, prompts, expected = audit.noise, audit.trusted, stored(audit), audit.forecast
    return {
        "history": str(audit.source),
        "prompts": len(prompts),
        "policy_was_training": audit.was_training,
        "noise_ratio": None if expected is None else expected.ratio.mean,
        "noise_ratio_interval": None if expected is None else [expected.ratio.low, expected.ratio.high],
        "expected": None if expected is None else asdict(expected),
        "seen_share": None if noise is None else noise.seen_share,
        "can_be_told": None if noise is None else noise.can_be_told,
        "labels": audit.statuses,
        "changes": audit.changes,
        "threshold": audit.threshold,
        "calibration": {
            "source": "built-in" if trusted is None else "trusted",
            "trusted_labels": 0 if trusted is None else trusted.labels,
            "selection": audit.selection,
        },
        "cross_validation": None if audit.cross_validation is None else vars(audit.cross_validation),
        "warnings": list(warnings(audit)),
        "truth": audit.truth,
        "ranked": (prompts if top is None else prompts.head(top)).to_dicts(),
    }
