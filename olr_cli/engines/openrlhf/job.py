"""The job: OpenRLHF's own command line, in a process of its own, with our classes in place of three of its.

    python -m olr_cli.engines.openrlhf.job RUN_DIR --actor.model_name_or_path … (OpenRLHF's flags)

`olr train` starts it; `olr train --dry-run` prints it.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from olr_cli.engines.openrlhf.bridges import bridge_process, environment
from olr_cli.engines.openrlhf.checks import gpus_needed
from olr_cli.engines.openrlhf.cpu_weights import WORKER_EXTENSION
from olr_cli.engines.openrlhf.flags import cluster_address
from olr_cli.engines.openrlhf.job_files import (
    UNIVERSAL,
    JobEnd,
    JobFiles,
    JobStopped,
    put_together,
)
from olr_cli.engines.openrlhf.process import LEASH, end_with
from olr_cli.engines.prompt_text import ChatFormat
from olr_cli.engines.run import Diverged, engine_section
from olr_cli.errors import UserError, first_line
from olr_cli.files import disk_problem
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.sections import OpenRlhfEngine
from olr_cli.runs.checkpoints import checkpoint_path, checkpoint_steps
from olr_cli.runs.directory import read_recipe

_DEATHS = {"RayActorError", "WorkerCrashedError", "EngineDeadError"}
"""Exceptions of Ray and vLLM when a process has died."""

_LOST_RANK = ("Connection closed by peer", "Connection reset by peer", "ncclRemoteError")
"""Messages of Gloo and NCCL in the other ranks when one has died; they may come before Ray's."""

_VLLM_START = "Engine core initialization failed"
"""vLLM's message when the process that has the model did not start."""

_NOTED_SECONDS = 2
"""Until Ray knows of a death, and the job's log has what the process said."""

_LINES_OF_AN_END = 300
"""Lines of a process among which its end is looked for: vLLM hands an exception on three times, with its traceback."""

_LINE_OF_PROCESS = re.compile(r"\(\w+ pid=(?P<process>\d+)[^)]*\) (?P<said>\S.*)")
_EXCEPTION = re.compile(
    r"(?:\(\w+ pid=\d+\) )?(?:ERROR [^]]+\] )?(?P<said>[\w.]*(?:Error|Exception)\b.*)"
)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


class Process(NamedTuple):
    """A process of the job: its class, and the id that its node has for it."""

    name: str
    number: int


def run(run_path: Path, flags: list[str]) -> JobEnd:
    """Train; returns how it ended, which is also written into the run directory."""
    JobFiles(run_path).enter_working_folder()
    log = JobFiles(run_path).log
    begins = log.stat().st_size if log.exists() else 0  # earlier attempts are before that
    try:
        _train(read_recipe(run_path), run_path, flags)
        end = JobEnd("finished")
    except Exception as error:
        if not isinstance(_cause(error), JobStopped | Diverged):
            traceback.print_exc()
            time.sleep(_NOTED_SECONDS)
        end = end_of(error, _dead_actors(), _rest_of(log, begins))
    shutil.rmtree(JobFiles(run_path).universal, ignore_errors=True)
    try:
        JobFiles(run_path).write_end(end)
    except UserError as error:  # the disk is full: at least the log has it
        print(f"{end.reason}; {error}", flush=True)
    return end


def _train(recipe: Recipe, run_path: Path, flags: list[str]) -> None:
    engine = engine_section(recipe, OpenRlhfEngine)
    variables = environment(trusts_code=recipe.model.trust_remote_code, device=engine.device)
    os.environ.update(variables)
    bridge_process()
    if f"--{UNIVERSAL}" in flags:
        newest = checkpoint_path(run_path, max(checkpoint_steps(run_path)))
        put_together(newest, JobFiles(run_path).universal)
    import ray

    runtime = {
        "env_vars": variables,
        "worker_process_setup_hook": f"{bridge_process.__module__}.{bridge_process.__qualname__}",
    }
    wanted = gpus_needed(recipe)
    address = cluster_address(recipe)
    if address is None:
        # The CPU rehearsal's GPUs are logical. One CPU more each for the controller and what Ray does itself.
        logical = {"num_gpus": wanted, "num_cpus": wanted + 2} if engine.device == "cpu" else {}
        # `local`, or Ray would join any cluster that somebody has started on this machine.
        ray.init(address="local", runtime_env=runtime, include_dashboard=False, **logical)
    else:
        ray.init(address=address, runtime_env=runtime)
    for resource in ("GPU", "CPU"):  # a CPU goes with every GPU
        present = int(ray.cluster_resources().get(resource, 0))
        if present < wanted:
            raise UserError(
                f"the recipe needs {wanted} {resource}s and Ray's cluster has {present}; add nodes, or ask for fewer"
            )
    _put_ours_in_place(recipe, run_path, ray.get_runtime_context().get_node_id())
    sys.argv = ["train_ppo_ray", *flags]
    # no user's text: OpenRLHF's own command line
    runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__", alter_sys=True)


def _put_ours_in_place(recipe: Recipe, run_path: Path, node_id: str) -> None:
    """Replace three of OpenRLHF's classes where its command line looks them up."""
    from openrlhf.trainer import ppo_trainer
    from openrlhf.trainer.ray import ppo_actor, vllm_engine

    from olr_cli.engines.openrlhf.actor import policy_actor
    from olr_cli.engines.openrlhf.trainer import trainer_actor
    from olr_cli.engines.openrlhf.vllm_actor import rollout_actor

    engine_arguments: dict[str, Any] = {"trust_remote_code": recipe.model.trust_remote_code}
    if engine_section(recipe, OpenRlhfEngine).device == "cpu":
        engine_arguments["worker_extension_cls"] = WORKER_EXTENSION
    ppo_trainer.PPOTrainer = trainer_actor(run_path, node_id)
    ppo_actor.PolicyModelActor = policy_actor(recipe.method.smoothing, policy_threads(recipe))
    vllm_engine.RolloutRayActor = rollout_actor(
        engine_arguments, recipe.train.stop, ChatFormat.of(recipe)
    )


def policy_threads(recipe: Recipe) -> int:
    """Threads of each of the policy's processes: Adam runs in them if its state is in host memory (ds.adam_offload).

    By itself Ray gives a process one thread. The policy's share the cores of their node, where nothing else runs while
    they take a step; OMP_NUM_THREADS says otherwise, but for 1, which Ray's job server sets unasked.
    """
    import ray

    engine, given = (
        engine_section(recipe, OpenRlhfEngine),
        int(os.environ.get("OMP_NUM_THREADS", 1)),
    )
    if engine.device == "cpu" or given > 1:
        return given
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    cores = min(int(has["CPU"]) for has in resources if has.get("GPU") and has.get("CPU"))
    return max(1, cores // engine.gpus_per_node)


def _dead_actors() -> list[Process]:
    """This job's actors that have died, the first one first."""
    import ray
    from ray._private.state import actors

    if not ray.is_initialized():
        return []
    job = ray.get_runtime_context().get_job_id()  # others may share the cluster
    # Ray's public list of actors asks its dashboard, and a Ray of the job's own has none.
    dead = [
        actor for actor in actors(actor_state_name="DEAD").values() if actor["JobID"] == job
    ]
    dead.sort(key=lambda actor: actor["EndTime"])
    return [Process(actor["ActorClassName"], actor["Pid"]) for actor in dead]


def _rest_of(log: Path, start: int) -> str:
    if not log.exists():  # somebody runs the command line that a dry run prints
        return ""
    with log.open("rb") as file:
        file.seek(start)
        return file.read().decode(errors="replace")


def end_of(error: BaseException, dead: Sequence[Process] = (), log: str = "") -> JobEnd:
    """The end of a job by what ended it.

    A death comes first: whatever the others complain of then, a connection or a file, follows from it.

    Args:
        error: it may be wrapped by Ray.
        dead: the actors that have died, the first one first.
        log: what the job has printed.
    """
    from ray.exceptions import OutOfMemoryError

    cause = _cause(error)
    if isinstance(cause, JobStopped):
        return JobEnd("stopped")
    if isinstance(cause, Diverged):
        return JobEnd("diverged", str(cause))
    if isinstance(cause, UserError):
        return JobEnd("user", str(cause))
    text = str(cause)
    if isinstance(cause, OutOfMemoryError):
        return JobEnd(
            "worker",
            f"a node's own memory, not a GPU's, was nearly full, and Ray ended a process ({first_line(cause)}); end"
            " what else runs there, or give the job a node with more memory",
        )
    is_death = _DEATHS & {kind.__name__ for kind in type(cause).__mro__}
    if dead or is_death or any(words in text for words in (*_LOST_RANK, _VLLM_START)):
        died = dead[0] if dead else _process_in(str(error))
        if died is None:
            return JobEnd(
                "worker",
                f"a process of the job died, often for want of memory: {first_line(cause)}",
            )
        return JobEnd("worker", _last_words(died, str(error), log))
    if "OutOfMemoryError" in type(cause).__name__ or "out of memory" in text:
        return JobEnd(
            "user",
            f"a GPU ran out of memory ({first_line(cause)}); lower engine.micro_batch_samples if it was the update, and"
            " engine.vllm_memory if it was vLLM",
        )
    if problem := disk_problem(cause) or disk_problem(
        error
    ):  # the latter has the text of what came before
        return JobEnd(
            "user", f"something could not be written ({first_line(cause)}): {problem}"
        )
    return JobEnd("bug", f"{type(cause).__name__}: {first_line(cause)}")


def _cause(error: BaseException) -> BaseException:
    """The error that Ray has wrapped, perhaps more than once."""
    from ray.exceptions import RayTaskError

    while isinstance(error, RayTaskError) and isinstance(error.cause, BaseException):
        error = error.cause
    return error


def _process_in(text: str) -> Process | None:
    """The process that an error of Ray names: the innermost one, where it was handed on."""
    named = re.findall(
        r"class_name: (\w+).*?pid: (\d+)|ray::(\w+)\S* \(pid=(\d+)", text, re.DOTALL
    )
    return (
        Process(named[-1][0] or named[-1][2], int(named[-1][1] or named[-1][3]))
        if named
        else None
    )


def _last_words(died: Process, text: str, log: str) -> str:
    """A sentence about a process that died, with what it said last.

    That is the first of its last exceptions, since vLLM's processes hand one on in words of their own; else the last
    line.
    """
    lines = [_LINE_OF_PROCESS.match(line) for line in _COLOUR.sub("", log).splitlines()]
    said = [line["said"] for line in lines if line and int(line["process"]) == died.number]
    exceptions = [
        raised["said"]
        for line in said[-_LINES_OF_AN_END:]
        if (raised := _EXCEPTION.match(line))
    ]
    who = f"{died.name} (process {died.number})"
    if _VLLM_START in text or any(_VLLM_START in raised for raised in exceptions):
        who = f"vLLM did not start, often for too high or low an engine.vllm_memory: {who}"
    if exceptions:
        _, is_users, sentence = exceptions[0].partition("UserError: ")
        if is_users:  # raised where an actor is made, and Ray has kept its text alone
            return sentence
        return f"{who} died of {exceptions[0][:300].rstrip('.')}"
    words = [line for line in said if "Warning" not in line]
    last = f"; its last line: {words[-1][:300]}" if words else ""
    return f"{who} was killed, often for want of memory{last}"


def main() -> None:
    """Run as a program."""
    if parent := os.environ.get(LEASH):
        end_with(int(parent))
    end = run(Path(sys.argv[1]), sys.argv[2:])
    raise SystemExit(0 if end.kind in ("finished", "stopped") else 1)


if __name__ == "__main__":
    main()
