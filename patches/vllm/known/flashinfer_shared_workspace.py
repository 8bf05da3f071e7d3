"""vllm.flashinfer-shared-workspace, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GARBAGE

_FP8 = Is("KV cache dtype", "fp8", "fp8_e4m3")
BUG = KnownBug(
    id="vllm.flashinfer-shared-workspace",
    title="Rare illegal memory accesses on Blackwell: two kinds of FlashInfer kernels share a workspace",
    symptom="The engine dies now and then, or an answer is wrong: prefill leaves bits where decode expects zeros.",
    symptoms=(DIES, GARBAGE),
    releases=(">=0.10.1,<0.11.0",),
    code=("vllm.v1.attention.backends.flashinfer:FlashInferImpl.forward",),
    upstream=Upstream("vllm-project/vllm", pull=25520),
    hits=AllOf(
        Is("engine core", "V1"),
        Is("attention", "MHA"),
        Is("attention backend", "FLASHINFER"),
        Is("compute capability", 100),
        AnyOf(
            AllOf(Is("KV cache dtype", "auto"), Is("attention sinks", OFF), Is("$VLLM_USE_TRTLLM_ATTENTION", OFF)),
            AllOf(Not(Since("0.10.2")), _FP8, Is("$VLLM_USE_TRTLLM_ATTENTION", "1")),
        ),
        Unseen("steps of more and of less than 256 tokens, and a FlashInfer that clears no workspace itself"),
    ),
    avoid="Set `VLLM_USE_TRTLLM_ATTENTION=0`: one kind of kernels runs then. 1 does so, too, unless the cache is FP8.",
    harm=CRASH,
)
