"""`olr rollouts`: sampling only, into a run directory, so that labels can be audited before anything is trained."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from olr_cli.cli.errors import shown_until_stopped
from olr_cli.cli.options import require_known

if TYPE_CHECKING:
    from olr_cli.recipe.schema import Recipe


def rollouts(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|RUN",
            help="A model folder, hub id or built-in policy, or a run directory (its last checkpoint is used).",
            show_default=False,
        ),
    ],
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="Prompts with labels: a Parquet or JSONL file, a hub id, arithmetic or arithmetic:subtraction.",
            show_default=False,
        ),
    ],
    visits: Annotated[int, typer.Option("--visits", min=1, help="Number of visits to each prompt.")] = 5,
    samples: Annotated[int, typer.Option("--samples", min=2, help="Rollouts per prompt and visit (K).")] = 8,
    temperature: Annotated[float, typer.Option("--temperature", help="Sampling temperature.")] = 1.0,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=1, help="Maximum length of a response, in tokens.")
    ] = 4096,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Use only the first N prompts.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Random seed of the rollouts.")] = 0,
    extractor: Annotated[
        str | None,
        typer.Option(
            "--extractor",
            help="How to read answers; by default chosen from the data set.",
            show_default=False,
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option("--backend", help="vllm or transformers; by default vLLM if it can run here."),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="Device of the model: auto, cpu or cuda.")] = "auto",
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False,
    prompts_per_step: Annotated[
        int,
        typer.Option("--prompts-per-step", min=1, help="Prompts to sample and store at a time."),
    ] = 160,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            "--run-dir", help="Run directory; by default runs/rollouts-<data>, or …-2, …-3 if that exists."
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue the run at --run-dir, or the unfinished run with these settings."
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show what would run, and one prompt as the model sees it, without starting."
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON lines to standard output.")] = False,
) -> None:
    """Sample every prompt of a data set several times and store the rollouts like a training run; train nothing."""
    from olr_cli.answers import EXTRACTORS
    from olr_cli.evaluation.rollouts import rollouts_recipe

    if backend is not None:
        require_known("--backend", backend, ("vllm", "transformers"))
    require_known("--device", device, ("auto", "cpu", "cuda"))
    if extractor is not None:
        require_known("--extractor", extractor, tuple(EXTRACTORS))
    recipe = rollouts_recipe(
        model,
        data,
        visits=visits,
        samples=samples,
        temperature=temperature,
        max_new_tokens=max_new_tokens,
        prompts_per_step=prompts_per_step,
        limit=limit,
        seed=seed,
        extractor=extractor,
        device=device,
        trust_remote_code=trust_remote_code,
    )
    _sample(recipe, model, run_dir, backend, resume=resume, dry_run=dry_run, as_json=json)


def _sample(
    recipe: Recipe,
    model: str,
    path: Path | None,
    backend: Any,
    *,
    resume: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    from functools import partial

    from olr_cli.data.arithmetic import mixture_note
    from olr_cli.engines.launch import launch, rehearse, unfinished_run, unused_run_path
    from olr_cli.engines.resume import check_same_recipe
    from olr_cli.evaluation.rollouts import RolloutEngine, backend_of, rollouts_summary
    from olr_cli.evaluation.targets import origin
    from olr_cli.runs.directory import read_manifest
    from olr_cli.runs.progress import ROLLOUTS, choose_progress

    if dry_run:
        for line in rehearse(recipe, partial(RolloutEngine, backend=backend), kind="rollouts"):
            typer.echo(line)
        return
    if resume:
        path = path or unfinished_run(recipe, kind="rollouts")
        check_same_recipe(path, recipe, "rollouts")
        backend = backend_of(path, backend)
        if read_manifest(path)["status"] == "finished":
            typer.echo(f"{path} is finished; nothing to resume.")
            return
    words = ["olr", *sys.argv[1:], *([] if resume else ["--resume"])]
    if path is None:
        path = unused_run_path(recipe.name)
        words += ["--run-dir", str(path)]
    progress = choose_progress(as_json=as_json, layout=ROLLOUTS)
    with shown_until_stopped(progress, path, words, kept_at_once="complete step"):
        make_engine = partial(RolloutEngine, backend=backend)
        launch(recipe, path, make_engine, progress, kind="rollouts", resume=resume)
    for line in rollouts_summary(path, mixture_note(origin(model))):
        progress.say(line)
