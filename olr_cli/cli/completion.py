"""What the shell offers for arguments that name something (`olr --install-completion`)."""

from __future__ import annotations


def recipe_names(incomplete: str) -> list[str]:
    """The recipes that come with olr; where none fits, the shell offers files."""
    from olr_cli.recipe.files import bundled_names

    return [name for name in bundled_names() if name.startswith(incomplete)]


def figures(incomplete: str) -> list[str]:
    """What `olr analyze --figure` draws."""
    from olr_cli.analysis.figures import FIGURES

    return [name for name in (*FIGURES, "all") if name.startswith(incomplete)]


def tables(incomplete: str) -> list[str]:
    """What `olr analyze --table` prints."""
    from olr_cli.analysis import TABLES

    return [name for name in TABLES if name.startswith(incomplete)]
