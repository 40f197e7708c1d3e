"""The built-in tasks, the toys' and the few-shot ones: answers are right, and splits never meet."""

import re
from itertools import combinations
from math import prod

import numpy as np
import pytest
from cases import each
from hypothesis import given, settings, strategies as st

from olr_cli.answers import ARITHMETIC_SOURCES, default_extractor, extract
from olr_cli.data.arithmetic import (
    OPERATIONS,
    SETS,
    SOURCE,
    SPLIT_ENDS,
    Expression,
    arithmetic_prompts,
    expressions,
    parse_source,
    rephrasing,
    split_members,
)
from olr_cli.data.chat import Message
from olr_cli.data.few_shot import FEW_SHOT, FEW_SHOT_SPLIT_ENDS, split_questions
from olr_cli.data.prompt_files import read_prompts
from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import find_benchmark
from olr_cli.evaluation.problems import load_problems

kinds = st.sampled_from(list(OPERATIONS))
splits = st.sampled_from(list(SPLIT_ENDS))
seeds = st.integers(0, 2**32)


@settings(max_examples=10)
@given(kinds, st.integers(1, 50), seeds, splits)
def test_prompts_are_valid_distinct_and_answered(kind, size, seed, split):
    prompts = arithmetic_prompts(kind, size, seed, split)
    assert len({prompt.prompt_id for prompt in prompts}) == size
    for prompt in prompts:
        (message,) = prompt.messages
        assert message.role == "user"
        left, right = map(
            int, message.content.removesuffix("=").split(OPERATIONS[kind].symbol)
        )
        assert 100 <= right <= 999 and 100 <= left <= 999
        expression = Expression(kind, left, right)
        assert expression.index in split_members(kind, split)
        assert (
            expression.text == message.content and str(expression.index) == prompt.prompt_id
        )
        expected = left + right if kind == "addition" else left - right
        assert prompt.true_answer == prompt.given_label == str(expected)
        assert (prompt.noise_type, prompt.data_source) == ("clean", f"arithmetic-{kind}")


def test_the_data_sources_of_the_task_are_the_ones_its_answers_are_known_by():
    of_prompts = {arithmetic_prompts(kind, 1, 0, "train")[0].data_source for kind in SETS}
    assert {SOURCE, *of_prompts} == ARITHMETIC_SOURCES


@pytest.mark.parametrize("kind", OPERATIONS)
def test_the_splits_are_disjoint_for_every_seed_and_hold_every_expression_with_a_carry(
    kind,
):
    members = {split: set(split_members(kind, split).tolist()) for split in SPLIT_ENDS}
    assert all(not members[one] & members[other] for one, other in combinations(members, 2))
    # Addition: 900 * 900 less those without carry (36 leading pairs, 55 in each other column).
    # Subtraction: 900 * 899 / 2 less those without borrow (45 * 55 * 55, equal operands excepted).
    total = {
        "addition": 810_000 - 36 * 55 * 55,
        "subtraction": 404_550 - (45 * 55 * 55 - 900),
    }[kind]
    assert sum(map(len, members.values())) == total
    assert len(members["train"]) / total == pytest.approx(0.8, abs=0.005)
    assert len(members["test"]) / total == pytest.approx(0.1, abs=0.005)


@settings(max_examples=10)
@given(kinds, seeds, splits, st.integers(0, 30), st.integers(0, 30))
def test_a_larger_set_begins_with_the_smaller_one_and_both_are_of_their_split(
    kind, seed, split, size, more
):
    large = expressions(kind, size + more, seed, split)
    assert large[:size] == expressions(kind, size, seed, split)
    assert np.isin(
        [expression.index for expression in large], split_members(kind, split)
    ).all()


def test_a_whole_split_can_be_had_but_no_more():
    size = len(split_members("subtraction", "test"))
    assert len(expressions("subtraction", size, 1, "test")) == size
    with pytest.raises(UserError, match=rf"has {size} prompts, not {size + 1}"):
        arithmetic_prompts("subtraction", size + 1, 1, "test")


@settings(max_examples=10)
@given(kinds, seeds, splits)
def test_a_rephrasing_is_another_expression_of_the_split_with_the_same_answer(
    kind, seed, split
):
    pairs = [(e, rephrasing(e, split)) for e in expressions(kind, 40, seed, split)]
    found = [(e, other) for e, other in pairs if other is not None]
    assert len(found) >= 38  # a few are alone with their answer
    for expression, other in found:
        assert other != expression and other.kind == kind
        assert 100 <= other.left <= 999 and 100 <= other.right <= 999
        assert other.answer == expression.answer
    assert np.isin([other.index for _, other in found], split_members(kind, split)).all()


@pytest.mark.parametrize("kind", OPERATIONS)
def test_nothing_of_the_test_split_reaches_training_through_a_rephrasing(kind):
    prompts = arithmetic_prompts(kind, 3000, 0, "train")
    asked = {turn.content for prompt in prompts for turn in prompt.turns("rephrased")}
    held_out = {
        Expression(kind, *divmod(int(index), 1000)).text
        for split in ("validation", "test")
        for index in split_members(kind, split)
    }
    assert len(asked) > 2900 and not asked & held_out


def test_a_rephrasing_regroups_and_does_not_only_commute():
    pairs = [(e, rephrasing(e, "train")) for e in expressions("addition", 2000, 0, "train")]
    assert all({e.left, e.right} != {other.left, other.right} for e, other in pairs)


def test_where_nothing_can_be_regrouped_an_addition_is_commuted():
    """Of the answer 228, the training split has no other expression."""
    one, other = Expression("addition", 109, 119), Expression("addition", 119, 109)
    assert (rephrasing(one, "train"), rephrasing(other, "train")) == (other, one)


@each(
    "kind, left, right",
    ("addition", 108, 109),
    ("addition", 109, 109),
    ("addition", 999, 999),
    ("subtraction", 970, 109),
)
def test_an_expression_alone_with_its_answer_in_its_split_has_no_rephrasing(
    kind, left, right
):
    expression = Expression(kind, left, right)
    assert np.isin(expression.index, split_members(expression.kind, "train"))
    assert rephrasing(expression, "train") is None


@settings(max_examples=10)
@given(kinds, seeds, st.integers(1, 40), splits)
def test_a_rephrasing_depends_on_the_expression_alone(kind, seed, size, split):
    prompts = arithmetic_prompts(kind, size, seed, split)
    for prompt in prompts:
        other = rephrasing(Expression(kind, *divmod(int(prompt.prompt_id), 1000)), split)
        assert prompt.rephrased == (other and (Message("user", other.text),))


@each(
    "source, kind",
    ("arithmetic", "addition"), ("arithmetic:addition", "addition"), ("arithmetic:subtraction", "subtraction"),
    ("arithmetic.parquet", None), ("data/arithmetic", None), ("owner/dataset", None),
)  # fmt: skip
def test_a_source_names_a_built_in_kind_or_something_else(source, kind):
    assert parse_source(source) == kind


@pytest.mark.parametrize("source", ["arithmetic:subtracton", "arithmetic:"])
def test_an_unknown_kind_is_refused_with_the_known_ones_and_the_closest(source):
    known = "arithmetic:addition, arithmetic:subtraction, arithmetic:products"
    with pytest.raises(UserError, match=known) as e:
        parse_source(source)
    assert ("did you mean 'subtraction'" in str(e.value)) == (source != "arithmetic:")


# Few-shot tasks -------------------------------------------------------------------------------------------------------

SOLVE = {
    "products": prod,
    "sums": sum,
    "maxima": max,
    "dates": lambda parts: max([*parts][::2]),
}
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
            assert (
                len(examples) == 3
                and line[-1] in "=:"
                and not any(line in known for known in examples)
            )
            assert SOLVE[name](map(int, re.findall(r"\d+", line))) == int(
                prompt.true_answer
            )
        assert prompt.given_label == prompt.true_answer and prompt.noise_type == "clean"
        extractor = default_extractor(prompt.data_source)
        assert (
            extract(f" {prompt.true_answer}\n9 + 9 = 18", extractor) == prompt.true_answer
        )


@every_task
def test_no_question_is_in_two_splits_not_even_in_another_order(name):
    asked = {
        split: {tuple(sorted(q)) for q in split_questions(name, split)}
        for split in FEW_SHOT_SPLIT_ENDS
    }
    assert all(not asked[one] & asked[other] for one, other in combinations(asked, 2))
    assert all(len(questions) > 15 for questions in asked.values())


@every_task
def test_the_seed_draws_the_order_and_a_larger_size_only_adds(name):
    def ids(limit, seed):
        return [
            p.prompt_id
            for p in read_prompts(f"arithmetic:{name}", limit=limit, seed=seed).prompts
        ]

    assert ids(90, 3)[:40] == ids(40, 3) != ids(40, 4)
    with pytest.raises(
        UserError, match=f"the train split of arithmetic:{name} has .* prompts, not 9999"
    ):
        ids(9999, 3)


@every_task
def test_the_test_split_is_a_benchmark(name):
    benchmark = find_benchmark(f"arithmetic-{name}")
    assert len(load_problems(benchmark)) == benchmark.problems
