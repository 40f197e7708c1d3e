"""Columns of files as texts and numbers, whatever their type."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from olr_cli.data.rows import Rows, pick
from olr_cli.errors import UserError


def rows(values: list[Any], kind: Any = None, first: int = 0) -> Rows:
    return Rows(pa.table({"x": pa.array(values, kind)}), "file", first)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (rows(["a", " ", "", None]), ["a", None, None, None]),
        (rows([14.0, None, float("nan"), 2.5]), ["14", None, None, "2.5"]),
        (rows([1e16, -0.0, 1e300]), ["10000000000000000", "0", "1e+300"]),
        (rows([Decimal("2.00"), Decimal("1.50")]), ["2", "1.50"]),
        (rows([2**64 - 1, 0], pa.uint64()), [str(2**64 - 1), "0"]),
        (rows([None, None], pa.null()), [None, None]),
        (rows([["a"], [], None]), ["a", None, None]),
    ],
)
def test_numbers_are_texts_of_what_they_mean(column: Rows, expected: list[str | None]) -> None:
    assert column.texts("x") == expected


def test_a_text_column_keeps_what_is_blank() -> None:
    assert rows(["", " ", "a"]).text_column("x").to_pylist() == ["", " ", "a"]


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (rows([None, True]), "row 1 (the first is 0) is a bool"),
        (rows([b"a"]), "row 0 (the first is 0) is a bytes"),
        (rows([float("inf")]), "row 0 (the first is 0) is inf"),
        (rows([{"a": 1}]), "row 0 (the first is 0) is a dict"),
        (rows([["a", "b"]], first=7), "row 7 (the first is 0) is a list of 2 values"),
    ],
)
def test_what_is_neither_text_nor_number_is_named(column: Rows, found: str) -> None:
    with pytest.raises(UserError) as refused:
        column.texts("x")
    assert found in str(refused.value) and "file: 'x'" in str(refused.value)


def test_values_that_python_does_not_have_are_refused() -> None:
    far = Rows(pa.table({"x": pa.array([2**62]).cast(pa.timestamp("us"))}), "file")
    with pytest.raises(UserError, match=r"column 'x' holds timestamp\[us\] values that cannot be read"):
        far.values("x")


def test_numbers_may_be_written_as_text_and_must_be_finite() -> None:
    for spelled in ([1.5, None, None, float("nan")], ["1.5", "", None, "nan"]):
        assert rows(spelled).numbers("x").to_pylist() == [1.5, None, None, None]
    for wrong in ("low", "inf", "1e999", float("inf")):
        message = rf"row 7 \(the first is 0\) is {wrong!r}, and it should be a finite number"
        with pytest.raises(UserError, match=message):
            rows([None, wrong], first=6).numbers("x")


def test_a_path_leads_into_structs_lists_and_dialogues() -> None:
    turns = [{"role": role, "content": text} for role, text in (("user", "q"), ("assistant", "a"))]
    nested = Rows(pa.table({"meta": [{"gold": [7, 8]}], "messages": [turns], "a.b": ["whole"]}), "file")
    paths = ("meta.gold.1", "messages.assistant", "a.b", "meta.none", "messages.system", "none")
    assert [nested.texts(path)[0] for path in paths] == ["8", "a", "whole", None, None, None]
    assert [nested.has(path) for path in paths] == [True] * 3 + [False] * 3
    assert nested.paths == ["meta.gold", "messages", "messages.assistant", "a.b"]


def test_the_first_usual_path_plays_a_role_unless_another_is_named() -> None:
    def picked(named: dict[str, str]) -> dict[str, str]:
        roles = {"question": ["prompt", "question"], "answer": ["answer"]}
        available = ["question", "prompt"]
        return pick(available.__contains__, roles, named, setting="it", place="file", available=available)

    assert picked({}) == {"question": "prompt"}
    assert picked({"question": "question"}) == {"question": "question"}
    with pytest.raises(UserError, match=r"file has no 'promt', which it names \(did you mean 'prompt'"):
        picked({"answer": "promt"})
