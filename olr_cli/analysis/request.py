"""One call of `olr analyze`: a request, checked against the runs at its places, and its answer."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from olr_cli.analysis import figures
from olr_cli.analysis.arms import Arm, begun, find_runs, group, newest_of_each, relabel
from olr_cli.analysis.audit.request import Request as AuditRequest
from olr_cli.analysis.frame import Lack
from olr_cli.analysis.histories import replay_words
from olr_cli.analysis.tables import PUBLISHED_TABLES, TABLES, count
from olr_cli.data.arithmetic import mixture_note
from olr_cli.errors import UserError
from olr_cli.evaluation.scores import is_evaluation
from olr_cli.files import require_new, write_new
from olr_cli.runs.stored import Run
from olr_cli.tables import Answer, File, Table, comma_separated

if TYPE_CHECKING:
    from olr_cli.analysis.figures.sheet import Chart

STANDING_ALONE = ("markdown", "latex", "csv")
"""Formats in which standard output is a table and nothing else."""


@dataclass(frozen=True)
class Request:
    """The arguments and options of one call of `olr analyze`, by name.

    The command makes it, and `carry_out` carries it out.
    """

    places: Sequence[Path]
    """Runs, folders of runs and logs; evaluations too."""

    figure: Sequence[str] = ()
    over: Sequence[str] = ()
    table: str | None = None
    paper: bool = False
    baseline: str | None = None
    reference: str | None = None
    report: bool = False
    verified: Path | None = None
    label: Sequence[str] = ()
    newest: bool = False
    columns: Mapping[str, str] | None = None
    """Columns of logs (`olr_cli.data.logs.read_log`)."""

    no_caption: bool = False
    pdf: bool = False
    out: Path | None = None
    """Folder of the figures."""

    csv: Path | None = None
    """File of the table."""

    shape: str = "terminal"
    """Format of the tables: terminal, markdown, latex, csv or json."""

    @property
    def named_figures(self) -> Sequence[str]:
        """The names of the figures that the user asked for: those in `figure`, and ``over-KEY`` for each KEY in `over`.

        KEY is a key of the recipe, and ``over-KEY`` shows the scores over the values of this key.
        """
        return [*self.figure, *(f"{figures.OVER}{key}" for key in self.over)]

    @property
    def wanted_figures(self) -> Sequence[str]:
        """The names of the figures to save: those that the user named, else the learning curves.

        If the user named no figure but asked for a table, a report or a format for tables, there are none.
        """
        something_else = self.table or self.report or self.shape in STANDING_ALONE
        return self.named_figures or ([] if something_else else ["learning"])

    @property
    def has_pdf(self) -> bool:
        """Whether figures are saved as PDF too: with --pdf, or if one single figure is named."""
        is_one = len(self.named_figures) == 1 and "all" not in self.named_figures
        return self.pdf or is_one

    @property
    def must_compare(self) -> bool:
        """Whether the user asked for a table, so that it is an error if the arms cannot show it.

        Naming an arm to compare with, or a format for tables, counts as asking.
        """
        names_an_arm = self.baseline is not None or self.reference is not None
        return bool(self.table or names_an_arm or self.shape in STANDING_ALONE)

    def tables(self, arms: Sequence[Arm]) -> list[str]:
        """Return a list with the name of the one table to print; an empty list if none is printed.

        It is the table that the user named, or else the table called ``arms``. If the user neither named a table nor
        asked for one in another way (`must_compare`), it is printed only if there are several arms and none is another
        trainer's log.
        """
        is_wanted = self.must_compare or (
            len(arms) > 1 and all(arm.log is None for arm in arms)
        )
        return [self.table or "arms"] if is_wanted else []


def carry_out(request: Request) -> Answer:
    """Do what a call of `olr analyze` requests: make its tables, figures and files, and return its output."""
    require_new({"out": request.csv}, repeatable=["out"])
    figures.known_figures(request.wanted_figures)
    places, models = _places(request)
    runs, left_out = begun(find_runs(places, request.columns), places)
    if request.newest:
        runs, older = newest_of_each(runs)
        left_out = [*left_out, *older]
    unlabelled = group(runs)
    arms = relabel(unlabelled, request.label)
    _require_runs(request, arms)
    tables = _tables(_renamed(request, unlabelled, arms), arms, models)
    saved, drawn = _drawn(request, arms)
    charts = list(chain.from_iterable(drawn[name] for name in saved))
    notes = [*_notes(left_out, arms), *(chart.note for chart in charts if chart.note)]
    folder = _figures_folder(request, places, runs) if charts or request.report else Path()
    # Don't call `save` without charts: it imports matplotlib, which takes longer than a table does.
    written = figures.save(charts, folder, pdf=request.has_pdf) if charts else []
    beside = ", .pdf and .csv" if request.has_pdf else " and .csv"
    # Name each chart once, by its PNG; the text behind it lists the other endings.
    files = [File(file, beside) for file in written if file.suffix == ".png"]
    if request.report:
        from olr_cli.analysis.report.page import write_report

        page, left_out = write_report(
            arms,
            folder,
            drawn,
            [*_policy_notes(runs), *notes],
            tables=tables,
            verified=request.verified,
        )
        written.append(page)
        files.append(File(page, f" ({page.stat().st_size / 1e6:.1f} MB), for any browser"))
        notes += left_out
    if request.csv is not None:
        text = comma_separated(*tables.values()) + "\n"
        is_new = write_new(
            request.csv, lambda path: path.write_text(text, encoding="utf-8"), "out"
        )
        files.append(File.written(request.csv, is_new=is_new))
    result = {"tables": tables, "written": written, "notes": notes}
    return Answer(
        list(tables.values()), result, notes, files, dict(_next(request, arms, [*tables]))
    )


def _places(request: Request) -> tuple[list[Path], list[Path]]:
    """Split the paths that the user named into those of runs and logs, and those of evaluations of models.

    Raises:
        UserError: there is no path of runs or logs, or verified labels are given without a report.
    """
    if request.verified is not None and not request.report:
        raise UserError(
            "this is for a report",
            "to audit one run alone: olr audit RUN --verified FILE",
            "verified",
        )
    if not request.places:
        raise UserError(
            "no run is named", "name run directories, or folders with runs below them"
        )
    models = [place for place in request.places if is_evaluation(place)]
    places = [place for place in request.places if place not in models]
    if not places:
        raise UserError(
            f"{models[0]} is an evaluation of a model", "name run directories too"
        )
    return places, models


def _renamed(request: Request, before: Sequence[Arm], arms: Sequence[Arm]) -> Request:
    """Return the request with the new names of the arms that it compares with (`baseline` and `reference`).

    Args:
        request: the request, which has the former names.
        before: the arms under their former names.
        arms: the same arms under their new names, in the same order.
    """
    labels = {old.name: arm.name for old, arm in zip(before, arms, strict=True)}
    baseline, reference = (
        labels.get(name or "", name) for name in (request.baseline, request.reference)
    )
    return replace(request, baseline=baseline, reference=reference)


def _tables(
    request: Request, arms: Sequence[Arm], models: Sequence[Path]
) -> dict[str, Table]:
    """Compute the tables of the request and return them by name.

    A table that the user did not ask for is left out if the arms cannot show it. `models` are the folders of
    evaluations of policies before training.

    Raises:
        UserError: the arms lack what the requested table needs, or an option is for another table.
    """
    names = figures.known("table", request.tables(arms), TABLES)
    if (models or request.paper) and set(PUBLISHED_TABLES).isdisjoint(names):
        raise UserError(
            f"published numbers and evaluations of models are for the paper's tables ({', '.join(PUBLISHED_TABLES)})",
            "name one",
            "table",
        )
    compared, tables = (request.baseline, request.reference), {}
    for name in names:
        try:
            tables[name] = count(
                name, arms, *compared, models, with_published=request.paper
            )
        except Lack as lack:
            # A default table that the arms cannot show is left out; one that the user asked for is an error.
            if request.must_compare:
                raise UserError(
                    f"this needs {lack}",
                    "leave it out, or name other runs",
                    f"table {name}",
                ) from None
    return tables


def _drawn(
    request: Request, arms: Sequence[Arm]
) -> tuple[list[str], dict[str, list[Chart]]]:
    """Draw the figures of the request, and choose those to save.

    A report shows all figures that the arms have the data for, so for a report all of these are drawn. Of the drawn
    figures, only the following are saved:

    - the figures named in `request.wanted_figures`: those that the user named or, if none, the default figure, if any;
    - instead of a default figure for which the arms lack the data, every figure that they have the data for.

    Returns:
        The names of the figures to save.
        Name of a figure -> its charts, for all that were drawn.

    Raises:
        UserError: the arms lack the data for a figure that the user named, or there is no such figure.
    """
    wanted, more = request.wanted_figures, ["all"] if request.report else []
    try:
        drawn = figures.draw([*wanted, *more], arms, captions=not request.no_caption)
    except UserError:
        if request.named_figures or not wanted:
            raise
        # The default figure needs metrics by step. Runs without them may allow other figures, so draw those instead of
        # failing at a figure that nobody named.
        wanted = ["all"]
        drawn = figures.draw(wanted, arms, captions=not request.no_caption)
    return [name for name in drawn if name in wanted or "all" in wanted], drawn


def _require_runs(request: Request, arms: Sequence[Arm]) -> None:
    """Raise `UserError` for a table or report, which needs runs, if another trainer's log is among the arms."""
    log = next((arm.log for arm in arms if arm.log is not None), None)
    if log is not None and (request.must_compare or request.report):
        raise UserError(
            f"tables, reports and baselines need runs of olr, and {log.source} is a log of answers",
            "its labels"
            f" are checked with `olr audit {shlex.quote(str(log.source))} --report queue.html`",
        )


def _figures_folder(request: Request, places: Sequence[Path], runs: Sequence[Run]) -> Path:
    """Return the folder to save figures in: the one that the user named, else a folder ``figures``.

    Where ``figures`` lies depends on the runs:

    - For one run, in the run directory; for a log that is a file, beside the file.
    - For several runs from one place, in that place.
    - For several places, in the folder that holds all the runs.

    Raises:
        UserError: there are several places, and no single folder holds all the runs.
    """
    if request.out is not None:
        return request.out
    if len(runs) == 1:
        path = runs[0].path
        # A log may be a single file; its figures go beside it.
        return (path.parent if path.is_file() else path) / "figures"
    if len(places) == 1:
        return places[0] / "figures"
    parents = {run.path.resolve().parent for run in runs}
    if len(parents) > 1:
        raise UserError(
            "the runs stand in several folders", "say where their figures should go", "out"
        )
    return runs[0].path.parent / "figures"


def _policy_notes(runs: Sequence[Run]) -> list[str]:
    """Return a note on each toy policy that the runs trained, for a report; an empty list if there is none.

    Toy policies, such as ``builtin:addition-easier``, come with olr. The terminal does not repeat these notes, since it
    printed them at the end of each run.
    """
    policies = sorted({run.recipe.model.path for run in runs if run.log is None})
    return [note for note in map(mixture_note, policies) if note is not None]


def _notes(left_out: Sequence[str], arms: Sequence[Arm]) -> Iterator[str]:
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


def _next(
    request: Request, arms: Sequence[Arm], tables: Sequence[str]
) -> Iterator[tuple[str, str]]:
    if tables:
        if tables[-1] in PUBLISHED_TABLES and not request.paper:
            yield "the same command with --paper", "the published numbers beside"
        else:
            yield (
                "the same command with --format markdown",
                "the table for a paper or README",
            )
        return
    first = arms[0].runs[0]
    run = shlex.quote(str(first.path))
    if first.log is not None:
        yield (
            AuditRequest(request.places, columns=request.columns).again(),
            "which labels look wrong",
        )
        return
    if list(request.wanted_figures) == ["learning"]:
        yield f"olr analyze {run} --figure all", "every figure that this run allows"
    if first.kind == "rollouts":
        yield f"olr audit {run}", "which labels look wrong"
    else:
        replay = shlex.join(replay_words(first.recipe))
        yield f"olr replay {run} {replay}", "what other criteria select, no training"
    if not request.report:
        yield f"olr analyze {run} --report", "every prompt's history, in one HTML file"
