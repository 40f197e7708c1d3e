"""One way in for prompts: built-in sets, files, the Hugging Face hub; and the data sets that a recipe names."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from olr_cli.data.arithmetic import SETS, SOURCE, SPLIT_ENDS, SetName, arithmetic_prompts, parse_source
from olr_cli.data.files import SUFFIXES, matching_files, read_table
from olr_cli.data.hub import load_hub_table, parse_hub_id
from olr_cli.data.interchange import Reading, interchange_table, read_rows
from olr_cli.data.noise import NoiseKind, describe_counts, inject
from olr_cli.data.prompts import SENTINEL, NoiseType, PromptSet
from olr_cli.errors import UserError, did_you_mean
from olr_cli.recipe.schema import ActiveNoiseSection, MixedNoiseSection, NoiseDraw, Recipe

if TYPE_CHECKING:
    import pyarrow as pa


def read_prompts(
    source: str | Path,
    *,
    split: str = "train",
    limit: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    noise_type_of_sentinel: NoiseType | None = None,
    reading: Reading = Reading(),  # noqa: B008 - it is immutable
) -> PromptSet:
    """Prompts from a built-in set, Parquet, JSON or CSV files, or the hub.

    Args:
        source: ``arithmetic[:kind]``; a file, folder or pattern of Parquet, JSON or CSV files, in the
            interchange format or with columns for question and answer; or
            ``org/name[/configuration][:split][@revision]``.
        split: which prompts of a built-in set; the split of a hub id that names none.
        limit: at most so many, the first ones; of a built-in set, exactly so many (400 by default, or as
            many as there are).
        sample: exactly so many, drawn at random and kept in file order.
        seed: of a built-in set, and of the sample.
        noise_type_of_sentinel: what sentinel rows without a noise type are (R1); inactive by default.
        reading: which columns hold what, and the system message; of no effect on a built-in set.

    Raises:
        UserError: one sentence on what is missing or wrong, and where.
    """
    text = str(source)
    kind = parse_source(text)
    if kind is not None:
        return _built_in(text, kind, split=split, size=sample or limit, seed=seed)
    table, name, data_source, revision = _load(text, split)
    rows = read_rows(
        table,
        place=text,
        data_source=data_source,
        split=split,
        noise_type_of_sentinel=noise_type_of_sentinel or "inactive",
        reading=reading,
    )
    prompts = PromptSet(rows.prompts, rows.table, name, revision, rows.label_column, rows.paths)
    if limit is not None:
        prompts = prompts.subset(range(min(limit, len(prompts))))
    return prompts if sample is None else prompts.sample(sample, seed)


def _built_in(name: str, kind: SetName, *, split: str, size: int | None, seed: int) -> PromptSet:
    import pyarrow as pa

    part = next((known for known in SPLIT_ENDS if known == split), None)
    if part is None:
        raise UserError(f"{name} has no split '{split}'; its splits are {', '.join(SPLIT_ENDS)}")
    prompts = tuple(arithmetic_prompts(kind, size, seed, part))
    no_columns = pa.table({"data_source": [p.data_source for p in prompts]})
    return PromptSet(prompts, interchange_table(no_columns, prompts, split), name)


def _load(text: str, split: str) -> tuple[pa.Table, str, str, str | None]:
    """The rows in a file or on the hub, their name, the default of their data source, and their revision."""
    if _is_local(text):
        path = Path(text).absolute()
        # never the bare name: a file called arithmetic.jsonl is not the arithmetic task
        return read_table(matching_files(text)), path.name, f"local/{path.stem}", None
    hub_id = parse_hub_id(text)
    if hub_id is not None:
        table, revision = load_hub_table(hub_id, split)
        return table, text, hub_id.name, revision
    built_in = (SOURCE, *(f"{SOURCE}:{kind}" for kind in SETS))
    guess = did_you_mean(text, built_in) or "; name a file, a folder or a hub id org/name"
    raise UserError(f"no data set '{text}'{guess}")


def _is_local(text: str) -> bool:
    """Whether a source can only mean a file: it exists, has a file's suffix or a path's form, or its folder exists."""
    path = Path(os.path.expanduser(text))
    if os.path.lexists(path) or path.suffix in SUFFIXES or text.startswith((".", "/", "~")) or "*" in text:
        return True
    return "/" in text and os.path.isdir(path.parts[0])


def recipe_reading(recipe: Recipe) -> Reading:
    """How the recipe's files are read; held-out ones may have columns of standard names instead of `data.columns`."""
    return Reading(recipe.data.columns, system_prompt=recipe.data.system_prompt)


def training_prompts(recipe: Recipe, digest: str | None = None) -> PromptSet:
    """The training prompts with the noise that the recipe asks for (R1).

    Without a ratio, the file's own marks are that noise, so they must be of the recipe's type.

    Args:
        recipe: its data and noise.
        digest: of the prompts of a run that was made, so that they keep the ids that the run has stored.

    Raises:
        UserError: the data cannot be read, cannot be given this noise, or carry marks of another type.
    """
    return _as_recorded(lambda reading: _training_prompts(recipe, reading), recipe_reading(recipe), digest)


def _as_recorded(read: Callable[[Reading], PromptSet], reading: Reading, digest: str | None) -> PromptSet:
    """The prompts under the ids that give `digest`: earlier versions numbered the rows of files without ids."""
    prompts = read(reading)
    if digest not in (None, prompts.digest):
        numbered = read(replace(reading, are_numbered=True))
        if numbered.digest == digest:
            return numbered
    return prompts


def _training_prompts(recipe: Recipe, reading: Reading) -> PromptSet:
    noise = recipe.noise
    prompts = read_prompts(
        recipe.data.train,
        split="train",
        limit=recipe.data.limit,
        seed=recipe.seed,
        noise_type_of_sentinel=sentinel_type(recipe),
        reading=reading,
    )
    if noise is None:
        return prompts
    if noise.ratio is not None:
        share = noise.active_share if isinstance(noise, MixedNoiseSection) else Decimal(1)
        return inject(prompts, type=noise.type, ratio=noise.ratio, seed=recipe.noise_seed, active_share=share)
    if not prompts.is_marked:
        raise UserError(
            f"noise.type is {noise.type} but noise.ratio is not set, and {prompts.source} carries no marks;"
            " set noise.ratio or remove the noise section"
        )
    marks = _type_of_marks(prompts)
    if marks != noise.type:
        untyped = " (sentinels without a noise type count as inactive)" if noise.type == "mixed" else ""
        raise UserError(
            f"noise.type is {noise.type}, but the marks of {prompts.source} are {marks}:"
            f" {describe_counts(prompts)}{untyped}; set noise.type to {marks}, or noise to null"
        )
    return prompts


def sentinel_type(recipe: Recipe) -> NoiseType:
    """What a sentinel row that does not name its noise type is (R1): the recipe's type, inactive if it names none."""
    return "active" if recipe.noise is not None and recipe.noise.type == "active" else "inactive"


def _type_of_marks(prompts: PromptSet) -> NoiseKind:
    """The kind of noise that a file's marks are; frozen noise (R4) is active noise."""
    kinds = {prompt.noise_type == "inactive" for prompt in prompts.prompts if prompt.is_marked}
    if len(kinds) == 2:
        return "mixed"
    return "inactive" if kinds == {True} else "active"


def held_out_prompts(recipe: Recipe, source: str, split: str, digest: str | None = None) -> PromptSet:
    """Prompts that are only measured; their gold is the true answer, or a label that is not known to be noise.

    Args:
        recipe: says how files are read.
        source: of the prompts.
        split: ``validation`` or ``test``.
        digest: as for `training_prompts`.

    Raises:
        UserError: the data cannot be read, or has prompts without such an answer.
    """
    prompts = _as_recorded(
        lambda reading: read_prompts(source, split=split, seed=recipe.seed, reading=reading),
        replace(recipe_reading(recipe), are_optional=True),
        digest,
    )
    without = [prompt.prompt_id for prompt in prompts.prompts if prompt.gold in (None, SENTINEL)]
    if without:
        raise UserError(
            f"{prompts.source}: {len(without)} held-out prompts have neither a true answer nor a clean label (first:"
            f" {without[0]}); remove them"
        )
    return prompts


def noise_draw(recipe: Recipe) -> NoiseDraw:
    """How an active noisy label is drawn from a visit's wrong answers (R3)."""
    noise = recipe.noise
    return noise.draw if isinstance(noise, ActiveNoiseSection | MixedNoiseSection) else "uniform"
