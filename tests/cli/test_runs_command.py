"""`olr runs` lists what is there."""

import json
import shutil

import pytest
from cases import each
from commands import olr
from histories import write_history

from olr_cli.runs.directory import read_manifest, write_manifest
from olr_cli.runs.locks import held
from olr_cli.runs.store import scan_labels
from olr_cli.supervision.metrics import label_metrics

STATUSES = {
    "done": "finished",
    "stopped": "stopped",
    "sweep/killed": "crashed",
    "torn": "damaged",
}


def entries(*words):
    return json.loads(olr("runs", *words, "--json").stdout)["runs"]


@pytest.fixture
def runs(here):
    """Runs in every state, in the folder `runs` of the current directory."""
    folder = here / "runs"
    for number, (name, status) in enumerate(
        [
            ("done", "finished"),
            ("stopped", "interrupted"),
            ("sweep/killed", "running"),
            ("torn", "finished"),
        ]
    ):
        path = write_history(
            folder / name, seed=number, steps=None if status == "finished" else 5
        )
        facts = {"status": status, "created": f"2026-11-0{9 - number}T10:00"}
        write_manifest(path, read_manifest(path) | facts)
    (folder / "torn" / "recipe.yaml").write_text("---\nname: to")
    (folder / "figures").mkdir()
    return folder


def test_every_run_is_listed_with_its_state(runs):
    listed = {run["name"]: run for run in entries()}
    assert {name: run["status"] for name, run in listed.items()} == STATUSES
    assert [listed["done"][key] for key in ("arm", "seed", "epoch", "epochs")] == [
        "active 0.5 olr",
        0,
        8,
        8,
    ]
    assert (listed["stopped"]["epoch"], listed["torn"]["accuracy"]) == (3, None)
    for name, whole_epochs in (("done", 8), ("stopped", 2)):
        labels = scan_labels(runs / name).collect()
        last = label_metrics(labels.filter(labels["visit"] == whole_epochs))
        assert listed[name]["wrong_labels"] == pytest.approx(last["label/effective_noise"])
    assert listed["done"]["size"] == sum(
        f.stat().st_size for f in (runs / "done").rglob("*") if f.is_file()
    )
    with held(runs / "stopped"):
        write_manifest(
            runs / "stopped", read_manifest(runs / "stopped") | {"status": "running"}
        )
        assert [run["name"] for run in entries("--status", "running")] == ["stopped"]


def test_the_table_says_what_a_terminal_has_room_for_and_what_comes_next(runs):
    result = olr("runs")
    assert [line.split()[0] for line in result.stdout.splitlines()[2:6]] == [*STATUSES][
        ::-1
    ]
    assert "olr analyze runs" in result.stdout
    assert "olr train --resume --run-dir runs/stopped" in result.stdout
    assert "torn/recipe.yaml is cut off" in result.stderr
    assert len(olr("runs", "--format", "csv").stdout.splitlines()) == 5


@each(
    "words, names",
    (["--sort", "name"], ["done", "stopped", "sweep/killed", "torn"]),
    (["--status", "finished"], ["done"]),
    (["runs/sweep"], ["killed"]),
    (["runs/done", "runs"], ["torn", "sweep/killed", "stopped", "done"]),
    (["--arm", "grpo"], []),
)
def test_runs_are_sorted_and_filtered(runs, words, names):
    assert [run["name"] for run in entries(*words)] == names


@each(
    "words, message",
    (["nowhere"], "nowhere does not exist"),
    (["--status", "finishd"], "did you mean 'finished'"),
    (["--sort", "date"], "--sort: there is no 'date'"),
)
def test_what_cannot_be_listed_is_refused(runs, words, message):
    result = olr("runs", *words)
    assert (result.exit_code, message in result.stderr) == (2, True), result.output


def test_a_folder_may_have_the_name_of_a_command_that_left(runs):
    shutil.move(runs / "sweep", runs.parent / "ls")
    assert [run["name"] for run in entries("ls")] == ["killed"]


def test_names_steer_no_terminal(runs):
    hostile = {"arm": "a\x1b[31mb", "status": "fini\x1b[2J"}
    write_manifest(runs / "done", read_manifest(runs / "done") | hostile)
    for words in (
        "runs",
        "runs --format markdown",
        "runs --format csv",
        "analyze runs/done",
    ):
        assert "\x1b" not in olr(*words.split()).output


def test_of_two_runs_of_one_arm_and_seed_the_newest_is_taken_if_asked_for(runs):
    shutil.rmtree(runs / "torn")
    shutil.copytree(runs / "done", runs / "done-2")
    write_manifest(
        runs / "done-2", read_manifest(runs / "done") | {"created": "2026-11-20T10:00"}
    )
    refused = olr("analyze", "runs", "--table", "arms")
    assert (refused.exit_code, "--newest" in refused.stderr) == (2, True)
    assert "runs/done and runs/done-2 are both seed 0" in refused.stderr
    result = olr("analyze", "runs", "--table", "arms", "--newest")
    assert result.exit_code == 0
    assert "runs/done is left out: runs/done-2 is newer" in result.stderr


@each(
    "kind, command",
    ("training", "olr train --resume --run-dir runs/mine --set"),
    ("rollouts", "DATA --resume"),
)
def test_a_run_with_code_of_its_own_is_continued_by_a_command_that_exists(
    here, kind, command
):
    (here / "mine.py").write_text("def read(response):\n    return response\n")
    run = write_history(
        here / "runs/mine", kind=kind, steps=2, data={"extractor": "mine.py:read"}
    )
    write_manifest(run, read_manifest(run) | {"status": "interrupted"})
    said = " ".join(olr("runs").stdout.split())
    assert command in said
    # Olr rollouts has no --set
    assert ("--set data.extractor=mine.py:read" in said) == (kind == "training")
