"""Tables of cases above a test, and the sentence with which a call is refused."""

from collections.abc import Callable

import pytest

from olr_cli.errors import UserError


def each(
    names: str, *rows: object, ids: Callable[[object], object] | list[str] | None = None
) -> pytest.MarkDecorator:
    """Return a decorator that runs a test once for each of `rows`.

    `names` are the test's arguments, separated by commas, and a row is a tuple of their values. With a single name, a
    row is the value itself. `ids` are pytest's.
    """
    return pytest.mark.parametrize(names, rows, ids=ids)


tenth_or_whole = each("nth", 10, pytest.param(1, marks=pytest.mark.slow))
"""For tests of a corpus: every tenth case, and in `make test-slow` all of them."""


def refusal(call: Callable[..., object], *arguments: object, **named: object) -> str:
    """Make a call that must raise a `UserError` of one line; return its text."""
    with pytest.raises(UserError) as caught:
        call(*arguments, **named)
    assert "\n" not in str(caught.value)
    return str(caught.value)
