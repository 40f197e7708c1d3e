"""Names that olr has no more end in one sentence that says what to do instead."""

import pytest
from commands import olr

from olr_cli.departed import DEPARTED


def _words(name: str) -> list[str]:
    """A command that uses the name."""
    if name.startswith("olr "):
        return name.split()[1:]
    if name.startswith("figure: "):
        return ["analyze", "run", "--figure", name.removeprefix("figure: ")]
    return ["train", "laptop/quickstart", "--dry-run", "--set", name.replace(": ", "=")]


@pytest.mark.parametrize("name", DEPARTED)
def test_a_departed_name_is_answered_by_the_remedy(name):
    result = olr(*_words(name))
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert f"{name} left olr; {DEPARTED[name]}" in result.stderr
