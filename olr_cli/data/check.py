"""What is wrong with a data set, or looks so, before any model sees it: its labels and questions, a finding a kind."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from functools import partial
from html import unescape
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from olr_cli.answers import Judge, boxed, is_placeholder, is_read, shared_judge
from olr_cli.data.arithmetic import parse_source
from olr_cli.data.chat import unseen_part
from olr_cli.data.columns import LABEL_COLUMNS
from olr_cli.data.doubts import FAULTS, boxes, doubts, ends_of
from olr_cli.data.labels import label_of
from olr_cli.data.prompt_files import (
    Reading,
    asked_in,
    columns_hint,
    find_columns,
    is_blank,
    load_rows,
    read_rows,
)
from olr_cli.data.prompts import SENTINEL, Prompt, PromptSet
from olr_cli.data.questions import has_template, normal_question, question_of
from olr_cli.data.rows import Origins, Rows
from olr_cli.data.writers import write_rows
from olr_cli.errors import UserError, did_you_mean, no_rows, shortened
from olr_cli.grouping import gathered
from olr_cli.recipe.schema import ColumnRole, DataSection
from olr_cli.tables import File

_NUMBER = re.compile(r"[-+]?\$?\d[\d,]*(?:\.\d+)?%?")
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,(?:\d{1,2}|\d{4,})")
_PROOF = re.compile(
    r"(?i)\W*(?:proof\b|prove[dn]\b|q\.?e\.?d\b)|.*\b(?:we|to) (?:prove|show)\b|.*\bas (?:required|desired)\W*$"
)
_PARTS = re.compile(r"(?is).*\(a\).*\(b\)|.*\(i\).*\(ii\)|\s*(?:1|a)\).*\b(?:2|b)\)|.*\S;\s*\S")
_FIGURE = re.compile(
    r"(?i)\b(?:in|from|see) the (?:\w+ )?(?:figure|diagram|picture|drawing)\b"
    r"|\bin (?:figure|fig\.) ?\d"
    r"|\b(?:figure|diagram|picture|graph|chart|drawing) (?:below|above|shown)\b|<image>|!\[[^\[\]]*\]\("
)
_DRAWN = re.compile(r"\[asy\]|\\begin\{(?:tikzpicture|array|tabular)\}")
_MOSTLY = 0.8
"""From this share of numbers among the labels on, a label without any digit is unusual."""
_SHOWN = 3
"""Rows that are shown of each kind."""
_GRADED_AT_START = 2_000
"""Labels that are graded before a run, which should start at once: a quarter of a second if all are formulas."""
_READ_AT_START = 100
"""Labels that are read then, which takes a hundred times as long."""

UNUSABLE = ("no_question", "image", "unread", "no_label", "no_answer", "ungradable", "conflict")
"""Kinds of findings with which no response can be graded."""
KINDS = (
    *(*UNUSABLE, "unparsed", "sentinel", "proof", "parts", "word", "decimal_comma", "boxes"),
    *(*FAULTS, "no_figure", "template", "repeat"),
)
"""All kinds of findings."""

Asked: TypeAlias = tuple[int, Prompt]
"""A prompt and the number of its row among all rows of the files, from 0."""


@dataclass(frozen=True)
class Finding:
    """Rows of a data set that have one thing in common, which may be wrong.

    Attributes:
        kind: a short name, for machines.
        fault: a thing in the singular and what is wrong with it: ``row without a label``.
        rows: their numbers among all rows of the files, from 0.
        examples: what stands in the first few of them.
        others: the rows that have it with them: those that ask a question again.
        groups: for each of the rows, all that ask its question.
    """

    kind: str
    fault: str
    rows: Sequence[int]
    examples: Sequence[str]
    others: Sequence[int] = ()
    groups: Sequence[Sequence[int]] = field(default=(), repr=False)

    @property
    def says(self) -> str:
        """How often the fault was found: ``2 rows without a label``."""
        thing, _, rest = self.fault.partition(" ")
        return f"{len(self.rows):,} {thing}{'s' * (len(self.rows) > 1)} {rest}"


@dataclass(frozen=True)
class Checked:
    """A data set by its name, how many rows it has, which columns were read (role -> path), and what was found."""

    source: str
    rows: int
    table: Rows = field(repr=False)
    columns: Mapping[str, str]
    findings: Sequence[Finding]

    @property
    def is_log(self) -> bool:
        """Whether it holds answers, and labels beside them."""
        return self.columns["answer"] == "given_label"

    def without(self, kinds: Collection[str]) -> list[int]:
        """The rows without these findings, of a question that is asked again the first that is left, of one with other
        labels none.

        Raises:
            UserError: there is no such kind, or no row is left.
        """
        for kind in kinds:
            if kind not in KINDS:
                raise UserError(
                    f"there is no finding '{kind}'{did_you_mean(kind, KINDS)}; known: {', '.join(KINDS)}",
                    "drop",
                )
        dropped = [finding for finding in self.findings if finding.kind in kinds]
        out = {row for it in dropped if it.kind != "repeat" for row in (*it.rows, *it.others)}
        for group in chain(*(it.groups for it in dropped if it.kind == "repeat")):
            out.update([row for row in group if row not in out][1:])
        if not (kept := sorted({*range(self.rows)} - out)):
            raise UserError("no row is left; drop fewer findings, or fix the file", "export")
        return kept

    def export(self, target: Path, dropped: Iterable[str]) -> File:
        """Write the rows that can be graded, without those of some kinds of findings besides."""
        if self.is_log:
            raise UserError(
                f"{self.source} is a log of answers; olr audit exports what is left of it",
                "export",
            )
        kept = self.without([*UNUSABLE, *dropped])
        is_new = write_rows(self.table, kept, target)
        return File.written(target, f" ({len(kept):,} of {self.rows:,} rows)", is_new=is_new)


def check(source: str, columns: Mapping[ColumnRole, str] | None, judge: Judge) -> Checked:
    """Everything that is found in the questions and labels of a data set, the surest defects first.

    `source` and `columns` are as for `read_prompts`; of a log of answers each question counts once.
    """
    rows, name, data_source, _ = load_rows(source, "train")
    if not len(rows):
        raise no_rows(source, "prompt")
    found = find_columns(rows, columns)
    is_log = "answer" not in found and rows.has("given_label")
    if is_log:
        columns = {**(columns or {}), "question": found["question"], "answer": "given_label"}
        found = find_columns(rows, columns)
    if "answer" not in found:
        raise UserError(
            f"a check needs labels, and {source} has no column of them ({', '.join(LABEL_COLUMNS)});"
            f" {columns_hint(rows, found)}",
            "data.columns",
        )
    asked, cells = asked_in(rows, found["question"]), rows.values(found["answer"])
    blank = [(row, "") for row, question in enumerate(asked) if is_blank(question)]
    kept = sorted({*range(len(asked))} - {row for row, _ in blank})
    if is_log:  # asks a question again for every answer
        pairs = zip(asked, cells, strict=True)
        firsts = {str(pair): row for row, pair in reversed([*enumerate(pairs)])}
        kept = sorted({*kept}.intersection(firsts.values()))
    unread = dict(_unread(kept, cells))
    unseen = [(row, part) for row in kept if (part := unseen_part(asked[row]))]
    kept = sorted({*kept}.difference(unread, (row for row, _ in unseen)))
    findings = [
        _found("no_question", "row without a question", blank),
        _found("image", "question with an image, or another part that is no text", unseen),
        _found("unread", "label holding no answer, or several that differ", unread.items()),
    ]
    if kept:
        reading = Reading(
            {role: path for role, path in (columns or {}).items() if role != "id"}
        )
        prompts = read_rows(
            rows.take(kept), data_source=data_source, split="train", reading=reading
        ).prompts
        findings += _findings([*zip(kept, prompts, strict=True)], judge, rows.origins, cells)
    return Checked(
        name, len(rows), rows, found, [finding for finding in findings if finding.rows]
    )


def _unread(rows: Iterable[int], cells: Sequence[Any]) -> Iterator[tuple[int, str]]:
    """The rows whose cell can't be read as a label, and why."""
    for row in rows:
        try:
            label_of(cells[row])
        except ValueError as error:
            yield row, str(error)


def _findings(
    prompts: Sequence[Asked],
    judge: Judge,
    origins: Origins | None = None,
    cells: Sequence[Any] = (),
) -> Iterator[Finding]:
    """Findings in prompts, each with its row; labels are looked at as they were before noise.

    Without `origins`, which name the rows of a question, and `cells`, the column of labels as it is in the file, only
    what is found in labels: a fraction of the time.
    """
    labels = [(row, prompt.file_label) for row, prompt in prompts]
    sentinel = [(row, SENTINEL) for row, prompt in prompts if prompt.given_label == SENTINEL]
    yield _found("sentinel", "label equal to the sentinel, which no response matches", sentinel)
    marked = {row for row, _ in sentinel}
    missing = [(row, "") for row, label in labels if label is None and row not in marked]
    yield _found("no_label", "row without a label", missing)
    named = [(row, label) for row, label in labels if label is not None]
    empty = [(row, label) for row, label in named if is_placeholder(label)]
    yield _found("no_answer", "placeholder for a label", empty)
    given = [(row, label) for row, label in named if not is_placeholder(label)]
    graded = given if origins is not None else given[:_GRADED_AT_START]
    # Labels that cannot stand in a box, or do not match themselves there (R6, R7).
    read = {
        label: answer
        for _, label in graded
        if (answer := boxed(f"\\boxed{{{label}}}")) is not None
    }
    verdicts = dict(zip(read, judge.matches(read.items()), strict=True))
    unmatched = [(row, label) for row, label in graded if not verdicts.get(label)]
    yield _found("ungradable", "label that no response can match", unmatched)
    parsed = graded if origins is not None else graded[:_READ_AT_START]
    keys = judge.keys(label for _, label in parsed)
    seen = {row for row, _ in unmatched}
    unread = [
        (row, label) for row, label in parsed if row not in seen and not is_read(keys[label])
    ]
    yield _found(
        "unparsed", "label that cannot be read, for which no other spelling counts", unread
    )
    if origins is not None:
        conflicting, agreeing = _repeated(
            prompts, judge, {row for row, _ in (*empty, *unmatched)}
        )
        described = partial(_described, origins)
        yield _of_groups("conflict", "question with different labels", conflicting, described)
    yield _found(
        "proof", "label like a proof", [pair for pair in given if _PROOF.match(pair[1])]
    )
    parts = [(row, label) for row, label in given if _PARTS.match(ends_of(unescape(label)))]
    yield _found("parts", "label with several parts", parts)
    numbers = sum(bool(_NUMBER.fullmatch(label.strip())) for _, label in given)
    if numbers >= _MOSTLY * len(given):
        words = [(row, label) for row, label in given if not any(map(str.isdecimal, label))]
        yield _found("word", "label in words, where most are numbers", words)
        commas = [
            (row, label) for row, label in given if _DECIMAL_COMMA.fullmatch(label.strip())
        ]
        as_list = "label with a decimal comma, read as a list; data.decimal_comma: true reads a number"
        yield _found("decimal_comma", as_list, commas)
    if origins is None:
        return
    asked = {row: question_of(prompt.messages) for row, prompt in prompts}
    yield from _doubtful(asked, given, cells, judge)
    unseen = [
        (row, text)
        for row, text in asked.items()
        if _FIGURE.search(text) and not _DRAWN.search(text)
    ]
    yield _found("no_figure", "question about a figure that is not there", unseen)
    templated = [(row, asked[row]) for row, prompt in prompts if has_template(prompt.messages)]
    yield _found(
        "template",
        "question inside a chat template, which may be put around it again",
        templated,
    )
    yield _of_groups(
        "repeat", "question repeated, case and spaces ignored", agreeing, described
    )


def label_notes(prompts: Sequence[Prompt], data: DataSection) -> Iterator[str]:
    """A sentence about labels of own data that look wrong, marked noise aside, with the command that shows them."""
    if parse_source(data.train) is not None or all(
        prompt.file_label is None for prompt in prompts
    ):
        return
    columns = (
        ()
        if data.columns is None
        else ("--columns", json.dumps(data.columns, ensure_ascii=False))
    )
    findings = _findings([*enumerate(prompts)], shared_judge())
    if found := [
        finding for finding in findings if finding.rows and finding.kind != "sentinel"
    ]:
        count = sum(len(finding.rows) for finding in found)
        things = f"{count:,} thing{'s' * (count > 1)} in {len(prompts):,} rows"
        command = shlex.join(("olr", "check", data.train, *columns))
        yield f"olr check finds {things} ({', '.join(finding.says for finding in found)}): {command}"


def _doubtful(
    asked: Mapping[int, str],
    given: Sequence[tuple[int, str]],
    cells: Sequence[Any],
    judge: Judge,
) -> Iterator[Finding]:
    """Findings that a question, its label and the cell of the label give away without a model."""
    whole = {row: cell for row, _ in given if isinstance(cell := cells[row], str)}
    held = {row: found for row, cell in whole.items() if len(found := boxes(cell)) > 1}
    beside = [(last, other) for last, *others in held.values() for other in others]
    verdicts = dict(zip(beside, judge.matches(beside), strict=True))
    several = [
        (row, " and ".join((last, *others)))
        for row, (last, *others) in held.items()
        if not all(verdicts[last, other] for other in others)
    ]
    yield _found(
        "boxes", "solution with several boxes, of which the last is the label", several
    )
    # around a label that is all of its cell may stand what is left of a lost backslash
    pairs = [
        (row, label if whole.get(row, "").strip() != label.strip() else whole[row])
        for row, label in given
    ]
    doubtful = [(row, label, {*doubts(asked[row], label)}) for row, label in pairs]
    for kind, fault in FAULTS.items():
        having = ((row, label) for row, label, kinds in doubtful if kind in kinds)
        yield _found(
            kind, fault, [(row, f"{_visible(label)}: {asked[row]}") for row, label in having]
        )


def _visible(label: str) -> str:
    return label if label.isprintable() else ascii(label)[1:-1]


def repeat_notes(prompts: PromptSet) -> Iterator[str]:
    """Sentences about prompts that ask the same question, with labels that differ or agree."""
    conflicting, agreeing = _repeated(list(enumerate(prompts.prompts)), shared_judge())
    differing = " with different labels, of which one at most is right"
    for groups, what in ((conflicting, differing), (agreeing, "")):
        if groups:
            are = f"{len(groups)} questions are" if len(groups) > 1 else "1 question is"
            first = ", ".join(
                f"{prompt.file_label} ({prompts.name(row)})" for row, prompt in groups[0]
            )
            yield f"{are} in {prompts.source} more than once{what}; the first: {shortened(first)}"


def _repeated(
    prompts: Sequence[Asked], judge: Judge, ungraded: Container[int] = ()
) -> tuple[list[list[Asked]], list[list[Asked]]]:
    """Groups of prompts that ask the same question (`normal_question`): with labels that differ, and that agree.

    The labels of `ungraded` rows differ from none.
    """
    asking = gathered(
        (normal_question(prompt.messages), (row, prompt)) for row, prompt in prompts
    )
    groups = [group for group in asking.values() if len(group) > 1]
    labels = [
        sorted(
            {
                label
                for row, prompt in group
                if row not in ungraded and (label := prompt.file_label)
            }
        )
        for group in groups
    ]
    pairs = [
        [(group[0][1].asked(names[0]), other) for other in names[1:]]
        for group, names in zip(groups, labels, strict=True)
    ]
    verdicts = dict(zip(chain(*pairs), judge.matches(chain(*pairs)), strict=True))
    differ: list[list[Asked]] = []
    alike: list[list[Asked]] = []
    for group, of_group in zip(groups, pairs, strict=True):
        (alike if all(verdicts[pair] for pair in of_group) else differ).append(group)
    return differ, alike


def _described(origins: Origins, group: Sequence[Asked]) -> tuple[int, str]:
    named = [
        (prompt.file_label, origins.name(row, is_short=True)) for row, prompt in group[:_SHOWN]
    ]
    labels = " and ".join(f"{label} ({name})" for label, name in named)
    return group[0][
        0
    ], f"{labels}: {shortened(' '.join(question_of(group[0][1].messages).split()))}"


def _of_groups(
    kind: str,
    fault: str,
    groups: Sequence[list[Asked]],
    described: Callable[[list[Asked]], tuple[int, str]],
) -> Finding:
    """A finding for each group of rows that ask one question."""
    rows = [[row for row, _ in group] for group in groups]
    others = [row for group in rows for row in group[1:]]
    return replace(_found(kind, fault, map(described, groups)), others=others, groups=rows)


def _found(kind: str, fault: str, rows: Iterable[tuple[int, str]]) -> Finding:
    pairs = list(rows)
    return Finding(kind, fault, [row for row, _ in pairs], [text for _, text in pairs[:_SHOWN]])
