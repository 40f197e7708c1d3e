"""From what was asked for to figures and tables: their names, the arms, the folder they go to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from olr_cli.analysis import FIGURES, TABLES
from olr_cli.analysis.arms import Arm, Run
from olr_cli.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from olr_cli.analysis.arms_table import Table


def known(kind: str, names: Iterable[str], registry: Iterable[str]) -> list[str]:
    """The names, each once, in the registry's order; ``all`` stands for all of them.

    Raises:
        UserError: a name is not in the registry.
    """
    registered, wanted = list(registry), set(names)
    for name in sorted(wanted - {*registered, "all"}):
        there = ", ".join(registered)
        raise UserError(f"there is no {kind} '{name}'{did_you_mean(name, registered)} (there are: {there})")
    return [name for name in registered if name in wanted or "all" in wanted]


def draw(names: Sequence[str], arms: Sequence[Arm], folder: Path) -> list[Path]:
    """Draw figures of some arms and save each as PNG, PDF and CSV.

    Returns:
        The files.

    Raises:
        UserError: a run has no labels, a shard is torn, the folder can't be written.
    """
    from olr_cli.analysis.style import save

    _require_folder(folder)
    charts = [chart for name in names for chart in import_module(FIGURES[name]).charts(arms)]
    return [file for chart in charts for file in save(chart, folder)]


def _require_folder(folder: Path) -> None:
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise UserError(f"{folder}: {existing} is a file, not a folder; choose another --out")


def count(name: str, arms: Sequence[Arm], baseline: str | None) -> Table:
    """A table of some arms, compared to the arm called `baseline` (by default the first).

    Raises:
        UserError: there is no such arm, a run has no labels, a shard is torn.
    """
    table: Table = import_module(TABLES[name]).table(arms, baseline)
    return table


def default_folder(places: Sequence[Path], runs: Sequence[Run]) -> Path:
    """Where figures go: into the run; for several runs into the folder that was named, or that they stand in.

    Raises:
        UserError: several runs stand in different folders.
    """
    if len(runs) == 1:
        return runs[0].path / "figures"
    if len(places) == 1:
        return places[0] / "figures"
    parents = {run.path.resolve().parent for run in runs}
    if len(parents) > 1:
        raise UserError("the runs stand in several folders; say with --out DIR where their figures should go")
    return runs[0].path.parent / "figures"
