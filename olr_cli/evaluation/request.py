"""One call of `olr evaluate`: what the command line asks for, and what is done for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from olr_cli.data.arithmetic import mixture_note, toy_kind
from olr_cli.errors import UserError
from olr_cli.evaluation import backends
from olr_cli.evaluation.answer import answer, check_reference
from olr_cli.evaluation.benchmark import PAPER, Benchmark, choose, find_benchmark, read_by, registry
from olr_cli.evaluation.data_benchmarks import file_benchmarks, held_out_benchmark
from olr_cli.evaluation.evaluate import Progress, Settings, evaluate, regrade
from olr_cli.evaluation.folder import Target, Task, finished, read_evaluation
from olr_cli.evaluation.importing import import_evaluation
from olr_cli.evaluation.problems import benchmarks_in
from olr_cli.evaluation.protocol import follow, protocol_of
from olr_cli.evaluation.published import model_name
from olr_cli.evaluation.scores import Score
from olr_cli.evaluation.targets import (
    all_targets,
    evaluations_at,
    is_run,
    load_tokenizer,
    origin,
    require_models,
    targets,
)
from olr_cli.runs.directory import read_recipe
from olr_cli.tables import Answer

Say = Callable[[str], None]
"""Shows a sentence to the user while something is done."""


@dataclass(frozen=True)
class Request:
    """The arguments and options of the command line.

    Attributes:
        models: as they are named.
        checkpoints: of the runs among them.
        benchmarks: names and files, separated by commas.
        settings: what is generated, before a protocol changes the defaults.
        protocol: ``standard`` or ``paper``; None: what fits the rest.
        backend: keywords of `open_backend`, its ``name`` among them.
        extractor: how answers are read, in place of the benchmarks' own.
        compare: ``paper``, or the folder of another evaluation.

    Raises:
        UserError: options of the backend contradict each other.
    """

    models: Sequence[str] = ()
    checkpoints: Sequence[str] = ()
    benchmarks: str | None = None
    settings: Settings = field(default_factory=Settings)
    protocol: str | None = None
    backend: Mapping[str, Any] = field(default_factory=dict)
    extractor: str | None = None
    out: Path | None = None
    compare: str | None = None

    def __post_init__(self) -> None:
        backends.check_options(**self.backend)


@dataclass(frozen=True)
class Job:
    """A model or checkpoint to evaluate, with its problems."""

    target: Target
    tasks: Sequence[Task]
    settings: Settings
    backend: Mapping[str, Any]

    def run(self, progress: Progress) -> list[Score]:
        """Evaluate it, or finish what an earlier call began; errors as of `evaluate`."""
        chat = self.settings.prompting.chat
        open_model = partial(backends.open_backend, model=self.target.model, chat=chat, **self.backend)
        return evaluate(
            self.target, self.tasks, self.settings, open_model, progress, self.backend.get("name")
        )


def plan(request: Request, say: Say) -> list[Job]:
    """The evaluations that a request asks for, with their problems loaded.

    Raises:
        UserError: a model, benchmark, file or comparison does not exist, or they do not go together.
    """
    settings = request.settings
    is_served = request.backend.get("url") is not None
    named = all_targets(request.models, request.checkpoints, request.out, is_served=is_served)
    all_of_them = [target for group in named.values() for target in group]
    check_reference(request.compare, all_of_them)
    require_models(all_of_them)
    if request.benchmarks:
        known = file_benchmarks(settings.data, request.benchmarks.split(","))
        chosen = choose(request.benchmarks, request.extractor, known)
    else:
        of_the_paper = request.compare == "paper"
        chosen, note = default_benchmarks(request.models, settings.data, of_the_paper=of_the_paper)
        chosen = read_by(request.extractor, chosen)
        if note is not None:
            say(note)
    protocol = protocol_of(request.protocol, request.compare, all_of_them)
    if protocol != (request.protocol or "standard"):
        say(
            "Samples and prompts are those behind the paper's scores (--protocol paper); or name --protocol standard"
        )
    if settings.samples is not None and settings.samples > 1 and settings.sampling.temperature == 0:
        say(f"At temperature 0 all {settings.samples} samples are the same; one is enough")
    jobs: list[Job] = []
    for model, group in named.items():
        benchmarks, adapted = follow(protocol, chosen, settings, model_name(origin(model)))
        loaded = next((job.tasks for job in jobs if job.settings == adapted), None)
        tasks = adapted.tasks(benchmarks) if loaded is None else loaded
        jobs += [Job(target, tasks, adapted, request.backend) for target in group]
    return jobs


def default_benchmarks(
    models: Sequence[str], data: Path | None, *, of_the_paper: bool = False
) -> tuple[list[Benchmark], str | None]:
    """The benchmarks for models when the command names none, and a sentence where the choice may surprise.

    With data: those of the paper's nine that the data contain, else the data themselves. Without: the sets that the
    runs among the models hold out (`data.test`); else the task of a built-in policy, or of the one that a run started
    from; else all nine.

    Args:
        models: as the command names them.
        data: files of problems.
        of_the_paper: what runs hold out does not count, for they are compared with the paper.

    Raises:
        UserError: the data cannot be read, or models have different benchmarks by default.
    """
    if data is not None:
        return _benchmarks_of(data)
    chosen: dict[str, Benchmark] = {}
    if not of_the_paper:
        for model in filter(is_run, models):
            try:
                held_out = held_out_benchmark(read_recipe(Path(model)))
            except UserError as error:
                raise UserError(f"data.test of {model}: {error}, or name --benchmarks") from None
            if held_out is not None and chosen.setdefault(held_out.name, held_out) != held_out:
                raise UserError(
                    f"runs hold out different sets '{held_out.name}' (data.test); name --benchmarks"
                )
    if chosen:
        names = ", ".join(chosen)
        return list(chosen.values()), f"{names} is what data.test holds out; --benchmarks names others"
    of_models = {model: _default_of(origin(model)) for model in models}
    if len(set(of_models.values())) > 1:
        facts = ", ".join(f"{model}: {words}" for model, words in of_models.items())
        raise UserError(f"these models have different benchmarks by default ({facts}); name --benchmarks")
    return choose(next(iter(of_models.values()))), None


def _benchmarks_of(data: Path) -> tuple[list[Benchmark], str | None]:
    names, sources = benchmarks_in(data)
    if not names:
        benchmarks = file_benchmarks(data)
        called = ", ".join(benchmark.name for benchmark in benchmarks)
        said = f"{data} is scored as {called}; its rows name none of the paper's benchmarks as data_source"
        return benchmarks, said if sources else None
    chosen = [registry()[name] for name in names]
    others = sorted(sources.difference(*(benchmark.names for benchmark in chosen)))
    left_out = [name for name in PAPER if name not in names]
    note = f"{data} has no problems of {', '.join(left_out)}" if left_out else None
    if others:
        note = f"{note or data}; rows of {', '.join(others[:5])} are left out (--benchmarks)"
    return chosen, None if note is None else f"{note}; the others are scored"


def _default_of(start: str) -> str:
    kind = toy_kind(start)
    if kind is None:
        return "all"
    return "arithmetic" if kind == "addition" else f"arithmetic:{kind}"


def scores_answer(request: Request, evaluated: Sequence[tuple[Target, Sequence[Score]]]) -> Answer:
    """The scores of the jobs of a request."""
    mixtures = filter(None, (mixture_note(origin(model)) for model in request.models))
    return answer(evaluated, request.compare, next(mixtures, None))


def grade_again(
    request: Request, place: Path, say: Say, report: Callable[[int, int], None] | None = None
) -> Answer:
    """Grade the stored evaluations at a place again, with the request's benchmarks and extractor.

    `report` is as `Judge` takes it.

    Raises:
        UserError: there are none, none is done, or the request does not fit them.
    """
    stored = evaluations_at(place)
    unfinished = [target for target in stored if not finished(target.folder)]
    if len(unfinished) == len(stored):
        unfinished = []  # grading the first raises the error
    for target in unfinished:
        say(f"{target.folder}: no benchmark is done yet; left out")
    stored = [target for target in stored if target not in unfinished]
    check_reference(request.compare, stored)
    definitions = [
        task.definition
        for target in stored
        for name, task in read_evaluation(target.folder).benchmarks.items()
        if name not in registry()
    ]
    chosen = choose(request.benchmarks, own=definitions) if request.benchmarks else None
    evaluated: list[tuple[Target, Sequence[Score]]] = []
    for target in stored:
        regraded = regrade(target.folder, chosen, request.extractor, report)
        evaluated.append((regraded.target, regraded.scores))
        for sentence in regraded.sentences():
            say(sentence)
    return answer(evaluated, request.compare)


def import_log(request: Request, log: Path, say: Say) -> Answer:
    """Grade the responses in another tool's sample log.

    Raises:
        UserError: the log cannot be read, or does not fit the benchmarks.
    """
    data = request.settings.data
    if data is not None and request.benchmarks is None:
        raise UserError("--import takes --data with --benchmarks alone: name the benchmark that was asked")
    if request.compare != "paper":
        check_reference(request.compare, [])
    chosen = choose(request.benchmarks) if request.benchmarks else []
    imported = import_evaluation(log, request.out, chosen, data, request.extractor)
    for sentence in imported.sentences:
        say(sentence)
    return answer([(imported.target, imported.scores)], request.compare)


def show_prompt(request: Request, name: str) -> Answer:
    """One problem of a benchmark as the model reads it; without a model, its messages.

    Raises:
        UserError: there is no such benchmark or model, or several models are named.
    """
    if len(request.models) > 1:
        raise UserError("--show takes one model; leave the others out")
    model = next(iter(request.models), None)
    protocol = protocol_of(request.protocol, None, [])
    paper_model = "" if model is None else model_name(origin(model))
    benchmarks, settings = follow(protocol, [find_benchmark(name)], request.settings, paper_model)
    problem = settings.tasks(benchmarks)[0].problems[0]
    facts = {"benchmark": benchmarks[0].name, "problem_id": problem.prompt_id, "gold": problem.gold}
    gold = f"gold: {problem.gold}"
    if model is None:
        messages = [{"role": message.role, "content": message.content} for message in problem.messages]
        return Answer(
            [*_headed(messages), gold],
            {**facts, "messages": messages},
            notes=["with a model named, the prompt is shown exactly as that model reads it"],
        )
    from olr_cli.engines import prompt_text

    chat = settings.prompting.chat
    trust_remote_code = bool(request.backend.get("trust_remote_code"))
    tokenizer = load_tokenizer(targets(model, [], None)[0].model, trust_remote_code=trust_remote_code)
    chat.check(tokenizer)
    prompt = prompt_text.render(tokenizer, problem.messages, chat)
    return Answer([prompt, gold], {**facts, "prompt": prompt})


def _headed(messages: Sequence[Mapping[str, str]]) -> Iterator[str]:
    for message in messages:
        yield f"[{message['role']}]\n{message['content']}\n"
