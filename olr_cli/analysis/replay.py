"""Decisions from stored rollouts under other criteria, without a model.

A replay under a run's own recipe repeats the run's own decisions: the stored rollouts pass through the same
`Supervisor` as in training, step by step. A table of another trainer's rollouts can be replayed too.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

import polars as pl
import pyarrow.parquet as pq

from olr_cli.analysis.audit.audit import SETTABLE
from olr_cli.analysis.histories import (
    CHUNK,
    OF_THE_LOSS,
    RolloutHistory,
    chunks,
    contradictions,
    replay_words,
    set_words,
)
from olr_cli.answers import Judge
from olr_cli.data.table_files import FORMULA
from olr_cli.data.writers import write_csv
from olr_cli.errors import UserError
from olr_cli.files import write_new
from olr_cli.recipe.methods import OlrMethod
from olr_cli.recipe.schema import Recipe
from olr_cli.runs.directory import kind_note, kind_of, read_manifest, read_recipe
from olr_cli.runs.shards import table_schema
from olr_cli.runs.store import arrow_table, scan_labels
from olr_cli.supervision import (
    ROLLOUT_COLUMNS,
    ColumnSupervisor,
    Method,
    Step,
    compose,
    decides_in_columns,
    keep_fraction,
    make_supervisor,
)
from olr_cli.supervision.metrics import MAJORITY_DIFFERS
from olr_cli.tables import Answer, File


def label_tables(history: RolloutHistory, judge: Judge) -> Iterator[pl.DataFrame]:
    """Decide the labels of every visit anew, and yield rows of the labels table in batches, oldest first.

    A row is the decision for one prompt at one visit. The history's recipe sets the method, the seed and the draw of
    noisy labels.
    """
    recipe, prompts = history.recipe, history.prompts
    if decides_in_columns(recipe):
        columns = ColumnSupervisor(recipe, prompts, judge)
        # Each block reads the history of all prompts. With blocks of a fixed size, twice the prompts would mean twice
        # the blocks of twice the work.
        blocks = chunks(history.steps, ROLLOUT_COLUMNS, max(CHUNK, 2 * len(prompts)))
        for rows in blocks:
            yield columns.decide(_rollouts_of(rows, compose(recipe.method), history.source))
        return
    share = keep_fraction(recipe.method, prompts.values())
    supervisor = make_supervisor(recipe, share, judge, None)
    method = supervisor.method
    for rows in history.steps:
        taken = _rollouts_of(rows, method, history.source)
        decided = supervisor.supervise(Step.read(taken, prompts, method.statistics))
        yield pl.DataFrame(arrow_table("labels", decided.labels))


def _rollouts_of(rows: pl.DataFrame, method: Method, source: Path) -> pl.DataFrame:
    """Return the rollouts that the method uses.

    A method uses one or more views (wordings of a prompt). Rollouts of other views are left out. `source` is for the
    error.

    Raises:
        UserError: at some visit there are no rollouts of a view that the method needs, or a rollout lacks a statistic
            that it needs, such as the entropy.
    """
    used = rows.filter(pl.col("view").is_in(method.views))
    visits = rows.select("prompt_id", "visit").unique(maintain_order=True)
    for view in method.views if len(method.views) > 1 or len(used) < len(rows) else ():
        without = visits.join(
            rows.filter(pl.col("view") == view), on=["prompt_id", "visit"], how="anti"
        )
        if not without.is_empty():
            prompt, visit = without.row(0)
            raise UserError(
                f"{source}: prompt {prompt} has no responses of the view {view} at visit {visit}, which method"
                f" {method.name} needs",
                "choose another method.name",
            )
    for name in method.statistics:
        if used[name].null_count():
            raise UserError(
                f"{source}: method {method.name} needs {name} of every rollout, and some have none",
                "choose another method.name",
            )
    return used


def write_json_lines(tables: Iterable[pl.DataFrame], stream: TextIO) -> None:
    """Write each row of these labels tables as a line of JSON, an object with the columns as keys."""
    for labels in tables:
        for label in labels.iter_rows(named=True):
            stream.write(json.dumps(label, ensure_ascii=True) + "\n")


def replay_file(history: RolloutHistory) -> Path:
    """Return the file that a replay is written to by default: in a run's folder ``replay``, or beside a log.

    Its name contains a digest of the recipe, so replays under different settings have different files.
    """
    digest = history.recipe.digest()[:8]
    if history.is_run:
        return history.source / "replay" / f"labels-{digest}.parquet"
    return history.source.with_name(f"{history.source.stem}-replay-{digest}.parquet")


def _write_labels(tables: Iterable[pl.DataFrame], target: Path, *, replaces: bool) -> bool:
    def write(path: Path) -> None:
        schema = table_schema("labels")
        with pq.ParquetWriter(path, schema, compression="zstd") as writer:
            for labels in tables:
                writer.write_table(labels.to_arrow().cast(schema))
        if target.suffix == ".csv":
            write_csv(pl.read_parquet(path, glob=False), path)

    return write_new(target, write, "out", replaces=replaces)


def _scan(file: Path) -> pl.LazyFrame:
    if file.suffix != ".csv":
        return pl.scan_parquet(file, glob=False)
    schema = pl.DataFrame(table_schema("labels").empty_table()).schema
    # `write_csv` puts an apostrophe before text that a spreadsheet would run as a formula; take it off again.
    guarded = f"^'('*{FORMULA})"
    return pl.scan_csv(file, schema=schema, glob=False).with_columns(
        pl.col(pl.String).str.replace(guarded, "${1}")
    )


def replay_answer(
    history: RolloutHistory,
    judge: Judge,
    target: Path,
    named: Sequence[str] = (),
    settings: Sequence[str] = (),
) -> Answer:
    """Decide the labels of a replay and write them to `target`; return a summary of a few lines.

    The summary proposes further commands on the same history.

    Args:
        history: the rollouts, with the recipe to replay under.
        judge: compares answers.
        target: the file to write.
        named: words that stand for the history in the proposed commands; by default its path.
        settings: texts ``KEY=VALUE`` that the history was read with. The proposed commands repeat them, except those of
            the method.
    """
    # Only the default file may be overwritten: nobody else writes it, and the run may have trained further since. A
    # file that the user named may hold something else.
    is_new = _write_labels(
        label_tables(history, judge), target, replaces=target == replay_file(history)
    )
    labels = _scan(target)
    is_right = pl.col("effective_label_is_correct")
    counts = labels.select(
        visits=pl.len(),
        prompts=pl.col("prompt_id").n_unique(),
        selected=pl.col("is_selected").sum(),
        right=(pl.col("is_selected") & is_right).sum(),
        known=(pl.col("is_selected") & is_right.is_not_null()).sum(),
        rollouts=pl.col("rollouts").sum(),
        answered=pl.col("answered").sum(),
        last_visit=pl.col("visit").max(),
        labelled=pl.col("prompt_id").filter(pl.col("given_label").is_not_null()).n_unique(),
        changed=pl.col("prompt_id")
        .filter(pl.col("is_selected") & MAJORITY_DIFFERS)
        .n_unique(),
    ).collect()
    row, method = counts.row(0, named=True), compose(history.recipe.method).name
    right = (
        f"; right in {row['right'] / row['known']:.1%} of them." if row["known"] else "."
    )
    lines = [
        f"Replayed {row['visits']:,} visits of {row['prompts']:,} prompts under {method}"
        f" ({_settings(history.recipe)}).",
        f"Selected: {row['selected']:,} of {row['visits']:,} visits{right}",
    ]
    if history.is_run:
        note = kind_note(history.source, kind_of(read_manifest(history.source)))
        lines += _agreement(history, method, labels) if note is None else [f"Note: {note}"]
    elif row["labelled"]:
        lines.append(
            f"{row['changed']:,} of {row['labelled']:,} labels would be replaced by another answer."
        )
    lines += _warnings(history, row)
    words = named or [str(history.source)]
    recipe = read_recipe(history.source) if history.is_run else history.recipe
    # The next replay is about other criteria, so it must not repeat the method's settings.
    kept = [setting for setting in settings if not setting.strip().startswith("method")]
    read = set_words(it for it in kept if it.strip().startswith(SETTABLE))
    commands = {
        shlex.join(
            ["olr", "audit", *words, *read]
        ): "which labels look wrong, the most doubtful first",
        shlex.join(
            ["olr", "replay", *words, *replay_words(recipe, kept)]
        ): "what other criteria would select",
    }
    notes = [*history.notes, *contradictions(history, judge)]
    return Answer(
        lines, notes=notes, files=[File.written(target, is_new=is_new)], next=commands
    )


def _warnings(history: RolloutHistory, counts: Mapping[str, int]) -> list[str]:
    """Return warnings if hardly any response has an answer, and if the warm-up is as long as the history.

    In both cases a replay selects nothing, whatever the rollouts say. `counts` has the number of ``rollouts``, the
    number of ``answered`` rollouts, and the ``last_visit``.
    """
    # A wrong extractor leaves no votes, and a long warm-up leaves no visit to select in.
    recipe, missing = history.recipe, 1 - counts["answered"] / counts["rollouts"]
    warnings = [f"Warning: {sentence}" for sentence in history.warns_of_no_answers(missing)]
    if (
        isinstance(recipe.method, OlrMethod)
        and recipe.method.warmup_epochs >= counts["last_visit"]
    ):
        warnings.append(
            f"Warning: method.warmup_epochs {recipe.method.warmup_epochs} leaves none of the"
            f" {counts['last_visit']} visits in which a label can be refined; lower it"
        )
    return warnings


def _settings(recipe: Recipe) -> str:
    """Return the method's settings that influence decisions, such as ``slope_threshold 0.05, warmup_epochs 5``."""
    defaults = {
        key
        for key in ("prompts", "majority_graded_by")
        if recipe.is_default(f"method.{key}")
    }
    left_out = {"name", *OF_THE_LOSS, *defaults}
    method = recipe.method.model_dump(mode="json", exclude=left_out, exclude_none=True)
    shown = {
        key: "+".join(value) if isinstance(value, list) else value
        for key, value in method.items()
    }
    return (
        ", ".join(
            f"{key} {value if value != '' else 'none'}" for key, value in shown.items()
        )
        or "no settings"
    )


def _agreement(history: RolloutHistory, method: str, labels: pl.LazyFrame) -> Iterator[str]:
    """Yield sentences that compare the decisions of a replay with those of the run.

    - The first names the run's method. It is left out if the replay has the same method.
    - The second says at how many visits the label is the same.
    - The third says at how many visits replay and run agree on whether the prompt trains. It is left out if every
      prompt trains in both.

    Args:
        history: the replayed history.
        method: name of the replay's method.
        labels: the replay's decisions.
    """
    run_method = compose(read_recipe(history.source).method).name
    if run_method != method:
        yield f"The run's own method is {run_method}."
    stored = scan_labels(history.source).select(
        "prompt_id", "visit", stored=pl.col("effective_label"), trained=pl.col("trains")
    )
    both = labels.join(stored, on=["prompt_id", "visit"]).select(
        # `==` would give null for two missing labels, and the sum would count that agreement as none.
        same=pl.col("effective_label").eq_missing(pl.col("stored")).sum(),
        training=(pl.col("trains") == pl.col("trained")).sum(),
        all=pl.len(),
        chosen=(~pl.col("trains") | ~pl.col("trained")).any(),
    )
    same, training, total, chosen = both.collect().row(0)
    yield f"The effective label is the run's own in {same:,} of {total:,} visits."
    # In most methods every prompt trains, and the sentence would say nothing.
    if chosen:
        yield f"The prompt trains or not as in the run in {training:,} of {total:,} visits."
