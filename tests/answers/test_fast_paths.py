"""What is read the short way is what the long way reads: each shortcut is held against its absence."""

import re
from unittest.mock import patch

from hypothesis import example, given, settings, strategies as st

from olr_cli.answers import extraction, guesses, other_readings, reading, thinking
from olr_cli.answers.algebra import leaf
from olr_cli.answers.notation import LONGEST_CACHED, tidy
from olr_cli.answers.reading import read

NEVER = re.compile(r"(?!)")

pieces = st.sampled_from(
    [
        "\\boxed{",
        "\\boxed {",
        "\\boxed",
        "{",
        "}",
        "\\{",
        "\\}",
        "\\\\",
        "\\frac{1}{2}",
        "\\",
        " ",
        "7",
        "x",
    ]
)


@given(st.lists(pieces, max_size=14).map("".join))
@example("\\boxed{\\\\}")
@example("\\boxed{a\\\\boxed{b}}")
@example("\\boxed{{1}2{3}}")
@settings(max_examples=500)
def test_a_simple_box_holds_what_counting_its_braces_finds(response):
    with patch.object(extraction, "_SIMPLE_BOX", NEVER):
        counted = extraction.boxed(response)
    assert extraction.boxed(response) == counted


@given(
    st.sampled_from(["", "-", "- "]),
    st.integers(0, 999_999) | st.just(""),
    st.integers(0, 999_999_999),
)
@example("", "", 0)
@example("-", 0, 2)
@example("", 999_999, 999_999_999)
@settings(max_examples=60, deadline=None)
def test_a_root_of_a_whole_number_is_read_as_algebra_reads_it(sign, factor, square):
    text = f"{sign}{factor}\\sqrt{{{square}}}"
    short = read(text, leaf)
    with patch.object(reading, "_ROOT", NEVER):
        assert short.key == read(text, leaf).key


@given(
    st.from_regex(guesses.PLAIN_DECIMAL, fullmatch=True), st.sampled_from(["", "$", " "])
)
def test_a_plain_decimal_is_read_in_one_way_only(number, around):
    answer = f"{around}{number}{around}"
    text = tidy(answer)
    short = guesses.read_surely(answer, text, reading.no_algebra)
    with patch.object(guesses, "PLAIN_DECIMAL", NEVER):
        assert short == guesses.read_surely(answer, text, reading.no_algebra)


@given(*[st.from_regex(guesses.PLAIN_DECIMAL, fullmatch=True)] * 2)
def test_two_plain_decimals_have_no_other_readings_that_differ(gold, answer):
    assert not [*other_readings.other_readings(gold, answer, gold + answer)]
    with patch.object(other_readings, "PLAIN_DECIMAL", NEVER):
        others = [*other_readings.other_readings(gold, answer, gold + answer)]
    assert all(pair == (gold, answer) for pair in others)


@given(
    st.lists(st.sampled_from([*thinking._ALL_MARKS, "THINK", "so ", "<", "7"]), max_size=6)
)
def test_the_last_mark_of_thinking_is_found_among_all_marks(parts):
    response = "".join(parts)
    marks = [*thinking._MARK.finditer(response)]
    found = thinking._last_mark(response)
    assert (found and found.span()) == (marks[-1].span() if marks else None)


def test_every_mark_of_thinking_alone_is_found():
    for mark in thinking._ALL_MARKS:
        assert thinking._last_mark(f"so {mark} 7") is not None


def test_what_is_cached_is_short():
    for answer in ("7" * LONGEST_CACHED, "7" * (LONGEST_CACHED + 1)):
        before = reading._read_before.cache_info().misses
        read(answer)
        is_cached = reading._read_before.cache_info().misses > before
        assert is_cached == (len(answer) <= LONGEST_CACHED)
