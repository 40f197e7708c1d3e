"""Logs whose objects are other things than rollouts: episodes, samples, predictions, reviews, requests."""

import json
from pathlib import Path

import pytest
from cases import each, refusal
from samples import json_lines

from olr_cli.data.chat import Message
from olr_cli.data.logs import read_log

LOGS = Path(__file__).parents[3] / "shared" / "cases" / "november" / "logs"


def episode(answer, *, step=1, rewards=None, **more):
    """As `FileMonitor.log_episodes` (prime_rl/monitors/file.py) writes an episode of verifiers v1."""
    task = {
        "type": "math",
        "data": {"idx": 0, "prompt": "3+4", "answer": "7", "difficulty": 0.5},
    }
    nodes = [
        {"message": {"role": "system", "content": "Be brief."}, "sampled": False},
        {"message": {"role": "user", "content": "3+4"}, "parent": 0, "sampled": False},
        {"message": {"role": "assistant", "content": rf"\boxed{{{answer}}}"}, "parent": 1, "sampled": True},
    ]  # fmt: skip
    scored = rewards or {"correct": {"score": float(answer == 7), "weight": 1.0}}
    trace = {
        "id": "t",
        "task": task,
        "nodes": nodes,
        "rewards": scored,
        "ok": True,
        "errors": [],
    }
    work = {"type": "train", "step": step}
    facts = {
        "id": "e",
        "task": task,
        "group": {"id": "g"},
        "run": {"type": "train", "work": work},
    }
    return {**facts, "ok": True, "errors": [], "traces": [trace], **more}


def trained(folder, step, subset="all", kind="train"):
    return folder / "rollouts" / f"step_{step}" / kind / subset / "traces.jsonl"


# prime-rl ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [".", "rollouts", "rollouts/step_*/*/*/traces.jsonl"])
def test_episodes_of_prime_rl_count_once_and_those_of_evaluations_do_not(tmp_path, place):
    for step in (1, 2, 10):
        rows = [episode(answer, step=step) for answer in (step, 7)]
        json_lines(trained(tmp_path, step), *rows)
        json_lines(trained(tmp_path, step, "effective"), *rows)
        json_lines(trained(tmp_path, step, kind="eval"), *rows)
    json_lines(tmp_path / "metrics.jsonl", {"step": 1, "loss": 0.5})
    log = read_log([tmp_path / place])
    assert (log.trainer, log.rows["answer"].to_list()) == ("prime-rl", ["1", "7", "2", "7", "10", "7"])  # fmt: skip
    assert log.rows["step"].to_list() == [1, 1, 2, 2, 10, 10]
    assert log.rows["visit"].to_list() == [1, 1, 2, 2, 3, 3]
    assert set(log.rows["given_label"]) == {"7"}
    assert [*log.questions.values()] == [(Message("user", "3+4"),)]
    assert log.rows["is_rewarded"].to_list() == [False, True] * 3
    said = " ".join(log.notes)
    assert "task.data.answer as given_label, rewards.correct as is_correct" in said
    assert "3 files (the first is" in said and "held-out rollouts" in said
    assert "`effective`, a part of `all`" in said


def test_effective_episodes_are_read_where_there_are_no_others(tmp_path):
    json_lines(trained(tmp_path, 1), episode(1))
    json_lines(trained(tmp_path, 1, "effective"), episode(1))
    json_lines(trained(tmp_path, 2, "effective"), episode(2, step=2))
    assert read_log([tmp_path]).rows["answer"].to_list() == ["1", "2"]
    alone = read_log([trained(tmp_path, 1, "effective")])
    assert alone.rows["answer"].to_list() == ["1"]


@each(
    "failed",
    {"ok": False},
    {"ok": False, "errors": [{"type": "Timeout"}], "traces": []},
    {"traces": [episode(8)["traces"][0] | {"ok": False}]},
    {"traces": [episode(8)["traces"][0] | {"nodes": []}]},
)
def test_episodes_that_failed_are_counted_and_left_out(tmp_path, failed):
    repeated = episode(7, errors=[{"type": "Timeout"}])
    file = json_lines(tmp_path / "traces.jsonl", repeated, episode(8, **failed))
    log = read_log([file])
    assert log.rows["answer"].to_list() == ["7"]
    assert "1 row without a response left out, as of rollouts that failed." in log.notes
    sentence = refusal(read_log, [json_lines(file, episode(8, **failed))])
    assert "has only rows without a response (1), as of rollouts that failed" in sentence


@each(
    "rewards, reward, right",
    ({"correct": {"value": 1.0, "weight": 0.5}, "length": {"score": 4.0, "weight": -0.25}}, -0.5, True),
    ({"correct": {"score": 0.0}, "length": {"score": 2.0, "weight": 1.0}}, 2.0, False),
    ({"correct": 1.0, "judge": None}, 1.0, True),
)  # fmt: skip
def test_a_reward_of_a_trace_is_weighted_and_the_one_about_answers_is_the_verdict(
    tmp_path, rewards, reward, right
):
    log = read_log([json_lines(tmp_path / "traces.jsonl", episode(7, rewards=rewards))])
    assert log.rows["reward"].to_list() == [reward]
    assert log.rows["is_rewarded"].to_list() == [right]


def test_which_of_several_rewards_is_the_verdict_can_be_said(tmp_path):
    rewards = {"a": {"score": 1.0}, "b": {"score": 0.0}}
    file = json_lines(tmp_path / "traces.jsonl", episode(7, rewards=rewards))
    assert "Which of rewards.a, rewards.b rewards right answers is not known" in " ".join(
        read_log([file]).notes
    )
    named = read_log([file], {"is_correct": "rewards.a"})
    assert named.rows["is_rewarded"].to_list() == [True]


def test_a_trace_of_verifiers_is_read_without_its_episode_and_a_label_of_any_name_by_its_path(
    tmp_path,
):
    trace = episode(7)["traces"][0]
    trace["task"]["data"] = {"prompt": None, "gold": "7"}
    log = read_log(
        [json_lines(tmp_path / "traces.jsonl", trace)], {"given_label": "task.data.gold"}
    )
    assert log.rows["given_label"].to_list() == ["7"]
    assert [*log.questions.values()] == [(Message("system", "Be brief."), Message("user", "3+4"))]  # fmt: skip


# inspect_ai -------------------------------------------------------------------------------------------------------


def inspect_log(*samples, **more):
    return {"version": 2, "eval": {"task": "sums", "model": "openai/m"}, "samples": [*samples], **more}  # fmt: skip


def sample(answer, *, epoch=1, **more):
    """As `EvalSample` (inspect_ai/log/_log.py)."""
    said = [{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": rf"\boxed{{{answer}}}"}]  # fmt: skip
    choice = {"message": {"role": "assistant", "content": said}, "stop_reason": "stop"}
    scores = {"match": {"value": "C" if answer == 7 else "I", "answer": str(answer)}}
    facts = {"id": 1, "epoch": epoch, "input": "3+4", "target": "7", "scores": scores}
    return {
        **facts,
        "output": {"model": "m", "choices": [choice], "completion": ""},
        **more,
    }


def written(tmp_path, log, name="log.json", indent=2):
    file = tmp_path / name
    file.write_text(json.dumps(log, indent=indent))
    return file


@pytest.mark.parametrize("indent", [None, 2])
@each("asked", "3+4", [{"role": "user", "content": "3+4", "id": "x"}])
def test_samples_of_inspect_ai_are_rollouts_and_epochs_are_of_one_visit(
    tmp_path, indent, asked
):
    samples = (sample(answer, epoch=at, input=asked) for at, answer in enumerate((7, 8, 7)))
    log = read_log([written(tmp_path, inspect_log(*samples), indent=indent)])
    assert log.trainer == "inspect_ai" and len(log.questions) == 1
    assert log.rows["answer"].to_list() == ["7", "8", "7"]
    assert log.rows["visit"].to_list() == [1] * 3 and set(log.rows["given_label"]) == {"7"}
    assert log.rows["is_rewarded"].to_list() == [True, False, True]
    assert "target as given_label, scores.match as reward, scores.match as is_correct" in log.notes[0]  # fmt: skip


def test_a_sample_that_ended_by_an_error_is_left_out_and_one_without_words_is_not(tmp_path):
    silent = {"model": "m", "choices": [], "completion": ""}
    log = inspect_log(
        sample(7), sample(7, error={"message": "no"}), sample(7, output=silent)
    )
    log = read_log([written(tmp_path, log)])
    assert log.rows["answer"].to_list() == ["7", None]
    assert "1 row without a response left out, as of rollouts that failed." in log.notes


def test_options_of_a_sample_stand_below_its_question_and_its_target_is_their_letter(
    tmp_path,
):
    choices = {"choices": ["Mars", "Sirius"], "target": "B", "input": "Which is a star?"}
    log = read_log([written(tmp_path, inspect_log(sample("B", **choices)))])
    assert [*log.questions.values()] == [(Message("user", "Which is a star?\nA) Mars\nB) Sirius"),)]  # fmt: skip
    assert log.rows["given_label"].to_list() == ["B"]
    asked = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Which is a star?"}]},
    ]
    chat = read_log(
        [written(tmp_path, inspect_log(sample("B", **choices | {"input": asked})))]
    )
    assert [*chat.questions.values()] == [
        (Message("system", "Be brief."), *next(iter(log.questions.values())))
    ]
    several = inspect_log(sample("B", **choices | {"target": ["A", "B"]}))
    assert read_log([written(tmp_path, several)]).rows["given_label"].to_list() == ["A, B"]


@each(
    "scores, rewarded, said",
    ({"a": {"value": "C"}, "b": {"value": "I"}}, None, "Which of scores.a, scores.b rewards right"),
    ({"exact_match": {"value": 1}, "style": {"value": 0.3}}, [True], "scores.exact_match as is_correct"),
    ({"judge": {"value": {"correct": True, "tone": 2}}}, [True], "scores.judge.correct as is_correct"),
    ({"match": {"value": "P"}}, [True], "Rewards are 0.5"),
    ({"match": {"value": "maybe"}}, None, "target as given_label;"),
    (None, None, "target as given_label;"),
)  # fmt: skip
def test_what_scorers_say_is_a_number_each(tmp_path, scores, rewarded, said):
    log = read_log([written(tmp_path, inspect_log(sample(7, scores=scores)))])
    rows = log.rows
    assert (rows["is_rewarded"].to_list() if "is_rewarded" in rows.columns else None) == rewarded  # fmt: skip
    assert said in " ".join(log.notes)


# Predictions, reviews, requests -----------------------------------------------------------------------------------

ASKED = [{"role": "SYSTEM", "prompt": "Hi"}, {"role": "HUMAN", "prompt": "3+4"}]
SPOKEN = [
    {"role": "user", "content": "3+4"},
    {"role": "assistant", "content": r"\boxed{7}"},
]
SCORED = {"score": {"value": {"acc": 1.0}, "prediction": r"\boxed{7}"}}
REPLY = {"type": "message", "role": "assistant"}
OUTPUT = [
    {"type": "reasoning", "summary": []},
    REPLY | {"content": [{"type": "output_text", "text": r"\boxed{7}"}]},
]


@each(
    "trainer, row",
    ("OpenCompass", {"origin_prompt": ASKED, "prediction": r"\boxed{7}", "gold": "7"}),
    (
        "OpenCompass",
        {"origin_prompt": "3+4", "prediction": r"\boxed{7}", "gold": 7, "idx": 1},
    ),
    ("evalscope", {"index": 0, "target": "7", "messages": SPOKEN, "sample_score": SCORED}),
    ("evalscope", {"index": 0, "target": "7", "input": "3+4", "sample_score": SCORED}),
    (
        "NeMo Gym",
        {"responses_create_params": {"input": SPOKEN[:1]}, "response": {"output": OUTPUT}}
        | {"reward": 1.0, "expected_answer": "7"},
    ),
)
def test_other_programs_logs_have_a_row_of_the_table_each(tmp_path, trainer, row):
    for log in (
        read_log([json_lines(tmp_path / "log.jsonl", row, row)]),
        read_log([written(tmp_path, {"0": row, "1": row}, indent=4)]),
    ):
        assert (log.trainer, log.rows["answer"].to_list()) == (trainer, ["7", "7"])
        assert set(log.rows["given_label"]) == {"7"} and len(log.questions) == 1
        assert trainer == "OpenCompass" or log.rows["is_rewarded"].to_list() == [True, True]


def test_turns_of_validation_are_read_where_nemo_rl_writes_them_as_messages(tmp_path):
    row = {"content": [SPOKEN], "rewards": [1.0], "idx": [0]}
    log = read_log([json_lines(tmp_path / "val_data_step1.jsonl", row)])
    assert (log.trainer, log.rows["answer"].to_list()) == ("NeMo-RL", ["7"])
    assert [*log.questions.values()] == [(Message("user", "3+4"),)]


# What is said -----------------------------------------------------------------------------------------------------


@each(
    "scores, is_said",
    ([0.0, 1.0, 1.0], True),
    ([-1.0, 1.0], True),
    ([0.0, 0.5, 1.0], False),
    ([0.1, 0.2, 0.35, 0.4, 0.9], False),
)
def test_a_shaped_score_is_not_named_as_a_verdict(tmp_path, scores, is_said):
    row = {"input": "3+4", "output": r"\boxed{7}", "gts": "7"}
    log = read_log(
        [json_lines(tmp_path / "1.jsonl", *(row | {"score": it} for it in scores))]
    )
    assert "score as reward" in log.notes[0]
    assert ("score as is_correct" in log.notes[0]) == is_said
    assert "is_correct" not in log.rows.columns
    is_useless = "Rewards have 5 different values, so they do not say" in " ".join(
        log.notes
    )
    assert is_useless == (len(scores) > 4) == ("is_rewarded" not in log.rows.columns)


@pytest.mark.skipif(not LOGS.exists(), reason="the cases are not beside this clone")
@each(
    "place, trainer, rows",
    ("prime_real", "prime-rl", 32),
    ("nemo_val2", "NeMo-RL", 64),
    ("nemo_val2/*.jsonl", "NeMo-RL", 64),
    ("inspect.json", "inspect_ai", 8),
    ("opencompass.json", "OpenCompass", 8),
    ("evalscope", "evalscope", 8),
)
def test_logs_as_they_are_published_are_read(place, trainer, rows):
    log = read_log([LOGS / place])
    assert (log.trainer, len(log.rows)) == (trainer, rows)


def test_files_of_likelihoods_are_named_beside_others_and_alone(tmp_path):
    likelihoods = {"label: A": {"PPL": 1.5}, "origin_prompt": "3+4", "prediction": "A"}
    place = written(tmp_path, {"0": likelihoods}, "choices.json")
    why = "no rows, or likelihoods of given answers in place of responses"
    assert f"{tmp_path} has {why}" in refusal(read_log, [tmp_path])
    said = {"origin_prompt": "3+4", "prediction": r"\boxed{7}", "gold": "7"}
    written(tmp_path, {"0": said}, "sums.json")
    assert f"{place} is left out: {why}." in read_log([tmp_path]).notes


@each(
    "name, stored",
    ("is_correct", [True, False, None]),
    ("reward", [1.0, 0.0, None]),
    ("truncated", [True, False, None]),
)
def test_a_verdict_inside_an_object_may_be_true_or_false(tmp_path, name, stored):
    rows = [
        {
            "prompt": "What?",
            "label": "7",
            "response": "7",
            "step": 1,
            "judge": {"says": says},
        }
        for says in (True, False, None)
    ]
    log = read_log(
        [json_lines(tmp_path / "log.jsonl", *rows)], columns={name: "judge.says"}
    )
    assert log.rows[name].to_list() == stored
