"""YAML of plain values: reading, writing, and the limits of a recipe's values."""

from __future__ import annotations

import copy
import functools
import io
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from olr_cli.errors import UserError, shortened
from olr_cli.files import read_text

if TYPE_CHECKING:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

MOST_BYTES = 256 * 1024
"""Largest file of settings in bytes."""

MOST_LEVELS = 32
"""Most levels of nested lists and mappings."""

_SECTION = re.compile(r"^(?=[a-z_]+:)", re.MULTILINE)
"""Beginning of a key at the outermost level, in the layout that olr writes."""
_KEY = re.compile(r"^(?=  [a-z_]+:)", re.MULTILINE)
"""Beginning of a key inside a section."""


class NotPlain(ValueError):
    """Raised for text that is not valid YAML, or that has anchors, aliases or type tags.

    The message is the end of a sentence, such as ``is not valid YAML: …``. The caller puts the name of the file or key
    in front.
    """


def read_yaml(file: Path) -> Any:
    """Return the value in a YAML file; None if the file is empty.

    Raise UserError if the file is larger than `MOST_BYTES`, is not valid YAML, or has anchors, aliases or type tags.
    """
    try:
        text = read_text(file, at_most=MOST_BYTES)
        # The fast way first: the commands on a sweep read many nearly equal recipes.
        return _parse_sections(text) or parse_yaml(text)
    except NotPlain as error:
        raise UserError.of(f"{file} {error}", remedy="correct it") from None


def _parse_sections(text: str) -> dict[str, Any] | None:
    """Parse YAML text one top-level key at a time; return None if this is not possible or the text has an error.

    After None, callers parse the text as a whole, so an error names the right line of the file. The value of each part
    is cached, because the recipes of a sweep share most of their text. The result is a copy, so callers may change it.
    """
    head, *sections = _SECTION.split(text)
    # A document's end may come before the file's end, which only a complete parse notices.
    has_end = "\n..." in text.removesuffix("\n...\n")
    if not sections or head not in ("", "---\n") or has_end:
        # Then the whole text is parsed, and its error names the right line.
        return None
    try:
        tree = _merged(map(_parse_section, sections))
    except NotPlain:
        return None
    # The parts are cached, so callers get copies to change.
    return copy.deepcopy(tree)


@functools.lru_cache(maxsize=1024)
def _parse_section(text: str) -> Any:
    """Return ``{section: {key: value, …}}`` for the YAML text of one section.

    The text is split before each key of the section, and the value of each part is cached. A text that cannot be split
    is parsed as a whole. Return None if a part holds more than one key, or if two parts have the same key. The result
    is shared by all callers, so they must not change it.
    """
    head, *keys = _KEY.split(text)
    name = head.removesuffix(":\n")
    if not keys or not name.isidentifier():
        return _parse_part(text)
    parts = [_parse_part(head + key) for key in keys]
    # A part may hold a further key that the patterns do not match, such as a quoted one; then parse the whole.
    values = _merged(part[name] if part.keys() == {name} else None for part in parts)
    return None if values is None else {name: values}


@functools.lru_cache(maxsize=4096)
def _parse_part(text: str) -> Any:
    """Parse YAML text with `parse_yaml`, and cache the value by the text.

    Callers get the cached object itself, so they must not change it.
    """
    return parse_yaml(text)


def _merged(parts: Iterable[Any]) -> dict[str, Any] | None:
    """Merge dictionaries that have one key each into one dictionary.

    Return None if a part is not such a dictionary, or if two parts have the same key.
    """
    tree: dict[str, Any] = {}
    for part in parts:
        if not isinstance(part, dict) or len(part) != 1 or not tree.keys().isdisjoint(part):
            return None
        tree |= part
    return tree


def parse_yaml(text: str) -> Any:
    """Return the value of YAML 1.2 text: mappings, lists, text, numbers, booleans and null. A date stays text.

    Raises:
        NotPlain: the text is not valid YAML, or has anchors, aliases or type tags; the message says where.
    """
    from ruamel.yaml.error import YAMLError

    try:
        return _reader().load(text)
    except NotPlain:
        raise
    except YAMLError as error:
        raise NotPlain(f"is not valid YAML: {_reason(error)}") from None
    except ValueError as error:
        raise NotPlain(f"has a number that cannot be read ({error})") from None
    except RecursionError:
        raise NotPlain("is nested too deeply; check what it is") from None


def _reader() -> YAML:
    """Return a YAML 1.2 parser that raises `NotPlain` for anchors, aliases and type tags, and leaves dates as text."""
    from ruamel.yaml import YAML
    from ruamel.yaml.composer import Composer as AnyComposer
    from ruamel.yaml.constructor import SafeConstructor

    class Composer(AnyComposer):
        """Builds the nodes of a YAML document, and raises `NotPlain` at an anchor, an alias or a type tag."""

        def compose_node(self, parent: Any, index: int) -> Any:
            # An alias can grow exponentially ("billion laughs"), and a type can name a Python object.
            event = self.parser.peek_event()
            if getattr(event, "anchor", None) or getattr(event, "tag", None) not in (
                None,
                "!",
            ):
                raise NotPlain(
                    f"has an anchor, an alias or a type (line {event.start_mark.line + 1}); write the value out"
                )
            return super().compose_node(parent, index)

    class Constructor(SafeConstructor):
        """Makes Python values from the nodes of a YAML document; a date becomes text, as in JSON."""

    Constructor.add_constructor(
        "tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str
    )
    # `pure`, because the C parser ignores a Composer of our own.
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer, yaml.Constructor = Composer, Constructor
    return yaml


def _reason(error: YAMLError) -> str:
    """Return the message of a YAML parser's error without line breaks, with the place of the problem if it is known.

    The place is a line and a column of the YAML text, both from 1.
    """
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    if problem is None or mark is None:
        return shortened(" ".join(str(error).split()))
    return f"{' '.join(problem.split())[:160]} (line {mark.line + 1}, column {mark.column + 1})"


def dump_yaml(tree: Mapping[str, Any]) -> str:
    """Return nested dictionaries of plain values as YAML text, with keys in their order."""
    from ruamel.yaml import YAML

    text = io.StringIO()
    YAML().dump(dict(tree), text)
    return text.getvalue()


_NO_FILE_HOLDS = re.compile("[\0\ud800-\udfff]")
"""Characters that no YAML file in UTF-8 can hold."""


def require_plain(value: Any, place: str, key: str = "") -> None:
    """Raise UserError if a value, or any value inside it, cannot be written as YAML and read again.

    Args:
        value: a recipe's nested keys, or a part of them.
        place: the source of the value, such as a file, for the error.
        key: the dotted key of `value` within the recipe, for the error; empty for the whole recipe.
    """
    problem = _problem(value, key)
    if problem is not None:
        raise UserError.of(
            f"{shortened(key) or 'the recipe'} {problem}", remedy="correct it", place=place
        )
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for name, inner in items:
        require_plain(inner, place, f"{key}.{name}" if key else str(name))


def _problem(value: Any, key: str) -> str | None:
    """Return why a value or its dotted key cannot be written as YAML, or None if both can be written.

    The reason is the end of a sentence (``is inf, and numbers must be finite``). Values inside `value` are not checked.
    """
    if key.count(".") >= MOST_LEVELS:
        return f"is more than {MOST_LEVELS} levels deep; check its dots"
    if _NO_FILE_HOLDS.search(f"{key} {value}" if isinstance(value, str) else key):
        return "has a character that no file can hold (NUL, or half of a surrogate pair); remove it"
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}, and numbers must be finite"
    if isinstance(value, Mapping) and not all(isinstance(name, str) for name in value):
        return "has a key that is no text; write it in quotes"
    return None
