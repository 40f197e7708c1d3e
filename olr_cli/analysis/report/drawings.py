"""Figures as SVG inside an HTML page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import matplotlib

from olr_cli.analysis import figures, style
from olr_cli.analysis.arms import Arm
from olr_cli.tables.markup import element, isolated

_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_PROLOGUE = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->", re.DOTALL)
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_PIXELS_A_POINT = 1.6
"""At which the smallest text, of 7 points, can be read on a screen."""

_DATES_ASIDE = {"Date": None, "Creator": None, "Format": None, "Type": None}


def drawings(arms: Sequence[Arm]) -> Iterator[Element]:
    """Every figure that the arms have the runs for, as a ``figure`` element with its caption.

    Raises:
        UserError: a run has no labels, or a file is damaged.
    """
    number = 0
    for name in figures.asked_for(["all"], arms):
        figure = figures.FIGURES[name]
        about = figure.caption
        for chart in figure.drawn(arms):
            number += 1
            drawing = inline_svg(chart, f"f{number}-")
            width = float(drawing.attrib["width"].removesuffix("pt"))
            drawing.attrib |= {"role": "img", "aria-label": about, "width": f"{width * _PIXELS_A_POINT:.0f}"}
            del drawing.attrib["height"]
            caption = element("figcaption", element("b", isolated(chart.name)), f": {about}")
            yield element("figure", element("div", drawing, class_="sheet"), caption)


def inline_svg(chart: style.Chart, prefix: str) -> Element:
    """A chart as an ``svg`` element for an HTML page; text is drawn as paths, so no font is needed.

    Args:
        chart: the chart.
        prefix: put before every id, so that ids of several drawings in a page are distinct.

    Returns:
        Without style attributes or style sheets: a strict Content-Security-Policy forbids them, and a drawing's sheet
        would hold for the whole page.
    """
    written = io.StringIO()
    with (
        style.applied(),
        matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "report"}),
    ):
        chart.figure.savefig(written, format="svg", metadata=_DATES_ASIDE)
    # Matplotlib repeats every text in a comment, and not each of them would be XML.
    root = ElementTree.fromstring(_PROLOGUE.sub("", written.getvalue()))
    root.attrib |= {"stroke-linejoin": "round", "stroke-linecap": "butt"}
    for parent in root.iter():
        for child in [child for child in parent if child.tag in (f"{_SVG}style", f"{_SVG}metadata")]:
            parent.remove(child)
    for each in root.iter():
        _make_inline(each, prefix)
    return root


def _make_inline(each: Element, prefix: str) -> None:
    """No name spaces, no style attribute, ids with a prefix."""
    each.tag = each.tag.removeprefix(_SVG)
    each.text = each.tail = None
    for name, value in list(each.attrib.items()):
        del each.attrib[name]
        if name == "style":
            each.attrib |= {key: _prefixed(part, prefix) for key, part in _declarations(value)}
        elif name == "id":
            each.set("id", prefix + value)
        elif name == f"{_XLINK}href":
            each.set("href", f"#{prefix}{value[1:]}" if value.startswith("#") else value)
        else:
            each.set(name, _prefixed(value, prefix))


def _declarations(value: str) -> Iterator[tuple[str, str]]:
    """The parts of a style attribute; those that matplotlib writes are attributes of SVG too."""
    for declaration in filter(str.strip, value.split(";")):
        key, _, part = declaration.partition(":")
        yield key.strip(), part.strip()


def _prefixed(value: str, prefix: str) -> str:
    return _REFERENCE.sub(rf"url(#{prefix}\1)", value)
