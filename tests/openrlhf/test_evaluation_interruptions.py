"""`olr evaluate` on vLLM, in its process and behind its server: killed or stopped, it ends with the same bytes."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from cases import each

from olr_cli.engines.models import policy_path

POLICY = str(policy_path("addition-easier"))
# Few sequences at a time, so that there is time to stop it; both benchmarks are in one pool.
WORDS = [
    "--benchmarks",
    "arithmetic,arithmetic:subtraction",
    "--samples",
    "2",
    "--max-new-tokens",
    "12",
]
ENGINE = ["builtin:addition-easier", "--backend", "vllm", "--vllm", "max_num_seqs=4"]


def evaluation(where, out, *words):
    command = [
        sys.executable,
        "-m",
        "olr_cli",
        "evaluate",
        *words,
        *WORDS,
        "--out",
        str(out),
    ]
    with (where / f"{out.name}.log").open("a") as log:
        return subprocess.Popen(command, cwd=where, stdout=log, stderr=log)


def finished(where, out, *words):
    assert evaluation(where, out, *words).wait(timeout=300) == 0, (
        where / f"{out.name}.log"
    ).read_text()
    files = [out / "scores.json", *sorted((out / "generations").iterdir())]
    return {file.name: file.read_bytes() for file in files}


def stopped(where, out, number, *words):
    """Stop an evaluation as soon as it has stored something more; returns its status."""
    before = set(out.glob("generations/*.parts/part-*"))
    process = evaluation(where, out, *words)
    while process.poll() is None and before.issuperset(
        out.glob("generations/*.parts/part-*")
    ):
        time.sleep(0.01)
    process.send_signal(number)
    status = process.wait(timeout=300)
    assert list(out.glob("generations/*.parts")), "it was done before it was stopped"
    return status


@pytest.fixture(scope="module")
def server():
    """VLLM's own server; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [
        "--port",
        str(port),
        "--dtype",
        "float32",
        "--enforce-eager",
        "--max-num-seqs",
        "4",
    ]
    command = [
        sys.executable,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        POLICY,
        *options,
    ]
    environment = os.environ | {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    process = subprocess.Popen(
        [*command, "--served-model-name", "adder", "--generation-config", "vllm"],
        env=environment,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            assert process.poll() is None, "the server has ended"
            try:
                urllib.request.urlopen(f"{url}/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.5)
        yield f"{url}/v1"
    finally:
        process.terminate()
        process.wait(timeout=60)


def test_vllm_in_the_process(tmp_path):
    words = [*ENGINE, "--temperature", "0"]
    assert stopped(tmp_path, tmp_path / "greedy", signal.SIGKILL, *words) == -signal.SIGKILL
    assert finished(tmp_path, tmp_path / "greedy", *words) == finished(
        tmp_path, tmp_path / "whole", *words
    )


def test_samples_with_seeds_of_their_own_go_on_too_however_often_they_are_stopped(tmp_path):
    words = [*ENGINE, "--seed-each"]
    for number in (signal.SIGINT, signal.SIGTERM):
        assert stopped(tmp_path, tmp_path / "stopped", number, *words) == 128 + number
    assert finished(tmp_path, tmp_path / "stopped", *words) == finished(
        tmp_path, tmp_path / "whole", *words
    )


def test_vllms_server(server, tmp_path):
    words = ["adder", "--url", server, "--temperature", "0", "--concurrency", "4"]
    stopped(tmp_path, tmp_path / "greedy", signal.SIGKILL, *words)
    stored = finished(tmp_path, tmp_path / "greedy", *words)
    assert stored == finished(tmp_path, tmp_path / "whole", *words)


@each(
    "words, told",
    (["other"], "has no model 'other'; it has adder"),
    (["adder", "--max-new-tokens", "100000"], "request fewer output tokens"),
)
def test_what_the_server_refuses_is_one_sentence(server, tmp_path, words, told):
    command = [sys.executable, "-m", "olr_cli", "evaluate", *words, "--url", server]
    ended = subprocess.run(
        [*command, "--benchmarks", "arithmetic", "--limit", "2", "--samples", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("Error: ") and told in ended.stderr
