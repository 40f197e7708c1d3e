"""`olr show`: the prompts of a run, a log or an evaluation on a line each, or one of them in full.

A run has its own label decisions. A log and an evaluation have given labels only; their votes are counted here, by the
supervisor of plain GRPO.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from olr_cli.analysis.audit.evaluations import (
    evaluations_among,
    evaluations_history,
    is_of_evaluations,
)
from olr_cli.analysis.histories import RolloutHistory, read_history, with_questions
from olr_cli.analysis.replay import label_tables
from olr_cli.answers import Judge
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.log_files import natural
from olr_cli.data.logs import Report, silent
from olr_cli.data.prompts import Prompt
from olr_cli.data.questions import question_of
from olr_cli.errors import UserError
from olr_cli.runs.store import read_rollout_steps, scan_labels
from olr_cli.supervision.metrics import MAJORITY_DIFFERS
from olr_cli.tables import NOTHING, Answer, Block, Cell, Column, Line, Row, Table
from olr_cli.tables.answer import one_line

_VISIT = (
    "visit",
    "step",
    "effective_label",
    "label_source",
    "majority_answer",
    "majority_count",
    "answered",
    "rollouts",
    "slope",
    "effective_label_is_correct",
    "majority_is_correct",
)
_OF_PROMPTS = ("prompt_id", "given_label_count", *_VISIT)
"""What the list of prompts reads of a run's labels; `MAJORITY_DIFFERS` needs the count."""

_RESPONSE = (
    "visit",
    "sample",
    "view",
    "model",
    "answer",
    "reward",
    "tokens",
    "truncated",
    "response",
)
_INDENT = 14
_WIDTHS = {"prompt": 22, "label": 14, "majority": 14}
"""Widths of text columns in a terminal of 80 characters."""

_QUESTION = 76
_NAMED = 5
"""Number of prompts that an error names."""

_TEXTS = (*_WIDTHS, "from", "label is")

_VERDICTS = {True: "right", False: "wrong", None: "undecided"}
_STYLES = {"right": "green", "wrong": "red"}


def read_shown(
    places: Sequence[Path],
    settings: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    benchmark: str | None = None,
    report: Report = silent,
) -> RolloutHistory:
    """Read the history that `olr show` prints, with the questions of its prompts.

    Unless the settings name a method, the history is read under GRPO, which replaces no label, so that the given labels
    are shown.

    Args:
        places: a run directory, the files or folders of a log, or folders of evaluations.
        settings: texts ``KEY=VALUE`` applied to the recipe by which the history is read, such as
            ``data.extractor=last_number``.
        columns: for a log, olr's name of a column -> its name in the files.
        benchmark: name of the benchmark to show; for evaluations only, and None if they have only one.
        report: called with the progress of reading.
    """
    # GRPO never replaces a label, so the given one is shown with the votes on it. A later setting may name another
    # method.
    as_given = ["method.name=grpo", *settings]
    if stores := evaluations_among(places, columns, benchmark):
        return _with_one_visit(
            evaluations_history(stores, benchmark, as_given, keeps_responses=True)
        )
    history = read_history(places, as_given, columns, keeps_responses=True, report=report)
    if not history.is_run:
        return _with_one_visit(history)
    return replace(history, prompts=with_questions(history.prompts, history.source)[0])


def _with_one_visit(history: RolloutHistory) -> RolloutHistory:
    """Put all rollouts of a log of several models into visit 1, so that all models' answers to a prompt vote together.

    Votes are counted per visit. A log of several models has the column ``model``; without it, the visits stay as they
    are. The steps of the result are always a list, even if those of `history` can be read only once.
    """
    steps = list(history.steps)
    if not any("model" in rows.columns for rows in steps):
        return replace(history, steps=steps)
    rows = pl.concat(steps)
    once = {name: pl.lit(1, dtype=rows.schema[name]) for name in ("visit", "step")}
    return replace(history, steps=[rows.with_columns(**once)])


def find_prompt(prompts: Mapping[str, Prompt], text: str) -> Prompt:
    """Return the prompt that a text identifies.

    If the text is an id, it is the prompt with this id. Otherwise it is the only prompt with the text in its id. If no
    id has the text, it is the only prompt with the text in its question; upper and lower case are the same there.

    Raises:
        UserError: no prompt has the text, or several have.
    """
    if text in prompts:
        return prompts[text]
    matches = [name for name in prompts if text in name] or [
        name
        for name, prompt in prompts.items()
        if text.casefold() in question_of(prompt.messages).casefold()
    ]
    if len(matches) == 1:
        return prompts[matches[0]]
    if not matches:
        raise UserError(
            f"no prompt has {text!r} in its id or question",
            "without a prompt the command lists them",
        )
    names = ", ".join(sorted(matches, key=natural)[:_NAMED])
    raise UserError(
        f"{len(matches):,} prompts have {text!r} in their id or question: {names}"
        + ", …" * (len(matches) > _NAMED),
        "name one by its id",
    )


# The prompts, a line each -----------------------------------------------------------------------------------------


def prompts_answer(
    history: RolloutHistory,
    judge: Judge,
    *,
    words: Sequence[str],
    only_wrong: bool,
    visit: int | None,
    top: int,
) -> Answer:
    """Return the list of prompts that `olr show` prints. Each row has a prompt's label and its votes at one visit.

    The rows are sorted by prompt_id.

    Args:
        history: result of `read_shown`.
        judge: compares answers, to count the votes in a log. A run stores its votes.
        words: the `olr show` command as words, with the history and the options that say how it is read.
        only_wrong: whether to list only prompts whose label is wrong or, if the true answer is unknown, contradicted by
            the majority.
        visit: number of the visit, from 1; None for the last of each prompt.
        top: number of rows that a terminal shows.
    """
    labels = _labels_of(history, judge, visit)
    if only_wrong:
        labels = labels.filter(_is_wrong(history))
    rows = {row["prompt_id"]: row for row in labels.select("prompt_id", *_VISIT).to_dicts()}
    names = sorted(rows, key=natural)
    if not names:
        sentence = f"0 of {len(history.prompts):,} prompts{_wrong_kind(history)}."
        return Answer([Line(None, sentence)], {"prompts": []}, history.notes)
    sentence = f"{len(names):,} of {len(history.prompts):,} prompts"
    sentence += _wrong_kind(history) if only_wrong else ""
    sentence += f"; the first {top:,} are shown." if len(names) > top else "."
    questions = [question_of(history.prompts[name].messages) for name in names[:top]]
    notes = [one_line(question, _QUESTION) if question else "" for question in questions]
    block = _block([_prompt_cells(rows[name]) for name in names[:top]], notes)
    in_order = [rows[name] for name in names]
    command = shlex.join([*words, names[0], *["--wrong"] * only_wrong])
    return Answer(
        [Table([block], in_order), Line(None, sentence, is_wrapped=True)],
        {"prompts": in_order},
        history.notes,
        next={command: "its responses"},
    )


def _labels_of(history: RolloutHistory, judge: Judge, visit: int | None) -> pl.DataFrame:
    """Return the decisions on the prompts' labels at one visit, one row per prompt.

    The columns are those of a run's labels table. `visit` is the number of the visit, from 1. With None it is each
    prompt's last visit.

    Raises:
        UserError: no prompt has such a visit.
    """
    labels = (
        scan_labels(history.source).select(_OF_PROMPTS).collect()
        if history.is_run
        else pl.concat(label_tables(history, judge))
    )
    if visit is None:
        # Rows are in the order of visits within each prompt.
        return labels.group_by("prompt_id").last()
    of_visit = labels.filter(pl.col("visit") == visit)
    if of_visit.is_empty():
        raise _no_visit(labels, "every prompt")
    return of_visit


def _is_wrong(history: RolloutHistory) -> pl.Expr:
    """Build the expression for whether a row's label is wrong.

    - If the true answer is known, it decides.
    - Otherwise the label is wrong if the majority gave another answer and has not replaced the label.
    - Without true answer and majority (a tie, or no answers), the label counts as right, except in an evaluation. There
      it counts as wrong, as in the score maj@n (majority vote over n samples).
    """
    # Without a majority `MAJORITY_DIFFERS` is null.
    differs = MAJORITY_DIFFERS.fill_null(value=is_of_evaluations(history))
    is_replaced = pl.col("label_source") == "majority"
    return (
        pl.when(pl.col("effective_label_is_correct").is_not_null())
        .then(~pl.col("effective_label_is_correct"))
        .otherwise(differs & ~is_replaced)
    )


def _wrong_kind(history: RolloutHistory) -> str:
    if is_of_evaluations(history):
        return " are not solved by the majority of their samples"
    if any(prompt.true_answer is not None for prompt in history.prompts.values()):
        return " have a wrong label"
    return " have a label that the majority contradicts"


def _prompt_cells(row: Mapping[str, Any]) -> dict[str, str | Cell]:
    return {
        "prompt": _text("prompt", row["prompt_id"]),
        "label": _text("label", _label(row["effective_label"])),
        **_vote(row),
        "label is": _truth(row),
    }


def _text(head: str, text: str | None) -> Cell:
    return Cell(one_line(text), "text", short=one_line(text, _WIDTHS[head]))


def _vote(row: Mapping[str, Any]) -> dict[str, str | Cell]:
    is_tied = row["majority_answer"] is None and row["answered"] > 0
    count = NOTHING if is_tied else str(row["majority_count"])
    return {
        "majority": _text("majority", "a tie" if is_tied else row["majority_answer"]),
        "votes": f"{count} of {row['rollouts']}",
    }


def _truth(row: Mapping[str, Any]) -> str:
    is_right = row["effective_label_is_correct"]
    return NOTHING if is_right is None else _VERDICTS[is_right]


def _block(rows: Sequence[Mapping[str, str | Cell]], notes: Sequence[str] = ()) -> Block:
    """Return a block of a table; columns without any known value are left out.

    Args:
        rows: one mapping per row, from heads of columns to cells.
        notes: texts to show below the rows, the n-th below the n-th row; an empty text is not shown.
    """
    heads = [head for head in rows[0] if any(row[head] != NOTHING for row in rows)]
    lines = []
    for index, row in enumerate(rows):
        lines.append(Row([row[head] for head in heads]))
        if index < len(notes) and notes[index]:
            lines.append(Row([notes[index]], "note"))
    return Block([Column(head, is_text=head in _TEXTS) for head in heads], lines)


# One prompt -------------------------------------------------------------------------------------------------------


def prompt_answer(
    history: RolloutHistory,
    judge: Judge,
    prompt: Prompt,
    *,
    words: Sequence[str],
    only_wrong: bool,
    visit: int | None,
) -> Answer:
    """Return what `olr show` prints about one prompt: question, labels, all visits' votes, and one visit's responses.

    A response is right if it matches the true answer or, if that is unknown, the label of the visit.

    Args:
        history: result of `read_shown`.
        judge: decides whether a response is right.
        prompt: a prompt of the history.
        words: the `olr show` command as words, with the history and the options that say how it is read.
        only_wrong: whether responses that are right are left out.
        visit: number of the visit whose responses are shown, from 1; None for the last.

    Raises:
        UserError: the prompt has no such visit.
    """
    visits, responses = _visits_and_responses(history, judge, prompt)
    numbers = visits["visit"].to_list()
    shown_visit = numbers[-1] if visit is None else visit
    if shown_visit not in numbers:
        raise _no_visit(visits, f"prompt {prompt.prompt_id}")
    label = visits.filter(pl.col("visit") == shown_visit)["effective_label"].item()
    of_visit = responses.filter(pl.col("visit") == shown_visit)
    gold = label if prompt.true_answer is None else prompt.true_answer
    verdicts = _verdicts(judge, prompt, gold, of_visit["answer"].to_list())
    source = "label" if prompt.true_answer is None else "true answer"
    criterion = (
        "" if gold in (None, SENTINEL) else f"; right or wrong by the {source} {gold}"
    )
    of_visit = of_visit.with_columns(verdict=pl.Series(verdicts, dtype=pl.String))
    if only_wrong:
        of_visit = of_visit.filter(pl.col("verdict") != "right")
    question = question_of(prompt.messages)
    result = {
        "prompt_id": prompt.prompt_id,
        "question": question or None,
        "given_label": prompt.given_label,
        "true_answer": prompt.true_answer,
        "noise_type": prompt.noise_type,
        "visits": visits.select(_VISIT),
        "visit": shown_visit,
        "responses": of_visit,
    }
    parts = [
        Line("Prompt", prompt.prompt_id),
        Line("Question", question or "not known here", is_wrapped=True),
        Line("Label", _labels_text(prompt)),
        "",
        Table([_block([_visit_cells(row) for row in visits.to_dicts()])]),
        "",
        Line(
            f"Visit {shown_visit}",
            f"{len(of_visit)} of {len(verdicts)} responses{criterion}",
        ),
        *_response_parts(of_visit),
    ]
    others = [number for number in numbers if number != shown_visit]
    commands = {}
    if others:
        command = shlex.join([*words, prompt.prompt_id, "--visit", str(others[-1])])
        commands[command] = "the responses of another visit"
    return Answer(parts, result, history.notes, next=commands, indent=_INDENT)


def _visits_and_responses(
    history: RolloutHistory, judge: Judge, prompt: Prompt
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return two frames about a prompt: its rows of the labels table, one per visit, and its responses at all visits.

    The labels table has the decision on the label at each visit. A log stores no decisions, so they are made here by
    the log's recipe. A response has the columns visit, sample, view, model, answer, reward, tokens, truncated and
    response, as far as they are known.
    """
    is_prompt = pl.col("prompt_id") == prompt.prompt_id
    if history.is_run:
        labels = scan_labels(history.source).filter(is_prompt).sort("visit").collect()
        steps = [
            *read_rollout_steps(
                history.source,
                [name for name in _RESPONSE if name != "model"],
                {*labels["step"]},
                pl.Series([prompt.prompt_id]),
            )
        ]
        return labels, pl.concat(steps)
    # A log stores no decisions: decide this prompt's visits alone, since votes never depend on other prompts.
    kept = [rows.filter(is_prompt) for rows in history.steps]
    steps = [rows for rows in kept if len(rows)]
    alone = replace(history, steps=steps, prompts={prompt.prompt_id: prompt})
    labels = pl.concat(label_tables(alone, judge))
    rows = pl.concat(steps)
    return labels, rows.select(name for name in _RESPONSE if name in rows.columns)


def _no_visit(labels: pl.DataFrame, whose: str) -> UserError:
    last = max(labels["visit"].to_list())
    if last == 1:
        return UserError(
            f"{whose} has one visit here; several models count as one",
            "leave it out",
            "visit",
        )
    return UserError(f"{whose} has visits 1 to {last}", "name one of them", "visit")


def _verdicts(
    judge: Judge, prompt: Prompt, gold: str | None, answers: Sequence[str | None]
) -> list[str]:
    given = [answer for answer in answers if answer is not None]
    if gold is None or gold == SENTINEL:
        return ["no answer" if answer is None else "unknown" for answer in answers]
    asked = prompt.asked(gold)
    verdicts = iter(judge.matches([(asked, answer) for answer in given]))
    return [
        "no answer" if answer is None else _VERDICTS[next(verdicts)] for answer in answers
    ]


def _label(label: str | None) -> str | None:
    return "no right one" if label == SENTINEL else label


def _labels_text(prompt: Prompt) -> str:
    given = prompt.given_label
    facts = [
        f"{prompt.noise_type} noise" if prompt.is_marked else "",
        "none" if given is None else "" if given == SENTINEL else given,
        f"true answer {prompt.true_answer}" if prompt.true_answer is not None else "",
        "verified" if prompt.is_verified else "",
    ]
    return ", ".join(one_line(fact) for fact in facts if fact)


def _visit_cells(row: Mapping[str, Any]) -> dict[str, str | Cell]:
    slope = row["slope"]
    return {
        "visit": str(row["visit"]),
        "step": str(row["step"]),
        "label": _text("label", _label(row["effective_label"])),
        "from": row["label_source"],
        **_vote(row),
        "slope": NOTHING if slope is None else f"{slope:+.3f}",
        "label is": _truth(row),
    }


def _response_parts(responses: pl.DataFrame) -> Iterator[Line | str]:
    """Yield each response of one prompt as an empty line, a line with its verdict and other facts, and its text."""
    for row in responses.to_dicts():
        facts = [
            row["verdict"],
            f"answer {one_line(row['answer'])}" if row["answer"] is not None else "",
            f"reward {row['reward']:g}" if row.get("reward") is not None else "",
            f"{row['tokens']} tokens" if row.get("tokens") is not None else "",
            "cut off" if row.get("truncated") else "",
            "rephrased" if row.get("view") == "rephrased" else "",
            row.get("model") or "",
        ]
        text = ", ".join(filter(None, facts))
        yield ""
        yield Line(f"#{row['sample']}", text, _STYLES.get(row["verdict"], ""))
        yield str(row.get("response") or "(its text is not stored)")
