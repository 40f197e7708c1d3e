"""The `olr` command as a user meets it: what it imports, how it ends, what it says."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from cases import each
from commands import done, olr, refused
from samples import json_lines
from typer.main import get_command
from typer.testing import CliRunner

from olr_cli.cli import app
from olr_cli.data.prompt_files import read_prompts
from olr_cli.engines.local.engine import too_much_for_a_cpu
from olr_cli.recipe.layers import validate
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.locks import held
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.shards import stored_steps
from olr_cli.runs.store import scan_labels

HEAVY = (
    "math_verify", "matplotlib", "numpy", "polars", "pyarrow", "pydantic", "scipy", "torch", "transformers",
)  # fmt: skip
MODEL = "builtin:addition-easier"
SMALL = ["data.limit=12", "train.prompts_per_step=6", "train.mini_batch_prompts=6", "train.epochs=2",
         "method.warmup_epochs=1", "method.slope_threshold=0", "data.test=null"]  # fmt: skip


def train(*arguments, settings=SMALL):
    options = [part for setting in settings for part in ("--set", setting)]
    return olr("train", "laptop/quickstart", *options, *arguments)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "small"
    result = train("--run-dir", path)
    assert result.exit_code == 0, result.output
    return path


def test_help_imports_nothing_heavy():
    code = f"import sys, olr_cli.cli; print([m for m in {HEAVY} if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_lacks_a_character_shows_another(encoding):
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    words = [sys.executable, "-m", "olr_cli", "analyze", "--help"]
    shown = subprocess.run(words, capture_output=True, check=True, env=environment).stdout
    assert "--figure" in shown.decode(encoding)


def test_help_and_version():
    for command in ("evaluate", "rollouts"):
        assert re.search(
            "How responses are drawn(.|\n)*Where it runs", done(command, "--help").output
        )
    assert re.fullmatch(r"olr \d+\.\d+\.\d+\n", olr("--version").output)


def test_commands_stand_in_three_groups_and_each_has_an_example_that_it_can_take():
    whole = done("--help").output
    places = [whole.index(f" {panel} ") for panel in ("Data", "Training", "Results")]
    assert places == sorted(places)
    for command in get_command(app).commands:
        shown = done(command, "--help").output
        assert f" {command} " in whole
        assert f"Example: olr {command}" in shown
        assert not re.search(r"<(bool|int|float|str|path|list)", whole + shown)


def test_a_run_says_what_happened_and_what_comes_next(run):
    result = train("--run-dir", run.parent / "again")
    assert re.search(r"(?m)^ +2 +\d\.\d\d +\d+%", result.output)
    assert max(map(len, result.output.split("\n\n")[0].splitlines())) <= 80
    assert "wrong labels, last epoch" in result.output
    assert f"Next: olr analyze {run.parent / 'again'}" in result.output


def test_a_run_that_cannot_learn_says_why_at_its_end_or_ends_where_the_recipe_says(
    tmp_path,
):
    unread = [*SMALL, "data.extractor=choice"]
    ended = train("--run-dir", tmp_path / "run", settings=unread)
    assert ended.exit_code == 0
    *_, last = ended.output.partition("Finished")
    assert (
        "Note: 100% of the responses have no answer; the chat template or data.extractor"
        in last
    )
    stopped = train(
        "--run-dir", tmp_path / "stopped", settings=[*unread, "train.stop_if_no_reward=2"]
    )
    assert stopped.exit_code == 2
    assert (
        "train.stop_if_no_reward: no response of the last 2 steps was rewarded"
        in stopped.output
    )
    assert len(stored_steps(tmp_path / "stopped")) == 2


def test_json_progress_is_json(tmp_path):
    result = train("--run-dir", tmp_path / "run", "--json")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["step"] for event in events if event["event"] == "step"] == [
        0,
        1,
        2,
        3,
        4,
    ]
    assert all(event["text"] for event in events if event["event"] == "note")
    assert events[-1]["event"] == "finished" and events[-1]["run"] == str(tmp_path / "run")
    assert events[-1]["next"] == [f"olr analyze {tmp_path / 'run'} --figure dynamics"]


def test_a_dry_run_shows_a_prompt_and_writes_nothing(here):
    result = train("--dry-run")
    assert re.search(r"as the policy sees it:\n\d{3}\+\d{3}=\n", result.output)
    assert "slope_threshold: 0.0" in result.output
    assert list(here.iterdir()) == []


def test_a_dry_run_knows_how_long_an_earlier_run_of_the_policy_took(here):
    assert "as fast as" not in train("--dry-run").output
    train("--run-dir", "runs/first")
    assert re.search(r"(?m)^about \d+s, as fast as runs/first$", train("--dry-run").output)
    assert (
        "as fast as"
        not in train("--dry-run", settings=[*SMALL, "train.max_new_tokens=6"]).output
    )


def test_a_large_model_on_a_cpu_is_told_that_it_takes_days():
    recipe = validate({"data": {"train": "x"}, "model": {"path": "x"}}, "test")
    assert too_much_for_a_cpu(130_000, 800, recipe) == []
    (sentence,) = too_much_for_a_cpu(600_000_000, 800, recipe)
    assert (
        "600 M parameters on a CPU" in sentence and "take a GPU (engine.device)" in sentence
    )
    # 8 operations per parameter and token, 10¹¹ per second
    train = recipe.train
    tokens = 800 * train.epochs * train.rollouts_per_prompt * train.max_new_tokens
    a_day = int(1e11 * 86400 / 8 / tokens)
    assert too_much_for_a_cpu(a_day - 1, 800, recipe) == []
    assert "this takes 3 days" in too_much_for_a_cpu(3 * a_day, 800, recipe)[0]


def test_resume_of_a_finished_run_says_so_and_how_to_extend_it(run):
    result = train("--run-dir", run, "--resume")
    assert (result.exit_code, "nothing to resume" in result.output) == (0, True)
    assert f"Next: olr train --resume --run-dir {run} --set train.epochs=N" in result.output
    assert olr("train", "--resume", "--run-dir", run).output == result.output
    (event,) = map(
        json.loads, olr("train", "--resume", "--run-dir", run, "--json").stdout.splitlines()
    )
    assert (event["event"], event["run"], event["metrics"]["epoch"]) == (
        "finished",
        str(run),
        2,
    )


def test_a_finished_run_is_trained_further(tmp_path):
    path = tmp_path / "run"
    train("--run-dir", path)
    done("train", "--resume", "--run-dir", path, "--set", "train.epochs=3")
    assert read_metrics(path)[-1]["epoch"] == 3
    assert "nothing to resume" in olr("train", "--resume", "--run-dir", path).output


def test_own_data_get_an_accuracy_without_a_second_file_and_it_is_evaluated_on_the_same_prompts(
    tmp_path,
):
    rows = [{"question": f"{a}+{a}=", "answer": str(2 * a)[::-1]} for a in range(100, 120)]
    file = json_lines(tmp_path / "mine.jsonl", *rows)
    small = "train.epochs=1 train.max_new_tokens=5 data.system_prompt=none data.extractor=reversed_digits"
    settings = [f"data.train={file}", f"model.path={MODEL}", *small.split()]
    words = ["own-data", *(f"--set={setting}" for setting in settings)]
    assert (
        "2 held-out prompts from mine.jsonl (held out)"
        in done("train", *words, "--dry-run").stdout
    )
    run = tmp_path / "run"
    assert "held-out accuracy (avg)" in done("train", *words, "--run-dir", run).stdout
    held_out = {
        prompt.prompt_id for prompt in read_prompts(run / "held-out.parquet").prompts
    }
    trained = set(scan_labels(run).collect()["prompt_id"])
    assert (len(trained), len(held_out), trained & held_out) == (18, 2, set())
    assert "held-out" in done("evaluate", run, "--samples", "2").stdout
    audited = done("audit", run, "--export", tmp_path / "rest.jsonl").stdout
    assert f"--set data.test={run / 'held-out.parquet'}" in audited


def test_what_a_check_finds_in_own_data_is_said_before_a_run_and_blank_rows_are_skipped(
    tmp_path,
):
    asked = [(f"{a}+{a}=", 2 * a) for a in range(100, 118)] + [
        ("9+9=", "TODO"),
        (" ", 7),
        ("8+8=", "n/a"),
    ]
    rows = [{"Q": question, "A": answer} for question, answer in asked]
    file = json_lines(tmp_path / "mine.jsonl", *rows)
    words = [
        "own-data",
        f"--set=data.train={file}",
        "--set=data.columns={question: Q, answer: A}",
    ]
    words += [
        f"--set=model.path={MODEL}",
        "--set=train.epochs=1",
        "--set=train.max_new_tokens=1",
    ]
    command = f"olr check {file} --columns question=Q,answer=A"
    said = [
        f"Note: 1 row without a question skipped: line 20 of {file} has no 'Q'.",
        f"Warning: olr check finds 2 things in 20 rows (2 placeholders for a label): {command}",
    ]
    planned = done("train", *words, "--dry-run").stdout
    begun = done("train", *words, "--run-dir", tmp_path / "run").stdout
    assert all(sentence in planned and sentence in begun for sentence in said)
    assert "18 prompts from mine.jsonl, labels of unknown quality" in planned
    assert "(line 19, line 21)" in done(*shlex.split(command)[1:]).stdout


def test_the_manifest_and_metrics_tell_the_run(run):
    manifest = read_manifest(run)
    assert manifest["status"] == "finished"
    assert manifest["threads"] == 1
    assert manifest["data"]["train"]["prompts"] == 12
    assert len(manifest["data"]["train"]["digest"]) == 64
    last = read_metrics(run)[-1]
    times = ("rollouts", "verification", "labels", "update", "store", "step")
    speeds = ("generated_tokens", "trained_tokens", "samples")
    of_each_step = {
        "majority/accuracy",
        "label/effective_noise",
        "policy/kl",
        "rollout/reward",
    }
    assert of_each_step | {f"time/{t}" for t in times} | {
        f"speed/{s}" for s in speeds
    } <= set(last)
    # Unknown on a CPU: there in the file, as null.
    written = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert written["memory/gpu_peak"] is None
    assert "NaN" not in (run / "metrics.jsonl").read_text()


QUICKSTART = (
    "laptop/quickstart",
    *(part for setting in SMALL for part in ("--set", setting)),
)
KEYS = [
    ("data.train=nowhere.jsonl", "nowhere.jsonl does not exist"),
    ("data.train=columns.jsonl", "columns.jsonl has no column of prompts"),
    ("data.train=unlabelled.jsonl", "needs the label of every prompt"),
    ("data.train=marked.jsonl", "mark"),
    ("train.rollouts_per_prompt=1", "greater than or equal to 2"),
    (
        "train.max_prompt_tokens=3",
        "12 of 12 prompts are longer than train.max_prompt_tokens 3",
    ),
    ("train.max_new_tokens=60", "more than the 64 tokens"),
    ("model.path=builtin:addition-easy", "did you mean 'addition-easier'"),
    ("model.path=./nowhere", "./nowhere"),
    (f"name={'x' * 300}", "at most 100 characters"),
]
OPTIONS = [
    ((), "no recipe is named; name one ("),
    (("--resume",), "no recipe is named; name one ("),
    (("--resume", "--run-dir", "."), "not a run directory"),
    ((*QUICKSTART, "--run-dir", "x" * 300), "too long"),
    ((*QUICKSTART, "--run-dir", "x" * 300, "--resume"), "does not exist"),
    (("laptop/quickstart", "--jobs", 2), "--jobs is for the runs of a sweep; add --sweep"),
    (
        ("laptop/quickstart", "--index", 0),
        "--index is for the runs of a sweep; add --sweep",
    ),
    (("laptop/coherence", "--sweep", "--index", 0, "--jobs", 1), "leave --jobs out"),
    (("laptop/coherence", "--sweep", "--resume"), "leave --resume out"),
    (
        ("laptop/quickstart", "--sweep"),
        "such as `sweep: {grid: {method.name: [grpo, olr], seed:",
    ),
    (("laptop/coherence", "--sweep", "--json"), "choose one of the sweep's"),
]


@each(
    "words, message",
    *(
        ((*QUICKSTART, "--run-dir", "run", "--set", setting), said)
        for setting, said in KEYS
    ),
    *OPTIONS,
)
def test_what_cannot_work_is_one_sentence_status_2_and_nothing_written(
    words, message, here
):
    Path("columns.jsonl").write_text('{"q": "1+1", "a": "2"}\n')
    Path("unlabelled.jsonl").write_text('{"question": "1+1"}\n')
    Path("marked.jsonl").write_text(
        '{"question": "1+1", "answer": "__NoCorrectAnswer__"}\n'
    )
    before = sorted(here.iterdir())
    assert message in refused("train", *words)
    assert sorted(here.iterdir()) == before


@each(
    "words, message",
    ("trian", "no such command 'trian' (did you mean 'train'?); `olr --help` lists"),
    ("train --jbos 2", "no such option: --jbos (did you mean --jobs"),
    ("rollouts x y --rollouts 8", "no such option: --rollouts (did you mean --samples?)"),
    ("check x --qqq", "no such option: --qqq; `olr check --help` lists what it takes"),
    ("train x --index one", "invalid value for '--index'"),
    ("check", "missing argument 'SOURCE'; `olr check --help` lists what it takes"),
    (
        "check my data.csv",
        "extra argument(s) (data.csv); `olr check --help` lists what it takes, and a",
    ),
    (
        "audit log --only first:25",
        "--only takes statuses, and first:25 is none; write --first 25",
    ),
    (
        "train examples/sums.csv",
        "to train on it: olr train own-data --set data.train=examples/sums.csv",
    ),
    (
        "inject-noise --ratio .5 --type aktive",
        "'--type': 'aktive' is not one of 'inactive', 'active'",
    ),
    ("rollouts m d --samples 1", "'--samples': Input should be greater than or equal to 2"),
    (
        "recipes keys --format json",
        "--format: there is no 'json'; known: terminal, markdown",
    ),
    (
        "check x --columns '{questoin: a, anser: b}'",
        "(did you mean 'question'?), 'anser' (did you",
    ),
    (
        "check x --columns question=a,prompt=b",
        "names two columns for one role; leave one out",
    ),
    (
        "benchmarks --system s",
        "no benchmark is named; name the one whose prompt is to be shown: olr benchmarks NAME",
    ),
    (
        "check x --columns question",
        "--columns question does not say which column holds what",
    ),
    (
        "check x --explain no_label",
        "--explain: this explains a finding, and checks no data set",
    ),
    ("check --explain no_label --strict", "--explain: this explains a finding"),
    ("check x --drop all", "--drop chooses the rows of --export FILE; add it"),
    (
        "inject-noise --type active --ratio 0.5 --active-share 0.5",
        "--active-share is for mixed noise",
    ),
    ("benchmarks --trust-remote-code", "no benchmark is named"),
    ("rollouts m d --backend tpu", "--backend: there is no 'tpu'; known: "),
    (
        "rollouts m d --device tpu",
        "--device: there is no 'tpu' (did you mean 'cpu'?); known: auto, cpu, cuda",
    ),
    (
        "rollouts m d --extractor bexed",
        "--extractor: there is no extractor 'bexed' (did you mean 'boxed'?)",
    ),
    ("evaluate m --backend tpu", "--backend: there is no 'tpu'; known: "),
    (
        "evaluate m --device tpu",
        "--device: there is no 'tpu' (did you mean 'cpu'?); known: auto, cpu, cuda",
    ),
    (
        "evaluate m --protocol other",
        "--protocol: there is no 'other'; known: standard, paper",
    ),
    (
        "evaluate m --extractor bexed",
        "--extractor: there is no extractor 'bexed' (did you mean 'boxed'?)",
    ),
    ("evaluate m --vllm size", "--vllm: "),
    (
        "evaluate m --verified a --verified b",
        "--verified is one file here, and 2 are named; join them",
    ),
    (
        "regrade m --verified a --verified b",
        "--verified is one file here, and 2 are named; join them",
    ),
    (
        "regrade m --extractor bexed",
        "--extractor: there is no extractor 'bexed' (did you mean 'boxed'?)",
    ),
    ("regrade docs --out o", "--out is for a log, and docs is none; leave it out"),
    ("regrade docs --data d", "--data is for a log, and docs is none; leave it out"),
    (
        "regrade docs --columns prompt=q",
        "--columns is for a log, and docs is none; leave it out",
    ),
    *(
        (
            f"{command} --json --format latex",
            "--json and --format latex contradict each other",
        )
        for command in ("analyze x", "evaluate x", "regrade x")
    ),
    *(
        (
            f"{command} --format word",
            "--format: there is no 'word'; known: terminal, markdown, latex, csv",
        )
        for command in ("analyze x", "evaluate x", "regrade x")
    ),
    *(
        (
            f"{command} --out o.csv --json",
            "and --json writes to standard output; choose one of them",
        )
        for command in ("audit x", "replay x")
    ),
)
def test_a_mistyped_command_is_refused_like_any_other_mistake(words, message):
    assert message in refused(*shlex.split(words))


@each(
    "words, problem",
    ("audit --json", "missing argument 'HISTORY'"),
    ("runs --badopt --json", "no such option: --badopt"),
    ("check nowhere.csv --json", "nowhere.csv does not exist"),
)
def test_with_json_any_mistake_is_one_object(words, problem, monkeypatch):
    monkeypatch.setattr("sys.argv", ["olr", *shlex.split(words)])
    ended = olr(*shlex.split(words))
    printed = json.loads(ended.stdout)
    assert (ended.exit_code, printed["error"]["problem"]) == (2, problem)
    assert ended.stderr.endswith(f"{problem}; {printed['error']['remedy']}\n")


def test_a_run_directory_in_use_is_refused(run):
    with held(run):
        assert "in use by a live process" in train("--run-dir", run).stderr
    assert "holds a run already (finished)" in train("--run-dir", run).stderr


SWEEP = """
name: tiny
data: {train: arithmetic, limit: 6}
noise: {type: active, ratio: 0.5}
train: {epochs: 1, prompts_per_step: 6, max_new_tokens: 5, learning_rate: 2.0e-4}
engine: {name: local, device: cpu, threads: 1}
sweep: {arms: {clean: {noise: null}, active: {}}, grid: {seed: [1]}}
"""


@pytest.mark.slow
def test_a_dry_run_of_a_sweep_checks_its_first_run_and_sums_all(here):
    (here / "sweep.yaml").write_text(
        "base: laptop/quickstart\n"
        "data: {limit: 20}\n"
        "train: {epochs: 2, prompts_per_step: 10, mini_batch_prompts: 10, rollouts_per_prompt: 4}\n"
        "sweep: {arms: {few: {}, more: {train.epochs: 3}, half: {data.limit: 10}}, grid: {seed: [1, 2]}}\n"
    )
    words = ("train", "sweep.yaml", "--sweep", "--dry-run")
    result = done(*words)
    assert "all 6 runs: 24 steps, 960 rollouts; on the disk: about" in result.stdout
    assert "starts the run" in result.stdout and not (here / "runs").exists()
    answer = json.loads(done(*words, "--json").stdout)
    assert (
        len(answer["runs"]),
        answer["steps"],
        answer["rollouts"],
        answer["missing"],
    ) == (
        6,
        24,
        960,
        [],
    )
    # Of each run two checkpoints of half a megabyte and its optimiser
    assert answer["disk_bytes"] > 6 * 3 * 500_000


def test_a_dry_run_of_a_sweep_that_cannot_start_says_what_is_missing(here):
    words = (
        "train",
        "laptop/coherence",
        "--sweep",
        "--dry-run",
        "--set",
        "data.train=nowhere.parquet",
    )
    result = olr(*words)
    assert result.exit_code == 2 and "runs/coherence/active+olr" in result.stdout
    assert "missing here for clean:\n  - nowhere.parquet does not exist" in result.stdout
    assert "Next:" not in result.stdout and "this run cannot start here" in result.stderr
    answer = json.loads(olr(*words, "--json").stdout)
    assert "nowhere.parquet" in answer["missing"][0] and answer["disk_bytes"] is not None


def test_a_sweep_trains_every_run_and_goes_on_where_it_stopped(tmp_path):
    recipe = tmp_path / "sweep.yaml"
    recipe.write_text(SWEEP)
    assert "is a sweep of 2 runs; add --sweep" in olr("train", recipe).stderr
    words = ("train", recipe, "--sweep", "--run-dir", tmp_path / "runs")
    done(*words)
    assert [
        read_manifest(tmp_path / "runs" / f"{arm}_seed-1")["arm"]
        for arm in ("clean", "active")
    ] == [
        "clean",
        "active",
    ]
    assert "2 of them finished already" in olr(*words).output


def test_make_quickstart_says_how_to_start_another_run_where_the_old_one_cannot_go_on(
    tmp_path,
):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "olr").write_text('#!/bin/sh\necho "$@" >> calls; exit 2\n')
    (tmp_path / "bin" / "olr").chmod(0o755)
    (tmp_path / ".installed").touch()
    makefile = Path(__file__).parents[2] / "Makefile"
    (tmp_path / "requirements").mkdir()
    for name in ("pyproject.toml", "requirements/tested.txt"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    command = ["make", "-f", str(makefile), "quickstart", f"VENV={tmp_path}", "RUN=runs/a"]
    result = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert "make quickstart RUN=runs/a-2" in result.stdout


def test_recipes_can_be_listed_shown_copied_and_validated(tmp_path):
    listed = done("recipes", "ls").output.splitlines()
    assert listed[0] == "A first run:" and listed[1].startswith("  laptop/quickstart ")
    assert [line for line in listed if line.endswith(":")][1:3] == [
        "Your own data:",
        "Studies on a laptop:",
    ]
    assert "slope_threshold" in olr("recipes", "show", "laptop/quickstart").output
    assert (
        "keep_checkpoints"
        in olr("recipes", "show", "laptop/quickstart", "--resolved").output
    )
    mine = tmp_path / "mine.yaml"
    done("recipes", "cp", "laptop/coherence", mine)
    assert "a sweep of 5 runs" in olr("recipes", "validate", mine).output
    assert "exists already" in refused("recipes", "cp", "laptop/coherence", mine)
    mine.write_text("trian: 1")
    refused("recipes", "validate", mine)


@each(
    "words, offered",
    ("olr tr", ["train"]),
    ("olr train laptop/q", ["laptop/quickstart"]),
    ("olr recipes cp paper/qwen3-8", ["paper/qwen3-8b"]),
    ("olr analyze runs --figure co", ["coherence", "composition"]),
    ("olr analyze runs --table slope", ["slope_sensitivity"]),
    ("olr train mine.ya", []),
)
def test_the_shell_completes_commands_recipes_figures_and_tables(words, offered):
    completing = {
        "_OLR_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    assert (
        CliRunner().invoke(app, env=completing, prog_name="olr").stdout.split() == offered
    )


@each(
    "words, key, following",
    (["recipes", "ls"], "recipes", None),
    (["recipes", "show", "laptop/quickstart"], "recipe", None),
    (["recipes", "show", "laptop/quickstart", "--resolved"], "recipe", None),
    (
        ["recipes", "validate", "laptop/coherence"],
        "runs",
        "olr train laptop/coherence --sweep --dry-run",
    ),
    (["recipes", "cp", "laptop/quickstart", "mine.yaml"], "written", "olr train mine.yaml"),
    (["train", "laptop/quickstart", "--dry-run"], "prompt", None),
    (["train", "laptop/coherence", "--sweep", "--dry-run"], "runs", None),
    (["rollouts", "builtin:addition-easier", "arithmetic", "--dry-run"], "prompt", None),
)
def test_json_is_one_object_that_names_the_next_command(words, key, following, here):
    result = done(*words, "--json")
    answer = json.loads(result.stdout)
    assert answer["schema"] == 1 and key in answer
    assert following is None or answer["next"] == [following]


def test_a_dry_run_that_lacks_something_says_so_in_json_too(here):
    result = olr(
        "train",
        "laptop/quickstart",
        "--dry-run",
        "--json",
        "--set",
        "data.train=nowhere.parquet",
    )
    assert result.exit_code == 2
    answer = json.loads(result.stdout)
    assert "nowhere.parquet does not exist" in answer["missing"][0]
    assert "next" not in answer
