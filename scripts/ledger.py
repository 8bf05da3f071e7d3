#!/usr/bin/env python3
"""Makes the ledger of every fix from published releases: digests from their code, verdicts from running their code.

    python scripts/ledger.py            fetch, run each release stock, write patches/*/*/ledger.json and what is generated
    python scripts/ledger.py --check    recompute digests and generated files and run one release of each code; fail if
                                        anything differs

A release is `affected` where the stock scenario of the fix gives a wrong result. A right result is `fixed upstream` after the
last affected release and `not affected` before the first. Nothing here knows which release is which.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from attnfix.compat import gate, ledger, releases
from attnfix.compat.digest import DIGEST_FORMAT
from attnfix.compat.engines import ENGINES
from attnfix.compat.fix import Fix
from attnfix.patches.catalogue import BY_ID, FIXES
from attnfix.prove import runner

ROOT = Path(__file__).resolve().parents[1]
_SEED = 20


def examined(fix: Fix) -> list[str]:
    """Published releases that the fix asks to be judged, in release order."""
    spans = [SpecifierSet(span) for span in fix.examined]
    return [str(v) for v in releases.published(fix.engine) if any(v in span for span in spans)]


def observed(fix: Fix, release: str) -> str:
    """`red`, `green` or `absent`: what the stock scenario gives on a release. Raises SystemExit if it gives neither."""
    site = releases.fetch(fix.engine, release, progress=False)
    answer = runner.run_side(fix, _SEED, stock=True, site=site)
    if "no_such_path" in answer:
        return "absent"
    if "error" in answer:
        raise SystemExit(f"{fix.id} on {release}: {answer['error']}\n{answer.get('traceback', '')}")
    if runner.is_red(answer):
        return "red"
    if runner.is_green(answer):
        return "green"
    raise SystemExit(f"{fix.id} on {release}: error {answer['main']['error']} is neither red nor green")


def observe_all(fix: Fix, names: list[str]) -> dict[str, str]:
    """What each release gives, in order; two run at a time."""
    seen = {}
    with ThreadPoolExecutor(2) as pool:
        for release, colour in zip(names, pool.map(lambda release: observed(fix, release), names)):
            print(f"{fix.id} {release}: {colour}", file=sys.stderr, flush=True)
            seen[release] = colour
    return seen


def contradicted(fix: Fix, known: ledger.Ledger) -> list[str]:
    """One sentence for each code whose first release, run again, gives another result than its verdict says."""
    verdicts = {code.first_release: code.verdict for code in known.code}
    return [
        f"{fix.id} on {release}: {colour}, but the ledger says {verdicts[release]}"
        for release, colour in observe_all(fix, list(verdicts)).items()
        if (colour == "red") != (verdicts[release] == ledger.AFFECTED)
    ]


def code_of(fix: Fix, release: str) -> tuple[tuple, tuple]:
    """(digests, file hashes) of the witnesses in a release."""
    read = gate.reader(releases.fetch(fix.engine, release, progress=False) / fix.engine)
    return gate.digests(fix, read), gate.file_hashes(fix, read)


def make(fix: Fix, verdicts: dict[str, str]) -> dict:
    """The ledger as data. `verdicts` holds the releases in order."""
    rows = [(code_of(fix, release), verdict, release) for release, verdict in verdicts.items()]
    entries = []
    for (digests, verdict), group in groupby(rows, key=lambda row: (row[0][0], row[1])):
        releases_seen = {release: list(hashes) for (_, hashes), _, release in group}
        known = next((e for e in entries if e["digests"] == list(digests)), None)
        if known is None:
            entries.append({"verdict": verdict, "digests": list(digests), "releases": releases_seen})
        elif known["verdict"] == verdict:
            known["releases"].update(releases_seen)
        else:
            raise SystemExit(f"{fix.id}: equal witnesses, unequal verdicts at {list(releases_seen)}; a witness is missing")
    witnesses = [str(place) for place in fix.places]
    return {"digest_format": DIGEST_FORMAT, "fix": fix.id, "witnesses": witnesses, "code": entries}


def verdicts_from(seen: dict[str, str]) -> dict[str, str]:
    red = [release for release, colour in seen.items() if colour == "red"]
    if not red:
        raise SystemExit("no examined release shows the bug: is the proof right?")
    first = Version(red[0])
    healthy = lambda release: ledger.NOT_AFFECTED if Version(release) < first else ledger.FIXED  # noqa: E731
    return {release: ledger.AFFECTED if colour == "red" else healthy(release) for release, colour in seen.items()}


def targets_text() -> str:
    watched = {place.module for engine in ENGINES.values() for place in engine.load_model}
    names = sorted(watched.union(*(fix.target_modules for fix in FIXES)))
    lines = "".join(f'        "{name}",\n' for name in names)
    return (
        '"""Generated by scripts/ledger.py: the modules that hold a target of some fix, '
        'and those watched under\nATTNFIX_STRICT. Plain data, read at interpreter start.\n"""\n\n'
        f"MODULES = frozenset(\n    {{\n{lines}    }}\n)\n"
    )


def ledger_text(data: dict) -> str:
    return json.dumps(data, indent=1) + "\n"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments.add_argument("--fix", action="append", choices=sorted(BY_ID), help="only this fix (repeatable)")
    options = arguments.parse_args()
    wrong: list[str] = []
    texts = {ROOT / "attnfix" / "_targets.py": targets_text()}
    for fix in [BY_ID[name] for name in options.fix] if options.fix else FIXES:
        if options.check:
            known = ledger.load(fix)
            verdicts = dict(known.releases())
            wrong += contradicted(fix, known)
        else:
            verdicts = verdicts_from(observe_all(fix, examined(fix)))
        texts[ledger.path_of(fix)] = ledger_text(make(fix, verdicts))
    stale = [path for path, text in texts.items() if not path.is_file() or path.read_text() != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'out of date' if options.check else 'written'}", file=sys.stderr)
        if not options.check:
            path.write_text(texts[path])
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    if options.check and (stale or wrong):
        print("run scripts/ledger.py and commit what it writes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
