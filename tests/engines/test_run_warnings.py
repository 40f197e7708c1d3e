"""What is said of a recipe and its data before a run starts, and what a dry run lists of them."""

from dataclasses import replace
from pathlib import Path

import pytest
from cases import each, refusal
from samples import json_lines

from olr_cli.engines.backends import BackendOptions
from olr_cli.engines.launch import data_warnings, run_warnings, unused_run_path
from olr_cli.engines.models import policy_path
from olr_cli.engines.rehearse import _cost, rehearse, sweep_answer
from olr_cli.engines.rollouts import RolloutSampler
from olr_cli.engines.run import load_data
from olr_cli.recipe.layers import validate
from olr_cli.recipe.sweep import SweepRun

WEIGHTS = sum(
    file.stat().st_size
    for file in Path(policy_path("addition-easier")).glob("*.safetensors")
)
SMALL = {
    "prompts_per_step": 2,
    "mini_batch_prompts": 2,
    "rollouts_per_prompt": 4,
    "max_new_tokens": 40,
}


def questions(file, *answers, **columns):
    """A file of questions, each with an answer."""
    rows = [
        {"question": f"What is {n} + 1?", "answer": answer} | columns
        for n, answer in enumerate(answers)
    ]
    return str(json_lines(file, *rows))


def recipe(data=None, method=None, **sections):
    train = {**SMALL, **sections.pop("train", {})}
    tree = {
        "data": data or {},
        "method": {"name": "grpo", **(method or {})},
        "train": train,
    }
    return validate(tree | sections, "test")


def warnings(a_recipe, kind="training"):
    return run_warnings(a_recipe, load_data(a_recipe), kind)


@each("length, is_long", (200, False), (201, True))
def test_a_label_of_more_than_200_characters_is_hardly_an_answer(here, length, is_long):
    file = questions(here / "x.jsonl", "1", "x" * length, "2")
    a_recipe = recipe({"train": file, "extractor": "text"})
    said = [*data_warnings(a_recipe, load_data(a_recipe).train)]
    assert said == is_long * [
        "1 of 3 labels have more than 200 characters (the first: line 2), so they are hardly final answers, and nothing"
        " matches them; put these into a column, and name it in data.columns"
    ]


@each(
    "keys, count",
    ({}, 0),
    ({"system_prompt": "Be brief."}, 2),
    ({"system_prompt": "Be brief.", "extractor": "boxed"}, 2),
    ({"system_prompt": "Put it into a box: \\boxed{}."}, 0),
    ({"system_prompt": "Be brief.", "extractor": "last_number"}, 0),
)
def test_prompts_whose_answers_are_read_from_a_box_ask_for_one(here, keys, count):
    file = questions(here / "x.jsonl", "1", "2")
    said = " ".join(warnings(recipe({"train": file, **keys})))
    assert (f"{count} of 2 prompts (the first: line 1) do not ask for" in said) is bool(
        count
    )


@each(
    "prompts, marked, is_said",
    ("small_loss", False, True), ("small_loss", True, False), ("random", False, True), ("all", False, False),
)  # fmt: skip
def test_a_choice_of_prompts_by_marks_needs_marks(here, prompts, marked, is_said):
    data = {"train": "arithmetic", "limit": 4}
    noise = {"noise": {"type": "inactive", "ratio": 0.5}} if marked else {}
    method = {"name": "grpo", "prompts": prompts}
    said = warnings(recipe(data, method, **noise))
    assert (
        f"method.prompts is {prompts}, but no label is marked as noise, so every prompt trains; set"
        " method.keep_fraction" in said
    ) is is_said


@each("name", "test", "validation")
def test_held_out_prompts_that_train_too_are_counted(here, name):
    file = questions(here / "x.jsonl", "1", "2")
    other = questions(here / "other.jsonl", "1", "2", "3")
    assert (
        f"2 prompts of data.{name} also train; its accuracy is then not a held-out accuracy"
        in (warnings(recipe({"train": file, name: other})))
    )
    assert not any("also train" in it for it in warnings(recipe({"train": file})))


def test_rollouts_are_warned_of_data_and_not_of_training(here):
    file = questions(here / "x.jsonl", "1", "2", "3")
    a_recipe = recipe({"train": file, "test": file, "system_prompt": "Be brief."})
    of_training, of_rollouts = (warnings(a_recipe, it) for it in ("training", "rollouts"))
    assert len(of_rollouts) == 1 and "boxed" in of_rollouts[0]
    assert of_training[:1] == of_rollouts
    assert [said.split(";")[0].split(":")[0] for said in of_training[1:]] == [
        "3 prompts do not divide into steps of 2",
        "3 prompts of data.test also train",
    ]


def test_a_sampler_needs_prompts(here):
    a_recipe = recipe({"train": questions(here / "x.jsonl", "1")})
    data = load_data(a_recipe)
    nothing = replace(data, train=replace(data.train, prompts=()))
    said = refusal(RolloutSampler, a_recipe, nothing, BackendOptions())
    assert said.endswith("x.jsonl has no prompts; name other data")


@each(
    "taken, free",
    ([], "runs/a"), (["a"], "runs/a-2"), (["a", "a-2"], "runs/a-3"), (["a-2"], "runs/a"),
)  # fmt: skip
def test_a_run_gets_the_first_free_name(here, taken, free):
    for name in taken:
        (here / "runs" / name).mkdir(parents=True)
    assert str(unused_run_path("a")) == free


@pytest.fixture
def rehearsed(here):
    """A dry run of noisy prompts of one's own, of which one label is verified."""
    data = {
        "train": questions(here / "x.jsonl", *"12345"),
        "test": questions(here / "test.jsonl", *"12"),
        "verified": str(
            json_lines(here / "known.jsonl", {"question": "What is 2 + 1?", "answer": "3"})
        ),
    }
    noise = {"type": "inactive", "ratio": 0.4}
    a_recipe = recipe(
        data,
        {"name": "olr"},
        noise=noise,
        verifier={"false_negative_rate": 0.25},
        train={"epochs": 3},
    )
    return rehearse(a_recipe)


def test_a_dry_run_counts_what_the_run_will_take(rehearsed):
    assert rehearsed.amount == {
        "prompts": 5, "marked": 2, "verified": 1, "steps": 9, "rollouts": 60,
    }  # fmt: skip
    first, *lines = rehearsed.amount_lines()
    assert first.endswith("x.jsonl, 2 of them marked as noise, 1 with a verified label")
    assert first.startswith("5 prompts from ") and lines[0].startswith(
        "2 held-out prompts from "
    )
    assert lines[1:] == [
        "a verifier that errs: FN 0.25",
        "9 steps, 60 rollouts",
    ]


def test_a_dry_run_shows_a_prompt_its_label_and_how_answers_are_read(rehearsed):
    answer = rehearsed.answer()
    label = rehearsed.data.train.prompts[0].given_label
    assert answer.parts[-2:] == [f"its label: {label}", "answers are read by: boxed"]
    example = answer.result["prompt"]
    assert (example["given_label"], example["extractor"]) == (label, "boxed")
    assert example["is_made_up"] is False
    assert (
        example["views"] == {"original": answer.parts[-3]} == {"original": "What is 0 + 1?"}
    )
    assert (answer.result["prompts"], answer.result["steps"]) == (5, 9)


def test_a_dry_run_of_a_sweep_adds_up_its_runs(here):
    file = questions(here / "x.jsonl", *"1234")
    runs = [
        SweepRun(
            f"e{epochs}",
            f"e{epochs}_seed-1",
            recipe({"train": file}, train={"epochs": epochs}),
        )
        for epochs in (1, 2)
    ]
    answer = sweep_answer(runs, here / "runs")
    assert answer.parts[:2] == [
        f"   {n}  e{n + 1:<31} {here}/runs/e{n + 1}_seed-1" for n in (0, 1)
    ]
    assert answer.parts[-1].startswith(
        "all 2 runs: 6 steps, 48 rollouts; on the disk: about "
    )
    assert (answer.result["steps"], answer.result["rollouts"]) == (6, 48)
    kept = sum(run.recipe.train.keep_checkpoints * 3 * WEIGHTS for run in runs)
    assert answer.result["disk_bytes"] == kept + 48 * (50 + 4 * 40)


@each(
    "changes, copies",
    ({}, 2 * 3), ({"train": {"lora_rank": 4}}, 2 * 1), ({"engine": {"name": "openrlhf"}}, 2 * 7),
    ({"train": {"keep_checkpoints": 5}}, 5 * 3), ({"data": {"validation": "arithmetic"}}, 3 * 3),
)  # fmt: skip
def test_checkpoints_take_the_weights_and_what_the_optimiser_keeps(
    rehearsed, changes, copies
):
    changes = {"train": {"keep_checkpoints": 2}} | changes
    changes["train"] = {"keep_checkpoints": 2} | changes["train"]
    other = recipe({"limit": 4, **changes.pop("data", {})}, **changes)
    steps, rollouts, disk = _cost(rehearsed, other)
    assert (steps, rollouts) == (20, 160)
    assert disk == copies * WEIGHTS + rollouts * (50 + 4 * 40)
