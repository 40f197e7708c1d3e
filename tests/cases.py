"""Tables of cases above a test, and the sentence with which a call is refused."""

from collections.abc import Callable

import pytest

from olr_cli.errors import UserError


def each(
    names: str, *rows: object, ids: Callable[[object], object] | list[str] | None = None
) -> pytest.MarkDecorator:
    """Run the test for each row, whose values are its arguments of these names; a single name takes a value a row."""
    return pytest.mark.parametrize(names, rows, ids=ids)


tenth_or_whole = each("nth", 10, pytest.param(1, marks=pytest.mark.slow))
"""For tests of a corpus: every tenth case, and in `make test-slow` all of them."""


def refusal(call: Callable[..., object], *arguments: object, **named: object) -> str:
    """Return the one sentence with which a call is refused."""
    with pytest.raises(UserError) as caught:
        call(*arguments, **named)
    assert "\n" not in str(caught.value)
    return str(caught.value)
