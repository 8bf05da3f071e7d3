"""vllm.dcp-sparse-decode, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL

BUG = KnownBug(
    id="vllm.dcp-sparse-decode",
    title="DeepSeek-V3.2 and GLM-5 end in an AttributeError under decode context parallelism",
    symptom="`FlashInferMLASparseMetadata` has no attribute `decode`: the server ends at its first step of attention.",
    symptoms=(DIES, PARALLEL),
    releases=(">=0.28.0,<0.29.0",),
    code=("vllm.model_executor.layers.attention.mla_attention:MLAAttention.forward_impl",),
    upstream=Upstream("vllm-project/vllm", issue=54300),
    hits=AllOf(
        Is("architecture", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"),
        Is("attention backend", "FLASHINFER_MLA_SPARSE"),
        Above("decode context parallel size", 1),
    ),
    avoid="Leave `--decode-context-parallel-size` out.",
    harm=CRASH,
)
