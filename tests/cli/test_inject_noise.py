"""`olr inject-noise` from the outside: what it prints, writes and refuses."""

import json
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import each
from commands import answered, done, refused
from samples import SAMPLE, json_lines

from olr_cli.answers.graded import SENTINEL
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.sets import training_prompts
from olr_cli.recipe.schema import Recipe

pytestmark = pytest.mark.usefixtures("here")


inject_noise = partial(done, "inject-noise")


def files(folder: Path) -> list[str]:
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    )


def test_type_and_ratio_are_enough_and_a_second_time_changes_nothing(here):
    first = inject_noise("--type", "active", "--ratio", "0.5")
    assert "200 of 400" in first.output and "200 active, 200 clean" in first.output
    assert first.output.count("true answer") == 3
    assert (
        "olr train laptop/quickstart --set data.train=data/arithmetic-active-0.5.parquet"
        in first.output
    )
    assert files(here) == ["data/arithmetic-active-0.5.parquet"]
    before = (here / "data/arithmetic-active-0.5.parquet").stat().st_mtime_ns
    second = inject_noise("--type", "active", "--ratio", "0.50")
    assert "already there" in second.output
    assert (here / "data/arithmetic-active-0.5.parquet").stat().st_mtime_ns == before


def test_other_noise_does_not_take_the_name(here):
    inject_noise("--type", "active", "--ratio", "0.5")
    words = ("--type", "active", "--ratio", "0.5", "--seed", "1")
    assert "--out: data/" in refused("inject-noise", *words)
    inject_noise(*words, "--out", "other.jsonl")
    assert files(here) == ["data/arithmetic-active-0.5.parquet", "other.jsonl"]


def test_the_file_holds_what_was_said(here):
    share = ("--active-share", "0.25")
    words = (
        "inject-noise",
        "--type",
        "mixed",
        "--ratio",
        "0.5",
        "--dataset",
        SAMPLE,
        *share,
    )
    said, _ = answered(*words)
    assert said["is_new"] and not answered(*words)[0]["is_new"]
    assert said["counts"] == {"inactive": 9, "active": 3, "clean": 12}
    assert said["written"] == ["data/dapo_sample-mixed-0.5.parquet"]
    prompts = read_prompts(here / said["written"][0])
    assert prompts.digest == said["digest"]
    assert sum(p.noise_type == "active" for p in prompts.prompts) == 3


def test_a_file_and_a_recipe_with_the_same_seed_are_the_same_training_set():
    noise = {"type": "active", "ratio": "0.5"}
    inject_noise(
        "--type", "active", "--ratio", "0.5", "--seed", "3", "--out", "noisy.parquet"
    )
    from_recipe = training_prompts(Recipe.model_validate({"seed": 3, "noise": noise}))
    from_file = training_prompts(
        Recipe.model_validate({"seed": 3, "data": {"train": "noisy.parquet"}})
    )
    assert from_file.prompts == from_recipe.prompts


def test_a_sample_is_marked_exactly(here):
    words = ("--dataset", SAMPLE, "--sample", "15", "--out", "my data/x y.parquet")
    said = inject_noise("--type", "inactive", "--ratio", "0.3", *words)
    assert "5 of 15 (ratio 0.3, realised 0.3333, seed 0)" in said.output
    assert "--set 'data.train=my data/x y.parquet'" in said.output
    assert len(read_prompts(here / "my data/x y.parquet")) == 15


def test_stored_rollouts_give_labels_for_good(here):
    answers = (
        {"prompt_id": "16", "answer": answer, "is_correct": False}
        for answer in ("[b]11", "10\\%")
    )
    json_lines(Path("log.jsonl"), *answers)
    said = inject_noise(
        "--type", "active", "--ratio", "1", "--dataset", SAMPLE, "--rollouts", "log.jsonl"
    )
    refusal = "Refused   1 wrong answer of the rollouts that another grader may call right, such as"
    assert refusal in said.output and "10\\% for 10" in " ".join(said.output.split())
    assert (
        "23 prompts without a wrong answer in the rollouts became inactive" in said.output
    )
    assert "file says   [b]11 (active_frozen)" in said.output
    assert files(here) == ["data/dapo_sample-active-frozen-1.parquet", "log.jsonl"]


def test_prompts_are_shown_as_data():
    question = "[red]What[/red] is [/] \x1b[31m1+1?\nAnswer:" + " x" * 100
    Path("rows.jsonl").write_text(json.dumps({"question": question, "answer": "[b]2"}))
    shown = inject_noise(
        "--type", "inactive", "--ratio", "1", "--dataset", "rows.jsonl"
    ).output
    assert "[red]What[/red] is [/] �[31m1+1? Answer: x" in shown
    assert "true answer [b]2" in shown
    assert "\x1b" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if line.startswith("Prompt"))


@each(
    "arguments, expected",
    (["--ratio", "many"], "the ratio is many; give a number from 0 to 1"),
    (["--ratio", "0.5", "--dataset", "nowhere.parquet"], "nowhere.parquet does not exist"),
    (
        ["--ratio", "0.5", "--dataset", "unlabelled.jsonl"],
        "unlabelled.jsonl has no column of labels",
    ),
    (
        ["--ratio", "0.5", "--dataset", "torn.parquet"],
        "torn.parquet is not a whole Parquet file",
    ),
    (["--ratio", "0.5", "--active-share", "2"], "the active share is 2"),
    (
        ["--type", "active", "--ratio", "0.5", "--active-share", "0.2"],
        "--active-share is for mixed noise",
    ),
    (["--ratio", "0.5", "--out", "noise.csv"], "written as .parquet or .jsonl"),
    (["--ratio", "0.5", "--rollouts", "nowhere"], "nowhere does not exist"),
    (["--ratio", "0.5", "--dataset", "mine.jsonl"], "its columns are Frage, meta.gold"),
    (
        ["--ratio", "0.5", "--dataset", "mine.jsonl", "--columns", "{question: Frag}"],
        "has no 'Frag' (did",
    ),
)
def test_bad_input_is_one_sentence_and_writes_nothing(here, arguments, expected):
    json_lines(Path("unlabelled.jsonl"), {"question": "1+1"})
    json_lines(Path("mine.jsonl"), {"Frage": "1+1", "meta": {"gold": 2}})
    Path("torn.parquet").write_bytes(SAMPLE.read_bytes()[:-9])
    before = files(here)
    assert expected in refused("inject-noise", "--type", "mixed", *arguments)
    assert files(here) == before


def test_a_file_we_wrote_differs_from_its_source_in_the_labels_alone():
    source = pq.read_table(SAMPLE)
    inject_noise(
        "--type", "inactive", "--ratio", "0.5", "--dataset", SAMPLE, "--out", "n.parquet"
    )
    noisy = pq.read_table("n.parquet")
    for name in ("prompt", "data_source", "ability"):
        assert noisy[name].combine_chunks() == source[name].combine_chunks()
    truth = [row["ground_truth"] for row in source["reward_model"].to_pylist()]
    extra = pa.table({"extra": noisy["extra_info"]})["extra"].to_pylist()
    assert [row["original_ground_truth"] for row in extra] == truth
    assert [row["index"] for row in extra] == [
        row["index"] for row in source["extra_info"].to_pylist()
    ]


def test_columns_and_the_system_message_are_options():
    json_lines(
        Path("mine.jsonl"),
        *({"Frage": f"{n} + {n}", "meta": {"gold": 2 * n}} for n in range(10)),
    )
    words = (
        "--type",
        "inactive",
        "--ratio",
        "0.5",
        "--dataset",
        "mine.jsonl",
        "--out",
        "noisy.parquet",
    )
    columns = ("--columns", "{question: Frage, answer: meta.gold}")
    inject_noise(*words, *columns, "--system", "Answer in one number.")
    prompts = read_prompts("noisy.parquet").prompts
    assert sum(prompt.given_label == SENTINEL for prompt in prompts) == 5
    assert {prompt.true_answer for prompt in prompts} == {str(2 * n) for n in range(10)}
    for prompt in prompts:
        assert [message.role for message in prompt.messages] == ["system", "user"]
        assert prompt.messages[0].content == "Answer in one number."
