"""vllm.window-load-race, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="vllm.window-load-race",
    title="Windows read what a KV connector loads for another request: blocks are freed while a step reads them",
    symptom="With a KV connector and a full KV cache, answers of models with a sliding window slip now and then.",
    symptoms=(SHARED_BATCH, GARBAGE),
    releases=(">=0.11.1,<0.26.0",),
    code=("vllm.v1.core.kv_cache_manager:KVCacheManager.allocate_slots",),
    upstream=Upstream("vllm-project/vllm", pull=47728),
    hits=AllOf(
        Is("async scheduling", ON),
        AnyOf(Is("sliding-window layers", ON), Is("architecture", "Llama4ForConditionalGeneration")),
        AnyOf(Is("hybrid KV cache manager", ON), Unseen("a window in all layers")),
        Is("KV connector", ON),
        Unseen("a load into a block that left a window while a step in flight reads it"),
    ),
    avoid="Start with `--no-async-scheduling`, or where not all layers have windows with `--disable-hybrid-kv-cache-manager`.",
)
