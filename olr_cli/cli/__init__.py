"""The command line: one thin module per subcommand.

Heavy imports (torch, polars, matplotlib) happen inside the commands, so that `olr --help` is instant.
"""

from __future__ import annotations

import gc
import io
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from olr_cli.cli import (
    analyze,
    audit,
    benchmarks,
    check,
    evaluate,
    inject_noise,
    recipes,
    regrade,
    replay,
    rollouts,
    runs,
    show,
    train,
)
from olr_cli.cli.errors import ends_well, program
from olr_cli.cli.help import Command, Group
from olr_cli.cli.printing import say, show_error
from olr_cli.errors import UserError

_SUGGESTION = re.compile(r"\.? Did you mean ([^?]*)\?$")
"""End of click's sentence about a misspelled name: ``. Did you mean --seed?``"""

_OTHER_NAMES = {
    "--rollouts": "--samples",
    "--num-generations": "--samples",
    "--n": "--samples",
    "--epochs": "--visits",
    "--output": "--out",
}
"""Option by its name in other programs or in recipes -> its name here."""


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Run the block; if the command line has a mistake, print it as one sentence and exit with status 2.

    Without this, typer would draw a box around its own message.
    """
    try:
        yield
    except Exception as error:
        # These are click's exceptions, or those of the copy inside typer: recognise them by their attributes. A command
        # without arguments prints its help, which is no mistake.
        if (
            not hasattr(error, "format_message")
            or type(error).__name__ == "NoArgsIsHelpError"
        ):
            raise
        # pydantic puts "Value error, " before the sentence of a validator.
        message = error.format_message().removesuffix(".").replace("Value error, ", "")
        message = _unknown_option(error) or message
        problem = _SUGGESTION.sub(r" (did you mean \1?)", message[:1].lower() + message[1:])
        context = getattr(error, "ctx", None)
        command = "olr" if context is None else context.command_path
        remedy = f"`{command} --help` lists what it takes"
        if problem.startswith("got unexpected extra argument"):
            remedy += ", and a name with spaces needs quotes"
        refusal = UserError(problem, remedy)
        # Parsing has failed, so look for --json among the words themselves: then a program reads the output.
        if "--json" in sys.argv:
            show_error(refusal)
        say(f"Error: {refusal}")
        raise typer.Exit(2) from None


def _unknown_option(error: Any) -> str | None:
    """Return what to tell the user about an unknown option, as one sentence; None if `error` is any other error.

    The sentence suggests the options that may be meant, if there are any.

    Args:
        error: any exception of click or typer.
    """
    name, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if name is None or context is None or not hasattr(error, "possibilities"):
        return None
    # Propose `--samples` for `--n` only if this command has it: `olr inject-noise` has not.
    other = _OTHER_NAMES.get(name)
    is_known = any(other in parameter.opts for parameter in context.command.params)
    meant = [other] if other is not None and is_known else error.possibilities
    sentence = f"No such option: {name}"
    return f"{sentence}. Did you mean {' or '.join(meant)}?" if meant else sentence


class _Program(Group):
    """The group of all commands of `olr`.

    A mistake on the command line, such as an unknown option, is printed as one sentence, like every `UserError`.
    """

    # Two places parse words: `make_context` those before the subcommand, `invoke` those of the subcommand.
    def make_context(self, *args: Any, **settings: Any) -> Any:
        with _one_sentence():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: Any) -> Any:
        with _one_sentence():
            return super().invoke(ctx)


def main() -> None:
    """Run the `olr` command; the entry point of the package."""
    # Prompts and labels live until the end, and every garbage collection walks them all to find nothing. With fewer
    # collections, a replay of 100,000 prompts, 3 visits and 4 rollouts takes 24.8 instead of 26.9 CPU s, in the same
    # memory.
    gc.set_threshold(100_000, 50, 100)
    # OpenRLHF needs pynvml, and torch warns about it at every start. Users cannot do anything about that.
    warnings.filterwarnings("ignore", message="The pynvml package is deprecated")
    # Print a question mark for a character that the terminal's encoding lacks, instead of a traceback.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    with program():
        app()


app = typer.Typer(
    name="olr",
    cls=_Program,
    help="Find wrong labels, see what they do to reinforcement learning with verifiable rewards, and repair them during"
    " training.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # The context carries `main`, because a sweep runs it again in a new process for each of its runs (`cli.train`).
    context_settings={"help_option_names": ["-h", "--help"], "obj": main},
)
_COMMANDS: dict[str, list[tuple[Any, str]]] = {
    "Data": [
        (check.check, "olr check mine.csv --export clean.csv"),
        (rollouts.rollouts, "olr rollouts path/to/model mine.csv --visits 4"),
        (audit.audit, "olr audit runs/rollouts-mine --report queue.html"),
        (inject_noise.inject_noise, "olr inject-noise --type active --ratio 0.5"),
    ],
    "Training": [
        (
            train.train,
            "olr train own-data --set data.train=mine.csv --set model.path=path/to/model --dry-run",
        ),
        (recipes.app, "olr recipes cp own-data mine.yaml"),
    ],
    "Results": [
        (runs.runs, "olr runs --sort accuracy"),
        (show.show, "olr show runs/quickstart --wrong"),
        (analyze.analyze, "olr analyze runs/quickstart --figure dynamics"),
        (replay.replay, "olr replay runs/quickstart --set method.slope_threshold=0.1"),
        (
            evaluate.evaluate,
            "olr evaluate runs/quickstart --benchmarks math500 --samples 4",
        ),
        (regrade.regrade, "olr regrade evaluations/mine --extractor last_number"),
        (benchmarks.benchmarks, "olr benchmarks math500"),
    ],
}
"""Panel of `olr --help` -> its commands, each with an example."""

# typer takes the commands in this order, which is the order of `olr --help`.
for _panel, _commands in _COMMANDS.items():
    for _command, _example in _commands:
        _name, _epilog = _example.split()[1], f"Example: {_example}"
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, name=_name, rich_help_panel=_panel, epilog=_epilog)
        else:
            app.command(_name, cls=Command, rich_help_panel=_panel, epilog=_epilog)(
                ends_well(_command)
            )


def _version(is_wanted: bool) -> None:
    """Print the version and exit, if `--version` is given."""
    if is_wanted:
        from olr_cli import __version__

        typer.echo(f"olr {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: bool = typer.Option(
        False,
        "--version",
        callback=_version,
        help="Print the version and exit.",
    ),
) -> None:
    pass
