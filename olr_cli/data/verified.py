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
"""Possible decisions about a label, as the report offers them (`_truth` has their meanings)."""


@dataclass(frozen=True, slots=True)
class VerifiedLabel:
    """What a person has found out about one prompt's label: the true answer or, without it, that the label is wrong."""

    prompt_id: str | None
    """The prompt's id, or None if the file has no ids."""

    messages: tuple[Message, ...]
    """The prompt's chat turns; empty if the file has no questions."""

    answer: str | None
    """The true answer, or None if the file only says that the given label is wrong or flawed."""

    is_drawn: bool = False
    """Whether the file says that the prompt was drawn at random; otherwise somebody may have picked it."""

    judged: str | None = None
    """The label that the verdict is about, if the verdict confirms it or is all that is known, else None."""


class VerifiedLabels:
    """The verified labels of a file, with methods that find the label of a prompt (R23).

    A prompt gets the label with its id. If no label has this id, the prompt gets the label with its question. A label
    with the prompt's id but another question is an error. The object remembers which labels and prompts have matched.
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
        """Read verified labels from a file, which is a table of labels or a whole data set.

        A table has the columns `prompt_id` and `true_answer` or `verdict` or both. `verdict` is a person's decision on
        the given label: kept, wrong, flawed or unsure. A row whose verdict contradicts its true answer is skipped, and
        `note` counts such rows. The column `drawn`, if there is one, marks the prompts that were drawn at random.

        In a data set, the true answers or, where they are unknown, the labels count as verified.

        Args:
            file: the table or data set.
            reading: the user's settings for reading a data set, such as its columns.
            for_training: whether to raise an error if no label has a true answer; an audit can use verdicts alone.

        Raises:
            UserError: the file does not exist, cannot be read, or has no usable label.
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
        """Read the file of verified labels of a recipe, for a caller that does not know all its prompts yet.

        `verified` is the recipe's `data.verified`: the path of the file, or None for no verified labels. It must not be
        a number, because drawing that many labels would need all prompts.

        Raises:
            UserError: `verified` is a number, or the file cannot be read.
        """
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
        """Return prompt_id -> verified label for those prompts that have one.

        These prompts and labels are added to the matched ones, which `note` counts.

        Raises:
            UserError: an id has another question in the file, or a verdict is about another label than the prompt has.
        """
        label_by_prompt: dict[str, VerifiedLabel] = {}
        for prompt in prompts:
            # The id decides, and the question is then a check: ids from another data set may match by accident.
            index = self._by_id.get(prompt.prompt_id)
            if index is not None:
                self._require_one_question(prompt, self._labels[index])
            elif prompt.messages:
                index = self._by_question(prompt)
            if index is not None:
                _require_judged_label(prompt, self._labels[index].judged, self._source)
                label_by_prompt[prompt.prompt_id] = self._labels[index]
                self._used.add(index)
                self._prompts.add(prompt.prompt_id)
        return label_by_prompt

    def mark(self, prompts: Iterable[Prompt]) -> list[Prompt]:
        """Return all prompts; those with a verified answer get it as their true answer and are marked as verified."""
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
        """Number of labels that no prompt has matched so far."""
        return len(self._labels) - len(self._used)

    @property
    def note(self) -> str:
        """A sentence, without a full stop, on how many labels have matched a prompt so far, and on the skipped rows."""
        prompts = f"{len(self._prompts):,} prompt{'s' * (len(self._prompts) != 1)}"
        return (
            f"{len(self._used):,} of {len(self._labels):,} verified labels in {self._source} are for {prompts} here,"
            f" {self.unknown:,} for none{self.note_on_skipped}"
        )

    @property
    def note_on_skipped(self) -> str:
        """A clause for the end of `note`: how many rows contradict themselves, and which is the first.

        The clause begins with a semicolon. If there are no such rows, it is empty.
        """
        if not self._skipped:
            return ""
        rows = (
            f"{len(self._skipped):,} rows whose verdicts contradict their true answers: first"
            if len(self._skipped) > 1
            else "1 row whose verdict contradicts its true answer:"
        )
        return f"; skipped {rows} {self._skipped[0]}"

    def require_some(self, prompts: Sequence[Prompt]) -> None:
        """Raise UserError if no label has matched a prompt so far.

        The error compares the first id of the labels with the id of the first of `prompts`.
        """
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
        """Raise UserError if a prompt and the label with its id ask different questions (R23)."""
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
    def _question_index(self) -> tuple[Sequence[int], QuestionIndex]:
        """Positions in `_labels`, and an index of questions. Labels without a question are left out.

        Question i of the index belongs to the label whose position in `_labels` is item i of the positions.
        """
        places = [index for index, label in enumerate(self._labels) if label.messages]
        return places, QuestionIndex([self._labels[index].messages for index in places])

    def _by_question(self, prompt: Prompt) -> int | None:
        """Return the position in `_labels` of the label for a prompt's question, or None if no label has this question.

        Raises:
            UserError: the question has several true answers.
        """
        places, index = self._question_index
        matches = index.find(prompt.messages)
        same_question = [places[at] for at in matches]
        same_words = [places[at] for at in index.in_same_words(prompt.messages, matches)]
        # Several labels may match a question that is spelled in several ways: prefer the same words, then an answer.
        chosen = [
            at for at in same_words or same_question if self._labels[at].answer is not None
        ] or same_question
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
    """Raise UserError if a verdict is about another label than the one that the prompt has.

    Either the data set has changed since the verdict, or rows were mixed up. `judged` is the label that the verdict is
    about; None raises nothing. `source` is the file of the verdict.
    """
    # A label that is known to be noise is not the one that was judged, so it cannot contradict the verdict.
    label = None if prompt.is_marked else prompt.given_label
    if judged is not None and label is not None and not is_match(judged, label):
        raise UserError(
            f"{source} has a verdict on the label {judged} of prompt {prompt.prompt_id}, whose label here is {label}",
            "judge it again, or give its true_answer",
        )


def _labels_in(file: Path, reading: Reading) -> tuple[list[VerifiedLabel], list[str]]:
    """Return the labels of a file, and a description of each row whose verdict contradicts its true answer.

    The file is a table of ids with true answers or verdicts, or else a data set. A data set has no verdicts, so its
    list of descriptions is empty.
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
    """Return the labels of a table, one for each prompt_id, and a description of each row that contradicts itself.

    A row contradicts itself if its verdict does not fit its true answer. Such a row gives no label. Rows without a
    prompt_id, and rows for which `_truth` returns None, are ignored.

    Raises:
        UserError: a verdict is unknown, a kept label is not stated, or a prompt has several true answers.
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
        truth_and_judged = _truth(verdict, answer, label)
        if prompt_id is None or truth_and_judged is None:
            continue
        truth, judged = truth_and_judged
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
    """Return (true answer, label that the verdict is about) for one row of verified labels, or None to ignore the row.

    `verdict` is one of `VERDICTS` or None, `answer` is the row's true_answer or None, and `label` is the given_label
    that people saw, or None.

    | verdict | with an answer  | without an answer |
    |---------|-----------------|-------------------|
    | None    | (answer, None)  | None              |
    | kept    | (answer, label) | (label, label)    |
    | wrong   | (answer, None)  | (None, label)     |
    | flawed  | (None, None)    | (None, label)     |
    | unsure  | None            | None              |

    If the true answer would be the sentinel, the text by which noise replaces a label, it becomes None. With the
    verdict kept or None, the row is then ignored.
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
    """Return whether a verdict contradicts the true answer.

    ``kept`` contradicts a true answer that differs from the label. ``wrong`` contradicts a true answer that matches the
    label. For any other verdict, or if the label or the true answer is missing, the result is False.

    Args:
        verdict: one of `VERDICTS`, or None.
        label: the label that the verdict is about, or None.
        truth: the true answer, or None.
    """
    # A flawed question may have any label, so that verdict contradicts nothing.
    if verdict not in ("kept", "wrong") or not label or not truth:
        return False
    # A kept label has to match the true answer, and a wrong one must not.
    return is_match(label, truth) is (verdict == "wrong")


def _are_drawn(rows: Rows) -> list[bool]:
    """Return for each row whether its column `drawn` says true, 1 or yes; False if there is no such column."""
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
    """Return all prompts with the verified ones marked, and a list of notes.

    Args:
        prompts: the prompts; marks of verified answers that they already have are dropped.
        verified: a file (`VerifiedLabels`), or the number of prompts to draw among those with a known true answer.
        seed: random seed of the draw; with the same seed, a larger draw contains a smaller one.
        source: name of the prompts' source, for errors.
        reading: the user's settings for reading the file, such as its columns.

    Returns:
        The prompts and the notes. For a file, one note says how many labels and prompts have matched. For a number,
        there is no note.

    Raises:
        UserError: too few true answers are known, or the file is unusable or is for none of the prompts.
    """
    unmarked = [replace(prompt, is_verified=False) for prompt in prompts]
    if isinstance(verified, int):
        candidates = [
            place for place, prompt in enumerate(unmarked) if prompt.true_answer is not None
        ]
        if len(candidates) < verified:
            raise UserError(
                f"data.verified is {verified}, and the true answer is known of {len(candidates)} prompts of {source}",
                "lower it, or name a file of verified labels",
            )
        # A prefix of one permutation, so that draws are nested. The stream keeps its old name, "trusted labels":
        # another name would draw other prompts.
        drawn = {
            candidates[rank]
            for rank in seeding.permutation(len(candidates), "trusted labels", seed)[
                :verified
            ]
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
