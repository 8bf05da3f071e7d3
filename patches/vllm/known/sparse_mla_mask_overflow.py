"""vllm.sparse-mla-mask-overflow, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, LONG_PROMPT

BUG = KnownBug(
    id="vllm.sparse-mla-mask-overflow",
    title="The engine dies at a prefill of DeepSeek-V3.2 on Blackwell: the mask of keys outgrows its buffer",
    symptom="A long prompt beside short ones ends with `shape … is invalid for input of size`, in `_run_masked_mha`.",
    symptoms=(DIES, LONG_PROMPT),
    releases=(">=0.27.0,<0.28.0",),
    code=("vllm.model_executor.layers.attention.sparse_mla_attention:SparseMLACommonImpl._run_masked_mha",),
    upstream=Upstream("vllm-project/vllm", pull=50906),
    harm=CRASH,
    hits=AllOf(
        Is("architecture", "DeepseekV32ForCausalLM"),
        Is("compute capability", 100, 103),
        Is("attention backend", "FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE"),
        Is("decode context parallel size", 1),
        Not(Is("KV cache dtype", "fp8", "fp8_e4m3", "fp8_ds_mla")),
        Unseen("prompts of a step times the longest one's square above 64 MiB of bits, as nine beside 8000 tokens"),
    ),
    avoid="Start with `--attention-config.sparse_mla_force_mqa true`, or with `--kv-cache-dtype fp8`.",
)
