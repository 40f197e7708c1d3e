"""Columns decide every label as the supervisor does (R2 to R16), however a history is cut into blocks."""

import math
from dataclasses import fields

import polars as pl
import pyarrow as pa
import pytest
from cases import each
from hypothesis import given, strategies as st

from olr_cli.answers import Judge
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.prompts import NOISE_TYPES, Prompt
from olr_cli.recipe.layers import validate
from olr_cli.recipe.methods import METHODS
from olr_cli.runs.store import arrow_table
from olr_cli.supervision import (
    ColumnSupervisor,
    LabelRecord,
    RolloutRecord,
    Step,
    decides_in_columns,
    make_supervisor,
)
from olr_cli.supervision.types import arrow_schema

SPELLINGS = (
    None, SENTINEL, "N/A", "1/2", "0.5", r"\frac12", r"\frac{1}{2}", "50\\%", "50", "0.50", "7", "7.0", "07", "x=7",
    "8", "9", "10", "5", "5 cm", "five", "(1,2)", "(1, 2)", "x+1", "1+x", r"\notation{", "yes", "$7$",
)  # fmt: skip
"""Several for a class, of which some match and are of another class, and some cannot be read."""
THIRD = "0.0" + "6" * 27
"""A 28-digit threshold below 1/15, whose double is that of 1/15."""
THRESHOLDS = ("0.05", "0", "-1", "0.125", THIRD, THIRD[:-1] + "7", "-0.5")


class Doubtful(Judge):
    """A judge that gives up on some pairs, as if they were too much work; never on plain numbers."""

    def matches(self, pairs, tolerance=None):
        """Verdicts, of which some are None."""
        pairs = list(pairs)
        verdicts = super().matches(pairs, tolerance)
        return [
            None
            if not gold.text.isdigit() and len(gold.text + answer) % 5 == 4
            else verdict
            for (gold, answer), verdict in zip(pairs, verdicts, strict=True)
        ]


@pytest.fixture(scope="module")
def judges():
    with Judge() as judge, Doubtful() as doubtful, Judge(tolerance=0.1) as tolerant:
        yield judge, doubtful, tolerant


answers = st.one_of(
    st.sampled_from(SPELLINGS), st.sampled_from(["7", "8", "7.0", "0.5", "1/2"])
)
labels = st.sampled_from(SPELLINGS)


@st.composite
def prompts_of(draw):
    """A few prompts of every kind, by their id."""
    prompts = {}
    for number in range(draw(st.integers(1, 5))):
        true = draw(labels)
        prompts[f"p{number}"] = Prompt(
            f"p{number}",
            (),
            draw(labels),
            true,
            draw(st.sampled_from([*NOISE_TYPES, "active", None])),
            is_verified=true is not None and draw(st.integers(0, 3)) == 0,
            stored_in_percent=draw(st.booleans()),
        )
    return prompts


@st.composite
def histories(draw):
    """Prompts, and the rollouts of steps, in each of which some prompts make a visit with a K of its own."""
    prompts, visits, steps = draw(prompts_of()), dict[str, int](), []
    for number in range(1, draw(st.integers(1, 9)) + 1):
        rows = []
        for name in draw(st.permutations([*prompts])):
            if draw(st.integers(0, 4)):
                visits[name] = visits.get(name, 0) + 1
                said = draw(st.lists(answers, min_size=1, max_size=6))
                rows += [(name, visits[name], k, text) for k, text in enumerate(said)]
        if draw(st.booleans()):
            rows.sort(key=lambda row: row[2])  # rollouts of several prompts alternate
        if rows:
            steps.append(rollouts_of(number, rows))
    return prompts, steps


def rollouts_of(step, rows):
    """The rollouts of a step, from prompt_id, visit, sample and answer."""
    schema = {
        "prompt_id": pl.String,
        "visit": pl.Int32,
        "sample": pl.Int32,
        "answer": pl.String,
    }
    return pl.DataFrame(rows, schema, orient="row").with_columns(
        step=pl.lit(step, pl.Int32), view=pl.lit("original")
    )


recipes = st.builds(
    lambda method, noise, seed: validate(
        {"seed": seed, "method": method, "noise": noise}, "test"
    ),
    st.one_of(
        st.just({"name": "grpo"}),
        st.builds(
            lambda criteria, delta, warmup: {
                "name": "olr",
                "criteria": sorted(criteria, reverse=True),
                "slope_threshold": delta,
                "warmup_epochs": warmup,
            },
            st.sets(st.sampled_from(["slope", "consistency"])),
            st.sampled_from(THRESHOLDS),
            st.integers(0, 3),
        ),
    ),
    st.sampled_from(
        [
            None,
            {"type": "inactive"},
            *(
                {"type": "mixed", "draw": it}
                for it in ("uniform", "frequency", "most_frequent")
            ),
            {"type": "active", "draw": "frequency"},
        ]
    ),
    st.integers(0, 3),
)


def supervised(recipe, prompts, steps, judge):
    """What the supervisor decides, step by step."""
    supervisor = make_supervisor(recipe, 1, judge, None)
    return [
        pl.DataFrame(
            arrow_table("labels", supervisor.supervise(Step.read(rows, prompts)).labels)
        )
        for rows in steps
    ]


def in_columns(recipe, prompts, blocks, judge):
    """What columns decide, block by block."""
    supervisor = ColumnSupervisor(recipe, prompts, judge)
    return [supervisor.decide(pl.concat(block)) for block in blocks if block]


@given(recipes, histories(), st.integers(0, 9), st.integers(0, 2))
def test_columns_decide_as_the_supervisor(judges, recipe, history, cut, which):
    prompts, steps = history
    if not steps:
        return
    expected = pl.concat(supervised(recipe, prompts, steps, judges[which]))
    decided = pl.concat(
        in_columns(recipe, prompts, [steps[:cut], steps[cut:]], judges[which])
    )
    assert decided.schema == expected.schema
    for name in expected.columns:
        assert decided[name].to_list() == expected[name].to_list(), name
    alone = in_columns(recipe, prompts, [[rows] for rows in steps], judges[which])
    assert pl.concat(alone).equals(decided)


def history_of(*visits, prompt=None):
    """A prompt, and a step for the answers of each of its visits."""
    prompts = {"p": prompt or Prompt("p", (), "8", "7", "clean")}
    return prompts, [
        rollouts_of(number, [("p", number, k, text) for k, text in enumerate(said)])
        for number, said in enumerate(visits, start=1)
    ]


def test_a_threshold_of_28_digits_is_compared_exactly(judges):
    # Pass rates 0, 2/15, 2/15: a slope of exactly 1/15, the double of both thresholds.
    wrong = [str(number) for number in range(100, 115)]
    history = history_of(wrong, wrong[:13] + ["7"] * 2, wrong[:13] + ["7"] * 2)
    for delta, is_selected in ((THIRD, True), (THIRD[:-1] + "7", False)):
        method = {"name": "olr", "slope_threshold": delta, "warmup_epochs": 0}
        recipe = validate({"method": method}, "test")
        assert float(delta) == 1 / 15
        decided = in_columns(recipe, history[0], [history[1]], judges[0])[0]
        assert decided["is_selected"][2] is is_selected


def test_slopes_are_exact_where_a_common_multiple_of_all_k_is_too_large_for_a_column(
    judges,
):
    sizes = range(1, 48)
    assert math.lcm(*sizes) > 2**63
    prompts, steps = history_of(*(["7"] * (1 + k // 2) + ["8"] * (k // 3) for k in sizes))
    recipe = validate({"method": {"name": "olr"}}, "test")
    expected = pl.concat(supervised(recipe, prompts, steps, judges[0]))
    blocks = [steps[:20], steps[20:]]
    assert pl.concat(in_columns(recipe, prompts, blocks, judges[0])).equals(expected)
    assert expected["slope"].n_unique() > 40


def test_a_visit_out_of_turn_is_refused_and_changes_nothing(judges):
    prompts, steps = history_of(["7"], ["8"], ["7"])
    supervisor = ColumnSupervisor(validate({}, "test"), prompts, judges[0])
    supervisor.decide(steps[0])
    with pytest.raises(ValueError, match="prompt p: visit 3 where visit 2 is due"):
        supervisor.decide(steps[2])
    assert supervisor.decide(pl.concat(steps[1:]))["visit"].to_list() == [2, 3]


def test_rollouts_of_an_unknown_prompt_are_refused_by_name(judges):
    prompts, steps = history_of(["7"])
    supervisor = ColumnSupervisor(validate({}, "test"), prompts, judges[0])
    of_another = steps[0].with_columns(prompt_id=pl.lit("another"))
    with pytest.raises(KeyError, match="another"):
        supervisor.decide(of_another)


def test_a_block_may_be_empty_or_without_an_answer(judges):
    prompts, steps = history_of([None, SENTINEL], [None])
    supervisor = ColumnSupervisor(validate({}, "test"), prompts, judges[0])
    assert supervisor.decide(steps[0].clear()).is_empty()
    decided = supervisor.decide(pl.concat(steps))
    assert decided["answered"].to_list() == [0, 0]
    assert decided["historical_majority"].to_list() == [None, None]


def test_columns_are_for_labels_that_need_nothing_but_answers():
    by_columns = {
        name
        for name in METHODS
        if decides_in_columns(validate({"method": {"name": name}}, "test"))
    }
    assert by_columns == {"grpo", "olr", "confidence_penalty", "label_smoothing"}
    for more in (
        {"verifier": {"false_positive_rate": 0.1}},
        {"method": {"name": "olr", "prompts": "random"}},
    ):
        assert not decides_in_columns(validate(more, "test"))


@each("record", LabelRecord, RolloutRecord)
def test_columns_are_stored_in_the_narrowest_kind_that_holds_them(record):
    schema = arrow_schema(record)
    assert [field.name for field in schema] == [field.name for field in fields(record)]
    kinds = {str(field.type) for field in schema}
    assert kinds == {"string", "int32", "double", "bool"}
    wide = arrow_schema(record, pa.int64())
    assert {str(field.type) for field in wide} == {"string", "int64", "double", "bool"}
    nullable = {field.name for field in schema if field.nullable}
    assert {"prompt_id", "visit", "step"}.isdisjoint(nullable) and nullable
