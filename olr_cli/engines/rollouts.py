"""Sampling without training, into a run directory like a training run's: data to audit before anything is trained.

    for every visit, for every batch of prompts (in an order drawn for the visit):
        K rollouts of each prompt  →  the supervisor, which decides as GRPO would  →  records and metrics

The recipe keys that matter are `data`, `model`, `seed`, `engine.device`, `engine.threads` and, in `train`, `epochs`
(visits), `prompts_per_step`, `rollouts_per_prompt`, `temperature` and `max_new_tokens`. Each rollout is a function of
seed, prompt, visit and sample number, drawn as in the local engine: with the transformers backend the first steps equal
those of a training run with the same settings, up to its first update. Each step is stored before the next begins, so
an interrupted run resumes without a trace.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import polars as pl

from olr_cli.answers import EXTRACTORS, reading_more
from olr_cli.data.arithmetic import toy_kind
from olr_cli.data.chat import Message
from olr_cli.data.prompts import Prompt
from olr_cli.data.values import SUFFIXES
from olr_cli.engines.backends import BackendName, BackendOptions
from olr_cli.engines.models import model_location
from olr_cli.engines.prompt_text import ChatFormat, template_lines, template_warnings
from olr_cli.engines.reporting import start_progress
from olr_cli.engines.run import Attempt, DataSets
from olr_cli.errors import UserError
from olr_cli.recipe.layers import folder_name, validate
from olr_cli.recipe.sampling import Sampling
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.sections import LocalEngine
from olr_cli.runs.directory import kind_note, read_manifest, read_recipe
from olr_cli.runs.interrupts import stop_requests
from olr_cli.runs.metrics import Metrics, Stopwatch
from olr_cli.runs.schedule import Schedule
from olr_cli.runs.store import scan_labels, scan_rollouts, stored_responses
from olr_cli.seeding import rollout_keys
from olr_cli.supervision import RolloutGroup, Step
from olr_cli.supervision.metrics import LABEL_METRICS, step_metrics
from olr_cli.tables import Answer, percent

MANY = 0.9
"""If a larger share of the first step's responses has no answer, the template or the extractor is probably wrong."""


def rollouts_recipe(
    model: str,
    data: Mapping[str, Any],
    train: Mapping[str, Any],
    *,
    seed: int,
    origin: str | None = None,
    chat_template: str | None = None,
    device: str = "auto",
    trust_remote_code: bool = False,
) -> Recipe:
    """The recipe of a sampling: GRPO's, which keeps every label as it is given.

    Toy policies get one thread: more of them take longer on a busy machine, many times so.

    `data` and `train` are keys of these sections, `model` is as a recipe has it, `origin` the model that it was trained
    from, if it is the checkpoint of a run.
    """
    source = Path(data["train"])
    name = folder_name(source.stem if source.suffix in SUFFIXES else source.name)
    tree = {
        "name": f"rollouts-{name.strip('-')}"[:100].rstrip("-"),
        "seed": seed,
        "data": data,
        "model": {
            "path": model,
            "chat_template": chat_template,
            "trust_remote_code": trust_remote_code,
        },
        "method": {"name": "grpo"},
        "train": train,
        "engine": {
            "name": "local",
            "device": device,
            "threads": 1 if toy_kind(origin or model) else None,
        },
    }
    return validate(tree, "olr rollouts")


def backend_of(path: Path, wanted: BackendName | None) -> BackendName | None:
    """The backend with which a run is resumed: the one it began with, whatever the default is here."""
    before: BackendName | None = read_manifest(path).get("engine")
    if before is not None and wanted not in (None, before):
        raise UserError(
            f"{path} was sampled by {before}, and {wanted} draws otherwise",
            "leave this out, or start anew under another name",
            "backend",
        )
    return before or wanted


class RolloutSampler:
    """Samples what the recipe asks for, and trains nothing (see `olr_cli.engines.run.Engine`)."""

    def __init__(
        self, recipe: Recipe, data: DataSets, backend: BackendName | None = None
    ) -> None:
        """Open the model and check that every prompt leaves room for a response."""
        if not data.train.prompts:
            raise UserError(f"{data.train.source} has no prompts", "name other data")
        path = recipe.model.path
        section = cast(LocalEngine, recipe.engine)
        self._sampling = Sampling.of(recipe.train)
        options = BackendOptions(
            backend,
            section.device,
            recipe.model.trust_remote_code,
            seed_each=True,  # a run that is resumed draws what it would have drawn
        )
        self._backend = options.open(model_location(path), ChatFormat.of(recipe, data.day))
        prompts = self._backend.render([prompt.messages for prompt in data.train.prompts])
        self._backend.encode(prompts, self._sampling)
        import torch  # not before the backend, which may set what torch reads when it is imported

        if section.threads is not None:
            torch.set_num_threads(section.threads)
        facts = self._backend.facts
        self.facts: dict[str, Any] = {
            "engine": facts["name"],
            "device": facts["device"],
            "dtype": facts["dtype"],
            "threads": torch.get_num_threads(),
            "policy_digest": facts["model_digest"],
            "departures": [],
        }
        self.warnings = [
            *self._backend.notes,
            *template_warnings(self._backend.tokenizer, recipe),
        ]

    @property
    def plan(self) -> list[str]:
        """What would sample, and where."""
        where = f"backend {self.facts['engine']}, device {self.facts['device']}"
        return [where, *template_lines(self._backend.tokenizer)]

    def render(self, messages: Sequence[Message]) -> str:
        """A prompt exactly as the policy sees it."""
        return self._backend.render([messages])[0]

    def complete(self, run: Attempt) -> dict[str, Any]:
        """Sample from step `run.done` to the end; interrupted, everything up to the last complete step is stored."""
        recipe, prompts = run.recipe, run.data.train.prompts
        run.supervisor.expect(prompts)
        schedule = Schedule.of(recipe, len(prompts))
        start_progress(run, schedule)
        waiting = (
            "Stopping when the step in progress is stored; Ctrl-C again stops at once."
        )
        with stop_requests(lambda: run.progress.say(waiting)) as stop, self._backend:
            for step in schedule.after(run.done):
                metrics = self._step(
                    run,
                    step,
                    schedule.epoch(step),
                    [prompts[row] for row in schedule.rows(step)],
                )
                if step == 1 and (missing := metrics["rollout/missing_answers"]) > MANY:
                    run.progress.say(
                        f"Warning: {missing:.0%} of the responses have no answer; the chat template or the extractor"
                        f" ({', '.join(EXTRACTORS)}) may be wrong, or responses too short; `olr rollouts --dry-run`"
                        " shows a prompt as the policy sees it"
                    )
                    if (sentence := reading_more(stored_responses(run.path))) is not None:
                        run.progress.say(sentence)
                run.progress.step(step, metrics)
                if (
                    step < schedule.last
                    and (interruption := stop.interruption()) is not None
                ):
                    raise interruption
        return {"steps": schedule.last}

    def _step(
        self, run: Attempt, step: int, visit: int, prompts: Sequence[Prompt]
    ) -> Metrics:
        recipe, clock = run.recipe, Stopwatch()
        with clock.measure("rollouts"):
            names = [prompt.prompt_id for prompt in prompts]
            keys_PG = rollout_keys(
                "rollout", recipe.seed, visit, names, recipe.train.rollouts_per_prompt
            )
            rollouts_PG = self._backend.generate(
                [prompt.messages for prompt in prompts],
                keys_PG.tolist(),
                self._sampling,
                lambda done: run.progress.within(done, keys_PG.size),
            )
        groups = [
            RolloutGroup(prompt, visit=visit, step=step, rollouts=tuple(rollouts))
            for prompt, rollouts in zip(prompts, rollouts_PG, strict=True)
        ]
        decided = run.supervisor.supervise(Step.of(groups), clock.measure)
        labels = {**decided.labels, "trains": [False] * len(groups)}
        with clock.measure("store"):
            tables = run.writer.store(step, labels, decided.rollouts)
            run.writer.sync()
        metrics = step_metrics(*tables, decided.timeouts, decided.undecided)
        metrics |= clock.metrics()
        run.writer.log(step, visit, metrics)
        run.writer.sync()
        return metrics


def rollouts_summary(run: Path, note: str | None) -> Answer:
    """The results of a run of sampling, and a `note` about its policy; shares are over all visits."""
    recipe = read_recipe(run)
    shares = scan_labels(run).select(
        prompts=pl.col("prompt_id").n_unique(),
        known=pl.col("majority_is_correct").is_not_null().mean(),
        accuracy=LABEL_METRICS["majority/accuracy"],
        accuracy_clean=LABEL_METRICS["majority/accuracy_clean"],
        accuracy_noisy=LABEL_METRICS["majority/accuracy_noisy"],
        differs_from_label=LABEL_METRICS["majority/differs_from_label"],
        no_majority=(pl.col("majority_count") == 0).mean(),
        answered=pl.col("answered").sum() / pl.col("rollouts").sum(),
    )
    labels = shares.collect().row(0, named=True)
    labels["truncated"] = (
        scan_rollouts(run).select(pl.col("truncated").mean()).collect().item()
    )
    shown = {
        name: "unknown" if labels[name] is None else f"{percent(labels[name])}%"
        for name in labels
    }
    right = shown["accuracy"]
    if labels["accuracy_noisy"] is not None:
        right += (
            f" (clean prompts {shown['accuracy_clean']}, noisy {shown['accuracy_noisy']})"
        )
    if 0 < labels["known"] < 1:
        right += f", where the truth is known ({shown['known']})"
    facts = {
        "majority differs from the label": f"{shown['differs_from_label']} of the visits that have both",
        "majority is right": right,
        "no majority": f"{shown['no_majority']} of the visits",
        "responses with an answer": shown["answered"],
        "responses cut by the length limit": shown["truncated"],
    }
    visits, samples = recipe.train.epochs, recipe.train.rollouts_per_prompt
    size = f"{labels['prompts']:,} prompts x {visits} visits x {samples} rollouts of {recipe.model.path}"
    lines = [
        "",
        f"Finished {run}: {size}",
        *(f"  {name:<34}{value}" for name, value in facts.items()),
    ]
    notes = [
        sentence for sentence in (kind_note(run, "rollouts"), note) if sentence is not None
    ]
    return Answer(
        lines,
        {"run": run, **labels},
        notes,
        next={f"olr audit {shlex.quote(str(run))}": ""},
    )
