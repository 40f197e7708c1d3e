"""What a user sees, and what stays, when something in the stack breaks."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
import torch.distributed
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayTaskError
from stack import SMALL, Train, metrics, processes_of

from olr_cli.engines.openrlhf.job import end_of
from olr_cli.runs.store import scan_labels, scan_rollouts, stored_steps

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
        "PYTHONPATH": os.pathsep.join(filter(None, [str(tmp_path / "site"), os.environ.get("PYTHONPATH")])),
        "OLR_TEST_RUN": str(tmp_path / "run"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    port, dashboard = _free_port(), _free_port()
    ray = Path(sys.executable).with_name("ray")
    words = [ray, "start", "--head", f"--port={port}", "--num-cpus=3", "--num-gpus=1"]
    words += ["--include-dashboard=true", f"--dashboard-port={dashboard}", f"--temp-dir={_short_folder()}"]
    words.append(f"--dashboard-agent-listen-port={_free_port()}")
    subprocess.run(words, check=True, env=environment, capture_output=True)
    yield f"http://127.0.0.1:{dashboard}"
    for number in processes_of(tmp_path / "run"):
        os.kill(number, signal.SIGKILL)


def test_a_submitted_job_goes_on_after_verification_timeouts_and_stops_when_a_reward_raises(
    tmp_path: Path, cluster: str
) -> None:
    run, data = tmp_path / "run", tmp_path / "data.jsonl"
    rows = [{"question": f"{n}+{n}=", "answer": str(2 * n)} for n in range(101, 181)]
    rows[5]["answer"] = rows[50]["answer"] = r"\sum_{k=1}^{5000} \frac{1}{k^2+1}"  # too much work
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
    assert re.search(r"ArithmeticError: no reward today; the log is \S+; .*starts anew", train.output)
    assert "Traceback" not in train.output
    assert stored_steps(run) == [1, 2]
    assert len(scan_labels(run).collect()) == 80
    rollouts = scan_rollouts(run).filter(~pl.col("truncated")).collect()
    # Ended by a digit or by the end token, neither of which is in the text.
    assert (rollouts["tokens"] == rollouts["response"].str.len_chars() + 1).all()
    assert not rollouts["response"].str.contains("7").any()
    assert rollouts["response"].str.len_chars().n_unique() > 3
    lines = metrics(run)
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert sum(line["rollout/verification_timeouts"] for line in lines[1:]) >= 1
    assert "no reward today" in (run / "openrlhf" / "log.txt").read_text()


GLOO = "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:43210"
NCCL = (
    "NCCL error in: ProcessGroupNCCL.cpp:3384, remote process exited or a network error\nncclRemoteError: …"
)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (OutOfMemoryError("1 worker(s) were killed (node low on memory)"), "worker", "not a GPU's"),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
            "user",
            "a GPU ran out of memory",
        ),
        (ActorDiedError(), "worker", "a process of the job died"),
        (
            RuntimeError(GLOO),
            "worker",
            "a process of the job died, often for want of memory: [../third_party",
        ),
        (torch.distributed.DistBackendError(NCCL), "worker", "a process of the job died"),
        (RuntimeError("no reward today"), "bug", "RuntimeError: no reward today"),
    ],
)
def test_how_the_job_ended_is_told_by_what_ended_it(error: Exception, kind: str, said: str) -> None:
    outcome = end_of(RayTaskError("train", "a traceback", error))
    assert outcome.kind == kind
    assert said in outcome.reason


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _short_folder() -> str:
    """Ray's sockets have names of at most 107 characters."""
    import tempfile

    return tempfile.mkdtemp(prefix="ray", dir="/tmp")
