"""How the paper's printed scores were made, and the notes on what was done otherwise beside them."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from olr_cli.cli import app
from olr_cli.data.prompts import SYSTEM_PROMPT
from olr_cli.engines.models import policy_path

SHORT = ("--max-new-tokens", "2", "--limit", "1")
QWEN, LLAMA = "Qwen3-4B-Base", "DeepSeek-R1-Distill-Llama-8B"


def olr(*words):
    return CliRunner().invoke(app, ["evaluate", *map(str, words)])


def answered(*words):
    result = olr(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), result.stderr


def samples(plain):
    return {score["benchmark"]: score["samples"] for score in plain["evaluations"][0]["scores"]}


def prompts(folder, benchmark="aime24"):
    return pl.read_parquet(Path("evaluations") / folder / "generations" / f"{benchmark}.parquet")[
        "prompt"
    ].unique()


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    """A folder with problems, and with small policies under the names of the paper's models."""
    monkeypatch.chdir(tmp_path)
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
        config = json.loads(Path(name, "config.json").read_text()) | {"max_position_embeddings": 512}
        Path(name, "config.json").write_text(json.dumps(config))


def test_beside_the_paper_aime_is_sampled_8_times_and_the_command_says_so():
    words = (QWEN, "--data", "problems.parquet", *SHORT, "--compare", "paper")
    plain, said = answered(*words)
    assert samples(plain) == {"aime24": 8, "math500": 1}
    assert "--protocol standard" in said
    notes = "\n".join(plain["notes"])
    assert "avg@" not in notes.partition("Scores are avg@n")[2]
    assert "Sampled with max_new_tokens 2; the paper with 4096." in notes
    assert "AIME24, MATH-500: graded by olr's rules (R7), not by the authors' grader." in notes
    again, said = answered(*words[:-2])
    assert samples(again) == samples(plain), "an evaluation goes on under its own protocol"


def test_an_evaluation_made_otherwise_stays_and_is_noted():
    words = (QWEN, "--data", "problems.parquet", "--benchmarks", "aime24", *SHORT, "--temperature", "1")
    plain, _ = answered(*words)
    assert samples(plain) == {"aime24": 32}
    plain, said = answered(*words, "--compare", "paper")
    assert samples(plain) == {"aime24": 32}
    assert "AIME24: avg@32 here, avg@8 in the paper's tables." in plain["notes"]
    assert "Sampled with temperature 1.0; the paper with 0.6." in plain["notes"]
    assert "--protocol" not in said
    refusal = olr(*words, "--protocol", "paper")
    assert refusal.exit_code == 2
    assert "samples of aime24: 32 -> 8" in refusal.stderr
    markdown = olr("--regrade", f"evaluations/{QWEN}", "--compare", "paper", "--format", "markdown").stdout
    assert "avg@32 here, avg@8 in the paper's tables" in markdown


def test_what_the_command_line_sets_counts_under_any_protocol():
    words = (QWEN, "--data", "problems.parquet", "--benchmarks", "aime24", *SHORT, "--samples", "2")
    plain, _ = answered(*words, "--protocol", "paper", "--compare", "paper")
    assert samples(plain) == {"aime24": 2}
    assert "AIME24: avg@2 here, avg@8 in the paper's tables." in plain["notes"]


def test_the_llama_model_reads_message_and_question_joined():
    words = (LLAMA, "--data", "problems.parquet", "--benchmarks", "aime24", *SHORT, "--samples", "1")
    plain, _ = answered(*words, "--compare", "paper")
    assert prompts(LLAMA).to_list() == [f"<bos>{SYSTEM_PROMPT}What is 0 + 1?"]
    assert not any("asked otherwise" in note for note in plain["notes"])
    plain, _ = answered(*words, "--chat-template", "none", "--out", "evaluations/plain", "--compare", "paper")
    assert prompts("plain").to_list() == [f"{SYSTEM_PROMPT}\n\nWhat is 0 + 1?"]
    assert any("without a chat template; AIME24 were asked otherwise" in note for note in plain["notes"])


def test_show_prints_the_prompt_of_a_protocol():
    shown = olr("--show", "aime24", LLAMA, "--data", "problems.parquet", "--protocol", "paper")
    assert shown.stdout == f"<bos>{SYSTEM_PROMPT}What is 0 + 1?\ngold: 1\n"


def test_right_choices_that_the_authors_grader_rejects_are_counted():
    frame = f"<|im_start|>system\n{SYSTEM_PROMPT}<|im_end|>\n<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n"
    questions = [f"Which is {n}?\n\nA) {n}\nB) {n + 1}\n" for n in range(1172)]
    rows = [{"data_source": "arc_c", "question": question, "answer": "A"} for question in questions]
    pl.DataFrame(rows).write_parquet("arc.parquet")
    boxes = ["A", "(A)", r"\text{A}", "A) 0", "A.", "B", "B) 1", "no"]
    lines = [
        {
            "doc_id": n,
            "doc": {"question": questions[n]},
            "target": "A",
            "arguments": {"gen_args_0": {"arg_0": frame % questions[n], "arg_1": {"temperature": 0.6}}},
            "resps": [[rf"\boxed{{{box}}}"]],
        }
        for n, box in enumerate(boxes)
    ]
    Path(QWEN, "samples_arc_1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ("--import", QWEN, "--benchmarks", "arc_c", "--data", "arc.parquet", "--compare", "paper")
    plain, _ = answered(*words)
    assert plain["evaluations"][0]["scores"][0]["avg"] == 5 / 8
    notes = [note for note in plain["notes"] if note.startswith(("ARC-c", "The paper's prompts"))]
    assert notes == [
        "ARC-c: 2 of 5 right answers have more than the letter in the box, as in `B) Planets`; the authors' grader"
        " counts these as wrong, 25.0 points in all."
    ]
