"""Scores, their intervals, averages and paired differences."""

import json
import random
from dataclasses import replace
from itertools import combinations
from statistics import fmean

import polars as pl
import pytest
from cases import each, refusal
from pydantic import TypeAdapter

from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import PAPER, find_benchmark
from olr_cli.evaluation.intervals import bootstrap_interval
from olr_cli.evaluation.scores import (
    Score,
    averages,
    estimates,
    paired_differences,
    pass_at,
    score,
)
from olr_cli.tables import Cell, as_json

AMC = find_benchmark("amc")


def generations(*problems, **columns):
    """One row per sample: one string per problem, one letter per sample.

    R is right, other letters are wrong, `-` is no answer; `t` ends inside its thinking, `T` after it.
    """
    rows = []
    for p, letters in enumerate(problems):
        for s, letter in enumerate(letters):
            answer, thought = (
                None if letter == "-" else letter,
                {"t": True, "T": False}.get(letter),
            )
            row = {
                "problem_id": f"problem {p}",
                "sample": s,
                "answer": answer,
                "answer_class": answer,
            }
            row |= {
                "gold": "R",
                "is_correct": letter == "R",
                "tokens": 10 * (s + 1),
                "truncated": letter == "-",
            }
            rows.append(row | {"unfinished_thought": thought})
    return pl.DataFrame(rows).with_columns(**columns)


def of(name, *problems):
    return score(find_benchmark(name), generations(*problems), len(problems[0]))


def test_avg_is_the_mean_over_problems_of_the_share_of_right_samples():
    found = of("amc", "RRRR", "RABC", "A-BC")
    assert (found.problems, found.samples, found.whole) == (3, 4, 83)
    assert found.avg == pytest.approx((1 + 0.25 + 0) / 3)
    assert found.by_problem == {
        ("problem 0", "R"): 1.0,
        ("problem 1", "R"): 0.25,
        ("problem 2", "R"): 0.0,
    }
    assert (found.truncated, found.missing_answers, found.mean_tokens) == (
        1 / 12,
        1 / 12,
        25,
    )


def test_a_response_that_ends_inside_its_thinking_is_a_cut_one():
    scored = of("amc", "RtT-", "RTTT")
    assert (scored.truncated, scored.unfinished_thoughts) == (2 / 8, 1 / 8)
    assert of("amc", "RTAA").unfinished_thoughts == 0
    assert of("amc", "RA-A").unfinished_thoughts is None


@pytest.mark.parametrize("problems", [("RRRR", "RABC", "A-BC"), ("RRRR", "RRRR")])
def test_a_score_is_read_as_it_was_written_but_for_its_problems(problems):
    written = of("amc", *problems)
    assert TypeAdapter(Score).validate_python(
        json.loads(json.dumps(as_json(written)))
    ) == replace(written, by_problem={})


@each("numbers, samples", ([0, 1, 2], 1), ([0, 1, 2], 4), ([0, 1, 1], 3), ([1, 2, 3], 3))
def test_other_samples_than_those_asked_for_are_an_error(numbers, samples):
    told = f"amc: problem problem 1 has 3 stored samples, not the {samples} numbered 0 to {samples - 1}"
    rows = pl.concat(
        [generations("R" * samples), generations("", "RRA", sample=pl.Series(numbers))]
    )
    with pytest.raises(UserError, match=told):
        score(AMC, rows, samples)


def test_missing_problems_are_an_error():
    with pytest.raises(UserError, match="amc: 2 of 3 problems have generations"):
        score(AMC, generations("RA", "AA"), 2, problems=3)
    assert "amc: 0 problems have generations" in refusal(
        score, AMC, generations("R").clear(), 1
    )


def test_pass_at_k_is_the_share_of_k_subsets_with_a_right_sample():
    for n in range(1, 9):
        for right in range(n + 1):
            samples = [True] * right + [False] * (n - right)
            for k in range(1, n + 1):
                subsets = list(combinations(samples, k))
                assert pass_at(k, n, right) == pytest.approx(
                    sum(map(any, subsets)) / len(subsets)
                )


def test_pass_at_k_is_given_for_powers_of_two_and_n():
    found = of("amc", "RRRRAA", "RAAAAA", "AAAAAA")
    assert list(found.pass_at) == [1, 2, 4, 6]
    assert found.pass_at[1] == pytest.approx(found.avg)
    assert found.pass_at[2] == pytest.approx(fmean([1 - 1 / 15, 1 / 3, 0]))
    assert found.pass_at[6] == pytest.approx(2 / 3)
    assert list(of("amc", "R", "A").pass_at) == [1]


@each(
    "samples, majority",
    ("RRA", 1), ("RAA", 0), ("RAB", 0), ("RRAA", 0), ("R---", 1), ("AB--", 0), ("----", 0), ("RRRAAB", 1),
)  # fmt: skip
def test_the_most_frequent_class_decides_the_majority_and_a_tie_is_not_right(
    samples, majority
):
    assert of("amc", samples).majority == majority


def test_the_interval_is_scipys_and_the_same_every_time():
    from scipy.stats import bootstrap

    draw = random.Random(0)
    values = [draw.random() ** 2 for _ in range(60)]
    low, high = bootstrap_interval([values], "a")
    assert bootstrap_interval([values], "a") == (low, high)
    assert bootstrap_interval([values], "b") != (low, high)
    expected = bootstrap(
        [values], lambda x, axis: x.mean(axis), method="BCa", rng=1
    ).confidence_interval
    assert (low, high) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("problems", [("R", "R", "R"), ("A", "A"), ("RA", "AR"), ("R",)])
def test_without_spread_between_problems_there_is_no_interval(problems):
    assert of("amc", *problems).interval is None


def test_averages_are_the_papers_and_only_of_whole_groups():
    scores = {name: 1 / (i + 2) for i, name in enumerate(PAPER)}
    both = averages(scores)
    assert list(both) == ["in", "out"]
    assert both["in"] == pytest.approx(fmean(scores[name] for name in PAPER[:6]))
    assert both["out"] == pytest.approx(fmean(scores[name] for name in PAPER[6:]))
    assert averages({name: scores[name] for name in PAPER[:6]}) == {"in": both["in"]}
    assert averages({name: scores[name] for name in PAPER[1:]}) == {"out": both["out"]}
    assert averages({"arithmetic": 0.5}) == {}


def test_the_interval_of_an_average_is_narrower_than_those_of_its_benchmarks():
    scores = [of(name, *"RRRAAAAAAA") for name in PAPER[:6]]
    low, high = estimates(scores)["in"].ends
    assert low < 0.3 < high
    assert all(high - low < s.interval[1] - s.interval[0] for s in scores)
    assert estimates([of(name, "R", "R") for name in PAPER[6:]])["out"] == Cell(1.0)


def test_differences_are_paired_by_problem():
    ours, theirs = of("amc", *"RRRRRRAAAA"), of("amc", *"RRRAAAAAAA")
    paired = paired_differences([ours], [theirs])["amc"]
    assert paired.value == pytest.approx(0.3)
    assert paired.n == 10
    low, high = paired.ends
    assert 0 <= low < 0.3 < high < 0.7
    # The same two scores, but on other problems right: the differences within problems spread more.
    unpaired = paired_differences([ours], [of("amc", *"AAAAAAARRR")])["amc"]
    assert unpaired.value == pytest.approx(0.3)
    assert unpaired.ends[0] < 0


def test_differences_are_over_the_problems_that_both_have():
    found = paired_differences([of("amc", *"RRAA")], [of("amc", *"AR")])["amc"]
    assert (found.value, found.n) == (0.5, 2)


def test_benchmarks_without_a_common_problem_have_no_difference():
    for of_others in (
        {"problem_id": pl.Series(["x", "y"])},
        {"gold": pl.lit("of another file")},
    ):
        other = score(AMC, generations("R", "A", **of_others), 1)
        assert (
            paired_differences([of("amc", "R", "A"), of("math500", "R", "A")], [other])
            == {}
        )


def test_evaluations_that_agree_on_every_problem_differ_by_nothing_known_exactly():
    found = paired_differences([of("amc", *"RA")], [of("amc", *"RA")])["amc"]
    assert (found.value, found.ends) == (0, None)


def test_the_difference_of_an_average_takes_all_its_benchmarks():
    ours = [of(name, *"RRRRAAAAAA") for name in PAPER[6:]]
    theirs = [of(name, *"RRRAAAAAAA") for name in PAPER[6:]]
    found = paired_differences(ours, theirs)
    assert list(found) == [*PAPER[6:], "out"]
    assert (found["out"].value, found["out"].n) == (pytest.approx(0.1), 30)
    assert 0 <= found["out"].ends[0] < 0.1 < found["out"].ends[1]
    assert "out" not in paired_differences(ours[1:], theirs)


def test_a_problem_that_lacks_a_sample_is_an_error():
    rows = generations("RRA", "RAB", "AAA")
    assert score(AMC, rows, 3).samples == 3
    for missing in range(rows.height):
        with pytest.raises(
            UserError,
            match=r"amc: problem problem \d has 2 stored samples, not the 3 numbered",
        ):
            score(AMC, rows.filter(pl.int_range(pl.len()) != missing), 3)
