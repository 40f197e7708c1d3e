"""YAML of plain values: read, written, and what may stand in it."""

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
MOST_LEVELS = 32
"""Levels of nested lists and mappings."""

_SECTION = re.compile(r"^(?=[a-z_]+:)", re.MULTILINE)
"""Where a key of the outermost level begins in a file as olr writes it."""
_KEY = re.compile(r"^(?=  [a-z_]+:)", re.MULTILINE)
"""Where a key within a section begins."""


class NotPlain(ValueError):
    """Text that is not YAML of plain values; the message continues a sentence that names the place."""


def read_yaml(file: Path) -> Any:
    """The value in a YAML file."""
    try:
        text = read_text(file, at_most=MOST_BYTES)
        return _parse_sections(text) or parse_yaml(text)
    except NotPlain as error:
        raise UserError.of(f"{file} {error}", remedy="correct it") from None


def _parse_sections(text: str) -> dict[str, Any] | None:
    """As `parse_yaml`, section by section, since the runs of a sweep share most; None if it cannot be done so."""
    head, *sections = _SECTION.split(text)
    # Text may go on after a document's end, which only a whole reading tells.
    has_end = "\n..." in text.removesuffix("\n...\n")
    if not sections or head not in ("", "---\n") or has_end:
        return None
    try:
        tree = _merged(map(_parse_section, sections))
    except NotPlain:
        return None  # read as a whole, so that the error names its line
    # The parts are cached, so callers get copies.
    return copy.deepcopy(tree)


@functools.lru_cache(maxsize=1024)
def _parse_section(text: str) -> Any:
    """Parse a section key by key, since the arms of a sweep differ in few keys; None if it cannot be done so."""
    head, *keys = _KEY.split(text)
    name = head.removesuffix(":\n")
    if not keys or not name.isidentifier():
        return _parse_part(text)
    parts = [_parse_part(head + key) for key in keys]
    # A line that begins another key, of the section or of the file, is for a reading of the whole.
    values = _merged(part[name] if part.keys() == {name} else None for part in parts)
    return None if values is None else {name: values}


@functools.lru_cache(maxsize=4096)
def _parse_part(text: str) -> Any:
    return parse_yaml(text)


def _merged(parts: Iterable[Any]) -> dict[str, Any] | None:
    """Return mappings of one key each as one; None if a part is something else, or a key comes twice."""
    tree: dict[str, Any] = {}
    for part in parts:
        if not isinstance(part, dict) or len(part) != 1 or not tree.keys().isdisjoint(part):
            return None
        tree |= part
    return tree


def parse_yaml(text: str) -> Any:
    """The value of YAML 1.2 text; a date stays text.

    Raises:
        NotPlain: it is not YAML, or has anchors, aliases or types; the message says where.
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
    from ruamel.yaml import YAML
    from ruamel.yaml.composer import Composer as AnyComposer
    from ruamel.yaml.constructor import SafeConstructor

    class Composer(AnyComposer):
        """Nodes without anchors, aliases and types."""

        def compose_node(self, parent: Any, index: int) -> Any:
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
        """YAML 1.2's plain values; a date stays the text that it is."""

    Constructor.add_constructor(
        "tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str
    )
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer, yaml.Constructor = Composer, Constructor
    return yaml


def _reason(error: YAMLError) -> str:
    """The parser's problem and its place, on one line."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    if problem is None or mark is None:
        return shortened(" ".join(str(error).split()))
    return f"{' '.join(problem.split())[:160]} (line {mark.line + 1}, column {mark.column + 1})"


def dump_yaml(tree: Mapping[str, Any]) -> str:
    """Plain values as YAML text, in their order."""
    from ruamel.yaml import YAML

    text = io.StringIO()
    YAML().dump(dict(tree), text)
    return text.getvalue()


_NO_FILE_HOLDS = re.compile("[\0\ud800-\udfff]")


def require_plain(value: Any, place: str, key: str = "") -> None:
    """Make sure that a tree can be written as YAML and read again; `key` is the dotted key of `value` in it."""
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
    """Return what keeps a value or its key from a file, apart from the values in it; None if nothing does."""
    if key.count(".") >= MOST_LEVELS:
        return f"is more than {MOST_LEVELS} levels deep; check its dots"
    if _NO_FILE_HOLDS.search(f"{key} {value}" if isinstance(value, str) else key):
        return "has a character that no file can hold (NUL, or half of a surrogate pair); remove it"
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}, and numbers must be finite"
    if isinstance(value, Mapping) and not all(isinstance(name, str) for name in value):
        return "has a key that is no text; write it in quotes"
    return None
