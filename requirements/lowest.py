"""The lowest versions that pyproject.toml admits, as pip's constraints: `make test-lowest` runs the tests with them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

LOWEST = re.compile(r"(?P<name>[A-Za-z0-9._-]+)>=(?P<version>[0-9.]+)(,<[0-9.]+)?")


def constraints(pyproject: Path) -> list[str]:
    """A line for every dependency of the package that has a lower bound; what is pinned needs none."""
    project = tomllib.loads(pyproject.read_text("utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["train"]]
    bounds = filter(None, map(LOWEST.fullmatch, wanted))
    return [f"{bound['name']}=={bound['version']}" for bound in bounds]


if __name__ == "__main__":
    print("\n".join(constraints(Path(__file__).parents[1] / "pyproject.toml")))
