"""docs/gallery.md is the page that benchmarks/gallery.py writes."""

import runpy
from pathlib import Path

HERE = Path(__file__).parents[3]
GALLERY = runpy.run_path(str(HERE / "benchmarks" / "gallery.py"))


def test_the_page_shows_every_picture():
    text = (HERE / "docs" / "gallery.md").read_text()
    took = next(line for line in text.splitlines() if " runs took " in line)
    assert text == GALLERY["page"](took)
    pictures = {file.stem for file in (HERE / "docs" / "gallery").glob("*.png")}
    assert pictures == {entry.name for entry in GALLERY["ENTRIES"]}
