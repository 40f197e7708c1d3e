"""The output of `olr evaluate` and `olr regrade`: scores side by side, next to a reference, and a next command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

from olr_cli.errors import UserError
from olr_cli.evaluation.published import (
    PublishedRow,
    Setting,
    model_name,
    published_row,
    setting_of,
)
from olr_cli.evaluation.score_table import NamedScores, Reference, scores_table
from olr_cli.evaluation.scores import Score
from olr_cli.evaluation.store import Target, evaluations_at
from olr_cli.grouping import gathered
from olr_cli.runs.directory import is_run
from olr_cli.tables import Answer, File

Compared: TypeAlias = Path | Literal["paper"] | None
"""The reference that scores are compared with: the evaluation in a folder, the paper's row, or nothing."""
Evaluated = Sequence[tuple[Target, Sequence[Score]]]
"""Evaluations with their scores."""


def reference_of(compare: Path | None, *, paper: bool) -> Compared:
    """Return the reference to compare with: the path of `--compare`, ``paper`` for `--paper`, or None.

    Raises:
        UserError: both are given.
    """
    if paper and compare is not None:
        raise UserError(
            "the paper's scores are a reference already", "choose one of the two", "compare"
        )
    return "paper" if paper else compare


def paper_row(targets: Sequence[Target]) -> PublishedRow:
    """Return the row of the paper's tables whose settings are those of the models.

    Raises:
        UserError: the models have different settings, or the paper has no such row.
    """
    settings = {_setting(target): target.name for target in targets}
    if len(settings) > 1:
        names = " and ".join(settings.values())
        raise UserError(
            f"{names} have different rows in the paper",
            "compare them one at a time",
            "paper",
        )
    return published_row(*settings)


def _setting(target: Target) -> Setting:
    """Return what identifies a model's row in the paper's tables: its name, training method, label noise and the like.

    A checkpoint has the settings of its run. Any other model counts as untrained, with the method ``base``.
    """
    if "run" not in target.origin:
        return Setting(model_name(target.model))
    # If the run was moved after its evaluation, its stored path is wrong, but it still holds this folder.
    above = target.folder.absolute().parent.parent
    return setting_of(above if is_run(str(above)) else Path(target.origin["run"]))


def check_reference(named: Compared, targets: Sequence[Target]) -> None:
    """Raise `UserError` if models cannot be compared with the reference.

    Call this before the models are evaluated, which may take hours.

    Args:
        named: the reference: the path of an evaluation, ``paper``, or None for no comparison. An evaluation must have
            scores already, unless it is that of one of the models.
        targets: the models.
    """
    if named == "paper":
        paper_row(targets)
    elif named is not None and not any(_same(named, target.folder) for target in targets):
        _reference(named)


def scores_answer(
    evaluated: Evaluated,
    compare: Compared,
    *,
    before: Mapping[Path, Sequence[Score]] = MappingProxyType({}),
) -> Answer:
    """Return the command's output: a table of scores beside the reference, the files, and a likely next command.

    Args:
        evaluated: the evaluations with their scores.
        compare: the reference: a path, ``paper``, or None. If the path holds several evaluations, the last by folder
            name counts; for a run this is the last checkpoint.
        before: folder of an evaluation -> the scores of the same samples by the golds before their correction. If not
            empty, each evaluation is compared with these scores instead of a reference.
    """
    targets = [target for target, _ in evaluated]
    names = [target.name for target in targets]
    shown = {
        target.folder: NamedScores(
            # Two models may have one name, such as two runs `a/quickstart` and `b/quickstart`: their folders differ.
            target.name if names.count(target.name) == 1 else str(target.folder),
            tuple(scores),
            tuple(_notes(target)),
            target.model,
            target.folder,
            target.origin.get("run"),
            target.origin.get("step"),
            NamedScores("old keys", tuple(before[target.folder])) if before else None,
        )
        for target, scores in evaluated
    }
    reference, notes = _beside(compare, targets, shown)
    table = scores_table(list(shown.values()), reference)
    return Answer(
        parts=[table],
        result={
            "evaluations": [*shown.values()],
            "rows": table.rows,
            "notes": [*table.notes, *notes],
        },
        notes=notes,
        files=[_scores_file(target) for target in targets],
        next=_next_command(targets, compare),
    )


def _beside(
    compare: Compared, targets: Sequence[Target], shown: Mapping[Path, NamedScores]
) -> tuple[Reference | None, list[str]]:
    """Return the scores to compare with, and notes on how they were chosen; (None, []) if nothing is compared.

    If the reference is one of the shown evaluations, its object in `shown` is returned, not a copy: the table
    recognises its reference by identity.

    Args:
        compare: the reference that the command names.
        targets: the evaluations in the table.
        shown: folder of each evaluation in the table -> its scores.
    """
    if compare is None:
        return None, []
    if compare == "paper":
        return paper_row(targets), []
    other, notes = _reference(compare), []
    if (there := len(evaluations_at(compare))) > 1:
        notes.append(
            f"{compare} holds {there} evaluations; {other.folder}, the last by name, is compared with."
        )
    notes += _grading_differences(targets, other)
    # The table recognises a reference among its rows by identity, so return the shown object itself.
    same = next((it for folder, it in shown.items() if _same(folder, other.folder)), None)
    if same is not None:
        return same, notes
    is_taken = other.name in [target.name for target in targets]
    name = str(other.folder) if is_taken else other.name
    return NamedScores(name, tuple(other.store.scores()), tuple(_notes(other))), notes


def _scores_file(target: Target) -> File:
    """Return scores.json as a file to list in the output.

    The text after the file's name says how the checkpoint was chosen, unless the command named the step.
    """
    chosen = target.origin.get("chosen", "named")
    which = "" if chosen == "named" else f" (checkpoint: {chosen})"
    return File(target.folder / "scores.json", f" and generations/{which}")


def _grading_differences(targets: Sequence[Target], other: Target) -> Iterator[str]:
    """Yield a sentence for each difference in grading between one of `targets` and the reference `other`.

    Only benchmarks that both have are compared. A sentence names a benchmark, an evaluation, and a setting (`grader`,
    `extractor` or `tolerance`) with its two values.
    """
    theirs = other.store.record().benchmarks
    for target in targets:
        for name, task in target.store.record().benchmarks.items():
            of_other = theirs[name].definition.grading if name in theirs else {}
            for key, value in task.definition.grading.items():
                if of_other.get(key, value) != value:
                    yield (
                        f"{task.definition.title}: graded with {key} {value} in {target.name}, and with"
                        f" {of_other[key]} in {other.name}; `olr regrade` can grade all with one."
                    )


def _notes(target: Target) -> Iterator[str]:
    """Yield sentences on how an evaluation was sampled and on its verified keys.

    If the evaluation was imported from a log of lm-eval, further sentences give the scores that lm-eval itself
    computed.
    """
    record = target.store.record()
    by_whom = gathered((how, name) for name, how in record.not_as_asked.items())
    others = "".join(f"; {how}: {', '.join(names)}" for how, names in by_whom.items())
    if "temperature" in record.not_as_asked:
        yield "How the responses were drawn is unknown: the log does not say it."
    else:
        yield f"Sampled at temperature {record.sampling.temperature:g}{others}."
    for task in record.benchmarks.values():
        if task.verified is not None:
            yield f"{task.definition.title}: {task.verified}."
    for name, metrics in target.origin.get("metrics", {}).items():
        scores = ", ".join(
            f"{metric} {100 * value:.1f}" for metric, value in metrics.items()
        )
        if scores:
            yield f"{target.origin['tool']} itself scored {name}: {scores}."


def _next_command(targets: Sequence[Target], compare: Compared) -> dict[str, str]:
    """Return a command that the user may want to run next, as a dict of this command -> its purpose.

    The command is `olr regrade FOLDER`. FOLDER is that of the evaluation; for several evaluations, it is the folder
    above them. If that folder also holds other evaluations, the dict is empty.
    """
    place = targets[0].folder if len(targets) == 1 else targets[0].folder.parent
    # `olr regrade` takes one folder. If that holds other evaluations too, no command fits exactly these.
    if len(targets) > 1 and {it.folder for it in evaluations_at(place)} != {
        it.folder for it in targets
    }:
        return {}
    command = f"olr regrade {shlex.quote(str(place))}"
    if compare is None:
        # Most models have no row in the paper, which is no error here.
        with suppress(UserError):
            return {
                f"{command} --paper": f"the paper's scores of {paper_row(targets).setting}"
            }
    else:
        command += (
            " --paper" if compare == "paper" else f" --compare {shlex.quote(str(compare))}"
        )
    return {f"{command} --format markdown": "the table for a paper or README"}


def _reference(named: Path) -> Target:
    """Return the evaluation at a path; if there are several, the last by folder name.

    Raises:
        UserError: there is no evaluation, or that evaluation has no finished benchmark.
    """
    other = evaluations_at(named)[-1]
    if not other.store.finished():
        raise UserError(
            f"no benchmark is done yet in {other.folder}",
            "finish it first",
            f"compare {named}",
        )
    return other


def _same(one: Path, other: Path) -> bool:
    """Return whether two paths lead to the same folder, with symbolic links resolved."""
    return one.resolve() == other.resolve()
