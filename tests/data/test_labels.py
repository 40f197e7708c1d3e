"""What a cell of a data set says is right: one rule for files, trainers and logs."""

import numpy as np
import pyarrow as pa
import pytest
from cases import each, refusal

from olr_cli.data.labels import golds_of, label_of, read_labels
from olr_cli.data.rows import Rows
from olr_cli.data.values import Origins


@each(
    "cell, expected",
    ("15", ["15"]),
    (" 15\n", ["15"]),
    ("", []),
    (None, []),
    (float("nan"), []),
    (15.0, ["15"]),
    (np.int64(15), ["15"]),
    (np.float32(0.1), ["0.1"]),
    (float(np.float32(0.1)), ["0.1"]),
    (
        [2**-15, 2**-24, 1234.5625, 1e300],
        ["3.0517578125e-05", "5.960464477539063e-08", "1234.5625", "1e+300"],
    ),
    (np.array(["1/2"], dtype=object)[0], ["1/2"]),
    (np.str_("1/2"), ["1/2"]),
    ("5\t", ["5"]),
    (np.array(["1/2", "0.5"]), ["1/2", "0.5"]),
    (["15"], ["15"]),
    ([["1/2"], ["0.5"]], ["1/2", "0.5"]),
    ([], []),
    ({"ground_truth": "45"}, ["45"]),
    ({"ground_truth": None, "answer": 0}, ["0"]),
    ({"ground_truth": None}, []),
    ('["3,-3"]', ["3,-3"]),
    (r'["\\frac{9}{2}", "4.5"]', [r"\frac{9}{2}", "4.5"]),
    ("['36']", ["36"]),
    ('{"ground_truth": "45"}', ["45"]),
    ("{'ground_truth': 45}", ["45"]),
    ("<answer> 15 </answer>", ["15"]),
    (r"<think>so</think><answer>\boxed{15}</answer>", ["15"]),
    ("6 * 7 = 42\n#### 42", ["42"]),
    ("6 * 7 = 42\n#### 42\n", ["42"]),
    ("6 * 7 = 42\n#### 42\nSo she has 42 apples.", ["42"]),
    ("6 * 7 = 42\n####\n42\n\nDone.", ["42"]),
    ("#### \\begin{pmatrix}\n1\n\\end{pmatrix}", ["\\begin{pmatrix}\n1\n\\end{pmatrix}"]),
    ("#### \frac{1}{2}", ["\frac{1}{2}"]),
    (r"\boxed{41}, no, \boxed{42}", ["42"]),
    ("Answer: 21", ["21"]),
    ("The final answer is: 21", ["21"]),
)
def test_the_answers_of_a_cell(cell, expected):
    assert golds_of(cell) == tuple(expected)


@each(
    "text",
    "[28]",
    "[0, 1)",
    "{1, 2}",
    r"\{1, 2\}",
    '["a", 1]',
    '{"x": 1}',
    '["a"',
    '"5"',
    "\text{even}",
)
def test_what_may_be_an_answer_itself_stays_as_it_is(text):
    assert golds_of(text) == (text,)


@each(
    "cell, what",
    (True, "a bool"),
    ({"numbers": [1, 2]}, "a dict"),
    ({"inputs": ["1"], "outputs": ["2"]}, "tests of a program"),
    (b"5", "a bytes"),
    (np.array([float("inf")]), "inf"),
)
def test_what_is_no_answer_is_named(cell, what):
    with pytest.raises(ValueError, match=f"^{what}$"):
        golds_of(cell)


def test_a_label_is_one_answer():
    assert label_of(["1/2", "0.5"]) == "1/2" and label_of([]) is None
    with pytest.raises(
        ValueError, match=r"a list of 2 answers that differ \('15', 'alt'\)"
    ):
        label_of('["15", "alt"]')


def test_the_column_and_the_row_of_what_is_no_answer_are_named():
    rows = Rows(pa.table({"x": [["1"], ["2", "3"]]}), Origins("file"))
    assert "row 2 of file, counted from 1: 'x' is a list of 2 answers that" in refusal(
        read_labels, rows, "x"
    )
    assert read_labels(rows, None) == read_labels(rows, "none") == [None, None]
