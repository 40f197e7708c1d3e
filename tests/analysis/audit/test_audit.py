"""An audit from a history to a queue of prompts."""

from pathlib import Path

import polars as pl
import pytest
from audit_tables import many, rollouts, write
from cases import each
from commands import answered
from histories import write_history

from olr_cli.analysis.audit.audit import audit
from olr_cli.analysis.audit.data_labels import with_labels_of
from olr_cli.analysis.audit.export import evidence
from olr_cli.analysis.histories import read_history
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.prompt_files import read_prompts
from olr_cli.errors import UserError


def examined(file, judge, data=None, **options):
    history = read_history(file)
    files = {name: [file] for name, file in options.items()}
    return audit(history if data is None else with_labels_of(history, data), judge, **files)


def row(found, prompt_id):
    return found.prompts.row(by_predicate=pl.col("prompt_id") == prompt_id, named=True)


def test_wrong_labels_come_first_with_what_was_answered_instead(tmp_path, judge):
    wrong = {3, 8, 11}
    found = examined(write(tmp_path / "log.jsonl", many(30, wrong=wrong)), judge)
    assert set(found.prompts["prompt_id"].head(3)) == {f"p{number}" for number in wrong}
    assert found.prompts["rank"].to_list() == list(range(1, 31))
    doubted = found.prompts.filter(pl.col("status") == "doubted")
    assert "p8" in doubted["prompt_id"] and set(doubted["prompt_id"]) <= {
        f"p{number}" for number in wrong
    }
    assert set(doubted["proposed_label"]) == {"7"}
    assert row(found, "p3")["answers"] == "20 × 7, 4 × 5"
    assert (row(found, "p3")["given_count"], row(found, "p3")["proposed_count"]) == (4, 20)
    assert evidence(row(found, "p3")) == "of 32 rollouts 4 × the label, 20 × 7, 4 × 5"
    assert (
        found.prompts["confidence"].null_count()
        == found.prompts["proposal_confidence"].null_count()
        == 30
    )
    assert set(found.prompts["change"]) == {"kept"}, "nothing is verified"


def test_questions_on_which_answers_scatter_are_questionable_and_ranked_among_the_others(
    tmp_path, judge
):
    rows = [
        *many(20, wrong={1}),
        *rollouts("silent", [[None] * 4] * 3, given_label="1"),
        *rollouts(
            "scattered", [["2", "3", "4", "5"], ["6", "2", "9", "11"]], given_label="1"
        ),
        *rollouts("led", [["1", "1", "4", "5"], ["6", "1", "9", "11"]], given_label="1"),
        *rollouts("solved", [["2", "2", "2", "4"]] * 3, given_label="1"),
    ]
    found = examined(write(tmp_path / "log.jsonl", rows), judge)
    for prompt_id in ("silent", "scattered"):
        assert row(found, prompt_id)["status"] == "questionable"
    assert row(found, "solved")["status"] == "doubted"
    assert row(found, "led")["status"] == "undecided", "the label leads, and too few agree"
    ranks = [row(found, name)["rank"] for name in ("solved", "scattered", "silent", "p0")]
    assert ranks == sorted(ranks)


def test_of_a_single_visit_of_one_model_nothing_is_fine_or_doubted(tmp_path, judge):
    rows = many(20, wrong={3}, visits=1)
    found = examined(write(tmp_path / "log.jsonl", rows), judge)
    assert (
        set(found.prompts["status"]) == {"undecided"}
        and found.prompts["prompt_id"][0] == "p3"
    )
    again = [{**one, "model": name} for name in "ab" for one in rows]
    assert examined(write(tmp_path / "two.jsonl", again), judge).labels["fine"] == 19


def test_a_prompt_without_label_is_not_in_the_queue_and_gets_a_proposal(tmp_path, judge):
    rows = [
        *many(20),
        *rollouts("none", [["2", "2", "2", "3"]] * 3, given_label=None),
        *rollouts("sentinel", [["2", "2", "2", "3"]] * 3, given_label=SENTINEL),
    ]
    found = examined(write(tmp_path / "log.jsonl", rows), judge)
    for prompt_id in ("none", "sentinel"):
        own = row(found, prompt_id)
        assert (own["status"], own["change"], own["proposed_label"]) == (
            "missing",
            "added",
            "2",
        )
        assert (own["rank"], own["given_label"], own["given_count"]) == (None, None, None)


def test_a_history_without_any_label_has_proposals_and_says_so(tmp_path, judge):
    found = examined(
        write(tmp_path / "log.jsonl", rollouts("a", [["2", "2", "3"]] * 2)), judge
    )
    assert row(found, "a")["proposed_label"] == "2"
    assert found.warnings == [
        "no prompt has a label, so there is no queue; name the data set with the labels"
    ]


def test_the_truth_takes_no_part_and_shows_how_good_the_queue_is(tmp_path, judge):
    rows = many(30, wrong={1, 2, 3})
    told = [{**one, "true_answer": "7", "noise_type": "clean"} for one in rows]
    without, with_truth = (
        examined(write(tmp_path / name, own), judge)
        for name, own in (("a.jsonl", rows), ("b.jsonl", told))
    )
    assert without.prompts.equals(with_truth.prompts)
    assert without.truth is None
    firsts = {"first_10": 3, "first_20": 3, "first_50": 3}
    assert with_truth.truth == {"labels": 30, "wrong": 3, "auroc": 1.0, **firsts}


def test_whether_a_policy_was_training_is_known_of_runs(tmp_path, judge):
    for kind in ("training", "rollouts"):
        run = write_history(tmp_path / kind, noise=None, prompts=20, epochs=2, kind=kind)
        assert examined(run, judge).policy_was_training is (kind == "training")
    assert (
        examined(write(tmp_path / "log.jsonl", many(5)), judge).policy_was_training is None
    )


# Labels of a data set ---------------------------------------------------------------------------------------------


def data_set(file, answers):
    rows = [
        {"question": "?", "answer": a, "extra_info": {"index": p}}
        for p, a in answers.items()
    ]
    return read_prompts(write(file, rows))


def test_labels_of_the_data_set_fill_in_what_a_table_lacks(tmp_path, judge):
    rows = [
        {name: value for name, value in one.items() if name != "given_label"}
        for one in many(20)
    ]
    rewarded = [{**one, "reward": float("7" in one["response"])} for one in rows]
    data = data_set(
        tmp_path / "data.jsonl", {f"p{n}": "8" if n == 4 else "7" for n in range(20)}
    )
    for name, own in (("log.jsonl", rows), ("rewarded.jsonl", rewarded)):
        found = examined(write(tmp_path / name, own), judge, data=data)
        assert found.prompts["prompt_id"][0] == "p4"
        assert row(found, "p4")["given_label"] == "8"
        assert not any("no labels" in note for note in found.notes)
    assert any(
        "no labels" in note for note in examined(tmp_path / "rewarded.jsonl", judge).notes
    )


@each(
    "label, prompt_id, complaint",
    ("8", "p0", "has the label 7 in"),
    ("7", "q", "has no prompt of"),
)
def test_a_data_set_that_does_not_fit_is_refused(
    tmp_path, judge, label, prompt_id, complaint
):
    log = write(tmp_path / "log.jsonl", many(3))
    with pytest.raises(UserError, match=complaint):
        examined(log, judge, data=data_set(tmp_path / "data.jsonl", {prompt_id: label}))


# Verified labels --------------------------------------------------------------------------------------------------


def verifying(tmp_path, answers, **marks):
    rows = [
        {"prompt_id": p, "true_answer": answer, **marks} for p, answer in answers.items()
    ]
    return write(tmp_path / "verified.jsonl", rows)


def test_verified_labels_that_show_a_gain_change_labels(tmp_path, judge):
    wrong = set(range(0, 200, 4))
    log = write(tmp_path / "log.jsonl", many(200, wrong=wrong))
    answers = {f"p{n}": "7" for n in range(60)}
    found = examined(log, judge, verified=verifying(tmp_path, answers, drawn=True))
    changed = set(found.prompts.filter(change="changed")["prompt_id"])
    assert changed == {f"p{n}" for n in wrong}
    assert 0 < found.gain.low <= 35 <= found.gain.high + 1
    assert found.noise_ratio.low < 0.25 < found.noise_ratio.high
    picked = examined(log, judge, verified=verifying(tmp_path, answers))
    assert picked.noise_ratio is None, "they may have been picked"
    chances = {p: row(found, p)["confidence"] for p in ("p100", "p101")}
    assert chances["p100"] > 0.8 > 0.2 > chances["p101"]


def test_what_is_verified_is_taken_as_it_is(tmp_path, judge):
    log = write(tmp_path / "log.jsonl", many(20, wrong={1}))
    found = examined(
        log, judge, verified=verifying(tmp_path, {"p0": "5", "p1": "7", "p2": "7.0"})
    )
    for prompt_id, *expected in (
        ("p0", 1, "5", "changed"),
        ("p1", 1, "7", "changed"),
        ("p2", 0, None, "kept"),
    ):
        own = row(found, prompt_id)
        assert [own["confidence"], own["proposed_label"], own["change"]] == expected
        assert own["is_verified"] and own["rank"] is None
    assert found.verified.labels == 3


def test_a_label_can_be_verified_to_be_wrong_without_a_right_answer(tmp_path, judge):
    log = write(tmp_path / "log.jsonl", many(20, wrong={1}))
    verdicts = [("p0", "wrong"), ("p1", "wrong"), ("p2", "unsure"), ("p3", "flawed")]
    rows = [
        {"prompt_id": p, "verdict": verdict, "true_answer": None} for p, verdict in verdicts
    ]
    found = examined(log, judge, verified=write(tmp_path / "t.jsonl", rows))
    assert found.verified.labels == 3
    told = {p: row(found, p) for p, _ in verdicts}
    assert [told[p]["status"] == "doubted" for p in told] == [True, True, False, True]
    assert (told["p0"]["proposed_label"], told["p0"]["change"]) == (None, "kept"), (
        "nobody knows a better one"
    )
    assert (told["p1"]["proposed_label"], told["p1"]["change"]) == ("7", "changed"), (
        "the policy's proposal"
    )
    assert (
        evidence(told["p0"]) == evidence(told["p1"]) == "the label is verified to be wrong"
    )


def test_a_draw_that_is_none_is_warned_of(tmp_path, judge):
    log = write(tmp_path / "log.jsonl", many(60, wrong=set(range(15))))
    picked = {f"p{n}": "7" for n in range(15)}
    [warning] = examined(
        log, judge, verified=verifying(tmp_path, picked, drawn=True)
    ).warnings
    assert "no random draw" in warning
    assert not examined(log, judge, verified=verifying(tmp_path, picked)).warnings


def test_labels_that_a_run_was_trained_on_as_verified_are_known_and_calibrate_nothing(
    tmp_path, judge
):
    log = write(tmp_path / "log.jsonl", many(30, wrong={3, 8, 11}))
    verified = verifying(tmp_path, {"p3": "7", "p4": "9"})
    trained = audit(read_history(log, [f"data.verified={verified}"]), judge)
    for prompt_id, answer in (("p3", "7"), ("p4", "9")):
        known = row(trained, prompt_id)
        assert (known["is_verified"], known["proposed_label"], known["change"]) == (
            True,
            answer,
            "changed",
        )
    assert trained.verified is None
    assert any("trained on 2 verified labels" in note for note in trained.notes)


def test_labels_that_a_run_was_trained_on_count_in_the_noise_ratio_as_the_other_drawn_ones(
    tmp_path, judge
):
    log = write(tmp_path / "log.jsonl", many(40, wrong=range(10)))
    trained = write(
        tmp_path / "t.jsonl",
        [{"prompt_id": f"p{n}", "true_answer": "7"} for n in range(10)],
    )
    drawn = verifying(tmp_path, {f"p{n}": "7" for n in range(0, 40, 2)}, drawn=True)
    found = audit(read_history(log, [f"data.verified={trained}"]), judge, verified=[drawn])
    assert (found.verified_labels, found.drawn_labels, found.noise_ratio.value) == (
        15,
        20,
        0.25,
    )


# The example of the README ----------------------------------------------------------------------------------------

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_first_rows_of_the_example_are_defective():
    audited, _ = answered("audit", EXAMPLES / "gsm8k.parquet", "--top", 20)
    queue = [row["prompt_id"] for row in audited["prompts"]]
    truth = pl.read_parquet(EXAMPLES / "gsm8k_truth.parquet").filter(
        pl.col("status").is_in(["revised", "rejected"])
    )
    assert len(set(queue) & set(truth["prompt_id"])) == 17
