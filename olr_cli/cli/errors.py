"""How commands end: 0 done, 1 a bug (with its traceback), 2 the user's to mend, 130 Ctrl-C, 143 SIGTERM."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from olr_cli.errors import UserError

P = ParamSpec("P")
R = TypeVar("R")


def ends_well(command: Callable[P, R]) -> Callable[P, R]:
    """Turn a `UserError` into its sentence and status 2, and Ctrl-C into status 130; bugs keep their traceback."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except UserError as error:
            print(f"Error: {error}", file=sys.stderr)
            raise typer.Exit(2) from None
        except FileNotFoundError as error:
            from olr_cli.runs.store import told_of_removed_shard

            sentence = told_of_removed_shard(error)
            if sentence is None:
                raise
            print(f"Error: {sentence}", file=sys.stderr)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            print("Interrupted.", file=sys.stderr)
            raise typer.Exit(130) from None
        except BrokenPipeError:
            # The reader of a pipe has gone (`olr replay … | head`): stop quietly, as other tools do.
            sys.stderr.close()
            raise typer.Exit(141) from None

    return wrapped
