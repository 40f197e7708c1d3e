"""The words of the page, for the parts made here and for its script, which gets them as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from olr_cli.analysis.audit.verdicts import STATUSES
from olr_cli.data.verified import VERDICTS
from olr_cli.supervision.types import LabelSource
from olr_cli.tables.html import element

NO_VISIT, NO_MAJORITY, RIGHT, WRONG_LABEL, GIVEN, OTHER = range(6)
"""Kinds of majority answers.

- NO_VISIT: the prompt was not visited.
- NO_MAJORITY: there is no majority.
- RIGHT: the true answer.
- WRONG_LABEL: a label that is known to be wrong.
- GIVEN: the given label, which may be right.
- OTHER: another answer.
"""

SOURCES: tuple[LabelSource, ...] = get_args(LabelSource)
"""Origins of a visit's label; arrays number them from 1, and 0 means no visit."""

_KINDS = {
    NO_VISIT: ("", 0, "not visited"),
    NO_MAJORITY: ("none", 0.2, "no majority"),
    RIGHT: ("right", 1, "the true answer"),
    WRONG_LABEL: ("wrong-label", 0.7, "a wrong label"),
    GIVEN: ("given", 0.85, "the given label, truth unknown"),
    OTHER: ("other", 0.45, "another answer"),
}
"""Kind -> its CSS class, height and name."""

_SOURCES: Mapping[LabelSource, str] = {
    "given": "the given label",
    "noisy": "the noisy label",
    "verified": "the verified answer",
    "majority": "the majority answer",
    "sentinel": "none, no answer is right",
    "none": "no label is used",
}

_VERDICTS = dict(
    zip(
        VERDICTS,
        (("✓", "right"), ("✗", "wrong"), ("!", "flawed"), ("?", "unsure")),
        strict=True,
    )
)
"""Verdict -> the sign on its button, and its name."""

_MEANINGS = (
    "The label is right.",
    "It is wrong. Type the true answer if you know it; Enter goes on, Esc goes back to the list.",
    "The question has no single right answer. This counts as a wrong label, so --drop doubted leaves it out.",
    "You cannot tell. This says nothing.",
)
_KEYS = (
    *(
        (str(number), f"{sign} {name}", meaning)
        for number, ((sign, name), meaning) in enumerate(
            zip(_VERDICTS.values(), _MEANINGS, strict=True), start=1
        )
    ),
    (
        "j, k",
        "next, previous",
        "Go to another prompt. The same verdict again takes it back.",
    ),
)

WORDS: Mapping[str, Any] = {
    "kinds": [
        {"css": css, "height": height, "name": name}
        for css, height, name in _KINDS.values()
    ],
    "sources": _SOURCES,
    "verdicts": _VERDICTS,
}

STATUS_OPTIONS = [
    element("option", "no label" if status == "missing" else status, value=status)
    for status in STATUSES
]
KEYS = element(
    "table",
    element("caption", "Keys"),
    element(
        "tbody",
        *(
            element(
                "tr",
                element("th", element("kbd", key), scope="row"),
                element("td", name),
                element("td", meaning),
            )
            for key, name, meaning in _KEYS
        ),
    ),
    class_="keys",
)
VERDICT_OPTIONS = [
    element("option", name, value=verdict) for verdict, (_, name) in _VERDICTS.items()
]
