"""What every section of a recipe has in common."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainSerializer

Exact = Annotated[Decimal, PlainSerializer(float, when_used="json")]
"""A number compared as written, not as the nearest double (R12)."""


class Section(BaseModel):
    """A part of a recipe: immutable, and closed to keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
