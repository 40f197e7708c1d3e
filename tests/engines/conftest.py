"""A model that tests may damage."""

import shutil
from pathlib import Path

import pytest

from olr_cli.engines.models import policy_path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Copy a built-in policy, which the test may damage, and return the folder."""
    return Path(shutil.copytree(policy_path("addition-easier"), tmp_path / "model"))
