"""vllm.swa-admission-crash, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SHARED_BATCH

BUG = KnownBug(
    id="vllm.swa-admission-crash",
    title="Crash under load: no free block for a sliding window once the KV cache is full",
    symptom="Under load, the engine ends with `Cannot get 1 free blocks from the pool` (models with a sliding window).",
    symptoms=(DIES, SHARED_BATCH),
    releases=(">=0.20.0,<0.20.2",),
    code=("vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager.get_num_blocks_to_allocate",),
    upstream=Upstream("vllm-project/vllm", pull=41282, issue=45856),
    harm=CRASH,
    hits=AllOf(
        AnyOf(Is("sliding-window layers", ON), Is("architecture", "Llama4ForConditionalGeneration")),
        AnyOf(Is("hybrid KV cache manager", ON), Unseen("a window in all layers")),
        Unseen("a KV cache so full that a running request finds no free block"),
    ),
    avoid="Start with `--disable-hybrid-kv-cache-manager`, or take release 0.20.2.",
)
