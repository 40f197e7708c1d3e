"""HTML elements from Python values; whatever is put into them becomes text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

_NOT_HTML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def element(tag: str, *children: Element | str | None, **attributes: str) -> Element:
    """An HTML element.

    Args:
        tag: its name.
        children: elements and texts, in order; None is left out.
        attributes: values by name; ``class_`` is ``class``, and other underscores are hyphens.
    """
    made = Element(tag, {key.rstrip("_").replace("_", "-"): text(value) for key, value in attributes.items()})
    last: Element | None = None
    for child in children:
        if isinstance(child, Element):
            made.append(child)
            last = child
        elif child is not None and last is None:
            made.text = (made.text or "") + text(child)
        elif child is not None and last is not None:
            last.tail = (last.tail or "") + text(child)
    return made


def isolated(value: str) -> Element:
    """Text from a run, whose direction of writing ends with it."""
    return element("bdi", value)


def text(value: str) -> str:
    """The same text, with U+FFFD for what no HTML file can hold: controls, and halves of characters."""
    return _NOT_HTML.sub("\N{REPLACEMENT CHARACTER}", value)


def html(elements: Iterable[Element]) -> str:
    """Elements as HTML."""
    return "\n".join(
        ElementTree.tostring(each, encoding="unicode", method="html", short_empty_elements=False)
        for each in elements
    )
