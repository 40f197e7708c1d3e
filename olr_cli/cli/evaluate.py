"""`olr evaluate`: accuracy on benchmarks, of a model or of a run's checkpoints."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import typer
from typer import Argument, Option

from olr_cli.cli import options
from olr_cli.cli.printing import show


class Problems(NamedTuple):
    """What is scored: options of `olr evaluate` that choose benchmarks, their problems, and checkpoints of runs."""

    benchmarks: list[str] = Option(
        [],
        metavar="NAME|FILE",
        help="Benchmark names or your own files (YAML, Parquet, JSONL), separated by commas; may be repeated. By"
        " default what a run holds out, a built-in policy's own task, else the paper's nine.",
    )
    data: Path | None = Option(
        None,
        metavar="PATH",
        help="Read the problems from this Parquet or JSONL file, or folder of such files: those of the paper's"
        " benchmarks, or your own questions and answers.",
    )
    limit: int | None = Option(
        None, metavar="N", min=1, help="Use only the first N problems of each benchmark."
    )
    checkpoint: list[str] = Option(
        [],
        metavar="NAME|STEP",
        help="Checkpoint of the run: last, best or a step, separated by commas; may be repeated. By default last.",
    )


class Draws(NamedTuple):
    """How responses are drawn: the common sampling options of `olr evaluate`; the class `More` has the rare ones."""

    protocol: str | None = Option(
        None,
        metavar="NAME",
        help="paper: the samples and prompts behind the paper's scores; by default standard, or as the evaluation was"
        " begun.",
    )
    samples: int | None = Option(
        None,
        metavar="N",
        min=1,
        help="Samples per problem; by default each benchmark's own number. If you raise it later, only the missing"
        " samples are drawn.",
    )
    temperature: float | None = Option(
        None,
        metavar="T",
        min=0,
        help="Sampling temperature; 0 takes the most likely token. By default 0.6; for a run's own held-out set, the"
        " training temperature, as for --samples and --max-new-tokens.",
    )
    max_new_tokens: int | None = Option(
        None,
        metavar="N",
        min=1,
        help="Maximum length of a response, in tokens; by default 4096.",
    )
    seed: int = options.SEED


class Place(NamedTuple):
    """Where it runs: options of `olr evaluate` that choose the backend, the server and the device."""

    backend: str | None = Option(
        None,
        metavar="NAME",
        help="vllm, transformers or openai; by default vLLM if it can run here, openai with --url.",
    )
    url: str | None = options.URL
    device: str = options.DEVICE_NAME


class Results(NamedTuple):
    """Results: options of `olr evaluate` that say how answers are graded and what is compared, printed and written."""

    extractor: str | None = options.EXTRACTOR
    verified: list[Path] = options.VERIFIED_KEYS
    compare: Path | None = options.COMPARE
    paper: bool = Option(
        False,
        "--paper",
        help="Show the paper's scores beside these; --protocol paper samples as they were.",
    )
    out: Path | None = Option(
        None,
        metavar="DIR",
        help="Folder for the results; by default in the run, or evaluations/<model>.",
    )
    format_: str = options.FORMAT
    json: bool = options.JSON_OBJECT


class Prompts(NamedTuple):
    """More: rarely used options of `olr evaluate` and `olr benchmarks` that say how prompts are written."""

    system: str | None = Option(
        None,
        metavar="TEXT|none",
        help="System message of every problem, instead of the benchmark's or the data's; none: no system message.",
    )
    chat_template: str | None = options.CHAT_TEMPLATE
    template: list[str] = Option(
        [],
        metavar="KEY=VALUE",
        help="Variable of the chat template, e.g. enable_thinking=false; may be repeated.",
    )


class More(NamedTuple):
    """More: rarely used options of `olr evaluate` that set sampling, grading and the backend."""

    top_p: float | None = Option(
        None,
        metavar="P",
        help="Draw from the most likely tokens that together have this probability.",
    )
    top_k: int | None = Option(
        None,
        metavar="N",
        min=1,
        help="Draw from the N most likely tokens; by default from all.",
    )
    min_p: float | None = Option(
        None,
        metavar="P",
        help="Draw from tokens at least P times as likely as the most likely token; 0: from all.",
    )
    stop: list[str] = options.STOP
    seed_each: bool = Option(
        False,
        "--seed-each",
        help="With vLLM on a GPU, draw each sample from its own seed: slower, but an interrupted evaluation resumes"
        " with the same samples.",
    )
    tolerance: float | None = options.TOLERANCE
    vllm: list[str] = Option(
        [],
        metavar="KEY=VALUE",
        help="Setting of vLLM's engine, e.g. tensor_parallel_size=2,"
        " gpu_memory_utilization=0.8, quantization=fp8, or lora=DIR; may be repeated.",
    )
    concurrency: int | None = options.CONCURRENCY
    timeout: int | None = options.TIMEOUT
    trust_remote_code: bool = options.TRUST_REMOTE_CODE


_AS_GIVEN = (
    "data",
    "limit",
    "samples",
    "seed",
    "protocol",
    "extractor",
    "tolerance",
    "out",
)
"""Options that become fields of the request without a change."""


@options.grouped
def evaluate(
    models: list[str] = Argument(
        metavar="MODEL|RUN",
        help="A model folder, hub id or built-in policy, a run directory, or a folder with finished runs below it;"
        " several make one table.",
        show_default=False,
    ),
    *,
    problems: Problems,
    draws: Draws,
    place: Place,
    results: Results,
    prompts: Prompts,
    more: More,
) -> None:
    """Score a model, or a run's checkpoints, on benchmarks; after an interruption, the same command resumes."""
    from dataclasses import fields

    from olr_cli.engines.backends import BACKENDS, BackendOptions
    from olr_cli.errors import at, printable
    from olr_cli.evaluation.evaluate import Progress, evaluate as evaluate_one
    from olr_cli.evaluation.plan import EvaluationRequest, plan
    from olr_cli.evaluation.prompting import read_prompting
    from olr_cli.evaluation.results import reference_of, scores_answer
    from olr_cli.evaluation.targets import with_runs_of_folders
    from olr_cli.recipe.layers import read_pairs
    from olr_cli.recipe.sampling import Sampling
    from olr_cli.runs.interrupts import Interrupted, exit_status

    asked = options.given(problems, draws, place, results, prompts, more)
    options.require_known("backend", place.backend, BACKENDS)
    options.require_known("device", place.device, options.DEVICES)
    options.require_known("protocol", draws.protocol, ("standard", "paper"))
    options.require_extractor(results.extractor)
    shape = options.shape_of(results.format_, as_json=results.json)
    with at("vllm"):
        asked["vllm"] = read_pairs(more.vllm)
    # The backend's own field is called `name`. No --stop is None, so that it overrides nothing that training used.
    asked["name"], asked["stop"] = asked.pop("backend"), tuple(more.stop) or None
    # Only options that are given count: the others are the protocol's, or those of the run's training.
    drawn = {field.name: asked.pop(field.name) for field in fields(Sampling)}
    say = partial(typer.echo, err=True)
    # A server's name for a model may look like a folder, so it is not looked up on disk.
    if place.url is None:
        models = with_runs_of_folders(models, say)
    request = EvaluationRequest(
        models=models,
        checkpoints=options.read_list(problems.checkpoint),
        benchmarks=",".join(problems.benchmarks) or None,
        **{name: asked[name] for name in _AS_GIVEN},
        verified=options.one_file(results.verified, "--verified"),
        drawn={key: value for key, value in drawn.items() if value is not None},
        prompting=read_prompting(prompts.system, prompts.chat_template, prompts.template),
        backend=BackendOptions(
            **{field.name: asked[field.name] for field in fields(BackendOptions)}
        ),
        compare=reference_of(results.compare, paper=results.paper),
    )
    evaluated, progress = [], Progress()
    for evaluation in plan(request, say):
        folder = evaluation.target.folder
        try:
            evaluated.append((evaluation.target, evaluate_one(evaluation, progress)))
        except (Interrupted, KeyboardInterrupt) as stop:
            # Models that are done have their own folders, and the same command skips them.
            done = (
                f"What is done is in {folder}"
                if folder.exists()
                else "Nothing is stored yet"
            )
            typer.echo(f"Stopped. {printable(done)}; the same command continues.", err=True)
            raise typer.Exit(exit_status(stop)) from None
    show(scores_answer(evaluated, request.compare), shape)
