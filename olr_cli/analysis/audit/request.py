"""One call of `olr audit`: a history, the knowledge about its prompts, and the files to write."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote

import polars as pl

from olr_cli.analysis.audit.answer import audit_answer, stored, write_table
from olr_cli.analysis.audit.audit import Audit, audit, audit_history, data_reading
from olr_cli.analysis.audit.card import write_card
from olr_cli.analysis.audit.data_labels import with_labels_of
from olr_cli.analysis.audit.evaluations import is_of_evaluations
from olr_cli.analysis.audit.export import (
    Choice,
    data_of,
    dropped_note,
    export,
    require_exportable,
    unjudged_note,
    unrepaired_note,
)
from olr_cli.analysis.audit.reward_answer import rewards_answer
from olr_cli.analysis.audit.rewards import RewardAudit, audit_rewards
from olr_cli.analysis.audit.verifier_recipe import (
    PRINTED,
    can_train_again,
    plain,
    recipe_text,
    section_text,
    verifier_of,
)
from olr_cli.analysis.histories import RolloutHistory, set_words
from olr_cli.analysis.report.texts import Sampled
from olr_cli.answers import Judge
from olr_cli.data.arithmetic import toy_kind
from olr_cli.data.check import repeat_notes
from olr_cli.data.log_files import common_place, log_files
from olr_cli.data.logs import Report
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.prompts import PromptSet
from olr_cli.data.values import CSV
from olr_cli.errors import UserError, at
from olr_cli.files import require_new, require_table_name, write_new
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.sections import DataSection, ExternalEngine
from olr_cli.runs.directory import HELD_OUT_FILE, has_run, read_manifest, read_recipe
from olr_cli.tables import Answer, File, Line
from olr_cli.tables.answer import as_json


@dataclass(frozen=True)
class Request:
    """The arguments and options of one call of `olr audit`, by name.

    The command makes it, and `carry_out` carries it out.
    """

    history: Sequence[Path]
    data: str | None = None
    columns: Mapping[str, str] | None = None
    """Columns of logs (`olr_cli.data.logs.read_log`)."""

    set_: Sequence[str] = ()
    verified: Sequence[Path] = ()
    benchmark: str | None = None
    """Benchmark of evaluations whose keys are audited."""

    rewards: bool = False
    choice: Choice = field(default_factory=Choice)
    """The rows that `export` keeps."""

    export: Path | None = None
    out: Path | None = None
    report: Path | None = None
    as_recipe: Path | None = None
    """File of the recipe to write; `PRINTED` for the section alone, on standard output."""

    top: int | None = None
    """Number of rows of the queue.

    By default JSON has all; a terminal has as many as fit, or none if something else is written.
    """

    def require_sense(self) -> None:
        """Raise `UserError` for options that do not fit together and for files that cannot be written.

        This happens before the audit starts, which may take long.
        """
        outputs = {"export": self.export, "report": self.report, "out": self.out}
        outputs["as_recipe"] = self._recipe_file()
        require_new(outputs, repeatable=outputs)
        if self.export is not None and not self.export.is_file():
            # If the data are there too, the card may come from this same command, which may be repeated.
            require_new({"export": self.card})
        require_table_name(self.out)
        if self.report is not None and self.report.suffix != ".html":
            raise UserError(
                f"--report {self.report}: the queue is written as a page",
                "give it the ending .html",
            )
        chooses = any(value for name, value in vars(self.choice).items() if name != "seed")
        if self.export is not None:
            require_exportable(self.export)
        elif chooses:
            raise UserError(
                "--drop, --only, --first, --random, --pass-rate and --repair choose the rows of --export FILE",
                "add it",
            )
        if self.rewards and (chooses or self.export is not None or self.report is not None):
            raise UserError(
                "--rewards takes --columns, --data, --set, --out, --as-recipe, --verified and --top",
                "leave the others out",
            )

    def _recipe_file(self) -> Path | None:
        """Return the file that ``--as-recipe`` is to write; None if the option only prints, or is not given.

        Raises:
            UserError: the option is given without ``--rewards``, or the file does not end in ``.yaml`` or ``.yml``.
        """
        if self.as_recipe is not None and not self.rewards:
            raise UserError(
                "--as-recipe is for what an audit of rewards finds", "add --rewards"
            )
        if self.as_recipe in (None, PRINTED):
            return None
        if self.as_recipe.suffix not in (".yaml", ".yml"):
            raise UserError(
                f"--as-recipe {self.as_recipe}: a recipe is YAML",
                "give it the ending .yaml",
            )
        return self.as_recipe

    @property
    def card(self) -> Path | None:
        """File of the card, a text that says what the audit did to the exported rows.

        None without an export, or if the rows are for people to check.
        """
        if self.export is None or self.choice.is_to_check:
            return None
        return self.export.with_name(f"{self.export.name}.md")

    def again(self, *more: str) -> str:
        """Return the `olr audit` command for the same history as text, ending with the words `more`.

        It repeats the options that say something about the history: data set, columns, verified labels, benchmark and
        settings. Options that choose rows or write files are left out.
        """
        places = self.history
        # Name the folder instead of many files, but only if it holds exactly these. Folders of several logs raise an
        # error here, and several runs must be named one by one.
        with suppress(UserError):
            folder = [common_place(places)]
            are_many = len(places) > 3 and not any(map(has_run, places))
            if are_many and log_files(folder)[0] == log_files(places)[0]:
                places = folder
        columns = ",".join(f"{role}={path}" for role, path in (self.columns or {}).items())
        given = [("--data", self.data), ("--benchmark", self.benchmark)]
        given += [("--columns", columns)]
        given += [("--verified", str(file)) for file in self.verified]
        given += [("--set", setting) for setting in self.set_]
        words = [word for option, value in given if value for word in (option, value)]
        return " ".join(["olr audit", *map(quote, [*map(str, places), *words, *more])])


def carry_out(request: Request, report: Report, show: Callable[[Answer], None]) -> Answer:
    """Audit the labels (or the rewards), write the requested files, and return what the command prints.

    `report` is called with the progress. If the table cannot be written to `request.out`, `show` is called with
    the output before the error is raised.
    """
    request.require_sense()
    # Responses take most of the memory; only the queue of rewards and the page show them.
    keeps_responses = request.rewards or request.report is not None
    source = audit_history(
        request.history,
        request.set_,
        request.columns,
        report,
        keeps_responses=keeps_responses,
        benchmark=request.benchmark,
    )
    named: PromptSet | None = None
    if request.data is not None:
        named = read_prompts(request.data, reading=data_reading(source))
        source = with_labels_of(source, named, are_for_rewards=request.rewards)
    with source.judge(report) as judge:
        if request.rewards:
            return _of_rewards(request, source, judge, show)
        answer, result = _of_labels(request, source, named, judge)
    with suppress(UserError):
        # Notes on the data set are a courtesy: if it cannot be read here, the audit is complete without them.
        repeated = repeat_notes(named or data_of(source, is_local=True))
        notes = [f"{note}." for note in (*(named.notes if named else ()), *repeated)]
        answer = replace(answer, notes=[*answer.notes, *notes])
    if request.out is not None:
        says = " (a row for each prompt)"
        answer = _with_table(stored(result), request.out, says, answer, show)
    following = answer.next or _next_of_evaluations(request, source)
    return replace(answer, next=following or _next(request, result))


def _with_table(
    table: pl.DataFrame,
    out: Path,
    says: str,
    answer: Answer,
    show: Callable[[Answer], None],
) -> Answer:
    """Write a table to the file `out`, and return the output with a line on the file that ends with `says`.

    If the table cannot be written, `show` is called with the output before the error is raised.
    """
    try:
        with at("out"):
            is_new = write_table(table, out)
    except UserError:
        # The audit may have taken long, so print its result before the error.
        show(answer)
        raise
    return replace(answer, files=[*answer.files, File.written(out, says, is_new=is_new)])


def _of_rewards(
    request: Request,
    source: RolloutHistory,
    judge: Judge,
    show: Callable[[Answer], None],
) -> Answer:
    if len(source.runs) > 1:
        raise UserError("the rewards of one run are audited at a time", "name one")
    result = audit_rewards(source, judge, request.verified)
    answer = rewards_answer(result, request.top)
    if request.as_recipe is not None:
        answer = _with_verifier(request, request.as_recipe, source, result, answer)
    if request.out is None:
        return answer
    # Write the whole queue, not only its top, with an empty column for people's verdicts.
    queue = result.queue.with_columns(verdict=pl.lit("", pl.String))
    says = " (fill in the column verdict; --verified reads it)"
    return _with_table(queue, request.out, says, answer, show)


def _with_verifier(
    request: Request,
    target: Path,
    source: RolloutHistory,
    found: RewardAudit,
    answer: Answer,
) -> Answer:
    """Add the measured errors of the verifier, as a recipe's `verifier` section, to the output of an audit of rewards.

    - If `target` is `PRINTED`, the output prints this section alone, so that it can be pasted into a recipe.
    - Otherwise a recipe is written to the file `target`. It trains once with the measured verifier and once without it.
      The output proposes the command that starts it.

    Args:
        request: the call of `olr audit`.
        target: the file of the recipe, or `PRINTED`.
        source: the audited history.
        found: result of the audit.
        answer: the output to extend.
    """
    section = verifier_of(found)
    result = {**as_json(answer.result), "verifier": plain(section)}
    if target == PRINTED:
        # Standard output is pasted into a recipe, so warnings have to become notes, which go to standard error.
        doubts = [
            part.text
            for part in answer.parts
            if isinstance(part, Line) and part.head == "Warning"
        ]
        parts = [section_text(found, section).removesuffix("\n")]
        return replace(answer, parts=parts, result=result, notes=[*doubts, *answer.notes])
    text = recipe_text(found, section, source, request.data, target)
    is_new = write_new(
        target, lambda path: path.write_text(text, encoding="utf-8"), "as_recipe"
    )
    # Neither arm uses the run's own verifier, so the command needs no permission for that verifier's code.
    code = source.recipe.model_copy(update={"verifier": None}).named_again()
    words = ["olr", "train", str(target), "--sweep", *code]
    words += [] if can_train_again(source) else ["--set", "model.path=MODEL"]
    written = File.written(
        target, " (with the verifier's errors, and without)", is_new=is_new
    )
    return replace(
        answer, result=result, files=[written], next={shlex.join(words): "what they cost"}
    )


def _of_labels(
    request: Request, source: RolloutHistory, named: PromptSet | None, judge: Judge
) -> tuple[Answer, Audit]:
    """Audit the labels and return the command's output and the audit.

    If the user asked for them, this also writes the export with its card, and the HTML page. `named` is the data set of
    the option ``--data``; None without that option.
    """
    # Steps are read once, by the audit; `Sampled` keeps a few responses for the page as they pass.
    sampled = Sampled(source.steps)
    source = replace(source, steps=sampled)
    data = data_of(source) if request.export is not None and named is None else named
    if request.export is not None:
        require_exportable(request.export, data)
    in_data = None if data is None else {prompt.prompt_id for prompt in data.prompts}
    result = audit(source, judge, verified=request.verified, in_data=in_data)
    is_written = request.export is not None or request.report is not None
    answer = audit_answer(result, request.top, is_brief=is_written and request.top is None)
    notes, files, following = [*answer.notes], [], dict[str, str]()
    if request.export is not None and data is not None:
        notes += filter(None, [unrepaired_note(result, request.choice)])
        file, unlabelled = export(result, data, request.export, judge, request.choice)
        files.append(file)
        notes += filter(None, [dropped_note(result, request.choice)])
        if unlabelled:
            following = _labelled_only(request.export, source.recipe.data, unlabelled)
    if data is not None:
        notes += filter(None, [unjudged_note(result, data, request.choice)])
        files += _card(request, result, data, replace(answer, notes=notes))
    if request.report is not None:
        from olr_cli.analysis.report.page import write_queue

        answer = replace(answer, notes=notes)
        left_out, is_new = write_queue(
            source,
            result,
            answer,
            judge,
            request.report,
            command=request.again(),
            responses=sampled.responses,
        )
        notes += left_out
        files.insert(
            0, File.written(request.report, " (the queue, for any browser)", is_new=is_new)
        )
    return replace(answer, notes=notes, files=files, next=following), result


def _card(request: Request, result: Audit, data: PromptSet, answer: Answer) -> list[File]:
    """Write the card, a file that says what the audit did to the rows of the exported data set.

    Return a list with this file. If there is no export, or if its rows are for people to check, there is no card, and
    the list is empty. `answer` is the audit's output, whose summary and notes the card repeats.
    """
    if request.card is None:
        return []
    command = request.again(*request.choice.words, "--export", str(request.export))
    choice = request.choice
    return [write_card(request.card, result, data, answer, choice=choice, command=command)]


# The next commands --------------------------------------------------------------------------------------------------


def _next(request: Request, result: Audit) -> dict[str, str]:
    if request.export is not None:
        # People correct the labels in the exported file, which then comes back as verified labels.
        if request.choice.is_to_check:
            return {
                request.again(
                    "--verified", str(request.export)
                ): "once its labels are corrected"
            }
        command = training_command(result, request.export, request.set_)
        return {} if command is None else {command: ""}
    if (
        not result.prompts["rank"].count()
        and request.data is None
        and not result.verified_labels
    ):
        return {request.again("--data", "DATA"): "with the labels of the data set"}
    following = {}
    if request.report is None:
        following[request.again("--report", "queue.html")] = "check labels in a browser"
    elif not request.verified:
        following[request.again("--verified", "selection.json")] = (
            "once labels are checked there and exported"
        )
    # Without a data set and without questions there is nothing to export the labels with.
    if request.data is None and not result.questions:
        return following
    return following | {
        request.again(
            "--drop", "doubted,questionable", "--export", "rest.jsonl"
        ): "what is left"
    }


def _next_of_evaluations(request: Request, source: RolloutHistory) -> dict[str, str]:
    """Return the command to propose after the audit of a benchmark: command -> its purpose.

    - After an export for training, the command is `olr evaluate` on the exported problems.
    - Otherwise it is `olr regrade`, which grades the evaluation again by verified keys (reference answers). It needs
      exactly one path of evaluations and one file of verified keys from the user.

    If neither applies, or the history was not made from evaluations, the dict is empty.
    """
    if not is_of_evaluations(source):
        return {}
    if request.export is not None and not request.choice.is_to_check:
        return {
            f"olr evaluate MODEL --data {quote(str(request.export))}": "on what is left"
        }
    if [len(request.history), len(request.verified)] != [1, 1]:
        return {}
    words = ["olr", "regrade", request.history[0], "--verified", request.verified[0]]
    return {shlex.join(map(str, words)): "the scores under these keys"}


def _labelled_only(export: Path, data: DataSection, unlabelled: int) -> dict[str, str]:
    """Return the command that writes an export again without its unlabelled rows: command -> its purpose.

    Args:
        export: the exported file.
        data: how the data set was read; an exported CSV file is read in the same way.
        unlabelled: number of unlabelled rows, which the purpose mentions.
    """
    target = export.with_name(f"{export.stem}-labelled{export.suffix}")
    words = ["olr", "check", str(export)]
    if export.suffix in CSV and data.columns is not None:
        words += ["--columns", json.dumps(data.columns, ensure_ascii=False)]
    count = f"{unlabelled:,} row{'s' * (unlabelled > 1)} without a label"
    command = shlex.join([*words, "--export", str(target)])
    return {command: f"leaves out {count}, which most methods refuse"}


def training_command(audit: Audit, export: Path, settings: Sequence[str]) -> str | None:
    """Return the command that trains on the exported data; None if the run is of another trainer (`ExternalEngine`).

    For olr's own training runs, the command uses the run's recipe. In all other cases, logs included, it uses a recipe
    that comes with olr, and the policy that made the rollouts. If the path of the policy is unknown, ``MODEL`` takes
    its place. `settings` are the ``KEY=VALUE`` texts that the history was read with.
    """
    if export.suffix not in CSV:
        settings = [it for it in settings if not it.strip().startswith("data.columns")]
    if audit.policy_was_training is None:
        return _by_bundled_recipe("MODEL", [f"data.train={export}", *settings])
    recipe = read_recipe(audit.source)
    if isinstance(recipe.engine, ExternalEngine):
        return None
    data = [f"data.train={export}", *settings, *_reading_settings(recipe.data, export)]
    if audit.policy_was_training:
        return _by_own_recipe(audit.source, recipe, data)
    if recipe.data.extractor is not None and not settings:
        data.append(f"data.extractor={recipe.data.extractor}")
    # A served model has a URL and no path that training could load.
    is_served = read_manifest(audit.source).get("url") is not None
    return _by_bundled_recipe("MODEL" if is_served else recipe.model.path, data)


def _reading_settings(data: DataSection, export: Path) -> list[str]:
    """Return the settings (``KEY=VALUE``) for reading an exported file; `data` says how the original was read."""
    # Only CSV keeps the columns of the data set; other formats have the columns of the interchange format.
    columns = (
        json.dumps(data.columns, ensure_ascii=False) if export.suffix in CSV else "null"
    )
    settings = [f"data.columns={columns}"] * (data.columns is not None)
    return [*settings, *["data.decimal_comma=true"] * data.decimal_comma]


def _by_bundled_recipe(policy: str, data: Sequence[str]) -> str:
    """Return the `olr train` command that trains a policy by a recipe that comes with olr.

    `policy` is the path of the model. `data` has the settings (``KEY=VALUE``) that name the data.
    """
    settings, recipe = [f"model.path={policy}"], "own-data"
    # `own-data` has no noise section; the toys' recipe injects noise, which audited data must not get.
    if toy_kind(policy) is not None:
        settings, recipe = [*settings, "noise=null"], "laptop/quickstart"
    return " ".join(["olr train", recipe, *map(quote, set_words([*settings, *data]))])


def _by_own_recipe(run: Path, recipe: Recipe, data: Sequence[str]) -> str:
    """Return the `olr train` command that trains on other data by a run's own recipe, without the run's noise.

    Held-out prompts that the run split off are held out again. `data` has the settings (``KEY=VALUE``) that name the
    other data.
    """
    held_out = run / HELD_OUT_FILE
    # Without `data.test` in its recipe the run split off and stored its held-out prompts; measure on the same ones.
    measured = [f"data.test={held_out}"] if held_out.exists() else []
    settings = [*recipe.named_again(), *set_words(["noise=null", *data, *measured])]
    words = [str(run / "recipe.yaml"), *settings, "--run-dir", f"runs/{run.name}-audited"]
    return " ".join(["olr train", *map(quote, words)])
