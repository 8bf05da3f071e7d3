"""The site beside docs/: pages of fixes, the table with filters, transcripts, and a page for each source that a page links to.

Pages of docs/ link to `patches/…/fix.py` and to `scripts/pages/transcripts.py`, so that their links hold in the repository. On
the site these links lead to the pages that are made of those files.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from scripts.pages import fix_pages, support_page, transcripts

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<to>[^)\s#]+)(?P<anchor>#[^)]*)?\)")
#: Where a page says behind its text where a link of it leads
_DEFINED = re.compile(r"^\[(?P<text>[^\]]+)\]: (?P<to>\S+)$", re.M)
_LANGUAGES = {".py": "python", ".cu": "cuda", ".cuh": "cuda", ".json": "json", ".toml": "toml", ".pth": "python", ".sh": "bash"}
_UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
_STYLE = Path(__file__).with_name("site.css")
#: Source that pages of docs/ link to → page that is made of it
_MADE = {**fix_pages.sources(), "scripts/pages/transcripts.py": "transcripts.md"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    written = [page.relative_to(config.docs_dir).as_posix() for page in Path(config.docs_dir).rglob("*.md")]
    config.nav = _expanded(config.nav or [], [*written, *fix_pages.pages()])
    return config


def _expanded(nav: list[Any], pages: list[str]) -> list[Any]:
    """`nav`, where `FOLDER/*` is the list of that folder's pages; its README comes first."""
    found = []
    for entry in nav:
        if isinstance(entry, dict):
            ((title, inside),) = entry.items()
            if isinstance(inside, str) and inside.endswith("/*"):
                inside = sorted(fnmatch.filter(pages, inside), key=lambda name: ("README" not in name, name))
            elif isinstance(inside, list):
                inside = _expanded(inside, pages)
            entry = {title: inside}
        found.append(entry)
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the style, the pages that are made here, and a page for each source file that a page links to."""
    made = {name: write() for name, write in fix_pages.pages().items()}
    made |= {"support.html": support_page.page("support.html"), "transcripts.md": transcripts.kept()}
    for name, content in {"site.css": _STYLE.read_text(), **made}.items():
        files.append(File.generated(config, name, content=content))
    for path in sorted({path for page in list(files.documentation_pages()) for path in _sources(page)}):
        files.append(File.generated(config, f"{_page_of(path)}", content=_shown(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links out of docs/ go to the pages of these sources, and links to a table of releases to the one that can be filtered."""

    def turned(link: re.Match[str]) -> str:
        if posixpath.basename(link["to"]) == "support.md":
            return f"[{link['text']}]({link['to'].removesuffix('md')}html{link['anchor'] or ''})"
        to = within(link["to"])
        return f"[{link['text']}]({to}{link['anchor'] or ''})" if to else link[0]

    def within(to: str) -> str | None:
        path = _outside(page.file, to)
        here = posixpath.dirname(page.file.src_uri) or "."
        return path and posixpath.relpath(_made(page.file, path) or _page_of(path), here)

    def defined(link: re.Match[str]) -> str:
        return f"[{link['text']}]: {within(link['to']) or link['to']}"

    return _DEFINED.sub(defined, _LINK.sub(turned, markdown))


def on_post_build(config: MkDocsConfig) -> None:
    """The page of its own leads back into the site."""
    page = Path(config.site_dir, "support.html")
    page.write_text(page.read_text().replace('href="README.md"', 'href="index.html"').replace('.md">', '.html">'))


def _sources(file: File) -> set[str]:
    links = (*_LINK.finditer(file.content_string), *_DEFINED.finditer(file.content_string))
    found = {path for link in links if (path := _outside(file, link["to"]))}
    return {path for path in found if not _made(file, path)}


def _made(file: File, path: str) -> str | None:
    """The page that is made of that source. Pages of fixes show their sources themselves."""
    return None if file.src_uri.startswith(f"{fix_pages.FOLDER}/") else _MADE.get(path)


def _outside(file: File, to: str) -> str | None:
    """The path in the project that a link of this page leads to, where that is not in docs/."""
    if "://" in to or to.startswith("mailto:"):
        return None
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(file.src_uri), to))
    return None if path.startswith("docs/") else path


def _page_of(path: str) -> str:
    return path if path.endswith(".md") else f"sources/{path}.md"


def _shown(path: str) -> str:
    source = ROOT / path
    if source.is_dir():
        listed = "\n".join(f"- `{inside.name}`" for inside in sorted(source.iterdir()) if not inside.name.startswith("__"))
        return f"{_UNSEARCHED}# {path}\n\n{listed}\n"
    text = source.read_text()
    if source.suffix == ".md":
        return text
    return f"{_UNSEARCHED}# {path}\n\n``````{_LANGUAGES.get(source.suffix, 'text')}\n{text}``````\n"
