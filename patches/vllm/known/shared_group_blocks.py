"""vllm.shared-group-blocks, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="vllm.shared-group-blocks",
    title="Two KV groups write one block when a GPU prefix hit is extended by a KV connector (hybrid models)",
    symptom="With a full cache, answers behind a partly cached, partly loaded prefix are garbage, or the scheduler asserts.",
    symptoms=(CACHED_PREFIX, GARBAGE, SHARED_BATCH),
    releases=(">=0.18.0,<0.24.0",),
    code=("vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator.allocate_new_computed_blocks",),
    upstream=Upstream("vllm-project/vllm", pull=44409, issue=43884),
    hits=AllOf(
        Is("prefix caching", ON),
        Is("KV connector", ON),
        AnyOf(Is("recurrent layers", ON), Is("sliding-window layers", ON)),
        Is("hybrid KV cache manager", ON),
        Unseen("a full cache, and a prompt that is partly cached on the GPU and partly loaded from outside"),
    ),
    avoid="Start with `--no-enable-prefix-caching`.",
)
