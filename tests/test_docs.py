"""The documentation names what there is."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from olr_cli.recipe.schema import METHODS, MethodSection
from olr_cli.supervision.types import LabelRecord, RolloutRecord

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def named(page, heading):
    """What the first column of the tables below a heading names."""
    section = (DOCS / page).read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


@pytest.mark.parametrize(("heading", "record"), [("labels", LabelRecord), ("rollouts", RolloutRecord)])
def test_every_column_of_a_stored_table_is_described_and_no_other(heading, record):
    assert sorted(named("run-directory.md", heading)) == sorted(field.name for field in fields(record))


def test_every_method_and_every_key_of_methods_is_described():
    text = (DOCS / "methods.md").read_text("utf-8")
    for section in METHODS:
        assert f"| `{section.model_fields['name'].default}` |" in text
    for key in MethodSection.model_fields.keys() - {"name"}:
        assert f"| `{key}` |" in text


def test_the_map_has_a_line_for_every_file():
    lines = (
        (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("## The map")[1].split("\n## ")[0].splitlines()
    )
    named, folder = set(), Path()
    for line in lines:
        if entry := re.match(r"    (  )?([\w/]+(?:/|\.py)) ", line):
            is_inside, name = entry.groups()
            folder = folder if is_inside else Path(name if name.endswith("/") else "")
            named |= {str(folder / name)} if name.endswith(".py") else set()
    package = ROOT / "olr_cli"
    files = {
        str(file.relative_to(package)) for file in package.rglob("*.py") if not file.stem.startswith("__")
    }
    assert named == files
