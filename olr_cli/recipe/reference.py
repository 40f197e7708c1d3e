"""The reference of recipe keys: what `olr recipes keys` prints, and docs/recipe-keys.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from olr_cli.errors import UserError, did_you_mean, shown
from olr_cli.recipe.methods import METHODS
from olr_cli.recipe.schema import KINDS, Recipe
from olr_cli.recipe.section import Section
from olr_cli.tables import Block, Cell, Column, Row, Table, markdown

_TYPES = {
    "boolean": "true or false",
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "object": "keys and values",
}
_UNLIMITED = 1_000_000
"""Larger bounds only keep numbers within what files and libraries hold; the reference leaves them out."""

_WIDEST = 40
"""Characters for the values of a key in a terminal; only lists of kinds, which follow there anyway, are longer."""

_INTRODUCTION = """# Recipe keys

Every key that a recipe file, `--set KEY=VALUE` and a sweep can set. A key that a recipe leaves out has its default: the
paper's setting, where the paper gives one. `olr recipes keys PREFIX` prints the keys that begin with PREFIX, and
`olr recipes show RECIPE --resolved` the values of a recipe. A recipe file may also have `base`, the recipe that it
builds on: a path relative to the file, or the name of a recipe that comes with olr.

This page is made by `olr recipes keys --format markdown > docs/recipe-keys.md` from `olr_cli/recipe/`."""


Key = dict[str, Any]
"""A key: its dotted name (`key`), its `type` in words, which values are allowed (`range`, in words; empty for all), its
`default` and `description`; and the only `kind` of the section that has it with this meaning, or None."""


class _Group(NamedTuple):
    """Keys under one title: of a section (``method``), or of one of its kinds (``method.name=olr``)."""

    title: str
    summary: str
    keys: Sequence[Key]


def key_table(prefix: str = "") -> Table:
    """The keys that begin with `prefix`: a block a section, in which kinds with their own keys have a title."""
    columns = [
        Column("key"),
        Column("value", is_text=True),
        Column("default", is_text=True),
        Column("meaning", only="document"),
    ]
    blocks: list[Block] = []
    chosen: list[Key] = []
    for groups in _sections():
        rows: list[Row] = []
        for title, summary, keys in groups:
            those = [key for key in keys if key["key"].startswith(prefix)]
            is_kind = "=" in title
            if is_kind and (those or title.startswith(prefix)):
                rows.append(Row([f"{title}: {summary}"], "title"))
            rows += chain.from_iterable(map(_rows, those))
            chosen += those
        if rows:
            blocks.append(Block(columns, rows, f"{groups[0].title}: {groups[0].summary}"))
    if not blocks:
        everything = chain.from_iterable(_sections())
        names = [key["key"] for group in everything for key in group.keys]
        raise UserError(
            f"no key of a recipe begins with '{prefix}'{did_you_mean(prefix, names)}",
            "`olr recipes keys` lists them all",
        )
    return Table(blocks, chosen)


def _rows(key: Key) -> tuple[Row, Row]:
    type_, null, _ = key["type"].partition(" or null")
    words = (
        key["range"]
        if type_ in ("choice", "list")
        else ", ".join(filter(None, [type_, key["range"]]))
    )
    words += ", or null" if null else ""
    short = words if len(words) <= _WIDEST else "one of those below"
    name, values = (
        Cell(f"`{key['key']}`", "text", short=key["key"]),
        Cell(words, "text", short=short),
    )
    row = Row([name, values, _written(key["default"]), key["description"]])
    return row, Row([key["description"]], "note")


def key_page(prefix: str = "") -> str:
    """The keys that begin with `prefix` as a page of Markdown, a heading for each section."""
    parts = [_INTRODUCTION]
    for block in key_table(prefix).blocks:
        title, _, summary = block.title.partition(": ")
        parts += [
            f"## {title}",
            summary,
            markdown(Table([replace(block, title="", is_markdown=True)])),
        ]
    return "\n\n".join(parts)


def _sections() -> list[list[_Group]]:
    """The groups of every section, a section's own first; `recipe` stands for the keys outside of sections."""
    schema = Recipe.model_json_schema()
    models, plain, sections = schema["$defs"], {}, []
    for name, key in schema["properties"].items():
        references = [
            part["$ref"] for part in (key, *key.get("anyOf", ())) if "$ref" in part
        ]
        if name in KINDS:
            sections.append(list(_groups_of_kinds(name, key, models)))
        elif references:
            model = models[references[0].rpartition("/")[2]]
            sections.append(
                [_Group(name, _summary(model), _keys(f"{name}.", model["properties"]))]
            )
        else:
            plain[name] = key
    return [[_Group("recipe", "The run as a whole.", _keys("", plain))], *sections]


def _groups_of_kinds(
    name: str, section: Mapping[str, Any], models: Mapping[str, Any]
) -> Iterator[_Group]:
    """The keys that all kinds of a section have, and for each kind those that it adds or gives another default."""
    tag, kinds = KINDS[name]
    (base,) = {kind.__base__ for kind in kinds.values()}
    assert base is not None and issubclass(base, Section)
    shared = base.model_json_schema()["properties"]
    default = (section["default"] or {tag: "inactive"})[tag]
    shared = {
        tag: {
            "enum": [*kinds],
            "default": default,
            "description": "The kind; it decides the other keys.",
        }
    } | {key: value for key, value in shared.items() if key != tag}
    yield _Group(name, section.get("description", ""), _keys(f"{name}.", shared))
    for kind, section_ in kinds.items():
        model, summary = models[section_.__name__], ""
        properties = model["properties"]
        if row := METHODS.get(kind):
            summary = row.summary
            properties = properties | {
                key: _preset(properties[key], it) for key, it in row.presets.items()
            }
        keys = {
            key: v for key, v in properties.items() if key != tag and v != shared.get(key)
        }
        yield _Group(
            f"{name}.{tag}={kind}",
            summary or _summary(model),
            _keys(f"{name}.", keys, kind),
        )


def _preset(value: Mapping[str, Any], preset: Any) -> dict[str, Any]:
    """The JSON schema of a key that a method sets: a number stays above 0, a choice is made."""
    if isinstance(preset, str):
        return {"const": preset, "default": preset, "description": value["description"]}
    bounds = {name: bound for name, bound in value.items() if name != "minimum"}
    return bounds | {"default": preset, "exclusiveMinimum": 0}


def _summary(model: Mapping[str, Any]) -> str:
    return str(model.get("description", "")).partition("\n")[0]


def _keys(prefix: str, properties: Mapping[str, Any], kind: str | None = None) -> list[Key]:
    keys = []
    for name, schema in properties.items():
        type_, range_ = _type_and_range(schema)
        default = schema.get("default", {})
        if type_.startswith("number") and isinstance(default, str):
            default = float(default)
        key = {
            "key": f"{prefix}{name}",
            "kind": kind,
            "type": type_,
            "range": range_,
            "default": default,
        }
        keys.append({**key, "description": schema.get("description", "")})
    return keys


def _type_and_range(value: Mapping[str, Any]) -> tuple[str, str]:
    """Return the type of values with this JSON schema, and which of them are allowed, in words."""
    if "anyOf" in value:
        return _alternatives(value)
    if "const" in value:
        return "choice", str(value["const"])
    if "enum" in value:
        return "choice", ", ".join(map(str, value["enum"]))
    if "$ref" in value:
        return "rules", ""
    if value["type"] == "array":
        type_, range_ = _type_and_range(value["items"])
        return "list", f"list of {range_ or type_}"
    return _TYPES[value["type"]], _range(value)


def _alternatives(value: Mapping[str, Any]) -> tuple[str, str]:
    """Return the types and ranges of a JSON schema with alternatives, in words; null comes last."""
    bounds = {name: bound for name, bound in value.items() if name != "anyOf"}
    parts = [bounds | part for part in value["anyOf"]]
    types = [part.get("type") for part in parts]
    # A decimal may be written as text, which is no type of its own.
    left_out = {"null", "string"} if "number" in types else {"null"}
    words = [_type_and_range(part) for part in parts if part.get("type") not in left_out]
    names = [type_ for type_, _ in words] + ["null"] * ("null" in types)
    return " or ".join(names), ", ".join(range_ for _, range_ in words if range_)


def _range(value: Mapping[str, Any]) -> str:
    """The bounds of a number, in words; pydantic names some as JSON schema does, and some as its own."""
    step = 1 if value["type"] == "integer" else 0  # whole numbers above 0 are at least 1
    lower = _bounds(value, ("minimum", "ge"), ("exclusiveMinimum", "gt"), step)
    upper = _bounds(value, ("maximum", "le"), ("exclusiveMaximum", "lt"), -step)
    least, is_open = max(lower, default=(-_UNLIMITED, False))
    most, is_below = min(upper, default=(_UNLIMITED, False))
    is_closed = not is_below
    if least > -_UNLIMITED and most < _UNLIMITED and is_closed and not is_open:
        return f"{least} to {most}"
    words = [f"{'above' if is_open else 'at least'} {least}"] if least > -_UNLIMITED else []
    words += [f"{'at most' if is_closed else 'below'} {most}"] if most < _UNLIMITED else []
    return ", ".join(words)


def _bounds(
    value: Mapping[str, Any], at: Sequence[str], beyond: Sequence[str], step: int
) -> list[tuple[float, bool]]:
    """Return the bounds under the names `at`, and under `beyond` with a step, each with whether it is left out."""
    bounds = [(value[name], False) for name in at if name in value]
    return bounds + [(value[name] + step, not step) for name in beyond if name in value]


def _written(value: Any) -> str:
    """A default as YAML writes it."""
    if isinstance(value, list):
        return f"[{', '.join(value)}]"
    if isinstance(value, float):
        return f"{value:g}"
    return shown(value) if value is None or isinstance(value, bool) else str(value)
