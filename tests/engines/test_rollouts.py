"""Rollouts without training: the records of a training run, by a policy that stays as it is."""

import io
import shutil
from functools import partial

import polars as pl
import pytest
from cases import each, refusal
from decisions import assert_same_tables, stored_tables, untimed
from polars.testing import assert_frame_equal
from samples import json_lines

from olr_cli.answers.graded import SENTINEL
from olr_cli.data.noise import inject
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.writers import write_prompts
from olr_cli.engines.backends import BackendOptions
from olr_cli.engines.launch import launch, unfinished_run
from olr_cli.engines.local.engine import LocalRunner
from olr_cli.engines.rollouts import (
    RolloutSampler,
    backend_of,
    rollouts_recipe,
    rollouts_summary,
)
from olr_cli.errors import UserError
from olr_cli.recipe.layers import validate
from olr_cli.runs import writer
from olr_cli.runs.directory import read_manifest, write_manifest
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.progress import ROLLOUTS, LineProgress
from olr_cli.runs.store import RunStore

MODEL = "builtin:addition-easier"
STEPS = 6  # 20 prompts in steps of 8, 8 and 4; two visits
DATA = {"limit": 20}
TRAIN = {"epochs": 2, "rollouts_per_prompt": 4, "max_new_tokens": 5, "prompts_per_step": 8}


def recipe(data="arithmetic", model=MODEL, *, seed=3, data_keys=DATA, **train):
    return rollouts_recipe(
        model, {"train": str(data), **data_keys}, TRAIN | train, seed=seed, device="cpu"
    )


def sample(path, a_recipe=None, *, resume=False):
    """Sample; returns what was shown."""
    shown = io.StringIO()
    launch(
        a_recipe or recipe(), path, partial(RolloutSampler, options=BackendOptions("transformers")),
        LineProgress(shown, ROLLOUTS), kind="rollouts", resume=resume,
    )  # fmt: skip
    return shown.getvalue()


def files(path):
    return {
        p: p.stat().st_mtime_ns
        for p in path.rglob("*")
        if p.is_file() and p.name != ".lock"
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Rollouts that nobody interrupted."""
    path = tmp_path_factory.mktemp("whole") / "run"
    sample(path)
    return path


def test_every_prompt_is_visited_as_often_as_asked_and_trains_never(whole):
    labels, records = stored_tables(whole)
    prompts = labels.group_by("visit").agg(pl.col("prompt_id").n_unique()).sort("visit")
    assert prompts.rows() == [(1, 20), (2, 20)]
    assert records.group_by("prompt_id", "visit").len()["len"].to_list() == [4] * 40
    assert not labels["trains"].any()
    assert set(labels["label_source"]) == {"given"}
    manifest = read_manifest(whole)
    found = (manifest["kind"], manifest["status"], manifest["engine"])
    assert found == ("rollouts", "finished", "transformers")
    assert not (whole / "checkpoints").exists()


def test_visits_of_a_prompt_are_drawn_anew(whole):
    _, records = stored_tables(whole)
    first, second = (
        records.filter(pl.col("visit") == visit).sort("prompt_id", "sample")["response"]
        for visit in (1, 2)
    )
    assert 0.2 < (first != second).mean() < 1


def test_up_to_its_first_update_a_training_run_samples_the_same(whole, tmp_path):
    train = {
        "epochs": 1,
        "prompts_per_step": 8,
        "rollouts_per_prompt": 4,
        "max_new_tokens": 5,
    }
    tree = {"seed": 3, "data": {"limit": 20}, "train": train, "method": {"name": "grpo"}}
    trained = validate(tree | {"engine": {"device": "cpu", "threads": 1}}, "test")
    launch(trained, tmp_path / "trained", LocalRunner, LineProgress(io.StringIO()))
    for ours, theirs in zip(
        stored_tables(whole), stored_tables(tmp_path / "trained"), strict=True
    ):
        ours, theirs = (table.filter(pl.col("step") == 1) for table in (ours, theirs))
        assert ours.height > 0
        kept = [name for name in ours.columns if name != "trains"]
        assert_frame_equal(ours[kept], theirs[kept], check_exact=False, rel_tol=1e-5)


class Killed(BaseException):
    """Ends a test's run as a kill would, at a place of our choice."""


@each(
    "owner, name, call, done",
    (writer, "append_metrics", 4, 3),  # stored, but without its line of metrics
    (RunStore, "_write", 8, 3),  # rollouts without labels
)
def test_killed_anywhere_and_resumed_it_ends_as_uninterrupted(
    whole, tmp_path, monkeypatch, owner, name, call, done
):
    original, calls = getattr(owner, name), []

    def dies(*args, **kwargs):
        calls.append(name)
        if len(calls) == call:
            raise Killed
        return original(*args, **kwargs)

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dies)
        with pytest.raises(Killed):
            sample(run)
    assert f"Continuing {run} after step {done}" in sample(run, resume=True)
    assert_same_tables(run, whole)
    assert untimed(read_metrics(run)) == untimed(read_metrics(whole))


def test_a_run_that_is_given_more_visits_equals_one_of_as_many_from_the_start(
    whole, tmp_path
):
    sample(tmp_path / "run", recipe(epochs=1))
    sample(tmp_path / "run", resume=True)
    assert_same_tables(tmp_path / "run", whole)


def test_a_run_goes_on_with_its_own_backend(whole):
    assert backend_of(whole, None) == backend_of(whole, "transformers") == "transformers"
    assert "was sampled by transformers, and vllm draws otherwise" in refusal(
        backend_of, whole, "vllm"
    )


@each(
    "lost, message",
    (
        "metrics.jsonl",
        "holds step 6 and would go on after step 0: lines of metrics.jsonl have gone",
    ),
    (
        "labels/step-000002.parquet",
        "shards or the line in metrics.jsonl of step 2 have gone; restore",
    ),
)
def test_a_resume_without_what_was_there_removes_nothing(whole, tmp_path, lost, message):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    write_manifest(run, read_manifest(run) | {"status": "interrupted"})
    (run / lost).unlink()
    before = files(run)
    assert message in refusal(sample, run, resume=True)
    assert files(run) == before


def test_rollouts_and_training_do_not_continue_each_other(whole, tmp_path):
    with pytest.raises(
        UserError, match="holds rollouts without training, which `olr rollouts` resumes"
    ):
        launch(recipe(), whole, LocalRunner, LineProgress(io.StringIO()), resume=True)
    trained = tmp_path / "runs" / "trained"
    shutil.copytree(whole, trained)
    manifest = read_manifest(trained) | {"status": "interrupted"}
    del manifest["kind"]  # a run from before there were kinds is of training
    write_manifest(trained, manifest)
    assert "is a training run, which `olr train` resumes" in refusal(
        sample, trained, resume=True
    )
    assert unfinished_run(recipe(), tmp_path / "runs") == trained
    assert "no unfinished run" in refusal(
        unfinished_run, recipe(), tmp_path / "runs", kind="rollouts"
    )


def test_noise_that_a_file_carries_is_in_the_records(tmp_path):
    noisy = inject(read_prompts("arithmetic", limit=20), type="active", ratio="0.5", seed=0)
    write_prompts(noisy, tmp_path / "noisy.parquet")
    sample(tmp_path / "run", recipe(tmp_path / "noisy.parquet", data_keys={}))
    labels, _ = stored_tables(tmp_path / "run")
    marked = labels.filter(pl.col("noise_type") == "active")
    assert marked.height == 20  # half of the prompts, two visits
    assert set(marked["given_label"]) == {SENTINEL}
    drawn = marked.filter(pl.col("noisy_label") != SENTINEL)
    assert drawn.height > 10
    assert (drawn["noisy_label_count"] > 0).all()
    assert (drawn["noisy_label"] != drawn["true_answer"]).all()
    assert any("noisy" in line for line in rollouts_summary(tmp_path / "run", None).parts)


def rows(file, count=6, **columns):
    return json_lines(
        file,
        *(
            {"question": f"{100 + n}+{205 + n}=", "answer": "1", **columns}
            for n in range(count)
        ),
    )


def test_the_summary_says_what_is_unknown(tmp_path):
    data = rows(tmp_path / "mine.jsonl")
    shown = sample(
        tmp_path / "run", recipe(data, data_keys={"extractor": "reversed_digits"})
    )
    last_row = shown.splitlines()[-1].split()
    answer = rollouts_summary(tmp_path / "run", "a note")
    lines = "\n".join(answer.parts)
    # differs, then agree: the shares of right ones are blank
    assert last_row[:3] == [
        "2",
        "100%",
        "0%",
    ]
    assert "majority is right                 unknown" in lines
    assert "majority differs from the label   100.0%" in lines
    assert "6 prompts x 2 visits x 4 rollouts of builtin:addition-easier" in lines
    assert "slopes are chance" in answer.notes[0] and answer.notes[1] == "a note"
    assert list(answer.next) == [f"olr audit {tmp_path / 'run'}"]


def test_responses_without_answers_are_warned_of_after_the_first_step(tmp_path):
    # Asks for \boxed{}
    shown = sample(tmp_path / "run", recipe(rows(tmp_path / "mine.jsonl")))
    assert "Warning: 100% of the responses have no answer" in shown
    assert "the chat template or the extractor (boxed" in shown
    lines = "\n".join(rollouts_summary(tmp_path / "run", None).parts)
    assert "majority differs from the label   unknown of the visits" in lines
    assert "no majority                       100.0% of the visits" in lines


def test_a_prompt_too_long_is_refused_before_anything_is_written(tmp_path):
    data = rows(tmp_path / "mine.jsonl", count=2, question="1+" * 500)
    assert "2 of 2 prompts leave no room for a response" in refusal(
        sample, tmp_path / "run", recipe(data)
    )
    assert not (tmp_path / "run").exists()


def test_a_model_without_a_chat_template_is_warned_of(tmp_path, model):
    (model / "chat_template.jinja").unlink()
    shown = sample(tmp_path / "run", recipe(model=str(model)))
    assert "has no chat template: prompts are given to it as plain text" in shown


@each(
    "data, name",
    ("arithmetic:subtraction", "rollouts-arithmetic-subtraction"),
    ("data/dapo_800_noise_0.5.parquet", "rollouts-dapo_800_noise_0.5"),
    ("someone/maths-v1.5:train", "rollouts-maths-v1.5-train"),
    ("Übungen/*.jsonl", "rollouts"),
    ("x" * 200, "rollouts-" + "x" * 91),
)
def test_a_run_is_named_after_its_data(data, name):
    assert recipe(data).name == name


def test_a_built_in_policy_gets_one_thread_and_others_torchs_choice(model):
    assert recipe().engine.threads == 1
    assert recipe(model=str(model)).engine.threads is None


def test_metrics_tell_every_step(whole):
    lines = read_metrics(whole)
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    labels, records = stored_tables(whole)
    for line in lines:
        own = labels.filter(pl.col("step") == line["step"])
        assert line["majority/accuracy"] == pytest.approx(own["majority_is_correct"].mean())
        # Answers of the arithmetic task have one spelling
        voted = [
            (row["majority_answer"], row["given_label"])
            for row in own.iter_rows(named=True)
            if row["majority_answer"] is not None
        ]
        differs = sum(int(majority) != int(label) for majority, label in voted) / len(voted)
        assert line["majority/differs_from_label"] == pytest.approx(differs)
    assert 0 < records["is_correct"].mean() < 1


def test_a_resume_with_other_settings_names_them_and_touches_nothing(whole):
    before = files(whole)
    changed = r"seed: 3 -> 4; train.temperature: 1.0 -> 0.7; train.epochs: 2 -> 1, which can only be raised\)"
    with pytest.raises(UserError, match=changed):
        sample(whole, recipe(seed=4, epochs=1, temperature=0.7), resume=True)
    assert files(whole) == before
