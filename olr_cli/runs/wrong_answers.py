"""Wrong answers in stored rollouts, a run's or another trainer's log, which can become frozen noise (R4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from olr_cli.answers import Judge, Key, default_extractor, is_read
from olr_cli.data.logs import is_log, read_log
from olr_cli.data.prompts import Prompt, PromptSet
from olr_cli.data.questions import same_prompts
from olr_cli.errors import UserError
from olr_cli.runs.store import scan_rollouts

_ANSWERS = ("answer_class", "answer")


def wrong_answers(source: Path, prompts: PromptSet) -> dict[str, list[str]]:
    """The different answers to each prompt that are marked wrong, over all its visits; none for other prompts.

    Where no rollout is marked, as on data without truth, all answers: `proved_wrong` tells which are wrong.

    Args:
        source: a run directory (its complete steps), or the log of any trainer (`read_log`). It says itself which
            rollouts are right, or a reward does; stored answers go before responses.
        prompts: whose rollouts they must be, by prompt_id or by text.
    """
    ids: Mapping[str, str] = {}
    if (source / "labels").is_dir() or (source.is_dir() and not is_log(source)):
        if not (source / "rollouts").is_dir():
            raise UserError(
                f"{source} is not a run directory: it has no folder rollouts; name a run or a table"
            )
        rollouts = scan_rollouts(source).select("prompt_id", "is_correct", *_ANSWERS).collect()
    else:
        extractor = default_extractor(prompts.prompts[0].data_source)
        log = read_log(
            [source], wanted=(*_ANSWERS, "is_correct", "reward"), extractor=extractor
        )
        rollouts = log.rows.cast({pl.Categorical: pl.String})
        logged = {
            name: Prompt(name, turns, None, None, None) for name, turns in log.questions.items()
        }
        ids = {
            name: prompt.prompt_id
            for name, prompt in same_prompts(logged, prompts.prompts).items()
        }
    known = [name for name in ("is_correct", "is_rewarded") if name in rollouts.columns]
    verdict = next(
        (name for name in known if rollouts[name].null_count() < len(rollouts)), None
    )
    if verdict is not None:
        rollouts = rollouts.filter(~pl.col(verdict))
    column = next(name for name in _ANSWERS if name in rollouts.columns)
    wrong = rollouts.filter(pl.col(column).str.strip_chars() != "").drop_nulls("prompt_id")
    of_data = {prompt.prompt_id for prompt in prompts.prompts}
    renamed = {name: other for name, other in ids.items() if name not in of_data}
    named = wrong.with_columns(pl.col("prompt_id").replace(renamed)) if renamed else wrong
    unique = named.select("prompt_id", column).unique().sort("prompt_id", column)
    answers: dict[str, list[str]] = dict(
        unique.group_by("prompt_id", maintain_order=True).agg(column).iter_rows()
    )
    if of_data.isdisjoint(answers):
        theirs, ours = next(iter(answers), "none"), prompts.prompts[0].prompt_id
        raise UserError(
            f"{source} has no wrong answer to a prompt of {prompts.source} (its first prompt_id: {theirs}, here:"
            f" {ours}); name a run on the same data, or give the seed it was made with",
            "seed",
        )
    return answers


def proved_wrong(
    answers: Mapping[str, Sequence[str]], prompts: Sequence[Prompt], judge: Judge
) -> tuple[dict[str, list[str]], list[tuple[str, str]]]:
    """Stored answers, by prompt_id, that may become frozen noise (R4), and those that may not though R3 may draw them.

    That is the lexicographically first spelling of each class that is parsed and proved to be wrong; the labels of
    `prompts` count as true. A label that stands in a file is met by other graders too, so a class of which one of them
    may call a spelling right (`Judge.may_match`) is refused: it is returned beside the label.
    """
    labels = {
        prompt.prompt_id: prompt.asked(prompt.given_label)
        for prompt in prompts
        if prompt.prompt_id in answers and prompt.given_label is not None
    }
    keys = judge.keys(answer for prompt_id in labels for answer in answers[prompt_id])
    pairs = [
        (label, answer) for prompt_id, label in labels.items() for answer in answers[prompt_id]
    ]
    verdicts = zip(pairs, judge.matches(pairs), strict=True)
    wrong_pairs = [
        pair for pair, verdict in verdicts if is_read(keys[pair[1]]) and verdict is False
    ]
    lenient = dict(zip(wrong_pairs, judge.may_match(wrong_pairs), strict=True))
    wrong: dict[str, list[str]] = {}
    refused: list[tuple[str, str]] = []
    for prompt_id, label in labels.items():
        spellings: dict[Key, list[str]] = {}
        for answer in sorted(answers[prompt_id]):
            if (label, answer) in lenient:
                spellings.setdefault(keys[answer], []).append(answer)
        wrong[prompt_id] = []
        for same in spellings.values():
            if any(lenient[label, answer] for answer in same):
                refused.append((label.text, same[0]))
            else:
                wrong[prompt_id].append(same[0])
    return wrong, refused
