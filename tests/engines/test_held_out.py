"""Accuracy on prompts that never train."""

import pytest
from samples import SAME_QUESTION, json_lines, questions

from olr_cli.answers import Judge
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.prompts import Prompt
from olr_cli.engines.held_out import held_out_accuracy
from olr_cli.engines.launch import run_warnings
from olr_cli.engines.run import DataSets
from olr_cli.recipe.schema import Recipe


def test_accuracy_is_measured_by_the_truth_else_by_a_label_that_is_no_noise():
    prompts = [
        Prompt("marked", (), "7", "12", "active_frozen"),
        Prompt("unknown", (), "1/2", None, None),
    ]
    responses = [
        ["\\boxed{12}", "\\boxed{12}", "\\boxed{7}"],
        ["\\boxed{0.5}", "none", "\\boxed{3}"],
    ]
    with Judge(workers=1) as judge:
        found = held_out_accuracy(prompts, responses, judge)
        # Shares 2/3 and 1/3: their standard deviation is 1/(3 sqrt 2), over sqrt 2 for two prompts.
        assert found == {
            "avg": 3 / 6,
            "majority": 1 / 2,
            "avg_stderr": pytest.approx(1 / 6),
        }


@pytest.mark.parametrize("form", SAME_QUESTION.values(), ids=SAME_QUESTION)
def test_held_out_questions_that_also_train_are_counted_in_every_form(tmp_path, form):
    """R24."""

    def prompts(name, asked):
        return read_prompts(
            json_lines(
                tmp_path / f"{name}.jsonl", *({"question": q, "answer": "1"} for q in asked)
            )
        )

    train, asked = prompts("train", questions(4)), list(map(form, questions(6)))
    data = DataSets(
        train, validation=prompts("validation", asked[2:]), test=prompts("test", asked[1:])
    )
    warnings = [
        text for text in run_warnings(Recipe(), data, "training") if "also train" in text
    ]
    assert [text.split(" also train")[0] for text in warnings] == [
        "2 prompts of data.validation",
        "3 prompts of data.test",
    ]
