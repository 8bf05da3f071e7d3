"""ATTNFIX=observe on real releases, in fresh processes: results stay those of stock to the bit, bugs are counted, and no look
writes to an object of the engine.
"""

from __future__ import annotations

import pytest

from attnfix.patches.catalogue import BY_ID

#: Release -> observable fixes that it needs, of a decode plan, a prefill and a merge
NEEDED = {
    ("sglang", "0.5.9"): ("sglang.encoder-decode-lengths", "sglang.flashinfer-fp8-prefix"),
    ("vllm", "0.25.1"): ("vllm.padded-v-merge",),
}
# Answers {fix: {main: {bits}, row, control: {bits}, calls behind it, wrote}}. Each proof runs in a fork: it replaces parts of
# the engine. `kept(…)` is what two levels of attributes hold, and how often a tensor was written to
CODE = """
import importlib, sys
from attnfix.compat.arming import wrapper
from attnfix.prove import side
side._ease_engine({engine!r})
proofs = {{fix: importlib.import_module(f"attnfix.patches.{{package}}.proof").Proof() for fix, package in {packages!r}.items()}}
stubs.freeze()
wrote, look_alone = [], wrapper._look_alone

def kept(*objects, depth=2):
    found = []
    for one in objects:
        held = getattr(one, "__dict__", None) or (dict(enumerate(one)) if isinstance(one, (list, tuple)) else {{}})
        held = one if isinstance(one, dict) else held
        found.append((id(one), getattr(one, "_version", None), {{str(name): id(value) for name, value in held.items()}}))
        found += kept(*held.values(), depth=depth - 1) if depth else []
    return found

def watched(link, instance, args, kwargs):
    before = kept(instance, *args, kwargs)
    if {spoilt!r}:
        link.look = lambda first, instance, args, kwargs: setattr([instance, *args][instance is None], "seen", 1)
    look_alone(link, instance, args, kwargs)
    if kept(instance, *args, kwargs) != before:
        wrote.append(link.state.fix.id)

wrapper._look_alone = watched

def run(fix):
    proofs[fix].prepare()
    main = side._observed(proofs[fix].scenario, 20)
    row = side._state(fix)
    control = side._observed(proofs[fix].control, 20)
    return {{"main": main, "row": row, "control": control, "behind": side._state(fix), "wrote": wrote,
             "kernels": "attnfix.kernels" in sys.modules}}

answer({{fix: side._in_a_fork(run, fix) for fix in proofs}})
"""


def ran(environment, engine: str, release: str, variable: str, spoilt: bool = False) -> dict:
    packages = {name: BY_ID[name].package for name in NEEDED[engine, release]}
    code = CODE.format(engine=engine, packages=packages, spoilt=spoilt)
    return environment.evaluate(code, ATTNFIX=variable, **{BY_ID[name].switch: "1" for name in packages})


@pytest.mark.parametrize("engine, release", NEEDED)
def test_a_real_release_runs_as_stock_and_its_bugs_are_counted(engine_fork, engine, release):
    environment = engine_fork(engine, release)
    stock, observed = (ran(environment, engine, release, variable) for variable in ("0", "observe"))
    for fix, seen in observed.items():
        assert "error" not in seen, f"{fix}: {seen['error']}\n{seen['traceback']}"
        assert [seen[part] for part in ("main", "control")] == [stock[fix][part] for part in ("main", "control")], fix
        assert seen["row"]["state"] == "observed" and seen["row"]["observed"]["needed"] > 0, (fix, seen["row"])
        assert not any(seen["behind"]["counters"].values()) and not seen["wrote"] and not seen["kernels"], (fix, seen)
    spoilt = ran(environment, engine, release, "observe", spoilt=True)
    assert all(seen["wrote"] for seen in spoilt.values()), "a look that writes is seen"
