"""The request of an `olr evaluate` call, and the evaluations that follow from it.

An evaluation needs models, benchmarks with their problems, and a protocol. Under the protocol `paper`, samples and
templates are those behind the paper's printed scores. Section "Beside the paper's scores" of docs/evaluation.md lists
where the authors' files depart from the paper's text, and other differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from olr_cli.data.arithmetic import toy_kind
from olr_cli.data.check import label_notes
from olr_cli.data.prompt_files import Reading
from olr_cli.engines.backends import BackendOptions
from olr_cli.engines.prompt_text import ChatFormat
from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import (
    PAPER,
    Benchmark,
    choose,
    file_benchmarks,
    find_benchmark,
    held_out_benchmark,
    held_out_set,
    read_by,
    registry,
)
from olr_cli.evaluation.keys import with_verified_keys
from olr_cli.evaluation.problems import benchmarks_in, load_problems
from olr_cli.evaluation.prompting import Prompting
from olr_cli.evaluation.published import model_name
from olr_cli.evaluation.record import EvaluationRecord, Protocol, Task
from olr_cli.evaluation.results import Compared, check_reference
from olr_cli.evaluation.scores import is_evaluation
from olr_cli.evaluation.store import Target
from olr_cli.evaluation.targets import (
    all_targets,
    origin,
    require_models,
    targets,
)
from olr_cli.recipe.sampling import Sampling
from olr_cli.runs.directory import is_run, read_recipe
from olr_cli.tables import Answer

_SAMPLES = {"aime24": 8, "aime25": 8, "amc": 8}
"""Samples of a problem behind the printed scores, by benchmark; 1 for benchmarks that are not listed."""

_JOINED = "{{ bos_token }}{% for message in messages %}{{ message.content }}{% endfor %}"
"""A chat template that joins messages without a separator."""

_WITHOUT_TEMPLATE = frozenset({"DeepSeek-R1-Distill-Llama-8B"})
"""Models whose printed scores were made with plain text instead of their own chat templates."""

Say = Callable[[str], None]
"""Function that shows a sentence to the user during the work."""


@dataclass(frozen=True)
class EvaluationRequest:
    """The settings of an evaluation as the command line gives them; `plan` fills in those that depend on the models."""

    models: Sequence[str] = ()
    """Folders, hub ids, built-in policies or runs."""

    checkpoints: Sequence[str] = ()
    """Checkpoints of the runs: ``last``, ``best`` or steps; empty: the last."""

    benchmarks: str | None = None
    """Names and files, separated by commas; None: the default of the models (`default_benchmarks`)."""

    data: Path | None = None
    """Interchange file, or folder of such files, that replaces the benchmarks' sources."""

    limit: int | None = None
    """Number of problems to take from the beginning of each benchmark; None: all."""

    samples: int | None = None
    """Number of samples for each problem; None: the benchmark's own number, or one at temperature 0."""

    drawn: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Sampling` that the command names."""

    sampling: Sampling = field(default_factory=Sampling)
    """How responses are drawn; decided by `plan`."""

    seed: int = 0
    """Seed of the evaluation, from which every sample's seed is made (`olr_cli.evaluation.pool.sample_seed`)."""

    prompting: Prompting = field(default_factory=Prompting)
    """Changes to the prompts that the command names."""

    protocol: Protocol | None = None
    """Protocol whose defaults apply; None: that of the stored evaluation, or ``standard`` for a new one."""

    backend: BackendOptions = field(default_factory=BackendOptions)
    extractor: str | None = None
    """Replaces the benchmarks' own extractors."""

    tolerance: float | None = None
    """Replaces the benchmarks' own tolerances."""

    verified: Path | None = None
    """File of verified keys, which replace the benchmarks' own."""

    out: Path | None = None
    """Folder for the results; None: in the run, or below ``evaluations/``."""

    compare: Compared = None
    """Reference to show beside the scores."""

    def tasks(self, benchmarks: Sequence[Benchmark]) -> list[Task]:
        """Load the problems of benchmarks; return a task (benchmark, problems and number of samples) for each.

        The tasks follow the request: its `limit` of problems, its changes to the prompts (`prompting`), the paper's
        numbers of samples if `protocol` is ``paper``, and golds from the file `verified`.

        Raises:
            UserError: a benchmark's problems cannot be loaded, or there are none.
        """
        tasks = []
        for chosen in benchmarks:
            benchmark = paper_benchmark(chosen) if self.protocol == "paper" else chosen
            problems = self.prompting.ask(
                load_problems(benchmark, data=self.data, limit=self.limit)
            )
            if not problems:
                raise UserError(f"{benchmark.name} has no problems", "name other data")
            # At temperature 0 all samples of a problem are the same.
            by_default = benchmark.samples if self.sampling.temperature else 1
            data = None if self.data is None else str(self.data)
            tasks.append(Task(benchmark, problems, self.samples or by_default, data))
        return tasks if self.verified is None else with_verified_keys(tasks, self.verified)


@dataclass(frozen=True)
class Evaluation:
    """One model or checkpoint, with the folder, the benchmarks and the settings of its evaluation.

    `plan` makes it. Samples and scores are in the folder, not here.
    """

    target: Target
    tasks: Sequence[Task]
    """Benchmarks with their problems, in the order in which they are worked on."""

    request: EvaluationRequest
    """How the problems are sampled. Its protocol and prompting are decided."""

    def record(self) -> EvaluationRecord:
        """Return the content of evaluation.json for an evaluation that begins today, before a backend is known."""
        target, request = self.target, self.request
        return EvaluationRecord(
            name=target.name,
            model=target.model,
            origin=dict(target.origin),
            sampling=request.sampling,
            seed=request.seed,
            prompting=request.prompting.settings(),
            protocol=request.protocol or "standard",
            day=date.today(),
            benchmarks={task.benchmark.name: task.record() for task in self.tasks},
        )


def plan(request: EvaluationRequest, say: Say) -> list[Evaluation]:
    """Return an evaluation for each model or checkpoint of a request, with settings decided and problems loaded.

    Args:
        request: the command's arguments and options.
        say: is called with notes and warnings for the user.

    Raises:
        UserError: a model or benchmark cannot be used, or the models cannot be compared with `request.compare`.
    """
    # Benchmarks come first: a misspelled name should fail before a model is looked up on the hub.
    chosen = _benchmarks(request)
    is_held_out = chosen.samples is not None
    targets_by_model = _targets(request, is_held_out=is_held_out)
    every_target = [target for group in targets_by_model.values() for target in group]
    check_reference(request.compare, every_target)
    require_models(every_target)
    left_out = chain.from_iterable(benchmark.notes for benchmark in chosen.benchmarks)
    for note in filter(None, (chosen.note, *left_out)):
        say(note)
    request = _with_sampling(request, chosen)
    request = replace(request, protocol=protocol_of(request.protocol, every_target))
    if request.protocol == "paper":
        say("Samples and prompts are those behind the paper's scores")
    if (request.samples or 1) > 1 and request.sampling.temperature == 0:
        say(f"At temperature 0 all {request.samples} samples are the same; one is enough")
    evaluations = _evaluations(request, targets_by_model, chosen.benchmarks)
    # Training has already checked the labels of a run's own held-out set.
    if not is_held_out:
        for note in _label_notes(evaluations[0].tasks):
            say(f"Warning: {note}")
    return evaluations


def _targets(request: EvaluationRequest, *, is_held_out: bool) -> dict[str, list[Target]]:
    """Return the targets of each model of a request; keys are the models as given on the command line.

    A target is a model, or one checkpoint of a run, with the folder for its results.

    Args:
        request: names the models, their checkpoints, and maybe the folder for results.
        is_held_out: whether the runs' held-out sets are evaluated instead of benchmarks. This decides the names of
            default folders (`_in_own_folder`). A folder that the request names is taken as it is.
    """
    is_served = request.backend.url is not None
    named = all_targets(
        request.models, request.checkpoints, request.out, is_served=is_served
    )
    if request.out is not None:
        return named
    return {
        model: [_in_own_folder(target, is_held_out=is_held_out) for target in group]
        for model, group in named.items()
    }


def _with_sampling(request: EvaluationRequest, chosen: Chosen) -> EvaluationRequest:
    """Return the request with its sampling and number of samples filled in.

    A setting that the command gives stays as it is. Any other setting gets the default of the chosen benchmarks. At
    temperature 0, however, `samples` stays None, which means one sample of each problem.
    """
    sampling, samples = replace(chosen.sampling, **request.drawn), request.samples
    if samples is None and sampling.temperature:
        samples = chosen.samples
    return replace(request, sampling=sampling, samples=samples)


def _evaluations(
    request: EvaluationRequest,
    targets_by_model: Mapping[str, Sequence[Target]],
    benchmarks: Sequence[Benchmark],
) -> list[Evaluation]:
    """Return one evaluation for each target.

    Models that are asked with the same prompts share the loaded problems.

    Args:
        request: the settings; `protocol` and `sampling` have their final values.
        targets_by_model: model as given on the command line -> its targets. A target is the model, or one checkpoint of
            a run, with the folder for the results.
        benchmarks: the benchmarks to evaluate.
    """
    evaluations: list[Evaluation] = []
    for model, group in targets_by_model.items():
        decided = request
        if request.protocol == "paper":
            name = model_name(origin(model))
            decided = replace(request, prompting=paper_prompting(request.prompting, name))
        # Equal requests have equal prompts. The paper's row of another model may be asked with another template.
        loaded = next((it.tasks for it in evaluations if it.request == decided), None)
        tasks = decided.tasks(benchmarks) if loaded is None else loaded
        evaluations += [Evaluation(target, tasks, decided) for target in group]
    return evaluations


def _label_notes(tasks: Sequence[Task]) -> Iterator[str]:
    """Yield warnings about golds that look wrong, for benchmarks with grader `math` whose source is a file."""
    for task in tasks:
        source, fields = task.benchmark.source.file, task.benchmark.fields
        if source is not None and task.benchmark.grader == "math":
            reading = Reading()
            if fields is not None:
                reading = Reading({"question": fields.problem, "answer": fields.answer})
            yield from label_notes(task.problems, source, reading)


def _in_own_folder(target: Target, *, is_held_out: bool) -> Target:
    """Return the target, with a suffix to its folder's name if the model is not evaluated on its default problems.

    By default, a run with a held-out set is evaluated on that set, and any other model on benchmarks. The two kinds
    need folders of their own: held-out sets are sampled as in training, and a folder has one set of sampling settings.

    Args:
        target: the model and its default folder.
        is_held_out: True if the held-out set is evaluated (suffix ``-held-out``), False if benchmarks are
            (``-benchmarks``).
    """
    # The default of a run with a held-out set is that set; the default of any other model is a benchmark.
    run = target.origin.get("run")
    if is_held_out == (run is not None and held_out_set(Path(run)) is not None):
        return target
    folder = f"{target.folder.name}-{'held-out' if is_held_out else 'benchmarks'}"
    return replace(target, folder=target.folder.with_name(folder))


class Chosen(NamedTuple):
    """The benchmarks to evaluate, a note for the user, and the defaults for sampling them."""

    benchmarks: Sequence[Benchmark]
    note: str | None = None
    """Sentence to show before anything starts, where the choice may surprise."""

    sampling: Sampling = Sampling()
    """Default sampling: that of training for a run's held-out set."""

    samples: int | None = None
    """Default number of samples, as in training; None for anything but a held-out set."""


def _benchmarks(request: EvaluationRequest) -> Chosen:
    """Return the benchmarks that a request names; if it names none, the default benchmarks of its models.

    The request's extractor and tolerance, if given, replace those of the benchmarks.
    """
    if request.benchmarks:
        known = file_benchmarks(request.data, request.benchmarks.split(","))
        chosen = Chosen(choose(request.benchmarks, known))
    else:
        of_the_paper = "paper" in (request.compare, request.protocol)
        chosen = default_benchmarks(request.models, request.data, of_the_paper=of_the_paper)
    return chosen._replace(
        benchmarks=read_by(request.extractor, chosen.benchmarks, request.tolerance)
    )


def default_benchmarks(
    models: Sequence[str], data: Path | None, *, of_the_paper: bool = False
) -> Chosen:
    """Return the benchmarks for models when the command names none.

    With `data`, these are the benchmarks among the paper's nine that have rows in the data. If none has, each data file
    is a benchmark of its own. Without `data`, they are the first of these that exists:

    1. The held-out sets of the runs among the models (`data.test` or `data.held_out`).
    2. The built-in set for which a toy policy was made, if each model is a built-in toy policy or a run that started
       from one.
    3. The paper's nine.

    Args:
        models: folders, hub ids, built-in policies or runs.
        data: a file of problems, or a folder of such files. The column ``data_source`` names a row's benchmark.
        of_the_paper: skip the held-out sets, for a comparison with the paper.

    Raises:
        UserError: the models have different defaults, or the data or held-out sets cannot be read.
    """
    if data is not None:
        return Chosen(*_benchmarks_of(data))
    held_out = None if of_the_paper else _held_out(list(filter(is_run, models)))
    return held_out or Chosen(choose(_default_name(models)))


def _held_out(runs: Sequence[str]) -> Chosen | None:
    """Return the held-out sets of runs, to be sampled as in training; None if no run has one.

    Raises:
        UserError: two runs have different sets of the same name, two runs sample differently, or a set cannot be read.
    """
    chosen: dict[str, Benchmark] = {}
    measured: set[tuple[Sampling, int]] = set()
    for run in runs:
        try:
            benchmark = held_out_benchmark(Path(run))
        except UserError as error:
            raise UserError(
                f"the held-out prompts of {run}: {error.problem}",
                f"{error.remedy}, or name benchmarks",
                error.place,
            ) from None
        if benchmark is None:
            continue
        train = read_recipe(Path(run)).train
        drawn = (train.max_new_tokens, train.top_p, train.top_k, train.min_p, train.stop)
        measured.add(
            (Sampling(train.evaluation_temperature, *drawn), train.held_out_rollouts)
        )
        # One table compares the runs, so sets of the same name and all samplings have to agree.
        if chosen.setdefault(benchmark.name, benchmark) != benchmark or len(measured) > 1:
            raise UserError(
                f"these runs hold out different sets '{benchmark.name}', or measure them in different ways"
                " (train.*)",
                "evaluate them one at a time, or name benchmarks",
            )
    if not chosen:
        return None
    [(sampling, samples)] = measured
    note = (
        f"{', '.join(chosen)} is held out from training, and no other benchmark is named; where no option says"
        f" otherwise, it is asked as in training (temperature {sampling.temperature:g}, {samples} samples of each"
        " problem)"
    )
    return Chosen(list(chosen.values()), note, sampling, samples)


def _default_name(models: Sequence[str]) -> str:
    """Return what the models are evaluated on by default: the name of a built-in set, or ``all`` for the paper's nine.

    A model gets a built-in set if it is a built-in toy policy for that set, or a run that started from one.

    Raises:
        UserError: the models have different defaults.
    """
    kinds = {model: toy_kind(origin(model)) for model in models}
    # A benchmark of addition is called `arithmetic`, the other toy tasks `arithmetic:subtraction` and so on.
    words_of = {None: "all", "addition": "arithmetic"}
    of_models = {
        model: words_of.get(kind, f"arithmetic:{kind}") for model, kind in kinds.items()
    }
    if len(set(of_models.values())) > 1:
        facts = ", ".join(f"{model}: {words}" for model, words in of_models.items())
        raise UserError(
            f"these models have different benchmarks by default ({facts})",
            "name some",
            "benchmarks",
        )
    return next(iter(of_models.values()))


def _benchmarks_of(data: Path) -> tuple[list[Benchmark], str | None]:
    """Return the default benchmarks for data files, and a note for the user.

    These are the paper's benchmarks that the column `data_source` names. If it names none, each file is a benchmark.
    The note names the chosen benchmarks. It is None if the data have the paper's nine benchmarks and no other, or no
    value of `data_source` at all.
    """
    names, sources = benchmarks_in(data)
    if not names:
        benchmarks = file_benchmarks(data)
        called = ", ".join(benchmark.name for benchmark in benchmarks)
        note = f"{data} is scored as {called}; its rows name none of the paper's benchmarks as data_source"
        return benchmarks, note if sources else None
    chosen = [registry()[name] for name in names]
    note = f"{data} is scored as {', '.join(names)}"
    if others := sorted(sources.difference(*(benchmark.names for benchmark in chosen))):
        note += f"; rows of {', '.join(others[:5])} are left out unless they are named as benchmarks"
    return chosen, note if others or len(names) < len(PAPER) else None


def protocol_of(asked: Protocol | None, targets: Sequence[Target]) -> Protocol:
    """Return the protocol to evaluate with.

    A protocol is a set of defaults for samples and prompts. ``paper`` stands for those of the paper's printed scores.
    If the models have stored evaluations, their protocol is returned, because the command continues them. Otherwise it
    is the protocol on the command line, or ``standard`` if there is none.

    Args:
        asked: the protocol on the command line; None if it names none.
        targets: the models; their folders may hold evaluations that the command continues.

    Raises:
        UserError: the stored evaluations have different protocols, or their protocol is not `asked`.
    """
    # A stored evaluation decides: the same command has to continue it without repeating --protocol.
    begun = {
        target.store.record().protocol for target in targets if is_evaluation(target.folder)
    }
    if len(begun) > 1:
        raise UserError(
            "some of these evaluations were begun with the paper's samples and others without",
            "evaluate them one at a time",
        )
    if asked and begun - {asked}:
        raise UserError(
            f"this evaluation was begun as {begun.pop()}",
            "leave it out, or name another folder",
            "protocol",
        )
    return begun.pop() if begun else asked or "standard"


def paper_benchmark(benchmark: Benchmark) -> Benchmark:
    """Return a copy of a benchmark with the number of samples that the paper drew.

    For GPQA, line breaks at the end of the prompt are removed, because most of the authors' prompts have none there.
    """
    changes: dict[str, object] = {"samples": _SAMPLES.get(benchmark.name, 1)}
    if benchmark.name == "gpqa_diamond":
        changes["prompt"] = benchmark.prompt.rstrip("\n")
    return benchmark.model_copy(update=changes)


def paper_prompting(prompting: Prompting, model: str) -> Prompting:
    """Return the changes to the prompts with which the paper scored a model.

    The paper scored some models without a chat template, on messages joined to plain text. For any other model, or if
    the user chose a template, `prompting` is returned unchanged.

    Args:
        prompting: the command's changes to the prompts.
        model: the model's name in the paper's tables.
    """
    if model not in _WITHOUT_TEMPLATE or prompting.chat.template is not None:
        return prompting
    return replace(prompting, chat=ChatFormat(_JOINED, prompting.chat.variables))


def show_prompt(
    request: EvaluationRequest, name: str, *, trust_remote_code: bool = False
) -> Answer:
    """Return the first problem of a benchmark and its gold, as the output of `olr benchmarks NAME`.

    The problem is shown as the text that the request's model reads, or as chat messages if the request names no model.

    Args:
        request: names the model, if any, the data and the changes to the prompt.
        name: a benchmark's name, alias or file.
        trust_remote_code: whether the model's own code may be run to load its tokenizer.
    """
    [task] = request.tasks([find_benchmark(name)])
    problem = task.problems[0]
    facts = {
        "benchmark": task.benchmark.name,
        "problem_id": problem.prompt_id,
        "gold": problem.gold,
    }
    gold = f"gold: {problem.gold}"
    if not request.models:
        return Answer(
            [*(f"[{turn.role}]\n{turn.content}\n" for turn in problem.messages), gold],
            {**facts, "messages": problem.messages},
            notes=[
                f"`olr benchmarks {name} MODEL` shows the prompt exactly as that model reads it"
            ],
        )
    from olr_cli.engines import prompt_text
    from olr_cli.engines.models import load_tokenizer

    chat = request.prompting.chat
    [target] = targets(request.models[0], [], None)
    tokenizer = load_tokenizer(target.model, trust_remote_code=trust_remote_code)
    chat.check(tokenizer)
    prompt = prompt_text.render(tokenizer, problem.messages, chat)
    return Answer([prompt, gold], {**facts, "prompt": prompt})
