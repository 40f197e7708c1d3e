r"""Caches, extractors and marks of the answers' room, and what is too large to compare (R6, R7, R8)."""

from cases import each

from olr_cli.answers import (
    default_extractor,
    extraction,
    matching,
    notation,
    reading,
)
from olr_cli.answers.graded import SENTINEL


def test_caches_hold_sixteen_thousand_short_answers():
    assert notation.tidied_before.cache_info().maxsize == 2**14
    assert reading._read_before.cache_info().maxsize == 2**14


def test_a_lenient_grader_is_a_hundredth_off():
    assert (matching._ROUNDING.numerator, matching._ROUNDING.denominator) == (1, 100)


def test_each_built_in_source_has_its_extractor():
    digits = {f"arithmetic{kind}" for kind in ("", "-addition", "-subtraction")}
    few_shot = {f"arithmetic-{kind}" for kind in ("products", "sums", "maxima", "dates")}
    assert digits | few_shot == extraction.ARITHMETIC_SOURCES
    assert {default_extractor(source) for source in digits} == {"reversed_digits"}
    assert {default_extractor(source) for source in few_shot} == {"first_integer"}


def test_the_label_that_nobody_meets_is_that_of_the_published_files():
    assert SENTINEL == "__NoCorrectAnswer__"


@each("size, verdict", (50, True), (51, None))
def test_a_list_whose_elements_are_too_many_to_compare_is_not_proved_wrong(
    judge, size, verdict
):
    gold = ", ".join(f"{number}\\text{{ cm}}" for number in range(size))
    answer = ", ".join(map(str, range(size)))
    assert judge.matches([(gold, answer)]) == [verdict]
