"""A hook of mkdocs: pages outside docs/, and files that pages link to, become part of the site, under their own paths.

So a link works in a checkout, where it leads to a file beside docs/, and on the site. The README of the repository is
the first page, and that of docs/ the list of pages.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

PAGES = {
    "README.md": "index.md",
    "docs/README.md": "pages.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CODE_OF_CONDUCT.md": "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "examples/README.md": "examples/README.md",
    "recipes/laptop/README.md": "recipes/laptop/README.md",
    "recipes/paper/README.md": "recipes/paper/README.md",
}
"""Page -> its path on the site, if it is not that below docs/."""

_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of `PAGES`, and the other files of the repository that any page links to."""
    files.remove(next(file for file in files if file.src_uri == "README.md"))
    sources = {file.src_uri: Path(file.abs_src_path) for file in files}
    for page, place in PAGES.items():
        files.append(_file(ROOT / page, place, config))
        sources[place] = ROOT / page
    pages = [source for source in sources.values() if source.suffix == ".md"]
    for target in sorted({linked for page in pages for linked in _linked(page)}):
        place = _place(target)
        if place not in sources:
            files.append(_file(target, place, config))
            sources[place] = target
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links to where their targets are on the site."""
    source = Path(page.file.abs_src_path)
    start = Path(page.file.src_uri).parent

    def moved(link: re.Match[str]) -> str:
        target = _target(source, link[2])
        if target is None:
            return link[0]
        return f"{link[1]}{os.path.relpath(_place(target), start)}{link[3]}"

    return _LINK.sub(moved, markdown)


def _file(source: Path, place: str, config: Any) -> File:
    return File.generated(config, place, abs_src_path=str(source))


def _linked(page: Path) -> list[Path]:
    found = (_target(page, link[2]) for link in _LINK.finditer(page.read_text("utf-8")))
    return [target for target in found if target is not None]


def _target(page: Path, link: str) -> Path | None:
    """Return the file of the repository that a link leads to; of a folder, its README."""
    if ":" in link:
        return None
    target = (page.parent / link).resolve()
    if target.is_dir():
        target /= "README.md"
    return target if target.is_file() and target.is_relative_to(ROOT) else None


def _place(target: Path) -> str:
    """Return the path on the site of a file of the repository."""
    path = target.relative_to(ROOT).as_posix()
    return PAGES.get(path, path.removeprefix("docs/"))
