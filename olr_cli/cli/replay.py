"""`olr replay`: decisions from stored rollouts under other criteria, without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from olr_cli.cli.options import LogColumns, Settings, read_log_columns, require_new
from olr_cli.cli.printing import Waiting, show


def replay(
    history: Annotated[
        list[Path],
        Argument(
            metavar="HISTORY",
            help="A run directory, or the rollouts that another trainer logged: a folder, or Parquet/JSON files.",
        ),
    ],
    set_: Settings = None,
    columns: LogColumns = None,
    grid: Annotated[
        list[str] | None,
        Option(
            metavar="KEY=V,V,...",
            help="Compare several settings in one pass, e.g. method.slope_threshold=0,0.05,0.1; may be repeated with"
            " method.warmup_epochs and method.criteria (slope+consistency, consistency, slope, none). `--grid"
            " default` gives the keys that are not named some common values, and the run's own.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            metavar="FILE|DIR",
            help="New file for the labels table: Parquet, or CSV (x.csv); with --grid, folder for the heat map.",
        ),
    ] = None,
    json: Annotated[
        bool,
        Option(
            "--json",
            help="Print JSON lines to standard output, one per visit; with --grid, print one object.",
        ),
    ] = False,
) -> None:
    """Repeat the label decisions on stored rollouts, under other criteria."""
    waiting = Waiting()
    if grid:
        from olr_cli.analysis.replay.grid import grid_answer

        answer = grid_answer(
            history,
            grid,
            set_ or [],
            out,
            read_log_columns(columns),
            report=waiting.say,
            verified=waiting.verified,
        )
        waiting.done()
        show(answer, "json" if json else "terminal")
        return
    from olr_cli.analysis.histories import read_history
    from olr_cli.analysis.replay import replay as replays
    from olr_cli.answers import Judge
    from olr_cli.files import writing

    require_new(out, "the labels table", as_json=json)
    source = read_history(history, set_ or (), read_log_columns(columns), report=waiting.say)
    tolerance = source.recipe.data.tolerance
    with Judge(ledger=source.given_up, keep=False, tolerance=tolerance, report=waiting.verified) as judge:
        if not json:
            target = out or replays.replay_file(source)
            answer = replays.replay_answer(source, judge, target)
            waiting.done()
            show(answer)
            return
        for note in source.notes:
            typer.echo(f"Note: {note}", err=True)
        with writing(Path("standard output")):
            replays.write_json_lines(replays.label_tables(source, judge), typer.get_text_stream("stdout"))
        waiting.done()
