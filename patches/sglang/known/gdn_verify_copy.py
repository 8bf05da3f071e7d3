"""sglang.gdn-verify-copy, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

_BACKEND = "sglang.srt.layers.attention.hybrid_linear_attn_backend"

BUG = KnownBug(
    id="sglang.gdn-verify-copy",
    title="Slow speculative decoding of Qwen3-Next: every layer copies all convolution states in each step",
    symptom="A verification clones the convolution states of all slots of a layer, and uses those of the batch.",
    symptoms=(SLOW,),
    releases=(">=0.5.2,<0.5.6",),
    code=(f"{_BACKEND}:GDNAttnBackend.forward_extend", f"{_BACKEND}:MambaAttnBackend.forward_extend"),
    upstream=Upstream("sgl-project/sglang"),
    harm=SLOWER,
    hits=AllOf(
        Is("architecture", "Qwen3NextForCausalLM"),
        Is("speculative decoding", "on"),
    ),
    avoid="Set --disable-radix-cache and a lower --max-mamba-cache-size, which leaves fewer slots to copy.",
)
