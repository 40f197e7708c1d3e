"""What `--compare` names: the paper's row for a model or run, or another evaluation; and the table that shows it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from olr_cli.errors import UserError
from olr_cli.evaluation.folder import Target, finished, read_scores
from olr_cli.evaluation.published import PublishedRow, Setting, model_name, published_row, setting_of
from olr_cli.evaluation.scores import Score
from olr_cli.evaluation.tables import Comparison, Evaluation, compare
from olr_cli.evaluation.targets import evaluations_at

PAPER = "paper"


def paper_row(targets: Sequence[Target]) -> PublishedRow:
    """The paper's row for models that are all of one of its settings.

    Raises:
        UserError: the paper has no such row, or the models are of different ones.
    """
    rows = [published_row(_setting(target)) for target in targets]
    other = next((number for number, row in enumerate(rows) if row != rows[0]), None)
    if other is not None:
        raise UserError(
            f"--compare paper: {targets[0].name} and {targets[other].name} have different rows in the paper; compare"
            " them one at a time"
        )
    return rows[0]


def _setting(target: Target) -> Setting:
    if "run" not in target.origin:
        return Setting(model_name(target.model))
    above = target.folder.absolute().parent.parent  # where the run is now, if it was moved
    return setting_of(above if (above / "manifest.json").is_file() else Path(target.origin["run"]))


def check_reference(named: str | None, targets: Sequence[Target]) -> None:
    """Make sure that the models can be compared with what is named, before they are evaluated.

    Raises:
        UserError: they cannot.
    """
    if named == PAPER:
        paper_row(targets)
    elif named is not None and not any(_same(Path(named), target.folder) for target in targets):
        _other(named)


def table_of(evaluated: Sequence[tuple[Target, Sequence[Score]]], named: str | None) -> Comparison:
    """The scores of some evaluations, side by side and beside what `--compare` names.

    Of several evaluations at the place it names, the last counts, as the last checkpoint of a run.

    Raises:
        UserError: there is nothing of that name to compare with.
    """
    names = [target.name for target, _ in evaluated]
    shown = [
        Evaluation(target.name if names.count(target.name) == 1 else str(target.folder), tuple(scores))
        for target, scores in evaluated
    ]
    if named is None:
        return compare(shown)
    if named == PAPER:
        return compare(shown, paper_row([target for target, _ in evaluated]))
    other = _other(named)
    for (target, _), evaluation in zip(evaluated, shown, strict=True):
        if _same(other.folder, target.folder):
            return compare(shown, evaluation)
    name = other.name if other.name not in names else str(other.folder)
    return compare(shown, Evaluation(name, tuple(read_scores(other.folder))))


def _other(named: str) -> Target:
    """The evaluation that `--compare` names."""
    other = evaluations_at(Path(named))[-1]
    if not finished(other.folder):
        raise UserError(f"--compare {named}: no benchmark is done yet in {other.folder}; finish it first")
    return other


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()
