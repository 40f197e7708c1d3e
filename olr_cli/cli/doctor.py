"""`olr doctor`: what is here and what will fail, before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from olr_cli.cli.options import Settings, recipe_names

if TYPE_CHECKING:
    from rich.table import Table

    from olr_cli.engines.rehearse import Diagnosis

_STYLES = {"ok": "green", "warning": "yellow", "error": "bold red", "unused": "dim"}


def doctor(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="Recipe to check: a file, or the name of a recipe that comes with olr.",
            autocompletion=recipe_names,
        ),
    ] = None,
    set_: Settings = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")] = False,
) -> None:
    """Check this machine, and whether a recipe can run on it; exit status 2 if it cannot.

    The figures for GPU memory, host memory and disk are estimates; recipes/paper/README.md has the formulas.
    """
    import shlex
    from json import dumps

    from rich.console import Console
    from rich.markup import escape

    from olr_cli.engines.rehearse import diagnose
    from olr_cli.recipe.layers import load_recipe
    from olr_cli.user_code import require_named_trust

    checked = load_recipe(recipe, set_ or []) if recipe is not None else None
    require_named_trust(checked is not None and checked.model.trust_remote_code)
    diagnosis = diagnose(checked)
    settings = [word for setting in set_ or [] for word in ("--set", setting)]
    dry_run = shlex.join(["olr", "train", recipe or "RECIPE", *settings, "--dry-run"])
    if json:
        commands = {None: ["olr doctor RECIPE"], True: [dry_run], False: []}
        facts = {"recipe": recipe} | diagnosis.plain() | {"next": commands[diagnosis.can_run]}
        typer.echo(dumps(facts, indent=2))
    else:
        console = Console(highlight=False)
        console.print(_table(diagnosis))
        for check in diagnosis.problems:
            status = diagnosis.status(check)
            console.print(f"[{_STYLES[status]}]{status}:[/] {escape(check.problem or '')}", soft_wrap=True)
        conclusion = f"{recipe} cannot run here."
        if recipe is None:
            conclusion = "Next: olr doctor RECIPE checks whether a recipe can run here."
        elif diagnosis.can_run:
            conclusion = f"Nothing here keeps {recipe} from running. Next: {dry_run}"
        console.print(escape(conclusion), soft_wrap=True)
    if diagnosis.can_run is False:
        raise typer.Exit(2)


def _table(diagnosis: Diagnosis) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("", "here", "wanted", ""):
        table.add_column(heading, overflow="fold")
    for check in diagnosis.checks:
        status = diagnosis.status(check)
        table.add_row(check.name, Text(check.here), Text(check.wanted), Text(status, _STYLES[status]))
    if diagnosis.memory is not None:
        for name, sizes in (("update", diagnosis.memory.update), ("generation", diagnosis.memory.generation)):
            parts = ", ".join(f"{subject} {size / 1e9:.1f}" for subject, size in sizes.items() if size)
            table.add_row(f"{name}, GB a GPU", Text(parts))
    return table
