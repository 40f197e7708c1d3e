"""A run that may only be read: what reads it works with another place for what it writes, the rest says a sentence."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TOLD = ("the file system is read-only", "you may not write there")


@pytest.fixture(scope="module")
def read_only(workshop):
    """A finished run, one that was stopped, and an evaluation, where nothing can be written."""
    place, source = workshop.folder / "read-only", workshop.folder / "source"
    shutil.copytree(workshop.whole("train"), source / "run")
    shutil.copytree(workshop.whole("evaluate"), source / "evaluation")
    stopped = workshop.start("train", source / "stopped")
    while not (source / "stopped" / "checkpoints" / "step-000003").exists():
        assert Path(f"/proc/{stopped.pid}").exists(), stopped.err
    stopped.signal(9)
    assert stopped.wait() == -9
    place.mkdir()
    if os.geteuid() == 0:
        bound = subprocess.run(
            ["mount", "--bind", str(source), str(place)], check=False, capture_output=True
        )
        if bound.returncode:
            pytest.skip("this system does not let us mount a folder read-only")
        subprocess.run(["mount", "-o", "remount,ro,bind", str(place)], check=True)
        yield place
        subprocess.run(["umount", str(place)], check=True)
    else:
        subprocess.run(["chmod", "-R", "a-w", str(source)], check=True)
        yield source
        subprocess.run(["chmod", "-R", "u+w", str(source)], check=True)


def test_a_read_only_run_can_be_analysed_audited_replayed_evaluated_and_sampled_from(
    workshop, read_only, is_long
):
    run, out = read_only / "run", workshop.place("of-read-only")
    noise = [
        "inject-noise",
        "--dataset",
        "train.jsonl",
        "--type",
        "active",
        "--ratio",
        "0.5",
    ]
    evaluated = out / "evaluation" / "step-000010"
    small = ["--samples", "4", "--limit", "10", "--max-new-tokens", "6"]
    commands = [
        ["replay", run, "--out", out / "replay.parquet"],
        ["evaluate", run, *small, "--out", out / "evaluation"],
    ]
    if is_long:
        commands += [
            ["analyze", run, "--table", "arms"],
            ["analyze", run, "--figure", "dynamics", "--out", out / "figures"],
            ["audit", run, "--out", out / "audit.parquet"],
            ["analyze", run, "--report", "--out", out / "report"],
            ["audit", run, "--json"],
            ["replay", run, "--json"],
            [
                "rollouts",
                run,
                "train.jsonl",
                "--visits",
                "1",
                *small[:2],
                "--run-dir",
                out / "rollouts",
            ],
            [*noise, "--rollouts", run, "--out", out / "noisy.jsonl"],
            ["evaluate", run, *small, "--out", out / "evaluation", "--compare", evaluated],
            # It is finished: nothing to do
            [
                "train",
                run / "recipe.yaml",
                "--run-dir",
                run,
                "--resume",
            ],
        ]
    for words in commands:
        status, ended = workshop.olr(*words)
        assert status == 0, (words, ended.err)


def test_what_would_write_into_a_read_only_run_says_so_in_a_sentence_and_how_else(
    workshop, read_only, is_long
):
    run, stopped = read_only / "run", read_only / "stopped"
    commands = [
        (["replay", run], "choose another folder"),
        (
            ["train", stopped / "recipe.yaml", "--run-dir", stopped, "--resume"],
            "choose another folder",
        ),
    ]
    if is_long:
        commands += [
            (["analyze", run, "--report"], "choose another folder"),
            (["analyze", run, "--figure", "dynamics"], "choose another folder"),
            (["audit", run, "--out", read_only / "table.csv"], "choose another"),
            (["evaluate", run, "--limit", "10"], "choose another folder"),
            (
                ["train", "tiny.yaml", "--run-dir", read_only / "new"],
                "choose another folder",
            ),
            (["regrade", read_only / "evaluation"], "choose another folder"),
            (workshop.words("evaluate", read_only / "evaluation"), "choose another folder"),
        ]
    for words, remedy in commands:
        status, ended = workshop.olr(*words)
        said = ended.err.splitlines()[-1]
        assert (status, said.startswith("Error: "), remedy in said) == (2, True, True), (
            words,
            ended.err,
        )
        assert any(told in said for told in TOLD), said
        assert "Traceback" not in ended.err
