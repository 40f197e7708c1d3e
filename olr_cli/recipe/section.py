"""What every section of a recipe has in common."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic_core import PydanticCustomError

_MOST_PLACES = 30


def _written(number: Decimal) -> float | str:
    """An exact number as JSON and YAML take it: a float where one says the same, else its digits as text."""
    return float(number) if Decimal(repr(float(number))) == number else str(number)


def _few_places(number: Decimal) -> Decimal:
    """Refuse what as a fraction could have more digits than memory holds."""
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and exponent < -_MOST_PLACES:
        raise PydanticCustomError("places", f"Input should have no more than {_MOST_PLACES} decimal places")
    return number


Exact = Annotated[
    Decimal,
    Field(gt=-1_000_000, lt=1_000_000),
    AfterValidator(_few_places),
    PlainSerializer(_written, when_used="json"),
]
"""A number compared as written, not as the nearest double (R12)."""


def no_truth(value: Any) -> Any:
    """Refuse true and false, which pydantic would take for 1 and 0."""
    if isinstance(value, bool):
        raise PydanticCustomError("truth", "Input should be a number, neither true nor false")
    return value


Number = Annotated[float, BeforeValidator(no_truth)]
Whole = Annotated[int, BeforeValidator(no_truth), Field(ge=-(2**63), lt=2**63)]
Count = Annotated[Whole, Field(gt=0, lt=2**31)]


LEAST_TEMPERATURE = 0.001
"""A smaller one turns logits into numbers that float32 does not have."""


def _not_tiny(temperature: float) -> float:
    if 0 < temperature < LEAST_TEMPERATURE:
        raise PydanticCustomError(
            "tiny",
            f"Input should be at least {LEAST_TEMPERATURE}: samples below it are those of the most likely token",
        )
    return temperature


Temperature = Annotated[Number, Field(ge=0), AfterValidator(_not_tiny)]


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("the text is empty; fill it in, or leave the key out")
    return text


Text = Annotated[str, AfterValidator(_not_blank)]


class Section(BaseModel):
    """A part of a recipe: immutable, and closed to keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def plain(self) -> dict[str, Any]:
        """The section resolved, as YAML/JSON values; empty keys are left out where they are empty by default too."""
        nested = {name: value.plain() for name, value in self if isinstance(value, Section)}
        return {
            name: value
            for name, value in (self.model_dump(mode="json") | nested).items()
            if value is not None or type(self).model_fields[name].default is not None
        }
