"""A hook of mkdocs that adds pages outside docs/, and files to which pages link, to the site under their own paths.

A link therefore works in a checkout, where it leads to a file beside docs/, and on the site. The README of the
repository is the first page, and that of docs/ is the list of pages.
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
"""Page -> its path on the site, if that is not its path below docs/."""

_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
"""A link to a file: `[text](other.md#section)`."""


def on_files(files: Files, config: Any) -> Files:
    """Add pages outside docs/ to the site, such as the README, and every file of the repository that pages link to.

    mkdocs calls this with the files below docs/, and builds the site from the files that are returned.
    """
    # mkdocs would make docs/README.md the first page.
    files.remove(next(file for file in files if file.src_uri == "README.md"))
    sources = {file.src_uri: Path(file.abs_src_path) for file in files}
    for page, site_path in PAGES.items():
        files.append(_file(ROOT / page, site_path, config))
        sources[site_path] = ROOT / page
    pages = [source for source in sources.values() if source.suffix == ".md"]
    for target in sorted({linked for page in pages for linked in _linked(page)}):
        site_path = _site_path(target)
        if site_path not in sources:
            files.append(_file(target, site_path, config))
            sources[site_path] = target
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page's Markdown, in which links to files of the repository are relative paths on the site.

    mkdocs calls this for each page. Broken links, and links to other places, stay as they are.
    """
    source = Path(page.file.abs_src_path)
    start = Path(page.file.src_uri).parent

    def moved(link: re.Match[str]) -> str:
        target = _target(source, link[2])
        if target is None:
            return link[0]
        return f"{link[1]}{os.path.relpath(_site_path(target), start)}{link[3]}"

    return _LINK.sub(moved, markdown)


def _file(source: Path, site_path: str, config: Any) -> File:
    """Return an entry of mkdocs for a file with the content of `source` and the path `site_path` on the site."""
    return File.generated(config, site_path, abs_src_path=str(source))


def _linked(page: Path) -> list[Path]:
    """Return the files of the repository to which a Markdown page links."""
    found = (_target(page, link[2]) for link in _LINK.finditer(page.read_text("utf-8")))
    return [target for target in found if target is not None]


def _target(page: Path, link: str) -> Path | None:
    """Return the file of the repository to which a page's link leads.

    For a link to a folder, it is the README.md in the folder. The result is None if the link is a URL or a mail
    address, leads out of the repository, or leads nowhere.
    """
    # A colon means a URL, or a mail address.
    if ":" in link:
        return None
    target = (page.parent / link).resolve()
    if target.is_dir():
        target /= "README.md"
    # A link may also lead out of the repository, or nowhere: mkdocs reports these.
    return target if target.is_file() and target.is_relative_to(ROOT) else None


def _site_path(target: Path) -> str:
    """Return the path that a file of the repository has on the site."""
    path = target.relative_to(ROOT).as_posix()
    return PAGES.get(path, path.removeprefix("docs/"))
