"""Samples and prompts as behind the paper's printed scores."""

import json
import shutil
from functools import partial
from pathlib import Path

import commands
import polars as pl
import pytest

from olr_cli.data.prompts import SYSTEM_PROMPT
from olr_cli.engines.models import policy_path
from olr_cli.evaluation.benchmark import find_benchmark, registry
from olr_cli.evaluation.plan import paper_benchmark

AS_PAPER = ("--protocol", "paper")
SHORT = ("--max-new-tokens", "2", "--limit", "1")
QWEN, LLAMA = "Qwen3-4B-Base", "DeepSeek-R1-Distill-Llama-8B"


answered = partial(commands.answered, "evaluate")


def samples(plain):
    return {
        score["benchmark"]: score["samples"] for score in plain["evaluations"][0]["scores"]
    }


def prompts(folder, benchmark="aime24"):
    return pl.read_parquet(
        Path("evaluations") / folder / "generations" / f"{benchmark}.parquet"
    )["prompt"].unique()


@pytest.fixture(autouse=True)
def somewhere(here):
    """A folder with problems, and with small policies under the names of the paper's models."""
    rows = [("aime", f"What is {n} + 1?", str(n + 1)) for n in range(30)]
    rows += [("math", f"What is {n} + 2?", str(n + 2)) for n in range(500)]
    table = [
        {
            "data_source": source,
            "prompt": [{"role": "user", "content": question}],
            "ability": "math",
            "reward_model": {"ground_truth": gold, "style": "rule"},
            "extra_info": {"index": number, "split": "test"},
        }
        for number, (source, question, gold) in enumerate(rows)
    ]
    pl.DataFrame(table).write_parquet("problems.parquet")
    for name in (QWEN, LLAMA):
        shutil.copytree(policy_path("builtin:addition-easier"), name)
        config = json.loads(Path(name, "config.json").read_text()) | {
            "max_position_embeddings": 512
        }
        Path(name, "config.json").write_text(json.dumps(config))


def test_as_in_the_paper_aime_is_sampled_8_times_and_the_command_says_so():
    words = (QWEN, "--data", "problems.parquet", *SHORT, "--paper", *AS_PAPER)
    plain, said = answered(*words)
    assert samples(plain) == {"aime24": 8, "math500": 1}
    assert "those behind the paper's scores" in said
    assert any(
        "8 samples of AIME and AMC, the authors' grader" in note for note in plain["notes"]
    )
    again, said = answered(*words[:-3])
    assert samples(again) == samples(plain), "an evaluation goes on under its own protocol"


def test_an_evaluation_made_otherwise_stays_as_it_is():
    words = (
        QWEN,
        "--data",
        "problems.parquet",
        "--benchmarks",
        "aime24",
        *SHORT,
        "--temperature",
        "1",
    )
    plain, _ = answered(*words)
    assert samples(plain) == {"aime24": 32}
    plain, said = answered(*words, "--paper")
    assert samples(plain) == {"aime24": 32}
    assert "behind the paper" not in said
    assert "begun as standard; leave it out" in commands.refused(
        "evaluate", *words, *AS_PAPER
    )


def test_what_the_command_line_sets_counts_under_any_protocol():
    words = (
        QWEN,
        "--data",
        "problems.parquet",
        "--benchmarks",
        "aime24",
        *SHORT,
        "--samples",
        "2",
    )
    plain, _ = answered(*words, "--paper", *AS_PAPER)
    assert samples(plain) == {"aime24": 2}


def test_the_llama_model_reads_message_and_question_joined():
    words = (
        LLAMA,
        "--data",
        "problems.parquet",
        "--benchmarks",
        "aime24",
        *SHORT,
        "--samples",
        "1",
    )
    answered(*words, "--paper", *AS_PAPER)
    assert prompts(LLAMA).to_list() == [f"<bos>{SYSTEM_PROMPT}What is 0 + 1?"]
    answered(
        *words,
        "--chat-template",
        "none",
        "--out",
        "evaluations/plain",
        "--paper",
        *AS_PAPER,
    )
    assert prompts("plain").to_list() == [f"{SYSTEM_PROMPT}\n\nWhat is 0 + 1?"]


def test_behind_the_papers_scores_are_8_samples_of_three_benchmarks_and_1_of_the_others():
    samples_of = {name: paper_benchmark(one).samples for name, one in registry().items()}
    assert [name for name, samples in samples_of.items() if samples == 8] == [
        "aime24",
        "aime25",
        "amc",
    ]
    assert {*samples_of.values()} == {1, 8}


def test_gpqa_is_asked_without_its_last_line_break():
    gpqa = find_benchmark("gpqa_diamond")
    assert gpqa.prompt == paper_benchmark(gpqa).prompt + "\n"
