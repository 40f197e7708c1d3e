"""The command's side of a run on OpenRLHF: start the job, follow its records, show and log them."""

from __future__ import annotations

import shlex
import signal
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from olr_cli.data.chat import Message
from olr_cli.data.prompts import View
from olr_cli.engines import prompt_text
from olr_cli.engines.models import model_location
from olr_cli.engines.openrlhf.bridges import has_flash_attention
from olr_cli.engines.openrlhf.checks import (
    attention_of,
    check_arguments,
    check_batches,
    check_flags,
    check_gpus,
    check_precision,
    gpus_needed,
    require_openrlhf,
    require_vllm_cpu,
)
from olr_cli.engines.openrlhf.flags import (
    Places,
    arguments,
    cluster_address,
    openrlhf_parser,
    recipe_flags,
)
from olr_cli.engines.openrlhf.job_files import (
    JobFiles,
    held_out_label,
    prompt_label,
    saved_parts,
    write_rows,
)
from olr_cli.engines.openrlhf.needs import (
    require_short_folder,
    require_unlocked,
    require_usable_gpus,
)
from olr_cli.engines.openrlhf.process import command, started
from olr_cli.engines.openrlhf.starting_model import StartingModel
from olr_cli.engines.reporting import reports, require_packages, start_progress
from olr_cli.engines.run import (
    Attempt,
    DataSets,
    Diverged,
    EngineFailed,
    engine_section,
    loss_average_departure,
)
from olr_cli.errors import UserError, at, noting
from olr_cli.files import writing
from olr_cli.packages import installed_version
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.section import flatten
from olr_cli.recipe.sections import OpenRlhfEngine
from olr_cli.runs.checkpoints import checkpoint_path, checkpoint_steps
from olr_cli.runs.directory import versions
from olr_cli.runs.interrupts import Interrupted, StopRequest, stop_requests
from olr_cli.runs.metrics import MetricsTail
from olr_cli.runs.schedule import Schedule

_POLL_SECONDS = 0.5
_PACKAGES = ("openrlhf", "vllm", "vllm-cpu", "ray", "deepspeed", "flash-attn")


def _departures(recipe: Recipe) -> list[str]:
    """Return a sentence for each way in which training with this engine differs from the OLR paper's code (R17)."""
    engine = engine_section(recipe, OpenRlhfEngine)
    flags = flatten(engine.flags)
    precision = "bfloat16, over micro-batches and GPUs"
    if flags.get("ds.grad_accum_dtype") == "fp32":
        precision = "float32 over micro-batches, in bfloat16 over GPUs"
    sentences = [
        "advantages are divided by the sample standard deviation + 1e-9, as by the authors' code (the paper's Eq. 1:"
        " population standard deviation + eps)",
        "each mini-batch has its share of every length (the authors': responses of like length)",
        "sampling does not repeat; labels and noise draws are a function of the rollouts alone (R18)",
        "weights are bfloat16 beside a float32 copy in the optimiser; norms and biases are not decayed",
        "policy/grad_norm is that of a step's last mini-batch",
        f"gradients are added up in {precision} (the authors: float32)",
        loss_average_departure(recipe),
    ]
    if flags.get("actor.policy_loss_type") == "gspo":
        sentences.append(
            "GSPO's own loss is a mean over responses, whatever train.loss_average says"
        )
    if recipe.train.loss_average == "sequence":
        sentences.append(
            "policy/kl is each mini-batch's mean over responses; a step's mini-batches are weighed by their tokens"
        )
    if recipe.method.prompts != "all":
        sentences.append(
            "a mini-batch in which no prompt trains is an optimiser step all the same, of momentum and weight decay"
        )
    if engine.device == "cpu":
        sentences.append(
            "CPU rehearsal: vLLM and DeepSpeed do not sleep, kernels are those of the CPU"
        )
    return sentences


def _parser_here(
    engine: OpenRlhfEngine, missing: list[str] | None
) -> ArgumentParser | None:
    """Check that the packages of the job are installed, and return OpenRLHF's command-line parser.

    The packages are OpenRLHF and, if the device is a CPU, vllm-cpu, in the supported versions. If `missing` is None,
    the first one that is not there raises `NotHere`. A dry run passes a list as `missing`, and a sentence about this
    package is appended to the list. Without OpenRLHF, a dry run gets None as the parser.
    """
    parser = None
    with noting(missing):
        require_openrlhf()
        parser = openrlhf_parser()
        if engine.device == "cpu":
            require_vllm_cpu()
    return parser


def _check_machine(recipe: Recipe, missing: list[str] | None) -> None:
    """Check that this machine can run the job.

    If the job joins a Ray cluster, the only check is that the recipe's numbers of GPUs fit together. If the job starts
    its own Ray, this machine needs:

    - as many GPUs as the recipe asks for, all usable by torch, unless the recipe's device is a CPU;
    - a temporary folder with a name short enough for Ray's sockets;
    - no lock left by a killed build of DeepSpeed.

    A dry run passes a list as `missing`, and a sentence about each lack is appended to the list.

    Raises:
        UserError: the recipe's numbers of GPUs do not fit together.
        NotHere: this machine lacks something, and `missing` is None.
    """
    has_cluster = cluster_address(recipe) is not None
    with noting(missing):
        # Only Ray knows the GPUs of a cluster; the job asks it before it starts (`job._check_room`).
        check_gpus(recipe, None if has_cluster else torch.cuda.device_count())
    if has_cluster:
        return
    requirements = [require_unlocked, require_short_folder]
    if engine_section(recipe, OpenRlhfEngine).device == "cuda":
        requirements.append(require_usable_gpus)
    for require in requirements:
        with noting(missing):
            require()


class OpenRlhfRunner:
    """Train with Ray, vLLM and DeepSpeed through OpenRLHF, in a job that this process starts and follows.

    It implements `olr_cli.engines.run.Engine`.
    """

    def __init__(
        self, recipe: Recipe, data: DataSets, *, missing: list[str] | None = None
    ) -> None:
        """Check everything that can be checked before Ray starts, and render the prompts.

        If `missing` is None, anything that this machine lacks raises `NotHere`. A dry run passes a list as `missing`,
        and a sentence about each lack is appended to the list. Mistakes in the recipe always raise `UserError`.
        """
        self._recipe, self._data = recipe, data
        self._engine = engine_section(recipe, OpenRlhfEngine)
        self._parser = _parser_here(self._engine, missing)
        check_flags(recipe, self._parser)
        with noting(missing):
            require_packages(recipe)
        check_batches(recipe, len(data.train.prompts), len(data.views))
        check_precision(recipe)
        _check_machine(recipe, missing)
        # Assumed until it is checked, because a dry run can only miss this one.
        self._attention = "flash_attention_2"
        with noting(missing):
            self._attention = attention_of(
                recipe, has_flash_attention=has_flash_attention()
            )
        start = model_location(recipe.model.path)
        self._model = StartingModel(start, None, None, "unknown")
        with noting(missing):
            self._model = StartingModel.look_at(
                start, trust_remote_code=recipe.model.trust_remote_code
            )
        # torch's sdpa cannot cap attention scores, as Gemma 2 does; it would compute another model without a word.
        if self._attention == "sdpa" and self._model.caps_attention:
            self._attention = "eager"
        self._texts: dict[View, list[str]] = {}
        self._held_out: dict[str, list[str]] = {}
        if self._model.tokenizer is not None:
            self._render_prompts()
        if self._parser is not None:
            # The folder is made up: only names and values of flags are checked.
            check_arguments(self._flags(Path("runs", recipe.name), 0), self._parser)

    def _render_prompts(self) -> None:
        """Render all training and held-out prompts as text, and keep the texts for `_write_files`.

        Raises:
            UserError: a prompt is too long for the recipe or the model, or a stop text mixes a special token with other
                text. Such a stop text would never be found, because responses are decoded without special tokens.
        """
        model, recipe, data = self._model, self._recipe, self._data
        prompt_text.ChatFormat.of(recipe).put_into(model.tokenizer)
        with at("train.stop"):
            prompt_text.stop_ids(model.tokenizer, recipe.train.stop)
        for view in data.views:
            self._texts[view] = model.texts(data.train, recipe, view, data.day)
        for prefix, held_out in data.held_out.items():
            self._held_out[prefix] = model.texts(held_out, recipe, day=data.day)

    @property
    def facts(self) -> dict[str, Any]:
        """Return what a run's manifest records of this engine, by name.

        This includes the device, the attention implementation, package versions, and ``departures``: a sentence for
        each way in which training differs from the code of the OLR paper's authors.
        """
        on_gpu = self._engine.device == "cuda"
        gpus = gpus_needed(self._recipe)
        name = (
            torch.cuda.get_device_name() if on_gpu and torch.cuda.is_available() else "GPU"
        )
        stack = {package: installed_version(package) for package in _PACKAGES}
        return {
            "engine": "openrlhf",
            "device": f"{gpus} x {name}" if on_gpu else "cpu",
            "dtype": "bfloat16",
            "threads": None if on_gpu else 1,
            "attention": self._attention,
            "policy_digest": self._model.digest,
            "versions": versions()
            | {name: version for name, version in stack.items() if version},
            "departures": _departures(self._recipe),
        }

    @property
    def warnings(self) -> list[str]:
        """Return warnings about the model's files and chat template, and about a missing flash-attn."""
        tokenizer = self._model.tokenizer
        sentences = list(self._model.notes)
        if tokenizer is not None:
            sentences += prompt_text.template_warnings(tokenizer, self._recipe)
        if (
            self._engine.device == "cuda"
            and self._attention == "sdpa"
            and self._engine.attention == "auto"
        ):
            sentences.append(
                "flash-attn is not installed: attention is torch's sdpa, slower on long responses"
            )
        return sentences

    @property
    def plan(self) -> list[str]:
        """Return the lines that a dry run prints about the job.

        They show the device, whether the job joins a Ray cluster, the job's command line, and what the chat template
        adds to prompts. The command line is that of a new run in the folder runs/<name>, where <name> is the recipe's
        name.
        """
        run = Path("runs", self._recipe.name)
        words = command(run, self._flags(run, 0), python="python")
        lines = [shlex.join(words[:4])]
        for word in words[4:]:
            if word.startswith("--"):
                lines.append(f"    {word}")
            else:
                lines[-1] += f" {shlex.quote(word)}"
        address = cluster_address(self._recipe)
        where = f"Ray at {address}" if address else "a Ray of its own"
        unchecked = "" if self._parser is not None else ", which only OpenRLHF can check"
        tokenizer = self._model.tokenizer
        return [
            f"device {self.facts['device']}, {where}; the command{unchecked}:",
            " \\\n".join(lines),
            *([] if tokenizer is None else prompt_text.template_lines(tokenizer)),
        ]

    def render(self, messages: Sequence[Message]) -> str:
        """Return a conversation as the text that the policy reads.

        If the model's chat template is not on this machine, return a line that says so and then one line for each
        message: ``[role] content``.
        """
        if self._model.tokenizer is None:
            turns = [f"[{message.role}] {message.content}" for message in messages]
            return "\n".join(
                ["(bare turns: the model's chat template is not here)", *turns]
            )
        chat = prompt_text.ChatFormat(day=self._data.day)
        return prompt_text.render(self._model.tokenizer, messages, chat)

    def complete(self, run: Attempt) -> dict[str, Any]:
        """Run the job to its end; return a dict of the number of ``steps`` and the path of the trained ``policy``.

        The call blocks, and reports each step that the job records. If a signal asks this process to stop, the job ends
        after its current step, or at once if the first step has not begun.

        Args:
            run: the new or resumed run. A run with complete steps continues from its last checkpoint.

        Raises:
            Interrupted: the run was asked to stop.
            Diverged: a loss, gradient or logit is infinite or NaN.
            UserError: the user can fix the failure, a process died, or the job has not recorded how it ended.
            EngineFailed: any other error ended the job.
        """
        files, progress = JobFiles(run.path), run.progress
        self._write_files(files)
        schedule = Schedule.of(run.recipe, len(run.data.train.prompts))
        parts = self._former_gpus(run.path, run.done)
        if parts is not None:
            progress.say(
                f"The checkpoint is from {parts} GPU{'s' * (parts != 1)} and the policy has"
                f" {self._engine.policy_gpus} now: DeepSpeed's universal checkpoint carries the optimiser's state over,"
                " which takes a while, and as much disk as two checkpoints until the first step."
            )
        progress.say(
            f"Starting Ray, vLLM and DeepSpeed; what they print goes to {files.log}"
        )
        words = command(run.path.absolute(), self._flags(run.path, run.done))
        tail, is_ready, has_ended, began, shown = (
            MetricsTail(run.path),
            False,
            False,
            time.monotonic(),
            0,
        )
        with ExitStack() as stack:
            stop = stack.enter_context(stop_requests())
            report = stack.enter_context(reports(run))
            job = stack.enter_context(started(words, files.log))
            while not has_ended:
                # Ask first: once the job has ended, no more lines are written, so the last round reads all of them.
                has_ended = job.has_ended()
                if not is_ready and files.ready.exists():
                    is_ready = True
                    # By now every process has its shared memory, which stays in /dev/shm if the processes are killed.
                    job.note_memory()
                    progress.say(
                        f"After {time.monotonic() - began:.0f} s the first step begins."
                    )
                    start_progress(run, schedule)
                for sentence in files.announcements()[shown:]:
                    progress.say(sentence)
                    shown += 1
                for metrics in tail.new_lines():
                    step = int(metrics.pop("step"))
                    metrics.pop("epoch")
                    report(step, metrics)
                if stop.signal_number is not None:
                    if not is_ready:
                        break  # no step is in progress yet, so end the job at once
                    files.stop.touch()  # the job stops after its step
                if not has_ended:
                    time.sleep(_POLL_SECONDS)
            exit_reason = job.how()
        self._raise_unless_finished(files, stop, exit_reason)
        return {
            "steps": schedule.last,
            "policy": str(checkpoint_path(run.path, schedule.last)),
        }

    def _former_gpus(self, run: Path, done: int) -> int | None:
        """Return how many GPUs saved the last checkpoint if the policy has another number now; otherwise return None.

        A number means that the checkpoint must be converted before it is loaded. If no step is complete, there is no
        checkpoint, and the result is None.

        Args:
            run: the run directory.
            done: number of complete steps.
        """
        parts = saved_parts(checkpoint_path(run, done)) if done else None
        return None if parts == self._engine.policy_gpus else parts

    def _flags(self, run: Path, done: int) -> list[str]:
        """Return OpenRLHF's command-line arguments for the job in the run directory `run`.

        `done` is the number of complete steps. If it is above 0, the job continues from the checkpoint after that step.
        """
        recipe, files = self._recipe, JobFiles(run)
        # DeepSpeed loads a checkpoint only on the number of GPUs that saved it. A universal one loads on any number.
        is_universal = self._former_gpus(run, done) is not None
        checkpoint = files.universal if is_universal else checkpoint_path(run, done)
        wanted = recipe.train.max_prompt_tokens + recipe.train.max_new_tokens
        places = Places(
            model=self._model.path,
            prompts=files.prompts.absolute(),
            held_out=files.held_out.absolute() if self._data.held_out else None,
            checkpoint=checkpoint.absolute() if done else None,
            is_universal=is_universal,
            scratch=files.scratch.absolute(),
            # `require_room` has made sure that prompts and responses fit the context, so a longer limit is never used.
            max_tokens=min(wanted, self._model.context_length or wanted),
            views=len(self._data.views),
        )
        return arguments(recipe_flags(recipe, places, self._attention, done))

    def _write_files(self, files: JobFiles) -> None:
        """Write the files that the job reads: all prompts, and the path of this process's working folder.

        First, remove what an earlier job of this run left, such as the record of how it ended.
        """
        with writing(files.folder):
            files.folder.mkdir(exist_ok=True)
        files.forget_last_attempt()
        files.note_working_folder()
        views = [
            (texts[row], prompt_label(view, prompt.prompt_id))
            for row, prompt in enumerate(self._data.train.prompts)
            for view, texts in self._texts.items()
        ]
        write_rows(files.prompts, views)
        rows = [
            (text, held_out_label(prefix, row))
            for prefix, texts in self._held_out.items()
            for row, text in enumerate(texts)
        ]
        if rows:
            write_rows(files.held_out, rows)

    def _raise_unless_finished(
        self, files: JobFiles, stop: StopRequest, exit_reason: str
    ) -> None:
        """Return if the job has finished; otherwise raise the error that the olr command shows.

        Args:
            files: the job's files, in which the job has recorded how it ended.
            stop: tells whether a signal asked this command to stop.
            exit_reason: exit status or signal of the job, in words; shown only if the job has not recorded how it
                ended.

        Raises:
            Interrupted: the job stopped on request.
            Diverged: a loss, gradient or logit is infinite or NaN.
            UserError: the user can fix the failure, a process died, or the job has not recorded how it ended.
            EngineFailed: any other error ended the job.
        """
        end = files.read_end()
        if end is not None and end.kind == "finished":
            return
        if stop.signal_number is not None:
            raise Interrupted(stop.signal_number)
        # Someone else has created the stop file.
        if end is not None and end.kind == "stopped":
            raise Interrupted(signal.SIGTERM)
        if end is not None and end.kind == "diverged":
            raise Diverged.of(end.reason, remedy="use another checkpoint")
        saved = max(checkpoint_steps(files.run), default=0)
        resume = f"--resume --run-dir {files.run}"
        after = (
            f"{resume} continues after step {saved}"
            if saved
            else f"no checkpoint was due yet, {resume} starts anew"
        )
        rest = f"the log is {files.log}; {after}"
        if end is None:
            raise UserError(f"OpenRLHF ended without a word ({exit_reason})", rest)
        if end.kind == "bug":
            raise EngineFailed(f"{end.reason}; {rest}")
        raise UserError(f"{end.reason}", rest)
