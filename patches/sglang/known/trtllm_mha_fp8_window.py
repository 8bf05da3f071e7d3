"""sglang.trtllm-mha-fp8-window, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE, KV_SCALES

_BACKEND = "sglang.srt.layers.attention.trtllm_mha_backend:TRTLLMHAAttnBackend"

BUG = KnownBug(
    id="sglang.trtllm-mha-fp8-window",
    title="Garbage with an FP8 KV cache: window layers write to slots of the other pool (TRT-LLM MHA)",
    symptom="Llama 4 and Step-3.5 answer garbage on Blackwell, or end in an illegal memory access.",
    symptoms=(GARBAGE, KV_SCALES, BACKEND),
    releases=(">=0.5.9,<0.5.10",),
    code=(f"{_BACKEND}._fused_fp8_set_kv_buffer",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        AnyOf(Is("prefill backend", "trtllm_mha"), Is("decode backend", "trtllm_mha")),
        Is("sliding-window KV pool", ON),
        AnyOf(
            Is("--kv-cache-dtype", "fp8_e4m3"),
            AllOf(Is("--kv-cache-dtype", OFF, "auto"), Is("KV cache scales", "calibrated FP8")),
        ),
    ),
    avoid="Set `--disable-hybrid-swa-memory`, or `--kv-cache-dtype bfloat16`.",
)
