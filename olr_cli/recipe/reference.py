"""The reference of recipe keys: the output of `olr recipes keys`, and docs/recipe-keys.md."""

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
"""Type in JSON schema -> its words in the reference."""

_UNLIMITED = 1_000_000
"""Bounds beyond this are technical (64 bits), so the reference does not print them."""

_WIDEST = 40
"""Most characters of a key's values in a terminal. Only lists of kinds are longer, and the kinds follow there
anyway.
"""

_INTRODUCTION = """# Recipe keys

Every key that a recipe file, `--set KEY=VALUE` and a sweep can set. A key that a recipe leaves out has its default: the
paper's setting, where the paper gives one. `olr recipes keys PREFIX` prints the keys that begin with PREFIX, and
`olr recipes show RECIPE --resolved` the values of a recipe. A recipe file may also have `base`, the recipe that it
builds on: a path relative to the file, or the name of a recipe that comes with olr.

This page is made by `olr recipes keys --format markdown > docs/recipe-keys.md` from `olr_cli/recipe/`."""


Key = dict[str, Any]
"""A key: its dotted name (`key`), its `type` in words, its allowed values (`range`, in words; empty for all), its
`default` and its `description`. `kind` is the only kind of the section that has the key with this meaning, or None.
"""


class _Group(NamedTuple):
    """Recipe keys that stand below one title in the reference of keys (`olr recipes keys`).

    The title is a section's name, such as ``method``, or one variant of a section, such as ``method.name=olr``.
    """

    title: str
    summary: str
    keys: Sequence[Key]


def key_table(prefix: str = "") -> Table:
    """Return a table of the recipe keys whose dotted names begin with `prefix`, one part of the table per section.

    A row shows a key's name, allowed values and default. In Markdown, a further column has the key's meaning. In a
    terminal, the meaning is on a line of its own below the row.

    Some sections have several variants, such as the methods. Keys of one variant stand below a row that names it, such
    as ``method.name=olr``. Raise UserError if no key begins with `prefix`.
    """
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
    """Return two table rows for a key: one with its name, values, default and meaning, and one with the meaning alone.

    A document shows only the first row. A terminal is too narrow for the column of meanings. It shows the first row
    without this column, and the second row below.
    """
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
    """Return the recipe keys that begin with `prefix` as a page of Markdown, with a table per section.

    Raise UserError if no key begins with `prefix`.
    """
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
    """Return the groups of recipe keys for the reference, one list per section.

    The first group of a section has the keys that all its kinds share. A section with several kinds, such as the
    methods, has one more group per kind, with the keys special to this kind. The first list has a single group called
    ``recipe``, with the keys outside of sections, such as ``seed``.
    """
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
    """Yield the group of keys that all kinds of a section share, then one group per kind with the keys special to it.

    A kind is a variant of a section, such as the method olr. A key is special to a kind if other kinds lack it, or if
    its default or range differs from the shared one.

    Args:
        name: the section's name, such as ``method``.
        section: the section's entry in the JSON schema of a recipe.
        models: class name -> JSON schema of the class.
    """
    tag, kinds = KINDS[name]
    (base,) = {kind.__base__ for kind in kinds.values()}
    assert base is not None and issubclass(base, Section)
    shared = base.model_json_schema()["properties"]
    # Noise is null by default; its section, once it is written, is inactive by default.
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
        # A kind's class repeats the shared keys; only those with another default or range are listed again.
        keys = {
            key: v for key, v in properties.items() if key != tag and v != shared.get(key)
        }
        yield _Group(
            f"{name}.{tag}={kind}",
            summary or _summary(model),
            _keys(f"{name}.", keys, kind),
        )


def _preset(value: Mapping[str, Any], preset: Any) -> dict[str, Any]:
    """Return the JSON schema of a key, changed for a method that gives the key a value of its own (a preset).

    The preset becomes the default. If it is a text, no other value is allowed. If it is a number, any number above 0 is
    allowed.

    Args:
        value: the key's JSON schema under other methods.
        preset: the value that the method gives the key.
    """
    if isinstance(preset, str):
        return {"const": preset, "default": preset, "description": value["description"]}
    bounds = {name: bound for name, bound in value.items() if name != "minimum"}
    return bounds | {"default": preset, "exclusiveMinimum": 0}


def _summary(model: Mapping[str, Any]) -> str:
    """Return the first line of a section's docstring, given the JSON schema of its class; empty if it has none."""
    return str(model.get("description", "")).partition("\n")[0]


def _keys(prefix: str, properties: Mapping[str, Any], kind: str | None = None) -> list[Key]:
    """Return keys of a section as entries of the reference: name, kind, type, range, default and description.

    Args:
        prefix: put before each name, such as ``train.``.
        properties: name of a key -> its JSON schema.
        kind: the only kind of the section for which the entries hold, such as ``olr``; None if they hold for all kinds.
    """
    keys = []
    for name, schema in properties.items():
        type_, range_ = _type_and_range(schema)
        default = schema.get("default", {})
        # A Decimal's default is text in pydantic's JSON schema.
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
    """Return the type of the values that a JSON schema allows, and their range, both in words.

    An example is ``("whole number", "at least 1")``. The range is empty if all values of the type are allowed.
    """
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
    """Return type and range of a JSON schema with ``anyOf``, both in words: ``("number or null", "0 to 1")``."""
    bounds = {name: bound for name, bound in value.items() if name != "anyOf"}
    parts = [bounds | part for part in value["anyOf"]]
    types = [part.get("type") for part in parts]
    # A decimal may be written as text, which the reference need not mention.
    left_out = {"null", "string"} if "number" in types else {"null"}
    words = [_type_and_range(part) for part in parts if part.get("type") not in left_out]
    names = [type_ for type_, _ in words] + ["null"] * ("null" in types)
    return " or ".join(names), ", ".join(range_ for _, range_ in words if range_)


def _range(value: Mapping[str, Any]) -> str:
    """Return the bounds of a number in words, as in ``0 to 1`` or ``at least 1``; empty if it has none.

    `value` is the JSON schema of the number. pydantic writes some bounds under JSON schema's names (``minimum``) and
    others under its own (``ge``). Bounds of a million or more are left out, because they are technical limits, such as
    64 bits, that no sensible value comes near.
    """
    # Whole numbers above 0 are at least 1; say it this way for both bounds.
    step = 1 if value["type"] == "integer" else 0
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
    value: Mapping[str, Any], inclusive: Sequence[str], exclusive: Sequence[str], step: int
) -> list[tuple[float, bool]]:
    """Return the bounds that a JSON schema gives for a number, as pairs (bound, whether the bound itself is excluded).

    A call returns either lower bounds or upper bounds, depending on the names that are passed.

    Args:
        value: the JSON schema of the number.
        inclusive: the schema's names for bounds that are allowed values, such as ``minimum``.
        exclusive: the schema's names for bounds that are not allowed values, such as ``exclusiveMinimum``.
        step: a number that is added to exclusive bounds. With 1 or -1, bounds of whole numbers become inclusive: "above
            0" becomes "at least 1". With 0, bounds stay exclusive.
    """
    bounds = [(value[name], False) for name in inclusive if name in value]
    return bounds + [(value[name] + step, not step) for name in exclusive if name in value]


def _written(value: Any) -> str:
    """Return the default of a key as text, written as in YAML."""
    if isinstance(value, list):
        return f"[{', '.join(value)}]"
    if isinstance(value, float):
        return f"{value:g}"
    return shown(value) if value is None or isinstance(value, bool) else str(value)
