"""sglang.trtllm-mha-pool-copy, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SLOW

BUG = KnownBug(
    id="sglang.trtllm-mha-pool-copy",
    title="Each prefill copies the whole KV pool of each layer (trtllm_mha on Hopper and sm_12x)",
    symptom="Prefill is slow even for short prompts, or runs out of GPU memory. The larger the KV pool, the worse.",
    symptoms=(SLOW, DIES),
    releases=(">=0.5.19,<0.5.23",),
    code=("sglang.srt.layers.attention.trtllm_mha_backend:TRTLLMHAAttnBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang", pull=32272),
    hits=AllOf(
        Is("prefill backend", "trtllm_mha"),
        Is("compute capability", 90, 120, 121),
        Not(Is("--disaggregation-mode", "decode")),
    ),
    avoid="Name another backend with --prefill-attention-backend, such as flashinfer.",
    harm=SLOWER,
)
