"""One call of `olr analyze`: a request, held against the runs that are there, and its answer."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from olr_cli.analysis import figures
from olr_cli.analysis.arms import Arm, begun, find_runs, group, newest_of_each, relabel
from olr_cli.analysis.frame import Lack
from olr_cli.analysis.histories import EXAMPLE
from olr_cli.analysis.tables import PUBLISHED_TABLES, TABLES, count
from olr_cli.data.arithmetic import mixture_note
from olr_cli.errors import UserError
from olr_cli.evaluation.scores import is_evaluation
from olr_cli.runs.stored import Run
from olr_cli.tables import Answer, File, Table

STANDING_ALONE = ("markdown", "latex", "csv")
"""Formats in which standard output has a table and nothing else."""


@dataclass(frozen=True)
class Request:
    """The arguments and options of the command line.

    `shape` is the format of the tables: terminal, markdown, latex, csv or json; `places` may be evaluations too.
    """

    places: Sequence[Path]
    figure: Sequence[str] = ()
    over: Sequence[str] = ()
    table: str | None = None
    paper: bool = False
    baseline: str | None = None
    out: Path | None = None
    report: bool = False
    shape: str = "terminal"
    newest: bool = False
    columns: Mapping[str, str] | None = None
    labels: Sequence[str] = ()
    verified: Path | None = None
    captions: bool = True

    @property
    def wanted_figures(self) -> Sequence[str]:
        """The figures; how training went, unless something else alone is asked for."""
        something_else = self.table is not None or self.report or self.shape in STANDING_ALONE
        named = [*self.figure, *(f"{figures.OVER}{key}" for key in self.over)]
        return named or ([] if something_else else ["learning"])

    def tables(self, arms: Sequence[Arm]) -> list[str]:
        """The table; by default that of the arms, where there is something to compare or nothing else to print."""
        if self.table is not None:
            return [self.table]
        wants_arms = len(arms) > 1 or self.baseline is not None or self.shape in STANDING_ALONE
        if any(arm.log is not None for arm in arms):
            return []
        return ["arms"] if wants_arms else []


def carry_out(request: Request) -> Answer:
    """Count the tables, draw the figures, write the report."""
    wanted = request.wanted_figures
    figures.known_figures(wanted)
    if request.verified is not None and not request.report:
        raise UserError(
            "this is for a report; to audit one run alone: olr audit RUN --verified FILE", "verified"
        )
    if not request.places:
        raise UserError("name the run directories to analyse, or folders with runs below them")
    models = [place for place in request.places if is_evaluation(place)]
    places = [place for place in request.places if place not in models]
    if not places:
        raise UserError(f"{models[0]} is an evaluation of a model; name run directories too")
    runs, left_out = begun(find_runs(places, request.columns), places)
    if request.newest:
        runs, older = newest_of_each(runs)
        left_out = [*left_out, *older]
    unlabelled = group(runs)
    arms = relabel(unlabelled, request.labels)
    renamed = {old.name: arm.name for old, arm in zip(unlabelled, arms, strict=True)}
    baseline = renamed.get(request.baseline or "", request.baseline)
    _require_runs(request, arms)
    names = figures.known("table", request.tables(arms), TABLES)
    if (models or request.paper) and set(PUBLISHED_TABLES).isdisjoint(names):
        raise UserError(
            f"published numbers and evaluations of models are for the paper's tables ({', '.join(PUBLISHED_TABLES)});"
            " name one",
            "table",
        )
    folder = (request.out or _default_folder(places, runs)) if wanted or request.report else Path()
    try:
        drawn = figures.draw([*wanted, *(["all"] if request.report else [])], arms, captions=request.captions)
    except UserError:
        if request.figure or request.over or not wanted:
            raise
        # Runs that have no metrics by step may have other figures.
        wanted = ["all"]
        drawn = figures.draw(wanted, arms, captions=request.captions)
    tables = {}
    for name in names:
        try:
            tables[name] = count(name, arms, baseline, models, with_published=request.paper)
        except Lack as lack:
            # A table that nobody asked for is left out.
            if request.table is not None or request.baseline is not None or request.shape in STANDING_ALONE:
                raise UserError(f"this needs {lack}", f"table {name}") from None
    saved = [chart for name, charts in drawn.items() if name in wanted or "all" in wanted for chart in charts]
    written = figures.save(saved, folder)
    notes = [*_notes(runs, left_out, arms), *(chart.note for chart in saved if chart.note)]
    if request.report:
        from olr_cli.analysis.report.page import write_report

        page, left_out = write_report(arms, folder, drawn, notes, tables, request.verified)
        written.append(page)
        notes += left_out
    return _answer(tables, written, notes, dict(_next(request, arms, [*tables])))


def _require_runs(request: Request, arms: Sequence[Arm]) -> None:
    """Refuse what other trainers' logs cannot show."""
    log = next((arm.log for arm in arms if arm.log is not None), None)
    needs_runs = request.table or request.report or request.baseline or request.shape in STANDING_ALONE
    if log is not None and needs_runs:
        raise UserError(
            f"tables, reports and baselines need runs of olr, and {log.source} is a log of answers; its labels"
            f" are checked with `olr audit {shlex.quote(str(log.source))} --report queue.html`"
        )


def _default_folder(places: Sequence[Path], runs: Sequence[Run]) -> Path:
    """Where figures go: into the run; for several runs into the folder that was named, or that they stand in."""
    if len(runs) == 1:
        place = runs[0].path
        return (place.parent if place.is_file() else place) / "figures"
    if len(places) == 1:
        return places[0] / "figures"
    parents = {run.path.resolve().parent for run in runs}
    if len(parents) > 1:
        raise UserError("the runs stand in several folders; say where their figures should go", "out")
    return runs[0].path.parent / "figures"


def _answer(
    tables: Mapping[str, Table], written: Sequence[Path], notes: Sequence[str], commands: Mapping[str, str]
) -> Answer:
    texts = {".png": ", .pdf and .csv", ".html": " ({:.1f} MB), for any browser"}
    files = [
        File(file, texts[file.suffix].format(file.stat().st_size / 1e6))
        for file in written
        if file.suffix in texts
    ]
    data = {
        "tables": {name: table.data for name, table in tables.items()},
        "written": [str(file) for file in written],
        "notes": list(notes),
    }
    return Answer(list(tables.values()), data, notes, files, commands)


def _notes(runs: Sequence[Run], left_out: Sequence[str], arms: Sequence[Arm]) -> Iterator[str]:
    policies = sorted({run.recipe.model.path for run in runs if run.log is None})
    yield from (note for note in map(mixture_note, policies) if note is not None)
    yield from left_out
    for arm in arms:
        yield from arm.notes()
    epochs = {
        arm.name: arm.recipe.train.epochs
        for arm in arms
        if arm.runs[0].kind == "training" and arm.log is None
    }
    if len(set(epochs.values())) > 1:
        lengths = ", ".join(f"{name} {count}" for name, count in epochs.items())
        yield f"The arms were trained for different numbers of epochs ({lengths})."


def _next(request: Request, arms: Sequence[Arm], tables: Sequence[str]) -> Iterator[tuple[str, str]]:
    if tables:
        if tables[-1] in PUBLISHED_TABLES and not request.paper:
            yield "the same command with --paper", "the published numbers beside"
        else:
            yield "the same command with --format markdown", "the table for a paper or README"
        return
    first = arms[0].runs[0]
    run = shlex.quote(str(first.path))
    if first.log is not None:
        yield f"olr audit {run}", "which labels look wrong"
        return
    if list(request.wanted_figures) == ["learning"]:
        yield f"olr analyze {run} --figure all", "every figure that this run allows"
    if first.kind == "rollouts":
        yield f"olr audit {run}", "which labels look wrong"
    else:
        yield f"olr replay {run} --set {EXAMPLE}", "what other criteria select, no training"
    if not request.report:
        yield f"olr analyze {run} --report", "every prompt's history, in one HTML file"
