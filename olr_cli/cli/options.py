"""Options that several subcommands have, what they take, and what the shell offers for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from olr_cli.recipe.schema import ColumnRole


FORMATS = ("terminal", "markdown", "latex", "csv", "json")
"""How tables can be printed."""


def recipe_names(incomplete: str) -> list[str]:
    """The recipes that come with olr, for completion in the shell; where none fits, it offers files."""
    from olr_cli.recipe.files import bundled_names

    return [name for name in bundled_names() if name.startswith(incomplete)]


def figures(incomplete: str) -> list[str]:
    """What `olr analyze --figure` draws."""
    from olr_cli.analysis.figures import FIGURES

    return [name for name in (*FIGURES, "all") if name.startswith(incomplete)]


def tables(incomplete: str) -> list[str]:
    """What `olr analyze --table` prints."""
    from olr_cli.analysis.tables import TABLES

    return [name for name in TABLES if name.startswith(incomplete)]


RecipeName = Annotated[
    str,
    typer.Argument(
        help="A recipe file, or the name of a recipe that comes with olr.", autocompletion=recipe_names
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a recipe key, e.g. method.slope_threshold=0.1; may be repeated.",
    ),
]
LogColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        metavar="NAME=COLUMN",
        help="For the log of another trainer: which of its columns is the prompt, response, step, reward,"
        " given_label, …, e.g. response=generation; may be repeated. Logs of TRL, verl, verifiers and"
        " prime-rl are recognised without.",
    ),
]
JsonObject = Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print JSON lines to standard output.")]


Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="{ROLE: COLUMN}",
        help="Which columns hold what, as in '{question: Question, answer: Answer, id: uid}'.",
        show_default=False,
    ),
]
SystemPrompt = Annotated[
    str | None,
    typer.Option(
        "--system",
        metavar="TEXT|none",
        help="System message of prompts that have none; by default plain questions get one that asks for a \\boxed{}.",
        show_default=False,
    ),
]
ChatTemplate = Annotated[
    str | None,
    typer.Option(
        "--chat-template",
        metavar="FILE|none",
        help="Jinja file in place of the model's chat template; none: prompts are plain text.",
        show_default=False,
    ),
]


def read_columns(text: str | None) -> dict[ColumnRole, str] | None:
    """The value of `--columns`.

    Raises:
        UserError: it is not a mapping from roles to columns.
    """
    from olr_cli.errors import UserError
    from olr_cli.recipe.checks import validate
    from olr_cli.recipe.files import NotPlain, parse_yaml

    if text is None:
        return None
    try:
        columns = parse_yaml(text)
    except NotPlain as error:
        raise UserError(
            f"--columns {text} {error}; write it as '{{question: Question, answer: Answer}}'"
        ) from None
    called = {"data.columns": "--columns"}
    return validate({"data": {"columns": columns}}, "--columns", called).data.columns


def require_new(out: Path | None, content: str, *, as_json: bool) -> None:
    """Refuse an `--out` file that is there already, or that `--json` leaves nothing for.

    Raises:
        UserError: as above; `content` is what the file would hold.
    """
    from olr_cli.errors import UserError, taken

    if out is not None and as_json:
        raise UserError(f"--out is for {content}, and --json writes to standard output; choose one of them")
    if out is not None and out.exists():
        raise taken(out, "--out")


def shape_of(format_: str, *, as_json: bool) -> str:
    """The format of the output: that of ``--format``, or json.

    Raises:
        UserError: there is no such format, or ``--json`` and ``--format`` contradict each other.
    """
    from olr_cli.errors import UserError

    require_known("--format", format_, FORMATS)
    if as_json and format_ not in ("terminal", "json"):
        raise UserError(f"--json and --format {format_} contradict each other; choose one of them")
    return "json" if as_json else format_


def require_known(option: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a value that an option does not know; the likely one is suggested.

    Raises:
        UserError: it is none of them.
    """
    from olr_cli.errors import unknown

    if value not in known:
        raise unknown(option, value, known)
