"""What `olr evaluate` and `olr regrade` show: scores side by side, beside a reference, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from olr_cli.errors import UserError
from olr_cli.evaluation.published import PublishedRow, Setting, model_name, published_row, setting_of
from olr_cli.evaluation.scores import Score
from olr_cli.evaluation.store import Target, evaluations_at
from olr_cli.evaluation.tables import NamedScores, scores_table
from olr_cli.runs.directory import is_run
from olr_cli.tables import Answer, File

Compared: TypeAlias = Path | Literal["paper"] | None
"""What scores are shown beside: the evaluation in a folder (`--compare`), the paper's row (`--paper`), or nothing."""
Evaluated = Sequence[tuple[Target, Sequence[Score]]]
"""Evaluations with their scores."""


def reference_of(compare: Path | None, *, paper: bool) -> Compared:
    """What the two options ask for.

    Raises:
        UserError: both are given.
    """
    if paper and compare is not None:
        raise UserError("--paper and --compare are two references; give one of them")
    return "paper" if paper else compare


def paper_row(targets: Sequence[Target]) -> PublishedRow:
    """The paper's row for models that are all of one of its settings.

    Raises:
        UserError: the paper has no such row, or the models are of different ones.
    """
    rows = []
    for target in targets:
        above = target.folder.absolute().parent.parent  # where the run is now, if it was moved
        if "run" not in target.origin:
            setting = Setting(model_name(target.model))
        else:
            setting = setting_of(above if is_run(str(above)) else Path(target.origin["run"]))
        rows.append(published_row(setting))
        if rows[-1] != rows[0]:
            raise UserError(
                f"--paper: {targets[0].name} and {target.name} have different rows in the paper; compare"
                " them one at a time"
            )
    return rows[0]


def check_reference(named: Compared, targets: Sequence[Target]) -> None:
    """Make sure that the models can be compared with what `--compare` names, before they are evaluated.

    Raises:
        UserError: they cannot.
    """
    if named == "paper":
        paper_row(targets)
    elif named is not None and not any(_same(named, target.folder) for target in targets):
        _reference(named)


def scores_answer(evaluated: Evaluated, compare: Compared, note: str | None = None) -> Answer:
    """The scores of evaluations side by side and beside what `--compare` names, and what to do next.

    Of several evaluations at the place that `--compare` names, the last counts, as the last checkpoint of a run.

    Raises:
        UserError: there is nothing of that name to compare with.
    """
    targets = [target for target, _ in evaluated]
    names = [target.name for target in targets]
    shown = {
        target.folder: NamedScores(
            target.name if names.count(target.name) == 1 else str(target.folder),
            tuple(scores),
            tuple(_notes(target)),
        )
        for target, scores in evaluated
    }
    notes = [] if note is None else [note]
    reference: NamedScores | PublishedRow | None = None
    if compare == "paper":
        reference = paper_row(targets)
    elif compare is not None:
        other = _reference(compare)
        if (there := len(evaluations_at(compare))) > 1:
            notes.append(
                f"{compare} holds {there} evaluations; {other.folder}, the last by name, is compared with."
            )
        reference = next((it for folder, it in shown.items() if _same(folder, other.folder)), None)
        if reference is None:
            name = other.name if other.name not in names else str(other.folder)
            reference = NamedScores(name, tuple(other.store.scores()), tuple(_notes(other)))
        notes += _read_otherwise(targets, other)
    table = scores_table(list(shown.values()), reference)
    facts = {
        shown[target.folder].name: {
            "model": target.model,
            **{key: target.origin[key] for key in ("run", "step") if key in target.origin},
            "folder": str(target.folder),
        }
        for target in targets
    }
    return Answer(
        parts=[table],
        data={
            **{key: value for key, value in table.data.items() if key != "rows"},
            "evaluations": [
                {"name": scores["name"], **facts[scores["name"]], **scores}
                for scores in table.data["evaluations"]
            ],
            "notes": [*table.data["notes"], *notes],
        },
        notes=notes,
        files=[_scores_file(target) for target in targets],
        next=_next_command(targets, compare),
    )


def _scores_file(target: Target) -> File:
    chosen = target.origin.get("chosen", "named")
    which = "" if chosen == "named" else f" (checkpoint: {chosen})"
    return File(target.folder / "scores.json", f" and generations/{which}")


def _read_otherwise(targets: Sequence[Target], other: Target) -> Iterator[str]:
    """Benchmarks whose answers two evaluations read with different extractors."""
    theirs = other.store.record().benchmarks
    for target in targets:
        for name, task in target.store.record().benchmarks.items():
            if name in theirs and task.definition.extractor != theirs[name].definition.extractor:
                yield (
                    f"{task.definition.title}: answers are read with {task.definition.extractor} in {target.name}, and"
                    f" with {theirs[name].definition.extractor} in {other.name}; `olr regrade` takes --extractor."
                )


def _notes(target: Target) -> Iterator[str]:
    """How an evaluation was sampled; of an imported one also the scores by the tool that it comes from."""
    yield f"Sampled at temperature {target.store.record().sampling.temperature:g}."
    for name, metrics in target.origin.get("metrics", {}).items():
        scores = ", ".join(f"{metric} {100 * value:.1f}" for metric, value in metrics.items())
        if scores:
            yield f"{target.origin['tool']} itself scored {name}: {scores}."


def _next_command(targets: Sequence[Target], compare: Compared) -> dict[str, str]:
    """A likely next command with these evaluations, and its purpose."""
    place = targets[0].folder if len(targets) == 1 else targets[0].folder.parent
    if len(targets) > 1 and {it.folder for it in evaluations_at(place)} != {it.folder for it in targets}:
        return {}
    command = f"olr regrade {shlex.quote(str(place))}"
    if compare is None:
        with suppress(UserError):
            return {f"{command} --paper": f"the paper's scores of {paper_row(targets).setting}"}
    else:
        command += " --paper" if compare == "paper" else f" --compare {shlex.quote(str(compare))}"
    return {f"{command} --format markdown": "the table for a paper or README"}


def _reference(named: Path) -> Target:
    """The evaluation that `--compare` names."""
    other = evaluations_at(named)[-1]
    if not other.store.finished():
        raise UserError(f"--compare {named}: no benchmark is done yet in {other.folder}; finish it first")
    return other


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()
