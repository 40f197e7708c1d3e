"""An audit from a history to a ranked table of prompts."""

import numpy as np
import polars as pl
import pytest
from audit_tables import many, rollouts, write
from histories import write_history

from olr_cli.analysis.audit.answer import warnings
from olr_cli.analysis.audit.audit import audit
from olr_cli.analysis.audit.export import evidence
from olr_cli.analysis.histories import read_history
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.prompts import SENTINEL
from olr_cli.errors import UserError
from olr_cli.supervision.history import Past, Visit


def examined(file, judge, **options):
    return audit(read_history(file), judge, **options)


def row(found, prompt_id):
    return found.prompts.row(by_predicate=pl.col("prompt_id") == prompt_id, named=True)


def test_wrong_labels_come_first_and_with_the_right_proposal(tmp_path, judge):
    wrong = {3, 8, 11}
    found = examined(write(tmp_path / "log.jsonl", many(30, wrong=wrong)), judge)
    assert set(found.prompts["prompt_id"].head(3)) == {f"p{number}" for number in wrong}
    doubted = found.prompts.filter(pl.col("status") == "doubted")
    assert set(doubted["prompt_id"]) == {f"p{number}" for number in wrong}
    assert set(doubted["proposed_label"]) == {"7"}
    assert set(doubted["change"]) == {"changed"}
    assert set(found.prompts.filter(pl.col("status") == "fine")["change"]) == {"kept"}
    assert found.prompts["confidence"].is_sorted(descending=True)
    assert found.forecast.ratio.mean == pytest.approx(0.1, abs=0.05)


def test_prompts_that_nobody_solved_are_undecided_and_not_wrong(tmp_path, judge):
    rows = [
        *many(20),
        *rollouts("silent", [[None] * 4] * 3, given_label="1"),
        *rollouts("scattered", [["2", "3", "4", "5"], ["6", "2", "9", "11"]], given_label="1"),
        *rollouts("tied", [["2", "2", "3", "3"]] * 3, given_label="1"),
        *rollouts("solved", [["2", "2", "3", "4"]] * 3, given_label="1"),
    ]
    found = examined(write(tmp_path / "log.jsonl", rows), judge)
    for prompt_id in ("silent", "scattered", "tied"):
        own = row(found, prompt_id)
        assert (own["status"], own["change"]) == ("undecided", "undecided")
        assert (own["confidence"], own["proposed_label"]) == (None, None)
    assert row(found, "solved")["status"] == "doubted"


def test_with_one_rollout_a_visit_two_visits_agree_like_two_rollouts(tmp_path, judge):
    rows = [
        *rollouts("agreed", [["2"], ["2"], ["3"]], given_label="1"),
        *rollouts("scattered", [["2"], ["3"], ["4"]], given_label="1"),
    ]
    found = examined(write(tmp_path / "log.jsonl", rows), judge)
    assert row(found, "agreed")["proposed_label"] == "2"
    assert row(found, "scattered")["status"] == "undecided"


def test_a_prompt_without_label_gets_a_proposal_and_no_confidence_that_it_is_wrong(tmp_path, judge):
    rows = [
        *many(20),
        *rollouts("none", [["2", "2", "2", "3"]] * 3, given_label=None),
        *rollouts("sentinel", [["2", "2", "2", "3"]] * 3, given_label=SENTINEL),
    ]
    found = examined(write(tmp_path / "log.jsonl", rows), judge)
    for prompt_id in ("none", "sentinel"):
        own = row(found, prompt_id)
        assert (own["status"], own["change"], own["proposed_label"]) == ("missing", "added", "2")
        assert own["confidence"] is None and own["given_label"] is None
        assert 0.5 < own["proposal_confidence"] < 1


def test_a_history_without_any_label_still_has_proposals(tmp_path, judge):
    result = examined(write(tmp_path / "log.jsonl", rollouts("a", [["2", "2", "3"]] * 2)), judge)
    assert (result.noise, result.forecast) == (None, None)
    assert row(result, "a")["proposed_label"] == "2"


@pytest.mark.parametrize("label", ["7", None])
def test_without_any_answer_every_prompt_is_undecided(tmp_path, judge, label):
    rows = [row for n in range(3) for row in rollouts(f"p{n}", [[None] * 4] * 2, given_label=label)]
    result = examined(write(tmp_path / "log.jsonl", rows), judge)
    assert (result.noise, result.forecast, result.answered) == (None, None, 0)
    assert set(result.prompts["status"]) == set(result.prompts["change"]) == {"undecided"}
    assert result.prompts.select("proposed_label", "confidence", "pass_rate").null_count().row(0) == (3, 3, 3)


def test_evidence_is_that_of_the_proposal(tmp_path, judge):
    visits = [["1", "1", "2", "3"], ["2", "2", "1", "3"], ["2", "2", "2", "1"]]
    rows = many(20) + rollouts("a", visits, given_label="1")
    own = row(examined(write(tmp_path / "log.jsonl", rows), judge), "a")
    assert (own["proposed_label"], own["visits"], own["rollouts"]) == ("2", 3, 4)
    assert (own["pass_rate"], own["given_pass_rate"]) == (0.75, 0.25)
    assert own["consistency"] == pytest.approx(2 / 3)
    assert own["slope"] == pytest.approx(float(Past.of([Visit("2", "2", n, 4) for n in (1, 2, 3)]).slope))


def test_without_a_change_evidence_is_that_of_the_given_label(tmp_path, judge):
    own = row(examined(write(tmp_path / "log.jsonl", many(20)), judge), "p0")
    assert own["proposed_label"] is None
    assert own["pass_rate"] == own["given_pass_rate"] == 5 / 8


def test_the_truth_takes_no_part(tmp_path, judge):
    rows = many(30, wrong={1, 2, 3})
    told = [{**one, "true_answer": "5", "noise_type": "clean"} for one in rows]
    without, with_truth = (
        examined(write(tmp_path / name, own), judge) for name, own in (("a.jsonl", rows), ("b.jsonl", told))
    )
    assert without.prompts.equals(with_truth.prompts)
    assert without.truth is None
    assert with_truth.truth["wrong"] == 30


def test_where_the_truth_is_stored_the_quality_is_told(tmp_path, judge):
    rows = [{**one, "true_answer": "7"} for one in many(30, wrong={1, 2, 3})]
    found = examined(write(tmp_path / "log.jsonl", rows), judge)
    assert found.truth == {
        "labels": 30, "wrong": 3, "doubted": 3, "precision": 1, "recall": 1, "auroc": 1,
        "right_before": 0.9, "right_after": 1.0,
    }  # fmt: skip


def test_a_higher_threshold_changes_fewer_labels(tmp_path, judge):
    run = write_history(tmp_path / "run", prompts=60, epochs=4, prompts_per_step=60)
    sure, unsure = (examined(run, judge, threshold=t).prompts for t in (0.8, 0.5))
    changed = [set(own.filter(pl.col("change") == "changed")["prompt_id"]) for own in (sure, unsure)]
    assert changed[0] < changed[1]
    assert sure.filter(pl.col("change") == "changed")["confidence"].min() >= 0.8


def test_what_to_change_is_decided_as_for_a_policy_like_the_toys_until_labels_are_verified(tmp_path, judge):
    narrow = [["7"] * 5 + ["5"] * 3] * 2
    rows = [*many(30), *(row for n in range(18) for row in rollouts(f"n{n}", narrow, given_label="5"))]
    own = row(examined(write(tmp_path / "log.jsonl", rows), judge), "n0")
    assert own["change"] == "changed"
    assert own["proposal_confidence"] < 1 - own["confidence"], "it may be another policy"
    verified = trusting(tmp_path, range(30))
    own = row(examined(tmp_path / "log.jsonl", judge, trusted=verified), "n0")
    is_likelier = own["proposal_confidence"] > 1 - own["confidence"]
    assert own["change"] == ("changed" if is_likelier else "kept")


def test_whether_a_policy_was_training_is_known_of_runs(tmp_path, judge):
    for kind in ("training", "rollouts"):
        run = write_history(tmp_path / kind, noise=None, prompts=20, epochs=2, kind=kind)
        assert examined(run, judge).was_training is (kind == "training")
    assert examined(write(tmp_path / "log.jsonl", many(5)), judge).was_training is None


def test_labels_of_the_data_set_fill_in_what_a_table_lacks(tmp_path, judge):
    rows = [{name: value for name, value in one.items() if name != "given_label"} for one in many(20)]
    log = write(tmp_path / "log.jsonl", rows)
    data = write(
        tmp_path / "data.jsonl",
        [
            {"question": "?", "answer": "8" if n == 4 else "7", "extra_info": {"index": f"p{n}"}}
            for n in range(20)
        ],
    )
    found = examined(log, judge, data=read_prompts(data))
    assert found.prompts["prompt_id"][0] == "p4"
    assert row(found, "p4")["given_label"] == "8"


@pytest.mark.parametrize(
    ("labels", "complaint"), [(("8", "p0"), "has the label 7 in"), (("7", "q"), "has no prompt of")]
)
def test_a_data_set_that_does_not_fit_is_refused(tmp_path, judge, labels, complaint):
    answer, prompt_id = labels
    log = write(tmp_path / "log.jsonl", many(3))
    data = write(
        tmp_path / "data.jsonl", [{"question": "?", "answer": answer, "extra_info": {"index": prompt_id}}]
    )
    with pytest.raises(UserError, match=complaint):
        examined(log, judge, data=read_prompts(data))


# --- trusted labels


def misleading(size=120, seed=0):
    """A history whose leading answer is right for one prompt in four, labels for two in five: beyond the guard."""
    rng = np.random.default_rng(seed)
    rows, truths = [], {}
    for number in range(size):
        truth = "7" if rng.random() < 0.75 else "9"
        label = truth if rng.random() < 0.4 else str(rng.choice([c for c in "975" if c != truth]))
        visits = rng.choice(["9", "7", "5"], (4, 8), p=[0.6, 0.25, 0.15]).tolist()
        rows += rollouts(f"p{number}", visits, given_label=label)
        truths[f"p{number}"] = truth
    return rows, truths


def test_trusted_labels_mend_a_confidence_that_is_confidently_wrong(tmp_path, judge):
    rows, truths = misleading()
    log = write(tmp_path / "log.jsonl", rows)
    trusted = write(
        tmp_path / "trusted.jsonl",
        [{"prompt_id": f"p{n}", "true_answer": truths[f"p{n}"]} for n in range(50)],
    )
    alone, mended = examined(log, judge), examined(log, judge, trusted=trusted)

    def error(found):
        own = found.prompts.filter(~pl.col("prompt_id").is_in([f"p{n}" for n in range(50)]))
        wrong = [given != truths[p] for p, given in own.select("prompt_id", "given_label").iter_rows()]
        return float(np.nanmean((own["confidence"].fill_null(np.nan).to_numpy() - np.array(wrong)) ** 2))

    assert error(mended) < error(alone) - 0.05
    assert mended.cross_validation.labels == 50
    ratio, before = mended.forecast.ratio, alone.forecast.ratio
    assert ratio.low < 0.6 < ratio.high and abs(ratio.mean - 0.6) < 0.12
    assert ratio.high - ratio.low < before.high - before.low


def trusting(tmp_path, numbers, truth=lambda n: "7"):
    rows = [{"prompt_id": f"p{n}", "true_answer": truth(n)} for n in numbers]
    return write(tmp_path / "trusted.jsonl", rows)


def test_the_guard_stays_while_trusted_labels_do_not_show_that_confidences_are_right(tmp_path, judge):
    rows, truths = misleading()
    trusted = trusting(tmp_path, range(50), lambda n: truths[f"p{n}"])
    found = examined(write(tmp_path / "log.jsonl", rows), judge, trusted=trusted)
    assert not found.cross_validation.is_convincing
    assert any("labels do not yet show that the confidences are right" in text for text in warnings(found))


def test_trusted_labels_lift_the_guard_where_confidences_are_right(tmp_path, judge):
    log = write(tmp_path / "log.jsonl", many(60, wrong=set(range(0, 60, 5)) | set(range(1, 60, 2))))
    alone = examined(log, judge)
    assert not alone.noise.can_be_told and any("Trust none without" in text for text in warnings(alone))
    found = examined(log, judge, trusted=trusting(tmp_path, range(20)))
    assert found.cross_validation.is_convincing and not list(warnings(found))


def test_trusted_labels_that_are_all_in_doubt_are_noticed(tmp_path, judge):
    wrong = set(range(15))
    log = write(tmp_path / "log.jsonl", many(60, wrong=wrong))
    [text] = warnings(examined(log, judge, trusted=trusting(tmp_path, wrong)))
    assert "no random draw: one of them is in more doubt than one of the others in 100% of the cases" in text
    assert not list(warnings(examined(log, judge, trusted=trusting(tmp_path, range(0, 60, 4)))))


def test_changes_that_may_do_harm_are_warned_of(tmp_path, judge):
    rows = [{**one, "true_answer": "7"} for one in many(40, wrong={1, 2, 3})]
    sound = examined(write(tmp_path / "log.jsonl", rows), judge)
    gain = sound.forecast.gain
    assert gain.low <= 0 < sound.truth["right_after"] - sound.truth["right_before"] <= gain.high
    [text] = warnings(sound)
    assert "the changes may do harm" in text and "verify 25 to 100 labels drawn at random" in text
    verified = examined(tmp_path / "log.jsonl", judge, trusted=trusting(tmp_path, range(0, 40, 2)))
    assert verified.forecast.gain.low > 0 and not list(warnings(verified))
    run = write_history(tmp_path / "run", prompts=60, epochs=2, prompts_per_step=60, kind="rollouts")
    doubtful = examined(run, judge, threshold=0.1)
    assert doubtful.changes["changed"] and doubtful.forecast.gain.low < 0
    assert any("the changes may do harm" in text for text in warnings(doubtful))


def test_what_is_trusted_is_taken_as_it_is(tmp_path, judge):
    log = write(tmp_path / "log.jsonl", many(20, wrong={1}))
    answers = {"p0": "5", "p1": "7", "p2": "7.0"}
    trusted = write(tmp_path / "t.jsonl", [{"prompt_id": p, "true_answer": a} for p, a in answers.items()])
    found = examined(log, judge, trusted=trusted)
    for prompt_id, expected in (
        ("p0", (1, "5", "changed")),
        ("p1", (1, "7", "changed")),
        ("p2", (0, None, "kept")),
    ):
        own = row(found, prompt_id)
        assert (own["confidence"], own["proposed_label"], own["change"]) == expected
        assert own["is_trusted"]
    assert (found.trusted.labels, found.trusted.wrong) == (3, 2)
    assert found.cross_validation is None


def test_a_label_can_be_trusted_to_be_wrong_without_a_right_answer(tmp_path, judge):
    log = write(tmp_path / "log.jsonl", many(20, wrong={1}))
    verdicts = [("p0", "wrong"), ("p1", "wrong"), ("p2", "unsure")]
    rows = [{"prompt_id": p, "verdict": verdict, "true_answer": None} for p, verdict in verdicts]
    found = examined(log, judge, trusted=write(tmp_path / "t.jsonl", rows))
    assert (found.trusted.labels, found.trusted.wrong) == (2, 2)
    told = {p: row(found, p) for p, _ in verdicts}
    assert [told[p]["is_trusted"] for p in told] == [True, True, False]
    assert (told["p0"]["proposed_label"], told["p0"]["change"]) == (None, "undecided"), (
        "nobody knows a better one"
    )
    assert (told["p1"]["proposed_label"], told["p1"]["change"]) == ("7", "changed"), "the policy's proposal"
    assert evidence(told["p0"]) == evidence(told["p1"]) == "the label is trusted to be wrong"


def test_a_verified_data_set_can_be_trusted(tmp_path, judge):
    log = write(tmp_path / "log.jsonl", many(20))
    rows = [{"question": "?", "answer": "7", "extra_info": {"index": f"p{n}"}} for n in range(3)]
    assert examined(log, judge, trusted=write(tmp_path / "t.jsonl", rows)).trusted.labels == 3


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([{"prompt_id": "stranger", "true_answer": "1"}], "none of its prompts is among"),
        ([{"prompt_id": "p0", "true_answer": a} for a in "12"], "several true answers"),
        ([{"prompt_id": "p0", "answer": "1"}], "no column of prompts"),
        ([{"prompt_id": "p0", "true_answer": a} for a in (None, SENTINEL)], "no true answer in any row"),
        ([{"question": "?", "answer": "7"}], "else by their questions"),
    ],
)
def test_trusted_labels_that_do_not_fit_are_refused(tmp_path, judge, rows, complaint):
    log = write(tmp_path / "log.jsonl", many(3))
    with pytest.raises(UserError, match=complaint):
        examined(log, judge, trusted=write(tmp_path / "t.jsonl", rows))


def test_labels_that_a_run_was_trained_on_as_verified_are_known_and_calibrate_nothing(tmp_path, judge):
    log = write(tmp_path / "log.jsonl", many(30, wrong={3, 8, 11}))
    verified = write(
        tmp_path / "verified.jsonl",
        [{"prompt_id": "p3", "true_answer": "7"}, {"prompt_id": "p4", "true_answer": "9"}],
    )
    trained = audit(read_history(log, [f"data.trusted={verified}"]), judge)
    for prompt_id, answer in (("p3", "7"), ("p4", "9")):
        known = row(trained, prompt_id)
        assert (known["is_trusted"], known["proposed_label"], known["change"]) == (True, answer, "changed")
    assert trained.trusted is None
    assert any("trained on 2 verified labels" in note for note in trained.notes)
