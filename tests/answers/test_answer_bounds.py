r"""Bounds and names of the answers' room, spelled a second time (R6, R7, R8)."""

from cases import each

from olr_cli.answers import (
    algebra,
    classes,
    compare,
    default_extractor,
    extraction,
    golds,
    judge,
    matching,
    notation,
    numbers,
    own_extractors,
    pool,
    reading,
    size,
    thinking,
    units,
    worker,
)
from olr_cli.answers.graded import SENTINEL


@each(
    "module, bounds",
    (algebra, {"_SEED": 0, "_MOST_OPERATIONS": 500, "_MOST_FACTORED": 30, "_BITS": 133, "_SPARE_BITS": 50,
               "_MOST_POINTS": 8, "_SMALL_CONSTANT": 64, "_MOST_COMPARED": 4000, "_LARGEST_EXPONENT": 2**20,
               "_LARGEST_DENOMINATOR": 10**6, "_PRIME": 2**127 - 1}),
    (classes, {"_LONGEST_LABEL": 120}),
    (compare, {"_MOST_COMPARED": 50}),
    (extraction, {"_LONGEST_READ": 1000}),
    (golds, {"_LONGEST": 60}),
    (judge, {"_MEMO": 2**19}),
    (notation, {"LONGEST_READ": 1000, "_LONGEST_NORMALIZED": 2000, "LONGEST_CACHED": 120}),
    (numbers, {"_LARGEST_EXPONENT": 4000}),
    (own_extractors, {"_MOST_SEARCHED": 2**30, "_TAIL": 2**15}),
    (pool, {"_WINDOW": 16, "_TASKS_A_WORKER": 32, "_CALLS_A_SECOND": 1_500_000, "_SHARE": 16, "_BACKSTOP": 5,
            "_ATTEMPTS": 2, "_MOST_FAILED_STARTS": 3, "_START_SECONDS": 120.0}),
    (reading, {"_DEEPEST_READ": 40, "_MOST_SIGNS": 5}),
    (size, {"_MOST_BITS": 332_192, "_MOST_BITS_IN_A_FUNCTION": 20_000, "_MOST_BITS_UNDER_A_ROOT": 4000}),
    (thinking, {"_LONGEST_OPENED": 64}),
    (units, {"_LONGEST_SYMBOL": 3}),
    (worker, {"_MEMORY": 2**31, "_MOST_TASKS": 5000, "_ALLOCATIONS_A_COLLECTION": 50_000}),
    ids=lambda it: getattr(it, "__name__", ""),
)  # fmt: skip
def test_what_a_verdict_may_depend_on_is_not_changed_by_accident(module, bounds):
    assert {name: getattr(module, name) for name in bounds} == bounds


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
