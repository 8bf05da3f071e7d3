"""vllm.rocm-hybrid-writes, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE, SHARED_BATCH

#: Up to 0.18.1, what takes ROCM_ATTN
_OPTIONS = (
    "--attention-backend",
    "--attention-config.backend",
    "--attention-config.use_prefill_decode_attention",
    "$VLLM_ATTENTION_BACKEND",
)

BUG = KnownBug(
    id="vllm.rocm-hybrid-writes",
    title="Garbage with LFM2 and other hybrid models on AMD: keys are written into other blocks",
    symptom="The first token is right and text derails after it; requests overwrite each other's keys, values and states.",
    symptoms=(BACKEND, GARBAGE, SHARED_BATCH),
    releases=(">=0.10.2,<0.21.0",),
    code=(
        "vllm.v1.attention.backends.triton_attn:TritonAttentionImpl",
        "vllm.v1.attention.backends.rocm_attn:RocmAttentionImpl",
    ),
    upstream=Upstream("vllm-project/vllm", pull=38502, issue=41472),
    hits=AllOf(
        Is("GPU", "AMD"),
        Is("recurrent layers", ON),
        Is("attention", "MHA"),
        AnyOf(
            AllOf(Given("$VLLM_V1_USE_PREFILL_DECODE_ATTENTION"), Not(Since("0.15.0"))),
            AllOf(Since("0.11.1"), Is("attention backend", "ROCM_ATTN"), AnyOf(Since("0.19.0"), *map(Given, _OPTIONS))),
        ),
        Unseen("kernel blocks of 16 or 32 tokens: in 0.14.0-0.17.1 of all sizes but 544, else of small states, as LFM2's"),
    ),
    avoid="Start with `--attention-backend TRITON_ATTN`; up to 0.13.0 set none of the variables that take ROCM_ATTN.",
)
