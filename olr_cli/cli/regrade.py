"""`olr regrade`: grade the stored responses of evaluations, or of a log, again without a model."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer
from typer import Argument, Option

from olr_cli.cli import options
from olr_cli.cli.printing import Waiting, show


def regrade(
    place: Path = Argument(
        metavar="DIR|LOG",
        help="An evaluation, a run, or a folder of evaluations; or a log of lm-eval (--log_samples), inspect_ai or a"
        " trainer, a file or a folder, which becomes an evaluation.",
        show_default=False,
    ),
    *,
    benchmarks: list[str] | None = Option(
        None,
        metavar="NAME|FILE",
        help="Only these, graded as they are defined now; of a log, those that its tasks asked. May be repeated.",
    ),
    extractor: str | None = options.EXTRACTOR,
    tolerance: float | None = options.TOLERANCE,
    data: Path | None = Option(
        None,
        metavar="PATH",
        help="Of a log: where the problems of --benchmarks are.",
    ),
    out: Path | None = Option(
        None,
        metavar="DIR",
        help="Of a log: folder for the results; by default evaluations/<name>-<trainer>.",
    ),
    columns: list[str] = options.LOG_COLUMNS,
    verified: list[Path] = options.VERIFIED_KEYS,
    compare: Path | None = options.COMPARE,
    paper: bool = Option(False, "--paper", help="Show the paper's scores beside these."),
    format_: str = options.FORMAT,
    json: bool = options.JSON_OBJECT,
) -> None:
    """Grade the stored responses of evaluations, or of a log, again without a model; show the scores."""
    from olr_cli.errors import UserError
    from olr_cli.evaluation.grading import grade_again
    from olr_cli.evaluation.imported import holds_log, import_log
    from olr_cli.evaluation.plan import EvaluationRequest
    from olr_cli.evaluation.results import reference_of

    options.require_extractor(extractor)
    shape = options.shape_of(format_, as_json=json)
    request = EvaluationRequest(
        benchmarks=",".join(benchmarks or ()) or None,
        data=data,
        extractor=extractor,
        tolerance=tolerance,
        verified=options.one_file(verified, "--verified"),
        out=out,
        compare=reference_of(compare, paper=paper),
    )
    say = partial(typer.echo, err=True)
    # A log becomes an evaluation first; only that can then be graded under verified keys, next to its old scores.
    if holds_log(place):
        if verified:
            raise UserError(
                f"--verified is for an evaluation, and {place} is a log",
                "regrade it without first, then the evaluation that this makes",
            )
        answer = import_log(request, place, options.read_log_columns(columns), say)
    else:
        for option, value in {"--data": data, "--out": out, "--columns": columns}.items():
            if value:
                raise UserError(
                    f"{option} is for a log, and {place} is none", "leave it out"
                )
        waiting = Waiting()
        answer = grade_again(request, place, say, waiting.say)
        waiting.done()
    show(answer, shape)
