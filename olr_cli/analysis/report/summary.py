"""What runs were, at a glance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from olr_cli.analysis.arms import Arm, Run
from olr_cli.recipe.schema import OlrMethod
from olr_cli.runs.directory import is_held, kind_of, read_manifest, recipe_yaml
from olr_cli.runs.summary import outcomes, signs_of_collapse, throughput_lines
from olr_cli.supervision import compose
from olr_cli.tables.html import grid
from olr_cli.tables.markup import element, isolated


def summary(arms: Sequence[Arm], notes: Sequence[str]) -> Iterator[Element]:
    """Outcomes and settings of one run, or a line a run; then what a reader should know.

    Raises:
        UserError: a run has no complete step, or a file is damaged.
    """
    runs = [run for arm in arms for run in arm.runs]
    if len(runs) == 1:
        yield _tiles(outcomes(runs[0].path))
        yield _facts(runs[0])
    else:
        yield _runs(arms)
    told = [*notes, *(line for run in runs for line in _collapse(run, alone=len(runs) == 1))]
    if told:
        yield element("h3", "Notes")
        yield element("ul", *(element("li", isolated(note)) for note in told), class_="notes")


def recipes(arms: Sequence[Arm]) -> Iterator[Element]:
    """The recipe of each arm, resolved; that of its first run, as the others differ from it in the seed."""
    for arm in arms:
        yaml = element("pre", recipe_yaml(arm.recipe), class_="recipe", tabindex="0")
        if len(arms) == 1:
            yield yaml
        else:
            yield element("details", element("summary", isolated(arm.name)), yaml)


def status(run: Run) -> str:
    """What the manifest says of the run, and how far it is."""
    said = str(read_manifest(run.path)["status"])
    if said == "running" and not is_held(run.path):
        said = "stopped without a word (its process is gone)"
    planned = run.recipe.train.epochs
    return f"{said}: {run.epochs} of {planned} epochs" if said != "finished" else said


def _tiles(told: Sequence[tuple[str, str]]) -> Element:
    tiles = (
        element(
            "div",
            element("dt", name),
            element("dd", element("b", main), f" {rest}" if rest else None),
        )
        for name, (main, rest) in ((name, _first_number(value)) for name, value in told)
    )
    return element("dl", *tiles, class_="tiles")


def _first_number(value: str) -> tuple[str, str]:
    """An outcome without, and with, what is said in brackets or after a comma followed by a space."""
    value = value.replace("->", "\N{RIGHTWARDS ARROW}")
    for separator in (" (", ", "):
        if separator in value:
            main, rest = value.split(separator, 1)
            return main, separator.strip(", ") + rest
    return value, ""


def _facts(run: Run) -> Element:
    pairs = (
        element("div", element("dt", name), element("dd", isolated(value))) for name, value in _settings(run)
    )
    return element("dl", *pairs, class_="facts")


def _settings(run: Run) -> Iterator[tuple[str, str]]:
    recipe, manifest = run.recipe, read_manifest(run.path)
    data: dict[str, Any] = manifest.get("data", {})
    yield "status", status(run)
    trains = kind_of(manifest) == "training"
    if trains:
        yield "method", method(recipe.method)
    yield "noise", run.noise or "no label is marked"
    yield "model", recipe.model.path
    size = data.get("train", {}).get("prompts")
    yield "data", recipe.data.train + (f", {size:,} prompts" if size else "")
    if recipe.data.test is not None:
        size = data.get("test", {}).get("prompts")
        yield "held-out data", str(recipe.data.test) + (f", {size:,} prompts" if size else "")
    train = recipe.train
    a_step = f"{train.prompts_per_step} prompts a step, {train.rollouts_per_prompt} rollouts a prompt"
    if trains:
        yield "training", f"{train.epochs} epochs, {a_step}, learning rate {train.learning_rate}"
    else:
        yield "rollouts", f"without training: {train.epochs} visits, {a_step}"
    yield "seed", str(recipe.seed)
    where = [str(manifest[name]) for name in ("engine", "device", "dtype") if manifest.get(name)]
    yield "engine", ", ".join(where) or recipe.engine.name
    if run.created:
        yield "begun", run.created.replace("T", " ").replace("+00:00", " UTC")
    fast = ", ".join(f"{name} {value}" for name, value in throughput_lines(run.path))
    if fast:
        yield "throughput", f"{fast} (medians over the steps)"
    versions = ", ".join(f"{name} {version}" for name, version in manifest.get("versions", {}).items())
    if versions:
        yield "versions", versions
    yield "run directory", str(run.path)


def method(section: Any) -> str:
    """A method with what decides about its labels."""
    name = compose(section).name
    if not isinstance(section, OlrMethod):
        return name
    criteria = " and ".join(section.criteria) or "none"
    return (
        f"{name} (criteria: {criteria}; \N{GREEK SMALL LETTER DELTA} = {section.slope_threshold},"
        f" T = {section.warmup_epochs} epochs of warm-up)"
    )


def _runs(arms: Sequence[Arm]) -> Element:
    told = {run.path: dict(outcomes(run.path)) for arm in arms for run in arm.runs}
    names = list(dict.fromkeys(name for each in told.values() for name in each))
    heads = ["arm", "seed", "status", *names, "begun", "run directory"]
    lines = [
        [
            arm.name,
            str(run.seed),
            status(run),
            *(told[run.path].get(name, "").replace("->", "\N{RIGHTWARDS ARROW}") for name in names),
            run.created[:10],
            str(run.path),
        ]
        for arm in arms
        for run in arm.runs
    ]
    return grid(heads, lines, numbers={1, *range(3, 3 + len(names))}, caption="Runs")


def _collapse(run: Run, *, alone: bool) -> Iterator[str]:
    place = "" if alone else f"{run.path}: "
    for step, sign in signs_of_collapse(run.path):
        yield f"{place}sign of collapse after step {step}: {sign}"
