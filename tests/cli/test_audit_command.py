"""`olr audit` from the outside: what it says, writes and refuses."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from audit_tables import many, rollouts, write
from histories import write_history
from typer.testing import CliRunner

from olr_cli.cli import app
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.prompts import NEVER_REWARDED, SENTINEL
from olr_cli.data.sets import training_prompts
from olr_cli.recipe.layers import validate

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def log(here):
    rows = [{**row, "question": f"What is {row['prompt_id']}?"} for row in many(30, wrong={3, 8})]
    return write(here / "log.jsonl", rows)


def audit(*arguments):
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


def told(*arguments):
    done = audit(*arguments)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def refused(*arguments):
    done = audit(*arguments)
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    return " ".join(done.output.split())


def test_a_table_of_rollouts_is_enough(here, log):
    said = told(log)
    assert "30 prompts, 4 visits of each, 8 rollouts a visit" in said
    assert "2 doubted, 0 undecided (nobody solved the prompt), 28 fine" in said
    assert "from votes alone" in said and "--trusted FILE" in said
    assert "The slope counts only if" in said
    assert "2 labels to replace by the proposal: where it is likelier right" in said
    assert "p3 8 7 4" in said and "p8 8 7 4" in said
    [table] = here.glob("log-audit-*.parquet")
    assert f"Wrote {log.with_name(table.name)} (a row for each prompt)" in said
    assert said.endswith("--export repaired.parquet")
    rows = pl.read_parquet(table)
    assert rows["prompt_id"].head(2).sort().to_list() == ["p3", "p8"]
    assert {"given_label", "proposed_label", "confidence", "slope", "consistency"} < set(rows.columns)


def test_the_log_of_trl_is_audited_by_text_with_labels_from_the_data_or_the_rewards(here):
    text, messages = (
        shutil.copytree(FIXTURES / "logs" / "trl" / kind, here / kind) for kind in ("text", "messages")
    )
    options = ["--set", "data.extractor=reversed_digits", "--out"]
    said = told(text, *options, "rewarded.parquet")
    assert "24 prompts, 2 visits of each, 4 rollouts a visit" in said
    assert "a prompt's label is taken to be the answer that was rewarded" in said
    rewarded = {row["question"]: row for row in pl.read_parquet("rewarded.parquet").to_dicts()}
    assert len(rewarded) == 24

    logged = pl.read_parquet(messages / "*.parquet").unique("prompt", keep="first")
    labels = {row["prompt"][0]["content"]: row["solution"] for row in logged.to_dicts()}
    never = {q for q, row in rewarded.items() if row["given_label"] == NEVER_REWARDED}
    assert never and {q: labels[q] for q in rewarded.keys() - never} == {
        q: row["given_label"] for q, row in rewarded.items() if q not in never
    }
    rows = [{"question": question, "answer": label} for question, label in labels.items()]
    (here / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told(text, "--data", "mine.jsonl", *options, "labelled.parquet", "--export", "repaired.jsonl")
    labelled = {row["question"]: row for row in pl.read_parquet("labelled.parquet").to_dicts()}
    assert {question: row["given_label"] for question, row in labelled.items()} == labels
    assert all(
        abs(labelled[question]["confidence"] - row["confidence"]) < 1e-9
        for question, row in rewarded.items()
        if row["confidence"] is not None
    )
    assert len(read_prompts("repaired.jsonl")) == 24
    doubted = next(question for question, row in labelled.items() if row["status"] == "doubted")
    assert doubted in told(text, "--set", "data.extractor=reversed_digits")


def test_the_next_command_and_the_name_of_the_table_are_those_of_the_options(here, log):
    options = ["--threshold", "0.7", "--set", "data.extractor=text"]
    assert told(log, *options).endswith(f"olr audit {log} {' '.join(options)} --export repaired.parquet")
    said = told(log, *options, "--export", "repaired.parquet")
    assert said.endswith("--set data.train=repaired.parquet --set data.extractor=text")
    for others in ([], options[:2], options[2:], []):
        told(log, *others)
    names = {file.name for file in here.glob("log-audit-*.parquet")}
    assert len(names) == 4
    (here / "elsewhere").mkdir()
    told(log.rename(here / "elsewhere" / "log.jsonl"))
    assert {file.name for file in (here / "elsewhere").glob("*.parquet")} < names


def test_without_answers_it_says_so_and_the_export_keeps_every_label(here):
    rows = [
        row for n in range(3) for row in rollouts(f"p{n}", [[None] * 4] * 2, given_label="7", question="?")
    ]
    said = told(write(here / "log.jsonl", rows), "--export", "out.jsonl")
    assert "100% of the responses have no answer; another --set data.extractor (boxed, " in said
    assert "no label can be judged" in said
    assert "Wrote out.jsonl (0 changed, 0 kept, 3 undecided)" in said
    assert [prompt.given_label for prompt in read_prompts("out.jsonl").prompts] == ["7"] * 3


def test_labels_without_a_wrong_one_have_no_kinds_of_wrong_ones(here, log):
    assert "of the wrong ones" in told(log)
    said = told(write(here / "clean.jsonl", many(30)))
    assert "Noise ratio 0.0" in said and "of the wrong ones" not in said


def test_json_has_everything_and_writes_nothing(here, log):
    before = sorted(here.iterdir())
    found = json.loads(audit(log, "--json").output)
    assert sorted(here.iterdir()) == before
    assert found["labels"] == {"doubted": 2, "undecided": 0, "fine": 28, "missing": 0}
    assert found["changes"] == {"changed": 2, "added": 0, "kept": 28, "undecided": 0}
    assert found["calibration"]["source"] == "built-in"
    low, high = found["noise_ratio_interval"]
    assert low <= found["noise_ratio"] <= high
    assert [row["prompt_id"] for row in found["ranked"][:2]] in (["p3", "p8"], ["p8", "p3"])
    assert len(found["ranked"]) == 30
    assert len(json.loads(audit(log, "--json", "--top", "4").output)["ranked"]) == 4


def test_the_export_is_a_data_set_that_says_what_was_changed_and_why(here, log):
    said = told(log, "--export", "fixed/repaired.parquet")
    assert "Wrote fixed/repaired.parquet (2 changed, 28 kept, 0 undecided)" in said
    assert "olr train own-data --set model.path=MODEL --set data.train=fixed/repaired.parquet" in said
    rows = {
        row["extra_info"]["index"]: row
        for row in pl.read_parquet(here / "fixed" / "repaired.parquet").to_dicts()
    }
    changed, kept = rows["p3"], rows["p0"]
    assert changed["reward_model"]["ground_truth"] == "7"
    assert changed["prompt"][-1] == {"role": "user", "content": "What is p3?"}
    extra = changed["extra_info"]
    assert (extra["audit_change"], extra["audit_given_label"]) == ("changed", "8")
    assert extra["audit_confidence"] > 0.5
    assert "the answer 7 has 62% of the last visit's rollouts" in extra["audit_evidence"]
    assert (kept["reward_model"]["ground_truth"], kept["extra_info"]["audit_change"]) == ("7", "kept")
    assert [p.given_label for p in read_prompts("fixed/repaired.parquet").prompts] == ["7"] * 30


def test_the_same_export_twice_is_already_there_and_another_is_refused(here, log):
    told(log, "--export", "out.jsonl")
    before = (here / "out.jsonl").read_bytes()
    assert "Unchanged out.jsonl" in told(log, "--export", "out.jsonl")
    assert "choose another --export" in refused(log, "--export", "out.jsonl", "--threshold", "1")
    assert (here / "out.jsonl").read_bytes() == before


def test_rows_come_from_the_data_set_and_keep_their_other_columns(here):
    write(here / "bare.jsonl", many(20, wrong={3}))
    rows = [
        {
            "question": f"q{n}",
            "answer": "8" if n == 3 else "7",
            "level": n,
            "extra_info": {"index": f"p{n}", "note": "x"},
        }
        for n in range(21)
    ]
    write(here / "data.jsonl", rows)
    assert "name the data set with --data" in refused("bare.jsonl", "--export", "out.jsonl")
    told("bare.jsonl", "--data", "data.jsonl", "--export", "out.jsonl")
    written = [json.loads(line) for line in (here / "out.jsonl").read_text().splitlines()]
    assert [row["level"] for row in written] == list(range(21))
    assert written[3]["reward_model"]["ground_truth"] == "7" and written[3]["extra_info"]["note"] == "x"
    unvisited = written[20]["extra_info"]
    assert (unvisited["audit_change"], unvisited["audit_confidence"]) == ("undecided", None)
    assert "no rollout" in unvisited["audit_evidence"]


@pytest.fixture
def run(here):
    """A run with active noise whose data set is a file, as its recipe says."""
    rows = [{"question": f"q{n}", "answer": "10", "extra_info": {"index": n}} for n in range(40)]
    data = {"train": str(write(here / "clean.jsonl", rows))}
    return write_history(here / "run", prompts=40, epochs=6, method={"name": "grpo"}, data=data)


def test_a_runs_export_holds_the_labels_that_were_audited_and_can_be_trained_on(here, run):
    said = told(run, "--export", "repaired.parquet")
    assert "those of the last visit are audited" in said
    assert "Known truth (stored, and not used above)" in said
    assert "olr train" in said and "--set noise=null --set data.train=repaired.parquet" in said
    table = pl.read_parquet(next((run / "audit").glob("*.parquet"))).to_dicts()
    audited = {row["prompt_id"]: row for row in table}
    recipe = validate({"name": "again", "data": {"train": str(here / "repaired.parquet")}}, "test")
    for prompt in training_prompts(recipe).prompts:
        row = audited[prompt.prompt_id]
        is_new = row["change"] in ("changed", "added")
        label = row["proposed_label"] if is_new else row["given_label"]
        assert prompt.given_label == (label or SENTINEL)
        assert prompt.true_answer == "10"
        expected = "clean" if label == "10" else "inactive" if label is None else "active_frozen"
        assert prompt.noise_type == expected


def test_a_changed_data_set_is_not_taken_for_the_runs(here, run):
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["data"] = {"train": {"digest": "of another file"}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert "does not hold the prompts of this run any more" in refused(run, "--export", "repaired.parquet")
    (here / "clean.jsonl").unlink()
    assert "--data" in refused(run, "--export", "repaired.parquet")


def test_rollouts_without_training_have_no_slopes_and_training_after_them_reads_answers_as_they_did(here):
    data = {"extractor": "text"}
    run = write_history(here / "run", noise=None, prompts=20, epochs=2, kind="rollouts", data=data)
    said = told(run)
    assert "a slope means nothing and is left out" in said
    assert "keeps its systematic errors" in said
    assert "slope" not in json.loads(audit(run, "--json").output)["ranked"][0]
    rows = [{"question": f"q{n}", "answer": "10", "extra_info": {"index": n}} for n in range(20)]
    data_set = write(here / "data.jsonl", rows)
    said = told(run, "--data", data_set, "--export", "repaired.parquet")
    assert said.endswith("--set data.train=repaired.parquet --set data.extractor=text")


def test_what_was_found_is_shown_where_the_table_cannot_be_written(here, log):
    (here / "file").write_text("")
    said = refused(log, "--out", "file/table.parquet")
    assert "2 doubted" in said and "file/table.parquet could not be written" in said and "--out FILE" in said


def test_trusted_labels_say_so(here, log):
    rows = [{"prompt_id": f"p{n}", "true_answer": "7"} for n in range(12)] + [
        {"prompt_id": "x", "true_answer": "1"}
    ]
    write(here / "trusted.jsonl", rows)
    said = told(log, "--trusted", "trusted.jsonl")
    assert "moved by 12 trusted labels (2 of them wrong)" in said
    assert "12 of 13 verified labels in trusted.jsonl are for 12 prompts here, 1 for none." in said
    assert "cross-validated on 12 trusted labels (2 of them wrong), AUROC 1.00" in said
    assert "--trusted trusted.jsonl --export" in said


def test_trusted_answers_of_prompts_without_a_label_say_so(here):
    rows = many(12) + rollouts("bare", [["7"] * 4] * 4)
    log = write(here / "log.jsonl", rows)
    trusted = write(here / "trusted.jsonl", [{"prompt_id": p, "true_answer": "7"} for p in ("p0", "bare")])
    expected = "1 trusted label (0 of them wrong) and 1 true answer of prompts without a label"
    assert f"moved by {expected}" in told(log, "--trusted", trusted)


@pytest.mark.parametrize(
    ("visits", "warning"),
    [
        ([["7"] * 8], "after a single visit"),
        ([["7", "7"]] * 4, "fewer than 4 rollouts"),
        ([[None] * 7 + ["7"]] * 20 + [[None] * 8] * 20, "of the responses have no answer"),
    ],
)
def test_what_makes_the_numbers_doubtful_is_said(here, visits, warning):
    rows = [row for n in range(12) for row in rollouts(f"p{n}", visits, given_label="7")]
    assert warning in told(write(here / "few.jsonl", rows))


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_long_texts_give_way_to_the_numbers(here, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = [
        row
        for n in range(12)
        for row in rollouts(f"a/long/way/to/train/{n:06d}", [["x" * 50] * 4] * 3, given_label="東京" * 20)
    ]
    lines = audit(write(here / "log.jsonl", rows), "--top", "2").output.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("prompt"))
    assert lines[head].split()[-5:] == ["visits", "passes", "slope", "consistent", "wrong"]
    for line, number in zip(lines[head + 1 : head + 3], range(2), strict=True):
        assert line.split()[0].endswith(f"0{number}")
        assert line.split()[-5:-1] == ["3", "100%", "+0.00", "100%"]


def test_labels_are_data(here):
    rows = many(20) + rollouts("[red]x[/red]", [["2"] * 6 + ["4"]] * 3, given_label="[bold]\x1b[31m1")
    write(here / "odd.jsonl", rows)
    said = told("odd.jsonl", "--top", "1")
    assert "[red]x[/red]" in said and "[bold]\ufffd[31m1" in said


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("nowhere",), "nowhere does not exist"),
        (("log.jsonl", "--export", "out.csv"), "give it one of these endings"),
        (("log.jsonl", "--out", "log.jsonl"), "log.jsonl exists already"),
        (("log.jsonl", "--out", "t.parquet", "--json"), "choose one of them"),
        (("log.jsonl", "--set", "method.slope_threshold=1"), "it can set data.extractor"),
        (("log.jsonl", "--set", "data.extractor=nonsense"), "nonsense"),
        (("log.jsonl", "--data", "nowhere.jsonl"), "nowhere.jsonl"),
        (("log.jsonl", "--trusted", "nowhere.jsonl"), "nowhere.jsonl is no file"),
        (("log.jsonl", "--columns", "{answers: x}"), "did you mean 'answer'"),
        (("log.jsonl", "--columns", "{answer: x}"), "log.jsonl has no 'x', which --columns names"),
        (
            ("log.jsonl", "--columns", "answer=x"),
            "no mapping from roles to columns; write it as '{prompt: query",
        ),
        (("log.jsonl", "--set", "data.extractor"), "as in --set data.extractor=boxed"),
        (("log.jsonl", "--threshold", "2"), "--threshold"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(log, arguments, complaint):
    assert complaint in refused(*arguments)


def questions(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize("uid", [False, True], ids=["no ids", "ids in one file alone"])
def test_shuffled_verified_questions_are_trusted_by_their_text(here, uid):
    sums = [(f"u{n}", f"What is {n} + {n}?", str(2 * n)) for n in range(10, 30)]
    rows = [{"Q": q, "A": a, **({"uid": name} if uid else {})} for name, q, a in sums]
    data = questions(here / "mine.jsonl", rows)
    columns = "{question: Q, answer: A" + (", id: uid}" if uid else "}")
    keys = [
        "data.limit=null",
        "data.test=null",
        "data.extractor=first_integer",
        "noise=null",
        "train.epochs=2",
    ]
    keys += [f"data.train={data}", f"data.columns={columns}", "method.warmup_epochs=1"]
    keys += ["train.prompts_per_step=20", "train.mini_batch_prompts=20", "train.rollouts_per_prompt=4"]
    sets = [word for key in keys for word in ("--set", key)]
    done = CliRunner().invoke(app, ["train", "laptop/quickstart", *sets, "--run-dir", "run"])
    assert done.exit_code == 0, done.output
    half = [{"P": f"  what is {q[8:]} ", "S": rf"So \boxed{{{a}}}"} for _, q, a in reversed(sums[::2])]
    trusted = questions(here / "trusted.jsonl", [*half, {"P": "Who am I?", "S": "7"}])
    said = told("run", "--trusted", trusted, "--set", "data.columns={question: P, answer: S}")
    assert "moved by 10 trusted labels (0 of them wrong)" in said
    assert "are for 10 prompts here, 1 for none." in said


def test_a_data_set_is_not_taken_for_rollouts(here):
    said = refused(questions(here / "mine.jsonl", [{"question": "1 + 1", "answer": "2"}]))
    assert "no column response; its columns are question, answer" in said
