"""What a call of `olr evaluate` asks for, and the evaluations that it means: models, benchmarks, problems, protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from olr_cli.data.arithmetic import toy_kind
from olr_cli.errors import UserError
from olr_cli.evaluation.backends import BackendOptions, Sampling
from olr_cli.evaluation.benchmark import (
    PAPER,
    Benchmark,
    choose,
    file_benchmarks,
    find_benchmark,
    held_out_benchmark,
    read_by,
    registry,
)
from olr_cli.evaluation.problems import benchmarks_in, load_problems
from olr_cli.evaluation.prompting import Prompting
from olr_cli.evaluation.protocol import paper_benchmark, paper_prompting, protocol_of
from olr_cli.evaluation.published import model_name
from olr_cli.evaluation.results import check_reference
from olr_cli.evaluation.store import EvaluationRecord, Protocol, Target, Task
from olr_cli.evaluation.targets import (
    all_targets,
    is_run,
    load_tokenizer,
    origin,
    require_models,
    targets,
)
from olr_cli.tables import Answer

Say = Callable[[str], None]
"""Shows a sentence to the user while something is done."""


@dataclass(frozen=True)
class EvaluationRequest:
    """The arguments and options of the command line.

    Attributes:
        models: folders, hub ids, built-in policies or runs.
        checkpoints: which checkpoints of the runs.
        benchmarks: names and files, separated by commas.
        data: interchange file, or folder of them, in place of the benchmarks' sources.
        limit: only the first problems of each benchmark.
        samples: how many for each problem; None: as many as the benchmark says, or one at temperature 0.
        sampling: how responses are drawn.
        seed: every sample's seed is made from it (`olr_cli.evaluation.pool.sample_seed`).
        prompting: how problems are put to the model.
        protocol: whose choices the defaults are; None: what fits the rest.
        backend: how the model is opened.
        extractor: how answers are read, in place of the benchmarks' own.
        tolerance: of numbers, in place of the benchmarks' own.
        out: the folder for results.
        compare: ``paper``, or the folder of another evaluation.
    """

    models: Sequence[str] = ()
    checkpoints: Sequence[str] = ()
    benchmarks: str | None = None
    data: Path | None = None
    limit: int | None = None
    samples: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    prompting: Prompting = field(default_factory=Prompting)
    protocol: Protocol | None = None
    backend: BackendOptions = field(default_factory=BackendOptions)
    extractor: str | None = None
    tolerance: float | None = None
    out: Path | None = None
    compare: str | None = None

    def under(self, protocol: Protocol, model: str) -> EvaluationRequest:
        """The request under a protocol, for a model as the command names it."""
        prompting = self.prompting
        if protocol == "paper":
            prompting = paper_prompting(prompting, model_name(origin(model)))
        return replace(self, protocol=protocol, prompting=prompting)

    def tasks(self, benchmarks: Sequence[Benchmark]) -> list[Task]:
        """The benchmarks with their problems, which are loaded, and their samples.

        Raises:
            UserError: problems cannot be loaded, or there are none.
        """
        tasks = []
        for chosen in benchmarks:
            benchmark = paper_benchmark(chosen) if self.protocol == "paper" else chosen
            problems = load_problems(benchmark, data=self.data, limit=self.limit)
            problems = self.prompting.ask(benchmark, problems)
            if not problems:
                raise UserError(f"{benchmark.name} has no problems; name other data")
            by_default = benchmark.samples if self.sampling.temperature else 1
            data = None if self.data is None else str(self.data)
            tasks.append(Task(benchmark, problems, self.samples or by_default, data))
        return tasks


@dataclass(frozen=True)
class Evaluation:
    """One model or checkpoint, with all that its evaluation needs.

    Attributes:
        target: the model and the folder.
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
            benchmarks={task.benchmark.name: task.record() for task in self.tasks},
        )


def plan(request: EvaluationRequest, say: Say) -> list[Evaluation]:
    """The evaluations that a request means, with their problems loaded.

    Raises:
        UserError: a model, benchmark, file or comparison does not exist, or they do not go together.
    """
    is_served = request.backend.url is not None
    named = all_targets(request.models, request.checkpoints, request.out, is_served=is_served)
    every_target = [target for group in named.values() for target in group]
    check_reference(request.compare, every_target)
    require_models(every_target)
    benchmarks = _benchmarks(request, say)
    protocol = protocol_of(request.protocol, request.compare, every_target)
    if protocol != (request.protocol or "standard"):
        say(
            "Samples and prompts are those behind the paper's scores (--protocol paper); or name --protocol standard"
        )
    if request.samples is not None and request.samples > 1 and request.sampling.temperature == 0:
        say(f"At temperature 0 all {request.samples} samples are the same; one is enough")
    evaluations: list[Evaluation] = []
    for model, group in named.items():
        decided = request.under(protocol, model)
        loaded = next((it.tasks for it in evaluations if it.request == decided), None)
        tasks = decided.tasks(benchmarks) if loaded is None else loaded
        evaluations += [Evaluation(target, tasks, decided) for target in group]
    return evaluations


def _benchmarks(request: EvaluationRequest, say: Say) -> list[Benchmark]:
    if request.benchmarks:
        known = file_benchmarks(request.data, request.benchmarks.split(","))
        return choose(request.benchmarks, request.extractor, known, request.tolerance)
    of_the_paper = request.compare == "paper"
    chosen, note = default_benchmarks(request.models, request.data, of_the_paper=of_the_paper)
    if note is not None:
        say(note)
    return read_by(request.extractor, chosen, request.tolerance)


def default_benchmarks(
    models: Sequence[str], data: Path | None, *, of_the_paper: bool = False
) -> tuple[list[Benchmark], str | None]:
    """The benchmarks for models when the command names none, and a sentence where the choice may surprise.

    With data: those of the paper's nine that the data contain, else the data themselves. Without: the sets that the
    runs among the models hold out (`data.test` or `data.held_out`); else the task of a built-in policy, or of the one
    that a run started from; else all nine.

    Args:
        models: as the command names them.
        data: files of problems.
        of_the_paper: ignore the held-out sets of runs, which are compared with the paper.

    Raises:
        UserError: the data cannot be read, or models have different benchmarks by default.
    """
    if data is not None:
        return _benchmarks_of(data)
    chosen: dict[str, Benchmark] = {}
    for model in () if of_the_paper else filter(is_run, models):
        try:
            held_out = held_out_benchmark(Path(model))
        except UserError as error:
            raise UserError(f"the held-out prompts of {model}: {error}, or name --benchmarks") from None
        if held_out is not None and chosen.setdefault(held_out.name, held_out) != held_out:
            raise UserError(f"runs hold out different sets '{held_out.name}'; name --benchmarks")
    if chosen:
        names = ", ".join(chosen)
        return list(chosen.values()), f"{names} is held out from training; --benchmarks names others"
    of_models = {model: _task_of(origin(model)) for model in models}
    if len(set(of_models.values())) > 1:
        facts = ", ".join(f"{model}: {words}" for model, words in of_models.items())
        raise UserError(f"these models have different benchmarks by default ({facts}); name --benchmarks")
    return choose(next(iter(of_models.values()))), None


def _benchmarks_of(data: Path) -> tuple[list[Benchmark], str | None]:
    names, sources = benchmarks_in(data)
    if not names:
        benchmarks = file_benchmarks(data)
        called = ", ".join(benchmark.name for benchmark in benchmarks)
        note = f"{data} is scored as {called}; its rows name none of the paper's benchmarks as data_source"
        return benchmarks, note if sources else None
    chosen = [registry()[name] for name in names]
    others = sorted(sources.difference(*(benchmark.names for benchmark in chosen)))
    left_out = [name for name in PAPER if name not in names]
    notes = [f"{data} has no problems of {', '.join(left_out)}"] if left_out else [str(data)]
    if others:
        notes.append(f"rows of {', '.join(others[:5])} are left out (--benchmarks)")
    return chosen, "; ".join([*notes, "the others are scored"]) if left_out or others else None


def _task_of(start: str) -> str:
    kind = toy_kind(start)
    if kind is None:
        return "all"
    return "arithmetic" if kind == "addition" else f"arithmetic:{kind}"


def show_prompt(request: EvaluationRequest, name: str) -> Answer:
    """One problem of a benchmark as the model reads it; without a model, its messages.

    Raises:
        UserError: there is no such benchmark or model, or several models are named.
    """
    if len(request.models) > 1:
        raise UserError("--show takes one model; leave the others out")
    model = next(iter(request.models), None)
    decided = request if model is None else request.under(request.protocol or "standard", model)
    [task] = decided.tasks([find_benchmark(name)])
    problem = task.problems[0]
    facts = {"benchmark": task.benchmark.name, "problem_id": problem.prompt_id, "gold": problem.gold}
    gold = f"gold: {problem.gold}"
    if model is None:
        return Answer(
            [*(f"[{turn.role}]\n{turn.content}\n" for turn in problem.messages), gold],
            {**facts, "messages": [{"role": it.role, "content": it.content} for it in problem.messages]},
            notes=["with a model named, the prompt is shown exactly as that model reads it"],
        )
    from olr_cli.engines import prompt_text

    chat = decided.prompting.chat
    tokenizer = load_tokenizer(
        targets(model, [], None)[0].model, trust_remote_code=request.backend.trust_remote_code
    )
    chat.check(tokenizer)
    prompt = prompt_text.render(tokenizer, problem.messages, chat)
    return Answer([prompt, gold], {**facts, "prompt": prompt})
