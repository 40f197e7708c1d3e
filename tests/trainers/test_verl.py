"""OlrRewardManager inside verl's own reward loop, on real Ray actors; needs `make test-trainers`' environment."""

import asyncio
import os
import random
from types import SimpleNamespace

import numpy as np
import pytest
from cases import each, refusal

pytest.importorskip("verl")

import ray
import torch
from hydra import compose, initialize_config_module
from recorded import decisions
from tensordict import TensorDict
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from verl import DataProto
from verl.experimental.reward_loop import RewardLoopManager

from olr_cli.answers import ResponseTexts
from olr_cli.api import OnlineLabelRefinement
from olr_cli.data.noise import inject
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.writers import write_prompts
from olr_cli.engines.models import policy_path
from olr_cli.errors import UserError
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.metrics import read_metrics
from olr_cli.supervision.types import Rollout
from olr_cli.trainers.verl import (
    OlrRewardManager,
    RewardServer,
    require_enough_workers,
    trainer_settings,
)

PROMPTS, BATCH, K = 16, 8, 4
METHOD = {"warmup_epochs": 1, "slope_threshold": 0.0}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    os.environ["RAY_AUTH_MODE"] = "disabled"  # else Ray writes a token into the home folder
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    everything = read_prompts("arithmetic", limit=PROMPTS + 4)
    noisy = inject(
        everything.subset(range(PROMPTS)), type="active", ratio=0.5, seed=0, active_share=1
    )
    write_prompts(noisy, folder / "train.parquet")
    write_prompts(everything.subset(range(PROMPTS, PROMPTS + 4)), folder / "val.parquet")
    return folder


def configuration(files, run, *settings):
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(
            "ppo_trainer",
            overrides=[
                "reward.reward_manager.source=importlib", "reward.reward_manager.name=OlrRewardManager",
                "reward.reward_manager.module.path=pkg://olr_cli.trainers.verl",
                f"+reward.reward_kwargs.run_dir={run}", "+reward.reward_kwargs.recipe.method.warmup_epochs=1",
                "+reward.reward_kwargs.recipe.method.slope_threshold=0.0", "reward.num_workers=2",
                f"data.train_files={files}/train.parquet", f"data.val_files={files}/val.parquet",
                f"data.train_batch_size={BATCH}", f"actor_rollout_ref.rollout.n={K}",
                f"actor_rollout_ref.model.path={policy_path('builtin:addition-easier')}",
                "actor_rollout_ref.actor.optim.lr=1e-6", f"trainer.default_local_dir={run.parent}/checkpoints",
                "trainer.total_epochs=3", *settings,
            ],
        )  # fmt: skip


def response(prompt, step, sample):
    """A right or a systematically wrong answer, as the arithmetic task writes it."""
    draw = random.Random(f"{prompt.prompt_id} {step} {sample}")
    number = int(prompt.gold) + (
        0 if draw.random() < 0.3 + 0.1 * step else draw.choice([10, 10, 1])
    )
    return str(number)[::-1]


class Trainer:
    """Asks for rewards as verl's agent loop does: a response at a time, of any worker, in any order."""

    def __init__(self, config):
        from verl.utils import hf_tokenizer

        self.tokenizer = hf_tokenizer(config.actor_rollout_ref.model.path)
        self.workers = RewardLoopManager(config).reward_loop_worker_handles
        self.draw = random.Random(0)

    def ask(self, prompt, text, uid, session, step):
        """A future of the reward of one response, with the columns that AgentLoopWorker._compute_score makes."""
        tokens = torch.tensor([[*self.tokenizer.encode(text), self.tokenizer.eos_token_id]])
        question = torch.tensor([self.tokenizer.encode("1+1=")])
        whole = torch.cat([question, tokens], dim=1)
        batch = {
            "prompts": question,
            "responses": tokens,
            "input_ids": whole,
            "attention_mask": torch.ones_like(whole),
        }
        row = {
            "raw_prompt": [{"role": m.role, "content": m.content} for m in prompt.messages],
            "data_source": prompt.data_source,
            "reward_model": {"ground_truth": prompt.given_label, "style": "rule"},
            "extra_info": {
                "index": int(prompt.prompt_id),
                "original_ground_truth": prompt.true_answer,
                "noise_type": prompt.noise_type,
            },
            "uid": uid,
            "session_id": session,
            "global_steps": step,
        }
        columns = {name: np.array([value]) for name, value in row.items()}
        data = DataProto(batch=TensorDict(batch, batch_size=1), non_tensor_batch=columns)
        return self.draw.choice(self.workers).compute_score.remote(data)

    def step(self, prompts, number):
        """The rewards of a step, by prompt and sample."""
        asked = [(prompt, sample) for prompt in prompts for sample in range(K)]
        self.draw.shuffle(asked)
        refs = [
            self.ask(p, response(p, number, s), f"{p.prompt_id}/{number}", s, number)
            for p, s in asked
        ]
        results = ray.get(refs, timeout=300)
        return {
            (p.prompt_id, s): result["reward_score"]
            for (p, s), result in zip(asked, results, strict=True)
        }


def steps_of(prompts, first=1, last=4):
    """(number, prompts) of each step; an epoch has two."""
    for number in range(first, last + 1):
        half = (number - 1) % 2
        yield number, prompts[half * BATCH : (half + 1) * BATCH]


@pytest.fixture(scope="module")
def undisturbed(files, tmp_path_factory):
    """The decisions of `olr_cli.api` on the same responses, and its rewards."""
    run, rewards = tmp_path_factory.mktemp("undisturbed") / "run", {}
    prompts = read_prompts(files / "train.parquet").prompts
    with OnlineLabelRefinement(run, {"method": METHOD}) as olr:
        for number, batch in steps_of(prompts, last=6):
            groups = [
                (p, [Rollout(response(p, number, s)) for s in range(K)]) for p in batch
            ]
            decided = olr.supervise(groups)
            rewards[number] = dict(
                zip(
                    ((p.prompt_id, s) for p in batch for s in range(K)),
                    decided.rewards,
                    strict=True,
                )
            )
    return run, rewards


def test_verls_workers_get_the_rewards_that_the_supervisor_decides(
    files, tmp_path, undisturbed
):
    expected_run, expected = undisturbed
    prompts = read_prompts(files / "train.parquet").prompts
    held_out = read_prompts(files / "val.parquet").prompts
    trainer = Trainer(
        configuration(files, tmp_path / "run", "+reward.reward_kwargs.group_timeout=15")
    )
    graded = [trainer.ask(p, p.gold[::-1], f"val {p.prompt_id}", 0, 0) for p in held_out]
    graded.append(trainer.ask(held_out[0], "1", "val again", 0, 0))
    assert [result["reward_score"] for result in ray.get(graded, timeout=300)] == [
        1.0
    ] * 4 + [0.0]
    lost = [trainer.ask(prompts[0], "1", "lost", session, 1) for session in range(K - 1)]
    for number, batch in steps_of(prompts):
        assert trainer.step(batch, number) == expected[number]
    for reference in lost:  # their group stays incomplete, which holds up no other
        with pytest.raises(
            Exception, match=r"a group of 4 has had 3 responses for 15 seconds"
        ):
            ray.get(reference, timeout=300)
    # verl is killed after step 4 and goes on from its checkpoint after step 2
    del trainer
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("2")
    again = Trainer(configuration(files, tmp_path / "run", "reward.num_workers=1"))
    for number, batch in steps_of(prompts, first=3, last=6):
        assert again.step(batch, number) == expected[number]
    compared = decisions(tmp_path / "run")
    assert compared.equals(decisions(expected_run))
    assert set(compared["label_source"]) == {"given", "noisy", "majority"}
    assert read_manifest(tmp_path / "run")["status"] == "finished"
    assert [line["trainer/global_step"] for line in read_metrics(tmp_path / "run")] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]


@each(
    "setting, message",
    ("trainer.use_v1=False", "set trainer.use_v1=True"),
    ("trainer.v1.trainer_mode=colocate_async", "set it to sync"),
    ("+reward.reward_kwargs.recipe.train.epochs=3", "train.epochs is a setting of verl"),
    ("+reward.reward_kwargs.recipe.method.penalty_weight=0.1", "use olr, grpo or ttrl"),
    (
        "data.val_files=${data.train_files}",
        "16 prompts of data.val_files are in data.train_files too",
    ),
)
def test_what_cannot_work_is_said_before_anything_is_sampled(
    files, tmp_path, setting, message
):
    with pytest.raises(UserError, match=message):
        asyncio.run(
            RewardServer(configuration(files, tmp_path / "run", *setting.split())).start()
        )


def test_the_limits_of_verls_sampling_are_noted(files, tmp_path):
    config = configuration(files, tmp_path / "run", "actor_rollout_ref.rollout.top_k=20")
    asyncio.run(RewardServer(config).start())
    with OnlineLabelRefinement(settings=trainer_settings(config)) as olr:
        assert olr.recipe.train.top_k == 20


def test_a_step_that_cannot_wait_as_a_whole_is_refused(files, tmp_path):
    config = configuration(
        files,
        tmp_path / "run",
        "data.train_batch_size=1024",
        "actor_rollout_ref.rollout.n=16",
    )
    assert "set reward.num_workers=21" in refusal(require_enough_workers, config)


def test_the_plain_reward_is_a_custom_reward_function_of_verl(files, tmp_path):
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(
            "ppo_trainer",
            overrides=[
                "reward.custom_reward_function.path=pkg://olr_cli.trainers.verl",
                "reward.num_workers=2",
                f"actor_rollout_ref.model.path={policy_path('builtin:addition-easier')}",
            ],
        )
    trainer, prompts = Trainer(config), read_prompts("arithmetic", limit=4).prompts
    said = [text for prompt in prompts for text in (prompt.gold[::-1], "7")]
    asked = [
        trainer.ask(prompts[n // 2], text, str(n), 0, 1) for n, text in enumerate(said)
    ]
    assert [result["reward_score"] for result in ray.get(asked, timeout=300)] == [
        1.0,
        0.0,
    ] * 4


def test_what_the_chat_template_opened_begins_the_response(tmp_path):
    """Verl hands over the response alone, beside the tokens of the prompt."""
    words = {"</s>": 0, "ask": 1, "<think>": 2, "maybe": 3}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="</s>")),
        eos_token="</s>",
    )
    tokenizer.add_tokens(["<think>"], special_tokens=True)
    came = []

    async def reward(columns, rollout):
        came.append(rollout.response)
        return 0.0

    async def ask(prompt, response):
        manager = OlrRewardManager.__new__(OlrRewardManager)
        manager.loop, manager._length, manager.tokenizer = (
            asyncio.get_running_loop(),
            9,
            tokenizer,
        )
        manager._texts = ResponseTexts(tokenizer)
        manager._server = SimpleNamespace(reward=SimpleNamespace(remote=reward))
        whole = torch.tensor([[*prompt, *response]])
        batch = {
            "responses": torch.tensor([response]), "input_ids": whole, "attention_mask": torch.ones_like(whole),
        }  # fmt: skip
        await manager.run_single(DataProto(batch=TensorDict(batch, batch_size=1)))

    asyncio.run(ask([1, 2], [3, 0]))
    asyncio.run(ask([1], [2, 3, 0]))
    asyncio.run(ask([1], [3, 0]))
    assert came == ["<think>maybe", "<think> maybe", "maybe"]
