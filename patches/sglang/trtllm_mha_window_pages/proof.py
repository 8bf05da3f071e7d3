"""Proof of sglang.trtllm-mha-window-pages: prefill, decode and verification of window layers whose KV has a pool of its own.

Spared: full layers, and models whose layers share one pool.
"""

from attnfix.patches.lab.sglang.paged import CHAIN, FULL, TrtllmMha, case, decode, decodes, launched, prefill, verify

from .wrap import pages, slots

_POOL = "sglang.srt.mem_cache.swa_memory_pool"
_BACKEND = "sglang.srt.layers.attention.trtllm_mha_backend"
_REPLAYS = f"{_BACKEND}:TRTLLMHAAttnBackend.init_forward_metadata_replay_cuda_graph"  # up to 0.5.12.post1
LONG, ONE = (25, 3, 40), (30,)
MIXED = ((0, 19, 33), (11, 4, 9))


def _one_behind(real, pool, table, size):
    found = real(pool, table, size)
    return found.roll(1, 1) if found.shape[1] > 1 else found + 1


class Proof(TrtllmMha):
    modules = (*TrtllmMha.modules, _POOL)
    may_lack = (_POOL,)
    needs = f"{_POOL}:SWAKVPool"
    absent = "pools of window layers have no pages"
    bug = (
        case(prefill(*MIXED), *decodes(LONG), page_size=16, pool=True),
        case(decode(LONG, graph=True), decode(ONE, graph=True), decode(LONG), page_size=16, pool=True, where=_REPLAYS),
        case(verify(LONG, CHAIN), verify(ONE, CHAIN), page_size=16, pool=True, topk=1),
        case(verify(LONG, CHAIN, graph=True), verify(ONE, CHAIN, graph=True), page_size=16, pool=True, topk=1, where=_REPLAYS),
        case(prefill(*MIXED, ahead=True), page_size=16, pool=True),
        case(
            prefill(*MIXED),
            decode(LONG),
            decode(LONG, graph=True),
            page_size=16,
            pool=True,
            kv_dtype="fp8_e4m3",
            where=_REPLAYS,
        ),
    )
    spared = (
        case(prefill(*MIXED, layers=(FULL,)), decode(LONG, layers=(FULL,)), page_size=16, pool=True),
        case(prefill(*MIXED), decode(LONG), page_size=16),
        case(decode(ONE, graph=True), page_size=16, where=_REPLAYS),
        case(prefill(*MIXED), decode(LONG), page_size=16, kv_dtype="fp8_e4m3", where=_REPLAYS),
    )
    around = {"`--disable-hybrid-swa-memory`": launched(bug, pool=False)}
    broken = {
        "the correction does nothing": (pages, lambda real, pool, table, size: table),
        "pages are those of other tokens": (pages, _one_behind),
        "keys of an FP8 cache keep their slots": (slots, lambda real, pool, loc: loc),
    }
    broken_where = dict.fromkeys(tuple(broken)[:2], f"no {_BACKEND}:TRTLLMHAAttnBackend._get_layer_page_table")
