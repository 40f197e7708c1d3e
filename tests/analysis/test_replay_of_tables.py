"""Rollouts of any trainer's, in a table, give the decisions that they would have given in training."""

import json

import polars as pl
import pytest
from cases import each, refusal
from histories import replayed, write_history
from samples import json_lines

from olr_cli.analysis.histories import contradictions, read_history
from olr_cli.answers.graded import SENTINEL
from olr_cli.errors import UserError


def write_table(file, rows, **everywhere):
    json_lines(file, *({**everywhere, **row} for row in rows))
    return file


@pytest.fixture
def decide(tmp_path, judge):
    """The decisions on rows, or on a file of them, under some settings."""

    def decisions(rows, *settings, **everywhere):
        file = (
            rows
            if hasattr(rows, "suffix")
            else write_table(tmp_path / "log.jsonl", rows, **everywhere)
        )
        return replayed(read_history(file, settings), judge)

    return decisions


def answers_of(*visits):
    """A row for each character, which is an answer to prompt a."""
    return [
        {"prompt_id": "a", "visit": visit, "answer": answer}
        for visit, answers in enumerate(visits, 1)
        for answer in answers
    ]


def test_visits_are_renumbered_within_each_prompt(decide):
    decided = decide(
        {"prompt_id": prompt, "visit": visit, "response": f"\\boxed{{{visit}}}"}
        for prompt, visits in (("a", (30, 10, 20)), ("b", (20, 7)))
        for visit in visits
    )
    seen = [(x.prompt_id, x.visit, x.step, x.majority_answer) for x in decided]
    assert seen == [
        ("a", 1, 1, "10"), ("b", 1, 1, "7"), ("a", 2, 2, "20"), ("b", 2, 2, "20"), ("a", 3, 3, "30"),
    ]  # fmt: skip


def test_answers_alone_serve_too(decide):
    (label,) = decide(answers_of([" 7 ", "7", " "]))
    assert (
        label.majority_answer,
        label.majority_count,
        label.answered,
        label.rollouts,
    ) == (
        "7",
        2,
        2,
        3,
    )


@each(
    "column, value, is_shared",
    ("answer", "7", False),
    ("response", "\\boxed{7}", True),
    ("response", None, True),
)
def test_only_responses_that_are_known_to_be_equal_share_a_reward(
    decide, column, value, is_shared
):
    rows = [{column: value, "entropy": entropy} for entropy in (1, 1.000001)]
    (label,) = decide(rows, "method.name=token_entropy", prompt_id="a", visit=1)
    assert label.has_zero_variance is is_shared


def test_k_may_vary_between_visits(decide):
    decided = decide(
        answers_of("1122", "112", "1"),
        "method.slope_threshold=0.4",
        "method.warmup_epochs=0",
    )
    votes = [(x.rollouts, x.pass_rate, x.majority_answer, x.is_selected) for x in decided]
    assert votes == [(4, 0.0, None, False), (3, 2 / 3, "1", True), (1, 1.0, "1", True)]
    assert decided[-1].slope == 0.5


def test_a_negative_threshold_selects_falling_majorities(decide):
    for threshold, selected in (("0", False), ("-0.25", False), ("-0.26", True)):
        settings = [f"method.slope_threshold={threshold}", "method.warmup_epochs=0"]
        last = decide(answers_of("1111", "1112"), *settings)[-1]
        assert (last.slope, last.is_selected) == (-0.25, selected)


def test_a_table_is_parquet_or_json_and_reads_alike(tmp_path, decide):
    rows = [
        {
            "prompt_id": 3,
            "visit": visit,
            "response": f"\\boxed{{{n}}}",
            "given_label": 12,
            "other": [n],
        }
        for visit in (1.0, 2.0)
        for n in (12, 12, 7)
    ]
    array, parquet = tmp_path / "log.json", tmp_path / "log.parquet"
    array.write_text("\ufeff" + json.dumps(rows))
    pl.DataFrame(rows).write_parquet(parquet)
    decided = decide(rows)
    assert [(x.prompt_id, x.visit, x.given_label_count) for x in decided] == [
        ("3", 1, 2),
        ("3", 2, 2),
    ]
    assert decide(array) == decide(parquet) == decided


def test_sentinels_take_their_type_from_the_settings(decide):
    rows = [{"response": f"\\boxed{{{n}}}"} for n in (12, 7, 7)]
    labels = {"prompt_id": "a", "visit": 1, "given_label": SENTINEL, "true_answer": "12"}
    assert [x.noise_type for x in decide(rows, **labels)] == ["inactive"]
    (active,) = decide(rows, "noise.type=active", **labels)
    assert (active.noise_type, active.noisy_label) == ("active", "7")


def test_a_table_may_have_views_and_statistics(decide):
    rows = [
        {"response": "\\boxed{1}", "entropy": 0.25, "view": "rephrased"},
        {"response": "\\boxed{2}", "entropy": 0.5, "view": "original"},
        {"response": "\\boxed{2}", "entropy": 0.5},
        {"response": "well, \\boxed{2}", "entropy": 1},
    ]
    (certain,) = decide(rows, "method.name=token_entropy", prompt_id="a", visit=1)
    assert (certain.reward_mean, certain.rollouts) == (pytest.approx(-2 / 3), 3)
    (crossed,) = decide(rows, "method.name=co_reward", prompt_id="a", visit=1)
    assert (crossed.effective_label, crossed.majority_answer, crossed.reward_mean) == (
        "1",
        "2",
        0,
    )
    with pytest.raises(UserError, match="needs self_certainty"):
        decide(rows, "method.name=self_certainty", prompt_id="a", visit=1)


ROW = {"prompt_id": "a", "visit": 1, "response": "\\boxed{1}"}


@each(
    "rows, message",
    ([{"id": "a"}], "has no column prompt and no column response; its columns are id"),
    ([ROW, ROW | {"visit": None}], "rows without prompt_id or visit"),
    ([ROW | {"visit": 1.5}, ROW | {"visit": 1.2}], "visit must hold whole numbers"),
    (
        [ROW | {"given_label": "1"}, ROW | {"given_label": "2"}],
        "prompt a has several values of",
    ),
    ([ROW | {"noise_type": "loud"}], "noise_type 'loud' of prompt a is not one of clean"),
    (
        [ROW | {"view": "upside down"}],
        "view 'upside down' is not one of original, rephrased",
    ),
    ([ROW | {"entropy": "low"}], "is 'low', and it should be a finite number"),
)
def test_a_table_that_is_no_history_is_refused(tmp_path, rows, message):
    file = tmp_path / "log.json"
    file.write_text(json.dumps(rows))
    error = refusal(read_history, file)
    assert message in error
    assert str(file) in error


def test_what_is_no_history_is_refused(tmp_path):
    assert "does not exist" in refusal(read_history, tmp_path / "nowhere.parquet")
    assert "is not a run directory" in refusal(read_history, tmp_path.parent)
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "manifest.json").touch()
    with pytest.raises(UserError, match=r"name one of its runs, such as .*runs/one$"):
        read_history(tmp_path / "runs")


@each(
    "setting, message",
    (
        "train.epochs=3",
        "train.epochs: the stored rollouts are as they are, and no loss is computed; a",
    ),
    ("noise.ratio=0.5", "noise.ratio: the stored"),
    ("name=other", "name: the stored"),
    ("seed", "seed is no setting; write it as key=value"),
    ("method.slope_treshold=0", "did you mean 'method.slope_threshold'"),
    ("noise.draw=often", "noise.draw is 'often'"),
)
def test_a_setting_without_effect_is_refused(tmp_path, setting, message):
    table = write_table(tmp_path / "log.jsonl", [ROW])
    for source in (table, write_history(tmp_path / "run", prompts=2, epochs=1)):
        assert message in refusal(read_history, source, [setting])


def test_settings_that_one_kind_of_history_ignores_are_refused_for_it(tmp_path):
    run = write_history(tmp_path / "run", prompts=2, epochs=1)
    assert "noise.type: the stored rollouts" in refusal(
        read_history, run, ["noise.type=inactive"]
    )
    answers = write_table(
        tmp_path / "log.jsonl", [{"prompt_id": "a", "visit": 1, "answer": "1"}]
    )
    assert "data.extractor has nothing to read" in refusal(
        read_history, answers, ["data.extractor=boxed"]
    )


# Without labels, what was rewarded is compared with itself
@pytest.mark.parametrize("label", ["15", None])
@pytest.mark.parametrize(("shift", "is_said"), [(0, False), (1, True)])
def test_rewards_that_are_those_of_other_rows_are_noted(
    tmp_path, judge, label, shift, is_said
):
    answers = [str(15 if row % 4 else row) for row in range(40)]
    rewards = [float(answer == "15") for answer in answers]
    rows = [
        {
            "input": "7+8?",
            "output": f"\\boxed{{{answer}}}",
            "gts": label,
            "score": rewards[row - shift],
        }
        for row, answer in enumerate(answers)
    ]
    notes = contradictions(read_history(write_table(tmp_path / "1.jsonl", rows)), judge)
    assert (
        any("20 of 40 rewards that were looked at contradict" in note for note in notes)
        == is_said
    )


def test_rewards_are_not_held_against_labels_that_are_known_to_be_noise(tmp_path, judge):
    row = {
        "prompt_id": "a",
        "step": 1,
        "answer": "7",
        "given_label": SENTINEL,
        "reward": 1.0,
    }
    assert not contradictions(
        read_history(write_table(tmp_path / "log.jsonl", [row] * 4)), judge
    )
