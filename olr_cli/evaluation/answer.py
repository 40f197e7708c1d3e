"""What `olr evaluate` answers: scores side by side, beside what `--compare` names, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from olr_cli.errors import UserError
from olr_cli.evaluation.folder import Target, finished, read_evaluation, read_scores
from olr_cli.evaluation.protocol import differences
from olr_cli.evaluation.published import PublishedRow, Setting, model_name, published_row, setting_of
from olr_cli.evaluation.scores import Score
from olr_cli.evaluation.tables import Evaluation, scores_table
from olr_cli.evaluation.targets import evaluations_at, is_run
from olr_cli.tables import Answer, File


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
                f"--compare paper: {targets[0].name} and {target.name} have different rows in the paper; compare"
                " them one at a time"
            )
    return rows[0]


def check_reference(named: str | None, targets: Sequence[Target]) -> None:
    """Make sure that the models can be compared with what `--compare` names, before they are evaluated.

    Raises:
        UserError: they cannot.
    """
    if named == "paper":
        paper_row(targets)
    elif named is not None and not any(_same(Path(named), target.folder) for target in targets):
        _other(named)


def answer(
    evaluated: Sequence[tuple[Target, Sequence[Score]]],
    compare: str | None,
    note: str | None = None,
) -> Answer:
    """The scores of evaluations side by side and beside what `--compare` names, and what to do next.

    Of several evaluations at the place that `--compare` names, the last counts, as the last checkpoint of a run.

    Raises:
        UserError: there is nothing of that name to compare with.
    """
    targets = [target for target, _ in evaluated]
    names = [target.name for target in targets]
    row = paper_row(targets) if compare == "paper" else None
    shown = [
        Evaluation(
            target.name if names.count(target.name) == 1 else str(target.folder),
            tuple(scores),
            (*_tool_grades(target.origin), *(differences(target, row) if row is not None else ())),
        )
        for target, scores in evaluated
    ]
    notes = [] if note is None else [note]
    reference: Evaluation | PublishedRow | None = row
    if compare not in (None, "paper"):
        other = _other(compare)
        if (there := len(evaluations_at(Path(compare)))) > 1:
            notes.append(
                f"{compare} holds {there} evaluations; {other.folder}, the last by name, is compared with."
            )
        among = [pair[1] for pair in zip(targets, shown, strict=True) if _same(pair[0].folder, other.folder)]
        name = other.name if other.name not in names else str(other.folder)
        reference = (
            among[0]
            if among
            else Evaluation(name, tuple(read_scores(other.folder)), tuple(_tool_grades(other.origin)))
        )
        notes += _read_otherwise(targets, other)
    table = scores_table(shown, reference)
    files = []
    places = {
        evaluation.name: {
            "model": target.model,
            **{key: target.origin[key] for key in ("run", "step") if key in target.origin},
            "folder": str(target.folder),
        }
        for target, evaluation in zip(targets, shown, strict=True)
    }
    for target in targets:
        chosen = target.origin.get("chosen", "named")
        which = "" if chosen == "named" else f" (checkpoint: {chosen})"
        files.append(File(target.folder / "scores.json", f" and generations/{which}"))
    return Answer(
        parts=[table],
        data={
            **{key: value for key, value in table.data.items() if key != "rows"},
            "evaluations": [
                {"name": scores["name"], **places[scores["name"]], **scores}
                for scores in table.data["evaluations"]
            ],
            "notes": [*table.data["notes"], *notes],
        },
        notes=notes,
        files=files,
        next=_next_command(targets, compare),
    )


def _read_otherwise(targets: Sequence[Target], other: Target) -> Iterator[str]:
    """Benchmarks whose answers two evaluations read with different extractors."""
    theirs = read_evaluation(other.folder).benchmarks
    for target in targets:
        for name, task in read_evaluation(target.folder).benchmarks.items():
            if name in theirs and task.definition.extractor != theirs[name].definition.extractor:
                yield (
                    f"{task.definition.title}: answers are read with {task.definition.extractor} in {target.name}, and"
                    f" with {theirs[name].definition.extractor} in {other.name}; --regrade takes --extractor."
                )


def _tool_grades(origin: Mapping[str, Any]) -> Iterator[str]:
    """What the tool that an evaluation was imported from had scored; nothing for any other evaluation."""
    for name, metrics in origin.get("metrics", {}).items():
        scores = ", ".join(f"{metric} {100 * value:.1f}" for metric, value in metrics.items())
        if scores:
            yield f"{origin['tool']} itself scored {name}: {scores}."


def _next_command(targets: Sequence[Target], compare: str | None) -> dict[str, str]:
    """What most would do next with these evaluations: its command and its purpose."""
    place = targets[0].folder if len(targets) == 1 else targets[0].folder.parent
    if len(targets) > 1 and {it.folder for it in evaluations_at(place)} != {it.folder for it in targets}:
        return {}
    command = f"olr evaluate --regrade {shlex.quote(str(place))}"
    if compare is None:
        with suppress(UserError):
            return {f"{command} --compare paper": f"the paper's scores of {paper_row(targets).setting}"}
    else:
        command += f" --compare {shlex.quote(compare)}"
    return {f"{command} --format markdown": "the table for a paper or README"}


def _other(named: str) -> Target:
    """The evaluation that `--compare` names."""
    other = evaluations_at(Path(named))[-1]
    if not finished(other.folder):
        raise UserError(f"--compare {named}: no benchmark is done yet in {other.folder}; finish it first")
    return other


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()
