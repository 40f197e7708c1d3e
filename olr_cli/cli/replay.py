"""`olr replay`: repeat the label decisions on stored rollouts under other criteria, without a model."""

from __future__ import annotations

from pathlib import Path

import typer
from typer import Argument, Option

from olr_cli.cli import options
from olr_cli.cli.printing import Waiting, show


def replay(
    history: list[Path] = Argument(
        metavar="HISTORY",
        help="A run directory, or the rollouts that another trainer logged: a folder, or Parquet/JSON files.",
    ),
    set_: list[str] = options.SETTINGS,
    columns: list[str] = options.LOG_COLUMNS,
    out: Path | None = Option(
        None, metavar="FILE", help="New file for the labels table: Parquet, or CSV (x.csv)."
    ),
    json: bool = Option(
        False, "--json", help="Print JSON lines to standard output, one per visit."
    ),
) -> None:
    """Repeat the label decisions on stored rollouts, under other criteria."""
    # Start before the imports: they may take seconds, and the user waits for them too.
    waiting = Waiting()
    from olr_cli.analysis.histories import contradictions, read_history
    from olr_cli.analysis.replay import (
        label_tables,
        replay_answer,
        replay_file,
        write_json_lines,
    )
    from olr_cli.files import require_new, require_table_name, writing

    options.require_no_file(out, "the labels table", as_json=json)
    require_new({"out": out}, repeatable=["out"])
    require_table_name(out)
    source = read_history(
        history, set_, options.read_log_columns(columns), report=waiting.say
    )
    with source.judge(waiting.say) as judge:
        if not json:
            named = [
                *map(str, history),
                *(["--columns", ",".join(columns)] if columns else []),
            ]
            answer = replay_answer(source, judge, out or replay_file(source), named, set_)
            waiting.done()
            show(answer)
            return
        # Standard output has the JSON lines of the visits alone, so notes go to standard error.
        for note in (*source.notes, *contradictions(source, judge)):
            typer.echo(f"Note: {note}", err=True)
        with writing(Path("standard output")):
            write_json_lines(label_tables(source, judge), typer.get_text_stream("stdout"))
        waiting.done()
