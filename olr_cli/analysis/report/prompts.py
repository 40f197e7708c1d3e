"""The list of prompts for the page's script: the audit's verdict on each label, its question and a few responses."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from shlex import quote
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
import polars as pl

from olr_cli.analysis.arms import Arm, find_runs
from olr_cli.analysis.audit.audit import Audit, audit, audit_history
from olr_cli.analysis.audit.calibration import asked_truths, is_right
from olr_cli.analysis.audit.export import evidence
from olr_cli.analysis.audit.tally import Tally
from olr_cli.analysis.histories import RolloutHistory
from olr_cli.analysis.report import texts
from olr_cli.analysis.report.prompt_histories import (
    Array,
    PromptHistories,
    histories_of_log,
    prompt_histories,
)
from olr_cli.answers import Judge
from olr_cli.data.log_files import natural
from olr_cli.data.prompts import NEVER_REWARDED, Prompt
from olr_cli.errors import UserError
from olr_cli.runs.stored import Run
from olr_cli.tables.html import element

MOST_RUNS = 10
"""Number of runs whose prompts can be browsed."""

MOST_PROMPTS = 5_000
"""Number of prompts of a run or log in the list: nobody reads more, and a longer page is slow."""

_SHOWN: Mapping[str, Callable[[Any], Any]] = {
    "status": str,
    "rank": lambda rank: rank,
    "confidence": lambda chance: None if chance is None else round(chance, 3),
    # Never shorten a given label: the reader may call it right, and the page then exports it as the verified answer.
    "given_label": lambda label: None if label == NEVER_REWARDED else label,
    "proposed_label": lambda label: label and texts.shortened(label),
    "proposal_confidence": lambda chance: None if chance is None else round(chance, 3),
    "change": str,
}
"""Columns of the verdicts in the list, each with the function that formats a value."""

_MOST_ANSWERS = 6

MOST_TEXT = 16_000_000
"""Characters of responses of all these runs, and as many of questions, for a page of some 10 MB."""

PROMPTS_A_BLOCK = 50
"""Number of prompts whose responses are unpacked together when one of them is opened."""

_NO_QUESTIONS = "The questions are not shown: the log has no column of prompts. An audit given the data set shows them."


@dataclass(frozen=True)
class Labels:
    """The prompts that the page lists, at most `MOST_PROMPTS`, and the audit's verdicts on their labels.

    `audited_labels` makes it for a run, `Labels.of` from an audit.
    """

    ids: Sequence[str]
    """At most `MOST_PROMPTS` ids, in natural order.

    They are the verified ones and the first of the queue or, without an audit, the first of all.
    """

    left_out: int
    """Number of all other prompts."""

    values: Mapping[str, list[Any]] | None
    """Column -> list with one value per prompt, null if there is none; None without an audit.

    - status and change: see `audit.verdicts`.
    - rank: position in the queue.
    - confidence: chance that the given label is wrong.
    - given_label: the audited label.
    - proposed_label and proposal_confidence: see `audit.verdicts`.
    - proposal_is_right: null if the true answer is unknown.
    - evidence: a sentence.
    - answers: see `_answers`.
    """

    questions: Mapping[str, tuple[str, str]]
    """Questions of the prompts, from `texts.asked`; empty without an audit, or if they are unknown."""

    notes: Sequence[str]
    """The audit's warnings, or why there is no audit."""

    @classmethod
    def of(cls, result: Audit, prompts: Mapping[str, Prompt], judge: Judge) -> Labels:
        """Choose the prompts that the page lists, and return them with the audit's verdicts.

        If there are more than `MOST_PROMPTS`, those with verified labels come first, then those with the most doubtful
        labels. `judge` compares the answers that the models prefer with stored true answers.
        """
        verdicts = result.prompts.sort("is_verified", descending=True, maintain_order=True)
        first = verdicts.head(MOST_PROMPTS).iter_rows(named=True)
        rows = sorted(first, key=lambda row: natural(row["prompt_id"]))
        ids = [row["prompt_id"] for row in rows]
        values: dict[str, list[Any]] = {
            name: [shown(row[name]) for row in rows] for name, shown in _SHOWN.items()
        }
        proposals = [row["proposed_label"] for row in rows]
        in_order = [prompts[name] for name in ids]
        truths = asked_truths(in_order, [prompt.true_answer for prompt in in_order])
        right = is_right(proposals, truths, judge)
        values["proposal_is_right"] = [
            None if np.isnan(verdict) else bool(verdict) for verdict in right
        ]
        values["evidence"] = [texts.shortened(evidence(row)) for row in rows]
        answers = _answers(result.tally, set(ids))
        values["answers"] = [answers.get(name) for name in ids]
        notes = [f"Audit: {warning}." for warning in result.warnings]
        questions = texts.asked(prompts[name] for name in ids if prompts[name].messages)
        return cls(ids, len(verdicts) - len(ids), values, questions, notes)


def audited_labels(run: Run, verified: Path | None = None) -> Labels:
    """Audit the labels of a run, as `olr audit RUN` does, and return the page's prompts with their verdicts.

    If the run cannot be audited, the result has the run's first prompts without verdicts, and a note that says why.

    Args:
        run: the run.
        verified: file of labels that people have verified, or None.

    Raises:
        UserError: the run cannot be audited, but there are verified labels.
    """
    try:
        history = audit_history(run.path, [])
        with history.judge() as judge:
            result = audit(history, judge, verified=[] if verified is None else [verified])
            return Labels.of(result, history.prompts, judge)
    except UserError as error:
        # A report can do without an audit, unless the user asked for one by naming verified labels.
        if verified is not None:
            raise
        ids = sorted(
            run.labels.select(pl.col("prompt_id").unique()).collect()["prompt_id"],
            key=natural,
        )
        shown = ids[:MOST_PROMPTS]
        return Labels(
            shown,
            len(ids) - len(shown),
            None,
            {},
            [f"The labels are not audited: {error}."],
        )


def _answers(tally: Tally, ids: Container[str]) -> dict[str, list[list[Any]]]:
    """Return prompt_id -> its most frequent answers, at most `_MOST_ANSWERS`; only for prompts in `ids`.

    An answer is a list ``[spelling, is it the label, count, counts by model]``. The counts by model are lists
    ``[model's number, count]``, the largest count first. If there is only one model, they are left empty.
    """
    wanted = [
        prompt_number for prompt_number, name in enumerate(tally.prompt_ids) if name in ids
    ]
    counts = (
        tally.counts.filter(pl.col("prompt").is_in(wanted))
        .group_by("answer")
        .agg(
            pl.col("count").sum(),
            by=pl.concat_list("model", "count").sort_by("count", descending=True),
        )
    )
    numbers = pl.int_range(pl.len(), dtype=pl.Int64).alias("answer")
    rows = (
        tally.answers.with_columns(numbers)
        .join(counts, on="answer")
        .sort("prompt", "count", "spelling", descending=[False, True, False])
        .group_by("prompt", maintain_order=True)
        .head(_MOST_ANSWERS)
    )
    answers: dict[str, list[list[Any]]] = {}
    for prompt, spelling, answer, count, by_model in rows.select(
        "prompt", "spelling", "answer", "count", "by"
    ).iter_rows():
        is_label = bool(answer == tally.label_answers[prompt])
        entry = [
            texts.shortened(spelling),
            is_label,
            count,
            by_model if len(tally.models) > 1 else [],
        ]
        answers.setdefault(tally.prompt_ids[prompt], []).append(entry)
    return answers


def prompt_list(
    arms: Sequence[Arm], verified: Path | None = None
) -> tuple[list[Element], list[Element], list[str]]:
    """Build the page's list of prompts, for at most `MOST_RUNS` runs.

    If there are more runs, they are chosen so that the first seed of each arm comes before second seeds. `verified` is
    a file of labels that people have verified, for the audits.

    Returns:
        An ``option`` element per run, by which a reader chooses the run whose prompts are listed.
        The elements that hold the data.
        Sentences on runs and prompts left out.
    """
    runs = [(arm.name, run) for arm in arms for run in arm.runs]
    by_seed = [
        run
        for seeds in zip_longest(*(arm.runs for arm in arms))
        for run in seeds
        if run is not None
    ]
    # The page keeps the order of arms and seeds; `by_seed` only decides which runs are in it.
    chosen = {run.path for run in by_seed[:MOST_RUNS]}
    shown = [(name, run) for name, run in runs if run.path in chosen]
    notes, options, data = [], [], []
    if len(runs) > len(shown):
        names = ", ".join(f"{name} (seed {run.seed})" for name, run in shown)
        notes.append(
            f"Prompts can be browsed of {len(shown)} of {len(runs):,} runs: {names}."
        )
    for number, (name, run) in enumerate(shown):
        options.append(element("option", f"{name}, seed {run.seed}", value=str(number)))
        labels, command = audited_labels(run, verified), f"olr audit {quote(str(run.path))}"
        facts = {
            "order": "id",
            "command": command,
            "models": [],
            "auditNotes": labels.notes,
        }
        data += _run_data(f"run{number}", run, labels, MOST_TEXT // len(shown), facts)
        notes += _left_out(labels, run.path, command)
    return options, data, notes


def _left_out(labels: Labels, source: Path, command: str) -> Iterator[str]:
    if labels.left_out:
        size = len(labels.ids)
        which = (
            f"{size:,} most doubtful" if labels.values is not None else f"first {size:,}"
        )
        yield (
            f"The list shows the {which} of {size + labels.left_out:,} prompts of {source}; to draw from all at random:"
            f" {command} --random 50 --export draw.jsonl."
        )


def audit_data(
    history: RolloutHistory,
    result: Audit,
    judge: Judge,
    responses: pl.DataFrame | None,
    command: str,
) -> tuple[list[Element], list[str]]:
    """Build the page's list of an audit's prompts, which the page shows with the most doubtful label first.

    Args:
        history: the audited history.
        result: the audit.
        judge: compares the answers that the models prefer with stored true answers.
        responses: a log's responses (`texts.Sampled`), or None without any; those of a run are read from its shards.
        command: the audit's command, shown to the reader.

    Returns:
        The elements that hold the data, and sentences on prompts left out.
    """
    labels = Labels.of(result, history.prompts, judge)
    notes = [*_left_out(labels, history.source, command)]
    facts = {
        "order": "wrong",
        "command": command,
        "models": result.tally.models if len(result.tally.models) > 1 else [],
        "auditNotes": [],
    }
    if history.is_run:
        (run,) = find_runs([history.source])
        return _run_data("run0", run, labels, MOST_TEXT, facts), notes
    histories = histories_of_log(history, labels.ids)
    facts |= {
        "run": str(history.source),
        "questionsNote": "" if labels.questions else _NO_QUESTIONS,
    }
    by_prompt, longest = (
        ([], 0) if responses is None else texts.by_prompt(responses, labels.ids, MOST_TEXT)
    )
    facts["responsesNote"] = (
        f"At most {2 * texts.SAMPLES} responses to a prompt are in this file, cut to {longest:,} characters."
        if by_prompt
        else "The log has answers and no responses."
    )
    elements = _elements(
        "run0",
        histories,
        facts,
        labels,
        questions=labels.questions,
        by_prompt=by_prompt,
        budget=MOST_TEXT,
    )
    return elements, notes


def _run_data(
    prefix: str, run: Run, labels: Labels, budget: int, facts: Mapping[str, Any]
) -> list[Element]:
    histories = prompt_histories(run, labels.ids)
    questions, why_none = (
        (labels.questions, "") if labels.questions else texts.questions(run.path)
    )
    responses = texts.read_responses(run.path, histories.ends)
    # First and last visits are always included, the visits between them only if all of them fit.
    middle = texts.affordable(histories.middle, responses, budget)
    if not middle.is_empty():
        responses = pl.concat([responses, texts.read_responses(run.path, middle)]).sort(
            texts.ORDER
        )
    by_prompt, longest = texts.by_prompt(responses, labels.ids, budget)
    facts = {
        "run": str(run.path),
        "questionsNote": why_none,
        "responsesNote": f"At most {texts.SAMPLES} responses of a visit are in this file, of"
        f" {responses['visit'].n_unique()} of {histories.header['visits']} visits, cut to {longest:,} characters.",
        **facts,
    }
    return _elements(
        prefix,
        histories,
        facts,
        labels,
        questions=questions,
        by_prompt=by_prompt,
        budget=budget,
    )


def _elements(
    prefix: str,
    histories: PromptHistories,
    facts: Mapping[str, Any],
    labels: Labels,
    *,
    questions: Mapping[str, tuple[str, str]],
    by_prompt: Sequence[Any],
    budget: int,
) -> list[Element]:
    """Return the elements that hold the data of one list of prompts, for the page's script.

    Args:
        prefix: beginning of the elements' names.
        histories: the prompts and their visits.
        facts: further values to put into the header that the script reads, by name.
        labels: the audit's verdicts.
        questions: prompt_id -> the question, and the prompt's other messages as one text; empty if unknown.
        by_prompt: for each prompt its responses, from `texts.by_prompt`; empty if there are none.
        budget: largest number of characters of all questions; long questions are cut to keep within it.
    """
    header = {
        **histories.header,
        **facts,
        "isPart": labels.left_out > 0,
        "arrays": list(histories.arrays),
        "questions": texts.cut_questions(questions, histories.header["ids"], budget)
        if questions
        else None,
        "promptsABlock": PROMPTS_A_BLOCK,
    }
    return [
        json_data(f"{prefix}-header", header),
        json_data(f"{prefix}-audit", labels.values),
        *(
            array_data(f"{prefix}-{name}", values)
            for name, values in histories.arrays.items()
        ),
        *(
            json_data(
                f"{prefix}-responses-{start // PROMPTS_A_BLOCK}",
                by_prompt[start : start + PROMPTS_A_BLOCK],
            )
            for start in range(0, len(by_prompt), PROMPTS_A_BLOCK)
        ),
    ]


def json_data(name: str, value: Any) -> Element:
    """Return an element that holds a JSON value, which the page's script can ask for by `name`."""
    return _data(
        name,
        "json",
        json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii"),
    )


def array_data(name: str, values: Array) -> Element:
    """Return an element that holds an array of whole numbers from 0, which the page's script can ask for by `name`.

    The numbers are little-endian, in the smallest of 8, 16 and 32 bits that holds all of them.
    """
    size = np.min_scalar_type(int(values.max(initial=0))).itemsize
    # `min_scalar_type` chooses from the largest value: most arrays fit into 8 bits.
    return _data(name, f"u{8 * size}", values.astype(f"<u{size}").tobytes())


def _data(name: str, kind: str, content: bytes) -> Element:
    """Return an inert ``script`` element that holds compressed bytes: base64 (RFC 4648) of a zlib stream (RFC 1950).

    `name` is its id; `kind` tells the page's script how to read the bytes, as ``json`` or as numbers (``u8``).
    """
    packed = base64.b64encode(zlib.compress(content)).decode("ascii")
    return element("script", packed, type="text/plain", id=name, data_kind=kind)
