"""Proof of sglang.triton-swa-deterministic: deterministic prefill of window layers whose KV has a pool of its own.

Spared: full layers, prefill that is not deterministic, and window layers that share the pool.
"""

from attnfix.patches.lab.sglang.paged import FA3, FULL, READS_POOLS, SLIDING, Triton, case, launched, prefill

from .wrap import slots

MIXED, NEXT = ((0, 19, 3), (11, 4, 9)), ((30, 0), (2, 12))
DETERMINISTIC = ("--enable-deterministic-inference",)


def _first_missed(real, pool, loc):
    found = real(pool, loc).clone()
    found[0] = loc[0]
    return found


class Proof(Triton):
    needs = "TritonAttnBackend._forward_extend_unified"
    absent = "TritonAttnBackend has no deterministic prefill"
    bug = (
        case(prefill(*MIXED, layers=(SLIDING,)), prefill(*NEXT), pool=True, flags=DETERMINISTIC),
        case(prefill(*MIXED, layers=(SLIDING,), ahead=True), pool=True, page_size=4, flags=DETERMINISTIC),
    )
    spared = (
        case(prefill(*MIXED, layers=(FULL,)), pool=True, flags=DETERMINISTIC),
        case(prefill(*MIXED), pool=True),
        case(prefill(*MIXED), page_size=4, flags=DETERMINISTIC),
    )
    around = {
        "From 0.5.7 set `--attention-backend fa3` on Hopper": launched(bug, backend=FA3, where=READS_POOLS),
        "`--disable-hybrid-swa-memory`": launched(bug, pool=False),
    }
    broken = {
        "the correction does nothing": (slots, lambda real, pool, loc: loc),
        "one token keeps its slot": (slots, _first_missed),
        "the slots are those of other tokens": (slots, lambda real, pool, loc: real(pool, loc).roll(1)),
    }
