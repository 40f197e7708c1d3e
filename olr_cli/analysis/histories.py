"""Stored rollouts of several visits: a run's own, or a table of any trainer's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl

from olr_cli.analysis.log_tables import (
    labels_of_prompts,
    require_views,
    rewarded_labels,
    some_rewards,
    steps_of,
)
from olr_cli.answers import EXTRACTORS, Judge, find_extractor, reading_more
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.arithmetic import parse_source
from olr_cli.data.chat import Message
from olr_cli.data.columns import LABELS, STATISTICS
from olr_cli.data.log_files import common_place, is_log
from olr_cli.data.logs import Report, RolloutLog, answers_of, read_log, silent
from olr_cli.data.prompts import NEVER_REWARDED, NoiseType, Prompt, PromptSet
from olr_cli.data.sets import recipe_reading, sentinel_type, training_prompts
from olr_cli.data.table_files import matching_files
from olr_cli.data.verified import with_verified
from olr_cli.errors import UserError, at
from olr_cli.recipe.layers import overlay, override, validate
from olr_cli.recipe.methods import OlrMethod, OwnMethod
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.section import flatten
from olr_cli.runs.directory import GIVEN_UP, has_run, kind_of, read_manifest, read_recipe
from olr_cli.runs.shards import stored_steps
from olr_cli.runs.store import read_rollout_steps, scan_labels, stored_responses
from olr_cli.supervision import compose

_COLUMNS = ("prompt_id", "visit", "step", "sample", "view", "answer", *STATISTICS)

CHUNK = 200_000
"""Rollouts that are in memory at a time, by default."""

OF_THE_LOSS = ("penalty_weight", "smoothing")
"""Settings of the method that decide nothing about labels, rewards or prompts."""

_SETTABLE = (
    "seed",
    "noise.draw",
    "data.extractor",
    "data.tolerance",
    "data.verified",
    "data.columns",
    "data.decimal_comma",
    "data.encoding",
)
"""What can be set besides the method and the verifier."""

NO_LABELS = "It has no labels"
"""Begins the note on labels that are guessed from rewards."""

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
    return set_words([*read, *own, EXAMPLE])


def set_words(settings: Iterable[str]) -> list[str]:
    """Return the words of a command that lays settings over a recipe."""
    return [word for setting in settings for word in ("--set", setting)]


@dataclass(frozen=True)
class RolloutHistory:
    """Rollouts of several visits, whoever made them.

    Attributes:
        steps: the rollouts of one step after the other, with the columns prompt_id, visit (1, 2, … for each prompt),
            step, sample, view, answer, `STATISTICS` (null where unknown), and response if rewards depend on it; those
            of a run are read on demand, once.
        prompts: by prompt_id, with what is known of their labels.
        recipe: the run's recipe, or the default one for a log, with the settings laid over it.
        log: whose log it is and what was taken for what, without its rows; None of a run. Several runs are a log.
        runs: the run directories whose rollouts it holds; none of another trainer's log.
        data: the data set that the prompts have their messages from, where it was read.
        knows_labels: whether the given labels are those of the data; else they are what was rewarded.
        rewards: prompt_id, answer and is_rewarded of some of a log's rollouts, for `contradictions`.
        notes: what to bear in mind about decisions that are repeated on these rollouts.
    """

    source: Path
    steps: Iterable[pl.DataFrame]
    prompts: Mapping[str, Prompt]
    recipe: Recipe
    log: RolloutLog | None = None
    runs: Sequence[Path] = ()
    data: PromptSet | None = None
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
    are_models: bool = False,
    report: Report = silent,
) -> RolloutHistory:
    """Rollouts from a run directory, or from the log of any trainer (`olr_cli.data.logs.read_log`).

    A log's `source` is its files, folders of them, or patterns; with `keeps_responses` its steps have its responses and
    their rewards. With `are_models` several runs of `olr rollouts` on one data set are the log of as many models.
    `overrides` are settings (``method.slope_threshold=0.1``) laid over the run's recipe: of the method, the verifier,
    the seed, the draw of noisy labels, how answers are read, and of a log the noise type of sentinels (R1). A run keeps
    its own method unless the settings name another, or OLR's settings that its own method lacks. `report` is called
    while a log is read, and for each of the history's steps.
    """
    with at("set"):
        changes = override({}, overrides)
    places = [source] if isinstance(source, Path) else list(source)
    unique = {place.resolve(): place for place in places if place.is_dir()}.values()
    runs = [place for place in unique if has_run(place) or not is_log(place)]
    if not runs:
        return _log_history(places, columns, changes, keeps_responses, report)
    if not has_run(runs[0]):
        raise _without_rollouts(runs[0])
    if are_models and len(runs) > 1 and all(map(has_run, places)) and not columns:
        return _history_of_runs(runs, changes, report, keeps_responses=keeps_responses)
    if len(places) > 1 or columns:
        other = next((f", and {it} is none" for it in places if not has_run(it)), "")
        raise UserError(
            f"{runs[0]} is a run directory{other}",
            "name it alone, or in an audit with other runs; columns are for logs",
        )
    return _run_history(runs[0], changes, report)


def _without_rollouts(folder: Path) -> UserError:
    """Return the error for a folder that is no run and no log."""
    run = next(filter(has_run, sorted(folder.iterdir())), None)
    return UserError(
        f"{folder} is not a run directory (no manifest.json), and where trainers write rollouts (.parquet, .jsonl) it"
        " holds none",
        f"name one of its runs, such as {run}"
        if run
        else "name a folder or files of rollouts",
    )


def _history_of_runs(
    runs: Sequence[Path],
    changes: Mapping[str, Any],
    report: Report,
    *,
    keeps_responses: bool,
) -> RolloutHistory:
    """Return the rollouts of several runs of `olr rollouts` on one data set, as a log with a column `model`.

    It names the policy of each run, so that runs of one policy are one model.
    """
    manifests = [read_manifest(run) for run in runs]
    data: dict[str, Path] = {}
    for run, manifest in zip(runs, manifests, strict=True):
        if kind_of(manifest) != "rollouts":
            raise UserError(
                f"{run} is a training run, whose policy changed at every step",
                "audit it alone",
            )
        data.setdefault(manifest["data"]["train"]["digest"], run)
    if len(data) > 1:
        first, other, *_ = data.values()
        raise UserError(
            f"{first} and {other} were sampled on different prompts or labels, so their models cannot be compared",
            "audit runs of the same data set, with the same limit and columns",
        )
    histories = [
        _run_history(run, changes, report, keeps_responses=keeps_responses) for run in runs
    ]
    source = common_place(runs)
    return replace(
        histories[0],
        source=source,
        steps=(
            rows.with_columns(model=pl.lit(history.recipe.model.path))
            for history in histories
            for rows in history.steps
        ),
        prompts={
            name: prompt
            for history in histories
            for name, prompt in history.prompts.items()
        },
        log=RolloutLog(source, pl.DataFrame()),
        runs=runs,
        notes=[
            f"{run} is not finished ({manifest['status']}): what it has not visited yet is not in here."
            for run, manifest in zip(runs, manifests, strict=True)
            if manifest["status"] != "finished"
        ],
    )


def _recipe(
    base: Recipe, changes: Mapping[str, Any], source: str, settable: Sequence[str]
) -> Recipe:
    """Return a recipe with changes laid over it, if they may be made of rollouts that are there."""
    keys = flatten(dict(changes)).keys()
    _require_settable(keys, settable)
    tree, name = base.plain(), _method_name(base, changes.get("method"))
    if name != base.method.name:
        # With its own defaults, not with the settings of the run's method
        tree["method"] = {"name": name}
    if base.noise is None and "noise" in changes:
        # Active labels can also be those of a marked file, which needs no noise section.
        tree["noise"] = {"type": "active"}
    if any(key.startswith("data.columns") for key in keys):
        tree["data"]["columns"] = (
            None  # a setting names those of other files than the run's
        )
    recipe = validate(overlay(tree, changes), source).of_strangers(base.strangers - keys)
    if "extractor" in changes.get("data", {}) and recipe.data.extractor is not None:
        with at("set data.extractor"):
            find_extractor(recipe.data.extractor)
    return recipe


def _require_settable(keys: Iterable[str], settable: Sequence[str]) -> None:
    """Refuse settings that decide nothing about stored rollouts."""
    for key in keys:
        section = ".".join(key.split(".")[:2])
        is_of_loss = key.removeprefix("method.") in OF_THE_LOSS
        decides = key.startswith(("method", "verifier")) and not is_of_loss
        if section not in settable and not decides:
            raise UserError(
                "the stored rollouts are as they are, and no loss is computed",
                f"a replay can set method.*, verifier.*, {', '.join(settable)}",
                f"set {section}",
            )


def _method_name(base: Recipe, changes: Any) -> str:
    """Return the method that changes name, or OLR if they have settings that it has and the recipe's method lacks."""
    settings = changes if isinstance(changes, Mapping) else {}
    of_olr = OlrMethod.model_fields.keys() - type(base.method).model_fields.keys()
    by_default = "olr" if of_olr & settings.keys() else base.method.name
    return str(settings.get("name", by_default))


def _run_history(
    run: Path, changes: Mapping[str, Any], report: Report, *, keeps_responses: bool = False
) -> RolloutHistory:
    run_recipe = read_recipe(run)
    recipe = _recipe(run_recipe, changes, str(run), _SETTABLE)
    # The run may still be training: its steps are counted before the labels are read, and later ones left out.
    complete = len(stored_steps(run))
    stored = ("prompt_id", *LABELS, "label_source", "in_percent")
    labels = scan_labels(run).filter(pl.col("visit") == 1).select(stored)
    prompts = {
        row["prompt_id"]: _prompt(row) for row in labels.collect().iter_rows(named=True)
    }
    notes: Sequence[str] = ()
    if recipe.data.verified != run_recipe.data.verified:
        prompts, notes = _with_verified(with_questions(prompts, run)[0], recipe, run)
    reads_anew = recipe.data.extractor != run_recipe.data.extractor
    wants_responses = keeps_responses or reads_anew or rewards_responses(recipe)
    columns = (*_COLUMNS, "response") if wants_responses else _COLUMNS
    rollouts: Iterator[pl.DataFrame] = islice(read_rollout_steps(run, columns), complete)
    if reads_anew:
        rollouts = _read_anew(rollouts, run_recipe, recipe.data.extractor)
    steps = _reported(rollouts, report)
    return RolloutHistory(run, steps, prompts, recipe, runs=[run], notes=notes)


def _reported(steps: Iterable[pl.DataFrame], report: Report) -> Iterator[pl.DataFrame]:
    rollouts = 0
    for rows in steps:
        yield rows
        rollouts += len(rows)
        report(f"Counted {rollouts:,} rollouts")


def chunks(
    steps: Iterable[pl.DataFrame], columns: Sequence[str], rollouts: int = CHUNK
) -> Iterator[pl.DataFrame]:
    """The steps of a history, joined up to so many rollouts, with those of `columns` that they have."""
    waiting: list[pl.DataFrame] = []
    count = 0
    for rows in steps:
        waiting.append(rows.select(name for name in columns if name in rows.columns))
        count += len(rows)
        if count >= rollouts:
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


def with_questions(
    prompts: Mapping[str, Prompt], run: Path
) -> tuple[Mapping[str, Prompt], PromptSet | None]:
    """A run's prompts with their messages, and its data set, where that can be read on this machine."""
    with suppress(UserError):
        data = run_data(run, is_local=True)
        asked = {prompt.prompt_id: prompt.messages for prompt in data.prompts}
        return {
            name: replace(prompt, messages=asked.get(name, ()))
            for name, prompt in prompts.items()
        }, data
    return prompts, None


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
        # By `data.drop_long`, which needs the model's tokenizer
        if left_out := {*facts.get("train", {}).get("left_out", ())}:
            ids = enumerate(prompt.prompt_id for prompt in prompts.prompts)
            prompts = prompts.subset([row for row, name in ids if name not in left_out])
    except (UserError, OSError) as error:
        raise UserError(
            f"{source} cannot be read from here ({error})", "put it where the run found it"
        ) from None
    if digest != prompts.digest and (is_local or digest is not None):
        raise UserError(
            f"{source} does not hold the prompts of this run any more",
            "restore the file that it was trained on",
        )
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
        of_rows = rows["prompt_id"].replace_strict(
            sources, default="", return_dtype=pl.String
        )
        yield rows.with_columns(answers_of(rows["response"], of_rows, extractor))


def _log_history(
    places: Sequence[Path],
    columns: Mapping[str, str] | None,
    changes: Mapping[str, Any],
    keeps_responses: bool,
    report: Report,
) -> RolloutHistory:
    recipe = log_recipe(changes)
    log = read_log(
        places,
        columns,
        wanted=("view", "model", "response", *STATISTICS, *LABELS, "reward", "is_correct"),
        extractor=recipe.data.extractor,
        keeps_responses=rewards_responses(recipe) or keeps_responses,
        report=report,
    )
    return log_history(log, recipe, report)


def log_recipe(changes: Mapping[str, Any]) -> Recipe:
    """Return the recipe by which a log is read, with changes laid over it."""
    settable = (*_SETTABLE, "noise.type")
    return _recipe(Recipe(method=OlrMethod()), changes, "set", settable)


def log_history(log: RolloutLog, recipe: Recipe, report: Report = silent) -> RolloutHistory:
    """The history that a log is; `recipe` says how it was read (`log_recipe`)."""
    table, source = log.rows, log.source
    if recipe.data.extractor is not None and "characters" not in table.columns:
        raise UserError(
            f"the answers of {source} are stored, so data.extractor has nothing to read",
            "leave it out",
        )
    labels = labels_of_prompts(table, source)
    marked = sentinel_type(recipe)
    prompts = {
        row["prompt_id"]: _prompt(row, marked, log.questions)
        for row in labels.iter_rows(named=True)
    }
    prompts, verified_notes = _with_verified(prompts, recipe, source)
    notes, rewarded = [*log.notes, *verified_notes], dict[str, str]()
    if all(prompt.given_label is None for prompt in prompts.values()):
        rewarded = rewarded_labels(table)
    if rewarded:
        prompts = {
            name: replace(prompt, given_label=rewarded.get(name, NEVER_REWARDED))
            for name, prompt in prompts.items()
        }
        never = len(prompts) - len(rewarded)
        notes.append(
            f"{NO_LABELS}, so a prompt's label is taken to be the answer that was rewarded;"
            f" {never:,} of {len(prompts):,} prompts were never rewarded ({NEVER_REWARDED})."
        )
    if rewards_responses(recipe) and "response" not in table.columns:
        # No response is known to be worded like another.
        table = table.with_columns(response=pl.int_range(pl.len()).cast(pl.String))
    require_views(table, source)
    beside = ["reward"] * ("response" in log.rows.columns)
    names = ("model", "response", "is_rewarded", *beside)
    more = [name for name in names if name in table.columns]
    return RolloutHistory(
        source,
        _reported(steps_of(table, (*_COLUMNS, *more)), report),
        prompts,
        recipe,
        log=replace(log, rows=pl.DataFrame()),
        knows_labels=not rewarded,
        rewards=some_rewards(table),
        notes=notes,
    )


def contradictions(history: RolloutHistory, judge: Judge) -> list[str]:
    """A sentence if many rewards contradict the verdict about answer and label, as those of other rows would."""
    if history.rewards is None:
        return []
    labels = {
        name: prompt.asked(prompt.given_label)
        for name, prompt in history.prompts.items()
        if not prompt.is_marked and prompt.given_label not in (None, NEVER_REWARDED)
    }
    pairs, rewards = [], []
    for name, answer, is_rewarded in history.rewards.iter_rows():
        if (label := labels.get(name)) is not None:
            pairs.append((label, answer))
            rewards.append(is_rewarded)
    verdicts = judge.matches(pairs)
    wrong = sum(
        verdict not in (None, is_rewarded)
        for verdict, is_rewarded in zip(verdicts, rewards, strict=True)
    )
    if wrong <= _MOST_CONTRADICTIONS * len(pairs):
        return []
    return [
        f"{wrong:,} of {len(pairs):,} rewards that were looked at contradict the verdict about answer and label:"
        " they may be those of other rows, or reward something else."
    ]


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
