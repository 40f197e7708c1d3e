"""YAML as plain values, of recipes, benchmarks and single settings; whatever a file holds, it is only ever data.

Numbers, dates and words mean what YAML 1.2 says, but that a date is text. Before a value is made of it, a file is read
as a stream of events, in bounded time and memory, and refused if it is too large, too deep, grows by its aliases, or
names types of its own.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from olr_cli.errors import UserError

if TYPE_CHECKING:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

MOST_BYTES = 256 * 1024
MOST_VALUES = 20_000
"""Scalars, lists and mappings of a file, each alias counted as what it stands for."""
MOST_LEVELS = 32

_SHOWN = 60
"""Characters of a value or key that a sentence shows."""


class NotPlain(ValueError):
    """Text that is no YAML of plain values; the message goes on a sentence that names the place."""


def read_yaml(file: Path) -> Any:
    """What a YAML file holds.

    Raises:
        UserError: it cannot be read, is not UTF-8 text, or no YAML of plain values.
    """
    try:
        return parse_yaml(read_text(file))
    except NotPlain as error:
        raise UserError(f"{file} {error}") from None


def read_text(file: Path) -> str:
    """The text of a file of settings.

    Raises:
        UserError: it cannot be read, is not UTF-8 text, or too large to be one.
    """
    try:
        with file.open("rb") as source:
            content = source.read(MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise UserError(
            f"{file} has more than the {MOST_BYTES // 1024} KiB that a file of settings may have; check what it is"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 text ({error.reason} at byte {error.start})") from None


def parse_yaml(text: str) -> Any:
    """The value that `text` stands for.

    Raises:
        NotPlain: it is not YAML, or of more than plain values; the message says what and where.
    """
    from ruamel.yaml.error import YAMLError

    try:
        meter = _Meter()
        for event in _reader().parse(text):
            meter.read(event)
        return _reader().load(text)
    except NotPlain:
        raise
    except YAMLError as error:
        raise NotPlain(f"is not valid YAML: {_reason(error)}") from None
    except ValueError as error:
        raise NotPlain(f"has a number that cannot be read ({error})") from None


def dump_yaml(tree: Mapping[str, Any]) -> str:
    """Plain values as YAML text, in their order."""
    from ruamel.yaml import YAML

    text = io.StringIO()
    YAML().dump(dict(tree), text)
    return text.getvalue()


def require_plain(value: Any, place: str, key: str = "") -> None:
    """Make sure that a tree can be written as YAML and read again.

    Args:
        value: what a YAML file or a command line held.
        place: to be named.
        key: dotted, of `value` in the tree.

    Raises:
        UserError: a number is not finite, a text has half a character or NUL, a key is no text, or it is too deep.
    """
    if key.count(".") >= MOST_LEVELS:
        raise UserError(f"{place}: {shortened(key)} is more than {MOST_LEVELS} levels deep; check its dots")
    if isinstance(value, Mapping):
        for name, inner in value.items():
            inner_key = f"{key}.{name}" if key else str(name)
            if not isinstance(name, str):
                raise UserError(
                    f"{place}: the key {shortened(inner_key)} is {shown(name)}, and keys are text; write it in quotes"
                )
            _require_characters(name, place, inner_key)
            require_plain(inner, place, inner_key)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            require_plain(item, place, f"{key}.{number}")
    elif isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{place}: {shortened(key)} is {value}, and numbers must be finite")
    elif isinstance(value, str):
        _require_characters(value, place, key)


def _require_characters(text: str, place: str, key: str) -> None:
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise UserError(
            f"{place}: {shortened(key)} has a character that no file can hold (NUL, or half of a surrogate pair);"
            " remove it"
        )


def shown(value: object) -> str:
    """A value as a sentence shows it, in YAML's words."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return shortened(repr(value))


def shortened(text: str) -> str:
    """At most `_SHOWN` characters of a text."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _reader() -> YAML:
    from ruamel.yaml import YAML
    from ruamel.yaml.constructor import SafeConstructor

    class Constructor(SafeConstructor):
        """YAML 1.2's plain values; a date stays the text that it is."""

    Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = Constructor
    return yaml


class _Meter:
    """Counts the values and levels of a stream of YAML events, each alias as what it stands for."""

    def __init__(self) -> None:
        self._values = 0
        # Of the file, and of every list and mapping that is open: anchor, values before it, levels below it so far.
        self._open: list[tuple[str | None, int, int]] = [(None, 0, 0)]
        self._of_anchor: dict[str, tuple[int, int]] = {}

    def read(self, event: Any) -> None:
        """Take the next event.

        Raises:
            NotPlain: there are too many values or levels, a tag, or an alias of what holds it.
        """
        from ruamel.yaml import events

        if isinstance(event, events.CollectionEndEvent):
            self._close()
        elif isinstance(event, events.NodeEvent):
            place = f"line {event.start_mark.line + 1}"
            if isinstance(event, events.AliasEvent):
                values, levels = self._aliased(event.anchor, place)
            else:
                self._require_new_and_untyped(event, place)
                values, levels = 1, 0
            self._add(values, levels, place)
            if isinstance(event, events.CollectionStartEvent):
                self._open.append((event.anchor, self._values - 1, 0))
            elif isinstance(event, events.ScalarEvent) and event.anchor is not None:
                self._of_anchor[event.anchor] = (1, 0)

    def _close(self) -> None:
        anchor, before, below = self._open.pop()
        if anchor is not None:
            self._of_anchor[anchor] = (self._values - before, below + 1)
        self._deepen(below + 1)

    def _add(self, values: int, levels: int, place: str) -> None:
        self._values += values
        if self._values > MOST_VALUES:
            raise NotPlain(
                f"has more than {MOST_VALUES:,} values ({place}), and an alias counts as what it stands for; check what"
                " it is"
            )
        self._deepen(levels)
        if len(self._open) + levels > MOST_LEVELS:
            raise NotPlain(f"is nested more than {MOST_LEVELS} levels deep ({place}); check what it is")

    def _deepen(self, levels: int) -> None:
        anchor, before, below = self._open[-1]
        self._open[-1] = (anchor, before, max(below, levels))

    def _aliased(self, anchor: str, place: str) -> tuple[int, int]:
        """Values and levels of what an alias stands for; of an unknown one, which the loader refuses, a scalar's."""
        if self._is_open(anchor):
            raise NotPlain(f"has a value that holds itself (*{shortened(anchor)}, {place}); write it out")
        return self._of_anchor.get(anchor, (1, 0))

    def _require_new_and_untyped(self, event: Any, place: str) -> None:
        """Refuse an anchor that is there already, and a tag: none may choose what is made of a value."""
        anchor, tag = event.anchor, event.tag
        if anchor is not None and (anchor in self._of_anchor or self._is_open(anchor)):
            raise NotPlain(f"has the anchor &{shortened(anchor)} twice ({place}); rename one")
        if tag not in (None, "!"):
            name = shortened(str(tag).replace("tag:yaml.org,2002:", "!!"))
            raise NotPlain(f"names a type of its own, {name} ({place}); remove it")

    def _is_open(self, anchor: str) -> bool:
        return any(name == anchor for name, _, _ in self._open)


def _reason(error: YAMLError) -> str:
    """What the parser found, and where, on one line."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    if problem is None or mark is None:
        return shortened(" ".join(str(error).split()))
    return f"{' '.join(problem.split())[:160]} (line {mark.line + 1}, column {mark.column + 1})"
