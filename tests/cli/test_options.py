"""Options that commands share, and groups of options."""

from typing import Annotated, NamedTuple

import pytest
import typer
from typer import Option
from typer.testing import CliRunner

from olr_cli.cli import app
from olr_cli.cli.options import Seed, grouped


class Draws(NamedTuple):
    """How responses are drawn."""

    samples: Annotated[int, Option("--samples", help="Samples of each problem.")] = 8
    seed: Seed = 0


@pytest.fixture
def command():
    @grouped
    def show(name: str, draws: Draws) -> None:
        """Show the options."""
        typer.echo(f"{name}: {draws}")

    app = typer.Typer()
    app.command()(show)
    return lambda *words: CliRunner().invoke(app, words)


def test_a_group_is_an_option_a_field_in_a_panel_of_the_help(command):
    assert command("a").output == f"a: {Draws()}\n"
    assert command("a", "--seed", "3").output == f"a: {Draws(seed=3)}\n"
    assert "How responses are drawn" in command("--help").output


@pytest.mark.parametrize("name", ["evaluate", "rollouts"])
def test_commands_of_many_options_show_them_in_panels(name):
    text = CliRunner().invoke(app, [name, "--help"]).output
    assert "How responses are drawn" in text and "Where it runs" in text
