"""The registry of figures: which there are, which of them some arms can show, and their files.

A new figure is a function from arms to charts, in a module beside this one, and an entry in `FIGURES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from olr_cli.analysis.frame import Lack
from olr_cli.errors import UserError, unknown

if TYPE_CHECKING:
    from olr_cli.analysis.arms import Arm
    from olr_cli.analysis.figures.style import Chart


@dataclass(frozen=True)
class Figure:
    """A figure of `olr analyze`.

    Attributes:
        function: from arms to the charts that are saved, as ``module:function``, imported when it is needed; it raises
            `Lack` for other arms than it needs. The first line of its docstring is the caption.
        shows_logs: whether the logs of other trainers will do.
    """

    function: str
    shows_logs: bool = False

    @property
    def _charts(self) -> Callable[[Sequence[Arm]], list[Chart]]:
        # no user's text: functions of the package itself, named in the registry of figures
        function: Callable[[Sequence[Arm]], list[Chart]] = resolve_name(f"{__name__}.{self.function}")
        return function

    @property
    def caption(self) -> str:
        """What it shows."""
        return (self._charts.__doc__ or "").partition("\n")[0]

    def draw(self, arms: Sequence[Arm]) -> list[Chart]:
        """The charts of some arms.

        Raises:
            Lack: the figure needs other runs.
        """
        from olr_cli.analysis.figures.style import applied

        logs = [arm.log for arm in arms if arm.log is not None]
        if logs and not self.shows_logs:
            raise Lack(f"runs of olr, and {logs[0].source} is a log of {logs[0].trainer}")
        with applied():
            return self._charts(arms)


FIGURES: Mapping[str, Figure] = {
    "learning": Figure("learning:learning", shows_logs=True),
    "coherence": Figure("by_epoch:coherence"),
    "dynamics": Figure("by_epoch:dynamics"),
    "composition": Figure("by_epoch:composition"),
    "arms": Figure("variations:arms_at_the_end"),
    "ablation": Figure("variations:ablation"),
    "sensitivity": Figure("variations:sensitivity"),
    "noise": Figure("variations:noise"),
    "cost": Figure("cost:charts"),
}

_OF_THE_TRUTH = ("coherence", "dynamics", "composition")
"""Figures that every training run can have, if its data say what is right."""


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


def draw(names: Sequence[str], arms: Sequence[Arm]) -> tuple[dict[str, list[Chart]], list[str]]:
    """Draw the figures of these names; ``all`` stands for every figure that these arms have the runs for.

    Returns:
        Figure -> its charts, and sentences on the figures that ``all`` leaves out because nobody knows the truth.

    Raises:
        UserError: there is no such figure, or one that is named needs other runs.
    """
    charts: dict[str, list[Chart]] = {}
    reasons: dict[str, list[str]] = {}
    for name in known_figures(names):
        is_named = name in names
        try:
            charts[name] = FIGURES[name].draw(arms)
        except Lack as lack:
            if is_named:
                raise UserError(f"--figure {name} needs {lack}") from None
            if name in _OF_THE_TRUTH and all(arm.log is None for arm in arms):
                reasons.setdefault(str(lack), []).append(name)
    return charts, [
        f"Left out: {' and '.join(figures)}, which need{'s' * (len(figures) == 1)} {reason}."
        for reason, figures in reasons.items()
    ]


def save(charts: Iterable[Chart], folder: Path) -> list[Path]:
    """Save each chart as PNG, PDF and CSV.

    Raises:
        UserError: the folder can't be written.
    """
    from olr_cli.analysis.figures import style

    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise UserError(f"{folder}: {existing} is a file, not a folder; choose another --out")
    return [file for chart in charts for file in style.save(chart, folder)]
