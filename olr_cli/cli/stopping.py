"""How a command shows that a run was stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from olr_cli.runs.progress import Progress


@contextmanager
def shown_until_stopped(progress: Progress, path: Path, goes_on: str) -> Iterator[None]:
    """End the display with the block; after Ctrl-C or SIGTERM say where everything is, and exit with 130 or 143.

    Args:
        progress: the display.
        path: the run directory.
        goes_on: the end of the sentence: how the run is continued.

    Raises:
        Exit: the run was stopped, or the engine's own process failed.
    """
    from olr_cli.engines.run import EngineFailed
    from olr_cli.runs.interrupts import Interrupted

    try:
        yield
    except Interrupted as stop:
        progress.stop()  # before the sentence, which would end up in the progress bar
        typer.echo(f"Stopped. Everything up to the last complete step is in {path}; {goes_on}", err=True)
        raise typer.Exit(stop.exit_status) from None
    except EngineFailed as failure:
        typer.echo(f"Error: {failure}", err=True)
        raise typer.Exit(1) from None
    finally:
        progress.stop()
