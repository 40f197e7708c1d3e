"""`olr rollouts` as a user types it, with a built-in policy."""

import json
import os
import shutil
import signal
from pathlib import Path

import polars as pl
import pytest
from cases import each
from commands import done, olr, refused
from histories import write_history
from samples import json_lines

from olr_cli.engines.backends import transformers_backend
from olr_cli.engines.backends.transformers_backend import TransformersBackend
from olr_cli.engines.models import policy_path
from olr_cli.runs.checkpoints import checkpoint_path
from olr_cli.runs.directory import read_manifest, read_recipe
from olr_cli.runs.store import scan_labels

MODEL = "builtin:addition-easier"
SMALL = ("--limit", "12", "--visits", "2", "--samples", "4", "--prompts-per-step", "6")
RUN = Path("runs/rollouts-arithmetic")


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    """A folder in which small rollouts were made, and what the command said."""
    folder = tmp_path_factory.mktemp("sampled")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return folder, done("rollouts", MODEL, "arithmetic", *SMALL)


pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def there(sampled, tmp_path):
    """The small rollouts, in the folder where the command is typed."""
    shutil.copytree(sampled[0] / "runs", tmp_path / "runs")
    return RUN


def test_it_ends_with_what_it_found_what_to_bear_in_mind_and_what_comes_next(sampled):
    _, result = sampled
    table, summary = result.stdout.split("\n\n")
    assert max(map(len, table.splitlines())) <= 80
    assert [line.split()[0] for line in table.splitlines()[2:]] == ["1", "2"]
    assert f"Finished {RUN}: 12 prompts x 2 visits x 4 rollouts of {MODEL}" in summary
    assert "the policy was the same at every visit, so slopes are chance" in result.stderr
    assert "systematic by construction" in result.stderr
    assert summary.splitlines()[-1] == f"Next: olr audit {RUN}"


def test_a_second_run_lies_beside_the_first(there):
    done("rollouts", MODEL, "arithmetic", *SMALL, "--seed", "1")
    assert sorted(Path("runs").iterdir()) == [RUN, Path(f"{RUN}-2")]


def test_a_run_directory_means_its_last_checkpoint(tmp_path):
    run = write_history(tmp_path / "mine", steps=4)
    shutil.copytree(policy_path("addition-easier"), checkpoint_path(run, 4))
    result = done("rollouts", run, "arithmetic", *SMALL)
    recipe = read_recipe(RUN)
    assert recipe.model.path == str(checkpoint_path(run, 4))
    # As the policy that the run started from
    assert "systematic by construction" in result.stderr
    assert recipe.engine.threads == 1


def test_asked_to_stop_it_stores_the_step_and_goes_on_with_resume(sampled, monkeypatch):
    class Stopped(TransformersBackend):
        def stream(self, *words):
            os.kill(os.getpid(), signal.SIGINT)
            yield from super().stream(*words)

    with monkeypatch.context() as patch:
        patch.setattr(transformers_backend, "TransformersBackend", Stopped)
        result = olr("rollouts", MODEL, "arithmetic", *SMALL)
    assert result.exit_code == 130
    assert (
        "Stopping when the step in progress is stored; Ctrl-C again stops at once."
        in result.stdout
    )
    assert result.stderr.rstrip().endswith(f"--resume --run-dir {RUN}")
    assert read_manifest(RUN)["status"] == "interrupted"
    again = done("rollouts", MODEL, "arithmetic", *SMALL, "--resume")
    assert f"Continuing {RUN} after step 1." in again.stdout
    assert scan_labels(RUN).collect().equals(scan_labels(sampled[0] / RUN).collect())


def test_json_is_an_object_a_line():
    result = done("rollouts", MODEL, "arithmetic", *SMALL, "--json")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["step"] for event in events if event["event"] == "step"] == [1, 2, 3, 4]
    last = events[-1]
    assert (last["event"], last["run"], last["next"]) == (
        "finished",
        str(RUN),
        [f"olr audit {RUN}"],
    )
    assert (last["prompts"], last["known"], 0 < last["accuracy"] < 1) == (12, 1, True)


def test_a_dry_run_shows_a_prompt_and_writes_nothing(here):
    result = done("rollouts", MODEL, "arithmetic", *SMALL, "--dry-run")
    assert "4 steps, 96 rollouts" in result.stdout
    assert "backend transformers, device cpu" in result.stdout
    assert "as the policy sees it:" in result.stdout
    assert list(here.iterdir()) == []


def test_what_is_finished_is_not_resumed(there):
    again = ("rollouts", MODEL, "arithmetic", *SMALL, "--resume", "--run-dir", there)
    first, last = done(*again).stdout.splitlines()
    assert first == f"{there} is finished; nothing to resume."
    assert last == f"Next: olr audit {there}"
    (event,) = map(json.loads, done(*again, "--json").stdout.splitlines())
    assert (event["event"], event["run"]) == ("finished", str(there))


@each(
    "words, message",
    (("no/such/model", "arithmetic"), "no/such/model does not exist"),
    (("builtin:adition-easier", "arithmetic"), "did you mean 'addition-easier'?"),
    ((MODEL, "nowhere.jsonl"), "nowhere.jsonl does not exist"),
    ((MODEL, "empty.jsonl"), "empty.jsonl has no rows"),
    (
        (MODEL, "arithmetic", "--extractor", "boxd"),
        "--extractor: there is no extractor 'boxd' (did you",
    ),
    (
        (MODEL, "arithmetic", "--temperature", "0"),
        "train.temperature is 0.0: input should be greater",
    ),
    ((MODEL, "arithmetic", "--resume"), "no unfinished run"),
    ((MODEL, "arithmetic", "--resume", "--run-dir", "gone"), "gone does not exist"),
)
def test_what_cannot_work_is_refused_in_a_sentence(here, words, message):
    (here / "empty.jsonl").write_text("")
    assert message in refused("rollouts", *words)
    assert not Path("runs").exists()


def test_data_without_labels_can_be_sampled_and_audited(here):
    rows = [
        {"prompt_id": "a", "question": "123+459="},
        {"prompt_id": "b", "question": "223+459=", "answer": "682"},
    ]
    json_lines(here / "half.jsonl", *rows)
    run = here / "run"
    short = ("--max-new-tokens", "5", "--extractor", "reversed_digits", "--visits", "2")
    done("rollouts", MODEL, "half.jsonl", *short, "--run-dir", run)
    labels = scan_labels(run).collect()
    assert dict(labels.select("prompt_id", "given_label").iter_rows()) == {
        "a": None,
        "b": "682",
    }
    audited = json.loads(done("audit", run, "--json").stdout)
    assert audited["labels"]["missing"] == 1


def test_other_commands_know_rollouts_from_training(there):
    train = ("train", there / "recipe.yaml", "--resume", "--run-dir", there)
    assert "holds rollouts without training, which `olr rollouts` resumes" in refused(
        *train
    )
    assert f"has no checkpoint; train it further, or name the model, {MODEL}" in refused(
        "evaluate", there
    )
    assert f"--run-dir: {RUN} holds a run already (finished)" in refused(
        "rollouts", MODEL, "arithmetic", *SMALL, "--run-dir", there
    )


@pytest.mark.real_figures
def test_rollouts_are_analysed_and_replayed_with_a_note(there):
    analysed = done("analyze", there, "--figure", "coherence", "--figure", "composition")
    assert "slopes are chance" in analysed.stderr
    assert (there / "figures" / "coherence.png").stat().st_size > 10_000
    curves = pl.read_csv(there / "figures" / "coherence.csv")
    assert curves["arm"].unique().to_list() == ["rollouts"]
    replayed = done(
        "replay",
        there,
        "--set",
        "method.warmup_epochs=1",
        "--set",
        "method.criteria=[consistency]",
    )
    assert "Replayed 24 visits of 12 prompts under olr_without_slope" in replayed.stdout
    assert "slopes are chance" in replayed.stdout


def test_columns_and_the_system_message_of_the_data_are_options():
    rows = [{"Frage": f"{n}+{n}", "Lösung": 2 * n} for n in range(10, 16)]
    json_lines(Path("mine.jsonl"), *rows)
    columns = ("--columns", "{question: Frage, answer: Lösung}", "--system", "none")
    done("rollouts", MODEL, "mine.jsonl", *columns, "--visits", "1", "--samples", "2")
    run = Path("runs/rollouts-mine")
    assert read_recipe(run).data.system_prompt == "none"
    assert sorted(scan_labels(run).collect()["given_label"]) == [
        str(2 * n) for n in range(10, 16)
    ]


@each(
    "words, again",
    ((), "olr rollouts MODEL DATA --resume --run-dir runs/rollouts-arithmetic"),
    (("--run-dir", "a b"), "olr rollouts MODEL DATA --run-dir 'a b' --resume"),
)
def test_what_was_stopped_says_the_command_that_continues_it(words, again, monkeypatch):
    def stopped(recipe, path, *arguments, **settings):
        path.mkdir(parents=True)
        (path / "manifest.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr("olr_cli.engines.launch.launch", stopped)
    typed = ["rollouts", MODEL, "arithmetic", *words]
    monkeypatch.setattr("sys.argv", ["olr", *typed])
    result = olr(*typed)
    again = again.replace("MODEL DATA", f"{MODEL} arithmetic")
    assert result.stderr.endswith(f"; continue with {again}\n")
