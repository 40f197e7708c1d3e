"""Decisions from stored rollouts under other criteria, without a model.

The stored answers go through the same `Supervisor` as during training, visit by visit, so a replay under a
run's own recipe gives the run's own decisions. A table of another trainer's rollouts can be replayed too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from olr_cli.answers import Judge, default_extractor, extract
from olr_cli.data.prompts import NOISE_TYPES, SENTINEL, NoiseType, Prompt
from olr_cli.errors import UserError
from olr_cli.files import write_whole, writing
from olr_cli.recipe import ActiveNoiseSection, MixedNoiseSection, OlrMethod, Recipe
from olr_cli.recipe_files import override, validate
from olr_cli.runs.directory import read_recipe, require_run
from olr_cli.runs.store import arrow_table, read_rollout_steps, scan_labels
from olr_cli.supervision import LabelRecord, Rollout, RolloutGroup, Supervisor, compose

if TYPE_CHECKING:
    import polars as pl

_ROLLOUT_COLUMNS = ("prompt_id", "visit", "step", "sample", "answer")
_PROMPT_COLUMNS = ("given_label", "true_answer", "noise_type")


@dataclass(frozen=True)
class RolloutHistory:
    """Rollouts of several visits, whoever made them.

    Attributes:
        source: the run directory or file.
        steps: the rollouts of one step after the other, each with the columns prompt_id, visit (1, 2, … for each
            prompt), step, sample, answer.
        prompts: prompt_id -> what is known about its labels.
        recipe: the run's recipe, or the default one for a bare table.
        is_run: whether `source` is a run directory.
    """

    source: Path
    steps: Iterable[pl.DataFrame]
    prompts: Mapping[str, Prompt]
    recipe: Recipe
    is_run: bool


def read_history(source: Path, overrides: Iterable[str] = ()) -> RolloutHistory:
    """Rollouts from a run directory, or from a Parquet or JSONL table of any trainer.

    A table needs `prompt_id`, `visit` and `response` (or `answer`); `given_label`, `true_answer`, `noise_type`
    and `data_source` are used where present. Visits are renumbered 1, 2, … within each prompt.

    Args:
        source: the run directory or file.
        overrides: recipe settings (``method.slope_threshold=0.1``) laid over the run's recipe. A run whose
            method refines no labels is replayed under OLR unless the settings name a method.

    Raises:
        UserError: there is no such history, a column is missing or has wrong values.
    """
    settings = list(overrides)
    if source.is_dir():
        require_run(source)
        recipe = _recipe(read_recipe(source), settings, str(source))
        return _run_history(source, recipe)
    return _table_history(source, _recipe(Recipe(method=OlrMethod()), settings, "--set"))


def _recipe(base: Recipe, settings: list[str], source: str) -> Recipe:
    tree = base.plain()
    if not isinstance(base.method, OlrMethod) and not any(s.startswith("method.name=") for s in settings):
        tree["method"] = {"name": "olr"}
    return validate(override(tree, settings), source)


def _run_history(run: Path, recipe: Recipe) -> RolloutHistory:
    import polars as pl

    first = scan_labels(run).filter(pl.col("visit") == 1).select("prompt_id", *_PROMPT_COLUMNS).collect()
    prompts = {row["prompt_id"]: _prompt(row) for row in first.iter_rows(named=True)}
    extractor = recipe.data.extractor
    if extractor is None or extractor == read_recipe(run).data.extractor:
        return RolloutHistory(run, read_rollout_steps(run, _ROLLOUT_COLUMNS), prompts, recipe, is_run=True)
    responses = read_rollout_steps(run, (*_ROLLOUT_COLUMNS[:-1], "response"))
    steps = (rows.with_columns(_answers(rows, extractor)) for rows in responses)
    return RolloutHistory(run, steps, prompts, recipe, is_run=True)


def _table_history(file: Path, recipe: Recipe) -> RolloutHistory:
    import polars as pl

    table = _read_table(file)
    missing = [name for name in ("prompt_id", "visit") if name not in table.columns]
    if not missing and not {"response", "answer"} & set(table.columns):
        missing = ["response"]
    if missing:
        raise UserError(
            f"{file} has no column {' and no column '.join(missing)} (it has {', '.join(table.columns)});"
            " a history has prompt_id, visit and response"
        )
    if table["prompt_id"].null_count() or table["visit"].null_count():
        raise UserError(f"{file} has rows without prompt_id or visit; remove or complete them")
    table = table.with_columns(pl.col("prompt_id").cast(pl.String), visit=_whole(table["visit"], file))
    if table.is_empty():
        raise UserError(f"{file} has no rows; a history needs at least one rollout")
    labels = _labels_of_prompts(table, file)
    marked = _sentinel_type(recipe)
    prompts = {row["prompt_id"]: _prompt(row, marked) for row in labels.iter_rows(named=True)}
    ranked = table.with_columns(
        visit=pl.col("visit").rank("dense").over("prompt_id").cast(pl.Int32),
        sample=pl.int_range(pl.len()).over("prompt_id", "visit").cast(pl.Int32),
        answer=_answers(table, recipe.data.extractor),
    ).with_columns(step=pl.col("visit"))
    steps = (
        ranked.select(_ROLLOUT_COLUMNS)
        .sort("step", maintain_order=True)
        .partition_by("step", maintain_order=True)
    )
    return RolloutHistory(file, steps, prompts, recipe, is_run=False)


def _read_table(file: Path) -> pl.DataFrame:
    import polars as pl

    if not file.exists():
        raise UserError(
            f"{file} does not exist; name a run directory, or a Parquet or JSONL table of rollouts"
        )
    if file.suffix in (".jsonl", ".ndjson", ".json"):
        return pl.DataFrame(list(_json_rows(file)), infer_schema_length=None, strict=False)
    try:
        return pl.read_parquet(file)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{file} is not a whole Parquet file ({reason}); a history is Parquet or JSONL"
        ) from None


def _json_rows(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise UserError(f"{file}, line {number}: not JSON ({error})") from None
            if not isinstance(row, dict):
                raise UserError(
                    f"{file}, line {number}: expected an object with prompt_id, visit and response"
                )
            yield row


def _whole(visits: pl.Series, file: Path) -> pl.Series:
    import polars as pl

    try:
        return visits.cast(pl.Int64, strict=True)
    except pl.exceptions.PolarsError:
        raise UserError(
            f"{file}: the column visit must hold whole numbers, it holds {visits.dtype}"
        ) from None


def _labels_of_prompts(table: pl.DataFrame, file: Path) -> pl.DataFrame:
    """One row a prompt with its label columns; they must not change from visit to visit."""
    import polars as pl

    known = [name for name in (*_PROMPT_COLUMNS, "data_source") if name in table.columns]
    labels = table.select("prompt_id", *(pl.col(name).cast(pl.String) for name in known)).unique(
        maintain_order=True
    )
    twice = labels.filter(pl.col("prompt_id").is_duplicated())
    if not twice.is_empty():
        raise UserError(
            f"{file}: prompt {twice['prompt_id'][0]} has several values of {', '.join(known)}; a prompt's given label,"
            " true answer and noise type are constant over its visits"
        )
    if "noise_type" in known:
        strange = labels.filter(~pl.col("noise_type").is_in(NOISE_TYPES))
        if not strange.is_empty():
            raise UserError(
                f"{file}: noise_type '{strange['noise_type'][0]}' of prompt {strange['prompt_id'][0]} is not one of"
                f" {', '.join(NOISE_TYPES)}"
            )
    return labels


def _sentinel_type(recipe: Recipe) -> NoiseType:
    """What a sentinel row without a noise type counts as (R1)."""
    return "active" if recipe.noise is not None and recipe.noise.type == "active" else "inactive"


def _prompt(row: Mapping[str, Any], sentinel_type: NoiseType = "inactive") -> Prompt:
    given, noise_type = row.get("given_label"), row.get("noise_type")
    if given == SENTINEL and noise_type is None:
        noise_type = sentinel_type
    return Prompt(
        row["prompt_id"], (), given, row.get("true_answer"), noise_type, row.get("data_source") or ""
    )


def _answers(table: pl.DataFrame, extractor: str | None) -> pl.Series:
    import polars as pl

    if "response" not in table.columns:
        return table["answer"].cast(pl.String)
    sources = table["data_source"].to_list() if "data_source" in table.columns else [""] * len(table)
    answers = [
        None if response is None else extract(str(response), extractor or default_extractor(source or ""))
        for response, source in zip(table["response"].to_list(), sources, strict=True)
    ]
    return pl.Series("answer", answers, dtype=pl.String)


def replay(history: RolloutHistory, judge: Judge) -> Iterator[list[LabelRecord]]:
    """The decisions of every visit, one list a training step (a bare table: a visit), oldest first.

    The history's own recipe says how: method, seed and the draw of noisy labels.
    """
    recipe = history.recipe
    noise = recipe.noise
    supervisor = Supervisor(
        compose(recipe.method),
        judge,
        seed=recipe.seed,
        draw=noise.draw if isinstance(noise, ActiveNoiseSection | MixedNoiseSection) else "uniform",
        extractor="text",
    )
    for rows in history.steps:
        groups = [
            _group(history.prompts, group) for group in rows.partition_by("prompt_id", maintain_order=True)
        ]
        yield [decided.label for decided in supervisor.supervise(groups)]


def _group(prompts: Mapping[str, Prompt], rows: pl.DataFrame) -> RolloutGroup:
    rollouts = tuple(Rollout(answer or "") for answer in rows.sort("sample")["answer"].to_list())
    return RolloutGroup(prompts[rows["prompt_id"][0]], rows["visit"][0], rows["step"][0], rollouts)


def write_json_lines(steps: Iterable[list[LabelRecord]], stream: TextIO) -> None:
    """One JSON object a visit, with the columns of the labels table."""
    for labels in steps:
        for label in labels:
            stream.write(json.dumps(asdict(label), ensure_ascii=True) + "\n")


def replay_file(history: RolloutHistory) -> Path:
    """Where a replay goes by default: below the run, or beside the table; one name for each setting."""
    digest = history.recipe.digest()[:8]
    if history.is_run:
        return history.source / "replay" / f"labels-{digest}.parquet"
    return history.source.with_name(f"{history.source.stem}-replay-{digest}.parquet")


def write_labels(steps: Iterable[list[LabelRecord]], target: Path) -> None:
    """Write a replay's labels as one Parquet file, step by step.

    Raises:
        UserError: `target` can't be written.
    """
    import pyarrow.parquet as pq

    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)

    def write(path: Path) -> None:
        with pq.ParquetWriter(path, arrow_table("labels", []).schema, compression="zstd") as writer:
            for labels in steps:
                writer.write_table(arrow_table("labels", labels))

    write_whole(target, write)


def summary(history: RolloutHistory, steps: Iterable[list[LabelRecord]], target: Path) -> list[str]:
    """Write the replay to `target` and say in a few lines what it decided."""
    import polars as pl

    write_labels(steps, target)
    labels = pl.scan_parquet(target)
    counts = labels.select(
        visits=pl.len(),
        prompts=pl.col("prompt_id").n_unique(),
        selected=pl.col("is_selected").sum(),
        right=(pl.col("is_selected") & pl.col("majority_is_correct")).sum(),
        known=(pl.col("is_selected") & pl.col("majority_is_correct").is_not_null()).sum(),
    ).collect()
    row = counts.row(0, named=True)
    lines = [
        f"Replayed {row['visits']:,} visits of {row['prompts']:,} prompts under {compose(history.recipe.method).name}"
        f" ({_settings(history.recipe)}).",
        f"Selected: {row['selected']:,} of {row['visits']:,} visits"
        + (f"; right in {row['right'] / row['known']:.1%} of them." if row["known"] else "."),
    ]
    if history.is_run:
        lines.append(_agreement(history.source, labels))
    return [*lines, f"Wrote {target}"]


def _settings(recipe: Recipe) -> str:
    method = recipe.method.model_dump(mode="json", exclude={"name"})
    shown = {key: "+".join(value) if isinstance(value, list) else value for key, value in method.items()}
    return (
        ", ".join(f"{key} {value if value != '' else 'none'}" for key, value in shown.items())
        or "no settings"
    )


def _agreement(run: Path, labels: pl.LazyFrame) -> str:
    import polars as pl

    stored = scan_labels(run).select("prompt_id", "visit", stored=pl.col("effective_label"))
    both = labels.join(stored, on=["prompt_id", "visit"]).select(
        same=pl.col("effective_label").eq_missing(pl.col("stored")).sum(), all=pl.len()
    )
    same, total = both.collect().row(0)
    return f"The effective label is the run's own in {same:,} of {total:,} visits."
