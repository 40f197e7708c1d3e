"""`olr evaluate`: accuracy on benchmarks, of a model or of a run's checkpoints."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from olr_cli.cli.options import require_known, shape_of
from olr_cli.cli.printing import show as show_answer
from olr_cli.cli.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROMPTS = {"data", "system", "shots", "examples", "chat_template", "template", "protocol"}
_SCORES = {"compare", "export", "format_", "json"}
_TAKEN = {
    "list_": {"format_", "json"},
    "show": {"model", "trust_remote_code", "format_", "json", *_PROMPTS},
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
            metavar="NAME|FILE",
            help="Benchmark names or your own files (YAML, Parquet, JSONL), separated by commas; may be repeated. By"
            " default a run's data.test, a built-in policy's own task, else the paper's nine.",
            rich_help_panel=PROBLEMS,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="PATH",
            help="Read the problems from this Parquet or JSONL file, or folder of such files: those of the paper's"
            " benchmarks, or your own questions and answers.",
            rich_help_panel=PROBLEMS,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            min=1,
            help="Use only the first N problems of each benchmark.",
            rich_help_panel=PROBLEMS,
        ),
    ] = None,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--checkpoint",
            metavar="NAME|STEP",
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
            metavar="N",
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
            metavar="N",
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
            metavar="T",
            min=0,
            help="Sampling temperature; 0 takes the most likely token.",
            rich_help_panel=SAMPLING,
        ),
    ] = 0.6,
    top_p: Annotated[
        float,
        typer.Option(
            "--top-p",
            metavar="P",
            help="Draw from the most likely tokens that together have this probability.",
            rich_help_panel=SAMPLING,
        ),
    ] = 1.0,
    top_k: Annotated[
        int | None,
        typer.Option(
            "--top-k",
            metavar="N",
            min=1,
            help="Draw from this many of the most likely tokens; by default from all.",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    min_p: Annotated[
        float,
        typer.Option(
            "--min-p",
            metavar="P",
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
            metavar="N",
            min=1,
            help="Maximum length of a response, in tokens.",
            rich_help_panel=SAMPLING,
        ),
    ] = 4096,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Random seed of the samples.", rich_help_panel=SAMPLING)
    ] = 0,
    seed_each: Annotated[
        bool,
        typer.Option(
            "--seed-each",
            help="With vLLM on a GPU, draw each sample from its own seed: slower, but an interrupted evaluation resumes"
            " with the same samples.",
            rich_help_panel=SAMPLING,
        ),
    ] = False,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            metavar="NAME",
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
            metavar="N",
            min=1,
            help="Most requests to the server at a time; by default 64.",
            rich_help_panel=PLACE,
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            "--device", metavar="NAME", help="Device of the model: auto, cpu or cuda.", rich_help_panel=PLACE
        ),
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
            metavar="NAME",
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
    from olr_cli.evaluation.evaluate import Progress, Settings
    from olr_cli.evaluation.prompting import read_prompting
    from olr_cli.recipe.files import read_pairs

    for mode, taken in _TAKEN.items():
        if context.params[mode]:
            _require_nothing_but(context, {mode, *taken})
    shape = _check_names(format_, json, export, protocol, extractor)
    if list_:
        from olr_cli.evaluation.benchmark import listing

        show_answer(listing(), shape)
        return
    if backend is not None:
        require_known("--backend", backend, BACKENDS)
    require_known("--device", device, ("auto", "cpu", "cuda"))
    from olr_cli.evaluation import request as requests

    sampling = Sampling(temperature, max_new_tokens, top_p, top_k, min_p, tuple(stop or ()))
    prompting = read_prompting(system, chat_template, template or (), shots, examples)
    request = requests.Request(
        models=model or (),
        checkpoints=checkpoint or (),
        benchmarks=",".join(benchmarks or ()) or None,
        settings=Settings(sampling, seed, samples, limit, data, prompting),
        protocol=protocol,
        backend={
            "name": backend,
            "device": device,
            "trust_remote_code": trust_remote_code,
            "vllm": read_pairs("--vllm", vllm or (), "a setting of vLLM's engine"),
            "seed_each": seed_each,
            "url": url,
            "concurrency": concurrency,
        },
        extractor=extractor,
        out=out,
        compare=compare,
        export=export,
    )
    say = partial(typer.echo, err=True)
    if show is not None:
        answer = requests.show_prompt(request, show)
    elif regrade is not None:
        waiting = Waiting()
        answer = requests.grade_again(request, regrade, say, waiting.verified)
        waiting.done()
    elif import_ is not None:
        answer = requests.import_log(request, import_, say)
    elif not model:
        raise UserError(
            "name a model or a run: olr evaluate MODEL (`olr evaluate --list` shows the benchmarks)"
        )
    else:
        evaluated, progress = [], Progress()
        for job in requests.plan(request, say):
            with _stopping(job.target.folder):
                evaluated.append((job.target, job.run(progress)))
        answer = requests.scores_answer(request, evaluated)
    show_answer(answer, shape)


def _check_names(
    format_: str, as_json: bool, export: str | None, protocol: str | None, extractor: str | None
) -> str:
    """The format of the output, after names that options do not know are refused."""
    if export is not None:
        from olr_cli.evaluation.exporting import FORMATS

        require_known("--export", export, tuple(FORMATS))
    if protocol is not None:
        from olr_cli.evaluation.folder import PROTOCOLS

        require_known("--protocol", protocol, PROTOCOLS)
    if extractor is not None:
        from olr_cli.answers import find_extractor

        find_extractor(extractor, "--extractor")
    return shape_of(format_, as_json=as_json)


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
