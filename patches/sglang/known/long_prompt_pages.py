"""sglang.long-prompt-pages, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, LONG_PROMPT

BUG = KnownBug(
    id="sglang.long-prompt-pages",
    title="Crash when a prefill, or a decode server, takes pages for more than a million tokens at once",
    symptom="The server ends with 'numel exceeds triton maximum tensor numel'.",
    symptoms=(DIES, LONG_PROMPT),
    releases=(">=0.5.1,<0.5.9",),
    code=("sglang.srt.mem_cache.allocator:PagedTokenToKVPoolAllocator.alloc_extend",),
    upstream=Upstream("sgl-project/sglang", pull=18250),
    harm=CRASH,
    hits=AllOf(
        AnyOf(Above("tokens of a page", 1), Is("attention", "sparse MLA")),
        AnyOf(Is("--disaggregation-mode", "decode"), Is("--chunked-prefill-size", "-1")),
        Unseen("prompts of more than 1048576 tokens"),
    ),
    avoid="Set --page-size 1 with a backend that takes it; on a prefill server, leave --chunked-prefill-size at its default.",
)
