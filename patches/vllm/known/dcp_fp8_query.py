"""vllm.dcp-fp8-query, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, AnyOf, Given, Is, Not, Since
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, KV_SCALES, PARALLEL

_FLASHINFER = AllOf(
    Is("attention backend", "FLASHINFER"),
    AnyOf(Is("compute capability", 100, 103), AllOf(Since("0.25.0"), Is("compute capability", 90))),
    Not(Given("--attention-config.disable_flashinfer_q_quantization")),
)
BUG = KnownBug(
    id="vllm.dcp-fp8-query",
    title="The server ends with a kernel's error: FP8 cache under decode context parallelism",
    symptom=(
        "`query and key must have the same dtype`, or `FP8 output is not supported`, ends the server when it starts or at "
        "the first prompt."
    ),
    symptoms=(DIES, PARALLEL, KV_SCALES),
    releases=(">=0.11.1,<=0.33.0",),
    code=("vllm.v1.attention.backends.flash_attn:FlashAttentionImpl._forward_with_dcp",),
    upstream=Upstream("vllm-project/vllm", report="vllm-dcp-fp8-query"),
    hits=AllOf(
        Is("attention", "MHA"),
        AnyOf(
            AllOf(Is("attention backend", "FLASH_ATTN"), Is("compute capability", 90, 100, 103)),
            _FLASHINFER,
        ),
        Above("decode context parallel size", 1),
        Is("KV cache dtype", "fp8", "fp8_e4m3", "fp8_e5m2"),
    ),
    avoid="Keep the KV cache in the model's dtype.",
    harm=CRASH,
)
