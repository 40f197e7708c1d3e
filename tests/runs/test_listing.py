"""The table of runs to the letter, units of sizes, and which state a run is in."""

import socket
from pathlib import Path

from cases import each
from rendered import rendered

from olr_cli.recipe.schema import Recipe
from olr_cli.runs.directory import create_run, read_manifest, write_manifest
from olr_cli.runs.listing import (
    SORT_KEYS,
    STATUSES,
    RunEntry,
    runs_answer,
    size_text,
    status_of,
)
from olr_cli.runs.locks import held

DONE = RunEntry(
    "a/b", "runs/a/b", arm="active 0.5 olr", seed=0, status="finished", epoch=3, epochs=4, accuracy=0.51249,
    wrong_labels=0.1, created="2026-11-09T10:00:33", size=1_234_567,
)  # fmt: skip
TORN = RunEntry("torn", "runs/torn", size=999, problem="x is cut off; restore it")
BEGUN = RunEntry(
    "begun", "runs/begun", status="running", seed=12, epochs=3, size=2_000_000_000
)

TEXT = """\
                                         held-out  wrong
run   arm            seed status   epoch accuracy labels created            size
a/b   active 0.5 olr    0 finished   3/4     51.2   10.0 2026-11-09 10:00   1 MB
torn                    – damaged      –        –      – –                 999 B
begun                  12 running    0/3        –      – –                2.0 GB"""


def test_the_table_of_runs_is_this_text():
    answer = runs_answer([Path("runs"), Path("my runs")], [DONE, TORN, BEGUN])
    lines = rendered(answer.parts[0], width=82).rstrip().splitlines()
    assert "\n".join(line.rstrip() for line in lines) == TEXT
    assert answer.notes == ["runs/torn: x is cut off; restore it"]
    assert answer.next == {
        "olr analyze runs 'my runs'": "figures, and a comparison of the arms"
    }


def test_where_nothing_is_there_is_no_table_and_nothing_to_draw():
    answer = runs_answer([Path("runs")], [])
    assert (answer.parts, answer.notes, answer.next) == (["no runs below runs"], [], {})
    assert runs_answer([Path("runs")], [TORN]).next == {}


@each(
    "size, text",
    (0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_400, "999 kB"), (1_000_000, "1 MB"), (999_000_000, "999 MB"),
    (1_000_000_000, "1.0 GB"), (1_234_000_000_000, "1234.0 GB"),
)  # fmt: skip
def test_a_size_is_in_the_largest_unit_that_leaves_a_digit(size, text):
    assert size_text(size) == text


@each(
    "stored, host, is_locked, status",
    ("finished", None, False, "finished"), ("interrupted", None, False, "stopped"), ("failed", None, False, "failed"),
    ("diverged", None, True, "diverged"), ("running", None, False, "crashed"), ("running", "here", False, "crashed"),
    ("running", "here", True, "running"), ("running", "elsewhere", False, "running"),
)  # fmt: skip
def test_a_run_that_nobody_holds_has_crashed_unless_it_is_another_hosts(
    tmp_path, stored, host, is_locked, status
):
    hosts = {"here": socket.gethostname(), "elsewhere": "another-host"}
    attempts = [{"host": "another-host"}, {"host": hosts[host]}] if host == "here" else []
    attempts = [{"host": hosts[host]}] if host == "elsewhere" else attempts
    manifest = {"status": stored, "attempts": attempts}
    if is_locked:
        with held(tmp_path):
            assert status_of(tmp_path, manifest) == status
    else:
        assert status_of(tmp_path, manifest) == status
    assert status in STATUSES


@each(
    "key, names",
    ("name", ["a/b", "begun", "torn"]), ("arm", ["torn", "begun", "a/b"]), ("status", ["a/b", "begun", "torn"]),
    ("accuracy", ["begun", "torn", "a/b"]), ("wrong", ["begun", "torn", "a/b"]), ("size", ["torn", "a/b", "begun"]),
    ("created", ["begun", "torn", "a/b"]),
)  # fmt: skip
def test_runs_are_sorted_by_what_is_asked_for_and_unknown_is_least(key, names):
    by_key = sorted([BEGUN, DONE, TORN], key=lambda run: (SORT_KEYS[key](run), run.name))
    assert [run.name for run in by_key] == names


@each("seed, is_first", (None, True), (0, True), (1, False))
def test_runs_of_one_arm_are_in_the_order_of_their_seeds(seed, is_first):
    one, other = (RunEntry("x", "x", arm="a", seed=it) for it in (seed, 0.5))
    assert (SORT_KEYS["arm"](one) < SORT_KEYS["arm"](other)) is is_first


@each(
    "status, kind, engine, facts, command",
    ("stopped", "training", "local", {}, "olr train --resume --run-dir {run}"),
    ("failed", "training", "local", {}, "olr train --resume --run-dir {run}"),
    ("crashed", "training", "openrlhf", {}, "olr train --resume --run-dir {run}"),
    ("stopped", "training", "external", {}, None), ("finished", "training", "local", {}, None),
    ("diverged", "training", "local", {}, None), ("damaged", "training", "", {}, None),
    ("stopped", "rollouts", "local", {}, "olr rollouts MODEL DATA --resume --run-dir {run}"),
    ("stopped", "rollouts", "openai", {"url": "http://x/v1"},
     "olr rollouts MODEL DATA --url http://x/v1 --resume --run-dir {run}"),
)  # fmt: skip
def test_a_run_that_can_go_on_has_the_command_for_it(
    tmp_path, status, kind, engine, facts, command
):
    create_run(tmp_path, Recipe())
    write_manifest(tmp_path, {**read_manifest(tmp_path), **facts})
    entry = RunEntry("x", str(tmp_path), kind=kind, status=status, engine=engine)
    expected = {} if command is None else {command.format(run=tmp_path): "continue a run"}
    assert runs_answer([tmp_path], [entry, DONE]).next == {
        f"olr analyze {tmp_path}": "figures, and a comparison of the arms",
        **expected,
    }
