"""`olr inject-noise` from the outside: what it prints, writes and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from olr_cli.cli import app
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.prompts import SENTINEL
from olr_cli.data.sets import training_prompts
from olr_cli.recipe.schema import Recipe

SAMPLE = Path(__file__).parents[1] / "fixtures" / "dapo_sample.parquet"
SHARED = Path(__file__).parents[2].parent / "shared" / "data"
needs_shared = pytest.mark.skipif(
    not SHARED.exists(), reason="the larger data sets are not beside this clone"
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def inject_noise(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["inject-noise", *map(str, arguments)])


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_type_and_ratio_are_enough_and_a_second_time_changes_nothing(here: Path) -> None:
    first = inject_noise("--type", "active", "--ratio", "0.5")
    assert first.exit_code == 0, first.output
    assert "200 of 400" in first.output and "200 active, 200 clean" in first.output
    assert first.output.count("true answer") == 3
    assert "olr train laptop/quickstart --set data.train=data/arithmetic-active-0.5.parquet" in first.output
    assert files(here) == ["data/arithmetic-active-0.5.parquet"]
    before = (here / "data/arithmetic-active-0.5.parquet").stat().st_mtime_ns
    second = inject_noise("--type", "active", "--ratio", "0.50")
    assert second.exit_code == 0
    assert "already there" in second.output
    assert (here / "data/arithmetic-active-0.5.parquet").stat().st_mtime_ns == before


def test_other_noise_does_not_take_the_name(here: Path) -> None:
    inject_noise("--type", "active", "--ratio", "0.5")
    refused = inject_noise("--type", "active", "--ratio", "0.5", "--seed", "1")
    assert refused.exit_code == 2 and "choose another --out" in refused.output
    assert (
        inject_noise("--type", "active", "--ratio", "0.5", "--seed", "1", "--out", "other.jsonl").exit_code
        == 0
    )
    assert files(here) == ["data/arithmetic-active-0.5.parquet", "other.jsonl"]


def test_the_file_holds_what_was_said(here: Path) -> None:
    done = inject_noise(
        "--type", "mixed", "--ratio", "0.5", "--dataset", SAMPLE, "--active-share", "0.25", "--json"
    )
    said = json.loads(done.output)
    assert (said["prompts"], said["marked"], said["written"]) == (24, 12, True)
    assert said["counts"] == {"inactive": 9, "active": 3, "clean": 12}
    assert said["file"] == "data/dapo_sample-mixed-0.5.parquet"
    prompts = read_prompts(here / said["file"])
    assert prompts.digest == said["digest"]
    assert sum(p.noise_type == "active" for p in prompts.prompts) == 3
    by_id = {p.prompt_id: p for p in prompts.prompts}
    for example in said["examples"]:
        prompt = by_id[example["prompt_id"]]
        assert (example["true_answer"], example["given_label"]) == (prompt.true_answer, SENTINEL)


def test_a_file_and_a_recipe_with_the_same_seed_are_the_same_training_set(here: Path) -> None:
    noise = {"type": "active", "ratio": "0.5"}
    inject_noise("--type", "active", "--ratio", "0.5", "--seed", "3", "--out", "noisy.parquet")
    from_recipe = training_prompts(Recipe.model_validate({"seed": 3, "noise": noise}))
    from_file = training_prompts(Recipe.model_validate({"seed": 3, "data": {"train": "noisy.parquet"}}))
    assert from_file.prompts == from_recipe.prompts


def test_a_sample_is_marked_exactly(here: Path) -> None:
    done = inject_noise("--type", "inactive", "--ratio", "0.3", "--dataset", SAMPLE, "--sample", "15")
    assert "5 of 15 (ratio 0.3, realised 0.3333, seed 0)" in done.output
    assert len(read_prompts(here / "data/dapo_sample-inactive-0.3.parquet")) == 15


def test_stored_rollouts_give_labels_for_good(here: Path) -> None:
    rows = [{"prompt_id": "16", "answer": "[b]11", "is_correct": False}]
    Path("log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = inject_noise("--type", "active", "--ratio", "1", "--dataset", SAMPLE, "--rollouts", "log.jsonl")
    assert done.exit_code == 0, done.output
    assert "23 prompts without a wrong answer in the rollouts became inactive" in done.output
    assert "file says   [b]11 (active_frozen)" in done.output
    assert files(here) == ["data/dapo_sample-active-frozen-1.parquet", "log.jsonl"]


def test_prompts_are_shown_as_data(here: Path) -> None:
    question = "[red]What[/red] is [/] \x1b[31m1+1?\nAnswer:" + " x" * 100
    Path("rows.jsonl").write_text(json.dumps({"question": question, "answer": "[b]2"}))
    shown = inject_noise("--type", "inactive", "--ratio", "1", "--dataset", "rows.jsonl").output
    assert "[red]What[/red] is [/] �[31m1+1? Answer: x" in shown
    assert "true answer [b]2" in shown
    assert "\x1b" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if line.startswith("Prompt"))


def test_a_path_that_needs_quotes_gets_them(here: Path) -> None:
    done = inject_noise(
        "--type", "inactive", "--ratio", "0.5", "--dataset", SAMPLE, "--out", "my data/x y.parquet"
    )
    assert "--set 'data.train=my data/x y.parquet'" in done.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--ratio", "1.5"], "the ratio is 1.5; give a number from 0 to 1"),
        (["--ratio", "many"], "the ratio is many; give a number from 0 to 1"),
        (["--ratio", "0.5", "--dataset", "nowhere.parquet"], "nowhere.parquet does not exist"),
        (["--ratio", "0.5", "--dataset", "textual.jsonl"], "textual.jsonl has no column of prompts"),
        (["--ratio", "0.5", "--dataset", "unlabelled.jsonl"], "unlabelled.jsonl has no column of labels"),
        (["--ratio", "0.5", "--dataset", "holes.jsonl"], "1 of the 2 in holes.jsonl have none in 'answer'"),
        (["--ratio", "0.5", "--dataset", "torn.parquet"], "torn.parquet is not a whole Parquet file"),
        (["--ratio", "0.5", "--dataset", "marked.jsonl"], "marked.jsonl is marked already (1 inactive)"),
        (
            ["--ratio", "0.5", "--dataset", str(SAMPLE), "--sample", "25"],
            "has 24 prompts, so 25 cannot be sampled",
        ),
        (["--ratio", "0.5", "--active-share", "2"], "the active share is 2"),
        (["--ratio", "0.5", "--out", "noise.csv"], "written as .parquet or .jsonl"),
        (["--ratio", "0.5", "--rollouts", "nowhere"], "nowhere does not exist"),
        (["--ratio", "0.5", "--dataset", "org/name"], "pip install 'olr-cli[hub]'"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: str
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    Path("textual.jsonl").write_text('{"text": "1+1"}')
    Path("unlabelled.jsonl").write_text('{"question": "1+1"}')
    Path("holes.jsonl").write_text('{"question": "1+1", "answer": "2"}\n{"question": "2+2", "answer": ""}')
    Path("marked.jsonl").write_text(json.dumps({"prompt": "1+1", "reward_model": {"ground_truth": SENTINEL}}))
    Path("torn.parquet").write_bytes(SAMPLE.read_bytes()[:-9])
    before = files(here)
    refused = inject_noise("--type", "mixed", *arguments)
    assert refused.exit_code == 2
    assert refused.output.startswith("Error: ") and refused.output.count("\n") == 1
    assert expected in refused.output
    assert files(here) == before


@pytest.mark.parametrize(
    "arguments", [["--type", "loud", "--ratio", "1"], ["--type", "active"], ["--ratio", "1"]]
)
def test_a_wrong_or_missing_option_has_status_2(here: Path, arguments: list[str]) -> None:
    assert inject_noise(*arguments).exit_code == 2
    assert files(here) == []


def test_no_torch_is_imported(here: Path) -> None:
    script = (
        "import sys; from olr_cli.cli import app;"
        " app(['inject-noise', '--type', 'active', '--ratio', '0.5'], standalone_mode=False);"
        " heavy = {'torch', 'transformers', 'math_verify', 'scipy', 'matplotlib'} & sys.modules.keys();"
        " sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "already there" not in done.stdout and "\x1b" not in done.stdout


@needs_shared
def test_a_file_we_wrote_differs_from_its_source_in_the_labels_alone(here: Path) -> None:
    source = pq.read_table(SHARED / "dapo_800.parquet")
    inject_noise(
        "--type", "inactive", "--ratio", "0.5", "--dataset", SHARED / "dapo_800.parquet", "--out", "n.parquet"
    )
    noisy = pq.read_table("n.parquet")
    for name in ("prompt", "data_source", "ability"):
        assert noisy[name].combine_chunks() == source[name].combine_chunks()
    truth = [row["ground_truth"] for row in source["reward_model"].to_pylist()]
    extra = pa.table({"extra": noisy["extra_info"]})["extra"].to_pylist()
    assert [row["original_ground_truth"] for row in extra] == truth
    assert [row["index"] for row in extra] == [row["index"] for row in source["extra_info"].to_pylist()]


def test_columns_and_the_system_message_are_options(here: Path) -> None:
    rows = [{"Frage": f"{n} + {n}", "meta": {"gold": 2 * n}} for n in range(10)]
    Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("--type", "inactive", "--ratio", "0.5", "--dataset", "mine.jsonl", "--out", "noisy.parquet")
    refused = inject_noise(*words)
    assert refused.exit_code == 2
    assert "--columns '{question: Frage, answer: meta.gold}'" not in refused.stderr  # Frage is no likely name
    assert "its columns are Frage, meta.gold" in refused.stderr
    columns = ("--columns", "{question: Frage, answer: meta.gold}")
    done = inject_noise(*words, *columns, "--system", "Answer in one number.")
    assert done.exit_code == 0, done.output
    prompts = read_prompts("noisy.parquet").prompts
    assert sum(prompt.given_label == SENTINEL for prompt in prompts) == 5
    assert {prompt.true_answer for prompt in prompts} == {str(2 * n) for n in range(10)}
    for prompt in prompts:
        assert [message.role for message in prompt.messages] == ["system", "user"]
        assert prompt.messages[0].content == "Answer in one number."
    assert inject_noise(*words, "--columns", "{question: Frag, answer: meta.gold}").exit_code == 2
