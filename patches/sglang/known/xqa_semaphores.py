"""sglang.xqa-semaphores, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="sglang.xqa-semaphores",
    title="Wrong text now and then behind a prefill on Hopper (trtllm_mha)",
    symptom="A prefill leaves its tile counter among the semaphores of the decode kernel. A request misses partial results.",
    symptoms=(BACKEND, GARBAGE, SHARED_BATCH),
    releases=(">=0.5.19,<0.5.23",),
    code=(
        "sglang.srt.layers.attention.trtllm_mha_backend:TRTLLMHAAttnBackend.__init__",
        "sglang.srt.layers.attention.trtllm_mha_backend:TRTLLMHAAttnBackend.forward_extend",
    ),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("compute capability", 90),
        Not(Is("--disaggregation-mode", "prefill", "decode")),
        Is("prefill backend", "trtllm_mha"),
        AnyOf(Is("decode backend", "trtllm_mha"), Is("verify backend", "trtllm_mha")),
    ),
    avoid="Name another backend with --prefill-attention-backend, such as fa3.",
)
