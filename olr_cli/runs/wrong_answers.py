"""Wrong answers in the rollouts of a run or of another trainer's log, which can become frozen noise (R4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from olr_cli.answers import Judge, Pair, default_extractor, is_read
from olr_cli.data.log_files import is_log
from olr_cli.data.logs import read_log
from olr_cli.data.prompts import Prompt, PromptSet
from olr_cli.data.questions import same_prompts
from olr_cli.errors import UserError
from olr_cli.grouping import gathered
from olr_cli.runs.store import scan_rollouts

_ANSWERS = ("answer_class", "answer")
"""Columns that hold an answer; the first one that exists counts."""


def wrong_answers(source: Path, prompts: PromptSet) -> dict[str, list[str]]:
    """Return prompt_id -> the different wrong answers to the prompt over all its visits, sorted.

    A rollout is wrong if its stored verdict (``is_correct``) says so. In a log without verdicts, the reward decides. If
    neither is known, all answers are returned, and `proved_wrong` must still remove the right ones. Answers are
    extracted from the responses only if `source` stores none. Prompts without a wrong answer are left out.

    Args:
        source: a run directory (its complete steps), or the log of any trainer.
        prompts: the prompts of the rollouts, matched by prompt_id or by text.

    Raises:
        UserError: no wrong answer belongs to one of `prompts`.
    """
    if (source / "labels").is_dir() or (source.is_dir() and not is_log(source)):
        rollouts = _of_run(source)
    else:
        rollouts = _of_log(source, prompts)
    # `is_correct` comes first: it is a verdict by the true answer, while a reward may come from a noisy label.
    marks = [name for name in ("is_correct", "is_rewarded") if name in rollouts.columns]
    # On data without true answers the column exists, but all its values are null.
    marked = [name for name in marks if rollouts[name].null_count() < len(rollouts)]
    if marked:
        rollouts = rollouts.filter(~pl.col(marked[0]))
    column = next(name for name in _ANSWERS if name in rollouts.columns)
    wrong = rollouts.filter(pl.col(column).str.strip_chars() != "").drop_nulls("prompt_id")
    unique = wrong.select("prompt_id", column).unique().sort("prompt_id", column)
    answers: dict[str, list[str]] = dict(
        unique.group_by("prompt_id", maintain_order=True).agg(column).iter_rows()
    )
    if answers.keys().isdisjoint(prompt.prompt_id for prompt in prompts.prompts):
        theirs, ours = next(iter(answers), "none"), prompts.prompts[0].prompt_id
        raise UserError(
            f"{source} has no wrong answer to a prompt of {prompts.source} (its first prompt_id: {theirs}, here:"
            f" {ours})",
            "name a run on the same data, or give the seed it was made with",
            "seed",
        )
    return answers


def _of_run(run: Path) -> pl.DataFrame:
    """Return one row per rollout of a run, with the columns prompt_id, is_correct, answer_class and answer.

    answer_class has one spelling for all answers that mean the same.

    Raises:
        UserError: the run has no rollouts table.
    """
    if not (run / "rollouts").is_dir():
        raise UserError(
            f"{run} is not a run directory: it has no folder rollouts",
            "name a run or a table",
        )
    return scan_rollouts(run).select("prompt_id", "is_correct", *_ANSWERS).collect()


def _of_log(source: Path, prompts: PromptSet) -> pl.DataFrame:
    """Return one row per rollout of a trainer's log.

    The column prompt_id has the log's own id. If `prompts` has no such id but asks the same question, it has the id in
    `prompts` instead. The other columns exist only if the log has them:

    - answer: the answer.
    - answer_class: one spelling for all answers that mean the same.
    - is_correct: whether the answer is right by the true answer.
    - is_rewarded: whether the rollout was rewarded.
    """
    extractor = default_extractor(prompts.prompts[0].data_source)
    log = read_log(
        [source], wanted=(*_ANSWERS, "is_correct", "reward"), extractor=extractor
    )
    rollouts = log.rows.cast({pl.Categorical: pl.String})
    logged = {
        name: Prompt(name, turns, None, None, None) for name, turns in log.questions.items()
    }
    same = same_prompts(logged, prompts.prompts)
    ours = {prompt.prompt_id for prompt in prompts.prompts}
    renamed = {name: prompt.prompt_id for name, prompt in same.items() if name not in ours}
    return rollouts.with_columns(pl.col("prompt_id").replace(renamed))


def proved_wrong(
    answers: Mapping[str, Sequence[str]], prompts: Sequence[Prompt], judge: Judge
) -> tuple[dict[str, list[str]], list[tuple[str, str]]]:
    """Choose the answers that may be written into a file as wrong labels (frozen noise, R3 and R4).

    An answer is chosen if `judge` can parse it and proves that it differs from the prompt's label, which is taken to be
    true. Of answers that mean the same, the spelling that sorts first is returned.

    Other graders may read the file too. If one of them might accept any spelling of an answer, the answer is refused.

    Args:
        answers: prompt_id -> answers to the prompt.
        prompts: prompts with their labels. A prompt without a label is left out.
        judge: decides which answers are wrong, and which of them mean the same.

    Returns:
        The chosen answers, as prompt_id -> answers (possibly none), and the refused answers, as pairs of label and
        answer.
    """
    labels = {
        prompt.prompt_id: prompt.asked(prompt.given_label)
        for prompt in prompts
        if prompt.prompt_id in answers and prompt.given_label is not None
    }
    pairs = [
        (label, answer)
        for prompt_id, label in labels.items()
        for answer in answers[prompt_id]
    ]
    keys = judge.keys(answer for _, answer in pairs)
    may_be_right = _proved_pairs([pair for pair in pairs if is_read(keys[pair[1]])], judge)
    wrong: dict[str, list[str]] = {prompt_id: [] for prompt_id in labels}
    refused: list[tuple[str, str]] = []
    for prompt_id, label in labels.items():
        of_label = {
            answer: may_be_right[label, answer]
            for answer in sorted(answers[prompt_id])
            if (label, answer) in may_be_right
        }
        for spellings in gathered((keys[answer], answer) for answer in of_label).values():
            if any(map(of_label.__getitem__, spellings)):
                refused.append((label.text, spellings[0]))
            else:
                wrong[prompt_id].append(spellings[0])
    return wrong, refused


def _proved_pairs(pairs: Sequence[Pair], judge: Judge) -> dict[Pair, bool]:
    """Choose the pairs of label and answer that the judge proves to differ.

    Returns:
        Chosen pair -> whether a more lenient grader may call the answer right all the same (`Judge.may_match`). The
        caller does not use such an answer as a wrong label.
    """
    verdicts = zip(pairs, judge.matches(pairs), strict=True)
    wrong = [pair for pair, verdict in verdicts if verdict is False]
    return dict(zip(wrong, judge.may_match(wrong), strict=True))
