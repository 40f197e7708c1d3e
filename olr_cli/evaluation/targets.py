"""What a command names: models or checkpoints to evaluate, and what to compare them with (`--compare`)."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from olr_cli.data.hub import hub_answers
from olr_cli.engines.local.builtin import MIXTURES, is_builtin, policy_name, policy_path
from olr_cli.engines.model_files import loading, require_known_code
from olr_cli.errors import UserError, did_you_mean, no_path
from olr_cli.evaluation.benchmark import PAPER, Benchmark, choose, registry
from olr_cli.evaluation.exporting import export as export_evaluation
from olr_cli.evaluation.folder import Target, finished, read_evaluation, read_scores
from olr_cli.evaluation.own_data import file_benchmarks, held_out_benchmark
from olr_cli.evaluation.problems import benchmarks_in
from olr_cli.evaluation.protocol import differences
from olr_cli.evaluation.published import PublishedRow, Setting, model_name, published_row, setting_of
from olr_cli.evaluation.scores import Score, is_evaluation
from olr_cli.evaluation.tables import Evaluation, scores_table
from olr_cli.runs.checkpoints import best_step, checkpoint_path, checkpoint_steps
from olr_cli.runs.directory import kind_of, read_manifest, read_recipe, require_run
from olr_cli.tables import Answer, File

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


def targets(
    model: str, checkpoints: Sequence[str], out: Path | None, *, is_served: bool = False
) -> list[Target]:
    """The models that a command names.

    Args:
        model: a run directory, a folder in Hugging Face layout, a hub id, or a built-in policy.
        checkpoints: of a run: ``last``, ``best`` (on its validation set, R22) or steps; none: the last.
        out: the evaluation's folder, or the folder of several; by default below the run, or ``evaluations/``.
        is_served: the model is a server's, and has whatever name the server gives it.

    Raises:
        UserError: it is none of them, the run has no such checkpoint, or checkpoints are named of something that is no
            run.
    """
    if is_served or not is_run(model):
        if checkpoints:
            raise UserError(f"--checkpoint is for runs, and {model} is none (it has no manifest.json)")
        name = re.sub(r"[^A-Za-z0-9._+-]+", "-", model).strip("-.") or "model"
        known_as = model if is_served else _model(model)
        return [Target(known_as, out or Path("evaluations") / name, model, {}, is_served)]
    run = Path(model)
    require_run(run)
    read_manifest(run)  # of a newer olr, it may mean something else
    chosen = dict(_step(run, wanted) for wanted in checkpoints or ("last",))
    folder = out or run / "evaluation"
    return [
        Target(
            str(checkpoint_path(run, step).absolute()),
            folder / f"step-{step:06d}",
            f"{run.absolute().name} step {step}",
            {"run": str(run.absolute()), "step": step, "chosen": how},
        )
        for step, how in chosen.items()
    ]


def all_targets(
    models: Sequence[str], checkpoints: Sequence[str], out: Path | None, *, is_served: bool = False
) -> dict[str, list[Target]]:
    """The targets of several models, by the model as the command names it; errors as of `targets`.

    With `out`, each evaluation of several models is a folder right below it.
    """
    models = list(dict.fromkeys(models))
    if len(models) == 1:
        return {models[0]: targets(models[0], checkpoints, out, is_served=is_served)}
    if checkpoints and (is_served or not any(map(is_run, models))):
        raise UserError(
            "--checkpoint is for runs, and none of these models is one (they have no manifest.json)"
        )
    named: dict[str, list[Target]] = {}
    for model in models:
        named[model] = targets(model, checkpoints if is_run(model) else (), None, is_served=is_served)
        if out is not None:
            run = f"{Path(model).absolute().name}-" if is_run(model) else ""
            named[model] = [
                replace(target, folder=out / f"{run}{target.folder.name}") for target in named[model]
            ]
    places: dict[Path, str] = {}
    for model, group in named.items():
        for target in group:
            if places.setdefault(target.folder.absolute(), model) != model:
                raise UserError(
                    f"{places[target.folder.absolute()]} and {model} have the same folder for results,"
                    f" {target.folder}; evaluate them one at a time, with --out"
                )
    return named


def is_run(model: str) -> bool:
    """Whether a command names a run, not a model."""
    return os.path.isfile(os.path.join(model, "manifest.json"))


def origin(model: str) -> str:
    """The model that a run started from; of anything but a run, the model itself."""
    return read_recipe(Path(model)).model.path if is_run(model) else model


def _model(model: str) -> str:
    """A model's absolute folder, or its hub id.

    Raises:
        UserError: it can be neither.
    """
    if is_builtin(model):
        return str(policy_path(model))
    path = Path(model)
    if os.path.isfile(path / "config.json"):
        return str(path.absolute())
    runs = sorted(str(file.parent) for file in path.glob("*/manifest.json")) if os.path.isdir(path) else []
    if runs:
        raise UserError(f"{model} is a folder of runs; name one of them, for example {runs[0]}")
    if os.path.exists(path):
        raise UserError(f"{model} is neither a model (it has no config.json) nor a run (no manifest.json)")
    is_beside_runs = "/" in model and any(path.parent.glob("*/manifest.json"))
    if is_beside_runs or not _HUB_ID.fullmatch(model) or model.startswith("."):
        raise no_path(model, "name a run, a model folder, or a hub id (org/name)")
    return model


def require_models(targets: Sequence[Target]) -> None:
    """Make sure that what is no folder is a model on the hub, before benchmarks are loaded for it.

    A model that has an evaluation already may not be needed any more.

    Raises:
        UserError: the hub, or without a network its local cache, has no such model.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

    for model in {
        target.model
        for target in targets
        if not (target.is_local or target.is_served or is_evaluation(target.folder))
    }:
        unreached = "" if hub_answers() else " (it cannot be reached from here, and its local cache has none)"
        try:
            hf_hub_download(model, "config.json")
        except GatedRepoError:
            continue  # there is one
        except (LocalEntryNotFoundError, RepositoryNotFoundError) as error:
            hint = did_you_mean(model, [f"builtin:{name}" for name in MIXTURES])
            raise UserError(
                f"there is no model folder, run or built-in policy '{model}', and no such model on the Hugging Face"
                f" hub{unreached}{hint}; check the name"
            ) from error


def default_benchmarks(
    models: Sequence[str], data: Path | None, *, of_the_paper: bool = False
) -> tuple[list[Benchmark], str | None]:
    """The benchmarks for models when the command names none, and a sentence where the choice may surprise.

    With data: those of the paper's nine that the data contain, else the data themselves. Without: the sets that the
    runs among the models hold out (`data.test`); else the task of a built-in policy, or of the one that a run started
    from; else all nine.

    Args:
        models: as the command names them.
        data: files of problems.
        of_the_paper: what runs hold out does not count, for they are compared with the paper.

    Raises:
        UserError: the data cannot be read, or models have different benchmarks by default.
    """
    if data is not None:
        return _benchmarks_of(data)
    chosen: dict[str, Benchmark] = {}
    if not of_the_paper:
        for model in filter(is_run, models):
            try:
                held_out = held_out_benchmark(read_recipe(Path(model)))
            except UserError as error:
                raise UserError(f"data.test of {model}: {error}, or name --benchmarks") from None
            if held_out is not None and chosen.setdefault(held_out.name, held_out) != held_out:
                raise UserError(
                    f"runs hold out different sets '{held_out.name}' (data.test); name --benchmarks"
                )
    if chosen:
        names = ", ".join(chosen)
        return list(chosen.values()), f"{names} is what data.test holds out; --benchmarks names others"
    of_models = {model: _default_of(origin(model)) for model in models}
    if len(set(of_models.values())) > 1:
        facts = ", ".join(f"{model}: {words}" for model, words in of_models.items())
        raise UserError(f"these models have different benchmarks by default ({facts}); name --benchmarks")
    return choose(next(iter(of_models.values()))), None


def _benchmarks_of(data: Path) -> tuple[list[Benchmark], str | None]:
    names, sources = benchmarks_in(data)
    if not names:
        own = file_benchmarks(data)
        called = ", ".join(benchmark.name for benchmark in own)
        said = f"{data} is scored as {called}; its rows name none of the paper's benchmarks as data_source"
        return own, said if sources else None
    chosen = [registry()[name] for name in names]
    others = sorted(sources.difference(*(benchmark.names for benchmark in chosen)))
    left_out = [name for name in PAPER if name not in names]
    note = f"{data} has no problems of {', '.join(left_out)}" if left_out else None
    if others:
        note = f"{note or data}; rows of {', '.join(others[:5])} are left out (--benchmarks)"
    return chosen, None if note is None else f"{note}; the others are scored"


def _default_of(start: str) -> str:
    if not is_builtin(start):
        return "all"
    task = MIXTURES[policy_name(start)].kind
    return "arithmetic" if task == "addition" else f"arithmetic:{task}"


def load_tokenizer(model: str, *, trust_remote_code: bool) -> Any:
    """A model's tokenizer.

    Raises:
        UserError: there is none.
    """
    from transformers import AutoTokenizer

    with loading(model, "a tokenizer"):
        require_known_code(model, trust_remote_code=trust_remote_code)
        return AutoTokenizer.from_pretrained(model, trust_remote_code=trust_remote_code)


def _step(run: Path, wanted: str) -> tuple[int, str]:
    """The step of a checkpoint, and how it was chosen."""
    steps = checkpoint_steps(run)
    if not steps and kind_of(read_manifest(run)) == "rollouts":
        raise UserError(
            f"{run} holds rollouts without training, so it has no checkpoint; name the model that was sampled,"
            f" {read_recipe(run).model.path}, instead"
        )
    if not steps:
        raise UserError(f"{run} has no checkpoint yet; wait for the first, or train it to its end")
    if wanted == "last":
        return steps[-1], "last"
    there = f"there are {', '.join(map(str, steps))}"
    if wanted == "best":
        best = best_step(run)
        if best is None:
            raise UserError(
                f"--checkpoint best is the best on a validation set, and {run} has none (data.validation); choose last,"
                f" or a step: {there}"
            )
        if best not in steps:
            raise UserError(f"{run} was best after step {best}, whose checkpoint is gone; {there}")
        return best, "best on the validation set"
    if not wanted.isdecimal() or int(wanted) not in steps:
        raise UserError(f"--checkpoint {wanted}: {run} has no such checkpoint; {there}, last and best")
    return int(wanted), "named"


def evaluations_at(place: Path) -> list[Target]:
    """The evaluations at or right below a place, or in a run, in the order of their folders' names.

    Raises:
        UserError: there is none, or one cannot be read.
    """
    for folder in (place, place / "evaluation"):
        below = sorted(file.parent for file in folder.glob("*/evaluation.json"))
        evaluations = [folder] if is_evaluation(folder) else below
        if evaluations:
            return [read_evaluation(evaluation).target(evaluation) for evaluation in evaluations]
    if not os.path.exists(place):
        raise no_path(place, "`olr evaluate` makes evaluations")
    raise UserError(f"there is no evaluation at {place}; `olr evaluate` makes one")


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
    export: str | None = None,
) -> Answer:
    """The scores of evaluations side by side and beside what `--compare` names, and what to do next.

    With `export`, the evaluations are also written in that format (`olr_cli.evaluation.exporting.FORMATS`).

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
    for target in targets:
        chosen = target.origin.get("chosen", "named")
        which = "" if chosen == "named" else f" (checkpoint: {chosen})"
        files.append(File(target.folder / "scores.json", f" and generations/{which}"))
        if export is not None:
            files += [File(file) for file in export_evaluation(target.folder, export)]
    return Answer(
        parts=[table],
        data={
            **{key: value for key, value in table.data.items() if key != "rows"},
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
