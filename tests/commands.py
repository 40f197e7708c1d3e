"""`olr` in this process, as a user types it."""

from __future__ import annotations

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
    """The one sentence of a command that is refused."""
    result = olr(*words)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    [line] = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line
