"""The data set after an audit: the rows that are kept, their labels, repaired or not, and the audit's findings.

The findings are in ``extra_info``:

audit_status         doubted | questionable | undecided | fine | missing | unjudged
audit_rank           position in the queue; null if the label is verified or missing
audit_change         changed | added | kept
audit_confidence     chance that the given label is wrong, or that an added one is right; null without verified labels
audit_given_label    the label that was audited; null without one
audit_evidence       one sentence

Rows to be checked have a column ``drawn``: whether they were drawn at random.

If data and export are both CSV, the export keeps the columns and texts of the data, with repaired labels, and adds
audit_status, audit_rank and drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from olr_cli import seeding
from olr_cli.analysis.audit.audit import Audit
from olr_cli.analysis.audit.calibration import asked_truths, is_right
from olr_cli.analysis.audit.evaluations import is_of_evaluations
from olr_cli.analysis.audit.verdicts import STATUSES
from olr_cli.analysis.histories import RolloutHistory, run_data
from olr_cli.answers import Judge
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.columns import LABEL_COLUMNS, PROMPT_COLUMNS
from olr_cli.data.interchange import prompt_set, with_fields_of
from olr_cli.data.prompt_files import Reading
from olr_cli.data.prompts import NEVER_REWARDED, Prompt, PromptSet
from olr_cli.data.values import CSV
from olr_cli.data.writers import write_csv_rows, write_prompts
from olr_cli.errors import UserError, at
from olr_cli.tables import File

Row = Mapping[str, Any]

UNJUDGED = "unjudged"
"""Status of a row of the data set without a rollout in the history."""

UNVISITED = "no rollout of this prompt is in the history"
_VERIFY = 50
"""Number of verified labels that is usually enough to show whether proposals are better than labels."""


# Which rows -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """Which rows of a data set an export keeps, and whether it repairs their labels.

    The fields are named like the options of `olr audit`.
    """

    drop: Sequence[str] = ()
    """Statuses of rows that are left out."""

    only: Sequence[str] = ()
    """Statuses of the only rows that are kept; empty for all."""

    first: int | None = None
    """Keep only this many rows, the first of the queue."""

    random: int | None = None
    """Keep only this many rows, drawn at random by the `seed`."""

    seed: int = 0
    pass_rate: str | None = None
    """Smallest and largest share of rollouts that give the label: ``0.1:0.9``."""

    repair: bool = False

    def __post_init__(self) -> None:
        numbers = [name for name in ("first", "random") if getattr(self, name) is not None]
        if numbers and (len(numbers) > 1 or self.drop or self.only or self.pass_rate):
            raise UserError("this takes of all rows", "leave other choices out", numbers[0])
        for option, names in {"drop": self.drop, "only": self.only}.items():
            if unknown := [name for name in names if name not in (*STATUSES, UNJUDGED)]:
                statuses = ", ".join((*STATUSES, UNJUDGED))
                raise UserError(
                    f"there is no status '{unknown[0]}'", f"known: {statuses}", option
                )
        low, high = self.rates
        if not 0 <= low <= high <= 1:
            raise UserError(
                "this is no range of shares",
                "name the least and the largest, as in 0.1:0.9",
                f"pass_rate {self.pass_rate}",
            )

    @property
    def rates(self) -> tuple[float, float]:
        """The range of `pass_rate` as two shares, the smallest and the largest; (0, 1) if it is not set.

        If `pass_rate` is not two numbers joined by a colon, the result is (1, 0), which `__post_init__` rejects.
        """
        try:
            low, high = map(float, (self.pass_rate or "0:1").split(":"))
        except ValueError:
            return 1.0, 0.0
        return low, high

    @property
    def words(self) -> list[str]:
        """The options that choose rows for training, as words of a command: ``["--drop", "doubted", "--repair"]``."""
        drop = ["--drop", ",".join(self.drop)] if self.drop else []
        rates = ["--pass-rate", self.pass_rate] if self.pass_rate else []
        return [*drop, *rates, *["--repair"] * self.repair]

    @property
    def is_to_check(self) -> bool:
        """Whether the rows are for people to check (`first`, `random` or `only` is set); otherwise for training."""
        return bool(self.first or self.random or self.only)

    def keeps(self, rows: Sequence[Row | None]) -> list[int]:
        """Return the indices of the rows to keep.

        `rows` has the audit's verdict on every row of the data set; None for a row without rollouts. The indices
        ascend. With `first` they begin with the most doubtful row instead.
        """
        if self.random is not None:
            return sorted(
                seeding.permutation(len(rows), "audit sample", self.seed)[: self.random]
            )
        if self.first is not None:
            ranks = {
                row["rank"]: index
                for index, row in enumerate(rows)
                if row is not None and row["rank"]
            }
            return [ranks[rank] for rank in sorted(ranks)[: self.first]]
        return [index for index, row in enumerate(rows) if self._keeps(row)]

    def _keeps(self, row: Row | None) -> bool:
        """Return whether a row stays under the options `drop`, `only` and `pass_rate`.

        - `drop` removes rows whose status it names, except rows whose label is repaired.
        - `only` removes rows whose status it does not name.
        - `pass_rate` removes rows with a pass rate outside the range, and rows without rollouts, which have none. If
          the label is repaired, the pass rate is that of the new label.

        A label that people found wrong without giving the true answer does not count as repaired.

        `row` is the audit's verdict; None for a row without rollouts.
        """
        status = UNJUDGED if row is None else row["status"]
        # A row that people found wrong, without giving the true answer, may have a flawed question. A new label does
        # not mend that, so such a row counts as not repaired.
        is_repaired = (
            row is not None
            and row["change"] != "kept"
            and (not row["is_verified"] or has_truth(row))
        )
        if (status in self.drop and not is_repaired) or (
            self.only and status not in self.only
        ):
            return False
        if self.pass_rate is None:
            return True
        low, high = self.rates
        count = (
            None if row is None else row["proposed_count" if is_repaired else "given_count"]
        )
        return (
            row is not None and count is not None and low <= count / row["rollouts"] <= high
        )


def unrepaired_note(audit: Audit, choice: Choice) -> str | None:
    """Return a sentence on why the export repairs no unverified labels; None if it does, or if no repair is asked for.

    A repair replaces unverified labels by proposals, the answers that the models prefer. It does so only if verified
    labels show that this makes more labels right.

    Raises:
        UserError: the requested repair would change and add no label, and every unlabelled prompt is in the data set.
    """
    if not choice.repair:
        return None
    verified = audit.verified_labels
    needed = _VERIFY if verified < _VERIFY else 2 * verified
    why = (
        f"proposals replace labels only where verified labels show that more of them are right then, and {verified}"
        f" verified label{'s do' if verified != 1 else ' does'} not show it; verify {needed}, the first of the queue"
        " or a random draw"
    )
    is_shown = audit.gain is not None and audit.gain.low > 0
    if not (
        is_shown or audit.changes["changed"] or audit.changes["added"] or audit.not_in_data
    ):
        raise UserError.of(
            f"{why}, or leave doubted and questionable rows out",
            remedy="leave those out",
            place="repair",
        )
    return None if is_shown else f"Unverified labels stay as they are: {why}."


# The data set -----------------------------------------------------------------------------------------------------


def require_exportable(target: Path, data: PromptSet | None = None) -> None:
    """Raise if `export` cannot write a file with the ending of `target`.

    This is checked before an audit, which may take long. `export` writes ``.parquet`` and ``.jsonl``. It writes CSV
    only if the data set is a single CSV file with the same ending. If `data` is None, the data set is not known yet,
    and CSV is accepted.

    Raises:
        UserError: `export` cannot write such a file.
    """
    files = [] if data is None else data.origins.files
    is_csv_of_csv = data is None or [file.suffix for file in files] == [target.suffix]
    if target.suffix not in (".parquet", ".jsonl", *(CSV if is_csv_of_csv else ())):
        raise UserError(
            "a data set is written as .parquet or .jsonl, that of one CSV file also as CSV of the same ending",
            f"give {target} such an ending",
            "export",
        )


def data_of(history: RolloutHistory, *, is_local: bool = False) -> PromptSet:
    """Return the data set that a history's rollouts were made on.

    For a run it is the data set of its recipe. For a log it consists of the prompts that the log itself holds. With
    `is_local` a run's data set is not fetched over the network.

    Raises:
        UserError: the data set cannot be read, or the log has no column of prompts.
    """
    if history.data is not None:
        return history.data
    if not history.runs:
        return _of_log(history)
    try:
        return run_data(history.runs[0], is_local=is_local)
    except UserError as error:
        raise UserError(
            f"{error.place}: {error.problem}" if error.place else error.problem,
            f"{error.remedy}; name the data set",
            "data",
        ) from None


def _of_log(history: RolloutHistory) -> PromptSet:
    logged = [prompt for prompt in history.prompts.values() if prompt.messages]
    if not logged:
        raise UserError(
            f"{history.source} has no column of prompts ({', '.join(PROMPT_COLUMNS)}), so there is nothing to export"
            " the labels with",
            "name the data set",
            "data",
        )
    is_question = all(len(prompt.messages) == 1 for prompt in logged)
    prompts = [
        replace(
            prompt,
            messages=(
                *Reading().system(prompt.data_source, is_question=is_question),
                *prompt.messages,
            ),
            # `NEVER_REWARDED` is a placeholder, not a label that anybody gave.
            given_label=None
            if prompt.given_label == NEVER_REWARDED
            else prompt.given_label,
            data_source=prompt.data_source or f"local/{history.source.stem}",
        )
        for prompt in logged
    ]
    source = prompts[0].data_source if is_of_evaluations(history) else history.source.name
    return prompt_set(prompts, source)


def export(
    audit: Audit, data: PromptSet, target: Path, judge: Judge, choice: Choice
) -> tuple[File, int]:
    """Write the rows of a data set that `choice` keeps, with their labels after the audit, to the file `target` (R4).

    A CSV file keeps its own columns; .parquet and .jsonl are in the interchange format. A row with a new label gets a
    new ``noise_type``. Rows for people to check have the verified true answer as their label, if there is one. Under
    active noise, which draws a new label at every visit, the audited label is written, and stays.

    Returns:
        The file.
        The number of its rows that lack a label, which training would need; 0 if the rows are for people to check.

    Raises:
        UserError: no row is left.
    """
    rows = rows_of(audit, data, choice)
    chosen = choice.keeps(rows)
    if not chosen:
        raise UserError("no row is left", "keep more", f"export {target}")
    prompts = [
        prompt if row is None else _relabelled(prompt, row)
        for prompt, row in zip(data.prompts, rows, strict=True)
    ]
    to_train = [] if choice.is_to_check else chosen
    unlabelled = sum(prompts[index].given_label is None for index in to_train)
    # Count the changes in the rows that were written, not all that the audit would make.
    changes = _counted_changes([rows[index] for index in chosen]) if choice.repair else ""
    remark = f" ({len(chosen):,} of {len(data):,} rows{changes})"
    if target.suffix in CSV:
        kept = {index: (prompts[index], rows[index]) for index in chosen}
        cells_of = _csv_cells(data, kept, choice)
        is_new = write_csv_rows(data.origins, cells_of, target)
        return File.written(target, remark, is_new=is_new), unlabelled
    facts = {
        "audit.history": audit.source.name,
        "audit.verified": str(audit.verified_labels),
        "audit.kept": str(len(chosen)),
    }
    # The table of the input keeps its other columns; build it only when the file is written.
    whole = replace(data, make_table=lambda: _with_columns(data, rows, choice))
    whole = whole.with_prompts(_with_noise_types(prompts, data.prompts, judge), facts)
    with at("export"):
        is_new = write_prompts(whole.subset(chosen), target)
    return File.written(target, remark, is_new=is_new), unlabelled


def rows_of(audit: Audit, data: PromptSet, choice: Choice) -> list[Row | None]:
    """Return the audit's verdict on each prompt of the data set, in its order; None for a prompt without rollouts.

    The column ``change`` of a verdict says what a repair does to the label. If `choice` repairs no labels, the change
    is ``kept``, except in rows for people to check whose true answer is verified.
    """
    by_id: dict[str, Row] = {
        row["prompt_id"]: row for row in audit.prompts.iter_rows(named=True)
    }
    if not choice.repair:
        by_id = {name: _unrepaired(row, choice) for name, row in by_id.items()}
    return [by_id.get(prompt.prompt_id) for prompt in data.prompts]


def _csv_cells(
    data: PromptSet, kept: Mapping[int, tuple[Prompt, Row | None]], choice: Choice
) -> dict[int, dict[str, str]]:
    """Return the texts to write into the CSV file: index of a row -> column -> text.

    The texts are the audit's findings and, if the label changes, the new label. `kept` has the rows to write: index of
    a row -> its prompt with the new label, and the audit's verdict (None without rollouts).
    """
    label_column, cells_of = data.label_column or LABEL_COLUMNS[0], {}
    for index, (prompt, row) in kept.items():
        findings = _columns(row)
        # Write empty cells too: an earlier audit may have left its status or rank in the column.
        cells = {name: str(findings[name] or "") for name in ("audit_status", "audit_rank")}
        if choice.is_to_check:
            cells["drawn"] = str(choice.random is not None).lower()
        if findings["audit_change"] != "kept":
            cells[label_column] = prompt.given_label or ""
        cells_of[index] = cells
    return cells_of


def _unrepaired(row: Row, choice: Choice) -> Row:
    """Return a verdict whose change is ``kept``, which makes the export leave the label as it is.

    Exception: for a row that people are to check, with a verified true answer, the verdict is returned unchanged, and
    the export writes the true answer.
    """
    return row if choice.is_to_check and has_truth(row) else {**row, "change": "kept"}


def _counted_changes(rows: Sequence[Row | None]) -> str:
    """Return how many labels a repair changes and adds, such as ``, 3 labels changed, 1 label added``.

    The text continues a sentence; without changes it is empty.
    """
    changes = Counter(row["change"] for row in rows if row is not None)
    return "".join(
        f", {changes[name]:,} label{'s' * (changes[name] != 1)} {name}"
        for name in ("changed", "added")
        if changes[name]
    )


def unjudged_note(audit: Audit, data: PromptSet, choice: Choice) -> str | None:
    """Return a sentence on the rows of the data set that have no rollouts, or None if every row was judged."""
    judged = {*audit.prompts["prompt_id"]}
    count = sum(prompt.prompt_id not in judged for prompt in data.prompts)
    if not count:
        return None
    fate = (
        "they are left out"
        if UNJUDGED in choice.drop
        else "--drop unjudged leaves them out"
    )
    # `Choice._keeps` drops a row without rollouts if there is a pass rate, whether or not --drop names its status.
    if choice.pass_rate:
        fate = "they have no pass rate and are left out"
    return f"{count:,} of {len(data):,} rows of {data.source} are not judged, for nobody answered them; {fate}."


def dropped_note(audit: Audit, choice: Choice) -> str | None:
    """Return a warning that some dropped rows are doubted by the models' votes alone, so their labels may be right.

    The result is None if there are no such rows, or if at least `_VERIFY` labels are verified.
    """
    by_votes = audit.prompts.filter(
        ~pl.col("is_verified"), pl.col("status") == "doubted"
    ).height
    is_certain = audit.verified_labels >= _VERIFY or not by_votes
    if "doubted" not in choice.drop or is_certain:
        return None
    return (
        f"Of the rows left out as doubted, {by_votes:,} are so by votes, and their labels may be right: people found a"
        " defect in 19 to 23 % of MMLU-Pro's doubted rows (in 8 % of all), and in 77 % of GSM8K's (9 %). Verify some"
        " (--verified) to know it here."
    )


def has_truth(row: Row) -> bool:
    """Return whether people have verified the true answer to the prompt of this verdict.

    The result is False if people only found that the label is wrong.
    """
    return bool(row["is_verified"] and row["proposal_confidence"] == 1)


def evidence(row: Row) -> str:
    """Return a sentence on the evidence for and against a label, such as ``of 16 rollouts 3 × the label, 10 × 240``.

    In this example, 10 rollouts gave the answer 240. If people have verified the label, the sentence says so instead.
    `row` is the audit's verdict on the label.
    """
    if row["is_verified"]:
        is_answered = row["confidence"] != 1 or row["proposal_confidence"] == 1
        return (
            "the true answer is verified"
            if is_answered
            else "the label is verified to be wrong"
        )
    given = "" if row["given_count"] is None else f"{row['given_count']} × the label, "
    answers = row["answers"] or ("nothing else" if row["given_count"] else "no answer")
    return f"of {row['rollouts']} rollouts {given}{answers}"


def _relabelled(prompt: Prompt, row: Row) -> Prompt:
    """Return the prompt with its label after the audit.

    - If the verdict changes or adds a label, the new label is the verdict's proposal.
    - Otherwise it is the label that was audited.
    - If no label was audited, the prompt keeps its own. If this is the sentinel, a label that no answer matches, the
      prompt's noise type becomes ``inactive``.

    `_with_noise_types` updates the noise types of all other prompts.
    """
    label = (
        row["proposed_label"]
        if row["change"] in ("changed", "added")
        else row["given_label"]
    )
    if label is None:
        # Keep the sentinel, as inactive noise: no new noisy label can be drawn for this prompt any more.
        return (
            replace(prompt, noise_type="inactive")
            if prompt.given_label == SENTINEL
            else prompt
        )
    return replace(prompt, given_label=label)


def _with_noise_types(
    prompts: list[Prompt], old: tuple[Prompt, ...], judge: Judge
) -> list[Prompt]:
    """Return the prompts with noise types that fit their new labels.

    A noise type changes only if the prompt's label differs from that in `old`, and its true answer is stored. It
    becomes ``clean`` if the new label is right. Otherwise it becomes ``active_frozen``, the noise type of a wrong label
    that stays the same at every visit.
    """
    changed = [
        after.given_label if after.given_label != before.given_label else None
        for after, before in zip(prompts, old, strict=True)
    ]
    truths = asked_truths(prompts, [prompt.true_answer for prompt in prompts])
    right = is_right(changed, truths, judge)
    return [
        prompt
        # NaN: the label stays, or there is no stored true answer to compare it with. Then the marks stay too.
        if np.isnan(verdict)
        else replace(prompt, noise_type="clean" if verdict else "active_frozen")
        for prompt, verdict in zip(prompts, right, strict=True)
    ]


def _with_columns(data: PromptSet, rows: Sequence[Row | None], choice: Choice) -> Any:
    columns = [_columns(row) for row in rows]
    dtypes = {"audit_rank": pa.int64(), "audit_confidence": pa.float64()}
    fields = {
        name: pa.array([row[name] for row in columns], dtypes.get(name, pa.string()))
        for name in columns[0]
    }
    table = with_fields_of(data.table, "extra_info", fields)
    if not choice.is_to_check:
        return table
    # The input may be an earlier export, which has the column already.
    table = table.select([name for name in table.column_names if name != "drawn"])
    drawn = pa.array([choice.random is not None] * len(table))
    return table.append_column("drawn", drawn)


def _columns(row: Row | None) -> dict[str, Any]:
    verdict = row or {"status": UNJUDGED, "change": "kept"}
    confidence = verdict.get(
        "proposal_confidence" if verdict["change"] == "added" else "confidence"
    )
    return {
        "audit_status": verdict["status"],
        "audit_rank": verdict.get("rank"),
        "audit_change": verdict["change"],
        "audit_confidence": None if confidence is None else round(float(confidence), 6),
        "audit_given_label": verdict.get("given_label"),
        "audit_evidence": UNVISITED if row is None else evidence(row),
    }
