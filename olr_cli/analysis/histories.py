"""Stored rollouts of several visits: a run's own, or a table of any trainer's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import polars as pl

from olr_cli.answers import EXTRACTORS, Judge, find_extractor, reading_more
from olr_cli.data.arithmetic import parse_source
from olr_cli.data.chat import Message
from olr_cli.data.logs import (
    LABELS,
    STATISTICS,
    Report,
    RolloutLog,
    answers_of,
    is_log,
    read_log,
    silent,
)
from olr_cli.data.prompts import (
    NEVER_REWARDED,
    NOISE_TYPES,
    SENTINEL,
    NoiseType,
    Prompt,
    PromptSet,
    View,
)
from olr_cli.data.rows import matching_files
from olr_cli.data.sets import recipe_reading, sentinel_type, training_prompts
from olr_cli.data.verified import with_verified
from olr_cli.errors import UserError, at
from olr_cli.recipe.layers import overlay, override, validate
from olr_cli.recipe.methods import OlrMethod, OwnMethod
from olr_cli.recipe.schema import Recipe, flatten
from olr_cli.runs.directory import GIVEN_UP, has_run, read_manifest, read_recipe, rules_note
from olr_cli.runs.store import read_rollout_steps, scan_labels, stored_responses, stored_steps
from olr_cli.supervision import compose

_COLUMNS = ("prompt_id", "visit", "step", "sample", "view", "answer", *STATISTICS)

_CHUNK = 200_000
"""Rollouts that are in memory at a time."""

OF_THE_LOSS = ("penalty_weight", "smoothing")
"""Settings of the method that decide nothing about labels, rewards or prompts."""

_SETTABLE = (
    "seed",
    "noise.draw",
    "data.extractor",
    "data.tolerance",
    "data.verified",
    "data.columns",
)
"""What can be set besides the method and the verifier."""

NO_LABELS = "It has no labels"
"""Begins the note on labels that are guessed from rewards."""

_COMPARED = 1_000
"""Rewards, about, that are compared with verdicts: enough to see a share of _MOST_CONTRADICTIONS."""
_MOST_CONTRADICTIONS = 0.1
"""Warn from this share of rewards that contradict verdicts on; graders alone differ on a few per cent."""

EXAMPLE = "method.slope_threshold=0.1"
"""A setting that a replay takes, as an example."""


def replay_words(recipe: Recipe, settings: Sequence[str] = ()) -> list[str]:
    """Return the words of a replay under other criteria, after those that name the history.

    They have the settings that the history is read with, by default those that a run's own verifier needs, and the
    method OLR if a rule of somebody's own has other criteria.
    """
    read = settings or [
        text for key, text in recipe.code_settings().items() if key == "verifier.where"
    ]
    own = ["method.name=olr"] if isinstance(recipe.method, OwnMethod) else []
    return [word for setting in (*read, *own, EXAMPLE) for word in ("--set", setting)]


@dataclass(frozen=True)
class RolloutHistory:
    """Rollouts of several visits, whoever made them.

    Attributes:
        steps: the rollouts of one step after the other, with the columns prompt_id, visit (1, 2, … for each prompt),
            step, sample, view, answer, `STATISTICS` (null where unknown), and response if rewards depend on it; those
            of a run are read on demand, once.
        prompts: by prompt_id, with what is known of their labels.
        recipe: the run's recipe, or the default one for a log, with the settings laid over it.
        log: whose log it is and what was taken for what, without its rows; None of a run.
        knows_labels: whether the given labels are those of the data; else they are what was rewarded.
        rewards: prompt_id, answer and is_rewarded of some of a log's rollouts, for `contradictions`.
        notes: what to bear in mind about decisions that are repeated on these rollouts.
    """

    source: Path
    steps: Iterable[pl.DataFrame]
    prompts: Mapping[str, Prompt]
    recipe: Recipe
    log: RolloutLog | None = None
    knows_labels: bool = True
    rewards: pl.DataFrame | None = None
    notes: Sequence[str] = ()

    @property
    def is_run(self) -> bool:
        """Whether `source` is a run directory."""
        return self.log is None

    def warns_of_no_answers(self, missing: float) -> list[str]:
        """Sentences if hardly any of the responses have an answer: another extractor may read them, and which does."""
        if missing <= 0.9:
            return []
        # A log's notes have it already.
        read = reading_more(stored_responses(self.source)) if self.is_run else None
        known = ", ".join(EXTRACTORS)
        sentence = f"{missing:.0%} of the responses have no answer; another data.extractor ({known}) may help"
        return [sentence if read is None else f"{sentence}. {read}"]

    @property
    def given_up(self) -> Path | None:
        """The file of answers on which verification gave up in the run; a replay gives up on them too (R8)."""
        return self.source / GIVEN_UP if self.is_run else None


def read_history(
    source: Path | Sequence[Path],
    overrides: Iterable[str] = (),
    columns: Mapping[str, str] | None = None,
    *,
    keeps_responses: bool = False,
    report: Report = silent,
) -> RolloutHistory:
    """Rollouts from a run directory, or from the log of any trainer (`olr_cli.data.logs.read_log`).

    A log's `source` is its files, folders of them, or patterns; with `keeps_responses` its steps have its responses.
    `overrides` are settings (``method.slope_threshold=0.1``) laid over the run's recipe: of the method, the verifier,
    the seed, the draw of noisy labels, how answers are read, and of a log the noise type of sentinels (R1). A run keeps
    its own method unless the settings name another, or OLR's settings that its own method lacks. `report` is called
    while a log is read, and for each of the history's steps.
    """
    with at("set"):
        changes = override({}, overrides)
    places = [source] if isinstance(source, Path) else list(source)
    runs = [
        place for place in places if place.is_dir() and (has_run(place) or not is_log(place))
    ]
    if not runs:
        return _log_history(places, columns, changes, keeps_responses, report)
    if not has_run(runs[0]):
        one = next(filter(has_run, sorted(runs[0].iterdir())), None)
        raise UserError(
            f"{runs[0]} is not a run directory (no manifest.json), and it holds no rollouts of another trainer"
            f" (.parquet, .jsonl); name {'one of these' if one is None else f'one of its runs, such as {one}'}"
        )
    if len(places) > 1 or columns:
        raise UserError(
            f"{runs[0]} is a run directory; name it alone, without columns, which are for logs"
        )
    return _run_history(runs[0], changes, report)


def _recipe(
    base: Recipe, changes: Mapping[str, Any], source: str, settable: Sequence[str]
) -> Recipe:
    for key in flatten(dict(changes)):
        section = ".".join(key.split(".")[:2])
        decides = (
            key.startswith(("method", "verifier"))
            and key.removeprefix("method.") not in OF_THE_LOSS
        )
        if section not in settable and not decides:
            raise UserError(
                "the stored rollouts are as they are, and no loss is computed; a replay can set method.*, verifier.*,"
                f" {', '.join(settable)}",
                f"set {section}",
            )
    tree, method = base.plain(), changes.get("method")
    settings = method if isinstance(method, Mapping) else {}
    of_olr = OlrMethod.model_fields.keys() - type(base.method).model_fields.keys()
    chosen = settings.get("name", "olr" if of_olr & settings.keys() else base.method.name)
    if chosen != base.method.name:
        tree["method"] = {
            "name": chosen
        }  # with its own defaults, not with the settings of the run's method
    if base.noise is None and "noise" in changes:
        # Active labels can also be those of a marked file, which needs no noise section.
        tree["noise"] = {"type": "active"}
    if any(key.startswith("data.columns") for key in flatten(dict(changes))):
        tree["data"]["columns"] = None  # a setting names those of other files than the run's
    recipe = validate(overlay(tree, changes), source)
    recipe = recipe.of_strangers(base.strangers - flatten(dict(changes)).keys())
    if "extractor" in changes.get("data", {}) and recipe.data.extractor is not None:
        with at("set data.extractor"):
            find_extractor(recipe.data.extractor)
    return recipe


def _run_history(run: Path, changes: Mapping[str, Any], report: Report) -> RolloutHistory:
    run_recipe = read_recipe(run)
    recipe = _recipe(run_recipe, changes, str(run), _SETTABLE)
    # The run may still be training: its steps are counted before the labels are read, and later ones left out.
    steps = len(stored_steps(run))
    stored = ("prompt_id", *LABELS, "label_source", "in_percent")
    labels = scan_labels(run).filter(pl.col("visit") == 1).select(stored)
    prompts = {row["prompt_id"]: _prompt(row) for row in labels.collect().iter_rows(named=True)}
    notes = rules_note(run)
    if recipe.data.verified != run_recipe.data.verified:
        prompts, verified_notes = _with_verified(with_questions(prompts, run), recipe, run)
        notes = [*notes, *verified_notes]
    reads_anew = recipe.data.extractor != run_recipe.data.extractor
    columns = (*_COLUMNS, "response") if reads_anew or rewards_responses(recipe) else _COLUMNS
    rollouts: Iterator[pl.DataFrame] = islice(read_rollout_steps(run, columns), steps)
    if reads_anew:
        rollouts = _read_anew(rollouts, run_recipe, recipe.data.extractor)
    return RolloutHistory(run, _reported(rollouts, report), prompts, recipe, notes=notes)


def _reported(steps: Iterable[pl.DataFrame], report: Report) -> Iterator[pl.DataFrame]:
    rollouts = 0
    for rows in steps:
        yield rows
        rollouts += len(rows)
        report(f"Counted {rollouts:,} rollouts")


def chunks(steps: Iterable[pl.DataFrame], columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """The steps of a history, joined up to a size that memory holds, with those of `columns` that they have."""
    waiting: list[pl.DataFrame] = []
    count = 0
    for rows in steps:
        waiting.append(rows.select(name for name in columns if name in rows.columns))
        count += len(rows)
        if count >= _CHUNK:
            yield pl.concat(waiting)
            waiting, count = [], 0
    if waiting:
        yield pl.concat(waiting)


def _with_verified(
    prompts: Mapping[str, Prompt], recipe: Recipe, source: Path
) -> tuple[dict[str, Prompt], list[str]]:
    verified = recipe.data.verified
    if verified is None:
        return {
            name: replace(prompt, is_verified=False) for name, prompt in prompts.items()
        }, []
    marked, notes = with_verified(
        prompts.values(), verified, recipe.seed, source, recipe_reading(recipe)
    )
    return {prompt.prompt_id: prompt for prompt in marked}, [f"{note}." for note in notes]


def with_questions(prompts: Mapping[str, Prompt], run: Path) -> Mapping[str, Prompt]:
    """A run's prompts with their messages, where its data set can be read on this machine."""
    with suppress(UserError):
        asked = {
            prompt.prompt_id: prompt.messages for prompt in run_data(run, is_local=True).prompts
        }
        return {
            name: replace(prompt, messages=asked.get(name, ()))
            for name, prompt in prompts.items()
        }
    return prompts


def run_data(run: Path, *, is_local: bool = False) -> PromptSet:
    """The data set that a run was made on.

    With `is_local` never from the hub, so that no network is needed, and only if the run says what it was.
    """
    recipe, facts = read_recipe(run), read_manifest(run).get("data", {})
    source, digest = recipe.data.train, facts.get("train", {}).get("digest")
    try:
        if is_local and parse_source(source) is None:
            matching_files(source)
        prompts = training_prompts(recipe)
    except (UserError, OSError) as error:
        raise UserError(f"{source} cannot be read from here ({error})") from None
    if digest != prompts.digest and (is_local or digest is not None):
        raise UserError(f"{source} does not hold the prompts of this run any more")
    return prompts


def rewards_responses(recipe: Recipe) -> bool:
    """Whether the rewards depend on more of a response than its answer."""
    rules = recipe.verifier.where if recipe.verifier else ()
    return compose(recipe.method).score is not None or any(
        rule.response or rule.function for rule in rules
    )


def _read_anew(
    steps: Iterable[pl.DataFrame], run_recipe: Recipe, extractor: str | None
) -> Iterator[pl.DataFrame]:
    """A run's answers under another extractor than its own; None: what each prompt's data source calls for (R6)."""
    sources: dict[str, str] = {}
    if extractor is None:
        prompts = training_prompts(run_recipe).prompts
        sources = {prompt.prompt_id: prompt.data_source for prompt in prompts}
    for rows in steps:
        of_rows = rows["prompt_id"].replace_strict(sources, default="", return_dtype=pl.String)
        yield rows.with_columns(answers_of(rows["response"], of_rows, extractor))


def _log_history(
    places: Sequence[Path],
    columns: Mapping[str, str] | None,
    changes: Mapping[str, Any],
    keeps_responses: bool,
    report: Report,
) -> RolloutHistory:
    recipe = _recipe(Recipe(method=OlrMethod()), changes, "set", (*_SETTABLE, "noise.type"))
    wants_responses = rewards_responses(recipe)
    log = read_log(
        places,
        columns,
        wanted=("view", "model", "response", *STATISTICS, *LABELS, "reward", "is_correct"),
        extractor=recipe.data.extractor,
        keeps_responses=wants_responses or keeps_responses,
        report=report,
    )
    table, source = log.rows, log.source
    if recipe.data.extractor is not None and "characters" not in table.columns:
        raise UserError(
            f"{source} has answers and no responses, so data.extractor has nothing to read; leave it out"
        )
    labels = _labels_of_prompts(table, source)
    marked = sentinel_type(recipe)
    prompts = {
        row["prompt_id"]: _prompt(row, marked, log.questions)
        for row in labels.iter_rows(named=True)
    }
    prompts, verified_notes = _with_verified(prompts, recipe, source)
    rewarded = (
        _rewarded_labels(table) if all(p.given_label is None for p in prompts.values()) else {}
    )
    notes = [*log.notes, *verified_notes]
    if rewarded:
        prompts = {
            name: replace(p, given_label=rewarded.get(name, NEVER_REWARDED))
            for name, p in prompts.items()
        }
        never = len(prompts) - len(rewarded)
        notes.append(
            f"{NO_LABELS}, so a prompt's label is taken to be the answer that was rewarded;"
            f" {never:,} of {len(prompts):,} prompts were never rewarded ({NEVER_REWARDED})."
        )
    if wants_responses and "response" not in table.columns:
        # No response is known to be worded like another.
        table = table.with_columns(response=pl.int_range(pl.len()).cast(pl.String))
    more = [name for name in ("model", "response", "is_rewarded") if name in table.columns]
    views = table["view"].drop_nulls().unique().to_list() if "view" in table.columns else []
    if strange := [view for view in views if view not in get_args(View)]:
        raise UserError(
            f"{source}: view '{strange[0]}' is not one of {', '.join(get_args(View))}"
        )
    return RolloutHistory(
        source,
        _reported(_steps_of_log(table, (*_COLUMNS, *more)), report),
        prompts,
        recipe,
        log=replace(log, rows=pl.DataFrame()),
        knows_labels=not rewarded,
        rewards=_some_rewards(table) if "is_rewarded" in table.columns else None,
        notes=notes,
    )


def _steps_of_log(table: pl.DataFrame, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """The rollouts of one visit after the other, as those of a run's steps."""
    kinds = {"prompt_id": pl.String, "view": pl.String, "answer": pl.String, "tokens": pl.Int32}
    kinds |= dict.fromkeys(STATISTICS[1:], pl.Float64)
    table = table.select(name for name in (*columns,) if name in table.columns)
    for visit in range(1, 1 + int(table["visit"].max())):  # type: ignore[arg-type]  # whole numbers
        rows = table.filter(pl.col("visit") == visit).with_columns(step=pl.col("visit"))
        yield (
            rows.with_columns(
                pl.lit(None, kind).alias(name)
                if name not in rows.columns
                else pl.col(name).cast(kind)
                for name, kind in kinds.items()
            )
            .with_columns(
                pl.col("view").fill_null("original"),
                sample=pl.int_range(pl.len()).over("prompt_id").cast(pl.Int32),
            )
            .select(columns)
        )


def _rewarded_labels(table: pl.DataFrame) -> dict[str, str]:
    """prompt_id -> the answer that was rewarded most often; none where nobody knows what was rewarded."""
    if "is_rewarded" not in table.columns:
        return {}
    rewarded = table.filter(pl.col("is_rewarded"), pl.col("answer").is_not_null())
    counts = rewarded.group_by("prompt_id", "answer").len().cast({pl.Categorical: pl.String})
    counts = counts.sort("len", "answer", descending=[True, False])
    return dict(
        counts.unique("prompt_id", maintain_order=True)
        .select("prompt_id", "answer")
        .iter_rows()
    )


def _some_rewards(table: pl.DataFrame) -> pl.DataFrame:
    rows = (
        table.select("prompt_id", "answer", "is_rewarded")
        .drop_nulls()
        .cast({pl.Categorical: pl.String})
    )
    # Odd, so that no stride meets the same place of every group.
    return rows.gather_every(max(1, len(rows) // _COMPARED) | 1)


def contradictions(history: RolloutHistory, judge: Judge) -> list[str]:
    """A sentence if many rewards contradict the verdict about answer and label, as those of other rows would."""
    known = {
        name: prompt.asked(prompt.given_label)
        for name, prompt in history.prompts.items()
        if not prompt.is_marked and prompt.given_label not in (None, NEVER_REWARDED)
    }
    asked = [
        ((label, answer), is_rewarded)
        for name, answer, is_rewarded in (
            () if history.rewards is None else history.rewards.iter_rows()
        )
        if (label := known.get(name)) is not None
    ]
    verdicts = judge.matches(pair for pair, _ in asked)
    wrong = sum(
        v not in (None, is_rewarded)
        for v, (_, is_rewarded) in zip(verdicts, asked, strict=True)
    )
    if wrong <= _MOST_CONTRADICTIONS * len(asked):
        return []
    return [
        f"{wrong:,} of {len(asked):,} rewards that were looked at contradict the verdict about answer and label:"
        " they may be those of other rows, or reward something else."
    ]


def _labels_of_prompts(table: pl.DataFrame, file: Path) -> pl.DataFrame:
    """One row a prompt with its label columns; they must not change from visit to visit."""
    known = [name for name in (*LABELS, "data_source") if name in table.columns]
    labels = (
        table.select("prompt_id", *known)
        .unique(maintain_order=True)
        .cast({pl.Categorical: pl.String})
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


def _prompt(
    row: Mapping[str, Any],
    type_of_sentinel: NoiseType = "inactive",
    questions: Mapping[str, tuple[Message, ...]] = MappingProxyType({}),
) -> Prompt:
    given, noise_type = row.get("given_label"), row.get("noise_type")
    return Prompt(
        row["prompt_id"],
        questions.get(row["prompt_id"], ()),
        given,
        row.get("true_answer"),
        type_of_sentinel if given == SENTINEL and noise_type is None else noise_type,
        row.get("data_source") or "",
        is_verified=row.get("label_source") == "verified",
        stored_in_percent=row.get("in_percent"),
    )
