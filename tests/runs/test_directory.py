"""A run directory is made once, held by one process, and never overwritten."""

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from olr_cli.errors import UserError
from olr_cli.recipe.layers import validate
from olr_cli.recipe.schema import Recipe, changed_keys
from olr_cli.runs.checkpoints import checkpoint_steps, drop_unfinished, write_checkpoint
from olr_cli.runs.directory import (
    begin_attempt,
    create_run,
    drop_leftovers,
    end_attempt,
    read_manifest,
    read_recipe,
    require_free,
)
from olr_cli.runs.locks import held, is_held
from olr_cli.runs.metrics import append_metrics, drop_metrics_after, read_metrics


def test_recipe_and_manifest_come_back(tmp_path):
    recipe = Recipe(name="mine", seed=7)
    create_run(tmp_path, recipe, arm="clean")
    assert read_recipe(tmp_path) == recipe
    begin_attempt(tmp_path, from_step=0, data={}, facts={"device": "cpu"})
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


@pytest.mark.parametrize(
    ("key", "value", "decides"),
    [
        ("train.checkpoint_every", 7, False),
        ("train.keep_checkpoints", 7, False),
        ("train.clip", 0.3, True),
        *[
            (f"engine.{key}", 4, False)
            for key in ("nodes", "gpus_per_node", "vllm_engines", "tensor_parallel")
        ],
        ("engine.colocate", False, False),
        ("engine.sleep", False, False),
        ("engine.zero_stage", 3, True),
    ],
)
def test_the_digest_tells_what_decides_the_result_and_no_more(key, value, decides):
    section, _, name = key.partition(".")
    recipe = validate({"engine": {"name": "openrlhf"}}, "test")
    other = recipe.model_copy(update={section: getattr(recipe, section).model_copy(update={name: value})})
    assert (other.digest() != recipe.digest()) == decides
    assert bool(changed_keys(recipe, other)) == decides


def test_every_attempt_keeps_what_it_worked_with(tmp_path):
    create_run(tmp_path, Recipe())
    for threads in (1, 2):
        begin_attempt(tmp_path, from_step=0, data={}, facts={"device": "cpu", "threads": threads})
    manifest = read_manifest(tmp_path)
    assert manifest["threads"] == 2
    assert [attempt["threads"] for attempt in manifest["attempts"]] == [1, 2]
    assert all(attempt["versions"]["torch"] for attempt in manifest["attempts"])


def test_two_runs_of_one_recipe_have_different_ids(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        create_run(tmp_path / name, Recipe())
    assert read_manifest(tmp_path / "a")["id"] != read_manifest(tmp_path / "b")["id"]


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


def test_resume_is_advised_only_where_there_is_something_to_resume(tmp_path):
    create_run(tmp_path, Recipe())
    with pytest.raises(UserError, match="continue it with --resume"):
        require_free(tmp_path)
    begin_attempt(tmp_path, from_step=0, data={}, facts={})
    end_attempt(tmp_path, "finished")
    with pytest.raises(UserError) as refusal:
        require_free(tmp_path)
    assert "--resume" not in str(refusal.value)


def test_a_folder_that_a_kill_left_without_a_manifest_is_free(tmp_path):
    path = tmp_path / "run"
    kill = (
        "import os; from pathlib import Path\n"
        "from olr_cli.recipe.schema import Recipe; from olr_cli.runs import directory\n"
        "from olr_cli.runs.locks import held\n"
        "directory.write_manifest = lambda *_: os.kill(os.getpid(), 9)\n"
        f"path = Path({str(path)!r})\n"
        "with held(path, make=True): directory.create_run(path, Recipe())"
    )
    assert subprocess.run([sys.executable, "-c", kill], check=False).returncode == -9
    (path / ".manifest.json.17.tmp").write_text("{")
    assert sorted(p.name for p in path.iterdir()) == [".lock", ".manifest.json.17.tmp", "recipe.yaml"]
    require_free(path)
    with held(path, make=True):
        create_run(path, Recipe(seed=3))
    assert sorted(p.name for p in path.iterdir()) == [".lock", "manifest.json", "recipe.yaml"]
    assert read_recipe(path).seed == 3


def test_a_recipe_the_user_put_into_a_folder_is_not_taken_for_a_leftover(tmp_path):
    (tmp_path / "recipe.yaml").write_text("seed: 1\n")
    with pytest.raises(UserError, match="not an empty folder"):
        require_free(tmp_path)


def test_what_an_interrupted_write_left_goes_and_nothing_else(tmp_path):
    create_run(tmp_path, Recipe())
    for name in (".manifest.json.17.tmp", ".metrics.jsonl.17.tmp", ".notes.tmp"):
        (tmp_path / name).write_text("half")
    drop_leftovers(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".notes.tmp", "manifest.json", "recipe.yaml"]


def test_a_name_that_is_too_long_is_said(tmp_path):
    path = tmp_path / ("x" * 300)
    with pytest.raises(UserError, match="the name is too long"):
        require_free(path)
    with pytest.raises(UserError, match="the name is too long"), held(path, make=True):
        pass
    with pytest.raises(UserError, match="does not exist"):
        read_recipe(path)


def test_a_process_that_is_refused_leaves_the_holders_folder_alone(tmp_path):
    path = tmp_path / "new"
    with held(path, make=True):
        with pytest.raises(UserError, match=f"in use by process {os.getpid()}"), held(path, make=True):
            pass
        create_run(path, Recipe())
        assert is_held(path)


def test_a_lock_file_that_goes_before_it_is_locked_holds_nothing(tmp_path, monkeypatch):
    path = tmp_path / "new"
    real, calls = fcntl.flock, []

    def after_the_last_holder_cleaned_up(*arguments):
        if not calls:
            shutil.rmtree(path)
        calls.append(arguments)
        real(*arguments)

    monkeypatch.setattr(fcntl, "flock", after_the_last_holder_cleaned_up)
    with held(path, make=True):
        assert is_held(path)


def test_a_look_at_the_lock_does_not_make_a_starter_fail(tmp_path):
    with held(tmp_path):
        pass
    look = os.open(tmp_path / ".lock", os.O_RDONLY)
    fcntl.flock(look, fcntl.LOCK_SH)
    timer = threading.Timer(0.03, os.close, [look])
    timer.start()
    with held(tmp_path):
        assert is_held(tmp_path)
    timer.join()


def test_a_disk_too_full_for_the_lock_is_said_and_nothing_stays(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UserError, match="the disk is full"), held(tmp_path / "new", make=True):
        pass
    assert not (tmp_path / "new").exists()


def test_only_one_process_holds_a_run(tmp_path):
    take = (
        "from pathlib import Path; from olr_cli.runs.locks import held\n"
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
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ('{"schema_version": 99}', "newer olr"),
        ("[]", "is not a run's manifest"),
        ('{"name": "webextension", "manifest_version": 3}', "is not a run's manifest"),
        ('{"schema_version": "1", "name": "n", "status": "s", "attempts": []}', "is not a run's manifest"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_named(tmp_path, text, message):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(UserError, match=message):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"attempts": {}},
        {"name": ["x"]},
        {"versions": []},
        {"data": "train.jsonl"},
        {"seed": "1"},
        {"status": None},
    ],
)
def test_a_manifest_with_values_of_another_kind_is_named(change, tmp_path):
    create_run(tmp_path, Recipe())
    begin_attempt(tmp_path, from_step=0, data={}, facts={})
    manifest = read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | change))
    with pytest.raises(UserError, match=r"manifest\.json is not a run's manifest"):
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


def test_a_broken_metrics_line_is_named(tmp_path):
    append_metrics(tmp_path, 1, 1, {})
    kinds = ('{"step": "3"}', '{"step": null}', '{"step": NaN}', '{"step": 3, "x": []}', "[]")
    for broken in ('{"step": 2, "epo', "\x00\x00", "7", '{"epoch": 1}', *kinds):
        file = tmp_path / "metrics.jsonl"
        before = file.read_text()
        file.write_text(f"{before}{broken}\n{before}")
        with pytest.raises(UserError, match=r"metrics\.jsonl, line 2 is not a step's metrics"):
            read_metrics(tmp_path)
        file.write_text(before)


def test_a_metrics_line_cut_off_by_a_kill_is_left_out(tmp_path):
    for step in (1, 2, 3):
        append_metrics(tmp_path, step, 1, {"rollout/reward": step / 10})
    with (tmp_path / "metrics.jsonl").open("a") as lines:
        lines.write('{"step": 4, "rollout/rew')
    assert [line["step"] for line in read_metrics(tmp_path)] == [1, 2, 3]
    drop_metrics_after(tmp_path, 2)
    text = (tmp_path / "metrics.jsonl").read_text()
    assert [json.loads(line)["step"] for line in text.splitlines()] == [1, 2]


def test_a_place_where_no_folder_can_be_made_is_not_called_in_use():
    with pytest.raises(UserError, match="cannot be made"), held(Path("/proc/olr-run"), make=True):
        pass
