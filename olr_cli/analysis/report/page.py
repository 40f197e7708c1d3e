"""The report of some runs, from run directories to one HTML file."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from itertools import chain
from pathlib import Path
from urllib.parse import quote
from xml.etree.ElementTree import Element

from olr_cli import __version__
from olr_cli.analysis.arms import Arm
from olr_cli.analysis.figures import caption, style
from olr_cli.analysis.report.prompts import prompt_list
from olr_cli.analysis.report.summary import epochs, recipes, summary
from olr_cli.analysis.tables import count
from olr_cli.files import write_text, writing
from olr_cli.tables import Table
from olr_cli.tables.html import element, html, isolated, table_elements

NAME = "report.html"

_SCRIPTS = ("data.js", "verdicts.js", "row.js", "details.js", "list.js")
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_COMMENT_OR_SPACE = re.compile(r"<!--.*?-->|\s+", re.DOTALL)

_PIXELS_A_POINT = 1.6
"""At which the smallest text, of 7 points, can be read on a screen."""


def write_report(
    arms: Sequence[Arm],
    folder: Path,
    drawn: Mapping[str, Sequence[style.Chart]],
    notes: Sequence[str] = (),
    tables: Mapping[str, Table] | None = None,
    trusted: Path | None = None,
) -> Path:
    """Write the report of some arms into a folder; an older one is replaced. Several arms are compared in any case.

    `drawn` are their figures (`figures.draw`), `trusted` a file of verified labels for the audit.

    Raises:
        UserError: a run has no complete step, a shard is torn, the folder can't be written, or the file of verified
            labels is not one of the runs' prompts.
    """
    shown = dict(tables or {})
    if len(arms) > 1 and "arms" not in shown:
        shown = {"arms": count("arms", arms)} | shown
    page = _page(arms, drawn, notes, shown, trusted)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / NAME, page)
    return folder / NAME


def _page(
    arms: Sequence[Arm],
    drawn: Mapping[str, Sequence[style.Chart]],
    notes: Sequence[str],
    tables: Mapping[str, Table],
    trusted: Path | None,
) -> str:
    style_sheet = _file("report.css")
    script = '"use strict";\n{\n' + "\n".join(map(_file, _SCRIPTS)) + "}\n"
    choices, data, notes_on_prompts = prompt_list(arms, trusted=trusted)
    runs = [run for arm in arms for run in arm.runs]
    title = _title(arms)
    tabulated = [table_elements(table, f"Table: {name}") for name, table in tables.items()]
    if len(runs) == 1:
        tabulated.append(table_elements(epochs(runs[0]), "Epochs"))
    policy = _policy(style_sheet, script)
    return _filled(
        _file("page.html"),
        policy=html([element("meta", http_equiv="Content-Security-Policy", content=policy)]),
        style=style_sheet,
        script=script,
        title=html([element("title", f"{title}: olr report")]),
        heading=html([element("h1", isolated(title))]),
        summary=html(summary(arms, [*notes, *notes_on_prompts])),
        figures=html(drawings(drawn)),
        tables=html(chain.from_iterable(tabulated)),
        recipes=html(recipes(arms)),
        runs=html(choices),
        blocks=html(data),
        version=__version__,
    )


def _title(arms: Sequence[Arm]) -> str:
    runs = [run for arm in arms for run in arm.runs]
    if len(runs) == 1:
        return f"{runs[0].recipe.name}: {arms[0].name}, seed {runs[0].seed}"
    names = list(dict.fromkeys(run.recipe.name for run in runs))
    more = " and others" if len(names) > 2 else ""
    return f"{', '.join(names[:2])}{more}: {len(runs)} runs in {len(arms)} arms"


def drawings(drawn: Mapping[str, Sequence[style.Chart]]) -> Iterator[Element]:
    """The charts of figures as ``figure`` elements, each with its caption."""
    for name, charts in drawn.items():
        about = caption(name)
        for chart in charts:
            width = f"{72 * chart.figure.get_figwidth() * _PIXELS_A_POINT:.0f}"
            image = element(
                "img", src=_svg_address(chart), alt=f"{about} {chart.caption}".rstrip(), width=width
            )
            named = element("figcaption", element("b", isolated(chart.name)), f": {about}")
            yield element("figure", element("div", image, class_="sheet"), named)


def _svg_address(chart: style.Chart) -> str:
    """A chart as the address of an SVG image that holds it."""
    # Matplotlib repeats every text in a comment, and not every text may stand in XML.
    return "data:image/svg+xml," + quote(_COMMENT_OR_SPACE.sub(" ", style.svg(chart)), safe=" ,:;=/()'+-.!")


def _file(name: str) -> str:
    return resources.files(__package__ or "").joinpath(name).read_text(encoding="utf-8")


def _filled(template: str, **parts: str) -> str:
    """The template with its places filled, all at once: what is filled in is never taken for a place."""
    return _PLACE.sub(lambda place: parts[place[1]], template)


def _policy(style_sheet: str, script: str) -> str:
    """Nothing runs or styles but what is in this file, nothing is loaded, and no text becomes HTML."""
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
