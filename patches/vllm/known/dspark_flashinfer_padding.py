"""vllm.dspark-flashinfer-padding, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SPECULATION

_FLASHINFER = "FLASHINFER_MLA_SPARSE_DSV4", "FLASHINFER_MLA_SPARSE_DSV41"
BUG = KnownBug(
    id="vllm.dspark-flashinfer-padding",
    title="DeepSeek-V4.1's DSpark drafter attends to padding on FlashInfer, and drafts are rejected",
    symptom="The acceptance rate of DSpark drafts is lower than on FlashMLA. Texts stay right.",
    symptoms=(SPECULATION,),
    releases=(">=0.30.0,<0.31.0",),
    code=("vllm.models.deepseek_v41.nvidia.flashinfer_sparse:DeepseekV4FlashInferMLAAttention._forward",),
    upstream=Upstream("vllm-project/vllm", pull=57432),
    hits=AllOf(
        Is("architecture", "DeepseekV41ForCausalLM"),
        AnyOf(
            Is("--speculative-config.method", "dspark"),
            AllOf(Is("--speculative-config.method", OFF), Given("--speculative-config.model"), Unseen("a DSpark drafter")),
        ),
        Is("compute capability", 100, 103),
        AnyOf(*(Is(f"--attention-{option}", *_FLASHINFER) for option in ("backend", "config.backend"))),
    ),
    harm=SLOWER,
    avoid="Start without `--attention-backend`: the default on an SM100 is FlashMLA.",
)
