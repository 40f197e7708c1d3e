"""From keys to a recipe, or to a sentence that names the key, what is wrong and what would be right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from olr_cli.errors import UserError, did_you_mean
from olr_cli.recipe.plain_yaml import require_plain, shortened, shown
from olr_cli.recipe.schema import KINDS, Recipe

_MOST_PROBLEMS = 6
"""Of a recipe with many mistakes, so many are told."""


def validate(tree: Mapping[str, Any], source: str, called: Mapping[str, str] | None = None) -> Recipe:
    """The recipe in `tree`.

    Args:
        tree: nested keys.
        source: where they are from, for errors.
        called: dotted key -> what the user knows it as, if not by its key.

    Raises:
        UserError: one sentence that names the source, the key, what is wrong and what would be right.
    """
    require_plain(tree, source)
    tree = dict(tree)
    for name, (tag, _) in KINDS.items():
        section = tree.get(name)
        if isinstance(section, Mapping) and tag not in section:
            default = Recipe.model_fields[name].get_default()
            tree[name] = {tag: getattr(default, tag, "inactive"), **section}
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        details = error.errors()
        first, *others = [_sentence(detail, called or {}) for detail in details[:_MOST_PROBLEMS]]
        if len(details) > _MOST_PROBLEMS:
            others.append("…")
        more = f" (and {len(details) - 1} more: {'; '.join(others)})" if others else ""
        raise UserError(f"{source}: {first}{more}") from None


def _sentence(detail: Any, called: Mapping[str, str]) -> str:
    place = _dotted(detail["loc"])
    if detail["type"] == "extra_forbidden":
        alike = [key for key in _known_keys() if key.count(".") == place.count(".")]
        deeper = [key for key in _known_keys() if key.endswith(f".{place}")]
        if place in alike:  # of another kind of the section
            section, _, key = place.partition(".")
            tag, kinds = KINDS[section]
            owners = [kind for kind, model in kinds.items() if key in model.model_fields]
            return f"'{place}' is a key of {section}.{tag} {' and '.join(owners)} alone"
        hint = f" (did you mean '{deeper[0]}'?)" if deeper else did_you_mean(place, alike)
        return f"unknown key '{place}'{hint}"
    if detail["type"] == "union_tag_invalid":
        tag, expected = detail["ctx"]["discriminator"].strip("'"), detail["ctx"]["expected_tags"]
        named = detail["input"][tag]
        hint = did_you_mean(str(named), expected.replace("'", "").split(", "))
        return f"{place}.{tag} is {shown(named)}{hint}; known: {expected}"
    if detail["type"] == "value_error":
        message = str(detail["ctx"]["error"])
        return f"{place}: {message}" if place else message
    found = f"{called.get(place, place)} is {shown(detail['input'])}"
    if detail["type"] in ("tuple_type", "list_type"):
        return f"{found}: expected a list, as [{shown(detail['input'])}]"
    if detail["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return f"{found}: expected keys and their values, as {place}: {{key: value}}"
    return f"{found}: {detail['msg'][0].lower()}{detail['msg'][1:]}"


def _dotted(location: tuple[int | str, ...]) -> str:
    """A pydantic location as the key a user wrote: without the tags that tell a section's kind."""
    names = [str(part) for part in location]
    if len(names) > 1 and names[0] in KINDS and names[1] in KINDS[names[0]][1]:
        del names[1]
    return shortened(".".join(names))


def _known_keys() -> list[str]:
    keys: list[str] = []
    for name, field in Recipe.model_fields.items():
        kinds: Iterable[Any] = KINDS[name][1].values() if name in KINDS else [field.annotation]
        keys.append(name)
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                keys += [f"{name}.{inner}" for inner in kind.model_fields]
    return keys
