"""`olr recipes ls|show|keys|cp|validate`: the recipes that come with olr, and the user's own."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer
from typer import Argument, Option

from olr_cli.cli import options
from olr_cli.cli.errors import ends_well
from olr_cli.cli.help import Command, Group
from olr_cli.cli.printing import show as print_answer
from olr_cli.files import read_text, require_new, write_new
from olr_cli.tables import Answer, File

app = typer.Typer(
    cls=Group, help="List, show, copy and check recipes.", no_args_is_help=True
)


_GROUPS = {
    "laptop/quickstart": "A first run",
    "own-data": "Your own data",
    "laptop/": "Studies on a laptop",
    "paper/": "The paper's experiments, on GPUs",
}
"""Beginning of a recipe's name -> heading of its group."""


@app.command("ls", cls=Command)
@ends_well
def ls(json: bool = options.JSON_OBJECT) -> None:
    """List the recipes that come with olr; `olr train NAME` runs one."""
    from olr_cli.recipe.layers import recipes_by_name

    recipes = [
        {
            "name": name,
            "group": next(
                group for beginning, group in _GROUPS.items() if name.startswith(beginning)
            ),
            # The first line of every recipe is a comment that says what it is for.
            "about": file.read_text("utf-8").partition("\n")[0].lstrip("# "),
            "file": str(file),
        }
        for name, file in recipes_by_name().items()
    ]
    width = max(len(recipe["name"]) for recipe in recipes)
    lines = []
    for group in _GROUPS.values():
        named = [
            f"  {one['name']:{width}}  {one['about']}"
            for one in recipes
            if one["group"] == group
        ]
        lines += [f"{group}:", *named, ""]
    lines.append(
        "Train one: olr train laptop/quickstart    Make one your own: olr recipes cp own-data my.yaml"
    )
    print_answer(Answer(lines, {"recipes": recipes}), "json" if json else "terminal")


@app.command("show", cls=Command)
@ends_well
def show(
    recipe: str = options.RECIPE_NAME,
    resolved: bool = Option(
        False, "--resolved", help="Merge in the base recipe and fill in every default."
    ),
    json: bool = options.JSON_OBJECT,
) -> None:
    """Print a recipe."""
    from olr_cli.recipe.layers import find_recipe, load_recipe, read_tree
    from olr_cli.recipe.plain import MOST_BYTES, dump_yaml

    if resolved:
        keys = load_recipe(recipe).model_dump(mode="json")
        text = dump_yaml(keys)
    else:
        # The file itself, with its comments. It may be wrong YAML, which only --json and --resolved have to read.
        text = read_text(find_recipe(recipe), at_most=MOST_BYTES)
        keys = read_tree(find_recipe(recipe)) if json else {}
    data = {"name": recipe, "file": find_recipe(recipe), "recipe": keys}
    print_answer(Answer([text.rstrip()], data), "json" if json else "terminal")


@app.command("keys", cls=Command)
@ends_well
def keys(
    prefix: str = Argument(
        "", help="Only keys that begin with this, e.g. train or method.slope."
    ),
    format_: str = Option(
        "terminal",
        "--format",
        metavar="NAME",
        help="How keys are printed: terminal or markdown (a page).",
    ),
    json: bool = options.JSON_OBJECT,
) -> None:
    """Print every key that a recipe can set: type, range, default and meaning."""
    from olr_cli.recipe.reference import key_page, key_table

    shape = options.shape_of(format_, as_json=json, formats=("terminal", "markdown"))
    if shape == "markdown":
        print_answer(Answer([key_page(prefix)]))
    else:
        table = key_table(prefix)
        print_answer(Answer([table], table), shape)


@app.command("cp", cls=Command)
@ends_well
def cp(
    recipe: str = options.RECIPE_NAME,
    target: Path = Argument(help="New file; must not exist."),
    json: bool = options.JSON_OBJECT,
) -> None:
    """Copy a recipe to a file of your own, with any base recipe merged into it."""
    from olr_cli.recipe.layers import find_recipe, load_recipe, merged_text

    source = find_recipe(recipe)
    # An empty name: the error names the file, and no option.
    require_new({"": target})
    sweep = " --sweep" if load_recipe(source).sweep else ""
    write_new(target, lambda path: path.write_text(merged_text(source), encoding="utf-8"))
    command = f"olr train {shlex.quote(str(target))}{sweep}"
    answer = Answer(files=[File(target)], next={command: "once you have edited it"})
    print_answer(answer, "json" if json else "terminal")


@app.command("validate", cls=Command)
@ends_well
def validate(
    recipe: str = options.RECIPE_NAME,
    set_: list[str] = options.SETTINGS,
    json: bool = options.JSON_OBJECT,
) -> None:
    """Check a recipe for unknown keys, wrong values and likely mistakes, without starting anything."""
    from olr_cli.recipe.checks import recipe_warnings
    from olr_cli.recipe.layers import load_recipe
    from olr_cli.recipe.sweep import expand_sweep

    resolved = load_recipe(recipe, set_)
    count = len(expand_sweep(recipe, set_)) if resolved.sweep else 1
    runs = f", a sweep of {count} runs" if resolved.sweep else ""
    warnings = recipe_warnings(resolved)
    lines = [f"Warning: {warning}" for warning in warnings]
    lines.append(f"{recipe} is a valid recipe{runs} (digest {resolved.digest()}).")
    words = [word for setting in set_ for word in ("--set", setting)]
    command = shlex.join(
        [
            "olr",
            "train",
            recipe,
            *words,
            *(["--sweep"] if resolved.sweep else []),
            "--dry-run",
        ]
    )
    data = {
        "recipe": recipe,
        "digest": resolved.digest(),
        "runs": count,
        "warnings": warnings,
    }
    print_answer(Answer(lines, data, next={command: ""}), "json" if json else "terminal")
