"""The reference of recipe keys: what `olr recipes keys` prints, and docs/recipe-keys.md."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from olr_cli.errors import UserError, did_you_mean, shown
from olr_cli.recipe.schema import KINDS, Recipe, Section
from olr_cli.tables import Block, Cell, Column, Row, Table, markdown

_TYPES = {bool: "true or false", int: "whole number", float: "number", Decimal: "number", str: "text"}
_UNLIMITED = 1_000_000
"""Larger bounds only keep numbers within what files and libraries hold; the reference leaves them out."""

_WIDEST = 40
"""Characters for the values of a key in a terminal; only lists of kinds, which follow there anyway, are longer."""

_INTRODUCTION = """# Recipe keys

Every key that a recipe file, `--set KEY=VALUE` and a sweep can set. A key that a recipe leaves out has its default: the
paper's setting, where the paper gives one. `olr recipes keys PREFIX` prints the keys that begin with PREFIX, and
`olr recipes show RECIPE --resolved` the values of a recipe. A recipe file may also have `base`, the recipe that it
builds on: a path relative to the file, or the name of a recipe that comes with olr.

This page is made by `olr recipes keys --format markdown > docs/recipe-keys.md` from `olr_cli/recipe/schema.py`."""


@dataclass(frozen=True)
class Key:
    """A key of a recipe.

    Attributes:
        key: dotted.
        kind: the only kind of the section that has the key with this meaning (``olr``); None for every kind.
        type: the type of its values, in words.
        range: which values of that type are allowed, in words; empty for all.
        default: as a JSON value.
        description: its meaning and unit.
    """

    key: str
    kind: str | None
    type: str
    range: str
    default: Any
    description: str

    @property
    def values(self) -> str:
        """Type and range together, in words."""
        type_, null, _ = self.type.partition(" or null")
        words = self.range if type_ in ("choice", "list") else ", ".join(filter(None, [type_, self.range]))
        return words + (", or null" if null else "")


@dataclass(frozen=True)
class _Group:
    """Keys under one title: of a section (``method``), or of one of its kinds (``method.name=olr``)."""

    title: str
    summary: str
    keys: list[Key]

    @property
    def is_kind(self) -> bool:
        return "=" in self.title

    def beginning_with(self, prefix: str) -> _Group:
        return replace(self, keys=[key for key in self.keys if key.key.startswith(prefix)])

    def rows(self) -> Iterator[Row]:
        if self.is_kind:
            yield Row([f"{self.title}: {self.summary}"], "title")
        for key in self.keys:
            values = Cell(key.values if len(key.values) <= _WIDEST else "one of those below", key.values)
            yield Row([Cell(key.key, f"`{key.key}`"), values, _written(key.default), key.description])
            yield Row([key.description], "note")


def key_table(prefix: str = "") -> Table:
    """The keys that begin with `prefix`: a block for each section, in which kinds with keys of their own have a title.

    Raises:
        UserError: no key begins so.
    """
    columns = [
        Column("key"),
        Column("value", is_text=True),
        Column("default", is_text=True),
        Column("meaning", only="document"),
    ]
    blocks, keys = [], []
    for section in _sections():
        groups = [group.beginning_with(prefix) for group in section]
        rows = [
            row
            for group in groups
            if group.keys or (group.is_kind and group.title.startswith(prefix))
            for row in group.rows()
        ]
        if rows:
            title = f"{section[0].title}: {section[0].summary}"
            blocks.append(Block(columns, rows, title))
            keys += [key for group in groups for key in group.keys]
    if not blocks:
        names = [key.key for section in _sections() for group in section for key in group.keys]
        raise UserError(
            f"no key of a recipe begins with '{prefix}'{did_you_mean(prefix, names)}; `olr recipes keys` lists them all"
        )
    return Table(blocks, {"rows": [asdict(key) for key in keys]})


def key_page(prefix: str = "") -> str:
    """The keys that begin with `prefix` as a page of Markdown, a heading for each section.

    Raises:
        UserError: no key begins so.
    """
    parts = [_INTRODUCTION]
    for block in key_table(prefix).blocks:
        title, _, summary = block.title.partition(": ")
        parts += [f"## {title}", summary, markdown(Table([replace(block, title="", is_markdown=True)], {}))]
    return "\n\n".join(parts)


def _sections() -> list[list[_Group]]:
    """The groups of every section, a section's own first; `recipe` stands for the keys outside of sections."""
    plain, sections = {}, []
    for name, field in Recipe.model_fields.items():
        model = _model(field.annotation)
        if name in KINDS:
            sections.append(list(_groups_of_kinds(name, field)))
        elif model is not None:
            sections.append([_Group(name, _summary(model), _keys(name, model, model.model_fields))])
        else:
            plain[name] = field
    keys = [_key(name, field) for name, field in plain.items()]
    return [[_Group("recipe", "The run as a whole.", keys)], *sections]


def _groups_of_kinds(name: str, field: FieldInfo) -> Iterator[_Group]:
    """The keys that all kinds of a section have, and for each kind those that it adds or gives another default."""
    tag, kinds = KINDS[name]
    (shared,) = {kind.__base__ for kind in kinds.values()}
    assert shared is not None and issubclass(shared, Section)
    default = getattr(field.get_default(), tag, "inactive")
    tag_key = Key(
        f"{name}.{tag}", None, "choice", ", ".join(kinds), default, "The kind; it decides the other keys."
    )
    keys = [key for key in shared.model_fields if key != tag]
    yield _Group(name, field.description or "", [tag_key, *_keys(name, shared, keys)])
    for kind, section in kinds.items():
        keys = [key for key in inspect.get_annotations(section) if key in section.model_fields and key != tag]
        yield _Group(f"{name}.{tag}={kind}", _summary(section), _keys(name, section, keys, kind))


def _model(annotation: Any) -> type[BaseModel] | None:
    """The section that a key holds, if it holds a section of one kind."""
    types = [part for part in get_args(annotation) or [annotation] if isinstance(part, type)]
    return next((part for part in types if issubclass(part, BaseModel)), None)


def _summary(model: type[BaseModel]) -> str:
    return inspect.cleandoc(model.__doc__ or "").partition("\n")[0]


def _keys(name: str, model: type[BaseModel], keys: Iterable[str], kind: str | None = None) -> list[Key]:
    return [_key(f"{name}.{key}", model.model_fields[key], kind) for key in keys]


def _key(name: str, field: FieldInfo, kind: str | None = None) -> Key:
    default = field.get_default(call_default_factory=True)
    if isinstance(default, tuple):
        default = list(default)
    elif isinstance(default, Decimal):
        default = float(default)
    return Key(
        name, kind, *_type_and_range(field.annotation, field.metadata), default, field.description or ""
    )


def _type_and_range(annotation: Any, metadata: Iterable[Any]) -> tuple[str, str]:
    """The type of a key's values, and which of them are allowed, in words."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_and_range(parts[0], [*metadata, *parts[1:]])
    if origin in (Union, UnionType):
        types, ranges = zip(
            *(_type_and_range(part, metadata) for part in parts if part is not NoneType), strict=True
        )
        return " or ".join([*types, "null"]), ", ".join(filter(None, ranges))
    if origin is Literal:
        return "choice", ", ".join(map(str, parts))
    if origin is tuple:
        type_, range_ = _type_and_range(parts[0], [])
        return "list", f"list of {range_ or type_}"
    if origin is dict:
        return "keys and values", ""
    return _TYPES[annotation], _range(annotation, metadata)


def _range(type_: type, metadata: Iterable[Any]) -> str:
    """The tightest bounds among a field's constraints, in words."""
    constraints: list[Any] = []
    for item in metadata:
        constraints += item.metadata if isinstance(item, FieldInfo) else [item]
    step = 1 if type_ is int else 0  # whole numbers above 0 are at least 1
    lower = [(c.ge, False) for c in constraints if hasattr(c, "ge")]
    lower += [(c.gt + step, not step) for c in constraints if hasattr(c, "gt")]
    upper = [(c.le, True) for c in constraints if hasattr(c, "le")]
    upper += [(c.lt - step, bool(step)) for c in constraints if hasattr(c, "lt")]
    least, is_open = max(lower, default=(-_UNLIMITED, False))
    most, is_closed = min(upper, default=(_UNLIMITED, True))
    if least > -_UNLIMITED and most < _UNLIMITED and is_closed and not is_open:
        return f"{least} to {most}"
    words = [f"{'above' if is_open else 'at least'} {least}"] if least > -_UNLIMITED else []
    words += [f"{'at most' if is_closed else 'below'} {most}"] if most < _UNLIMITED else []
    return ", ".join(words)


def _written(value: Any) -> str:
    """A default as YAML writes it."""
    if isinstance(value, list):
        return f"[{', '.join(value)}]"
    if isinstance(value, float):
        return f"{value:g}"
    return shown(value) if value is None or isinstance(value, bool) else str(value)
