"""The report of some runs, or the queue of an audit, as one HTML file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element

import polars as pl

from olr_cli import __version__
from olr_cli.analysis.arms import Arm
from olr_cli.analysis.audit.answer import NOT_VERIFIED
from olr_cli.analysis.audit.audit import Audit
from olr_cli.analysis.figures import caption
from olr_cli.analysis.figures.sheet import Chart, svg
from olr_cli.analysis.histories import RolloutHistory
from olr_cli.analysis.report.prompts import audit_data, prompt_list
from olr_cli.analysis.report.words import KEYS, STATUS_OPTIONS, VERDICT_OPTIONS, WORDS
from olr_cli.analysis.tables import count
from olr_cli.answers import Judge
from olr_cli.files import make_folder, write_new, write_text
from olr_cli.grouping import gathered
from olr_cli.runs.directory import kind_of, read_manifest, recipe_yaml
from olr_cli.runs.listing import status_of
from olr_cli.runs.metrics import accuracy_fall, read_metrics
from olr_cli.runs.progress import of_epoch
from olr_cli.runs.stored import Run
from olr_cli.runs.summary import outcomes
from olr_cli.tables import Answer, Block, Column, Line, Row, Table, percent
from olr_cli.tables.html import element, html, isolated, table_elements

NAME = "report.html"

_SCRIPTS = ("data.js", "verdicts.js", "row.js", "details.js", "list.js")
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_COMMENT_OR_SPACE = re.compile(r"<!--.*?-->|\s+", re.DOTALL)

_PIXELS_A_POINT = 1.6
"""Pixels per point at which the smallest text, of 7 points, can be read on a screen."""

_EPOCHS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "rollout/reward": ("reward", "{:,.2f}".format),
    "majority/accuracy": ("majority right, %", percent),
    "majority/accuracy_clean": ("on clean prompts", percent),
    "majority/accuracy_noisy": ("on noisy prompts", percent),
    "label/selection_ratio": ("labels replaced, %", percent),
    "label/selected_accuracy": ("of these right", percent),
    "label/effective_noise": ("labels wrong, %", percent),
    "eval/avg": ("held-out accuracy, %", percent),
    "policy/entropy": ("entropy, nats", "{:,.3f}".format),
    "rollout/length": ("length, tokens", "{:,.1f}".format),
    "rollout/zero_variance_groups": ("groups of equal rewards, %", percent),
}
"""Metric -> head of its column in the table of epochs, and its format; shares are in percent."""


def write_report(
    arms: Sequence[Arm],
    folder: Path,
    drawn: Mapping[str, Sequence[Chart]],
    notes: Sequence[str] = (),
    *,
    tables: Mapping[str, Table] | None = None,
    verified: Path | None = None,
) -> tuple[Path, list[str]]:
    """Write the report of some arms, one HTML page, into a folder; an older report there is replaced.

    If there are several arms, the page always has the table that compares them.

    Args:
        arms: the arms.
        folder: where to write the page.
        drawn: name of a figure -> its charts (`figures.draw`).
        notes: sentences to show on the page.
        tables: further tables, by name.
        verified: file of labels that people have verified, for the audit of each run.

    Returns:
        The file, and sentences on the runs and prompts that it leaves out.
    """
    shown = dict(tables or {})
    if len(arms) > 1 and "arms" not in shown:
        shown = {"arms": count("arms", arms)} | shown
    choices, data, notes_on_prompts = prompt_list(arms, verified)
    runs = [run for arm in arms for run in arm.runs]
    tabulated = [table_elements(table, f"Table: {name}") for name, table in shown.items()]
    if len(runs) == 1:
        tabulated.append(table_elements(epochs(runs[0]), "Epochs"))
    figures = element("div", *drawings(drawn), class_="figures")
    before = [
        _section("summary", "Summary", summary(arms, [*notes, *notes_on_prompts])),
        *([_section("figures", "Figures", [figures])] if drawn else []),
        *(
            [_section("tables", "Tables", chain.from_iterable(tabulated))]
            if tabulated
            else []
        ),
    ]
    page = _page(
        _title(arms), before, choices, data, [_section("recipe", "Recipe", recipes(arms))]
    )
    make_folder(folder)
    write_text(folder / NAME, page)
    return folder / NAME, notes_on_prompts


def write_queue(
    history: RolloutHistory,
    result: Audit,
    answer: Answer,
    judge: Judge,
    file: Path,
    *,
    command: str,
    responses: pl.DataFrame | None,
) -> tuple[list[str], bool]:
    """Write the most doubtful labels of an audit (its queue) as an HTML page in which people check them.

    Args:
        history: the audited history.
        result: the audit.
        answer: the audit's output. The page repeats its lines and notes.
        judge: compares the answers that the models prefer with stored true answers.
        file: file of the page.
        command: the `olr audit` command of this audit. A reader repeats it with ``--verified`` and the page's export.
        responses: a log's responses (`texts.Sampled`); None if there are none, or for a run.

    Returns:
        Sentences on the prompts that the page leaves out.
        False if the same page was there already, else True.
    """
    data, left_out = audit_data(history, result, judge, responses, command)
    # Drop the advice to write this page and verify labels in it: the reader is there already.
    lines = [
        line
        for line in answer.parts
        if isinstance(line, Line) and line.text != NOT_VERIFIED
    ]
    facts = (
        element("div", element("dt", line.head or ""), element("dd", isolated(line.text)))
        for line in lines
    )
    notes = [*answer.notes, *left_out]
    note_list = (
        [element("ul", *(element("li", isolated(note)) for note in notes), class_="notes")]
        if notes
        else []
    )
    about = [
        _section("summary", "Summary", [element("dl", *facts, class_="facts"), *note_list])
    ]
    name = f"{history.source.name}: labels to check"
    page = _page(name, about, [element("option", str(history.source), value="0")], data, [])
    return left_out, write_new(
        file, lambda path: path.write_text(page, encoding="utf-8"), "report"
    )


def _page(
    title: str,
    before: Sequence[Element],
    choices: Sequence[Element],
    data: Sequence[Element],
    after: Sequence[Element],
) -> str:
    style_sheet = _file("report.css")
    # The braces make one block of all scripts, so that their names stay out of the global scope.
    script = '"use strict";\n{\n' + "\n".join(map(_file, _SCRIPTS)) + "}\n"
    # The policy names the hashes of exactly these texts, so it must come from the same strings as the page.
    policy = _policy(style_sheet, script)
    names = [
        *(part.get("id", "") for part in before),
        "prompts",
        *(part.get("id", "") for part in after),
    ]
    return _filled(
        _file("page.html"),
        policy=html(
            [element("meta", http_equiv="Content-Security-Policy", content=policy)]
        ),
        style=style_sheet,
        script=script,
        title=html([element("title", f"{title}: olr report")]),
        heading=html([element("h1", isolated(title))]),
        links=html(element("a", name.capitalize(), href=f"#{name}") for name in names),
        before=html(before),
        after=html(after),
        runs=html(choices),
        statuses=html(STATUS_OPTIONS),
        verdicts=html(VERDICT_OPTIONS),
        keys=html([KEYS]),
        # A script of type text/plain is data: the browser does not run it, and the policy need not allow it.
        words=html([element("script", json.dumps(WORDS), type="text/plain", id="words")]),
        blocks=html(data),
        version=__version__,
    )


def _section(name: str, title: str, content: Iterable[Element]) -> Element:
    head = element("h2", title, id=f"{name}-title")
    return element("section", head, *content, id=name, aria_labelledby=f"{name}-title")


def _title(arms: Sequence[Arm]) -> str:
    runs = [run for arm in arms for run in arm.runs]
    if len(runs) == 1:
        return f"{runs[0].recipe.name}: {arms[0].name}, seed {runs[0].seed}"
    return f"{runs[0].recipe.name}: {len(runs)} runs in {len(arms)} arms"


def drawings(drawn: Mapping[str, Sequence[Chart]]) -> Iterator[Element]:
    """Yield each chart of these figures as a ``figure`` element, with its caption and a button for its full size.

    `drawn` maps the name of a figure to its charts.
    """
    for name, charts in drawn.items():
        about = caption(name)
        for chart in charts:
            width = f"{72 * chart.figure.get_figwidth() * _PIXELS_A_POINT:.0f}"
            # Matplotlib repeats every text in a comment. A text with `--` would make the XML invalid there.
            # A data URI with a readable SVG is smaller than base64. Characters that a URI allows are kept, since each
            # escape would triple their size.
            picture = quote(_COMMENT_OR_SPACE.sub(" ", svg(chart)), safe=" ,:;=/()'+-.!")
            alt = f"{about} {chart.caption}".rstrip()
            image = element(
                "img", src=f"data:image/svg+xml,{picture}", alt=alt, width=width
            )
            named = element("figcaption", element("b", isolated(chart.name)), f": {about}")
            # The script shows this button if the page is narrower than the figure.
            button = element(
                "button", "Full size", type="button", class_="enlarge", hidden="hidden"
            )
            yield element("figure", element("div", image, class_="sheet"), named, button)


def _file(name: str) -> str:
    return resources.files(__package__ or "").joinpath(name).read_text(encoding="utf-8")


def _filled(template: str, **parts: str) -> str:
    """Return the template with each placeholder ``{{NAME}}`` replaced by the part of that name.

    All are replaced at once, so that filled-in text is never taken for a placeholder.
    """
    return _PLACE.sub(lambda place: parts[place[1]], template)


def _policy(style_sheet: str, script: str) -> str:
    """Return the page's Content-Security-Policy, which allows only this style sheet, this script and embedded images.

    The page can load nothing from elsewhere, and the script cannot insert text as HTML.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style_sheet)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _hash(content: str) -> str:
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'"


# Runs at a glance -------------------------------------------------------------------------------------------------


def summary(arms: Sequence[Arm], notes: Sequence[str]) -> Iterator[Element]:
    """Yield the HTML elements at the top of a report.

    A single run is shown by its outcomes and settings, several runs by a table. Below are the `notes`, and a further
    note on each run whose accuracy shows a sign of collapse.
    """
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
        prefix = "" if len(runs) == 1 else f"{run.path}: "
        if fall := accuracy_fall(read_metrics(run.path, "eval/avg")):
            notes.append(f"{prefix}sign of collapse after step {fall[0]}: {fall[1]}")
    if notes:
        yield element("h3", "Notes")
        yield element(
            "ul", *(element("li", isolated(note)) for note in notes), class_="notes"
        )


def recipes(arms: Sequence[Arm]) -> Iterator[Element]:
    """Yield the resolved recipe of each arm's first run as YAML; the arm's other runs differ in the seed."""
    for arm in arms:
        yaml = element("pre", recipe_yaml(arm.recipe), class_="recipe", tabindex="0")
        if len(arms) == 1:
            yield yaml
        else:
            yield element("details", element("summary", isolated(arm.name)), yaml)


def epochs(run: Run) -> Table:
    """Return a table with a row of metrics per epoch, read from metrics.jsonl; epoch 0 is before training.

    If the file has none of the metrics in `_EPOCHS`, a sentence that says so takes the place of the rows.
    """
    by_epoch = gathered(
        (int(line["epoch"]), line) for line in read_metrics(run.path, "epoch")
    )
    numbers = sorted(by_epoch)
    columns = [Column("epoch")]
    texts = [[f"{epoch}" + " (under way)" * (epoch > run.epochs) for epoch in numbers]]
    for name, (head, as_text) in _EPOCHS.items():
        values = [of_epoch(name, by_epoch[epoch]) for epoch in numbers]
        if set(values) - {None}:
            columns.append(Column(head))
            texts.append(["" if value is None else as_text(value) for value in values])
    if len(columns) == 1:
        return Table(
            [], nothing="metrics.jsonl has none of the metrics that are shown by epoch."
        )
    return Table([Block(columns, [Row(row) for row in zip(*texts, strict=True)])])


def status(run: Run) -> str:
    """Return a run's status as `olr runs` words it; for an unfinished run also how many epochs are complete."""
    state = status_of(run.path, read_manifest(run.path))
    return (
        f"{state}: {run.epochs} of {run.recipe.train.epochs} epochs"
        if state != "finished"
        else state
    )


def _tiles(values: Sequence[tuple[str, str]]) -> Element:
    tiles = []
    for name, value in values:
        main, bracket, rest = _with_arrow(value).partition(" (")
        number = element("dd", element("b", main), bracket + rest)
        tiles.append(element("div", element("dt", name), number))
    return element("dl", *tiles, class_="tiles")


def _with_arrow(value: str) -> str:
    return value.replace("->", "\N{RIGHTWARDS ARROW}")


def _settings(arm: Arm) -> list[tuple[str, str]]:
    """Return the status and the settings of an arm's single run as pairs of name and text, without empty texts."""
    (run,) = arm.runs
    recipe, train, manifest = run.recipe, run.recipe.train, read_manifest(run.path)
    is_training = kind_of(manifest) == "training"
    rate = f"learning rate {train.learning_rate}"
    a_step = f"{train.prompts_per_step} prompts a step, {train.rollouts_per_prompt} rollouts a prompt"
    where = (manifest.get(name) for name in ("engine", "device", "dtype"))
    versions = manifest.get("versions", {}).items()
    facts = {
        "status": status(run),
        "method": _method(arm) if is_training else "",
        "noise": run.noise or "no label is marked",
        "model": recipe.model.path,
        "data": f"{recipe.data.train}{_size(manifest, 'train')}",
        "held-out data": recipe.data.test
        and f"{recipe.data.test}{_size(manifest, 'test')}",
        "training": f"{train.epochs} epochs, {a_step}, {rate}" if is_training else "",
        "rollouts": ""
        if is_training
        else f"without training: {train.epochs} visits, {a_step}",
        "seed": str(recipe.seed),
        "engine": ", ".join(map(str, filter(None, where))) or recipe.engine.name,
        "versions": ", ".join(f"{name} {version}" for name, version in versions),
        "run directory": str(run.path),
    }
    return [(name, text) for name, text in facts.items() if text]


def _size(manifest: Mapping[str, Any], data: str) -> str:
    prompts = manifest.get("data", {}).get(data, {}).get("prompts")
    return f", {prompts:,} prompts" if prompts else ""


def _method(arm: Arm) -> str:
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
            rows.append(
                Row(
                    [
                        arm.name,
                        str(run.seed),
                        status(run),
                        *values,
                        run.created[:10],
                        str(run.path),
                    ]
                )
            )
    return Table([Block(columns, rows)])
