"""`olr evaluate`: accuracy on benchmarks, of a model or of a run's checkpoints."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from olr_cli.cli.options import require_known, shape_of
from olr_cli.cli.printing import show as show_answer
from olr_cli.cli.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from olr_cli.evaluation.evaluate import Settings
    from olr_cli.evaluation.folder import Target, Task
    from olr_cli.evaluation.scores import Score
    from olr_cli.tables import Answer

FORMATS = ("terminal", "markdown", "latex", "csv", "json")
"""How scores can be printed."""

EXPORTS = ("lm-eval", "leaderboard")
"""Formats of other tools that results can be written in."""

_PROMPTS = {"data", "system", "shots", "examples", "chat_template", "template", "protocol"}
_SCORES = {"compare", "export", "format_", "json"}
_TAKEN = {
    "list_": {"format_", "json"},
    "show": {"model", "trust_remote_code", *_PROMPTS},
    "regrade": {"benchmarks", "data", "extractor", *_SCORES},
    "import_": {"benchmarks", "data", "extractor", "out", *_SCORES},
}
"""Options that go with those that evaluate nothing."""

PROBLEMS, PROMPT, SAMPLING, PLACE, RESULT, INSTEAD = (
    "What is scored",
    "How it is asked",
    "How responses are drawn",
    "Where it runs",
    "Results",
    "Instead of evaluating",
)
"""Groups of options in the help."""


def evaluate(
    context: typer.Context,
    model: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL|RUN...",
            help="A model folder, hub id or built-in policy, or a run directory; several make one table.",
            show_default=False,
        ),
    ] = None,
    benchmarks: Annotated[
        list[str] | None,
        typer.Option(
            "--benchmarks",
            help="Benchmark names or your own files (YAML, Parquet, JSONL), separated by commas; may be repeated. By"
            " default a run's data.test, a built-in policy's own task, else the paper's nine.",
            rich_help_panel=PROBLEMS,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="Read the problems from this Parquet or JSONL file, or folder of such files: those of the paper's"
            " benchmarks, or your own questions and answers.",
            rich_help_panel=PROBLEMS,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=1,
            help="Use only the first N problems of each benchmark.",
            rich_help_panel=PROBLEMS,
        ),
    ] = None,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--checkpoint",
            help="Checkpoint of the run: last, best or a step; may be repeated. By default last.",
            rich_help_panel=PROBLEMS,
        ),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            metavar="TEXT|none",
            help="System message of every problem, in place of the benchmark's and the data's.",
            rich_help_panel=PROMPT,
        ),
    ] = None,
    shots: Annotated[
        int | None,
        typer.Option(
            "--shots",
            min=1,
            help="Show so many examples of --examples before each problem.",
            rich_help_panel=PROMPT,
        ),
    ] = None,
    examples: Annotated[
        Path | None,
        typer.Option(
            "--examples",
            metavar="FILE",
            help="Parquet or JSONL file of questions and answers; a column response has worked solutions.",
            rich_help_panel=PROMPT,
        ),
    ] = None,
    chat_template: Annotated[
        str | None,
        typer.Option(
            "--chat-template",
            metavar="FILE|none",
            help="Jinja file in place of the model's chat template; none: prompts are plain text.",
            rich_help_panel=PROMPT,
        ),
    ] = None,
    template: Annotated[
        list[str] | None,
        typer.Option(
            "--template",
            metavar="KEY=VALUE",
            help="Variable of the chat template, e.g. enable_thinking=false; may be repeated.",
            rich_help_panel=PROMPT,
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            "--protocol",
            metavar="standard|paper",
            help="Whose choices the defaults are: the paper's text (standard), or how its printed scores were made"
            " (paper); by default paper with --compare paper.",
            rich_help_panel=PROMPT,
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples",
            min=1,
            help="Samples per problem, by default each benchmark's own number; raised later, only the missing ones"
            " are made.",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    temperature: Annotated[
        float,
        typer.Option(
            "--temperature",
            min=0,
            help="Sampling temperature; 0 takes the most likely token.",
            rich_help_panel=SAMPLING,
        ),
    ] = 0.6,
    top_p: Annotated[
        float,
        typer.Option(
            "--top-p",
            help="Draw from the most likely tokens that together have this probability.",
            rich_help_panel=SAMPLING,
        ),
    ] = 1.0,
    top_k: Annotated[
        int | None,
        typer.Option(
            "--top-k",
            min=1,
            help="Draw from this many of the most likely tokens; by default from all.",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    min_p: Annotated[
        float,
        typer.Option(
            "--min-p",
            help="Draw from tokens at least this share as likely as the most likely one; 0: from all.",
            rich_help_panel=SAMPLING,
        ),
    ] = 0.0,
    stop: Annotated[
        list[str] | None,
        typer.Option(
            "--stop",
            metavar="TEXT",
            help="End a response before this text; may be repeated.",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    max_new_tokens: Annotated[
        int,
        typer.Option(
            "--max-new-tokens",
            min=1,
            help="Maximum length of a response, in tokens.",
            rich_help_panel=SAMPLING,
        ),
    ] = 4096,
    seed: Annotated[
        int, typer.Option("--seed", help="Random seed of the samples.", rich_help_panel=SAMPLING)
    ] = 0,
    seed_each: Annotated[
        bool | None,
        typer.Option(
            "--seed-each/--seed-engine",
            help="Draw each sample from a seed of its own, so that what is resumed draws the same, or, with vLLM, all"
            " from the engine's, which is faster. By default each, but the engine's with vLLM on a GPU.",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            help="vllm, transformers or openai; by default vLLM if it can run here, openai with --url.",
            rich_help_panel=PLACE,
        ),
    ] = None,
    vllm: Annotated[
        list[str] | None,
        typer.Option(
            "--vllm",
            metavar="KEY=VALUE",
            help="Setting of vLLM's engine, e.g. tensor_parallel_size=2, data_parallel_size=4,"
            " gpu_memory_utilization=0.8, quantization=fp8, or lora=DIR; may be repeated.",
            rich_help_panel=PLACE,
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="API of an OpenAI-compatible server, e.g. http://localhost:8000/v1; MODEL is the name that it knows."
            " The key is read from OPENAI_API_KEY.",
            rich_help_panel=PLACE,
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            min=1,
            help="Most requests to the server at a time; by default 64.",
            rich_help_panel=PLACE,
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option("--device", help="Device of the model: auto, cpu or cuda.", rich_help_panel=PLACE),
    ] = "auto",
    trust_remote_code: Annotated[
        bool,
        typer.Option(
            "--trust-remote-code", help="Run code that comes with the model.", rich_help_panel=PLACE
        ),
    ] = False,
    extractor: Annotated[
        str | None,
        typer.Option(
            "--extractor",
            metavar="NAME|KIND:TEXT",
            help="How answers are read, in place of each benchmark's own: boxed, last_number, choice, regex:PATTERN, …",
            rich_help_panel=RESULT,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder for the results; by default in the run, or evaluations/<model>.",
            rich_help_panel=RESULT,
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="paper|DIR",
            help="Show the paper's row, or another evaluation, for comparison.",
            rich_help_panel=RESULT,
        ),
    ] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="Format of the scores: terminal, markdown, latex, csv or json.",
            rich_help_panel=RESULT,
        ),
    ] = "terminal",
    json: Annotated[
        bool, typer.Option("--json", help="Same as --format json.", rich_help_panel=RESULT)
    ] = False,
    export: Annotated[
        str | None,
        typer.Option(
            "--export",
            metavar="lm-eval|leaderboard",
            help="Also write the results in another tool's format, below the results' folder.",
            rich_help_panel=RESULT,
        ),
    ] = None,
    regrade: Annotated[
        Path | None,
        typer.Option(
            "--regrade",
            metavar="DIR",
            help="Grade the stored generations in DIR again, without a model; with --data by its golds.",
            rich_help_panel=INSTEAD,
        ),
    ] = None,
    import_: Annotated[
        Path | None,
        typer.Option(
            "--import",
            metavar="LOG",
            help="Grade the responses in a sample log of lm-eval (--log_samples) or lighteval (--save-details), a file"
            " or a folder.",
            rich_help_panel=INSTEAD,
        ),
    ] = None,
    list_: Annotated[
        bool,
        typer.Option("--list", help="List the benchmarks and their sources.", rich_help_panel=INSTEAD),
    ] = False,
    show: Annotated[
        str | None,
        typer.Option(
            "--show",
            metavar="BENCHMARK",
            help="Show one prompt exactly as the model sees it, and its gold answer.",
            rich_help_panel=INSTEAD,
        ),
    ] = None,
) -> None:
    """Score a model, or a run's checkpoints, on benchmarks; after an interruption, the same command resumes."""
    from olr_cli.errors import UserError
    from olr_cli.evaluation.backends import BACKENDS, Sampling
    from olr_cli.evaluation.backends.vllm_settings import read_settings
    from olr_cli.evaluation.evaluate import Settings
    from olr_cli.evaluation.prompting import read_prompting

    require_known("--format", format_, FORMATS)
    shape = shape_of(format_, as_json=json)
    if export is not None:
        require_known("--export", export, EXPORTS)
    if protocol is not None:
        require_known("--protocol", protocol, ("standard", "paper"))
    if extractor is not None:
        from olr_cli.answers import find_extractor

        find_extractor(extractor, "--extractor")
    names = ",".join(benchmarks or []) or None
    for mode, taken in _TAKEN.items():
        if context.params[mode]:
            _require_nothing_but(context, {mode, *taken})
    if list_:
        from olr_cli.evaluation.benchmark import listing

        show_answer(listing(), shape)
    elif show is not None:
        prompting = read_prompting(system, chat_template, template or (), shots, examples)
        if model and len(model) > 1:
            raise UserError("--show takes one model; leave the others out")
        name = model[0] if model else None
        _show(show, name, Settings(limit=1, data=data, prompting=prompting), protocol, trust_remote_code)
    elif regrade is not None:
        show_answer(_regrade(regrade, names, data, extractor, compare, export), shape)
    elif import_ is not None:
        show_answer(_import(import_, out, names, data, extractor, compare, export), shape)
    elif not model:
        raise UserError(
            "name a model or a run: olr evaluate MODEL (`olr evaluate --list` shows the benchmarks)"
        )
    else:
        if backend is not None:
            require_known("--backend", backend, BACKENDS)
        if (backend == "openai" and url is None) or (url is not None and backend not in (None, "openai")):
            raise UserError("--url names a server for --backend openai; give both, or --url alone")
        require_known("--device", device, ("auto", "cpu", "cuda"))
        prompting = read_prompting(system, chat_template, template or (), shots, examples)
        sampling = Sampling(temperature, max_new_tokens, top_p, top_k or None, min_p, tuple(stop or ()))
        settings = Settings(sampling, seed, samples, limit, data, prompting)
        opening = {
            "name": backend,
            "device": device,
            "trust_remote_code": trust_remote_code,
            "vllm": read_settings(vllm or ()),
            "seed_each": seed_each,
            "url": url,
            "concurrency": concurrency,
        }
        results = {"compare": compare, "export": export, "extractor": extractor}
        show_answer(
            _evaluate(model, checkpoint or [], out, names, settings, protocol, opening, **results), shape
        )


def _require_nothing_but(context: typer.Context, taken: set[str]) -> None:
    """Refuse options that would be ignored."""
    from olr_cli.errors import UserError

    given = [
        parameter
        for parameter in context.command.params
        if (source := context.get_parameter_source(str(parameter.name))) and source.name == "COMMANDLINE"
    ]
    mode = next(parameter.opts[0] for parameter in given if parameter.name in _TAKEN)
    for parameter in given:
        if parameter.name not in taken:
            raise UserError(f"{mode} takes no {parameter.opts[0]}; leave it out")


def _evaluate(
    models: list[str],
    checkpoints: list[str],
    out: Path | None,
    benchmarks: str | None,
    settings: Settings,
    protocol: str | None,
    opening: dict[str, Any],
    *,
    compare: str | None,
    export: str | None,
    extractor: str | None,
) -> Answer:
    """Evaluate every model that the command names."""
    from olr_cli.data.arithmetic import mixture_note
    from olr_cli.evaluation.backends import open_backend
    from olr_cli.evaluation.benchmark import choose, read_by
    from olr_cli.evaluation.evaluate import Progress
    from olr_cli.evaluation.evaluate import evaluate as run_evaluation
    from olr_cli.evaluation.own_data import file_benchmarks
    from olr_cli.evaluation.protocol import follow, protocol_of
    from olr_cli.evaluation.published import model_name
    from olr_cli.evaluation.targets import (
        all_targets,
        answer,
        check_reference,
        default_benchmarks,
        origin,
        require_models,
    )
    from olr_cli.runs.interrupts import Interrupted, exit_status

    named = all_targets(models, checkpoints, out, is_served=opening["url"] is not None)
    targets = [target for group in named.values() for target in group]
    check_reference(compare, targets)
    require_models(targets)
    if benchmarks:
        chosen = choose(benchmarks, extractor, file_benchmarks(settings.data, benchmarks.split(",")))
    else:
        chosen, note = default_benchmarks(models, settings.data, of_the_paper=compare == "paper")
        chosen = read_by(extractor, chosen)
        if note is not None:
            typer.echo(note, err=True)
    followed = protocol_of(protocol, compare, targets)
    if followed != (protocol or "standard"):
        typer.echo(
            "Samples and prompts are those behind the paper's scores (--protocol paper); or name --protocol standard",
            err=True,
        )
    evaluated: list[tuple[Target, Sequence[Score]]] = []
    progress = Progress()
    plans: dict[str, tuple[Settings, list[Task]]] = {}
    for model in named:
        wanted, asked = follow(followed, chosen, settings, model_name(origin(model)))
        same = next((plan for plan in plans.values() if plan[0] == asked), None)
        plans[model] = same or (asked, asked.tasks(wanted))
    for model, target in ((model, target) for model, group in named.items() for target in group):
        asked, tasks = plans[model]
        open_model = partial(open_backend, model=target.model, chat=asked.prompting.chat, **opening)
        try:
            scores = run_evaluation(target, tasks, asked, open_model, progress, opening["name"])
            evaluated.append((target, scores))
        except (Interrupted, KeyboardInterrupt) as stop:
            done = (
                f"What is done is in {target.folder}" if target.folder.exists() else "Nothing is stored yet"
            )
            typer.echo(f"Stopped. {done}; the same command goes on.", err=True)
            raise typer.Exit(exit_status(stop)) from None
    mixtures = filter(None, (mixture_note(origin(model)) for model in named))
    return answer(evaluated, compare, next(mixtures, None), export)


def _import(
    log: Path,
    out: Path | None,
    benchmarks: str | None,
    data: Path | None,
    extractor: str | None,
    compare: str | None,
    export: str | None,
) -> Answer:
    """Grade the responses in another tool's log."""
    from olr_cli.errors import UserError
    from olr_cli.evaluation.benchmark import choose
    from olr_cli.evaluation.importing import import_evaluation
    from olr_cli.evaluation.targets import answer, check_reference

    if data is not None and benchmarks is None:
        raise UserError("--import takes --data with --benchmarks alone: name the benchmark that was asked")
    if compare is not None and compare != "paper":
        check_reference(compare, [])
    chosen = choose(benchmarks) if benchmarks else []
    imported = import_evaluation(log, out, chosen, data, extractor)
    for sentence in imported.sentences:
        typer.echo(sentence, err=True)
    return answer([(imported.target, imported.scores)], compare, export=export)


def _regrade(
    place: Path,
    benchmarks: str | None,
    data: Path | None,
    extractor: str | None,
    compare: str | None,
    export: str | None,
) -> Answer:
    """Grade the evaluations at a place again."""
    from olr_cli.evaluation.benchmark import choose, registry
    from olr_cli.evaluation.evaluate import regrade
    from olr_cli.evaluation.folder import finished, read_evaluation
    from olr_cli.evaluation.targets import answer, check_reference, evaluations_at

    evaluations = evaluations_at(place)
    begun = [target for target in evaluations if not finished(target.folder)]
    if len(begun) == len(evaluations):
        begun = []  # then the first is an error
    for target in begun:
        typer.echo(f"{target.folder}: no benchmark is done yet; left out", err=True)
    evaluations = [target for target in evaluations if target not in begun]
    check_reference(compare, evaluations)
    own = [
        task.definition
        for target in evaluations
        for name, task in read_evaluation(target.folder).benchmarks.items()
        if name not in registry()
    ]
    chosen = choose(benchmarks, own=own) if benchmarks else None
    evaluated: list[tuple[Target, Sequence[Score]]] = []
    for target in evaluations:
        waiting = Waiting()
        regraded = regrade(target.folder, chosen, extractor, data, waiting.verified)
        waiting.done()
        evaluated.append((regraded.target, regraded.scores))
        for sentence in regraded.sentences():
            typer.echo(sentence, err=True)
    return answer(evaluated, compare, export=export)


def _show(
    name: str, model: str | None, settings: Settings, protocol: str | None, trust_remote_code: bool
) -> None:
    """Print one problem as the model reads it; without a model, its messages."""
    from olr_cli.evaluation.benchmark import find_benchmark
    from olr_cli.evaluation.protocol import follow, protocol_of
    from olr_cli.evaluation.published import model_name
    from olr_cli.evaluation.targets import origin

    asked = model_name(origin(model)) if model else ""
    chosen, settings = follow(protocol_of(protocol, None, []), [find_benchmark(name)], settings, asked)
    problem = settings.tasks(chosen)[0].problems[0]
    if model is None:
        for message in problem.messages:
            typer.echo(f"[{message.role}]\n{message.content}\n")
        typer.echo("(name a model, and the prompt is shown exactly as that model sees it)", err=True)
    else:
        from olr_cli.engines import prompt_text
        from olr_cli.evaluation.targets import load_tokenizer, targets

        chat = settings.prompting.chat
        tokenizer = load_tokenizer(targets(model, [], None)[0].model, trust_remote_code=trust_remote_code)
        chat.check(tokenizer)
        typer.echo(prompt_text.render(tokenizer, problem.messages, chat))
    typer.echo(f"gold: {problem.gold}")
