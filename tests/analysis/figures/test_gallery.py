"""The pictures of docs/gallery.md: each is drawn by the code that is here, or known to be older."""

import json
import runpy
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[3]
GALLERY = runpy.run_path(str(HERE / "benchmarks" / "gallery.py"))
DRAWN = json.loads((HERE / "docs" / "gallery" / "drawn-by.json").read_text())


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="other versions of Python have another syntax tree"
)
@pytest.mark.parametrize("entry", GALLERY["ENTRIES"], ids=lambda entry: entry.name)
def test_a_picture_is_of_the_code_that_is_here_or_known_to_be_older(entry):
    remedy = f"its code has changed: python benchmarks/gallery.py --only {entry.name} (or --unchanged, after a look)"
    assert DRAWN[entry.name] in (GALLERY["code_of"](entry.figure), None), remedy


def test_the_page_shows_every_picture_and_says_which_are_older():
    text = (HERE / "docs" / "gallery.md").read_text()
    took = next(line for line in text.splitlines() if " runs took " in line)
    assert text == GALLERY["page"](took)
    pictures = {file.stem for file in (HERE / "docs" / "gallery").glob("*.png")}
    assert pictures == {entry.name for entry in GALLERY["ENTRIES"]} == DRAWN.keys()
