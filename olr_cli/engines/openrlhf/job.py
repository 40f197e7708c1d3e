"""The job: OpenRLHF's own command line, in a separate process, with our classes in place of four of its own.

    python -m olr_cli.engines.openrlhf.job RUN_DIR --actor.model_name_or_path … (OpenRLHF's flags)

`olr train` starts it; `olr train --dry-run` prints it.
"""

from __future__ import annotations

import math
import os
import runpy
import shutil
import sys
import time
import traceback
from pathlib import Path
from threading import Thread
from typing import Any

from olr_cli.data.hub import hub_answers
from olr_cli.engines.models import model_location
from olr_cli.engines.openrlhf.bridges import bridge_process, environment
from olr_cli.engines.openrlhf.checks import gpus_needed
from olr_cli.engines.openrlhf.cpu_weights import WORKER_EXTENSION
from olr_cli.engines.openrlhf.flags import cluster_address
from olr_cli.engines.openrlhf.job_end import Process, cause_of, end_of
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
from olr_cli.errors import UserError
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.sections import OpenRlhfEngine
from olr_cli.runs.checkpoints import checkpoint_path, checkpoint_steps
from olr_cli.runs.directory import read_recipe
from olr_cli.supervision import compose

_ANSWER_SECONDS = 10
"""Seconds to wait for Ray to say which actors have died."""

_LEAST_AT_ONCE, _MOST_AT_ONCE = 128, 512
"""Sequences at a time: vLLM's own number, and the largest number for which it records CUDA graphs."""

_PROMPT_TOKENS_AT_ONCE = 8192
"""vLLM's default for offline use of cards below 70 GiB and of the A100, where vLLM found more to be slower."""

_SETTLE_SECONDS = 2
"""Seconds until Ray knows of a death and the job's log holds the last words of the process."""


def run(run_path: Path, flags: list[str]) -> JobEnd:
    """Train in this process; return how the training ended, and record that in the run directory.

    `flags` are OpenRLHF's command-line arguments. An error of the training is not raised; the result describes it.
    """
    JobFiles(run_path).enter_working_folder()
    log = JobFiles(run_path).log
    begins = log.stat().st_size if log.exists() else 0  # before it are earlier attempts
    try:
        _train(read_recipe(run_path), run_path, flags)
        end = JobEnd("finished")
    except Exception as error:
        # A stop or a divergence is no failure. For every other end, the log needs the traceback.
        if not isinstance(cause_of(error), JobStopped | Diverged):
            traceback.print_exc()
            time.sleep(_SETTLE_SECONDS)
        end = end_of(error, _dead_actors(), _rest_of(log, begins))
    shutil.rmtree(JobFiles(run_path).universal, ignore_errors=True)
    try:
        JobFiles(run_path).write_end(end)
        # Say why now: Ray takes many seconds to end.
        if end.kind in ("user", "worker", "bug"):
            JobFiles(run_path).announce(f"The job ends: {end.reason}.")
    except UserError as error:  # the disk is full, but the log may still take a line
        print(f"{end.reason}; {error}", flush=True)
    return end


def _train(recipe: Recipe, run_path: Path, flags: list[str]) -> None:
    """Prepare this process and Ray, replace OpenRLHF's classes by ours, and run OpenRLHF's command line to its end.

    `flags` are the command line's arguments. If they ask for a universal checkpoint, which any number of GPUs can load,
    the newest checkpoint is first converted to a universal one.
    """
    engine = engine_section(recipe, OpenRlhfEngine)
    variables = _variables(recipe)
    os.environ.update(variables)
    bridge_process()
    if f"--{UNIVERSAL}" in flags:
        newest = checkpoint_path(run_path, max(checkpoint_steps(run_path)))
        put_together(newest, JobFiles(run_path).universal)
    import ray

    runtime = {
        "env_vars": variables,
        # Ray calls this function, by its name, in every worker before anything else.
        "worker_process_setup_hook": f"{bridge_process.__module__}.{bridge_process.__qualname__}",
    }
    wanted = gpus_needed(recipe)
    address = cluster_address(recipe)
    if address is None:
        # The CPU rehearsal's GPUs are logical. Two more CPUs are for the controller and for Ray's own tasks.
        logical = (
            {"num_gpus": wanted, "num_cpus": wanted + 2} if engine.device == "cpu" else {}
        )
        # Without `local`, Ray would join any cluster that another user has started on this machine.
        ray.init(address="local", runtime_env=runtime, include_dashboard=False, **logical)
    else:
        ray.init(address=address, runtime_env=runtime)
    _check_room(wanted, None if address is None else JobFiles(run_path))
    _put_ours_in_place(recipe, run_path, ray.get_runtime_context().get_node_id())
    sys.argv = ["train_ppo_ray", *flags]
    # no user's text: this runs OpenRLHF's own command line
    runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__", alter_sys=True)


def _variables(recipe: Recipe) -> dict[str, str]:
    """Return the environment variables to set in every process of the job, as name -> value.

    If the model has to come from the Hugging Face hub, and the hub does not answer, HF_HUB_OFFLINE is set too. No
    process then waits for the hub.
    """
    variables = environment(
        trusts_code=recipe.model.trust_remote_code,
        device=engine_section(recipe, OpenRlhfEngine).device,
    )
    if not Path(model_location(recipe.model.path)).is_dir() and not hub_answers():
        # Otherwise each process waits half a minute for each file.
        variables["HF_HUB_OFFLINE"] = "1"
    return variables


def _check_room(wanted: int, files: JobFiles | None) -> None:
    """Raise `UserError` if Ray has fewer than `wanted` GPUs or fewer than `wanted` CPUs in total, free or not.

    If there are enough but too few are free, OpenRLHF will wait silently, so this function announces the wait through
    `files`. If the job has started its own Ray, which no other job can use, `files` is None and nothing is announced.
    """
    import ray

    for resource in ("GPU", "CPU"):
        present = int(ray.cluster_resources().get(resource, 0))
        if present < wanted:
            raise UserError(
                f"the recipe needs {wanted} {resource}s and Ray's cluster has {present}",
                "add nodes, or ask for fewer",
            )
        free = int(ray.available_resources().get(resource, 0))
        if files is not None and free < wanted:
            files.announce(
                f"Other jobs hold {present - free} of the {present} {resource}s of Ray's cluster; this one waits"
                f" for {wanted}."
            )


def _put_ours_in_place(recipe: Recipe, run_path: Path, node_id: str) -> None:
    """Replace the classes of OpenRLHF's Ray actors by ours: trainer, policy, reference model, and vLLM's engines.

    Call this function before OpenRLHF's command line runs and imports the classes. `node_id` is Ray's id of this node,
    on which the trainer has to run.
    """
    from openrlhf.trainer import ppo_trainer
    from openrlhf.trainer.ray import launcher, ppo_actor, vllm_engine

    from olr_cli.engines.openrlhf.actor import policy_actor, reference_actor
    from olr_cli.engines.openrlhf.trainer import trainer_actor
    from olr_cli.engines.openrlhf.vllm_actor import rollout_actor

    engine_arguments: dict[str, Any] = {
        "trust_remote_code": recipe.model.trust_remote_code,
        "max_num_seqs": sequences_at_once(recipe),
        "max_num_batched_tokens": _PROMPT_TOKENS_AT_ONCE,
    }
    if engine_section(recipe, OpenRlhfEngine).device == "cpu":
        engine_arguments["worker_extension_cls"] = WORKER_EXTENSION
    # The command line imports these names only when it runs, so they can be replaced before.
    ppo_trainer.PPOTrainer = trainer_actor(run_path, node_id)
    ppo_actor.PolicyModelActor = policy_actor(
        recipe.method.smoothing, policy_threads(recipe)
    )
    launcher.ReferenceModelActor = reference_actor()
    vllm_engine.RolloutRayActor = rollout_actor(
        engine_arguments, recipe.train.stop, ChatFormat.of(recipe)
    )


def sequences_at_once(recipe: Recipe) -> int:
    """Return how many sequences each vLLM engine may sample at once (`max_num_seqs`).

    This is one engine's share of a step's rollouts, but at least 128, vLLM's default, and at most 512, the largest
    number for which vLLM records CUDA graphs. If a GPU lacks the memory for the keys and values of so many sequences,
    vLLM lets some wait.
    """
    rollouts = recipe.train.prompts_per_step * recipe.train.rollouts_per_prompt
    views = len(compose(recipe.method).views)
    share = math.ceil(rollouts * views / engine_section(recipe, OpenRlhfEngine).engines)
    return min(max(share, _LEAST_AT_ONCE), _MOST_AT_ONCE)


def policy_threads(recipe: Recipe) -> int:
    """Return the number of CPU threads of each policy process.

    Adam runs in these threads if the flag ds.adam_offload is set. The first rule that applies decides:

    1. If OMP_NUM_THREADS is above 1, return its value. A value of 1 does not count, because Ray's job server sets it
       unasked.
    2. On a CPU, return 1.
    3. On GPUs, return a node's cores divided by `engine.gpus_per_node`. If nodes differ, the one with the fewest cores
       counts.
    """
    import ray

    engine, threads = (
        engine_section(recipe, OpenRlhfEngine),
        int(os.environ.get("OMP_NUM_THREADS", 1)),
    )
    if engine.device == "cpu" or threads > 1:
        return threads
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    cores = min(int(has["CPU"]) for has in resources if has.get("GPU") and has.get("CPU"))
    return max(1, cores // engine.gpus_per_node)


def _dead_actors() -> list[Process]:
    """Return this job's Ray actors that have died, the first death first; wait up to 10 seconds for Ray's answer.

    If Ray was not started or does not answer in time, the list is empty.
    """
    import ray

    if not ray.is_initialized():
        return []
    dead: list[Process] = []
    # Ask in a thread: Ray waits for a minute if its head has died. An exception there only goes to the log.
    asking = Thread(target=lambda: dead.extend(_deaths()), daemon=True)
    asking.start()
    asking.join(_ANSWER_SECONDS)
    return dead


def _deaths() -> list[Process]:
    """Ask Ray which of this job's actors have died; return them, the first death first.

    This may block for a minute if Ray itself has died, so `_dead_actors` calls it in a thread.
    """
    import ray
    from ray._private.state import actors

    job = ray.get_runtime_context().get_job_id()  # other jobs may share the cluster
    # Ray's public list of actors asks its dashboard. A Ray of the job's own has none, because other users of the
    # machine could use it.
    dead = [
        actor for actor in actors(actor_state_name="DEAD").values() if actor["JobID"] == job
    ]
    dead.sort(key=lambda actor: actor["EndTime"])
    return [Process(actor["ActorClassName"], actor["Pid"]) for actor in dead]


def _rest_of(log: Path, start: int) -> str:
    """Return a log's text from byte `start` on; empty if there is no log."""
    if not log.exists():  # a user runs the command line that a dry run prints
        return ""
    with log.open("rb") as file:
        file.seek(start)
        return file.read().decode(errors="replace")


def main() -> None:
    """Run the job of the run directory that the command line names, with the OpenRLHF flags that follow.

    Exit with 0 if the job finished or was stopped, and with 1 otherwise. If an olr command started the job, the job
    also ends when that command is gone.
    """
    # A job that a user has started by hand has no command to follow.
    if parent := os.environ.get(LEASH):
        end_with(int(parent))
    end = run(Path(sys.argv[1]), sys.argv[2:])
    raise SystemExit(0 if end.kind in ("finished", "stopped") else 1)


if __name__ == "__main__":
    main()
