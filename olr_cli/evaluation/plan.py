"""What a call of `olr evaluate` asks for, and the evaluations that it means: models, benchmarks, problems, protocol.

Under the protocol `paper`, samples and templates are those behind the paper's printed scores. docs/evaluation.md
("Beside the paper's scores") lists where the authors' files depart from the paper's text, and what else differs.
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
"""Samples of a problem behind the printed scores; 1 for the other benchmarks."""

_JOINED = "{{ bos_token }}{% for message in messages %}{{ message.content }}{% endfor %}"
"""A chat template that joins messages without a separator."""

_WITHOUT_TEMPLATE = frozenset({"DeepSeek-R1-Distill-Llama-8B"})

Say = Callable[[str], None]
"""Shows a sentence to the user while something is done."""


@dataclass(frozen=True)
class EvaluationRequest:
    """The arguments and options of the command line, and what follows from them.

    Attributes:
        models: folders, hub ids, built-in policies or runs.
        benchmarks: names and files, separated by commas.
        data: interchange file, or folder of them, in place of the benchmarks' sources.
        limit: only the first problems of each benchmark.
        samples: how many for each problem; None: as many as the benchmark says, or one at temperature 0.
        drawn: fields of `Sampling` that the command names.
        sampling: how responses are drawn, decided by `plan`.
        seed: every sample's seed is made from it (`olr_cli.evaluation.pool.sample_seed`).
        protocol: whose choices the defaults are; None: those of an evaluation that goes on, else the standard ones.
        extractor, tolerance: in place of the benchmarks' own.
        verified: file of verified keys, which take the place of the benchmarks' own.
    """

    models: Sequence[str] = ()
    checkpoints: Sequence[str] = ()
    benchmarks: str | None = None
    data: Path | None = None
    limit: int | None = None
    samples: int | None = None
    drawn: Mapping[str, Any] = field(default_factory=dict)
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    prompting: Prompting = field(default_factory=Prompting)
    protocol: Protocol | None = None
    backend: BackendOptions = field(default_factory=BackendOptions)
    extractor: str | None = None
    tolerance: float | None = None
    verified: Path | None = None
    out: Path | None = None
    compare: Compared = None

    def tasks(self, benchmarks: Sequence[Benchmark]) -> list[Task]:
        """The benchmarks with their problems, which are loaded, and their samples."""
        tasks = []
        for chosen in benchmarks:
            benchmark = paper_benchmark(chosen) if self.protocol == "paper" else chosen
            problems = self.prompting.ask(
                load_problems(benchmark, data=self.data, limit=self.limit)
            )
            if not problems:
                raise UserError(f"{benchmark.name} has no problems", "name other data")
            by_default = benchmark.samples if self.sampling.temperature else 1
            data = None if self.data is None else str(self.data)
            tasks.append(Task(benchmark, problems, self.samples or by_default, data))
        return tasks if self.verified is None else with_verified_keys(tasks, self.verified)


@dataclass(frozen=True)
class Evaluation:
    """One model or checkpoint, with all that its evaluation needs.

    Attributes:
        tasks: benchmarks with their problems, in the order in which they are worked on.
        request: how they are sampled; its protocol and prompting are decided.
    """

    target: Target
    tasks: Sequence[Task]
    request: EvaluationRequest

    def record(self) -> EvaluationRecord:
        """As evaluation.json has it, before anything is sampled."""
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
    """Return the evaluations that a request means, with their problems loaded."""
    # First, so that a misspelled name is not hidden behind what models need.
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
    if not is_held_out:  # training has looked at what a run holds out
        for note in _label_notes(evaluations[0].tasks):
            say(f"Warning: {note}")
    return evaluations


def _targets(request: EvaluationRequest, *, is_held_out: bool) -> dict[str, list[Target]]:
    """Return the targets of each model, in other folders where they are not sampled as they are by default."""
    is_served = request.backend.url is not None
    named = all_targets(
        request.models, request.checkpoints, request.out, is_served=is_served
    )
    if request.out is not None:
        return named
    return {
        model: [_parted(target, is_held_out=is_held_out) for target in group]
        for model, group in named.items()
    }


def _with_sampling(request: EvaluationRequest, chosen: Chosen) -> EvaluationRequest:
    """Return the request with how responses are drawn, and how many: by its options, else as its benchmarks are."""
    sampling, samples = replace(chosen.sampling, **request.drawn), request.samples
    if samples is None and sampling.temperature:
        samples = chosen.samples
    return replace(request, sampling=sampling, samples=samples)


def _evaluations(
    request: EvaluationRequest,
    targets_by_model: Mapping[str, Sequence[Target]],
    benchmarks: Sequence[Benchmark],
) -> list[Evaluation]:
    """Return an evaluation a target; models that are prompted alike share the problems, which are loaded once."""
    evaluations: list[Evaluation] = []
    for model, group in targets_by_model.items():
        decided = request
        if request.protocol == "paper":
            name = model_name(origin(model))
            decided = replace(request, prompting=paper_prompting(request.prompting, name))
        loaded = next((it.tasks for it in evaluations if it.request == decided), None)
        tasks = decided.tasks(benchmarks) if loaded is None else loaded
        evaluations += [Evaluation(target, tasks, decided) for target in group]
    return evaluations


def _label_notes(tasks: Sequence[Task]) -> Iterator[str]:
    """Sentences about golds of own files with which no answer may be right."""
    for task in tasks:
        source, fields = task.benchmark.source.file, task.benchmark.fields
        if source is not None and task.benchmark.grader == "math":
            reading = Reading()
            if fields is not None:
                reading = Reading({"question": fields.problem, "answer": fields.answer})
            yield from label_notes(task.problems, source, reading)


def _parted(target: Target, *, is_held_out: bool) -> Target:
    """The target, in another folder where it is not sampled as this model is by default.

    A run is asked what it holds out as in training, all else as any model: one evaluation has one sampling.
    """
    run = target.origin.get("run")
    if is_held_out == (run is not None and held_out_set(Path(run)) is not None):
        return target
    folder = f"{target.folder.name}-{'held-out' if is_held_out else 'benchmarks'}"
    return replace(target, folder=target.folder.with_name(folder))


class Chosen(NamedTuple):
    """The benchmarks of a request.

    Attributes:
        note: a sentence where the choice may surprise, for before anything starts.
        sampling: by default; that of training, like `samples` of a problem, of what runs hold out.
        samples: None of everything else.
    """

    benchmarks: Sequence[Benchmark]
    note: str | None = None
    sampling: Sampling = Sampling()
    samples: int | None = None


def _benchmarks(request: EvaluationRequest) -> Chosen:
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
    """The benchmarks for models when the command names none.

    With data: those of the paper's nine that the data contain, else the data themselves. Without: the sets that the
    runs among the models hold out (`data.test` or `data.held_out`); else the task of a built-in policy, or of the one
    that a run started from; else all nine.
    `of_the_paper`: ignore the held-out sets of runs, which are compared with the paper.
    """
    if data is not None:
        return Chosen(*_benchmarks_of(data))
    held_out = None if of_the_paper else _held_out(list(filter(is_run, models)))
    return held_out or Chosen(choose(_tasks_of(models)))


def _held_out(runs: Sequence[str]) -> Chosen | None:
    """Return the sets that runs hold out, sampled as in training; None if none does."""
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


def _tasks_of(models: Sequence[str]) -> str:
    """Return the words for the benchmarks of models by default: the task of a toy policy, or all nine."""
    kinds = {model: toy_kind(origin(model)) for model in models}
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
    """The protocol of a command: that of the evaluation it goes on with, else the one that is asked for."""
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
    """A benchmark with the paper's number of samples, and GPQA's questions without the last line break."""
    changes: dict[str, object] = {"samples": _SAMPLES.get(benchmark.name, 1)}
    if benchmark.name == "gpqa_diamond":
        changes["prompt"] = benchmark.prompt.rstrip("\n")
    return benchmark.model_copy(update=changes)


def paper_prompting(prompting: Prompting, model: str) -> Prompting:
    """The prompting of the paper's row of a model, called as in its tables; a template that the user chose stays."""
    if model not in _WITHOUT_TEMPLATE or prompting.chat.template is not None:
        return prompting
    return replace(prompting, chat=ChatFormat(_JOINED, prompting.chat.variables))


def show_prompt(
    request: EvaluationRequest, name: str, *, trust_remote_code: bool = False
) -> Answer:
    """One problem of a benchmark as the request's model reads it; without a model, its messages."""
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
