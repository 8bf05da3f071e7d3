"""sglang.dsa-context-parallel, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, PARALLEL

_MODEL = "sglang.srt.models.deepseek_common.attention_forward_methods.forward_mla"
_BACKENDS = "--dsa-prefill-backend", "--nsa-prefill-backend"
_FLAGS = "--enable-dsa-prefill-context-parallel", "--enable-nsa-prefill-context-parallel", "--enable-prefill-cp"

BUG = KnownBug(
    id="sglang.dsa-context-parallel",
    title="Garbage with context parallelism on Blackwell (DeepSeek-V3.2, GLM-5, FP8 KV cache)",
    symptom="All answers to prompts that context parallelism splits are garbage: each rank rotates by positions of the others.",
    symptoms=(GARBAGE, PARALLEL),
    releases=(">=0.5.9,<0.5.15",),
    code=(
        "sglang.srt.layers.attention.nsa_backend:NativeSparseAttnBackend._forward_trtllm",
        f"{_MODEL}:DeepseekMLAForwardMixin.forward_absorb_prepare",
    ),
    upstream=Upstream("sgl-project/sglang", pull=28463),
    hits=AllOf(
        Is("attention", "sparse MLA"),
        Is("compute capability", 100, 103),
        Is("--kv-cache-dtype", "off", "auto", "fp8_e4m3"),
        AnyOf(*map(Given, _FLAGS)),
        Not(AllOf(Not(Since("0.5.10")), Is("--nsa-prefill-cp-mode", "in-seq-split"))),  # whose KV cache is bfloat16
        AnyOf(
            *(Is(name, "trtllm") for name in _BACKENDS),
            AllOf(Since("0.5.10"), Not(Since("0.5.11"))),
            AllOf(Since("0.5.10"), *(Is(name, "off") for name in _BACKENDS)),
        ),
    ),
    avoid="Set `--kv-cache-dtype bfloat16` on such a server, or leave context parallelism out.",
)
