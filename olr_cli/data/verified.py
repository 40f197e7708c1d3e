"""Verified labels: true answers that somebody has checked, read from a file or drawn for a study."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from olr_cli import seeding
from olr_cli.data.prompt_files import Reading, read_prompts
from olr_cli.data.prompts import SENTINEL, Prompt, normal_question, same_prompts
from olr_cli.data.rows import read_table, texts
from olr_cli.errors import UserError

VERDICTS = ("kept", "wrong", "unsure")
"""What a reader of the report decides about a label."""


@dataclass(frozen=True)
class TrustedFile:
    """Verified labels for prompts that come one at a time.

    Attributes:
        by_id: prompt_id -> true answer.
        by_question: the same by what a prompt asks, if the file is a data set.
    """

    by_id: Mapping[str, str | None]
    by_question: Mapping[str, str | None]

    @classmethod
    def read(cls, trusted: str | int | None) -> TrustedFile:
        """The labels that `data.trusted` names; none without one.

        Raises:
            UserError: the file can't be read or has no true answer, or a number to draw is given.
        """
        if trusted is None:
            return cls({}, {})
        if isinstance(trusted, int):
            raise UserError(
                f"data.trusted is {trusted}, and labels can't be drawn before all prompts are known; name a file of"
                " verified labels"
            )
        answers, prompts = _answers_in(Path(trusted), Reading(), "data.trusted")
        if not any(answers.values()):
            raise UserError(
                f"{trusted} has no true answer in any row; leave data.trusted out, or fill some in"
            )
        return cls(answers, {normal_question(prompt.messages): prompt.gold for prompt in prompts})

    def mark(self, prompt: Prompt) -> Prompt:
        """The prompt, marked and with its verified answer if it has one."""
        answer = self.by_id.get(prompt.prompt_id)
        if answer is None and self.by_question:
            answer = self.by_question.get(normal_question(prompt.messages))
        return prompt if answer is None else replace(prompt, true_answer=answer, is_trusted=True)


def with_trusted(
    prompts: Iterable[Prompt], trusted: str | int, seed: int, source: object, reading: Reading
) -> list[Prompt]:
    """The prompts with the verified ones marked, and with the true answers that are verified.

    Args:
        prompts: N, after noise was put on their labels.
        trusted: a file (`verified_answers`); or how many prompts to draw among those whose true answer is known. Of
            one seed, a larger draw contains a smaller one.
        seed: of the draw.
        source: of the prompts, for errors.
        reading: which columns of a data set hold what.

    Raises:
        UserError: the file can't be read or fits no prompt, or fewer true answers are known than are to be drawn.
    """
    by_id = {prompt.prompt_id: prompt for prompt in prompts}
    answers: dict[str, str | None]
    if isinstance(trusted, int):
        known = [prompt for prompt in by_id.values() if prompt.true_answer is not None]
        if len(known) < trusted:
            raise UserError(
                f"data.trusted is {trusted}, and the true answer is known of {len(known)} prompts of {source};"
                " lower it, or name a file of verified labels"
            )
        drawn = seeding.permutation(len(known), "trusted labels", seed)[:trusted]
        answers = {known[place].prompt_id: known[place].true_answer for place in drawn}
    else:
        answers = dict(verified_answers(Path(trusted), by_id, by_id, reading, "data.trusted"))
        if all(answers.get(name) is None for name in by_id):
            raise UserError(f"{trusted} says which labels are wrong, and gives no true answer; give some")
    return [
        replace(prompt, true_answer=answer or prompt.true_answer, is_trusted=answer is not None)
        for prompt in by_id.values()
        for answer in [answers.get(prompt.prompt_id)]
    ]


def verified_answers(
    file: Path,
    prompts: Mapping[str, Prompt],
    prompt_ids: Collection[str],
    reading: Reading = Reading(),  # noqa: B008 - it is immutable
    setting: str = "--trusted",
) -> Mapping[str, str | None]:
    """prompt_id -> true answer, from a table of prompt_id and true_answer, or a verified data set.

    Prompts are matched by prompt_id; where none fits, those of a data set by the text of the question. A column verdict
    is read too (of the report's selection): "wrong" without a true answer gives None, all that is known then; "kept"
    without one gives given_label.

    Args:
        file: of verified labels.
        prompts: by prompt_id, with the messages of those whose text is known.
        prompt_ids: those of all prompts that could be meant.
        reading: which columns of a data set hold what.
        setting: what named the file, for errors.

    Raises:
        UserError: the file can't be read or has no true answer, or none of its prompts is among `prompt_ids`.
    """
    answers, verified = _answers_in(file, reading, setting)
    if not answers:
        raise UserError(f"{file} has no true answer in any row; leave {setting} out, or fill some in")
    if answers.keys().isdisjoint(prompt_ids):
        golds = [prompt for prompt in verified if prompt.gold is not None]
        same = same_prompts(prompts, golds) if golds else {}
        strangers = answers.keys() - {prompt.prompt_id for prompt in same.values()}
        by_text = {name: str(prompt.gold) for name, prompt in same.items()}
        first = next(iter(answers))
        answers = {**{name: answers[name] for name in strangers}, **by_text}
        if not by_text:
            raise UserError(
                f"{file}: none of its prompts is among those that it is for (its first prompt_id: {first}, theirs:"
                f" {next(iter(prompt_ids))}); verified labels are matched by prompt_id, or those of a data set by their"
                " questions"
            )
    return answers


def _answers_in(
    file: Path, reading: Reading, setting: str
) -> tuple[Mapping[str, str | None], Sequence[Prompt]]:
    """prompt_id -> true answer or None; and the prompts, if the file is a data set."""
    if not file.is_file():
        raise UserError(
            f"{file} is no file; {setting} names a Parquet or JSON table with prompt_id and true_answer"
        )
    columns = ("prompt_id", "true_answer", "verdict", "given_label")
    table = read_table([file], columns)
    if "prompt_id" not in table.column_names or {"true_answer", "verdict"}.isdisjoint(table.column_names):
        prompts = read_prompts(str(file), reading=reading).prompts
        return {prompt.prompt_id: prompt.gold for prompt in prompts if prompt.gold is not None}, prompts
    answers: dict[str, str | None] = {}
    rows = (
        texts(table.column(name), name, str(file)) if name in table.column_names else [None] * len(table)
        for name in columns
    )
    for prompt_id, answer, verdict, label in zip(*rows, strict=True):
        if verdict not in (None, *VERDICTS):
            raise UserError(
                f"{file}: the verdict on prompt {prompt_id} is '{verdict}'; known: {', '.join(VERDICTS)}"
            )
        known = label if answer is None and verdict == "kept" else answer
        known = None if known == SENTINEL else known
        if prompt_id is None or (known is None and verdict != "wrong"):
            continue
        if answers.setdefault(prompt_id, known) != known:
            raise UserError(f"{file}: prompt {prompt_id} has several true answers; leave one")
    return answers, ()
