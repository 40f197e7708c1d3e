"""Benchmarks: their definition, the built-in ones (R19), and the user's own.

Every benchmark is defined by a YAML file, including the built-in ones. It names the source of the problems, the prompt,
the grader and the number of samples. A data file and the held-out set of a run are benchmarks too.
`olr_cli.evaluation.problems` reads the problems themselves.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationError, model_serializer, model_validator

from olr_cli.answers import ARITHMETIC_SOURCES, default_extractor, find_extractor
from olr_cli.data.arithmetic import parse_source
from olr_cli.data.hub import parse_hub_id
from olr_cli.data.prompt_files import Reading, read_prompts
from olr_cli.data.prompts import SYSTEM_PROMPT, PromptSet
from olr_cli.data.rows import Rows
from olr_cli.data.sets import held_out_prompts
from olr_cli.data.table_files import files_of_one_split, matching_files, read_table
from olr_cli.data.values import SUFFIXES, Origins
from olr_cli.errors import UserError, at, did_you_mean, no_path, shortened
from olr_cli.recipe.layers import folder_name, read_tree
from olr_cli.recipe.plain import require_plain
from olr_cli.recipe.section import Count, ExtractorText, Section, Text, Tolerance
from olr_cli.recipe.sections import ColumnRole
from olr_cli.recipe.sentences import sentence_of
from olr_cli.runs.directory import HELD_OUT_FILE, read_recipe
from olr_cli.tables import Answer
from olr_cli.user_code import is_function

PAPER = (
    "aime24",
    "aime25",
    "amc",
    "math500",
    "minerva",
    "olympiad",
    "arc_c",
    "gpqa_diamond",
    "mmlu_pro",
)
"""The paper's nine benchmarks, in the order of its tables; ``all`` stands for them."""

_FOLDER = Path(__file__).parent / "benchmarks"
# `str.format` would fail on the braces of LaTeX in a prompt, such as `\boxed{}`.
_PLACEHOLDER = re.compile(r"\{(problem|choices)\}")


class ProblemSource(Section):
    """The source of a benchmark's problems: a data set on the Hugging Face hub, a local file, or a built-in set.

    Exactly one of `hub`, `file` and `task` is set. `revision`, `config`, `split` and `gated` are allowed only with
    `hub`.
    """

    hub: Annotated[str, Field(pattern=r"^\w[\w.-]*/\w[\w.-]*$")] | None = None
    """``org/name`` of a data set on the Hugging Face hub. Only with it, the next four keys are allowed."""

    revision: Annotated[str, Field(pattern=r"^[\w./-]+$")] | None = None
    """Commit to load; None: the newest."""

    config: Text | None = None
    """Configuration of the data set."""

    split: Text = "test"
    """Split to load, by default ``test``."""

    gated: bool = False
    """Whether the terms on the benchmark's page must be accepted before it can be loaded."""

    file: Text | None = None
    """Parquet or JSON file, or a folder of them, relative to the benchmark's own file."""

    task: Text | None = None
    """Built-in set whose test split is used: ``arithmetic`` or ``arithmetic:subtraction``."""

    @model_validator(mode="after")
    def _check_keys(self) -> ProblemSource:
        """Return the source; raise `ValueError` unless exactly one of `hub`, `file` and `task` is set.

        The error is also raised if any further key, such as `split`, is set without `hub`.
        """
        is_beside = self.hub is None and not self.model_fields_set <= {"file", "task"}
        if [self.hub, self.file, self.task].count(None) != 2 or is_beside:
            raise ValueError(
                "'source' needs one of hub, file and task; other keys go with hub alone"
            )
        return self

    @model_serializer
    def _serialized(self) -> dict[str, Any]:
        """Return `file` alone, `task` alone, or `hub` with `revision`, `config`, `split` and `gated`.

        Validation refuses all other combinations, so a source with all keys could not be read back.
        """
        if self.hub is None:
            return {"task": self.task} if self.file is None else {"file": self.file}
        return {
            key: getattr(self, key)
            for key in ("hub", "revision", "config", "split", "gated")
        }

    @property
    def place(self) -> str:
        """The source in one text: the hub id without config and split, the file's path, or the built-in set's name."""
        return self.hub or self.file or self.task or ""


class ProblemFields(Section):
    """Names of the columns that hold the question, answer, id and options of a benchmark's rows.

    Rows in the interchange format, which is verl's, need no such names. Their column `prompt` holds the question as
    chat messages.
    """

    problem: Text
    """Column of the question."""

    answer: Text
    """Column of the answer. For multiple choice, the column of the right option's label or index, or the one of
    `choices` that always holds the right option.
    """

    id: Text | None = None
    """Column with a name for each problem; None: the ids are made of row number and digest."""

    choices: Text | tuple[Text, ...] | None = None
    """Column with a list of options or with ``{text, label}`` lists, or several columns with one option each, in
    order.
    """

    answer_form: Literal["label", "index"] = "label"
    """Whether `answer` holds the label of the right option (``B``) or its index (the first is 0)."""

    shuffle: bool = False
    """Put the options into an order that is drawn by benchmark and problem, and never changes."""

    shown: Text | None = None
    """For own data without `choices`: the column of the options below the questions, as `choices` of `data.columns`;
    the label is an option's letter. None: the columns of the usual names.
    """

    @property
    def options(self) -> tuple[str, ...]:
        """The names of columns in `choices`, always as a tuple; empty if `choices` is None."""
        return (self.choices,) if isinstance(self.choices, str) else self.choices or ()

    @property
    def right_option(self) -> int | None:
        """Index in `choices` of the column that holds the right option of every row; None if there is no such column.

        It is the column that `answer` names. If `answer` names a column outside `choices`, that column has the label or
        index of each multiple-choice row's right option.
        """
        if isinstance(self.choices, tuple) and self.answer in self.choices:
            return self.choices.index(self.answer)
        return None


class Benchmark(Section):
    """A set of problems with known answers, and how a model is asked and graded on it.

    A YAML file defines it, or it is made from a data file, a run's held-out prompts or an imported log.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:+-]*$", max_length=100)]
    """Name in commands, tables and results."""

    title: str
    """Head of its column in tables; by default the name."""

    distribution: Literal["in", "out"] | None = None
    """Whether it counts in the in- or the out-of-distribution average; None: in neither."""

    grader: Literal["math", "choice"] = "math"
    """``math``: by equivalence with the gold; ``choice``: by the letter of the option (R20)."""

    samples: Count = 1
    """Number of samples of each problem."""

    problems: Count | None = None
    """Number of problems that there must be; None: any number. For a built-in set, the number that is made."""

    source: ProblemSource
    fields: ProblemFields | None = None
    """Columns of the source; None: interchange rows, or plain question and answer columns."""

    system: str | None = SYSTEM_PROMPT
    """System message of problems that have none (R21); None: no system message."""

    prompt: str = "{problem}"
    """User message, in which ``{problem}`` and ``{choices}`` (lines such as ``A) Venus``) are filled in."""

    extractor: ExtractorText = "boxed"
    """How the answer is read from a response (R6), as `data.extractor` of a recipe."""

    tolerance: Tolerance = 0.0
    """Tolerance of numbers, as `data.tolerance` of a recipe."""

    aliases: tuple[str, ...] = ()
    """Other names, which interchange files may give as ``data_source``."""

    licence: str = ""
    """Licence of the problems."""

    page: str = ""
    """Page to read about the problems; for a gated set, the page on which to accept its terms."""

    _is_named: bool = PrivateAttr(default=False)
    _notes: Sequence[str] = PrivateAttr(default=())

    @model_validator(mode="before")
    @classmethod
    def _title_by_default(cls, tree: Any) -> Any:
        """Return a benchmark's unvalidated settings; if they have no title, the name becomes the title."""
        return (
            {"title": tree["name"], **tree}
            if isinstance(tree, Mapping) and "name" in tree
            else tree
        )

    @model_validator(mode="after")
    def _fits_together(self) -> Benchmark:
        """Return the benchmark; raise `ValueError` if its prompt, grader and columns contradict each other.

        The prompt always needs ``{problem}``. The rest depends on `fields`:

        - With `fields`, multiple choice needs grader `choice`, `fields.choices`, and ``{choices}`` in the prompt. A
          benchmark that is not multiple choice must have none of these three.
        - Without `fields`, the prompt must not have ``{choices}``, because the questions already contain their options.
        - `fields.shuffle` needs `fields.choices`.
        """
        if "{problem}" not in self.prompt:
            raise ValueError(
                "prompt has no {problem}, so the policy would not see the question"
            )
        fields = self.fields
        has_options = fields is not None and fields.choices is not None
        # Interchange rows bring their options inside the question, so only named columns have to agree with the grader.
        is_choice = has_options if fields is None else self.grader == "choice"
        shuffles = fields is not None and fields.shuffle
        if (
            not has_options == is_choice == ("{choices}" in self.prompt)
            or shuffles > has_options
        ):
            raise ValueError(
                "multiple choice needs grader choice, fields.choices (the columns of the options), and {choices} in the"
                " prompt"
            )
        return self

    @property
    def grading(self) -> dict[str, object]:
        """The settings that decide grades, by name: `grader`, `extractor` and `tolerance`."""
        return {
            "grader": self.grader,
            "extractor": self.extractor,
            "tolerance": self.tolerance,
        }

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the user on how the rows of a data file were read, as sentences without a full stop.

        Empty for a benchmark that a YAML file defines.
        """
        return self._notes

    def named(self) -> Benchmark:
        """Return a copy that counts as named by the command; `require_named` accepts every extractor of it.

        Call this only if the command names the benchmark's YAML file, because the user then trusts the code that the
        file refers to. No setting changes.
        """
        benchmark = self.model_copy()
        benchmark._is_named = True
        return benchmark

    def require_named(self) -> None:
        """Raise `UserError` if the extractor is a Python function, unless the benchmark counts as named by the command.

        It counts as named if `named` returned it. This is for safety: a definition that is stored in an evaluation may
        come from a stranger, and importing its function would run the stranger's code.
        """
        if is_function(self.extractor) and not self._is_named:
            raise UserError(
                f"only a stored file names this function, for {self.name}",
                "if you trust it too, name it again",
                f"extractor {shortened(self.extractor)}",
            )

    @property
    def names(self) -> frozenset[str]:
        """The benchmark's name and its aliases."""
        return frozenset((self.name, *self.aliases))

    def ask(self, problem: str, choices: str = "") -> str:
        """Return the user message: `prompt` with ``{problem}`` and ``{choices}`` filled in.

        Args:
            problem: the question.
            choices: the options, a line each, such as ``A) Venus``; empty if there are none.
        """
        # A single pass: a problem that contains `{choices}` itself must stay as it is.
        values = {"problem": problem, "choices": choices}
        return _PLACEHOLDER.sub(lambda match: values[match[1]], self.prompt)


@functools.cache
def registry() -> dict[str, Benchmark]:
    """Return the built-in benchmarks by name: first the paper's nine in the paper's order, then the others."""
    builtin = {b.name: b for b in map(read_benchmark, sorted(_FOLDER.glob("*.yaml")))}
    return {name: builtin[name] for name in dict.fromkeys((*PAPER, *builtin))}


def find_benchmark(name: str) -> Benchmark:
    """Return the benchmark that the user calls `name`.

    Args:
        name: the name or alias of a built-in benchmark, a YAML file that defines a benchmark, or a data file (Parquet,
            JSON or CSV) whose rows are the problems.

    Raises:
        UserError: there is no such benchmark, or the file cannot be used.
    """
    for benchmark in registry().values():
        if name in benchmark.names:
            return benchmark
    path = Path(os.path.expanduser(name))
    if path.suffix in SUFFIXES:
        return file_benchmarks(path)[0]
    if path.suffix in (".yaml", ".yml") or os.path.isfile(path):
        benchmark = read_benchmark(path)
        # A misspelled extractor would otherwise fail only after the samples are generated.
        with at(f"{path}: extractor"):
            find_extractor(benchmark.extractor)
        return benchmark.named()
    hint = did_you_mean(
        name,
        [known for benchmark in registry().values() for known in sorted(benchmark.names)],
    )
    raise UserError(
        f"no benchmark is called '{name}'{hint}",
        f"known: all, {', '.join(registry())}, or a file of your own (YAML, Parquet, JSONL)",
    )


def choose(words: str, own: Sequence[Benchmark] = ()) -> list[Benchmark]:
    """Return the benchmarks that a comma-separated list names, in the order of the list and each once.

    Args:
        words: names, aliases, files, or ``all`` for the paper's nine.
        own: further benchmarks that the list may name; they take precedence over built-in ones.

    Raises:
        UserError: the list is empty, a name is unknown, or two different benchmarks have the same name.
    """
    chosen: dict[str, Benchmark] = {}
    further = {benchmark.name: benchmark for benchmark in own}
    for word in filter(None, map(str.strip, words.split(","))):
        for name in PAPER if word == "all" else (word,):
            benchmark = further.get(name) or find_benchmark(name)
            # Results are stored by name, so a second benchmark of the same name would replace the first.
            if chosen.setdefault(benchmark.name, benchmark) != benchmark:
                raise UserError(
                    f"two different benchmarks are called '{benchmark.name}'",
                    f"rename the one in {word}",
                )
    if not chosen:
        raise UserError("no benchmark is named", "name some, as in aime24,math500, or all")
    return list(chosen.values())


def read_by(
    extractor: str | None, benchmarks: Sequence[Benchmark], tolerance: float | None
) -> list[Benchmark]:
    """Return copies of benchmarks with the user's extractor and tolerance in place of their own.

    Args:
        extractor: the way to read answers from responses, such as ``last_number``. None: each benchmark keeps its own.
        benchmarks: the benchmarks to copy.
        tolerance: how far a right number may differ from the gold, as a share of the gold, from 0 to below 1. None:
            each benchmark keeps its own.

    Raises:
        UserError: an extractor does not exist, or the tolerance is out of range. It is also raised if a benchmark keeps
            a Python function as its extractor and the command does not name the benchmark's file
            (`Benchmark.require_named`).
    """
    if tolerance is not None and not 0 <= tolerance < 1:
        raise UserError(
            f"{tolerance:g} is no tolerance", "give a number from 0 to below 1", "tolerance"
        )
    own = {"extractor": extractor, "tolerance": tolerance}.items()
    update = {name: value for name, value in own if value is not None}
    read = [benchmark.model_copy(update=update) for benchmark in benchmarks]
    for benchmark in read:
        if extractor is None:
            benchmark.require_named()
        with at("extractor"):
            find_extractor(benchmark.extractor)
    return read


def read_benchmark(file: Path) -> Benchmark:
    """Read the benchmark that a YAML file defines.

    A relative path in `source.file` is relative to the YAML file's folder.

    Raises:
        UserError: the file does not exist or does not define a valid benchmark.
    """
    if not os.path.isfile(file):
        raise no_path(file, "`olr benchmarks` shows the benchmarks")
    tree = read_tree(file)
    require_plain(tree, str(file))
    try:
        benchmark = Benchmark.model_validate(tree)
    except ValidationError as error:
        raise UserError.of(
            f"{file}: {'; '.join(_sentence(detail) for detail in error.errors())}",
            remedy="correct it",
        ) from None
    if benchmark.source.file is None:
        return benchmark
    source = ProblemSource(
        file=str(file.parent / os.path.expanduser(benchmark.source.file))
    )
    return benchmark.model_copy(update={"source": source})


def _sentence(detail: Any) -> str:
    """Return a sentence for one item of pydantic's `ValidationError.errors()`.

    For an unknown key, the sentence suggests the most similar key of a benchmark, its source or its fields.
    """
    if detail["type"] != "extra_forbidden":
        return sentence_of(detail)
    known = (
        *Benchmark.model_fields,
        *ProblemSource.model_fields,
        *ProblemFields.model_fields,
    )
    key = ".".join(map(str, detail["loc"]))
    return f"unknown key '{key}'{did_you_mean(str(detail['loc'][-1]), known)}"


def file_benchmarks(
    data: Path | None, names: Iterable[str] | None = None
) -> list[Benchmark]:
    """Return a benchmark for each data file, named after the file (R21).

    As in training, a question that is plain text gets the standard system message, which asks for a boxed answer. A
    question that is a list of chat messages stays as it is.

    Args:
        data: a data file, or a folder of them. None: the result is empty.
        names: return only benchmarks with these names; None: all.
    """
    files = [] if data is None else matching_files(str(data))
    if names is not None:
        wanted = set(map(str.strip, names))
        files = [file for file in files if _free_name(file.name) in wanted]
    return [
        _benchmark(ProblemSource(file=str(file.absolute())), file.name, _problems(file))
        for file in files
    ]


def _problems(file: Path) -> PromptSet:
    try:
        return read_prompts(file, split="test", reading=Reading(is_text_only=True))
    except UserError as error:
        # `data.columns` is a recipe's key. An evaluation has no recipe, so name the key of a benchmark file instead.
        if error.place != "data.columns":
            raise
        raise UserError(
            f"{error.problem}; {error.remedy.partition('; say which')[0]}",
            "name them in a benchmark file, such as"
            f" `{{name: mine, source: {{file: {file.name}}}, fields: {{problem: COLUMN, answer: COLUMN}}}}`, and give"
            " that as benchmarks",
        ) from None


def held_out_set(run: Path) -> str | None:
    """Return where a run's held-out prompts are: a path, a hub id, or the name of a built-in set; None if it has none.

    Held-out prompts are not trained on. They are the recipe's `data.test`, or without it, the prompts that the run set
    apart (`data.held_out`) in a file of the run directory.
    """
    test = read_recipe(run).data.test
    return (
        str(run / HELD_OUT_FILE)
        if test is None and (run / HELD_OUT_FILE).exists()
        else test
    )


def held_out_benchmark(run: Path) -> Benchmark | None:
    """Return a run's held-out prompts as a benchmark, or None if it has none.

    The benchmark asks and grades as training does: with the recipe's system message, extractor, tolerance and columns.
    If the held-out prompts are a built-in set, the result is the built-in benchmark of that name.
    """
    recipe, test = read_recipe(run), held_out_set(run)
    if test is None:
        return None
    if parse_source(test) is not None:
        return find_benchmark(test)
    prompts = held_out_prompts(recipe, test, "test")
    # A folder on disk may look like `org/name`; training reads the folder then, and so does this.
    hub_id = None if os.path.exists(os.path.expanduser(test)) else parse_hub_id(test)
    if hub_id is None:
        source, name = (
            ProblemSource(file=os.path.abspath(os.path.expanduser(test))),
            Path(test).name,
        )
    else:
        split = hub_id.split or "test"
        source = ProblemSource(
            hub=hub_id.name, config=hub_id.config, split=split, revision=hub_id.revision
        )
        name = hub_id.name.rpartition("/")[2]
    benchmark = _benchmark(source, name, prompts, recipe.data.extractor)
    fields = _fields(recipe.data.columns or {}, source)
    return benchmark.model_copy(
        update={"tolerance": recipe.data.tolerance, "fields": fields}
    )


def _fields(
    columns: Mapping[ColumnRole, str], source: ProblemSource
) -> ProblemFields | None:
    """Translate the columns that a recipe names into the `fields` of a benchmark.

    The result is None in each of these cases; the benchmark then reads the columns with the usual names:

    - The source is not a file.
    - The recipe does not name the columns of both `question` and `answer`.
    - The recipe names a column for a role other than `question`, `answer`, `choices` and `id`.
    - The file lacks a named column. Only the column of `choices` may be missing.

    Args:
        columns: the recipe's `data.columns`, which maps a role, such as ``question``, to the name of a column.
        source: where the benchmark's problems are.
    """
    if source.file is None or not {"question", "answer"} <= columns.keys() <= {
        "question",
        "answer",
        "choices",
        "id",
    }:
        return None
    rows = Rows(read_table(files_of_one_split(source.file)), Origins(source.file))
    if not all(rows.has(path) for role, path in columns.items() if role != "choices"):
        return None
    return ProblemFields(
        problem=columns["question"],
        answer=columns["answer"],
        id=columns.get("id"),
        shown=columns.get("choices"),
    )


def _benchmark(
    source: ProblemSource, name: str, prompts: PromptSet, extractor: str | None = None
) -> Benchmark:
    # Rows that disagree get the general choice: `boxed`, and R21's system message if all rows have some message.
    extractors = {default_extractor(prompt.data_source) for prompt in prompts.prompts}
    systems = {
        next((turn.content for turn in prompt.messages if turn.role == "system"), None)
        for prompt in prompts.prompts
    }
    benchmark = Benchmark(
        name=_free_name(name),
        title=_free_name(name),
        source=source,
        # Usually the message of `data.system_prompt`. Rows with a message of their own keep it.
        system=systems.pop()
        if len(systems) == 1
        else None
        if None in systems
        else SYSTEM_PROMPT,
        extractor=extractor or (extractors.pop() if len(extractors) == 1 else "boxed"),
    )
    benchmark._notes = prompts.notes
    return benchmark


def _free_name(name: str) -> str:
    """Turn a data file's name into a name for its benchmark: without suffix, and safe as a folder's name.

    ``-data`` is appended if a built-in benchmark or set has that name. The result has at most 100 characters.
    """
    stem, suffix = os.path.splitext(name)
    stem = folder_name(stem if suffix in SUFFIXES else name).strip("-._+") or "data"
    taken = {
        known for benchmark in registry().values() for known in benchmark.names
    } | ARITHMETIC_SOURCES
    return (f"{stem}-data" if stem in taken else stem)[:100]


def listing() -> Answer:
    """Return the output of `olr benchmarks`: the built-in benchmarks and their sources."""
    benchmarks = [*registry().values()]
    averages = {None: "", "in": "in distribution", "out": "out of distribution"}
    lines = []
    for one in benchmarks:
        aliases = f" (also: {', '.join(one.aliases)})" if one.aliases else ""
        metric = f"avg@{one.samples}" if one.samples > 1 else "pass@1"
        facts = (
            f"{one.problems:,} problems",
            metric,
            one.grader,
            averages[one.distribution],
        )
        lines += [
            f"{one.name}{aliases}: {one.title}",
            f"    {', '.join(filter(None, facts))}",
            f"    {_place(one.source)}; {one.licence or 'licence not stated'}",
            *([f"    {one.page}"] if one.page else []),
        ]
    return Answer(lines, {"benchmarks": benchmarks})


def _place(source: ProblemSource) -> str:
    """Return the text that describes a source in the output of `olr benchmarks`.

    The text is ``org/name/config:split@revision``, the path of a file, or ``built in: arithmetic``. For a data set
    whose terms must be accepted, ``(gated)`` is appended.
    """
    if source.hub is None:
        return source.file or f"built in: {source.task}"
    revision = f"@{source.revision[:8]}" if source.revision else ""
    gated = " (gated)" if source.gated else ""
    return (
        "/".join(filter(None, (source.hub, source.config)))
        + f":{source.split}{revision}{gated}"
    )
