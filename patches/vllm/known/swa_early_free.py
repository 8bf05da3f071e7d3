"""vllm.swa-early-free, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

BUG = KnownBug(
    id="vllm.swa-early-free",
    title="Windows read keys of another request: blocks are freed before drafts are verified (async scheduling)",
    symptom="Under load, text of models with a sliding window changes now and then; alone, the same request is right.",
    symptoms=(SHARED_BATCH, SPECULATION, GARBAGE),
    releases=(">=0.11.1,<0.26.0",),
    code=("vllm.v1.core.kv_cache_manager:KVCacheManager.allocate_slots",),
    upstream=Upstream("vllm-project/vllm", pull=47728),
    hits=AllOf(
        Is("async scheduling", ON),
        AnyOf(Is("sliding-window layers", ON), Is("architecture", "Llama4ForConditionalGeneration")),
        AnyOf(Is("hybrid KV cache manager", ON), Unseen("a window in all layers")),
        AnyOf(Is("speculative decoding", ON), Is("KV connector", ON)),
        Unseen("a full KV cache: a block that just left the window is given out, or loaded into, at once"),
    ),
    avoid="Start with `--no-async-scheduling`, or where not all layers have windows with `--disable-hybrid-kv-cache-manager`.",
)
