"""The list of prompts, for the page's script: what an audit says of each label, every prompt's history as arrays, its
question and a few responses.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from shlex import quote
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olr_cli.analysis.arms import Arm, find_runs
from olr_cli.analysis.audit.audit import Audit, audit, audit_history
from olr_cli.analysis.audit.calibration import asked_truths, is_right
from olr_cli.analysis.audit.export import evidence
from olr_cli.analysis.audit.tally import Tally
from olr_cli.analysis.histories import RolloutHistory
from olr_cli.analysis.report import texts
from olr_cli.analysis.report.words import GIVEN, NO_MAJORITY, OTHER, RIGHT, SOURCES, WRONG_LABEL
from olr_cli.answers import Judge
from olr_cli.data.logs import natural
from olr_cli.data.prompts import NEVER_REWARDED, SENTINEL, Prompt
from olr_cli.errors import UserError
from olr_cli.runs.stored import Run
from olr_cli.tables.html import element

Array = NDArray[Any]

MOST_RUNS = 10
"""Runs whose prompts can be browsed."""

MOST_PROMPTS = 5_000
"""Prompts of a run or log that the list shows: nobody reads more, and a page of more is slow."""

_SHOWN = (
    "status",
    "rank",
    "confidence",
    "given_label",
    "proposed_label",
    "proposal_confidence",
    "change",
)
_MOST_ANSWERS = 6

MOST_TEXT = 16_000_000
"""Characters of responses of all these runs, and as many of questions: a page of some 10 MB."""

PROMPTS_A_BLOCK = 50
"""Responses are unpacked when a prompt is opened, those of so many prompts at once."""

_NO_QUESTIONS = "The questions are not shown: the log has no column of prompts. An audit given the data set shows them."

_ANSWERS = ("true_answer", "given_label", "majority_answer", "effective_label")
_COLUMNS = (
    *(
        "prompt_id",
        "visit",
        "step",
        "noise_type",
        "given_label_count",
        "majority_count",
        "rollouts",
    ),
    *(
        "label_source",
        "majority_is_correct",
        "majority_is_noisy_label",
        "effective_label_is_correct",
    ),
    *_ANSWERS,
)


@dataclass(frozen=True)
class Labels:
    """The prompts that the list shows, and what an audit says of their labels.

    Attributes:
        ids: at most `MOST_PROMPTS`, in natural order: verified ones and the first of the queue, or, where there is no
            audit, the first of all.
        left_out: number of all others.
        values: lists with a value a prompt, null where there is none: status, rank (place in the queue), confidence
            (that the given label is wrong), given_label (the label that was audited), proposed_label,
            proposal_confidence, change, proposal_is_right (where the truth is known), evidence (a sentence) and answers
            (`_answers`). None where there is no audit.
        questions: of the prompts, as `texts.asked`; none where there is no audit, or nobody knows them.
        notes: the audit's warnings, or why there is none.
    """

    ids: Sequence[str]
    left_out: int
    values: Mapping[str, list[Any]] | None
    questions: Mapping[str, tuple[str, str]]
    notes: Sequence[str]

    @classmethod
    def of(cls, result: Audit, prompts: Mapping[str, Prompt], judge: Judge) -> Labels:
        """The prompts that an audit doubts most, with its verdicts."""
        first = result.prompts.sort("is_verified", descending=True, maintain_order=True).head(
            MOST_PROMPTS
        )
        rows = {row["prompt_id"]: row for row in first.iter_rows(named=True)}
        ids = sorted(rows, key=natural)
        values: dict[str, list[Any]] = {
            name: [rows[prompt][name] for prompt in ids] for name in _SHOWN
        }
        in_order = [prompts[name] for name in ids]
        truths = asked_truths(in_order, [prompt.true_answer for prompt in in_order])
        right = is_right(values["proposed_label"], truths, judge)
        for name in ("confidence", "proposal_confidence"):
            values[name] = [
                None if value is None else round(value, 3) for value in values[name]
            ]
        # The given label is never cut: it may be exported as verified.
        values["given_label"] = [
            None if label == NEVER_REWARDED else label for label in values["given_label"]
        ]
        values["proposed_label"] = [
            text and texts.shortened(text) for text in values["proposed_label"]
        ]
        values["proposal_is_right"] = [
            None if np.isnan(verdict) else bool(verdict) for verdict in right
        ]
        values["evidence"] = [texts.shortened(evidence(rows[name])) for name in ids]
        answers = _answers(result.tally, set(ids))
        values["answers"] = [answers.get(name) for name in ids]
        notes = [f"Audit: {warning}." for warning in result.warnings]
        questions = texts.asked(prompts[name] for name in ids if prompts[name].messages)
        return cls(ids, len(result.prompts) - len(ids), values, questions, notes)


def audited_labels(run: Run, verified: Path | None = None) -> Labels:
    """The audit of a run (`olr audit RUN`, with `--verified` if there is such a file)."""
    try:
        history = audit_history(run.path, [])
        with Judge(
            ledger=history.given_up, keep=False, tolerance=history.recipe.data.tolerance
        ) as judge:
            found = audit(history, judge, verified=[] if verified is None else [verified])
            return Labels.of(found, history.prompts, judge)
    except UserError as error:
        if verified is not None:
            raise
        ids = sorted(
            run.labels.select(pl.col("prompt_id").unique()).collect()["prompt_id"], key=natural
        )
        shown = ids[:MOST_PROMPTS]
        return Labels(
            shown, len(ids) - len(shown), None, {}, [f"The labels are not audited: {error}."]
        )


def _answers(tally: Tally, ids: Container[str]) -> dict[str, list[list[Any]]]:
    """prompt_id -> answers, the most frequent first: ``[spelling, is it the label's, count, counts by model]``.

    Of several models a count is ``[model's number, count]``, of a single one there is none.
    """
    wanted = [place for place, name in enumerate(tally.prompt_ids) if name in ids]
    counts = (
        tally.counts.filter(pl.col("prompt").is_in(wanted))
        .group_by("answer")
        .agg(
            pl.col("count").sum(),
            by=pl.concat_list("model", "count").sort_by("count", descending=True),
        )
    )
    places = pl.int_range(pl.len(), dtype=pl.Int64).alias("answer")
    rows = (
        tally.answers.with_columns(places)
        .join(counts, on="answer")
        .sort("prompt", "count", "spelling", descending=[False, True, False])
        .group_by("prompt", maintain_order=True)
        .head(_MOST_ANSWERS)
    )
    answers: dict[str, list[list[Any]]] = {}
    for prompt, spelling, answer, count, by in rows.select(
        "prompt", "spelling", "answer", "count", "by"
    ).iter_rows():
        is_label = bool(answer == tally.label_answers[prompt])
        known = [
            texts.shortened(spelling),
            is_label,
            count,
            by if len(tally.models) > 1 else [],
        ]
        answers.setdefault(tally.prompt_ids[prompt], []).append(known)
    return answers


def prompt_list(
    arms: Sequence[Arm], verified: Path | None = None
) -> tuple[list[Element], list[Element], list[str]]:
    """The list of prompts of `MOST_RUNS` runs, the first seed of each arm before further seeds.

    `verified` is a file of verified labels.

    Returns:
        An ``option`` element a run, the elements that hold the data, and sentences on what is left out.
    """
    runs = [(arm.name, run) for arm in arms for run in arm.runs]
    by_seed = [
        run
        for seeds in zip_longest(*(arm.runs for arm in arms))
        for run in seeds
        if run is not None
    ]
    chosen = {run.path for run in by_seed[:MOST_RUNS]}
    shown = [(name, run) for name, run in runs if run.path in chosen]
    notes, options, data = [], [], []
    if len(runs) > len(shown):
        names = ", ".join(f"{name} (seed {run.seed})" for name, run in shown)
        notes.append(f"Prompts can be browsed of {len(shown)} of {len(runs):,} runs: {names}.")
    for number, (name, run) in enumerate(shown):
        options.append(element("option", f"{name}, seed {run.seed}", value=str(number)))
        labels, command = audited_labels(run, verified), f"olr audit {quote(str(run.path))}"
        facts = {"order": "id", "command": command, "models": [], "auditNotes": labels.notes}
        data += _run_data(f"run{number}", run, labels, MOST_TEXT // len(shown), facts)
        notes += _left_out(labels, run.path, command)
    return options, data, notes


def _left_out(labels: Labels, source: Path, command: str) -> Iterator[str]:
    if labels.left_out:
        size = len(labels.ids)
        which = f"{size:,} most doubtful" if labels.values is not None else f"first {size:,}"
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
    """The list of an audit's prompts, as the queue; `responses`: of a log, as `texts.Sampled` keeps them.

    Returns:
        The elements that hold the data, and sentences on what is left out.
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
    histories = _of_log(history, labels.ids)
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
    return _elements(
        "run0", histories, facts, labels, labels.questions, by_prompt, MOST_TEXT
    ), notes


def _run_data(
    prefix: str, run: Run, labels: Labels, budget: int, facts: Mapping[str, Any]
) -> list[Element]:
    histories = prompt_histories(run, labels.ids)
    questions, why_none = (
        (labels.questions, "") if labels.questions else texts.questions(run.path)
    )
    responses = texts.read_responses(run.path, histories.ends)
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
    return _elements(prefix, histories, facts, labels, questions, by_prompt, budget)


def _elements(
    prefix: str,
    histories: PromptHistories,
    facts: Mapping[str, Any],
    labels: Labels,
    questions: Mapping[str, tuple[str, str]],
    by_prompt: Sequence[Any],
    budget: int,
) -> list[Element]:
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
        *(array_data(f"{prefix}-{name}", values) for name, values in histories.arrays.items()),
        *(
            json_data(
                f"{prefix}-responses-{start // PROMPTS_A_BLOCK}",
                by_prompt[start : start + PROMPTS_A_BLOCK],
            )
            for start in range(0, len(by_prompt), PROMPTS_A_BLOCK)
        ),
    ]


def json_data(name: str, value: Any) -> Element:
    """Any JSON value, as data that the page's script can ask for by name."""
    return _data(
        name, "json", json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")
    )


def array_data(name: str, values: Array) -> Element:
    """Whole numbers from 0, in the smallest of 8, 16 and 32 bits that holds them all, little-endian."""
    size = np.min_scalar_type(int(values.max(initial=0))).itemsize
    return _data(name, f"u{8 * size}", values.astype(f"<u{size}").tobytes())


def _data(name: str, kind: str, content: bytes) -> Element:
    """An inert ``script`` element: base64 (RFC 4648) of a zlib stream (RFC 1950)."""
    packed = base64.b64encode(zlib.compress(content)).decode("ascii")
    return element("script", packed, type="text/plain", id=name, data_kind=kind)


@dataclass(frozen=True)
class PromptHistories:
    """The prompts of a run.

    Attributes:
        header: JSON values: ids (P of them, in natural order), visits (V, the largest number of visits of any prompt),
            rollouts (K), strings (every answer and label once, long ones cut; the first stands for none), sentinel (its
            place among the strings, or -1), noiseTypes (the empty one stands for unknown) and sources.
        arrays: a value a prompt, shape (P,): noise (index into noiseTypes), given, true (into strings), last (visits
            made), label_right (of the last label: 0 unknown, 1 wrong, 2 right); a value a visit, prompt by prompt,
            shape (P V,): kind, votes, majority, label (into strings), source (into sources).
        ends: columns prompt_id, visit, step: first and last visit of every prompt.
        middle: the same columns: all other visits.
    """

    header: dict[str, Any]
    arrays: dict[str, Array]
    ends: pl.DataFrame
    middle: pl.DataFrame


def prompt_histories(run: Run, ids: Sequence[str]) -> PromptHistories:
    """The histories of some prompts of a run."""
    labels = run.labels.select(_COLUMNS).filter(pl.col("prompt_id").is_in(ids))
    rows = labels.with_columns(_kind().alias("kind")).collect()
    visits = int(rows["visit"].max())  # type: ignore[arg-type]  # of a column that is not empty
    prompt = rows["prompt_id"].cast(pl.Enum(ids)).to_physical().to_numpy().astype(np.int64)
    visit = rows["visit"].to_numpy()
    last = np.zeros(len(ids), dtype=np.int64)
    np.maximum.at(last, prompt, visit)
    final = visit == last[prompt]
    visits_made, is_end = (
        rows.select("prompt_id", "visit", "step"),
        pl.Series(final) | (rows["visit"] == 1),
    )
    strings = ["", *sorted({text for name in _ANSWERS for text in rows[name].unique() if text})]
    noise_types = rows["noise_type"].fill_null("").unique().sort().to_list()

    def of_prompts(values: pl.Series) -> Array:
        filled = np.zeros(len(ids), dtype=np.int64)
        filled[prompt[final]] = values.to_numpy()[final]
        return filled

    def of_visits(values: pl.Series) -> Array:
        filled = np.zeros(len(ids) * visits, dtype=np.int64)
        filled[prompt * visits + visit - 1] = values.to_numpy()
        return filled

    return PromptHistories(
        header={
            "ids": ids,
            "visits": visits,
            "rollouts": rows["rollouts"].max(),
            "strings": [*map(texts.shortened, strings)],
            "sentinel": strings.index(SENTINEL) if SENTINEL in strings else -1,
            "noiseTypes": noise_types,
            "sources": ["", *SOURCES],
        },
        arrays={
            "noise": of_prompts(_codes(rows["noise_type"].fill_null(""), noise_types)),
            "given": of_prompts(_codes(rows["given_label"], strings)),
            "true": of_prompts(_codes(rows["true_answer"], strings)),
            "last": last,
            "label_right": of_prompts(
                (rows["effective_label_is_correct"].cast(pl.Int64) + 1).fill_null(0)
            ),
            "kind": of_visits(rows["kind"]),
            "votes": of_visits(rows["majority_count"]),
            "majority": of_visits(_codes(rows["majority_answer"], strings)),
            "label": of_visits(_codes(rows["effective_label"], strings)),
            "source": of_visits(_codes(rows["label_source"], SOURCES) + 1),
        },
        ends=visits_made.filter(is_end),
        middle=visits_made.filter(~is_end),
    )


def _of_log(history: RolloutHistory, ids: Sequence[str]) -> PromptHistories:
    """Prompts of a log, of which no label was ever decided: only their true answers, if known."""
    truths = [history.prompts[name].true_answer or "" for name in ids]
    strings = ["", *sorted(set(truths) - {""})]
    places = {text: place for place, text in enumerate(strings)}
    header = {
        "ids": ids,
        "visits": 0,
        "rollouts": None,
        "strings": [*map(texts.shortened, strings)],
        "sentinel": -1,
        "noiseTypes": [""],
        "sources": [""],
    }
    nobody = pl.DataFrame()
    return PromptHistories(
        header, {"true": np.array([places[text] for text in truths])}, nobody, nobody
    )


def _kind() -> pl.Expr:
    # The majority is the one class with the most rollouts (R9): a label that as many match is the majority.
    is_given = pl.col("given_label").is_not_null() & (
        pl.col("given_label_count") >= pl.col("majority_count")
    )
    right = pl.col("majority_is_correct").cast(pl.Boolean)
    is_noise = pl.col("majority_is_noisy_label").cast(pl.Boolean).fill_null(value=False)
    return (
        pl.when(pl.col("majority_count") == 0)
        .then(NO_MAJORITY)
        .when(right.fill_null(value=False))
        .then(RIGHT)
        .when(is_noise | (is_given & right.is_not_null()))
        .then(WRONG_LABEL)
        .when(is_given)
        .then(GIVEN)
        .otherwise(OTHER)
    )


def _codes(values: pl.Series, among: Sequence[str]) -> pl.Series:
    """The place of each value among others; null is 0."""
    return values.cast(pl.Enum(among)).to_physical().cast(pl.Int64).fill_null(0)
