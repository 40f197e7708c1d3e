"""Golds that take the place of an evaluation's stored ones, when it is graded again with the same problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from olr_cli.data.prompts import Prompt
from olr_cli.engines.prompt_text import NONE
from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import Benchmark, Source
from olr_cli.evaluation.folder import EvaluationRecord
from olr_cli.evaluation.generations import Generation
from olr_cli.evaluation.problems import benchmarks_in, digest, load_problems
from olr_cli.evaluation.prompting import Prompting


def in_data(data: Path, benchmarks: Sequence[Benchmark]) -> list[str]:
    """The benchmarks whose problems data can have: those that its rows name, else those that are files themselves.

    Raises:
        UserError: there are none.
    """
    sources = benchmarks_in(data)[1]
    named = [benchmark.name for benchmark in benchmarks if not benchmark.names.isdisjoint(sources)]
    chosen = named or [benchmark.name for benchmark in benchmarks if benchmark.source.file is not None]
    if not chosen:
        names = ", ".join(benchmark.name for benchmark in benchmarks)
        raise UserError(f"{data} has no rows whose data_source is one of {names}; name other data")
    return chosen


def golds_of(rows: Sequence[Generation]) -> dict[str, str]:
    """The stored gold of each problem."""
    return {row.problem_id: row.gold for row in rows}


def new_golds(
    record: EvaluationRecord, benchmark: Benchmark, rows: Sequence[Generation], data: Path | None
) -> tuple[Mapping[str, str], str] | None:
    """The golds of a benchmark's problems by problem id, and the digest of the problems with them.

    Args:
        record: of the evaluation.
        benchmark: as it is graded now.
        rows: its stored samples.
        data: where its problems are; None: at its own source, and where that asks other problems now, None is returned.

    Raises:
        UserError: the data cannot be read, ask other problems, or the evaluation had few-shot examples, which it does
            not store.
    """
    stored = record.benchmarks[benchmark.name]
    if "shots" in record.prompting:
        raise UserError(
            f"{benchmark.name} was asked with few-shot examples, so its golds cannot be replaced; leave --data and"
            " --benchmarks out, or evaluate again"
        )
    source = benchmark
    if (
        data is not None
        and source.source.file is not None
        and source.names.isdisjoint(benchmarks_in(data)[1])
    ):
        source, file = benchmark.model_copy(update={"source": Source(file=str(data))}), None
    else:
        file = data
    system = record.prompting.get("system")
    prompting = Prompting("" if system == NONE else system)
    problems = prompting.ask(source, load_problems(source, data=file, limit=stored.problems))
    before = golds_of(rows)
    if (
        digest(_with_gold(problem, before.get(problem.prompt_id)) for problem in problems)
        != stored.problems_digest
    ):
        if data is None:
            return None
        raise UserError(
            f"{data} asks other problems of {benchmark.name} than were evaluated; give the same problems, with other"
            " golds"
        )
    return {problem.prompt_id: str(problem.gold) for problem in problems}, digest(problems)


def _with_gold(problem: Prompt, gold: str | None) -> Prompt:
    return replace(problem, true_answer=gold, given_label=gold, noise_type=None)
