"""vllm.aiter-mla-sync, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="vllm.aiter-mla-sync",
    title="Each decode step waits for the GPU (AMD, MLA of AITER)",
    symptom="Throughput is lower than necessary: a mask on the GPU selects entries of the block table, and the host waits.",
    symptoms=(SLOW,),
    releases=(">=0.10.0,<0.18.0",),
    code=("vllm.v1.attention.backends.mla.rocm_aiter_mla:AiterMLAMetadataBuilder._build_decode",),
    upstream=Upstream("vllm-project/vllm", pull=35765),
    hits=AllOf(
        Is("attention", "MLA"),
        Is("GPU", "AMD"),
        Is("engine core", "V1"),
        Is("attention backend", "ROCM_AITER_MLA", "ROCM_AITER_TRITON_MLA"),
    ),
    avoid="Nothing within the release avoids it; take release 0.18.0.",
    harm=SLOWER,
)
