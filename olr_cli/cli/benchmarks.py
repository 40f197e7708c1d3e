"""`olr benchmarks`: the benchmarks with their sources, or a prompt of one exactly as a model reads it."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option

from olr_cli.cli import options
from olr_cli.cli.evaluate import Prompts
from olr_cli.cli.printing import show


@options.grouped
def benchmarks(
    *,
    name: str | None = Argument(
        None,
        metavar="NAME|FILE",
        help="Show the first prompt of this benchmark, and its gold answer.",
    ),
    model: str | None = Argument(
        None, metavar="MODEL|RUN", help="Show it exactly as this model reads it."
    ),
    data: Path | None = Option(
        None, metavar="PATH", help="Read the problems from here, as in `olr evaluate`."
    ),
    trust_remote_code: bool = options.TRUST_REMOTE_CODE,
    json: bool = options.JSON_OBJECT,
    prompts: Prompts,
) -> None:
    """List the benchmarks with their sources, or show one prompt exactly as the model sees it."""
    from olr_cli.errors import UserError
    from olr_cli.evaluation.benchmark import listing
    from olr_cli.evaluation.plan import EvaluationRequest, show_prompt
    from olr_cli.evaluation.prompting import read_prompting

    # The list depends on no option, so an option without a benchmark is a mistake.
    if name is None:
        if any((data, trust_remote_code, *prompts)):
            raise UserError(
                "no benchmark is named",
                "name the one whose prompt is to be shown: olr benchmarks NAME",
            )
        answer = listing()
    else:
        prompting = read_prompting(prompts.system, prompts.chat_template, prompts.template)
        request = EvaluationRequest(
            models=[] if model is None else [model], data=data, prompting=prompting
        )
        answer = show_prompt(request, name, trust_remote_code=trust_remote_code)
    show(answer, "json" if json else "terminal")
