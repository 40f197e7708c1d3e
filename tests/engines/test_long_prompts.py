"""Prompts that are longer than a recipe allows, and those that are left out for it."""

import json
from pathlib import Path

import pytest
from commands import done, olr, refused

from olr_cli.data.sets import training_prompts
from olr_cli.engines.run import load_data
from olr_cli.recipe.layers import validate
from olr_cli.runs.directory import read_manifest

pytestmark = pytest.mark.usefixtures("here")
QUESTIONS = ["1+1=", f"{'1+' * 40}1=", "2+2=", "3+3=", f"{'2+' * 50}2=", "4+4="]
SETTINGS = {
    "data.train": "x.jsonl",
    "data.held_out": "null",
    "data.extractor": "first_integer",
    "model.path": "builtin:addition-easier",
    "train.epochs": "1",
    "train.rollouts_per_prompt": "2",
    "train.max_prompt_tokens": "20",
    "train.max_new_tokens": "4",
}


@pytest.fixture
def rows(here):
    lines = [{"question": question, "answer": "2"} for question in QUESTIONS]
    (here / "x.jsonl").write_text("\n\n".join(map(json.dumps, lines)))


def words(**others):
    settings = SETTINGS | {key.replace("__", "."): value for key, value in others.items()}
    return [word for item in settings.items() for word in ("--set", "=".join(item))]


def recipe(**others):
    data = {"train": "x.jsonl", "drop_long": True, **others}
    train = {"max_prompt_tokens": 20}
    return validate(
        {"data": data, "model": {"path": "builtin:addition-easier"}, "train": train}, "test"
    )


@pytest.mark.usefixtures("rows")
def test_long_prompts_stop_training_and_are_named_by_their_line():
    said = refused("train", "own-data", *words())
    assert (
        "2 of 6 prompts are longer than train.max_prompt_tokens 20 (the first: line 3 of x.jsonl, prompt_id q-"
        in said
    )
    assert said.endswith("raise the limit, or leave them out with data.drop_long=true")
    said = refused("train", "own-data", *words(train__max_prompt_tokens="200"))
    assert "the longest of the prompts (line 9 of x.jsonl, prompt_id q-" in said


@pytest.mark.usefixtures("rows")
def test_a_run_without_long_prompts_says_so_resumes_and_is_audited_with_its_data():
    out = ("--run-dir", "run")
    said = done("train", "own-data", *words(data__drop_long="true"), *out).output
    assert (
        "Note: 2 of 6 prompts of x.jsonl longer than train.max_prompt_tokens 20 left out (the first: line 3 of x.jsonl,"
        in said
    )
    facts = read_manifest(Path("run"))["data"]["train"]
    assert facts["prompts"] == 4 and len(facts["left_out"]) == 2
    done("train", "--resume", "--run-dir", "run", "--set", "train.epochs=2")
    assert (
        "rest.jsonl (4 of 4 rows)" in done("audit", "run", "--export", "rest.jsonl").output
    )


@pytest.mark.usefixtures("rows")
def test_held_out_prompts_are_left_out_too_and_noise_does_not_depend_on_the_tokenizer():
    data = load_data(recipe(test="x.jsonl"))
    assert len(data.train) == len(data.test) == 4 and len(data.notes) == 1
    noisy = recipe().model_copy(
        update={"noise": validate({"noise": {"type": "inactive", "ratio": 0.5}}, "t").noise}
    )
    whole = {prompt.prompt_id: prompt for prompt in training_prompts(noisy).prompts}
    kept = load_data(noisy, "rollouts").train.prompts
    assert len(kept) == 4 and all(whole[prompt.prompt_id] == prompt for prompt in kept)


def test_a_set_of_long_prompts_alone_is_refused(here):
    (here / "x.jsonl").write_text(json.dumps({"question": QUESTIONS[1], "answer": "2"}))
    said = refused("train", "own-data", *words(data__drop_long="true"))
    assert "1 of 1 prompts of x.jsonl longer than" in said and said.endswith(
        "raise the limit"
    )
    assert olr("train", "own-data", *words(data__drop_long="maybe")).exit_code == 2


def test_a_rephrasing_that_is_too_long_leaves_its_prompt_out(here):
    rows = [
        {"question": "1+1=", "answer": "2", "rephrased_prompt": "1+1=2"},
        {"question": "2+2=", "answer": "4", "rephrased_prompt": QUESTIONS[1]},
    ]
    (here / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    method = validate({"method": {"name": "co_reward"}}, "test").method
    both = recipe().model_copy(update={"method": method})
    assert [p.given_label for p in load_data(both).train.prompts] == ["2"]
    assert len(load_data(recipe()).train) == 2
