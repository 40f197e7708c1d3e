"""`olr` in this process, as a user types it."""

import json
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from olr_cli.cli import app


def olr(*words: object) -> Result:
    """Run a command; return its end and output, or raise the exception of a bug."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    # typer ends commands with SystemExit. Any other exception is a bug, and CliRunner would hide it.
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def done(*words: object) -> Result:
    """Run a command that must succeed."""
    result = olr(*words)
    assert result.exit_code == 0, result.output
    return result


def refused(*words: object) -> str:
    """Run a command that must be refused; return its one sentence, without the notes before it."""
    result = olr(*words)
    assert result.exit_code == 2, result.output
    assert not result.stdout or ("--json" in words and "error" in json.loads(result.stdout))
    *notes, line = result.stderr.splitlines()
    assert line.startswith("Error: ") and not any("Error" in note for note in notes), (
        result.stderr
    )
    return line


def answered(*words: object) -> tuple[Any, str]:
    """Run a command with --json; return its JSON and its output on standard error."""
    result = done(*words, "--json")
    return json.loads(result.stdout), result.stderr


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of an evaluation's scores and generations, by file name."""
    files = [folder / "scores.json", *sorted((folder / "generations").iterdir())]
    return {file.name: file.read_bytes() for file in files}
