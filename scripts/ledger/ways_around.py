#!/usr/bin/env python3
"""Runs ways around a bug on the CPU, and writes into patches/ways_around.json the releases in which stock is right with them.

    python -m scripts.ledger.ways_around --fix vllm.fa3-dcp-graph
        on every release that the bug affects; without --fix, the ways of all fixes
    python -m scripts.ledger.ways_around --engine vllm==0.19.1 --fix vllm.fa3-dcp-graph
        on this release alone; what is on file of others stays

A way is an entry of `Proof.around`: the proof's scenario on a server that is launched so. Releases that do not have the way are
left out. A release in which stock is wrong with it is taken off the file, and ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any

from packaging.version import Version

from attnfix.cli.releases import parse
from attnfix.compat.engines import ENGINES
from attnfix.compat.fix import Fix
from attnfix.compat.gate import ledger
from attnfix.compat.releases import fetch
from attnfix.patches.catalogue import BY_ID, FIXES, WAYS, ways_around
from attnfix.prove import runner, warm
from attnfix.prove.verdict import is_green

_CHILD = ("-c", f"import runpy; runpy.run_path({__file__!r}, run_name='side')")
_SEED = 20
#: As `ways_around` gives them
Ways = dict[str, dict[str, list[str]]]


def side(request: dict[str, Any]) -> dict[str, Any]:
    """In a process of the stock side: {fix: {way: answer}}, each in a fork of its own after one import of the engine."""
    from attnfix.prove import side, stubs

    stubs.install(request["engine"])
    side._ease_engine(request["engine"])
    kinds = {
        fix: importlib.import_module(f"attnfix.patches.{package}.proof").Proof for fix, package in request["packages"].items()
    }
    proofs = {fix: {way: side._tried(kind.avoiding(way)) for way in kind.around} for fix, kind in kinds.items()}
    stubs.freeze()
    return {
        fix: {way: proof if isinstance(proof, dict) else side._in_a_fork(_run, proof, request["seed"])
              for way, proof in ways.items()}
        for fix, ways in proofs.items()
    }  # fmt: skip


def _run(proof: Any, seed: int) -> dict[str, Any]:
    from attnfix.patches.lab.proof import NoSuchPath, Observation
    from attnfix.prove import side

    try:
        proof.prepare()
        seen = proof.scenario(seed)
        cases = [seen] if isinstance(seen, Observation) else [*seen]
    except NoSuchPath as absent:
        return {"no_such_path": str(absent)}
    if not cases:
        return {"no_such_path": "no case is for this release"}
    return {"main": side._observed(lambda _: cases, seed), "errors": [f"{case.error:.2g}" for case in cases]}


def jobs(fixes: list[Fix], named: list[tuple[str, str]]) -> Iterator[tuple[str, str, list[Fix]]]:
    """(engine, release, fixes that affect it and have ways), in release order."""
    affected = {fix: [release for release, verdict in ledger.load(fix).releases() if verdict == ledger.AFFECTED]
                for fix in fixes if runner.proof_of(fix).around}  # fmt: skip
    for engine in ENGINES:
        ours = {fix: releases for fix, releases in affected.items() if fix.engine == engine}
        for release in sorted({release for releases in ours.values() for release in releases}, key=Version):
            if not named or (engine, release) in named:
                yield engine, release, [fix for fix, releases in ours.items() if release in releases]


def ran(engine: str, release: str, fixes: list[Fix]) -> dict[str, Any]:
    """The answers of `side` on that release, or {"error": …}."""
    site = fetch.fetch(engine, release, progress=False)
    return runner.run_sides(fixes, engine, _SEED, stock=True, site=site, run=True, child=_CHILD)


def recorded(known: Ways, release: str, answers: dict[str, dict[str, Any]]) -> list[str]:
    """Put a release's answers into what is known. Returns what went wrong, a line each."""
    wrong = []
    for fix, ways in answers.items():
        former = known.get(fix, {})
        known[fix] = {way: [one for one in former.get(way, []) if one != release] for way in runner.proof_of(BY_ID[fix]).around}
        for way, answer in ways.items():
            if is_green(answer):
                known[fix][way] = sorted([*known[fix][way], release], key=Version)
            elif "no_such_path" not in answer:
                said = answer.get("traceback") or answer.get("error") or f"errors of its cases: {', '.join(answer['errors'])}"
                wrong.append(f"{release} {fix} {way}: {said}")
    return wrong


def write(known: Ways) -> None:
    """One line for each fix, in the catalogue's order."""
    lines = (f" {json.dumps(fix.id)}: {json.dumps(known[fix.id])}" for fix in FIXES if fix.id in known)
    WAYS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--engine", action="append", metavar="ENGINE==RELEASE", help="only this release (repeatable)")
    arguments.add_argument("--fix", action="append", choices=sorted(BY_ID), help="only this fix (repeatable)")
    options = arguments.parse_args()
    fixes, failed = [BY_ID[name] for name in options.fix or BY_ID], False
    with warm.proofs():
        for engine, release, ours in jobs(fixes, [parse(name) for name in options.engine or ()]):
            answers = ran(engine, release, ours)
            if "error" in answers:
                print(f"{engine} {release}: {answers.get('traceback') or answers['error']}")
                failed = True
                continue
            known = ways_around()
            wrong = recorded(known, release, answers)
            write(known)
            right = sum(release in releases for fix in ours for releases in known[fix.id].values())
            print("\n".join([f"{engine} {release}: {right} ways right, {len(wrong)} wrong", *wrong]), flush=True)
            failed = failed or bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
elif __name__ == "side":
    with redirect_stdout(io.StringIO()):
        found = side(json.loads(sys.argv[1]))
    print("\nattnfix-answer " + json.dumps(found))
