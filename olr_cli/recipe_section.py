"""What every section of a recipe has in common."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainSerializer

Exact = Annotated[Decimal, PlainSerializer(float, when_used="json")]
"""A number compared as written, not as the nearest double (R12)."""


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
