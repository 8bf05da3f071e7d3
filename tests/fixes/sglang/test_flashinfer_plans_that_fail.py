"""FlashInfer has no kernel with a window, or with a soft cap, and no compiler; or there is no memory for its plan. The engine
serves as it would have, to the bit, and the fix says that it failed."""

from __future__ import annotations

import pytest

HEAD = """
import torch
from attnfix.prove import side
side._ease_engine("sglang")
from attnfix.patches.lab.emulators import flashinfer
from attnfix.patches.lab.sglang.paged import CHAIN, TREE, Launch, decode, prefill, verify
from attnfix.patches.sglang.{proof}.proof import Proof
it = Proof()
it.prepare()
import attnfix

def without(name, value):
    '''No plan may name this one: what FlashInfer raises where it would compile.'''
    for kind in (flashinfer.PagedPrefill, flashinfer.RaggedPrefill, flashinfer.PagedDecode):
        def begin_forward(self, *args, own=kind.begin_forward, **kwargs):
            if kwargs.get(name, value) != value:
                raise {error}
            return own(self, *args, **kwargs)
        kind.begin_forward = begin_forward

def seen(one):
    return [round(one.error, 3), one.bits]

def state(fix):
    row = next(row for row in attnfix.status() if row["fix"] == fix)
    return [row["state"], row["reason"], row["counters"]["corrections"]]

def server(**launch):
    return it.server(Launch(**launch), 3)
"""
PREFILL = """
without("window_left", -1)
one = server()
found = [seen(one.run(prefill((0, 0), (20, 5)))), one.backend.forward_metadata.use_ragged,
         "begin_forward" in vars(one.backend.prefill_wrappers_paged[0])]
found += [seen(one.run(step)) for step in (prefill((30, 3), (4, 2)), prefill((0, 0), (9, 4)), decode((30, 3)))]
answer([found, state("sglang.flashinfer-swa-prefill")])
"""
VERIFY = """
from attnfix.patches.sglang.eagle_swa_verify.proof import LONG, SHORT
without("window_left", -1)
found = []
for parents, topk in ((CHAIN, 1), (TREE, 2)):
    for graph in (True, False):
        one = server(topk=topk)
        found += [seen(one.run(verify(cached, parents, graph=graph))) for cached in (SHORT, LONG)]
answer([found, state("sglang.eagle-swa-verify")])
"""
CAPS = """
without("logits_soft_cap", None)
one = server(window=None, soft_cap=2.0)
steps = prefill((0, 0), (20, 5)), prefill((30, 3), (4, 2)), decode((30, 3), graph=True)
answer([[seen(one.run(step)) for step in steps], state("sglang.flashinfer-soft-cap")])
"""
ERRORS = {
    "compiler": """RuntimeError("Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist")""",
    "memory": 'torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 128.00 MiB")',
}
SAYS = {"compiler": "Could not find nvcc", "memory": "OutOfMemoryError: CUDA out of memory"}
CASES = {
    "prefill": ("flashinfer_swa_prefill", PREFILL, ("0.5.10.post1", "0.5.13", "0.5.16", "0.5.23")),
    "verify": ("eagle_swa_verify", VERIFY, ("0.5.16", "0.5.23")),
    "soft cap": ("flashinfer_soft_cap", CAPS, ("0.5.13", "0.5.23")),
}


@pytest.mark.parametrize("lacks", ERRORS)
@pytest.mark.parametrize("case, release", [(case, release) for case, (*_, releases) in CASES.items() for release in releases])
def test_the_engine_serves_as_it_would_without(engine_fork, case, release, lacks):
    proof, script, _ = CASES[case]
    script = HEAD.replace("{proof}", proof).replace("{error}", ERRORS[lacks]) + script
    environment = engine_fork("sglang", release)
    stock, _ = environment.evaluate(script, ATTNFIX="0")
    others = {f"ATTNFIX_SGLANG_{name.upper()}": "0" for name, *_ in CASES.values() if name != proof}
    fixed, (state, reason, corrections) = environment.evaluate(script, **others)
    assert fixed == stock
    assert (state, corrections) == ("failed", 0) and SAYS[lacks] in reason, reason
