"""What OlrReward costs a training step of TRL, against a reward function that compares strings.

Two trainers of the built-in policy train in turns, a step each; TRL's own timer says how long the reward takes.

    taskset -c 0 .venv-trainers/bin/python benchmarks/trainer_overhead.py
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from olr_cli.data.noise import inject
from olr_cli.data.prompt_files import read_prompts
from olr_cli.engines.models import policy_path
from olr_cli.trainers.trl import OlrReward

PROMPTS, K, STEPS = 160, 8, 12


def plain(completions, reward_model, **columns):
    """The reward of most tutorials: the last word is the label."""
    texts = (completion[-1]["content"][::-1] for completion in completions)
    return [
        float(text == label["ground_truth"])
        for text, label in zip(texts, reward_model, strict=True)
    ]


def seconds(reward, folder):
    """Seconds of every step but the first two, and of the reward in them."""
    spent = []

    def timed(*words, **named):
        began = time.perf_counter()
        rewards = reward(*words, **named)
        spent.append(time.perf_counter() - began)
        return rewards

    timed.__name__ = "reward"
    noisy = inject(
        read_prompts("arithmetic", limit=PROMPTS),
        type="active",
        ratio=0.5,
        seed=0,
        active_share=1,
    )
    rows = [
        {
            "prompt": [{"role": m.role, "content": m.content} for m in prompt.messages],
            "data_source": prompt.data_source,
            "reward_model": {"ground_truth": prompt.given_label, "style": "rule"},
            "extra_info": {
                "index": prompt.prompt_id,
                "original_ground_truth": prompt.true_answer,
                "noise_type": prompt.noise_type,
            },
        }
        for prompt in noisy.prompts
    ]
    config = GRPOConfig(
        str(folder),
        max_steps=STEPS,
        num_generations=K,
        per_device_train_batch_size=PROMPTS * K,
        max_completion_length=5,
        learning_rate=1e-4,
        logging_steps=1,
        report_to="none",
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        save_strategy="no",
    )
    trainer = GRPOTrainer(
        str(policy_path("builtin:addition-easier")),
        reward_funcs=timed,
        callbacks=[reward] if isinstance(reward, OlrReward) else [],
        args=config,
        train_dataset=Dataset.from_list(rows),
    )
    trainer.train()
    steps = [line["step_time"] for line in trainer.state.log_history if "step_time" in line]
    return steps[2:], spent[2:]


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rewards = {
            "plain": plain,
            "OlrReward": OlrReward(recipe={"method": {"warmup_epochs": 1}}),
        }
        for name, reward in rewards.items():
            steps, spent = seconds(reward, Path(folder) / name)
            print(
                f"{name}: {1000 * statistics.median(spent):.1f} ms of a step of"
                f" {1000 * statistics.median(steps):.0f} ms ({PROMPTS} prompts x {K} completions)",
                file=sys.stdout,
            )
