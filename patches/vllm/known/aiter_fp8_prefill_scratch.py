"""vllm.aiter-fp8-prefill-scratch, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, DIES

BUG = KnownBug(
    id="vllm.aiter-fp8-prefill-scratch",
    title="The first prompt ends the server (MI350, ROCM_AITER_MLA)",
    symptom="AssertionError: the workspace is locked; scratch of the FP8 prefill was not reserved at the start.",
    symptoms=(BACKEND, DIES),
    releases=(">=0.22.0,<0.23.0",),
    code=("vllm.v1.attention.backends.mla.rocm_aiter_mla:AiterMLAMetadataBuilder._init_fp8_prefill_ps_buffers",),
    upstream=Upstream("vllm-project/vllm", pull=42978),
    hits=AllOf(
        Is("GPU", "AMD"),
        Is("attention", "MLA"),
        Is("attention backend", "ROCM_AITER_MLA"),
        Is("model runner", "V1"),
        Not(Given("--enforce-eager")),
        Unseen("an MI350 or MI355 whose AITER has the FP8 prefill, and experts that reserved no larger workspace"),
    ),
    avoid="Start with `--attention-backend TRITON_MLA`.",
    harm=CRASH,
)
