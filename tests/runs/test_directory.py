"""A run directory is made once, held by one process, and never overwritten."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cases import each, refusal

from olr_cli.errors import UserError, no_path
from olr_cli.recipe.layers import validate
from olr_cli.recipe.schema import Recipe, changed_keys
from olr_cli.runs.directory import (
    PROMPTS,
    create_run,
    read_manifest,
    read_recipe,
    require_free,
    write_manifest,
)
from olr_cli.runs.locks import held, is_held
from olr_cli.runs.writer import RunWriter


def finished(path, **facts):
    with RunWriter.create(path, Recipe(name="mine", seed=7), arm="clean") as writer:
        writer.begin(after=0, data={}, facts=facts)
        writer.close("finished", steps=3)
    return path


def test_recipe_and_manifest_come_back_and_two_runs_of_one_recipe_have_different_ids(
    tmp_path,
):
    path, other = (finished(tmp_path / name, device="cpu") for name in "ab")
    recipe, manifest = read_recipe(path), read_manifest(path)
    assert manifest["id"] != read_manifest(other)["id"]
    assert (recipe.name, recipe.seed) == ("mine", 7)
    assert [manifest[key] for key in ("status", "arm", "device", "steps")] == [
        "finished",
        "clean",
        "cpu",
        3,
    ]
    assert manifest["attempts"][0]["outcome"] == "finished"
    assert manifest["recipe_digest"] == recipe.digest()


@each(
    "key, value, decides",
    ("train.checkpoint_every", 7, False),
    ("train.clip", 0.3, True),
    ("engine.nodes", 4, False),
    ("engine.zero_stage", 3, True),
)
def test_the_digest_tells_what_decides_the_result_and_no_more(key, value, decides):
    section, _, name = key.partition(".")
    recipe = validate({"engine": {"name": "openrlhf"}}, "test")
    other = recipe.model_copy(
        update={section: getattr(recipe, section).model_copy(update={name: value})}
    )
    assert (other.digest() != recipe.digest()) == decides
    assert bool(changed_keys(recipe, other)) == decides


def test_every_attempt_keeps_what_it_worked_with(tmp_path):
    finished(tmp_path, device="cpu", threads=1)
    with RunWriter.resume(tmp_path, read_recipe(tmp_path)) as writer:
        writer.begin(after=3, data={}, facts={"device": "cpu", "threads": 2})
    manifest = read_manifest(tmp_path)
    assert manifest["threads"] == 2
    assert [attempt["threads"] for attempt in manifest["attempts"]] == [1, 2]
    assert all(attempt["versions"]["torch"] for attempt in manifest["attempts"])


def test_the_data_of_an_attempt_are_those_given_else_the_prompts_that_came(tmp_path):
    finished(tmp_path)
    for given, stored in (({"train": {"prompts": 3}}, 3), (None, 0)):
        with RunWriter.resume(tmp_path, read_recipe(tmp_path)) as writer:
            writer.begin(after=3, data=given, facts={})
        assert read_manifest(tmp_path)["data"]["train"]["prompts"] == stored


def test_the_prompts_of_another_trainers_run_are_where_the_run_is_now(tmp_path):
    recipe = {
        "engine": {"name": "external", "trainer": "x"},
        "data": {"train": "elsewhere"},
    }
    with RunWriter.create(tmp_path / "run", validate(recipe, "test")):
        pass
    (tmp_path / "run").rename(tmp_path / "moved")
    moved = read_recipe(tmp_path / "moved").data.train
    assert Path(moved) == tmp_path / "moved" / PROMPTS


def test_a_run_is_not_overwritten(tmp_path):
    create_run(tmp_path, Recipe())
    before = (tmp_path / "recipe.yaml").read_bytes()
    assert "holds a run already" in refusal(create_run, tmp_path, Recipe(seed=1))
    assert (tmp_path / "recipe.yaml").read_bytes() == before


@pytest.mark.parametrize("name", ["thesis.txt", "recipe.yaml"])
def test_a_folder_with_other_things_in_it_is_refused(tmp_path, name):
    (tmp_path / name).write_text("seed: 1\n")
    assert "not an empty folder" in refusal(require_free, tmp_path)


def test_resume_is_advised_only_where_there_is_something_to_resume(tmp_path):
    create_run(tmp_path, Recipe())
    assert "resume it, or choose another name" in refusal(require_free, tmp_path)
    assert "(finished); choose another" in refusal(
        require_free, finished(tmp_path / "other")
    )


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
    assert sorted(p.name for p in path.iterdir()) == [
        ".lock",
        ".manifest.json.17.tmp",
        "recipe.yaml",
    ]
    require_free(path)
    with held(path, make=True):
        create_run(path, Recipe(seed=3))
    assert sorted(p.name for p in path.iterdir()) == [
        ".lock",
        "manifest.json",
        "recipe.yaml",
    ]
    assert read_recipe(path).seed == 3


def test_what_an_interrupted_write_left_goes_and_nothing_else(tmp_path):
    create_run(tmp_path, Recipe())
    for name in (".manifest.json.17.tmp", ".metrics.jsonl.17.tmp", ".notes.tmp"):
        (tmp_path / name).write_text("half")
    with held(tmp_path):
        pass
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".lock", ".notes.tmp", "manifest.json", "recipe.yaml"]


def test_a_name_that_is_too_long_is_said(tmp_path):
    path = tmp_path / ("x" * 300)
    assert "the name is too long" in refusal(require_free, path)
    with pytest.raises(UserError, match="the name is too long"), held(path, make=True):
        pass
    assert "does not exist" in refusal(read_recipe, path)


def test_a_process_that_is_refused_leaves_the_holders_folder_alone(tmp_path):
    path = tmp_path / "new"
    with held(path, make=True):
        with (
            pytest.raises(UserError, match=f"in use by process {os.getpid()}"),
            held(path, make=True),
        ):
            pass
        create_run(path, Recipe())
        assert is_held(path)


@each(
    "text, message",
    ("{", "not valid JSON"),
    ('{"schema_version": 99}', "newer olr"),
    ("[]", "is not a run's manifest"),
    ('{"name": "webextension", "manifest_version": 3}', "is not a run's manifest"),
    *(
        (change, "is not a run's manifest")
        for change in (
            {"seed": "1"},
            {"data": {"train": {}}},
            {"attempts": [3]},
            {"status": "done"},
        )
    ),
)
def test_a_manifest_that_cannot_be_read_is_named(tmp_path, text, message):
    manifest = read_manifest(finished(tmp_path))
    (tmp_path / "manifest.json").write_text(
        text if isinstance(text, str) else json.dumps(manifest | text)
    )
    assert message in refusal(read_manifest, tmp_path)


def test_what_is_not_a_run_is_said(tmp_path):
    assert "not a run directory" in refusal(read_manifest, tmp_path)
    assert "does not exist" in refusal(read_recipe, tmp_path / "nowhere")


@each(
    "path, what",
    ("/dev/zero", "neither a file nor a folder"),
    ("file", "a file"),
    ("link", "a link that leads nowhere"),
)
def test_something_of_another_kind_is_not_said_to_be_missing(path, what, here):
    Path("file").touch()
    Path("link").symlink_to("nowhere")
    said = str(no_path(path, "name a folder"))
    assert said == f"{path} is {what}, which cannot be used here; name a folder"


def test_a_manifest_is_text_that_people_read(tmp_path):
    write_manifest(tmp_path, {"name": "é", "data": {"train": 1}})
    text = (tmp_path / "manifest.json").read_text("utf-8")
    assert text == '{\n  "name": "é",\n  "data": {\n    "train": 1\n  }\n}\n'
