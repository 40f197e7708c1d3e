"""Rollouts that an OpenAI-compatible server samples: stored, resumed and audited as those of a model of olr's own."""

import base64
import json
import re
import shutil
import time
import zlib
from pathlib import Path

import polars as pl
import pytest
from cases import each
from commands import answered, done, olr, refused
from decisions import assert_same_tables, stored_tables
from samples import json_lines
from served import MODEL, Server

from olr_cli.engines import rollouts
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.store import scan_labels

pytestmark = pytest.mark.usefixtures("here")

PROMPTS, SAMPLES, VISITS, SIZE = 20, 4, 2, 6
ASKED = PROMPTS * SAMPLES * VISITS
RUN = Path("runs/rollouts-sums")


def sums(name="sums.jsonl", prompts=PROMPTS, wrong=()):
    """A question set of sums, some with a wrong label."""
    rows = [
        {
            "prompt_id": f"p{n}",
            "question": f"{n} + 7 = ?",
            "answer": str(n + 7 + 5 * (n in wrong)),
        }
        for n in range(prompts)
    ]
    return json_lines(Path(name), *rows)


def words(server, model=MODEL, *more, visits=VISITS):
    options = f"--url {server.url} --visits {visits} --samples {SAMPLES} --prompts-per-step {SIZE} --concurrency 4"
    return ["rollouts", model, "sums.jsonl", *options.split(), *more]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Rollouts of a server that never failed."""
    folder, server = tmp_path_factory.mktemp("whole"), Server()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        sums()
        done(*words(server))
    server.close()
    return folder / RUN


def test_every_prompt_is_asked_as_often_as_visits_and_samples_say_and_stored(server):
    sums()
    result = done(*words(server))
    labels, rows = stored_tables(RUN)
    assert (len(server.asked), len(labels), len(rows)) == (ASKED, PROMPTS * VISITS, ASKED)
    assert len({body["seed"] for body in server.asked}) == ASKED
    assert {body["temperature"] for body in server.asked} == {1.0}
    assert rows["tokens"].is_between(5, 11).all()
    assert rows["entropy"].null_count() == rows["mean_logprob"].null_count() == ASKED
    assert 0 < rows["truncated"].mean() < 0.3
    manifest = read_manifest(RUN)
    facts = {
        name: manifest[name]
        for name in ("engine", "device", "threads", "url", "served_model")
    }
    assert facts == {
        "engine": "openai", "device": "server", "threads": None, "url": server.url, "served_model": "weights/adder",
    }  # fmt: skip
    assert f"{server.url} sampled this: tokens are as it counts them" in result.stderr
    assert "the same seeds need not draw the same responses again" in " ".join(
        result.stderr.split()
    )
    assert result.stdout.splitlines()[-1] == f"Next: olr audit {RUN}"


@each(
    "trouble",
    (429, {"error": "slow down"}, {"Retry_After": "0.01"}),
    (500, b"oh"),
    "hang up",
    "cut",
    (200, {"error": {"message": "overloaded"}}),
    (200, b"<html>"),
)
def test_what_passes_leaves_no_trace_in_the_rows(server, whole, trouble):
    sums()
    server.troubles = [it for _ in range(6) for it in (trouble, None, None, trouble)]
    done(*words(server))
    assert_same_tables(RUN, whole)


class Killed(BaseException):
    """Ends a test's run as a kill would, at a place of our choice."""


@pytest.mark.parametrize("step", [1, 4, 8])
def test_killed_after_a_step_and_resumed_the_rows_are_those_of_a_run_in_one_go(
    server, whole, monkeypatch, step
):
    sums()
    original = rollouts.RolloutSampler._step

    def dies(self, run, schedule, number, sampled):
        if number == step:
            next(sampled)
            raise Killed
        return original(self, run, schedule, number, sampled)

    with monkeypatch.context() as patch:
        patch.setattr(rollouts.RolloutSampler, "_step", dies)
        with pytest.raises(Killed):
            olr(*words(server))
    server.asked.clear()
    again = done(*words(server, MODEL, "--resume"))
    assert f"Continuing {RUN} after step {step - 1}." in again.stdout
    stored = len(scan_labels(whole).filter(pl.col("step") < step).collect())
    # Each once: a request of the killed run, which was on its way, may come after the list was cleared.
    asked = {json.dumps(request, sort_keys=True) for request in server.asked}
    assert len(asked) == ASKED - stored * SAMPLES
    assert_same_tables(RUN, whole)


def test_the_server_is_asked_one_step_ahead_of_the_oldest_unfinished_prompt(server):
    sums(prompts=60)
    seen = []

    def last(reply):
        """Answer when nothing else has been asked for a while."""
        while not seen or seen[-1] != len(server.asked):
            seen.append(len(server.asked))
            time.sleep(1)
        return reply

    server.troubles = [last]
    done(*words(server, visits=1))
    assert seen[-1] == (1 + SIZE) * SAMPLES
    steps = stored_tables(RUN)[0].group_by("step", maintain_order=True).len()
    assert steps.rows() == [(step, SIZE) for step in range(1, 11)]


@each(
    "troubles, told",
    (
        [(500, {"detail": "engine died"})] * 9999,
        "1 of 160 samples are lost: ",
    ),
    (["cut"] * 8, "1 of 160 samples are lost"),
    (
        [None] * 60 + [(403, {"error": "the key has expired"})] * 9999,
        "refuses a request without a key (status 403",
    ),
    (
        [(200, {"error": {"message": "no credits", "code": 402}})] * 9999,
        "refuses a request in 8 attempts (its reply of status 200 is an error: no credits",
    ),
)
def test_what_does_not_pass_ends_the_run_in_a_sentence_and_a_resume_completes_it(
    server, whole, troubles, told
):
    sums()
    server.troubles = list(troubles)
    result = olr(*words(server, MODEL, "--concurrency", "1"))
    assert result.exit_code == 2 and told in result.stderr, result.stderr
    assert read_manifest(RUN)["status"] == "failed"
    server.troubles = []
    done(*words(server, MODEL, "--resume"))
    assert_same_tables(RUN, whole)


def test_a_run_that_the_server_ended_is_listed_with_the_command_that_continues_it(server):
    sums()
    server.troubles = [
        (403, {"error": "the key has expired"})
    ]  # before the first step is complete
    assert "refuses a request" in olr(*words(server)).stderr
    told = done("runs").stdout
    assert f"olr rollouts MODEL DATA --url {server.url} --resume --run-dir {RUN}" in told
    done(*words(server, MODEL, "--resume"))


@each(
    "more, told",
    (("--device", "cpu"), "--device: this is for a model that olr loads, not for a server"),
    (("--trust-remote-code",), "--trust-remote-code: this is for a model that olr loads"),
    (
        ("--chat-template", "none"),
        "--chat-template: a server renders prompts by its own chat template",
    ),
    (("--backend", "vllm"), "--url: the backend openai is a server with a URL"),
)
def test_options_of_a_model_that_olr_loads_are_refused(server, more, told):
    sums()
    assert told in refused(*words(server, MODEL, *more))
    assert not Path("runs").exists()


@each(
    "asked, told",
    (
        ["rollouts", "org/ader", "sums.jsonl", "--url", "URL"],
        "has no model 'org/ader' (did you mean 'org/adder'?)",
    ),
    (
        ["rollouts", MODEL, "sums.jsonl", "--url", "http://127.0.0.1:9/v1"],
        "no server answers at http://127.0.0.1:9/v1",
    ),
    (
        ["rollouts", MODEL, "sums.jsonl", "--concurrency", "4"],
        "--concurrency: this is for a server, and no URL names one",
    ),
    (
        ["rollouts", MODEL, "sums.jsonl", "--backend", "openai"],
        "--url: the backend openai is a server with a URL",
    ),
)
def test_a_server_that_is_not_there_is_one_sentence(server, asked, told):
    sums()
    assert told in refused(*(server.url if it == "URL" else it for it in asked))
    assert not Path("runs").exists()


def test_a_resume_goes_to_the_same_model_and_says_where_the_server_is_another(server):
    sums()
    server.models = {MODEL: 3, "org/other": 3}
    result = olr(*words(server, visits=1))
    assert result.exit_code == 0
    more = ["--resume", "--run-dir", RUN]
    assert f"model.path: {MODEL} -> org/other" in refused(
        *words(server, "org/other", *more)
    )
    here = [
        "rollouts",
        MODEL,
        "sums.jsonl",
        "--visits",
        "2",
        "--samples",
        "4",
        "--prompts-per-step",
        "6",
        *more,
    ]
    assert "--url: the backend openai is a server with a URL" in refused(*here)
    elsewhere = server.url.replace("127.0.0.1", "localhost")
    again = done(
        *(elsewhere if it == server.url else it for it in words(server, MODEL, *more))
    )
    assert f"the last attempt had url {server.url}, now {elsewhere}" in again.stdout


def test_a_dry_run_shows_a_prompt_and_where_it_goes_and_asks_nothing(server, here):
    sums()
    result = done(*words(server, MODEL, "--dry-run"))
    assert (
        f"server {server.url}, which renders prompts by its own chat template"
        in result.stdout
    )
    assert "no chat template" not in result.stdout + result.stderr
    assert server.asked == [] and not Path("runs").exists()


def test_settings_that_the_server_refuses_are_said_at_the_end(server):
    sums()
    server.refusal = lambda body: (
        (400, {"error": "no 'top_k'"}) if "top_k" in body else None
    )
    result = done(*words(server))
    assert "It refuses top_k, and samples by its own defaults there." in " ".join(
        result.stderr.split()
    )
    assert read_manifest(RUN)["sampling"] == {"top_k": "the server's"}


def test_user_and_password_of_the_address_are_not_stored(server):
    sums()
    address = server.url.replace("//", "//me:secretpass@")
    done(*(address if it == server.url else it for it in words(server)))
    assert not any(
        "secretpass" in file.read_text()
        for file in RUN.glob("*.*")
        if file.suffix != ".parquet"
    )


MODELS = {"lab/small": 3, "lab/middle": 4, "lab/large": 5}
WRONG = (3, 11, 17)


@pytest.fixture
def sampled(server):
    """Runs of three models on one question set with three wrong labels."""
    sums(wrong=WRONG)
    server.models = MODELS
    runs = [Path("runs") / model.partition("/")[2] for model in MODELS]
    for model, run in zip(MODELS, runs, strict=True):
        done(*words(server, model, "--run-dir", run, visits=1))
    return runs


def test_runs_of_three_models_make_one_queue_that_counts_models(sampled):
    found, _ = answered("audit", *sampled)
    assert set(found["models"]) == set(MODELS)
    assert {row["prompt_id"] for row in found["prompts"][:3]} == {f"p{n}" for n in WRONG}
    assert {row["rollouts"] for row in found["prompts"]} == {3 * SAMPLES}
    shown = done("audit", *sampled).stdout
    assert "20 prompts, 12 rollouts of each by 3 models in 1 visit" in shown
    # Given twice, a run counts once
    assert answered("audit", *sampled, sampled[0])[0]["prompts"] == found["prompts"]


def test_what_follows_an_audit_of_three_models_works_as_after_one(sampled):
    result = done(
        "audit",
        *sampled,
        "--report",
        "queue.html",
        "--export",
        "rest.jsonl",
        "--drop",
        "doubted",
    )
    blocks = re.findall(">([A-Za-z0-9+/=]{40,})<", Path("queue.html").read_text())
    page = b"".join(zlib.decompress(base64.b64decode(block)) for block in blocks).decode()
    assert all(text in page for text in (*MODELS, "11 + 7 = ?", "boxed{18}"))
    rest = pl.read_ndjson("rest.jsonl")
    assert len(rest) == PROMPTS - len(WRONG)
    assert "model.path=MODEL" in result.stdout
    four = [*sampled, shutil.copytree(sampled[0], "runs/copy")]
    assert f"olr audit {' '.join(map(str, four))} --report" in done("audit", *four).stdout


def test_the_next_command_of_one_served_run_names_no_policy_to_train(sampled):
    result = done("audit", sampled[0], "--export", "rest.jsonl", "--drop", "doubted")
    assert "model.path=MODEL" in result.stdout and "lab/small" not in result.stdout


def test_runs_that_cannot_be_compared_are_refused(sampled, server):
    sums(wrong=())
    done(*words(server, "lab/small", "--run-dir", "other", visits=1))
    told = refused("audit", sampled[0], "other")
    assert f"{sampled[0]} and other were sampled on different prompts or labels" in told
    assert "the rewards of one run are audited at a time" in refused(
        "audit", *sampled, "--rewards"
    )
    assert f"{sampled[0]} is a run directory, and gone is none" in refused(
        "audit", *sampled, "gone"
    )
    told = refused("audit", *sampled, "--columns", "model=m")
    assert "--columns: only logs have columns to name; leave it out" in told


def test_a_run_that_is_not_finished_is_audited_with_the_others_and_said(sampled):
    manifest = json.loads((sampled[1] / "manifest.json").read_text())
    (sampled[1] / "manifest.json").write_text(
        json.dumps(manifest | {"status": "interrupted"})
    )
    assert f"{sampled[1]} is not finished (interrupted)" in done("audit", *sampled).stderr
