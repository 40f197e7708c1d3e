"""Building blocks of a recipe's sections: types of values, and keys with their line in the reference."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
)
from pydantic_core import PydanticCustomError

_MOST_PLACES = 30
"""Most decimal places of an exact number."""

LEAST_TEMPERATURE = 0.001
"""Smallest temperature: below it, logits / temperature overflow float32."""


def _as_written(number: Decimal) -> float | str:
    """Return an exact decimal number in a form that JSON and YAML can hold, without rounding it.

    This is a float if the float is printed as the same number (0.05), else a text (``0.12345678901234567890``).
    """
    # `repr` is the shortest text of a float: 0.05 stays a number, and 0.12345678901234567890 becomes text.
    return float(number) if Decimal(repr(float(number))) == number else str(number)


def _require_few_places(number: Decimal) -> Decimal:
    """Return the number; raise pydantic's error if it has more than `_MOST_PLACES` decimal places.

    The number is later used as an exact fraction. With too many places, this could exhaust memory.
    """
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and exponent < -_MOST_PLACES:
        raise PydanticCustomError(
            "places", f"Input should have no more than {_MOST_PLACES} decimal places"
        )
    return number


def require_number(value: Any) -> Any:
    """Return the value unchanged; raise pydantic's error if it is true or false.

    pydantic would read true and false as 1 and 0. Whether any other value is a number is left to pydantic.
    """
    if isinstance(value, bool):
        raise PydanticCustomError(
            "truth", "Input should be a number, neither true nor false"
        )
    return value


def _require_not_tiny(temperature: float) -> float:
    """Return the temperature; raise pydantic's error if it is above 0 but below `LEAST_TEMPERATURE`.

    Logits divided by such a temperature would overflow float32. 0 is allowed, because it means greedy sampling, which
    divides nothing.
    """
    if 0 < temperature < LEAST_TEMPERATURE:
        raise PydanticCustomError(
            "tiny",
            f"Input should be at least {LEAST_TEMPERATURE}: samples below it are those of the most likely token",
        )
    return temperature


_EXTRACTOR_KINDS = ("regex", "after", "tag", "function")
"""Extractors with a setting, as `olr_cli.answers.find_extractor` reads them."""


def _extractor_as_text(value: Any) -> Any:
    """Turn an extractor that is written as a mapping, ``{after: "####"}``, into the text ``after:####``.

    An extractor says how answers are read from responses. ``{function: "mine.py:read"}`` becomes ``mine.py:read``,
    without the word ``function``. Anything but a mapping is returned unchanged.

    Raise pydantic's error unless the mapping has exactly one key, this key is a known kind, and its value is a text.
    """
    if not isinstance(value, dict):
        return value
    kind, setting = next(iter(value.items()), ("", None))
    if (
        len(value) != 1
        or kind not in _EXTRACTOR_KINDS
        or not isinstance(setting, str)
        or not setting.strip()
    ):
        raise PydanticCustomError(
            "extractor",
            f"Expected a name, or one of {', '.join(_EXTRACTOR_KINDS)} and its text, as {{after: '####'}}",
        )
    return setting if kind == "function" else f"{kind}:{setting}"


def _require_text(text: str) -> str:
    """Return the text unchanged; raise ValueError if it is empty or only white space."""
    if not text.strip():
        raise ValueError("the text is empty; fill it in, or leave the key out")
    return text


Exact = Annotated[
    Decimal,
    Field(gt=-1_000_000, lt=1_000_000),
    AfterValidator(_require_few_places),
    PlainSerializer(_as_written, when_used="json"),
]
"""A number compared as written, not as the nearest double (R12)."""
Ratio = Annotated[Exact, Field(ge=0, le=1)]
Number = Annotated[float, BeforeValidator(require_number)]
Tolerance = Annotated[Number, Field(ge=0, lt=1)]
Temperature = Annotated[Number, Field(ge=0), AfterValidator(_require_not_tiny)]
Whole = Annotated[int, BeforeValidator(require_number), Field(ge=-(2**63), lt=2**63)]
"""A whole number of 64 bits."""

Count = Annotated[Whole, Field(gt=0, lt=2**31)]
"""A number of things, at least 1, that fits 32 bits."""

Epochs = Annotated[Whole, Field(ge=0, lt=2**31)]
"""A number of epochs, which may be 0."""

Text = Annotated[str, AfterValidator(_require_text)]
FUNCTION = r"^(.+\.py|[\w.]+):[^\W\d]\w*$"
"""The pattern of `file.py:function` and `package.module:function`."""
ExtractorText = Annotated[Text, BeforeValidator(_extractor_as_text)]
"""How answers are read, in a recipe as in a benchmark: a name, or a kind and its text (R6)."""


def default(value: Any, description: str, **bounds: Any) -> Any:
    """Declare a key of a recipe: its default, its description in `olr recipes keys`, and bounds such as ``ge=0``."""
    return Field(default=value, description=description, **bounds)


class Section(BaseModel):
    """Base class of a recipe and its sections: immutable, and raises for unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def plain(self) -> dict[str, Any]:
        """Return all keys and their values as nested dictionaries for YAML or JSON.

        A key that is null is left out if null is also its default.
        """
        # A null is written if it is not the default: the key would otherwise get its default when it is read again.
        nested = {name: value.plain() for name, value in self if isinstance(value, Section)}
        return {
            name: value
            for name, value in (self.model_dump(mode="json") | nested).items()
            if value is not None or self.default_of(name) is not None
        }

    def default_of(self, key: str) -> Any:
        """Return the default of a key, or None if the section has no such key."""
        field = type(self).model_fields.get(key)
        return None if field is None else field.get_default()


def flatten(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested dictionaries as one dictionary: dotted key -> value.

    `prefix` is put before every key. A key whose value is an empty dictionary is left out.
    """
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
