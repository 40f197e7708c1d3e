"""The registry of figures: which there are, which of them some arms can show, and their files.

A new figure is a function from arms to charts, in a module beside this one, and an entry in `FIGURES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from olr_cli.errors import UserError, unknown

if TYPE_CHECKING:
    from olr_cli.analysis.arms import Arm
    from olr_cli.analysis.style import Chart


@dataclass(frozen=True)
class Figure:
    """A figure of `olr analyze`; its functions are named as ``module:function`` and imported when they are needed.

    Attributes:
        charts: from arms to the charts that are saved; the first line of its docstring is the caption.
        lacks: from arms to what the figure needs and they are not, None if it can be drawn; empty: all arms will do.
        needs_runs: otherwise it is of the theory alone, and ``all`` leaves it out.
        shows_logs: whether the logs of other trainers will do.
    """

    charts: str
    lacks: str = ""
    needs_runs: bool = True
    shows_logs: bool = False

    @property
    def caption(self) -> str:
        """What it shows."""
        return (_resolved(self.charts).__doc__ or "").partition("\n")[0]

    def lacking(self, arms: Sequence[Arm]) -> str | None:
        """The runs that the figure needs; None if it can be drawn."""
        logs = [arm.log for arm in arms if arm.log is not None]
        if logs and self.needs_runs and not self.shows_logs:
            return f"runs of olr, and {logs[0].source} is a log of {logs[0].trainer}"
        lacking: str | None = _resolved(self.lacks)(arms) if self.lacks else None
        return lacking

    def drawn(self, arms: Sequence[Arm]) -> list[Chart]:
        """The charts of some arms.

        Raises:
            UserError: a run has no labels, or a file is damaged.
        """
        from olr_cli.analysis.style import applied

        with applied():
            charts: list[Chart] = _resolved(self.charts)(arms)
        return charts


def _resolved(name: str) -> Callable[[Sequence[Arm]], Any]:
    # no user's text: functions of the package itself, named in the registry of figures
    function: Callable[[Sequence[Arm]], Any] = resolve_name(f"olr_cli.analysis.{name}")
    return function


FIGURES: Mapping[str, Figure] = {
    "learning": Figure("learning:learning", "learning:lacking", shows_logs=True),
    "coherence": Figure("by_epoch:coherence", "by_epoch:coherence_lacks"),
    "dynamics": Figure("by_epoch:dynamics", "by_epoch:dynamics_lacks"),
    "composition": Figure("by_epoch:composition", "by_epoch:composition_lacks"),
    "ablation": Figure("variations:ablation", "variations:ablation_lacks"),
    "sensitivity": Figure("variations:sensitivity", "variations:sensitivity_lacks"),
    "noise": Figure("variations:noise", "variations:noise_lacks"),
    "cost": Figure("cost:charts", "cost:lacking"),
    "theory": Figure("theory.figure:charts", "theory.figure:lacking"),
    "phase": Figure("theory.phase:charts", needs_runs=False),
}

WITHOUT_RUNS = [name for name, figure in FIGURES.items() if not figure.needs_runs]


def known(kind: str, names: Iterable[str], registry: Iterable[str]) -> list[str]:
    """The names, each once, in the registry's order.

    Raises:
        UserError: a name is not in the registry.
    """
    registered, wanted = list(registry), set(names)
    for name in sorted(wanted.difference(registered)):
        raise unknown(f"--{kind}", name, registered)
    return [name for name in registered if name in wanted]


def known_figures(names: Sequence[str]) -> list[str]:
    """The figures of these names, in the order of `FIGURES`; ``all`` stands for all of them.

    Raises:
        UserError: there is no such figure.
    """
    named = known("figure", (name for name in names if name != "all"), FIGURES)
    return list(FIGURES) if "all" in names else named


def drawable(names: Sequence[str], arms: Sequence[Arm]) -> list[str]:
    """The figures of these names; ``all`` stands for every figure that these arms have the runs for.

    Raises:
        UserError: there is no such figure, or one that is named needs other runs.
    """
    figures = []
    for name in known_figures(names):
        figure, is_named = FIGURES[name], name in names
        if not figure.needs_runs and not is_named:
            continue
        lacking = figure.lacking(arms)
        if lacking is not None and is_named:
            raise UserError(f"--figure {name} needs {lacking}")
        if lacking is None:
            figures.append(name)
    return figures


def left_out(names: Sequence[str], arms: Sequence[Arm]) -> list[str]:
    """Sentences on the figures by epoch that ``all`` leaves out, because nobody knows the truth."""
    if "all" not in names or any(arm.log is not None for arm in arms):
        return []
    reasons: dict[str, list[str]] = {}
    for name in ("coherence", "dynamics", "composition"):
        if (reason := FIGURES[name].lacking(arms)) is not None and name not in names:
            reasons.setdefault(reason, []).append(name)
    return [
        f"Left out: {' and '.join(figures)}, which need{'s' * (len(figures) == 1)} {reason}."
        for reason, figures in reasons.items()
    ]


def draw(names: Sequence[str], arms: Sequence[Arm], folder: Path) -> tuple[list[Path], list[str]]:
    """Draw figures of some arms and save each as PNG, PDF and CSV.

    Returns:
        The files, and sentences on what the figures do not show.

    Raises:
        UserError: a run has no labels, a shard is torn, the folder can't be written.
    """
    from olr_cli.analysis.style import save

    _require_folder(folder)
    charts = [chart for name in names for chart in FIGURES[name].drawn(arms)]
    files = [file for chart in charts for file in save(chart, folder)]
    return files, [chart.note for chart in charts if chart.note]


def _require_folder(folder: Path) -> None:
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise UserError(f"{folder}: {existing} is a file, not a folder; choose another --out")
