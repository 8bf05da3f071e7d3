"""vllm.triton-mla-draft-rows, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GARBAGE, SPECULATION

#: Other GPUs than these have it by default
_TAKEN = AnyOf(
    Not(Is("compute capability", 90, 100, 103)),
    Is("--attention-backend", "TRITON_MLA"),
    Is("--attention-config.backend", "TRITON_MLA"),
)

BUG = KnownBug(
    id="vllm.triton-mla-draft-rows",
    title="Kimi-K3 with a DSpark drafter crashes, or repeats a token, on TRITON_MLA",
    symptom="The server dies of an illegal memory access while graphs are captured, or answers repeat one token.",
    symptoms=(DIES, GARBAGE, SPECULATION),
    releases=(">=0.27.0,<0.31.0",),
    code=("vllm.v1.attention.backends.mla.triton_mla:TritonMLAImpl.forward_mqa",),
    upstream=Upstream("vllm-project/vllm", pull=51065, issue=51848),
    hits=AllOf(
        Is("architecture", "KimiK3ForConditionalGeneration"),
        Is("--speculative-config.method", "dspark"),
        AnyOf(
            Is("--speculative-config.attention_backend", "TRITON_MLA"),
            AllOf(Not(Given("--speculative-config.attention_backend")), Is("attention backend", "TRITON_MLA"), _TAKEN),
        ),
    ),
    harm=CRASH,
    avoid="Start without `--speculative-config`, or with another attention backend where the GPU has one.",
)
