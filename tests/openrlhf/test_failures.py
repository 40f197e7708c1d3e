"""What a user sees, and what stays, when something in the stack breaks."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import polars as pl
import pytest
import torch.distributed
from cases import each
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    OutOfMemoryError,
    RayTaskError,
)
from stack import SMALL, Train, metrics, processes_of

from olr_cli.engines.openrlhf import job
from olr_cli.engines.openrlhf.job_end import Process, end_of
from olr_cli.engines.openrlhf.job_files import JobEnd, JobFiles
from olr_cli.errors import UserError
from olr_cli.recipe.layers import validate
from olr_cli.runs.shards import stored_steps
from olr_cli.runs.store import scan_labels, scan_rollouts

RAISES_AT_THE_THIRD_STEP = """
from olr_cli.engines.openrlhf.bridges import around_import

def fails_later(module):
    yield
    supervise = module.Supervisor.supervise
    def fails(self, step, *measure):
        if step.number == 3:
            raise ArithmeticError("no reward today")
        return supervise(self, step, *measure)
    module.Supervisor.supervise = fails

around_import("olr_cli.supervision.supervisor", fails_later)
"""
"""A sitecustomize that breaks the rewards in whichever process makes them."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A running Ray cluster of one node; the address of its job server."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(RAISES_AT_THE_THIRD_STEP)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(tmp_path / "site"), os.environ.get("PYTHONPATH")])
        ),
        "OLR_TEST_RUN": str(tmp_path / "run"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    port, dashboard = _free_port(), _free_port()
    ray = Path(sys.executable).with_name("ray")
    words = [ray, "start", "--head", f"--port={port}", "--num-cpus=3", "--num-gpus=1"]
    words += [
        "--include-dashboard=true",
        f"--dashboard-port={dashboard}",
        f"--temp-dir={_short_folder()}",
    ]
    words.append(f"--dashboard-agent-listen-port={_free_port()}")
    subprocess.run(words, check=True, env=environment, capture_output=True)
    yield f"http://127.0.0.1:{dashboard}"
    for number in processes_of(tmp_path / "run"):
        os.kill(number, signal.SIGKILL)


def test_a_submitted_job_goes_on_after_verification_timeouts_and_stops_when_a_reward_raises(
    tmp_path, cluster
):
    run, data = tmp_path / "run", tmp_path / "data.jsonl"
    rows = [{"question": f"{n}+{n}=", "answer": str(2 * n)} for n in range(101, 181)]
    rows[5]["answer"] = rows[50]["answer"] = (
        r"\sum_{k=1}^{5000} \frac{1}{k^2+1}"  # too much work
    )
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = (
        *(setting for setting in SMALL if not setting.startswith("noise.")),
        "data.train=data.jsonl",  # relative to where the command runs, not to where Ray was started
        "data.limit=null",
        "data.extractor=text",
        "noise=null",
        'train.stop=["7"]',
    )
    ray = str(Path(sys.executable).with_name("ray"))
    submits = (ray, "job", "submit", "--address", cluster, "--", "env", "-C", str(tmp_path))
    train = Train(run, settings, launcher=submits)
    assert train.end() == 1
    assert re.search(
        r"ArithmeticError: no reward today; the log is \S+; .*starts anew", train.output
    )
    assert "Traceback" not in train.output
    assert stored_steps(run) == [1, 2]
    assert len(scan_labels(run).collect()) == 80
    rollouts = scan_rollouts(run).filter(~pl.col("truncated")).collect()
    # Ended by a digit or by the end token, neither of which is in the text.
    lengths = rollouts["response"].str.len_chars()
    assert (rollouts["tokens"] == lengths + 1).all()
    assert not rollouts["response"].str.contains("7").any()
    # Which lengths there are is up to what the policy draws
    assert lengths.min() < lengths.max()
    lines = metrics(run)
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert sum(line["rollout/verification_timeouts"] for line in lines[1:]) >= 1
    assert "no reward today" in (run / "openrlhf" / "log.txt").read_text()


HAS_ANOTHER_EXTENSION = """
from olr_cli.engines.openrlhf.bridges import around_import

def with_another(module):
    yield
    module.WORKER_EXTENSION = "extension_that_raises.Extension"

around_import("olr_cli.engines.openrlhf.cpu_weights", with_another)
"""


def test_a_vllm_that_dies_while_it_starts_ends_the_run_before_models_are_made_and_its_error_is_told(
    tmp_path,
):
    (tmp_path / "sitecustomize.py").write_text(HAS_ANOTHER_EXTENSION)
    (tmp_path / "extension_that_raises.py").write_text(
        "raise OSError(9, 'Bad file descriptor')\n"
    )
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    train = Train(tmp_path / "run", environment={"PYTHONPATH": path})
    assert train.end() == 2
    assert re.search(
        r"engine\.vllm_memory: \w+ \(process \d+\) died of OSError: \[Errno 9\] Bad file descriptor; the log is",
        train.output,
    )
    log = (tmp_path / "run" / "openrlhf" / "log.txt").read_text()
    assert "train_ppo_ray.py" in log[log.index("Traceback") :]
    assert "Qwen3DecoderLayer" not in log  # OpenRLHF prints each model that it has made


GLOO = "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:43210"
NCCL = "NCCL error in: ProcessGroupNCCL.cpp:3384, remote process exited or a network error\nncclRemoteError: …"


@each(
    "error, kind, said",
    (
        OutOfMemoryError("1 worker(s) were killed (node low on memory)"),
        "worker",
        "not a GPU's",
    ),
    (
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        "user",
        "a GPU ran out of memory",
    ),
    (ActorDiedError(), "worker", "a process of the job died"),
    (RuntimeError(GLOO), "worker", "a process of the job died, often for want of memory"),
    (torch.distributed.DistBackendError(NCCL), "worker", "a process of the job died"),
    (RuntimeError("no reward today"), "bug", "RuntimeError: no reward today"),
    (
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        "user",
        "the disk is full; make room",
    ),
    (
        PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/x"),
        "user",
        "'/x'): you may not",
    ),
    (
        OSError(errno.EBADF, os.strerror(errno.EBADF)),
        "bug",
        "OSError: [Errno 9] Bad file descriptor",
    ),
    (
        FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/x/nvcc"),
        "bug",
        "'/x/nvcc'",
    ),
    (TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)), "bug", "timed out"),
)
def test_how_the_job_ended_is_told_by_what_ended_it(error, kind, said):
    outcome = end_of(RayTaskError("train", "a traceback", error))
    assert outcome.kind == kind
    assert said in outcome.reason


def test_a_full_disk_behind_another_libraries_error_is_told_by_the_traceback_that_ray_has_kept():
    traceback = "OSError: [Errno 28] No space left on device\n\nDuring handling of the above exception, another …"
    writer = RuntimeError("PytorchStreamWriter failed writing file data/0")
    outcome = end_of(RayTaskError("save_checkpoint_to", traceback, writer))
    assert (outcome.kind, "the disk is full" in outcome.reason) == ("user", True)


VLLM = Process("RolloutActor", 17)
LOG = """\
\x1b[36m(Trainer pid=16)\x1b[0m RuntimeError: of somebody else
\x1b[36m(RolloutActor pid=17, ip=10.0.0.1)\x1b[0m INFO Using max model len 64
\x1b[36m(RolloutActor pid=17)\x1b[0m (EngineCore pid=20) ERROR 11-27 04:25:51 [core.py:9] Traceback (most …):
\x1b[36m(RolloutActor pid=17)\x1b[0m (EngineCore pid=20) ERROR 11-27 04:25:51 [core.py:9]     raise OSError(9, "Bad")
\x1b[36m(RolloutActor pid=17)\x1b[0m (EngineCore pid=20) ERROR 11-27 04:25:51 [core.py:9] OSError: [Errno 9] Bad.
\x1b[36m(RolloutActor pid=17)\x1b[0m RuntimeError: Engine core initialization failed. See root cause above.
\x1b[36m(PolicyActor pid=18)\x1b[0m step 3
\x1b[36m(PolicyActor pid=18)\x1b[0m\x20
"""


def test_a_death_is_told_by_the_process_that_died_first_and_what_it_said_last():
    follows = RayTaskError("train", "a traceback", OSError(errno.EPIPE, "Broken pipe"))
    assert end_of(follows, [VLLM, Process("PolicyActor", 18)], LOG) == JobEnd(
        "worker",
        "vLLM did not start, often for too high or low an engine.vllm_memory: RolloutActor (process 17) died of"
        " OSError: [Errno 9] Bad",
    )
    killed = "PolicyActor (process 18) was killed, often for want of memory"
    assert (
        end_of(follows, [Process("PolicyActor", 18), VLLM], LOG).reason
        == f"{killed}; its last line: step 3"
    )
    assert end_of(follows, [Process("PolicyActor", 18)]).reason == killed


def printed(*lines):
    """The job's log where an actor has printed these lines."""
    return "".join(f"\x1b[36m(RolloutActor pid=17)\x1b[0m {line}\n" for line in lines)


CREATION = "Exception raised in creation task: The actor died because of an error raised in its creation task, ray::…"
WORKER = "(EngineCore pid=20) ERROR 11-28 04:25:51 [executor.py:314] Worker proc VllmWorker-0 died unexpectedly"
DEAD = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for …"
KILLED = "was killed, often for want of memory"


@each(
    "lines, sentence",
    (
        [CREATION, "ValueError: Free memory on device cuda:0 is less"],
        "RolloutActor (process 17) died of ValueError: Free memory on device cuda:0 is less",
    ),
    (
        [
            f"{WORKER} (exit code: -9), shutting down executor.",
            "RuntimeError: cancelled",
            DEAD,
        ],
        f"vLLM's process VllmWorker-0 {KILLED}",
    ),
    (
        [
            f"{WORKER} (exit code: None), shutting down executor.",
            "RuntimeError: cancelled",
            DEAD,
        ],
        f"vLLM's process VllmWorker-0 {KILLED}",
    ),
    # It has printed its own exception
    (
        ["KeyError: 'k_scale'", f"{WORKER} (exit code: None), shutting down", DEAD],
        "RolloutActor (process 17) died of KeyError: 'k_scale'",
    ),
    (
        ["KeyError: 'k_scale'", f"{WORKER} (exit code: 1), shutting down", DEAD],
        "RolloutActor (process 17) died of KeyError: 'k_scale'",
    ),
    ([DEAD], f"vLLM's process EngineCore {KILLED}"),
    (
        ["step 3", "[WARNING] [parallel.py:9] MPU is not provided"],
        f"RolloutActor (process 17) {KILLED}; its last line: step 3",
    ),
)
def test_the_cause_comes_before_what_others_say_of_it(lines, sentence):
    follows = RayTaskError("train", "a traceback", ActorDiedError())
    assert end_of(follows, [VLLM], printed(*lines)) == JobEnd("worker", sentence)


def test_processes_that_died_with_their_nodes_ray_are_not_said_to_be_killed():
    gone = "\x1b[33m(raylet)\x1b[0m Raylet is terminated. Termination is unexpected. Possible reasons …\n"
    unavailable = RayTaskError(
        "fit", "a traceback", ActorUnavailableError("RpcError: Socket closed", b"0" * 16)
    )
    for dead in ([], [VLLM]):  # Ray's head notices after seconds
        reason = end_of(unavailable, dead, gone + printed("step 3")).reason
        assert reason.startswith("Ray's own process on a node (raylet) died")
    long_ago = gone + "step\n" * 100_000 + printed("step 3")
    assert end_of(unavailable, [VLLM], long_ago).reason.endswith("step 3")


def test_a_ray_that_does_not_answer_does_not_keep_the_job_from_saying_how_it_ended(
    monkeypatch,
):
    is_asked, is_over = Event(), Event()

    def never_answers():
        is_asked.set()
        is_over.wait()
        return [VLLM]

    monkeypatch.setattr("ray.is_initialized", lambda: True)
    monkeypatch.setattr(job, "_deaths", never_answers)
    monkeypatch.setattr(job, "_ANSWER_SECONDS", 0.01)
    assert job._dead_actors() == []
    assert is_asked.wait()
    is_over.set()


def test_a_job_asks_the_hub_for_its_model_only_if_it_answers(monkeypatch):
    asked = []
    monkeypatch.setattr(job, "hub_answers", lambda: asked.append(1) or len(asked) == 1)
    toy, of_hub = (
        validate({"model": {"path": path}, "engine": {"name": "openrlhf"}}, "test")
        for path in ("builtin:addition-easier", "some/model")
    )
    assert "HF_HUB_OFFLINE" not in job._variables(toy) and not asked
    assert "HF_HUB_OFFLINE" not in job._variables(of_hub)
    assert job._variables(of_hub)["HF_HUB_OFFLINE"] == "1"


@each(
    "prompts, method, engines, sequences",
    (2, "grpo", 1, 128),  # 16 rollouts
    (160, "grpo", 8, 160),
    (160, "grpo", 1, 512),  # of 1,280
    (160, "co_reward", 8, 320),  # two views
    (161, "grpo", 8, 161),
)
def test_an_engine_of_vllm_samples_its_share_of_a_step_at_once(
    prompts, method, engines, sequences
):
    recipe = validate(
        {
            "train": {"prompts_per_step": prompts, "rollouts_per_prompt": 8},
            "method": {"name": method},
            "engine": {"name": "openrlhf", "vllm_engines": engines},
        },
        "test",
    )
    assert job.sequences_at_once(recipe) == sequences


def test_a_run_that_waits_for_what_other_jobs_hold_says_so(tmp_path, monkeypatch):
    files = JobFiles(tmp_path)
    files.folder.mkdir()
    present, free = {"GPU": 8.0, "CPU": 64.0}, {"GPU": 2.0, "CPU": 8.5}
    monkeypatch.setattr("ray.cluster_resources", lambda: present)
    monkeypatch.setattr("ray.available_resources", lambda: free)
    job._check_room(2, files)
    job._check_room(8, None)  # a Ray of its own has no others
    assert files.announcements() == []
    job._check_room(8, files)
    assert files.announcements() == [
        "Other jobs hold 6 of the 8 GPUs of Ray's cluster; this one waits for 8."
    ]
    with pytest.raises(UserError, match="needs 9 GPUs and Ray's cluster has 8"):
        job._check_room(9, files)


def test_a_mistake_of_the_user_that_an_actor_finds_while_it_is_made_is_told_as_such():
    log = "(Trainer pid=16) olr_cli.errors.UserError: the data are others than the run's; give it its own\n"
    outcome = end_of(
        RayTaskError("train", "a traceback", ActorDiedError()),
        [Process("Trainer", 16)],
        log,
    )
    assert outcome.reason == "the data are others than the run's; give it its own"


def test_where_ray_has_noted_no_death_the_process_is_the_one_that_its_error_names():
    class EngineDeadError(Exception):
        """As vLLM has one: its actor lives on."""

    inner = RayTaskError(
        "generate_responses",
        "…ray::RolloutActor.generate_responses() (pid=17, ip=::1)…",
        None,
    )
    inner.cause = EngineDeadError("EngineCore encountered an issue")
    outer = RayTaskError(
        "fit", f"ray::Trainer.fit() (pid=16, ip=::1)\n{inner.traceback_str}", inner
    )
    assert (
        "RolloutActor (process 17) died of OSError: [Errno 9] Bad"
        in end_of(outer, log=LOG).reason
    )


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _short_folder() -> str:
    """Ray's sockets have names of at most 107 characters."""
    import tempfile

    return tempfile.mkdtemp(prefix="ray", dir="/tmp")
