"""Runs the cases of a proof one by one in releases, stock and corrected: for a proof that is being written.

    python -m scripts.new_fix.cases vllm.my-fix vllm==0.19.1 vllm==0.20.0

No ledger is needed: the correction is put on its targets without asking the gate. Of a case that raises, the traceback is
printed. Only `attnfix prove` proves.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from itertools import zip_longest
from typing import Any

from attnfix.cli.errors import CliError
from attnfix.cli.listing import fix_named
from attnfix.cli.releases import parse
from attnfix.compat.fix import Target
from attnfix.patches.catalogue import BY_ID

_CHILD = ("-c", f"import runpy; runpy.run_path({__file__!r}, run_name='side')")


def show(request: dict[str, Any]) -> None:
    """In a process of the stock side: run each case twice, and print what came of it."""
    from attnfix.patches.lab.proof import NoSuchPath
    from attnfix.prove import side, stubs

    stubs.install(request["engine"])
    side._ease_engine(request["engine"])
    ((fix, package),) = request["packages"].items()
    proof = importlib.import_module(f"attnfix.patches.{package}.proof").Proof()
    stubs.freeze()
    try:
        proof.prepare()
    except NoSuchPath as absent:
        return print(f"no such path: {absent}")
    for name in ("bug", "spared"):
        run = proof.scenario if name == "bug" else proof.control
        stock = _errors(run, request["seed"])
        with _corrected(fix) as counters:
            fixed = _errors(run, request["seed"])
        print(f"\n{name}: {counters.corrections} corrections in {counters.calls} calls")
        for number, (before, after) in enumerate(zip_longest(stock, fixed, fillvalue=("not run", ""))):
            bits = "same bits" if before[1] == after[1] else "other bits"
            print(f"  {number}: {before[0]} → {after[0]}, {bits}")


def _errors(run: Callable[[int], Any], seed: int) -> list[tuple[str, str]]:
    """(error, bits) of each case, up to the first that raises."""
    from attnfix.patches.lab.proof import Observation

    found = []
    try:
        seen = run(seed)
        for one in (seen,) if isinstance(seen, Observation) else seen:
            found.append((f"{one.error:.2g}", one.bits))
    except Exception:
        found.append(("raised, see above", ""))
        traceback.print_exc(file=sys.stdout)
    return found


@contextmanager
def _corrected(fix: str) -> Iterator[Any]:
    """Every target that this release has is wrapped. Gives the counters."""
    from attnfix.compat.arming.wrapper import WrappedTarget, live, swap
    from attnfix.compat.status.fix_state import FixState

    state, stock = FixState(BY_ID[fix]), {}
    state.armed = True
    for target in (target for target in BY_ID[fix].targets if isinstance(target, Target)):
        for place in target.code_paths:
            try:
                importlib.import_module(place.module)
                stock[place] = live(place)
            except (ImportError, AttributeError, KeyError):
                continue
            wrapped = WrappedTarget(stock[place], place).add(state, target.correct, target.needed, repeatable=target.repeatable)
            swap(place, wrapped.function)
    try:
        yield state.counters
    finally:
        for place, function in stock.items():
            swap(place, function)
    if not state.armed:
        print(f"the correction failed: {state.traceback or state.reason}")


def main(arguments: list[str] | None = None) -> int:
    from attnfix.compat.releases import fetch
    from attnfix.prove import runner

    parser = argparse.ArgumentParser(prog="python -m scripts.new_fix.cases", description="Run the cases of a proof one by one.")
    parser.add_argument("fix", help="its id, as in vllm.my-fix")
    parser.add_argument("release", nargs="+", help="as in vllm==0.19.1")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    try:
        fix = fix_named(options.fix)
        sites = [(engine, fetch.fetch(engine, release)) for engine, release in map(parse, options.release)]
    except (CliError, fetch.ReleaseError) as error:
        parser.error(str(error))
    ran = True
    for release, (engine, site) in zip(options.release, sites):
        answer = runner.run_sides([fix], engine, options.seed, stock=True, site=site, run=True, child=_CHILD)
        print(f"{release}\n{answer.get('said') or answer.get('traceback') or answer['error']}", flush=True)
        ran = ran and "said" in answer
    return 0 if ran else 1


if __name__ == "__main__":
    sys.exit(main())
elif __name__ == "side":
    with redirect_stdout(io.StringIO()) as said:
        show(json.loads(sys.argv[1]))
    print("\nattnfix-answer " + json.dumps({"said": said.getvalue()}))
