"""sglang.sm120-mla-prefill, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.sm120-mla-prefill",
    title="MLA models end on a prefix hit on RTX 50 and RTX PRO: Triton asks for too much shared memory",
    symptom="A prefix hit, second chunk or verification ends the server: 'out of resource: shared memory, Required: 106496'.",
    symptoms=(DIES,),
    releases=(">=0.5.1,<0.5.9",),
    code=(
        "sglang.srt.layers.attention.triton_ops.extend_attention:_get_block_sizes_for_extend_attention",
        "sglang.srt.layers.attention.triton_ops.extend_attention:extend_attention_fwd",
    ),
    upstream=Upstream("sgl-project/sglang", pull=14311),
    harm=CRASH,
    hits=AllOf(
        Is("attention", "MLA"),
        Not(Is("architecture", "MiniCPM3ForCausalLM")),
        Is("prefill backend", "triton"),
        Is("compute capability", 120, 121),
        AnyOf(*(Is(fact, ON) for fact in ("cached prefix", "speculative decoding", "deterministic inference"))),
    ),
    avoid="Set --disable-radix-cache and --chunked-prefill-size -1, and serve without speculative decoding.",
)
