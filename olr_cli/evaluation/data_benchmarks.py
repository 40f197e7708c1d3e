"""Benchmarks made of data: a file of questions and answers, or the held-out set of a run (`data.test`)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from olr_cli.answers import ARITHMETIC_SOURCES, default_extractor
from olr_cli.data.arithmetic import parse_source
from olr_cli.data.hub import parse_hub_id
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.prompts import SYSTEM_PROMPT, Prompt
from olr_cli.data.rows import SUFFIXES, matching_files
from olr_cli.data.sets import held_out_prompts
from olr_cli.evaluation.benchmark import Benchmark, Source, find_benchmark, registry
from olr_cli.recipe.layers import folder_name
from olr_cli.recipe.schema import Recipe


def file_benchmarks(data: Path | None, names: Iterable[str] | None = None) -> list[Benchmark]:
    """A benchmark for each file at a place, called after the file.

    Rows are asked as training asks them: questions under R21's system message, messages as they are.

    Args:
        data: a file, a folder or a pattern; None: there are none.
        names: only benchmarks with these names.

    Raises:
        UserError: there is no such file, or it has no prompts.
    """
    files = [] if data is None else matching_files(str(data))
    if names is not None:
        wanted = set(map(str.strip, names))
        files = [file for file in files if _free_name(file.name) in wanted]
    return [
        _benchmark(Source(file=str(file.absolute())), file.name, read_prompts(file, split="test").prompts)
        for file in files
    ]


def held_out_benchmark(recipe: Recipe) -> Benchmark | None:
    """The set that a run's recipe holds out, `data.test`, asked and read as in training; None if it has none.

    Raises:
        UserError: it cannot be read any more.
    """
    test = recipe.data.test
    if test is None:
        return None
    if parse_source(test) is not None:
        return find_benchmark(test)
    prompts = held_out_prompts(recipe, test, "test").prompts
    hub_id = None if os.path.exists(os.path.expanduser(test)) else parse_hub_id(test)
    if hub_id is None:
        source, name = Source(file=os.path.abspath(os.path.expanduser(test))), Path(test).name
    else:
        split = hub_id.split or "test"
        source = Source(hub=hub_id.name, config=hub_id.config, split=split, revision=hub_id.revision)
        name = hub_id.name.rpartition("/")[2]
    return _benchmark(source, name, prompts, recipe.data.extractor)


def _benchmark(
    source: Source, name: str, prompts: Sequence[Prompt], extractor: str | None = None
) -> Benchmark:
    extractors = {default_extractor(prompt.data_source) for prompt in prompts}
    has_system = all(any(turn.role == "system" for turn in prompt.messages) for prompt in prompts)
    return Benchmark(
        name=_free_name(name),
        title=_free_name(name),
        source=source,
        system=SYSTEM_PROMPT if has_system else None,
        extractor=extractor or (extractors.pop() if len(extractors) == 1 else "boxed"),
    )


def _free_name(name: str) -> str:
    """What a benchmark of a file is called: as the file, without its suffix where no other benchmark is called so."""
    stem, suffix = os.path.splitext(name)
    stem = folder_name(stem if suffix in SUFFIXES else name).strip("-._+") or "data"
    taken = {known for benchmark in registry().values() for known in benchmark.names} | ARITHMETIC_SOURCES
    return (f"{stem}-data" if stem in taken else stem)[:100]
