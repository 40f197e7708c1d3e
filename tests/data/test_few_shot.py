"""Few-shot tasks: right answers, examples that give none away, and splits that no question crosses."""

import re
from itertools import combinations
from math import prod

import pytest

from olr_cli.answers import default_extractor, extract
from olr_cli.data.few_shot import FEW_SHOT, FEW_SHOT_SPLIT_ENDS, split_questions
from olr_cli.data.prompt_files import read_prompts
from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import find_benchmark
from olr_cli.evaluation.problems import load_problems

SOLVE = {"products": prod, "sums": sum, "maxima": max}
every_task = pytest.mark.parametrize("name", FEW_SHOT)


@every_task
@pytest.mark.parametrize("split", FEW_SHOT_SPLIT_ENDS)
def test_questions_go_on_from_solved_lines_and_have_the_right_answer(name, split):
    prompts = read_prompts(f"arithmetic:{name}", split=split).prompts
    assert len(prompts) == min(400, len(split_questions(name, split)))
    assert len({prompt.prompt_id for prompt in prompts}) == len(prompts)
    for prompt in prompts:
        for turns in filter(None, (prompt.messages, prompt.rephrased)):
            (message,) = turns
            *examples, line = message.content.split("\n")
            assert len(examples) == 3 and line.endswith("=") and not any(line in known for known in examples)
            assert SOLVE[name](map(int, re.findall(r"\d+", line))) == int(prompt.true_answer)
        assert prompt.given_label == prompt.true_answer and prompt.noise_type == "clean"
        extractor = default_extractor(prompt.data_source)
        assert extract(f" {prompt.true_answer}\n9 + 9 = 18", extractor) == prompt.true_answer


@every_task
def test_no_question_is_in_two_splits_not_even_in_another_order(name):
    asked = {split: {tuple(sorted(q)) for q in split_questions(name, split)} for split in FEW_SHOT_SPLIT_ENDS}
    assert all(not asked[one] & asked[other] for one, other in combinations(asked, 2))
    assert all(len(questions) > 15 for questions in asked.values())


@every_task
def test_the_seed_draws_the_order_and_a_larger_size_only_adds(name):
    def ids(limit, seed):
        return [p.prompt_id for p in read_prompts(f"arithmetic:{name}", limit=limit, seed=seed).prompts]

    assert ids(90, 3)[:40] == ids(40, 3) != ids(40, 4)
    with pytest.raises(UserError, match=f"the train split of arithmetic:{name} has .* prompts, not 9999"):
        ids(9999, 3)


@every_task
def test_the_test_split_is_a_benchmark(name):
    benchmark = find_benchmark(f"arithmetic-{name}")
    assert len(load_problems(benchmark)) == benchmark.problems
