"""A model that tests may damage."""

import shutil
from pathlib import Path

import pytest

from olr_cli.engines.models import policy_path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a copy of a built-in policy."""
    return Path(shutil.copytree(policy_path("addition-easier"), tmp_path / "model"))
