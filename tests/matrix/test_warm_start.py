"""Forks of a warm Python on real releases: it has nothing of an engine, and a side says there what it says when fresh."""

from __future__ import annotations

import pytest
import warm

from attnfix.compat import releases
from attnfix.patches.catalogue import BY_ID
from attnfix.prove import runner

SEED = 7
#: What a side says that does not depend on the poison drawn at random, nor on a process's number
SAID = ("door_open", "untouched", "kernel", "main", "fired", "control", "control_fired", "measure", "device")


def test_the_parent_has_imported_torch_no_engine_and_the_door_alone(engine_fork):
    code = (
        "import sys\nnames = set(sys.modules)\n"
        "answer([sorted(name for name in names if name.partition('.')[0] in ('attnfix', 'sglang', 'vllm')), 'torch' in names])"
    )
    for engine, release in (("sglang", "0.5.9"), ("vllm", "0.19.1")):
        found, torch = engine_fork(engine, release).evaluate(code, stubs=False)
        assert torch and found == ["attnfix", "attnfix._autoload"]


@pytest.mark.parametrize("fix, release", [("sglang.zero-kv-rows", "0.5.9"), ("vllm.empty-context-chunks", "0.20.2")])
def test_a_side_is_that_of_a_fresh_interpreter(fix, release):
    fix = BY_ID[fix]
    site = releases.fetch(fix.engine, release, progress=False)

    def fixed():
        side = runner.run_side(fix, SEED, stock=False, site=site)
        return {name: side[name] for name in SAID}, {name: side["state"][name] for name in ("state", "reason")}

    fresh = fixed()
    with warm.proofs():
        assert fixed() == fresh
        stock = runner.run_side(fix, SEED, stock=True, site=site)
    assert fresh[0]["fired"] and runner.is_green(fresh[0])
    assert stock["untouched"] and runner.is_red(stock), "ATTNFIX=0 is read in the fork"
