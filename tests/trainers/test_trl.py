"""OlrReward in TRL's own GRPOTrainer, on the built-in policy; needs `make test-trainers`' environment."""

import json
import pickle

import polars as pl
import pytest
from cases import refusal

pytest.importorskip("trl")

from datasets import Dataset, load_dataset
from peft import LoraConfig
from recorded import decisions, feed
from train_trl import RECIPE, make_trainer, train
from trl import GRPOConfig, GRPOTrainer
from trl.experimental.async_grpo import async_rollout_worker

from olr_cli.api import OnlineLabelRefinement
from olr_cli.data.noise import inject
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.writers import write_prompts
from olr_cli.engines.models import policy_path
from olr_cli.errors import UserError
from olr_cli.runs.directory import read_manifest, read_recipe
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.store import scan_rollouts
from olr_cli.trainers.trl import OlrReward, accuracy_reward


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "noisy.parquet"
    write_prompts(
        inject(
            read_prompts("arithmetic", limit=16),
            type="active",
            ratio=0.5,
            seed=0,
            active_share=1,
        ),
        file,
    )
    return file


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    assert train(out, data)
    return out / "olr"


def supervised_anew(run, target):
    """The decisions of `olr_cli.api` on the rollouts that a run has stored."""
    recipe = {**RECIPE, "data": {"extractor": "reversed_digits"}}
    with OnlineLabelRefinement(target, recipe) as olr:
        feed(olr, run)
    return decisions(target)


def test_training_decides_as_the_supervisor_does(undisturbed, tmp_path):
    decided = decisions(undisturbed)
    assert decided.equals(supervised_anew(undisturbed, tmp_path / "anew"))
    assert decided["visit"].value_counts().sort("visit").rows() == [
        (1, 16),
        (2, 16),
        (3, 16),
    ]
    assert set(decided["label_source"]) >= {"given", "noisy", "majority"}


def test_the_run_says_what_trl_did(undisturbed):
    lines, recipe = read_metrics(undisturbed), read_recipe(undisturbed)
    assert [line["step"] for line in lines] == list(range(1, 7))
    assert all(
        line.keys() >= {"policy/entropy", "policy/lr", "time/step", "label/selection_ratio"}
        for line in lines
    )
    assert read_manifest(undisturbed)["engine"].startswith("trl ")
    assert read_manifest(undisturbed)["status"] == "finished"
    train = recipe.train
    assert (
        train.epochs,
        train.prompts_per_step,
        train.rollouts_per_prompt,
        train.top_k,
    ) == (
        3,
        8,
        4,
        None,
    )
    assert (train.lr_schedule, train.lr_warmup_ratio) == ("linear", 0)
    rollouts = scan_rollouts(undisturbed).collect()
    assert rollouts["tokens"].max() <= 6
    assert rollouts.filter("truncated")["tokens"].min() in (6, None)


def test_a_killed_and_resumed_run_ends_as_an_undisturbed_one(data, undisturbed, tmp_path):
    assert not train(tmp_path, data, kill=5)
    assert train(tmp_path, data, resume=True)
    assert decisions(tmp_path / "olr").equals(decisions(undisturbed))
    ours, theirs = (
        scan_rollouts(run)
        .select("prompt_id", "visit", "sample", "response", "reward")
        .collect()
        for run in (tmp_path / "olr", undisturbed)
    )
    assert ours.equals(theirs)


def test_groups_may_be_split_over_ranks(data, tmp_path):
    # 6 completions on each of two ranks: the second group of three lies on both.
    settings = {
        "per_device_train_batch_size": 6,
        "gradient_accumulation_steps": 1,
        "num_train_epochs": 2,
    }
    assert train(tmp_path, data, settings, ranks=2)
    decided = decisions(tmp_path / "olr")
    assert decided.equals(supervised_anew(tmp_path / "olr", tmp_path / "anew"))
    assert set(decided["rollouts"]) == {4}
    assert decided.group_by("step").len()["len"].unique().to_list() == [3]


@pytest.mark.parametrize("kill", [4, 8], ids=["the first batch", "a later one"])
def test_a_checkpoint_within_a_batch_of_generations_goes_back_to_before_it(
    data, tmp_path, kill
):
    # TRL generates for 4 optimiser steps, and saves after 3 and 6.
    settings = {
        "gradient_accumulation_steps": 1,
        "steps_per_generation": 2,
        "num_iterations": 2,
    }
    assert not train(tmp_path, data, settings, kill=kill)
    assert train(tmp_path, data, settings, resume=True)
    decided = decisions(tmp_path / "olr")
    assert decided["visit"].value_counts().sort("visit").rows() == [
        (1, 16),
        (2, 16),
        (3, 16),
    ]
    assert decided.equals(supervised_anew(tmp_path / "olr", tmp_path / "anew"))


def test_held_out_completions_are_graded_and_not_recorded(data, tmp_path):
    held_out = [
        {
            "prompt": [{"role": "user", "content": f"{a}+{a}="}],
            "answer": str(2 * a),
            "data_source": "arithmetic",
        }
        for a in (12, 34, 56, 78)
    ]
    settings = {
        "eval_dataset": Dataset.from_list(held_out),
        "eval_strategy": "steps",
        "eval_steps": 1,
        "per_device_eval_batch_size": 8,
        "num_train_epochs": 1,
    }
    trainer = make_trainer(tmp_path, data, settings)
    trainer.train()
    assert [
        line["step"]
        for line in read_metrics(tmp_path / "olr")
        if 0 <= line["eval/avg"] <= 1
    ] == [1, 2]
    assert len(decisions(tmp_path / "olr")) == 16


def test_what_the_chat_template_opened_begins_the_response(tmp_path):
    """A toy never ends the thought, so it answers nothing, also where it is evaluated."""
    rows = [
        {"prompt": [{"role": "user", "content": f"{a}+{b}="}], "answer": str(a + b)}
        for a in range(11, 15) for b in range(21, 25)
    ]  # fmt: skip
    data = Dataset.from_list(rows)
    settings = {
        "eval_dataset": data,
        "eval_strategy": "steps",
        "eval_steps": 1,
        "num_train_epochs": 1,
    }
    recipe = {"data": {"extractor": "first_integer"}}
    trainer = make_trainer(tmp_path, data, settings, recipe=recipe)
    trainer.processing_class.chat_template = (
        "{% for m in messages %}{{ m.content }}{% endfor %}<think>"
    )
    trainer.train()
    rollouts = scan_rollouts(tmp_path / "olr").collect()
    assert (
        rollouts["response"].str.starts_with("<think>").all()
        and rollouts["answer"].is_null().all()
    )
    assert {line["eval/avg"] for line in read_metrics(tmp_path / "olr")} == {0}


def test_verified_labels_count_in_every_step(data, tmp_path):
    verified = [
        prompt for prompt in read_prompts(data).prompts if prompt.noise_type == "active"
    ][:4]
    rows = [
        {"prompt_id": prompt.prompt_id, "true_answer": prompt.true_answer}
        for prompt in verified
    ]
    (tmp_path / "verified.json").write_text(json.dumps(rows))
    recipe = {
        "data": {
            "extractor": "reversed_digits",
            "verified": str(tmp_path / "verified.json"),
        }
    }
    make_trainer(tmp_path, data, {}, recipe=recipe).train()
    of_verified = decisions(tmp_path / "olr").filter(label_source="verified")
    assert set(of_verified["prompt_id"]) == {prompt.prompt_id for prompt in verified}


def test_plain_questions_and_answers_train_too(tmp_path):
    rows = [
        {"prompt": f"{a}+{b}=", "answer": str(a + b)}
        for a in range(11, 15)
        for b in range(21, 25)
    ]
    recipe = {"data": {"extractor": "reversed_digits"}}
    make_trainer(
        tmp_path, Dataset.from_list(rows), {"num_train_epochs": 1}, recipe=recipe
    ).train()
    assert set(decisions(tmp_path / "olr")["label_source"]) == {"given"}


def test_an_adapter_and_limits_of_sampling_train_and_are_noted(data, tmp_path):
    adapter = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear")
    settings = {"top_k": 5, "min_p": 0.05, "num_train_epochs": 1}
    make_trainer(tmp_path, data, settings, adapter=adapter).train()
    train = read_recipe(tmp_path / "olr").train
    assert (train.lora_rank, train.lora_alpha, train.top_k, train.min_p) == (4, 8, 5, 0.05)
    assert len(decisions(tmp_path / "olr")) == 16


def refused(data, tmp_path, settings=None, **arguments):
    return refusal(
        lambda: make_trainer(tmp_path, data, settings or {}, **arguments).train()
    )


def test_what_cannot_work_is_said_before_the_first_step(data, tmp_path, undisturbed):
    smoothed = {"method": {"name": "label_smoothing"}}
    assert "use olr, grpo or ttrl" in refused(data, tmp_path / "a", recipe=smoothed)
    with_verified = {
        "method": {"name": "olr", "prompts": "verified"},
        "data": {"verified": str(data)},
    }
    assert "a choice of prompts" in refused(data, tmp_path / "a", recipe=with_verified)
    epochs = {"train": {"epochs": 3}}
    assert "train.epochs is a setting of trl" in refused(
        data, tmp_path / "b", recipe=epochs
    )
    twice = Dataset.from_list([{"prompt": "1+1=", "answer": "2"}] * 16)
    assert "16 rows have the prompt '1+1='" in refused(twice, tmp_path / "c")
    stream = load_dataset("parquet", data_files=str(data), split="train", streaming=True)
    assert "a stream has no length" in refused(stream, tmp_path / "d", {"max_steps": 2})
    unlabelled = Dataset.from_list([{"prompt": f"{number}+1="} for number in range(16)])
    assert "needs the label of every prompt" in refused(unlabelled, tmp_path / "f")
    assert not list(tmp_path.glob("*/olr"))
    again = OlrReward(undisturbed, RECIPE)
    assert "holds a run already (finished)" in refused(data, tmp_path / "g", reward=again)


def test_the_reward_without_the_callback_is_refused(data, tmp_path):
    trainer = GRPOTrainer(
        str(policy_path("builtin:addition-easier")),
        reward_funcs=OlrReward(),
        args=GRPOConfig(
            str(tmp_path),
            use_cpu=True,
            bf16=False,
            report_to=[],
            per_device_train_batch_size=8,
        ),
        train_dataset=load_dataset("parquet", data_files=str(data), split="train"),
    )
    assert "callbacks=[reward]" in refusal(trainer.train)


def test_the_asynchronous_trainer_takes_plain_rewards_alone(monkeypatch):
    """Its worker is started as that trainer does it; only the check that vLLM is installed is left out."""
    monkeypatch.setattr(async_rollout_worker, "is_vllm_available", lambda: True)
    worker = async_rollout_worker.AsyncRolloutWorker(reward_funcs=[OlrReward()])
    assert "use GRPOTrainer; the asynchronous trainer takes" in refusal(worker.start)
    copied = pickle.loads(pickle.dumps(accuracy_reward))
    assert copied(completions=[r"\boxed{2}", r"\boxed{3}"], solution=["2", "2"]) == [1, 0]


def test_a_checkpoint_without_a_history_is_refused(data, tmp_path):
    assert not train(tmp_path, data, kill=4)
    state = tmp_path / "checkpoint-3" / "trainer_state.json"
    content = json.loads(state.read_text())
    del content["stateful_callbacks"]["OlrReward"]
    state.write_text(json.dumps(content))
    trainer = make_trainer(tmp_path, data, {})
    with pytest.raises(
        UserError, match="the checkpoint of step 3 was saved without OlrReward"
    ):
        trainer.train(resume_from_checkpoint=True)


def test_no_visit_is_lost_where_trl_drops_the_rest_of_an_epoch(data, tmp_path):
    # 16 prompts in batches of 6: TRL leaves 4 out of each epoch, other ones when it shuffles.
    settings = {
        "per_device_train_batch_size": 24,
        "gradient_accumulation_steps": 1,
        "shuffle_dataset": True,
    }
    make_trainer(tmp_path, data, settings).train()
    decided = decisions(tmp_path / "olr")
    assert len(decided) == 36
    visits = decided.group_by("prompt_id").agg(pl.col("visit"))["visit"].to_list()
    assert all(
        sorted(of_prompt) == list(range(1, len(of_prompt) + 1)) for of_prompt in visits
    )
