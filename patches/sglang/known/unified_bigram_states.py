"""sglang.unified-bigram-states, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, SPECULATION

_HICACHE = Given("--enable-hierarchical-cache")
_TREE = "sglang.srt.mem_cache.unified_radix_cache:UnifiedRadixCache"

BUG = KnownBug(
    id="sglang.unified-bigram-states",
    title="Hybrid models with EAGLE or MTP read tokens twice after a prefix hit (HiCache, unified radix tree)",
    symptom="A prefix hit resumes from a recurrent state that is one token or one page ahead of the cached prefix.",
    symptoms=(CACHED_PREFIX, SPECULATION),
    releases=(">=0.5.11,<0.5.16",),
    code=(f"{_TREE}.__init__", f"{_TREE}.cache_finished_req", f"{_TREE}.cache_unfinished_req"),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("speculative algorithm", "EAGLE", "EAGLE3", "FROZEN_KV_MTP"),
        Not(Given("--disable-radix-cache")),
        AnyOf(Since("0.5.14"), Is("tracked Mamba states", ON)),
        AnyOf(
            AllOf(Given("$SGLANG_ENABLE_UNIFIED_RADIX_TREE"), AnyOf(Since("0.5.12"), Not(_HICACHE))),
            AllOf(_HICACHE, Since("0.5.13")),
        ),
    ),
    avoid="Leave out `--enable-hierarchical-cache` and SGLANG_ENABLE_UNIFIED_RADIX_TREE, or speculative decoding.",
)
