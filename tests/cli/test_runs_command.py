"""`olr runs` lists what is there, and removes runs and nothing else."""

import json
import os
import shutil

import pytest
from commands import olr
from histories import write_history

from olr_cli.runs.directory import read_manifest, write_manifest
from olr_cli.runs.locks import held
from olr_cli.runs.store import scan_labels
from olr_cli.supervision.metrics import label_metrics


def entries(*words):
    return json.loads(olr("runs", *words, "--json").stdout)["runs"]


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Runs in every state, in the folder `runs` of the current directory."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs"
    for number, (name, status) in enumerate(
        [("done", "finished"), ("stopped", "interrupted"), ("sweep/killed", "running"), ("torn", "finished")]
    ):
        path = write_history(folder / name, seed=number, steps=None if status == "finished" else 5)
        write_manifest(
            path, read_manifest(path) | {"status": status, "created": f"2026-11-0{9 - number}T10:00"}
        )
    (folder / "torn" / "recipe.yaml").write_text("---\nname: to")
    (folder / "figures").mkdir()
    return folder


def test_every_run_is_listed_with_its_state(runs):
    listed = {run["name"]: run for run in entries()}
    assert {name: run["status"] for name, run in listed.items()} == {
        "done": "finished",
        "stopped": "stopped",
        "sweep/killed": "crashed",
        "torn": "damaged",
    }
    assert [listed["done"][key] for key in ("arm", "seed", "epoch", "epochs")] == ["active 0.5 olr", 0, 8, 8]
    assert (listed["stopped"]["epoch"], listed["torn"]["accuracy"]) == (3, None)
    labels = scan_labels(runs / "done").collect()
    last = label_metrics(labels.filter(labels["visit"] == 8))
    assert listed["done"]["wrong_labels"] == pytest.approx(last["label/effective_noise"])
    assert listed["done"]["size"] == sum(f.stat().st_size for f in (runs / "done").rglob("*") if f.is_file())
    with held(runs / "stopped"):
        write_manifest(runs / "stopped", read_manifest(runs / "stopped") | {"status": "running"})
        assert [run["name"] for run in entries("--status", "running")] == ["stopped"]


def test_the_table_says_what_a_terminal_has_room_for_and_what_comes_next(runs):
    result = olr("runs")
    assert [line.split()[0] for line in result.stdout.splitlines()[2:6]] == [
        "torn",
        "sweep/killed",
        "stopped",
        "done",
    ]
    assert (
        "olr analyze runs" in result.stdout and "olr train --resume --run-dir runs/stopped" in result.stdout
    )
    assert "torn/recipe.yaml is cut off" in result.stderr
    assert len(olr("runs", "--format", "csv").stdout.splitlines()) == 5


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--sort", "name"], ["done", "stopped", "sweep/killed", "torn"]),
        (["--status", "finished"], ["done"]),
        (["runs/sweep"], ["killed"]),
        (["ls", "runs/done", "runs"], ["torn", "sweep/killed", "stopped", "done"]),
        (["--arm", "grpo"], []),
    ],
)
def test_runs_are_sorted_and_filtered(runs, words, names):
    assert [run["name"] for run in entries(*words)] == names


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["--status", "finishd"], "did you mean 'finished'"),
        (["--sort", "date"], "--sort is 'date'"),
        (["rm", "done"], "add --yes"),
        (["rm", "figures", "--yes"], "not a run directory (no manifest.json); `olr train`"),
        (["rm", "half", "--yes"], "not a run directory (no recipe.yaml); restore it"),
        (["rm", "runs", "--yes"], "runs/ holds all runs; name those to remove"),
        (["rm", "", "--yes"], "./ holds all runs"),
        (["rm", "link", "--yes"], "is a link"),
        (["rm", "busy", "--yes"], "is being written"),
        (["rm", "done", "busy", "--yes"], "is being written"),
        (["rm", "outer", "--yes"], "holds another run"),
        (["rm", "elsewhere/a", "--yes"], "not below runs/"),
        (["rm", "runs/../elsewhere/a", "--yes"], "not below runs/"),
    ],
)
def test_what_may_not_be_removed_is_refused_and_nothing_goes(runs, words, message):
    write_history(runs.parent / "elsewhere" / "a")
    (runs / "link").symlink_to(runs / "done")
    shutil.copytree(runs / "done", runs / "outer")
    shutil.copytree(runs / "done", runs / "outer" / "backup" / "inner")
    shutil.copytree(runs / "done", runs / "busy")
    (runs / "half").mkdir()
    shutil.copy(runs / "done" / "manifest.json", runs / "half")
    with held(runs / "busy"):
        before = sorted(runs.parent.rglob("*"))
        result = olr("runs", *words)
        assert (result.exit_code, message in result.stderr) == (2, True), result.output
        assert sorted(runs.parent.rglob("*")) == before


def test_runs_are_removed_by_name_and_by_path(runs):
    result = olr("runs", "rm", "done", "runs/sweep/killed", "--yes", "--json")
    assert json.loads(result.stdout)["removed"] == ["runs/done", "runs/sweep/killed"]
    assert sorted(os.listdir(runs)) == ["figures", "stopped", "sweep", "torn"]
    assert os.listdir(runs / "sweep") == []


def test_a_folder_of_runs_means_all_runs_in_it(runs):
    shutil.copytree(runs / "done", runs / "sweep" / "done")
    removed = json.loads(olr("runs", "rm", "sweep", "--yes", "--json").stdout)["removed"]
    assert sorted(removed) == ["runs/sweep/done", "runs/sweep/killed"]
    assert (runs / "done").is_dir()


def test_a_run_named_by_dots_and_what_a_kill_left_of_one_are_removed(runs, monkeypatch):
    (runs / ".done.removed" / "labels").mkdir(parents=True)
    (runs / "done" / "checkpoints").mkdir()
    assert olr("runs", "rm", "runs/done/checkpoints/..", "--yes").exit_code == 0
    monkeypatch.chdir(runs / "stopped")
    assert olr("runs", "rm", ".", "--below", "..", "--yes").exit_code == 0
    assert sorted(os.listdir(runs)) == ["figures", "sweep", "torn"]


def test_names_steer_no_terminal(runs):
    write_manifest(
        runs / "done", read_manifest(runs / "done") | {"arm": "a\x1b[31mb", "status": "fini\x1b[2J"}
    )
    for words in (
        ["runs"],
        ["runs", "--format", "markdown"],
        ["runs", "--format", "csv"],
        ["analyze", "runs/done"],
    ):
        assert "\x1b" not in olr(*words).output


def test_of_two_runs_of_one_arm_and_seed_the_newest_is_taken_if_asked_for(runs):
    shutil.rmtree(runs / "torn")
    shutil.copytree(runs / "done", runs / "done-2")
    write_manifest(runs / "done-2", read_manifest(runs / "done") | {"created": "2026-11-20T10:00"})
    refused = olr("analyze", "runs", "--table", "arms")
    assert (refused.exit_code, "--newest" in refused.stderr) == (2, True)
    assert "runs/done and runs/done-2 are both seed 0" in refused.stderr
    result = olr("analyze", "runs", "--table", "arms", "--newest")
    assert result.exit_code == 0
    assert "runs/done is left out: runs/done-2 is newer" in result.stderr
