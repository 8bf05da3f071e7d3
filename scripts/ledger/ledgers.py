#!/usr/bin/env python3
"""Makes the ledger of every fix from published releases: digests from their code, verdicts from running their code.

    python -m scripts.ledger.ledgers
        fetch, run each release stock, write patches/*/index.json and what is generated
    python -m scripts.ledger.ledgers --new
        the same for releases that no ledger has yet: what to do when an engine is released
    python -m scripts.ledger.ledgers --witnesses
        the verdicts that are there, with new digests: after witnesses or the format of digests have changed
    python -m scripts.ledger.ledgers --check
        recompute digests and generated files, compare verdicts with the committed matrix, run
        what it has not run and some releases drawn anew; fail if anything differs

A release is `affected` where the stock scenario of the fix gives a wrong result. A right result is `fixed upstream` after the
last affected release and `not affected` before the first. Nothing here knows which release is which. With --forks releases run
in forks of one warm Python (attnfix/prove/warm.py), which has the attnfix that is installed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

from packaging.version import Version

from attnfix.compat.arming import ray_workers
from attnfix.compat.arming.activation import watched_modules
from attnfix.compat.fix import Fix, Judgeable
from attnfix.compat.gate import index, judge, ledger, source_files
from attnfix.compat.gate.digest import digest
from attnfix.compat.releases import fetch
from attnfix.compat.status import metrics
from attnfix.patches.catalogue import BY_ID, FIXES
from attnfix.prove import edited_release, runner, warm
from attnfix.prove.verdict import PROVEN, outcome
from scripts.ledger import index_text
from scripts.ledger.index_text import Edited, Judged, Rows

ROOT = Path(__file__).resolve().parents[2]
_MATRIX = ROOT / "docs" / "evidence" / "matrix" / "matrix.json"
_SEED = 20
_DRAWN = 8


def known(fix: Fix) -> dict[str, str]:
    """{release: verdict} of the fix's ledger as it lies there; empty where there is none, or one for other witnesses."""
    try:
        return dict(ledger.load(fix).releases())
    except ledger.LedgerError:
        return {}


def verdicts_on_file(fix: Fix) -> dict[str, str]:
    """{release: verdict} of the index that lies there, whatever witnesses it was made for; empty for a fix that is new."""
    there = index.read(ledger.path_of(fix))
    codes = (there.line(f"fix {fix.id}") or {"codes": []})["codes"]
    found = {release: verdict for _, verdict, span in codes for release in there.names(there.bits(span))}
    return dict(sorted(found.items(), key=lambda item: Version(item[0])))


def rename_matrix_codes(fixes: Sequence[Fix]) -> None:
    """The names of codes in the committed matrix follow the witnesses; what ran there, and what came out, is the same."""
    data = json.loads(_MATRIX.read_text())
    by_id = {fix.id: fix for fix in fixes}
    cells = [cell for cell in data["cells"] if cell["fix"] in by_id and cell["code"] and not cell["edit"]]
    code = Code({fix: {cell["release"] for cell in cells if cell["fix"] == fix.id} for fix in fixes})
    for cell in cells:
        cell["code"] = judge.name_of(code.of(by_id[cell["fix"]], cell["release"])[0])
    _MATRIX.write_text(json.dumps(data, indent=1) + "\n")


def examined(fix: Fix) -> list[str]:
    """Published releases that the fix asks to be judged, in release order."""
    return [release for release in map(str, fetch.published(fix.engine)) if runner.examined(fix, release)]


def observed(engine: str, release: str, fixes: Sequence[Fix]) -> dict[Fix, tuple[str | None, str]]:
    """What the stock scenarios of `fixes` give on a release, after one import of it."""
    site = fetch.fetch(engine, release, progress=False)
    answers = runner.run_sides(fixes, engine, _SEED, stock=True, site=site, run=True)
    return {fix: outcome(answers.get(fix.id, answers)) for fix in fixes}


def observe_all(wanted: dict[tuple[str, str], list[Fix]]) -> dict[Fix, dict[str, str]]:
    """{fix: {release: outcome}} of the fixes wanted on each (engine, release); two releases run at a time.

    Raises SystemExit at the end, if a scenario gave no outcome somewhere: it names all of them.
    """
    seen: dict[Fix, dict[str, str]] = {}
    failed: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda item: observed(*item), [(*at, fixes) for at, fixes in wanted.items()])
        for (_, release), outcomes in zip(wanted, results):
            for fix, (found, reason) in outcomes.items():
                print(f"{fix.id} {release}: {found or reason}", file=sys.stderr, flush=True)
                if found:
                    seen.setdefault(fix, {})[release] = found
                else:
                    failed.append(f"{fix.id} on {release}: {reason}")
    if failed:
        raise SystemExit("\n".join(failed))
    return seen


def wanted_on(names: Mapping[Fix, Iterable[str]]) -> dict[tuple[str, str], list[Fix]]:
    """{(engine, release): fixes to be run there}, each engine's releases in order."""
    pairs = [(fix, release) for fix, found in names.items() for release in found]
    wanted: dict[tuple[str, str], list[Fix]] = {}
    for fix, release in sorted(pairs, key=lambda pair: (pair[0].engine, Version(pair[1]))):
        wanted.setdefault((fix.engine, release), []).append(fix)
    return wanted


def to_be_run(fixes: Sequence[Fix]) -> dict[tuple[str, str], list[Fix]]:
    """Releases that have every code of a ledger which the committed matrix has not run or judged otherwise; and of those that
    have all others, a few, drawn anew each time."""
    codes = [(fix, code) for fix in fixes for code in ledger.load(fix).code if code.releases]
    ran = matrix_cells()
    unseen = [(fix, code) for fix, code in codes if not any(_cell(fix, code, release) in ran for release in code.releases)]
    every = covering(codes)
    drawn = random.sample(sorted(every), min(_DRAWN, len(every)))
    run = covering(unseen)
    return run | {pair: [*dict.fromkeys((*run.get(pair, ()), *every[pair]))] for pair in drawn}


def matrix_cells() -> set[tuple[str, str, str | None, str]]:
    """(fix, release, name of the code, verdict) of every cell of the last whole run of scripts/ledger/matrix.py."""
    cells = json.loads(_MATRIX.read_text())["cells"]
    says = {PROVEN: ledger.AFFECTED}
    return {(c["fix"], c["release"], c["code"], says.get(c["verdict"], c["verdict"])) for c in cells if not c["edit"]}


def _cell(fix: Fix, code: ledger.Code, release: str) -> tuple[str, str, str | None, str]:
    return fix.id, release, code.name, code.verdict


def covering(codes: Sequence[tuple[Fix, ledger.Code]]) -> dict[tuple[str, str], list[Fix]]:
    """Few releases which together have all of `codes`: each time the one with most codes not yet seen."""
    left = {(fix, at): code.releases for at, (fix, code) in enumerate(codes)}
    chosen: dict[Fix, list[str]] = {fix: [] for fix, _ in codes}
    while left:
        reach = Counter((fix.engine, release) for (fix, _), found in left.items() for release in found)
        engine, release = max(reach, key=lambda pair: (reach[pair], Version(pair[1])))
        for fix, at in [key for key, found in left.items() if key[0].engine == engine and release in found]:
            chosen[fix].append(release)
            del left[fix, at]
    return wanted_on(chosen)


def contradicted(fixes: Sequence[Fix]) -> list[str]:
    """One sentence for each code of which a release, run again, gives another result than its verdict says."""
    return [
        f"{fix.id} on {release}: {found}, but the ledger says {ledger.load(fix).verdict(release)}"
        for fix, outcomes in observe_all(to_be_run(fixes)).items()
        for release, found in outcomes.items()
        if (found == "red") != (ledger.load(fix).verdict(release) == ledger.AFFECTED)
    ]


class Code:
    """Digests and file hashes of the witnesses in releases. Many fixes have witnesses in one file, and many releases have the
    same file: each is parsed once, two at a time."""

    def __init__(self, releases: Mapping[Fix, Iterable[str]]):
        self._hashes: dict[tuple[str, str], dict[str, str]] = {}
        paths: dict[str, Path] = {}
        names: dict[str, set[str]] = {}
        for (engine, release), fixes in wanted_on(releases).items():
            read = source_files.Sources(fetch.fetch(engine, release, progress=False) / engine)
            found = self._hashes[engine, release] = {}
            for place in {place for fix in fixes for place in fix.code_paths}:
                if source := read[place.module]:
                    found[place.module] = source.sha256
                    paths[source.sha256] = source.path
                    names.setdefault(source.sha256, set()).add(place.qualname)
        with ProcessPoolExecutor(2) as pool:
            digests = pool.map(_digests_in, paths.values(), map(names.__getitem__, paths), chunksize=4)
            self._digests = dict(zip(paths, digests))

    def of(self, fix: Fix, release: str) -> tuple[tuple[str | None, ...], tuple[str | None, ...]]:
        """(digests, file hashes) of the witnesses, None where there is none."""
        hashes = self._hashes[fix.engine, release]
        found = ((hashes.get(place.module), place.qualname) for place in fix.code_paths)
        digests = tuple(self._digests[file][name] if file else None for file, name in found)
        return digests, tuple(hashes.get(module) for module in fix.modules)


def _digests_in(path: Path, names: set[str]) -> dict[str, str | None]:
    tree = judge.parsed(path.read_bytes())
    return {name: digest(tree, name) for name in names}


def make(fix: Fix, verdicts: dict[str, str], code: Code) -> Rows:
    """What the index says of a fix. `verdicts` holds the releases in order."""
    rows = [(release, verdict, *code.of(fix, release)) for release, verdict in verdicts.items()]
    return [Judged(*row, judge.name_of(row[2])) for row in rows], edited(fix)


def edited(fix: Fix) -> list[Edited]:
    """Code that no release has: that of a release, with the fault put back by each edit of the fix's proof.

    The fault was there between releases, so code that the edit leaves alone may also be that of another of them.
    """
    sources = {
        release: source_files.Sources(fetch.fetch(fix.engine, release, progress=False) / fix.engine)
        for release in runner.proof_of(fix).edited
    }
    stock = {release: judge.digests(fix, read) for release, read in sources.items()}
    found: dict[tuple[str | None, ...], Edited] = {}
    for release, name, edit in edits_of(fix):
        for beside in sorted(sources, key=release.__ne__):  # its own release first
            digests = judge.digests(fix, edited_release.read(sources[release], edit, sources[beside]))
            if digests == stock[beside]:
                raise SystemExit(f"{fix.id}: no witness sees the edit of {release}: {name}")
            label = f"{release}: {name}" if beside == release else f"{release} beside {beside}: {name}"
            found.setdefault(digests, Edited(label, digests, judge.name_of(digests)))
    return list(found.values())


def edits_of(fix: Fix) -> list[tuple[str, str, edited_release.Edit]]:
    """(release, name of the edit, edit) of each edit that puts the fault back: of those that the gate has to know."""
    proof = runner.proof_of(fix)
    known = {name: edit for name, edit in proof.edits.items() if name not in proof.unrecognised}
    return [(release, name, edit) for release in proof.edited for name, edit in known.items()]


def outcomes(verdicts: dict[str, str]) -> dict[str, str]:
    """What releases must have given when their verdicts were made."""
    return {release: "red" if verdict == ledger.AFFECTED else "green" for release, verdict in verdicts.items()}


def tell(fix: Fix, before: dict[str, str], now: dict[str, str]) -> None:
    """One line for each release whose verdict is new or another than before."""
    for release, verdict in now.items():
        if before.get(release) != verdict:
            was = f"was {before[release]}" if release in before else "new"
            print(f"{fix.id} {release}: {verdict} ({was})", file=sys.stderr)


def verdicts_from(fix: Fix, seen: dict[str, str]) -> dict[str, str]:
    seen = dict(sorted(seen.items(), key=lambda item: Version(item[0])))
    red = [Version(release) for release, found in seen.items() if found == "red"]
    if not red and not edits_of(fix):
        raise SystemExit(f"{fix.id}: no examined release shows the bug: is the proof right?")

    verdicts = {}
    for release, found in seen.items():
        healthy = ledger.FIXED if red and Version(release) > red[0] else ledger.NOT_AFFECTED
        verdicts[release] = ledger.AFFECTED if found == "red" else healthy
    return verdicts


def targets_text() -> str:
    names = sorted(watched_modules(FIXES) | ray_workers.MODULES | metrics.MODULES)
    lines = "".join(f'        "{name}",\n' for name in names)
    return (
        '"""Generated by scripts/ledger/ledgers.py: modules that hold a target of some fix, packages of the engines, '
        "those that\nprepare Ray workers or make the metrics page, and those watched under ATTNFIX_STRICT. Plain data, "
        'read at interpreter start.\n"""\n\n'
        f"MODULES = frozenset(\n    {{\n{lines}    }}\n)\n"
    )


def index_texts(made: Mapping[Fix, Rows]) -> dict[Path, str]:
    """The index of each engine that has one of these fixes; what it says of its other fixes stays."""
    texts = {}
    for engine in dict.fromkeys(fix.engine for fix in made):
        of_engine = [fix for fix in FIXES if fix.engine == engine]
        found: dict[Judgeable, Rows] = {fix: made.get(fix) or index_text.rows_of(fix) for fix in of_engine}
        try:
            texts[ledger.path_of(of_engine[0])] = index_text.text(found)
        except ValueError as error:
            raise SystemExit(str(error)) from error
    return texts


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments.add_argument("--new", action="store_true", help="run only releases that the ledgers do not have yet")
    arguments.add_argument("--witnesses", action="store_true", help="run nothing: new digests for the verdicts that are there")
    arguments.add_argument("--forks", action="store_true", help="run releases in forks of one warm Python: in minutes")
    arguments.add_argument("--fix", action="append", choices=sorted(BY_ID), help="only this fix (repeatable)")
    options = arguments.parse_args()
    fixes = [BY_ID[name] for name in options.fix] if options.fix else list(FIXES)
    if options.check:
        with warm.proofs():
            wrong = contradicted(fixes)
        verdicts = {fix: known(fix) for fix in fixes}
    elif options.witnesses:
        wrong, verdicts = [], {fix: verdicts_on_file(fix) for fix in fixes}
        rename_matrix_codes([fix for fix in fixes if not known(fix)])
    else:
        wrong = []
        before = {fix: known(fix) if options.new else {} for fix in fixes}
        with warm.proofs() if options.forks else nullcontext():
            seen = observe_all(wanted_on({fix: [name for name in examined(fix) if name not in before[fix]] for fix in fixes}))
        verdicts = {fix: verdicts_from(fix, outcomes(before[fix]) | seen.get(fix, {})) for fix in fixes}
        for fix in fixes:
            tell(fix, known(fix), verdicts[fix])
    texts = {ROOT / "attnfix" / "bootstrap" / "target_modules.py": targets_text()}
    code = Code(verdicts)
    texts |= index_texts({fix: make(fix, verdicts[fix], code) for fix in fixes})
    stale = [path for path, text in texts.items() if not path.is_file() or path.read_text() != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'out of date' if options.check else 'written'}", file=sys.stderr)
        if not options.check:
            path.write_text(texts[path])
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    if options.check and (stale or wrong):
        print("run `python -m scripts.ledger.ledgers` and commit what it writes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
