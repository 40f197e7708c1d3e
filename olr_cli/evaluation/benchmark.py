"""What a benchmark is, which come with the project (R19), and benchmarks of one's own.

A benchmark is a YAML file, the built-in ones too: where its problems lie, what the policy is shown, how responses are
graded and how often each problem is sampled. A data file, and the set that a run holds out, are benchmarks as well.
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
"""The paper's nine, in the order of its tables: what `all` means."""

_FOLDER = Path(__file__).parent / "benchmarks"
_PLACEHOLDER = re.compile(r"\{(problem|choices)\}")


class ProblemSource(Section):
    """Where problems are: one of `hub`, `file` and `task`.

    Attributes:
        hub: ``org/name`` of a data set on the Hugging Face hub; the four keys below are of it alone.
        revision: the commit to load; None: the newest.
        config: the data set's configuration.
        split: which rows; by default ``test``.
        gated: the terms on the benchmark's page must be accepted before it can be loaded.
        file: a Parquet or JSON file, or a folder of them, relative to the benchmark's own file.
        task: the test split of a built-in set: ``arithmetic`` or ``arithmetic:subtraction``.
    """

    hub: Annotated[str, Field(pattern=r"^\w[\w.-]*/\w[\w.-]*$")] | None = None
    revision: Annotated[str, Field(pattern=r"^[\w./-]+$")] | None = None
    config: Text | None = None
    split: Text = "test"
    gated: bool = False
    file: Text | None = None
    task: Text | None = None

    @model_validator(mode="after")
    def _is_one(self) -> ProblemSource:
        is_beside = self.hub is None and not self.model_fields_set <= {"file", "task"}
        if [self.hub, self.file, self.task].count(None) != 2 or is_beside:
            raise ValueError(
                "'source' needs one of hub, file and task; other keys go with hub alone"
            )
        return self

    @model_serializer
    def _keys_of_its_kind(self) -> dict[str, Any]:
        if self.hub is None:
            return {"task": self.task} if self.file is None else {"file": self.file}
        return {
            key: getattr(self, key)
            for key in ("hub", "revision", "config", "split", "gated")
        }

    @property
    def place(self) -> str:
        """Its hub id, file or task."""
        return self.hub or self.file or self.task or ""


class ProblemFields(Section):
    """Which columns hold what, for rows that are not in the interchange format.

    Attributes:
        problem: the question.
        answer: the answer; of multiple choice the label or index of the right option, or one of `choices`, the column
            that always holds the right one.
        id: a name for each problem; None: its row number and digest.
        choices: the options: a column with a list of them or with ``{text, label}`` lists, or several columns, one an
            option, in order.
        answer_form: whether `answer` holds the label of the right option (``B``) or its index (the first is 0).
        shuffle: put the options into an order drawn by benchmark and problem, the same for ever.
        shown: of own data without `choices`, the options below its questions, as `choices` of `data.columns`; the
            label is their letter. None: those in columns of the usual names.
    """

    problem: Text
    answer: Text
    id: Text | None = None
    choices: Text | tuple[Text, ...] | None = None
    answer_form: Literal["label", "index"] = "label"
    shuffle: bool = False
    shown: Text | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """The columns of `choices`; none if there are no options."""
        return (self.choices,) if isinstance(self.choices, str) else self.choices or ()

    @property
    def right_option(self) -> int | None:
        """Which of the columns of `choices` always holds the right option (the first is 0); None if none does."""
        if isinstance(self.choices, tuple) and self.answer in self.choices:
            return self.choices.index(self.answer)
        return None


class Benchmark(Section):
    """A set of problems with known answers, and how a policy is measured on it.

    Attributes:
        name: its name in commands, tables and results.
        title: the head of its column in tables; by default the name.
        distribution: whether it counts in the in- or the out-of-distribution average; None: in neither.
        grader: ``math`` by equivalence with the gold, ``choice`` by the letter of the option (R20).
        samples: responses to each problem.
        problems: how many there must be; None: as many as there are. Of a built-in set: how many are made.
        fields: the columns of the source; None: interchange rows, or plain question and answer columns.
        system: system message of problems that have none (R21); None: none.
        prompt: the user message; ``{problem}`` and ``{choices}`` (lines such as ``A) Venus``) are filled in.
        extractor: how the answer is read from a response (R6), as a recipe's `data.extractor`.
        tolerance: of numbers, as a recipe's `data.tolerance`.
        aliases: other names, which interchange files may give as ``data_source``.
        licence: the problems' licence.
        page: where to read about them; of a gated set, where to accept its terms.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:+-]*$", max_length=100)]
    title: str
    distribution: Literal["in", "out"] | None = None
    grader: Literal["math", "choice"] = "math"
    samples: Count = 1
    problems: Count | None = None
    source: ProblemSource
    fields: ProblemFields | None = None
    system: str | None = SYSTEM_PROMPT
    prompt: str = "{problem}"
    extractor: ExtractorText = "boxed"
    tolerance: Tolerance = 0.0
    aliases: tuple[str, ...] = ()
    licence: str = ""
    page: str = ""

    _is_named: bool = PrivateAttr(default=False)
    _notes: Sequence[str] = PrivateAttr(default=())

    @model_validator(mode="before")
    @classmethod
    def _title_by_default(cls, tree: Any) -> Any:
        return (
            {"title": tree["name"], **tree}
            if isinstance(tree, Mapping) and "name" in tree
            else tree
        )

    @model_validator(mode="after")
    def _fits_together(self) -> Benchmark:
        if "{problem}" not in self.prompt:
            raise ValueError(
                "prompt has no {problem}, so the policy would not see the question"
            )
        fields = self.fields
        has_options = fields is not None and fields.choices is not None
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
        """The settings that decide grades."""
        return {
            "grader": self.grader,
            "extractor": self.extractor,
            "tolerance": self.tolerance,
        }

    @property
    def notes(self) -> Sequence[str]:
        """What was left out of the user's file, as `PromptSet.notes`."""
        return self._notes

    def named(self) -> Benchmark:
        """The same benchmark, whose file the command names, so that its extractor may be a function."""
        benchmark = self.model_copy()
        benchmark._is_named = True
        return benchmark

    def require_named(self) -> None:
        """Refuse a function that only a stored file names, which may be somebody else's."""
        if is_function(self.extractor) and not self._is_named:
            raise UserError(
                f"only a stored file names this function, for {self.name}",
                "if you trust it too, name it again",
                f"extractor {shortened(self.extractor)}",
            )

    @property
    def names(self) -> frozenset[str]:
        """Its name and its aliases."""
        return frozenset((self.name, *self.aliases))

    def ask(self, problem: str, choices: str = "") -> str:
        """The user message: the prompt with the problem, and the options, filled in."""
        values = {"problem": problem, "choices": choices}
        return _PLACEHOLDER.sub(lambda match: values[match[1]], self.prompt)


@functools.cache
def registry() -> dict[str, Benchmark]:
    """The built-in benchmarks by name: the paper's nine in its order, then the others."""
    builtin = {b.name: b for b in map(read_benchmark, sorted(_FOLDER.glob("*.yaml")))}
    return {name: builtin[name] for name in dict.fromkeys((*PAPER, *builtin))}


def find_benchmark(name: str) -> Benchmark:
    """The built-in benchmark of that name or alias, the one in that YAML file, or the one that a data file is."""
    for benchmark in registry().values():
        if name in benchmark.names:
            return benchmark
    path = Path(os.path.expanduser(name))
    if path.suffix in SUFFIXES:
        return file_benchmarks(path)[0]
    if path.suffix in (".yaml", ".yml") or os.path.isfile(path):
        benchmark = read_benchmark(path)
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
    """The benchmarks that a comma-separated list names, each once: names, aliases, files, or ``all``.

    `own` are benchmarks with further names.
    """
    chosen: dict[str, Benchmark] = {}
    further = {benchmark.name: benchmark for benchmark in own}
    for word in filter(None, map(str.strip, words.split(","))):
        for name in PAPER if word == "all" else (word,):
            benchmark = further.get(name) or find_benchmark(name)
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
    """Benchmarks with an extractor and a tolerance in place of their own; None: with their own."""
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
    """The benchmark in a YAML file."""
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
    """A benchmark for each file at a place, called after the file.

    Rows are asked as training asks them: questions under R21's system message, messages as they are.
    `names`: only benchmarks with these names.
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
        if error.place != "data.columns":
            raise
        raise UserError(
            f"{error.problem}; {error.remedy.partition('; say which')[0]}",
            "name them in a benchmark file, such as"
            f" `{{name: mine, source: {{file: {file.name}}}, fields: {{problem: COLUMN, answer: COLUMN}}}}`, and give"
            " that as benchmarks",
        ) from None


def held_out_set(run: Path) -> str | None:
    """The file, data set or task that a run holds out (`data.test`, `data.held_out`)."""
    test = read_recipe(run).data.test
    return (
        str(run / HELD_OUT_FILE)
        if test is None and (run / HELD_OUT_FILE).exists()
        else test
    )


def held_out_benchmark(run: Path) -> Benchmark | None:
    """The set that a run holds out, asked and read as in training; None without one."""
    recipe, test = read_recipe(run), held_out_set(run)
    if test is None:
        return None
    if parse_source(test) is not None:
        return find_benchmark(test)
    prompts = held_out_prompts(recipe, test, "test")
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
    """The recipe's columns; None where a held-out file has those of standard names (`data.sets.recipe_reading`)."""
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
    extractors = {default_extractor(prompt.data_source) for prompt in prompts.prompts}
    systems = {
        next((turn.content for turn in prompt.messages if turn.role == "system"), None)
        for prompt in prompts.prompts
    }
    benchmark = Benchmark(
        name=_free_name(name),
        title=_free_name(name),
        source=source,
        # of `data.system_prompt`; rows that differ have messages of their own
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
    """The name of a file's benchmark: the file's, without its suffix where no other benchmark has that name."""
    stem, suffix = os.path.splitext(name)
    stem = folder_name(stem if suffix in SUFFIXES else name).strip("-._+") or "data"
    taken = {
        known for benchmark in registry().values() for known in benchmark.names
    } | ARITHMETIC_SOURCES
    return (f"{stem}-data" if stem in taken else stem)[:100]


def listing() -> Answer:
    """The built-in benchmarks and their sources."""
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
    """Return where problems come from, in one word: ``org/name/config:split@revision``."""
    if source.hub is None:
        return source.file or f"built in: {source.task}"
    revision = f"@{source.revision[:8]}" if source.revision else ""
    gated = " (gated)" if source.gated else ""
    return (
        "/".join(filter(None, (source.hub, source.config)))
        + f":{source.split}{revision}{gated}"
    )
