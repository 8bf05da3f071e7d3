"""sglang.cp-prefix-padding, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, LONG_PROMPT, PARALLEL

BUG = KnownBug(
    id="sglang.cp-prefix-padding",
    title="Wrong answers of Qwen3 MoE with prefill context parallelism behind a prefix, or a first chunk",
    symptom="Tokens miss the newest keys, as many as the prefill has padding, where that is no multiple of the ranks.",
    symptoms=(CACHED_PREFIX, LONG_PROMPT, PARALLEL),
    releases=(">=0.5.10,<0.5.13",),
    code=("sglang.srt.layers.utils.cp_utils:prepare_context_parallel_metadata",),
    upstream=Upstream("sgl-project/sglang", pull=23415),
    hits=AllOf(
        Is("architecture", "Qwen3MoeForCausalLM"),
        Given("--enable-prefill-context-parallel"),
        Above("--attn-cp-size", 1),
        AnyOf(*map(Given, ("--enable-dp-attention", "--moe-a2a-backend", "--moe-dense-tp-size"))),
        Unseen("whether a prompt with a cached prefix, or of several chunks, is prefilled alone"),
    ),
    avoid="Leave --enable-prefill-context-parallel out.",
)
