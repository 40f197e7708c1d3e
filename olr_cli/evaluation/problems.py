"""The problems of a benchmark: from the hub, from files in the interchange format, or from a built-in set.

Rows of the interchange format keep their messages, and get R21's system message if they have none. Rows with other
columns are filled into the benchmark's prompt; their options become lines such as ``A) Venus``.

Repeated interchange rows are one problem (R19: AIME's 240 rows are 30 problems, 8 times each).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import pyarrow as pa

from olr_cli import seeding
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.chat import Message
from olr_cli.data.choices import NO_CHOICES, choice_path, option_columns
from olr_cli.data.columns import CHOICE_COLUMNS
from olr_cli.data.hub import HubId, load_hub_table
from olr_cli.data.prompt_files import Reading, read_prompts, read_rows
from olr_cli.data.prompts import Prompt
from olr_cli.data.questions import normal_question
from olr_cli.data.rows import Rows
from olr_cli.data.table_files import files_of_one_split, matching_files, read_table
from olr_cli.data.values import Origins
from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import PAPER, Benchmark, ProblemFields, registry

_TASK_SIZE = 400
"""Number of problems of a built-in set if the benchmark does not name one."""

MOST_OPTIONS = 10
"""Largest number of options of a multiple-choice problem: MMLU-Pro has up to 10."""

_LETTERS = tuple(ascii_uppercase[:MOST_OPTIONS])
_NUMBERS = tuple(str(number) for number in range(1, MOST_OPTIONS + 1))
# `A) Venus`, `(B) Mars`, `3) Earth` at the start of a line
_OPTION = re.compile(r"^\(?([A-Z]|\d+)\) ", re.MULTILINE)


def load_problems(
    benchmark: Benchmark, *, data: Path | None = None, limit: int | None = None
) -> list[Prompt]:
    """Return the problems of a benchmark, in the order of their first appearance. Each has a gold (`Prompt.gold`).

    Args:
        benchmark: the benchmark.
        data: a file with a column ``data_source``, or a folder of such files. Rows whose ``data_source`` is the
            benchmark's name or an alias are read instead of the benchmark's source. Without such rows, a source on this
            machine is read. None: the source is read.
        limit: return only this many problems, from the beginning; None: all.

    Raises:
        UserError: the problems cannot be read or have no golds; without `limit`, their number is not
            `Benchmark.problems`; or the source is on the hub and `data` has no rows of the benchmark.
    """
    problems = None if data is None else _from_data(benchmark, data)
    if problems is None:
        problems = _from_source(benchmark, limit)
    if limit is not None:
        return problems[:limit]
    if benchmark.problems not in (None, len(problems)):
        raise UserError(
            f"{benchmark.name} has {benchmark.problems} problems, and {len(problems)} were found in"
            f" {data or benchmark.source.place}",
            "use whole data, each problem once, or limit them to the first few",
        )
    return problems


def digest(problems: Iterable[Prompt]) -> str:
    """Return the sha256, in hexadecimal, of the problems' ids, messages, golds and numbers of options, in order."""
    rows = [
        (p.prompt_id, [(m.role, m.content) for m in p.messages], p.gold, p.choices)
        for p in problems
    ]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _from_source(benchmark: Benchmark, limit: int | None) -> list[Prompt]:
    """Return the problems of the benchmark's own source.

    For a built-in set, `limit` is the largest number of problems to make. Any other source is read as a whole.
    """
    source = benchmark.source
    if source.task is not None:
        size = min(filter(None, (limit, benchmark.problems or _TASK_SIZE)))
        prompts = read_prompts(source.task, split="test", limit=size).prompts
        return [prompt for prompt in prompts if prompt.gold is not None]
    table = (
        _hub_table(benchmark)
        if source.hub is not None
        else read_table(files_of_one_split(source.place))
    )
    return _of_table(
        benchmark, None if _has_messages(table) else benchmark.fields, table, source.place
    )


def _hub_table(benchmark: Benchmark) -> pa.Table:
    source = benchmark.source
    try:
        hub_id = HubId(source.place, source.config, source.split, source.revision)
        return load_hub_table(hub_id, source.split)[0]
    except UserError as error:
        # The hub's own message does not say where the terms are, nor that a token has to be set.
        if source.gated:
            page = benchmark.page or f"https://huggingface.co/datasets/{source.hub}"
            raise UserError(
                f"{benchmark.name} is gated ({error.problem})",
                f"accept its terms at {page} and set HF_TOKEN to a token of the account that did, or give a file of its"
                " problems as data",
            ) from None
        raise UserError(
            f"{benchmark.name}: {error.problem}",
            "without a network, give a file that has its problems as data",
        ) from None


def _from_data(benchmark: Benchmark, data: Path) -> list[Prompt] | None:
    """Return the problems in those rows of data files whose `data_source` is the benchmark's name or an alias.

    Returns:
        The problems, or None if there are no such rows and the benchmark's own source needs no network.

    Raises:
        UserError: there are no such rows, and the source is on the hub.
    """
    tables, sources = [], set[str]()
    for file, names in _data_sources(data):
        sources.update(filter(None, names))
        if not benchmark.names.isdisjoint(names):
            tables.append(
                read_table([file]).filter(
                    pa.array([name in benchmark.names for name in names])
                )
            )
    if tables:
        table = pa.concat_tables(tables, promote_options="permissive")
        return _of_table(benchmark, None, table, str(data))
    # A file or built-in set is on this machine, so the data need not replace it. A set on the hub would need a network,
    # which `data` is meant to avoid.
    if benchmark.source.hub is None:
        return None
    wanted = " or ".join((benchmark.name, *benchmark.aliases))
    raise UserError(
        f"{data} has no rows whose data_source is {wanted} (it has"
        f" {', '.join(sorted(sources)) or 'none'})",
        "name other data",
    )


def benchmarks_in(data: Path) -> tuple[list[str], set[str]]:
    """Find out which of the paper's benchmarks have rows in data files, by the column `data_source`.

    Returns:
        The names of these benchmarks in the paper's order, and the set of all values of the column, also of those that
        name no benchmark.
    """
    sources = {
        name for _, names in _data_sources(data) for name in names if name is not None
    }
    return [
        name for name in PAPER if not registry()[name].names.isdisjoint(sources)
    ], sources


def _data_sources(data: Path) -> Iterator[tuple[Path, list[str | None]]]:
    """Yield (file, values) for each data file that has a column `data_source`.

    The values are those of the column, one for each row of the file; None for a row without a value.

    Args:
        data: a data file, or a folder of such files.
    """
    for file in matching_files(str(data)):
        # Read this column alone: the folder may hold large files that have nothing to do with the benchmark.
        table = read_table([file], {"data_source"})
        if "data_source" in table.column_names:
            yield file, Rows(table, Origins(str(file))).texts("data_source")


def _has_messages(table: pa.Table) -> bool:
    """Return whether a table is in the interchange format, so that its column `prompt` holds lists of chat messages."""
    return "prompt" in table.column_names and pa.types.is_nested(
        table.schema.field("prompt").type
    )


def _of_table(
    benchmark: Benchmark, fields: ProblemFields | None, table: pa.Table, place: str
) -> list[Prompt]:
    """Return the problems in a table of rows.

    Without `fields`, rows that repeat a question with the same gold are left out. If there are exactly as many rows as
    the benchmark has problems, none counts as a repeat.

    Args:
        benchmark: the benchmark.
        fields: names of the columns. None: chat messages in the interchange format, or columns of the usual names.
        table: the rows.
        place: where the rows come from, for errors.

    Raises:
        UserError: the rows cannot be read, or a problem has no gold.
    """
    if fields is not None:
        return _of_columns(benchmark, fields, Rows(table, Origins(place)))
    prompts, numbers = _prompts(table, benchmark, place)
    # If there are exactly as many rows as problems, none is a repeat, even if the benchmark asks a question twice.
    if len(prompts) != benchmark.problems:
        first: dict[tuple[str, str | None], int] = {}
        for row, prompt in zip(numbers, prompts, strict=False):
            first.setdefault((normal_question(prompt.messages), prompt.gold), row)
        # Read the first rows again: ids depend on row numbers, and on which questions are unique.
        if len(first) < len(prompts):
            prompts, _ = _prompts(table.take(list(first.values())), benchmark, place)
    _require_golds(prompts, place)
    # Plain questions get the benchmark's prompt; messages of the interchange format are asked as they are.
    is_plain = not _has_messages(table)
    return [
        _problem(benchmark, prompt, is_plain=is_plain, place=place) for prompt in prompts
    ]


def _of_columns(benchmark: Benchmark, fields: ProblemFields, rows: Rows) -> list[Prompt]:
    """Return the problems in the columns that `fields` names.

    For multiple choice, the benchmark's prompt shows the options below the question, a line each.
    """
    place = rows.place
    table = _renamed(benchmark, fields, rows)
    options = _options(fields, rows) if fields.options else None
    prompts, numbers = _prompts(
        table, benchmark, f"{place} ({fields.problem} -> {fields.answer})"
    )
    if fields.right_option is None:
        _require_golds(prompts, place)
    if options is None:
        return [
            _problem(benchmark, prompt, is_plain=True, place=place) for prompt in prompts
        ]
    return [
        _multiple_choice(
            benchmark, fields, prompt, options[row], f"{place}: problem {prompt.prompt_id}"
        )
        for prompt, row in zip(prompts, numbers, strict=False)
    ]


def _require_golds(prompts: Sequence[Prompt], place: str) -> None:
    """Raise `UserError` unless every problem has a true answer as gold; `place` names their source in the error."""
    without = [prompt.prompt_id for prompt in prompts if prompt.gold in (None, SENTINEL)]
    if without:
        raise UserError(
            f"{place}: {len(without)} of {len(prompts)} problems have no true answer to grade by (the first:"
            f" {without[0]})",
            "fill them in or leave these rows out",
        )


def _problem(benchmark: Benchmark, prompt: Prompt, *, is_plain: bool, place: str) -> Prompt:
    """Return a problem with the chat messages that the model is given.

    For multiple choice, the options are read from the question, and the gold becomes the right option's label or its
    position, counted from 1.

    Args:
        benchmark: decides the prompt, the system message and the grader.
        prompt: the problem as read from a row.
        is_plain: True if the row's question is plain text, which is put into the benchmark's `prompt`. False if it is a
            list of chat messages, which are kept; only a missing system message is added.
        place: where the row comes from, for errors.
    """
    messages, gold = prompt.messages, prompt.gold
    if is_plain:
        messages = _messages(benchmark, benchmark.ask(messages[-1].content))
    elif benchmark.system is not None and all(
        message.role != "system" for message in messages
    ):
        messages = (Message("system", benchmark.system), *messages)
    labels = _labels(messages[-1].content) if benchmark.grader == "choice" else []
    if labels and gold is not None:
        gold = _label(gold, labels, prompt.prompt_id, place)
    return replace(prompt, messages=messages, true_answer=gold, choices=len(labels) or None)


def _prompts(
    table: pa.Table, benchmark: Benchmark, place: str
) -> tuple[Sequence[Prompt], Sequence[int]]:
    """Return the prompts in a table, and for each the index of its row; rows without a question are skipped."""
    prompts = read_rows(
        Rows(table, Origins(place)),
        data_source=benchmark.name,
        split="test",
        # The order of options is drawn by these ids, so the way in which they are made must never change.
        reading=Reading(are_numbered=True, is_text_only=True),
    )
    return prompts.prompts, prompts.origins.numbers


def _messages(benchmark: Benchmark, question: str) -> tuple[Message, ...]:
    system = () if benchmark.system is None else (Message("system", benchmark.system),)
    return (*system, Message("user", question))


def _labels(question: str) -> list[str]:
    """Return the labels of the options at the end of a question: A, B, C … or 1, 2, 3 …; empty if there are none."""
    in_order: list[str] = _OPTION.findall(question)
    # Letters first: an option with a letter may contain a numbered list, but not the other way round.
    for series in (
        _LETTERS,
        _NUMBERS,
    ):
        labels = [label for label in in_order if label in series]
        if series[0] in labels:
            # The question itself may list `A)`, `B)` too, so the options begin at the last first label.
            labels = labels[len(labels) - 1 - labels[::-1].index(series[0]) :]
            if len(labels) > 1 and labels == list(series[: len(labels)]):
                return labels
    return []


def _label(gold: str, labels: Sequence[str], problem_id: str, place: str) -> str:
    """Return a gold of multiple choice in clean form: an option's label, or the option's position counted from 1.

    A label stays a label, and a position stays a position. Case, brackets and full stops are ignored: ``(b).`` gives
    ``B``.

    Args:
        gold: the gold as the data have it.
        labels: the labels of the options, in order.
        problem_id: the problem, for the error.
        place: where the problem comes from, for the error.

    Raises:
        UserError: the gold names no option.
    """
    # ARC has 22 golds that are digits (R20).
    name = gold.strip().strip("().").upper()
    if name in labels or name in _NUMBERS[: len(labels)]:
        return name
    options = ", ".join(labels)
    raise UserError(
        f"{place}: the answer to problem {problem_id} is '{gold}', and its options are {options}",
        "fix it",
    )


def _renamed(benchmark: Benchmark, fields: ProblemFields, rows: Rows) -> pa.Table:
    """Return a table of question, answer, id and options, under the column names that `read_rows` expects.

    Options are included only if they have to be added below the questions (`_added_option_columns`). There is no column
    for the answer if one column always holds the right option (`fields.right_option`).

    Raises:
        UserError: a column of `fields` is missing.
    """
    for name in filter(None, (fields.problem, fields.answer, fields.id, *fields.options)):
        if not rows.has(name):
            raise UserError(
                f"{rows.place} has no column '{name}'; its columns are {', '.join(rows.table.column_names)}",
                f"fix the fields of {benchmark.name}",
            )

    def column(path: str) -> pa.ChunkedArray:
        named = path in rows.table.column_names
        return (
            rows.table[path] if named else pa.chunked_array([pa.array(rows.values(path))])
        )

    columns = {"problem": column(fields.problem)}
    if fields.right_option is None:
        columns["answer"] = column(fields.answer)
    if fields.id is not None:
        columns["extra_info"] = pa.StructArray.from_arrays(
            [column(fields.id).combine_chunks()], ["index"]
        )
    shown = _added_option_columns(benchmark, fields, rows)
    # `read_rows` takes options from one column with a list, or from a column for each letter.
    names = CHOICE_COLUMNS if len(shown) == 1 else ascii_uppercase
    columns |= {name: column(path) for name, path in zip(names, shown, strict=False)}
    return pa.table(columns)


def _added_option_columns(
    benchmark: Benchmark, fields: ProblemFields, rows: Rows
) -> list[str]:
    """Return the names of the columns whose options have to be added below the questions.

    This is only done for a user's own data. The result is empty in each of these cases:

    - The rows have no options.
    - The benchmark is built in.
    - `fields.choices` is set, so the benchmark's prompt already shows the options.
    """
    if fields.options or benchmark.name in registry():
        return []
    path = fields.shown or choice_path(rows)
    return [] if path in (None, NO_CHOICES) else option_columns(rows, path)


def _options(fields: ProblemFields, rows: Rows) -> list[tuple[Any, Any]]:
    """Return (labels, texts) of each row's options, unchecked. The labels are None if the row has none."""
    if isinstance(fields.choices, tuple):
        columns = [rows.values(name) for name in fields.choices]
        return [(None, list(texts)) for texts in zip(*columns, strict=True)]
    [name] = fields.options
    return [
        (value.get("label"), value.get("text"))
        if isinstance(value, dict)
        else (None, value)
        for value in rows.values(name)
    ]


def _multiple_choice(
    benchmark: Benchmark,
    fields: ProblemFields,
    prompt: Prompt,
    options: tuple[Any, Any],
    place: str,
) -> Prompt:
    """Return a multiple-choice problem with the model's chat messages, and the right option's label as gold.

    Args:
        benchmark: decides the prompt.
        fields: say how a row names its right option, and whether the options are shuffled.
        prompt: the problem as read from a row. Its `given_label` names the right option, unless one column always holds
            the right option (`fields.right_option`).
        options: labels and texts of the options, from `_options`.
        place: the problem's name, for errors.

    Raises:
        UserError: the options are not valid, or none is named as the right one.
    """
    labels, texts = _checked(*options, place)
    right = fields.right_option
    if right is None:
        known = (
            [str(index) for index in range(len(labels))]
            if fields.answer_form == "index"
            else labels
        )
        if prompt.given_label not in known:
            raise UserError(
                f"{place}: '{prompt.given_label}' in {fields.answer} is not the {fields.answer_form} of an option"
                f" ({', '.join(known)})",
                f"fix it or fields.answer_form of {benchmark.name}",
            )
        right = known.index(prompt.given_label)
    if right >= len(labels):
        raise UserError(
            f"{place} has no {fields.answer}, the right option",
            "fill it in or leave the row out",
        )
    if fields.shuffle:
        # GPQA has the right option in one fixed column, so without this the right letter would always be the same.
        order = seeding.permutation(
            len(texts), "order of options", benchmark.name, prompt.prompt_id
        )
        texts, right = [texts[i] for i in order], order.index(right)
    lines = "\n".join(f"{label}) {text}" for label, text in zip(labels, texts, strict=True))
    question = benchmark.ask(prompt.messages[-1].content.strip(), lines)
    return replace(
        prompt,
        messages=_messages(benchmark, question),
        true_answer=labels[right],
        choices=len(labels),
    )


def _checked(labels: Any, texts: Any, place: str) -> tuple[list[str], list[str]]:
    """Return the labels and texts of a problem's options as stripped text, without empty options at the end.

    Args:
        labels: the labels; None: A, B, C …
        texts: the options' texts.
        place: the problem's name, for the error.

    Raises:
        UserError: there are not 2 to 10 options, each with a text and a label of its own.
    """
    texts = list(texts) if isinstance(texts, list) else []
    # A file with a column for each option leaves the last ones empty in rows with fewer options.
    while texts and texts[-1] is None:
        texts.pop()
    labels = (
        list(_LETTERS[: len(texts)])
        if labels is None
        else [str(label).strip() for label in labels]
    )
    if (
        None in texts
        or not 2 <= len(texts) <= MOST_OPTIONS
        or not len(set(labels)) == len(labels) == len(texts)
    ):
        raise UserError(
            f"{place} needs 2 to {MOST_OPTIONS} options, each with a label of its own",
            f"it has {texts}",
        )
    return labels, [str(text).strip() for text in texts]
