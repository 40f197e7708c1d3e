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
import traceback
from pathlib import Path
from typing import Any

from olr_cli.engines.openrlhf.bridges import bridge_process, environment
from olr_cli.engines.openrlhf.checks import gpus_needed
from olr_cli.engines.openrlhf.cpu_weights import WORKER_EXTENSION
from olr_cli.engines.openrlhf.flags import cluster_address
from olr_cli.engines.openrlhf.job_files import UNIVERSAL, JobEnd, JobFiles, JobStopped, put_together
from olr_cli.engines.openrlhf.process import LEASH, end_with
from olr_cli.engines.prompt_text import ChatFormat
from olr_cli.engines.run import Diverged, engine_section
from olr_cli.errors import UserError, first_line
from olr_cli.files import error_number
from olr_cli.recipe.schema import OpenRlhfEngine, Recipe
from olr_cli.runs.checkpoints import checkpoint_path, checkpoint_steps
from olr_cli.runs.directory import read_recipe

_DEATHS = {"RayActorError", "WorkerCrashedError", "EngineDeadError"}
"""Exceptions of Ray and vLLM when a process has died."""

_LOST_RANK = ("Connection closed by peer", "Connection reset by peer", "ncclRemoteError")
"""Messages of Gloo and NCCL in the other ranks when one has died; they may come before Ray's."""


def run(run_path: Path, flags: list[str]) -> JobEnd:
    """Train; returns how it ended, which is also written into the run directory."""
    JobFiles(run_path).enter_working_folder()
    try:
        _train(read_recipe(run_path), run_path, flags)
        end = JobEnd("finished")
    except Exception as error:
        end = end_of(error)
        if end.kind in ("worker", "bug"):
            traceback.print_exc()
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
    ppo_actor.PolicyModelActor = policy_actor(recipe.method.smoothing)
    vllm_engine.RolloutRayActor = rollout_actor(engine_arguments, recipe.train.stop, ChatFormat.of(recipe))


def end_of(error: BaseException) -> JobEnd:
    """The end of a job by the error that ended it, which Ray may have wrapped."""
    from ray.exceptions import OutOfMemoryError, RayTaskError

    cause: BaseException = error
    while isinstance(cause, RayTaskError) and isinstance(cause.cause, BaseException):
        cause = cause.cause
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
    if "OutOfMemoryError" in type(cause).__name__ or "out of memory" in text:
        return JobEnd(
            "user",
            f"a GPU ran out of memory ({first_line(cause)}); lower engine.micro_batch_samples if it was the update, and"
            " engine.vllm_memory if it was vLLM",
        )
    if "Engine core initialization failed" in text:
        return JobEnd(
            "user", "vLLM did not start: the log tells why, often too high or low an engine.vllm_memory"
        )
    if number := error_number(cause):
        return JobEnd(
            "user", f"something could not be written ({os.strerror(number)}); make room and try again"
        )
    is_death = _DEATHS & {kind.__name__ for kind in type(cause).__mro__}
    if is_death or any(words in text for words in _LOST_RANK):
        process = re.search(r"class_name: (\w+).*?pid: (\d+)", text, re.DOTALL)  # where Ray names it
        who = f"{process[1]} (process {process[2]})" if process else first_line(cause)
        return JobEnd("worker", f"a process of the job died, often for want of memory: {who}")
    return JobEnd("bug", f"{type(cause).__name__}: {first_line(cause)}")


def main() -> None:
    """Run as a program."""
    if parent := os.environ.get(LEASH):
        end_with(int(parent))
    end = run(Path(sys.argv[1]), sys.argv[2:])
    raise SystemExit(0 if end.kind in ("finished", "stopped") else 1)


if __name__ == "__main__":
    main()
