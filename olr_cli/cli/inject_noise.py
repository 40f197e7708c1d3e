"""`olr inject-noise`: a data set whose labels are wrong in a known, exact and repeatable way."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from typer import Option

from olr_cli.cli import options
from olr_cli.cli.printing import show


def inject_noise(
    type: Literal["inactive", "active", "mixed"] = Option(
        help="inactive: a label that no policy produces; active: at every visit, one of the policy's wrong answers;"
        " mixed: both."
    ),
    ratio: str = Option(metavar="R", help="Share of the prompts to mark, from 0 to 1."),
    dataset: str = Option(
        "arithmetic",
        metavar="SOURCE",
        help="The data set: arithmetic (built in), a Parquet, JSONL or CSV file, a folder of such files, or a hub id"
        " (org/name, org/name:split, optionally with @revision).",
    ),
    sample: int | None = Option(
        None, metavar="N", min=1, help="Use N prompts of the data set, drawn with the seed."
    ),
    seed: int = Option(0, metavar="S", help="Random seed that decides which prompts are drawn and marked."),
    active_share: str | None = Option(
        None,
        metavar="A",
        help="For mixed noise: share of the marked prompts that are active, by default half.",
    ),
    rollouts: Path | None = Option(
        None,
        metavar="RUN",
        help="Freeze the noise: the labels become wrong answers of this run, or table of rollouts. The data set's"
        " labels count as true; an answer counts as wrong only if it provably differs from them.",
    ),
    out: Path | None = Option(
        None,
        metavar="FILE",
        help="New .parquet or .jsonl file; by default in data/, named after source, type and ratio.",
    ),
    columns: list[str] = options.DATA_COLUMNS,
    system: str | None = options.SYSTEM_PROMPT,
    json: bool = options.JSON_OBJECT,
) -> None:
    """Mark an exact share of a data set's labels as noise, and write the result to a new file."""
    from olr_cli.data.check import repeat_notes
    from olr_cli.data.noise import default_target, inject, noise_answer
    from olr_cli.data.prompt_files import Reading, read_prompts
    from olr_cli.data.writers import write_prompts
    from olr_cli.errors import UserError, at
    from olr_cli.files import require_new

    require_new({"out": out}, repeatable=["out"])
    if active_share is not None and type != "mixed":
        raise UserError("--active-share is for mixed noise; leave it out")
    reading = Reading(options.read_columns(columns), system_prompt=system)
    clean = read_prompts(dataset, sample=sample, seed=seed, reading=reading)
    frozen = refused = None
    if rollouts is not None:
        from olr_cli.answers import Judge
        from olr_cli.runs.wrong_answers import proved_wrong, wrong_answers

        stored = wrong_answers(rollouts, clean)
        with Judge() as judge:
            frozen, refused = proved_wrong(stored, clean.prompts, judge)
    noisy = inject(
        clean, type=type, ratio=ratio, seed=seed, active_share=active_share or "0.5", wrong_answers=frozen
    )
    target = out or default_target(clean.source, type if frozen is None else f"{type}-frozen", ratio)
    with at("out"):
        is_new = write_prompts(noisy, target)
    notes = [f"{note}." for note in (*clean.notes, *repeat_notes(clean))]
    show(noise_answer(noisy, target, is_new, notes, refused), "json" if json else "terminal")
