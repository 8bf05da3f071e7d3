"""Forks of a warm Python on real releases: it has nothing of an engine, and a side says there what it says when fresh."""

from __future__ import annotations

import pytest

from attnfix.compat.releases import fetch
from attnfix.patches.catalogue import BY_ID
from attnfix.prove import runner, warm
from attnfix.prove.verdict import is_green, is_red

SEED = 7
#: What a side says that does not depend on the poison drawn at random, nor on a process's number
SAID = ("hook_installed", "untouched", "kernel", "main", "fired", "control", "control_fired", "measure", "device")


def test_the_parent_has_imported_torch_no_engine_and_the_import_hook_alone(engine_fork):
    code = (
        "import sys\nnames = set(sys.modules)\n"
        "answer([sorted(name for name in names if name.partition('.')[0] in ('attnfix', 'sglang', 'vllm')), 'torch' in names])"
    )
    for engine, release in (("sglang", "0.5.9"), ("vllm", "0.19.1")):
        found, torch = engine_fork(engine, release).evaluate(code, stubs=False)
        assert torch and found == ["attnfix", "attnfix.bootstrap", "attnfix.bootstrap.import_hook"]


@pytest.mark.parametrize("fix, release", [("sglang.zero-kv-rows", "0.5.9"), ("vllm.empty-context-chunks", "0.20.2")])
def test_a_side_is_that_of_a_fresh_interpreter(fix, release):
    fix = BY_ID[fix]
    site = fetch.fetch(fix.engine, release, progress=False)

    def fixed():
        side = runner.run_side(fix, SEED, stock=False, site=site)
        return {name: side[name] for name in SAID}, {name: side["state"][name] for name in ("state", "reason")}

    fresh = fixed()
    with warm.proofs():
        assert fixed() == fresh
        stock = runner.run_side(fix, SEED, stock=True, site=site)
    assert fresh[0]["fired"] and is_green(fresh[0])
    assert stock["untouched"] and is_red(stock), "ATTNFIX=0 is read in the fork"
