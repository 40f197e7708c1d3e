"""Check a data set before any model sees it: find questions and labels that are wrong, or look wrong.

`check` returns one `Finding` for each kind of defect; `findings.py` lists the kinds.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
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
from html import unescape
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, get_args

from olr_cli.answers import Judge, boxed, is_placeholder, is_read, shared_judge
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.arithmetic import parse_source
from olr_cli.data.chat import unseen_part
from olr_cli.data.choices import NO_CHOICES, Options, label_in, read_options
from olr_cli.data.columns import LABEL_COLUMNS
from olr_cli.data.doubts import boxes, doubts, ends_of, is_changed, is_day
from olr_cli.data.findings import KINDS, UNUSABLE, kind_named
from olr_cli.data.label_columns import beside, column_notes, not_read
from olr_cli.data.labels import is_tests
from olr_cli.data.prompt_files import (
    Reading,
    asked_in,
    columns_hint,
    find_columns,
    is_blank,
    load_rows,
    read_rows,
)
from olr_cli.data.prompts import Prompt, PromptSet
from olr_cli.data.questions import has_template, normal_question, question_of
from olr_cli.data.rows import Rows
from olr_cli.data.values import Origins
from olr_cli.data.writers import write_rows
from olr_cli.errors import UserError, no_rows, shortened
from olr_cli.grouping import gathered
from olr_cli.recipe.sections import ColumnRole
from olr_cli.tables import File

_NUMBER = re.compile(r"[-+]?\$?\d[\d,]*(?:\.\d+)?%?")
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,(?:\d{1,2}|\d{4,})")
_PROOF = re.compile(
    r"(?i)\W*(?:proof\b|prove[dn]\b|q\.?e\.?d\b)|.*\b(?:we|to) (?:prove|show)\b|.*\bas (?:required|desired)\W*$"
)
_PARTS = re.compile(
    r"(?is).*\(a\).*\(b\)|.*\(i\).*\(ii\)|\s*(?:1|a)\).*\b(?:2|b)\)|.*\S;\s*\S"
)
_FIGURE = re.compile(
    r"(?i)\b(?:in|from|see) the (?:\w+ )?(?:figure|diagram|picture|drawing)\b"
    r"|\bin (?:figure|fig\.) ?\d"
    r"|\b(?:figure|diagram|picture|graph|chart|drawing) (?:below|above|shown)\b|<image>|!\[[^\[\]]*\]\("
)
_FIGURE_WORDS = (
    *("fig", "diagram", "picture", "drawing", "graph", "chart"),
    *("<image>", "!["),
)
"""Words without which `_FIGURE` cannot match; it takes longer than all other searches of a question together."""

_DRAWN = re.compile(r"\[asy\]|\\begin\{(?:tikzpicture|array|tabular)\}")
"""A figure that is written in the question itself, as code or as a table."""

_MOSTLY = 0.8
"""Share of numbers among the labels from which on a label without any digit is unusual."""

ALL = "all"
"""The name for all kinds of findings together."""

_SHOWN = 3
"""Number of example rows in a finding."""

_GRADED_AT_START = 2_000
"""Number of labels that are graded before a run starts; it takes a quarter of a second if all are formulas."""

_READ_AT_START = 100
"""Number of labels that are parsed before a run starts; parsing takes a hundred times as long as grading."""

Asked: TypeAlias = tuple[int, Prompt]
"""The number of a row among all rows of the files, from 0, and its prompt."""

Labelled: TypeAlias = tuple[int, str]
"""The number of a row, and its label or the text that a finding shows for it."""


@dataclass(frozen=True)
class Finding:
    """One suspected defect in a data set: its kind, the rows that have it, and examples of their texts."""

    kind: str
    """A short name, for machines."""

    fault: str
    """A noun in the singular and its defect: ``row without a label``."""

    rows: Sequence[int]
    """Numbers of the rows among all rows of the files, from 0; of repeated questions, each question's first row."""

    examples: Sequence[str]
    """Texts of the first few rows."""

    others: Sequence[int] = ()
    """The rows that repeat the question of one of `rows`."""

    groups: Sequence[Sequence[int]] = field(default=(), repr=False)
    """For each of `rows`, all rows that ask its question."""

    @property
    def says(self) -> str:
        """The number of `rows` and their defect in words: ``2 rows without a label``."""
        thing, _, rest = self.fault.partition(" ")
        return f"{len(self.rows):,} {thing}{'s' * (len(self.rows) > 1)} {rest}"


@dataclass(frozen=True)
class Checked:
    """The result of `check`: the rows of a data set, how they were read, and their suspected defects."""

    source: str
    """The name of the data set."""

    rows: int
    """Number of rows."""

    table: Rows = field(repr=False)
    """The rows as they are in the source."""

    columns: Mapping[str, str]
    """Role -> path of the columns that were read."""

    not_read: Sequence[str]
    """Names of the columns that were not read."""

    notes: Sequence[str] = field(repr=False)
    """Sentences on how the rows were read."""

    findings: Sequence[Finding]

    @property
    def is_log(self) -> bool:
        """Whether the data set is a log of responses: its labels then come from the column `given_label`."""
        return self.columns["answer"] == "given_label"

    def left_out(self, kinds: Collection[str]) -> dict[int, str]:
        """Return the rows that an export leaves out, as row number -> kind of the finding.

        All rows with a finding of a kind in `kinds`, such as ``no_label``, are left out. Only the kind ``repeat`` (rows
        with the same question and label) spares one row of each question: the first that no other kind in `kinds`
        leaves out.

        Raises:
            UserError: there is no such kind, or no row is left.
        """
        for kind in kinds:
            kind_named(kind, "drop")
        left_out: dict[int, str] = {}
        chosen = [finding for finding in self.findings if finding.kind in kinds]
        # Repetitions come last: otherwise the row that stays could be one that another finding leaves out.
        for finding in sorted(chosen, key=lambda it: it.kind == "repeat"):
            rows = [*finding.rows, *finding.others]
            if finding.kind == "repeat":
                groups = [
                    [row for row in it if row not in left_out] for it in finding.groups
                ]
                rows = [row for group in groups for row in group[1:]]
            left_out |= {row: finding.kind for row in rows if row not in left_out}
        if len(left_out) == self.rows:
            raise UserError(
                "no row is left", "drop fewer findings, or fix the file", "export"
            )
        return left_out

    def export(self, target: Path, dropped: Collection[str]) -> File:
        """Write the rows to a new file, without those that have a finding of a kind in `dropped`.

        Rows that cannot be graded are always left out, and `ALL` in `dropped` stands for every kind. The returned
        `File` describes the new file and says how many rows were left out.

        Raises:
            UserError: the data set is a log of responses, a kind is unknown, or no row is left.
        """
        if self.is_log:
            raise UserError(
                f"{self.source} is a log of answers",
                "olr audit exports what is left of it",
                "export",
            )
        left_out = self.left_out(KINDS if ALL in dropped else [*UNUSABLE, *dropped])
        kept = [row for row in range(self.rows) if row not in left_out]
        is_new = write_rows(self.table, kept, target)
        counted = Counter(left_out.values()).items()
        counts = ", ".join(f"{count:,} {kind}" for kind, count in counted)
        without = f"; left out: {counts}" if left_out else ""
        text = f" ({len(kept):,} of {self.rows:,} rows){without}"
        return File.written(target, text, is_new=is_new)


@dataclass(frozen=True)
class Limit:
    """The length above which `check` reports a prompt as too long, its unit, and a function that measures prompts."""

    most: int
    """The limit, in `unit`."""

    unit: str
    """Plural of the unit of length: ``characters`` or ``tokens``."""

    lengths: Callable[[Sequence[Prompt]], Iterable[int]]
    """Function that measures prompts, in `unit`."""


CHARACTERS = Limit(
    8_192,
    "characters",
    lambda prompts: (len(prompt.messages[-1].content) for prompt in prompts),
)
"""The limit without a tokenizer: about as many characters as train.max_prompt_tokens holds."""


def check(
    source: str, reading: Reading, judge: Judge, limit: Limit = CHARACTERS
) -> Checked:
    """Check the questions and labels of a data set; in the result, the surest defects come first.

    In a log of responses, several rows may have the same question and label. Only the first of these rows is checked.

    Args:
        source: a file, a folder, a built-in set or a hub id, as for `read_prompts`.
        reading: the user's settings, such as the columns and the encoding.
        judge: grader that compares labels.
        limit: the length above which a prompt is reported.

    Raises:
        UserError: the data set cannot be read, or has no rows or no labels.
    """
    rows, name, data_source, _ = load_rows(source, "train", reading.encoding)
    if not len(rows):
        raise no_rows(source, "prompt")
    reading, columns = _columns_of(rows, reading, source)
    questions, cells = asked_in(rows, columns["question"]), rows.values(columns["answer"])
    blank = [(row, "") for row, question in enumerate(questions) if is_blank(question)]
    kept = sorted({*range(len(questions))} - {row for row, _ in blank})
    if columns["answer"] == "given_label":  # a log asks a question again for every answer
        pairs = zip(questions, cells, strict=True)
        # In reverse, so that the first row of each pair is the last to be stored, and stays.
        firsts = {str(pair): row for row, pair in reversed([*enumerate(pairs)])}
        kept = sorted({*kept}.intersection(firsts.values()))
    # Take out unreadable rows first: `read_rows` would stop at the first of them with an error.
    choices = read_options(rows, columns.get("choices"))
    unreadable = _unreadable(kept, questions, [*zip(cells, choices, strict=True)])
    findings = [
        _found("no_question", blank),
        *unreadable,
        *_in_other_columns(rows, {*kept}),
    ]
    kept = sorted({*kept}.difference(*(finding.rows for finding in unreadable)))
    notes: Sequence[str]
    if kept:
        # Row numbers serve as ids: findings name rows, digests would take time, and ids in the file may repeat.
        prompts = read_rows(
            rows.take(kept),
            data_source=data_source,
            split="train",
            reading=reading,
            prompt_ids=[*map(str, kept)],
        )
        notes, asked_rows = prompts.notes, [*zip(kept, prompts.prompts, strict=True)]
        findings += _findings(asked_rows, judge, rows.origins, cells)
        findings.append(_long(asked_rows, limit))
    else:
        notes = [*column_notes(rows, columns)]
    is_log = columns["answer"] == "given_label"
    return Checked(
        name,
        len(rows),
        rows,
        columns,
        [] if is_log else not_read(rows, columns.values()),
        notes,
        [finding for finding in findings if finding.rows],
    )


def _long(prompts: Sequence[Asked], limit: Limit) -> Finding:
    """Return the finding about prompts that are longer than a limit; it has no rows if all prompts are short enough.

    `prompts` are (row number, prompt) pairs.
    """
    lengths = limit.lengths([prompt for _, prompt in prompts])
    long = [
        (row, f"{length:,} {limit.unit}: {question_of(prompt.messages)}")
        for (row, prompt), length in zip(prompts, lengths, strict=True)
        if length > limit.most
    ]
    fault = f"question longer than {limit.most:,} {limit.unit}"
    return replace(_found("long", long), fault=fault)


def _columns_of(
    rows: Rows, reading: Reading, source: str
) -> tuple[Reading, Mapping[str, str]]:
    """Find the columns to read; return a copy of `reading` with their paths, and the mapping role -> path.

    A role is what a column holds, such as ``question`` or ``answer``. If no usual column holds labels, the column
    `given_label` of a log of responses does.

    The copy leaves out the column of ids, because an id that repeats would stop the check.

    Raises:
        UserError: there is no column of questions or of labels; the message names `source`.
    """
    named: dict[ColumnRole, str] = {**(reading.columns or {})}
    columns_found = find_columns(rows, named)
    if "answer" not in columns_found and rows.has("given_label"):
        columns_found = {**columns_found, "answer": "given_label"}
    if "answer" not in columns_found:
        raise UserError(
            f"a check needs labels, and {source} has no column of them ({', '.join(LABEL_COLUMNS)})",
            columns_hint(rows, columns_found, has_choices="choices" in columns_found),
            "data.columns",
        )
    path_by_role = {"choices": NO_CHOICES, **columns_found}
    # Ids are not read, so that a column of ids with repeats does not stop the check.
    columns = {
        role: path_by_role[role]
        for role in get_args(ColumnRole)
        if role in path_by_role and role != "id"
    }
    return replace(reading, columns=columns), columns_found


def _in_other_columns(rows: Rows, kept: Container[int]) -> Iterator[Finding]:
    """Yield findings about labels that a value in another column makes doubtful.

    Such a value is a unit with a power of ten, which the label lacks, or a mark that the row is not valid. Only rows
    whose numbers are in `kept` are counted.
    """
    for kind, pairs in gathered(beside(rows)).items():
        # Through a dict, because two columns may say the same about a row.
        yield _found(kind, [it for it in sorted(dict(pairs).items()) if it[0] in kept])


def _unreadable(
    rows: Iterable[int],
    questions: Sequence[Any],
    cells: Sequence[tuple[Any, Options | None]],
) -> list[Finding]:
    """Return three findings: questions with images, labels that cannot be read, and labels that are tests of programs.

    Args:
        rows: numbers of the rows to check.
        questions: the question of every row of the file.
        cells: for every row of the file, the label as it is stored, and the options of the question or None.
    """
    labels_by_kind: defaultdict[str, list[Labelled]] = defaultdict(list)
    for row in rows:
        cell, options = cells[row]
        if part := unseen_part(questions[row]):
            labels_by_kind["image"].append((row, part))
        try:
            if is_tests(cell):
                labels_by_kind["tests"].append((row, str(cell)))
            else:
                label_in(cell, options)
        except ValueError as error:
            labels_by_kind["not_one_answer"].append((row, str(error)))
    return [
        _found(kind, labels_by_kind[kind]) for kind in ("image", "not_one_answer", "tests")
    ]


def _findings(
    prompts: Sequence[Asked], judge: Judge, origins: Origins, cells: Sequence[Any]
) -> list[Finding]:
    """Return the findings about prompts, in the order in which they are shown; some may have no rows.

    If noise has replaced a label, the original label is checked.

    Args:
        prompts: (row number, prompt) pairs.
        judge: grader of labels.
        origins: names of the rows, for messages.
        cells: for every row of the file, the label as it is stored.
    """
    lacking, labels = _without_an_answer(prompts)
    rejected = _rejected(labels, labels, judge)
    ungraded = {
        row
        for finding in (*lacking, *rejected)
        if finding.kind in ("no_answer", "ungradable")
        for row in finding.rows
    }
    # A label that cannot be graded matches nothing, so it must not turn a repetition into a conflict.
    conflicting, agreeing = _repeated(prompts, judge, ungraded)
    return [
        *lacking,
        *rejected,
        _of_groups("conflict", conflicting, origins),
        *_unlike_an_answer(labels),
        *_row_findings(prompts, labels, cells, judge),
        _of_groups("repeat", agreeing, origins),
    ]


def _without_an_answer(prompts: Sequence[Asked]) -> tuple[list[Finding], list[Labelled]]:
    """Return findings on labels that are no answers, and a (row number, label) pair for each label that is an answer.

    Four kinds of label are no answers: a missing one, a placeholder such as ``N/A``, tests of a program, and the
    sentinel, which is the text by which noise replaces a label.

    If a row has the sentinel and its original label is known, the original is tested too. The row may then be in a
    second finding or among the answers.
    """
    rows: defaultdict[str, list[Labelled]] = defaultdict(list)
    for row, prompt in prompts:
        label, is_noise = prompt.file_label, prompt.given_label == SENTINEL
        if is_noise:
            rows["sentinel"].append((row, SENTINEL))
        if label is not None:
            kind = "tests" if is_tests(label) else "label"
            rows["no_answer" if is_placeholder(label) else kind].append((row, label))
        elif not is_noise:
            # If noise has replaced a label, the label from before may be lost: the row counts as noise only.
            rows["no_label"].append((row, ""))
    findings = [
        _found(kind, rows[kind]) for kind in ("sentinel", "no_label", "no_answer", "tests")
    ]
    return findings, rows["label"]


def _rejected(
    graded: Sequence[Labelled], parsed: Sequence[Labelled], judge: Judge
) -> list[Finding]:
    """Return two findings: labels that no response can match, and labels that the grader can only compare as texts.

    Args:
        graded: (row number, label) pairs to test for the first finding.
        parsed: (row number, label) pairs to test for the second. This takes far longer, so there may be fewer pairs.
        judge: the grader.
    """
    # A label that cannot stand in a box, or does not match itself there, matches no response (R6, R7).
    in_boxes = {label: boxed(f"\\boxed{{{label}}}") for _, label in graded}
    read = {label: answer for label, answer in in_boxes.items() if answer is not None}
    verdicts = dict(zip(read, judge.matches(read.items()), strict=True))
    unmatched = [(row, label) for row, label in graded if not verdicts.get(label)]
    rejected = {row for row, _ in unmatched}
    keys = judge.keys(label for _, label in parsed)
    unread = [
        (row, label)
        for row, label in parsed
        if row not in rejected and not is_read(keys[label])
    ]
    return [_found("ungradable", unmatched), _found("text_only", unread)]


def _unlike_an_answer(labels: Sequence[Labelled]) -> Iterator[Finding]:
    """Yield findings on labels that do not look like an answer; `labels` are (row number, label) pairs.

    Two findings are always made: labels that look like a proof, and labels that look like answers to several parts. If
    most labels are numbers, there are two more: labels without a digit, and labels with a decimal comma.
    """
    yield _found("proof", [pair for pair in labels if _PROOF.match(pair[1])])
    yield _found(
        "parts", [pair for pair in labels if _PARTS.match(ends_of(unescape(pair[1])))]
    )
    # In a data set of formulas or names, a label in words is nothing unusual.
    numbers = sum(bool(_NUMBER.fullmatch(label.strip())) for _, label in labels)
    if numbers >= _MOSTLY * len(labels):
        yield _found(
            "word", [pair for pair in labels if not any(map(str.isdecimal, pair[1]))]
        )
        commas = [pair for pair in labels if _DECIMAL_COMMA.fullmatch(pair[1].strip())]
        yield _found("decimal_comma", commas)


def _row_findings(
    prompts: Sequence[Asked], labels: Sequence[Labelled], cells: Sequence[Any], judge: Judge
) -> Iterator[Finding]:
    """Yield the findings about single rows: doubtful labels, missing figures, questions inside a chat template.

    Args:
        prompts: (row number, prompt) pairs.
        labels: (row number, label) pairs of those rows whose label is an answer.
        cells: for every row of the file, the label as it is stored.
        judge: the grader, which compares the boxed answers within a worked solution.
    """
    question_by_row = _questions(prompts)
    texts = {row: cell for row, _ in labels if isinstance(cell := cells[row], str)}
    yield _found("boxes", _differing_boxes(texts, judge))
    doubtful: list[tuple[str, Labelled]] = []
    for row, label in labels:
        # Reading may strip a control character, left by a lost backslash, from the edge of a label: the cell has it.
        cell = texts.get(row, "")
        written = cell if cell.strip() == label.strip() else label
        shown = written if written.isprintable() else ascii(written)[1:-1]
        example = (row, f"{shown}: {question_by_row[row]}")
        doubtful += [(kind, example) for kind in doubts(question_by_row[row], written)]
    by_kind = gathered(doubtful)
    yield _spreadsheet_finding(question_by_row, prompts, labels)
    yield from (_found(kind, by_kind[kind]) for kind in KINDS if kind in by_kind)
    figures = [(row, text) for row, text in question_by_row.items() if _lacks_figure(text)]
    yield _found("no_figure", figures)
    templated = [
        (row, question_by_row[row])
        for row, prompt in prompts
        if has_template(prompt.messages)
    ]
    yield _found("template", templated)


def _lacks_figure(question: str) -> bool:
    """Return whether a question mentions a figure that is not in its text."""
    # Beyond ASCII, skip this shortcut: with case ignored, a pattern's `i` also matches `ı`, which stays `ı` here.
    lower = question.lower() if question.isascii() else _FIGURE_WORDS[0]
    is_likely = any(word in lower for word in _FIGURE_WORDS)
    return is_likely and bool(_FIGURE.search(question)) and not _DRAWN.search(question)


def _questions(prompts: Sequence[Asked]) -> dict[int, str]:
    """Return row number -> the user's last question, without chat template, for (row number, prompt) pairs."""
    return {row: question_of(prompt.messages) for row, prompt in prompts}


def _spreadsheet_finding(
    questions: Mapping[int, str], prompts: Sequence[Asked], labels: Sequence[Labelled]
) -> Finding:
    """Return the finding about labels that a spreadsheet may have changed, for example from 1/2 to a date.

    A label of five digits may also be a date, stored as a number. It counts only if the file has other traces of a
    spreadsheet, such as the label ``#REF!``.

    Args:
        questions: row number -> question. A date is no trace if the question asks for one. The finding quotes the
            question.
        prompts: (row number, prompt) pairs of all rows. Their labels are searched for ``#REF!`` and the like, which
            `labels` lacks.
        labels: (row number, label) pairs of the rows whose label is an answer; these labels are tested.
    """
    changed = {row for row, label in labels if is_changed(questions[row], label)}
    errors = (
        label for _, prompt in prompts if (label := prompt.file_label or "")[:1] == "#"
    )
    # A number of five digits may be a date, but only if a spreadsheet has left other traces in the file.
    if changed or any(map(is_placeholder, errors)):
        changed |= {row for row, label in labels if is_day(label)}
    shown = [(row, f"{label}: {questions[row]}") for row, label in labels if row in changed]
    return _found("spreadsheet", shown)


def _differing_boxes(solutions: Mapping[int, str], judge: Judge) -> Iterator[Labelled]:
    r"""Yield (row number, text) for each worked solution whose last ``\boxed{…}`` does not match an earlier one.

    `solutions` is row number -> worked solution. The text lists the different contents of the boxes, the last one
    first.
    """
    # One call for all solutions: the judge compares equal pairs once, and shares the rest among its workers.
    pairs_of: dict[int, list[tuple[str, str]]] = {}
    for row, solution in solutions.items():
        last, *others = boxes(solution) or [""]
        if others:
            pairs_of[row] = [(last, other) for other in others]
    pairs = [*chain(*pairs_of.values())]
    verdicts = dict(zip(pairs, judge.matches(pairs), strict=True))
    for row, of_row in pairs_of.items():
        if not all(verdicts[pair] for pair in of_row):
            last = of_row[0][0]
            yield row, " and ".join((last, *(other for _, other in of_row)))


def label_notes(
    prompts: Sequence[Prompt], source: str, reading: Reading, rows: Rows | None = None
) -> Iterator[str]:
    """Yield a note that counts the labels that look wrong and names the `olr check` command that shows them.

    There is no note if the data set is built in or has no labels, or if no label looks wrong. Labels that noise has
    replaced are not counted. To save time, the grader tests only the first labels, so the command may find more.

    Args:
        prompts: the prompts with the labels.
        source: name of the data set, for the command.
        reading: the settings by which the prompts were read, for the command.
        rows: the prompts' rows, to test their columns of units and of validity too; None to skip this test.
    """
    is_built_in = parse_source(source) is not None
    if is_built_in or all(prompt.file_label is None for prompt in prompts):
        return
    numbered = [*enumerate(prompts)]
    lacking, labels = _without_an_answer(numbered)
    rejected = _rejected(labels[:_GRADED_AT_START], labels[:_READ_AT_START], shared_judge())
    other_findings = () if rows is None else _in_other_columns(rows, range(len(rows)))
    findings = (
        *lacking,
        *rejected,
        *_unlike_an_answer(labels),
        _spreadsheet_finding(_questions(numbered), numbered, labels),
        *other_findings,
    )
    findings_to_show = [it for it in findings if it.rows and it.kind != "sentinel"]
    if findings_to_show:
        count = sum(len(finding.rows) for finding in findings_to_show)
        things = f"{count:,} thing{'s' * (count > 1)} in {len(prompts):,} rows"
        command = shlex.join(("olr", "check", source, *reading.options))
        yield f"olr check finds {things} ({', '.join(finding.says for finding in findings_to_show)}): {command}"


def repeat_notes(prompts: PromptSet) -> Iterator[str]:
    """Yield up to two notes: on questions that repeat with different labels, and on all other questions that repeat."""
    conflicting, agreeing = _repeated(list(enumerate(prompts.prompts)), shared_judge())
    differing = " with different labels, of which one at most is right"
    for groups, remark in ((conflicting, differing), (agreeing, "")):
        if groups:
            are = f"{len(groups)} questions are" if len(groups) > 1 else "1 question is"
            first = ", ".join(
                f"{prompt.file_label} ({prompts.name(row)})" for row, prompt in groups[0]
            )
            yield f"{are} in {prompts.source} more than once{remark}; the first: {shortened(first)}"


def _repeated(
    prompts: Sequence[Asked], judge: Judge, ungraded: Container[int] = ()
) -> tuple[list[list[Asked]], list[list[Asked]]]:
    """Group the prompts that ask the same question; return the groups with differing labels, then all other groups.

    A group is a list of at least two (row number, prompt) pairs. Two questions are the same if they differ only in
    spelling, such as case or spaces (`normal_question`). Rows in `ungraded` stay in their groups, but their labels are
    not compared.
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
    # Compare all labels of a group with one of them, not with each other: that is enough to find a difference.
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


def _of_groups(kind: str, groups: Sequence[list[Asked]], origins: Origins) -> Finding:
    """Build the finding of a kind from groups of (row number, prompt) pairs that ask the same question.

    The finding's `rows` are the first row of each group, its `others` are all remaining rows, and its examples show the
    labels of the first groups.
    """
    shown = [(group[0][0], _described(group, origins)) for group in groups]
    rows = [[row for row, _ in group] for group in groups]
    others = [row for group in rows for row in group[1:]]
    return replace(_found(kind, shown), others=others, groups=rows)


def _described(group: Sequence[Asked], origins: Origins) -> str:
    """Describe a group by its first labels, their rows and its question: ``2 (line 2) and 3 (line 3): What?``."""
    labels = " and ".join(
        f"{prompt.file_label} ({origins.name(row, is_short=True)})"
        for row, prompt in group[:_SHOWN]
    )
    question = " ".join(question_of(group[0][1].messages).split())
    return f"{labels}: {shortened(question)}"


def _found(kind: str, rows: Iterable[Labelled]) -> Finding:
    """Build a finding of a kind from (row number, text) pairs; the first few texts become its examples."""
    pairs = list(rows)
    examples = [text for _, text in pairs[:_SHOWN]]
    return Finding(kind, KINDS[kind].fault, [row for row, _ in pairs], examples)
