"""`olr audit` from the outside: what it says, writes and refuses."""

import csv
import errno
import json
import shutil
from functools import partial
from pathlib import Path

import commands
import polars as pl
import pytest
from audit_tables import many, rollouts, write
from cases import each
from histories import write_history

from olr_cli import files
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.prompts import NEVER_REWARDED
from olr_cli.data.sets import training_prompts
from olr_cli.recipe.layers import validate
from olr_cli.runs.directory import read_manifest, write_manifest

FIXTURES = Path(__file__).parents[1] / "fixtures"

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def log(here):
    rows = [
        {**row, "question": f"What is {row['prompt_id']}?"}
        for row in many(30, wrong={4, 8})
    ]
    return write(here / "log.jsonl", rows)


audit, refused = (
    partial(command, "audit") for command in (commands.done, commands.refused)
)


def told(*arguments):
    return " ".join(audit(*arguments).output.split())


def test_a_table_of_rollouts_is_enough_and_nothing_is_written(here, log):
    before = sorted(here.iterdir())
    done = audit(log)
    assert sorted(here.iterdir()) == before
    lines = done.stdout.splitlines()
    assert lines[0] == "Audited     30 prompts, 32 rollouts of each in 4 visits"
    assert lines[1] == "Labels      2 doubted, 28 fine"
    assert lines[2].startswith(
        "Not verified. Check the first 25 rows, or 25 of a random draw for a noise ratio:"
    )
    assert lines.index("") <= 6 and "%" not in done.stdout
    assert (
        f"olr audit {log} --report queue.html   (check labels in a browser)" in done.stdout
    )


def test_a_row_says_what_a_person_can_judge(here):
    rows = [{**row, "question": "How many apples?"} for row in many(30, wrong={8})]
    lines = audit(write(here / "log.jsonl", rows), "--top", "1").stdout.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("#"))
    assert lines[head].split() == [
        "#",
        "prompt",
        "label",
        "answered",
        "instead",
        "label",
        "given",
        "status",
    ]
    assert (
        " ".join(lines[head + 1].split()) == "1 p8 8 20 × 7, 4 × 5, 4 × 9 0 of 32 doubted"
    )
    assert lines[head + 2].strip() == "How many apples?"


def test_equally_doubtful_rows_are_named_and_stand_in_the_same_drawn_order_in_any_file(
    here,
):
    rows = many(30, wrong=range(4, 30, 2))
    tied = {f"p{n}" for n in range(4, 30, 2)}
    orders = []
    for name, own in (("a.jsonl", rows), ("b.jsonl", [*reversed(rows)])):
        log = write(here / name, own)
        found = json.loads(audit(log, "--json").stdout)
        orders.append([row["prompt_id"] for row in found["prompts"][:13]])
        assert found["ties"][0] == [1, 13]
    assert orders[0] == orders[1] and {*orders[0]} == tied
    assert orders[0] != sorted(orders[0], key=lambda name: int(name[1:]))
    said = told("a.jsonl", "--top", "2")
    assert "Rows 1 to 13 are equally doubtful: their order is drawn." in said
    assert "equally doubtful" not in told("a.jsonl", "--top", "0")
    single = write(here / "one.jsonl", many(30, wrong={8}))
    assert "equally doubtful" not in told(single, "--top", "1")


def test_of_many_models_the_output_says_how_many_vote(here):
    rows = [
        {**row, "model": f"{kind}-{number}"}
        for kind, size, answer in (("good", 8, "7"), ("weak", 4, None))
        for number in range(size)
        for prompt in range(30)
        for row in rollouts(
            f"p{prompt}", [[answer or str(100 * number + prompt)]], given_label="7"
        )
    ]
    log = write(here / "log.jsonl", rows)
    assert "by 12 models (the best 8 vote) in 1 visit" in told(log)
    found = json.loads(audit(log, "--json").stdout)
    assert found["voters"] == [f"good-{number}" for number in range(8)]
    assert found["models"]["weak-0"] < 0.5 < found["models"]["good-0"]


def test_a_page_of_the_queue_has_the_most_doubtful_prompts_and_says_what_comes_next(
    here, log, monkeypatch
):
    monkeypatch.setattr("olr_cli.analysis.report.prompts.MOST_PROMPTS", 5)
    said = told(log, "--report", "queue.html")
    assert "The list shows the 5 most doubtful of 30 prompts" in said
    assert (
        f"olr audit {log} --verified selection.json (once labels are checked there and exported)"
        in said
    )
    assert "The list shows the 5 most doubtful" in (here / "queue.html").read_text("utf-8")


def test_several_models_in_one_log_are_annotators(here):
    rows = [
        {**row, "policy": name}
        for name in ("a", "b")
        for row in many(20, wrong={3}, visits=1)
    ]
    assert "20 prompts, 16 rollouts of each by 2 models in 1 visit" in told(
        write(here / "log.jsonl", rows)
    )
    renamed = [{("by" if k == "policy" else k): v for k, v in row.items()} for row in rows]
    write(here / "by.jsonl", renamed)
    assert "by 2 models" not in told("by.jsonl")
    assert "by 2 models" in told("by.jsonl", "--columns", "{model: by}")


def test_the_log_of_trl_is_audited_by_text_with_labels_from_the_data_or_the_rewards(here):
    text, messages = (
        shutil.copytree(FIXTURES / "logs" / "trl" / kind, here / kind)
        for kind in ("text", "messages")
    )
    options = ["--set", "data.extractor=reversed_digits", "--out"]
    said = told(text, *options, "rewarded.parquet")
    assert "24 prompts, 8 rollouts of each in 2 visits" in said
    assert "a prompt's label is taken to be the answer that was rewarded" in said
    rewarded = {
        row["question"]: row for row in pl.read_parquet("rewarded.parquet").to_dicts()
    }
    assert len(rewarded) == 24
    logged = pl.read_parquet(messages / "*.parquet").unique("prompt", keep="first")
    labels = {row["prompt"][0]["content"]: row["solution"] for row in logged.to_dicts()}
    never = {q for q, row in rewarded.items() if row["given_label"] == NEVER_REWARDED}
    assert never and {q: labels[q] for q in rewarded.keys() - never} == {
        q: row["given_label"] for q, row in rewarded.items() if q not in never
    }
    write(
        here / "mine.jsonl",
        [{"question": q, "answer": label} for q, label in labels.items()],
    )
    said = told(
        text, "--data", "mine.jsonl", *options, "labelled.csv", "--export", "rest.jsonl"
    )
    assert "no labels" not in said
    labelled = {
        row["question"]: row
        for row in pl.read_csv("labelled.csv", infer_schema=False).to_dicts()
    }
    assert {question: row["given_label"] for question, row in labelled.items()} == labels
    assert len(read_prompts("rest.jsonl")) == 24


def test_without_answers_it_says_so_and_the_export_keeps_every_label(here):
    silent = [
        row
        for n in range(3)
        for row in rollouts(f"p{n}", [[None] * 4] * 2, given_label="7", question="?")
    ]
    said = told(write(here / "log.jsonl", silent), "--export", "out.jsonl")
    assert "100% of the responses have no answer; another data.extractor (boxed, " in said
    assert "3 questionable" in said
    assert [prompt.given_label for prompt in read_prompts("out.jsonl").prompts] == ["7"] * 3
    bare = [{**row, "given_label": None} for row in silent]
    assert "Not verified" not in told(write(here / "bare.jsonl", bare))


def test_json_has_everything(log):
    found = json.loads(audit(log, "--json").stdout)
    assert found["labels"] == {
        "doubted": 2,
        "questionable": 0,
        "undecided": 0,
        "fine": 28,
        "missing": 0,
    }
    assert found["changes"] == {"changed": 0, "added": 0, "kept": 30}
    assert (found["verified_labels"], found["noise_ratio"], found["gain"]) == (
        0,
        None,
        None,
    )
    assert [row["prompt_id"] for row in found["prompts"][:2]] in (
        ["p4", "p8"],
        ["p8", "p4"],
    )
    assert len(found["prompts"]) == 30
    assert len(json.loads(audit(log, "--json", "--top", "4").stdout)["prompts"]) == 4


def test_beside_what_is_written_the_queue_is_printed_only_if_it_is_asked_for(log):
    assert "p4 8" not in told(log, "--export", "rows.jsonl")
    assert "p4 8" in told(log, "--report", "queue.html", "--top", "1")
    found = json.loads(
        audit(log, "--json", "--export", "more.jsonl", "--drop", "doubted").stdout
    )
    assert (len(found["prompts"]), found["written"]) == (
        30,
        ["more.jsonl", "more.jsonl.md"],
    )
    assert found["next"][0].startswith("olr train own-data --set model.path=MODEL")


# What is left of the data set -------------------------------------------------------------------------------------


def extras(file):
    return {
        row["extra_info"]["index"]: row["extra_info"]
        for row in pl.read_parquet(file).to_dicts()
    }


def test_an_export_says_of_every_row_what_was_found(log):
    said = told(log, "--export", "all/found.parquet")
    assert "Wrote all/found.parquet (30 of 30 rows)" in said
    assert (
        "olr train own-data --set model.path=MODEL --set data.train=all/found.parquet"
        in said
    )
    found = extras("all/found.parquet")
    assert (
        found["p4"]["audit_status"] == "doubted" and found["p0"]["audit_status"] == "fine"
    )
    assert {one["audit_change"] for one in found.values()} == {"kept"}
    assert found["p4"]["audit_rank"] <= 2 and found["p4"]["audit_confidence"] is None
    assert found["p4"]["audit_given_label"] == "8"
    assert (
        found["p4"]["audit_evidence"]
        == "of 32 rollouts 0 × the label, 20 × 7, 4 × 5, 4 × 9"
    )
    assert [p.given_label for p in read_prompts("all/found.parquet").prompts].count(
        "8"
    ) == 2


@each(
    "options, kept",
    (["--drop", "doubted,questionable"], {f"p{n}" for n in range(30)} - {"p4", "p8"}),
    (["--drop", "fine", "--drop", "questionable, undecided"], {"p4", "p8"}),
    (["--only", "doubted"], {"p4", "p8"}),
    (["--first", "2"], {"p4", "p8"}),
    (["--pass-rate", "0.1:0.9"], {f"p{n}" for n in range(30)} - {"p4", "p8"}),
    (["--pass-rate", "0.2:0.9", "--drop", "fine"], set()),
    ids=["drop", "repeated", "only", "first", "pass-rate", "none"],
)
def test_rows_are_kept_by_what_is_known(log, options, kept):
    if not kept:
        assert "no row is left; keep more" in refused(
            log, "--export", "rest.parquet", *options
        )
        return
    said = told(log, "--export", "rest.parquet", *options)
    assert f"({len(kept)} of 30 rows)" in said
    assert extras("rest.parquet").keys() == kept


def test_what_dropping_doubted_rows_may_claim_is_said_unless_labels_are_verified(here, log):
    claim = "Of the rows left out as doubted, {} are so by votes, and their labels may be right".format
    assert claim(2) in told(log, "--drop", "doubted", "--export", "rest.jsonl")
    assert "so by votes" not in told(log, "--drop", "fine", "--export", "few.jsonl")
    verified = write(
        here / "verified.jsonl",
        [{"prompt_id": f"p{n}", "true_answer": "7"} for n in range(3)],
    )
    known = ["--verified", verified, "--drop", "doubted", "--export"]
    assert "so by votes, and" in told(log, *known, "few-known.jsonl"), "three say little"
    write(verified, [{"prompt_id": f"p{n}", "true_answer": "7"} for n in range(30)])
    assert "so by votes" not in told(log, *known, "known.jsonl")


def test_a_seed_draws_other_rows(log):
    for seed in (0, 1):
        told(log, "--random", 10, "--seed", seed, "--export", f"{seed}.parquet")
    assert extras("0.parquet").keys() != extras("1.parquet").keys()


def test_rows_to_check_come_back_as_verified_labels(here, log):
    said = told(log, "--random", "10", "--export", "check.jsonl")
    assert said.endswith(
        f"olr audit {log} --verified check.jsonl (once its labels are corrected)"
    )
    rows = [json.loads(line) for line in (here / "check.jsonl").read_text().splitlines()]
    assert len(rows) == 10 and all(row["drawn"] for row in rows)
    told(log, "--first", "10", "--export", "first.jsonl")
    for name in ("check.jsonl", "first.jsonl"):
        rows = [json.loads(line) for line in (here / name).read_text().splitlines()]
        for row in rows:
            row["reward_model"]["ground_truth"] = "7"
        write(here / name, rows)
    said = told(log, "--verified", "check.jsonl")
    assert "of the labels are wrong or their questions flawed (95 % interval" in said
    assert "Verified 10 labels" in said and "Not verified" not in said
    said = told(log, "--verified", "first.jsonl")
    assert "Verified 10 labels" in said and "Noise ratio" not in said, "they were picked"
    both = told(log, "--verified", "first.jsonl", "--verified", "check.jsonl")
    assert "from 10 drawn at random" in both


def test_what_is_verified_is_exported_to_be_checked_as_it_was_verified_and_files_add_up(
    here, log
):
    write(here / "one.jsonl", [{"prompt_id": "p4", "true_answer": "7"}])
    write(here / "two.jsonl", [{"prompt_id": "p5", "true_answer": "7"}])
    said = told(log, "--verified", "one.jsonl", "--verified", "two.jsonl")
    assert (
        "Verified 2 labels, 1 of them wrong" in said
        and "--verified one.jsonl --verified two.jsonl" in said
    )
    told(log, "--verified", "one.jsonl", "--random", "30", "--export", "check.jsonl")
    labels = {p.prompt_id: p.given_label for p in read_prompts("check.jsonl").prompts}
    assert (labels["p4"], labels["p8"]) == ("7", "8")
    write(here / "same.jsonl", [{"prompt_id": "p4", "true_answer": "7.0"}])
    assert "Verified 1 label" in told(
        log, "--verified", "one.jsonl", "--verified", "same.jsonl"
    )
    write(here / "other.jsonl", [{"prompt_id": "p4", "true_answer": "8"}])
    said = refused(log, "--verified", "one.jsonl", "--verified", "other.jsonl")
    assert (
        "other.jsonl: the true answer to prompt p4 is 8, and 7 in another file of verified labels"
        in said
    )


@pytest.mark.parametrize("no", [False, 0, "False", "false", ""])
def test_rows_that_were_not_drawn_say_so_in_any_spelling(log, no):
    rows = [
        {"prompt_id": f"p{n}", "true_answer": "7", "drawn": "true" if n else no}
        for n in range(5)
    ]
    pl.DataFrame([{**row, "drawn": str(row["drawn"])} for row in rows]).write_csv(
        "checked.csv"
    )
    assert "from 4 drawn at random" in told(log, "--verified", "checked.csv")


@pytest.mark.parametrize(("verdict", "answer"), [("wrong", "7.0"), ("kept", "8")])
def test_a_verdict_that_its_true_answer_contradicts_is_skipped_and_named(
    here, log, verdict, answer
):
    row = {"prompt_id": "p5", "given_label": "7", "verdict": verdict, "true_answer": answer}
    good = {"prompt_id": "p6", "given_label": "7", "verdict": "kept"}
    write(here / "selection.jsonl", [row, good])
    said = told(log, "--verified", "selection.jsonl")
    assert "Verified 1 label, 0 of them wrong" in said
    which = f"prompt p5 is '{verdict}', with the label 7 and the true answer {answer}"
    assert (
        "1 of 1 verified labels in selection.jsonl are for 1 prompt here, 0 for none; skipped 1 row whose verdict"
        f" contradicts its true answer: {which}." in said
    )
    write(here / "selection.jsonl", [row, {**row, "prompt_id": "p7"}, good])
    several = "skipped 2 rows whose verdicts contradict their true answers: first"
    assert f"{several} {which}." in told(log, "--verified", "selection.jsonl")
    write(here / "selection.jsonl", [row])
    assert f"no verdict counts, for each contradicts its true answer ({which})" in refused(
        log, "--verified", "selection.jsonl"
    )


def test_the_same_export_twice_is_already_there_and_another_is_refused(here, log):
    for name in ("out.jsonl", "out.parquet"):
        told(log, "--export", name)
        before = (here / name).read_bytes()
        assert f"Unchanged {name}" in told(log, "--export", name)
        assert "--export: out" in refused(log, "--export", name, "--drop", "doubted")
        assert (here / name).read_bytes() == before


def test_rows_come_from_the_data_set_and_keep_their_other_columns(here):
    write(here / "bare.jsonl", many(20, wrong={4, 6}))
    rows = [
        {"question": f"q{n}", "answer": "8" if n in (4, 6) else "7", "level": n}
        | {"extra_info": {"index": f"p{n}", "note": "x"}}
        for n in range(21)
    ]
    write(here / "data.jsonl", rows)
    assert "--data: bare.jsonl has no column of prompts" in refused(
        "bare.jsonl", "--export", "out.jsonl"
    )
    told("bare.jsonl", "--data", "data.jsonl", "--export", "out.jsonl", "--drop", "doubted")
    written = [json.loads(line) for line in (here / "out.jsonl").read_text().splitlines()]
    assert [row["level"] for row in written] == [n for n in range(21) if n not in (4, 6)]
    assert written[3]["extra_info"]["note"] == "x"
    unvisited = written[18]["extra_info"]
    assert (unvisited["audit_status"], unvisited["audit_rank"]) == ("unjudged", None)
    assert "no rollout" in unvisited["audit_evidence"]


def test_rows_of_a_csv_file_keep_their_other_columns_and_what_is_repaired_is_no_longer_doubted(
    here, log
):
    lines = [
        "uid,question,answer,note",
        *(f'p{n},"What is p{n}?",{8 if n in (4, 8) else 7},"a, b"' for n in range(30)),
    ]
    (here / "sub").mkdir()
    (here / "sub" / "mine.csv").write_text("\n".join(lines) + "\n")
    options = ["--data", "sub/mine.csv", "--export"]
    told(log, *options, "rest.jsonl", "--drop", "doubted")
    rows = [json.loads(line) for line in (here / "rest.jsonl").read_text().splitlines()]
    assert len(rows) == 28 and {row["note"] for row in rows} == {"a, b"}
    assert {row["extra_info"]["audit_status"] for row in rows} == {"fine"}
    write(here / "verified.jsonl", [{"prompt_id": "p4", "true_answer": "7"}])
    told(
        log,
        *options,
        "kept.jsonl",
        "--verified",
        "verified.jsonl",
        "--repair",
        "--drop",
        "doubted",
    )
    kept = {
        prompt.prompt_id: prompt.given_label
        for prompt in read_prompts("kept.jsonl").prompts
    }
    assert len(kept) == 29 and kept["p4"] == "7" and "p8" not in kept


def test_labels_are_repaired_only_where_verified_labels_show_a_gain(here):
    log = write(
        here / "log.jsonl",
        [
            {**row, "question": row["prompt_id"]}
            for row in many(200, wrong=range(0, 200, 4))
        ],
    )
    said = refused(log, "--export", "repaired.parquet", "--repair")
    assert (
        "0 verified labels do not show it; verify 50, the first of the queue or a random draw"
        in said
    )
    assert not (here / "repaired.parquet").exists()
    write(
        here / "verified.jsonl",
        [{"prompt_id": f"p{n}", "true_answer": "7"} for n in range(40)],
    )
    options = ["--verified", "verified.jsonl", "--repair", "--export"]
    said = told(log, *options, "repaired.parquet")
    assert "(200 of 200 rows, 50 labels changed)" in said and "more of them right" in said
    assert {p.given_label for p in read_prompts("repaired.parquet").prompts} == {"7"}
    assert extras("repaired.parquet")["p100"]["audit_change"] == "changed"
    write(
        here / "right.jsonl",
        [
            {"prompt_id": f"p{n}", "true_answer": "8" if n % 4 == 0 else "7", "drawn": True}
            for n in range(60)
        ],
    )
    said = refused(log, "--verified", "right.jsonl", "--repair", "--export", "none.parquet")
    assert "60 verified labels do not show it; verify 120" in said
    found = json.loads(audit(log, "--verified", "right.jsonl", "--json").stdout)
    assert (
        found["labels"]["doubted"],
        found["noise_ratio"]["low"],
        found["noise_ratio"]["mean"],
    ) == (
        0,
        0,
        0,
    )


def test_missing_labels_are_filled_in_and_others_stay(here):
    rows = many(20, wrong={4}) + rollouts("bare", [["7"] * 4] * 4)
    log = write(here / "log.jsonl", [{**row, "question": row["prompt_id"]} for row in rows])
    said = told(log, "--repair", "--export", "repaired.parquet")
    assert (
        "1 label added" in said
        and "Unverified labels stay as they are: proposals replace labels only where"
        in said
    )
    labels = {p.prompt_id: p.given_label for p in read_prompts("repaired.parquet").prompts}
    assert (labels["bare"], labels["p4"]) == ("7", "8")


@pytest.fixture
def run(here):
    """A run with active noise whose data set is a file, as its recipe says."""
    rows = [
        {"question": f"q{n}", "answer": "10", "extra_info": {"index": n}} for n in range(40)
    ]
    data = {"train": str(write(here / "clean.jsonl", rows))}
    return write_history(
        here / "run", prompts=40, epochs=6, method={"name": "grpo"}, data=data
    )


def questions_log(file, labels_and_answers):
    """A log without labels and ids: eight steps that answer each question alike."""
    rows = [
        {"prompt": question, "response": f"\\boxed{{{answer}}}", "step": step}
        for question, answer in labels_and_answers.items()
        for step in range(8)
    ]
    return write(file, rows)


def test_labels_are_counted_in_the_rows_that_were_written(here):
    answers = {f"What is {n}+{n}?": 2 * n for n in range(1, 10)}
    questions_log(here / "log.jsonl", answers)
    given = [
        (question, "" if number in (2, 3) else answer)
        for number, (question, answer) in enumerate(answers.items())
    ]
    (here / "data.csv").write_text(
        "question,answer\n" + "".join(f"{q},{a}\n" for q, a in given[:6])
    )
    verified = [
        {"prompt_id": row.prompt_id, "true_answer": row.given_label}
        for row in read_prompts("data.csv").prompts
    ]
    write(
        here / "verified.jsonl", [row for row in verified if row["true_answer"] is not None]
    )
    options = ("--data", "data.csv", "--verified", "verified.jsonl", "--repair")
    said = told("log.jsonl", *options, "--export", "all.jsonl")
    assert "4 fine, 2 without a label, 3 not in the data set, so without one" in said
    assert "all.jsonl (6 of 6 rows, 2 labels added)" in said
    assert [row.given_label for row in read_prompts("all.jsonl").prompts] == [
        "2",
        "4",
        "6",
        "8",
        "10",
        "12",
    ]
    found = json.loads(
        audit("log.jsonl", *options, "--export", "all.jsonl", "--json").stdout
    )
    assert (
        found["labels"]["missing"],
        found["changes"]["added"],
        found["not_in_data"],
    ) == (
        2,
        2,
        3,
    )
    changes = pl.DataFrame(found["prompts"]).group_by("change").len().sort("change").rows()
    assert changes == [("added", 2), ("kept", 7)]
    part = told("log.jsonl", *options, "--only", "missing", "--export", "part.jsonl")
    assert "part.jsonl (2 of 6 rows, 2 labels added)" in part
    none = told("log.jsonl", *options, "--only", "fine", "--export", "none.jsonl")
    assert "none.jsonl (4 of 6 rows)" in none


def test_an_export_has_a_card_that_says_what_was_done_to_how_many_rows(here, log):
    write(
        here / "draw.jsonl",
        [{"prompt_id": f"p{n}", "true_answer": "7", "drawn": True} for n in (*range(3), 4)],
    )
    words = (log, "--verified", "draw.jsonl", "--repair", "--pass-rate", "0:0.9")
    told(*words, "--drop", "doubted", "--export", "rest.jsonl")
    card = (here / "rest.jsonl.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in card.splitlines() if "|" in line]
    counts = {name: int(count) for name, count in rows[2:]}
    exported = len((here / "rest.jsonl").read_text().splitlines())
    kept = {name: count for name, count in counts.items() if name.startswith("kept")}
    assert (sum(kept.values()), sum(counts.values())) == (exported, 30)
    assert kept["kept, label changed as people verified it"] == 1
    assert counts["left out: doubted"] == 1
    assert card.startswith(
        f"# rest.jsonl\n\n{exported} of 30 rows of log.jsonl, after an audit"
    )
    assert f"olr audit {log} --verified draw.jsonl --drop doubted --pass-rate 0:0.9" in card
    assert "- Verified: 4 labels, 1 of them wrong" in card
    assert "- Noise ratio: " in card and "from 4 drawn at random" in card


def test_a_card_is_never_overwritten_and_rows_to_be_checked_have_none(here, log):
    (here / "rest.jsonl.md").write_text("mine")
    assert "--export: rest.jsonl.md exists already" in refused(
        log, "--export", "rest.jsonl"
    )
    assert not (here / "rest.jsonl").exists()
    assert (here / "rest.jsonl.md").read_text() == "mine"
    told(log, "--first", 3, "--export", "check.jsonl")
    assert not (here / "check.jsonl.md").exists()
    for name in ("out.jsonl", "out.parquet"):
        told(log, "--export", name)
    card = (here / "out.jsonl.md").read_bytes()
    assert "- Verified: no label, so a status is what the models say" in card.decode()
    assert "Unchanged out.jsonl.md" in told(log, "--export", "out.jsonl")
    (here / "out.jsonl.md").unlink()
    told(log, "--export", "out.jsonl")
    assert (here / "out.jsonl.md").read_bytes() == card


def test_no_label_is_added_where_the_questions_without_one_are_not_in_the_file(here):
    questions_log(here / "log.jsonl", {f"What is {n}+{n}?": 2 * n for n in range(1, 6)})
    (here / "data.csv").write_text(
        "question,answer\nWhat is 1+1?,2\nWhat is 9+9?,\nWhat is 2+2?,4\n"
    )
    [first, *_] = read_prompts("data.csv").prompts
    write(here / "verified.jsonl", [{"prompt_id": first.prompt_id, "true_answer": "2"}])
    options = (
        "--data",
        "data.csv",
        "--verified",
        "verified.jsonl",
        "--repair",
        "--export",
        "rest.jsonl",
    )
    said = told("log.jsonl", *options)
    assert (
        "rest.jsonl (3 of 3 rows) Wrote rest.jsonl.md (what was done to the rows) Next"
        in said
    )
    # Training refuses the row that has no label.
    assert "olr check rest.jsonl --export rest-labelled.jsonl (leaves out 1 row" in said
    assert "olr train" not in said
    assert [row.given_label for row in read_prompts("rest.jsonl").prompts] == [
        "2",
        None,
        "4",
    ]


def test_a_runs_export_holds_the_labels_that_were_audited_and_can_be_trained_on(here, run):
    said = told(run, "--repair", "--export", "repaired.parquet", "--out", "table.parquet")
    assert "those of the last visit are audited" in said
    assert "Known truth" in said and "(stored, and not used above)" in said
    assert (
        "olr train" in said and "--set noise=null --set data.train=repaired.parquet" in said
    )
    table = pl.read_parquet("table.parquet").to_dicts()
    audited = {row["prompt_id"]: row for row in table}
    recipe = validate(
        {"name": "again", "data": {"train": str(here / "repaired.parquet")}}, "test"
    )
    for prompt in training_prompts(recipe).prompts:
        row = audited[prompt.prompt_id]
        is_new = row["change"] in ("changed", "added")
        label = row["proposed_label"] if is_new else row["given_label"]
        assert prompt.given_label == (label or SENTINEL)
        assert prompt.true_answer == "10"
        expected = (
            "clean" if label == "10" else "inactive" if label is None else "active_frozen"
        )
        assert prompt.noise_type == expected


def test_a_changed_data_set_is_not_taken_for_the_runs(here, run):
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["data"]["train"]["digest"] = "of another file"
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert "does not hold the prompts of this run any more" in refused(
        run, "--export", "repaired.parquet"
    )
    (here / "clean.jsonl").unlink()
    assert "--data" in refused(run, "--export", "repaired.parquet")


def test_rewards_are_audited_of_one_run(here):
    runs = [
        write_history(here / name, noise=None, prompts=20, epochs=2, kind="rollouts")
        for name in "ab"
    ]
    for run in runs:
        facts = {"train": {"prompts": 20, "digest": "of the same data"}}
        write_manifest(run, {**read_manifest(run), "data": facts})
    told = refused(*runs, "--rewards")
    assert "the rewards of one run are audited at a time; name one" in told


def test_training_after_rollouts_reads_answers_as_they_did(here):
    data = {"extractor": "text"}
    run = write_history(
        here / "run", noise=None, prompts=20, epochs=2, kind="rollouts", data=data
    )
    rows = [
        {"question": f"q{n}", "answer": "10", "extra_info": {"index": n}} for n in range(20)
    ]
    data_set = write(here / "data.jsonl", rows)
    said = told(run, "--data", data_set, "--export", "repaired.parquet")
    assert said.endswith("--set data.train=repaired.parquet --set data.extractor=text")


def test_what_was_found_is_shown_where_the_table_cannot_be_written(log, monkeypatch):
    def is_full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "replace", is_full)
    result = commands.olr("audit", log, "--out", "table.parquet")
    assert "2 doubted" in result.stdout and result.exit_code == 2
    assert "table.parquet could not be written: the disk is full" in result.stderr


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_long_texts_give_way_to_the_numbers(here, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = [
        row
        for n in range(12)
        for row in rollouts(
            f"a/long/way/to/train/{n:06d}", [["x" * 50] * 4] * 3, given_label="東京" * 20
        )
    ]
    lines = audit(write(here / "log.jsonl", rows), "--top", "2").output.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("#"))
    assert lines[head].split()[-3:] == ["label", "given", "status"]
    for line in lines[head + 1 : head + 3]:
        # All are equally doubtful; their ids differ at the end, which stays.
        assert int(line.split()[1][-6:]) < 12
        assert line.split()[-4:] == ["0", "of", "12", "doubted"]


def test_labels_are_data(here):
    rows = many(20) + rollouts(
        "[red]x[/red]", [["2"] * 6 + ["4"]] * 3, given_label="[bold]\x1b[31m1"
    )
    write(here / "odd.jsonl", rows)
    said = told("odd.jsonl", "--top", "1")
    assert "[red]x[/red]" in said and "[bold]\ufffd[31m1" in said


@each(
    "arguments, complaint",
    (("nowhere",), "nowhere does not exist"),
    (("log.jsonl", "--export", "out.csv"), "is written as .parquet or .jsonl"),
    (("log.jsonl", "--out", "log.jsonl"), "log.jsonl exists already"),
    (("log.jsonl", "--out", "t.parquet", "--json"), "choose one of them"),
    (
        ("log.jsonl", "--rewards", "--out", "t.jsonl"),
        "--out: t.jsonl: the table is written as Parquet or CSV",
    ),
    (("log.jsonl", "--report", "thesis.html"), "--report: thesis.html exists already"),
    (
        ("log.jsonl", "--export", "t.parquet", "--out", "./t.parquet"),
        "--out: t.parquet is named for another",
    ),
    (
        ("log.jsonl", "--report", "log.jsonl/q.html"),
        "/log.jsonl: there is a file where a folder is needed",
    ),
    (("log.jsonl", "--set", "method.slope_threshold=1"), "it can set data.extractor"),
    (("log.jsonl", "--set", "data.extractor=nonsense"), "nonsense"),
    (("log.jsonl", "--data", "nowhere.jsonl"), "nowhere.jsonl"),
    (("log.jsonl", "--verified", "nowhere.jsonl"), "nowhere.jsonl is no file"),
    (("log.jsonl", "--columns", "{answers: x}"), "did you mean 'answer'"),
    (("log.jsonl", "--columns", "answer=x"), "log.jsonl has no 'x'; its columns are"),
    (
        ("log.jsonl", "--columns", "answer"),
        "does not say which column holds what; write it as prompt=query,",
    ),
    (("log.jsonl", "--set", "data.extractor"), "data.extractor is no setting"),
    (("log.jsonl", "--drop", "doubted"), "choose the rows of --export FILE"),
    (
        ("log.jsonl", "--export", "o.jsonl", "--drop", "wrong"),
        "known: doubted, questionable",
    ),
    (("log.jsonl", "--export", "o.jsonl", "--first", "x"), "invalid value for '--first'"),
    (
        ("log.jsonl", "--export", "o.jsonl", "--random", "9", "--drop", "fine"),
        "takes of all rows",
    ),
    (
        ("log.jsonl", "--export", "o.jsonl", "--pass-rate", "1:0"),
        "--pass-rate 1:0: this is no range of shares; name the least",
    ),
)
def test_what_cannot_be_is_refused_in_a_sentence(here, log, arguments, complaint):
    (here / "thesis.html").write_text("precious")
    assert complaint in refused(*arguments)
    assert (here / "thesis.html").read_text() == "precious"


def test_every_row_of_a_question_is_judged_by_its_answers_and_the_others_are_counted(here):
    asked = {"2+2?": "45", "3+3?": "6", "4+4?": "99", "9+9?": "8"}
    rows = [
        {"question": question, "answer": label}
        for question, labels in asked.items()
        for label in labels
    ]
    write(here / "data.jsonl", rows)
    answers = [
        row
        for text, a in (("2+2?", "4"), ("3+3?", "6"))
        for row in rollouts(text, [[a] * 6] * 3)
    ]
    write(here / "log.jsonl", [{"prompt": row.pop("prompt_id"), **row} for row in answers])
    said = told(
        "log.jsonl",
        "--data",
        "data.jsonl",
        "--drop",
        "doubted,unjudged",
        "--export",
        "rest.jsonl",
    )
    assert (
        "1 doubted, 2 fine" in said and "3 of 6 rows of data.jsonl are not judged" in said
    )
    assert [prompt.given_label for prompt in read_prompts("rest.jsonl").prompts] == [
        "4",
        "6",
    ]
    told("log.jsonl", "--data", "data.jsonl", "--drop", "doubted", "--export", "more.jsonl")
    assert [prompt.given_label for prompt in read_prompts("more.jsonl").prompts] == [
        "4",
        "6",
        "9",
        "9",
        "8",
    ]


def test_shuffled_verified_questions_are_matched_by_their_text(here, log):
    rows = [{"P": f"  what is P{n}? ", "S": r"So \boxed{7}"} for n in range(18, -1, -2)]
    write(here / "verified.jsonl", [*rows, {"P": "Who am I?", "S": "7"}])
    said = told(
        log,
        "--verified",
        "verified.jsonl",
        "--set",
        "data.columns={question: P, answer: S}",
    )
    assert "Verified 10 labels, 2 of them wrong" in said
    assert "are for 10 prompts here, 1 for none." in said


def test_a_data_set_is_not_taken_for_rollouts(here):
    said = refused(write(here / "mine.jsonl", [{"question": "1 + 1", "answer": "2"}]))
    assert "no column response; its columns are question, answer" in said
    assert f"if nobody answered yet: olr rollouts MODEL {here / 'mine.jsonl'}" in said


SPREADSHEET = 'Nr;Question;Answer\n1;"What, is\n1+1?";2\n2;What is 2+2?;\n3;"What is 3+3?";"6"\n4;What is 4+4?;9\n'


@pytest.fixture
def spreadsheet(here):
    answers = {"What, is\n1+1?": 2, "What is 2+2?": 4, "What is 3+3?": 6, "What is 4+4?": 8}
    questions_log(here / "log.jsonl", answers)
    (here / "data.csv").write_bytes(SPREADSHEET.replace("What", "Größe").encode("cp1252"))
    log = (here / "log.jsonl").read_text().replace("What", "Gr\\u00f6\\u00dfe")
    (here / "log.jsonl").write_text(log)
    settings = ("data.encoding=cp1252", "data.columns={question: Question, answer: Answer}")
    return ("log.jsonl", "--data", "data.csv", *(w for s in settings for w in ("--set", s)))


def test_the_export_of_a_csv_file_is_its_own_rows_and_what_was_found(here, spreadsheet):
    said = told(*spreadsheet, "--export", "rest.csv")
    assert "rest.csv (4 of 4 rows)" in said
    with (here / "rest.csv").open(newline="") as file:
        head, *rows = csv.reader(file, delimiter=";")
    assert head == ["Nr", "Question", "Answer", "audit_status", "audit_rank"]
    assert [row[:4] for row in rows] == [
        ["1", "Größe, is\n1+1?", "2", "fine"],
        ["2", "Größe is 2+2?", "", "missing"],
        ["3", "Größe is 3+3?", "6", "fine"],
        ["4", "Größe is 4+4?", "9", "doubted"],
    ]
    assert [row[4] for row in rows] == ["2", "", "3", "1"]
    columns = """--columns '{"question": "Question", "answer": "Answer"}'"""
    assert f"Next olr check rest.csv {columns} --export rest-labelled.csv" in said


def test_a_csv_file_has_the_labels_that_a_repair_adds_and_can_be_audited_again(
    here, spreadsheet
):
    (here / "v.jsonl").write_text('{"question": "Größe is 3+3?", "answer": "6"}\n', "utf-8")
    repairing = ("--repair", "--verified", "v.jsonl", "--export", "whole.csv")
    said = told(*spreadsheet, *repairing)
    assert "whole.csv (4 of 4 rows, 1 label added) Wrote whole.csv.md" in said
    assert "Next olr train own-data" in said
    assert "data.columns={question: Question, answer: Answer}" in said
    again = [word.replace("data.csv", "whole.csv") for word in spreadsheet]
    told(*again, "--export", "again.csv", "--drop", "doubted")
    assert [line.rsplit(";", 3)[-3:] for line in text_rows(here / "again.csv")] == [
        ["Answer", "audit_status", "audit_rank"],
        ["2", "fine", "2"],
        ["4", "fine", "3"],
        ["6", "fine", "4"],
    ]


def text_rows(file):
    """The lines that end a row."""
    return [line for line in file.read_text().splitlines() if line.count(";") > 1]


def test_rows_of_a_csv_file_that_are_to_be_checked_come_back_as_verified_labels(
    here, spreadsheet
):
    told(*spreadsheet, "--random", "4", "--export", "check.csv")
    text = (here / "check.csv").read_text()
    assert text.splitlines()[0].endswith("audit_rank;drawn") and text.count(";true\n") == 4
    (here / "check.csv").write_text(text.replace("4+4?;9", "4+4?;8"))
    found = json.loads(audit(*spreadsheet, "--verified", "check.csv", "--json").stdout)
    assert (found["verified_labels"], found["noise_ratio"]["mean"]) == (3, 1 / 3)


@each(
    "data, target",
    ("data.jsonl", "x.csv"), ("data.csv", "x.tsv"), ("data.csv", "x.xlsx"),
)  # fmt: skip
def test_only_a_csv_file_is_exported_as_csv(here, spreadsheet, data, target):
    write(here / "data.jsonl", [{"Question": "Größe is 3+3?", "Answer": "6"}])
    words = [word.replace("data.csv", data) for word in spreadsheet]
    said = commands.refused("audit", *words, "--export", target)
    assert said.startswith("Error: --export: a data set is written as .parquet or .jsonl")
    assert said.endswith(f"give {target} such an ending")
    assert not (here / target).exists()


def test_a_label_inside_a_column_of_turns_cannot_be_replaced_alone(here):
    questions_log(here / "log.jsonl", {"A?": 1, "B?": 2})
    turns = '"[{""role"": ""user"", ""content"": ""%s?""}, {""role"": ""assistant"", ""content"": ""%s""}]"'
    (here / "data.csv").write_text(f"messages\n{turns % ('A', 1)}\n{turns % ('B', '')}\n")
    words = ("log.jsonl", "--data", "data.csv", "--verified", "v.jsonl", "--repair")
    (here / "v.jsonl").write_text('{"question": "A?", "answer": "1"}\n')
    said = commands.refused("audit", *words, "--export", "x.csv")
    assert "in 'messages.assistant', a part of a column, which cannot be replaced" in said


def test_files_of_several_runs_are_named_again_one_by_one(here):
    files = [here / run / "dump" / f"{step}.jsonl" for run in "ab" for step in (1, 2)]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        questions_log(file, {"A?": 1, "B?": 2})
    words = [str(file.relative_to(here)) for file in files]
    assert f"olr audit {' '.join(words)} --data" in told(*words)
