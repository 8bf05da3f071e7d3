"""sglang.xpu-local-pages, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE

BUG = KnownBug(
    id="sglang.xpu-local-pages",
    title="Garbage from Llama 4 on Intel GPUs: layers with local attention take slots for pages",
    symptom="Answers of Llama 4 are garbage on intel_xpu, and right on triton.",
    symptoms=(GARBAGE, BACKEND),
    releases=(">=0.5.5.post1,<0.5.13",),
    code=("sglang.srt.layers.attention.xpu_backend:XPUAttentionBackend._init_local_attn_metadata",),
    upstream=Upstream("sgl-project/sglang", pull=23757),
    hits=AllOf(
        Is("architecture", "Llama4ForConditionalGeneration", "Llama4ForCausalLM"),
        AnyOf(Is("prefill backend", "intel_xpu"), Is("decode backend", "intel_xpu")),
    ),
    avoid="Set `--attention-backend triton`.",
)
