"""Data that tests of several rooms read: an excerpt of DAPO, the published files, and rows as JSON Lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parent / "fixtures" / "dapo_sample.parquet"
NOISY_SAMPLE = SAMPLE.with_name("dapo_sample_noise_0.5.parquet")
SHARED = Path(__file__).parents[2] / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the published data are not beside this clone")


def json_lines(path: Path, *rows: object) -> Path:
    """The file, with a line of JSON for every row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
