"""sglang.hisparse-page-size, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SHARED_BATCH

BUG = KnownBug(
    id="sglang.hisparse-page-size",
    title="DeepSeek V4 with HiSparse admits more prompts than its pool holds, and ends",
    symptom="Under load a prefill that was admitted finds no pages, because admission counts in pages of another size.",
    symptoms=(DIES, SHARED_BATCH),
    releases=(">=0.5.12,<0.5.13",),
    code=("sglang.srt.mem_cache.hisparse_memory_pool:DeepSeekV4HiSparseTokenToKVPoolAllocator.__init__",),
    upstream=Upstream("sgl-project/sglang", pull=24039),
    harm=CRASH,
    hits=AllOf(
        Is("architecture", "DeepseekV4ForCausalLM"),
        Given("--enable-hisparse"),
        Unseen("whether the pool is nearly full"),
    ),
    avoid="Nothing within the release avoids it; take release 0.5.13.",
)
