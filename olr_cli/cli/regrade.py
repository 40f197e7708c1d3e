"""`olr regrade`: stored responses graded again, without a model; evaluations, or logs of lm-eval."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from olr_cli.cli.options import (
    Compare,
    Extractor,
    Format,
    JsonObject,
    Tolerance,
    require_extractor,
    shape_of,
)
from olr_cli.cli.printing import Waiting, show


def regrade(
    place: Annotated[
        Path,
        Argument(
            metavar="DIR|LOG",
            help="An evaluation, a run, or a folder of evaluations; or a sample log of lm-eval (--log_samples), a file"
            " or a folder, which becomes an evaluation.",
            show_default=False,
        ),
    ],
    benchmarks: Annotated[
        list[str] | None,
        Option(
            metavar="NAME|FILE",
            help="Only these, graded as they are defined now; of a log, those that its tasks asked. May be repeated.",
        ),
    ] = None,
    extractor: Extractor = None,
    tolerance: Tolerance = None,
    data: Annotated[
        Path | None, Option(metavar="PATH", help="Of a log: where the problems of --benchmarks are.")
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            metavar="DIR", help="Of a log: folder for the results; by default evaluations/<model>-lm-eval."
        ),
    ] = None,
    compare: Compare = None,
    paper: Annotated[bool, Option("--paper", help="Show the paper's scores beside these.")] = False,
    format_: Format = "terminal",
    json: JsonObject = False,
) -> None:
    """Grade the stored responses of evaluations, or of logs of lm-eval, again without a model; show the scores."""
    from olr_cli.errors import UserError
    from olr_cli.evaluation.grading import grade_again
    from olr_cli.evaluation.lm_eval import import_log, sample_logs
    from olr_cli.evaluation.plan import EvaluationRequest
    from olr_cli.evaluation.results import reference_of

    require_extractor(extractor)
    shape = shape_of(format_, as_json=json)
    request = EvaluationRequest(
        benchmarks=",".join(benchmarks or ()) or None,
        data=data,
        extractor=extractor,
        tolerance=tolerance,
        out=out,
        compare=reference_of(compare, paper=paper),
    )
    say = partial(typer.echo, err=True)
    if sample_logs(place):
        answer = import_log(request, place, say)
    else:
        for option, value in {"--data": data, "--out": out}.items():
            if value is not None:
                raise UserError(f"{option} is for a log of lm-eval, and {place} is none; leave it out")
        waiting = Waiting()
        answer = grade_again(request, place, say, waiting.verified)
        waiting.done()
    show(answer, shape)
