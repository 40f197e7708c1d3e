"""A run that was killed, wherever, and resumed has the tables of a run that never was, row for row (R18)."""

import io
import itertools
import os
import shutil
import signal
from contextlib import nullcontext
from datetime import date
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from cases import each, refusal
from decisions import assert_same_tables
from forks import fork, status
from samples import json_lines

from olr_cli.engines import launch as launching, step as step_module
from olr_cli.engines.launch import launch, unfinished_run, unused_run_path
from olr_cli.engines.local import loop
from olr_cli.engines.local.checkpoint import load_trainer
from olr_cli.engines.local.engine import LocalRunner
from olr_cli.errors import UserError
from olr_cli.recipe.layers import validate
from olr_cli.runs import store, writer
from olr_cli.runs.checkpoints import checkpoint_path, checkpoint_steps
from olr_cli.runs.directory import read_manifest, start_day, write_manifest
from olr_cli.runs.interrupts import Interrupted
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.progress import LineProgress
from olr_cli.runs.writer import RunWriter

STEPS = 9  # 20 prompts in steps of 8, 8 and 4; three epochs


def recipe(**changes):
    tree = {
        "data": {"train": "arithmetic", "limit": 20},
        "noise": {"type": "active", "ratio": 0.5},
        "method": {"name": "olr", "slope_threshold": 0, "warmup_epochs": 1},
        "train": {
            "epochs": 3, "prompts_per_step": 8, "mini_batch_prompts": 4, "rollouts_per_prompt": 4,
            "learning_rate": 1e-3, "max_new_tokens": 5, "checkpoint_every": 2,
        },
        "engine": {"name": "local", "device": "cpu", "threads": 1},
        **changes,
    }  # fmt: skip
    return validate(tree, "test")


def of_epochs(epochs, engine=None, **train):
    engine = {"name": "local", "device": "cpu", "threads": 1, **(engine or {})}
    return recipe(
        train={**recipe().train.plain(), "epochs": epochs, **train}, engine=engine
    )


OF_TWO_EPOCHS = {
    "set by users of TRL": of_epochs(
        2, lr_schedule="cosine", lr_warmup_ratio=0.3, clip_high=0.28, prompts_per_step=5, mini_batch_prompts=2,
        top_p=0.95, top_k=40, min_p=0.01, engine={"micro_batch_tokens": 40},
    ),
    "two views": recipe(method={"name": "co_reward", "smoothing": 0.1}, train=of_epochs(2).train.plain()),
    "verified labels": recipe(
        method={"name": "olr", "criteria": ["consistency"], "warmup_epochs": 1},
        data={"train": "arithmetic", "limit": 20, "verified": 8}, train=of_epochs(2).train.plain(),
    ),
    "LoRA": of_epochs(2, lora_rank=4, learning_rate=1e-2),
}  # fmt: skip


def go(path, *, resume=False, a_recipe=None):
    a_recipe = a_recipe or recipe()
    quiet = LineProgress(io.StringIO())
    launch(a_recipe, path, LocalRunner, quiet, resume=resume)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody interrupted."""
    path = tmp_path_factory.mktemp("whole") / "run"
    go(path)
    return path


def dated_prompts(monkeypatch, day, path, *, resume, stop=False):
    """The tokens of the prompts of a run whose template writes the date, begun or resumed on a day."""

    class Day(date):
        @classmethod
        def today(cls):
            return cls(*day)

    seen = []

    class Runner(LocalRunner):
        def complete(self, run):
            seen.extend(self.token_ids)
            if stop:
                raise KeyboardInterrupt
            return super().complete(run)

    monkeypatch.setattr(launching, "date", Day)
    template = path.parent / "dated.jinja"
    template.write_text("{{ strftime_now('%d') }}+{{ messages[-1].content }}")
    model = {"path": "builtin:addition-easier", "chat_template": str(template)}
    short = recipe(
        model=model, train={**recipe().train.plain(), "epochs": 1, "max_new_tokens": 1}
    )
    with pytest.raises(KeyboardInterrupt) if stop else nullcontext():
        launch(short, path, Runner, LineProgress(io.StringIO()), resume=resume)
    return seen


def test_a_run_that_is_resumed_on_another_day_asks_as_on_its_first(monkeypatch, tmp_path):
    first = dated_prompts(
        monkeypatch, (2025, 3, 9), tmp_path / "run", resume=False, stop=True
    )
    assert read_manifest(tmp_path / "run")["day"] == "2025-03-09"
    assert dated_prompts(monkeypatch, (2025, 4, 17), tmp_path / "run", resume=True) == first
    assert (
        dated_prompts(
            monkeypatch, (2025, 4, 17), tmp_path / "other", resume=False, stop=True
        )
        != first
    )


def test_the_day_of_a_run_of_an_older_olr_is_that_of_its_manifest(whole, tmp_path):
    path = shutil.copytree(whole, tmp_path / "run")
    manifest = read_manifest(path)
    del manifest["day"]
    write_manifest(path, {**manifest, "created": "2025-03-09T23:59:00+00:00"})
    assert start_day(path) == date(2025, 3, 9)
    write_manifest(path, {**manifest, "day": "yesterday"})
    assert "names no day on which the run was begun" in refusal(start_day, path)


def train(path, prepare=None):
    """Train in a process that `prepare` has patched to kill itself."""
    if prepare is not None:
        prepare(pytest.MonkeyPatch())
    go(path)


def kill_self(*_args, **_kwargs):
    os.kill(os.getpid(), signal.SIGKILL)


def at_call(number, original, deed):
    """`original`, but its call `number` (from 1) does `deed` instead."""
    calls = itertools.count(1)

    def wrapped(*args, **kwargs):
        return deed(*args, **kwargs) if next(calls) == number else original(*args, **kwargs)

    return wrapped


def kill_between_the_tables(monkeypatch):
    # Two renames a step, rollouts first: the tenth would put the labels of step 5 in place.
    monkeypatch.setattr(store, "write_whole", at_call(10, store.write_whole, kill_self))


def kill_inside_a_checkpoint(monkeypatch):
    monkeypatch.setattr(loop.Policy, "save", at_call(3, loop.Policy.save, kill_self))


def kill_before_the_first_checkpoint(monkeypatch):
    monkeypatch.setattr(loop, "save_checkpoint", kill_self)


def kill_inside_a_metrics_line(monkeypatch):
    def half_a_line(run, *_args):
        with (run / "metrics.jsonl").open("a") as lines:
            lines.write('{"step": 4, "epo')
        kill_self()

    monkeypatch.setattr(
        writer, "append_metrics", at_call(5, writer.append_metrics, half_a_line)
    )


@pytest.mark.slow
@each(
    "kill",
    kill_between_the_tables,
    kill_inside_a_checkpoint,
    kill_before_the_first_checkpoint,
    kill_inside_a_metrics_line,
)
def test_killed_and_resumed_equals_never_killed(kill, whole, tmp_path):
    path = tmp_path / "run"
    assert status(fork(train, path, kill)) == -signal.SIGKILL, (
        "without a kill the test tests nothing"
    )
    assert read_manifest(path)["status"] == "running"
    go(path, resume=True)
    assert_same_tables(path, whole)
    assert [line["step"] for line in read_metrics(path)] == list(range(STEPS + 1))
    assert not [p for p in path.rglob("*") if p.name.endswith((".tmp", ".removed"))]
    assert read_manifest(path)["status"] == "finished"


def interrupt(path, monkeypatch, a_recipe=None):
    """Leave an unfinished run of two steps at `path`."""

    def fail(*_args):
        raise RuntimeError

    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(loop, "save_checkpoint", fail)
        go(path, a_recipe=a_recipe)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_step_writes_a_checkpoint_and_resumes(
    number, whole, tmp_path, monkeypatch
):
    def signalled(*args):
        os.kill(os.getpid(), number)
        return step_metrics(*args)

    step_metrics = step_module.step_metrics
    monkeypatch.setattr(step_module, "step_metrics", at_call(3, step_metrics, signalled))
    with pytest.raises(Interrupted) as stop:
        go(tmp_path / "run")
    assert stop.value.exit_status == 128 + number
    assert checkpoint_steps(tmp_path / "run")[-1] == 3
    assert read_manifest(tmp_path / "run")["status"] == "interrupted"
    monkeypatch.undo()
    go(tmp_path / "run", resume=True)
    assert_same_tables(tmp_path / "run", whole)


def fail(reason, *_):
    raise OSError(reason)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_run_that_is_given_more_epochs_equals_one_of_as_many_from_the_start(
    stopped, whole, tmp_path, monkeypatch
):
    path = tmp_path / "run"
    if stopped:
        interrupt(path, monkeypatch, of_epochs(2))
    else:
        go(path, a_recipe=of_epochs(2))
    assert unfinished_run(recipe(), tmp_path) == path
    with monkeypatch.context() as patched, pytest.raises(OSError, match="went down"):
        patched.setattr(
            launching, "make_supervisor", partial(fail, "as if the machine went down")
        )
        go(path, resume=True, a_recipe=recipe())
    assert unfinished_run(recipe(), tmp_path) == path
    go(path, resume=True, a_recipe=recipe())
    assert_same_tables(path, whole)
    weights = [checkpoint_path(run, STEPS) / "model.safetensors" for run in (path, whole)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    manifest = read_manifest(path)
    assert (manifest["status"], manifest["steps"]) == ("finished", STEPS)
    assert manifest["recipe_digest"] == recipe().digest()
    assert "no unfinished run" in refusal(unfinished_run, recipe(), tmp_path)


@each(
    "changed, words",
    (recipe(seed=5), "seed: 0 -> 5"),
    (recipe(seed=5), "a resume may raise train.epochs"),
    (of_epochs(2), "train.epochs: 3 -> 2, which can only be raised"),
    (of_epochs(5, lr_schedule="cosine"), "train.epochs: 3 -> 5, on which the schedule"),
)
def test_a_resume_with_another_recipe_names_the_changed_keys_and_those_that_may_change(
    changed, words, whole
):
    before = {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()}
    assert words in refusal(go, whole, resume=True, a_recipe=changed)
    assert {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()} == before


@each(
    "error",
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("can't allocate memory"),
    ZeroDivisionError(),
)
def test_neither_a_full_memory_nor_a_bug_reads_as_a_damaged_checkpoint(error, tmp_path):
    def fail(_):
        raise error

    torch.save({}, tmp_path / "optimizer.pt")
    optimizer, policy = SimpleNamespace(load_state_dict=fail), SimpleNamespace(device="cpu")
    with pytest.raises(type(error)):
        load_trainer(SimpleNamespace(optimizer=optimizer, policy=policy), tmp_path)


def test_without_a_run_directory_a_new_run_gets_a_free_name(tmp_path):
    assert unused_run_path("a", tmp_path) == tmp_path / "a"
    (tmp_path / "a").mkdir()
    (tmp_path / "a-2").mkdir()
    assert unused_run_path("a", tmp_path) == tmp_path / "a-3"


def test_resume_without_a_run_directory_finds_the_one_unfinished_run(tmp_path, monkeypatch):
    assert "no unfinished run" in refusal(unfinished_run, recipe(), tmp_path)
    interrupt(tmp_path / "a", monkeypatch)
    assert unfinished_run(recipe(), tmp_path) == tmp_path / "a"
    interrupt(tmp_path / "b", monkeypatch)
    with pytest.raises(
        UserError, match=r"several unfinished runs of this recipe: .*/a \(2 steps\), .*/b"
    ):
        unfinished_run(recipe(), tmp_path)
    assert "no unfinished run" in refusal(unfinished_run, recipe(seed=9), tmp_path)


def test_data_that_changed_is_noticed_on_resume(tmp_path, monkeypatch):
    path = tmp_path / "run"
    interrupt(path, monkeypatch)
    real = launching.load_data

    def other(a_recipe, *kind):
        data = real(a_recipe, *kind)
        fewer = data.train.subset(range(len(data.train.prompts) - 1))
        return launching.DataSets(fewer, None, None)

    monkeypatch.setattr(launching, "load_data", other)
    assert "has changed since" in refusal(go, path, resume=True)


@pytest.mark.parametrize(
    ("key", "column"), [("verified", "true_answer"), ("train", "answer")]
)
def test_of_a_resume_on_other_labels_the_file_that_has_changed_is_named(
    key, column, tmp_path, monkeypatch
):
    files = {name: tmp_path / f"{name}.jsonl" for name in ("train", "verified")}
    rows = [
        {"prompt_id": str(n), "question": f"{n}+2=", "answer": "3", "true_answer": "5"}
        for n in range(20)
    ]
    for file in files.values():
        json_lines(file, *rows)
    a_recipe = recipe(data={name: str(file) for name, file in files.items()}, noise=None)
    interrupt(tmp_path / "run", monkeypatch, a_recipe)
    json_lines(files[key], *(row | {column: "7"} for row in rows))
    with pytest.raises(
        UserError, match=rf"{key}.jsonl has changed since .*\(data\.{key}\)"
    ):
        go(tmp_path / "run", resume=True, a_recipe=a_recipe)


def policies(path):
    """The metrics of the policy, step by step."""
    return [
        {k: v for k, v in line.items() if k.startswith("policy/")}
        for line in read_metrics(path)
    ]


@each(
    "name",
    "set by users of TRL",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("two views", "verified labels", "LoRA")
    ),
)
def test_a_run_that_went_down_and_goes_on_equals_one_that_did_not(
    name, tmp_path, monkeypatch
):
    path, a_recipe = tmp_path / "run", OF_TWO_EPOCHS[name]
    if name == "LoRA":
        pytest.importorskip("peft")
    go(tmp_path / "whole", a_recipe=a_recipe)
    with monkeypatch.context() as patched, pytest.raises(OSError, match="went down"):
        failing = partial(fail, "as if the machine went down")
        patched.setattr(RunWriter, "store", at_call(5, RunWriter.store, failing))
        go(path, a_recipe=a_recipe)
    go(path, resume=True, a_recipe=a_recipe)
    assert_same_tables(path, tmp_path / "whole")
    assert policies(path) == policies(tmp_path / "whole")
    assert policies(path)[-1]["policy/kl"] > 0
