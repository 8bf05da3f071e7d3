"""vllm.eagle-window-assert, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Given, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES, SPECULATION

BUG = KnownBug(
    id="vllm.eagle-window-assert",
    title="The server dies at a prefix hit with EAGLE or MTP when window layers have the smaller blocks",
    symptom='The engine ends with "aligned_length is not compatible with eagle now" once a prompt has a cached prefix.',
    symptoms=(DIES, CACHED_PREFIX, SPECULATION),
    releases=(">=0.12.0,<0.19.1",),
    code=("vllm.v1.core.single_type_kv_cache_manager:SlidingWindowManager.find_longest_cache_hit",),
    upstream=Upstream("vllm-project/vllm", pull=39450),
    hits=AllOf(
        Is("sliding-window layers", ON),
        Is("drafts from hidden states", ON),
        Is("prefix caching", ON),
        Not(Given("--disable-hybrid-kv-cache-manager")),
        Unseen("full attention layers, the drafter's included, with less KV per token than window layers"),
    ),
    avoid="Start with `--no-enable-prefix-caching`.",
    harm=CRASH,
)
