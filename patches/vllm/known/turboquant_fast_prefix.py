"""vllm.turboquant-fast-prefix, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="vllm.turboquant-fast-prefix",
    title="A request ignores its cached prefix beside a longer new prompt (TurboQuant KV cache)",
    symptom="The fast path asks only whether the longest prompt of a step is new, and others attend to their new tokens alone.",
    symptoms=(CACHED_PREFIX, SHARED_BATCH, GARBAGE),
    releases=(">=0.20.0,<=0.33.0",),
    code=("vllm.v1.attention.backends.turboquant_attn:TurboQuantAttentionImpl._prefill_attention",),
    upstream=Upstream("vllm-project/vllm", issue=46460, pull=46461),
    hits=AllOf(
        Is("KV cache dtype", "turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"),
        Unseen("a step that holds a whole new prompt and a shorter rest of a prompt that is cached or chunked"),
    ),
    avoid="Start with `--kv-cache-dtype auto`; `--no-enable-prefix-caching` spares all but chunked prompts.",
)
