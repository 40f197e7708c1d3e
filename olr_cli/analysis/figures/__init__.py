"""The registry of figures: their names, the figures that some arms can show, and their files.

A new figure is a function from arms to charts, in a module beside this one, and an entry in `FIGURES`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from olr_cli.errors import UserError, unknown

if TYPE_CHECKING:
    from olr_cli.analysis.arms import Arm
    from olr_cli.analysis.figures.sheet import Chart


FIGURES: Mapping[str, str] = {
    "learning": "learning:learning",
    "coherence": "by_epoch:coherence",
    "dynamics": "by_epoch:dynamics",
    "composition": "by_epoch:composition",
    "arms": "variations:arms_at_the_end",
}
"""Figure -> its function from arms to the charts that are saved, which is imported when it is needed.

The function raises `Lack` for arms that it cannot show. The first line of its docstring is the caption.
"""

OVER = "over-"
"""Prefix of a figure of the scores over a key of the recipe; the key follows."""

OFTEN = ("method.slope_threshold", "method.warmup_epochs", "method.criteria", "noise.ratio")
"""Keys that the paper varies: ``all`` also draws the scores over these, if runs differ in one."""

_SHOW_LOGS = ("learning",)
"""Figures that accept the logs of other trainers."""

_CHART_AN_ARM = ("dynamics",)
"""Figures with one chart per arm."""

_MOST_CHARTS = 10
"""Number of arms that such a figure is drawn for: 40 take half a minute, and nobody looks at them all."""


def _function(figure: str) -> Callable[..., list[Chart]]:
    name = FIGURES.get(figure, "variations:over")
    # no user's text: the name comes from the registry of figures and leads into this package
    function: Callable[..., list[Chart]] = resolve_name(f"{__name__}.{name}")
    return function


def caption(figure: str) -> str:
    """Return the caption of a figure: the first line of the docstring of the function that draws it.

    `figure` is a name in `FIGURES`. Any other text is taken for a figure ``over-KEY``.
    """
    return (_function(figure).__doc__ or "").partition("\n")[0]


def charts_of(figure: str, arms: Sequence[Arm]) -> list[Chart]:
    """Draw one figure of these arms and return its charts.

    `figure` is a name in `FIGURES`, or ``over-KEY``. The figure ``over-noise.ratio``, for example, shows scores by the
    value of the recipe's key ``noise.ratio``.

    Raises:
        Lack: the arms lack the data that the figure needs.
        UserError: KEY is no key of these arms' recipes.
    """
    from olr_cli.analysis.figures.style import applied
    from olr_cli.analysis.frame import Lack

    logs = [arm.log for arm in arms if arm.log is not None]
    if logs and figure not in _SHOW_LOGS:
        raise Lack(f"runs of olr, and {logs[0].source} is a log of {logs[0].trainer}")
    keys = [figure.removeprefix(OVER)] if figure.startswith(OVER) else []
    with applied():
        return _function(figure)(arms, *keys)


def known(kind: str, names: Iterable[str], registry: Iterable[str]) -> list[str]:
    """Check names against `registry`, the list of allowed names, and return them in its order, each once.

    `kind` is the word for such a name in the error, for example ``figure``.

    Raises:
        UserError: a name is not in `registry`.
    """
    registered, wanted = list(registry), set(names)
    for name in sorted(wanted.difference(registered)):
        raise unknown(kind, name, registered)
    return [name for name in registered if name in wanted]


def known_figures(names: Sequence[str]) -> list[str]:
    """Check names of figures, and return them with ``all`` written out.

    ``all`` becomes every name in `FIGURES`, and a name such as ``over-noise.ratio`` for each key in `OFTEN`, the keys
    that the paper varies. The result has the names in `FIGURES` first, in its order. Names that begin with ``over-``
    follow. Whether a recipe has the key after ``over-`` is not checked here.

    Raises:
        UserError: a name is neither in `FIGURES` nor ``all``, and does not begin with ``over-``.
    """
    over = [name for name in names if name.startswith(OVER)]
    named = known("figure", (name for name in names if name not in over), [*FIGURES, "all"])
    if "all" not in names:
        return [*named, *dict.fromkeys(over)]
    return list(dict.fromkeys([*FIGURES, *(f"{OVER}{key}" for key in OFTEN), *over]))


def draw(
    names: Sequence[str], arms: Sequence[Arm], *, captions: bool = True
) -> dict[str, list[Chart]]:
    """Draw figures of these arms, and return a dict from the name of each figure to its charts.

    If there are more than ten arms, the figure ``dynamics`` shows the first ten; the `Chart.note` of its last chart
    says so.

    Args:
        names: names in `FIGURES`, ``over-KEY`` for scores by a key of the recipe, or ``all``. With ``all``, figures for
            which the arms lack the data are left out without an error.
        arms: the arms to show.
        captions: whether captions are written below the figures.

    Raises:
        UserError: a name is unknown, or the arms lack the data for a figure that has its own name in `names`.
    """
    if not names:
        return {}
    from olr_cli.analysis.figures.style import applied
    from olr_cli.analysis.frame import Lack

    charts: dict[str, list[Chart]] = {}
    for name in known_figures(names):
        is_cut = name in _CHART_AN_ARM and len(arms) > _MOST_CHARTS
        try:
            with applied(captions=captions):
                charts[name] = charts_of(name, arms[:_MOST_CHARTS] if is_cut else arms)
        except Lack as lack:
            if name in names:
                option = (
                    f"over {name.removeprefix(OVER)}"
                    if name.startswith(OVER)
                    else f"figure {name}"
                )
                raise UserError(
                    f"this needs {lack}", "leave it out, or name other runs", option
                ) from None
        else:
            if is_cut:
                note = f"{name} is drawn of the first {_MOST_CHARTS} of {len(arms)} arms; for others, name their runs."
                last = charts[name][-1]
                charts[name][-1] = replace(last, note=f"{last.note} {note}".lstrip())
    return charts


def save(charts: Iterable[Chart], folder: Path, *, pdf: bool = False) -> list[Path]:
    """Write each chart and its numbers into `folder`, and return the paths of the files.

    A chart becomes a PNG file and, with `pdf`, a PDF file; its numbers become a CSV file. The files are named after
    the chart. If several charts have the same name, the second chart's files end in ``-2``, and so on.
    """
    from olr_cli.analysis.figures import sheet

    files: list[Path] = []
    names = Counter[str]()
    for chart in charts:
        names[chart.name.casefold()] += 1  # some file systems do not tell capitals apart
        number = names[chart.name.casefold()]
        named = replace(chart, name=f"{chart.name}-{number}") if number > 1 else chart
        files += sheet.save(named, folder, pdf=pdf)
    return files
