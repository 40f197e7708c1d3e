"""Data inside an HTML page: compressed, in elements that no browser runs."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olr_cli.tables.markup import element, html


@dataclass(frozen=True)
class Block:
    """A piece of data that the page's script can ask for by name.

    Attributes:
        name: unique in the page.
        kind: ``json``, or the element type of an array.
        content: the bytes, uncompressed.
    """

    name: str
    kind: str
    content: bytes

    def html(self) -> str:
        """An inert ``script`` element: base64 (RFC 4648) of a zlib stream (RFC 1950)."""
        packed = base64.b64encode(zlib.compress(self.content)).decode("ascii")
        return html([element("script", packed, type="text/plain", id=self.name, data_kind=self.kind)])


def json_block(name: str, value: Any) -> Block:
    """Any JSON value."""
    return Block(name, "json", json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii"))


def array_blocks(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> list[Block]:
    """Arrays of whole numbers from 0, each in the smallest of 8, 16 and 32 bits that holds it, little-endian."""
    blocks = []
    for name, values in arrays.items():
        bits = 8 * np.min_scalar_type(int(values.max(initial=0))).itemsize
        blocks.append(Block(f"{prefix}-{name}", f"u{bits}", values.astype(f"<u{bits // 8}").tobytes()))
    return blocks
