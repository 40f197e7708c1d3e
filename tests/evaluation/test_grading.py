r"""Grading responses: mathematics by answer class, multiple choice by letter."""

import re
from dataclasses import replace

import pytest
from sums import sample

from olr_cli.answers import Judge
from olr_cli.answers.extraction import option_letter
from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import Benchmark, find_benchmark
from olr_cli.evaluation.grading import grade


@pytest.fixture(scope="module")
def judge():
    with Judge(workers=1) as judge:
        yield judge


def graded(name, gold, responses, judge=None, choices=None):
    return grade(
        find_benchmark(name),
        [sample(response, gold, choices) for response in responses],
        judge,
    )


def told(grading):
    return grading.answer, grading.answer_class, grading.is_correct


def test_the_last_box_counts_and_a_response_without_one_is_missing(judge):
    responses = [r"\boxed{3} so \boxed{\frac{1}{2}}", r"0.5", r"\boxed{0.5}", r"\boxed{5}"]
    half, missing, decimal, wrong = graded("math500", "1/2", responses, judge)
    assert (half.answer, half.is_correct) == (r"\frac{1}{2}", True)
    assert told(missing) == (None, None, False)
    assert decimal.is_correct
    assert told(wrong) == ("5", "5", False)


@pytest.mark.parametrize("opened", [False, True])
def test_a_response_that_ends_inside_its_thinking_has_no_answer(judge, opened):
    """Some chat templates end a prompt with <think>, others leave it to the model."""
    thought = "" if opened else "<think>"
    responses = [
        thought + r"\boxed{2}?</think> \boxed{2}",
        thought + r"It is \boxed{2}, but",
    ]
    prompt = "1+1?\n<think>\n" if opened else "1+1?"
    samples = [replace(sample(response, "2"), prompt=prompt) for response in responses]
    finished, unfinished = grade(find_benchmark("math500"), samples, judge)
    assert (finished.answer, finished.is_correct, finished.unfinished_thought) == (
        "2",
        True,
        False,
    )
    assert (unfinished.answer, unfinished.is_correct, unfinished.unfinished_thought) == (
        None,
        False,
        True,
    )
    (plain,) = graded("math500", "2", [r"\boxed{2}"], judge)
    assert plain.unfinished_thought is None


def test_the_prompt_decides_whether_a_percent_sign_is_right(judge):
    of_prompts = [
        replace(
            sample(r"\boxed{20\%}", "20"),
            problem_id=prompt,
            prompt=f"<|user|>\n{prompt}<|assistant|>\n",
        )
        for prompt in ("What percentage of them is red?", "What is 20% of 100?")
    ]
    assert [
        it.is_correct for it in grade(find_benchmark("math500"), of_prompts, judge)
    ] == [
        True,
        False,
    ]


def test_answers_that_say_the_same_share_the_most_frequent_spelling(judge):
    responses = [
        rf"\boxed{{{answer}}}" for answer in ("0.25", r"25\%", "1/4", "1/4", "4", "4.0")
    ]
    classes = [grading.answer_class for grading in graded("math500", "7", responses, judge)]
    assert classes == ["1/4"] * 4 + ["4"] * 2


def test_a_class_is_spelt_by_the_responses_not_by_the_gold(judge):
    (grading,) = graded("math500", "142.0", [r"\boxed{142}"], judge)
    assert told(grading) == ("142", "142", True)


def test_problems_are_graded_apart_and_may_have_different_numbers_of_responses(judge):
    samples = [
        sample(r"\boxed{2}", "2"),
        sample(r"\boxed{3}", "2"),
        sample(r"\boxed{3}", "4"),
    ]
    gradings = grade(find_benchmark("amc"), samples, judge)
    assert [grading.is_correct for grading in gradings] == [True, False, False]


def test_a_benchmark_can_have_an_extractor_of_its_own(judge):
    right, wrong, missing = graded(
        "arithmetic", "579", ["975", "579", r"\boxed{579}"], judge
    )
    assert (right.answer, right.is_correct) == ("579", True)
    assert (wrong.answer, wrong.is_correct) == ("975", False)
    assert missing.answer is None


def test_benchmarks_and_recipes_name_extractors_alike(judge):
    benchmark = Benchmark(
        name="x", source={"task": "arithmetic"}, extractor={"after": "####"}
    )
    (grading,) = grade(benchmark, [sample("6 + 1 = 7\n#### 7", "7")], judge)
    assert (grading.answer, grading.is_correct) == ("7", True)


def test_a_letter_is_graded_without_the_judge_and_the_answer_kept_as_it_stands():
    responses = [r"\boxed{\text{(C)}}", r"\boxed{B) Planets}", "C", r"\boxed{Planets}"]
    assert [*map(told, graded("arc_c", "C", responses, choices=4))] == [
        (r"\text{(C)}", "C", True),
        ("B) Planets", "B", False),
        (None, None, False),
        ("Planets", None, False),
    ]


def test_a_gold_that_is_a_number_stands_for_a_letter():
    responses = [
        rf"\boxed{{{answer}}}"
        for answer in ("2", "B", "2) joined together", "3", "C", "2.5", "5")
    ]
    found = graded("arc_c", "2", responses, choices=4)
    assert [grading.is_correct for grading in found] == [
        True,
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    assert [grading.answer_class for grading in found] == [
        "B",
        "B",
        "B",
        "C",
        "C",
        None,
        None,
    ]


def test_a_placeholder_in_place_of_a_letter_is_an_error_and_no_wrong_answers():
    with pytest.raises(UserError, match="the gold 'N/A' of problem"):
        graded("arc_c", "N/A", [r"\boxed{C}"], choices=4)


def test_a_number_names_no_option_where_options_have_letters():
    (grading,) = graded("arc_c", "B", [r"\boxed{2}"], choices=4)
    assert told(grading) == ("2", None, False)


@pytest.mark.parametrize("options", range(3, 11))
def test_there_are_as_many_letters_as_options(options):
    letters = "ABCDEFGHIJ"
    responses = [rf"\boxed{{{letter}}}" for letter in letters]
    gold = letters[options - 1]
    found = graded("mmlu_pro", gold, responses, choices=options)
    assert [grading.answer_class for grading in found] == [
        *letters[:options],
        *[None] * (10 - options),
    ]
    assert [grading.is_correct for grading in found] == [
        letter == gold for letter in letters
    ]


@pytest.mark.parametrize(
    ("gold", "options"), [("E", 4), ("0", 4), ("Paris", 4), ("K", None)]
)
def test_a_gold_that_names_no_option_is_an_error_that_names_the_problem(gold, options):
    with pytest.raises(
        UserError, match=rf"sums: the gold '{gold}' of problem with gold {gold} names none"
    ):
        graded("arc_c", gold, [r"\boxed{A}"], choices=options)


SECOND = re.split(
    r"\s{3,}|\n",
    r"""B   b   (B)   (b)   B)   B.   B:   [B]   {B}   \{B\}   $B$   \(B\)   **B**   （Ｂ）   \text{B}   \text{(B)}
\textbf{(B)}   \mathrm{B}   \mathbf{(B)}   \boldsymbol{B}   \textbf{\text{B}}   \boxed{B}   \left(B\right)
B\text{.}   \textbf{(B)}\ 5   (B)~5   B) Planets spin.   B. Planets spin.   B: Planets spin   B - Planets
B — Planets   B (Planets)   \text{B) Planets}   \textbf{(B) } \text{Planets}   \textbf{B}. Planets   B ) Planets
Option B   Choice (B)   Answer: B   the answer is B   The correct answer is (B) Planets.   answer = B
B) Vitamin B   B) Vitamin C   B) carbon (C)   B) A   B) hepatitis A and C   B) P(A) and more   B) +1""",
)


@pytest.mark.parametrize("answer", SECOND)
def test_spellings_that_name_the_second_of_four_options(answer):
    assert option_letter(answer, 4) == "B"


NONE = re.split(
    r"\s{3,}|\n",
    r"""E   Z   2   (2)   .   Planets   neither   AB   ABCD   B'   B^2   -B   f(B)   P(A)   A planet   a planet
B cells   C_2   D-glucose   B = 5   \frac{A}{B}   \sqrt{B}   \mathbb{B}   A and B   A or B   A, B   A/B   A & B
A;B   B+C   A \text{ and } B   (A) and (B)   (A) or B   (A), (C)   (A)(B)   (A)/(B)   A) this, B) that
A) this and (B) that   the answer""",
)


@pytest.mark.parametrize("answer", [*NONE, ""])
def test_what_names_none_of_four_options_or_several(answer):
    assert option_letter(answer, 4) is None


def test_a_very_long_answer_is_read_in_no_time():
    assert option_letter(r"\text{" * 200_000, 4) is None
    assert option_letter("B) " + "and (" * 200_000, 4) == "B"
