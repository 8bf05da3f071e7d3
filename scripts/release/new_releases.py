#!/usr/bin/env python3
"""What new releases of the engines changed: the ledgers as they lie here, beside those of a commit. Prints Markdown.

    make update && python -m scripts.release.new_releases --since HEAD
    python -m scripts.release.new_releases --since HEAD --list
        ENGINE==RELEASE of each new release, a line each

Exit 3 where no ledger has a release that the commit does not have.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from packaging.version import Version

from attnfix.compat.engines import ENGINES
from attnfix.compat.gate import ledger
from attnfix.compat.gate.index import Index

ROOT = Path(__file__).resolve().parents[2]
Verdicts = Mapping[str, Mapping[str, str]]  # {fix: {release: verdict}}


def verdicts(known: Index) -> Verdicts:
    fixes = {name: known.line(f"fix {name}")["codes"] for name in known.fixes}
    return {
        name: {release: verdict for _, verdict, span in codes for release in known.names(known.bits(span))}
        for name, codes in fixes.items()
    }


def committed(commit: str) -> Verdicts:
    """Those of a commit."""
    found: dict[str, Mapping[str, str]] = {}
    for engine in ENGINES:
        shown = subprocess.run(["git", "show", f"{commit}:{_path(engine).relative_to(ROOT)}"], cwd=ROOT, capture_output=True)
        found |= verdicts(Index(shown.stdout)) if shown.returncode == 0 else {}
    return found


def here() -> Verdicts:
    found: dict[str, Mapping[str, str]] = {}
    for engine in ENGINES:
        found |= verdicts(Index(_path(engine).read_bytes()))
    return found


def _path(engine: str) -> Path:
    return ROOT / "patches" / engine / "index.json"


def new(before: Verdicts, now: Verdicts) -> dict[tuple[str, str], dict[str, str]]:
    """{(engine, release): {fix: verdict}} of releases that no ledger of the engine had, in order."""
    known = {(fix.partition(".")[0], release) for fix, releases in before.items() for release in releases}
    found: dict[tuple[str, str], dict[str, str]] = {}
    for fix, releases in now.items():
        for release, verdict in releases.items():
            if (pair := (fix.partition(".")[0], release)) not in known:
                found.setdefault(pair, {})[fix] = verdict
    return dict(sorted(found.items(), key=lambda item: (item[0][0], Version(item[0][1]))))


def told(changed: Mapping[tuple[str, str], Mapping[str, str]]) -> str:
    """A paragraph for each release, and its table."""
    parts = []
    for (engine, release), judged in changed.items():
        affected = [fix for fix, verdict in judged.items() if verdict == ledger.AFFECTED]
        name = f"{engine} {release}"
        needs = f"It has {_bugs(len(affected))}: {', '.join(affected)}." if affected else "It has none of these bugs."
        rows = "\n".join(f"| {fix} | {verdict} |" for fix, verdict in judged.items())
        parts.append(
            f"## {name}\n\n{name} was judged for {len(judged)} fixes. {needs}\n\n| fix | verdict |\n|---|---|\n{rows}\n"
        )
    return "\n".join(parts)


def _bugs(count: int) -> str:
    return "one of their bugs" if count == 1 else f"{count} of their bugs"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--since", default="HEAD", help="the commit whose ledgers are known")
    arguments.add_argument("--list", action="store_true", help="only the names of the releases")
    options = arguments.parse_args()
    changed = new(committed(options.since), here())
    print("\n".join(f"{engine}=={release}" for engine, release in changed) if options.list else told(changed))
    return 0 if changed else 3


if __name__ == "__main__":
    sys.exit(main())
