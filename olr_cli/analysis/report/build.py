"""The report of some runs, from run directories to one HTML file."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import chain
from pathlib import Path

from olr_cli import __version__
from olr_cli.analysis import figures
from olr_cli.analysis.arms import Arm
from olr_cli.analysis.report import browser, summary
from olr_cli.analysis.report.drawings import drawings
from olr_cli.analysis.report.epochs import epochs
from olr_cli.files import write_text, writing
from olr_cli.tables import Table
from olr_cli.tables.html import blocks
from olr_cli.tables.markup import element, html, isolated

NAME = "report.html"

_SCRIPTS = ("data.js", "row.js", "details.js", "list.js")

_PLACE = re.compile(r"\{\{(\w+)\}\}")


def write_report(
    arms: Sequence[Arm],
    folder: Path,
    notes: Sequence[str] = (),
    counted: Mapping[str, Table] | None = None,
) -> Path:
    """Write the report of some arms; an older one is replaced.

    Args:
        arms: at least one.
        folder: where the file goes; made if it is not there.
        notes: what a reader should know.
        counted: tables that were asked for, by name; that of the arms is there with several arms in any case.

    Returns:
        The file.

    Raises:
        UserError: a run has no complete step, a shard is torn, the folder can't be written.
    """
    tables_shown = dict(counted or {})
    if len(arms) > 1 and "arms" not in tables_shown:
        tables_shown = {"arms": figures.count("arms", arms, None)} | tables_shown
    page = _page(arms, notes, tables_shown)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / NAME, page)
    return folder / NAME


def _page(arms: Sequence[Arm], notes: Sequence[str], counted: Mapping[str, Table]) -> str:
    style, script = _file("report.css"), _script()
    shown = browser.browser(arms)
    runs = [run for arm in arms for run in arm.runs]
    alone = len(runs) == 1
    name = _title(arms)
    tabulated = chain.from_iterable(blocks(table, f"Table: {title}") for title, table in counted.items())
    of_epochs = epochs(runs[0]) if alone else None
    return _filled(
        _file("page.html"),
        policy=html([element("meta", http_equiv="Content-Security-Policy", content=_policy(style, script))]),
        style=style,
        script=script,
        title=html([element("title", f"{name}: olr report")]),
        heading=html([element("h1", isolated(name))]),
        summary=html(summary.summary(arms, [*notes, *shown.notes])),
        figures=html(drawings(arms)),
        tables=html(tabulated) + (html([of_epochs]) if of_epochs is not None else ""),
        recipes=html(summary.recipes(arms)),
        runs=html(shown.choices),
        blocks="\n".join(block.html() for block in shown.blocks),
        version=__version__,
    )


def _title(arms: Sequence[Arm]) -> str:
    runs = [run for arm in arms for run in arm.runs]
    if len(runs) == 1:
        return f"{runs[0].recipe.name}: {arms[0].name}, seed {runs[0].seed}"
    names = list(dict.fromkeys(run.recipe.name for run in runs))
    more = " and others" if len(names) > 2 else ""
    return f"{', '.join(names[:2])}{more}: {len(runs)} runs in {len(arms)} arms"


def _script() -> str:
    """The scripts as one, with names that the rest of the page does not see."""
    return '"use strict";\n{\n' + "\n".join(_file(name) for name in _SCRIPTS) + "}\n"


def _file(name: str) -> str:
    return resources.files(__package__ or "").joinpath(name).read_text(encoding="utf-8")


def _filled(template: str, **parts: str) -> str:
    """The template with its places filled, all at once: what is filled in is never taken for a place."""
    return _PLACE.sub(lambda place: parts[place[1]], template)


def _policy(style: str, script: str) -> str:
    """Nothing runs and nothing looks but what is in this file, nothing is loaded, and no text becomes HTML."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
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
