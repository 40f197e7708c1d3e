"""`olr inject-noise`: a data set in which an exact and repeatable share of the labels is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Literal

from typer import Option

from olr_cli.cli import options
from olr_cli.cli.printing import show
from olr_cli.tables import Answer, File, Line, one_line

if TYPE_CHECKING:
    from olr_cli.data.prompts import NoiseType, PromptSet

_EXAMPLES = 3
"""Number of prompts that are shown."""
_PROMPT_WIDTH = 68
"""Characters of a prompt that are shown."""

_MEANINGS = {
    "inactive": "the label is a string that no policy gives",
    "active": "olr train draws the label at every visit from that visit's wrong answers (to other trainers such rows"
    " are inactive noise; --rollouts RUN writes wrong answers into the file)",
    "active_frozen": "the label is a wrong answer from the stored rollouts",
}
"""Type of noise -> the text below the counts."""


def inject_noise(
    *,
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
    seed: int = Option(
        0, metavar="S", help="Random seed that decides which prompts are drawn and marked."
    ),
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
    decimal_comma: bool = options.DECIMAL_COMMA,
    encoding: str = options.ENCODING,
    system: str | None = options.SYSTEM_PROMPT,
    json: bool = options.JSON_OBJECT,
) -> None:
    """Mark an exact share of a data set's labels as noise, and write the result to a new file."""
    from olr_cli.data.check import repeat_notes
    from olr_cli.data.noise import default_target, inject
    from olr_cli.data.prompt_files import Reading, read_prompts
    from olr_cli.data.writers import write_prompts
    from olr_cli.errors import UserError, at
    from olr_cli.files import require_new

    require_new({"out": out}, repeatable=["out"])
    if active_share is not None and type != "mixed":
        raise UserError("--active-share is for mixed noise", "leave it out")
    reading = Reading(
        options.read_columns(columns),
        system_prompt=system,
        decimal_comma=decimal_comma,
        encoding=encoding,
    )
    clean = read_prompts(dataset, sample=sample, seed=seed, reading=reading)
    # Other trainers read the file too, so an answer that their graders may call right is refused as a wrong label (R4).
    frozen = refused = None
    if rollouts is not None:
        from olr_cli.answers import Judge
        from olr_cli.runs.wrong_answers import proved_wrong, wrong_answers

        stored = wrong_answers(rollouts, clean)
        with Judge() as judge:
            frozen, refused = proved_wrong(stored, clean.prompts, judge)
    noisy = inject(
        clean,
        type=type,
        ratio=ratio,
        seed=seed,
        active_share=active_share or "0.5",
        wrong_answers=frozen,
    )
    target = out or default_target(
        clean.source, type if frozen is None else f"{type}-frozen", ratio
    )
    with at("out"):
        is_new = write_prompts(noisy, target)
    notes = [f"{note}." for note in (*clean.notes, *repeat_notes(clean))]
    show(
        _answer(
            noisy,
            refused,
            File.written(target, " (olr train and verl read it)", is_new=is_new),
            notes,
        ),
        "json" if json else "terminal",
    )


def _answer(
    noisy: PromptSet,
    refused: Sequence[tuple[str, str]] | None,
    file: File,
    notes: Sequence[str],
) -> Answer:
    """Return the output of `olr inject-noise`.

    Args:
        noisy: the prompts, each with its type of noise.
        refused: pairs (the prompt's label, an answer that was not made a label). The answer seems wrong, but another
            grader may call it right. None if no rollouts were given.
        file: the file that was written.
        notes: sentences about the data set.
    """
    from olr_cli.data.noise import counts

    is_addition = noisy.source in ("arithmetic", "arithmetic:addition")
    # The quickstart's toy policy can only add; any other data set needs the user's model.
    recipe = "laptop/quickstart" if is_addition else "own-data --set model.path=MODEL"
    command = (
        f"olr train {recipe} --set {quote(f'data.train={file.path}')} --set noise=null"
    )
    result = {
        key: getattr(noisy, key)
        for key in ("source", "revision", "digest", "label_column", "facts")
    }
    counted = counts(noisy)
    result |= {"counts": counted, "refused": refused, "is_new": file.is_new}
    return Answer(
        [*_lines(noisy, counted, refused)], result, notes, [file], {command: ""}, indent=10
    )


def _lines(
    noisy: PromptSet,
    counted: Mapping[NoiseType, int],
    refused: Sequence[tuple[str, str]] | None,
) -> Iterator[Line | str]:
    """Yield the lines of output: the number of prompts, the marked prompts, the refused answers, and a few examples.

    Args:
        noisy: the prompts, each with its type of noise.
        counted: type of noise -> number of prompts.
        refused: pairs (the prompt's label, an answer that was not made a label). The answer seems wrong, but another
            grader may call it right. None if no rollouts were given.
    """
    labels = f", labels in {noisy.label_column}" if noisy.label_column else ""
    yield Line("Read", f"{noisy.source}: {len(noisy)} prompts{labels}")
    yield from _marks(noisy, counted)
    if refused is not None:
        such = "".join(f", such as {answer} for {label}" for label, answer in refused[:1])
        count = f"{len(refused)} wrong answer{'s' * (len(refused) != 1)}"
        yield Line(
            "Refused", f"{count} of the rollouts that another grader may call right{such}"
        )
    yield from _examples(noisy)
    yield ""


def _marks(noisy: PromptSet, counted: Mapping[NoiseType, int]) -> Iterator[Line]:
    """Yield lines on the prompts marked as noise: how many there are, of which types, and what each type means.

    Args:
        noisy: the prompts, each with its type of noise, and the settings of the noise.
        counted: type of noise -> number of prompts.
    """
    prompts, marked = len(noisy), len(noisy) - counted.get("clean", 0)
    ratio, seed = noisy.facts["noise.ratio"], noisy.facts["noise.seed"]
    # Compare exact fractions: rounding alone must not report another ratio.
    realised = Fraction(marked, prompts)
    exactly = "" if realised == Fraction(ratio) else f", realised {float(realised):.4f}"
    yield Line("Marked", f"{marked} of {prompts} (ratio {ratio}{exactly}, seed {seed})")
    if not marked and Fraction(ratio):
        yield Line("", f"the ratio {ratio} of {prompts} prompts rounds to none", "yellow")
    yield Line("", ", ".join(f"{count} {kind}" for kind, count in counted.items()))
    for kind, meaning in _MEANINGS.items():
        if kind in counted:
            yield Line("", f"{kind}: {meaning}", "dim")
    without = noisy.facts.get("noise.without_wrong_answer", "0")
    if without != "0":
        count = f"{without} prompt{'s' * (without != '1')}"
        yield Line("", f"{count} without a wrong answer in the rollouts became inactive")


def _examples(noisy: PromptSet) -> Iterator[Line | str]:
    """Yield a few prompts, with their true answers and the labels in the file."""
    from olr_cli.data.noise import examples

    for prompt in examples(noisy, _EXAMPLES):
        yield ""
        yield Line("Prompt", one_line(prompt.messages[-1].content, _PROMPT_WIDTH))
        yield Line("", f"true answer {one_line(str(prompt.true_answer), 40)}")
        yield Line(
            "", f"file says   {one_line(str(prompt.given_label), 40)} ({prompt.noise_type})"
        )
