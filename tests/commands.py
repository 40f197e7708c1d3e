"""`olr` in this process, as a user types it."""

import json
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from olr_cli.cli import app


def olr(*words: object) -> Result:
    """Run an `olr` command in this process; return its exit code and output.

    Any exception but SystemExit is a bug of the command and is raised.
    """
    result = CliRunner().invoke(app, [str(word) for word in words])
    # typer ends commands with SystemExit. Any other exception is a bug, and CliRunner would hide it.
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def done(*words: object) -> Result:
    """Run an `olr` command, assert that it succeeds, and return its exit code and output."""
    result = olr(*words)
    assert result.exit_code == 0, result.output
    return result


def refused(*words: object) -> str:
    """Run an `olr` command and assert that it is refused with exit code 2; return the line ``Error: …``.

    It must be the last line on standard error; the lines before it are notes.
    """
    result = olr(*words)
    assert result.exit_code == 2, result.output
    assert not result.stdout or ("--json" in words and "error" in json.loads(result.stdout))
    *notes, line = result.stderr.splitlines()
    assert line.startswith("Error: ") and not any("Error" in note for note in notes), (
        result.stderr
    )
    return line


def answered(*words: object) -> tuple[Any, str]:
    """Run an `olr` command with --json; return the parsed answer and the text on standard error."""
    result = done(*words, "--json")
    return json.loads(result.stdout), result.stderr


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of scores.json and all generations in an evaluation's folder, by file name."""
    files = [folder / "scores.json", *sorted((folder / "generations").iterdir())]
    return {file.name: file.read_bytes() for file in files}
