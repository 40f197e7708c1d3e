"""`olr rollouts`: sampling only, into a run directory, so that labels can be audited before anything is trained."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from olr_cli.cli.errors import shown_until_stopped
from olr_cli.cli.options import ChatTemplate, Columns, SystemPrompt, read_columns, require_known
from olr_cli.cli.printing import show, show_dry_run


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
            help="Prompts with labels: a Parquet or JSONL file, a hub id, or a built-in set (arithmetic:products).",
            show_default=False,
        ),
    ],
    visits: Annotated[int, typer.Option("--visits", min=1, help="Number of visits to each prompt.")] = 5,
    samples: Annotated[int, typer.Option("--samples", min=2, help="Rollouts per prompt and visit (K).")] = 8,
    temperature: Annotated[float, typer.Option("--temperature", help="Sampling temperature.")] = 1.0,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=1, help="Maximum length of a response, in tokens.")
    ] = 4096,
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="TEXT", help="A text that ends a response; may be repeated."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Use only the first N prompts.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Random seed of the rollouts.")] = 0,
    extractor: Annotated[
        str | None,
        typer.Option(
            "--extractor",
            metavar="NAME|KIND:TEXT",
            help="How to read answers: boxed, first_integer, last_number, choice, text, regex:PATTERN, after:TEXT,"
            " tag:NAME, or package.module:function; by default chosen from the data set.",
            show_default=False,
        ),
    ] = None,
    columns: Columns = None,
    system: SystemPrompt = None,
    chat_template: ChatTemplate = None,
    backend: Annotated[
        str | None,
        typer.Option("--backend", help="vllm or transformers; by default vLLM if it can run here."),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="Device of the model: auto, cpu or cuda.")] = "auto",
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False,
    prompts_per_step: Annotated[
        int, typer.Option("--prompts-per-step", min=1, help="Prompts to sample and store at a time.")
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
    from dataclasses import replace
    from functools import partial

    from olr_cli.answers import find_extractor
    from olr_cli.data.arithmetic import mixture_note
    from olr_cli.engines.launch import launch, rehearse, unfinished_run, unused_run_path
    from olr_cli.engines.resume import check_same_recipe, is_complete
    from olr_cli.evaluation.rollouts import RolloutSampler, backend_of, rollouts_recipe, rollouts_summary
    from olr_cli.evaluation.targets import origin
    from olr_cli.runs.progress import ROLLOUTS, choose_progress

    if backend is not None:
        require_known("--backend", backend, ("vllm", "transformers"))
    require_known("--device", device, ("auto", "cpu", "cuda"))
    if extractor is not None:
        find_extractor(extractor, "--extractor")
    recipe = rollouts_recipe(
        model,
        {
            "train": data,
            "limit": limit,
            "columns": read_columns(columns),
            "system_prompt": system,
            "extractor": extractor,
        },
        {
            "epochs": visits,
            "prompts_per_step": prompts_per_step,
            "rollouts_per_prompt": samples,
            "temperature": temperature,
            "max_new_tokens": max_new_tokens,
            "stop": stop or [],
        },
        seed=seed,
        chat_template=chat_template,
        device=device,
        trust_remote_code=trust_remote_code,
    )
    if resume and not dry_run:
        run_dir = run_dir or unfinished_run(recipe, kind="rollouts")
        check_same_recipe(run_dir, recipe, "rollouts")
        backend = backend_of(run_dir, cast(Any, backend))
        if is_complete(run_dir, recipe):
            answer = rollouts_summary(run_dir, mixture_note(origin(model)))
            line = f"{run_dir} is finished; nothing to resume."
            show(replace(answer, parts=[line]), "event" if json else "terminal")
            return
    make_engine = partial(RolloutSampler, backend=cast(Any, backend))
    if dry_run:
        command = ["olr", *(word for word in sys.argv[1:] if word not in ("--dry-run", "--json"))]
        show_dry_run(rehearse(recipe, make_engine, kind="rollouts"), command, as_json=json)
        return
    words = ["olr", *sys.argv[1:], *([] if resume else ["--resume"])]
    if run_dir is None:
        run_dir = unused_run_path(recipe.name)
        words += ["--run-dir", str(run_dir)]
    progress = choose_progress(as_json=json, layout=ROLLOUTS)
    with shown_until_stopped(progress, run_dir, words, kept_at_once="complete step"):
        launch(recipe, run_dir, make_engine, progress, kind="rollouts", resume=resume)
    show(rollouts_summary(run_dir, mixture_note(origin(model))), "event" if json else "terminal")
