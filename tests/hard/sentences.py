"""The form of a refusal: one sentence in a `UserError`, and status 2 at the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import commands
import pytest

from olr_cli.errors import UserError

HOSTILE = Path(__file__).parents[1] / "fixtures" / "hostile"


def cases(name: str) -> list[Any]:
    """Return the cases in tests/fixtures/hostile/<name>.jsonl, often an input and the words of its refusal."""
    return [
        json.loads(line)
        for line in (HOSTILE / f"{name}.jsonl").read_text("ascii").splitlines()
    ]


def sentence(message: object, *, longest: int = 900) -> str:
    """Return `message` as text, and assert that it is one printable line with fewer than `longest` characters."""
    text = str(message)
    assert text and text.isprintable() and len(text) < longest, text[:2000]
    return text


def refusal(call: Callable[[], object], *, longest: int = 900) -> str:
    """Make a call that must raise `UserError`; return its text, which must pass `sentence`."""
    with pytest.raises(UserError) as caught:
        call()
    return sentence(caught.value, longest=longest)


def write(folder: Path, content: str | bytes, name: str) -> Path:
    """Write `content` to the file `name` in `folder`, and return its path; text may have lone surrogates."""
    path = folder / name
    path.write_bytes(
        content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    )
    return path


def options(*settings: str) -> list[str]:
    """Return a command line's words for these settings: ``--set`` before each."""
    return [word for setting in settings for word in ("--set", setting)]


def olr(*words: object) -> tuple[int, str]:
    """Run an `olr` command in this process; return its exit status and output.

    Any exception but SystemExit is a bug of the command and is raised.
    """
    result = commands.olr(*words)
    return result.exit_code, result.output
