"""The documentation names what there is."""

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from olr_cli.data.columns import ID_COLUMNS, OF_PROMPTS
from olr_cli.recipe.methods import METHODS, MethodSection
from olr_cli.supervision.types import LabelRecord, RolloutRecord

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def named(page, heading):
    """What the first column of the tables below a heading names."""
    section = (
        (DOCS / page).read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    )
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


@pytest.mark.parametrize(
    ("heading", "record"), [("labels", LabelRecord), ("rollouts", RolloutRecord)]
)
def test_every_column_of_a_stored_table_is_described_and_no_other(heading, record):
    assert sorted(named("run-directory.md", heading)) == sorted(
        field.name for field in fields(record)
    )


def test_the_python_api_is_described_as_its_docstrings_do():
    sys.path.insert(0, str(ROOT / "tools"))
    from api_page import page

    assert (DOCS / "api.md").read_text("utf-8") == page(), (
        "run: python tools/api_page.py > docs/api.md"
    )


def test_links_between_pages_lead_somewhere():
    pages = [
        *ROOT.glob("*.md"),
        *DOCS.rglob("*.md"),
        *(ROOT / "recipes").rglob("*.md"),
        ROOT / "llms.txt",
    ]
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8"))
    ]
    for page, link in links:
        target, _, anchor = link.partition("#")
        if link.startswith("http"):
            continue
        place = page.parent / target if target else page
        assert place.exists(), f"{page}: {link}"
        if anchor:
            headings = re.findall(r"(?m)^#+ (.*)$", place.read_text("utf-8"))
            names = [
                re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
                for heading in headings
            ]
            assert anchor in names, f"{page}: {link}"


@pytest.mark.slow
def test_the_site_has_no_dead_link_and_no_page_without_a_place(tmp_path):
    """`make docs`: each warning of mkdocs is an error."""
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--site-dir",
            tmp_path / "site",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert built.returncode == 0, built.stderr
    first = (tmp_path / "site" / "index.html").read_text("utf-8")
    assert 'href="tutorial/"' in first and "olr train laptop/quickstart" in first
    assert (tmp_path / "site" / "examples" / "label_rules.py").exists()


def test_every_method_and_every_key_of_methods_is_described():
    text = (DOCS / "methods.md").read_text("utf-8")
    for name in METHODS:
        assert f"| `{name}` |" in text
    for key in MethodSection.model_fields.keys() - {"name"}:
        assert f"| `{key}` |" in text


def test_the_findings_of_a_check_are_described_as_their_table_does():
    from findings_table import page

    assert (DOCS / "data.md").read_text("utf-8") == page(), (
        "run: python tools/findings_table.py"
    )


def test_the_columns_that_are_recognised_are_described():
    text = (DOCS / "data.md").read_text("utf-8").split("\n## Columns\n")[1]
    rows = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| ")]
    names = {what.strip(): re.findall(r"`([\w.]+)`", cell) for what, cell in rows}
    for what, role in (("question", "question"), ("label", "answer")):
        known = list(OF_PROMPTS[role].known)
        assert names[what][: len(known)] == known
    assert names["id"] == list(ID_COLUMNS[: len(names["id"])])
