"""How a command shows that a run was stopped."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from olr_cli.runs.progress import Progress


@contextmanager
def shown_until_stopped(
    progress: Progress, path: Path, words: Sequence[str], *, kept_at_once: str = "checkpoint"
) -> Iterator[None]:
    """End the display with the block; if the run is stopped, say where everything is and how it is continued.

    Args:
        progress: the display.
        path: the run directory.
        words: the command that continues the run.
        kept_at_once: what is the last that needn't be done again if the run could not wait for the end of a step.

    Raises:
        Exit: the run was stopped (see `olr_cli.runs.interrupts.exit_status`), or the engine's own process failed.
    """
    from olr_cli.engines.run import EngineFailed
    from olr_cli.runs.interrupts import Interrupted, exit_status

    try:
        yield
    except (Interrupted, KeyboardInterrupt, BrokenPipeError) as stop:
        progress.stop()  # before the sentence, which would end up in the progress bar
        kept = "complete step" if isinstance(stop, Interrupted) else kept_at_once
        typer.echo(f"Stopped. {_where_to_go_on(path, kept, words)}", err=True)
        raise typer.Exit(exit_status(stop)) from None
    except EngineFailed as failure:
        typer.echo(f"Error: {failure}", err=True)
        raise typer.Exit(1) from None
    finally:
        progress.stop()


def _where_to_go_on(path: Path, kept: str, words: Sequence[str]) -> str:
    if not (path / "manifest.json").exists():
        return "Nothing is written yet; the same command starts anew."
    return f"Everything up to the last {kept} is in {path}; continue with {shlex.join(words)}"
