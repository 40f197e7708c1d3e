"""`olr rollouts`: sampling only, into a run directory, so that labels can be audited before anything is trained."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

from typer import Argument, Option

from olr_cli.cli.errors import shown_until_stopped
from olr_cli.cli.options import (
    DEVICES,
    ChatTemplate,
    Columns,
    DeviceName,
    DryRun,
    Extractor,
    JsonLines,
    MaxNewTokens,
    Seed,
    Stop,
    SystemPrompt,
    TrustRemoteCode,
    grouped,
    read_columns,
    require_extractor,
    require_known,
)
from olr_cli.cli.printing import show, show_dry_run


class Prompts(NamedTuple):
    """What is asked."""

    limit: Annotated[int | None, Option(metavar="N", min=1, help="Use only the first N prompts.")] = None
    columns: Columns = None
    system: SystemPrompt = None
    chat_template: ChatTemplate = None
    extractor: Extractor = None


class Draws(NamedTuple):
    """How responses are drawn."""

    visits: Annotated[int, Option(metavar="N", min=1, help="Number of visits to each prompt.")] = 5
    samples: Annotated[int, Option(metavar="K", min=2, help="Rollouts per prompt and visit.")] = 8
    temperature: Annotated[float, Option(metavar="T", help="Sampling temperature.")] = 1.0
    stop: Stop = None
    max_new_tokens: MaxNewTokens = 4096
    seed: Seed = 0


class Place(NamedTuple):
    """Where it runs."""

    backend: Annotated[
        str | None, Option(metavar="NAME", help="vllm or transformers; by default vLLM if it can run here.")
    ] = None
    device: DeviceName = "auto"
    trust_remote_code: TrustRemoteCode = False
    prompts_per_step: Annotated[
        int, Option(metavar="N", min=1, help="Prompts to sample and store at a time.")
    ] = 160


class Storage(NamedTuple):
    """The run."""

    run_dir: Annotated[
        Path | None,
        Option(
            metavar="DIR", help="Run directory; by default runs/rollouts-<data>, or …-2, …-3 if that exists."
        ),
    ] = None
    resume: Annotated[
        bool,
        Option("--resume", help="Continue the run at --run-dir, or the unfinished run with these settings."),
    ] = False
    dry_run: DryRun = False
    json: JsonLines = False


@grouped
def rollouts(
    model: Annotated[
        str,
        Argument(
            metavar="MODEL|RUN",
            help="A model folder, hub id or built-in policy, or a run directory (its last checkpoint is used).",
            show_default=False,
        ),
    ],
    data: Annotated[
        str,
        Argument(
            metavar="DATA",
            help="Prompts with labels: a Parquet or JSONL file, a hub id, or a built-in set (arithmetic:products).",
            show_default=False,
        ),
    ],
    prompts: Prompts,
    draws: Draws,
    place: Place,
    storage: Storage,
) -> None:
    """Sample every prompt of a data set several times and store the rollouts like a training run; train nothing."""
    from functools import partial

    from olr_cli.data.arithmetic import mixture_note
    from olr_cli.engines.launch import launch, unfinished_run, unused_run_path
    from olr_cli.engines.rehearse import rehearse
    from olr_cli.engines.resume import check_same_recipe, is_complete
    from olr_cli.evaluation.rollouts import RolloutSampler, backend_of, rollouts_recipe, rollouts_summary
    from olr_cli.evaluation.targets import origin
    from olr_cli.runs.progress import ROLLOUTS, choose_progress

    backend, run_dir, resume = place.backend, storage.run_dir, storage.resume
    shape = "event" if storage.json else "terminal"
    if backend is not None:
        require_known("backend", backend, ("vllm", "transformers"))
    require_known("device", place.device, DEVICES)
    require_extractor(prompts.extractor)
    recipe = rollouts_recipe(
        model,
        {
            "train": data,
            "limit": prompts.limit,
            "columns": read_columns(prompts.columns),
            "system_prompt": prompts.system,
            "extractor": prompts.extractor,
        },
        {
            "epochs": draws.visits,
            "prompts_per_step": place.prompts_per_step,
            "rollouts_per_prompt": draws.samples,
            "temperature": draws.temperature,
            "max_new_tokens": draws.max_new_tokens,
            "stop": draws.stop or [],
        },
        seed=draws.seed,
        chat_template=prompts.chat_template,
        device=place.device,
        trust_remote_code=place.trust_remote_code,
    )
    if resume and not storage.dry_run:
        run_dir = run_dir or unfinished_run(recipe, kind="rollouts")
        check_same_recipe(run_dir, recipe, "rollouts")
        backend = backend_of(run_dir, cast(Any, backend))
        if is_complete(run_dir, recipe):
            answer = rollouts_summary(run_dir, mixture_note(origin(model)))
            line = f"{run_dir} is finished; nothing to resume."
            show(replace(answer, parts=[line]), shape)
            return
    make_engine = partial(RolloutSampler, backend=cast(Any, backend))
    if storage.dry_run:
        show_dry_run(rehearse(recipe, make_engine, kind="rollouts").answer(), as_json=storage.json)
        return
    words = ["olr", *sys.argv[1:], *([] if resume else ["--resume"])]
    if run_dir is None:
        run_dir = unused_run_path(recipe.name)
        words += ["--run-dir", str(run_dir)]
    progress = choose_progress(as_json=storage.json, layout=ROLLOUTS)
    with shown_until_stopped(progress, run_dir, words, kept_at_once="complete step"):
        launch(recipe, run_dir, make_engine, progress, kind="rollouts", resume=resume)
    show(rollouts_summary(run_dir, mixture_note(origin(model))), shape)
