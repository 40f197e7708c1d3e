"""`olr make-policy`: a built-in policy's weights, made again from the seed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from olr_cli.cli.options import JsonObject
from olr_cli.cli.printing import show


def make_policy(
    name: Annotated[
        str, typer.Argument(help="A built-in policy: addition-easier, addition-harder or subtraction.")
    ],
    out: Annotated[
        Path, typer.Option("--out", help="New folder for the policy, in Hugging Face layout; must not exist.")
    ],
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            help="Random seed of initialisation and warm-up data; 0 gives the weights in the package.",
        ),
    ] = 0,
    json: JsonObject = False,
) -> None:
    """Rebuild a built-in policy's weights by supervised warm-up (about 2 minutes on one core)."""
    from dataclasses import asdict
    from shlex import quote

    from olr_cli.data.arithmetic import MIXTURE_NOTE
    from olr_cli.engines.local.builtin import WeightsRecord, check_new_folder, policy_path
    from olr_cli.tables import Answer, File

    shipped = WeightsRecord.read(policy_path(name))
    check_new_folder(out)
    typer.echo(MIXTURE_NOTE, err=json)

    from transformers.utils import logging

    from olr_cli.engines.local import builtin_warmup

    quiet: Any = logging
    quiet.disable_progress_bar()

    def report(step: int, loss: float) -> None:
        if step % 200 == 0:
            typer.echo(f"step {step:>4} of {builtin_warmup.STEPS}  loss {loss:.3f}", err=json)

    made = builtin_warmup.make_policy(name, out, seed, report=report)
    same = "as in the package" if made.digest == shipped.digest else f"in the package {shipped.digest}"
    lines = [f"digest   {made.digest}", f"         {same}"]
    if made.digest != shipped.digest and made.seed == shipped.seed:
        lines.append("         (other hardware or library versions round differently)")
    for label, mine, theirs in (
        ("avg@8", made.avg_at_8, shipped.avg_at_8),
        ("greedy", made.greedy, shipped.greedy),
    ):
        prompts = f"{made.held_out_prompts} held-out prompts"
        lines.append(f"{label:8} {mine:.4f} on {prompts}, in the package {theirs:.4f}")
    command = f"olr train laptop/quickstart --set {quote(f'model.path={out}')}"
    data = {"name": name, "seed": seed, "made": asdict(made), "in_the_package": asdict(shipped)}
    answer = Answer(lines, data, files=[File(out)], next={command: ""})
    show(answer, "json" if json else "terminal")
