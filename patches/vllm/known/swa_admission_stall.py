"""vllm.swa-admission-stall, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CONTEXT_LIMIT

BUG = KnownBug(
    id="vllm.swa-admission-stall",
    title="A long prompt waits for ever, and all behind it (sliding-window layers)",
    symptom="A prompt that fits is never started, the queue behind it stands still, and the GPU idles until the client leaves.",
    symptoms=(CONTEXT_LIMIT,),
    releases=(">=0.19.0,<0.20.0",),
    code=("vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager.get_num_blocks_to_allocate",),
    upstream=Upstream("vllm-project/vllm", pull=40946, issue=39734),
    hits=AllOf(
        AnyOf(Is("sliding-window layers", ON), Is("architecture", "Llama4ForConditionalGeneration")),
        AnyOf(Is("hybrid KV cache manager", ON), Unseen("a window in all layers")),
        Is("full prompts reserved", ON),
        Unseen("a prompt that fits the KV cache only because windows free blocks"),
    ),
    avoid="Start with --no-scheduler-reserve-full-isl.",
    harm=CRASH,
)
