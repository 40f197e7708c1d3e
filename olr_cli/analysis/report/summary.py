"""Runs at a glance: outcomes, settings, epochs, recipes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from olr_cli.analysis.arms import Arm, Run
from olr_cli.analysis.listing import status_of
from olr_cli.runs.directory import kind_of, read_manifest, recipe_yaml
from olr_cli.runs.metrics import Metrics, read_metrics
from olr_cli.runs.progress import of_epoch
from olr_cli.runs.summary import outcomes, signs_of_collapse, throughput_lines
from olr_cli.tables import Block, Column, Row, Table, percent
from olr_cli.tables.html import element, isolated, table_elements

_EPOCHS = {
    "rollout/reward": ("reward", "{:,.2f}"),
    "majority/accuracy": ("majority right, %", ""),
    "majority/accuracy_clean": ("on clean prompts", ""),
    "majority/accuracy_noisy": ("on noisy prompts", ""),
    "label/selection_ratio": ("labels replaced, %", ""),
    "label/selected_accuracy": ("of these right", ""),
    "label/effective_noise": ("labels wrong, %", ""),
    "eval/avg": ("held-out accuracy, %", ""),
    "policy/entropy": ("entropy, nats", "{:,.3f}"),
    "rollout/length": ("length, tokens", "{:,.1f}"),
    "rollout/zero_variance_groups": ("groups of equal rewards, %", ""),
}
"""Metric -> head of its column in the table of epochs, and its format; shares are in percent."""


def summary(arms: Sequence[Arm], notes: Sequence[str]) -> Iterator[Element]:
    """Outcomes and settings of one run, or a line a run; then what a reader should know."""
    runs = [run for arm in arms for run in arm.runs]
    if len(runs) == 1:
        yield _tiles(outcomes(runs[0].path))
        facts = (
            element("div", element("dt", name), element("dd", isolated(value)))
            for name, value in _settings(arms[0])
        )
        yield element("dl", *facts, class_="facts")
    else:
        yield from table_elements(_runs(arms), "Runs")
    notes = list(notes)
    for run in runs:
        place = "" if len(runs) == 1 else f"{run.path}: "
        signs = signs_of_collapse(run.path)
        notes += [f"{place}sign of collapse after step {step}: {sign}" for step, sign in signs]
    if notes:
        yield element("h3", "Notes")
        yield element("ul", *(element("li", isolated(note)) for note in notes), class_="notes")


def recipes(arms: Sequence[Arm]) -> Iterator[Element]:
    """The recipe of each arm, resolved; that of its first run, as the others differ from it in the seed."""
    for arm in arms:
        yaml = element("pre", recipe_yaml(arm.recipe), class_="recipe", tabindex="0")
        if len(arms) == 1:
            yield yaml
        else:
            yield element("details", element("summary", isolated(arm.name)), yaml)


def epochs(run: Run) -> Table:
    """A row an epoch from metrics.jsonl, epoch 0 before training; no rows if the file has nothing to show."""
    by_epoch: dict[int, list[Metrics]] = {}
    for line in read_metrics(run.path, "epoch"):
        by_epoch.setdefault(int(line["epoch"]), []).append(line)
    values = {name: [of_epoch(name, steps) for _, steps in sorted(by_epoch.items())] for name in _EPOCHS}
    shown = {name: of_epochs for name, of_epochs in values.items() if set(of_epochs) - {None}}
    if not shown:
        return Table([], {}, nothing="metrics.jsonl has none of the metrics that are shown by epoch.")
    names = [f"{epoch}" if epoch <= run.epochs else f"{epoch} (under way)" for epoch in sorted(by_epoch)]
    cells = [[_epoch_cell(name, value) for value in of_epochs] for name, of_epochs in shown.items()]
    columns = [Column("epoch"), *(Column(_EPOCHS[name][0]) for name in shown)]
    return Table([Block(columns, [Row(row) for row in zip(names, *cells, strict=True)])], {})


def _epoch_cell(name: str, value: float | None) -> str:
    if value is None:
        return ""
    text = _EPOCHS[name][1]
    return text.format(value) if text else percent(value)


def status(run: Run) -> str:
    """The status as `olr runs` says it, and how many epochs are complete."""
    state = status_of(run.path, read_manifest(run.path))
    return f"{state}: {run.epochs} of {run.recipe.train.epochs} epochs" if state != "finished" else state


def _tiles(values: Sequence[tuple[str, str]]) -> Element:
    tiles = []
    for name, value in values:
        main, bracket, rest = _with_arrow(value).partition(" (")
        number = element("dd", element("b", main), bracket + rest)
        tiles.append(element("div", element("dt", name), number))
    return element("dl", *tiles, class_="tiles")


def _with_arrow(value: str) -> str:
    return value.replace("->", "\N{RIGHTWARDS ARROW}")


def _settings(arm: Arm) -> Iterator[tuple[str, str]]:
    """The settings of an arm of one run, with their names."""
    (run,) = arm.runs
    recipe, manifest = run.recipe, read_manifest(run.path)

    def size(name: str) -> str:
        prompts = manifest.get("data", {}).get(name, {}).get("prompts")
        return f", {prompts:,} prompts" if prompts else ""

    yield "status", status(run)
    trains = kind_of(manifest) == "training"
    if trains:
        yield "method", _method(arm)
    yield "noise", run.noise or "no label is marked"
    yield "model", recipe.model.path
    yield "data", recipe.data.train + size("train")
    if recipe.data.test is not None:
        yield "held-out data", recipe.data.test + size("test")
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
    throughput = ", ".join(f"{name} {value}" for name, value in throughput_lines(run.path))
    if throughput:
        yield "throughput", f"{throughput} (medians over the steps)"
    versions = ", ".join(f"{name} {version}" for name, version in manifest.get("versions", {}).items())
    if versions:
        yield "versions", versions
    yield "run directory", str(run.path)


def _method(arm: Arm) -> str:
    """The method, and for OLR the settings that decide about labels."""
    if arm.olr is None:
        return arm.method
    criteria = " and ".join(arm.olr.criteria) or "none"
    return (
        f"{arm.method} (criteria: {criteria}; \N{GREEK SMALL LETTER DELTA} = {arm.olr.slope_threshold},"
        f" T = {arm.olr.warmup_epochs} epochs of warm-up)"
    )


def _runs(arms: Sequence[Arm]) -> Table:
    outcomes_of = {run.path: dict(outcomes(run.path)) for arm in arms for run in arm.runs}
    names = list(dict.fromkeys(name for values in outcomes_of.values() for name in values))
    columns = [
        *(Column("arm"), Column("seed"), Column("status", is_text=True)),
        *map(Column, names),
        *(Column("begun", is_text=True), Column("run directory", is_text=True)),
    ]
    rows = []
    for arm in arms:
        for run in arm.runs:
            values = [_with_arrow(outcomes_of[run.path].get(name, "")) for name in names]
            rows.append(Row([arm.name, str(run.seed), status(run), *values, run.created[:10], str(run.path)]))
    return Table([Block(columns, rows)], {})
