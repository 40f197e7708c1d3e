"""The command line: one thin module per subcommand. Heavy imports happen inside the commands."""

from __future__ import annotations

import warnings
from typing import Annotated

import typer

from olr_cli.cli import (
    analyze,
    audit,
    check,
    doctor,
    evaluate,
    inject_noise,
    recipes,
    replay,
    rollouts,
    runs,
    train,
)
from olr_cli.cli.errors import ends_well, program

app = typer.Typer(
    name="olr",
    help="Reinforcement learning with verifiable rewards on noisy labels: inject noise, train, repair labels, analyze.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("inject-noise")(ends_well(inject_noise.inject_noise))
app.command("train")(ends_well(train.train))
app.command("evaluate")(ends_well(evaluate.evaluate))
app.command("analyze")(ends_well(analyze.analyze))
app.command("check")(ends_well(check.check))
app.command("rollouts")(ends_well(rollouts.rollouts))
app.command("audit")(ends_well(audit.audit))
app.command("replay")(ends_well(replay.replay))
app.add_typer(recipes.app, name="recipes")
app.add_typer(runs.app, name="runs")
app.command("doctor")(ends_well(doctor.doctor))


def _version(wanted: bool) -> None:
    if wanted:
        from olr_cli import __version__

        typer.echo(f"olr {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the `olr` command."""
    # A package that OpenRLHF needs makes torch warn at every start.
    warnings.filterwarnings("ignore", message="The pynvml package is deprecated")
    with program():
        app()
