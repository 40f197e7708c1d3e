"""A trainer's rows are found by the question that they ask (R24)."""

from types import SimpleNamespace

import pyarrow as pa
import pytest
from cases import each, refusal
from samples import SAME_QUESTION, questions

from olr_cli.api import OnlineLabelRefinement
from olr_cli.data.questions import normal_question
from olr_cli.errors import UserError
from olr_cli.recipe.methods import METHODS
from olr_cli.recipe.schema import Recipe
from olr_cli.trainers.dataset import PromptIndex, begin, grade_held_out
from olr_cli.trainers.grading import row_turns
from olr_cli.trainers.trl import _settings


def index(*asked):
    rows = [{"prompt": prompt, "answer": str(at)} for at, prompt in enumerate(asked)]
    return PromptIndex(pa.Table.from_pylist(rows), Recipe(), "the data")


@pytest.mark.parametrize("form", SAME_QUESTION.values(), ids=SAME_QUESTION)
def test_a_row_is_found_in_every_form_of_its_question(form):
    prompts = index(*questions(12))
    for at, question in enumerate(questions(12)):
        turns = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": form(question)},
        ]
        for prompt in (form(question), turns):
            assert prompts.of({"prompt": prompt}).given_label == str(at)
            assert normal_question(row_turns(prompt)) in prompts.questions


def test_rows_without_a_question_are_refused_where_a_trainer_samples_from_them():
    with pytest.raises(
        UserError, match=r"row 2 of the data, counted from 1 has no 'prompt'; remove such"
    ):
        index("What is 1+1?", " ")


def test_rows_that_ask_one_question_are_told_apart_by_their_words():
    prompts = index("What is 1+1?", "what is 1 + 1")
    assert [
        prompts.of({"prompt": text}).given_label
        for text in ("what is 1 + 1", "What is 1+1?")
    ] == [
        "1",
        "0",
    ]
    assert "more than one row with the prompt" in refusal(
        prompts.of, {"prompt": "WHAT IS 1+1"}
    )
    assert "no row with the prompt" in refusal(prompts.of, {"prompt": "1"})
    with pytest.raises(
        UserError, match=r"2 rows have the prompt 'What is 1\+1\?'; remove all but one"
    ):
        index("What is 1+1?", "what is 1 + 1", "What is 1+1?")


@each("top_k, expected", (-1, None), (0, None), (None, None), (50, 50))
def test_trls_ways_to_say_that_all_tokens_are_drawn_from_are_one(top_k, expected):
    arguments = SimpleNamespace(
        **{
            "lr_scheduler_type": SimpleNamespace(value="linear"),
            "get_warmup_steps": lambda steps: 0,
        },
        **{
            "generation_batch_size": 8,
            "num_generations": 4,
            "per_device_train_batch_size": 4,
            "world_size": 1,
        },
        **{
            "gradient_accumulation_steps": 2,
            "learning_rate": 1e-6,
            "beta": 0.0,
            "epsilon": 0.2,
            "epsilon_high": 0.2,
        },
        **{
            "loss_type": "grpo",
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": top_k,
            "min_p": None,
        },
        max_completion_length=None,
    )
    settings = _settings(
        arguments, SimpleNamespace(num_train_epochs=1, max_steps=2), model=None
    )
    assert settings["train"]["top_k"] == expected
    with OnlineLabelRefinement(settings=settings) as olr:
        assert olr.recipe.train.top_k == expected


@each("label", None, "__NoCorrectAnswer__", "N/A")
def test_evaluation_data_without_a_gold_are_refused(label):
    row = {"prompt": "What is 1+1?", "answer": label}
    with OnlineLabelRefinement() as olr:
        assert "neither a true answer nor a clean label" in refusal(
            grade_held_out, olr, [row], ["N/A"]
        )


@each("method", *METHODS)
def test_a_reward_function_has_responses_alone(tmp_path, method):
    keys = {"name": method, **({"keep_fraction": 0.5} if "selection" in method else {})}
    table = pa.table({"prompt": ["What is 1+1?"], "answer": ["2"]})
    words = {"recipe": {"method": keys}, "trainer": "x 1", "settings": {}}
    words |= {"table": table, "place": "the data"}
    if method in ("grpo", "olr", "ttrl"):  # which have only responses, and no other loss
        olr, prompts = begin(tmp_path / "run", **words)
        assert (olr.recipe.method.name, olr.recipe.engine.trainer) == (method, "x 1")
        assert [prompt.given_label for prompt in prompts.prompts] == ["2"]
    else:
        assert f"method {method} needs more than a reward function gives" in refusal(
            begin, tmp_path / "run", **words
        )


def test_likely_mistakes_are_printed_when_a_trainer_begins(tmp_path, capsys):
    table = pa.table({"prompt": ["What is 1+1?"], "answer": ["2"]})
    settings = {"train": {"rollouts_per_prompt": 2}}
    words = {"recipe": {}, "trainer": "x 1", "table": table, "place": "the data"}
    begin(tmp_path / "run", settings=settings, **words)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("Warning: train.rollouts_per_prompt 2 makes a poor vote")
