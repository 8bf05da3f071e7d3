"""sglang.full-prefill-window, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.full-prefill-window",
    title="Full prefill graphs of sliding-window models crash beyond the context length (fa3, fa4)",
    symptom="The server ends when it captures, or replays, a prefill of more tokens than the context length.",
    symptoms=(DIES,),
    releases=(">=0.5.16,<0.5.19",),
    code=("sglang.srt.layers.attention.flashattention_backend:FlashAttentionBackend._init_full_cg_prefill_metadata",),
    upstream=Upstream("sgl-project/sglang", pull=35454),
    hits=AllOf(
        AnyOf(
            Given("--cuda-graph-config"),
            Is("--cuda-graph-backend-prefill", "full"),
            Is("architecture", "InklingForConditionalGeneration"),
        ),
        Is("prefill backend", "fa3", "fa4"),
        Is("sliding-window KV pool", ON),
        Unseen("full prefill graphs of more tokens than the context length"),
    ),
    avoid="Set --cuda-graph-backend-prefill disabled.",
    harm=CRASH,
)
