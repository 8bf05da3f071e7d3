"""Proof of sglang.fa3-swa-topk: window layers verify trees of drafts, with and without a CUDA graph.

Spared: chains, full layers, and models whose layers share one pool.
"""

from attnfix.patches.lab.sglang.paged import CHAIN, SLIDING, FlashAttention, case, launched, verify

from .wrap import in_own_pool

LONG, ONE = (25, 3, 9), (30,)


class Proof(FlashAttention):
    needs = "FlashAttentionBackend.__init__: use_sliding_window_kv_pool"
    absent = "FlashAttentionBackend knows no sliding-window KV pool"
    bug = (
        case(verify(LONG, layers=(SLIDING,)), verify(ONE), pool=True, topk=2),
        case(verify(LONG, graph=True, layers=(SLIDING,)), verify(ONE, graph=True), pool=True, topk=2, kv_dtype="fp8_e4m3"),
    )
    spared = (
        case(verify(LONG, CHAIN), verify(LONG, CHAIN, graph=True), pool=True, topk=1),
        case(verify(LONG, CHAIN), pool=True, page_size=4, topk=1),
        case(verify(LONG), verify(ONE, graph=True), topk=2),
    )
    around = {"`--speculative-eagle-topk 1`": launched(bug, CHAIN, topk=1)}
    broken = {
        "the correction does nothing": (in_own_pool, lambda real, pool, table: table),
        "draft tokens keep their slots": (
            in_own_pool,
            lambda real, pool, table: real(pool, table) if table.max_seq_len_q > 1 else table,
        ),
        "cached tokens keep their slots": (
            in_own_pool,
            lambda real, pool, table: real(pool, table) if table.max_seq_len_q == 1 else table,
        ),
    }
