"""One call of `olr analyze`: what is asked for, held against the runs that are there, and what came of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from olr_cli.analysis import OF_NO_RUN, PUBLISHED_TABLES, TABLES, figures
from olr_cli.analysis.arms import Arm, Run, begun, find_runs, group
from olr_cli.data.arithmetic import mixture_note
from olr_cli.errors import UserError
from olr_cli.tables import Table

FORMATS = ("terminal", "markdown", "latex", "csv", "json")
"""How tables can be printed."""

STANDING_ALONE = ("markdown", "latex", "csv")
"""Formats in which standard output has a table and nothing else."""

_MOST_PLACES = 3
"""Named in a command that is proposed; with more, only what to add to the one before is said."""


@dataclass(frozen=True)
class Request:
    """What is asked for, as the command line has it.

    Attributes:
        places: run directories, folders of runs, evaluations of models.
        figure: names of figures, or ``all``.
        table: name of a table.
        compare: ``paper``, for the published numbers beside ours.
        baseline: of ``--table arms``: the arm that others are compared to.
        out: the folder for figures and report.
        report: whether the HTML page is asked for.
        shape: one of `FORMATS`.
    """

    places: Sequence[Path]
    figure: Sequence[str] = ()
    table: str | None = None
    compare: str | None = None
    baseline: str | None = None
    out: Path | None = None
    report: bool = False
    shape: str = "terminal"

    @property
    def wanted_figures(self) -> Sequence[str]:
        """The figures; all, unless something else alone is asked for."""
        something_else = self.table is not None or self.report or self.shape in STANDING_ALONE
        return self.figure or ([] if something_else else ["all"])

    def tables(self, arms: Sequence[Arm]) -> list[str]:
        """The table; by default that of the arms, where there is something to compare or nothing else to print."""
        if self.table is not None:
            return [self.table]
        wants_arms = len(arms) > 1 or self.baseline is not None or self.shape in STANDING_ALONE
        return ["arms"] if wants_arms else []


@dataclass(frozen=True)
class Findings:
    """What came of a request.

    Attributes:
        tables: by name.
        written: the files.
        notes: sentences on the runs.
        proposals: commands that may come next, each with what it is for in brackets.
    """

    tables: Mapping[str, Table]
    written: Sequence[Path]
    notes: Sequence[str] = ()
    proposals: Sequence[str] = ()

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "tables": {name: table.data for name, table in self.tables.items()},
            "written": [str(file) for file in self.written],
            "notes": list(self.notes),
        }

    def notes_beside(self, shape: str) -> list[str]:
        """The notes but those that a terminal shows below a table anyway."""
        if shape != "terminal":
            return list(self.notes)
        below = {line for table in self.tables.values() for line in table.footnotes}
        return [note for note in self.notes if note not in below]


def carry_out(request: Request) -> Findings:
    """Count the tables, draw the figures, write the report.

    Raises:
        UserError: something that is asked for does not exist or needs other runs, a run has no labels, a file is
            damaged, the folder can't be written.
    """
    figures.known("format", [request.shape], FORMATS)
    named = figures.known_figures(request.wanted_figures)
    if not request.places:
        return _without_runs(request, named)
    places, models = figures.runs_and_models(request.places)
    runs, waiting = begun(find_runs(places), places)
    arms = group(runs)
    drawn = figures.asked_for(request.wanted_figures, arms)
    counted = figures.known("table", request.tables(arms), TABLES)
    figures.require_use(models, counted)
    with_published = figures.wants_published(request.compare, counted)
    writes = bool(drawn) or request.report
    folder = (request.out or figures.default_folder(places, runs)) if writes else Path()
    tables = {
        name: figures.count(name, arms, request.baseline, models, with_published=with_published)
        for name in counted
    }
    written = figures.draw(drawn, arms, folder)
    notes = [*_notes(runs, waiting, arms)]
    if request.report:
        from olr_cli.analysis.report.page import write_report

        written.append(write_report(arms, folder, notes, tables))
    return Findings(tables, written, notes, tuple(_proposals(request, arms, counted)))


def _without_runs(request: Request, named: Sequence[str]) -> Findings:
    """Figures of the theory alone."""
    figures.wants_published(request.compare, [])
    if request.report or not named or not set(named) <= set(OF_NO_RUN):
        raise UserError(
            "name the run directories to analyse, or folders with runs below them (without any: --figure"
            f" {', '.join(OF_NO_RUN)})"
        )
    return Findings({}, figures.draw(named, [], request.out or Path("figures")))


def _notes(runs: Sequence[Run], waiting: Sequence[str], arms: Sequence[Arm]) -> Iterator[str]:
    """What to know of the runs, whatever is shown of them."""
    policies = sorted({run.recipe.model.path for run in runs})
    yield from (note for note in map(mixture_note, policies) if note is not None)
    yield from waiting
    for arm in arms:
        yield from arm.notes()
    epochs = {arm.name: arm.recipe.train.epochs for arm in arms if arm.runs[0].kind == "training"}
    if len(set(epochs.values())) > 1:
        lengths = ", ".join(f"{name} {count}" for name, count in epochs.items())
        yield f"The arms were trained for different numbers of epochs ({lengths})."


def _proposals(request: Request, arms: Sequence[Arm], tables: Sequence[str]) -> Iterator[str]:
    if tables:
        yield _of_table(request, tables[-1])
        return
    first = arms[0].runs[0]
    run = shlex.quote(str(first.path))
    if first.kind == "rollouts":
        yield f"olr audit {run}   (which labels look wrong)"
    else:
        yield f"olr replay {run} --grid default   (what other criteria select, no training)"
    if not request.report:
        yield f"olr analyze {run} --report   (every prompt's history, in one HTML file)"


def _of_table(request: Request, table: str) -> str:
    """The same table with the published numbers beside; if they are there or there are none, as Markdown."""
    options, purpose = "--format markdown", "the table for a paper or README"
    if table in PUBLISHED_TABLES:
        published = "--compare paper"
        if request.compare is None:
            options, purpose = published, "the published numbers beside"
        else:
            options = f"{published} {options}"
    if len(request.places) > _MOST_PLACES:
        return f"the same command with {options}   ({purpose})"
    given = shlex.join(map(str, request.places))
    named = "" if table == "arms" else f" --table {table}"
    return f"olr analyze {given}{named} {options}   ({purpose})"
