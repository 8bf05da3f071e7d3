"""vllm.eagle-drop-spiral, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="vllm.eagle-drop-spiral",
    title="No prefix is ever found in the cache with EAGLE or MTP (sliding-window layers)",
    symptom="The hit rate of the prefix cache is 0 with a drafter, and prompts are computed again in each turn.",
    symptoms=(SLOW,),
    releases=(">=0.14.0,<0.20.0",),
    code=("vllm.v1.core.kv_cache_coordinator:HybridKVCacheCoordinator.find_longest_cache_hit",),
    upstream=Upstream("vllm-project/vllm", issue=32802),
    hits=AllOf(
        Is("sliding-window layers", ON),
        Is("drafts from hidden states", ON),
        Is("prefix caching", ON),
        Not(Given("--disable-hybrid-kv-cache-manager")),
        AnyOf(Is("KV connector", OFF), Unseen("the hybrid KV cache manager asked for beside the connector")),
        AnyOf(Not(Since("0.15.1")), Unseen("three kinds of attention layers, those of the drafter included")),
    ),
    avoid="Start with --disable-hybrid-kv-cache-manager, where the KV cache is large enough.",
    harm=SLOWER,
)
