#!/usr/bin/env python3
"""Prints the notes of a release: its section of CHANGELOG.md, whose lines of fixes come from the fixes.

    python -m scripts.release.notes v1.0.0

Exit 1 where the tag is not the version of pyproject.toml, or the changelog has no dated section for it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[2]


def section(changelog: str, version: str) -> str:
    """The text below `## VERSION (YYYY-MM-DD)`, without the marks of what is generated. Raises ValueError."""
    heading = rf"^## {re.escape(version)} \(([^)\n]*)\)\n(.*?)(?=^## |\Z)"
    found = re.search(heading, changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"CHANGELOG.md has no section `## {version} (date)`")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", found[1]):
        raise ValueError(f"CHANGELOG.md calls {version} {found[1]!r}: write the date of its release there")
    return re.sub(r"^<!--.*-->\n", "", found[2], flags=re.MULTILINE).strip() + "\n"


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python -m scripts.release.notes TAG", file=sys.stderr)
        return 2
    tag, version = sys.argv[1], tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if tag != f"v{version}":
        print(f"the tag is {tag}, but pyproject.toml says {version}: the tag must be v{version}", file=sys.stderr)
        return 1
    try:
        print(section((ROOT / "CHANGELOG.md").read_text(), version), end="")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
