"""Stored rollouts of several visits: a run's own, or a table from any trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
"""Default number of rollouts that are in memory at a time."""

OF_THE_LOSS = ("penalty_weight", "smoothing")
"""Settings of the method that change nothing about labels, rewards or prompts."""

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
"""Settings that a replay accepts in addition to those of the method and the verifier."""

NO_LABELS = "It has no labels"
"""Beginning of the note on labels that are guessed from rewards."""

_MOST_CONTRADICTIONS = 0.1
"""Share of rewards that contradict verdicts above which we warn; two graders differ on a few per cent anyway."""

EXAMPLE = "method.slope_threshold=0.1"
"""An example of a setting that a replay accepts."""


def replay_words(recipe: Recipe, settings: Sequence[str] = ()) -> list[str]:
    """Return the options of an `olr replay` command that shows the user how to try another setting (`EXAMPLE`).

    Each option is a ``--set``. In this order, they set:

    - The `settings`, ``KEY=VALUE`` texts that the history was read with. If there are none,
      ``verifier.where``, provided that rules of the run's verifier call functions of the user.
    - ``method.name=olr``, if the run's method is a user's own label rule. `EXAMPLE` is a setting of OLR (Online Label
      Refinement).
    - `EXAMPLE`.
    """
    read = settings or [
        text for key, text in recipe.code_settings().items() if key == "verifier.where"
    ]
    method = ["method.name=olr"] if isinstance(recipe.method, OwnMethod) else []
    return set_words([*read, *method, EXAMPLE])


def set_words(settings: Iterable[str]) -> list[str]:
    """Return the words ``--set KEY=VALUE`` of a command, two for each setting."""
    return [word for setting in settings for word in ("--set", setting)]


@dataclass(frozen=True)
class RolloutHistory:
    """Rollouts of a run or of another trainer's log, with their prompts and labels; made by `read_history`.

    At each visit, a prompt gets a group of responses; most prompts have several visits.
    """

    source: Path
    steps: Iterable[pl.DataFrame]
    """The rollouts of one step after the other; those of a run are read on demand, once.

    The columns are prompt_id, visit (1, 2, … for each prompt), step, sample, view, answer and `STATISTICS` (null where
    unknown), and response if rewards depend on it.
    """

    prompts: Mapping[str, Prompt]
    """Prompts by prompt_id, with everything known about their labels."""

    recipe: Recipe
    """The run's recipe, or the default recipe for a log, with the user's settings applied."""

    log: RolloutLog | None = None
    """The log and the roles of its columns, without its rows; None for one run. Several runs count as a log."""

    runs: Sequence[Path] = ()
    """The run directories that hold the rollouts; empty for another trainer's log."""

    data: PromptSet | None = None
    """The data set that the prompts have their messages from, if it was read."""

    knows_labels: bool = True
    """Whether the given labels are those of the data; otherwise they are the rewarded answers."""

    rewards: pl.DataFrame | None = None
    """prompt_id, answer and is_rewarded of a sample of a log's rollouts, for `contradictions`."""

    notes: Sequence[str] = ()
    """Caveats about decisions that are repeated on these rollouts."""

    @property
    def is_run(self) -> bool:
        """Whether the history is of a single run, so that `source` is its run directory."""
        return self.log is None

    def warns_of_no_answers(self, missing: float) -> list[str]:
        """Return a list with one warning if more than 90 % of the responses have no answer, else an empty list.

        `missing` is the share of responses without an answer. The warning names the extractor that reads more answers,
        if there is one.
        """
        if missing <= 0.9:
            return []
        # For a log, `read_log` has tried the extractors already and put the result into the notes.
        advice = reading_more(stored_responses(self.source)) if self.is_run else None
        names = ", ".join(EXTRACTORS)
        sentence = f"{missing:.0%} of the responses have no answer; another data.extractor ({names}) may help"
        return [sentence if advice is None else f"{sentence}. {advice}"]

    @property
    def given_up(self) -> Path | None:
        """The file with the run's answers that took too long to grade (R8); None if the history is not of one run.

        A replay reads the file and does not grade these answers either.
        """
        return self.source / GIVEN_UP if self.is_run else None

    def judge(self, report: Callable[[str], None] | None = None) -> Judge:
        """Make a judge that comes to the same verdicts on answers as the judge of the run.

        It has the run's tolerance for numbers, and does not grade answers that took the run too long. It writes no
        files. If grading takes long, `report` is called now and then with a sentence on the progress.
        """
        tolerance = self.recipe.data.tolerance
        return Judge(ledger=self.given_up, keep=False, tolerance=tolerance, report=report)


def read_history(
    source: Path | Sequence[Path],
    overrides: Iterable[str] = (),
    columns: Mapping[str, str] | None = None,
    *,
    keeps_responses: bool = False,
    are_models: bool = False,
    report: Report = silent,
) -> RolloutHistory:
    """Read rollouts from a run directory, or from the log of any trainer (`olr_cli.data.logs.read_log`) (R1).

    Args:
        source: a run directory; for a log its files, folders of files, or patterns.
        overrides: settings applied to the run's recipe, such as ``method.slope_threshold=0.1``. They may change the
            method, the verifier, the seed, the draw of noisy labels, and how answers are read. For a log they may also
            change the noise type of sentinels, which are labels that no answer matches. A setting that only Online
            Label Refinement (OLR) has makes OLR the method, unless the overrides name another one.
        columns: for a log, olr's name of a column -> its name in the files.
        keeps_responses: whether a log's steps include its responses and their rewards.
        are_models: whether `source` may be several runs of `olr rollouts` on one data set, which are read together as a
            log of several models. By default several runs are an error.
        report: called while a log is read, and for each of the history's steps.
    """
    with at("set"):
        changes = override({}, overrides)
    places = [source] if isinstance(source, Path) else list(source)
    runs = _run_folders(places)
    if not runs:
        return _log_history(places, columns, changes, keeps_responses, report)
    if not has_run(runs[0]):
        raise _without_rollouts(runs[0])
    others = [place for place in places if not has_run(place)]
    if are_models and len(runs) > 1 and not (others or columns):
        return _history_of_runs(runs, changes, report, keeps_responses=keeps_responses)
    if len(places) > 1 or columns:
        raise _not_alone(runs[0], others, columns)
    return _run_history(runs[0], changes, report)


def _run_folders(places: Iterable[Path]) -> list[Path]:
    """Return the folders among the places that hold a run, or at least no log of another trainer.

    A run that is named twice, or once through a link, is returned once.
    """
    folders = {place.resolve(): place for place in places if place.is_dir()}.values()
    return [folder for folder in folders if has_run(folder) or not is_log(folder)]


def _not_alone(
    run: Path, others: Sequence[Path], columns: Mapping[str, str] | None
) -> UserError:
    """Return the error for a run that is named with columns of logs, or with other places.

    `others` are the places that are no runs. The message names the first of them, if any.
    """
    if columns and not others:
        return columns_of_no_log()
    remark = f", and {others[0]} is none" if others else ""
    return UserError(
        f"{run} is a run directory{remark}", "name it alone, or in an audit with other runs"
    )


def columns_of_no_log() -> UserError:
    """Return the error for columns that are named beside runs or evaluations, which have none to name."""
    return UserError("only logs have columns to name", "leave it out", "columns")


def _without_rollouts(folder: Path) -> UserError:
    """Return the error for a folder that is neither a run nor a log; if there is a run inside, the error names it."""
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

    The column names each run's policy, so that several runs of one policy are one model.

    Raises:
        UserError: a run is a training run, or the runs have different data sets.
    """
    manifests = [read_manifest(run) for run in runs]
    run_by_digest: dict[str, Path] = {}
    for run, manifest in zip(runs, manifests, strict=True):
        if kind_of(manifest) != "rollouts":
            raise UserError(
                f"{run} is a training run, whose policy changed at every step",
                "audit it alone",
            )
        run_by_digest.setdefault(manifest["data"]["train"]["digest"], run)
    if len(run_by_digest) > 1:
        first, second, *_ = run_by_digest.values()
        raise UserError(
            f"{first} and {second} were sampled on different prompts or labels, so their models cannot be compared",
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
        # A log without rows makes `is_run` False: a single run directory no longer describes this history.
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
    """Return a recipe with changes applied. Only settings that matter for stored rollouts may change.

    Args:
        base: the recipe that the rollouts were made or read with.
        changes: nested settings: section -> key -> value.
        source: name of the recipe in errors.
        settable: dotted keys that may change in addition to those of the method and the verifier.

    Raises:
        UserError: a setting cannot change, or has no valid value.
    """
    keys = flatten(dict(changes)).keys()
    _require_settable(keys, settable)
    tree, name = base.plain(), _method_name(base, changes.get("method"))
    if name != base.method.name:
        # Start from the new method's defaults: settings of the run's method may not exist there.
        tree["method"] = {"name": name}
    if base.noise is None and "noise" in changes:
        # A marked file may hold active labels without a noise section; `noise.draw` then needs a section to go into.
        tree["noise"] = {"type": "active"}
    if any(key.startswith("data.columns") for key in keys):
        # Replace, don't merge: the setting describes other files than the run's, whose columns may not be in them.
        tree["data"]["columns"] = None
    recipe = validate(overlay(tree, changes), source).of_strangers(base.strangers - keys)
    if "extractor" in changes.get("data", {}) and recipe.data.extractor is not None:
        with at("set data.extractor"):
            find_extractor(recipe.data.extractor)
    return recipe


def _require_settable(keys: Iterable[str], settable: Sequence[str]) -> None:
    """Raise `UserError` unless all `keys` are settings that can matter for stored rollouts.

    These are the ones in `settable`, those of the verifier, and those of the method that do not belong to the loss
    (`OF_THE_LOSS`).
    """
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
    """Return the name of the method after `changes` to the recipe's section `method`.

    A name in the changes comes first. Without one, Online Label Refinement (OLR) is the method if the changes contain a
    setting of OLR that the recipe's method lacks. Otherwise the method stays the recipe's own.
    """
    settings = changes if isinstance(changes, Mapping) else {}
    of_olr = OlrMethod.model_fields.keys() - type(base.method).model_fields.keys()
    by_default = "olr" if of_olr & settings.keys() else base.method.name
    return str(settings.get("name", by_default))


def _run_history(
    run: Path, changes: Mapping[str, Any], report: Report, *, keeps_responses: bool = False
) -> RolloutHistory:
    run_recipe = read_recipe(run)
    recipe = _recipe(run_recipe, changes, str(run), _SETTABLE)
    # The run may still be training. Count its steps before reading the labels, and leave out later ones: they may
    # visit prompts whose labels were not there yet.
    complete = len(stored_steps(run))
    stored = ("prompt_id", *LABELS, "label_source", "in_percent")
    # Noisy labels change from visit to visit, but these columns do not, so the first visit is enough.
    labels = scan_labels(run).filter(pl.col("visit") == 1).select(stored)
    prompts = {
        row["prompt_id"]: _prompt(row) for row in labels.collect().iter_rows(named=True)
    }
    notes: Sequence[str] = ()
    if recipe.data.verified != run_recipe.data.verified:
        prompts, notes = _with_verified(with_questions(prompts, run)[0], recipe, run)
    extracts_again = recipe.data.extractor != run_recipe.data.extractor
    # Responses are most of a shard's bytes: read them only if something needs them.
    wants_responses = keeps_responses or extracts_again or rewards_responses(recipe)
    columns = (*_COLUMNS, "response") if wants_responses else _COLUMNS
    rollouts: Iterator[pl.DataFrame] = islice(read_rollout_steps(run, columns), complete)
    if extracts_again:
        rollouts = _extracted_again(rollouts, run_recipe, recipe.data.extractor)
    steps = _reported(rollouts, report)
    return RolloutHistory(run, steps, prompts, recipe, runs=[run], notes=notes)


def _reported(steps: Iterable[pl.DataFrame], report: Report) -> Iterator[pl.DataFrame]:
    rollouts = 0
    for rows in steps:
        yield rows
        rollouts += len(rows)
        # After the yield: the caller has used these rollouts by now.
        report(f"Counted {rollouts:,} rollouts")


def chunks(
    steps: Iterable[pl.DataFrame], columns: Sequence[str], rollouts: int = CHUNK
) -> Iterator[pl.DataFrame]:
    """Join the steps of a history into frames of at least `rollouts` rows (the last may have fewer), and yield these.

    `columns` are the columns to keep; those that the steps lack are left out.
    """
    pending: list[pl.DataFrame] = []
    count = 0
    for rows in steps:
        pending.append(rows.select(name for name in columns if name in rows.columns))
        count += len(rows)
        if count >= rollouts:
            yield pl.concat(pending)
            pending, count = [], 0
    if pending:
        yield pl.concat(pending)


def _with_verified(
    prompts: Mapping[str, Prompt], recipe: Recipe, source: Path
) -> tuple[dict[str, Prompt], list[str]]:
    verified = recipe.data.verified
    # Setting `data.verified` to null takes back the verified labels that the run was trained with.
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
    """Return a run's prompts with their messages, and its data set.

    If the data set cannot be read on this machine, the prompts are returned unchanged, with None for the data set.
    """
    # Questions help people, but votes need none, so data that cannot be read here are no error.
    with suppress(UserError):
        data = run_data(run, is_local=True)
        messages = {prompt.prompt_id: prompt.messages for prompt in data.prompts}
        return {
            name: replace(prompt, messages=messages.get(name, ()))
            for name, prompt in prompts.items()
        }, data
    return prompts, None


def run_data(run: Path, *, is_local: bool = False) -> PromptSet:
    """Return the data set that a run was made on.

    If the run recorded a digest of its prompts, the data must still have it. With `is_local` no network is used, and a
    run without a digest is an error.

    Raises:
        UserError: the data set cannot be read, or its prompts are no longer those of the run.
    """
    recipe, facts = read_recipe(run), read_manifest(run).get("data", {})
    source, digest = recipe.data.train, facts.get("train", {}).get("digest")
    try:
        if is_local and parse_source(source) is None:
            matching_files(source)
        prompts = training_prompts(recipe)
        # `data.drop_long` needs the model's tokenizer, which may not be here, so use the ids that the run recorded.
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
    """Return whether rewards depend on the text of a response, and not only on the answer extracted from it."""
    rules = recipe.verifier.where if recipe.verifier else ()
    return compose(recipe.method).score is not None or any(
        rule.response or rule.function for rule in rules
    )


def _extracted_again(
    steps: Iterable[pl.DataFrame], run_recipe: Recipe, extractor: str | None
) -> Iterator[pl.DataFrame]:
    """Yield a run's steps, with the answers extracted anew from the stored responses (R6).

    With `extractor` None, each answer is read by the extractor of its prompt's data source.
    """
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
    """Return the recipe by which a log is read: the default recipe with these changes.

    Its method is Online Label Refinement (OLR), unless the changes name another one. `changes` are nested settings:
    section -> key -> value.
    """
    settable = (*_SETTABLE, "noise.type")
    return _recipe(Recipe(method=OlrMethod()), changes, "set", settable)


def log_history(log: RolloutLog, recipe: Recipe, report: Report = silent) -> RolloutHistory:
    """Return the history in a log.

    If the log has no labels, a prompt's label is taken to be the answer that was rewarded most often; a note says so.
    `recipe` is the recipe that the log was read by (`log_recipe`). `report` is called while the history's steps are
    read.

    Raises:
        UserError: the recipe names an extractor, but the log has answers only; or the log's labels or views (wordings
            of prompts) are invalid.
    """
    table, source = log.rows, log.source
    if recipe.data.extractor is not None and "characters" not in table.columns:
        raise UserError(
            f"the answers of {source} are stored, so data.extractor has nothing to read",
            "leave it out",
        )
    labels = labels_of_prompts(table, source)
    type_of_sentinel = sentinel_type(recipe)
    prompts = {
        row["prompt_id"]: _prompt(row, type_of_sentinel, log.questions)
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
        # The responses are unknown, so treat each as different.
        table = table.with_columns(response=pl.int_range(pl.len()).cast(pl.String))
    require_views(table, source)
    reward_column = ["reward"] * ("response" in log.rows.columns)
    names = ("model", "response", "is_rewarded", *reward_column)
    extra_columns = [name for name in names if name in table.columns]
    return RolloutHistory(
        source,
        _reported(steps_of(table, (*_COLUMNS, *extra_columns)), report),
        prompts,
        recipe,
        log=replace(log, rows=pl.DataFrame()),
        knows_labels=not rewarded,
        rewards=some_rewards(table),
        notes=notes,
    )


def contradictions(history: RolloutHistory, judge: Judge) -> list[str]:
    """Return a list with one warning if many of a log's rewards contradict the grader's verdict, else an empty list.

    Many means more than 10 % of a sample. Such rewards may belong to other rows of the log.
    """
    if history.rewards is None:
        return []
    # Marked prompts have wrong labels on purpose, so their rewards would contradict the grader anyway.
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
    contradicted = sum(
        # None is undecided and contradicts nothing.
        verdict not in (None, is_rewarded)
        for verdict, is_rewarded in zip(verdicts, rewards, strict=True)
    )
    if contradicted <= _MOST_CONTRADICTIONS * len(pairs):
        return []
    return [
        f"{contradicted:,} of {len(pairs):,} rewards that were looked at contradict the verdict about answer and label:"
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
        # The sentinel is noise even if the log does not say of which type (R1).
        type_of_sentinel if given == SENTINEL and noise_type is None else noise_type,
        row.get("data_source") or "",
        is_verified=row.get("label_source") == "verified",
        stored_in_percent=row.get("in_percent"),
    )
