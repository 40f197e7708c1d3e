"""Verified labels: true answers that somebody has checked, and which prompts they are for (R23)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from olr_cli import seeding
from olr_cli.answers import is_match
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.chat import Message, prompt_messages
from olr_cli.data.columns import PROMPT_COLUMNS
from olr_cli.data.labels import read_labels
from olr_cli.data.prompt_files import Reading, read_prompts
from olr_cli.data.prompts import Prompt
from olr_cli.data.questions import QuestionIndex, asks_the_same, question_of
from olr_cli.data.rows import Rows
from olr_cli.data.table_files import read_table
from olr_cli.data.values import Origins
from olr_cli.errors import UserError, at, shortened

VERDICTS = ("kept", "wrong", "flawed", "unsure")
"""What a reader of the report decides about a label."""


@dataclass(frozen=True, slots=True)
class VerifiedLabel:
    """What is known of a prompt's true answer.

    Attributes:
        prompt_id: of the prompt; None where the file names none.
        messages: what the prompt asks; empty where the file doesn't say.
        answer: the true answer; None where all that is known is that the given label is wrong.
        is_drawn: the prompt was drawn at random, as the file says; else it may have been picked.
        judged: the label that was kept, or of which nothing is known but that it is wrong; else None.
    """

    prompt_id: str | None
    messages: tuple[Message, ...]
    answer: str | None
    is_drawn: bool = False
    judged: str | None = None


class VerifiedLabels:
    """The verified labels of a file, and which prompts they are for.

    A label is for the prompt with its id, else for the prompts that ask its question. Where a prompt and its label have
    an id and a question each, both must fit (R23).
    """

    def __init__(
        self,
        labels: Sequence[VerifiedLabel] = (),
        source: str = "",
        skipped: Sequence[str] = (),
    ) -> None:
        self._labels, self._source, self._skipped = labels, source, skipped
        self._by_id = {
            label.prompt_id: at
            for at, label in enumerate(labels)
            if label.prompt_id is not None
        }
        self._used: set[int] = set()
        self._prompts: set[str] = set()

    @classmethod
    def read(
        cls,
        file: Path,
        reading: Reading = Reading(),  # noqa: B008 - it is immutable
        *,
        for_training: bool = False,
    ) -> VerifiedLabels:
        """The labels in a table of prompt_id and true_answer, which may have the questions too, or in a data set.

        A column verdict is read too (of the report's selection): "wrong" or "flawed" without a true answer gives None,
        all that is known then, which serves an audit and no training; "kept" without one gives given_label. A column
        drawn says in which rows the prompt was drawn at random. Rows whose verdict contradicts their true answer are
        skipped, and `note` says so.
        """
        if not file.is_file():
            raise UserError(
                f"{file} is no file",
                "name a Parquet or JSON table with prompt_id and true_answer",
            )
        labels, skipped = _labels_in(file, reading)
        if skipped and not labels:
            raise UserError(
                f"{file}: no verdict counts, for each contradicts its true answer ({skipped[0]})",
                "correct one of the two",
            )
        if not labels or (for_training and all(label.answer is None for label in labels)):
            raise UserError(
                f"{file} has no true answer in any row", "leave it out, or fill some in"
            )
        return cls(labels, str(file), skipped)

    @classmethod
    def for_prompts_to_come(cls, verified: str | int | None) -> VerifiedLabels:
        """The labels that `data.verified` names, for prompts that come one at a time; none without it."""
        if verified is None:
            return cls()
        if isinstance(verified, int):
            raise UserError(
                f"data.verified is {verified}, and labels can't be drawn before all prompts are known",
                "name a file of verified labels",
            )
        with at("data.verified"):
            return cls.read(Path(verified), for_training=True)

    def of(self, prompts: Iterable[Prompt]) -> dict[str, VerifiedLabel]:
        """prompt_id -> verified label, of the prompts that have one."""
        found: dict[str, VerifiedLabel] = {}
        for prompt in prompts:
            # An id counts before the question, which then has to be the same.
            place = self._by_id.get(prompt.prompt_id)
            if place is not None:
                self._require_one_question(prompt, self._labels[place])
            elif prompt.messages:
                place = self._by_question(prompt)
            if place is not None:
                _require_judged_label(prompt, self._labels[place].judged, self._source)
                found[prompt.prompt_id] = self._labels[place]
                self._used.add(place)
                self._prompts.add(prompt.prompt_id)
        return found

    def mark(self, prompts: Iterable[Prompt]) -> list[Prompt]:
        """The prompts, those with a verified answer marked and with it as their true answer."""
        prompts = list(prompts)
        answers = {
            name: label.answer
            for name, label in self.of(prompts).items()
            if label.answer is not None
        }
        return [
            replace(one, true_answer=answers[one.prompt_id], is_verified=True)
            if one.prompt_id in answers
            else one
            for one in prompts
        ]

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def unknown(self) -> int:
        """How many labels were for none of the prompts so far."""
        return len(self._labels) - len(self._used)

    @property
    def note(self) -> str:
        """How many labels were for the prompts so far, how many for none, and which rows were skipped; a sentence
        without a full stop.
        """
        prompts = f"{len(self._prompts):,} prompt{'s' * (len(self._prompts) != 1)}"
        return (
            f"{len(self._used):,} of {len(self._labels):,} verified labels in {self._source} are for {prompts} here,"
            f" {self.unknown:,} for none{self.note_on_skipped}"
        )

    @property
    def note_on_skipped(self) -> str:
        """The end of a sentence: how many rows contradict themselves, and the first of them; empty if none does."""
        if not self._skipped:
            return ""
        rows = (
            f"{len(self._skipped):,} rows whose verdicts contradict their true answers: first"
            if len(self._skipped) > 1
            else "1 row whose verdict contradicts its true answer:"
        )
        return f"; skipped {rows} {self._skipped[0]}"

    def require_some(self, prompts: Sequence[Prompt]) -> None:
        """Make sure that some label was for one of the prompts."""
        if not self._used:
            first = next(
                (label.prompt_id for label in self._labels if label.prompt_id is not None),
                "none",
            )
            ours = prompts[0].prompt_id if prompts else "none"
            raise UserError(
                f"{self._source}: none of its prompts is among those that it is for (its first prompt_id: {first},"
                f" theirs: {ours})",
                "verified labels are matched by prompt_id, else by their questions",
            )

    def _require_one_question(self, prompt: Prompt, label: VerifiedLabel) -> None:
        if (
            label.messages
            and prompt.messages
            and not asks_the_same(prompt.messages, label.messages)
        ):
            raise UserError(
                f"{self._source} has the prompt_id {prompt.prompt_id} for '{shortened(question_of(label.messages))}',"
                f" and here it is '{shortened(question_of(prompt.messages))}'",
                f"fix the ids of {self._source}, or leave"
                " them out, so that questions alone count",
            )

    @cached_property
    def _index(self) -> tuple[Sequence[int], QuestionIndex]:
        places = [place for place, label in enumerate(self._labels) if label.messages]
        return places, QuestionIndex([self._labels[place].messages for place in places])

    def _by_question(self, prompt: Prompt) -> int | None:
        places, index = self._index
        found = index.find(prompt.messages)
        same = [places[at] for at in found]
        word_for_word = [places[at] for at in index.in_same_words(prompt.messages, found)]
        # Prompts whose questions differ in spelling alone may have several labels: the same words come first.
        chosen = [
            at for at in word_for_word or same if self._labels[at].answer is not None
        ] or same
        answers = sorted(
            {answer for at in chosen if (answer := self._labels[at].answer) is not None}
        )
        if any(not is_match(answers[0], answer) for answer in answers[1:]):
            raise UserError(
                f"{self._source} has the verified answers {' and '.join(answers[:2])} for one question,"
                f" '{shortened(question_of(prompt.messages))}'",
                "leave one",
            )
        return chosen[0] if chosen else None


def _require_judged_label(prompt: Prompt, judged: str | None, source: str) -> None:
    """Refuse a verdict on a label that the prompt has not: the data set has changed since, or rows were mixed up."""
    label = None if prompt.is_marked else prompt.given_label
    if judged is not None and label is not None and not is_match(judged, label):
        raise UserError(
            f"{source} has a verdict on the label {judged} of prompt {prompt.prompt_id}, whose label here is {label}",
            "judge it again, or give its true_answer",
        )


def _labels_in(file: Path, reading: Reading) -> tuple[list[VerifiedLabel], list[str]]:
    """Return the labels of a file, and the rows of it that contradict themselves.

    The file is a table with a column of ids and what people found, or a data set.
    """
    columns = (
        "prompt_id",
        "true_answer",
        "verdict",
        "given_label",
        "drawn",
        *PROMPT_COLUMNS,
    )
    table = read_table([file], columns, encoding=reading.encoding)
    names = {*table.column_names}
    if "prompt_id" in names and not names.isdisjoint(("true_answer", "verdict")):
        return _labels_of_table(Rows(table, Origins(str(file), [file])), file)
    if "prompt_id" in names and names.isdisjoint(PROMPT_COLUMNS):
        raise UserError(f"{file} has a column prompt_id and no true_answer", "add it")
    prompts = read_prompts(str(file), reading=reading)
    drawn = _are_drawn(Rows(prompts.table, prompts.origins))
    labels = [
        VerifiedLabel(
            prompt.prompt_id if prompts.has_ids else None,
            prompt.messages,
            prompt.gold,
            is_drawn,
        )
        for prompt, is_drawn in zip(prompts.prompts, drawn, strict=True)
        if prompt.gold is not None
    ]
    return labels, []


def _labels_of_table(rows: Rows, file: Path) -> tuple[list[VerifiedLabel], list[str]]:
    """Return the labels of the rows with a prompt_id that say something of its label, one a prompt.

    Returns also the rows that contradict themselves, as texts.
    """
    labels: dict[str, VerifiedLabel] = {}
    skipped = []
    columns = (
        rows.values(next(filter(rows.has, PROMPT_COLUMNS), "question")),
        _are_drawn(rows),
        rows.texts("prompt_id"),
        read_labels(rows, "true_answer"),
        rows.texts("verdict"),
        read_labels(rows, "given_label"),
    )
    for question, is_drawn, prompt_id, answer, verdict, label in zip(*columns, strict=True):
        if verdict not in (None, *VERDICTS):
            raise UserError(
                f"{file}: the verdict on prompt {prompt_id} is '{verdict}'",
                f"known: {', '.join(VERDICTS)}",
            )
        if verdict == "kept" and answer is None and label is None:
            raise UserError(
                f"{file}: the label of prompt {prompt_id} is kept, and the row does not say which it is",
                "fill in given_label or true_answer",
            )
        said = _truth(verdict, answer, label)
        if prompt_id is None or said is None:
            continue
        truth, judged = said
        if _contradicts(verdict, label, truth):
            skipped.append(
                f"prompt {prompt_id} is '{verdict}', with the label {label} and the true answer {truth}"
            )
            continue
        messages = prompt_messages(question) or ()
        verified = VerifiedLabel(prompt_id, messages, truth, is_drawn, judged)
        if labels.setdefault(prompt_id, verified).answer != truth:
            raise UserError(
                f"{file}: prompt {prompt_id} has several true answers", "leave one"
            )
    return list(labels.values()), skipped


def _truth(
    verdict: str | None, answer: str | None, label: str | None
) -> tuple[str | None, str | None] | None:
    """Return the true answer and the label that was judged, by a verdict, a true_answer and the label that people saw.

    | verdict | with a true_answer    | without one           |
    |---------|-----------------------|-----------------------|
    | none    | true_answer, -        | nothing               |
    | kept    | true_answer, label    | label, label          |
    | wrong   | true_answer, -        | unknown, label        |
    | flawed  | unknown, -            | unknown, label        |
    | unsure  | nothing               | nothing               |

    The sentinel is an unknown answer, which says nothing unless the label is wrong or flawed.
    """
    match verdict:
        case "unsure":
            return None
        case "flawed":
            truth = None
        case "kept" if answer is None:
            truth = label
        case _:
            truth = answer
    truth = None if truth == SENTINEL else truth
    if truth is None and verdict not in ("wrong", "flawed"):
        return None
    return truth, label if answer is None or verdict == "kept" else None


def _contradicts(verdict: str | None, label: str | None, truth: str | None) -> bool:
    """Whether a label that was kept differs from the true answer, or a wrong one is equal to it."""
    if verdict not in ("kept", "wrong") or not label or not truth:
        return False
    return is_match(label, truth) is (verdict == "wrong")


def _are_drawn(rows: Rows) -> list[bool]:
    """Which rows have true in the column drawn, in any spelling; none without the column."""
    return [
        str(value).strip().lower() in ("true", "1", "1.0", "yes")
        for value in rows.values("drawn")
    ]


def with_verified(
    prompts: Iterable[Prompt],
    verified: str | int,
    seed: int,
    source: object,
    reading: Reading,
) -> tuple[list[Prompt], list[str]]:
    """The prompts with the verified ones marked, and with the true answers that are verified; and how many there are.

    `verified` is a file (`VerifiedLabels`); or how many prompts to draw among those whose true answer is known. Of one
    seed, a larger draw contains a smaller one.
    """
    unmarked = [replace(prompt, is_verified=False) for prompt in prompts]
    if isinstance(verified, int):
        known = [
            place for place, prompt in enumerate(unmarked) if prompt.true_answer is not None
        ]
        if len(known) < verified:
            raise UserError(
                f"data.verified is {verified}, and the true answer is known of {len(known)} prompts of {source}",
                "lower it, or name a file of verified labels",
            )
        # The first of one permutation, so that a larger draw contains a smaller one.
        drawn = {
            known[rank]
            for rank in seeding.permutation(len(known), "trusted labels", seed)[:verified]
        }
        return [
            replace(prompt, is_verified=place in drawn)
            for place, prompt in enumerate(unmarked)
        ], []
    with at("data.verified"):
        labels = VerifiedLabels.read(Path(verified), reading, for_training=True)
    marked = labels.mark(unmarked)
    labels.require_some(unmarked)
    return marked, [labels.note]
