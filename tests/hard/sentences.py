"""What a refusal looks like: one sentence in a `UserError`, status 2 at the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import commands
import pytest

from olr_cli.errors import UserError

HOSTILE = Path(__file__).parents[1] / "fixtures" / "hostile"


def cases(name: str) -> list[Any]:
    """The cases of a file of tests/fixtures/hostile: often what is refused, and what the sentence says."""
    return [
        json.loads(line)
        for line in (HOSTILE / f"{name}.jsonl").read_text("ascii").splitlines()
    ]


def sentence(message: object, *, longest: int = 900) -> str:
    """`message` as text, which must be one sentence that a terminal can show."""
    text = str(message)
    assert text and text.isprintable() and len(text) < longest, text[:2000]
    return text


def refusal(call: Callable[[], object], *, longest: int = 900) -> str:
    """The sentence with which something is refused."""
    with pytest.raises(UserError) as caught:
        call()
    return sentence(caught.value, longest=longest)


def write(folder: Path, content: str | bytes, name: str) -> Path:
    """A file with this content, lone surrogates among it."""
    path = folder / name
    path.write_bytes(
        content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    )
    return path


def options(*settings: str) -> list[str]:
    """What is typed for these settings."""
    return [word for setting in settings for word in ("--set", setting)]


def olr(*words: object) -> tuple[int, str]:
    """The exit status and the output of a command, in this process; a bug's exception is raised."""
    result = commands.olr(*words)
    return result.exit_code, result.output
