"""`olr rollouts`: rollouts without training, in a run directory, so that labels can be audited before training."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from typer import Argument, Option

from olr_cli.cli import options
from olr_cli.cli.errors import shown_until_stopped
from olr_cli.cli.printing import show, show_dry_run

if TYPE_CHECKING:
    from olr_cli.recipe.schema import Recipe


class Prompts(NamedTuple):
    """What is asked: options of `olr rollouts` that say how prompts are read, asked and graded."""

    limit: int | None = Option(
        None, metavar="N", min=1, help="Use only the first N prompts."
    )
    columns: list[str] = options.DATA_COLUMNS
    decimal_comma: bool = options.DECIMAL_COMMA
    encoding: str = options.ENCODING
    system: str | None = options.SYSTEM_PROMPT
    chat_template: str | None = options.CHAT_TEMPLATE
    extractor: str | None = options.EXTRACTOR


class Draws(NamedTuple):
    """How responses are drawn: options of `olr rollouts` that set the number of visits and responses, and sampling."""

    visits: int = Option(5, metavar="N", min=1, help="Number of visits to each prompt.")
    samples: int = Option(8, metavar="K", min=2, help="Rollouts per prompt and visit.")
    temperature: float = Option(1.0, metavar="T", help="Sampling temperature.")
    stop: list[str] = options.STOP
    max_new_tokens: int = options.MAX_NEW_TOKENS
    seed: int = options.SEED


class Place(NamedTuple):
    """Where it runs: options of `olr rollouts` that choose backend, server, device and the size of a step."""

    backend: str | None = Option(
        None,
        metavar="NAME",
        help="vllm, transformers or openai; by default vLLM if it can run here, openai with --url.",
    )
    url: str | None = options.URL
    concurrency: int | None = options.CONCURRENCY
    timeout: int | None = options.TIMEOUT
    device: str = options.DEVICE_NAME
    trust_remote_code: bool = options.TRUST_REMOTE_CODE
    prompts_per_step: int = Option(
        160, metavar="N", min=1, help="Prompts to sample and store at a time."
    )


class Storage(NamedTuple):
    """The run: options of `olr rollouts` that choose the run directory and the form of output.

    Further options resume a run, or only show what would run.
    """

    run_dir: Path | None = Option(
        None,
        metavar="DIR",
        help="Run directory; by default runs/rollouts-<data>, or …-2, …-3 if that exists.",
    )
    resume: bool = Option(
        False,
        "--resume",
        help="Continue the run at --run-dir, or the unfinished run with these settings.",
    )
    dry_run: bool = options.DRY_RUN
    json: bool = options.JSON_LINES


@options.grouped
def rollouts(
    model: str = Argument(
        metavar="MODEL|RUN",
        help="A model folder, hub id or built-in policy, or a run directory (its last checkpoint is used); with --url"
        " the server's name for a model.",
        show_default=False,
    ),
    data: str = Argument(
        metavar="DATA",
        help="Prompts with labels: a Parquet, JSONL or CSV file, a hub id, or a built-in set (arithmetic:products).",
        show_default=False,
    ),
    *,
    prompts: Prompts,
    draws: Draws,
    place: Place,
    storage: Storage,
) -> None:
    """Sample every prompt of a data set several times and store the rollouts like a training run; train nothing."""
    from functools import partial

    from olr_cli.data.arithmetic import mixture_note
    from olr_cli.engines.backends import BACKENDS, BackendOptions
    from olr_cli.engines.launch import launch, unfinished_run, unused_run_path
    from olr_cli.engines.rehearse import rehearse
    from olr_cli.engines.resume import check_same_recipe, is_complete
    from olr_cli.engines.rollouts import RolloutSampler, backend_of, rollouts_summary
    from olr_cli.evaluation.targets import origin
    from olr_cli.runs.progress import ROLLOUTS, choose_progress

    run_dir, resume = storage.run_dir, storage.resume
    shape = "event" if storage.json else "terminal"
    options.require_known("backend", place.backend, BACKENDS)
    options.require_known("device", place.device, options.DEVICES)
    options.require_extractor(prompts.extractor)
    backend = BackendOptions(
        name=cast(Any, place.backend),
        device=cast(Any, place.device),
        trust_remote_code=place.trust_remote_code,
        url=place.url,
        concurrency=place.concurrency,
        timeout=place.timeout,
    )
    recipe = _recipe(model, data, prompts, draws, place)
    # A server's model has no files here, so its origin is unknown.
    started_from = origin(model) if place.url is None else model
    if resume and not storage.dry_run:
        run_dir = run_dir or unfinished_run(recipe, kind="rollouts")
        check_same_recipe(run_dir, recipe, "rollouts")
        # A resumed run keeps its backend: another one would draw other rollouts from the same seeds.
        name = backend_of(run_dir, backend.name if place.url is None else "openai")
        backend = replace(backend, name=name)
        if is_complete(run_dir, recipe):
            answer = rollouts_summary(run_dir, mixture_note(started_from))
            line = f"{run_dir} is finished; nothing to resume."
            show(replace(answer, parts=[line]), shape)
            return
    make_engine = partial(RolloutSampler, options=backend)
    if storage.dry_run:
        show_dry_run(
            rehearse(recipe, make_engine, kind="rollouts").answer(), as_json=storage.json
        )
        return
    # The command that continues after a stop is this one, with --resume and the run directory that was chosen.
    words = ["olr", *sys.argv[1:], *([] if resume else ["--resume"])]
    if run_dir is None:
        run_dir = unused_run_path(recipe.name)
        words += ["--run-dir", str(run_dir)]
    progress = choose_progress(as_json=storage.json, layout=ROLLOUTS)
    with shown_until_stopped(progress, run_dir, words, kept_at_once="complete step"):
        launch(recipe, run_dir, make_engine, progress, kind="rollouts", resume=resume)
    show(rollouts_summary(run_dir, mixture_note(started_from)), shape)


def _recipe(model: str, data: str, prompts: Prompts, draws: Draws, place: Place) -> Recipe:
    """Return the recipe that the options describe.

    Rollouts are stored like a training run, and every run has a recipe.
    """
    from olr_cli.engines.models import is_builtin
    from olr_cli.engines.rollouts import rollouts_recipe
    from olr_cli.evaluation.targets import origin, targets

    # Option -> key of the recipe, if they have different names.
    keys = {"system": "system_prompt", "visits": "epochs", "samples": "rollouts_per_prompt"}
    of_data = {
        "train": data,
        **prompts._asdict(),
        "columns": options.read_columns(prompts.columns),
    }
    of_data = {
        keys.get(name, name): value
        for name, value in of_data.items()
        if name != "chat_template"
    }
    of_train = {**draws._asdict(), "prompts_per_step": place.prompts_per_step}
    # Keep these names as they are; any other model may be a run, whose last checkpoint is used.
    is_named = place.url is not None or is_builtin(model)
    return rollouts_recipe(
        model if is_named else targets(model, [], None)[0].model,
        of_data,
        {keys.get(name, name): value for name, value in of_train.items() if name != "seed"},
        seed=draws.seed,
        origin=origin(model) if place.url is None else None,
        chat_template=prompts.chat_template,
        device=place.device,
        trust_remote_code=place.trust_remote_code,
    )
