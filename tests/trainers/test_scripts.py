"""The scripts of docs/trainers.md run as they stand there, in at most 30 lines each."""

import os
import re
import runpy
import shlex
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from forks import fork, status
from recorded import decisions
from samples import json_lines

from olr_cli.data.noise import inject
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.writers import write_prompts
from olr_cli.engines.models import policy_path

PAGE = (Path(__file__).parents[2] / "docs" / "trainers.md").read_text("utf-8")
SCRIPTS = {
    match[1]: match[0]
    for match in re.findall(
        r"```(?:python|bash)\n(# ([\w.]+).*?)```", PAGE, flags=re.DOTALL
    )
}
POLICY = policy_path("builtin:addition-easier")


def run(name, folder, *words):
    """Run a script in a folder as `python name words…` would; what it prints."""
    (folder / name).write_text(SCRIPTS[name])
    out = folder / "printed.txt"
    done = status(fork(_be_script, folder, name, [*map(str, words)], out))
    assert done == 0, out.read_text()[-3000:]
    return out.read_text()


def _be_script(folder, name, words, out):
    os.chdir(folder)
    os.environ["ACCELERATE_USE_CPU"] = "true"
    sys.argv = [name, *words]
    with out.open("w") as printed, redirect_stdout(printed), redirect_stderr(printed):
        try:
            runpy.run_path(name, run_name="__main__")
        except BaseException:
            traceback.print_exc()
            raise


@pytest.fixture
def noisy(tmp_path):
    prompts = inject(
        read_prompts("arithmetic", limit=16),
        type="active",
        ratio=0.5,
        seed=0,
        active_share=1,
    )
    write_prompts(prompts, tmp_path / "noisy.parquet")
    return tmp_path / "noisy.parquet"


def test_no_script_has_more_than_30_lines():
    assert SCRIPTS.keys() == {
        "accuracy_trl.py", "own_loop.py", "pairs.py", "supervisor.py", "train_trl.py", "train_verl.sh",
    }  # fmt: skip
    assert all(len(script.splitlines()) <= 30 for script in SCRIPTS.values())


@pytest.mark.slow
def test_supervisor_replaces_the_label(tmp_path):
    lines = run("supervisor.py", tmp_path).splitlines()
    assert lines == [
        "1 8 [0.0, 0.0, 1.0, 0.0]",
        "2 7 [1.0, 1.0, 1.0, 0.0]",
        "3 7 [1.0, 1.0, 1.0, 1.0]",
    ]


@pytest.mark.slow
def test_own_loop_trains_and_goes_on(tmp_path):
    pytest.importorskip("torch")
    rows = [
        {"prompt": f"{a}+{b}=", "answer": str(a + b)}
        for a in range(11, 14)
        for b in range(21, 24)
    ]
    json_lines(tmp_path / "data.jsonl", *rows)
    assert len(run("own_loop.py", tmp_path, POLICY, "data.jsonl").splitlines()) == 3
    run("own_loop.py", tmp_path, POLICY, "data.jsonl")
    assert decisions(tmp_path / "runs" / "own")["visit"].max() == 6


@pytest.mark.slow
def test_the_grader_alone_reads_pairs_and_trains_in_trl(tmp_path):
    assert run("pairs.py", tmp_path).splitlines() == ["True", "[True, True]"]
    pytest.importorskip("trl")
    rows = [
        {"prompt": f"{a}+11=", "solution": str(a + 11), "extractor": "reversed_digits"}
        for a in range(8)
    ]
    json_lines(tmp_path / "data.jsonl", *rows)
    assert "rewards/accuracy_reward/mean" in run(
        "accuracy_trl.py", tmp_path, POLICY, "data.jsonl"
    )


def test_trl_trains_and_goes_on(tmp_path, noisy):
    pytest.importorskip("trl")
    run("train_trl.py", tmp_path, POLICY, noisy)
    assert decisions(tmp_path / "runs" / "trl")["visit"].max() == 3
    run("train_trl.py", tmp_path, POLICY, noisy)  # nothing is left to do
    assert decisions(tmp_path / "runs" / "trl")["visit"].max() == 3


def test_verls_settings_are_those_of_its_configuration(tmp_path, noisy):
    pytest.importorskip("verl")
    from hydra import compose, initialize_config_module

    from olr_cli.trainers.verl import (
        require_enough_workers,
        require_supported,
        run_path,
        trainer_settings,
    )

    command = shlex.split(SCRIPTS["train_verl.sh"].partition("\n")[2])
    values = {"$1": str(POLICY), "$2": str(noisy), "$3": str(noisy)}
    settings = [
        re.sub(r"\$\d", lambda place: values[place[0]], word)
        for word in command
        if "=" in word
    ]
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=settings)
    require_supported(config)
    require_enough_workers(config)
    assert run_path(config) == Path("runs/verl")
    train = trainer_settings(config)["train"]
    assert (
        train["rollouts_per_prompt"],
        train["clip_high"],
        train["top_p"],
        train["top_k"],
    ) == (
        8,
        0.2,
        1,
        None,
    )
