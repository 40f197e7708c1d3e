"""Logs of other trainers: TRL's as its trainer wrote them, the others' as their sources write them."""

import json
from pathlib import Path

import polars as pl
import pytest
from cases import each, refusal
from samples import json_lines

from olr_cli.data.chat import Message
from olr_cli.data.logs import read_log
from olr_cli.data.prompts import Prompt
from olr_cli.data.questions import question_of, same_prompts
from olr_cli.errors import UserError

TRL = Path(__file__).parents[1] / "fixtures" / "logs" / "trl"
CHAT = "system\nYou are helpful.\nuser\n{}\nassistant\n"


def verl(
    step: int, *rows: tuple[str, str, str, float], **more: object
) -> list[dict[str, object]]:
    """As `_dump_generations` (verl/trainer/ppo/ray_trainer.py) writes a step: input, output, gts, score, step."""
    names = ("input", "output", "gts", "score")
    return [
        {
            **dict(zip(names, (CHAT.format(question), *others), strict=True)),
            "step": step,
            **more,
        }
        for question, *others in rows
    ]


def answers(log, question: str) -> list[list[str | None]]:
    """The answers to a question, visit by visit."""
    (name,) = (
        name for name, turns in log.questions.items() if question_of(turns) == question
    )
    rows = log.rows.filter(prompt_id=name).sort("visit", maintain_order=True)
    return [
        part["answer"].to_list() for part in rows.partition_by("visit", maintain_order=True)
    ]


# TRL --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text", "messages"])
def test_completions_of_trl_are_groups_of_four_visits_counted_by_step(kind):
    log = read_log([TRL / kind], extractor="reversed_digits")
    raw = pl.concat([pl.read_parquet(file) for file in sorted((TRL / kind).iterdir())])
    assert (log.trainer, len(log.rows)) == ("TRL", len(raw))
    assert log.rows["step"].to_list() == raw["step"].to_list()
    groups = log.rows.group_by("prompt_id", "visit").len()
    assert groups["len"].unique().to_list() == [4]
    assert len(log.questions) == 24 and log.rows["visit"].max() == raw["step"].max() // 2
    assert log.rows["is_rewarded"].to_list() == (raw["accuracy_reward"] == 1).to_list()
    assert (
        "completion as response" in log.notes[0]
        and "told apart by their text" in log.notes[0]
    )


def test_several_reward_functions_add_up_and_the_one_about_answers_is_the_verdict():
    log = read_log([TRL / "messages"], extractor="reversed_digits")
    raw = pl.read_parquet(TRL / "messages" / "*.parquet")
    both = raw["accuracy_reward"] + raw["format_reward"]
    assert log.rows["reward"].to_list() == pytest.approx(both.to_list())
    assert log.rows["given_label"].to_list() == raw["solution"].to_list()
    by_label = log.rows.filter(is_rewarded=True)
    assert by_label["answer"].to_list() == by_label["given_label"].to_list()
    assert "accuracy_reward + format_reward as reward" in log.notes[0]


def test_rollouts_that_trl_logs_in_two_steps_count_once():
    log = read_log([TRL / "iterations"], extractor="reversed_digits")
    assert log.rows["step"].unique().sort().to_list() == [1, 3]
    assert len(log.rows) == 2 * 48
    assert (
        "2 steps (the first is 2) logged the rollouts of the step before once more"
        in log.notes[1]
    )


def test_the_folder_a_trainer_was_given_a_pattern_and_all_files_by_name_are_the_same_log(
    tmp_path,
):
    (tmp_path / "completions").symlink_to(TRL / "text")
    files = sorted((TRL / "text").iterdir(), reverse=True)
    logs = [
        read_log(places) for places in ([tmp_path], [TRL / "text" / "*.parquet"], files)
    ]
    assert logs[0].rows.equals(logs[1].rows) and logs[0].rows.equals(logs[2].rows)
    assert [log.source for log in logs[1:]] == [TRL / "text"] * 2


# verl, verifiers, prime-rl ------------------------------------------------------------------------------------------


def test_dumps_of_verl_are_one_file_a_step_in_the_order_of_their_numbers(tmp_path):
    for step in (2, 10, 1):
        rows = verl(
            step,
            ("3+4", rf"so \boxed{{{step}}}", "7", -1.0),
            ("3+4", r"\boxed{7}", "7", 1.0),
        )
        json_lines(tmp_path / f"{step}.jsonl", *rows)
    log = read_log([tmp_path])
    assert answers(log, "3+4") == [["1", "7"], ["2", "7"], ["10", "7"]]
    assert log.rows["given_label"].unique().to_list() == ["7"]
    assert log.rows["is_rewarded"].to_list() == [False, True] * 3


def test_verls_accuracy_goes_before_a_shaped_score(tmp_path):
    scores = [0.1, 0.2, 0.35, 0.4, 0.9]
    rows = [verl(1, ("3+4", "x", "7", score), acc=score > 0.3)[0] for score in scores]
    log = read_log([json_lines(tmp_path / "1.jsonl", *rows)])
    assert log.rows["is_rewarded"].to_list() == [False, False, True, True, True]
    rows = [verl(1, ("3+4", "x", "7", score))[0] for score in scores]
    shaped = read_log([json_lines(tmp_path / "2.jsonl", *rows)])
    assert "is_rewarded" not in shaped.rows.columns, (
        "a score says nothing of right and wrong"
    )


def test_several_groups_of_a_prompt_in_a_step_are_visits_and_two_labels_are_two_prompts(
    tmp_path,
):
    step = [("3+4", rf"\boxed{{{n}}}", "7", 0.0) for n in range(4)]
    others = [(f"{n}+1", r"\boxed{1}", "1", 1.0) for n in (5, 6) for _ in range(2)]
    labels = [
        ("8+8", r"\boxed{16}", label, 1.0) for label in ("16", "17") for _ in range(2)
    ]
    log = read_log([json_lines(tmp_path / "1.jsonl", *verl(1, *step, *others, *labels))])
    assert answers(log, "3+4") == [["0", "1"], ["2", "3"]]
    twice = log.rows.filter(pl.col("given_label").is_in(["16", "17"]))
    assert twice["prompt_id"].n_unique() == 2 and twice["visit"].to_list() == [1] * 4
    assert "several groups of 2 rollouts of one prompt once" in " ".join(log.notes)
    assert "1 prompt has different labels and counts once for each label." in log.notes


def test_results_of_verifiers_and_the_rollouts_of_prime_rl_are_read_from_their_folders(
    tmp_path,
):
    """`state_to_output` of verifiers, saved by prime-rl as rollouts/step_N/train_rollouts.jsonl."""
    for step in (1, 2, 10):
        for name in ("train", "eval"):
            row = {
                "example_id": 4,
                "prompt": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "3+4"},
                ],
                "completion": [
                    {
                        "role": "assistant",
                        "content": rf"\boxed{{{step}}}",
                        "tool_calls": None,
                    }
                ],
                "answer": "7",
                "reward": float(name == "train"),
                "is_truncated": False,
                "token_usage": {"input_tokens": 9.0, "output_tokens": 5.0},
            }
            failed = row | {"completion": None, "error": {"error": "timeout"}}
            json_lines(
                tmp_path / "rollouts" / f"step_{step}" / f"{name}_rollouts.jsonl",
                row,
                failed,
            )
    log = read_log([tmp_path])
    assert (log.trainer, answers(log, "3+4")) == ("verifiers", [["1"], ["2"], ["10"]])
    assert log.rows["step"].to_list() == [1, 2, 10]
    assert (
        log.rows["tokens"].to_list() == [5, 5, 5]
        and log.rows["reward"].to_list() == [1.0] * 3
    )


@pytest.mark.parametrize("place", [".", "rollout", "rollout/[0-9]*/*.jsonl"])
def test_areal_stores_a_file_a_task_in_the_folder_of_a_version(tmp_path, place):
    """[rollout|eval-rollout]/VERSION/TASK.jsonl, of AReaL's page on rollout workflows."""
    for version in (9, 10):
        for task in (1, 2):  # which ask the same here, as a data set may
            row = {
                "task_id": version + task,
                "prompt": CHAT.format("3+4"),
                "head_version": version - 1,
            }
            rows = [
                row
                | {
                    "sample_idx": at,
                    "completion": rf"\boxed{{{version + task}}}<|im_end|>",
                    "reward": 0.0,
                }
                for at in range(2)
            ]
            for kind in ("rollout", "eval-rollout"):
                json_lines(tmp_path / kind / str(version) / f"{version}{task}.jsonl", *rows)
    log = read_log([tmp_path / place])
    assert (log.trainer, answers(log, "3+4")) == (
        "AReaL",
        [[str(n)] * 2 for n in (10, 11, 11, 12)],
    )


# Any other --------------------------------------------------------------------------------------------------------


def test_ms_swift_stores_a_line_a_step_with_a_list_of_every_column(tmp_path):
    """`self.jsonl_writer.append(table)` of its GRPOTrainer (swift/rlhf_trainers/grpo_trainer.py)."""
    same = {"MathAccuracy": [0.0, 1.0], "advantages": [-1.0, 1.0], "solution": ["7", "7"]}
    same["prompt"] = [CHAT.format("3+4")] * 2
    steps = [
        {
            "step": [str(step)] * 2,
            "completion": [rf"\boxed{{{step}}}", r"\boxed{7}"],
            **same,
        }
        for step in (1, 2)
    ]
    log = read_log([json_lines(tmp_path / "completions.jsonl", *steps)])
    assert (log.trainer, answers(log, "3+4")) == ("ms-swift", [["1", "7"], ["2", "7"]])
    assert log.rows["is_rewarded"].to_list() == [False, True] * 2
    assert set(log.rows["given_label"]) == {"7"}


def test_nemo_rl_stores_a_file_a_step_with_the_response_as_the_last_text(tmp_path):
    """`log_batched_dict_as_jsonl` (nemo_rl/utils/logger.py): every value is a list of one; the index is not."""
    for step in (2, 10):
        rows = [
            {
                "content": [["3+4", rf"\boxed{{{answer}}}"]],
                "rewards": [float(answer == 7)],
                "idx": at,
            }
            for at, answer in enumerate((step, 7))
        ]
        json_lines(tmp_path / f"train_data_step{step}.jsonl", *rows)
    log = read_log([tmp_path])
    assert (log.trainer, answers(log, "3+4")) == ("NeMo-RL", [["2", "7"], ["10", "7"]])
    assert log.rows["is_rewarded"].to_list() == [False, True] * 2


def test_lm_eval_stores_a_line_for_each_filter_of_a_problem_with_all_its_responses() -> (
    None
):
    """Its folder has a file a task; tasks of likelihoods have no responses."""
    log = read_log([TRL.parent / "lm-eval"])
    assert (log.trainer, len(log.questions)) == ("lm-eval", 4 + 2)
    assert answers(
        log, "12 = \\boxed{12}\n1/3 = \\boxed{1/3}\n2.0 = \\boxed{2.0}\n1/2 ="
    ) == [["1/2", "1/2"]]
    assert log.rows.group_by("prompt_id").len()["len"].sort().to_list() == [
        1,
        1,
        2,
        2,
        2,
        2,
    ]
    assert {"5", "0.5", "3"} < set(log.rows["given_label"])


def test_a_table_may_say_what_is_right_beside_what_was_rewarded_in_numbers_or_true_and_false(
    tmp_path,
):
    row = {"prompt": "3+4", "response": r"\boxed{7}", "step": 1, "is_correct": True}
    for rewards in ((0.0, 1.0), (False, True)):
        file = json_lines(
            tmp_path / "log.jsonl", *(row | {"reward": reward} for reward in rewards)
        )
        rows = read_log([file]).rows
        assert rows["is_correct"].to_list() == [True, True]
        assert (rows["is_rewarded"].to_list(), rows["reward"].to_list()) == (
            [False, True],
            [0, 1],
        )


OTHER = {"query": "3+4", "generation": [r"\boxed{7}"], "meta": {"gold": 7}, "passed": 1}


def test_columns_can_be_named_also_those_in_an_object_or_a_list(tmp_path):
    file = json_lines(
        tmp_path / "log.jsonl", OTHER, OTHER | {"generation": [r"\boxed{8}"], "passed": 0}
    )
    names = {"prompt": "query", "response": "generation.0", "given_label": "meta.gold"}
    names["is_correct"] = "passed"
    log = read_log([file], names)
    assert answers(log, "3+4") == [["7", "8"]]
    assert set(log.rows["given_label"]) == {"7"} and log.rows["is_correct"].to_list() == [
        True,
        False,
    ]


@each(
    "columns, message",
    ({}, "its columns are query, generation, meta, passed; say which of them it is, as in"),
    (
        {"prompt": "query"},
        "has no column response; its columns are query, generation, meta, passed",
    ),
    ({"prompt": "question"}, "has no 'question'; its columns are"),
    (
        {"prompt": "query", "response": "meta.none"},
        "has no 'meta.none' (did you mean 'meta.gold'?)",
    ),
    (
        {"prompt": "meta", "response": "generation.0"},
        "line 1 of {file}: 'meta' is a dict, and it should",
    ),
)
def test_columns_that_are_missing_are_listed_with_the_option_written_out(
    tmp_path, columns, message
):
    file = json_lines(tmp_path / "log.jsonl", OTHER)
    assert message.replace("{file}", str(file)) in refusal(read_log, [file], columns)


def test_logs_of_two_trainers_are_not_mixed(tmp_path):
    one = json_lines(tmp_path / "1.jsonl", *verl(1, ("3+4", "x", "7", 1.0)))
    other = json_lines(
        tmp_path / "2.jsonl", {"example_id": 1, "prompt": "3+4", "completion": "x"}
    )
    with pytest.raises(
        UserError, match=r"looks like a log of verifiers, and .* like one of verl"
    ):
        read_log([one, other])


@pytest.mark.parametrize("name", ["given_label", "ground_truth", "gold_answer", "label"])
@each(
    "row",
    {"prompt": "3+4", "response": "x", "step": 1},
    {"task_id": 1, "sample_idx": 0, "prompt": "3+4", "completion": "x"},
    {"content": [["3+4", "x"]], "rewards": [1.0], "idx": 1},
    {"input": "3+4", "output": "x", "score": 1.0, "gts": None},
)
def test_a_column_that_is_called_like_labels_is_the_label_in_every_log(tmp_path, row, name):
    log = read_log([json_lines(tmp_path / "1.jsonl", row | {name: "7"})])
    assert log.rows["given_label"].to_list() == ["7"]
    assert name == "given_label" or f"{name} as given_label" in log.notes[0]


@each(
    "cell, label",
    ('["7"]', "7"),
    (["7"], "7"),
    ("3 + 4 = 7\n#### 7", "7"),
    ("<answer> 7 </answer>", "7"),
    ('["7", "8"]', '["7", "8"]'),
)
def test_a_label_of_a_log_is_read_as_in_a_file_of_prompts(tmp_path, cell, label):
    log = read_log([json_lines(tmp_path / "1.jsonl", *verl(1, ("3+4", "x", cell, 1.0)))])
    assert log.rows["given_label"].to_list() == [label]


def test_a_label_that_says_yes_or_no_is_none(tmp_path):
    row = {"prompt": "3+4", "response": r"\boxed{7}", "step": 1}
    log = read_log(
        [json_lines(tmp_path / "1.jsonl", row | {"label": None}, row | {"label": True})]
    )
    assert "given_label" not in log.rows.columns and log.notes == []


# What a kill or a failure leaves ----------------------------------------------------------------------------------


# Of the bytes of a line; -4 is within a character
@pytest.mark.parametrize("left", [1, -9, -4])
def test_a_last_line_that_a_kill_has_cut_is_a_note(tmp_path, left):
    row = json.dumps(
        verl(1, ("3+4", r"\boxed{7}", "七", 1.0))[0] | {"extra": "七"}, ensure_ascii=False
    ).encode()
    cut = tmp_path / "1.jsonl"
    cut.write_bytes(row + b"\n" + row + b"\n" + row[:left])
    cut.with_name("2.jsonl").write_bytes(row)
    log = read_log([tmp_path])
    assert len(log.rows) == 3
    assert (
        f"{cut} ends within line 3, as if its writer was killed; that line is left out."
        in log.notes
    )
    cut.write_bytes(row[:left] + b"\n" + row)
    assert "1.jsonl" in refusal(read_log, [tmp_path])
    with pytest.raises(UserError, match=r"no rows"):
        cut.write_bytes(row[:left])
        read_log([cut])


def test_rows_without_a_response_are_counted_whether_they_are_kept_or_not(tmp_path):
    failed = [{"input": CHAT.format("3+4"), "error": "timeout", "score": 0.0}] * 2
    log = read_log(
        [json_lines(tmp_path / "1.jsonl", *verl(1, ("3+4", "x", "7", 1.0)), *failed)]
    )
    assert len(log.rows) == 1
    assert log.notes[1] == "2 rows without a response left out, as of rollouts that failed."
    json_lines(tmp_path / "2.jsonl", *failed)  # all of a step
    json_lines(tmp_path / "3.jsonl", *verl(1, ("3+4", r"\boxed{7}", "7", 1.0)))
    log = read_log([tmp_path])
    assert len(log.rows) == 2 and log.notes[1].startswith(
        "4 rows without a response left out"
    )
    row = {"prompt": "3+4", "step": 1}
    log = read_log(
        [json_lines(tmp_path / "1.jsonl", row | {"response": r"\boxed{7}"}, row)]
    )
    assert len(log.rows) == 2 and log.notes == [
        "1 row without a response counted as rollouts without an answer."
    ]


# Questions --------------------------------------------------------------------------------------------------------


@each(
    "text",
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is 3+4?<|im_end|>\n<|im_start|>assistant\n",
    CHAT.format("What is 3+4?"),
    "<|start_header_id|>user<|end_header_id|>\n\nWhat is 3+4?<|eot_id|><|start_header_id|>assistant",
    "<s>[INST] What is 3+4? [/INST]",
    "<bos><start_of_turn>user\nWhat is 3+4?<end_of_turn>\n<start_of_turn>model\n",
    "A conversation between User and Assistant. User: What is 3+4?\nAssistant: <think>\n",
    "What is 3+4?",
)
def test_the_question_is_what_the_template_was_put_around(text):
    assert question_of([Message("user", text)]) == "What is 3+4?"


def test_prompts_are_matched_by_text_also_inside_a_longer_one_and_by_label():
    def prompt(name: str, text: str, label: str | None = None) -> Prompt:
        return Prompt(
            name, (Message("system", "Be brief."), Message("user", text)), label, None, None
        )

    data = [
        prompt("a", "What is 3+4?", "7"),
        prompt("b", "What is 3+4?", "8"),
        prompt("c", "1+2"),
        prompt("d", "1"),
    ]
    logged = [
        prompt("spaces", "What is\n3+4?", "8"),
        prompt("longer", "Solve: 1+2 = ?"),
        prompt("part", "Solve: 11+23"),
    ]
    same = same_prompts({one.prompt_id: one for one in logged}, data)
    assert {name: one.prompt_id for name, one in same.items()} == {
        "spaces": "b",
        "longer": "c",
    }


# Rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 20_000])  # at once, and more than are read at a time
def test_a_key_that_comes_late_counts_for_the_rows_before_it(tmp_path, count):
    one = {"step": 1, "response": "x", "question": "1+1"}
    late = one | {"question": "1+2", "prompt": "1+1", "noise_type": "clean"}
    file = json_lines(tmp_path / "log.jsonl", *[one] * count, late)
    noise = read_log([file], {"prompt": "question"}).rows["noise_type"].to_list()
    assert noise == [None] * count + ["clean"]
    # Prompt goes before question
    with pytest.raises(UserError, match="has rows without prompt_id"):
        read_log([file])


@each(
    "first, last, message",
    (
        {"reward": 1.0},
        {"reward": "high"},
        "line 2 of {file}: 'reward' is 'high', and it should",
    ),
    (
        {"given_label": None},
        {"given_label": ["1", "2"]},
        "line 2 of {file}: 'given_label' is a list",
    ),
    ({}, {"prompt": 3}, "line 2 of {file}: 'prompt' is a int, and it should be text"),
)
def test_a_row_is_named_with_its_number(tmp_path, first, last, message):
    row = {"step": 1, "response": "x", "prompt": "q"}
    file = json_lines(tmp_path / "log.jsonl", row | first, row | last)
    assert message.replace("{file}", str(file)) in refusal(read_log, [file])


def test_a_line_of_many_rollouts_is_named_as_the_line_that_it_is(tmp_path):
    lines = [
        {"step": 1, "prompt": ["q", "r"], "completion": ["x", text], "advantages": [1, 1]}
        for text in ("y", 5)
    ]
    with pytest.raises(UserError, match=r"line 2 of .*log\.jsonl: 'completion' is a int"):
        read_log([json_lines(tmp_path / "log.jsonl", *lines)])


def test_rows_are_numbered_through_the_parts_of_a_file(tmp_path):
    many = 70_000  # more than are read at a time
    columns = {
        "prompt": ["q"] * many,
        "response": ["x"] * many,
        "reward": ["1"] * (many - 1) + ["high"],
    }
    pl.DataFrame(columns).write_parquet(tmp_path / "log.parquet")
    with pytest.raises(
        UserError, match=rf"row {many} of .*, counted from 1: 'reward' is 'high'"
    ):
        read_log([tmp_path / "log.parquet"])


def test_a_table_of_texts_is_a_log_too(tmp_path):
    (tmp_path / "log.csv").write_text(
        "question,step,generation,reward\n3+4,1,so 7,1\n3+4,2,8,0\n"
    )
    log = read_log(
        [tmp_path / "log.csv"], {"response": "generation"}, extractor="last_number"
    )
    assert answers(log, "3+4") == [["7"], ["8"]] and log.rows["reward"].to_list() == [1, 0]


@pytest.mark.parametrize("name", ["completion", "response", "output"])
def test_an_answer_beside_responses_is_the_label(tmp_path, name):
    rows = [
        {"step": 1, "prompt": "1+1?", name: rf"\boxed{{{said}}}", "answer": "2"}
        for said in (2, 3, 2)
    ]
    log = read_log([json_lines(tmp_path / "log.jsonl", *rows)])
    assert log.rows["answer"].to_list() == ["2", "3", "2"]
    assert log.rows["given_label"].to_list() == ["2"] * 3
    assert "answer as given_label" in log.notes[0]
