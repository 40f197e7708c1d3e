"""A trainer's rows are found by the question that they ask (R24)."""

import pyarrow as pa
import pytest
from cases import refusal
from samples import SAME_QUESTION, questions

from olr_cli.data.questions import normal_question
from olr_cli.errors import UserError
from olr_cli.recipe.schema import Recipe
from olr_cli.trainers.dataset import PromptIndex, row_turns


def index(*asked):
    rows = [{"prompt": prompt, "answer": str(at)} for at, prompt in enumerate(asked)]
    return PromptIndex(pa.Table.from_pylist(rows), Recipe(), "the data")


@pytest.mark.parametrize("form", SAME_QUESTION.values(), ids=SAME_QUESTION)
def test_a_row_is_found_in_every_form_of_its_question(form):
    prompts = index(*questions(12))
    for at, question in enumerate(questions(12)):
        turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": form(question)}]
        for prompt in (form(question), turns):
            assert prompts.of({"prompt": prompt}).given_label == str(at)
            assert normal_question(row_turns(prompt)) in prompts.questions


def test_rows_without_a_question_are_refused_where_a_trainer_samples_from_them():
    with pytest.raises(UserError, match=r"row 2 of the data, counted from 1 has no 'prompt'; remove such"):
        index("What is 1+1?", " ")


def test_rows_that_ask_one_question_are_told_apart_by_their_words():
    prompts = index("What is 1+1?", "what is 1 + 1")
    assert [prompts.of({"prompt": text}).given_label for text in ("what is 1 + 1", "What is 1+1?")] == [
        "1",
        "0",
    ]
    assert "more than one row with the prompt" in refusal(prompts.of, {"prompt": "WHAT IS 1+1"})
    assert "no row with the prompt" in refusal(prompts.of, {"prompt": "1"})
    with pytest.raises(UserError, match=r"2 rows have the prompt 'What is 1\+1\?'; remove all but one"):
        index("What is 1+1?", "what is 1 + 1", "What is 1+1?")
