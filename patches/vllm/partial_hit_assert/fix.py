"""vllm.partial-hit-assert, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, DIES, SPECULATION

from . import wrap

_CORE = "vllm.v1.core"
_COORDINATOR = f"{_CORE}.kv_cache_coordinator"
_MANAGERS = f"{_CORE}.single_type_kv_cache_manager"

FIX = Fix(
    id="vllm.partial-hit-assert",
    title="The engine dies at a lookup of prefixes where a hybrid model has a drafter with a window",
    symptom="The engine ends with `SlidingWindowManager does not support fine-grained (partial) cache hits`.",
    symptoms=(DIES, CACHED_PREFIX, SPECULATION),
    cause=(
        "A prefix may end within a block where states have longer blocks than a hash has tokens. The cache manager of layers "
        "with a window finds prefixes of whole blocks alone, and asserts that it is asked for such."
    ),
    correction=(
        "On such a server, prefixes end with blocks of all layers, as in 0.28.0. One with Mooncake's store ends as ever from "
        "0.27.0: the store asks for such prefixes, too, and requests would wait for ever."
    ),
    upstream=Upstream("vllm-project/vllm", pull=51843),
    hardware="any GPU (hybrid models with cached prefixes, and layers or drafters with a window)",
    default=True,
    default_reason="the engine dies at its first request; 0.28.0 looks prefixes up in the same way",
    targets=(Target(wrap.init, paths=(f"{_CORE}.sched.scheduler:Scheduler.__init__",)),),
    # Managers that find a part of a block, and their callers
    witnesses=(
        f"{_COORDINATOR}:HybridKVCacheCoordinator.__init__",
        f"{_COORDINATOR}:HybridKVCacheCoordinator._cache_hit_alignment_tokens",
        f"{_COORDINATOR}:HybridKVCacheCoordinator.find_longest_cache_hit",
        f"{_COORDINATOR}:HybridKVCacheCoordinator.cache_blocks",
        f"{_MANAGERS}:SlidingWindowManager.find_longest_cache_hit",
        f"{_CORE}.kv_cache_utils:resolve_kv_cache_block_sizes",
    ),
    cost="Nothing after startup. Prefixes are found in steps of the least common multiple of all layers' blocks.",
    avoid="Start with `--no-enable-prefix-caching`, or without a drafter that has a window.",
    expect="On one replica with such a drafter, requests are answered where the first one ended the engine.",
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("cache mode of states", "align"),
        Is("decode context parallel size", 1),
        Is("lookups that a window refuses", ON),
    ),
    harm=CRASH,
)
