"""Verified labels, from a file or drawn for a study (`data.trusted`)."""

import json

import pytest

from olr_cli.api import OnlineLabelRefinement
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.sets import training_prompts
from olr_cli.data.verified import VerifiedLabels
from olr_cli.errors import UserError
from olr_cli.recipe.layers import validate


def recipe(trusted, train="arithmetic", **noise):
    data = {"train": str(train), "trusted": trusted}
    return validate(
        {"data": data | ({"limit": 40} if train == "arithmetic" else {}), "noise": noise or None}, "test"
    )


def trusted_ids(prompts):
    return {prompt.prompt_id for prompt in prompts.prompts if prompt.is_trusted}


@pytest.fixture
def unknown(tmp_path):
    """Three questions with labels of unknown quality."""
    file = tmp_path / "mine.jsonl"
    rows = [{"id": name, "question": f"What is {name}?", "answer": "1"} for name in "abc"]
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def test_a_larger_draw_contains_a_smaller_one_and_noise_stays_where_it_was():
    noise = {"type": "active", "ratio": 0.5}
    few, many = (training_prompts(recipe(size, **noise)) for size in (5, 20))
    assert len(trusted_ids(few)) == 5
    assert trusted_ids(few) < trusted_ids(many)
    assert sum(p.is_marked for p in few.prompts) == 20
    assert few.digest != many.digest


def test_a_file_gives_the_true_answers_of_its_prompts(unknown, tmp_path):
    selection = tmp_path / "selection.json"
    rows = [
        {"prompt_id": "a", "verdict": "kept", "given_label": "1", "true_answer": None},
        {"prompt_id": "b", "verdict": "wrong", "given_label": "1", "true_answer": "2"},
        {"prompt_id": "c", "verdict": "wrong", "given_label": "1", "true_answer": None},
    ]
    selection.write_text(json.dumps(rows))
    prompts = training_prompts(recipe(str(selection), unknown)).prompts
    assert [(p.given_label, p.true_answer, p.is_trusted) for p in prompts] == [
        ("1", "1", True),
        ("1", "2", True),
        ("1", None, False),
    ]


def test_a_data_set_is_matched_by_its_questions(unknown, tmp_path):
    verified = tmp_path / "verified.jsonl"
    verified.write_text(json.dumps({"question": "what is b", "answer": "5"}))
    prompts = training_prompts(recipe(str(verified), unknown)).prompts
    assert [p.true_answer for p in prompts if p.is_trusted] == ["5"]
    assert [p.prompt_id for p in prompts if p.is_trusted] == ["b"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"prompt_id": "z", "true_answer": "1"}], "none of its prompts is among"),
        ([{"prompt_id": "a", "true_answer": None, "verdict": "wrong"}], "gives no true answer"),
        (
            [{"prompt_id": "a", "verdict": "maybe"}],
            "verdict on prompt a is 'maybe'; known: kept, wrong, unsure",
        ),
        (
            [{"prompt_id": "a", "true_answer": "1"}, {"prompt_id": "a", "true_answer": "2"}],
            "several true answers",
        ),
    ],
)
def test_files_that_verify_nothing_are_errors(unknown, tmp_path, rows, message):
    file = tmp_path / "verified.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError, match=message):
        training_prompts(recipe(str(file), unknown))


def test_no_more_can_be_drawn_than_are_known(unknown, tmp_path):
    with pytest.raises(UserError, match=r"the true answer is known of 0 prompts of mine\.jsonl"):
        training_prompts(recipe(2, unknown))
    with pytest.raises(UserError, match=r"data\.trusted names"):
        training_prompts(recipe(str(tmp_path / "nowhere.json"), unknown))


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_an_id_that_stands_for_two_questions_is_an_error_that_shows_both(tmp_path):
    """R23: two files with row numbers as ids; "What is 0+0?" had the verified label of another question."""
    train = lines(
        tmp_path / "train.jsonl",
        *({"id": n, "question": f"What is {n}+{n}?", "answer": "1"} for n in range(3)),
    )
    verified = lines(
        tmp_path / "verified.jsonl",
        *({"id": n, "question": f"What is {n}+7?", "answer": n + 7} for n in range(3)),
    )
    both = r"prompt_id 0 for 'What is 0\+7\?', and here it is 'What is 0\+0\?'; mend the ids"
    with pytest.raises(UserError, match=both):
        training_prompts(recipe(str(verified), train))
    labels = VerifiedLabels.read(verified)
    with pytest.raises(UserError, match=both):
        labels.mark(read_prompts(train).prompts)
    table = lines(tmp_path / "table.jsonl", {"prompt_id": 0, "question": "What is 0+7?", "true_answer": "7"})
    with pytest.raises(UserError, match=both):
        training_prompts(recipe(str(table), train))


def test_labels_are_counted_by_id_and_by_question_and_those_of_no_prompt_are_said(unknown, tmp_path):
    rows = [
        {"id": "a", "question": "what is A?"},
        {"id": "other", "question": "What is b"},
        {"id": "z", "question": "z"},
    ]
    verified = lines(tmp_path / "verified.jsonl", *(row | {"answer": "5"} for row in rows))
    prompts = training_prompts(recipe(str(verified), unknown))
    assert trusted_ids(prompts) == {"a", "b"}
    assert prompts.notes == [f"2 of 3 verified labels in {verified} are for 2 prompts here, 1 for none"]


def asked(path, **answers):
    """A data set of questions and answers without ids."""
    return lines(path, *({"question": question, "answer": answer} for question, answer in answers.items()))


def test_a_question_counts_whole_and_a_longer_one_is_another(tmp_path):
    train = asked(tmp_path / "train.jsonl", **{"3+4=": "1", "12-3+4=": "1", "Is it? And why?": "1"})
    verified = asked(tmp_path / "verified.jsonl", **{"3+4=": "7", "And why?": "7"})
    prompts = training_prompts(recipe(str(verified), train)).prompts
    assert [p.is_trusted for p in prompts] == [True, False, False]


def test_of_questions_that_differ_in_case_that_with_the_same_text_counts(tmp_path):
    train = asked(tmp_path / "train.jsonl", **{"Next to A": "1", "next to a": "1"})
    verified = asked(tmp_path / "verified.jsonl", **{"next to a": "B", "Next to A": "C"})
    prompts = training_prompts(recipe(str(verified), train)).prompts
    assert [(p.messages[-1].content, p.true_answer) for p in prompts] == [
        ("Next to A", "C"),
        ("next to a", "B"),
    ]
    other = asked(tmp_path / "other.jsonl", **{"NEXT to A": "1"})
    with pytest.raises(
        UserError, match="has the verified answers B and C for one question, 'NEXT to A'; leave"
    ):
        training_prompts(recipe(str(verified), other))


def test_labels_of_no_prompt_are_logged_where_another_trainer_runs(tmp_path, caplog):
    file = lines(tmp_path / "verified.jsonl", *({"prompt_id": n, "true_answer": "7"} for n in "ab"))
    with OnlineLabelRefinement(recipe={"data": {"trusted": str(file)}}) as olr:
        step = olr(["q"] * 2, [r"\boxed{7}", r"\boxed{8}"], ["8"] * 2, prompt_ids=["a"] * 2)
    assert step.rewards == (1.0, 0.0)
    (record,) = caplog.records
    assert record.getMessage().endswith(f"1 of 2 verified labels in {file} are for 1 prompt here, 1 for none")
