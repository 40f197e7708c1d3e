"""`olr evaluate` as a user types it, with the built-in policies on the transformers backend."""

import json
import os
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

import commands
import polars as pl
import pytest
from cases import each
from commands import contents
from histories import write_history
from samples import json_lines

from olr_cli.engines.backends import BackendOptions, transformers_backend
from olr_cli.engines.backends.transformers_backend import TransformersBackend
from olr_cli.engines.models import policy_path
from olr_cli.runs.checkpoints import checkpoint_path

MODEL = "builtin:addition-easier"
SMALL = ("--limit", "20", "--samples", "4")


olr, done, refused = (
    partial(run, "evaluate") for run in (commands.olr, commands.done, commands.refused)
)


pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """An evaluation of the easier policy."""
    folder = tmp_path_factory.mktemp("evaluated") / "easier"
    done(MODEL, *SMALL, "--out", folder)
    return folder


@pytest.fixture
def trained(tmp_path):
    """A run with two checkpoints, which are the two policies."""
    run = write_history(tmp_path / "mine", steps=4)
    for step, policy in ((2, "addition-harder"), (4, "addition-easier")):
        shutil.copytree(policy_path(policy), checkpoint_path(run, step))
    return run


def test_a_model_is_scored_and_the_scores_are_where_it_says():
    result = done(MODEL, *SMALL)
    folder = Path("evaluations/builtin-addition-easier")
    scores = json.loads((folder / "scores.json").read_text())
    [score] = scores["scores"]
    assert (score["benchmark"], score["problems"], score["samples"]) == (
        "arithmetic",
        20,
        4,
    )
    assert 0.3 < score["avg"] < 0.8
    assert f"{100 * score['avg']:.1f}" in result.stdout
    assert f"Wrote {folder}/scores.json and generations/" in result.stdout
    assert result.stdout.splitlines()[-1].startswith(
        f"Next: olr regrade {folder} --format markdown"
    )
    assert "80 of 80 samples in all, 0:00 left" in result.stderr
    assert (
        "systematic by construction" not in result.output
    )  # said once, where it was trained
    assert pl.read_parquet(folder / "generations" / "arithmetic.parquet").height == 80


def test_a_request_to_stop_ends_with_a_sentence_and_its_status(
    evaluated, monkeypatch, here
):
    class Stopped(TransformersBackend):
        def stream(self, *words):
            os.kill(os.getpid(), signal.SIGTERM)
            yield from super().stream(*words)

    with monkeypatch.context() as patch:
        patch.setattr(transformers_backend, "TransformersBackend", Stopped)
        patch.setattr(transformers_backend, "BATCH", 0)  # so that a batch has 64 responses
        result = olr(MODEL, *SMALL, "--out", "stopped")
    assert result.exit_code == 143
    assert result.stdout == ""
    assert result.stderr.endswith(
        "Stopped. What is done is in stopped; the same command continues.\n"
    )
    assert "64 of them there already" in done(MODEL, *SMALL, "--out", "stopped").stderr
    assert contents(here / "stopped") == contents(evaluated)


def test_a_request_to_stop_while_the_model_loads_is_heeded_before_it_generates(
    monkeypatch, here
):
    class Loading(TransformersBackend):
        def __init__(self, *words, **options):
            super().__init__(*words, **options)
            os.kill(os.getpid(), signal.SIGTERM)

        def stream(self, *words):
            raise AssertionError("it generates")

    monkeypatch.setattr(transformers_backend, "TransformersBackend", Loading)
    result = olr(MODEL, *SMALL)
    assert result.exit_code == 143
    assert result.stderr.endswith("the same command continues.\n")


def test_stopped_at_once_before_anything_is_stored_it_says_so(monkeypatch, here):
    def interrupted(*words, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(BackendOptions, "open", interrupted)
    result = olr(MODEL, *SMALL)
    assert result.exit_code == 130
    assert result.stderr.endswith(
        "Stopped. Nothing is stored yet; the same command continues.\n"
    )
    assert list(here.glob("evaluations/*")) == []


def test_how_responses_are_drawn_is_part_of_an_evaluation():
    words = (
        "--top-p",
        "0.9",
        "--top-k",
        "3",
        "--min-p",
        "0.05",
        "--max-new-tokens",
        "6",
        "--limit",
        "8",
    )
    done(MODEL, *words)
    record = json.loads(
        Path("evaluations/builtin-addition-easier/evaluation.json").read_text()
    )
    assert record["sampling"] == {
        "temperature": 0.6, "max_new_tokens": 6, "top_p": 0.9, "top_k": 3, "min_p": 0.05, "stop": [],
    }  # fmt: skip
    assert "(top_k: 3 -> None; min_p: 0.05 -> 0.0)" in refused(
        MODEL, *words[:2], *words[6:]
    )
    assert "top_p is 1.5; give a number above 0, and at most 1" in refused(
        MODEL, "--top-p", "1.5"
    )


def test_checkpoints_of_a_run_are_scored_in_one_call_into_the_run(trained):
    result = done(trained, *SMALL, "--checkpoint", "2", "--checkpoint", "last")
    folders = [trained / "evaluation" / f"step-00000{step}" for step in (2, 4)]
    harder, easier = (
        json.loads((folder / "scores.json").read_text()) for folder in folders
    )
    assert harder["scores"][0]["avg"] < easier["scores"][0]["avg"]
    assert (harder["origin"]["chosen"], easier["origin"]["chosen"]) == ("named", "last")
    assert "mine step 2" in result.stdout and "mine step 4" in result.stdout
    assert (
        f"Wrote {folders[1]}/scores.json and generations/ (checkpoint: last)"
        in result.stdout
    )
    assert f"Next: olr regrade {trained / 'evaluation'} --format markdown" in result.stdout

    again = commands.done("regrade", trained, "--compare", folders[0], "--json")
    assert again.stderr.count("80 samples graded again, 0 grades changed") == 2
    table = json.loads(again.stdout)
    _, scored = table["evaluations"]
    assert (scored["name"], scored["run"], scored["step"]) == (
        "mine step 4",
        str(trained),
        4,
    )
    assert (scored["model"], scored["folder"]) == (
        str(checkpoint_path(trained, 4)),
        str(folders[1]),
    )
    [row] = table["rows"]
    assert row["difference"] == pytest.approx(
        easier["scores"][0]["avg"] - harder["scores"][0]["avg"]
    )
    assert row["difference_low"] < row["difference"] < row["difference_high"]


@each(
    "shape, start",
    ("markdown", "| avg@n, % | Addition |"),
    ("latex", "% Scores"),
    ("csv", "model,benchmark,avg,low"),
)
def test_tables_for_other_programs_stand_alone_on_standard_output(evaluated, shape, start):
    for words in (("evaluate", MODEL, *SMALL, "--out", evaluated), ("regrade", evaluated)):
        result = commands.done(*words, "--format", shape)
        assert result.stdout.startswith(start)
        assert "Wrote" not in result.stdout and "Next" not in result.stdout


def test_what_a_run_holds_out_is_sampled_as_in_training(tmp_path):
    run = write_history(
        tmp_path / "run",
        steps=4,
        data={"test": "arithmetic"},
        train={"evaluation_temperature": 1.0},
    )
    shutil.copytree(policy_path("addition-easier"), checkpoint_path(run, 4))
    result = done(run, "--limit", "5")
    assert (
        "it is asked as in training (temperature 1, 8 samples of each problem)"
        in result.stderr
    )
    assert "Sampled at temperature 1." in result.stdout
    record = json.loads(
        (run / "evaluation" / "step-000004" / "evaluation.json").read_text()
    )
    assert record["sampling"] == {
        "temperature": 1.0, "max_new_tokens": 16, "top_p": 1.0, "top_k": None, "min_p": 0.0, "stop": [],
    }  # fmt: skip
    assert record["benchmarks"]["arithmetic"]["samples"] == 8
    json_lines(Path("mine.jsonl"), {"question": "150+150=", "answer": "300"})
    for more in (
        ("--benchmarks", "arithmetic", *SMALL),
        ("--data", "mine.jsonl"),
        ("--limit", "6"),
    ):
        result = done(run, *more)
        assert (
            f"Sampled at temperature {1 if more[0] == '--limit' else 0.6}." in result.stdout
        )
    assert {file.name for file in run.glob("evaluation/*")} == {
        "step-000004",
        "step-000004-benchmarks",
    }
    for models in ((MODEL,), (MODEL, run)):
        done(*models, "--limit", "6")
    made = {file.name for file in Path("evaluations").iterdir()}
    assert made == {"builtin-addition-easier", "builtin-addition-easier-held-out"}
    hotter = write_history(tmp_path / "hotter", steps=2, data={"test": "arithmetic"})
    shutil.copytree(policy_path("addition-easier"), checkpoint_path(hotter, 2))
    assert "or measure them in different ways" in refused(run, hotter)


def test_a_model_that_the_paper_has_is_put_beside_its_row(evaluated):
    copy = Path("Qwen-copy")
    shutil.copytree(evaluated, copy)
    record = json.loads((copy / "evaluation.json").read_text())
    (copy / "evaluation.json").write_text(
        json.dumps(record | {"model": "Qwen/Qwen3-4B-Base"})
    )
    result = commands.done("regrade", copy)
    assert result.stdout.splitlines()[-1].startswith(f"Next: olr regrade {copy} --paper")
    result = commands.done("regrade", copy, "--paper")
    assert "The paper's row is Qwen3-4B-Base" in result.stdout
    assert "--paper --format markdown" in result.stdout.splitlines()[-1]


def test_a_benchmark_of_ones_own_is_a_yaml_file():
    rows = [
        {"question": "123+478=", "answer": "601"},
        {"question": "150+150=", "answer": "300"},
    ]
    json_lines(Path("mine.jsonl"), *rows)
    Path("mine.yaml").write_text(
        "name: mine\nsamples: 2\nsystem: null\nextractor: reversed_digits\nsource: {file: mine.jsonl}\n"
    )
    names = ("--benchmarks", "mine.yaml", "--benchmarks", "arithmetic")
    result = done(MODEL, *names, "--limit", "2", "--json")
    [scored] = json.loads(result.stdout)["evaluations"]
    found = [
        (one["benchmark"], one["problems"], one["samples"]) for one in scored["scores"]
    ]
    assert found == [("mine", 2, 2), ("arithmetic", 2, 1)]
    shown = commands.done("benchmarks", "mine.yaml", MODEL)
    assert shown.stdout == "123+478=\ngold: 601\n"
    assert (
        json.loads(commands.done("benchmarks", "mine.yaml", MODEL, "--json").stdout)[
            "prompt"
        ]
        == "123+478="
    )


def test_a_file_of_questions_and_answers_is_a_benchmark_and_several_models_are_one_table():
    rows = [
        {"question": f"{a}+150=", "answer": str(a + 150), "data_source": "arithmetic"}
        for a in range(150, 160)
    ]
    json_lines(Path("sums.jsonl"), *rows)
    words = (MODEL, "builtin:addition-harder", "--data", "sums.jsonl", "--samples", "2")
    evaluations = json.loads(done(*words, "--json").stdout)["evaluations"]
    assert [one["name"] for one in evaluations] == [MODEL, "builtin:addition-harder"]
    for one in evaluations:
        assert [(score["benchmark"], score["problems"]) for score in one["scores"]] == [
            ("sums", 10)
        ]
    assert f"benchmark {MODEL} builtin:addition-harder" in done(*words).stdout
    assert "10 problems" not in done(*words, "--benchmarks", "sums").stderr


@each(
    "words, sentence",
    (
        ("nowhere",),
        "there is no model folder, run or built-in policy 'nowhere', and no such model on",
    ),
    (("org/nowhere", "--benchmarks", "math500"), "no such model on the Hugging Face hub"),
    (
        ("org/a--b",),
        "no such model on the Hugging Face hub (Cannot have -- or .. in repo_id: 'org/a--b'",
    ),
    (("a" * 99,), "no such model on the Hugging Face hub (Repo id must use"),
    *((("org/model", "--tolerance", it), "--tolerance: ") for it in ("1", "-0.1", "nan")),
    ((MODEL, "--benchmarks", "math500"), "math500: "),
    ((MODEL, "--data", "nowhere.parquet"), "nowhere.parquet does not exist"),
    ((MODEL, "--format", "cvs"), "--format: there is no 'cvs' (did you mean 'csv'?)"),
    ((MODEL, "--backend", "vlm"), "--backend: there is no 'vlm' (did you mean 'vllm'?)"),
    ((MODEL, "--stop", ""), "a stop text is empty"),
    ((MODEL, "--concurrency", "3"), "--concurrency: this is for a server"),
    (
        (MODEL, "--backend", "transformers", "--vllm", "lora=a"),
        "--vllm: this is for the vllm backend",
    ),
    (
        (MODEL, "--url", "http://localhost:1/v1", "--seed-each"),
        "--seed-each: this is for a model that",
    ),
    (
        (MODEL, "--paper", "--compare", "x"),
        "--compare: the paper's scores are a reference already",
    ),
    ((MODEL, "--paper"), "the paper has no scores of 'addition-easier'"),
)
def test_mistakes_are_one_sentence_and_status_2_and_leave_nothing(here, words, sentence):
    before = sorted(here.iterdir())
    assert sentence in refused(*words)
    assert sorted(here.iterdir()) == before


def test_a_misspelled_benchmark_is_named_before_a_package_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "did you mean 'math500'?" in refused("org/model", "--benchmarks", "math50")


def test_a_finished_evaluation_of_another_backend_is_not_passed_off_as_the_one_asked_for(
    evaluated,
):
    said = refused(MODEL, *SMALL, "--out", evaluated, "--backend", "vllm")
    assert "another backend (transformers -> vllm)" in said
