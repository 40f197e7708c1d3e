"""The commands that a command proposes run as they are printed."""

import json
import re
import shlex

import commands
import pytest
from cases import each
from histories import write_history

from olr_cli.engines.sweep import _conclude
from olr_cli.recipe.methods import OwnMethod
from olr_cli.runs.directory import read_recipe, write_recipe

POLICY = "builtin:addition-easier"
SLOTS = {"MODEL": POLICY, "DATA": "data.jsonl", "N": "3"}
"""What stands for the words in capital letters, which a user fills in."""
NEXT = re.compile(r"(?:Next|  or):?\s+(olr .*?)(?:   \(.*\))?")

pytestmark = pytest.mark.usefixtures("here")


def proposed(*words):
    """The commands that stand below the answer of a command, with their slots filled."""
    lines = commands.done(*words).stdout.splitlines()
    found = [shlex.split(match[1])[1:] for match in map(NEXT.fullmatch, lines) if match]
    return [[filled(word) for word in command] for command in found]


def filled(word):
    key, equals, value = word.rpartition("=")
    return f"{key}{equals}{SLOTS.get(value, value)}"


def run_all(*words, how_many=None):
    """Run what a command proposes; runs are only rehearsed."""
    found = proposed(*words)
    assert len(found) == how_many if how_many is not None else found
    for command in found:
        if "selection.json" in command:  # the page exports it
            assert "--verified" in command
            continue
        if command[0] in ("train", "rollouts") and "--dry-run" not in command:
            command = [*command, "--dry-run"]
        if f"model.path={POLICY}" in command:  # what fills the slot reads few tokens
            command = [*command, "--set", "train.max_new_tokens=16"]
        commands.done(*command)
    return found


def rows(size=12, *, step=0, **names):
    """A log of sums, eight answers each, and a wrong label in four."""
    names = {name: names.get(name, name) for name in ("prompt", "response", "given_label")}
    log = []
    for number in range(size):
        asked, right = f"{number + 10}+{number + 20}=", 2 * number + 30
        row = {
            names["prompt"]: asked,
            names["given_label"]: str(right + (number % 4 == 0)),
            "step": step,
        }
        log += [
            {**row, names["response"]: f"\\boxed{{{right + (n == 7)}}}"} for n in range(8)
        ]
    return log


def write(file, rows):
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def logs(here):
    """Logs in all the ways in which they are named."""
    renamed = {"prompt": "query", "response": "generation", "given_label": "gold"}
    write(here / "log.jsonl", rows())
    write(here / "renamed.jsonl", rows(**renamed))
    write(
        here / "bare.jsonl",
        [{k: v for k, v in row.items() if k != "given_label"} for row in rows()],
    )
    write(
        here / "no prompts.jsonl",
        [{"prompt_id": row.pop("prompt"), **row} for row in rows()],
    )
    for step in range(5):
        write(here / "some" / f"{step}.jsonl", rows(step=step))
        write(here / "mixed" / f"{step}.jsonl", rows(step=step))
        write(here / "two" / f"{step}.jsonl", rows(step=step, **renamed))
    write(here / "mixed" / "other.jsonl", rows(step=9, prompt="other"))
    data = [
        {"question": row["prompt"], "answer": row["given_label"]} for row in rows()[::8]
    ]
    write(here / "data.jsonl", data)
    write(here / "odd.jsonl", [{"Q": row["question"], "A": row["answer"]} for row in data])
    return here


COLUMNS = ("--columns", "prompt=query,response=generation,given_label=gold")
SOME = [f"some/{step}.jsonl" for step in range(5)]
MIXED = [f"mixed/{step}.jsonl" for step in range(5)]
ODD = ("--data", "odd.jsonl", "--set", "data.columns={question: Q, answer: A}")


@each(
    "words",
    ("log.jsonl",),
    ("renamed.jsonl", *COLUMNS),
    ("two/0.jsonl", "two/1.jsonl", *COLUMNS),
    (*SOME,),
    (*MIXED,),
    ("some",),
    ("some/*.jsonl",),
    ("log.jsonl", "--set", "data.extractor=last_number"),
)
@pytest.mark.parametrize("command", ["audit", "replay", "analyze"])
def test_of_logs(logs, command, words):
    if command == "analyze":
        words = [word for word in words if not word.startswith("data.") and word != "--set"]
    run_all(command, *words)


@each(
    "words, how_many",
    (("bare.jsonl",), 1),
    (("bare.jsonl", "--data", "data.jsonl"), 2),
    (("bare.jsonl", *ODD), 2),
    (("no prompts.jsonl",), 1),
    (("no prompts.jsonl", "--report", "queue.html"), 1),
    (("log.jsonl", "--report", "queue.html"), 2),
    (("log.jsonl", "--first", "5", "--export", "check.jsonl"), 1),
    (("log.jsonl", "--export", "rest.jsonl"), 1),
    (("bare.jsonl", *ODD, "--export", "rest.jsonl"), 1),
    (("bare.jsonl", *ODD, "--only", "undecided", "--export", "check.jsonl"), 1),
    (("renamed.jsonl", *COLUMNS, "--export", "rest.parquet"), 1),
)
def test_of_audits(logs, words, how_many):
    run_all("audit", *words, how_many=how_many)


def test_many_files_are_named_by_their_folder_where_it_holds_no_others(logs):
    assert all(command[1] == "some" for command in proposed("audit", *SOME))
    assert all(command[1:6] == MIXED for command in proposed("audit", *MIXED))


@pytest.fixture
def run(here):
    data = [
        {"question": f"{n}+{n}=", "answer": str(2 * n), "extra_info": {"index": n}}
        for n in range(40)
    ]
    write(here / "q.jsonl", data)
    return write_history(
        here / "a folder" / "run",
        prompts=40,
        epochs=6,
        data={"train": str(here / "q.jsonl")},
    )


@pytest.mark.parametrize("command", ["audit", "replay", "analyze", "runs"])
def test_of_a_run(run, command):
    run_all(command, run)


def test_of_a_table(run, monkeypatch):
    words = ["analyze", str(run), "--table", "arms"]
    monkeypatch.setattr("sys.argv", ["olr", *words])
    assert run_all(*words, how_many=1) == [[*words, "--format", "markdown"]]


def test_of_a_runs_export(run):
    run_all("audit", run, "--export", "rest.jsonl", how_many=1)


@pytest.mark.parametrize("command", ["replay", "analyze", "audit"])
def test_of_a_run_of_an_own_rule(run, here, command):
    (here / "mine.py").write_text(
        "from olr_cli.api import keep\n\n\ndef rule(visit, least=2):\n    return keep(visit)\n"
    )
    method = OwnMethod(name="mine.py:rule")
    write_recipe(run, read_recipe(run).model_copy(update={"method": method}))
    if command == "audit":
        found = run_all("audit", run, "--export", "rest.jsonl")
        assert "method.name=mine.py:rule" in found[0]
        return
    named = ["--set", "method.name=mine.py:rule"] if command == "replay" else []
    found = run_all(command, run, *named)
    assert any("method.name=olr" in words for words in found)


def test_of_a_replay_whose_log_is_read_otherwise(logs):
    found = run_all(
        "replay",
        "renamed.jsonl",
        *COLUMNS,
        "--set",
        "data.extractor=last_number",
        "--set",
        "method.warmup_epochs=0",
    )
    assert all(
        "data.extractor=last_number" in words and COLUMNS[1] in words for words in found
    )


@each(
    "words",
    ("data.jsonl",),
    ("odd.jsonl", "--columns", "question=Q,answer=A"),
    ("log.jsonl",),
    ("data.jsonl", "--export", "clean.jsonl"),
    ("odd.jsonl", "--columns", "question=Q,answer=A", "--export", "clean.parquet"),
    ("defects.csv", "--columns", "question=Q,answer=A"),
    ("defects.csv", "--columns", "question=Q,answer=A", "--export", "clean.csv"),
    ("arithmetic",),
)
def test_of_a_check(logs, words):
    (logs / "defects.csv").write_text("Q,A\n1+1=,2\n2+2=,\n3+3=,6\n4+4=,8\n")
    run_all("check", *words, how_many=1)


def test_of_a_sweep_whose_runs_know_no_truth(here, capsys):
    for arm in ("grpo", "olr"):
        run = write_history(
            here / "s" / arm,
            method={"name": arm},
            noise=None,
            knows_truth=False,
            knows_noise=False,
        )
        (run / "metrics.jsonl").write_text(
            '{"step": 1, "epoch": 1, "rollout/reward": 0.5}\n'
        )
    _conclude(here / "s", {}, 2)
    [line] = capsys.readouterr().out.splitlines()
    commands.done(*shlex.split(NEXT.fullmatch(line)[1])[1:])


@each(
    "words",
    ("--type", "inactive", "--ratio", "0.5", "--sample", "40"),
    (
        "--type",
        "inactive",
        "--ratio",
        "0.5",
        "--dataset",
        "odd.jsonl",
        "--columns",
        "question=Q,answer=A",
    ),
    (
        "--type",
        "active",
        "--ratio",
        "0.5",
        "--dataset",
        "data.jsonl",
        "--out",
        "a b.parquet",
    ),
)
def test_of_noise(logs, words):
    run_all("inject-noise", *words, how_many=1)


@each(
    "words",
    ("validate", "laptop/coherence"),
    ("cp", "laptop/quickstart", "my own.yaml"),
    ("cp", "laptop/coherence", "mine.yaml"),
)
def test_of_recipes(words):
    run_all("recipes", *words, how_many=1)


@pytest.mark.slow
def test_of_runs_that_sample_and_train(logs):
    small = [
        "--set",
        "train.max_new_tokens=16",
        "--set",
        "train.prompts_per_step=4",
        "--set",
        "train.mini_batch_prompts=4",
        "--set",
        "train.epochs=1",
    ]
    run_all(
        "rollouts",
        POLICY,
        "odd.jsonl",
        "--columns",
        "question=Q,answer=A",
        "--visits",
        "2",
        "--run-dir",
        "some run",
    )
    run_all(
        "train",
        "own-data",
        "--set",
        f"model.path={POLICY}",
        "--set",
        "data.train=data.jsonl",
        *small,
        "--run-dir",
        "t",
    )
    run_all("train", "--resume", "--run-dir", "t")
    [evaluation] = proposed("evaluate", POLICY, "--samples", "1", "--limit", "5")
    commands.done(*evaluation)
    folder = f"evaluations/{POLICY.replace(':', '-')}"
    run_all("evaluate", POLICY, "--samples", "1", "--limit", "5", "--compare", folder)
