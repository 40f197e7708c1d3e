"""Numbers that the data room computes, and the marks that rows imply."""

from decimal import Decimal

import numpy as np
from cases import each

from olr_cli.answers.graded import SENTINEL
from olr_cli.data import (
    arithmetic,
    check,
    columns,
    few_shot,
    findings,
    labels,
    values,
)
from olr_cli.data.chat import Message
from olr_cli.data.external_prompts import ExternalPrompts
from olr_cli.data.noise import decimal_text, exact_share, marked_count
from olr_cli.data.prompt_files import implied_mark
from olr_cli.data.prompts import Prompt


def test_splits_end_where_they_are_said_to():
    assert arithmetic.SPLIT_ENDS == {"train": 0.8, "validation": 0.9, "test": 1.0}
    assert few_shot.FEW_SHOT_SPLIT_ENDS == {"train": 0.5, "validation": 0.65, "test": 1.0}
    for kind in ("addition", "subtraction"):
        sizes = [len(arithmetic.split_members(kind, one)) for one in arithmetic.SPLIT_ENDS]
        shares = np.array(sizes) / sum(sizes)
        assert np.allclose(shares, [0.8, 0.1, 0.1], atol=0.01)


def test_a_set_has_four_hundred_prompts_where_no_number_is_given():
    assert len(arithmetic.arithmetic_prompts("addition", None, 1, "train")) == 400
    assert len(arithmetic.arithmetic_prompts("subtraction", None, 1, "test")) == 400


@each("name", *few_shot.TASKS)
def test_the_solved_lines_before_a_few_shot_question_are_right(name):
    task = few_shot.TASKS[name]
    (asked,) = few_shot.few_shot_prompts(name, 1, 1, "train")
    assert asked.messages[0].content.startswith(task.examples)
    for line in task.examples.splitlines():
        question, _, answer = line.rpartition(" = " if " = " in line else ": ")
        if name == "dates":
            assert max(part[:4] for part in question.split() if part[0].isdigit()) == answer
        else:
            assert eval(question) == int(answer)


@each(
    "name, question, answer",
    ("products", (3, 4), 12), ("sums", (10, 2), 12), ("maxima", (11, 99, 19), 99), ("dates", (190001, 194709), 1947),
)  # fmt: skip
def test_a_few_shot_answer_is_what_the_line_asks_for(name, question, answer):
    assert few_shot.TASKS[name].solve(question) == answer


@each(
    "name, least, most, count",
    ("products", (3, 3), (9, 25), 140), ("sums", (2, 10), (9, 29), 160), ("maxima", (11, 19, 27), (83, 91, 99), 220),
)  # fmt: skip
def test_the_numbers_that_a_few_shot_task_asks_about(name, least, most, count):
    asked = [*few_shot.TASKS[name].numbers()]
    assert (min(asked), max(asked), len(asked)) == (least, most, count)


def test_months_of_dates_are_months():
    asked = {number for pair in few_shot.TASKS["dates"].numbers() for number in pair}
    assert {number % 100 for number in asked} <= {*range(1, 13)}
    assert (min(asked) // 100, max(asked) // 100, len(asked)) == (1900, 2017, 40)


@each(
    "number, text",
    (14.0, "14"), (14.5, "14.5"), (-3.0, "-3"), (2.0**64, "1.8446744073709552e+19"), (2.0**63, str(2**63)),
    (-(2.0**64), "-1.8446744073709552e+19"), (-(2.0**63), str(-(2**63))), (Decimal("0.50"), "0.50"), (Decimal(7), "7"),
)  # fmt: skip
def test_a_number_is_spelled_whole_where_it_is(number, text):
    assert values.spelled(number) == text


@each("bits", 32, 64)
def test_a_float_of_numpy_has_the_digits_that_it_shows(bits):
    dtype = np.dtype(f"float{bits}").type
    assert values.own_digits(dtype(0.1)) == 0.1
    assert values.own_digits(dtype(2**24)) == 2**24
    assert values.own_digits(np.float32(2.0**64)) == float(str(np.float32(2.0**64)))


@each(
    "cell, gold",
    (float(np.float32(0.1)), "0.1"), (0.1, "0.1"), (1 / 3, str(1 / 3)), (0.123457, "0.123457"),
    (float(np.float32(1 / 3)), str(float(np.float32(1 / 3)))), (1e39, "1e+39"), (float("nan"), None), (None, None),
)  # fmt: skip
def test_a_double_that_holds_a_float_is_the_decimal_that_was_written(cell, gold):
    assert labels.label_of(cell) == gold


@each(
    "text, value",
    ("[1, 2]", [1, 2]), ("['a']", ["a"]), ("true", True), ("True", True), ("null", None), ("x+1", None),
    ('{"a": 1}', {"a": 1}), ("{'a': 1}", {"a": 1}), ("[" * 9999, None),
)  # fmt: skip
def test_a_text_writes_a_value_in_json_or_as_python(text, value):
    assert values.written(text) == value


IMPLIED = (
    "label, truth, mark",
    (None, None, (None, None)), (None, "7", (None, "7")), (SENTINEL, "7", ("inactive", "7")),
    (SENTINEL, None, ("inactive", None)), ("7", None, ("clean", "7")), ("7", "7.0", ("clean", "7.0")),
    ("5", "7", ("active_frozen", "7")),
)  # fmt: skip


@each(*IMPLIED)
def test_a_row_without_a_noise_type_implies_its_mark(label, truth, mark):
    assert implied_mark(label, truth, "inactive") == mark
    if label == SENTINEL:
        assert implied_mark(label, truth, "active") == ("active", truth)


@each(*IMPLIED)
def test_a_trainers_row_implies_what_a_files_row_does(label, truth, mark):
    (prompt,) = ExternalPrompts().of_call(
        ["What is a?"], ["7"], [label], prompt_ids=None, true_answers=[truth], noise_types=None,
        noise_type_of_sentinel="inactive",
    )  # fmt: skip
    is_marked = truth is not None or label == SENTINEL
    assert (prompt.noise_type, prompt.true_answer) == (mark if is_marked else (None, None))


@each(
    "ratio, size, count",
    ("0.5", 3, 2), ("0.5", 4, 2), ("0.1", 14, 1), ("0.1", 15, 2), ("0", 9, 0), ("1", 9, 9), (0.3, 5, 2),
)  # fmt: skip
def test_shares_of_prompts_are_rounded_with_halves_up(ratio, size, count):
    assert marked_count(exact_share("ratio", ratio), size) == count


@each(
    "share, text",
    ("0.50", "0.5"),
    ("1", "1"),
    (1 / 2, "0.5"),
    ("0", "0"),
    ("1e-3", "0.001"),
)
def test_a_share_is_shown_in_its_shortest_form(share, text):
    assert decimal_text(exact_share("ratio", share)) == text


def test_the_columns_of_files_are_named():
    assert columns.MESSAGE_COLUMNS == ("messages", "conversations")
    assert columns.NUMBERED == ("extra_info.index", "prompt_id")
    assert "answer" not in columns.OF_PROMPTS["id"].likely
    assert columns.OF_PROMPTS["id"].likely[0] == "prompt_id"
    assert columns.ANSWER_COLUMNS[1:] == columns.LABEL_COLUMNS[2:6]


def test_a_prompt_is_long_beyond_eight_thousand_characters_of_its_question():
    def long(length):
        turns = (Message("system", "x" * 9999), Message("user", "x" * length))
        asked = [(7, Prompt("p", turns, "5", None, None))]
        return check._long(asked, check.CHARACTERS)

    assert long(8192).rows == [] and long(8193).rows == [7]
    assert long(8193).says == "1 question longer than 8,192 characters"
    assert long(8193).examples[0].startswith("8,193 characters: xxx")


def test_rows_of_these_findings_can_never_be_graded():
    assert findings.UNUSABLE == (
        "no_question", "image", "not_one_answer", "tests", "no_label", "no_answer", "ungradable", "conflict",
    )  # fmt: skip
    assert len(findings.KINDS) == 40
