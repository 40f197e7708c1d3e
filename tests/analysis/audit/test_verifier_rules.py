"""The errors of a verifier as a recipe has them: rules where they fit, rates where none does."""

import numpy as np
import polars as pl
import pytest
from cases import each

from olr_cli.analysis.audit.verifier_rules import measured_verifier

DISTANCES = (1, 2, 10, 100, -10, 33, -100, 500)
SPELLINGS = ("{}", "{:,}", "\\frac{{{}}}{{1}}", "{}.0", "{} apples", "-{}")


def measured(errs, *, prompts=200, seed=0, spellings=SPELLINGS[:1]):
    """The verifier that is measured where `errs` is the chance of an error, of a verdict, an answer and its label."""
    draw, rows = np.random.default_rng(seed), []
    for prompt in range(prompts):
        label = int(draw.integers(100, 2000))
        for _ in range(8):
            is_right = bool(draw.random() < 0.5)
            number = label if is_right else label + int(draw.choice(DISTANCES))
            answer = str(draw.choice(spellings)).format(number)
            is_error = bool(draw.random() < errs(is_right, answer, number - label, prompt))
            rows.append((f"p{prompt}", str(label), answer, is_right != is_error, is_right))
    names = ["prompt_id", "label", "answer", "is_rewarded", "verdict"]
    return measured_verifier(pl.DataFrame(rows, schema=names, orient="row"))


def rules(section):
    return [rule.model_dump(mode="json", exclude_none=True) for rule in section.where]


@each(
    "errs, found",
    (
        lambda right, answer, off, _: not right and abs(off) in (10, 100),
        [{"error": [10, 100], "false_positive_rate": 1}],
    ),
    (
        lambda right, answer, off, _: right and answer[-1] in "135",
        [{"answer": "[135]$", "false_negative_rate": 1}],
    ),
    (
        lambda right, answer, off, _: right and "frac" in answer,
        [{"answer": "/|frac", "false_negative_rate": 1}],
    ),
    (
        lambda right, answer, off, _: right and "," in answer,
        [{"answer": ",", "false_negative_rate": 1}],
    ),
    (
        lambda right, answer, off, _: not right and "apples" in answer,
        [{"answer": r"(^|[^\\A-Za-z])[A-Za-z]{2}", "false_positive_rate": 1}],
    ),
)
def test_a_systematic_error_becomes_its_rule_and_nothing_is_left_for_the_rates(errs, found):
    has_spellings = "$" not in str(found) and "error" not in found[0]
    section = measured(errs, spellings=SPELLINGS if has_spellings else SPELLINGS[:1])
    assert rules(section) == found
    assert (section.false_negative_rate, section.false_positive_rate) == (0, 0)


def test_numbers_near_the_label_are_a_rule_of_their_part():
    label = 1000
    rows = [
        (f"p{prompt}", str(label), str(label + off), abs(off) < 100, False)
        for prompt in range(60)
        for off in (prompt + 1, prompt + 140, -prompt - 200)
    ]
    names = ["prompt_id", "label", "answer", "is_rewarded", "verdict"]
    section = measured_verifier(pl.DataFrame(rows, schema=names, orient="row"))
    assert rules(section) == [{"relative_error": 0.1, "false_positive_rate": 1}]


def test_rates_beside_rules_are_those_of_the_other_answers():
    section = measured(
        lambda right, answer, off, _: (
            0.3 if right else 0.9 if abs(off) in (10, 100) else 0.1
        ),
        prompts=400,
    )
    assert float(section.false_negative_rate) == pytest.approx(0.3, abs=0.04)
    assert float(section.false_positive_rate) == pytest.approx(0.1, abs=0.04)
    (rule,) = section.where
    assert rule.error == (10, 100) and float(rule.false_positive_rate) > 0.8


def test_drawn_errors_are_no_rule_whatever_the_spellings_and_the_prompts():
    hard = np.random.default_rng(1).random(100)
    for seed in range(12):
        drawn = measured(lambda right, *_: 0.3 if right else 0.1, prompts=60, seed=seed)
        of_prompts = measured(
            lambda right, answer, off, prompt: 0.8 * hard[prompt],
            prompts=100,
            seed=seed,
            spellings=SPELLINGS,
        )
        assert drawn.draw == "rollout" and rules(drawn) == rules(of_prompts) == []


def test_errors_that_come_back_with_the_answer_are_drawn_by_answer():
    section = measured(lambda right, answer, off, prompt: right and prompt % 3 == 0)
    assert (section.draw, rules(section)) == ("answer", [])
    assert float(section.false_negative_rate) == pytest.approx(1 / 3, abs=0.05)


@pytest.mark.parametrize("answer", ["1e400", "10^{400}", "1/3", "x", "0.0000001"])
def test_answers_that_no_recipe_can_write_as_a_distance_are_no_error_of_olr(answer):
    rows = [(f"p{n}", label, answer, True, False) for n in range(20) for label in "07"]
    names = ["prompt_id", "label", "answer", "is_rewarded", "verdict"]
    section = measured_verifier(pl.DataFrame(rows, schema=names, orient="row"))
    assert (section.false_negative_rate, section.false_positive_rate) == (0, 1)
