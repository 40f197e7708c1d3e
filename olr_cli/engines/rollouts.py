"""Sampling without training, into a run directory like a training run's: data to audit before anything is trained.

    for every visit, for every batch of prompts (in an order drawn for the visit):
        K rollouts of each prompt  →  the supervisor, which decides as GRPO would  →  records and metrics

A model that olr loads responds to one batch at a time. A server receives the next batches while the last responses of
a batch are still being generated (`Backend.batches`).

These keys of a recipe matter: `data`, `model`, `seed`, `engine.device`, `engine.threads` and, in `train`, `epochs`
(visits), `prompts_per_step`, `rollouts_per_prompt`, `temperature` and `max_new_tokens`. Each rollout is a function of
seed, prompt, visit and sample number, drawn as in the local engine. With the transformers backend, the first steps
therefore equal a training run's with the same settings, up to its first update. Each step is stored before the
next begins, so an interrupted run resumes without a trace.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import polars as pl

from olr_cli.answers import EXTRACTORS, reading_more
from olr_cli.data.arithmetic import toy_kind
from olr_cli.data.chat import Message
from olr_cli.data.values import SUFFIXES
from olr_cli.engines.backends import BackendName, BackendOptions
from olr_cli.engines.backends.backend import GenerationRequest
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
from olr_cli.supervision import Rollout, RolloutGroup, Step
from olr_cli.supervision.metrics import LABEL_METRICS, step_metrics
from olr_cli.tables import Answer, percent

MANY = 0.9
"""Share of the first step's responses without an answer; above it, the template or the extractor is probably wrong."""


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
    """Build the recipe of a run that only samples.

    Its method is GRPO, which keeps every label as it is given. Sampling uses one thread if the model is a built-in toy
    or a checkpoint that was trained from one.

    Args:
        model: as in `model.path`.
        data: keys and values of the section `data`.
        train: keys and values of the section `train`.
        seed: the seed of the run.
        origin: if `model` is a checkpoint, the model from which its training started; otherwise None.
        chat_template: as in `model.chat_template`.
        device: as in `engine.device`.
        trust_remote_code: as in `model.trust_remote_code`.
    """
    source = Path(data["train"])
    name = folder_name(source.stem if source.suffix in SUFFIXES else source.name)
    tree = {
        # A recipe's name has at most 100 characters.
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
            # More threads make a toy many times slower on a busy machine.
            "threads": 1 if toy_kind(origin or model) else None,
        },
    }
    return validate(tree, "olr rollouts")


def backend_of(path: Path, wanted: BackendName | None) -> BackendName | None:
    """Return the backend with which the run at `path` resumes: the one that it began with, not today's default.

    `wanted` is the backend that the user asks for, or None for no preference. If the run has recorded no backend,
    `wanted` is returned.

    Raises:
        UserError: the user asks for another backend than the run's.
    """
    before: BackendName | None = read_manifest(path).get("engine")
    if before is not None and wanted not in (None, before):
        raise UserError(
            f"{path} was sampled by {before}, and {wanted} draws otherwise",
            "leave this out, or start anew under another name",
            "url" if wanted == "openai" else "backend",
        )
    return before or wanted


class RolloutSampler:
    """The engine of `olr rollouts`, which only samples (see `olr_cli.engines.run.Engine`)."""

    def __init__(
        self, recipe: Recipe, data: DataSets, options: BackendOptions | None = None
    ) -> None:
        """Open the model and, unless a server holds it, check that every prompt leaves room for a response.

        `options` choose the backend; None for the default. If olr loads the model, the recipe overrides the device and
        whether the model's code may run, and `seed_each` is always true.
        """
        if not data.train.prompts:
            raise UserError(f"{data.train.source} has no prompts", "name other data")
        path = recipe.model.path
        section = cast(LocalEngine, recipe.engine)
        self._sampling = Sampling.of(recipe.train)
        options, threads = options or BackendOptions(), None
        if options.url is None:
            # The recipe, not the caller, decides these: they are stored with the run, so a resume finds them again.
            options = replace(
                options,
                device=section.device,
                trust_remote_code=recipe.model.trust_remote_code,
                seed_each=True,  # a run that is resumed draws what it would have drawn
            )
            path = model_location(path)
        self._backend = options.open(path, ChatFormat.of(recipe, data.day))
        self.warnings = [*self._backend.notes]
        if options.url is None:
            threads = self._set_up(recipe, data, section.threads)
        facts = self._backend.facts
        self.facts: dict[str, Any] = {
            "engine": facts["name"],
            "device": facts["device"],
            "dtype": facts["dtype"],
            "threads": threads,
            "policy_digest": facts["model_digest"],
            "departures": [],
            **self._backend_facts("url", "served_model"),
        }

    def _backend_facts(self, *names: str) -> dict[str, Any]:
        """Return those of the backend's facts (`Backend.facts`) that have these names.

        A fact that the backend lacks is left out.
        """
        return {it: self._backend.facts[it] for it in names if it in self._backend.facts}

    def _set_up(self, recipe: Recipe, data: DataSets, threads: int | None) -> int:
        """Check that prompts leave room for responses, extend `self.warnings`, and set torch's number of threads.

        Return the number of threads. If `threads` is None, torch chooses it.
        """
        prompts = self._backend.render([prompt.messages for prompt in data.train.prompts])
        self._backend.encode(prompts, self._sampling)
        self.warnings += template_warnings(self._backend.tokenizer, recipe)
        import torch  # not before the backend, which may set what torch reads when it is imported

        if threads is not None:
            torch.set_num_threads(threads)
        return torch.get_num_threads()

    @property
    def plan(self) -> list[str]:
        """Lines of a dry run: the backend that would sample, and the device or server."""
        if "url" in self.facts:
            return [
                f"server {self.facts['url']}, which renders prompts by its own chat template"
            ]
        where = f"backend {self.facts['engine']}, device {self.facts['device']}"
        return [where, *template_lines(self._backend.tokenizer)]

    def render(self, messages: Sequence[Message]) -> str:
        """Return a prompt exactly as the policy sees it."""
        return self._backend.render([messages])[0]

    def complete(self, run: Attempt) -> dict[str, Any]:
        """Sample and store the steps after `run.done`, and return facts about the finished run for the manifest.

        Raises:
            Interrupted: a stop was asked for. The step that was in progress is stored.
        """
        prompts = run.data.train.prompts
        run.supervisor.expect(prompts)
        schedule = Schedule.of(run.recipe, len(prompts))
        start_progress(run, schedule)
        waiting = (
            "Stopping when the step in progress is stored; Ctrl-C again stops at once."
        )
        batches = self._requests(run, schedule)
        with (
            stop_requests(lambda: run.progress.say(waiting)) as stop,
            self._backend,
            # A server's stream holds connections, which must be closed even if storing a step fails.
            closing(
                self._backend.batches(batches, self._sampling, run.progress.within)
            ) as sampled,
        ):
            for step in schedule.after(run.done):
                metrics = self._step(run, schedule, step, sampled)
                # Say so after one step, because a run of hours without answers would be wasted.
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
        return {"steps": schedule.last} | self._backend_facts("sampling")

    def _requests(
        self, run: Attempt, schedule: Schedule
    ) -> Iterator[list[GenerationRequest]]:
        """Yield the requests of each step after `run.done`: one per prompt, with a seed for each rollout."""
        train, prompts = run.recipe.train, run.data.train.prompts
        for step in schedule.after(run.done):
            batch = [prompts[row] for row in schedule.rows(step)]
            keys_PG = rollout_keys(
                "rollout",
                run.recipe.seed,
                schedule.epoch(step),
                [prompt.prompt_id for prompt in batch],
                train.rollouts_per_prompt,
            )
            turns = [prompt.messages for prompt in batch]
            yield self._backend.requests(turns, keys_PG.tolist())

    def _step(
        self,
        run: Attempt,
        schedule: Schedule,
        step: int,
        sampled: Iterator[list[list[Rollout]]],
    ) -> Metrics:
        """Take a step's rollouts from `sampled`, let the supervisor label them, store them, and return the metrics.

        `sampled` yields the rollouts of one step after another, as a list of rollouts for each prompt of the step.
        """
        clock, visit = Stopwatch(), schedule.epoch(step)
        with clock.measure("rollouts"):
            rollouts_PG = next(sampled)
        prompts = [run.data.train.prompts[row] for row in schedule.rows(step)]
        groups = [
            RolloutGroup(prompt, visit=visit, step=step, rollouts=tuple(rollouts))
            for prompt, rollouts in zip(prompts, rollouts_PG, strict=True)
        ]
        decided = run.supervisor.supervise(Step.of(groups), clock.measure)
        # The supervisor decides as in training, where these prompts would train.
        labels = {**decided.labels, "trains": [False] * len(groups)}
        # A step counts once its line of metrics is there (`resume._recorded`), so put the tables on the disk before it.
        with clock.measure("store"):
            tables = run.writer.store(step, labels, decided.rollouts)
            run.writer.sync()
        metrics = step_metrics(*tables, decided.timeouts, decided.undecided)
        metrics |= clock.metrics()
        run.writer.log(step, visit, metrics)
        run.writer.sync()
        return metrics


def rollouts_summary(run: Path, note: str | None) -> Answer:
    """Summarise a finished run that only samples, and propose the next command.

    The summary says, for example, how many responses have an answer, and how often the most frequent answer to a prompt
    is right. All epochs count: a prompt that is sampled in two epochs counts twice. `note` is a sentence to add, or
    None.
    """
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
    sentences = (kind_note(run, "rollouts"), _server_note(run), note)
    notes = [sentence for sentence in sentences if sentence is not None]
    return Answer(
        lines,
        {"run": run, **labels},
        notes,
        next={f"olr audit {shlex.quote(str(run))}": ""},
    )


def _server_note(run: Path) -> str | None:
    """Return a sentence on what is unknown about responses from a server, or None for a model that olr loaded."""
    manifest = read_manifest(run)
    if "url" not in manifest:
        return None
    refused = ", ".join(manifest.get("sampling") or ())
    return (
        f"{manifest['url']} sampled this: tokens are as it counts them, entropies and weights are unknown, and the same"
        " seeds need not draw the same responses again."
        + (
            f" It refuses {refused}, and samples by its own defaults there."
            if refused
            else ""
        )
    )
