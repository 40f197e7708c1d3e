"""What a resume finds, checks and says; with an engine that only supervises, so no model is needed."""

import json
import shutil
from contextlib import suppress

import pytest
from cases import each, refusal

from olr_cli import __version__
from olr_cli.engines import resume
from olr_cli.engines.launch import launch, unfinished_run
from olr_cli.errors import UserError
from olr_cli.recipe.layers import validate
from olr_cli.runs import writer
from olr_cli.runs.checkpoints import checkpoint_path
from olr_cli.runs.directory import create_run, read_manifest, read_recipe, write_manifest
from olr_cli.runs.locks import held
from olr_cli.runs.progress import Progress
from olr_cli.runs.shards import stored_steps
from olr_cli.runs.store import scan_labels
from olr_cli.supervision import Rollout, RolloutGroup, Step

EVERY = 2


def recipe(**train):
    train = {
        "epochs": 12, "prompts_per_step": 2, "mini_batch_prompts": 2, "rollouts_per_prompt": 2,
        "checkpoint_every": EVERY, **train,
    }  # fmt: skip
    return validate({"data": {"train": "arithmetic", "limit": 2}, "train": train}, "test")


class Engine:
    """Says the same in every rollout; stops after `stop` steps as a kill would, without a note."""

    warnings = ()

    def __init__(self, _recipe, _data, stop=None, **facts):
        self.stop = stop
        self.facts = {
            "device": "cpu",
            "dtype": "float32",
            "threads": 1,
            "processor": "One",
            "policy_digest": "one",
            **facts,
        }

    def complete(self, run):
        rollouts = tuple(Rollout(text) for text in "12")
        for step in range(run.done + 1, run.recipe.train.epochs + 1):
            groups = [
                RolloutGroup(prompt, step, step, rollouts)
                for prompt in run.data.train.prompts
            ]
            decided = run.supervisor.supervise(Step.of(groups))
            run.writer.store(step, decided.labels, decided.rollouts)
            run.writer.log(step, step, {})
            if step == self.stop:
                raise MemoryError
            if step % run.recipe.train.checkpoint_every == 0:
                run.writer.checkpoint(step, lambda folder: (folder / "w").write_text("w"))
        return {}


class Said(Progress):
    """A progress that remembers."""

    def __init__(self):
        self.sentences = []

    def say(self, sentence):
        self.sentences.append(sentence)


def go(path, a_recipe=None, *, resume=False, **engine):
    """Launch; returns what was said."""
    progress = Said()
    with suppress(MemoryError):
        launch(
            a_recipe or recipe(),
            path,
            lambda one, data: Engine(one, data, **engine),
            progress,
            resume=resume,
        )
    return progress.sentences


def files(path):
    return {
        p: p.stat().st_mtime_ns
        for p in path.rglob("*")
        if p.is_file() and p.name != ".lock"
    }


@pytest.fixture
def stopped(tmp_path):
    """A run stopped in step 8, with checkpoints after steps 4 and 6."""
    go(tmp_path / "run", stop=8)
    return tmp_path / "run"


def test_a_resume_says_where_it_goes_on(stopped):
    (sentence,) = go(stopped, resume=True)
    assert sentence == f"Continuing {stopped} after step 6 (steps 7 to 8 are done again)."
    assert scan_labels(stopped).collect()["step"].unique().to_list() == list(range(1, 13))
    assert read_manifest(stopped)["status"] == "finished"


def test_a_resume_by_another_version_says_so(stopped):
    manifest = json.loads((stopped / "manifest.json").read_text())
    manifest["versions"]["olr"] = "0.0.9"
    (stopped / "manifest.json").write_text(json.dumps(manifest))
    sentence, _ = go(stopped, resume=True)
    assert f"the last attempt had olr 0.0.9, now {__version__}" in sentence


def test_a_resume_goes_on_from_the_newest_checkpoint_that_is_whole(stopped):
    (stopped / "checkpoints" / "step-000006" / "w").write_text("")
    warning, continuing = go(stopped, resume=True)
    assert warning.endswith(
        "step-000006 is damaged (w has 0 of its 1 bytes) and is set aside."
    )
    assert continuing == f"Continuing {stopped} after step 4 (steps 5 to 8 are done again)."
    assert read_manifest(stopped)["status"] == "finished"


def test_a_resume_killed_before_the_damaged_checkpoint_went_goes_on_too(
    stopped, monkeypatch
):
    def dies(*_):
        raise MemoryError

    (stopped / "checkpoints" / "step-000006" / "w").write_text("")
    with monkeypatch.context() as patch:
        patch.setattr(writer, "set_aside", dies)
        go(stopped, resume=True)
    assert stored_steps(stopped) == [1, 2, 3, 4]
    go(stopped, resume=True)
    assert stored_steps(stopped) == list(range(1, 13))


def no_checkpoints(run):
    shutil.rmtree(run / "checkpoints")


def neither_checkpoints_nor_labels(run):
    no_checkpoints(run)
    shutil.rmtree(run / "labels")


def no_newest_checkpoint(run):
    shutil.rmtree(run / "checkpoints" / "step-000006")


def no_whole_checkpoint(run):
    for step in (4, 6):
        (run / "checkpoints" / f"step-00000{step}" / "w").unlink()


def no_shard_of_step_3(run):
    (run / "labels" / "step-000003.parquet").unlink()


def metrics_of_4_steps(run):
    file = run / "metrics.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:4]))


@each(
    "damage, message",
    (no_checkpoints, "holds step 8 and would go on after step 0: checkpoints have gone"),
    (
        neither_checkpoints_nor_labels,
        "holds step 8 and would go on after step 0: checkpoints have gone",
    ),
    (no_newest_checkpoint, "would go on after step 4: checkpoints have gone"),
    (
        no_whole_checkpoint,
        r"no checkpoint .* is whole \(.*step-000006: w has gone\); restore one",
    ),
    (no_shard_of_step_3, "after step 6, but shards or the line in .* of step 3 have gone"),
    (metrics_of_4_steps, "after step 6, but shards or the line in .* of step 5 have gone"),
)
def test_a_resume_of_a_run_of_which_something_is_missing_removes_nothing(
    stopped, damage, message
):
    damage(stopped)
    before = files(stopped)
    with pytest.raises(UserError, match=message):
        go(stopped, resume=True)
    assert files(stopped) == before


def test_a_run_killed_before_its_first_checkpoint_starts_anew(tmp_path):
    go(tmp_path / "run", stop=2)
    run = tmp_path / "run"
    assert go(run, resume=True) == [
        f"Continuing {run} after step 0 (steps 1 to 2 are done again)."
    ]


def test_how_often_a_checkpoint_is_written_may_change_in_a_resume(stopped):
    go(stopped, recipe(checkpoint_every=5), resume=True, stop=11)
    assert read_recipe(stopped).train.checkpoint_every == 5
    assert stored_steps(stopped) == list(range(1, 12))
    assert go(stopped, resume=True) == [
        f"Continuing {stopped} after step 10 (step 11 is done again)."
    ]


def test_what_an_interrupted_write_left_in_the_run_goes_on_resume(stopped):
    for name in (".manifest.json.17.tmp", ".metrics.jsonl.17.tmp"):
        (stopped / name).write_text("half")
    go(stopped, resume=True)
    assert not list(stopped.rglob("*.tmp"))


def test_a_resume_from_other_starting_weights_is_refused(stopped):
    before = files(stopped)
    with pytest.raises(
        UserError, match="the weights of builtin:addition-easier have changed since"
    ):
        go(stopped, resume=True, policy_digest="other")
    assert files(stopped) == before


def test_a_resume_under_other_conditions_is_said(stopped):
    manifest = read_manifest(stopped)
    manifest["versions"]["torch"] = "1.0"
    write_manifest(stopped, manifest)
    warning, _ = go(stopped, resume=True, threads=4, processor="Another")
    assert "processor One, now Another; threads 1, now 4; torch 1.0, now 2" in warning
    assert [attempt["threads"] for attempt in read_manifest(stopped)["attempts"]] == [1, 4]


def test_an_unfinished_run_is_found_among_foreign_manifests(tmp_path):
    for name, text in (
        ("extension", {"manifest_version": 3}),
        ("newer", {"schema_version": 99}),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps(text))
    (tmp_path / "mine").mkdir()
    create_run(tmp_path / "mine", recipe())
    assert unfinished_run(recipe(), tmp_path) == tmp_path / "mine"


@each(
    "changes, strange",
    ({}, None),
    ({"step": 4}, "it is of step 4"),
    ({"run": "x"}, "it is of another run"),
)
def test_a_checkpoint_is_of_this_run_and_of_the_step_in_its_name(
    tmp_path, changes, strange
):
    create_run(tmp_path, recipe())
    checkpoint = checkpoint_path(tmp_path, 3)
    checkpoint.mkdir(parents=True)
    saved = {"step": 3, "run": read_manifest(tmp_path)["id"], **changes}
    (checkpoint / "trainer.json").write_text(json.dumps(saved))
    assert resume._foreign_checkpoint(tmp_path, 3) == strange


@each(
    "changes, kind, is_found",
    ({}, "training", True), ({}, "rollouts", False), ({"seed": 7}, "training", False),
    ({"name": "other"}, "training", False), ({"logging": {"tensorboard": True}}, "training", True),
)  # fmt: skip
def test_an_unfinished_run_is_one_of_this_recipe_name_and_kind(
    stopped, changes, kind, is_found
):
    other = validate({**recipe().plain(), **changes}, "test")
    if is_found:
        assert unfinished_run(other, stopped.parent, kind=kind) == stopped
    else:
        said = refusal(unfinished_run, other, stopped.parent, kind=kind)
        assert "there is no unfinished run of this recipe below " in said


def test_of_several_unfinished_runs_none_is_chosen_and_a_finished_one_is_none(stopped):
    other = shutil.copytree(stopped, stopped.with_name("other"))
    assert f"several unfinished runs of this recipe: {other} (8 steps), {stopped} (8" in (
        refusal(unfinished_run, recipe(), stopped.parent)
    )
    go(other, resume=True)
    with held(other):
        assert unfinished_run(recipe(), stopped.parent) == stopped
    with held(stopped):
        assert "there is no unfinished run" in refusal(
            unfinished_run, recipe(), stopped.parent
        )
