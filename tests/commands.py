"""`olr` in this process, as a user types it."""

import json
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from olr_cli.cli import app


def olr(*words: object) -> Result:
    """How the command ended, and what it said; a bug is raised."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def done(*words: object) -> Result:
    """A command that ends well."""
    result = olr(*words)
    assert result.exit_code == 0, result.output
    return result


def refused(*words: object) -> str:
    """The one sentence of a command that is refused; notes may stand before it."""
    result = olr(*words)
    assert result.exit_code == 2, result.output
    assert not result.stdout or ("--json" in words and "error" in json.loads(result.stdout))
    *notes, line = result.stderr.splitlines()
    assert line.startswith("Error: ") and not any("Error" in note for note in notes), (
        result.stderr
    )
    return line


def answered(*words: object) -> tuple[Any, str]:
    """The JSON that a command answers, and what it says on standard error."""
    result = done(*words, "--json")
    return json.loads(result.stdout), result.stderr


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of an evaluation's scores and generations, by file name."""
    files = [folder / "scores.json", *sorted((folder / "generations").iterdir())]
    return {file.name: file.read_bytes() for file in files}
