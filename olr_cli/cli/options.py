"""Options that several subcommands share, the parsing of their values, and the shell's completions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args, get_type_hints

from typer import Argument, Option

from olr_cli.errors import UserError, at, did_you_mean, unknown

if TYPE_CHECKING:
    from olr_cli.recipe.sections import ColumnRole


FORMATS = ("terminal", "markdown", "latex", "csv")
"""Values of `--format`, the shapes of a printed table. `--json` prints more than any of them."""
DEVICES = ("auto", "cpu", "cuda")
"""Values of `--device`."""


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with olr, for the shell's completion.

    typer offers the names that begin with the typed text. If none does, the shell offers files.
    """
    from olr_cli.recipe.layers import recipes_by_name

    return [*recipes_by_name()]


def figures() -> list[str]:
    """Return the values of `olr analyze --figure`, for the shell's completion."""
    from olr_cli.analysis.figures import FIGURES

    return [*FIGURES, "all"]


def tables() -> list[str]:
    """Return the values of `olr analyze --table`, for the shell's completion."""
    from olr_cli.analysis.tables import TABLES

    return [*TABLES]


RECIPE_NAME = Argument(
    help="A recipe file, or the name of a recipe that comes with olr.",
    autocompletion=recipe_names,
)
SETTINGS = Option(
    [],
    "--set",
    metavar="KEY=VALUE",
    help="Override a recipe key, e.g. method.slope_threshold=0.1; may be repeated.",
)
LOG_COLUMNS = Option(
    [],
    "--columns",
    metavar="ROLE=COLUMN,...",
    help="For the log of another trainer: which columns hold its prompt, response, step, reward, given_label, …,"
    " as in prompt=query,response=generation. Logs of TRL, verl, ms-swift, NeMo-RL, AReaL,"
    " verifiers, prime-rl, lm-eval, inspect_ai and other programs need no --columns.",
)
DATA_COLUMNS = Option(
    [],
    metavar="ROLE=COLUMN,...",
    help="Which columns hold what, as in question=Question,answer=Answer,id=uid.",
)
ENCODING = Option(
    "utf-8",
    metavar="NAME",
    help="Encoding of CSV and JSON files that are neither UTF-8 nor marked UTF-16, such as cp1252.",
)
DECIMAL_COMMA = Option(
    False,
    "--decimal-comma",
    help="Labels have decimal commas: 23,5 is 23.5, not the list 23, 5.",
)
JSON_OBJECT = Option(False, "--json", help="Print one JSON object to standard output.")
JSON_LINES = Option(False, "--json", help="Print JSON lines to standard output.")
FORMAT = Option(
    "terminal",
    "--format",
    metavar="NAME",
    help="How tables are printed: terminal, markdown, latex or csv.",
)
DRY_RUN = Option(
    False,
    "--dry-run",
    help="Show what would run, and one prompt as the model sees it, without starting.",
)
SYSTEM_PROMPT = Option(
    None,
    "--system",
    metavar="TEXT|none",
    help="System message of prompts that have none; by default plain questions get one that asks for a \\boxed{}.",
)
CHAT_TEMPLATE = Option(
    None,
    metavar="FILE|none",
    help="Jinja file to use instead of the model's chat template; none: prompts are plain text.",
)
EXTRACTOR = Option(
    None,
    metavar="NAME|KIND:TEXT",
    help="How to read answers: boxed, first_integer, last_number, last_answer, choice, text, regex:PATTERN, after:TEXT,"
    " tag:NAME, or package.module:function; by default chosen from the data set or benchmark.",
)
TOLERANCE = Option(
    None,
    metavar="T",
    help="Relative tolerance of numbers, from 0 to below 1, as data.tolerance; by default none.",
)
COMPARE = Option(
    None,
    metavar="DIR",
    help="Show the scores of another evaluation, and the paired differences to it.",
)
VERIFIED_KEYS = Option(
    [],
    metavar="FILE",
    help="Score by the verified keys in this file, without the problems that it rejects: prompt_id and true_answer,"
    " what the page of `olr audit` exports, or a data set.",
)
STOP = Option([], metavar="TEXT", help="End a response before this text; may be repeated.")
MAX_NEW_TOKENS = Option(
    4096, metavar="N", min=1, help="Maximum length of a response, in tokens."
)
SEED = Option(0, metavar="N", help="Random seed of the sampling.")
URL = Option(
    None,
    metavar="URL",
    help="API of an OpenAI-compatible server, e.g. http://localhost:8000/v1; MODEL is its name there. The key"
    " is read from OPENAI_API_KEY.",
)
CONCURRENCY = Option(
    None,
    metavar="N",
    min=1,
    help="Largest number of requests to the server at a time; by default 64.",
)
TIMEOUT = Option(
    None,
    metavar="S",
    min=1,
    help="Seconds in which the server must have replied to a request; by default 600.",
)
DEVICE_NAME = Option("auto", metavar="NAME", help="Device of the model: auto, cpu or cuda.")
TRUST_REMOTE_CODE = Option(
    False, "--trust-remote-code", help="Run code that comes with the model."
)


# Groups of options ------------------------------------------------------------------------------------------------


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a copy of a command for typer; a parameter that is a named tuple becomes one option for each field.

    The default of a field is the typer Option that describes it. The help lists the options of a named tuple below a
    heading of their own: the text before the colon in the tuple's docstring. The heading `More` is for rarely used
    options.
    """
    keyword, parameters = inspect.Parameter.KEYWORD_ONLY, list[inspect.Parameter]()
    groups: dict[str, Any] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if hasattr(parameter.annotation, "_fields"):
            group = groups[parameter.name] = parameter.annotation
            for name, hint in get_type_hints(group).items():
                # A copy, because several commands share an option and put it into different panels.
                option = copy(group._field_defaults[name])
                option.rich_help_panel = group.__doc__.partition(":")[0].rstrip(".")
                parameters.append(
                    parameter.replace(
                        name=name, kind=keyword, default=option, annotation=hint
                    )
                )
        else:
            parameters.append(parameter.replace(kind=keyword))

    def flat(**values: Any) -> None:
        """Call the original command, with the options of each group put back into the group's named tuple."""
        for name, group in groups.items():
            values[name] = group(**{field: values.pop(field) for field in group._fields})
        command(**values)

    # typer reads the command's name, help and options from these attributes.
    flat.__name__, flat.__doc__ = command.__name__, command.__doc__
    flat.__annotations__ = {
        parameter.name: parameter.annotation for parameter in parameters
    }
    flat.__dict__["__signature__"] = inspect.Signature(parameters)
    return flat


def given(*groups: Any) -> dict[str, Any]:
    """Return the values of all options in some groups as one dictionary: name of the option -> value.

    Options that the user left out are included, with their defaults. A group is a named tuple of options (`grouped`).
    """
    return {name: value for group in groups for name, value in group._asdict().items()}


# Values of options ------------------------------------------------------------------------------------------------


def read_list(values: Sequence[str]) -> list[str]:
    """Return the items of a list that is written as ``a,b``, as a repeated option, or both."""
    return [item.strip() for value in values for item in value.split(",")]


def one_file(files: Sequence[Path], option: str) -> Path | None:
    """Return the file that an option names, or None if the option is not given.

    Args:
        files: the files that the option was given with.
        option: the option's name, for the error.

    Raises:
        UserError: the option is given several times. typer alone would silently use the last one.
    """
    if len(files) > 1:
        raise UserError(
            f"{option} is one file here, and {len(files)} are named", "join them"
        )
    return files[0] if files else None


def read_columns(values: Sequence[str]) -> dict[ColumnRole, str] | None:
    """Return the columns that `--columns` names in files of prompts, or None if the option is not given.

    The result maps a role, such as ``question``, to a column, whose name may be a dotted path.

    Raises:
        UserError: the text has another form, names an unknown role, or names a role twice.
    """
    from olr_cli.recipe.sections import OTHER_ROLES, ColumnRole

    columns = _columns(
        values, get_args(ColumnRole), OTHER_ROLES, "question=Question,answer=Answer"
    )
    return cast("dict[ColumnRole, str] | None", columns or None)


def read_log_columns(values: Sequence[str]) -> dict[str, str]:
    """Return the columns that `--columns` names in a log of another trainer; empty if the option is not given.

    The result maps a role, such as ``response``, to a column, whose name may be a dotted path.

    Raises:
        UserError: the text has another form, names an unknown role, or names a role twice.
    """
    from olr_cli.data.columns import COLUMNS

    names = {"question": "prompt", "id": "prompt_id", "label": "given_label"}
    return _columns(values, COLUMNS, names, "prompt=query,response=generation")


def _columns(
    values: Sequence[str], roles: Sequence[str], names: Mapping[str, str], example: str
) -> dict[str, str]:
    """Return the columns that `--columns` names, by role; empty if the option is not given.

    A role says what a column holds, such as ``question``.

    Args:
        values: the texts of `--columns`, such as ``question=Question,answer=Answer``; the option may be repeated.
        roles: the roles that this command knows.
        names: other names that the user may write for roles: other name -> its role in `roles`.
        example: a value of the option, to show in an error.

    Raises:
        UserError: the text has another form, names an unknown role, or names a role twice.
    """
    text = ",".join(values)
    if not text:
        return {}
    columns = _named_columns(text)
    if columns is None:
        raise UserError(
            f"--columns {text} does not say which column holds what",
            f"write it as {example}",
        )
    ours = {names.get(role, role): path for role, path in columns.items()}
    strange = [
        f"'{role}'{did_you_mean(str(role), roles)}" for role in ours if role not in roles
    ]
    if strange:
        raise UserError(
            f"--columns names {', '.join(strange)}", f"known: {', '.join(roles)}"
        )
    # `label` and `given_label` are one role of a log, so both at once are ambiguous.
    if len(ours) < len(columns):
        raise UserError(f"--columns {text} names two columns for one role", "leave one out")
    return ours


def _named_columns(text: str) -> dict[str, str] | None:
    """Return the value of `--columns` as a dictionary: role -> column; None if it has the wrong form.

    The form is ``role=column,…`` or ``{role: column, …}``. Whether the roles exist is not checked.
    """
    from olr_cli.recipe.plain import NotPlain, parse_yaml

    try:
        # `{question: Question}` is the form in recipes, and in errors that propose a text to paste.
        if text.startswith("{"):
            columns = parse_yaml(text)
        # Split only at a comma before `role=`, because the name of a column may contain a comma.
        else:
            columns = dict(pair.split("=", 1) for pair in re.split(r",\s*(?=\w+=)", text))
    except (NotPlain, ValueError):
        return None
    if not isinstance(columns, dict):
        return None
    is_named = all(isinstance(path, str) and path for path in columns.values())
    return columns if is_named else None


def require_no_file(out: Path | None, content: str, *, as_json: bool) -> None:
    """Raise `UserError` if `--out` names a file although `--json` prints its content instead.

    Args:
        out: the value of `--out`.
        content: what the file would hold, for the error.
        as_json: whether `--json` is given.
    """
    if out is not None and as_json:
        raise UserError(
            f"--out is for {content}, and --json writes to standard output",
            "choose one of them",
        )


def shape_of(format_: str, *, as_json: bool, formats: tuple[str, ...] = FORMATS) -> str:
    """Return the form of output to pass to `show`: ``json`` if `--json` is given, else the value of ``--format``.

    Args:
        format_: the value of ``--format``.
        as_json: whether `--json` is given.
        formats: the values that ``--format`` may have.

    Raises:
        UserError: the format is unknown, or `--json` is given together with a format other than ``terminal``.
    """
    require_known("format", format_, formats)
    if as_json and format_ != "terminal":
        raise UserError(
            f"--json and --format {format_} contradict each other", "choose one of them"
        )
    return "json" if as_json else format_


def require_extractor(text: str | None) -> None:
    """Raise `UserError` if there is no such extractor as `--extractor` names; call this before anything is loaded."""
    from olr_cli.answers import find_extractor

    if text is not None:
        with at("extractor"):
            find_extractor(text)


def require_known(name: str, value: str | None, known: tuple[str, ...]) -> None:
    """Raise `UserError` if the value of an option is not one of the known ones, and suggest the likely one.

    Args:
        name: the option's name without ``--``.
        value: the option's value; None, for an option that is not given, is accepted.
        known: the values that the option may have.
    """
    if value is not None and value not in known:
        raise unknown(name, value, known)
