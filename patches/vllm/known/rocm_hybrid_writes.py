"""vllm.rocm-hybrid-writes, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="vllm.rocm-hybrid-writes",
    title="Garbage with LFM2 and other hybrid models on ROCM_ATTN: keys are written into other blocks",
    symptom="The first token is right and text derails after it; requests overwrite each other's keys, values and states.",
    symptoms=(BACKEND, GARBAGE, SHARED_BATCH),
    releases=(">=0.11.1,<0.21.0",),
    code=("vllm.v1.attention.backends.rocm_attn:RocmAttentionImpl",),
    upstream=Upstream("vllm-project/vllm", pull=38502, issue=41472),
    hits=AllOf(
        Is("GPU", "AMD"),
        Is("recurrent layers", ON),
        Is("attention backend", "ROCM_ATTN"),
        AnyOf(
            Not(Since("0.14.0")),
            Unseen("kernel blocks of 16 or 32 tokens: before 0.18.0 all but those of 544, later of small states, as LFM2's"),
        ),
    ),
    avoid="Start with `--attention-backend TRITON_ATTN`; up to 0.13.0 with `VLLM_ATTENTION_BACKEND=TRITON_ATTN`.",
)
