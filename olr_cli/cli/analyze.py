"""`olr analyze`: the paper's figures and tables, from run directories alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from olr_cli.analysis.arms import Arm
    from olr_cli.analysis.printing import AnyTable

FORMATS = ("terminal", "markdown", "latex", "csv", "json")
"""How tables can be printed."""

_STANDING_ALONE = ("markdown", "latex", "csv")
"""Formats in which standard output has a table and nothing else."""


def analyze(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN...",
            help="Run directories, or folders with runs below them; for the paper's tables also evaluations of models"
            " before training.",
            show_default=False,
        ),
    ] = None,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            "--figure",
            help="coherence, dynamics, composition, ablation (runs under several method.criteria), sensitivity (runs"
            " under several slope thresholds or warm-ups), cost (time of a step by part), theory (its"
            " quantities, measured), phase (the theory's regions,"
            " simulated; needs no run) or all that these runs allow; may be repeated. By default all.",
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            help="arms: arms compared, paired by seed (by default with several arms); or one of the paper's:"
            " noise_ratios, baselines, scale_4k, qwen3_8b, llama_8b, slope_sensitivity, warmup_sensitivity, ablation,"
            " cost; or theory: what the paper's theory assumes and predicts, measured.",
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option("--compare", metavar="paper", help="Of the paper's tables: the published numbers too."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="ARM",
            help="Of --table arms: the arm that others are compared to; by default the first.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Where figures go; by default figures/ in the run, or beside several.",
        ),
    ] = None,
    report: Annotated[
        bool,
        typer.Option(
            "--report",
            help="Everything in one HTML file, report.html: summary, figures, tables, and a list of prompts with their"
            " history.",
        ),
    ] = False,
    format_: Annotated[
        str, typer.Option("--format", help="How tables are printed: terminal, markdown, latex, csv or json.")
    ] = "terminal",
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Draw figures of one run, or of several averaged over seeds, and compare arms."""
    from olr_cli.analysis import FIGURES, TABLES, figures
    from olr_cli.analysis.arms import begun, find_runs, group
    from olr_cli.data.arithmetic import mixture_note

    shape = "json" if json else figures.known("format", [format_], FORMATS)[0]
    no_figure = not figure and (table is not None or report or shape in _STANDING_ALONE)
    named = [] if no_figure else figure or ["all"]
    asked = figures.known("figure", named, FIGURES)
    if not runs:
        figures.wants_published(compare, [])
        _draw_without_runs(asked, out, report=report)
        return
    places, models = figures.runs_and_models(runs)
    found, waiting = begun(find_runs(places), places)
    arms = group(found)
    drawn = figures.asked_for(named, arms)
    wants_table = len(arms) > 1 or baseline is not None or shape in _STANDING_ALONE
    counted = figures.known("table", [table] if table else ["arms"] if wants_table else [], TABLES)
    figures.require_use(models, counted)
    with_published = figures.wants_published(compare, counted)
    folder = (out or figures.default_folder(places, found)) if drawn or report else Path()
    tables = {
        name: figures.count(name, arms, baseline, models, with_published=with_published) for name in counted
    }
    written = figures.draw(drawn, arms, folder)
    policies = sorted({run.recipe.model.path for run in found})
    notes = [note for note in map(mixture_note, policies) if note is not None]
    notes += [*waiting, *(note for arm in arms for note in arm.notes())]
    epochs = {arm.name: arm.runs[0].recipe.train.epochs for arm in arms}
    if len(set(epochs.values())) > 1:
        lengths = ", ".join(f"{name} {count}" for name, count in epochs.items())
        notes.append(f"the arms were trained for different numbers of epochs ({lengths})")
    if report:
        from olr_cli.analysis.report.build import write_report

        written.append(write_report(arms, folder, notes, tables))
    if shape == "json":
        _print_json(tables, written, notes)
        return
    for result in tables.values():
        _print_table(result, shape)
    for note in notes:
        typer.echo(f"Note: {note}", err=True)
    _say_what_was_written(written, err=shape != "terminal")
    if shape == "terminal":
        typer.echo(f"Next: {_next_command(arms, runs, counted, with_published=with_published)}")


def _draw_without_runs(names: list[str], out: Path | None, *, report: bool) -> None:
    """Figures of the theory alone."""
    from olr_cli.analysis import OF_NO_RUN, figures
    from olr_cli.errors import UserError

    if report or not names or not set(names) <= set(OF_NO_RUN):
        raise UserError(
            "name the run directories to analyse, or folders with runs below them (without any: --figure"
            f" {', '.join(OF_NO_RUN)})"
        )
    _say_what_was_written(figures.draw(names, [], out or Path("figures")))


def _say_what_was_written(files: list[Path], *, err: bool = False) -> None:
    for file in files:
        if file.suffix == ".png":
            typer.echo(f"Wrote {file}, .pdf and .csv", err=err)
        elif file.suffix == ".html":
            typer.echo(f"Wrote {file} ({file.stat().st_size / 1e6:.1f} MB), for any browser", err=err)


def _print_json(tables: dict[str, AnyTable], written: list[Path], notes: list[str]) -> None:
    import json

    found = {name: table.plain() for name, table in tables.items()}
    typer.echo(
        json.dumps({"tables": found, "written": [str(file) for file in written], "notes": notes}, indent=2)
    )


def _print_table(table: AnyTable, shape: str) -> None:
    from rich.console import Console

    from olr_cli.analysis import printing

    if shape != "terminal":
        typer.echo(printing.text(table, shape))
        return
    console = Console(highlight=False)
    shown = printing.terminal(table)
    # A table wider than the terminal is wrapped by it, not squeezed until nobody can read it.
    Console(highlight=False, width=max(console.width, printing.width(shown))).print(shown)
    for footnote in printing.footnotes(table):
        console.print(footnote, style="dim")


def _next_command(arms: list[Arm], places: list[Path], tables: list[str], *, with_published: bool) -> str:
    from olr_cli.analysis import PUBLISHED_TABLES

    if len(arms) == 1 and not tables:
        return f"olr replay {arms[0].runs[0].path} --set method.slope_threshold=0.1   (other criteria, no training)"
    given = " ".join(map(str, places[:3])) + " \N{HORIZONTAL ELLIPSIS}" * (len(places) > 3)
    table = "" if tables in ([], ["arms"]) else f" --table {tables[-1]}"
    if tables and tables[-1] in PUBLISHED_TABLES:
        if not with_published:
            return f"olr analyze {given}{table} --compare paper   (the published numbers beside)"
        table += " --compare paper"
    return f"olr analyze {given}{table} --format markdown   (the table for a paper or README)"
