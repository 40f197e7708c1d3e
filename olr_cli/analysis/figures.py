"""The figures that stored runs can show, and from a request to figures and tables: names, arms, folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from olr_cli.analysis import PAPER_TABLES, PUBLISHED_TABLES
from olr_cli.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from olr_cli.analysis.arms import Arm, Run
    from olr_cli.analysis.style import Chart
    from olr_cli.tables import Table


@dataclass(frozen=True)
class Figure:
    """A figure of `olr analyze`; its functions are named as ``module:function`` and imported when they are needed.

    Attributes:
        caption: what it shows.
        charts: from arms to the charts that are saved.
        lacks: from arms to what the figure needs and they are not, None if it can be drawn; empty: all arms will do.
        needs_runs: otherwise it is of the theory alone, and ``all`` leaves it out.
    """

    caption: str
    charts: str
    lacks: str = ""
    needs_runs: bool = True

    def lacking(self, arms: Sequence[Arm]) -> str | None:
        """The runs that the figure needs; None if it can be drawn."""
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
    function: Callable[[Sequence[Arm]], Any] = resolve_name(f"olr_cli.analysis.{name}")
    return function


FIGURES: Mapping[str, Figure] = {
    "coherence": Figure(
        "Early Correctness Coherence (the paper's Fig. 2): right majority answers on clean and noisy prompts,"
        " by epoch.",
        "by_epoch:coherence",
    ),
    "dynamics": Figure(
        "Training dynamics (the paper's Fig. 3, and its twin under inactive noise): six panels, by epoch.",
        "by_epoch:dynamics",
    ),
    "composition": Figure(
        "What majority answers are made of, by epoch: stacked shares on clean and on noisy prompts.",
        "by_epoch:composition",
    ),
    "ablation": Figure(
        "The ablation of OLR's criteria as bars (the paper's Table ablation, and its Fig. 3e as a whole).",
        "variations:ablation",
        "variations:ablation_lacks",
    ),
    "sensitivity": Figure(
        "Sensitivity to OLR's two settings: the score at the end of training against delta, and against T.",
        "variations:sensitivity",
        "variations:sensitivity_lacks",
    ),
    "cost": Figure(
        "Where the time of a step goes, part by part, and how fast it was, as metrics.jsonl tells it.",
        "cost:charts",
        "cost:lacking",
    ),
    "theory": Figure(
        "The theory's quantities drawn: L_t by epoch, OLR's effective noise, and how often majorities are wrong.",
        "theory.figure:charts",
        "theory.figure:lacking",
    ),
    "phase": Figure(
        "Where training on noisy labels keeps the true answers: simulated, and by the paper's boundaries.",
        "theory.phase:charts",
        needs_runs=False,
    ),
}


WITHOUT_RUNS = [name for name, figure in FIGURES.items() if not figure.needs_runs]


def known(kind: str, names: Iterable[str], registry: Iterable[str]) -> list[str]:
    """The names, each once, in the registry's order.

    Raises:
        UserError: a name is not in the registry.
    """
    registered, wanted = list(registry), set(names)
    for name in sorted(wanted.difference(registered)):
        there = ", ".join(registered)
        raise UserError(f"there is no {kind} '{name}'{did_you_mean(name, registered)} (there are: {there})")
    return [name for name in registered if name in wanted]


def known_figures(names: Sequence[str]) -> list[str]:
    """The figures of these names, in the order of `FIGURES`; ``all`` stands for all of them.

    Raises:
        UserError: there is no such figure.
    """
    named = known("figure", (name for name in names if name != "all"), FIGURES)
    return list(FIGURES) if "all" in names else named


def asked_for(names: Sequence[str], arms: Sequence[Arm]) -> list[str]:
    """The figures that are asked for; ``all`` stands for those that these arms have the runs for.

    Raises:
        UserError: there is no such figure, or one that is named needs other runs.
    """
    wanted = []
    for name in known_figures(names):
        figure, is_named = FIGURES[name], name in names
        if not figure.needs_runs and not is_named:
            continue
        lacking = figure.lacking(arms)
        if lacking is not None and is_named:
            raise UserError(f"--figure {name} needs {lacking}")
        if lacking is None:
            wanted.append(name)
    return wanted


def draw(names: Sequence[str], arms: Sequence[Arm], folder: Path) -> list[Path]:
    """Draw figures of some arms and save each as PNG, PDF and CSV.

    Returns:
        The files.

    Raises:
        UserError: a run has no labels, a shard is torn, the folder can't be written.
    """
    from olr_cli.analysis.style import save

    _require_folder(folder)
    charts = [chart for name in names for chart in FIGURES[name].drawn(arms)]
    return [file for chart in charts for file in save(chart, folder)]


def _require_folder(folder: Path) -> None:
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise UserError(f"{folder}: {existing} is a file, not a folder; choose another --out")


def count(
    name: str,
    arms: Sequence[Arm],
    baseline: str | None,
    models: Sequence[Path] = (),
    *,
    with_published: bool = False,
) -> Table:
    """A table of some arms.

    Args:
        name: of the table.
        arms: at least one.
        baseline: of ``arms``: the arm that others are compared to; by default the first.
        models: of the paper's tables of scores: evaluations of policies before training.
        with_published: show the paper's numbers too; see `wants_published`.

    Raises:
        UserError: there is no such arm, the table takes no baseline or needs other runs, a run has no labels, a file
            is damaged.
    """
    if name in PAPER_TABLES:
        from olr_cli.analysis.tables.layouts import LAYOUTS
        from olr_cli.analysis.tables.paper import paper_table

        layout = LAYOUTS[name]
        _refuse_baseline(baseline, name, layout.reference_in_words)
        return paper_table(layout, _trained(arms, name), models, with_published=with_published).table()
    if name == "cost":
        from olr_cli.analysis.tables.cost import cost_table

        _refuse_baseline(baseline, name, "GRPO under the same settings")
        return cost_table(arms, with_published=with_published)
    if name == "theory":
        from olr_cli.analysis.theory.table import theory_table

        _refuse_baseline(baseline, name, "what the theory predicts")
        return theory_table(arms)
    from olr_cli.analysis.tables.arms import arms_table

    return arms_table(arms, baseline)


def _trained(arms: Sequence[Arm], table: str) -> list[Arm]:
    """The arms without those of rollouts alone, whose recipe's method nothing was trained with."""
    found = [arm for arm in arms if arm.runs[0].kind == "training"]
    if not found:
        raise UserError(
            f"--table {table} needs training runs; {arms[0].runs[0].path} holds rollouts without training"
        )
    return found


def _refuse_baseline(baseline: str | None, table: str, reference: str) -> None:
    if baseline is not None:
        raise UserError(
            f"--baseline {baseline} is for --table arms; --table {table} compares with {reference}"
        )


def wants_published(compare: str | None, tables: Iterable[str]) -> bool:
    """Whether ``--compare`` asks for the paper's numbers.

    Raises:
        UserError: it names something else, or no table is printed that the paper has too.
    """
    if compare is None:
        return False
    if compare != "paper":
        raise UserError(
            f"--compare {compare}: tables can be compared with the published numbers alone: --compare paper"
        )
    if set(PUBLISHED_TABLES).isdisjoint(tables):
        raise UserError(
            "--compare paper is for the paper's tables; name one with --table"
            f" ({', '.join(PUBLISHED_TABLES)})"
        )
    return True


def runs_and_models(places: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """The places that hold runs, and those that are evaluations of models.

    Raises:
        UserError: none holds runs.
    """
    from olr_cli.evaluation.scores import is_evaluation

    models = [place for place in places if is_evaluation(place)]
    runs = [place for place in places if place not in models]
    if not runs:
        raise UserError(f"{models[0]} is an evaluation of a model; name run directories too")
    return runs, models


def require_use(models: Sequence[Path], tables: Iterable[str]) -> None:
    """Make sure that something shows the evaluations of models that were named.

    Raises:
        UserError: nothing does.
    """
    if models and set(PAPER_TABLES).isdisjoint(tables):
        raise UserError(
            f"{models[0]} is an evaluation of a model, which only tables of the paper show"
            f" (--table {', '.join(PAPER_TABLES)}); leave it out"
        )


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
