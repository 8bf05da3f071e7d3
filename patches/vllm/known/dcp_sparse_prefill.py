"""vllm.dcp-sparse-prefill, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Given, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, PARALLEL

BUG = KnownBug(
    id="vllm.dcp-sparse-prefill",
    title="DeepSeek-V3.2 and GLM-5 answer with random tokens under decode context parallelism",
    symptom=(
        "Prompts of some hundred tokens, up to the indexer's top k of 2048, are answered with random tokens. Longer ones are "
        "answered well."
    ),
    symptoms=(PARALLEL, GARBAGE),
    releases=(">=0.29.0,<0.30.0",),
    code=("vllm.models.deepseek_v32.common.kernels:_fused_norm_rope_kernel",),
    upstream=Upstream("vllm-project/vllm", issue=54300),
    hits=AllOf(
        Is("architecture", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"),
        Above("decode context parallel size", 1),
        Not(Above("--prefill-context-parallel-size", 1)),
        Not(Given("--attention-config.sparse_mla_force_mqa")),
    ),
    avoid="Start with `--attention-config.sparse_mla_force_mqa true`.",
)
