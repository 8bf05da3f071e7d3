"""vllm.partial-hit-assert, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES, SPECULATION

BUG = KnownBug(
    id="vllm.partial-hit-assert",
    title="The engine dies at a lookup of prefixes where a hybrid model has a drafter with a window",
    symptom="The engine ends with `SlidingWindowManager does not support fine-grained (partial) cache hits`.",
    symptoms=(DIES, CACHED_PREFIX, SPECULATION),
    releases=(">=0.26.0,<0.28.0",),
    code=("vllm.v1.core.kv_cache_coordinator:HybridKVCacheCoordinator.__init__",),
    upstream=Upstream("vllm-project/vllm"),
    harm=CRASH,
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("cache mode of states", "align"),
        Is("decode context parallel size", 1),
        Unseen("a drafter or layers with a window, of larger blocks than `--prefix-match-unit` or the common divisor"),
    ),
    avoid="Start with `--no-enable-prefix-caching`, or without a drafter that has a window.",
)
