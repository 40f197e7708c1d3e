"""A run directory is made once, held by one process, and never overwritten."""

import json
import subprocess
import sys

import pytest

from olr_cli.errors import UserError
from olr_cli.recipe import Recipe
from olr_cli.runs.checkpoints import checkpoint_steps, drop_unfinished, write_checkpoint
from olr_cli.runs.directory import (
    begin_attempt,
    create_run,
    end_attempt,
    held,
    is_held,
    read_manifest,
    read_recipe,
    require_free,
)
from olr_cli.runs.metrics import append_metrics, drop_metrics_after, read_metrics


def test_recipe_and_manifest_come_back(tmp_path):
    recipe = Recipe(name="mine", seed=7)
    create_run(tmp_path, recipe, arm="clean")
    assert read_recipe(tmp_path) == recipe
    begin_attempt(tmp_path, from_step=0, device="cpu")
    end_attempt(tmp_path, "finished", steps=3)
    manifest = read_manifest(tmp_path)
    assert (manifest["status"], manifest["arm"], manifest["device"], manifest["steps"]) == (
        "finished",
        "clean",
        "cpu",
        3,
    )
    assert manifest["attempts"][0]["outcome"] == "finished"
    assert manifest["recipe_digest"] == recipe.digest()


def test_a_run_is_not_overwritten(tmp_path):
    create_run(tmp_path, Recipe())
    before = (tmp_path / "recipe.yaml").read_bytes()
    with pytest.raises(UserError, match="holds a run already"):
        create_run(tmp_path, Recipe(seed=1))
    assert (tmp_path / "recipe.yaml").read_bytes() == before


def test_a_folder_with_other_things_in_it_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="not an empty folder"):
        require_free(tmp_path)


def test_only_one_process_holds_a_run(tmp_path):
    take = (
        "from pathlib import Path; from olr_cli.runs.directory import held\n"
        f"with held(Path({str(tmp_path)!r})): pass"
    )
    with held(tmp_path):
        other = subprocess.run([sys.executable, "-c", take], capture_output=True, text=True, check=False)
        assert "is in use by process" in other.stderr
        assert is_held(tmp_path)
    assert not is_held(tmp_path)
    assert subprocess.run([sys.executable, "-c", take], check=False).returncode == 0


def test_a_folder_made_for_nothing_goes_again(tmp_path):
    path = tmp_path / "runs" / "new"
    with pytest.raises(RuntimeError), held(path, make=True):
        raise RuntimeError
    assert not path.exists()


@pytest.mark.parametrize(
    ("text", "message"), [("{", "not valid JSON"), ('{"schema_version": 99}', "newer olr")]
)
def test_a_manifest_that_cannot_be_read_is_named(tmp_path, text, message):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(UserError, match=message):
        read_manifest(tmp_path)


def test_what_is_not_a_run_is_said(tmp_path):
    with pytest.raises(UserError, match="not a run directory"):
        read_manifest(tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        read_recipe(tmp_path / "nowhere")


def test_checkpoints_are_whole_and_the_newest_are_kept(tmp_path):
    def fill(folder):
        (folder / "weights").write_text("w")

    for step in (10, 20, 30):
        write_checkpoint(tmp_path, step, fill, keep=2)
    assert checkpoint_steps(tmp_path) == [20, 30]

    def fail(folder):
        (folder / "weights").write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_checkpoint(tmp_path, 40, fail, keep=2)
    assert checkpoint_steps(tmp_path) == [20, 30]
    drop_unfinished(tmp_path)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["step-000020", "step-000030"]


def test_a_metrics_line_cut_off_by_a_kill_is_left_out(tmp_path):
    for step in (1, 2, 3):
        append_metrics(tmp_path, step, 1, {"rollout/reward": step / 10})
    with (tmp_path / "metrics.jsonl").open("a") as lines:
        lines.write('{"step": 4, "rollout/rew')
    assert [line["step"] for line in read_metrics(tmp_path)] == [1, 2, 3]
    drop_metrics_after(tmp_path, 2)
    text = (tmp_path / "metrics.jsonl").read_text()
    assert [json.loads(line)["step"] for line in text.splitlines()] == [1, 2]
