"""Fixes that meet on one target of an engine, on a real release: every one is right whichever of the others are on.

The proofs switch all neighbours off, and each knows its own fault alone. Here the scenarios run under subsets of the switches,
each subset in a process of its own: with its fix on a scenario must be green, with all of them off red. What stands between is
not run: a neighbour may hide a fault. Which fixes meet, and where, comes from the catalogue and the ledgers.

Of the fixes on one target every subset runs: their corrections are links of one call. What hangs together by several targets
runs once whole besides: the corrections of two targets are not in one call.

A scenario is built so that its neighbours' faults do not show in it, by the options of its stand-ins (lengths without empty
rows, the base of the returned LSE). So this finds a correction that another one breaks, hides or counts wrongly, and
not what several faults do together.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import chain, combinations

import pytest
from packaging.version import Version

from attnfix.compat.fix import Fix
from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import BY_ID, FIXES
from attnfix.prove.verdict import is_green, is_red

# Answers {fix: {error or traceback, state, corrections}}. Each scenario runs in a fork: it replaces parts of the engine
SCENARIOS = """
import importlib
from attnfix.prove import side
side._ease_engine({engine!r})
kinds = {{fix: importlib.import_module(f"attnfix.patches.{{package}}.proof").Proof for fix, package in {packages!r}.items()}}
proofs = {{fix: kind() for fix, kind in kinds.items()}}
stubs.freeze()

def run(fix):
    seen = {{}}
    if fix in {run!r}:
        proofs[fix].prepare()
        seen["main"] = side._observed(proofs[fix].scenario, {seed})
    return {{**seen, "state": side._state(fix)["state"], "corrections": side._corrections(fix)}}

answer({{fix: side._in_a_fork(run, fix) for fix in proofs}})
"""


def meet(one: Fix, other: Fix) -> bool:
    """Whether they have a target in common."""
    places = [{place for target in fix.targets for place in target.code_paths} for fix in (one, other)]
    return bool(places[0] & places[1])


def groups(fixes) -> list[frozenset[Fix]]:
    """`fixes` by who meets whom, be it through a third; those that meet nobody are left out."""
    found: list[frozenset[Fix]] = []
    for fix in fixes:
        joined = [group for group in found if any(meet(fix, known) for known in group)]
        found = [group for group in found if group not in joined] + [frozenset({fix}).union(*joined)]
    return [group for group in found if len(group) > 1]


def meetings() -> dict[frozenset[Fix], tuple[str, str]]:
    """Fixes that meet -> (engine, the newest release that needs all of them). Without those that are part of larger ones."""
    affected: dict[tuple[str, str], list[Fix]] = {}
    for fix in FIXES:
        for release, verdict in ledger.load(fix).releases():
            if verdict == ledger.AFFECTED:
                affected.setdefault((fix.engine, release), []).append(fix)
    newest: dict[frozenset[Fix], tuple[str, str]] = {}
    for (engine, release), fixes in sorted(affected.items(), key=lambda item: Version(item[0][1])):
        newest.update(dict.fromkeys(groups(fixes), (engine, release)))
    return {group: at for group, at in newest.items() if not any(group < other for other in newest)}


def subsets(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Those on one target, none and all of `names`."""
    fixes = [BY_ID[name] for name in names]
    found = {names}
    for place in {place for fix in fixes for target in fix.targets for place in target.code_paths}:
        here = [fix.id for fix in fixes if any(place in target.code_paths for target in fix.targets)]
        found.update(chain.from_iterable(combinations(here, size) for size in range(len(here) + 1)))
    return sorted(found)


MEETINGS = [(engine, release, tuple(sorted(fix.id for fix in group))) for group, (engine, release) in meetings().items()]


def test_some_fixes_meet():
    assert MEETINGS


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    "engine, release, names", MEETINGS, ids=lambda value: value if isinstance(value, str) else "+".join(value)
)
def test_every_subset_of_switches(engine_fork, engine, release, names):
    environment = engine_fork(engine, release)
    packages = {name: BY_ID[name].package for name in names}

    def seen(on: tuple[str, ...]) -> dict:
        code = SCENARIOS.format(engine=engine, packages=packages, seed=20, run=on or names)
        return environment.evaluate(code, **{fix.switch: str(int(fix.id in on)) for fix in FIXES})

    with ThreadPoolExecutor(2) as pool:
        answers = dict(zip(drawn := subsets(names), pool.map(seen, drawn)))
    for on, answer in answers.items():
        for name in names:
            one = answer[name]
            assert "error" not in one, f"{name} with {on or 'nothing'} on: {one['error']}\n{one['traceback']}"
            told = f"{name} with {' and '.join(on) or 'nothing'} on: {one}"
            if name in on:
                assert is_green(one) and one["state"] == "effective" and one["corrections"], told
            else:
                assert one["state"] == "off" and not one["corrections"], told
            if not on:
                assert is_red(one), told
