"""Columns of files as texts and numbers, whatever their type."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from olr_cli.data.rows import numbers, text_column, texts, values
from olr_cli.errors import UserError


def chunked(values_: list[Any], kind: Any = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values_, kind)])


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (chunked(["a", " ", "", None]), ["a", None, None, None]),
        (chunked([14.0, None, float("nan"), 2.5]), ["14", None, None, "2.5"]),
        (chunked([1e16, -0.0, 1e300]), ["10000000000000000", "0", "1e+300"]),
        (chunked([Decimal("2.00"), Decimal("1.50")]), ["2", "1.50"]),
        (chunked([2**64 - 1, 0], pa.uint64()), [str(2**64 - 1), "0"]),
        (chunked([None, None], pa.null()), [None, None]),
    ],
)
def test_numbers_are_texts_of_what_they_mean(column: pa.ChunkedArray, expected: list[str | None]) -> None:
    assert texts(column, "x", "file") == expected


def test_a_text_column_keeps_what_is_blank() -> None:
    assert text_column(chunked(["", " ", "a"]), "x", "file").to_pylist() == ["", " ", "a"]


def test_the_only_item_of_a_list_stands_for_it_where_that_is_asked_for() -> None:
    column = chunked([["a"], [], None])
    assert texts(column, "x", "file", alone_in_list=True) == ["a", None, None]
    with pytest.raises(UserError, match=r"file: 'x' of row 0 \(the first is 0\) is a list of 1 value"):
        texts(column, "x", "file")


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (chunked([None, True]), "row 1 (the first is 0) is a bool"),
        (chunked([b"a"]), "row 0 (the first is 0) is a bytes"),
        (chunked([float("inf")]), "row 0 (the first is 0) is inf"),
        (chunked([{"a": 1}]), "row 0 (the first is 0) is a dict"),
    ],
)
def test_what_is_neither_text_nor_number_is_named(column: pa.ChunkedArray, found: str) -> None:
    with pytest.raises(UserError) as refused:
        texts(column, "x", "file")
    assert found in str(refused.value)


def test_values_that_python_does_not_have_are_refused() -> None:
    far = pa.chunked_array([pa.array([2**62]).cast(pa.timestamp("us"))])
    with pytest.raises(UserError, match=r"column 'x' holds timestamp\[us\] values that cannot be read"):
        values(far, "x", "file")


def test_numbers_may_be_written_as_text_and_must_be_finite() -> None:
    for spelled in ([1.5, None, None, float("nan")], ["1.5", "", None, "nan"]):
        assert numbers(chunked(spelled), "x", "file").to_pylist() == [1.5, None, None, None]
    for wrong in ("low", "inf", "1e999", float("inf")):
        with pytest.raises(UserError, match=r"row 7 \(the first is 0\) is not a finite number"):
            numbers(chunked([None, wrong]), "x", "file", first=6)
