"""Canonical forms compared without computer algebra (R7)."""

import random
from fractions import Fraction

import pytest

from olr_cli.answers import forms
from olr_cli.answers.forms import Form, Point, compare, number, unordered
from olr_cli.answers.notation import tidy
from olr_cli.answers.reading import read

X, Y = (Form("scalar", name, point=Point(complex(0.5 + n / 9), 1)) for n, name in enumerate("xy"))
AS_X = Form("scalar", "x again", point=X.point)
UNKNOWN = Form("scalar", "?")


def numbers(*values):
    return tuple(number(Fraction(value)) for value in values)


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        (numbers(1, 2), numbers(1, 3), False),
        (numbers(1, 2), numbers(1, 2, 3), False),
        ((*numbers(1), X), (*numbers(1), Y), False),
        ((*numbers(1), X), (*numbers(1), AS_X), None),
        ((*numbers(1), X), (*numbers(2), AS_X), False),
        ((X, Y), (X, UNKNOWN), None),
        ((X, Y), (AS_X, UNKNOWN), None),
        ((X, Y), (UNKNOWN, AS_X, X), None),
        ((X, Y), (UNKNOWN,), False),
        ((X, AS_X), (X, Y), False),
        ((X, *numbers(1)), (Form("assignment", "y", (AS_X, X)), *numbers(1)), None),
    ],
)
def test_sets_differ_where_an_element_of_either_has_no_partner(a, b, verdict):
    a, b = unordered(a), unordered(b)
    assert compare(a, b) is verdict and compare(b, a) is verdict
    assert compare(a, a) is True


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [((X, UNKNOWN), (X, Y), None), ((X, UNKNOWN, X), (X, Y, Y), False), ((X, Y), (X, Y), True)],
)
def test_tuples_differ_where_any_two_entries_do(a, b, verdict):
    assert compare(Form("tuple", parts=a), Form("tuple", parts=b)) is verdict


def test_long_lists_are_told_apart_without_comparing_all_with_all(monkeypatch):
    rng, calls = random.Random(0), []
    lists = [read(tidy(", ".join(map(str, rng.sample(range(1000), 190))))) for _ in range(8)]

    def counting(a, b, compare=forms.compare):
        calls.append(1)
        return compare(a, b)

    monkeypatch.setattr(forms, "compare", counting)
    assert not any(forms.compare(a, b) for a in lists for b in lists if a is not b)
    assert len(calls) < 8 * 7 * (190 + 2)
