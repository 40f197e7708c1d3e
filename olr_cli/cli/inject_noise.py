"""`olr inject-noise`: a data set whose labels are wrong in a known, exact and repeatable way."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from olr_cli.data.prompt_set import PromptSet
    from olr_cli.data.prompts import Prompt

_EXAMPLES = 3
_PROMPT_WIDTH = 68


def inject_noise(
    type: Annotated[
        Literal["inactive", "active", "mixed"],
        typer.Option(
            help="inactive: a label that no policy produces; active: at every visit, one of the policy's wrong answers;"
            " mixed: both."
        ),
    ],
    ratio: Annotated[str, typer.Option(metavar="R", help="Share of the prompts to mark, from 0 to 1.")],
    dataset: Annotated[
        str,
        typer.Option(
            metavar="SOURCE",
            help="The data set: arithmetic (built in), a Parquet or JSONL file, a folder of such files, or a hub id"
            " (org/name, org/name:split, optionally with @revision).",
        ),
    ] = "arithmetic",
    sample: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Use N prompts of the data set, drawn with the seed."),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="S", help="Random seed that decides which prompts are drawn and marked.")
    ] = 0,
    active_share: Annotated[
        str, typer.Option(metavar="A", help="For mixed noise: share of the marked prompts that are active.")
    ] = "0.5",
    rollouts: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Freeze the noise: write wrong answers from this run, or table of rollouts, into the file.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="New .parquet or .jsonl file; by default in data/, named after source, type and ratio.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")] = False,
) -> None:
    """Mark an exact share of a data set's labels as noise, and write the result to a new file."""
    from olr_cli.data.noise import default_target, inject
    from olr_cli.data.readers import read_prompts
    from olr_cli.data.writers import write_prompts

    clean = read_prompts(dataset, sample=sample, seed=seed)
    frozen = None if rollouts is None else _wrong_answers(rollouts, clean)
    noisy = inject(clean, type=type, ratio=ratio, seed=seed, active_share=active_share, wrong_answers=frozen)
    target = out or default_target(clean.source, type if frozen is None else f"{type}-frozen", ratio)
    written = write_prompts(noisy, target)
    summary = _summary(noisy, target, written)
    if json:
        import json as json_module

        typer.echo(json_module.dumps(summary, ensure_ascii=False))
    else:
        _show(summary)


def _wrong_answers(rollouts: Path, prompts: PromptSet) -> dict[str, list[str]]:
    from olr_cli.answers import Judge
    from olr_cli.data.rollout_tables import proved_wrong, wrong_answers

    stored = wrong_answers(rollouts, prompts)
    with Judge() as judge:
        return proved_wrong(stored, prompts.prompts, judge)


def _summary(noisy: PromptSet, target: Path, written: bool) -> dict[str, Any]:
    from olr_cli.data.noise import counts, examples

    counted = counts(noisy)
    recipe = (
        "laptop/quickstart"
        if noisy.source in ("arithmetic", "arithmetic:addition")
        else "own-data --set model.path=MODEL"
    )
    return {
        "source": noisy.source,
        "revision": noisy.revision,
        "digest": noisy.digest,
        "label_column": noisy.label_column,
        "prompts": len(noisy),
        "marked": sum(count for kind, count in counted.items() if kind != "clean"),
        "counts": counted,
        "facts": dict(noisy.facts),
        "examples": [_example(prompt) for prompt in examples(noisy, _EXAMPLES)],
        "file": str(target),
        "written": written,
        "next": f"olr train {recipe} --set {quote(f'data.train={target}')} --set noise=null",
    }


def _example(prompt: Prompt) -> dict[str, str | None]:
    return {
        "prompt_id": prompt.prompt_id,
        "prompt": prompt.messages[-1].content,
        "true_answer": prompt.true_answer,
        "given_label": prompt.given_label,
        "noise_type": prompt.noise_type,
    }


def _show(summary: dict[str, Any]) -> None:
    from fractions import Fraction

    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)

    def line(head: str, text: str, style: str = "") -> None:
        # Text, not markup: prompts and labels are data. Not wrapped: a path must stay in one piece.
        console.print(Text.assemble((f"{head:<10}", "bold"), (text, style)), soft_wrap=True)

    facts = summary["facts"]
    labels = f", labels in {summary['label_column']}" if summary["label_column"] else ""
    line("Read", f"{summary['source']}: {summary['prompts']} prompts{labels}")
    line(
        "Marked",
        f"{summary['marked']} of {summary['prompts']} (ratio {_ratio(summary)}, seed {facts['noise.seed']})",
    )
    if not summary["marked"] and Fraction(facts["noise.ratio"]):
        line("", f"the ratio {facts['noise.ratio']} of {summary['prompts']} prompts rounds to none", "yellow")
    line("", ", ".join(f"{count} {kind}" for kind, count in summary["counts"].items()))
    for kind, meaning in _MEANINGS.items():
        if kind in summary["counts"]:
            line("", f"{kind}: {meaning}", "dim")
    without = facts.get("noise.without_wrong_answer", "0")
    if without != "0":
        line("", f"{without} prompts without a wrong answer in the rollouts became inactive")
    for example in summary["examples"]:
        console.print()
        line("Prompt", _shortened(example["prompt"], _PROMPT_WIDTH))
        line("", f"true answer {_shortened(str(example['true_answer']), 40)}")
        line("", f"file says   {_shortened(str(example['given_label']), 40)} ({example['noise_type']})")
    console.print()
    line("Wrote" if summary["written"] else "Unchanged", _outcome(summary))
    line("Next", summary["next"])


_MEANINGS = {
    "inactive": "the label is a string that no policy gives",
    "active": "olr train draws the label at every visit from that visit's wrong answers (to other trainers such rows"
    " are inactive noise; --rollouts RUN writes wrong answers into the file)",
    "active_frozen": "the label is a wrong answer from the stored rollouts",
}


def _ratio(summary: dict[str, Any]) -> str:
    """The ratio asked for, and the realised one where a whole number of prompts can't meet it."""
    from fractions import Fraction

    asked = summary["facts"]["noise.ratio"]
    realised = Fraction(summary["marked"], summary["prompts"])
    return asked if realised == Fraction(asked) else f"{asked}, realised {float(realised):.4f}"


def _outcome(summary: dict[str, Any]) -> str:
    if summary["written"]:
        return f"{summary['file']} (olr train and verl read it)"
    return f"{summary['file']} is already there with these bytes"


def _shortened(text: str, width: int) -> str:
    """`text` on one line of at most `width` characters, without control characters."""
    line = " ".join(text.split())
    line = "".join(character if character.isprintable() else "�" for character in line)
    return line if len(line) <= width else line[: width - 1] + "…"
