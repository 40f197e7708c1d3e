"""Put label noise on a data set: exact, nested and seeded (R1 to R5)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Literal

from olr_cli import seeding
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.prompts import NOISE_TYPES, NoiseType, Prompt, PromptSet
from olr_cli.errors import UserError

NoiseKind = Literal["inactive", "active", "mixed"]
Share = Decimal | Fraction | float | str


def inject(
    prompts: PromptSet,
    *,
    type: NoiseKind,
    ratio: Share,
    seed: int,
    active_share: Share = Decimal("0.5"),
    wrong_answers: Mapping[str, Sequence[str]] | None = None,
) -> PromptSet:
    """Replace the labels of exactly round(ratio * N) of the N prompts of a data set, and mark these (R1 to R4).

    The labels so far are taken to be true, and become the true answers of all prompts. The marked prompts are the first
    ones of a permutation drawn by `seed`. With the same seed, a larger ratio therefore also marks all prompts that a
    smaller one marks, with the same types, even if `type` is mixed.

    Args:
        prompts: N labelled prompts without marks.
        type: noise type of the marked prompts. An `inactive` prompt gets a label that no answer matches. An `active`
            prompt gets a wrong answer as its label: one of `wrong_answers` or, without this argument, one that training
            draws later from the rollouts. `mixed` marks prompts of both types.
        ratio: share of prompts to mark, from 0 to 1. It is taken exactly as it is written or printed: 0.1 is 1/10.
        seed: random seed of the choice of prompts and of wrong answers.
        active_share: share of the marked prompts that are active, if `type` is mixed.
        wrong_answers: prompt_id -> wrong answers from stored rollouts. An active prompt gets one of its wrong answers,
            drawn uniformly, as its label for the whole training (noise type active_frozen). If it has no wrong answers,
            it becomes inactive. The same prompts are marked as without this argument.

    Raises:
        UserError: a prompt has no label or is already marked, or an argument does not fit the others.
    """
    if wrong_answers is not None and type == "inactive":
        raise UserError(
            "stored rollouts give active noise its labels",
            "ask for active or mixed noise, not inactive",
        )
    if prompts.is_marked:
        raise UserError(
            f"{prompts.source} is marked already ({describe_counts(prompts)}), and noise on noise has no known ratio",
            "start from the file without marks",
        )
    share, part = exact_share("ratio", ratio), exact_share("active share", active_share)
    prompts.require_labels("injecting noise")
    count = marked_count(share, len(prompts))
    types: dict[int, NoiseType] = {}
    for rank, row in enumerate(seeding.permutation(len(prompts), "noise", seed)[:count]):
        types[row] = type if type != "mixed" else _mixed_type(rank, part)
    facts = {
        "source_digest": prompts.digest,
        "noise.type": type,
        "noise.ratio": decimal_text(share),
    }
    facts |= {"noise.seed": str(seed), "noise.marked": str(count)}
    if type == "mixed":
        facts["noise.active_share"] = decimal_text(part)
    marked = [
        _mark(p, types.get(row), seed, wrong_answers)
        for row, p in enumerate(prompts.prompts)
    ]
    if wrong_answers is not None:
        facts["noise.draw"] = "frozen"
        without = sum(
            marked[row].noise_type == "inactive"
            for row, it in types.items()
            if it == "active"
        )
        facts["noise.without_wrong_answer"] = str(without)
    return prompts.with_prompts(marked, facts)


def marked_count(ratio: Fraction, size: int) -> int:
    """Return round(ratio * size), halves up, in exact arithmetic (R1)."""
    # Not `round`, which rounds halves to even and would mark no prompt of one at a ratio of 0.5.
    return int(ratio * size + Fraction(1, 2))


def exact_share(name: str, value: Share) -> Fraction:
    """Convert a share to a fraction, exactly as it was written or printed: 0.1 becomes 1/10.

    Raises:
        UserError: `value` is no number from 0 to 1; `name` is the share's name in the message.
    """
    try:
        number = value if isinstance(value, Fraction) else Decimal(str(value))
        is_share = 0 <= number <= 1
    except InvalidOperation:  # no number, or NaN
        is_share = False
    if not is_share:
        raise UserError(f"the {name} is {value}", "give a number from 0 to 1")
    return Fraction(number)


def decimal_text(share: Fraction) -> str:
    """Return a share in its shortest decimal form or, if it has none, as a quotient such as ``1/3``."""
    decimal = Decimal(share.numerator) / Decimal(share.denominator)
    return format(decimal.normalize(), "f") if Fraction(decimal) == share else str(share)


def counts(prompts: PromptSet) -> dict[NoiseType, int]:
    """Return noise type -> number of prompts, for the types that occur; clean prompts come last."""
    sizes = Counter(prompt.noise_type for prompt in prompts.prompts)
    return {name: sizes[name] for name in (*NOISE_TYPES[1:], "clean") if sizes[name]}


def examples(prompts: PromptSet, size: int) -> list[Prompt]:
    """Choose up to `size` prompts to show: one of each noise type, then more marked ones, then clean ones."""
    # Reversed, so that the first prompt of each type is the last to be stored, and stays.
    first_of_type = {
        prompt.noise_type: prompt
        for prompt in reversed(prompts.prompts)
        if prompt.is_marked
    }
    chosen = list(reversed(first_of_type.values()))
    marked_first = sorted(prompts.prompts, key=lambda prompt: not prompt.is_marked)
    return (chosen + [prompt for prompt in marked_first if prompt not in chosen])[:size]


def default_target(source: str, kind: str, ratio: Share) -> Path:
    """Return the default path of a noisy data set: ``data/<source>-<kind>-<ratio>.parquet``."""
    # A hub id may have a dot in its name, and that begins no suffix.
    name = source if "/" in source else source.removesuffix(Path(source).suffix)
    stem = re.sub(r"[^\w.+-]+", "-", name)
    return (
        Path("data") / f"{stem}-{kind}-{decimal_text(exact_share('ratio', ratio))}.parquet"
    )


def describe_counts(prompts: PromptSet) -> str:
    """Return the number of prompts of each noise type as text, such as ``387 inactive, 413 clean``."""
    return ", ".join(f"{count} {name}" for name, count in counts(prompts).items())


def _mixed_type(rank: int, active_share: Fraction) -> NoiseType:
    """Return the noise type of a prompt in mixed noise.

    `rank` is the prompt's position, from 0, in the order in which prompts are marked. For every m, exactly
    round(active_share * m) of the first m prompts in that order are active, and the others are inactive.
    """
    # By rank, and not by a draw: the types of the first m prompts stay the same if a larger ratio marks more.
    grows = marked_count(active_share, rank + 1) > marked_count(active_share, rank)
    return "active" if grows else "inactive"


def _mark(
    prompt: Prompt,
    noise_type: NoiseType | None,
    seed: int,
    wrong_answers: Mapping[str, Sequence[str]] | None,
) -> Prompt:
    """Return a prompt with noise of a type, or marked as clean if the type is None.

    In either case, the prompt's label so far becomes its true answer. A clean prompt keeps the label.

    An inactive prompt gets the sentinel as its label, a text that no answer matches. An active prompt also gets the
    sentinel if `wrong_answers` is None; training then draws its labels.

    If `wrong_answers` (prompt_id -> wrong answers) are given, an active prompt gets one of its wrong answers as its
    label, drawn by `seed`, and the noise type ``active_frozen``. If it has no wrong answers, it becomes inactive.
    """
    truth = prompt.given_label
    if noise_type is None:
        return replace(prompt, true_answer=truth, noise_type="clean")
    if noise_type == "inactive" or wrong_answers is None:
        return replace(
            prompt, given_label=SENTINEL, true_answer=truth, noise_type=noise_type
        )
    # Sorted, so that the draw does not depend on the order of rollouts.
    wrong = sorted(set(wrong_answers.get(prompt.prompt_id, ())) - {SENTINEL, truth})
    if not wrong:
        return replace(
            prompt, given_label=SENTINEL, true_answer=truth, noise_type="inactive"
        )
    drawn = wrong[int(seeding.uniform("frozen label", seed, prompt.prompt_id) * len(wrong))]
    return replace(prompt, given_label=drawn, true_answer=truth, noise_type="active_frozen")
