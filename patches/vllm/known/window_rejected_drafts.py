"""vllm.window-rejected-drafts, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SHARED_BATCH, SPECULATION

BUG = KnownBug(
    id="vllm.window-rejected-drafts",
    title="Sliding-window layers read keys of another request: blocks are freed as if all drafts were accepted",
    symptom="With a full KV cache answers slip now and then: a window's oldest block is reused while steps in flight read it.",
    symptoms=(SPECULATION, SHARED_BATCH),
    releases=(">=0.11.1,<0.26.0",),
    code=("vllm.v1.core.kv_cache_manager:KVCacheManager.allocate_slots",),
    upstream=Upstream("vllm-project/vllm", pull=47728),
    hits=AllOf(
        Is("sliding-window layers", ON),
        Is("async scheduling", ON),
        AnyOf(Is("hybrid KV cache manager", ON), Unseen("a window in all layers")),
        AnyOf(Is("speculative decoding", ON), Is("KV connector", ON)),
        Unseen("a KV cache so full that freed blocks are taken within a few steps"),
    ),
    avoid="Start with `--no-async-scheduling`, or with `--disable-hybrid-kv-cache-manager`.",
)
