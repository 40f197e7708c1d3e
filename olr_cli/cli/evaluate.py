"""`olr evaluate`: accuracy on benchmarks, of a model or of a run's checkpoints."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer
from typer import Argument, Option

from olr_cli.cli.options import (
    DEVICES,
    ChatTemplate,
    DeviceName,
    Extractor,
    Format,
    JsonObject,
    MaxNewTokens,
    Seed,
    Stop,
    TrustRemoteCode,
    grouped,
    require_known,
    shape_of,
)
from olr_cli.cli.printing import Waiting, show

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROMPTS = {"data", "system", "shots", "examples", "chat_template", "template", "protocol"}
_SCORES = {"compare", "format_", "json"}
_TAKEN = {
    "list_": {"format_", "json"},
    "show": {"model", "trust_remote_code", "format_", "json", *_PROMPTS},
    "regrade": {"benchmarks", "extractor", "tolerance", *_SCORES},
    "import_": {"benchmarks", "data", "extractor", "tolerance", "out", *_SCORES},
}
"""Options that go with those that evaluate nothing."""


class Problems(NamedTuple):
    """What is scored."""

    benchmarks: Annotated[
        list[str] | None,
        Option(
            metavar="NAME|FILE",
            help="Benchmark names or your own files (YAML, Parquet, JSONL), separated by commas; may be repeated. By"
            " default a run's data.test, a built-in policy's own task, else the paper's nine.",
        ),
    ] = None
    data: Annotated[
        Path | None,
        Option(
            metavar="PATH",
            help="Read the problems from this Parquet or JSONL file, or folder of such files: those of the paper's"
            " benchmarks, or your own questions and answers.",
        ),
    ] = None
    limit: Annotated[
        int | None, Option(metavar="N", min=1, help="Use only the first N problems of each benchmark.")
    ] = None
    checkpoint: Annotated[
        list[str] | None,
        Option(
            metavar="NAME|STEP",
            help="Checkpoint of the run: last, best or a step; may be repeated. By default last.",
        ),
    ] = None


class Prompts(NamedTuple):
    """How it is asked."""

    system: Annotated[
        str | None,
        Option(
            metavar="TEXT|none",
            help="System message of every problem, instead of the benchmark's or the data's; none: no system message.",
        ),
    ] = None
    shots: Annotated[
        int | None,
        Option(metavar="N", min=1, help="Show N of the --examples, with their answers, before each problem."),
    ] = None
    examples: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Parquet or JSONL file of questions and answers; a column response has worked solutions.",
        ),
    ] = None
    chat_template: ChatTemplate = None
    template: Annotated[
        list[str] | None,
        Option(
            metavar="KEY=VALUE",
            help="Variable of the chat template, e.g. enable_thinking=false; may be repeated.",
        ),
    ] = None
    protocol: Annotated[
        str | None,
        Option(
            metavar="standard|paper",
            help="Which defaults to use: those of the paper's text (standard), or those that its printed scores were"
            " made with (paper). By default paper with --compare paper, else standard.",
        ),
    ] = None


class Draws(NamedTuple):
    """How responses are drawn."""

    samples: Annotated[
        int | None,
        Option(
            metavar="N",
            min=1,
            help="Samples per problem; by default each benchmark's own number. If you raise it later, only the missing"
            " samples are drawn.",
        ),
    ] = None
    temperature: Annotated[
        float, Option(metavar="T", min=0, help="Sampling temperature; 0 takes the most likely token.")
    ] = 0.6
    top_p: Annotated[
        float,
        Option(metavar="P", help="Draw from the most likely tokens that together have this probability."),
    ] = 1.0
    top_k: Annotated[
        int | None,
        Option(metavar="N", min=1, help="Draw from the N most likely tokens; by default from all."),
    ] = None
    min_p: Annotated[
        float,
        Option(
            metavar="P",
            help="Draw from tokens at least P times as likely as the most likely token; 0: from all.",
        ),
    ] = 0.0
    stop: Stop = None
    max_new_tokens: MaxNewTokens = 4096
    seed: Seed = 0
    seed_each: Annotated[
        bool,
        Option(
            "--seed-each",
            help="With vLLM on a GPU, draw each sample from its own seed: slower, but an interrupted evaluation resumes"
            " with the same samples.",
        ),
    ] = False


class Place(NamedTuple):
    """Where it runs."""

    backend: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="vllm, transformers or openai; by default vLLM if it can run here, openai with --url.",
        ),
    ] = None
    vllm: Annotated[
        list[str] | None,
        Option(
            metavar="KEY=VALUE",
            help="Setting of vLLM's engine, e.g. tensor_parallel_size=2,"
            " gpu_memory_utilization=0.8, quantization=fp8, or lora=DIR; may be repeated.",
        ),
    ] = None
    url: Annotated[
        str | None,
        Option(
            metavar="URL",
            help="API of an OpenAI-compatible server, e.g. http://localhost:8000/v1; MODEL is its name there. The key"
            " is read from OPENAI_API_KEY.",
        ),
    ] = None
    concurrency: Annotated[
        int | None,
        Option(metavar="N", min=1, help="Largest number of requests to the server at a time; by default 64."),
    ] = None
    timeout: Annotated[
        int | None,
        Option(
            metavar="S",
            min=1,
            help="Seconds in which the server must have replied to a request; by default 600.",
        ),
    ] = None
    device: DeviceName = "auto"
    trust_remote_code: TrustRemoteCode = False


class Results(NamedTuple):
    """Results."""

    extractor: Extractor = None
    tolerance: Annotated[
        float | None,
        Option(
            metavar="T",
            min=0,
            max=1,
            help="Relative tolerance of numbers, as data.tolerance; by default none.",
        ),
    ] = None
    out: Annotated[
        Path | None,
        Option(metavar="DIR", help="Folder for the results; by default in the run, or evaluations/<model>."),
    ] = None
    compare: Annotated[
        str | None,
        Option(
            metavar="paper|DIR",
            help="Show the scores of the paper, or of another evaluation, for comparison.",
        ),
    ] = None
    format_: Format = "terminal"
    json: JsonObject = False


class Instead(NamedTuple):
    """Instead of evaluating."""

    regrade: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            help="Grade the stored generations in DIR again, without a model.",
        ),
    ] = None
    import_: Annotated[
        Path | None,
        Option(
            "--import",
            metavar="LOG",
            help="Grade the responses in a sample log of lm-eval (--log_samples), a file or a folder.",
        ),
    ] = None
    list_: Annotated[bool, Option("--list", help="List the benchmarks and their sources.")] = False
    show: Annotated[
        str | None,
        Option(
            metavar="BENCHMARK", help="Show one prompt exactly as the model sees it, and its gold answer."
        ),
    ] = None


@grouped
def evaluate(
    context: typer.Context,
    problems: Problems,
    prompts: Prompts,
    draws: Draws,
    place: Place,
    results: Results,
    instead: Instead,
    model: Annotated[
        list[str] | None,
        Argument(
            metavar="MODEL|RUN...",
            help="A model folder, hub id or built-in policy, or a run directory; several make one table.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Score a model, or a run's checkpoints, on benchmarks; after an interruption, the same command resumes."""
    from olr_cli.errors import UserError
    from olr_cli.evaluation.backends import BackendOptions, Sampling
    from olr_cli.evaluation.plan import EvaluationRequest, plan, show_prompt
    from olr_cli.evaluation.prompting import read_prompting
    from olr_cli.recipe.layers import read_pairs

    for mode, taken in _TAKEN.items():
        if context.params[mode]:
            _require_nothing_but(context, {mode, *taken})
    shape = _check_names(prompts, place, results)
    if instead.list_:
        from olr_cli.evaluation.benchmark import listing

        show(listing(), shape)
        return
    request = EvaluationRequest(
        models=model or (),
        checkpoints=problems.checkpoint or (),
        benchmarks=",".join(problems.benchmarks or ()) or None,
        data=problems.data,
        limit=problems.limit,
        samples=draws.samples,
        sampling=Sampling(
            draws.temperature,
            draws.max_new_tokens,
            draws.top_p,
            draws.top_k,
            draws.min_p,
            tuple(draws.stop or ()),
        ),
        seed=draws.seed,
        prompting=read_prompting(
            prompts.system, prompts.chat_template, prompts.template or (), prompts.shots, prompts.examples
        ),
        protocol=cast(Any, prompts.protocol),
        backend=BackendOptions(
            cast(Any, place.backend),
            cast(Any, place.device),
            place.trust_remote_code,
            read_pairs("--vllm", place.vllm or (), "a setting of vLLM's engine"),
            draws.seed_each,
            place.url,
            place.concurrency,
            place.timeout,
        ),
        extractor=results.extractor,
        tolerance=results.tolerance,
        out=results.out,
        compare=results.compare,
    )
    say = partial(typer.echo, err=True)
    if instead.show is not None:
        answer = show_prompt(request, instead.show)
    elif instead.regrade is not None:
        from olr_cli.evaluation.evaluate import grade_again

        waiting = Waiting()
        answer = grade_again(request, instead.regrade, say, waiting.verified)
        waiting.done()
    elif instead.import_ is not None:
        from olr_cli.evaluation.lm_eval import import_log

        answer = import_log(request, instead.import_, say)
    elif not model:
        raise UserError(
            "name a model or a run: olr evaluate MODEL (`olr evaluate --list` shows the benchmarks)"
        )
    else:
        from olr_cli.data.arithmetic import mixture_note
        from olr_cli.evaluation.evaluate import Progress
        from olr_cli.evaluation.evaluate import evaluate as evaluate_one
        from olr_cli.evaluation.results import scores_answer
        from olr_cli.evaluation.targets import origin

        evaluated, progress = [], Progress()
        for evaluation in plan(request, say):
            with _stopping(evaluation.target.folder):
                evaluated.append((evaluation.target, evaluate_one(evaluation, progress)))
        notes = filter(None, (mixture_note(origin(name)) for name in model))
        answer = scores_answer(evaluated, request.compare, next(notes, None))
    show(answer, shape)


def _check_names(prompts: Prompts, place: Place, results: Results) -> str:
    """The format of the output, after names that options do not know are refused."""
    if prompts.protocol is not None:
        from olr_cli.evaluation.store import PROTOCOLS

        require_known("--protocol", prompts.protocol, PROTOCOLS)
    if results.extractor is not None:
        from olr_cli.answers import find_extractor
        from olr_cli.user_code import name_function

        name_function(results.extractor)
        find_extractor(results.extractor, "--extractor")
    if place.backend is not None:
        from olr_cli.evaluation.backends import BACKENDS

        require_known("--backend", place.backend, BACKENDS)
    require_known("--device", place.device, DEVICES)
    return shape_of(results.format_, as_json=results.json)


@contextmanager
def _stopping(folder: Path) -> Iterator[None]:
    """If the evaluation in the block is stopped, say what is stored."""
    from olr_cli.errors import printable
    from olr_cli.runs.interrupts import Interrupted, exit_status

    try:
        yield
    except (Interrupted, KeyboardInterrupt) as stop:
        done = f"What is done is in {folder}" if folder.exists() else "Nothing is stored yet"
        typer.echo(f"Stopped. {printable(done)}; the same command goes on.", err=True)
        raise typer.Exit(exit_status(stop)) from None


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
